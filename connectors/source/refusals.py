"""What was said of a thing that still stands as it did: a schedule that meets it again need not say it again.

What one round has to say of many topics: the first get a line of their own, the others share lines; all are named.

A source of ten thousand topics must not be able to fill the log (S23), and nothing that is changed goes unnamed.
``in_lines`` does the same for whatever else is many; ACLs are.

Which topics of a flow are not copied, or not wholly, as things stand: said once, and once more when it is over.

Settings that the target refuses to give to a remote topic: left out one by one, said once, tried again now and then.

MM2 sends all settings of a topic at once, and the broker then takes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

from connectors.source.errors import RemoteTopicTooNarrow, TopicRefused
from mm2py.clock import Clock


class Notices:
    """Remembers what was said, by what it was said of."""

    def __init__(self) -> None:
        self._said: dict[Hashable, str] = {}

    def is_new(self, of: Hashable, text: str = "") -> bool:
        """Tell whether this is to be said: nothing was said of it yet, or something else. From now on it was said."""
        if self._said.get(of) == text:
            return False
        self._said[of] = text
        return True

    def is_over(self, of: Hashable) -> bool:
        """Tell whether something was said of it, and forget it: should it come back, it is news again."""
        return self._said.pop(of, None) is not None

    def keep(self, still_there: Callable[[Hashable], bool]) -> None:
        """Forget all that was said of things that are not there any more."""
        self._said = {of: text for of, text in self._said.items() if still_there(of)}


OWN_LINES_MOST: Final = 20
"""So many topics of each event get a line of their own."""
LINE_MOST_CHARS: Final = 4000
"""So many characters of text a shared line holds."""


class SharedLines:
    """The lines of one round. ``end`` writes those that are shared."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._own: dict[str, int] = {}
        self._rest: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[str]] = {}

    def say(
        self,
        event: str,
        topic: str,
        *,
        level: str = "info",
        detail: str = "",
        shared: Mapping[str, str] = MappingProxyType({}),
        **own: str,
    ) -> None:
        """Say something of a topic.

        Args:
            detail: what stands behind the topic's name in a shared line.
            shared: fields that are true of every topic in a shared line.
            own: fields of the topic's own line; they come first, and count more than ``shared``.
        """
        self._own[event] = self._own.get(event, 0) + 1
        if self._own[event] <= OWN_LINES_MOST:
            getattr(self._log, level)(event, topic=topic, **{**own, **shared, **own})
        else:
            rest = self._rest.setdefault((event, level, tuple(shared.items())), [])
            rest.append(f"{topic}: {detail}" if detail else topic)

    def end(self) -> None:
        """Write the shared lines, and begin another round."""
        for (event, level, shared), rest in self._rest.items():
            for named in in_lines(rest):
                getattr(self._log, level)(event, topics=len(named), named=" | ".join(named), **dict(shared))
        self._own, self._rest = {}, {}


def in_lines(texts: Iterable[str], *, most_chars: int = LINE_MOST_CHARS) -> Iterator[list[str]]:
    """Yield the texts in parts that one line of the log may hold. A text that is longer has a part of its own."""
    part: list[str] = []
    size = 0
    for text in texts:
        if part and size + len(text) > most_chars:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield part


TOPIC_LINES_MOST: Final = 50
"""So many refused topics of one round get a line of their own: a source must not be able to fill the log (S23)."""


class RefusedTopics:
    """What stands, by source topic."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._refused: dict[str, TopicRefused] = {}
        self._narrow: dict[str, RemoteTopicTooNarrow] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._refused or name in self._narrow

    def names(self) -> set[str]:
        return {*self._refused, *self._narrow}

    def width(self, name: str) -> int:
        """Return how many partitions of a topic can be copied, going by what was found last; 0 if it is refused."""
        narrow = self._narrow.get(name)
        return 0 if narrow is None or name in self._refused else narrow.remote_partitions

    def shown(self) -> dict[str, str]:
        """Return why each of them is not copied, or not wholly."""
        return {name: str(error) for name, error in {**self._narrow, **self._refused}.items()}

    def keep(self, there: Container[str]) -> None:
        """Forget topics that the source does not show any more: there is nothing left to refuse."""
        self._refused = {name: error for name, error in self._refused.items() if name in there}
        self._narrow = {name: error for name, error in self._narrow.items() if name in there}

    def note(self, looked_at: Iterable[str], refused: Mapping[str, TopicRefused]) -> None:
        """Take in what a round found of topics; those it did not look at stay as they were."""
        lines = 0
        for name in looked_at:
            error = refused.get(name)
            if error is None:
                if self._refused.pop(name, None) is not None:
                    self._log.info("topic.accepted", topic=name)
            elif str(self._refused.get(name)) != str(error):
                lines += 1
                if lines <= TOPIC_LINES_MOST:
                    self._log.error(error.event, topic=name, why=str(error))
                self._refused[name] = error
        if lines > TOPIC_LINES_MOST:
            self._log.error(
                "topics.refused", topics=lines, why=f"{lines - TOPIC_LINES_MOST} more have no line of their own"
            )

    def note_one(self, name: str, error: TopicRefused) -> None:
        self.note([name], {name: error})

    def note_narrow(self, looked_at: Iterable[str], too_narrow: Mapping[str, RemoteTopicTooNarrow]) -> None:
        """The same for remote topics with too few partitions: those they have are copied."""
        lines = 0
        for name in looked_at:
            error = too_narrow.get(name)
            if error is None:
                self._narrow.pop(name, None)
            elif str(self._narrow.get(name)) != str(error):
                lines += 1
                if lines <= TOPIC_LINES_MOST:
                    self._log.error("topic.too_narrow", topic=name, why=str(error))
                self._narrow[name] = error


AGAIN_S: Final = 3600.0
"""How long a refused setting is left alone while its value stays the same: the target may be upgraded meanwhile."""
CONFIG_LINES_MOST: Final = 20
LINES_WITHIN_S: Final = 60.0
"""So many refusals within so long get a line of their own; what is more is counted."""


@dataclass(slots=True)
class _Refusal:
    value: str | None
    at_s: float


class RefusedConfigs:
    """What one flow's target refused, by remote topic and setting."""

    def __init__(self, target_alias: str, *, clock: Clock, log: FilteringBoundLogger) -> None:
        self._target_alias = target_alias
        self._clock = clock
        self._log = log
        self._refused: dict[tuple[str, str], _Refusal] = {}
        self._lines = 0
        self._lines_since_s = float("-inf")

    def note(self, topic: str, name: str, value: str | None, why: str) -> None:
        """Remember a refusal; say it unless it was said of the same value before."""
        now_s = self._clock.monotonic()
        before = self._refused.get((topic, name))
        self._refused[topic, name] = _Refusal(value, now_s)
        if before is not None and before.value == value:
            return
        if now_s - self._lines_since_s >= LINES_WITHIN_S:
            self._lines_since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= CONFIG_LINES_MOST:
            self._log.warning(
                "topic_config.refused",
                topic=topic,
                setting=name,
                value="(default)" if value is None else value,
                why=why,
                effect=f"the topic is copied without it; it is tried again when it changes, or after {AGAIN_S:g} s",
                remedy=f"Set it on {self._target_alias} by hand, or add it to config.properties.exclude.",
            )
        elif self._lines == CONFIG_LINES_MOST + 1:
            self._log.warning("topic_config.refused_often", why="more settings are refused; they are left out as well")

    def holds(self, topic: str, name: str, value: str | None) -> bool:
        """Tell whether this very value was refused not long ago, so that sending it again is of no use."""
        refusal = self._refused.get((topic, name))
        return refusal is not None and refusal.value == value and self._clock.monotonic() - refusal.at_s < AGAIN_S

    def taken(self, topic: str, name: str) -> None:
        """The target has taken the setting."""
        if self._refused.pop((topic, name), None) is not None:
            self._log.info("topic_config.accepted", topic=topic, setting=name)

    def keep(self, is_there: Callable[[str], bool]) -> None:
        """Forget remote topics that are not copied any more, nor just made."""
        now_s = self._clock.monotonic()
        self._refused = {
            key: refusal for key, refusal in self._refused.items() if is_there(key[0]) or now_s - refusal.at_s < AGAIN_S
        }
