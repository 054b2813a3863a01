"""The writing half of the data source: Spark's tasks write in transactions, and its driver ends these.

Only Spark imports this module, through ``mm2py.backfill.register``: PySpark is an extra.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mm2py.backfill.frames.connecting import connected, open_cluster, settings_of
from mm2py.backfill.frames.ranges import topic_of
from mm2py.backfill.frames.rows import BadRow, batches_of, records_of
from mm2py.backfill.frames.task_transaction import OpenTransaction, TaskTransaction, end
from mm2py.backfill.frames.write_log import NAME, committed_batch, log_partition, log_record, make_log
from mm2py.backfill.frames.write_options import WriteOptions, check_columns
from mm2py.errors import ConfigError, Mm2Error
from mm2py.kafka.cluster import Cluster
from mm2py.records.batch import build_batch

QUERY_ID = "sql.streaming.queryId"
"""Local property of a stream's tasks. It stays the same as long as the stream's checkpoint exists."""
BATCH_ID = "streaming.sql.batchId"
ENDS_AT_ONCE = 20


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """The result that one task sends to the driver."""

    transaction: OpenTransaction | None
    """None: the task had no rows, or they were committed before."""
    records: int


@dataclass(frozen=True)
class _Part:
    """One task of one batch of a write."""

    job: str
    batch: int
    task: int


class _TaskWriter:
    """Writes the rows of one task."""

    def __init__(self, options: WriteOptions, part: _Part, cluster: Cluster, replication_factor: int) -> None:
        self._options = options
        self._part = part
        self._cluster = cluster
        self._replication_factor = replication_factor
        self._topic = options.place.topic
        self._records = 0
        self._partitions = 0
        self._log_partitions = 0
        self._transaction = TaskTransaction(
            cluster,
            f"mm2py-write-{part.job}-{part.task}",
            timeout_ms=options.transaction_timeout_ms,
        )

    async def begin(self) -> bool:
        """Begin the transaction. Return False if the rows were committed before."""
        self._partitions = len((await topic_of(self._cluster, self._topic)).partitions)
        self._log_partitions = await make_log(self._cluster, self._replication_factor)
        await self._transaction.begin()
        return await committed_batch(self._cluster, self._part.job, self._part.task) < self._part.batch

    async def add(self, rows: pa.RecordBatch) -> None:
        """Append rows. Raises: BadRow; as ``TaskTransaction.send``."""
        found = records_of(rows, now_ms=_now_ms())
        outside = [number for number in found if not 0 <= number < self._partitions]
        if outside:
            raise BadRow(
                f"A row is for partition {outside[0]}, and {self._topic} has {self._partitions} partitions.",
                remedy="Correct column partition, or add partitions to the topic.",
            )
        batches = {number: batches_of(records, self._options.codec) for number, records in found.items()}
        await self._transaction.send(self._topic, batches)
        self._records += len(rows)

    async def finish(self) -> TaskWritten:
        """Record in the same transaction that the task was written; the driver commits the transaction."""
        part = self._part
        record = log_record(part.job, part.task, part.batch, records=self._records, now_ms=_now_ms())
        number = log_partition(part.job, part.task, self._log_partitions)
        await self._transaction.send(NAME, {number: [(build_batch([record]), 1)]})
        return TaskWritten(self._transaction.identity, self._records)

    async def abort(self) -> None:
        await self._transaction.abort()


def write_task(options: WriteOptions, part: _Part, rows: Iterator[pa.RecordBatch]) -> TaskWritten:
    """Write the rows of one task.

    Raises: as ``_TaskWriter``; the transaction is aborted then.
    """
    settings = settings_of(options.place)
    with asyncio.Runner() as runner:
        writer: _TaskWriter | None = None
        cluster = open_cluster(settings, options.place.side)
        try:
            for batch in rows:
                if not len(batch):
                    continue
                if writer is None:
                    writer = _TaskWriter(options, part, cluster, settings.offsets_topic_replication_factor)
                    if not runner.run(writer.begin()):
                        return TaskWritten(None, 0)
                runner.run(writer.add(batch))
            return TaskWritten(None, 0) if writer is None else runner.run(writer.finish())
        except BaseException:
            if writer is not None:
                runner.run(writer.abort())
            raise
        finally:
            runner.run(cluster.close())


def end_all(options: WriteOptions, messages: Sequence[TaskWritten | None], *, committed: bool) -> None:
    """End the transactions of all tasks.

    Raises:
        TransactionLost: one could not be committed. The others were ended nevertheless; a rerun writes the missing
            rows.
    """
    open_ones = [one.transaction for one in messages if one is not None and one.transaction is not None]
    errors: list[Mm2Error] = []

    async def run() -> None:
        async with connected(settings_of(options.place), options.place.side) as cluster:
            waiting = iter(open_ones)

            async def take() -> None:
                for one in waiting:
                    try:
                        await end(cluster, one, committed=committed, timeout_ms=options.transaction_timeout_ms)
                    except Mm2Error as error:
                        errors.append(error)

            await asyncio.gather(*(take() for _ in range(min(ENDS_AT_ONCE, len(open_ones)))))

    if open_ones:
        asyncio.run(run())
    if committed and errors:
        raise errors[0]


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: the driver makes one, and its tasks get copies of it."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job = options.job or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See Spark."""
        return write_task(self._options, _Part(self._job, 0, _context().partitionId()), iterator)

    def commit(self, messages: list[Any]) -> None:
        """See Spark."""
        end_all(self._options, messages, committed=True)

    def abort(self, messages: list[Any]) -> None:
        """See Spark."""
        end_all(self._options, messages, committed=False)


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: a batch is identified by its number and by the id of its query, which the checkpoint has."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """See Spark."""
        context = _context()
        job, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if job is None or batch is None:
            raise ConfigError(
                "This stream does not run in micro-batches, so its batches have no number.",
                remedy="Use trigger(processingTime=...) or trigger(availableNow=True).",
            )
        return write_task(self._options, _Part(job, int(batch), context.partitionId()), iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  (Spark's)
        """See Spark."""
        end_all(self._options, messages, committed=True)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  (Spark's)
        """See Spark."""
        end_all(self._options, messages, committed=False)


def check_frame(schema: StructType, *, overwrite: bool) -> None:
    """Check whether a frame can be written. Raises: ConfigError."""
    if overwrite:
        raise ConfigError("A topic cannot be overwritten.", remedy='Use mode("append").')
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields})


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise AssertionError("this runs in a task")
    return context


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
