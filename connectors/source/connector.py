"""The source connector of a flow: one life of it, from its preparation to its drain, and the watch over both clusters.

Answers to MirrorSourceConnector of Apache Kafka's Connect, mirror. One metadata request every
``topics.watch.interval.ms`` shows new topics, new partitions and moved leaders; nothing else is asked while nothing
changes. What follows from it for the topics is decided in ``discovery.py``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from connectors.source.assignment import HandedDown, HandOver, Loads
from connectors.source.copying.lanes import Stalls
from connectors.source.copying.quarantine import Quarantine
from connectors.source.copying.reports import topic_status
from connectors.source.copying.task import Cluster, SourceTask
from connectors.source.discovery.discovery import Discovery, look_again_s
from connectors.source.discovery.starting_offsets import Beginning
from connectors.source.gap_keeper import GapKeeper, Resumption
from connectors.source.recovery.preparation import Preparation, Prepared
from connectors.source.recovery.previous_producers import KeepAlive, PreviousProducers
from connectors.source.recovery.reconciliation import StoppedPartitions
from connectors.source.refusals import RefusedConfigs, RefusedTopics
from connectors.source.schedules import Schedules
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connector import FlowStatus, Side
from mm2py.group.ownership import Ownership
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.metrics import Metrics
from mm2py.records.status_record import GapKind
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.position import PositionBudget
from mm2py.replication.position_store import PositionStore
from mm2py.replication.reading.limits import MemoryBudget
from mm2py.settings.flow_config import Part

LEADERLESS_AGAIN_S: Final = 1.0
"""How soon the next round comes while a partition that is copied has no leader, on either side."""
FAILING_REPORT_S: Final = 60.0
SHOWN_MOST: Final = 3
"""So many topics stand in a guarantee."""


class _Parts(NamedTuple):
    """What works for a flow once it has been prepared."""

    task: SourceTask
    beginning: Beginning
    handed_down: HandedDown
    discovery: Discovery
    schedules: Schedules
    quarantine: Quarantine


class SourceConnector:
    """One flow's source connector together with its one task."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Side,
        target: Side,
        *,
        name: TransactionalId,
        ended: Collection[int] = (),
        ownership: Ownership,
        allow_recopy: set[str],
        budget: MemoryBudget,
        position_budget: PositionBudget,
        metrics: Metrics,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._flow = settings.flow
        self._source = source
        self._target = target
        self._ownership = ownership
        self._refused_configs = RefusedConfigs(target.alias, clock=clock, log=log)
        self._allow_recopy = frozenset(allow_recopy)
        self._budget = budget
        self._position_budget = position_budget
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._log = log
        self._incarnation = Incarnation(
            target.brokers,
            name.at,
            clock=clock,
            rng=rng,
            report=lambda text: log.warning("producer.degraded", why=text),
            waiting=lambda text: log.warning("flow.waiting", doing="getting a producer id", why=text),
        )
        self._gaps = GapKeeper(
            settings,
            target.brokers,
            incarnation=self._incarnation,
            metrics=metrics,
            clock=clock,
            rng=rng,
            log=log,
        )
        self._incarnation.announce = ownership.announce
        self._gaps.speaks_for = ownership.speaks_for
        self._settling = asyncio.Lock()
        """Held while partitions begin, are let go, or go on behind a gap: one thing at a time."""
        self._gained = asyncio.Event()
        """Since the last round partitions have become ours, others are to be copied, or there is another head: all is
        looked at, also what was refused not long ago."""
        self._resumption = Resumption(settings.flow, self._gaps, log)
        self._name = name
        self._ended = ended
        self._keep_alive = KeepAlive(
            target.brokers,
            self._incarnation,
            replication_factor=settings.offsets_topic_replication_factor,
            log=log,
        )
        self._previous: PreviousProducers | None = None
        self._task: SourceTask | None = None
        self._parts: _Parts | None = None
        self._refused = RefusedTopics(log)
        self._remotes_again_at_s = 0.0
        self._stopped = StoppedPartitions(self._incarnation, target.brokers, clock=clock, rng=rng)
        self._state = "starting"
        self._reason = ""
        self._say_failing_at_s = 0.0
        self._draining = self._drained = False

    # Life

    async def run(self) -> None:
        """Copy the flow until cancelled.

        Raises:
            FlowRefused: the flow must not run; the error names the way out.
            Fenced, BrokerRefused and other Mm2Errors: it cannot go on as it is, but may when begun anew.
        """
        prepared = await self._preparation().run()
        parts = self._parts = self._assemble(prepared)
        task, beginning, handed_down, discovery, schedules, _ = parts
        self._task = task
        hand_over = HandOver(
            self._flow,
            task,
            ownership=self._ownership,
            handed_down=handed_down,
            stopped=self._stopped,
            gaps=self._gaps,
            settling=self._settling,
            gained=lambda: self._look_at_gained(task),
            clock=self._clock,
            log=self._log,
        )
        self._state, self._reason = "running", ""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(task.run(), name=f"{self._flow} source task")
                tasks.create_task(self._watch(task, beginning, discovery, prepared), name=f"{self._flow} watch")
                tasks.create_task(hand_over.run(), name=f"{self._flow} hand-over")
                tasks.create_task(schedules.run(), name=f"{self._flow} syncs")
                loads = Loads(task.partitions, self._ownership, self._clock)
                tasks.create_task(loads.run(), name=f"{self._flow} loads")
                tasks.create_task(self._gaps.run(), name=f"{self._flow} gaps")
                tasks.create_task(self._keep_alive.run(), name=f"{self._flow} keepalive")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._state = "stopped"

    async def drain(self) -> None:
        """Settle what is on its way and store final positions; nothing new is begun meanwhile."""
        self._draining = True
        if self._task is not None:
            await self._task.drain()
            self._drained = True
            await self._gaps.close()

    def change(self, settings: FlowSettings, parts: Collection[Part]) -> None:
        """Take other settings up while copying goes on; ``parts``, in-place ones all, are those that they concern."""
        self._settings = settings
        self._gaps.change(settings)
        self._keep_alive.replication_factor = settings.offsets_topic_replication_factor
        if self._parts is None:
            return  # it is being prepared, and begins by these
        self._parts.task.change(settings)
        self._parts.beginning.change(settings)
        self._parts.discovery.change(settings)
        self._parts.schedules.change(settings, parts)
        self._parts.quarantine.change(settings)
        if Part.GAPS in parts:
            self._gaps.tell_policy(self._parts.task.partitions.values())
        if Part.TOPICS in parts:
            self._gained.set()
            self._parts.task.metadata_wanted.set()

    @property
    def leaves_doubt(self) -> bool:
        """See ``Connector``: an attempt without a task has written nothing."""
        return self._task is not None and (self._task.leaves_doubt or not self._drained)

    @property
    def producer_ids(self) -> frozenset[int]:
        """All producer ids that this attempt has had."""
        return self._incarnation.ids

    def _preparation(self) -> Preparation:
        return Preparation(
            self._settings,
            self._source,
            self._target,
            name=self._name,
            ended=self._ended,
            ownership=self._ownership,
            incarnation=self._incarnation,
            gaps=self._gaps,
            note=self._note_waiting,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )

    def _assemble(self, prepared: Prepared) -> _Parts:
        settings, target = self._settings, self._target.brokers
        self._previous = prepared.previous
        writer = TopicWriter(
            target,
            settings.offsets_topic,
            self._incarnation,
            rng=self._rng,
            timeout_ms=int(settings.target_request_timeout_s * 500),
        )
        store = PositionStore(settings.source.alias, prepared.offsets_partitions, writer, self._clock)
        self._log.info(
            "flow.ready",
            source_cluster=prepared.source_id,
            target_cluster=prepared.target_id,
            positions=len(prepared.positions),
            producer_id=prepared.identity.producer_id,
            guarantee=self._guarantee(),
        )
        self._say_topic_ids()
        quarantine = Quarantine(
            settings,
            self._source.brokers,
            target,
            source_id=prepared.source_id,
            incarnation=self._incarnation,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )
        task = SourceTask(
            settings,
            Cluster(prepared.source_id, self._source.brokers),
            Cluster(prepared.target_id, target),
            incarnation=self._incarnation,
            previous=prepared.previous,
            store=store,
            keep=quarantine.keep,
            budget=self._budget,
            position_budget=self._position_budget,
            producer_expiry_ms=self._ownership.producer_expiry_ms,
            met_gap=self._gaps.met,
            gaps_written=self._gaps.written,
            stalls=Stalls(self._flow, settings.stall_timeout_s, self._metrics, self._log),
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )
        beginning = Beginning(
            settings,
            self._source.brokers,
            target,
            source_id=prepared.source_id,
            positions=prepared.positions,
            store=task.positions.store,
            previous=prepared.previous,
            stopped=self._stopped,
            ownership=self._ownership,
            fence_and_prove=prepared.fence_and_prove,
            allow_recopy=self._allow_recopy,
            met_gap=self._gaps.met_topic,
            log=self._log,
        )
        handed_down = HandedDown(settings, target, beginning=beginning, gaps=self._gaps, previous=prepared.previous)
        discovery = Discovery(
            settings,
            self._source.brokers,
            target,
            source_id=prepared.source_id,
            task=task,
            beginning=beginning,
            gaps=self._gaps,
            stopped=self._stopped,
            ownership=self._ownership,
            handed_down=handed_down,
            settling=self._settling,
            refused=self._refused,
            refused_configs=self._refused_configs,
            allow_recopy=self._allow_recopy,
            clock=self._clock,
            log=self._log,
        )
        schedules = Schedules(
            settings,
            self._source.brokers,
            target,
            task=task,
            beginning=beginning,
            ownership=self._ownership,
            refused=self._refused_configs,
            begun=discovery.made,
            clock=self._clock,
            log=self._log,
        )
        self._gaps.wake = task.metadata_wanted.set
        return _Parts(task, beginning, handed_down, discovery, schedules, quarantine)

    def _guarantee(self) -> str:
        """Say in words how often a record is there after crashes, and why not once, if so."""
        if self._settings.many_to_one:
            return "at-least-once, several flows in one topic"
        task = self._task
        unfenced = task.unfenced if task is not None else None
        of_positions = self._previous.unfenced if self._previous is not None else None
        unfenced = of_positions or self._ownership.fates.unfenced or unfenced
        reasons = [why for why in (self._incarnation.degraded, unfenced) if why]
        if reasons:
            return f"at-least-once ({'; '.join(reasons)})"
        repeated, others = (task.repeated_topics, task.foreign_topics) if task is not None else ((), ())
        if repeated:
            return f"at-least-once (records of {_some(repeated)} may be there twice)"
        return f"exactly-once (others write to {_some(others)} as well)" if others else "exactly-once"

    # Watching

    async def _watch(self, task: SourceTask, beginning: Beginning, discovery: Discovery, prepared: Prepared) -> None:
        backoff = Backoff(self._rng, first_s=0.2, most_s=5.0)
        discovering = True
        was_head = False
        while True:
            settings = self._settings
            pause_s = settings.topics_watch_interval_s if settings.refresh_topics_interval_s is not None else None
            interval_s = pause_s
            try:
                if was_head is not self._ownership.is_coordinator:
                    self._gained.set()
                    if not was_head:
                        await prepared.fence_unknown()
                    was_head = not was_head
                if self._gained.is_set():
                    discovering = True
                    discovery.look_again()
                self._gained.clear()
                asked = task.metadata_wanted.is_set()
                task.metadata_wanted.clear()
                metadata = await fetch_metadata(self._source.brokers, None, channel="watch")
                task.learn_source(metadata)
                if await self._look_at_remotes(task, discovery, asked=asked):
                    discovering = True
                if discovering and not self._draining:
                    missing = await discovery.look(metadata)
                    discovering = interval_s is not None or missing > 0
                    pause_s = discovery.pause_after(missing, interval_s)
                if not self._draining and await self._resume_stopped(task, beginning):
                    discovery.look_again()
                    discovering = True
                    task.metadata_wanted.set()
                backoff.reset()
                self._state, self._reason = "running", ""
            except KafkaError as error:
                if not error.worth_asking_again:
                    raise
                task.metadata_wanted.set()
                self._note_waiting(str(error))
                pause_s = backoff.next_s()
                if backoff.attempts >= 4 and self._clock.monotonic() >= self._say_failing_at_s:
                    self._say_failing_at_s = self._clock.monotonic() + FAILING_REPORT_S
                    self._log.warning("watch.failing", why=str(error))
                await asyncio.sleep(pause_s)
            leaderless = any(None in {part.source_leader, part.target_leader} for part in task.partitions.values())
            if leaderless or self._resumption.is_waiting:
                pause_s = min(LEADERLESS_AGAIN_S, pause_s or LEADERLESS_AGAIN_S)  # no error will ask for metadata
            await self._wait_for_news(task, pause_s)

    async def _resume_stopped(self, task: SourceTask, beginning: Beginning) -> bool:
        async with self._settling:
            return await self._resumption.carry_out(task, beginning, self._stopped)

    def _look_at_gained(self, task: SourceTask) -> None:
        self._gained.set()
        task.metadata_wanted.set()

    async def _wait_for_news(self, task: SourceTask, pause_s: float | None) -> None:
        """Until the next round is due, or a copier asks for fresh metadata: of those never two within a tenth of a
        second. Partitions that are ours now begin at once.
        """
        try:
            async with asyncio.timeout(0.1):
                await self._gained.wait()
                return
        except TimeoutError:
            pass
        try:
            async with asyncio.timeout(None if pause_s is None else max(0.0, pause_s - 0.1)):
                await task.metadata_wanted.wait()
        except TimeoutError:
            pass

    async def _look_at_remotes(self, task: SourceTask, discovery: Discovery, *, asked: bool) -> bool:
        """Learn who leads the remote partitions; stop copying into remote topics that were deleted under us.

        Returns whether there were any: policy may want them copied anew.
        """
        now_s = self._clock.monotonic()
        leaderless = any(part.target_leader is None for part in task.partitions.values())
        if not task.partitions or not (asked or leaderless or now_s >= self._remotes_again_at_s):
            return False
        self._remotes_again_at_s = now_s + look_again_s(self._settings)
        names = sorted({part.target_topic for part in task.partitions.values()})
        metadata = await fetch_metadata(self._target.brokers, names, channel="watch")
        task.learn_target(metadata)
        lost: dict[str, str] = {}
        for part in task.partitions.values():
            topic = metadata.topics.get(part.target_topic)
            if topic is not None and topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                lost[part.source_topic] = f"{part.target_topic} on {self._flow.target} was deleted"
            elif topic is not None and topic.error_code == 0 and part.target_topic_id not in {None, topic.topic_id}:
                lost[part.source_topic] = f"{part.target_topic} on {self._flow.target} was deleted and made anew"
        for name, why in lost.items():
            await discovery.end(GapKind.TARGET_DELETED, name, why)
        return bool(lost)

    # Saying so

    def _note_waiting(self, reason: str) -> None:
        self._state, self._reason = "waiting", reason

    def _say_topic_ids(self) -> None:
        for side in (self._source, self._target):
            if side.reads_topic_ids() is False:
                self._log.warning(
                    "cluster.no_topic_ids",
                    cluster=side.alias,
                    effect="a topic that is deleted and made again is recognised by epochs and offsets only",
                )

    def status(self) -> FlowStatus:
        """Return what an operator would ask for first; cheap enough for every second."""
        by_topic: dict[str, list[CopiedPartition]] = {}
        if self._task is not None:
            for part in self._task.partitions.values():
                by_topic.setdefault(part.source_topic, []).append(part)
        now_ms = self._clock.wall_ms()
        topics = tuple(topic_status(name, parts, now_ms) for name, parts in sorted(by_topic.items()))
        return FlowStatus(
            self._flow,
            self._state,
            self._reason,
            self._guarantee(),
            topics,
            self._refused.shown(),
            positions_age_s=0.0 if self._task is None else self._task.positions.age_s(),
            positions_problem="" if self._task is None else self._task.positions.problem,
        )


def _some(topics: Collection[str]) -> str:
    first = sorted(topics)[:SHOWN_MOST]
    return ", ".join(first) + (f" and {len(topics) - SHOWN_MOST} more" if len(topics) > SHOWN_MOST else "")
