"""The Spark job of a verification: tasks read both sides of ranges, and return digests, no content of any record.

A task gets the path of the settings file, which must be readable at that path on every executor. Spark sends no address
and no secret. All tasks together read no faster than the rate that was asked for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mm2py.backfill.job_failure import answer_of
from mm2py.backfill.verifying.latest import LATER_PLACE, DifferingKeys, LatestRecords
from mm2py.backfill.verifying.places import SOURCE, TARGET
from mm2py.backfill.verifying.ranges import ComparedRange, decoded
from mm2py.backfill.verifying.reading import ComparedRangeReader, open_sides
from mm2py.backfill.verifying.results import RangeResult
from mm2py.clock import SystemClock
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.copying.reading.limits import RateLimit
from mm2py.event_loop import loop_factory
from mm2py.kafka.port import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICES_A_CORE: Final = 4
"""How many tasks each core of Spark gets: with more tasks, a slow one delays the end of the job less."""
KeyRow = tuple[str, int, bytearray, int, int, bytearray | None]
"""Topic, partition, digest of the key, side, place, digest of the record."""
T = TypeVar("T")
_KEYS: Final = "topic string, partition int, key binary, side int, place long, digest binary"


@dataclass(frozen=True, slots=True)
class RangeTask:
    """The work of one task, without its ranges."""

    file: str
    """Path of the settings file."""
    flow: str
    bytes_per_second: int | None
    """What one task may read of both sides together."""

    def results(self, plans: Iterator[bytes]) -> Iterator[RangeResult]:
        """Compare encoded ranges."""
        return (result for result, _ in self._each(plans))

    def latest(self, plans: Iterator[bytes]) -> Iterator[tuple[RangeResult | None, KeyRow | None]]:
        """Find the latest records of encoded, compacted ranges: the result of each range, then its keys."""
        for result, found in self._each(plans):
            yield result, None
            if isinstance(found, LatestRecords):
                of = found.range
                for side, latest in enumerate(found.sides):
                    for key, one in latest.items():
                        yield None, (of.topic, of.partition, bytearray(key), side, one.place, _binary(one.digest))

    def _each(self, plans: Iterator[bytes]) -> Iterator[tuple[RangeResult, Any]]:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            opened = self._reader()
            reader = runner.run(opened.__aenter__())
            try:
                for plan in plans:
                    yield runner.run(reader.result(decoded(plan)))
            finally:
                runner.run(opened.__aexit__(None, None, None))

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[ComparedRangeReader]:
        settings = flow_of(read_settings_file(Path(self.file), None), self.flow)
        rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        async with open_sides(settings, rng) as sides:
            yield ComparedRangeReader(sides, clock=SystemClock(), rng=rng, rate=RateLimit(self.bytes_per_second))


def compare(session: SparkSession, ranges: Sequence[ComparedRange], task: RangeTask, done: Any) -> list[RangeResult]:
    """Compare ranges as one Spark job, and return the results in the order of the ranges.

    Args:
        task: its rate is that of all tasks together.
        done: an accumulator of Spark, to which each task adds its ranges when it ends. A task that is run twice may add
            them twice.
    Raises:
        JobFailed: a task has failed more often than Spark allows.
    """
    if not ranges:
        return []
    plans, task = _plans(session, ranges, task)
    return sorted(answer_of(plans.mapPartitions(counted(task.results, done)).collect))


def compare_keys(
    session: SparkSession, ranges: Sequence[ComparedRange], task: RangeTask, done: Any
) -> tuple[list[RangeResult], dict[TopicPartition, DifferingKeys]]:
    """Compare the latest records of compacted partitions. Arguments and errors: as ``compare``."""
    if not ranges:
        return [], {}
    from pyspark import StorageLevel  # noqa: PLC0415  (an extra)
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  (an extra)

    plans, task = _plans(session, ranges, task)
    found = plans.mapPartitions(counted(task.latest, done)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        results = answer_of(found.filter(_is_result).map(_first).collect)
        keys = session.createDataFrame(found.filter(_is_key).map(_second), _KEYS, verifySchema=False)
        newest = F.struct("place", "digest")
        by_key = keys.groupBy("topic", "partition", "key").agg(
            F.max(F.when(F.col("side") == SOURCE, newest)).alias("source"),
            F.max(F.when(F.col("side") == TARGET, newest)).alias("target"),
        )
        is_later = F.coalesce(F.greatest("source.place", "target.place"), F.lit(0)) >= F.lit(LATER_PLACE)
        differing = by_key.where(~is_later & ~F.col("source.digest").eqNullSafe(F.col("target.digest")))
        place = F.least("source.place", "target.place").alias("place")
        first = F.min(F.struct(place, "source.place", "target.place"))
        by_partition = differing.groupBy("topic", "partition").agg(F.count("*").alias("count"), first.alias("first"))
        rows = answer_of(by_partition.collect)
    finally:
        found.unpersist()
    return sorted(results), {
        (row.topic, row.partition): DifferingKeys(row["count"], row["first"][1], row["first"][2]) for row in rows
    }


def counted(work: Callable[[Iterator[bytes]], Iterator[T]], done: Any) -> Callable[[Iterator[bytes]], Iterator[T]]:
    """Return the work of a task, extended so that it counts the ranges that were compared."""

    def counting(plans: Iterator[bytes]) -> Iterator[bytes]:
        for plan in plans:
            yield plan
            done.add(1)

    return lambda plans: work(counting(plans))


def _plans(session: SparkSession, ranges: Sequence[ComparedRange], task: RangeTask) -> tuple[Any, RangeTask]:
    """Return the ranges as a data set of Spark, and the task with its part of the rate."""
    context = session.sparkContext
    cores = max(context.defaultParallelism, 1)
    slices = min(len(ranges), cores * SLICES_A_CORE)
    rate = task.bytes_per_second
    if rate is not None:
        rate = max(rate // min(cores, slices), 1)
    context.setJobDescription(f"mm2py verify {task.flow}, {len(ranges)} ranges")
    return context.parallelize([one.encoded() for one in ranges], slices), RangeTask(task.file, task.flow, rate)


def _is_result(one: tuple[RangeResult | None, KeyRow | None]) -> bool:
    return one[0] is not None


def _is_key(one: tuple[RangeResult | None, KeyRow | None]) -> bool:
    return one[1] is not None


def _first(one: tuple[RangeResult | None, KeyRow | None]) -> RangeResult | None:
    return one[0]


def _second(one: tuple[RangeResult | None, KeyRow | None]) -> KeyRow | None:
    return one[1]


def _binary(data: bytes | None) -> bytearray | None:
    """Return bytes in the type that Spark accepts."""
    return None if data is None else bytearray(data)
