"""Runs: stretches of records whose source and target offsets differ by the same number. Pure.

MM2 knows single pairs of offsets (offset syncs), and so cannot know which offsets between two pairs exist. A run gives
the pair of each of its records. A copier notes a run for every stretch of records that the target has acknowledged. A
hole is a stretch of which less is known, and says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


class Run(NamedTuple):
    """``record_count`` records, each at the offset after the one before it, on both sides."""

    source_offset: int
    """Of its first record; likewise ``target_offset``."""
    target_offset: int
    record_count: int

    @property
    def source_end(self) -> int:
        """The source offset after its last record."""
        return self.source_offset + self.record_count

    @property
    def target_end(self) -> int:
        return self.target_offset + self.record_count


class HoleCause(IntEnum):
    """Why single records of a hole have no known target offset. The numbers are written to the ledger topic."""

    COUNTED = 1
    """They were copied. After a crash only their number was found, for example among records of foreign writers."""
    TRIMMED = 2
    """They were copied, and the target deleted the copies before their offsets were noted."""
    GAP = 3
    """They could not be copied; ``mm2py gaps`` lists the gap."""
    QUARANTINED = 4
    """The target refused them, and the quarantine keeps them."""

    @property
    def is_copied(self) -> bool:
        """Copies of them are, or were, in the remote partition."""
        return self in {HoleCause.COUNTED, HoleCause.TRIMMED}


class Hole(NamedTuple):
    """A stretch without pairs of offsets."""

    source_offset: int
    """Where it begins."""
    target_offset: int
    """Where the copies begin. If there are none: the target offset after the record that was copied last."""
    source_count: int
    """How many source offsets it has, at least 1."""
    target_count: int
    """How many target offsets it has: at least 1 if it was copied, else 0."""
    cause: HoleCause

    @property
    def source_end(self) -> int:
        """The source offset after it."""
        return self.source_offset + self.source_count

    @property
    def target_end(self) -> int:
        return self.target_offset + self.target_count


Entry = Run | Hole
"""A line of a ledger."""


class NewRuns:
    """The runs and holes of one partition since they were last taken, in the order in which they were stored."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Entry] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, source_offset: int, target_offset: int, record_count: int) -> None:
        """Note records that are stored. They continue the last run if both offsets do."""
        runs = self._runs
        if runs and type(last := runs[-1]) is Run:
            last_source, last_target, count = last
            if last_source + count == source_offset and last_target + count == target_offset:
                runs[-1] = Run(last_source, last_target, count + record_count)
                return
        runs.append(Run(source_offset, target_offset, record_count))

    def add_batch(self, starts: Iterable[tuple[int, int]], base_offset: int, record_count: int) -> None:
        """Note a batch that is stored.

        Args:
            starts: (record index, source offset) of each stretch of adjacent source offsets, as ``Outgoing.runs``.
            base_offset: the target offset of its first record.
        """
        at, source_offset = 0, -1
        for index, next_source in starts:
            if index > at:
                self.add(source_offset, base_offset + at, index - at)
            at, source_offset = index, next_source
        self.add(source_offset, base_offset + at, record_count - at)

    def add_entries(self, entries: Iterable[Entry]) -> None:
        """Note entries that were found in another way than by acknowledgements."""
        self._runs.extend(entries)

    @property
    def runs(self) -> list[Run]:
        """The entries that are runs."""
        return [one for one in self._runs if isinstance(one, Run)]

    def take(self) -> list[Entry]:
        """Return all entries, and forget them."""
        runs, self._runs = self._runs, []
        return runs
