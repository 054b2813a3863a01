"""What one round has to say of many topics: the first get a line of their own, the others share lines; all are named.

A source of ten thousand topics must not be able to fill the log (S23), and nothing that is changed goes unnamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from structlog.typing import FilteringBoundLogger

OWN_LINES_MOST: Final = 20
"""So many topics of each event get a line of their own."""
SHARED_LINE_CHARACTERS: Final = 4000
"""A shared line ends behind the topic with which it becomes so long."""


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
            for named in _lines(rest):
                getattr(self._log, level)(event, topics=len(named), named=" | ".join(named), **dict(shared))
        self._own, self._rest = {}, {}


def _lines(rest: list[str]) -> list[list[str]]:
    lines: list[list[str]] = []
    length = SHARED_LINE_CHARACTERS
    for text in rest:
        if length >= SHARED_LINE_CHARACTERS:
            lines.append([])
            length = 0
        lines[-1].append(text)
        length += len(text)
    return lines
