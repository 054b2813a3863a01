"""The heartbeat connector of a pair of clusters: makes the topic ``heartbeats`` on the target and writes to it.

Answers to MirrorHeartbeatConnector, MirrorHeartbeatTask and MirrorUtils.createSinglePartitionCompactedTopic of Apache
Kafka's Connect, mirror. It only needs the target: a pair emits whether its flow is enabled or not, and whether its
source can be reached or not. One heartbeat is in flight at a time, so they keep their order. One that cannot be written
is dropped: the next carries a newer time, and readers look at the newest only. Records have no producer id: a repeated
one does no harm in a compacted topic.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import HeartbeatSettings
from mm2py.kafka import internal_topic
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError, Reaction, reaction_to
from mm2py.kafka.port import BrokerId, Brokers, PartitionProduce, ProduceRequest, TopicProduce
from mm2py.logs import Trouble
from mm2py.records.batch import CorruptBatch, build_batch
from mm2py.records.compression import Codec
from mm2py.records.heartbeat import Heartbeat, encode
from mm2py.replication.partition_errors import BLOCKED_PAUSE_S, DENIED_PAUSE_S
from mm2py.topics.names import HEARTBEATS, InternalTopic

PARTITION: Final = 0


def next_due_s(due_s: float, now_s: float, interval_s: float) -> float:
    """Return when the next heartbeat is due after the one of ``due_s``: at a fixed rate, but nothing is caught up."""
    return max(due_s + interval_s, now_s)


class RoundsConnector(ABC):
    """A connector that works in rounds on one cluster. An error is logged when it lasts, and the round is repeated."""

    leaves_outcome_unknown: bool = False
    """A record of it that arrives late does no harm."""

    def __init__(self, name: str, *, effect: str, clock: Clock, rng: random.Random, log: FilteringBoundLogger) -> None:
        """``name`` begins the names of the log lines on what keeps it from working, ``effect`` says what that means."""
        self._clock = clock
        self._log = log
        self._backoff = Backoff(rng, first_s=0.2, most_s=5.0)
        self._trouble = Trouble(name, clock=clock, log=log, effect=effect)
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled or drained. Cancelling may leave a request on its way."""
        working = asyncio.create_task(self._work(), name=type(self).__name__)
        stopped = asyncio.create_task(self._stopped.wait(), name=f"{type(self).__name__} stop")
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, stopped):
                task.cancel()
            await asyncio.gather(working, stopped, return_exceptions=True)

    async def drain(self) -> None:
        """Stop."""
        self._stopped.set()

    async def _work(self) -> None:
        while True:
            try:
                pause_s = await self._round()
            except (KafkaError, CorruptBatch) as error:
                lasting_s = _lasting_pause_s(error)
                self._trouble.note(error, at_once=lasting_s is not None)
                pause_s = self._backoff.next_s() if lasting_s is None else lasting_s
                self._round_failed(pause_s)
            else:
                self._trouble.over()
                if pause_s is None:
                    pause_s = self._backoff.next_s()
                else:
                    self._backoff.reset()
            await asyncio.sleep(pause_s)

    @abstractmethod
    async def _round(self) -> float | None:
        """Work once. Returns the pause before the next round, None for one that grows from round to round."""

    @abstractmethod
    def _round_failed(self, pause_s: float) -> None:
        """Take in that a round ended in an error, and that the next one begins after a pause."""


def _lasting_pause_s(error: KafkaError | CorruptBatch) -> float | None:
    """Return how long to wait after an error that waiting does not mend; None for one that passes by itself."""
    if not isinstance(error, KafkaError) or error.retriable:
        return None
    denied = isinstance(error, BrokerRefused) and error.reaction is Reaction.DENIED
    return DENIED_PAUSE_S if denied else BLOCKED_PAUSE_S


class HeartbeatConnector(RoundsConnector):
    """Makes the topic, and writes one heartbeat every interval if the settings say so, the first after one interval."""

    def __init__(
        self,
        settings: HeartbeatSettings,
        brokers: Brokers,
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``brokers`` are those of the target."""
        effect = "no heartbeats are written; records are copied all the same"
        super().__init__("heartbeats", effect=effect, clock=clock, rng=rng, log=log)
        self._settings = settings
        self._brokers = brokers
        self._codec = Codec.NONE if settings.compression is None else Codec[settings.compression.upper()]
        self._leader: BrokerId | None = None
        self._due_s: float | None = None
        """When the next heartbeat is due."""
        self._emitted = False

    def status(self) -> None:
        """Nothing: heartbeats say something of the flows that copy them."""

    async def _round(self) -> float:
        if self._leader is None:
            self._leader = await self._find_leader()
        interval_s = self._settings.interval_s
        if interval_s is None:
            await self._stopped.wait()
            return 0.0
        now_s = self._clock.monotonic()
        if self._due_s is None:
            self._due_s = now_s + interval_s
        else:
            await self._emit(self._leader)
            now_s = self._clock.monotonic()
            self._due_s = next_due_s(self._due_s, now_s, interval_s)
        return self._due_s - now_s

    def _round_failed(self, pause_s: float) -> None:
        self._leader = None
        if self._due_s is not None:
            self._due_s = self._clock.monotonic() + pause_s

    async def _find_leader(self) -> BrokerId:
        """Return the leader of the topic's partition, after creating the topic if there is none."""
        found = await internal_topic.find_or_make(
            self._brokers,
            InternalTopic(HEARTBEATS, 1),
            self._settings.replication_factor,
            setting="heartbeats.topic.replication.factor",
            made=lambda: self._log.info("heartbeats.topic_created", cluster=self._settings.flow.target),
        )
        leader = found.partitions[PARTITION].leader
        assert leader is not None  # noqa: S101  (find_or_make sees to it)
        return leader

    async def _emit(self, leader: BrokerId) -> None:
        heartbeat = Heartbeat(self._settings.flow, self._clock.wall_ms())
        batch = build_batch([encode(heartbeat)], codec=self._codec)
        request = ProduceRequest(
            [TopicProduce(HEARTBEATS, None, [PartitionProduce(PARTITION, batch)])],
            timeout_ms=int(self._settings.request_timeout_s * 500),
        )
        answer = (await self._brokers.send(leader, request, channel="heartbeats")).partitions[0]
        if answer.error_code:
            denied = reaction_to(answer.error_code) is Reaction.DENIED
            target = self._settings.flow.target
            raise BrokerRefused(
                f"Writing to {HEARTBEATS} on {target}",
                answer.error_code,
                message=answer.error_message,
                remedy=f"Grant mm2py WRITE on topic {HEARTBEATS} of {target}." if denied else "",
            )
        if not self._emitted:
            self._emitted = True
            self._log.info("heartbeats.emitting", cluster=self._settings.flow.target, every_s=self._settings.interval_s)
