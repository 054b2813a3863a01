"""Reads an internal topic from its start to its end, or from where the last read ended."""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.rebuild import UNREADABLE
from mm2py.copying.planning.steps import DAMAGED_READS_MAX, Outgoing, Step, TargetRules
from mm2py.copying.reading.beside_loop import beside_loop, planned_by
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import BrokerRefused, Reaction, reaction_to
from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchRequest, PartitionFetch, TopicFetch
from mm2py.records.batch import Record, decoded, read_header, records_in
from mm2py.records.compression import LIGHT_BUDGET, OWN_BUDGET, BatchOverBudget

FETCH_BYTES: Final = 8 << 20
RECORDS_AT_ONCE: Final = 1000
_ANY_SIZE: Final = TargetRules(max_message_bytes=1 << 31)


class DamagedTopic(Mm2Error):
    """An internal topic holds a batch that cannot be read, even after some repetitions."""

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(
            f"{topic}-{partition} cannot be read at offset {offset}: {why}",
            remedy="Look at the record with kafka-dump-log.sh; mm2py does not guess what it said.",
        )


@dataclass(slots=True)
class _PartitionReading:
    """How far one partition was read."""

    offset: int
    damaged_reads: int = 0
    """How often in a row the batch at ``offset`` came damaged. It is read again several times."""


async def read_table(
    brokers: Brokers,
    topic: TopicMetadata,
    take: Callable[[bytes | None, bytes | None], None],
    read_to: dict[int, int] | None = None,
) -> int:
    """Pass every committed record of ``topic`` to ``take`` (key, value), each partition in order.

    Args:
        topic: fresh metadata; every partition needs a leader.
        read_to: how far each partition was read, by number; others are read from their start. It is updated during the
            read, so that after an error no record is passed on twice, and none is lost by cancelling.
    Returns:
        How many records there were, up to the end at the time when each partition was first read.
    Raises:
        BrokerRefused: a partition has no leader, or the broker refuses to let us read.
        DamagedTopic: a batch cannot be read.
        BrokerUnreachable, RequestTimedOut: as ``Brokers.send``.
    """
    count = 0
    async for record in each_record(brokers, topic, read_to):
        take(record.key, record.value)
        count += 1
    return count


class TopicTable(ABC):
    """A table that follows an internal topic. A topic that was recreated or cut back is read again from its start."""

    def __init__(self) -> None:
        self._topic_id: uuid.UUID | None = None
        self._read_to: dict[int, int] = {}

    async def _follow(self, brokers: Brokers, topic: TopicMetadata) -> None:
        """Read what was stored since the last call. Arguments and errors: see ``read_table``."""
        if topic.topic_id != self._topic_id:
            self._start_again(topic)
        try:
            await self._read(brokers, topic)
        except BrokerRefused as error:
            if error.code == OFFSET_OUT_OF_RANGE:  # it was cut back
                self._start_again(topic)
            raise

    async def _read(self, brokers: Brokers, topic: TopicMetadata) -> None:
        await read_table(brokers, topic, self._take, self._read_to)

    def _start_again(self, topic: TopicMetadata) -> None:
        self._forget()
        self._topic_id = topic.topic_id

    def _forget(self) -> None:
        self._topic_id = None
        self._read_to.clear()
        self._clear()

    @abstractmethod
    def _clear(self) -> None:
        """Forget what was taken."""

    @abstractmethod
    def _take(self, key: bytes | None, value: bytes | None) -> None:
        """Take the next record of a partition."""


async def each_record(
    brokers: Brokers,
    topic: TopicMetadata,
    read_to: dict[int, int] | None = None,
    *,
    read_committed: bool = True,
    fetch_bytes: int = FETCH_BYTES,
) -> AsyncIterator[Record]:
    """Yield every committed record of ``topic``, each partition in order. Arguments and errors: ``read_table``.

    One fetch, one batch and one record at a time is in memory. Other tasks run after every thousand records: a fetch
    may bring a million, and heartbeats must not wait for all. Heavy batches are decoded beside the event loop.

    Args:
        read_committed: False: also records of transactions that are open, or were aborted.
        fetch_bytes: what one fetch may bring; less for a caller that stops after a few records.
    """
    async for _, record in each_placed_record(
        brokers, topic, read_to, read_committed=read_committed, fetch_bytes=fetch_bytes
    ):
        yield record


async def each_placed_record(
    brokers: Brokers,
    topic: TopicMetadata,
    read_to: dict[int, int] | None = None,
    *,
    read_committed: bool = True,
    fetch_bytes: int = FETCH_BYTES,
) -> AsyncIterator[tuple[int, Record]]:
    """Yield what ``each_record`` does, each record with the number of its partition."""
    read_to = {} if read_to is None else read_to
    count = 0
    by_leader: dict[BrokerId, dict[int, _PartitionReading]] = {}
    for number, partition in topic.partitions.items():
        if partition.leader is None:
            code = partition.error_code or LEADER_NOT_AVAILABLE
            raise BrokerRefused(f"Reading {topic.name}-{number}", code)
        by_leader.setdefault(partition.leader, {})[number] = _PartitionReading(read_to.get(number, 0))
    for leader, readings in by_leader.items():
        while readings:
            request = _request(topic, readings, read_committed=read_committed, fetch_bytes=fetch_bytes)
            for part in await _fetch(brokers, leader, request, readings):
                number = part.partition
                for step in await _steps_of(topic, part, readings, read_committed=read_committed):
                    records = await _records_of(topic, number, step) if isinstance(step, Outgoing) else ()
                    read_to[number] = step.next_offset
                    for record in records:
                        count += 1
                        if count % RECORDS_AT_ONCE == 0:
                            read_to[number] = record.offset
                            await asyncio.sleep(0)
                            read_to[number] = step.next_offset
                        yield number, record


async def _records_of(topic: TopicMetadata, number: int, step: Outgoing) -> Iterator[Record]:
    header = read_header(step.data)
    try:
        try:
            body = decoded(header, step.data, LIGHT_BUDGET)
        except BatchOverBudget:
            body = await beside_loop(decoded, header, step.data, OWN_BUDGET)
    except UNREADABLE as error:
        raise DamagedTopic(topic.name, number, step.first_offset, error.what) from error
    return _placed(topic, number, step, records_in(header, body, OWN_BUDGET))


def _placed(topic: TopicMetadata, number: int, step: Outgoing, records: Iterator[Record]) -> Iterator[Record]:
    """Yield the records of a batch, each with its offset in the topic. In a rebuilt batch offsets begin at 0."""
    try:
        if step.reason is None:
            yield from records
            return
        jumps, offset = dict(step.runs()), step.first_offset
        for index, record in enumerate(records):
            offset = jumps.get(index, offset)
            yield record._replace(offset=offset)
            offset += 1
    except UNREADABLE as error:
        raise DamagedTopic(topic.name, number, step.first_offset, error.what) from error


def _request(
    topic: TopicMetadata, readings: dict[int, _PartitionReading], *, read_committed: bool, fetch_bytes: int
) -> FetchRequest:
    wanted = [PartitionFetch(number, reading.offset, fetch_bytes) for number, reading in readings.items()]
    return FetchRequest(
        [TopicFetch(topic.name, topic.topic_id, wanted)],
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=fetch_bytes,
        read_committed=read_committed,
        answer_all=True,
    )


async def _fetch(
    brokers: Brokers, leader: BrokerId, request: FetchRequest, readings: dict[int, _PartitionReading]
) -> list[FetchedPartition]:
    reply = await brokers.send(leader, request, channel="table")
    if reply.error_code:
        raise BrokerRefused(f"Reading {request.topics[0].name}", reply.error_code)
    # rotate, so that a partition with large batches cannot starve the others
    first = next(iter(readings))
    readings[first] = readings.pop(first)
    return list(reply.partitions)


async def _steps_of(
    topic: TopicMetadata, part: FetchedPartition, readings: dict[int, _PartitionReading], *, read_committed: bool
) -> list[Step]:
    """Return the batches of one answer. A partition that is read to its end leaves ``readings``."""
    number, reading = part.partition, readings[part.partition]
    if part.error_code == OFFSET_OUT_OF_RANGE and part.log_start_offset > reading.offset:
        reading.offset = part.log_start_offset
        return []
    if part.error_code:
        remedy = f"mm2py needs READ on {topic.name}." if reaction_to(part.error_code) is Reaction.DENIED else ""
        raise BrokerRefused(f"Reading {topic.name}-{number}", part.error_code, remedy=remedy)
    make = partial(
        plan,
        part.records,
        wanted_offset=reading.offset,
        read_committed=read_committed,
        aborted=part.aborted,
        rules=_ANY_SIZE,
    )
    planned = await planned_by(make)
    if planned.steps:
        reading.damaged_reads = 0
    fault = planned.fault
    if fault is not None:
        reading.damaged_reads += 1
        if not fault.is_damage or reading.damaged_reads > DAMAGED_READS_MAX:
            raise DamagedTopic(topic.name, number, fault.offset, fault.text)
    reading.offset = planned.next_offset
    if planned.next_offset >= (part.last_stable_offset if read_committed else part.high_watermark):
        del readings[number]
    return planned.steps
