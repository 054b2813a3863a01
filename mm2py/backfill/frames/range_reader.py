"""Reads one range of a partition: batches of data in order, exactly once, or an error. Nothing is skipped silently.

The drop rules are those of Kafka's consumer: control batches are dropped, and under ``read_committed`` also batches of
aborted transactions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from mm2py.backfill.frames.ranges import LogRange
from mm2py.copying.planning.steps import DAMAGED_READS_MAX
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError
from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchReply, FetchRequest, PartitionFetch, TopicFetch
from mm2py.records.batch import (
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    AbortedTransactions,
    BatchHeader,
    crc_is_right,
    read_header,
    split,
)
from mm2py.records.varints import CorruptBatch

FETCH_BYTES: Final = 4 << 20
WAIT_MS: Final = 500
PATIENCE_S: Final = 120.0
"""How long a partition may be without a leader that answers."""
EMPTY_READS_MAX: Final = 3
"""How often a leader may answer without records although its log goes on. After that the rest of the range counts as a
hole: cleaning may have removed its records."""
_CHANNEL: Final = "read"


class RecordsGone(Mm2Error):
    """Records of the range do not exist any more: expired, cut back, or of a topic that was recreated."""


class UnreadableBatch(Mm2Error):
    """A batch is damaged, or its codec cannot read it."""


class DataBatch(NamedTuple):
    """A whole batch of data, with a correct checksum; for magic 0 and 1 a message, with no header."""

    header: BatchHeader | None
    data: memoryview


class RangeReader:
    """Reads a range. ``offset`` is the next offset to read."""

    def __init__(self, brokers: Brokers, wanted: LogRange, *, read_committed: bool, rng: random.Random) -> None:
        self.offset = wanted.start
        self._brokers = brokers
        self._range = wanted
        self._name = f"{wanted.topic}-{wanted.partition}"
        self._read_committed = read_committed
        self._backoff = Backoff(rng, first_s=0.05, most_s=2.0)
        self._leader: BrokerId | None = None
        self._leader_epoch = -1
        """Of the batch that was read last. With it a leader detects that its log was cut back since."""
        self._empty_reads = 0
        self._give_up_at_s = float("inf")
        self._damaged_reads = 0

    async def next(self) -> list[DataBatch] | None:
        """Return the next batches that have offsets of the range; None if all were read.

        Batches at the edges of the range may have records outside of it.

        Raises:
            RecordsGone: records of the range do not exist any more.
            UnreadableBatch: a batch was damaged three times.
            KafkaError: the partition cannot be read for two minutes, or not at all.
        Cancelling loses nothing.
        """
        while self.offset < self._range.end:
            part, throttle_ms = await self._fetch()
            found = [*self._data(part)] if len(part.records) else []
            if found:
                self._empty_reads, self._give_up_at_s = 0, float("inf")
                return found
            if not len(part.records):
                self._note_empty(part, throttle_ms)
        return None

    def _note_empty(self, part: FetchedPartition, throttle_ms: int) -> None:
        end = part.last_stable_offset if self._read_committed else part.high_watermark
        now_s = asyncio.get_running_loop().time()
        self._give_up_at_s = min(self._give_up_at_s, now_s + PATIENCE_S)
        if now_s > self._give_up_at_s:
            raise RecordsGone(
                f"{self._name} ends at {end} and was to be read up to {self._range.end}: it was cut back.",
                remedy="Read it again.",
            )
        if throttle_ms or end < self._range.end:
            return  # a quota, or a new leader that does not know yet what is committed
        self._empty_reads += 1
        if self._empty_reads > EMPTY_READS_MAX:
            self.offset = self._range.end

    def _data(self, part: FetchedPartition) -> Iterator[DataBatch]:
        aborted = AbortedTransactions(part.aborted)
        try:
            for batch in split(part.records):
                if batch[MAGIC_AT] < MAGIC:
                    offset = int.from_bytes(batch[:8], "big")
                    self._moved_to(offset + 1, -1)
                    yield DataBatch(None, batch)
                    continue
                header = read_header(batch)
                if header.magic != MAGIC or not crc_is_right(batch):
                    raise CorruptBatch("magic or checksum is wrong")
                dropped = header.is_control
                if header.is_control:
                    aborted.pass_marker(header.last_offset, header.producer_id, batch)
                elif self._read_committed and header.attributes & TRANSACTIONAL:
                    dropped = aborted.covers(header.last_offset, header.producer_id)
                if header.base_offset >= self._range.end:
                    self.offset = self._range.end
                    return
                if header.next_offset <= self.offset:
                    continue
                self._moved_to(header.next_offset, header.partition_leader_epoch)
                if not dropped and header.record_count:
                    yield DataBatch(header, batch)
        except CorruptBatch as error:
            self._damaged_reads += 1
            if self._damaged_reads > DAMAGED_READS_MAX:
                raise UnreadableBatch(
                    f"{self._name} cannot be read at offset {self.offset}: {error.what}",
                    remedy="Look at the batch with kafka-dump-log.sh; endingOffsets and startingOffsets go around it.",
                ) from error

    def _moved_to(self, offset: int, leader_epoch: int) -> None:
        self.offset, self._leader_epoch = offset, leader_epoch
        self._damaged_reads = 0

    async def _fetch(self) -> tuple[FetchedPartition, int]:
        loop = asyncio.get_running_loop()
        give_up_at_s = loop.time() + PATIENCE_S
        while True:
            try:
                reply = await self._ask()
                self._backoff.reset()
                return self._checked(reply), reply.throttle_ms
            except KafkaError as error:
                if not error.retriable or loop.time() > give_up_at_s:
                    raise
                self._leader = None
            await asyncio.sleep(self._backoff.next_s())

    async def _ask(self) -> FetchReply:
        wanted = self._range
        if self._leader is None:
            metadata = await fetch_metadata(self._brokers, [wanted.topic], channel=_CHANNEL)
            topic = metadata.topics.get(wanted.topic)
            if topic is not None and not topic.error_code and topic.topic_id != wanted.topic_id:
                raise RecordsGone(f"{wanted.topic} was recreated during the read.", remedy="Read it again.")
            self._leader = metadata.leader_of(wanted.topic, wanted.partition)
            if self._leader is None:
                raise BrokerRefused(f"Reading {self._name}", LEADER_NOT_AVAILABLE)
        part = PartitionFetch(wanted.partition, self.offset, FETCH_BYTES, last_fetched_epoch=self._leader_epoch)
        request = FetchRequest(
            [TopicFetch(wanted.topic, wanted.topic_id, [part])],
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            read_committed=self._read_committed,
            answer_all=True,
        )
        return await self._brokers.send(self._leader, request, channel=_CHANNEL)

    def _checked(self, reply: FetchReply) -> FetchedPartition:
        code = reply.error_code or (reply.partitions[0].error_code if reply.partitions else LEADER_NOT_AVAILABLE)
        if code == OFFSET_OUT_OF_RANGE:
            part = reply.partitions[0]
            raise RecordsGone(
                f"{self._name} has no offset {self.offset} any more: its log begins at {part.log_start_offset} and"
                f" ends at {part.high_watermark}.",
                remedy="Read again from earliest, or give startingOffsets that exist.",
            )
        if code:
            raise BrokerRefused(f"Reading {self._name}", code)
        part = reply.partitions[0]
        if part.diverging_epoch is not None:
            raise RecordsGone(
                f"{self._name} was cut back to offset {part.diverging_epoch[1]} during the read.",
                remedy="Read it again.",
            )
        return part
