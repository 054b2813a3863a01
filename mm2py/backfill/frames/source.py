"""The data source and its reading half: the driver plans ranges, and Spark's tasks read them.

Only Spark imports this module, through ``mm2py.backfill.register``: PySpark is an extra.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator, MutableMapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from mm2py.backfill.frames.columns import CHUNK_BYTES, BatchChunk, Layout, RecordChunk, layout_of
from mm2py.backfill.frames.connecting import ask, open_cluster, pairing_of, settings_of
from mm2py.backfill.frames.options import (
    LATEST,
    OffsetColumns,
    ReadBound,
    ReadOptions,
    read_options,
)
from mm2py.backfill.frames.pruning import Pruning
from mm2py.backfill.frames.range_reader import RangeReader, RecordsGone
from mm2py.backfill.frames.ranges import LogRange, cut, find_offsets, find_ranges, limited, topic_of, wanted_partitions
from mm2py.backfill.frames.sink import BatchWriter, StreamWriter, check_frame
from mm2py.backfill.frames.write_options import write_options
from mm2py.errors import ConfigError
from mm2py.kafka.port import Brokers

FORMAT: Final = "mm2py"
_TOPIC_ID: Final = "topic_id"


class RangePartition(InputPartition):
    """The work of one task."""

    def __init__(self, value: LogRange | None) -> None:
        super().__init__(value)


def read_range(options: ReadOptions, wanted: LogRange) -> Iterator[pa.RecordBatch]:
    """Yield the records or batches of a range, a chunk of columns at a time.

    Raises: as ``RangeReader.next`` and ``RecordChunk.add``.
    """
    settings = settings_of(options.place)
    with asyncio.Runner() as runner:
        pairing = None
        if options.offset_columns is OffsetColumns.BOTH:
            pairing = runner.run(pairing_of(options.place, settings, wanted))
        chunk = BatchChunk(wanted, pairing) if options.batches else RecordChunk(wanted, pairing)
        cluster = open_cluster(settings, options.place.side)
        try:
            rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
            reader = RangeReader(cluster, wanted, read_committed=options.read_committed, rng=rng)
            while (batches := runner.run(reader.next())) is not None:
                for batch in batches:
                    chunk.add(batch)
                    if chunk.size_bytes >= CHUNK_BYTES and (columns := chunk.take()) is not None:
                        yield columns
                if (columns := chunk.take()) is not None:
                    yield columns
        finally:
            runner.run(cluster.close())


class BatchReader(DataSourceReader):
    """``spark.read``: ranges are planned once, on the driver."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pruning = Pruning()

    def partitions(self) -> Sequence[InputPartition]:
        """See Spark. To Spark an empty list means one task that reads all. So without ranges there is one None."""
        options = self._options
        ranges = ask(options.place, lambda brokers: _planned(brokers, options, self._pruning))
        return [RangePartition(one) for one in cut(ranges, options.min_partitions)] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See Spark."""
        if partition.value is not None:
            yield from read_range(self._options, partition.value)


async def _planned(brokers: Brokers, options: ReadOptions, pruning: Pruning) -> list[LogRange]:
    ranges = await find_ranges(brokers, options)
    since_ms = pruning.since_ms
    if since_ms is not None and ranges:
        topic = await topic_of(brokers, options.place.topic)
        numbers = [one.partition for one in ranges]
        bound = ReadBound(LATEST, timestamp_ms=since_ms)
        starts = await find_offsets(brokers, topic, numbers, bound, read_committed=options.read_committed)
        ranges = pruning.begun(ranges, starts)
    return pruning.pruned(ranges)


class PruningReader(BatchReader):
    """A ``BatchReader`` that uses conditions of WHERE: Spark allows this only if its setting for it is on."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802  (Spark's)
        """See Spark. All conditions are returned, so Spark applies them too. Here they only rule ranges out."""
        for one in filters:
            operator = _OPERATORS.get(type(one))
            if operator is not None and len(one.attribute) == 1:
                self._pruning.note(one.attribute[0], operator, _value(one.value))
        return filters


_OPERATORS: Final = {
    EqualTo: "=",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def _value(value: Any) -> Any:
    return int(value.timestamp() * 1000) if isinstance(value, datetime) else value


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``; its offsets are ``{"topic_id": ..., "0": 5, ...}``: by partition the next one to read."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._available: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's)
        """See Spark."""
        return ask(self._options.place, lambda brokers: self._offsets(brokers, self._options.starting))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (Spark's)
        """See Spark."""
        end = self._available or self._end()
        if start[_TOPIC_ID] != end[_TOPIC_ID]:
            raise RecordsGone(
                f"{self._options.place.topic} was recreated: its records are others than those that were read.",
                remedy="Start the query again with another checkpointLocation.",
            )
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return {_TOPIC_ID: start[_TOPIC_ID], **_texts(limited(_numbers(start), _numbers(end), most))}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's)
        """See Spark."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's)
        """See Spark."""
        return self._end()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's)
        """See Spark."""
        self._available = self._end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See Spark. The same offsets always give the same tasks: a writer identifies tasks by their numbers."""
        topic_id = _topic_id(end[_TOPIC_ID])
        starts, ends = _numbers(start), _numbers(end)
        return [
            RangePartition(LogRange(self._options.place.topic, topic_id, number, starts.get(number, 0), ends[number]))
            for number in sorted(ends)
            if starts.get(number, 0) < ends[number]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See Spark."""
        yield from read_range(self._options, partition.value)

    def _end(self) -> dict[str, Any]:
        return ask(self._options.place, lambda brokers: self._offsets(brokers, ReadBound(LATEST)))

    async def _offsets(self, brokers: Brokers, bound: ReadBound) -> dict[str, Any]:
        options = self._options
        topic = await topic_of(brokers, options.place.topic)
        numbers = wanted_partitions(topic, options)
        found = await find_offsets(brokers, topic, numbers, bound, read_committed=options.read_committed)
        return {_TOPIC_ID: str(topic.topic_id or ""), **_texts(found)}


def _topic_id(text: str) -> uuid.UUID | None:
    return uuid.UUID(text) if text else None


def _texts(offsets: dict[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in offsets.items()}


def _numbers(offsets: dict[str, Any]) -> dict[int, int]:
    return {int(name): offset for name, offset in offsets.items() if name != _TOPIC_ID}


class SparkTopicSource(DataSource):
    """``format("mm2py")``: the data source that Spark makes for each DataFrame, with its options."""

    reader_class: ClassVar[type[BatchReader]] = BatchReader

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """See Spark."""
        return FORMAT

    def schema(self) -> str:
        """See Spark."""
        return self._layout().ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """See Spark."""
        options = read_options(self._given, is_stream=False)
        self._check(schema)
        return self.reader_class(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's)
        """See Spark."""
        options = read_options(self._given, is_stream=True)
        self._check(schema)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See Spark."""
        options = write_options(self._given, is_stream=False)
        check_frame(schema, overwrite=overwrite)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's)
        """See Spark."""
        options = write_options(self._given, is_stream=True)
        check_frame(schema, overwrite=overwrite)
        return StreamWriter(options)

    def _layout(self) -> Layout:
        given = {name.lower(): value.lower() for name, value in self._given.items()}
        offsets = OffsetColumns.BOTH if given.get("offsets") == OffsetColumns.BOTH else OffsetColumns.OWN
        return layout_of(batches=given.get("batches") == "true", offsets=offsets)

    def _check(self, schema: StructType) -> None:
        if [field.name for field in schema.fields] != self._layout().schema.names:
            raise ConfigError("The columns of format mm2py are fixed.", remedy="Leave out .schema(...), and select.")


class PruningTopicSource(SparkTopicSource):
    """The data source for sessions in which ``spark.sql.python.filterPushdown.enabled`` is true."""

    reader_class = PruningReader
