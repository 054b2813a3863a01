"""Logs what a flow reports of many topics: each fact once while it lasts, in few lines, so that the log never fills up.

``Notices`` does that for everything that rounds find. ``RefusedTopics`` are the topics that are not copied, or not
completely. ``RefusedConfigs`` are settings that the target refuses for a remote topic: only the refused one is left
out, and it is tried again from time to time. MirrorMaker 2 sends all settings of a topic at once, and the broker then
accepts none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.records.standstill import Cause
from mm2py.status.not_copied import Reason
from mm2py_connectors.source.context import FlowView
from mm2py_connectors.source.refusals import Recreated, RemoteTopicTooNarrow, TopicRefused, Undecided

OWN_LINES_MOST: Final = 20
"""How many topics of each event get a line of their own in a round; the others share lines, which name them all."""
LINE_MOST_CHARS: Final = 4000
"""How many characters of text a shared line holds."""
AGAIN_S: Final = 3600.0
"""How long a refused setting is left alone while its value stays the same: the target may be upgraded meanwhile."""


class Notices:
    """Remembers what was logged of each thing, and gathers the lines of a round; ``end`` writes the shared lines."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._said: dict[Hashable, str] = {}
        self._own: dict[str, int] = {}
        self._rest: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[str]] = {}

    def is_new(self, of: Hashable, text: str = "") -> bool:
        """Return whether the last text on this thing was another one or none; the new one counts as logged now."""
        if self._said.get(of) == text:
            return False
        self._said[of] = text
        return True

    def is_over(self, of: Hashable) -> bool:
        """Return whether something was logged of this thing, and forget that: if the thing comes back, it is new."""
        return self._said.pop(of, None) is not None

    def keep(self, still_there: Callable[[Hashable], bool]) -> None:
        """Forget what was logged of things that are gone."""
        self._said = {of: text for of, text in self._said.items() if still_there(of)}

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
        """Log something about a topic.

        Args:
            detail: the text after the topic's name in a shared line.
            shared: fields that are true of every topic in a shared line.
            own: fields of the topic's own line; they come first, and replace those of ``shared``.
        """
        self._own[event] = self._own.get(event, 0) + 1
        if self._own[event] <= OWN_LINES_MOST:
            getattr(self._log, level)(event, topic=topic, **{**own, **shared, **own})
        else:
            rest = self._rest.setdefault((event, level, tuple(shared.items())), [])
            rest.append(f"{topic}: {detail}" if detail else topic)

    def end(self) -> None:
        """Write the shared lines; the next round begins."""
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


class RefusedTopics:
    """The source topics that are not copied now, or not completely, with the reasons."""

    def __init__(self, log: FilteringBoundLogger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._notices = Notices(log)
        self._refused: dict[str, TopicRefused] = {}
        self._since_ms: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._refused

    def names(self) -> set[str]:
        return set(self._refused)

    def width(self, name: str) -> int:
        """Return how many partitions of a refused topic can be copied all the same."""
        error = self._refused.get(name)
        return error.remote_partitions if isinstance(error, RemoteTopicTooNarrow) else 0

    def shown(self) -> dict[str, str]:
        """Return the reason for each of them."""
        return {name: str(error) for name, error in self._refused.items()}

    def causes(self) -> dict[str, Cause]:
        """Return the reasons in the form that the status topic stores."""
        now_ms = self._clock.wall_ms()
        self._since_ms = {name: self._since_ms.get(name, now_ms) for name in self._refused}
        return {name: _cause(error, self._since_ms[name]) for name, error in self._refused.items()}

    def keep(self, there: Container[str]) -> None:
        """Forget topics that the source does not show any more."""
        self._refused = {name: error for name, error in self._refused.items() if name in there}

    def forget(self, names: Iterable[str]) -> None:
        """Forget these topics without a line in the log."""
        for name in names:
            self._refused.pop(name, None)

    def note(self, refused: Mapping[str, TopicRefused], looked_at: Iterable[str] = ()) -> None:
        """Update which topics are refused. Topics of ``looked_at`` that are not refused count as accepted."""
        for name in looked_at:
            if name not in refused and self._refused.pop(name, None) is not None:
                self._log.info("topic.accepted", topic=name)
        for name, error in refused.items():
            before = self._refused.get(name)
            if before is None or before.what != error.what:  # a remedy names offsets, which move
                shared = {"reason": str(_reason(error))}
                self._notices.say(error.event, name, level="error", detail=error.what, shared=shared, why=str(error))
            self._refused[name] = error
        self._notices.end()


def _reason(error: TopicRefused) -> Reason:
    match error:
        case Undecided():
            return Reason.UNDECIDED
        case Recreated():
            return Reason.STOPPED
        case _:
            return Reason.REFUSED


def _cause(error: TopicRefused, since_ms: int) -> Cause:
    reason = _reason(error)
    partitions = error.left_out if isinstance(error, RemoteTopicTooNarrow) else ""
    return Cause(reason, error.what, error.remedy, since_ms, partitions)


class RefusedConfigs:
    """What one flow's target refused, by remote topic and setting."""

    def __init__(self, context: FlowView) -> None:
        self._target_alias = context.target.alias
        self._clock = context.clock
        self._log = context.log
        self._notices = Notices(context.log)
        self._refused: dict[tuple[str, str], tuple[str | None, float]] = {}
        """The value that was refused, and when."""

    def note(self, topic: str, name: str, value: str | None, why: str) -> None:
        """Remember a refusal; log it unless the same value was refused before. ``end`` ends the round."""
        before = self._refused.get((topic, name))
        self._refused[topic, name] = (value, self._clock.monotonic())
        if before is None or before[0] != value:
            self._notices.say(
                "topic_config.refused",
                topic,
                level="warning",
                detail=f"{name}={value}: {why}",
                shared={
                    "effect": f"the topic is copied without it; it is tried again when it changes, or after"
                    f" {AGAIN_S:g} s",
                    "remedy": f"Set it on {self._target_alias} by hand, or add it to config.properties.exclude.",
                },
                setting=name,
                value="(default)" if value is None else value,
                why=why,
            )

    def end(self) -> None:
        """Write the lines that refusals share."""
        self._notices.end()

    def holds(self, topic: str, name: str, value: str | None) -> bool:
        """Return whether this value was refused within the last ``AGAIN_S``, so that sending it again is of no use."""
        refused, at_s = self._refused.get((topic, name), (None, float("-inf")))
        return refused == value and self._clock.monotonic() - at_s < AGAIN_S

    def taken(self, topic: str, name: str) -> None:
        """Forget a refusal: the target has accepted the setting."""
        if self._refused.pop((topic, name), None) is not None:
            self._log.info("topic_config.accepted", topic=topic, setting=name)

    def keep(self, is_there: Callable[[str], bool]) -> None:
        """Forget remote topics that are not copied, but no refusals younger than ``AGAIN_S``: a topic may be new."""
        now_s = self._clock.monotonic()
        self._refused = {
            key: (value, at_s)
            for key, (value, at_s) in self._refused.items()
            if is_there(key[0]) or now_s - at_s < AGAIN_S
        }
