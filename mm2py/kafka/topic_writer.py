"""Writes our own records (positions, records in quarantine) to a topic, under the first producer id of the flow.

One batch of a partition is in flight at a time, so records of one partition never change their order; a batch is sent
again under the same sequence until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import FENCED, INVALID_TIMESTAMP, PRODUCER_STATE_LOST, UNKNOWN_TOPIC_OR_PARTITION, name_of
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import BrokerId, Brokers, PartitionProduce, ProduceRequest, ProducerIdentity, TopicProduce
from mm2py.kafka.producer.incarnation import Fenced, Incarnation
from mm2py.kafka.retry import Backoff, Reaction, reaction_to
from mm2py.records.batch import NewRecord, build_batch, next_sequence, stamp

BATCH_RECORDS: Final = 500
"""At about half a kilobyte a position, well below any broker's default ``max.message.bytes``."""
CLOCK_REMEDY: Final = (
    "The clocks of this machine and of the target's brokers differ by more than the topic takes"
    " (message.timestamp.after.max.ms, an hour by default): set them right."
)


class TopicWriter:
    """Appends records to partitions of one topic; ``write`` returns when all are acknowledged."""

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        incarnation: Incarnation,
        *,
        rng: random.Random,
        timeout_ms: int,
        remedy: str | None = None,
        channel: str = "positions",
        waits_for_topic: bool = True,
    ) -> None:
        """Make one.

        Args:
            remedy: what an operator can do where the target refuses for good.
            waits_for_topic: whether a write waits for a topic that was deleted; else it is refused.
        """
        self.topic = topic
        self.is_missing = False
        """There was no such topic at the last look: a write waits until it is back."""
        self.times_made_anew = 0
        """How often it was deleted and created again: what was written before is gone."""
        self.trouble: dict[int, str] = {}
        """By partition, why the last attempt to write failed; a success removes it."""
        self._topic_id: uuid.UUID | None = None
        self._brokers = brokers
        self._incarnation = incarnation
        self._rng = rng
        self._timeout_ms = timeout_ms
        self._remedy = remedy or f"mm2py needs WRITE on {topic}."
        self._channel = channel
        self._waits_for_topic = waits_for_topic
        self._leaders: dict[int, BrokerId | None] = {}
        self._sequences: dict[int, tuple[ProducerIdentity, int]] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._left: dict[int, Sequence[NewRecord]] = {}
        """Records of a write that was cancelled or not answered. They may be stored, so they go first again."""

    async def write(self, records: Mapping[int, Sequence[NewRecord]]) -> None:
        """Append records to their partitions; keeps trying while the target cannot take them.

        Raises:
            Fenced: another process has taken over; nothing more may be written.
            BrokerRefused: the target refuses for good; records of other partitions may have been written.
        Cancelling may leave any of them written or not. The next write first sends again what was under way.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for partition, ours in records.items():
                    tasks.create_task(self._write_partition(partition, ours), name=f"{self.topic}-{partition} write")
        except ExceptionGroup as group:  # every partition has the same reason: the first one will do
            raise group.exceptions[0] from None

    async def _write_partition(self, partition: int, records: Sequence[NewRecord]) -> None:
        async with self._locks.setdefault(partition, asyncio.Lock()):
            left = self._left.get(partition)
            for chunk in [*([] if left is None else [left]), *_chunks(records)]:
                try:
                    await self._write_batch(partition, chunk)
                except asyncio.CancelledError:
                    self._left[partition] = chunk
                    raise

    async def _write_batch(self, partition: int, records: Sequence[NewRecord]) -> None:
        batch = build_batch(records)
        backoff = Backoff(self._rng, most_s=2.0)
        outcome_unknown = False
        while True:
            identity, sequence = self._sequences.get(partition, (self._incarnation.identity, 0))
            stamp(batch, identity.producer_id, identity.epoch, sequence)
            code, text = await self._send(partition, batch)
            if code == 0:
                self.trouble.pop(partition, None)
                self._left.pop(partition, None)
                self._sequences[partition] = (identity, next_sequence(sequence, len(records)))
                return
            if code is not None:
                self.trouble[partition] = f"the target answers {name_of(code)} ({code})"
            outcome_unknown |= code is None and not self.is_missing  # it may be stored, and its sequence be taken
            if outcome_unknown:
                self._left[partition] = records
            if code is None and self.is_missing and not (self._waits_for_topic or outcome_unknown):
                raise BrokerRefused(
                    f"Writing to {self.topic}-{partition}", UNKNOWN_TOPIC_OR_PARTITION, remedy=self._remedy
                )
            if code in FENCED:
                raise Fenced(identity.transactional_id)
            if code in PRODUCER_STATE_LOST:
                self._sequences[partition] = (await self._incarnation.renew(identity), 0)
            elif code is not None and reaction_to(code) in {Reaction.FAIL, Reaction.DENIED}:
                raise BrokerRefused(
                    f"Writing to {self.topic}-{partition}",
                    code,
                    message=text,
                    remedy=CLOCK_REMEDY if code == INVALID_TIMESTAMP else self._remedy,
                )
            await asyncio.sleep(backoff.next_s())

    async def _send(self, partition: int, batch: bytearray) -> tuple[int | None, str | None]:
        """Return the answer's code and message; None when there was no answer."""
        try:
            leader = self._leaders.get(partition)
            if leader is None:
                metadata = await fetch_metadata(self._brokers, [self.topic])
                topic = metadata.topics.get(self.topic)
                self._leaders = {} if topic is None else {no: part.leader for no, part in topic.partitions.items()}
                self.is_missing = topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
                if topic is not None and topic.topic_id is not None and not topic.error_code:
                    self.times_made_anew += self._topic_id not in {None, topic.topic_id}
                    self._topic_id = topic.topic_id
                leader = self._leaders.get(partition)
                if leader is None:
                    self.trouble[partition] = "it has no leader"
                    return None, None
            request = ProduceRequest(
                [TopicProduce(self.topic, None, [PartitionProduce(partition, batch)])], timeout_ms=self._timeout_ms
            )
            reply = await self._brokers.send(leader, request, channel=self._channel)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._leaders.pop(partition, None)
            self.trouble[partition] = str(error)
            return None, None
        answer = reply.partitions[0]
        if answer.error_code and reaction_to(answer.error_code) is Reaction.REFRESH:
            self._leaders.pop(partition, None)
        return answer.error_code, answer.error_message


def _chunks(records: Sequence[NewRecord]) -> Iterator[Sequence[NewRecord]]:
    for at in range(0, len(records), BATCH_RECORDS):
        yield records[at : at + BATCH_RECORDS]
