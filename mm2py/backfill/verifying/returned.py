"""What the flow back has brought, where copies have the names of their originals. Pure.

The story: A->B has copied up to 500, then a cutover turned B->A on. What clients wrote on B came to A by it, until a
rollback turned A->B on again behind that. In the middle of both logs lie records that A->B has never copied: B->A has.
Its ledgers know them. They are no copies of A->B, and no difference either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mm2py.backfill.verifying.ranges import Interval
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.runs import Hole, HoleCause


class Returned(NamedTuple):
    """Stretches of one partition that belong to the flow back. Ascending."""

    on_source: tuple[Interval, ...] = ()
    """Its copies, on our source."""
    on_target: tuple[Interval, ...] = ()
    """Their originals, on our target."""


def returned_by(ledgers: Iterable[Ledger]) -> Returned:
    """Return what the ledgers of the flow back know.

    A gap of theirs is what the flow back passed over: there it is our turn.
    """
    found = [stretch for ledger in ledgers for stretch in _stretches(ledger)]
    return Returned(_joined(copies for _, copies in found), _joined(originals for originals, _ in found))


def _stretches(ledger: Ledger) -> Iterator[tuple[Interval, Interval]]:
    """Yield each stretch between gaps: of the flow back's source, and of its target."""
    begin: tuple[int, int] | None = None
    end = (ledger.source_start, ledger.target_start)
    for entry in ledger.entries():
        if isinstance(entry, Hole) and entry.cause is HoleCause.GAP:
            if begin is not None:
                yield (begin[0], entry.source_offset), (begin[1], end[1])
            begin = None
            continue
        if begin is None:
            begin = (entry.source_offset, entry.target_offset)
        end = (entry.source_end, entry.target_end)
    if begin is not None:
        yield (begin[0], ledger.copied_to), (begin[1], end[1])


def _joined(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif start < end:
            found.append((start, end))
    return tuple(found)
