"""The source task of a flow: copies partitions from the source cluster to their remote topics.

Answers to MirrorSourceTask and the worker's source loop of Apache Kafka's Connect. It owns the copiers of its
partitions, runs a lane for each broker they touch, carries out what the copiers ask for, and keeps their positions on
the target: before a partition's first batch, then at most ``position_interval_s`` behind, and once more when it drains.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from connectors.source.copying.lanes import Lanes, Stalls
from connectors.source.copying.lookups import Inquiries, SourceEnds, TargetEnds
from connectors.source.copying.position_keeper import PositionKeeper
from connectors.source.copying.reports import Reports
from connectors.source.errors import ExactlyOnceImpossible
from connectors.source.recovery.previous_producers import PreviousProducers
from connectors.source.recovery.reconciler import Job, Reconciler
from connectors.source.recovery.reconciliation import Reconciliation
from connectors.source.resume_from_mm2 import ResumeFromMm2
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import ClusterMetadata
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import Fenced, Incarnation
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.copying.events import (
    Displaced,
    Drain,
    DrainGivenUp,
    Effect,
    Event,
    GapFound,
    Need,
    Poison,
    Report,
    SettingsChanged,
    TargetLed,
    Tick,
)
from mm2py.replication.copying.states import Copying, Drained, Waiting
from mm2py.replication.position import PositionBudget
from mm2py.replication.position_store import PositionStore
from mm2py.replication.reading.limits import MemoryBudget

DRAIN_S: Final = 30.0
"""How long a stop waits for the target to answer what is on its way."""
FINAL_POSITIONS_S: Final = 5.0
"""How long a stop then waits for the last positions to be stored."""
REPORT_EVERY_S: Final = 1.0


class DrainIncomplete(Mm2Error):
    """The target did not answer for everything in time: the next life shuts this one out, and reconciles."""

    def __init__(self, partitions: int) -> None:
        super().__init__(
            f"{partitions} partition(s) were stopped without an answer of the target within {DRAIN_S:g} s.",
            remedy="Nothing is lost: the next start looks up what has arrived, and goes on behind it.",
        )


class PositionsNotStored(Mm2Error):
    """All was answered, and the target did not take the last positions in time."""

    def __init__(self, positions: int, problem: str) -> None:
        super().__init__(
            f"{positions} position(s) could not be stored within {FINAL_POSITIONS_S:g} s: {problem or 'no answer'}.",
            remedy="Nothing is lost, and nothing repeated: the next start finds out from the remote partitions.",
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a task needs to know of one side besides its brokers."""

    cluster_id: str | None
    brokers: Brokers


class SourceTask:
    """Copies the partitions it is given until it is drained."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Cluster,
        target: Cluster,
        *,
        incarnation: Incarnation,
        previous: PreviousProducers,
        store: PositionStore,
        keep: Callable[[CopiedPartition, Poison], Awaitable[bool]],
        budget: MemoryBudget,
        position_budget: PositionBudget,
        producer_expiry_ms: int,
        met_gap: Callable[[CopiedPartition, GapFound], None],
        gaps_written: Callable[[], Awaitable[None]],
        stalls: Stalls,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one; ``run`` starts it.

        Args:
            keep: puts a record into quarantine and tells whether it is there.
            gaps_written: returns when the gaps that were met are known to the next life, or cannot be for now.
        """
        self.partitions: dict[tuple[str, int], CopiedPartition] = {}
        self.metadata_wanted = asyncio.Event()
        self._settings = settings
        self._source = source
        self._incarnation = incarnation
        self._met_gap = met_gap
        self._stalls = stalls
        self._clock = clock
        self._log = log
        self.leaves_doubt = False
        """Something was on its way when its partition was drained, and may arrive yet."""
        self.unsettled: set[tuple[str, int]] = set()
        """Of which partitions, as far as they are copied no more."""
        self.unfenced: str | None = None
        """Why an earlier writer could not be shut out, if there is one."""
        self._reconciliation = Reconciliation(
            Reconciler(
                source.brokers,
                target.brokers,
                read_committed=settings.read_committed,
                clock=clock,
                rng=rng,
                wanted=lambda part: self.partitions.get(part.key) is part,
                unfenced=self._note_unfenced,
            ),
            ResumeFromMm2(
                settings,
                source.brokers,
                target.brokers,
                clock=clock,
                rng=rng,
                log=log,
                wanted=lambda part: self.partitions.get(part.key) is part,
                handle=self._handle,
            ),
            incarnation,
            previous,
            flow=settings.flow,
            exactly_once=settings.exactly_once == "enabled",
            shared=settings.many_to_one,
            handle=self._handle,
            met_gap=met_gap,
            log=log,
        )
        self._lanes = Lanes(
            settings,
            source.brokers,
            target.brokers,
            budget=budget,
            producer_expiry_ms=producer_expiry_ms,
            handle=self._handle,
            stale=self.metadata_wanted.set,
            start=self._start,
            clock=clock,
            rng=rng,
            log=log,
        )
        self._ends = TargetEnds(
            target.brokers,
            self.partitions,
            handle=self._handle,
            stale=self.metadata_wanted.set,
            clock=clock,
        )
        self._inquiries = Inquiries(
            source.brokers, target.brokers, self.partitions, keep=keep, handle=self._handle, clock=clock
        )
        self._source_ends = SourceEnds(
            source.brokers, self.partitions, fetch_max_wait_s=settings.fetch_max_wait_ms / 1000, clock=clock
        )
        self.positions = PositionKeeper(
            store,
            self.partitions,
            interval_s=settings.position_interval_s,
            form=self.stored_form,
            handle=self._handle,
            before_first=gaps_written,
            account=position_budget.open(),
            clock=clock,
            log=log,
        )
        self._waiting: dict[CopiedPartition, float] = {}
        self._waiting_changed = asyncio.Event()
        self._reports = Reports(settings, self.partitions, waiting=self._waiting, log=log)
        self._busy: set[tuple[str, str]] = set()
        self._settled = asyncio.Event()
        self._draining = False
        self._tasks: asyncio.TaskGroup | None = None

    # What the connector does with it

    async def run(self) -> None:
        """Copy until cancelled; call ``drain`` before that to repeat nothing later.

        Raises:
            Fenced: another process writes under our id; come back under a new one.
            BrokerRefused: positions cannot be kept on the target.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self.positions.run(), name="positions")
                tasks.create_task(self._resume_waiting(), name="resume")
                tasks.create_task(self._report(), name="report")
                tasks.create_task(self._reconciliation.run(), name="reconciliation")
                tasks.create_task(self._ends.run(), name="target ends")
                tasks.create_task(self._source_ends.run(), name="source ends")
                self._lead_lanes()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._tasks = None
            self._lanes.close()

    @property
    def foreign_topics(self) -> Collection[str]:
        """Remote topics to which others write."""
        return self._reconciliation.foreign

    @property
    def repeated_topics(self) -> Collection[str]:
        """Remote topics in which records may stand twice."""
        return self._reconciliation.repeated

    def add(
        self,
        partitions: Iterable[CopiedPartition],
        jobs: Sequence[Job] = (),
        behind_mm2: Sequence[CopiedPartition] = (),
    ) -> None:
        """Begin to copy partitions; each stores its position before its first batch. While draining nothing begins.

        ``jobs`` are those among them that an earlier life may have written to since its position, ``behind_mm2``
        those that MirrorMaker 2 may have.
        """
        if self._draining:
            return
        for part in partitions:
            self.partitions[part.key] = part
            self._let_know(part)
            if part.copier.owns_position:
                self.positions.store_first(part)
        self._reconciliation.begin(jobs, behind_mm2)
        self._lead_lanes()

    async def remove(self, keys: Iterable[tuple[str, int]]) -> None:
        """Drain partitions, store where they stand, and forget them. What cannot be stored soon is stored later."""
        leaving = [self.partitions[key] for key in keys if key in self.partitions]
        await self._drain(leaving)
        self.unsettled.update(part.key for part in leaving if part.copier.is_unsettled)
        self.forget(leaving)

    def forget(self, leaving: Iterable[CopiedPartition]) -> None:
        """Copy these no more. What is to be known of them must be stored, or owed."""
        for part in leaving:
            if self.partitions.get(part.key) is not part:
                continue  # two had them drained, for one reason each
            del self.partitions[part.key]
            self.positions.forget(part)
            self._waiting.pop(part, None)
            self._reports.forget(part)
            self._inquiries.forget(part)
            self._lanes.forget(part)

    @property
    def is_draining(self) -> bool:
        """It is being drained as a whole, or was."""
        return self._draining

    def begin_to_drain(self, leaving: Iterable[CopiedPartition]) -> None:
        """Read no more of these and send nothing more; they are ``DRAINED`` when all that was sent is answered."""
        for part in leaving:
            self._handle(part, Drain())

    def settle_gaps(self, leaving: Iterable[CopiedPartition]) -> None:
        """No answer will come for these: what is known of their gaps is said."""
        for part in leaving:
            self._handle(part, DrainGivenUp())

    async def drain(self) -> None:
        """Stop reading, wait for what is on its way, store final positions: a restart then repeats nothing.

        Raises:
            DrainIncomplete, PositionsNotStored: the target did not answer in time; the next life reconciles the rest.
        """
        self._draining = True
        left, not_stored = await self._drain(list(self.partitions.values()), patience_s=FINAL_POSITIONS_S)
        if left:
            raise DrainIncomplete(left)
        if not_stored:
            raise PositionsNotStored(not_stored, self.positions.problem)

    def take_part_of_rate(self, part: float) -> None:
        """See ``Lanes``."""
        self._lanes.take_part_of_rate(part)

    def change(self, settings: FlowSettings) -> None:
        """Take other settings up at the next request; nothing under way ends."""
        self._settings = settings
        self._lanes.change(settings)
        self._stalls.timeout_s = settings.stall_timeout_s
        self._source_ends.fetch_max_wait_s = settings.fetch_max_wait_ms / 1000
        self.positions.interval_s = settings.position_interval_s
        for part in self.partitions.values():
            self._let_know(part)

    def _let_know(self, part: CopiedPartition) -> None:
        """Also of one that begins: it may have been made by the settings before."""
        now = replace(
            part.copier.settings,
            ready_max_bytes=self._settings.fetch_partition_max_bytes,
            quarantines=self._settings.quarantines,
        )
        part.copier.handle(SettingsChanged(now))

    def stored_form(self, part: CopiedPartition) -> StoredPosition:
        """Return what would be stored of a partition now."""
        position, identity = part.copier.position, part.copier.identity
        return StoredPosition(
            next_source=position.source_offset,
            source_cluster=self._source.cluster_id,
            source_topic_id=part.source_topic_id,
            source_leader_epoch=None if position.source_leader_epoch < 0 else position.source_leader_epoch,
            next_target=position.target_offset,
            target_topic_id=part.target_topic_id,
            target_leader_epoch=position.target_leader_epoch,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            next_sequence=position.sequence,
            by=identity.transactional_id,
            skipped=position.skipped,
            unknown=part.unknown_fields,
        )

    def learn_source(self, metadata: ClusterMetadata) -> None:
        """Take in who leads the source partitions now."""
        for part in self.partitions.values():
            topic = metadata.topics.get(part.source_topic)
            found = None if topic is None else topic.partitions.get(part.partition)
            if topic is None or found is None or part.source_topic_id not in {None, topic.topic_id}:
                continue
            if found.leader_epoch >= part.source_leader_epoch:
                if found.leader != part.source_leader:
                    part.reading = None  # what the old leader still answers is not waited for
                part.source_leader, part.source_leader_epoch = found.leader, found.leader_epoch
        self._lead_lanes()

    def learn_target(self, metadata: ClusterMetadata) -> None:
        """Take in who leads the remote partitions now. Under another leader epoch nothing is sent to a partition until
        its end was looked at; what a broker that is behind tells is left."""
        for part in self.partitions.values():
            topic = metadata.topics.get(part.target_topic)
            found = None if topic is None else topic.partitions.get(part.partition)
            if topic is None or found is None or part.target_topic_id not in {None, topic.topic_id}:
                continue
            known = part.copier.target_leader_epoch
            if part.target_topic_id is not None and known is not None and found.leader_epoch < known:
                continue
            part.target_leader = found.leader
            for effect in part.copier.handle(TargetLed(found.leader_epoch)):
                self._carry_out(part, effect)
        self._lead_lanes()

    def _lead_lanes(self) -> None:
        if self._tasks is not None:
            self._lanes.lead(self.partitions.values())

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._tasks is None:
            raise AssertionError("the task does not run")
        self._tasks.create_task(work, name=name)

    # Events and effects

    def _handle(self, part: CopiedPartition, event: Event) -> None:
        copier = part.copier
        for effect in copier.handle(event):
            self._carry_out(part, effect)
        state = copier.state
        if isinstance(state, Copying):
            self._lanes.offer_batches(part)
            self._lanes.offer_read(part)
        elif isinstance(state, Waiting):
            if part not in self._waiting:
                self._waiting[part] = self._clock.monotonic()
            self._waiting_changed.set()
        elif isinstance(state, Drained):
            self._settled.set()

    def _carry_out(self, part: CopiedPartition, effect: Effect) -> None:
        match effect:
            case Report():
                self._reports.pass_on(part, effect)
            case Poison():
                self._once(("quarantine", part.copier.name), self._inquiries.quarantine(part, effect))
            case GapFound():
                self._met_gap(part, effect)
            case Need.STORE_POSITION:
                self.positions.store_first(part)
            case Need.METADATA:
                self.metadata_wanted.set()
            case Need.OFFSETS:
                self._once(("offsets", part.copier.name), self._inquiries.find_offsets(part))
            case Need.TARGET_END:
                self._ends.look(part)
            case Need.LIMITS:
                self._once(("limits", part.target_topic), self._inquiries.find_limits(part))
            case Need.RECONCILE:
                self._reconciliation.lost_track(part)
            case Need.NEW_INCARNATION:
                self._once(("fenced", ""), self._end_incarnation())
            case Displaced():
                self._reconciliation.displaced(part, effect)

    def _once(self, what: tuple[str, str], work: Coroutine[Any, Any, None]) -> None:
        """Start a piece of work unless the same one is under way."""
        if what in self._busy:
            work.close()
            return
        self._busy.add(what)

        async def run() -> None:
            try:
                await work
            except KafkaError as error:
                if not error.worth_asking_again:
                    raise
                self.metadata_wanted.set()  # the copier's pause ends and it asks again
            finally:
                self._busy.discard(what)

        self._start(run(), " ".join(what))

    def _note_unfenced(self, why: str, partitions: int) -> None:
        if self._settings.exactly_once == "enabled":
            raise ExactlyOnceImpossible(self._settings.flow, why)
        self.unfenced = why
        self._log.warning(
            "writer.unfenced",
            partitions=partitions,
            why=why,
            effect="if that process still runs, records may be there twice",
        )

    async def _end_incarnation(self) -> None:
        raise Fenced(self._incarnation.identity.transactional_id)

    async def _resume_waiting(self) -> None:
        """End each copier's pause when it is due."""
        while True:
            now_s = self._clock.monotonic()
            for part in list(self._waiting):
                if part.copier.is_blocked and (part.copier.resume_at_s or now_s) <= now_s:
                    self._once(("limits", part.target_topic), self._inquiries.retry_blocked(part))
                    continue
                self._handle(part, Tick(now_s))
                if not isinstance(part.copier.state, Waiting) and not part.copier.is_failing:
                    del self._waiting[part]
            due = [part.copier.resume_at_s for part in self._waiting]
            pause_s = max(0.01, min((at_s - now_s for at_s in due if at_s is not None), default=0.5))
            self._waiting_changed.clear()
            if self._waiting:
                await asyncio.sleep(min(pause_s, 0.5))
            else:
                await self._waiting_changed.wait()

    async def _report(self) -> None:
        while True:  # a task of its own: storing positions may wait for the very broker that is to be reported
            await asyncio.sleep(REPORT_EVERY_S)
            self.positions.look()
            self._reports.say_waits(self._clock.monotonic())
            self._reports.say_transactional()
            self._stalls.look(self.partitions.values(), self._clock.monotonic(), self._lanes.circumstances)
            self._reports.say_repacked()

    async def _drain(self, leaving: list[CopiedPartition], *, patience_s: float = 0.0) -> tuple[int, int]:
        """Settle partitions and store where they stand.

        Returns how many the target left without an answer, and how many positions are not stored for now.
        """
        self.begin_to_drain(leaving)
        try:
            async with asyncio.timeout(DRAIN_S):
                while any(not isinstance(part.copier.state, Drained) for part in leaving):
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            self.settle_gaps(leaving)
        self.leaves_doubt |= any(part.copier.is_unsettled for part in leaving)
        # Those handed over meanwhile have another owner by now, who alone says where they stand.
        ours = [part for part in leaving if self.partitions.get(part.key) is part]
        not_stored = await self.positions.store_final(ours, patience_s=patience_s)
        return sum(not isinstance(part.copier.state, Drained) for part in leaving), not_stored
