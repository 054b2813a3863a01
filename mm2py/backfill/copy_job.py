"""The copying of a backfill as a job of Spark: one task for each set of partitions, with the results as a DataFrame.

Spark starts a task again that failed, or that was lost with its executor. The caller passes in what an attempt does:
``copy`` runs in the executors, and must be picklable by its name. Tasks get the path of the settings file and no
secret, because Spark's page and its event log may show what a task gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

from mm2py.backfill.job_failure import answer_of
from mm2py.kafka.port import TopicPartition
from mm2py.records.backfill_record import Range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ATTEMPTS_A_RUN: Final = 1000
"""Attempt numbers of a later run of a job are higher than all of an earlier one."""
COLUMNS: Final = (
    "topic string, partition int, source_first long, source_next long, target_first long, target_next long,"
    " records long, bytes long, digest long, seconds double, attempt int"
)
"""Of the results, see ``mm2py_connectors.backfill.attempt.CopiedRange``."""
_ARROW: Final = {"string": "string", "int": "int32", "long": "int64", "double": "float64"}
"""Arrow's types, by those of Spark."""


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """What one task is to copy. It is pickled to an executor, and holds no secret."""

    file: str
    """The path of the settings file on every executor."""
    file_digest: str
    """Of the file's content on the driver."""
    flow: str
    stored: bytes | None
    """The settings that the workers of the flow share, as they are stored; None: those of the file."""
    backfill: str
    task: int
    run: int
    ranges: Mapping[TopicPartition, Range]
    max_bytes_per_second: int | None
    log_level: str = "warning"

    def attempt(self, number: int) -> int:
        """Return the number of an attempt over all runs."""
        return self.run * ATTEMPTS_A_RUN + number


Copy = Callable[[TaskOrder, int], Iterable[Mapping[str, Any]]]
"""Copies what an order says; the second argument is the number of the attempt. Returns one row a partition."""


def results_of(spark: SparkSession, orders: Sequence[TaskOrder], copy: Copy) -> DataFrame:
    """Return the frame of results. Nothing is copied before the frame is collected."""
    tasks = spark.sparkContext.parallelize(orders, len(orders))
    return spark.createDataFrame(tasks.mapPartitions(_TaskBody(copy)), COLUMNS)


def check_executors(spark: SparkSession, orders: Sequence[TaskOrder], check: Callable[[TaskOrder], None]) -> None:
    """Let executors check whether they have what an order names, before anything is copied.

    There is a task for each order, and at least one for each core that Spark has now.

    Raises: as ``answer_of``, if a check fails.
    """
    count = max(len(orders), spark.sparkContext.defaultParallelism)
    some = [*islice(cycle(orders), count)]
    tasks = spark.sparkContext.parallelize(some, count)
    answer_of(lambda: tasks.foreach(check))


def collect(spark: SparkSession, frame: DataFrame, *, job: str, title: str) -> list[dict[str, Any]]:
    """Run the job in this thread, and return its rows. ``title`` is what Spark's page shows.

    Raises: as ``answer_of``.
    """
    spark.sparkContext.setJobGroup(job, title, interruptOnCancel=True)
    return [row.asDict() for row in answer_of(frame.collect)]


class _TaskBody:
    """What runs in an executor."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy

    def __call__(self, orders: Iterable[TaskOrder]) -> Iterator[tuple[Any, ...]]:
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        for order in orders:
            for row in self._copy(order, 0 if context is None else context.attemptNumber()):
                yield tuple(row[name] for name in _NAMES)


_NAMES: Final = [column.split()[0] for column in COLUMNS.split(",")]


def arrow_schema() -> pa.Schema:
    """Return ``COLUMNS`` for Arrow, and so for Parquet."""
    import pyarrow as pa  # noqa: PLC0415  (an extra)

    return pa.schema([(name, _ARROW[kind]) for name, kind in map(str.split, COLUMNS.split(","))])
