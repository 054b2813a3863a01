"""The source task of a flow: copies partitions from the source cluster to their remote topics.

It owns the copiers of its partitions, runs a lane for each broker, and carries out what the copiers ask for. It stores
their positions on the target: before a partition's first batch, then at most ``position_interval_s`` late, and when
the partition is drained.

Counterpart: MirrorSourceTask and the worker's source loop of Apache Kafka's Connect.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.events import (
    Acked,
    Displaced,
    Drain,
    DrainGivenUp,
    Effect,
    Event,
    GapFound,
    Need,
    OperatorNotice,
    PauseChanged,
    Poison,
    RestartAsked,
    SettingsChanged,
    TargetLed,
    Tick,
)
from mm2py.copying.positions import PositionStore
from mm2py.copying.reading.read_replica import LEADER
from mm2py.copying.states import Copying, Drained, Waiting
from mm2py.errors import FirstErrorGroup, Mm2Error
from mm2py.kafka.cluster import ClusterMetadata, PartitionMetadata
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import TopicPartition
from mm2py.kafka.producer.incarnation import IncarnationFenced
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.offset_syncs import OffsetSyncs
from mm2py_connectors.source.recovery.preparation import Prepared
from mm2py_connectors.source.recovery.reconciler import ReconcileJob, Reconciler
from mm2py_connectors.source.recovery.reconciliation import Reconciliation
from mm2py_connectors.source.resume_from_mm2 import ResumeFromMm2
from mm2py_connectors.source.task.lags import Lags
from mm2py_connectors.source.task.lanes import Lanes, Stalls
from mm2py_connectors.source.task.ledger_keeper import LedgerKeeper
from mm2py_connectors.source.task.lookups import BrokerLookups, SourceEnds, TargetEnds
from mm2py_connectors.source.task.measures import Departed
from mm2py_connectors.source.task.position_keeper import PositionKeeper
from mm2py_connectors.source.task.quarantine import Quarantine
from mm2py_connectors.source.task.reports import Reports
from mm2py_connectors.source.task.safe_times import SafeTimes
from mm2py_connectors.source.task.standstills import Standstills
from mm2py_connectors.source.task.waits import Waits

PARTITIONS_DRAIN_S: Final = 30.0
"""How long a stop waits for the target to answer the batches in flight."""
FINAL_POSITIONS_S: Final = 5.0
"""How long a stop then waits for the last positions to be stored."""
REPORT_EVERY_S: Final = 1.0


class DrainIncomplete(Mm2Error):
    """The target did not answer all batches in time: the next attempt fences this one, and reconciles."""

    def __init__(self, partitions: int) -> None:
        super().__init__(
            f"{partitions} partition(s) were stopped without an answer of the target within {PARTITIONS_DRAIN_S:g} s.",
            remedy="Nothing is lost: the next start looks up what the target has stored, and continues after it.",
        )


class PositionsNotStored(Mm2Error):
    """All batches were answered, but the target did not store the last positions in time."""

    def __init__(self, positions: int, problem: str) -> None:
        super().__init__(
            f"{positions} position(s) could not be stored within {FINAL_POSITIONS_S:g} s: {problem or 'no answer'}.",
            remedy="Nothing is lost, and nothing repeated: the next start reads them from the remote partitions.",
        )


class SourceTask:
    """Copies the partitions that are added, until it is drained."""

    def __init__(
        self,
        context: FlowContext,
        prepared: Prepared,
        store: PositionStore,
        ledger: LedgerKeeper,
        *,
        met_gap: Callable[[CopiedPartition, GapFound], None],
        gaps_written: Callable[[], Awaitable[None]],
        looked: Callable[[], None],
    ) -> None:
        """Make one; ``run`` starts it.

        Args:
            gaps_written: returns when the gaps that were met are stored, or cannot be stored for now.
            looked: is called every second, after ``standstills`` has looked at the partitions.
        """
        self.partitions: dict[TopicPartition, CopiedPartition] = {}
        self.settling = asyncio.Lock()
        """Taken while partitions start, are released, or continue after a gap: only one of these at a time."""
        self.unsettled: set[TopicPartition] = set()
        """Drained partitions of which a batch in flight may still be stored later."""
        self.is_draining = False
        """True once the drain of the whole task has begun."""
        self.changes = 0
        """Grows when partitions are added or forgotten."""
        self.departed = Departed()
        self._context = context
        self._clock = context.clock
        self._metadata_wanted = context.state.metadata_wanted
        self._met_gap = met_gap
        self._looked = looked
        self._stalls = Stalls(context)
        self.reconciliation = Reconciliation(
            context,
            Reconciler(context, prepared.previous, self._is_wanted),
            ResumeFromMm2(context, self._is_wanted),
            prepared.previous,
            met_gap=met_gap,
        )
        self.lanes = Lanes(context, self._start)
        self._ends = TargetEnds(context, self.partitions)
        self._broker_lookups = BrokerLookups(context, self.partitions, Quarantine(context, prepared.source_id))
        self._source_ends = SourceEnds(context, self.partitions)
        self.positions = PositionKeeper(
            context, prepared.source_id, store, ledger, self.partitions, before_first=gaps_written
        )
        self.ledger = ledger
        self._offset_syncs = OffsetSyncs(context, self.partitions, ledger.take_runs)
        self._waiting: dict[CopiedPartition, float] = {}
        self._waiting_changed = asyncio.Event()
        self._reports = Reports(context, self.partitions)
        self.standstills = Standstills(context, self.lanes.circumstances)
        self._safe_times = SafeTimes(context, self.partitions)
        self.lags = Lags(context, self.partitions)
        self.waits = Waits(context, self.lanes, self.lags)
        self._busy: set[tuple[str, str]] = set()
        self._settled = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Copy until cancelled. After ``drain`` a restart repeats nothing.

        Raises:
            IncarnationFenced: another process writes under our producer id; the flow needs a new one.
            BrokerRefused: positions cannot be kept on the target.
        """
        try:
            async with FirstErrorGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self.positions.run(), name="positions")
                tasks.create_task(self._resume_waiting(), name="resume")
                tasks.create_task(self._report(), name="report")
                tasks.create_task(self.reconciliation.run(), name="reconciliation")
                tasks.create_task(self._ends.run(), name="target ends")
                tasks.create_task(self._source_ends.run(), name="source ends")
                tasks.create_task(self._safe_times.run(), name="safe times")
                tasks.create_task(self.lags.run(), name="lags")
                tasks.create_task(self._offset_syncs.run(), name="offset syncs")
                self._lead_lanes()
        finally:
            self._tasks = None
            self.lanes.close()
            self._context.ownership.waits_for(None)

    def add(
        self,
        partitions: Iterable[CopiedPartition],
        jobs: Sequence[ReconcileJob] = (),
        behind_mm2: Sequence[CopiedPartition] = (),
    ) -> None:
        """Start to copy partitions, unless the task is being drained.

        Args:
            jobs: for partitions to which a previous producer may have written after the stored position.
            behind_mm2: partitions to which MirrorMaker 2 may have written after the stored position.
        """
        if self.is_draining:
            return
        self.changes += 1
        for part in partitions:
            self.partitions[part.key] = part
            self.ledger.start(part)
            part.copier.handle(SettingsChanged(self._context.copy_settings))
            part.copier.handle(PauseChanged(self._is_paused(part)))
            if part.copier.owns_position:
                self.positions.store_first(part)
        self.reconciliation.begin(jobs, behind_mm2)
        self._lead_lanes()

    async def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Drain partitions, store their positions, and forget them. A position that cannot be stored soon is *owed*."""
        leaving = [self.partitions[key] for key in keys if key in self.partitions]
        await self._drain(leaving)
        self.forget(leaving)

    def forget(self, leaving: Iterable[CopiedPartition]) -> None:
        """Stop copying partitions. Their positions must be stored, or *owed* (see ``PositionKeeper``)."""
        for part in leaving:
            if self.partitions.get(part.key) is not part:
                continue  # it was drained for two reasons
            self.changes += 1
            del self.partitions[part.key]
            self.departed.add(part)
            self.positions.forget(part)
            self._offset_syncs.forget(part)
            self.ledger.forget(part)
            self._waiting.pop(part, None)
            self._broker_lookups.forget(part)
            self.lanes.forget(part)

    def start_draining(self, leaving: Iterable[CopiedPartition]) -> None:
        """Stop reading and sending these partitions. Each is ``Drained`` when its batches in flight are answered."""
        for part in leaving:
            part.tell(Drain())

    def settle_gaps(self, leaving: Iterable[CopiedPartition]) -> None:
        """Let partitions report their gaps now: no answer will come for them any more."""
        for part in leaving:
            part.tell(DrainGivenUp())

    async def drain(self) -> None:
        """Stop reading, wait for the batches in flight, store final positions.

        Raises:
            DrainIncomplete, PositionsNotStored: the target did not answer in time; the next attempt reconciles.
        """
        self.is_draining = True
        left, not_stored = await self._drain(list(self.partitions.values()), patience_s=FINAL_POSITIONS_S)
        await self._offset_syncs.close()
        if left:
            raise DrainIncomplete(left)
        if not_stored:
            raise PositionsNotStored(not_stored, self.positions.problem)

    def change(self) -> None:
        """Use other settings from the next request on."""
        self.lanes.change()
        for part in self.partitions.values():
            part.copier.handle(SettingsChanged(self._context.copy_settings))

    def restart(self, topic: str, partition: int | None) -> None:
        """Read a partition of a topic (None: all that are copied here) again from its position, at once."""
        parts = [part for part in self.partitions.values() if part.source_topic == topic]
        parts = [part for part in parts if partition in {None, part.partition}]
        for part in parts:
            part.tell(RestartAsked(self._clock.monotonic()))
        if parts:
            self._context.log.info("partitions.restarted", topic=topic, partitions=len(parts), why="an operator asked")

    def heed_pauses(self) -> None:
        """Stop reading the partitions that operators have paused, and continue those that are paused no more."""
        for part in self.partitions.values():
            if part.copier.is_paused is not (is_paused := self._is_paused(part)):
                part.tell(PauseChanged(is_paused))

    def _is_paused(self, part: CopiedPartition) -> bool:
        return self._context.state.pauses.find(part.source_topic, part.partition) is not None

    def learn_source(self, metadata: ClusterMetadata) -> None:
        """Update the leaders of source partitions."""
        for part in self.partitions.values():
            found = _found(metadata, part.source_topic, part.source_topic_id, part.partition)
            if found is not None and found.leader_epoch >= part.leaders.source_epoch:
                before, known = part.read_from, (part.leaders.source, part.leaders.source_epoch)
                if known != (found.leader, found.leader_epoch):
                    part.leaders.replica = LEADER
                part.leaders.source, part.leaders.source_epoch = found.leader, found.leader_epoch
                if part.read_from != before:
                    part.reading.current = None  # do not wait for the old broker's answer
        self._lead_lanes()

    def learn_target(self, metadata: ClusterMetadata) -> None:
        """Update the leaders of remote partitions; ignore outdated metadata.

        When the leader epoch changes, a copier sends nothing until the end of the remote partition is verified.
        """
        for part in self.partitions.values():
            found = _found(metadata, part.target_topic, part.target_topic_id, part.partition)
            known = part.copier.target_leader_epoch
            if found is None or (part.target_topic_id and known is not None and found.leader_epoch < known):
                continue
            part.leaders.target = found.leader
            for effect in part.copier.handle(TargetLed(found.leader_epoch)):
                self._carry_out(part, effect)
        self._lead_lanes()

    def _is_wanted(self, part: CopiedPartition) -> bool:
        return self.partitions.get(part.key) is part

    def _lead_lanes(self) -> None:
        if self._tasks is not None:
            self.lanes.lead(self.partitions.values())

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._tasks is None:
            raise AssertionError("the task does not run")
        self._tasks.create_task(work, name=name)

    # Events and effects

    def tell(self, part: CopiedPartition, event: Event, /) -> None:
        """See ``Shell``."""
        copier = part.copier
        before = copier.state
        for effect in copier.handle(event):
            self._carry_out(part, effect)
        state = copier.state
        if isinstance(state, Copying):
            self.lanes.offer_batches(part)
            if state is not before or type(event) is not Acked:  # an acknowledgement alone makes no room for a read
                self.lanes.offer_read(part)
        elif isinstance(state, Waiting):
            if part not in self._waiting:
                self._waiting[part] = self._clock.monotonic()
            self._waiting_changed.set()
        elif isinstance(state, Drained):
            self._settled.set()

    def sent(self, part: CopiedPartition, /) -> None:
        """See ``Shell``."""
        self.lanes.offer_read(part)

    def read_elsewhere(self, part: CopiedPartition, /) -> None:
        """See ``Shell``."""
        self.lanes.move(part)

    def _carry_out(self, part: CopiedPartition, effect: Effect) -> None:
        match effect:
            case OperatorNotice():
                self._reports.pass_on(part, effect)
            case Poison():
                self._once(("quarantine", part.copier.name), lambda: self._broker_lookups.quarantine(part, effect))
            case GapFound():
                self._met_gap(part, effect)
            case Need.STORE_POSITION:
                self.positions.store_first(part)
            case Need.METADATA:
                self._metadata_wanted.set()
            case Need.OFFSETS:
                self._once(("offsets", part.copier.name), lambda: self._broker_lookups.find_offsets(part))
            case Need.TARGET_END:
                self._ends.look(part)
            case Need.LIMITS:
                self._once(("limits", part.target_topic), lambda: self._broker_lookups.find_limits(part))
            case Need.TIMESTAMP_LIMITS:
                look_up = functools.partial(self._broker_lookups.try_with_other_limits, part)
                self._once(("timestamp limits", part.copier.name), look_up)
            case Need.RECONCILE:
                self.reconciliation.lost_track(part)
            case Need.NEW_INCARNATION:
                self._once(("fenced", ""), self._end_incarnation)
            case Displaced():
                self.reconciliation.displaced(part, effect)

    def _once(self, what: tuple[str, str], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a piece of work unless the same one is under way.

        The coroutine is created only when the task begins: a task that is cancelled before that creates none.
        """
        if what in self._busy:
            return
        self._busy.add(what)

        async def run() -> None:
            try:
                await work()
            except KafkaError as error:
                if not error.may_be_mended:
                    raise
                self._metadata_wanted.set()  # the copier's pause ends and it asks again
            finally:
                self._busy.discard(what)

        self._start(run(), " ".join(what))

    async def _end_incarnation(self) -> None:
        raise IncarnationFenced(self._context.incarnation.identity.transactional_id)

    async def _resume_waiting(self) -> None:
        """End each copier's pause when it is due."""
        while True:
            now_s = self._clock.monotonic()
            for part in list(self._waiting):
                if part.copier.is_blocked and (part.copier.resume_at_s or now_s) <= now_s:
                    retry = functools.partial(self._broker_lookups.retry_blocked, part)
                    self._once(("limits", part.target_topic), retry)
                    continue
                part.tell(Tick(now_s))
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
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.positions.look()
            now_s = self._clock.monotonic()
            self._reports.forget_granted()
            self._reports.say_transactional()
            self._stalls.look(self.partitions.values(), now_s, self.lanes.circumstances)
            self.standstills.look(self.partitions, now_s)
            self._looked()
            self._reports.say_repacked()
            self._context.ownership.uses(self.lanes.link_use())
            self.waits.look()
            self._context.ownership.waits_for(self.waits.told)

    async def _drain(self, leaving: list[CopiedPartition], *, patience_s: float = 0.0) -> tuple[int, int]:
        """Drain partitions and store their positions.

        Returns how many partitions have unanswered batches, and how many positions are not stored yet.
        """
        self.start_draining(leaving)
        try:
            async with asyncio.timeout(PARTITIONS_DRAIN_S):
                while any(not isinstance(part.copier.state, Drained) for part in leaving):
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            self.settle_gaps(leaving)
        self.unsettled.update(part.key for part in leaving if part.copier.is_unsettled)
        # A partition that was released meanwhile has another owner by now, and only the owner stores its position.
        ours = [part for part in leaving if self._is_wanted(part)]
        not_stored = await self.positions.store_final(ours, patience_s=patience_s)
        return sum(not isinstance(part.copier.state, Drained) for part in leaving), not_stored


def _found(metadata: ClusterMetadata, topic: str, topic_id: UUID | None, number: int) -> PartitionMetadata | None:
    """Return the metadata of a partition; None if it is missing, or belongs to another topic of that name."""
    found = metadata.topics.get(topic)
    return found.partitions.get(number) if found is not None and topic_id in {None, found.topic_id} else None
