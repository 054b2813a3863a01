"""The offsets of records on the other side of a flow, by its ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mm2py.backfill.frames.options import ClusterSide
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Run

Stretch = tuple[int, int, int]
"""First offset, the offset after the last one, and the number to add to get the offset on the other side."""


class RangePairing:
    """The pairs of offsets of one range of a partition."""

    def __init__(self, ledger: PartitionLedger, side: ClusterSide, start: int, end: int) -> None:
        """Args: ``others`` gets offsets of ``side``, from ``start`` on and below ``end``."""
        self.side = side
        newest_first = reversed(ledger.ledgers)
        self._ledgers = [[*_stretches(one.ledger, side, start, end)] for one in newest_first]

    def others(self, offsets: Sequence[int]) -> list[int | None]:
        """Return for each offset the one on the other side; None where no run covers it.

        Args:
            offsets: of the range, ascending.
        """
        found: list[int | None] = [None] * len(offsets)
        for stretches in self._ledgers:
            at = 0
            for index, offset in enumerate(offsets):
                while at < len(stretches) and stretches[at][1] <= offset:
                    at += 1
                if at == len(stretches):
                    break
                if found[index] is None and stretches[at][0] <= offset:
                    found[index] = offset + stretches[at][2]
        return found


def _stretches(ledger: Ledger, side: ClusterSide, start: int, end: int) -> Iterator[Stretch]:
    for entry in ledger.entries():
        if not isinstance(entry, Run):
            continue
        first, last, difference = entry.source_offset, entry.source_end, entry.target_offset - entry.source_offset
        if side is ClusterSide.TARGET:
            first, last, difference = first + difference, last + difference, -difference
        if first < end and last > start:
            yield first, last, difference
