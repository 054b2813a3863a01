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

from connectors.source.fences import Fences
from connectors.source.position_keeper import PositionKeeper
from connectors.source.reconciler import Job, Reconciler
from connectors.source.reconciliation import Reconciliation
from connectors.source.refusals import ExactlyOnceImpossible
from connectors.source.stalls import Stalls, circumstances_of
from connectors.source.succession import Succession
from connectors.source.takeover import EarlierLives
from connectors.source.target_ends import TargetEnds
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.kafka import admin
from mm2py.kafka.cluster import ClusterMetadata
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.incarnation import Fenced, Incarnation
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.copier import Phase
from mm2py.replication.events import (
    Displaced,
    Drain,
    Effect,
    Event,
    GapFound,
    Need,
    OffsetsFound,
    Poison,
    Quarantined,
    Report,
    TargetLed,
    Tick,
)
from mm2py.replication.fetch_lane import FetchLane, ReadSettings
from mm2py.replication.lane import CopiedPartition
from mm2py.replication.memory import MemoryAccount, MemoryBudget
from mm2py.replication.position_store import PositionStore
from mm2py.replication.produce_lane import ProduceLane
from mm2py.replication.rate import RateLimit
from mm2py.replication.repack import PASS_REFUSED
from mm2py.replication.watchdog import Circumstances

DRAIN_S: Final = 30.0
"""How long a stop waits for the target to answer what is on its way."""
REPORT_EVERY_S: Final = 1.0
LOOKED_AT: Final = "the target has not told yet whether it still holds all that was copied"
WAITING_REPORT_S: Final = 5.0
"""A pause shorter than this is not worth a line in the log: leaders move."""


class DrainIncomplete(Mm2Error):
    """The target did not answer for everything in time: a restart repeats what is in doubt."""

    def __init__(self, partitions: int) -> None:
        super().__init__(
            f"{partitions} partition(s) were stopped without an answer of the target within {DRAIN_S:g} s.",
            remedy="Nothing is lost; what was on its way may be repeated after the restart.",
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
        lives: EarlierLives,
        fences: Fences,
        store: PositionStore,
        keep: Callable[[CopiedPartition, Poison], Awaitable[bool]],
        budget: MemoryBudget,
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
        self.fetch_lanes: dict[BrokerId, FetchLane] = {}
        self.produce_lanes: dict[BrokerId, ProduceLane] = {}
        self._settings = settings
        self._source = source
        self._target = target
        self._incarnation = incarnation
        self._keep = keep
        self._looked_up: dict[CopiedPartition, int] = {}
        """For which source offset the limits were last looked up before it went into quarantine."""
        self._budget = budget
        self._accounts: dict[BrokerId, MemoryAccount] = {}
        self._producer_expiry_ms = producer_expiry_ms
        self._met_gap = met_gap
        self._stalls = stalls
        self._clock = clock
        self._rng = rng
        self._log = log
        self._rate = RateLimit(settings.bytes_per_second_max)
        self._reading = ReadSettings(
            partition_max_bytes=settings.fetch_partition_max_bytes,
            max_bytes=settings.fetch_max_bytes,
            min_bytes=settings.fetch_min_bytes,
            max_wait_ms=settings.fetch_max_wait_ms,
            read_committed=settings.read_committed,
            copy_modes=settings.copy_modes,
            linger_s=settings.linger_s,
        )
        self.leaves_doubt = False
        """Something was on its way when its partition was drained, and may arrive yet."""
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
            Succession(
                source.brokers,
                target.brokers,
                read_committed=settings.read_committed,
                clock=clock,
                rng=rng,
                wanted=lambda part: self.partitions.get(part.key) is part,
            ),
            incarnation,
            lives,
            fences,
            flow=settings.flow,
            exactly_once=settings.exactly_once == "enabled",
            shared=settings.many_to_one,
            handle=self._handle,
            met_gap=met_gap,
            log=log,
        )
        self._fences = fences
        self._ends = TargetEnds(
            target.brokers,
            self.partitions,
            fences=fences,
            handle=self._handle,
            stale=self.metadata_wanted.set,
            clock=clock,
        )
        self._positions = PositionKeeper(
            store,
            self.partitions,
            interval_s=settings.position_interval_s,
            form=self.stored_form,
            handle=self._handle,
            before_first=gaps_written,
            clock=clock,
            log=log,
        )
        self._waiting: dict[CopiedPartition, float] = {}
        self._waiting_changed = asyncio.Event()
        self._held_up: dict[CopiedPartition, float] = {}
        self._reported_waits: dict[tuple[str, str], int] = {}
        self._warned_transactional: set[str] = set()
        self._said_repacked: set[str] = set()
        self._said_parted: set[str] = set()
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
                tasks.create_task(self._positions.run(), name="positions")
                tasks.create_task(self._resume_waiting(), name="resume")
                tasks.create_task(self._report(), name="report")
                tasks.create_task(self._reconciliation.run(), name="reconciliation")
                tasks.create_task(self._ends.run(), name="target ends")
                tasks.create_task(self._fences.run(), name="fences")
                self._lead_lanes()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._tasks = None
            for account in self._accounts.values():
                account.close()

    def positions_age_s(self) -> float:
        """How long ago the position changed that waits longest to be stored."""
        return self._positions.age_s()

    @property
    def foreign_topics(self) -> Collection[str]:
        """Remote topics to which others write."""
        return self._reconciliation.foreign

    @property
    def fenced_topics(self) -> Collection[str]:
        """Topics of which it matters who leads them, as somebody was shut out there."""
        return self._fences.topics

    def add(
        self,
        partitions: Iterable[CopiedPartition],
        jobs: Sequence[Job] = (),
        inherited: Sequence[CopiedPartition] = (),
    ) -> None:
        """Begin to copy partitions; each stores its position before its first batch. While draining nothing begins.

        ``jobs`` are those among them that an earlier life may have written to since its position, ``inherited`` those
        that MirrorMaker 2 may have.
        """
        if self._draining:
            return
        for part in partitions:
            self.partitions[part.key] = part
            if part.copier.owns_position:
                self._positions.store_first(part)
        self._reconciliation.begin(jobs, inherited)
        self._lead_lanes()

    async def remove(self, keys: Iterable[tuple[str, int]]) -> None:
        """Drain partitions, store where they stand, and forget them."""
        leaving = [self.partitions[key] for key in keys if key in self.partitions]
        await self._drain(leaving)
        for part in leaving:
            self.partitions.pop(part.key, None)
            self._positions.forget(part)
            self._waiting.pop(part, None)
            self._held_up.pop(part, None)
            self._looked_up.pop(part, None)
            if part.source_leader in self.fetch_lanes:
                self.fetch_lanes[part.source_leader].partitions.pop(part.key, None)

    async def drain(self) -> None:
        """Stop reading, wait for what is on its way, store final positions: a restart then repeats nothing."""
        self._draining = True
        left = await self._drain(list(self.partitions.values()))
        if left:
            raise DrainIncomplete(left)

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
        doubtful = {
            (part.target_topic, part.partition)
            for part in self.partitions.values()
            if part.copier.target_is_in_doubt or part.copier.phase is Phase.STALLED
        }
        self._fences.learn(metadata, doubtful=doubtful)
        self._lead_lanes()

    # Lanes

    def _lead_lanes(self) -> None:
        """Put every partition into the lanes of the brokers that lead it now."""
        if self._tasks is None:
            return
        for part in self.partitions.values():
            for broker, lane in self.fetch_lanes.items():
                if broker != part.source_leader:
                    lane.partitions.pop(part.key, None)
            if part.source_leader is not None:
                self._fetch_lane(part.source_leader).partitions[part.key] = part
            if part.target_leader is not None:
                self._produce_lane(part.target_leader).offer(part)
        for fetch_lane in self.fetch_lanes.values():
            fetch_lane.wake()

    def _fetch_lane(self, broker: BrokerId) -> FetchLane:
        if broker not in self.fetch_lanes:
            lane = FetchLane(
                broker,
                self._source.brokers,
                self._reading,
                account=self._account,
                rate=self._rate,
                clock=self._clock,
                rng=self._rng,
                handle=self._handle,
                lost=self.metadata_wanted.set,
            )
            lane.problem.report = self._reporter(self._settings.source.alias, broker)
            self.fetch_lanes[broker] = lane
            for account in self._accounts.values():
                account.lanes = len(self.fetch_lanes)
            self._start(lane.run(), f"fetch lane {broker}")
        return self.fetch_lanes[broker]

    def _produce_lane(self, broker: BrokerId) -> ProduceLane:
        if broker not in self.produce_lanes:
            request_ms = int(self._settings.target_request_timeout_s * 1000)
            lane = ProduceLane(
                broker,
                self._target.brokers,
                timeout_ms=max(request_ms // 2, request_ms - 5_000),
                covered_after_ms=lambda: self._clock.wall_ms() - self._producer_expiry_ms // 2,
                clock=self._clock,
                handle=self._handle,
                sent=self._offer_read,
            )
            lane.problem.report = self._reporter(self._settings.target.alias, broker)
            self.produce_lanes[broker] = lane
            self._start(lane.run(), f"produce lane {broker}")
        return self.produce_lanes[broker]

    def _account(self, target: BrokerId) -> MemoryAccount:
        if target not in self._accounts:
            self._accounts[target] = self._budget.open()
            self._accounts[target].lanes = len(self.fetch_lanes)
        return self._accounts[target]

    def _reporter(self, alias: str, broker: BrokerId) -> Callable[[str | None], None]:
        def report(problem: str | None) -> None:
            if problem is None:
                self._log.info("broker.back", cluster=alias, broker=broker)
            else:
                self._log.warning("broker.lost", cluster=alias, broker=broker, why=problem)

        return report

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._tasks is None:
            raise AssertionError("the task does not run")
        self._tasks.create_task(work, name=name)

    # Events and effects

    def _handle(self, part: CopiedPartition, event: Event) -> None:
        copier = part.copier
        for effect in copier.handle(event):
            self._carry_out(part, effect)
        phase = copier.phase
        if phase is Phase.COPYING:
            if copier.has_batches and part.target_leader is not None:
                self.produce_lanes[part.target_leader].offer(part)
            self._offer_read(part)
        elif phase is Phase.WAITING:
            if part not in self._waiting:
                self._waiting[part] = self._clock.monotonic()
            self._waiting_changed.set()
        elif phase is Phase.DRAINED:
            self._settled.set()

    def _offer_read(self, part: CopiedPartition) -> None:
        if part.source_leader is not None:
            self.fetch_lanes[part.source_leader].offer(part)

    def _carry_out(self, part: CopiedPartition, effect: Effect) -> None:
        match effect:
            case Report():
                write = self._log.error if effect.severe else self._log.warning
                way_out = self._ways_out(part).get(effect.event, {})
                if part.copier.phase is Phase.STALLED:
                    remedy = (
                        f"Restart with --allow-recopy {self._settings.flow}:{part.source_topic} to copy it once more."
                    )
                    way_out = {"remedy": remedy}
                write(effect.event, topic=part.source_topic, partition=part.partition, why=effect.text, **way_out)
            case Poison():
                self._once(("quarantine", part.copier.name), self._quarantine(part, effect))
            case GapFound():
                self._met_gap(part, effect)
            case Need.STORE_POSITION:
                self._positions.store_first(part)
            case Need.METADATA:
                self.metadata_wanted.set()
            case Need.OFFSETS:
                self._once(("offsets", part.copier.name), self._find_offsets(part))
            case Need.TARGET_END:
                self._ends.look(part)
            case Need.LIMITS:
                self._once(("limits", part.target_topic), self._find_limits(part))
            case Need.RECONCILE:
                self._reconciliation.lost_track(part)
            case Need.NEW_INCARNATION:
                self._once(("fenced", ""), self._end_incarnation())
            case Displaced():
                self._reconciliation.displaced(part, effect)

    def _ways_out(self, part: CopiedPartition) -> dict[str, dict[str, str]]:
        flow = self._settings.flow
        return {
            "source.denied": {"remedy": f"Grant READ on {part.source_topic} on {flow.source}; it is tried again."},
            "target.denied": {"remedy": f"Grant WRITE on {part.target_topic} on {flow.target}; it is tried again."},
        }

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
                if not (error.retriable or isinstance(error, BrokerRefused)):
                    raise
                self.metadata_wanted.set()  # the copier's pause ends and it asks again
            finally:
                self._busy.discard(what)

        self._start(run(), " ".join(what))

    async def _find_offsets(self, part: CopiedPartition) -> None:
        if part.source_leader is None:
            return
        where = [part.key]
        first = await admin.list_offsets(self._source.brokers, part.source_leader, where, admin.EARLIEST)
        last = await admin.list_offsets(self._source.brokers, part.source_leader, where, admin.LATEST)
        if not (first[part.key].error_code or last[part.key].error_code):
            now_s = self._clock.monotonic()
            self._handle(part, OffsetsFound(first[part.key].offset, last[part.key].offset, now_s))

    async def _find_limits(self, part: CopiedPartition) -> None:
        """Look up how large a batch the remote topic takes; a refusal of less counts more than what is said."""
        topic = part.target_topic
        limit = part.rules.max_message_bytes
        found = (await admin.describe_topic_configs(self._target.brokers, [topic], keys=["max.message.bytes"]))[topic]
        if not isinstance(found, BrokerRefused):
            limit = next((int(entry.value or limit) for entry in found if entry.name == "max.message.bytes"), limit)
        for other in self.partitions.values():
            if other.target_topic == topic:
                refused, other.copier.refused_bytes = other.copier.refused_bytes, 0
                allowed = min(limit, refused - 1) if refused else limit
                merged = min(other.rules.merged_max_bytes, refused // 2) if refused else other.rules.merged_max_bytes
                other.rules = replace(other.rules, max_message_bytes=allowed, merged_max_bytes=merged)

    async def _retry_blocked(self, part: CopiedPartition) -> None:
        await self._find_limits(part)
        self._handle(part, Tick(self._clock.monotonic()))

    async def _quarantine(self, part: CopiedPartition, poison: Poison) -> None:
        """Keep a record that the target refuses; one that was not sent, only if its settings are still the same."""
        if not poison.was_sent and self._looked_up.get(part) != poison.offset:
            self._looked_up[part] = poison.offset
            before = part.rules
            await self._find_limits(part)
            if part.rules != before:
                self._handle(part, Tick(part.copier.resume_at_s or self._clock.monotonic()))
                return
        if await self._keep(part, poison):
            self._handle(part, Quarantined(poison.offset, self._clock.monotonic()))

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
        """End each copier's pause when it is due; say once what keeps partitions waiting for long."""
        while True:
            now_s = self._clock.monotonic()
            for part in list(self._waiting):
                if part.copier.is_blocked and (part.copier.resume_at_s or now_s) <= now_s:
                    self._once(("limits", part.target_topic), self._retry_blocked(part))
                    continue
                self._handle(part, Tick(now_s))
                if part.copier.phase is not Phase.WAITING and not part.copier.is_failing:
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
            self.report_waits()
            self._positions.look()
            self._stalls.look(self.partitions.values(), self._clock.monotonic(), self._circumstances)
            self._report_repacking()

    def _circumstances(self, part: CopiedPartition) -> Circumstances:
        account = None if part.target_leader is None else self._accounts.get(part.target_leader)
        return circumstances_of(
            part,
            fetch_lanes=self.fetch_lanes,
            produce_lanes=self.produce_lanes,
            throttled_s=self._rate.wait_s(self._clock.monotonic()),
            memory_is_full=account is not None and account.is_waited_for,
        )

    def _report_repacking(self) -> None:
        """Log once for every topic that its batches are repacked, and why; many topics make one line.

        So too when the target refused one that was made of several: those before it are sent one by one from then on.
        """
        for part in self.partitions.values():
            if part.merging is PASS_REFUSED and part.source_topic not in self._said_parted:
                self._said_parted.add(part.source_topic)
                self._log.warning(
                    "topic.parted", topic=part.source_topic, partition=part.partition, why=part.merging.why
                )
        fresh: dict[str, set[str]] = {}
        for part in self.partitions.values():
            if part.copier.tally.rebuilt["repack"] and part.source_topic not in self._said_repacked:
                fresh.setdefault(part.merging.why, set()).add(part.source_topic)
        for why, topics in fresh.items():
            self._said_repacked |= topics
            self._log.info("topics.repacked", topics=len(topics), first=min(topics), why=why)

    def report_waits(self) -> None:
        """Log, one line a topic and reason, what has kept partitions waiting for a while, and what no longer does."""
        now_s = self._clock.monotonic()
        waits: dict[tuple[str, str], int] = {}
        for part in self.partitions.values():
            held_up = part.lacks_leader or part.copier.phase is Phase.RECONCILING or part.copier.target_is_in_doubt
            since_s = self._held_up.setdefault(part, now_s) if held_up else self._waiting.get(part)
            if not held_up:
                self._held_up.pop(part, None)
            if since_s is not None and now_s - since_s >= WAITING_REPORT_S:
                looked_at = part.copier.target_is_in_doubt and part.copier.phase is Phase.COPYING
                reason = LOOKED_AT if looked_at else part.copier.kind_of_reason
                at = (part.source_topic, part.lacks_leader or reason)
                waits[at] = waits.get(at, 0) + 1
        for topic, reason in waits.keys() - self._reported_waits.keys():
            self._log.warning("partitions.waiting", topic=topic, partitions=waits[topic, reason], why=reason)
        over = {topic for topic, _ in self._reported_waits.keys() - waits.keys()} - {topic for topic, _ in waits}
        for topic in sorted(over):
            self._log.info("partitions.copying", topic=topic)
        self._reported_waits = waits
        if not self._reading.read_committed:
            seen = {part.source_topic for part in self.partitions.values() if part.transactional_seen}
            for topic in sorted(seen - self._warned_transactional):
                self._log.warning(
                    "topic.transactional",
                    topic=topic,
                    effect="records of aborted transactions are copied as ordinary ones",
                    remedy=f"Set {self._settings.source.alias}.consumer.isolation.level=read_committed if unwanted.",
                )
            self._warned_transactional |= seen

    async def _drain(self, leaving: list[CopiedPartition]) -> int:
        """Settle partitions and store where they stand. Returns how many the target left without an answer."""
        for part in leaving:
            self._handle(part, Drain())
        try:
            async with asyncio.timeout(DRAIN_S):
                while any(part.copier.phase is not Phase.DRAINED for part in leaving):
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            pass
        self.leaves_doubt |= any(part.copier.is_unsettled for part in leaving)
        await self._positions.store_changed()
        return sum(part.copier.phase is not Phase.DRAINED for part in leaving)
