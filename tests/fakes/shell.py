"""The shell of partitions in a test of one part: it keeps what they are told, and does nothing about it."""

from __future__ import annotations

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import Event


class DeafShell:
    """Their copiers hear nothing: a test that wants them to go on gives them the events itself."""

    def __init__(self) -> None:
        self.told: list[tuple[CopiedPartition, Event]] = []

    def tell(self, part: CopiedPartition, event: Event, /) -> None:
        self.told.append((part, event))

    def sent(self, part: CopiedPartition, /) -> None:
        """It is not read again."""

    def read_elsewhere(self, part: CopiedPartition, /) -> None:
        """It stays where it is."""
