"""Sends to one target broker.

A *produce lane* keeps up to five requests in flight on a connection to its broker, and fewer if the broker is slow. A
request has at most one batch of each partition.

A far broker takes little over one connection, as it does not read faster than its own socket buffer allows. Then
partitions are spread over as many connections as are worth it (``link_tuning``). All batches of one partition go over
the same connection, since they must arrive in order. The partition moves to another connection only when all of its
batches are answered.

A broker answers the requests of a connection one after the other. So while partitions catch up, those at the end of
their logs are written to a near broker over a connection of their own. Their records do not wait for megabytes of
other partitions.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from mm2py.clock import Clock
from mm2py.compiled_core import CORE
from mm2py.copying.copied_partition import CopiedPartition, LaneProblem
from mm2py.copying.events import Acked, ProduceLost, ProduceRefused, TooOldToResend
from mm2py.copying.in_flight import Sending
from mm2py.copying.link_tuning import MEASURED_S, NEAR_S, LinkTuner, Look
from mm2py.copying.waits import BrokerTimes
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import BrokerId, Brokers, PartitionProduce, ProduceReply, ProduceRequest, TopicProduce
from mm2py.records.batch import stamp

REQUESTS_IN_FLIGHT: Final = 5
REQUESTS_ALWAYS: Final = 2
"""How many requests may always be in flight: a late answer may only be due to a slow network."""
REQUEST_BYTES: Final = 8 << 20
FAR_REQUEST_BYTES: Final = 512 << 10
"""The same to a far broker. A connection takes some round trips for this much, and the others do not wait for it."""
OVERDUE: Final = 4
"""If an answer takes this many times longer than the quickest one, our requests wait in the broker's queue."""
OVERDUE_LEAST_S: Final = 0.002
WORTHWHILE_BYTES: Final = 1 << 20
"""If this much waits, it is sent to such a broker at once. Less waits for its next answer, to go in fewer requests."""
QUICKEST_GROWTH: Final = 1.01
"""By how much every slower answer raises the quickest time."""
BULK_BYTES: Final = 256 << 10
BULK_S: Final = 2.0
"""For this long after a request with ``BULK_BYTES`` of lagging partitions, partitions count as catching up."""
TAIL: Final = -1
"""The number of the connection of partitions at the end of their logs, while others catch up."""
TAIL_BYTES: Final = 64 << 10
"""A partition with more to send is not given that connection; with more than ``BULK_BYTES`` it loses it. Each move
waits until all its batches are answered, so a partition with large reads must not move back and forth."""


@dataclass(frozen=True, slots=True)
class SendSettings:
    """How a flow sends."""

    timeout_ms: int
    """How long the broker waits for its replicas."""
    retained_after_ms: Callable[[], int]
    """Returns the oldest record timestamp within producer-state retention (docs/broker-facts.md#c1)."""
    connections_max: Callable[[], int] = lambda: 1
    """Returns ``connections.per.broker.max``."""


@dataclass(slots=True, eq=False)
class _Channel:
    """One connection to the broker."""

    name: str
    maybe_ready: dict[CopiedPartition, None] = field(default_factory=dict)
    """Partitions that may have a batch to send over it, oldest offer first."""
    sent_at_s: dict[object, float] = field(default_factory=dict)
    """When each unanswered request was sent, oldest first."""
    quickest_s: float = 0.0


class ProduceLane:
    """Sends to the partitions that one target broker leads."""

    def __init__(
        self,
        broker: BrokerId,
        brokers: Brokers,
        *,
        settings: SendSettings,
        clock: Clock,
        problem: LaneProblem,
        times: BrokerTimes | None = None,
    ) -> None:
        """Make a lane; ``run`` starts it. ``times`` are those of all lanes of the flow."""
        self.broker = broker
        self._times = times or BrokerTimes()
        self.problem = problem
        self._brokers = brokers
        self._settings = settings
        self._clock = clock
        self._wake = asyncio.Event()
        self._channels = [_Channel("produce")]
        self._tail = _Channel("produce-tail")
        self._bulk_until_s = -math.inf
        self._acknowledged_bytes = 0
        self._is_full = asyncio.Event()
        """Set when a batch waits because enough is in flight."""
        self.tuner = LinkTuner()
        self.sent_bytes = 0
        """Batches sent since the start, repeats included."""

    def offer(self, partition: CopiedPartition) -> None:
        """Note that ``partition`` may have a batch to send."""
        channel = self._channel_of(partition)
        if channel is not None:  # else it is offered again with the next answer
            channel.maybe_ready[partition] = None
            self._wake.set()

    @property
    def is_full(self) -> bool:
        """Whether batches wait because enough requests are under way."""
        return any(channel.maybe_ready for channel in self._channels)

    async def run(self) -> None:
        """Send until cancelled. Cancelling leaves the outcome of what is in flight unknown."""
        async with FirstErrorGroup() as requests:
            requests.create_task(self._tune(), name=f"connections to broker {self.broker}")
            while True:
                for channel in (*self._channels, self._tail):
                    while channel.maybe_ready and self._may_send(channel) and (batches := self._collect(channel)):
                        request = object()
                        channel.sent_at_s[request] = self._clock.monotonic()
                        requests.create_task(
                            self._send(channel, request, batches), name=f"{channel.name} broker {self.broker}"
                        )
                    if channel.maybe_ready and channel is not self._tail:
                        self._is_full.set()
                await self._wake.wait()
                self._wake.clear()

    async def _tune(self) -> None:
        """Tune the number of connections while batches wait, until all but one are closed again."""
        while True:
            await self._is_full.wait()
            self._is_full.clear()
            await asyncio.sleep(MEASURED_S)
            round_trip_s = self._brokers.round_trip_s(self.broker)
            now_s, is_full = self._clock.monotonic(), self._is_full.is_set()
            self.tuner.look(
                Look(now_s, round_trip_s, self._acknowledged_bytes, is_full), self._settings.connections_max()
            )
            wanted = self.tuner.connections
            self._channels += [_Channel(f"produce-{no}") for no in range(len(self._channels), wanted)]
            for channel in self._channels[wanted:]:
                if not channel.sent_at_s:
                    self._brokers.close_channel(self.broker, channel.name)
            if wanted > 1:
                self._is_full.set()

    def _is_far(self) -> bool:
        return self.tuner.connections > 1 or (self._brokers.round_trip_s(self.broker) or 0.0) >= NEAR_S

    def _channel_of(self, partition: CopiedPartition) -> _Channel | None:
        """Return the connection of a partition; None: it moves to another one when all of its batches are answered."""
        wanted = 0
        if _is_tail(partition) and self._has_bulk():
            wanted = TAIL
        elif self.tuner.connections > 1:
            wanted = (crc32(partition.target_topic.encode()) + partition.partition) % self.tuner.connections
        if partition.connection != wanted:
            if partition.copier.in_flight.unanswered:
                return None
            partition.connection = wanted
            if wanted != TAIL and not self._tail.sent_at_s and not self._has_bulk():
                self._brokers.close_channel(self.broker, self._tail.name)
        return self._tail if wanted == TAIL else self._channels[wanted]

    def _has_bulk(self) -> bool:
        """Whether partitions catch up, and others may have a connection of their own.

        A connection to a far broker carries little, so one would not be enough for all partitions at the end.
        """
        if self._clock.monotonic() >= self._bulk_until_s:
            return False
        return not self._is_far() and self._settings.connections_max() > 1

    def _may_send(self, channel: _Channel) -> bool:
        """Whether another request makes anything arrive sooner.

        The story: a broker that has just started takes 25 ms for a request of ten records. Five requests would only
        wait in its queue. Records that wait here meanwhile go in one request, and are answered as soon.
        """
        if len(channel.sent_at_s) < REQUESTS_ALWAYS:
            return True
        if len(channel.sent_at_s) >= REQUESTS_IN_FLIGHT:
            return False
        oldest_at_s = next(iter(channel.sent_at_s.values()))
        if self._clock.monotonic() - oldest_at_s <= max(OVERDUE * channel.quickest_s, OVERDUE_LEAST_S):
            return True
        waiting = 0
        for partition in channel.maybe_ready:
            waiting += partition.copier.in_flight.ready_bytes
            if waiting >= WORTHWHILE_BYTES:
                return True
        return False

    def _answered(self, channel: _Channel, request: object, now_s: float) -> None:
        took_s = now_s - channel.sent_at_s[request]
        self._times.answered(took_s)
        channel.quickest_s = min(took_s, channel.quickest_s * QUICKEST_GROWTH) if channel.quickest_s else took_s

    def _collect(self, channel: _Channel) -> list[tuple[CopiedPartition, Sending]]:
        """Take and stamp one batch of each partition that may send one, oldest offer first."""
        batches: list[tuple[CopiedPartition, Sending]] = []
        size = bulk_size = 0
        retained_after_ms = self._settings.retained_after_ms()
        again: list[CopiedPartition] = []
        most = FAR_REQUEST_BYTES if self._is_far() else REQUEST_BYTES
        while channel.maybe_ready and size < most:
            partition = next(iter(channel.maybe_ready))
            del channel.maybe_ready[partition]
            if partition.leaders.target != self.broker:
                continue
            if (current := self._channel_of(partition)) is not channel:
                if current is not None:
                    current.maybe_ready[partition] = None
                    self._wake.set()
                continue
            sending = partition.copier.next_batch(self.broker, retained_after_ms)
            if sending is None:
                if partition.copier.is_too_old_to_resend(retained_after_ms):
                    partition.tell(TooOldToResend(self._clock.monotonic()))
                continue
            data = sending.batch.data
            identity = sending.identity
            stamp(data, identity.producer_id, identity.epoch, sending.sequence, core=CORE)
            batches.append((partition, sending))
            size += len(data)
            bulk_size += 0 if partition.copier.is_at_end else len(data)
            if partition.copier.in_flight.has_batches:
                again.append(partition)
            partition.shell.sent(partition)
        channel.maybe_ready.update(dict.fromkeys(again))
        if bulk_size >= BULK_BYTES and channel is not self._tail:
            self._bulk_until_s = self._clock.monotonic() + BULK_S
        return batches

    async def _send(self, channel: _Channel, sent: object, batches: list[tuple[CopiedPartition, Sending]]) -> None:
        by_topic: dict[tuple[str, uuid.UUID | None], list[PartitionProduce]] = {}
        for part, sending in batches:
            by_topic.setdefault((part.target_topic, part.target_topic_id), []).append(
                PartitionProduce(part.partition, sending.batch.data)
            )
            self.sent_bytes += len(sending.batch.data)
        request = ProduceRequest(
            [TopicProduce(name, topic_id, parts) for (name, topic_id), parts in by_topic.items()],
            self._settings.timeout_ms,
        )
        try:
            reply = await self._brokers.send(self.broker, request, channel=channel.name)
        except KafkaError as error:
            self.problem.set(str(error))
            now_s = self._clock.monotonic()
            for part, sending in batches:
                part.tell(ProduceLost(sending.token, str(error), now_s))
        else:
            self.problem.set(None)
            now_s = self._clock.monotonic()
            self._times.throttled(reply.throttle_ms, now_s)
            self._answered(channel, sent, now_s)
            self._settle(batches, reply)
        finally:
            del channel.sent_at_s[sent]
            self._wake.set()

    def _settle(self, batches: list[tuple[CopiedPartition, Sending]], reply: ProduceReply) -> None:
        now_s, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        answers = {(answer.topic, answer.partition): answer for answer in reply.partitions}
        for part, (batch, _, _, token, read_at_s) in batches:
            answer = answers.get((part.target_topic, part.partition))
            if answer is None:
                part.tell(ProduceLost(token, "the reply leaves this partition out", now_s))
            elif answer.error_code:
                part.tell(ProduceRefused(token, answer.error_code, answer.error_message, now_s))
            else:
                self._acknowledged_bytes += len(batch.data)
                part.tell(Acked(token, answer.base_offset, now_s))
                part.meter.add(
                    batch.max_timestamp_ms,
                    batch.record_count,
                    len(batch.data),
                    read_at_s=read_at_s,
                    now_s=now_s,
                    now_ms=now_ms,
                )


def _is_tail(partition: CopiedPartition) -> bool:
    ready_bytes = partition.copier.in_flight.ready_bytes
    if partition.connection == TAIL:
        return ready_bytes <= BULK_BYTES
    return ready_bytes <= TAIL_BYTES and partition.copier.is_at_end
