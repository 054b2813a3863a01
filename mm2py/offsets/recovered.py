"""The runs that a previous owner stored after its last position, put together from both logs after a crash. Pure.

By their sequences the remote partition shows how many records were stored, and where (``Tail``). The source shows which
records these are, counted from the position on (``Walk``). Both number the records from 0 on. So a run of either side
is written here as ``Run``, with that number in the place of the offset that it lacks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence

from mm2py.offsets.runs import Entry, Hole, HoleCause, Run


def recovered_entries(
    counted: Sequence[Run], stored: Sequence[Run], *, target_start: int, target_end: int, cause: HoleCause
) -> list[Entry]:
    """Return the ledger's entries for records that were found after a position.

    Args:
        counted: runs of source offset and number, of all records from 0 on.
        stored: runs of number and target offset, ascending. The cleaner or retention may have removed some.
        target_start: the target offset of the position.
        target_end: the target offset after the last record.
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


def matched_entries(
    matches: Sequence[Run], copies: Collection[int], start: tuple[int, int], end: tuple[int, int]
) -> list[Entry]:
    """Return the ledger's entries if the records themselves were compared, because the source was cleaned meanwhile.

    Between two records that were found on both sides there may be copies whose records are gone, or look like others.

    Args:
        matches: runs of records that were found on both sides.
        copies: the target offsets of all copies; at least one where a part of the target was not read.
        start: source and target offset of the position.
        end: source and target offset after the last record.
    """
    entries: list[Entry] = []
    known = {run.target_offset + at for run in matches for at in range(run.record_count)}
    others = sorted(set(copies) - known)
    source, target = start
    for run in (*matches, Run(*end, 0)):
        between = bisect_left(others, run.target_offset) - bisect_left(others, target)
        if between and run.source_offset > source:
            entries += _hole(source, run.source_offset - source, target, run.target_offset, HoleCause.COUNTED)
        if run.record_count:
            entries.append(run)
        source, target = run.source_end, run.target_end
    return entries


def _hole(source_offset: int, count: int, target_offset: int, target_end: int, cause: HoleCause) -> list[Entry]:
    """Return the hole of records whose places are not known. If the target has no offset left, they were removed."""
    if target_end <= target_offset:
        return []
    return [Hole(source_offset, target_offset, count, target_end - target_offset, cause)]
