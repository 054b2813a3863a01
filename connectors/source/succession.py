"""Goes on behind a MirrorMaker 2 that was killed: finds out what it copied after the position it stored last.

The shell around ``mm2py.replication.continuation``: reads the end of each remote partition, and the source from the
position on. MirrorMaker 2 itself copies all of that again. Nobody can be shut out here, for its producers have no
transactional id; that it runs no more is looked at before the flow begins (``live_mm2.py``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from connectors.source.reconciler import END_PATIENCE_S, find_bounds
from mm2py.clock import Clock
from mm2py.kafka.port import Brokers, FetchedPartition
from mm2py.kafka.retry import Backoff
from mm2py.records.batch import CorruptBatch
from mm2py.replication.continuation import ENDING_MOST, Continuation, Ending
from mm2py.replication.lane import CopiedPartition
from mm2py.replication.log_reader import OFFSET_OUT_OF_RANGE, LogReader, Stretch
from mm2py.replication.planned_stretch import PlannedStretch
from mm2py.replication.position import Position

BEHIND_MM2: Final = "what MirrorMaker 2 copied behind its position is looked up"
UNDECIDED: Final = "a transaction in the remote partition is undecided; MirrorMaker 2 may have left it so"
UNDECIDED_PATIENCE_S: Final = 900.0
"""How long a transaction is waited for: brokers abort it after ``transaction.max.timeout.ms``, by default this long."""
PARTITIONS_AT_ONCE: Final = 1000
"""So many keep what their ends look like in memory."""
GROUP_PATIENCE_S: Final = 5.0
"""After this long the next group begins beside one that waits, for a leader or a transaction."""
_WIDER: Final = 10


@dataclass(frozen=True, slots=True)
class Inherited:
    """Where a partition goes on behind MirrorMaker 2."""

    part: CopiedPartition
    position: Position
    records: int = 0
    """So many records stood behind the position."""
    is_ambiguous: bool = False
    """Records look the same: some may be copied twice."""
    is_proven: bool = True
    """If not, nothing was left to tell, and copying goes on at the position."""


@dataclass(frozen=True, slots=True)
class _Job:
    part: CopiedPartition
    target_start: int
    target_end: int
    source_end: int
    width: int = ENDING_MOST
    """So many offsets of the remote partition's end are read."""

    @property
    def position(self) -> Position:
        """MirrorMaker 2's, with where the remote partition ends."""
        copier = self.part.copier
        return copier.position._replace(target_offset=self.target_end, target_leader_epoch=copier.target_leader_epoch)


Done = Callable[[Inherited], None]


class Succession:
    """Takes the partitions of one flow over from MirrorMaker 2."""

    def __init__(
        self,
        source: Brokers,
        target: Brokers,
        *,
        read_committed: bool,
        clock: Clock,
        rng: random.Random,
        wanted: Callable[[CopiedPartition], bool],
    ) -> None:
        """Make one; nothing is asked yet. ``wanted`` tells whether a partition is still to be copied."""
        self._source = source
        self._target = target
        self._read_committed = read_committed
        self._endings = LogReader(target, read_committed=True, rng=rng, channel="reconcile")
        self._walks = LogReader(source, read_committed=read_committed, rng=rng, channel="reconcile")
        self._clock = clock
        self._rng = rng
        self._wanted = wanted

    async def find(self, parts: Sequence[CopiedPartition], done: Done) -> None:
        """Find out where partitions go on; ``done`` gets each as soon as it is known.

        Raises:
            KafkaError: what no repetition mends.
        Cancelling is safe: nothing is stored here.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for at in range(0, len(parts), PARTITIONS_AT_ONCE):
                    group = self._find(parts[at : at + PARTITIONS_AT_ONCE], done)
                    await asyncio.wait([tasks.create_task(group, name="inherit")], timeout=GROUP_PATIENCE_S)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _find(self, parts: Sequence[CopiedPartition], done: Done) -> None:
        """Take up those whose partitions have leaders; the others as soon as they have one."""
        backoff = Backoff(self._rng, first_s=0.1, most_s=1.0)
        waiting = list(parts)
        try:
            async with asyncio.TaskGroup() as tasks:
                while waiting := [part for part in waiting if self._wanted(part)]:
                    targets = await find_bounds(self._target, [(one.target_topic, one.partition) for one in waiting])
                    sources = await find_bounds(self._source, [part.key for part in waiting])
                    jobs: list[_Job] = []
                    for part in waiting:
                        target, source = targets.get((part.target_topic, part.partition)), sources.get(part.key)
                        if target is None or source is None:
                            continue
                        job = _Job(part, *target, source_end=source[1])
                        if job.source_end <= part.copier.position.source_offset:
                            done(Inherited(part, job.position))  # there is nothing that could have been copied
                        elif job.target_start == job.target_end:
                            done(Inherited(part, job.position, is_proven=False))
                        else:
                            jobs.append(job)
                    self._begin(tasks, jobs, done)
                    waiting = [
                        part
                        for part in waiting
                        if (part.target_topic, part.partition) not in targets or part.key not in sources
                    ]
                    if waiting:
                        await asyncio.sleep(backoff.next_s())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    def _begin(self, tasks: asyncio.TaskGroup, jobs: Sequence[_Job], done: Done) -> None:
        """Read the ends of remote partitions."""
        if jobs:
            stretches = [_EndingStretch(job, self._clock) for job in jobs]
            read = self._endings.read(stretches, lambda read: self._walk(tasks, read, done))
            tasks.create_task(read, name="read endings")

    def _walk(self, tasks: asyncio.TaskGroup, read: Sequence[Stretch], done: Done) -> None:
        """Go on with partitions whose end was read."""
        walks: list[_ContinuationStretch] = []
        wider: list[_Job] = []
        for stretch in read:
            assert isinstance(stretch, _EndingStretch)  # noqa: S101  (_begin reads nothing else)
            job = stretch.job
            if not stretch.is_whole:
                done(Inherited(job.part, job.position, is_proven=False))
            elif not stretch.ending.fingerprints and stretch.first_offset > job.target_start:
                wider.append(replace(job, width=_WIDER * job.width))  # nothing but markers and aborted records
            else:
                walks.append(_ContinuationStretch(job, stretch.ending, self._read_committed, self._clock))
        self._begin(tasks, wider, done)
        if walks:
            tasks.create_task(self._walks.read(walks, lambda read: self._judge(read, done)), name="walk")

    def _judge(self, read: Sequence[Stretch], done: Done) -> None:
        """Tell of partitions whose source was walked."""
        for stretch in read:
            assert isinstance(stretch, _ContinuationStretch)  # noqa: S101  (_walk reads nothing else)
            found, position = stretch.continuation, stretch.job.position
            if found.records:
                position = position._replace(skipped=())
            position = position._replace(source_offset=found.resume_offset, source_leader_epoch=found.leader_epoch)
            done(Inherited(stretch.job.part, position, found.records, found.is_ambiguous, found.is_proven))


class _EndingStretch(PlannedStretch):
    """The end of a remote partition. One that is not whole in the end was given up: it is damaged, or gone."""

    def __init__(self, job: _Job, clock: Clock) -> None:
        self.first_offset = max(job.target_start, job.target_end - job.width)
        part = job.part
        super().__init__(
            part.target_topic,
            part.target_topic_id,
            part.partition,
            offset=self.first_offset,
            read_committed=True,
            clock=clock,
        )
        self.job = job
        self.ending = Ending()
        self.is_whole = False

    def take(self, fetched: FetchedPartition) -> bool:
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        before, copier = self._offset, self.job.part.copier
        planned = self._plan(fetched)
        try:
            self.ending.take(fetched.records, planned.steps)
        except CorruptBatch:
            return True
        self.is_whole = self._offset >= self.job.target_end
        if self.is_whole or self._offset > before:
            return self.is_whole
        is_undecided = not len(fetched.records) and fetched.last_stable_offset < self.job.target_end
        copier.reason = UNDECIDED if is_undecided else BEHIND_MM2
        if self._is_patient(UNDECIDED_PATIENCE_S if is_undecided else END_PATIENCE_S):
            return False
        self.is_whole = not len(fetched.records)  # what stays undecided is nobody's; or the end holds no batch any more
        return True


class _ContinuationStretch(PlannedStretch):
    """The source from a position to where the remote partition's end fits."""

    def __init__(self, job: _Job, ending: Ending, read_committed: bool, clock: Clock) -> None:
        position = job.position
        self.continuation = Continuation(
            ending,
            position.source_offset,
            position.source_leader_epoch,
            records_most=job.target_end - job.target_start,
        )
        part = job.part
        super().__init__(
            part.source_topic,
            part.source_topic_id,
            part.partition,
            offset=self.continuation.read_offset,
            read_committed=read_committed,
            clock=clock,
        )
        self.job = job
        self._end_seen_at_s = float("inf")

    def take(self, fetched: FetchedPartition) -> bool:
        """Over; or given up, because the source begins further on, ends, or holds what cannot be read."""
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        before = self._offset
        planned = self._plan(fetched)
        try:
            if self.continuation.take(planned.steps):
                return True
        except CorruptBatch:
            return True
        if self._offset < self.job.source_end:
            return self._offset == before and not self._is_patient(END_PATIENCE_S)
        self._end_seen_at_s = min(self._end_seen_at_s, self._clock.monotonic())  # what comes from now on is too new
        return self.continuation.has_found or self._clock.monotonic() - self._end_seen_at_s >= END_PATIENCE_S
