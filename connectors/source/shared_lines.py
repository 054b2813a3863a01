"""What one round has to say of many topics: the first get a line of their own, the others share lines; all are named.

A source of ten thousand topics must not be able to fill the log (S23), and nothing that is changed goes unnamed.
``in_lines`` does the same for whatever else is many; ACLs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

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
