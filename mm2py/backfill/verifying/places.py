"""Places: where a record of either log stands in a comparison. A record and its copy have the same one. Pure.

The place of a source record is twice its offset, that of a copy the same. A target record that no run of the ledger
covers has an odd place, between those of the copies beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Final

from mm2py.backfill.verifying.ranges import ComparedRange, holds
from mm2py.replication.planning.steps import Outgoing

SOURCE: Final = 0
TARGET: Final = 1


def places_of(compared: ComparedRange, side: int, steps: Sequence[Outgoing]) -> range | None:
    """Return the places of all records of batches that follow each other.

    None: not all of them are of one run and to be compared, or one is rebuilt; see ``kept_places``.
    """
    first, end = steps[0].first_offset, steps[-1].next_offset
    count = end - first
    if sum([step.record_count for step in steps if not step.jumps]) != count:
        return None
    start = first
    if side == SOURCE:
        run = compared.run_at_source(first)
        if run is None or end > min(run.source_end, compared.source[1]):
            return None
    else:
        run = compared.run_at_target(first)
        if run is None or end > min(run.target_end, compared.target[1]):
            return None
        start += run.source_offset - run.target_offset
    return range(2 * start, 2 * (start + count), 2)


def kept_places(compared: ComparedRange, side: int, step: Outgoing) -> tuple[list[int], list[int]]:
    """Return which records of a batch are to be compared, by their number in it, and the places of these."""
    place_of = source_place if side == SOURCE else target_place
    found = [(at, place_of(compared, offset)) for at, offset in enumerate(offsets_of(step))]
    kept = [(at, place) for at, place in found if place is not None]
    return [at for at, _ in kept], [place for _, place in kept]


def source_place(compared: ComparedRange, offset: int) -> int | None:
    """Return the place of a source record; None if it is not to be compared."""
    if not compared.source[0] <= offset < compared.source[1]:
        return None
    if compared.run_at_source(offset) is None and holds(compared.source_left_out, offset):
        return None
    return 2 * offset


def target_place(compared: ComparedRange, offset: int) -> int | None:
    """Return the place of a target record; None if it is not to be compared."""
    if not compared.target[0] <= offset < compared.target[1]:
        return None
    if compared.run_at_target(offset) is None and (compared.is_shared or holds(compared.target_left_out, offset)):
        return None
    return compared.place_of_target(offset)


def offsets_of(step: Outgoing) -> Sequence[int]:
    """Return the offset of each record of a batch."""
    count = step.record_count
    if not step.jumps:
        return range(step.first_offset, step.first_offset + count)
    starts = [*step.runs(), (count, 0)]
    return [
        *chain.from_iterable(
            range(offset, offset + following[0] - index) for (index, offset), following in pairwise(starts)
        )
    ]
