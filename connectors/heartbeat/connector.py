"""The topic ``heartbeats`` on a pair's target: found, or made as MirrorMaker 2 makes it; one that is there is left.

Answers to MirrorUtils.createSinglePartitionCompactedTopic of Apache Kafka's Connect, mirror.

The heartbeat task: writes one record every interval, the first after one interval.

Answers to MirrorHeartbeatTask of Apache Kafka's Connect, mirror. One heartbeat is on its way at a time, so they keep
their order. One that cannot be written is not kept: the next carries a newer time, and MirrorMaker 2's readers, and
ours, look at the newest only. Records have no producer id: a repeated one does no harm in a compacted topic.

The heartbeat connector of a pair of clusters, together with its one task.

Answers to MirrorHeartbeatConnector of Apache Kafka's Connect, mirror. It only needs the target: a pair emits whether
its flow is enabled or not, and whether its source can be reached or not. It has connections of its own, waits for
whatever is missing, and so never disturbs a flow that copies.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import HeartbeatSettings
from mm2py.kafka import internal_topic
from mm2py.kafka.errors import (
    BLOCKED_PAUSE_S,
    DENIED_PAUSE_S,
    Backoff,
    BrokerRefused,
    KafkaError,
    Reaction,
    reaction_to,
)
from mm2py.kafka.port import BrokerId, Brokers, PartitionProduce, ProduceRequest, TopicProduce
from mm2py.logs import Trouble
from mm2py.records.batch import build_batch
from mm2py.records.compression import Codec
from mm2py.records.heartbeat import Heartbeat, encode
from mm2py.topics.names import HEARTBEATS, InternalTopic

PARTITION: Final = 0


async def find_or_make(settings: HeartbeatSettings, brokers: Brokers, log: FilteringBoundLogger) -> BrokerId:
    """Return who leads the partition that heartbeats are written to, making the topic where there is none.

    Raises:
        BrokerRefused: it cannot be made, or it has no leader yet: ask again. The error names what is missing.
        BrokerUnreachable, RequestTimedOut, ...: as ``Brokers.send``.
    """
    found = await internal_topic.find_or_make(
        brokers,
        InternalTopic(HEARTBEATS, 1),
        settings.replication_factor,
        setting="heartbeats.topic.replication.factor",
        made=lambda: log.info("heartbeats.topic_created", cluster=settings.flow.target),
    )
    leader = found.partitions[PARTITION].leader
    assert leader is not None  # noqa: S101  (find_or_make sees to it)
    return leader


def next_due_s(due_s: float, now_s: float, interval_s: float) -> float:
    """Return when the next heartbeat is due after the one of ``due_s``: at a fixed rate, but nothing is caught up."""
    return max(due_s + interval_s, now_s)


def lasting_pause_s(error: KafkaError) -> float | None:
    """Return how long to wait after an error that waiting does not mend; None for one that passes by itself."""
    if error.retriable:
        return None
    denied = isinstance(error, BrokerRefused) and error.reaction is Reaction.DENIED
    return DENIED_PAUSE_S if denied else BLOCKED_PAUSE_S


class HeartbeatTask:
    """Sees that the topic is there, and writes to it. Whatever fails is tried again, without end."""

    def __init__(
        self,
        settings: HeartbeatSettings,
        brokers: Brokers,
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._brokers = brokers
        self._clock = clock
        self._log = log
        self._codec = Codec.NONE if settings.compression is None else Codec[settings.compression.upper()]
        self._leader: BrokerId | None = None
        self._backoff = Backoff(rng, first_s=0.2, most_s=5.0)
        self._trouble = Trouble(
            "heartbeats", clock=clock, log=log, effect="no heartbeats are written; records are copied all the same"
        )
        self._emitted = False

    async def prepare(self) -> None:
        """Return when the topic is there and its partition has a leader."""
        pause_s: float | None = 0.0
        while pause_s is not None:
            await asyncio.sleep(pause_s)
            pause_s = await self._attempt(self._find_leader)

    async def run(self) -> None:
        """Emit until cancelled. Cancelling may leave the last heartbeat written or not."""
        interval_s = self._settings.interval_s
        if interval_s is None:
            raise AssertionError("a task that emits nothing was run")
        due_s = self._clock.monotonic() + interval_s
        while True:
            await asyncio.sleep(due_s - self._clock.monotonic())
            pause_s = await self._attempt(self._emit)
            now_s = self._clock.monotonic()
            due_s = next_due_s(due_s, now_s, interval_s) if pause_s is None else now_s + pause_s

    async def _attempt(self, work: Callable[[], Awaitable[None]]) -> float | None:
        """Do something. Returns None if it worked, else the pause before the next attempt."""
        try:
            await work()
        except KafkaError as error:
            lasting_s = lasting_pause_s(error)
            self._leader = None
            self._trouble.note(error, at_once=lasting_s is not None)
            return self._backoff.next_s() if lasting_s is None else lasting_s
        self._trouble.over()
        self._backoff.reset()
        return None

    async def _find_leader(self) -> None:
        self._leader = await find_or_make(self._settings, self._brokers, self._log)

    async def _emit(self) -> None:
        if self._leader is None:
            self._leader = await find_or_make(self._settings, self._brokers, self._log)
        heartbeat = Heartbeat(self._settings.flow, self._clock.wall_ms())
        batch = build_batch([encode(heartbeat)], codec=self._codec)
        request = ProduceRequest(
            [TopicProduce(HEARTBEATS, None, [PartitionProduce(PARTITION, batch)])],
            timeout_ms=int(self._settings.request_timeout_s * 500),
        )
        reply = await self._brokers.send(self._leader, request, channel="heartbeats")
        answer = reply.partitions[0]
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


class HeartbeatConnector:
    """Makes the topic, and emits if the settings say so."""

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
        self._emits = settings.interval_s is not None
        self._task = HeartbeatTask(settings, brokers, clock=clock, rng=rng, log=log)
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled or drained; it never fails on account of a cluster."""
        working = asyncio.create_task(self._work(), name="heartbeats")
        stopped = asyncio.create_task(self._stopped.wait(), name="heartbeats stop")
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, stopped):
                task.cancel()
            await asyncio.gather(working, stopped, return_exceptions=True)

    @property
    def leaves_doubt(self) -> bool:
        """What it writes stands for itself, whenever it comes."""
        return False

    async def drain(self) -> None:
        """Emit no more."""
        self._stopped.set()

    def status(self) -> None:
        """Heartbeats that are emitted say nothing of their own flow: they prove those that copy them."""

    async def _work(self) -> None:
        await self._task.prepare()
        if self._emits:
            await self._task.run()
        else:
            await self._stopped.wait()
