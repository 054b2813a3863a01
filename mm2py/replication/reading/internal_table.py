"""An internal topic read from its start to its end, or read on from where the last read ended."""

from __future__ import annotations

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import BrokerRefused, Reaction, reaction_to
from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchRequest, PartitionFetch, TopicFetch
from mm2py.records.batch import Record, read_records
from mm2py.replication.planning.planner import plan
from mm2py.replication.planning.steps import DAMAGED_READS_MAX, Outgoing, TargetRules

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
class _Reading:
    """The state of reading one partition."""

    offset: int
    damaged_reads: int = 0
    """How often in a row the batch at ``offset`` came damaged. It is read again several times."""


async def read_table(
    brokers: Brokers,
    topic: TopicMetadata,
    take: Callable[[bytes | None, bytes | None], None],
    read_to: dict[int, int] | None = None,
    *,
    pauses: bool = False,
) -> int:
    """Pass every committed record of ``topic`` to ``take`` (key, value), each partition in order.

    Args:
        topic: fresh metadata; every partition needs a leader.
        read_to: how far each partition was read, by number; others are read from their start. It is updated during the
            read, so that after an error no record is passed on twice.
        pauses: other tasks run after every thousand records. A fetch may bring a hundred thousand, and heartbeats must
            not wait for all. Cancelled in a pause, records of that fetch are lost: ``read_to`` must not be used again.
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
        if pauses and count % RECORDS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return count


class TopicTable(ABC):
    """A table that follows an internal topic. A topic that was recreated or cut back is read again from its start."""

    def __init__(self) -> None:
        self._topic_id: uuid.UUID | None = None
        self._read_to: dict[int, int] = {}

    async def _follow(self, brokers: Brokers, topic: TopicMetadata, *, pauses: bool = False) -> None:
        """Take in what was stored since the last call. Arguments and errors are as of ``read_table``."""
        if topic.topic_id != self._topic_id:
            self._start_again(topic)
        try:
            await self._read(brokers, topic, pauses=pauses)
        except BrokerRefused as error:
            if error.code == OFFSET_OUT_OF_RANGE:  # it was cut back
                self._start_again(topic)
            raise

    async def _read(self, brokers: Brokers, topic: TopicMetadata, *, pauses: bool) -> None:
        await read_table(brokers, topic, self._take, self._read_to, pauses=pauses)

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
    brokers: Brokers, topic: TopicMetadata, read_to: dict[int, int] | None = None
) -> AsyncIterator[Record]:
    """Yield every committed record of ``topic``, each partition in order. Arguments and errors: ``read_table``.

    One fetch at a time is in memory.
    """
    async for _, record in each_placed_record(brokers, topic, read_to):
        yield record


async def each_placed_record(
    brokers: Brokers, topic: TopicMetadata, read_to: dict[int, int] | None = None
) -> AsyncIterator[tuple[int, Record]]:
    """As ``each_record``, each with the number of its partition."""
    read_to = {} if read_to is None else read_to
    by_leader: dict[BrokerId, dict[int, _Reading]] = {}
    for number, partition in topic.partitions.items():
        if partition.leader is None:
            code = partition.error_code or LEADER_NOT_AVAILABLE
            raise BrokerRefused(f"Reading {topic.name}-{number}", code)
        by_leader.setdefault(partition.leader, {})[number] = _Reading(read_to.get(number, 0))
    for leader, readings in by_leader.items():
        while readings:
            for part in await _fetch(brokers, leader, topic, readings):
                for step in _steps_of(topic, part, readings, read_to):
                    for record in _records_of(step):
                        yield part.partition, record


def _records_of(step: Outgoing) -> Iterator[Record]:
    """Yield the records of a batch, each with its offset. A batch that was rebuilt begins at 0 itself."""
    records = read_records(step.data)
    if step.reason is None:
        yield from records
        return
    jumps, offset = dict(step.runs()), step.first_offset
    for index, record in enumerate(records):
        offset = jumps.get(index, offset)
        yield record._replace(offset=offset)
        offset += 1


async def _fetch(
    brokers: Brokers, leader: BrokerId, topic: TopicMetadata, readings: dict[int, _Reading]
) -> list[FetchedPartition]:
    wanted = [PartitionFetch(number, reading.offset, FETCH_BYTES) for number, reading in readings.items()]
    request = FetchRequest(
        [TopicFetch(topic.name, topic.topic_id, wanted)],
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        read_committed=True,
        answer_all=True,
    )
    reply = await brokers.send(leader, request, channel="table")
    if reply.error_code:
        raise BrokerRefused(f"Reading {topic.name}", reply.error_code)
    # rotate, so that a partition with large batches cannot starve the others
    first = next(iter(readings))
    readings[first] = readings.pop(first)
    return list(reply.partitions)


def _steps_of(
    topic: TopicMetadata, part: FetchedPartition, readings: dict[int, _Reading], read_to: dict[int, int]
) -> list[Outgoing]:
    """Return the batches of one answer. A partition that is read to its end leaves ``readings``."""
    number, reading = part.partition, readings[part.partition]
    if part.error_code == OFFSET_OUT_OF_RANGE and part.log_start_offset > reading.offset:
        reading.offset = part.log_start_offset
        return []
    if part.error_code:
        remedy = f"mm2py needs READ on {topic.name}." if reaction_to(part.error_code) is Reaction.DENIED else ""
        raise BrokerRefused(f"Reading {topic.name}-{number}", part.error_code, remedy=remedy)
    planned = plan(
        part.records,
        wanted_offset=reading.offset,
        read_committed=True,
        aborted=part.aborted,
        rules=_ANY_SIZE,
    )
    if planned.steps:
        reading.damaged_reads = 0
    fault = planned.fault
    if fault is not None:
        reading.damaged_reads += 1
        if not fault.is_damage or reading.damaged_reads > DAMAGED_READS_MAX:
            raise DamagedTopic(topic.name, number, fault.offset, fault.text)
    reading.offset = read_to[number] = planned.next_offset
    if planned.next_offset >= part.last_stable_offset:
        del readings[number]
    return [step for step in planned.steps if isinstance(step, Outgoing)]
