"""The data source that a filtered backfill reads: one task a partition, in the order of offsets.

Only Spark imports this module. Unlike ``format("mm2py")`` this source gets the exact ranges, and prunes nothing: the
number of a task says which partition it has. Each task begins at the stored position of its partition, so a second
attempt does not read months of history again.
"""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mm2py.backfill.flow_survey import BackfillSurvey
from mm2py.backfill.frames.columns import CHUNK_BYTES, RECORD_COLUMNS, RecordChunk
from mm2py.backfill.frames.connecting import connected, open_cluster, settings_of
from mm2py.backfill.frames.options import ClusterSide, TopicPlace
from mm2py.backfill.frames.range_reader import RangeReader
from mm2py.backfill.frames.ranges import LogRange
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.limits import RateLimit
from mm2py.flow import parse_flow
from mm2py.kafka.cluster import Cluster

FORMAT: Final = "mm2py-history"


def options_of(
    file: str, flow: str, ranges: Sequence[LogRange], *, read_committed: bool, bytes_per_second: int | None
) -> dict[str, str]:
    """Return the options of the data source. None of them is a secret.

    Args:
        file: the settings file, as it is found on every executor.
        ranges: of each task, in order.
        bytes_per_second: the most that one task reads; None: no limit.
    """
    tasks = [[one.topic, str(one.topic_id or ""), one.partition, one.start, one.end] for one in ranges]
    return {
        "file": file,
        "flow": flow,
        "ranges": json.dumps(tasks),
        "committed": str(read_committed).lower(),
        "bytesPerSecond": str(bytes_per_second or ""),
    }


class HistorySource(DataSource):
    """``format("mm2py-history")``; its options are those of ``options_of``."""

    @classmethod
    def name(cls) -> str:
        """See Spark."""
        return FORMAT

    def schema(self) -> str:
        """See Spark."""
        return RECORD_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """See Spark."""
        given: MutableMapping[str, str] = {name.lower(): value for name, value in self.options.items()}
        return HistoryReader(given)


class HistoryReader(DataSourceReader):
    """Reads the ranges; no condition is pushed down to it."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)

    def partitions(self) -> Sequence[InputPartition]:
        """See Spark."""
        found = []
        for topic, topic_id, partition, start, end in json.loads(self._given["ranges"]):
            found.append(LogRange(topic, uuid.UUID(topic_id) if topic_id else None, partition, start, end))
        return [InputPartition(one) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See Spark. Raises: as ``RangeReader.next`` and ``RecordChunk.add``."""
        wanted: LogRange = partition.value
        flow = parse_flow(self._given["flow"])
        settings = settings_of(TopicPlace(self._given["file"], flow, ClusterSide.SOURCE, wanted.topic))
        with asyncio.Runner() as runner:
            reading = _TaskReading(settings, wanted, self._given)
            try:
                while (columns := runner.run(reading.next())) is not None:
                    yield columns
            finally:
                runner.run(reading.close())


class _TaskReading:
    """One task."""

    def __init__(self, settings: FlowSettings, wanted: LogRange, given: Mapping[str, str]) -> None:
        self._settings = settings
        self._wanted = wanted
        self._committed = given["committed"] == "true"
        self._rate = RateLimit(int(given["bytespersecond"] or 0) or None)
        self._chunk = RecordChunk(wanted)
        self._cluster: Cluster | None = None
        self._reader: RangeReader | None = None

    async def next(self) -> pa.RecordBatch | None:
        """Return the next rows as columns; None: there are no more."""
        reader = self._reader or await self._begin()
        clock = asyncio.get_running_loop().time
        while self._chunk.size_bytes < CHUNK_BYTES:
            await asyncio.sleep(self._rate.wait_s(clock()))
            batches = await reader.next()
            if batches is None:
                break
            self._rate.spend(sum(len(batch.data) for batch in batches), clock())
            for batch in batches:
                self._chunk.add(batch)
        return self._chunk.take()

    async def _begin(self) -> RangeReader:
        wanted = self._wanted
        self._cluster = open_cluster(self._settings, ClusterSide.SOURCE)
        async with connected(self._settings, ClusterSide.TARGET) as target:
            stored = (await BackfillSurvey(self._settings, self._cluster, target).positions()).get(
                (wanted.topic, wanted.partition)
            )
        rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        self._reader = RangeReader(self._cluster, wanted, read_committed=self._committed, rng=rng)
        if stored is not None:  # the copier begins there or later: positions only grow
            self._reader.offset = min(max(stored.next_source, wanted.start), wanted.end)
        return self._reader

    async def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            await self._cluster.close()
