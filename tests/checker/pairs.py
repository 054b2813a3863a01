"""Pairs: which target offset the copy of each source record has, from dumps of both partitions alone.

All judges of offsets (``offsets.py``) compare with these. A group that continues in the other log reads records, so an
offset is judged by the records that a reader finds from there on: a marker and the record after it are the same. Where
a cleaner removed records, the acknowledged sends still show which records the source had.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from tests.checker.compacted import assign
from tests.checker.dumped import Dumped, Sent, sent


class NotInOrder(Exception):
    """The copy goes back: its pairs are not ascending, so offsets cannot be judged by them."""


class Cost(NamedTuple):
    """What it costs a reader to continue at an offset of the other log, in copied records."""

    skipped: int
    read_again: int


EXACT = Cost(0, 0)


@dataclass(frozen=True, slots=True)
class Log:
    """One side of a partition."""

    copied: Sequence[int]
    """Offsets of the records that both sides have, ascending; the two sides correspond one to one."""
    others: frozenset[int]
    """Offsets of its other records: on the source those not in the copy, on the target those that are no copies."""
    start: int
    end: int
    is_cleaned: bool = False
    """A cleaner may have removed records without a trace. Else every offset without a record here is a marker or an
    aborted record."""

    def may_have_had(self, offset: int) -> bool:
        """Whether an offset may have had a record that was removed without a trace."""
        return offset < self.start or (self.is_cleaned and offset < self.end)

    def copies_before(self, offset: int) -> int:
        return bisect_left(self.copied, offset)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of one partition. ``here`` is the log of the known offset, ``there`` the log of the wanted one."""

    here: Log
    there: Log
    gone: frozenset[int] = frozenset()
    """Source offsets of copied records that the source's cleaner has removed since: later records superseded them."""
    costs: tuple[Sequence[int], Sequence[int]] | None = None
    """Offsets, here and there, of the copied records that costs count; None: all."""

    @property
    def flipped(self) -> Pairs:
        return Pairs(self.there, self.here, self.gone, self.costs and self.costs[::-1])

    @property
    def without_gone(self) -> Pairs:
        """The same pairs, with costs counted in records that the source still has: its own readers see no others.

        The source must be ``here``.
        """
        left = [pair for pair in zip(self.here.copied, self.there.copied, strict=True) if pair[0] not in self.gone]
        return replace(self, costs=([here for here, _ in left], [there for _, there in left]))

    def cost(self, here: int, there: int) -> Cost:
        """Return what it costs a reader at ``here`` to continue at ``there``."""
        ours, theirs = self.costs or (self.here.copied, self.there.copied)
        wanted, found = bisect_left(ours, here), bisect_left(theirs, there)
        return Cost(max(0, found - wanted), max(0, wanted - found))

    def partner(self, here: int) -> int | None:
        """Return the other log's offset of the same record; None if not both sides have it."""
        place = self.here.copies_before(here)
        found = place < len(self.here.copied) and self.here.copied[place] == here
        return self.there.copied[place] if found else None

    def why_no_pair(self, here: int, there: int) -> str | None:
        """Return why these cannot be a record and its copy; None if they are, or if nothing disproves it.

        Nothing disproves it if a cleaner removed one of the two records. Then they must still be at the same place
        among the pairs.
        """
        partner, other = self.partner(here), self.flipped.partner(there)
        if partner is not None or other is not None:
            return None if partner == there else f"{here} belongs to {partner}, and {there} to {other}"
        sides = ((self.here, here), (self.there, there))
        if all(offset in log.others for log, offset in sides):
            return f"{here} and {there} are different records"
        for log, offset in sides:
            if offset not in log.others and not log.may_have_had(offset):
                return f"there is no record at {offset}, the log is that from {log.start} to {log.end}"
        is_same_place = self.here.copies_before(here) == self.there.copies_before(there)
        return None if is_same_place else f"{here} and {there} are not at the same place"


def pair_up(
    source: Sequence[Dumped],
    target: Sequence[Dumped],
    *,
    source_bounds: tuple[int, int],
    target_bounds: tuple[int, int],
    sends: Sequence[Sent] = (),
    source_cleaned: bool = False,
    target_cleaned: bool = False,
) -> Pairs:
    """Return the pairs of a partition, the source as ``here``.

    Args:
        source, target: the dumps, ascending; the source's at the flow's isolation level, the target's read committed.
        source_bounds, target_bounds: start and end of each log when it was dumped.
        sends: the acknowledged sends of the partition, ascending by offset.
        source_cleaned, target_cleaned: whether a cleaner may have removed records on that side.
    Raises:
        ValueError: the source may be cleaned, and there are no sends: copies of removed records look like foreign ones.
        NotInOrder: the target shows a record again, or a later one before an earlier one.
    """
    if source_cleaned and not sends:
        raise ValueError("A source that may be cleaned is paired up by its acknowledged sends: give them.")
    known = {entry.offset: entry for entry in sends if not entry.is_aborted}
    known |= {record.offset: sent(record) for record in source}
    history = [known[offset] for offset in sorted(known)]
    places = assign(target, history)
    copies = [(place, record.offset) for place, record in zip(places, target, strict=True) if place is not None]
    for (place, _), (next_place, offset) in pairwise(copies):
        if next_place <= place:
            what = f"source offset {history[next_place].offset} stands behind {history[place].offset}"
            raise NotInOrder(f"at target offset {offset} {what}")
    copied = {place for place, _ in copies}
    target_copies = [offset for _, offset in copies]
    return Pairs(
        Log(
            [history[place].offset for place, _ in copies],
            frozenset(entry.offset for place, entry in enumerate(history) if place not in copied),
            *source_bounds,  # all sends are known, so this log counts as not cleaned
        ),
        Log(
            target_copies,
            frozenset(record.offset for record in target) - frozenset(target_copies),
            *target_bounds,
            target_cleaned,
        ),
        gone=frozenset(history[place].offset for place, _ in copies) - {record.offset for record in source},
    )


def runs_of(pairs: Pairs) -> Iterator[tuple[int, int, int]]:
    """Yield the longest stretches in which both offsets grow one by one, as (here, there, number of records)."""
    run: tuple[int, int, int] | None = None
    for here, there in zip(pairs.here.copied, pairs.there.copied, strict=True):
        if run is not None and (here - run[0], there - run[1]) == (run[2], run[2]):
            run = (run[0], run[1], run[2] + 1)
            continue
        if run is not None:
            yield run
        run = (here, there, 1)
    if run is not None:
        yield run
