"""The shell of partitions in a test of one part: it keeps their events and does nothing about them."""

from __future__ import annotations

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import Event


class DeafShell:
    """A shell that passes no event to the copiers: a test that needs an event passes it itself."""

    def __init__(self) -> None:
        self.told: list[tuple[CopiedPartition, Event]] = []

    def tell(self, part: CopiedPartition, event: Event, /) -> None:
        self.told.append((part, event))

    def sent(self, part: CopiedPartition, /) -> None:
        """Do nothing: the partition is not read again."""

    def read_elsewhere(self, part: CopiedPartition, /) -> None:
        """Do nothing: the partition stays where it is."""
