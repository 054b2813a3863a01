"""How the batches of a topic travel where a choice exists: ``copy.mode`` and its lists of topics. Pure.

MirrorMaker 2 has no such choice: it decodes and encodes every record.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from mm2py.topics.filters import PatternList, PatternTooSlow

PASS_TOPICS_KEY = "copy.mode.pass.topics"  # noqa: S105  (the name of a setting)
REPACK_TOPICS_KEY = "copy.mode.repack.topics"


class CopyMode(Enum):
    """What becomes of batches that could pass as they are."""

    AUTO = "auto"
    PASS = "pass"  # noqa: S105  (a way of copying)
    REPACK = "repack"


class CopyModes:
    """The copy mode of each topic of a flow: a list that names it comes before the flow's own mode, and pass first.

    Raises:
        ConfigError: an entry of a list is no pattern.
    """

    def __init__(
        self, mode: CopyMode = CopyMode.AUTO, pass_topics: Sequence[str] = (), repack_topics: Sequence[str] = ()
    ) -> None:
        self.mode = mode
        self._pass = PatternList(PASS_TOPICS_KEY, pass_topics)
        self._repack = PatternList(REPACK_TOPICS_KEY, repack_topics)

    def of(self, topic: str) -> CopyMode:
        """Return the mode of a topic. A pattern that finds no answer in time leaves the choice to the flow's mode."""
        try:
            if self._pass.matches(topic):
                return CopyMode.PASS
            return CopyMode.REPACK if self._repack.matches(topic) else self.mode
        except PatternTooSlow:
            return self.mode
