"""Sends to one target broker.

A *produce lane* keeps up to five requests in flight to its broker, and fewer if the broker is slow. A request has at
most one batch of each partition.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import BrokerId, Brokers, PartitionProduce, ProduceReply, ProduceRequest, TopicProduce
from mm2py.records.batch import stamp
from mm2py.replication.copying.copied_partition import CopiedPartition, Handler, LaneProblem
from mm2py.replication.copying.events import Acked, ProduceLost, ProduceRefused, TooOldToResend
from mm2py.replication.copying.in_flight import Sending

REQUESTS_IN_FLIGHT: Final = 5
REQUESTS_ALWAYS: Final = 2
"""So many may always be in flight: a late answer may only be due to a slow network."""
REQUEST_BYTES: Final = 8 << 20
OVERDUE: Final = 4
"""If an answer takes so many times longer than the quickest one, our requests wait in the broker's queue."""
OVERDUE_LEAST_S: Final = 0.002
WORTHWHILE_BYTES: Final = 1 << 20
"""So much is sent to such a broker at once. Less waits for its next answer, and then goes in fewer requests."""
QUICKEST_GROWTH: Final = 1.01
"""By how much every slower answer raises the quickest time."""


class ProduceLane:
    """Sends to the partitions that one target broker leads."""

    def __init__(
        self,
        broker: BrokerId,
        brokers: Brokers,
        *,
        timeout_ms: int,
        retained_after_ms: Callable[[], int],
        clock: Clock,
        handle: Handler,
        sent: Callable[[CopiedPartition], None],
        problem: LaneProblem,
    ) -> None:
        """Make a lane; ``run`` starts it.

        Args:
            retained_after_ms: returns the oldest record timestamp within producer-state retention
                (docs/broker-facts.md#c1).
            handle: gets every event.
            sent: is called when a batch of a partition was sent, so the partition may be read again.
        """
        self.broker = broker
        self.problem = problem
        self._brokers = brokers
        self._timeout_ms = timeout_ms
        self._retained_after_ms = retained_after_ms
        self._clock = clock
        self._handle = handle
        self._sent = sent
        self._wake = asyncio.Event()
        self._maybe_ready: dict[CopiedPartition, None] = {}
        self._sent_at_s: dict[object, float] = {}
        """When each unanswered request was sent, oldest first."""
        self._quickest_s = 0.0
        self.sent_bytes = 0
        """Batches sent since the start, repeats included."""

    def offer(self, partition: CopiedPartition) -> None:
        """``partition`` may have a batch to send."""
        self._maybe_ready[partition] = None
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled. Cancelling leaves the outcome of what is in flight unknown."""
        async with FirstErrorGroup() as requests:
            while True:
                while self._may_send() and (batches := self._collect()):
                    request = object()
                    self._sent_at_s[request] = self._clock.monotonic()
                    requests.create_task(self._send(request, batches), name=f"produce broker {self.broker}")
                await self._wake.wait()
                self._wake.clear()

    def _may_send(self) -> bool:
        """Whether another request makes anything arrive sooner.

        The story: a broker that has just started takes 25 ms for a request of ten records. Five requests would only
        wait in its queue. Records that wait here meanwhile go in one request, and are answered as soon.
        """
        if len(self._sent_at_s) < REQUESTS_ALWAYS:
            return True
        if len(self._sent_at_s) >= REQUESTS_IN_FLIGHT:
            return False
        oldest_at_s = next(iter(self._sent_at_s.values()))
        if self._clock.monotonic() - oldest_at_s <= max(OVERDUE * self._quickest_s, OVERDUE_LEAST_S):
            return True
        waiting = 0
        for partition in self._maybe_ready:
            waiting += partition.copier.in_flight.ready_bytes
            if waiting >= WORTHWHILE_BYTES:
                return True
        return False

    def _answered(self, request: object, now_s: float) -> None:
        took_s = now_s - self._sent_at_s[request]
        self._quickest_s = min(took_s, self._quickest_s * QUICKEST_GROWTH) if self._quickest_s else took_s

    def _collect(self) -> list[tuple[CopiedPartition, Sending]]:
        """Take and stamp one batch of each partition that may send one, oldest offer first."""
        batches: list[tuple[CopiedPartition, Sending]] = []
        size = 0
        retained_after_ms = self._retained_after_ms()
        again: list[CopiedPartition] = []
        while self._maybe_ready and size < REQUEST_BYTES:
            partition = next(iter(self._maybe_ready))
            del self._maybe_ready[partition]
            if partition.target_leader != self.broker:
                continue
            sending = partition.copier.next_batch(self.broker, retained_after_ms)
            if sending is None:
                if partition.copier.is_too_old_to_resend(retained_after_ms):
                    self._handle(partition, TooOldToResend(self._clock.monotonic()))
                continue
            data = sending.batch.data
            stamp(data, sending.identity.producer_id, sending.identity.epoch, sending.sequence)
            batches.append((partition, sending))
            size += len(data)
            if partition.copier.in_flight.has_batches:
                again.append(partition)
            self._sent(partition)
        self._maybe_ready.update(dict.fromkeys(again))
        return batches

    async def _send(self, sent: object, batches: list[tuple[CopiedPartition, Sending]]) -> None:
        by_topic: dict[tuple[str, uuid.UUID | None], list[PartitionProduce]] = {}
        for part, sending in batches:
            by_topic.setdefault((part.target_topic, part.target_topic_id), []).append(
                PartitionProduce(part.partition, sending.batch.data)
            )
            self.sent_bytes += len(sending.batch.data)
        request = ProduceRequest(
            [TopicProduce(name, topic_id, parts) for (name, topic_id), parts in by_topic.items()], self._timeout_ms
        )
        try:
            reply = await self._brokers.send(self.broker, request, channel="produce")
        except KafkaError as error:
            self.problem.set(str(error))
            now_s = self._clock.monotonic()
            for part, sending in batches:
                self._handle(part, ProduceLost(sending.token, str(error), now_s))
        else:
            self.problem.set(None)
            self._answered(sent, self._clock.monotonic())
            self._settle(batches, reply)
        finally:
            del self._sent_at_s[sent]
            self._wake.set()

    def _settle(self, batches: list[tuple[CopiedPartition, Sending]], reply: ProduceReply) -> None:
        now_s, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        answers = {(answer.topic, answer.partition): answer for answer in reply.partitions}
        for part, (batch, _, _, token, read_at_s) in batches:
            answer = answers.get((part.target_topic, part.partition))
            if answer is None:
                self._handle(part, ProduceLost(token, "the reply leaves this partition out", now_s))
            elif answer.error_code:
                self._handle(part, ProduceRefused(token, answer.error_code, answer.error_message, now_s))
            else:
                self._handle(part, Acked(token, answer.base_offset, now_s))
                part.meter.add(
                    batch.max_timestamp_ms,
                    batch.record_count,
                    len(batch.data),
                    read_at_s=read_at_s,
                    now_s=now_s,
                    now_ms=now_ms,
                )
