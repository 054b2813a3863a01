"""The log of writes: which tasks were committed. It is ``mm2-spark-writes.internal`` on the cluster written to.

A task's transaction ends with one record in this topic: key (job, task), value the number of the batch. So that record
and the task's rows are committed or aborted together.

The story that reading must survive: a driver dies after it has committed the second task of a batch, and not the first.
Both wrote to one partition of this topic. The batch runs again. The transaction of the first task is still open, so a
reader of committed records would stop before the record of the second task, and write its rows again. Hence the log is
read to its very end, and the markers that follow a record say whether it was committed.
"""

from __future__ import annotations

import asyncio
import json
import uuid
import zlib
from typing import Final

from mm2py.backfill.frames.patience import answered
from mm2py.backfill.frames.ranges import topic_of
from mm2py.errors import Mm2Error
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.internal_topic import find_or_make
from mm2py.kafka.list_offsets import EARLIEST, LATEST, end_of
from mm2py.kafka.port import BrokerId, Brokers, FetchRequest, PartitionFetch, TopicFetch
from mm2py.records.batch import ABORT, TRANSACTIONAL, NewRecord, control_type, read_header, read_records, split
from mm2py.topics.names import spark_writes_topic

NAME: Final = str(spark_writes_topic().name)
FETCH_BYTES: Final = 4 << 20
MARKER_PATIENCE_S: Final = 20.0
"""How long to wait for the marker of an ended transaction."""


class WriteUndecided(Mm2Error):
    """It is not known whether a task was committed before."""


def log_key(job: str, task: int) -> bytes:
    """Return the key of a task's records."""
    return json.dumps([job, task]).encode()


def log_record(job: str, task: int, batch: int, *, records: int, now_ms: int) -> NewRecord:
    """Return the record which says that a task wrote this many records in a batch."""
    return NewRecord(log_key(job, task), json.dumps({"batch": batch, "records": records}).encode(), now_ms)


def log_partition(job: str, task: int, partitions: int) -> int:
    """Return the partition that has the records of a task."""
    return zlib.crc32(log_key(job, task)) % partitions


class _LogView:
    """One partition of the log as far as it was read."""

    def __init__(self) -> None:
        self.next_offset = -1
        self.committed: dict[bytes, int] = {}
        """The newest batch of each key."""
        self.pending: dict[int, list[tuple[bytes, int]]] = {}
        """By producer id the keys and batches that have no marker yet."""

    def take(self, batch: memoryview) -> None:
        header = read_header(batch)
        if header.next_offset <= self.next_offset:
            return
        self.next_offset = header.next_offset
        if header.is_control:
            pending = self.pending.pop(header.producer_id, [])
            if control_type(batch) != ABORT:
                for key, number in pending:
                    self.committed[key] = max(number, self.committed.get(key, -1))
        elif header.attributes & TRANSACTIONAL:
            for record in read_records(batch):
                if record.key is not None and record.value is not None:
                    number = int(json.loads(record.value)["batch"])
                    self.pending.setdefault(header.producer_id, []).append((record.key, number))

    def is_pending(self, key: bytes) -> bool:
        return any(key == other for entries in self.pending.values() for other, _ in entries)


_views: dict[tuple[str | None, int], _LogView] = {}
"""What this process has read, by topic id and partition. Spark uses its Python processes for several batches."""


async def make_log(brokers: Brokers, replication_factor: int) -> int:
    """Make the topic if it is missing. Return how many partitions it has. Raises: TopicNotMade, KafkaError."""
    topic = await answered(
        lambda: find_or_make(
            brokers, spark_writes_topic(), replication_factor, setting="offset.storage.replication.factor"
        )
    )
    return len(topic.partitions)


async def committed_batch(brokers: Brokers, job: str, task: int) -> int:
    """Return the newest batch of which the task's rows were committed; -1: none.

    Call it when no earlier attempt of the task can commit any more: after its transactional id was initialised again.
    The topic may be new: brokers that do not know its leader yet are asked again.

    Raises:
        WriteUndecided: a record of the task has no marker although its transaction has ended.
        BrokerRefused, KafkaError: the log cannot be read.
    """
    return await answered(lambda: _committed_batch(brokers, job, task))


async def _committed_batch(brokers: Brokers, job: str, task: int) -> int:
    topic = await topic_of(brokers, NAME)
    number = log_partition(job, task, len(topic.partitions))
    leader = topic.partitions[number].leader
    if leader is None:
        raise BrokerRefused(f"Reading {NAME}-{number}", topic.partitions[number].error_code or LEADER_NOT_AVAILABLE)
    view = _views.setdefault((str(topic.topic_id), number), _LogView())
    loop = asyncio.get_running_loop()
    give_up_at_s = loop.time() + MARKER_PATIENCE_S
    while True:
        await _follow(brokers, leader, topic.topic_id, number, view)
        if not view.is_pending(log_key(job, task)):
            return view.committed.get(log_key(job, task), -1)
        if loop.time() > give_up_at_s:
            raise WriteUndecided(
                f"The last record of task {task} of {job} in {NAME}-{number} is neither committed nor aborted.",
                remedy="Run the job again when all partitions have a leader.",
            )
        await asyncio.sleep(0.1)


async def _follow(brokers: Brokers, leader: BrokerId, topic_id: uuid.UUID | None, number: int, view: _LogView) -> None:
    """Read the leader's log into the view, committed or not."""
    end = await end_of(brokers, leader, (NAME, number), LATEST)
    if view.next_offset < 0:
        view.next_offset = await end_of(brokers, leader, (NAME, number), EARLIEST)
    while view.next_offset < end:
        part = PartitionFetch(number, view.next_offset, FETCH_BYTES)
        request = FetchRequest(
            [TopicFetch(NAME, topic_id, [part])],
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            read_committed=False,
            answer_all=True,
        )
        reply = await brokers.send(leader, request, channel="write-log")
        code = reply.error_code or reply.partitions[0].error_code
        if code:
            raise BrokerRefused(f"Reading {NAME}-{number}", code)
        if not len(reply.partitions[0].records):
            if reply.throttle_ms:
                continue
            return  # the following offsets were cleaned
        for batch in split(reply.partitions[0].records):
            view.take(batch)
