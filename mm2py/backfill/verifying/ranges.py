"""Ranges of a source partition and of its remote partition that the ledger pairs. Pure.

A *place* is the position of a record in the common order of both logs. Record and copy have the same place: twice the
source offset. A target record that no run covers gets an odd place, after the run before it. So the lists of places of
both logs are equal if and only if each record has its copy.

MirrorMaker 2 has no ledger, so its copies cannot be compared in this way.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Final

from mm2py.offsets.runs import Run

LEAF_OFFSETS: Final = 4096
"""How many source offsets share one digest."""
Interval = tuple[int, int]
"""First offset, and the offset after the last one."""


@dataclass(frozen=True)
class ComparedRange:
    """A stretch of a source partition, and the stretch of the remote partition that must be its copy."""

    number: int
    topic: str
    """As the source names it."""
    partition: int
    remote_topic: str
    source: Interval
    target: Interval
    runs: tuple[Run, ...]
    """The copied records, ascending on both sides, inside both stretches."""
    source_left_out: tuple[Interval, ...] = ()
    """Source offsets outside of runs that are not compared: gaps, records in quarantine. Ascending."""
    target_left_out: tuple[Interval, ...] = ()
    is_compacted: bool = False
    """Only the latest record of each key counts."""
    is_later: bool = False
    """The part of a compacted partition after the compared ranges: keys that occur in it are not compared."""
    is_shared: bool = False
    """Several flows write to the remote partition: target records that no run covers may be theirs."""
    read_committed: bool = False
    own_timestamps: bool = True
    """The target's broker does not set the timestamps. Used for compacted topics; for others each batch says it."""
    source_topic_id: uuid.UUID | None = None
    target_topic_id: uuid.UUID | None = None

    @property
    def record_count(self) -> int:
        """How many source offsets the runs cover."""
        return sum(run.record_count for run in self.runs)

    @cached_property
    def source_starts(self) -> list[int]:
        """The source offset of each run."""
        return [run.source_offset for run in self.runs]

    @cached_property
    def target_starts(self) -> list[int]:
        """The target offset of each run."""
        return [run.target_offset for run in self.runs]

    def leaf_of(self, place: int) -> int:
        """Return the number of the leaf that a place belongs to."""
        return max(place // 2, self.source[0]) // LEAF_OFFSETS

    def run_at_source(self, offset: int) -> Run | None:
        """Return the run that covers a source offset."""
        at = bisect_right(self.source_starts, offset) - 1
        return self.runs[at] if at >= 0 and offset < self.runs[at].source_end else None

    def run_at_target(self, offset: int) -> Run | None:
        """Return the run that covers a target offset."""
        at = bisect_right(self.target_starts, offset) - 1
        return self.runs[at] if at >= 0 and offset < self.runs[at].target_end else None

    def place_of_target(self, offset: int) -> int:
        """Return the place of a target offset."""
        at = bisect_right(self.target_starts, offset) - 1
        if at < 0:
            return 2 * self.source[0] - 1
        run = self.runs[at]
        return (
            2 * (run.source_offset + offset - run.target_offset) if offset < run.target_end else 2 * run.source_end - 1
        )

    def target_position(self, source_offset: int) -> int:
        """Return the target offset before which all records have a lower place than a source offset."""
        if source_offset <= self.source[0]:
            return self.target[0]
        at = bisect_right(self.source_starts, source_offset) - 1
        if at >= 0 and source_offset < self.runs[at].source_end:
            return self.runs[at].target_offset + source_offset - self.runs[at].source_offset
        return self.runs[at + 1].target_offset if at + 1 < len(self.runs) else self.target[1]

    def source_position(self, target_offset: int) -> int:
        """Return the source offset before which all records have a lower place than a target offset."""
        place = self.place_of_target(target_offset)
        return (place + 1) // 2

    def cut(self, start: int, end: int, number: int | None = None) -> ComparedRange:
        """Return the part between two source offsets.

        Target records that no run covers belong to the part with the run before them; those before the first run, to
        the part with the start.
        """
        start, end = max(start, self.source[0]), min(end, self.source[1])
        target_end = self.target[1] if end == self.source[1] else self.target_position(end)
        first = bisect_right(self.source_starts, start) - 1
        last = bisect_left(self.source_starts, end)
        runs = []
        for run in self.runs[max(first, 0) : last]:
            low, high = max(run.source_offset, start), min(run.source_end, end)
            if low < high:
                runs.append(Run(low, run.target_offset + low - run.source_offset, high - low))
        last_target = self.target[1]  # lower than the end of its runs, if the log has lost its end
        target = (min(self.target_position(start), last_target), min(target_end, last_target))
        return replace(
            self,
            number=self.number if number is None else number,
            source=(start, end),
            target=target,
            runs=tuple(runs),
            source_left_out=overlaps(self.source_left_out, (start, end)),
            target_left_out=overlaps(self.target_left_out, target),
        )

    def without_expired(self, source_start: int, target_start: int) -> ComparedRange | None:
        """Return the rest of the range if both logs begin at these offsets now; None if nothing is left."""
        start = max(self.source[0], source_start)
        if target_start > self.target[0]:
            start = max(start, self.source_position(target_start))
        if start >= self.source[1]:
            return None
        part = self.cut(start, self.source[1])
        return replace(part, target=(max(part.target[0], target_start), part.target[1]))

    def encoded(self) -> bytes:
        """Return the range as bytes, to send it to a task."""
        fields = asdict(self)
        fields["runs"] = [number for run in self.runs for number in run]
        for name in ("source_topic_id", "target_topic_id"):
            fields[name] = None if fields[name] is None else str(fields[name])
        return json.dumps(fields, separators=(",", ":")).encode()


def decoded(data: bytes) -> ComparedRange:
    """Return the range from the bytes of ``ComparedRange.encoded``."""
    fields = json.loads(data)
    numbers = fields["runs"]
    fields["runs"] = tuple(Run(*numbers[at : at + 3]) for at in range(0, len(numbers), 3))
    for name in ("source", "target"):
        fields[name] = tuple(fields[name])
    for name in ("source_left_out", "target_left_out"):
        fields[name] = tuple(map(tuple, fields[name]))
    for name in ("source_topic_id", "target_topic_id"):
        fields[name] = None if fields[name] is None else uuid.UUID(fields[name])
    return ComparedRange(**fields)


def overlaps(intervals: Sequence[Interval], of: Interval) -> tuple[Interval, ...]:
    """Return the parts of intervals that are in another one."""
    found = ((max(start, of[0]), min(end, of[1])) for start, end in intervals)
    return tuple((start, end) for start, end in found if start < end)


def holds(intervals: Sequence[Interval], offset: int) -> bool:
    """Whether one of the ascending intervals contains an offset."""
    at = bisect_right(intervals, (offset, 1 << 63)) - 1
    return at >= 0 and offset < intervals[at][1]
