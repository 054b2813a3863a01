"""Resumes a flow where a killed MirrorMaker 2 stopped.

A killed MirrorMaker 2 has copied records after the position that it stored last, and would itself copy them again.
``ResumeFromMm2`` reads the end of each remote partition, and the source from the position on; ``search`` compares them.
``mm2py/shared_settings/running_mm2.py`` has checked before that no MirrorMaker 2 copies the flow any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mm2py.clock import Clock
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import LookupWaits, Reconciled
from mm2py.copying.planning.rebuild import UNREADABLE
from mm2py.copying.positions import Position
from mm2py.copying.reading.log_reader import LogReader, LogStretch, PlannedStretch
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import Backoff
from mm2py.kafka.port import FetchedPartition
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.recovery.reconciler import END_PATIENCE_S, find_bounds
from mm2py_connectors.source.refusals import CopyUncertain
from mm2py_connectors.source.resume_from_mm2.search import LAST_RECORDS, LastRecords, SourceSearch

SEARCHING: Final = "what MirrorMaker 2 copied behind its position is looked up"
UNDECIDED: Final = "a transaction in the remote partition is undecided; MirrorMaker 2 may have left it so"
UNDECIDED_PATIENCE_S: Final = 900.0
"""How long a transaction is waited for: brokers abort it after ``transaction.max.timeout.ms``, by default this long."""
PARTITIONS_AT_ONCE: Final = 1000
"""How many partitions keep their last records in memory at a time."""
GROUP_PATIENCE_S: Final = 5.0
"""If a group of partitions waits longer, for a leader or a transaction, the next group starts in parallel."""
_WIDER: Final = 10


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where one partition continues."""

    part: CopiedPartition
    position: Position
    records: int = 0
    """How many records MirrorMaker 2 copied after its position."""
    is_ambiguous: bool = False
    """Records look the same: some may be copied twice."""
    is_proven: bool = True
    """False: nothing was left to compare, and copying continues at the position."""


@dataclass(frozen=True, slots=True)
class _Job:
    part: CopiedPartition
    target_start: int
    target_end: int
    source_end: int
    width: int = LAST_RECORDS
    """How many offsets of the remote partition's end are read."""

    @property
    def position(self) -> Position:
        """MirrorMaker 2's position, with the end of the remote partition."""
        copier = self.part.copier
        return copier.position._replace(target_offset=self.target_end, target_leader_epoch=copier.target_leader_epoch)


Done = Callable[[ResumePoint], None]


class ResumeFromMm2:
    """Resumes the partitions of one flow where MirrorMaker 2 stopped."""

    def __init__(
        self,
        context: FlowContext,
        wanted: Callable[[CopiedPartition], bool],
    ) -> None:
        """Make one; nothing is asked yet.

        Args:
            wanted: returns whether a partition must still be copied.
        """
        source, target, rng = context.source.brokers, context.target.brokers, context.rng
        self._flow = context.flow
        self._exactly_once = context.must_be_exactly_once
        self._read_committed = context.settings.read_committed
        self._source = source
        self._target = target
        self._target_reader = LogReader(target, read_committed=True, rng=rng, channel="reconcile")
        self._source_reader = LogReader(source, read_committed=self._read_committed, rng=rng, channel="reconcile")
        self._clock = context.clock
        self._rng = rng
        self._log = context.log
        self._wanted = wanted

    async def run(self, parts: Sequence[CopiedPartition]) -> None:
        """Find out where partitions continue, and log what was found.

        Raises:
            CopyUncertain: the flow must copy exactly once, and a record may come twice.
            KafkaError: one that no retry mends.
        Cancelling is safe: nothing is stored here.
        """
        all_found: list[ResumePoint] = []

        def done(found: ResumePoint) -> None:
            if self._exactly_once and (found.is_ambiguous or not found.is_proven):
                why = "records look the same" if found.is_ambiguous else "what was copied there is gone on one side"
                raise CopyUncertain(self._flow, *found.part.key, why)
            all_found.append(found)
            found.part.tell(Reconciled(found.part.copier.identity, found.position))

        async with FirstErrorGroup() as tasks:
            for at in range(0, len(parts), PARTITIONS_AT_ONCE):
                group = self._find_group(parts[at : at + PARTITIONS_AT_ONCE], done)
                await asyncio.wait([tasks.create_task(group, name="resume from MM2")], timeout=GROUP_PATIENCE_S)
        if not all_found:
            return
        ambiguous = sum(found.is_ambiguous for found in all_found)
        unproven = sum(not found.is_proven for found in all_found)
        is_sure = not (ambiguous or unproven)
        say = self._log.info if is_sure else self._log.warning
        say(
            "partitions.resumed_from_mm2",
            partitions=len(all_found),
            first=parts[0].copier.name,
            records=sum(found.records for found in all_found),
            ambiguous=ambiguous,
            unproven=unproven,
            effect="what MirrorMaker 2 copied behind its positions is neither repeated nor left out"
            if is_sure
            else "nothing is left out; where records look the same, or are gone, some may be copied twice",
        )

    async def _find_group(self, parts: Sequence[CopiedPartition], done: Done) -> None:
        """Start with the partitions that have leaders; add the others as soon as they have one."""
        backoff = Backoff(self._rng, first_s=0.1, most_s=1.0)
        waiting = list(parts)
        async with FirstErrorGroup() as tasks:
            while waiting := [part for part in waiting if self._wanted(part)]:
                targets = await find_bounds(self._target, [(one.target_topic, one.partition) for one in waiting])
                sources = await find_bounds(self._source, [part.key for part in waiting])
                jobs: list[_Job] = []
                late: list[CopiedPartition] = []
                for part in waiting:
                    target, source = targets.get((part.target_topic, part.partition)), sources.get(part.key)
                    if target is None or source is None:
                        late.append(part)
                        continue
                    job = _Job(part, *target, source_end=source[1])
                    if job.source_end <= part.copier.position.source_offset:
                        done(ResumePoint(part, job.position))  # the source has no record after the position
                    elif job.target_start == job.target_end:
                        done(ResumePoint(part, job.position, is_proven=False))
                    else:
                        jobs.append(job)
                self._read_target(tasks, jobs, done)
                waiting = late
                if waiting:
                    await asyncio.sleep(backoff.next_s())

    def _read_target(self, tasks: asyncio.TaskGroup, jobs: Sequence[_Job], done: Done) -> None:
        """Start to read the ends of remote partitions."""
        if jobs:
            stretches = [_TargetEnd(job, self._clock) for job in jobs]
            read = self._target_reader.read(stretches, lambda read: self._read_source(tasks, read, done))
            tasks.create_task(read, name="read ends of remote partitions")

    def _read_source(self, tasks: asyncio.TaskGroup, read: Sequence[LogStretch], done: Done) -> None:
        """Start to search the source for the ends that were read."""
        searches: list[_Search] = []
        wider: list[_Job] = []
        for stretch in read:
            assert isinstance(stretch, _TargetEnd)  # noqa: S101  (_read_target reads nothing else)
            job = stretch.job
            if not stretch.is_whole:
                done(ResumePoint(job.part, job.position, is_proven=False))
            elif not stretch.last_records.fingerprints and stretch.first_offset > job.target_start:
                wider.append(replace(job, width=_WIDER * job.width))  # only markers and aborted records were there
            else:
                searches.append(_Search(job, stretch.last_records, self._read_committed, self._clock))
        self._read_target(tasks, wider, done)
        if searches:
            tasks.create_task(self._source_reader.read(searches, lambda read: _tell(read, done)), name="search source")


def _tell(read: Sequence[LogStretch], done: Done) -> None:
    """Pass on what was found for partitions whose source was searched."""
    for stretch in read:
        assert isinstance(stretch, _Search)  # noqa: S101  (_read_source reads nothing else)
        found, position = stretch.search, stretch.job.position
        if found.records:
            position = position._replace(skipped=())
        position = position._replace(source_offset=found.resume_offset, source_leader_epoch=found.leader_epoch)
        done(ResumePoint(stretch.job.part, position, found.records, found.is_ambiguous, found.is_proven))


class _TargetEnd(PlannedStretch):
    """The end of a remote partition. ``is_whole`` stays False if it could not be read, or is gone."""

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
            transforms=None,  # what is there has come out of them
        )
        self.job = job
        self.last_records = LastRecords()
        self.is_whole = False
        self._is_unreadable = False
        self._before = self.first_offset

    def decode(self, fetched: FetchedPartition) -> None:
        self._before = self._offset
        super().decode(fetched)
        try:
            self.last_records.take(fetched.records, self.planned.steps)
        except UNREADABLE:
            self._is_unreadable = True

    def take(self, fetched: FetchedPartition) -> bool:
        if self._is_unreadable or fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        self.is_whole = self._offset >= self.job.target_end
        if self.is_whole or self._offset > self._before:
            return self.is_whole
        is_undecided = not len(fetched.records) and fetched.last_stable_offset < self.job.target_end
        self.job.part.tell(LookupWaits(UNDECIDED if is_undecided else SEARCHING))
        if self._is_patient(UNDECIDED_PATIENCE_S if is_undecided else END_PATIENCE_S):
            return False
        self.is_whole = not len(fetched.records)  # the transaction stays undecided, or no batch is left at the end
        return True


class _Search(PlannedStretch):
    """The source from a position to where the remote partition's last records fit."""

    def __init__(self, job: _Job, last_records: LastRecords, read_committed: bool, clock: Clock) -> None:
        position = job.position
        self.search = SourceSearch(
            last_records,
            position.source_offset,
            position.source_leader_epoch,
            records_most=job.target_end - job.target_start,
        )
        part = job.part
        super().__init__(
            part.source_topic,
            part.source_topic_id,
            part.partition,
            offset=self.search.read_offset,
            read_committed=read_committed,
            clock=clock,
            transforms=part.transforms,
        )
        self.job = job
        self._before = self._offset
        self._is_done = False
        self._end_seen_at_s = float("inf")

    def decode(self, fetched: FetchedPartition) -> None:
        self._before = self._offset
        super().decode(fetched)
        try:
            self._is_done = self.search.take(self.planned.steps)
        except UNREADABLE:
            self._is_done = True

    def take(self, fetched: FetchedPartition) -> bool:
        """Return True when the search is over, or the source begins further on, ends, or cannot be read."""
        if self._is_done or fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        if self._offset < self.job.source_end:
            return self._offset == self._before and not self._is_patient(END_PATIENCE_S)
        self._end_seen_at_s = min(self._end_seen_at_s, self._clock.monotonic())  # later records are too new
        return self.search.has_found or self._clock.monotonic() - self._end_seen_at_s >= END_PATIENCE_S
