"""Finds out how far a previous producer has written, so that no record is copied twice and none is left out.

The shell around ``mm2py.copying.recovery``: it fences the previous producer and reads the remote partitions up to the
marker that proves the fence. If records were written after the position, it also reads the source records that they are
copies of. MirrorMaker 2 copies again what came after the last stored offset. Partitions are independent: one without a
leader does not delay others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from mm2py.clock import Clock
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.positions import Position
from mm2py.copying.reading.log_reader import LogReader, LogStretch, PlannedStretch
from mm2py.copying.recovery import Comparison, ForeignRecords, LastWriter, SourceWalk, Tail, TailStretch
from mm2py.errors import FirstErrorGroup
from mm2py.kafka import list_offsets
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.port import Brokers, FetchedPartition, TopicPartition
from mm2py.kafka.producer.fencing import Fence, NotFenceable
from mm2py.offsets.recovered import matched_entries, recovered_entries
from mm2py.offsets.runs import Entry, HoleCause
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.recovery.previous_producers import PreviousProducers

END_PATIENCE_S: Final = 3.0
"""How long the source log may seem shorter than what was copied from it: a new leader's high watermark lags."""


@dataclass(frozen=True, slots=True)
class ReconcileJob:
    """A partition whose copy may have records after its position."""

    part: CopiedPartition
    position: Position
    """The last known position of ``writer``. It has a target offset."""
    writer: LastWriter
    fence: Fence | None
    """Fences the writer; None: it has stopped for good."""
    fence_epoch: int | None = None
    """A marker of this epoch or a later one proves the fence; None: there is no proof."""
    known_ids: frozenset[int] = frozenset()
    """Producer ids of this flow; all others are foreign."""
    target_start: int = 0
    """Where the remote partition starts now."""
    transforms: str | None = None
    """The digest of the transforms under which the writer has copied."""

    @property
    def can_count(self) -> bool:
        """Whether the source, read now, shows the same records as the writer has copied."""
        return self.transforms == self.part.transforms_digest

    @property
    def target(self) -> TopicPartition:
        return self.part.target_topic, self.part.partition

    @property
    def target_offset(self) -> int:
        if self.position.target_offset is None:
            raise AssertionError(f"{self.part.key}: it is not known where to start reading the remote partition")
        return self.position.target_offset


@dataclass(frozen=True, slots=True)
class ReconcileOutcome:
    """The result of a job: the position to continue at; None if copied records are gone."""

    job: ReconcileJob
    position: Position | None
    stored: int = 0
    """How many records were found after the position."""
    by_content: bool = False
    """The source reads differently now than when it was copied, so the records themselves were compared."""
    foreign: Mapping[int, ForeignRecords] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    """Where those records are, for the ledger."""
    rewritten: tuple[int, int] | None = None
    """Without a position: the source offsets whose records were copied and have been replaced."""
    lost_at: int = -1
    """Without a position: where the remote partition ends, or differs from what was written."""
    transformed_otherwise: bool = False
    """Without a position: what is stored behind the last one came out of other transforms, see ``ReconcileJob``."""


class Reconciler:
    """Reconciles partitions of one flow."""

    def __init__(
        self,
        context: FlowContext,
        previous: PreviousProducers,
        wanted: Callable[[CopiedPartition], bool],
    ) -> None:
        """``wanted`` returns whether a partition must still be copied; jobs of others are dropped."""
        source, target, rng = context.source.brokers, context.target.brokers, context.rng
        self._source = source
        self._target = target
        self._read_committed = read_committed = context.settings.read_committed
        self._tails = LogReader(target, read_committed=False, rng=rng, channel="reconcile")
        self._walks = LogReader(source, read_committed=read_committed, rng=rng, channel="reconcile")
        self._committed_walks = LogReader(source, read_committed=True, rng=rng, channel="reconcile")
        """For records that are read uncommitted now, and were perhaps read committed when they were copied."""
        self._clock = context.clock
        self._rng = rng
        self._wanted = wanted
        self._previous = previous

    async def reconcile(self, jobs: Iterable[ReconcileJob], done: Callable[[ReconcileOutcome], None]) -> None:
        """Reconcile partitions; ``done`` gets each outcome as soon as there is one.

        Raises:
            KafkaError: one that no retry mends.
        Cancelling is safe: nothing is stored here.
        """
        async with FirstErrorGroup() as tasks:
            self._begin(tasks, list(jobs), done)

    async def read_tails(self, tails: Mapping[CopiedPartition, Tail]) -> None:
        """Read tails that belong to no job."""
        stretches = [
            TailStretch(part.target_topic, part.target_topic_id, part.partition, tail, self._clock)
            for part, tail in tails.items()
        ]
        await self._tails.read(stretches, lambda _: None)

    def _begin(
        self, tasks: asyncio.TaskGroup, jobs: Sequence[ReconcileJob], done: Callable[[ReconcileOutcome], None]
    ) -> None:
        groups: dict[int, list[ReconcileJob]] = {}
        for job in jobs:
            groups.setdefault(id(job.fence), []).append(job)
        for group in groups.values():
            tasks.create_task(self._run(tasks, group, done), name="reconcile")

    async def _run(
        self, tasks: asyncio.TaskGroup, jobs: Sequence[ReconcileJob], done: Callable[[ReconcileOutcome], None]
    ) -> None:
        """Start the jobs whose remote partitions have a leader; the others as soon as they have one."""
        backoff = Backoff(self._rng, first_s=0.1, most_s=1.0)
        waiting = list(jobs)
        while waiting := [job for job in waiting if self._wanted(job.part)]:
            bounds = await find_bounds(self._target, [job.target for job in waiting])
            whole: list[ReconcileJob] = []
            for job in (job for job in waiting if job.target in bounds):
                start, end = bounds[job.target]
                if end < job.target_offset:  # a marker would make the log long enough again for the next attempt
                    done(ReconcileOutcome(job, None, lost_at=end))
                elif job.fence is None and end == job.target_offset:
                    done(
                        ReconcileOutcome(
                            job, job.position._replace(target_leader_epoch=job.part.copier.target_leader_epoch)
                        )
                    )
                else:
                    whole.append(replace(job, target_start=start))
            if whole:
                tasks.create_task(self._read_tails(tasks, whole, done), name="reconcile")
            waiting = [job for job in waiting if job.target not in bounds]
            if waiting:
                await asyncio.sleep(backoff.next_s())

    async def _read_tails(
        self, tasks: asyncio.TaskGroup, jobs: Sequence[ReconcileJob], done: Callable[[ReconcileOutcome], None]
    ) -> None:
        """Fence the previous producer in partitions and read their tails."""
        stretches = [_JobTail(job, self._clock) for job in await self._fence(jobs)]
        await self._tails.read(stretches, lambda read: self._walk(tasks, read, done))

    async def _fence(self, jobs: Sequence[ReconcileJob]) -> Sequence[ReconcileJob]:
        fence = jobs[0].fence
        if fence is None:
            return jobs
        try:
            epoch = await until_answered(lambda: fence.fence([job.target for job in jobs]), rng=self._rng)
        except NotFenceable as error:
            self._previous.note_unfenced(str(error), partitions=len(jobs))
            return [replace(job, fence=None, fence_epoch=None) for job in jobs]
        return [replace(job, fence_epoch=epoch) for job in jobs]

    def _walk(
        self, tasks: asyncio.TaskGroup, read: Sequence[LogStretch], done: Callable[[ReconcileOutcome], None]
    ) -> None:
        """Continue with partitions whose tails were read."""
        walks: list[_WalkStretch] = []
        again: list[ReconcileJob] = []
        for stretch in read:
            assert isinstance(stretch, _JobTail)  # noqa: S101  (_read_tails reads nothing else)
            job, tail = stretch.job, stretch.tail
            if not tail.is_whole:
                again.append(job)
            elif tail.cut_at is not None:
                done(ReconcileOutcome(job, None, lost_at=tail.cut_at))
            elif (tail.stored or tail.has_holes) and not job.can_count:
                done(ReconcileOutcome(job, None, tail.stored, transformed_otherwise=True))
            elif tail.has_holes and not job.part.rules.is_compacted and job.target_start <= job.target_offset:
                compare = self._compare(tasks, job, done)  # counting would leave out the missing records
                tasks.create_task(compare, name="compare")
            elif not tail.stored:
                done(_outcome(job, tail, job.position.source_offset, job.position.source_leader_epoch))
            else:
                walks.append(self._walk_of(job, tail, self._read_committed))
        if again:
            self._begin(tasks, again, done)
        self._begin_walks(tasks, walks, done)

    def _walk_of(self, job: ReconcileJob, tail: Tail, read_committed: bool) -> _WalkStretch:
        walk = SourceWalk(job.position.source_offset, job.position.source_leader_epoch, tail.stored)
        return _WalkStretch(job, tail, walk, read_committed, self._clock)

    def _begin_walks(
        self, tasks: asyncio.TaskGroup, walks: Sequence[_WalkStretch], done: Callable[[ReconcileOutcome], None]
    ) -> None:
        for reader, read_committed in ((self._walks, self._read_committed), (self._committed_walks, True)):
            mine = [walk for walk in walks if walk.read_committed == read_committed]
            walks = [walk for walk in walks if walk.read_committed != read_committed]
            if mine:
                tasks.create_task(reader.read(mine, lambda read: self._judge(tasks, read, done)), name="walk")

    def _judge(
        self, tasks: asyncio.TaskGroup, read: Sequence[LogStretch], done: Callable[[ReconcileOutcome], None]
    ) -> None:
        """Continue with partitions whose source was read."""
        walks: list[_WalkStretch] = []
        for stretch in read:
            assert isinstance(stretch, _WalkStretch)  # noqa: S101  (_begin_walks reads nothing else)
            job, walk = stretch.job, stretch.walk
            by_content = isinstance(walk, Comparison)
            if not stretch.is_proven(self._read_committed):
                if stretch.is_over and not stretch.read_committed:
                    walks.append(self._walk_of(job, stretch.tail, True))
                else:
                    tasks.create_task(self._compare(tasks, job, done), name="compare")
            elif isinstance(walk, Comparison) and walk.rewritten is not None:
                done(ReconcileOutcome(job, None, rewritten=walk.rewritten))
            else:
                entries = _entries(job, stretch.tail, walk)
                outcome = _outcome(job, stretch.tail, walk.resume_offset, walk.leader_epoch, entries)
                done(replace(outcome, by_content=by_content))
        self._begin_walks(tasks, walks, done)

    async def _compare(
        self, tasks: asyncio.TaskGroup, job: ReconcileJob, done: Callable[[ReconcileOutcome], None]
    ) -> None:
        """Read the tail again, and look up the source records in it, because counting is not enough."""
        stretch = _JobTail(job, self._clock, keep_records=True)
        await self._tails.read([stretch], lambda _: None)
        if not stretch.tail.is_whole:
            self._begin(tasks, [job], done)
            return
        backoff = Backoff(self._rng, first_s=0.1, most_s=1.0)
        while job.part.key not in (bounds := await find_bounds(self._source, [job.part.key])):
            if not self._wanted(job.part):
                return
            await asyncio.sleep(backoff.next_s())  # the fence stays: no second marker is written for it
        comparison = Comparison(
            job.position.source_offset,
            job.position.source_leader_epoch,
            stretch.tail,
            log_start=bounds[job.part.key][0],
        )
        walk = _WalkStretch(job, stretch.tail, comparison, self._read_committed, self._clock)
        await self._walks.read([walk], lambda read: self._judge(tasks, read, done))


async def find_bounds(brokers: Brokers, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the starts and ends of logs; partitions whose leaders do not answer are left out.

    For remote partitions this is asked before a marker is written, as a marker would hide that the end is gone.
    """
    try:
        metadata = await fetch_metadata(brokers, sorted({topic for topic, _ in partitions}), channel="reconcile")
    except KafkaError as error:
        if not error.retriable:
            raise
        return {}
    return await list_offsets.find_bounds(brokers, {key: metadata.leader_of(*key) for key in partitions})


def _entries(job: ReconcileJob, tail: Tail, walk: SourceWalk | Comparison) -> tuple[Entry, ...]:
    """Return the ledger's entries for the records that were found."""
    if isinstance(walk, SourceWalk):
        cause = HoleCause.TRIMMED if tail.is_trimmed else HoleCause.COUNTED
        counted, places = walk.counted.runs, tail.places.runs
        return tuple(
            recovered_entries(counted, places, target_start=job.target_offset, target_end=tail.record_end, cause=cause)
        )
    copies = [*tail.copies, job.target_offset] if tail.is_trimmed else tail.copies
    start, end = (job.position.source_offset, job.target_offset), (walk.resume_offset, tail.record_end)
    return tuple(matched_entries(walk.matches.runs, copies, start, end))


def _outcome(
    job: ReconcileJob, tail: Tail, source_offset: int, leader_epoch: int, entries: tuple[Entry, ...] = ()
) -> ReconcileOutcome:
    same = source_offset == job.position.source_offset
    position = Position(
        source_offset,
        leader_epoch,
        tail.next_offset,
        job.part.copier.target_leader_epoch,
        skipped=job.position.skipped if same else (),
    )
    return ReconcileOutcome(job, position, tail.stored, foreign=tail.foreign, entries=entries)


class _JobTail(TailStretch):
    """The remote partition of a job."""

    def __init__(self, job: ReconcileJob, clock: Clock, *, keep_records: bool = False) -> None:
        tail = Tail(
            job.target_offset,
            job.writer,
            fence_epoch=job.fence_epoch,
            known_ids=job.known_ids,
            keep_records=keep_records,
        )
        tail.begin_at(job.target_start)
        super().__init__(job.part.target_topic, job.part.target_topic_id, job.part.partition, tail, clock)
        self.job = job


class _WalkStretch(PlannedStretch):
    """A source partition from its position to where copying continues."""

    def __init__(
        self, job: ReconcileJob, tail: Tail, walk: SourceWalk | Comparison, read_committed: bool, clock: Clock
    ) -> None:
        part = job.part
        super().__init__(
            part.source_topic,
            part.source_topic_id,
            part.partition,
            offset=walk.read_offset if isinstance(walk, Comparison) else walk.resume_offset,
            read_committed=read_committed,
            clock=clock,
            transforms=part.transforms,
        )
        self.job = job
        self.tail = tail
        self.walk = walk
        self._is_done = False

    @property
    def is_over(self) -> bool:
        """Whether the walk was not given up; a comparison knows where to continue even then."""
        return isinstance(self.walk, Comparison) or self.walk.is_over

    def is_proven(self, read_committed: bool) -> bool:
        """Whether what it found can be believed; ``read_committed``: how records are read now."""
        if isinstance(self.walk, Comparison):
            return True
        if self.read_committed != read_committed:
            return self.is_over and self.walk.shows_another_isolation(self.tail)
        return self.is_over and self.walk.is_proven_by(self.tail)

    def decode(self, fetched: FetchedPartition) -> None:
        super().decode(fetched)
        self._is_done = self.walk.take(self.planned.steps)

    def take(self, fetched: FetchedPartition) -> bool:
        """Return True when over, or given up: the source begins further on, ends too early, or cannot be read."""
        if self._is_done or fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        end = fetched.last_stable_offset if self.read_committed else fetched.high_watermark
        return not self._is_patient(END_PATIENCE_S) and (self.planned.fault is not None or self._offset >= end)
