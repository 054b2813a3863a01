"""What all parts of one attempt of a flow share, and how they wait for its clusters.

MM2 hands its tasks their configuration as a map of strings when they start. Here a part gets this context as its first
argument, and otherwise only what it alone needs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.internal_topics import WantedTopic
from mm2py.config.settings import FlowSettings
from mm2py.connector import Side
from mm2py.copying.events import CopySettings
from mm2py.copying.gaps import decide
from mm2py.copying.planning.transforming import PartitionTransforms
from mm2py.copying.positions import PositionBudget
from mm2py.copying.reading.limits import MemoryBudget
from mm2py.flight.pending import FlightPending
from mm2py.flow import Flow
from mm2py.group.ownership import OwnershipView
from mm2py.kafka import internal_topic
from mm2py.kafka.cluster import WAITING_REPORT_S, now_and_then, until_answered
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import TopicPartition
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.metrics.counters import Metrics
from mm2py.records.backfill_record import Holds, Range
from mm2py.records.control_record import NotStarted
from mm2py.records.gap_record import Done, GapKind
from mm2py.records.pause_record import Pauses
from mm2py.status.not_copied import Reason
from mm2py.transforms.processes import FUNCTIONS
from mm2py_connectors.source.refusals import TableUnusable

T = TypeVar("T")


@dataclass(slots=True)
class AttemptState:
    """What changes while the attempt runs."""

    settings: FlowSettings
    """Replaced when an operator changes what can be changed while the flow copies."""
    holds: Holds = field(default_factory=Holds)
    """Topics that are left to backfills; replaced when one begins or ends."""
    holds_changed: int = 0
    """How often they were replaced."""
    pauses: Pauses = field(default_factory=Pauses)
    """Topics and partitions that operators have paused; replaced when that changes."""
    name: str = "starting"
    """The state in one word, for the flow's status; ``reason`` is a sentence or empty."""
    reason: str = ""
    metadata_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by any part that needs fresh metadata, or the next round of the watch, soon."""
    has_run: bool = False
    """True once the flow is prepared: from then on, what is not copied is reported topic by topic."""

    def show_waiting(self, reason: str) -> None:
        """Show in the flow's status what it waits for."""
        self.name, self.reason = "waiting", reason

    def run(self) -> None:
        """Show in the flow's status that it runs."""
        self.name, self.reason, self.has_run = "running", "", True


@dataclass(frozen=True, slots=True)
class FlowView:
    """The part of an attempt's context that also a plan has: it runs nothing, and its brokers change nothing."""

    state: AttemptState
    source: Side
    target: Side
    clock: Clock
    rng: random.Random
    log: FilteringBoundLogger

    @property
    def settings(self) -> FlowSettings:
        """The present settings: read them again after each ``await``."""
        return self.state.settings

    @property
    def flow(self) -> Flow:
        return self.state.settings.flow


@dataclass(frozen=True, slots=True)
class FlowContext:
    """One attempt of a flow."""

    state: AttemptState
    source: Side
    target: Side
    """Its requests pass the gate of this worker's group: none leaves after the group may have evicted the worker."""
    producer_name: TransactionalId
    ended: frozenset[int]
    """Producer ids of earlier attempts of this process whose requests were all answered."""
    ownership: OwnershipView
    incarnation: Incarnation
    memory: MemoryBudget
    position_budget: PositionBudget
    allow_recopy: frozenset[str]
    """Topics that may be copied once more from their start."""
    metrics: Metrics
    clock: Clock
    rng: random.Random
    log: FilteringBoundLogger
    flight: FlightPending | None = None
    """What the flight recorder has to write; None: nothing is recorded."""
    ranges: Mapping[TopicPartition, Range] = field(default_factory=dict)
    """Partitions of which only a range is copied: those of a backfill."""

    @property
    def settings(self) -> FlowSettings:
        """The present settings: read them again after each ``await``."""
        return self.state.settings

    @property
    def flow(self) -> Flow:
        return self.state.settings.flow

    @property
    def must_be_exactly_once(self) -> bool:
        return self.state.settings.exactly_once == "enabled"

    @property
    def copy_settings(self) -> CopySettings:
        """The present settings for copying a partition."""
        settings = self.state.settings
        stops = self.gap_policy(GapKind.EXPIRED) is not Done.CONTINUED
        # A read of a single partition brings more than that at once: the next one starts when most of it is sent.
        return CopySettings(settings.fetch_partition_max_bytes, settings.quarantines, stops_when_expired=stops)

    def gap_policy(self, kind: GapKind) -> Done:
        settings = self.state.settings
        return decide(kind, on_source_gap=settings.on_source_gap, on_target_loss=settings.on_target_loss)

    def transforms_of(self, topic: str, partition: int) -> PartitionTransforms | None:
        """Return what is done to the records of a partition of the source on their way; None: nothing."""
        settings = self.state.settings
        chain = settings.chain_of(topic)
        if chain is None:
            return None
        functions = FUNCTIONS if chain.calls_functions else None
        return PartitionTransforms(chain, settings.remote_topic(topic), partition, functions)

    @property
    def view(self) -> FlowView:
        """What code needs that only decides, and asks both clusters."""
        return FlowView(self.state, self.source, self.target, self.clock, self.rng, self.log)

    async def until_answered(self, ask: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Repeat a question until it is answered, and log every few seconds that it is not. Raises: a KafkaError that
        no retry mends."""

        def report(error: KafkaError) -> None:
            self.report_waiting(what, str(error))

        said = now_and_then(report, self.clock)

        def on_error(error: KafkaError) -> None:
            self.state.show_waiting(f"{what}: {error}")
            said(error)

        return await until_answered(ask, rng=self.rng, on_error=on_error)

    async def accompany(self, work: Coroutine[Any, Any, T], what: str, why: str) -> T:
        """Wait for work that may take any time; log every few seconds that it is under way, and ``why``."""
        task = asyncio.create_task(work, name=what)
        try:
            while not (await asyncio.wait([task], timeout=WAITING_REPORT_S))[0]:
                self.report_waiting(what, why)
            return await task
        finally:
            task.cancel()
            await asyncio.wait([task])  # nothing else retrieves the error that it may raise as it ends
            if not task.cancelled():
                task.exception()

    def report_waiting(self, what: str, why: str) -> None:
        """Log and show what the flow waits for. While no part of the flow runs yet, tell the group as well."""
        self.state.show_waiting(f"{what}: {why}")
        self.log.warning("flow.waiting", doing=what, why=why)
        if not self.state.has_run:
            waiting = NotStarted(self.clock.wall_ms(), Reason.NOT_STARTED, f"{what}: {why}")
            self.ownership.cannot_start(waiting)

    async def make_table(self, wanted: WantedTopic, *, keeps: str) -> int:
        """Return how many partitions a compacted topic of mm2py on the target has; create the topic if it is missing.

        Args:
            keeps: what the topic holds, for messages.
        Raises:
            TableUnusable: it cannot be created, or it would lose what it holds.
            BrokerRefused: it is not there yet; ask again.
        """
        brokers, topic = self.target.brokers, wanted.topic
        try:
            found = await internal_topic.find_or_make(brokers, topic, wanted.replication_factor, setting=wanted.setting)
            await internal_topic.read_settings(brokers, topic)
        except internal_topic.TopicNotMade as error:
            raise TableUnusable(self.flow, str(topic.name), keeps, error.what, remedy=error.remedy) from error
        except internal_topic.TopicUnsuitable as error:
            raise TableUnusable(self.flow, str(topic.name), keeps, error.why, remedy=error.remedy) from error
        return len(found.partitions)
