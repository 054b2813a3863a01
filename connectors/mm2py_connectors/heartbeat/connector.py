"""The heartbeat connector of a pair of clusters: creates the topic ``heartbeats`` on the target and writes to it.

It only needs the target: a pair emits whether its flow is enabled or not, and whether its source can be reached or
not. One heartbeat is in flight at a time, so they keep their order. One that cannot be written is dropped: the next
carries a newer time, and readers look at the newest only. Records have no producer id: a repeated one does no harm in
a compacted topic.

Counterpart: MirrorHeartbeatConnector, MirrorHeartbeatTask and MirrorUtils.createSinglePartitionCompactedTopic of
Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

import random
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.internal_topics import heartbeats_topic
from mm2py.config.settings import HeartbeatSettings
from mm2py.kafka import internal_topic
from mm2py.kafka.errors import BrokerRefused, Reaction, reaction_to
from mm2py.kafka.port import BrokerId, Brokers, PartitionProduce, ProduceRequest, TopicProduce
from mm2py.records.batch import build_batch
from mm2py.records.compression import Codec
from mm2py.records.heartbeat import Heartbeat, encode
from mm2py.topics.names import HEARTBEATS
from mm2py_connectors.rounds import RoundsConnector

PARTITION: Final = 0


def next_due_s(due_s: float, now_s: float, interval_s: float) -> float:
    """Return when the next heartbeat is due after the one of ``due_s``: at a fixed rate, but nothing is caught up."""
    return max(due_s + interval_s, now_s)


class HeartbeatConnector(RoundsConnector):
    """Creates the topic; if the settings say so, writes one heartbeat every interval, the first after one interval."""

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
        effect = "no heartbeats are written; copying of records does not need them"
        super().__init__("heartbeats", effect=effect, clock=clock, rng=rng, log=log)
        self._settings = settings
        self._brokers = brokers
        self._codec = Codec.NONE if settings.compression is None else Codec[settings.compression.upper()]
        self._leader: BrokerId | None = None
        self._due_s: float | None = None
        """When the next heartbeat is due."""
        self._emitted = False

    def status(self, *, with_topics: bool = True) -> None:
        """Return nothing: heartbeats show the state of the flows that copy them."""

    def measure(self) -> tuple[()]:
        """Nothing, as in MirrorMaker 2."""
        return ()

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
        wanted = heartbeats_topic(self._settings)
        found = await internal_topic.find_or_make(
            self._brokers,
            wanted.topic,
            wanted.replication_factor,
            setting=wanted.setting,
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
