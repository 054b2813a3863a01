"""The source connector of a flow: one attempt, from its preparation to its drain, and the watch over both clusters.

One metadata request every ``topics.watch.interval.ms`` shows new topics, new partitions and moved leaders. While
nothing changes, the watch sends no other request. ``discovery/`` decides what to do about the topics.

Counterpart: MirrorSourceConnector of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from mm2py.config.flow_part import FlowPart
from mm2py.config.settings import FlowSettings
from mm2py.connector import FlowStatus
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.positions import PositionStore
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.cluster import WAITING_REPORT_S, fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import TopicPartition
from mm2py.metrics.worker_numbers import DEPARTED, ConnectorPart, FlowSnapshot, in_parts
from mm2py.records.backfill_record import Holds
from mm2py.records.gap_record import GapKind
from mm2py.records.pause_record import Pauses
from mm2py.records.safe_point import SafePoint
from mm2py.records.standstill import Cause
from mm2py.status.not_copied import Reason, source_remedy
from mm2py.topics.names import ledger_topic
from mm2py_connectors.source.assigned_partitions import AssignedPositions, LoadMeter, Releases
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.discovery.discovery import Discovery, look_again_s
from mm2py_connectors.source.discovery.starting_offsets import StartingOffsets
from mm2py_connectors.source.flight_recorder import FlightRecorder
from mm2py_connectors.source.gap_keeper import GapKeeper, Resumption
from mm2py_connectors.source.recovery.preparation import Preparation, Prepared
from mm2py_connectors.source.recovery.previous_producers import KeepAlive, PreviousProducers
from mm2py_connectors.source.recovery.reconciliation import RestartState
from mm2py_connectors.source.stored_gaps import StoredGaps
from mm2py_connectors.source.task.ledger_keeper import LedgerKeeper
from mm2py_connectors.source.task.measures import partition_parts
from mm2py_connectors.source.task.reports import topic_status
from mm2py_connectors.source.task.safe_times import safe_point
from mm2py_connectors.source.task.source_task import SourceTask
from mm2py_connectors.source.topic_sync import Schedules

LEADERLESS_AGAIN_S: Final = 1.0
"""How soon the next round comes while a copied partition has no leader, on either side."""
FAILING_REPORT_S: Final = 60.0
RUNS_WELL_S: Final = 5.0
"""An attempt that has run for this long counts as started, even if it fails later."""
SHOWN_MOST: Final = 3
"""How many topics the guarantee names."""


class _Parts(NamedTuple):
    """What a prepared flow runs."""

    task: SourceTask
    resumption: Resumption
    discovery: Discovery
    releases: Releases
    schedules: Schedules


class SourceConnector:
    """One flow's source connector together with its one task."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._state = context.state
        self._flow = context.flow
        self._ownership = context.ownership
        self._clock = context.clock
        self._log = context.log
        self._stored_gaps = StoredGaps(context)
        self._gaps = GapKeeper(context, self._stored_gaps)
        self._recorder = FlightRecorder(context)
        self._gained = asyncio.Event()
        """Set when partitions were assigned, other topics are selected, or the flow coordinator has changed. The next
        round then looks at all topics, also at those that were refused a moment ago."""
        self._discovers = True
        """The next round also looks for topics and partitions to start."""
        self._was_coordinator = False
        self._backfills_ended = self._backfills_fenced = 0
        """How many backfills have ended; the flow coordinator fences their producers in the next round."""
        self._restart_state = RestartState(context)
        self._previous: PreviousProducers | None = None
        self.task: SourceTask | None = None
        """None while the flow is prepared."""
        self._parts: _Parts | None = None
        self._remotes_again_at_s = 0.0
        self._say_failing_at_s = 0.0
        self._draining = self._drained = False
        self._waiting_since: tuple[float, int] | None = None
        """Since when the whole flow waits, by both clocks."""
        self._missing: list[TopicPartition] = []
        """Partitions that this worker owns and does not copy."""
        self._missing_at: tuple[int, int] | None = None
        """When that was true: ``moved_at`` of the group, and ``changes`` of the task."""
        self._missing_since: dict[str, tuple[float, int]] = {}
        """Since when topics of this worker are not copied for no reason that is stored, by both clocks."""
        self._safe: SafePoint | None = None

    async def run(self) -> None:
        """Copy the flow until cancelled.

        Raises:
            FlowRefused, Mm2IsRunning: the flow must not run; the error names the way out.
            IncarnationFenced, BrokerRefused and other Mm2Errors: this attempt is over; another one may succeed.
        """
        prepared = await Preparation(self._context, self._stored_gaps).run()
        parts = self._parts = self._assemble(prepared)
        self.task = parts.task
        loads = LoadMeter(parts.task.partitions, self._ownership, self._clock)
        self._state.run()
        try:
            async with FirstErrorGroup() as tasks:
                tasks.create_task(parts.task.run(), name=f"{self._flow} source task")
                tasks.create_task(self._tell_started(), name=f"{self._flow} runs well")
                tasks.create_task(self._watch(parts, prepared), name=f"{self._flow} watch")
                tasks.create_task(parts.releases.run(), name=f"{self._flow} releases")
                tasks.create_task(parts.schedules.run(), name=f"{self._flow} syncs")
                tasks.create_task(loads.run(), name=f"{self._flow} loads")
                tasks.create_task(self._stored_gaps.run(lambda: bool(self._gaps.wishes)), name=f"{self._flow} gaps")
                tasks.create_task(KeepAlive(self._context).run(), name=f"{self._flow} keepalive")
                tasks.create_task(self._recorder.run(), name=f"{self._flow} flight recorder")
        finally:
            self._state.name = "stopped"
            self._safe = None  # the group keeps what it was told last: that stays true

    async def drain(self) -> None:
        """Wait for the batches in flight and store final positions; nothing new starts meanwhile."""
        self._draining = True
        if self.task is not None:
            await self.task.drain()
            self._drained = True
            await self._stored_gaps.close()

    def change(self, settings: FlowSettings, parts: Collection[FlowPart]) -> None:
        """Use other settings without a pause in copying. They concern ``parts``, which can all change in place."""
        self._state.settings = settings
        if self._parts is None:
            return  # it is being prepared
        self._parts.task.change()
        self._parts.discovery.look_again()
        self._parts.schedules.change(parts)
        if FlowPart.TOPICS in parts:
            self._look_at_gained()

    def restart(self, topic: str, partition: int | None) -> None:
        """Read a partition of a topic (None: all that are copied here) again from its position, and forget what was not
        acknowledged. A refused topic is checked again."""
        if self._parts is not None:
            self._parts.task.restart(topic, partition)
            self._parts.discovery.look_again()
            self._look_at_gained()

    def hold(self, holds: Holds) -> None:
        """Leave topics to backfills, and copy the topics of backfills that have ended.

        The story: an operator abandons a backfill whose driver has died, and one of its tasks still runs. A position
        that this task has in flight must not replace the next owner's position. So its producers are fenced before the
        topic is listed.
        """
        self._backfills_ended += len(self._state.holds.ids - holds.ids)
        self._state.holds = holds
        self._state.holds_changed += 1
        if self._parts is not None:
            self._parts.discovery.look_again()
            self._look_at_gained()

    def pause(self, pauses: Pauses) -> None:
        """Stop reading what operators have paused, and continue what is paused no more."""
        self._state.pauses = pauses
        if self._parts is not None:
            self._parts.task.heed_pauses()

    @property
    def leaves_outcome_unknown(self) -> bool:
        """See ``Connector``: an attempt without a task has written nothing."""
        return self.task is not None and (bool(self.task.unsettled) or not self._drained)

    @property
    def producer_ids(self) -> frozenset[int]:
        """All producer ids that this attempt has had."""
        return self._context.incarnation.ids

    def _assemble(self, prepared: Prepared) -> _Parts:
        context, settings, gaps = self._context, self._context.settings, self._gaps
        self._previous = prepared.previous
        writer = TopicWriter(
            context.target.brokers,
            settings.offsets_topic,
            context.incarnation,
            rng=context.rng,
            timeout_ms=int(settings.target_request_timeout_s * 500),
        )
        store = PositionStore(self._flow.source, prepared.offsets_partitions, writer, self._clock)
        ledger_writer = TopicWriter(
            context.target.brokers,
            ledger_topic(self._flow.source),
            context.incarnation,
            rng=context.rng,
            timeout_ms=int(settings.target_request_timeout_s * 500),
            waits_for_topic=False,
        )
        ledger = LedgerKeeper(context, prepared.ledger_partitions, ledger_writer, prepared.make_ledger)
        self._log.info(
            "flow.ready",
            source_cluster=prepared.source_id,
            target_cluster=prepared.target_id,
            positions=len(prepared.positions),
            producer_id=prepared.identity.producer_id,
            guarantee=self._guarantee(is_prepared=True),
        )
        self._say_topic_ids()
        task = SourceTask(
            context,
            prepared,
            store,
            ledger,
            met_gap=gaps.met,
            gaps_written=self._stored_gaps.written,
            looked=self._show_standstills,
        )
        starting_offsets = StartingOffsets(
            context, prepared, self._restart_state, shell=task, store=task.positions.store, met_gap=gaps.met_topic
        )
        assigned_positions = AssignedPositions(context, starting_offsets, gaps, prepared.previous)
        discovery = Discovery(
            context,
            prepared.source_id,
            prepared.target_id,
            task,
            starting_offsets,
            gaps=gaps,
            restart_state=self._restart_state,
            assigned_positions=assigned_positions,
        )
        releases = Releases(
            context,
            task,
            assigned_positions=assigned_positions,
            restart_state=self._restart_state,
            gaps=gaps,
            gained=self._look_at_gained,
        )
        schedules = Schedules(context, task, starting_offsets, discovery)
        resumption = Resumption(context, gaps, task, starting_offsets, self._restart_state)
        return _Parts(task, resumption, discovery, releases, schedules)

    def _show_standstills(self) -> None:
        """Store what is not copied, and why, where status and REST read it."""
        if self._parts is not None and not self._draining and not self._context.ranges:  # a backfill is not a member
            now_s = self._clock.monotonic()
            causes = self._parts.task.standstills.causes(now_s)
            for topic, cause in self._parts.discovery.causes():
                causes.setdefault(topic, []).insert(0, cause)
            self._say_safe(self._parts)
            if (waiting := self._why_waiting(now_s)) is not None:
                causes.setdefault("", []).insert(0, waiting)
            self._stored_gaps.show(causes)
            self._recorder.show({**causes, **dict(self._not_started(self._parts, causes, now_s))})

    def _not_started(
        self, parts: _Parts, causes: Mapping[str, Sequence[Cause]], now_s: float
    ) -> Iterator[tuple[str, Sequence[Cause]]]:
        """Yield topics that this worker has and does not copy, without a reason in ``causes``, after a few seconds.

        Status and ``mm2py why`` see at the clusters why; of a moment that is over only the flight recorder tells it.
        """
        now_ms = self._clock.wall_ms()
        names = {*(name for name, _ in self._missing), *parts.discovery.held_topics} - causes.keys()
        self._missing_since = {name: self._missing_since.get(name, (now_s, now_ms)) for name in names}
        for name, (since_s, since_ms) in self._missing_since.items():
            if now_s - since_s >= RUNS_WELL_S:
                found = parts.discovery.why_not_started(name)
                yield name, (Cause(found.reason, found.why, found.remedy, since_ms),)

    def _say_safe(self, parts: _Parts) -> None:
        """Tell the group up to when this worker's partitions are copied, see ``mm2py/copying/safe_time.py``.

        What is paused, or waits for an operator or for a backfill, does not count: the status names it.
        """
        task, seen = parts.task, self._ownership.version
        now = seen[1], task.changes
        if now != self._missing_at:
            self._missing_at = now
            self._missing = [key for key in self._ownership.mine() if key not in task.partitions]
        not_counted = [key for key in self._missing if parts.discovery.leaves_out(key[0])]
        starting = next((key for key in self._missing if not parts.discovery.leaves_out(key[0])), None)
        counted = [part for part in task.partitions.values() if not task.standstills.waits_for_operator(part)]
        left_out = len(not_counted) + len(task.partitions) - len(counted)
        self._safe = safe_point(counted, starting, left_out, seen[0])
        self._ownership.is_safe_to(self._safe)

    def _why_waiting(self, now_s: float) -> Cause | None:
        """Return why the whole flow waits; None if it does not, or not for long, or if another worker coordinates."""
        if self._state.name != "waiting" or not self._ownership.is_coordinator:
            self._waiting_since = None
            return None
        since_s, since_ms = self._waiting_since = self._waiting_since or self._last_answer(now_s)
        if now_s - since_s < WAITING_REPORT_S:
            return None
        return Cause(Reason.SOURCE_SILENT, self._state.reason, source_remedy(self._flow), since_ms)

    def _last_answer(self, now_s: float) -> tuple[float, int]:
        """Return when the source last answered a read, by both clocks: a request waits long before it fails."""
        reads_s = [] if self.task is None else [part.reading.answered_at_s for part in self.task.partitions.values()]
        at_s = max(filter(math.isfinite, reads_s), default=now_s)
        return at_s, self._clock.wall_ms() - round((now_s - at_s) * 1000)

    def _guarantee(self, *, is_prepared: bool = False) -> str:
        """Return in words how often a record may be in the copy after crashes, and the reason if it is not exactly
        once. Empty while a flow waits to start: the answer is known only when the flow is prepared."""
        if self._ownership.not_started is not None and self.task is None and not is_prepared:
            return ""
        if self._context.settings.many_to_one:
            return "at-least-once, several flows in one topic"
        unfenced = (self._previous is not None and self._previous.unfenced) or self._ownership.known_producers.unfenced
        reasons = [why for why in (self._context.incarnation.degraded, unfenced) if why]
        if reasons:
            return f"at-least-once ({'; '.join(reasons)})"
        found = None if self.task is None else self.task.reconciliation
        if found is not None and found.repeated:
            return f"at-least-once (records of {_some(found.repeated)} may be there twice)"
        if found is not None and found.foreign:
            return f"exactly-once (others write to {_some(found.foreign)} as well)"
        return "exactly-once"

    async def _tell_started(self) -> None:
        """Tell the group that the flow runs. An attempt that fails within ``RUNS_WELL_S`` does not get here."""
        await asyncio.sleep(RUNS_WELL_S)
        self._ownership.started()

    # Watching

    async def _watch(self, parts: _Parts, prepared: Prepared) -> None:
        """Look at both clusters, round after round. A round that fails is repeated, after growing pauses."""
        backoff = Backoff(self._context.rng, first_s=0.2, most_s=5.0)
        while True:
            try:
                pause_s = await self._look(parts, prepared)
                backoff.reset()
                self._state.run()
            except KafkaError as error:
                if not error.may_be_mended:
                    raise
                self._state.metadata_wanted.set()
                self._state.show_waiting(str(error))
                pause_s = backoff.next_s()
                if backoff.attempts >= 4 and self._clock.monotonic() >= self._say_failing_at_s:
                    self._say_failing_at_s = self._clock.monotonic() + FAILING_REPORT_S
                    self._log.warning("watch.failing", why=str(error))
                await asyncio.sleep(pause_s)
            partitions = parts.task.partitions.values()
            leaderless = any(None in {part.leaders.source, part.leaders.target} for part in partitions)
            if leaderless or parts.resumption.is_waiting:
                pause_s = min(LEADERLESS_AGAIN_S, pause_s or LEADERLESS_AGAIN_S)  # no error will ask for metadata
            await self._wait_for_news(pause_s)

    async def _look(self, parts: _Parts, prepared: Prepared) -> float | None:
        """Make one round. Returns the pause before the next round in seconds; None: the next round waits for news."""
        task, discovery, settings = parts.task, parts.discovery, self._context.settings
        interval_s = settings.topics_watch_interval_s if settings.refresh_topics_interval_s is not None else None
        pause_s = interval_s
        if self._was_coordinator is not self._ownership.is_coordinator:
            self._gained.set()
            if not self._was_coordinator:
                await prepared.fence_unknown()
            self._was_coordinator = not self._was_coordinator
        elif (ended := self._backfills_ended) != self._backfills_fenced:
            if self._was_coordinator:
                await prepared.fence_unknown()
            self._backfills_fenced = ended
        if self._gained.is_set():
            self._discovers = True
            discovery.look_again()
        self._gained.clear()
        asked = self._state.metadata_wanted.is_set()
        self._state.metadata_wanted.clear()
        metadata = await fetch_metadata(self._context.source.brokers, None, channel="watch")
        task.learn_source(metadata)
        if await self._look_at_remotes(task, discovery, asked=asked):
            self._discovers = True
        if self._discovers and not self._draining:
            missing = await discovery.look(metadata)
            self._discovers = interval_s is not None or missing > 0
            pause_s = discovery.pause_after(missing, interval_s)
        if not self._draining and await parts.resumption.carry_out():
            discovery.look_again()
            self._discovers = True
            self._state.metadata_wanted.set()
        return pause_s

    def _look_at_gained(self) -> None:
        self._gained.set()
        self._state.metadata_wanted.set()

    async def _wait_for_news(self, pause_s: float | None) -> None:
        """Wait until the next round is due, a part asks for fresh metadata, or partitions are assigned.

        Requests for metadata start at most ten rounds a second; assigned partitions start at once.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self._gained.wait()
                return
        with suppress(TimeoutError):
            async with asyncio.timeout(None if pause_s is None else max(0.0, pause_s - 0.1)):
                await self._state.metadata_wanted.wait()

    async def _look_at_remotes(self, task: SourceTask, discovery: Discovery, *, asked: bool) -> bool:
        """Learn the leaders of the remote partitions; stop copying into remote topics that were deleted meanwhile.

        Returns whether any was deleted: policy may copy such a topic again from its start.
        """
        now_s = self._clock.monotonic()
        leaderless = any(part.leaders.target is None for part in task.partitions.values())
        if not task.partitions or not (asked or leaderless or now_s >= self._remotes_again_at_s):
            return False
        self._remotes_again_at_s = now_s + look_again_s(self._context.settings)
        names = sorted({part.target_topic for part in task.partitions.values()})
        metadata = await fetch_metadata(self._context.target.brokers, names, channel="watch")
        task.learn_target(metadata)
        lost: dict[str, str] = {}
        for part in task.partitions.values():
            topic = metadata.topics.get(part.target_topic)
            if topic is not None and topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                lost[part.source_topic] = f"{part.target_topic} on {self._flow.target} was deleted"
            elif topic is not None and topic.error_code == 0 and part.target_topic_id not in {None, topic.topic_id}:
                lost[part.source_topic] = f"{part.target_topic} on {self._flow.target} was deleted and recreated"
        for name, why in lost.items():
            await discovery.end(GapKind.TARGET_DELETED, name, why)
        return bool(lost)

    # Log and status

    def _say_topic_ids(self) -> None:
        for side in (self._context.source, self._context.target):
            if side.reads_topic_ids() is False:
                self._log.warning(
                    "cluster.no_topic_ids",
                    cluster=side.alias,
                    effect="a topic that is deleted and made again is recognised by epochs and offsets only",
                )

    def status(self, *, with_topics: bool = True) -> FlowStatus:
        """Return the flow's status. This is cheap enough for every second, unless there are many topics."""
        by_topic: dict[str, list[CopiedPartition]] = {}
        if self.task is not None and with_topics:
            for part in self.task.partitions.values():
                by_topic.setdefault(part.source_topic, []).append(part)
        now_ms = self._clock.wall_ms()
        topics = tuple(topic_status(name, parts, now_ms) for name, parts in sorted(by_topic.items()))
        return FlowStatus(
            self._flow,
            self._state.name,
            self._state.reason,
            self._guarantee(),
            topics,
            {} if self._parts is None else self._parts.discovery.refused(),
            positions_unstored_s=0.0 if self.task is None else self.task.positions.age_s(),
            positions_problem="" if self.task is None else self.task.positions.problem,
        )

    def measure(self) -> Iterator[ConnectorPart]:
        """Yield the flow's counts; see ``Connector``."""
        task, flow, state = self.task, self._flow, self._state.name
        if task is None or self._parts is None:
            yield FlowSnapshot(flow.source, flow.target, state, self._guarantee(), positions_unstored_s=0.0)
            return
        departed, partitions = task.departed.rows(), list(task.partitions.values())  # together, so none counts twice
        yield FlowSnapshot(
            flow.source,
            flow.target,
            state,
            self._guarantee(),
            task.positions.age_s(),
            refused_topics=len(self._parts.discovery.refused()),
            held_topics=self._parts.discovery.held,
            paused_partitions=sum(part.copier.is_paused for part in partitions),
            recorder_failing=self._recorder.is_failing,
            not_copied=self._not_copied(self._parts),
            position_writes_ms=task.positions.writes_ms.state(),
            read_bytes=task.lanes.read_bytes,
            sent_bytes=task.lanes.sent_bytes,
            ledger_chunks=task.ledger.written_chunks,
            ledger_entries=task.ledger.written_entries,
            link=task.lanes.link_use(),
            waits=task.waits.told,
            safe_ms=None if self._safe is None else self._safe.at_ms or 0,
            retentions=tuple((topic, *limits) for topic, limits in task.lags.retentions.items()),
            from_followers=sum(part.leaders.replica.follower is not None for part in partitions),
        )
        yield from in_parts(DEPARTED, departed)
        yield from partition_parts(partitions, self._clock.monotonic(), self._clock.wall_ms())

    def _not_copied(self, parts: _Parts) -> tuple[tuple[str, int, int], ...]:
        causes = parts.discovery.causes()
        topics = Counter(cause.reason for topic, cause in causes if topic or cause.reason != Reason.RING)
        partitions = parts.task.standstills.counts(self._clock.monotonic())
        return tuple((why, topics[why], partitions.get(why, 0)) for why in sorted({*topics, *partitions}))


def _some(topics: Collection[str]) -> str:
    first = sorted(topics)[:SHOWN_MOST]
    return ", ".join(first) + (f" and {len(topics) - SHOWN_MOST} more" if len(topics) > SHOWN_MOST else "")
