"""Places: the position of a record of either log in a comparison. A record and its copy have the same place. Pure.

The place of a source record is twice its offset; its copy has the same place. A target record that no run of the ledger
covers has an odd place, between the places of the copies around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Final

from mm2py.backfill.verifying.ranges import ComparedRange, holds
from mm2py.copying.planning.steps import Outgoing

SOURCE: Final = 0
TARGET: Final = 1


def kept_places(compared: ComparedRange, side: int, steps: Sequence[Outgoing]) -> tuple[Sequence[int], Sequence[int]]:
    """Return which records of some batches are to be compared, and their places.

    Returns:
        The numbers of these records, counted over all the batches; then the place of each.
    """
    count = sum([step.record_count for step in steps])
    places = _places_in_one_run(compared, side, steps, count)
    if places is not None:
        return range(count), places
    place_of = source_place if side == SOURCE else target_place
    offsets = chain.from_iterable(map(offsets_of, steps))
    found = [(number, place_of(compared, offset)) for number, offset in enumerate(offsets)]
    kept = [(number, place) for number, place in found if place is not None]
    return [number for number, _ in kept], [place for _, place in kept]


def _places_in_one_run(compared: ComparedRange, side: int, steps: Sequence[Outgoing], count: int) -> range | None:
    """Return the places of batches that lie in one run and in the range, with no offset missing; else None."""
    first, end = steps[0].first_offset, steps[-1].next_offset
    if end - first != count:
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
