"""Which runs a previous owner left behind its last position, put together from both logs after a crash. Pure.

The remote partition tells by sequences how many records were stored, and where (``Tail``). The source tells which they
are, counted from the position on (``Walk``). Both number the records from 0 on, so a run of either side is written here
as ``Run``, with that number in the place of the offset that it lacks.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.offsets.runs import Entry, Hole, HoleCause, Run


def recovered_entries(
    counted: Sequence[Run], stored: Sequence[Run], *, target_start: int, target_end: int, cause: HoleCause
) -> list[Entry]:
    """Return the ledger's entries for records that were found behind a position.

    Args:
        counted: runs of source offset and number, of all records from 0 on.
        stored: runs of number and target offset, ascending. The cleaner or retention may have removed some.
        target_start: the target offset of the position.
        target_end: behind the last record.
        cause: why a number may be missing in ``stored``.
    """
    entries: list[Entry] = []
    places = list(stored)
    at, end = 0, target_start
    for source_offset, first, count in counted:
        number, last = first, first + count
        while number < last:
            while at < len(places) and places[at].source_end <= number:
                at += 1
            place = places[at] if at < len(places) else None
            if place is not None and place.source_offset <= number:
                target = place.target_offset + number - place.source_offset
                found = min(last, place.source_end) - number
                entries.append(Run(source_offset + number - first, target, found))
                end = target + found
            else:
                found = (last if place is None else min(last, place.source_offset)) - number
                until = target_end if place is None else place.target_offset
                entries += _hole(source_offset + number - first, found, end, until, cause)
                end = max(end, until)
            number += found
    return entries


def _hole(source_offset: int, count: int, target_offset: int, target_end: int, cause: HoleCause) -> list[Entry]:
    """Return the hole of records whose places are not known. Where the target has no offset left, they were removed."""
    if target_end <= target_offset:
        return []
    return [Hole(source_offset, target_offset, count, target_end - target_offset, cause)]
