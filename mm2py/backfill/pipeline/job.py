"""The copying of a filtered backfill as a job of Spark: one task a partition, whose rows go into the copier.

Results are those of ``copy_job``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mm2py.backfill.copy_job import COLUMNS, TaskOrder, arrow_schema
from mm2py.backfill.frames.ranges import LogRange
from mm2py.backfill.pipeline.expressions import Expressions, applied

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

CopyRows = Callable[[TaskOrder, int, Iterator[Any]], Iterable[Mapping[str, Any]]]
"""Like ``copy_job.Copy``, with the rows of the task's only partition, as Arrow's record batches."""


def kept_of(
    spark: SparkSession,
    order: TaskOrder,
    ranges: Sequence[LogRange],
    expressions: Expressions,
    *,
    read_committed: bool,
) -> DataFrame:
    """Return the frame of the records that are kept. Nothing is read before the frame is used.

    Args:
        order: any order of the job: all have the same file, flow and rate.
        ranges: of each task, in order; empty if the frame is only checked.
    Raises: as ``applied``.
    """
    from mm2py.backfill.pipeline.history import FORMAT, HistorySource, options_of  # noqa: PLC0415  (an extra)

    spark.dataSource.register(HistorySource)
    options = options_of(
        order.file, order.flow, ranges, read_committed=read_committed, bytes_per_second=order.max_bytes_per_second
    )
    return applied(spark, spark.read.format(FORMAT).options(**options).load(), expressions)


def filtered_results_of(kept: DataFrame, orders: Sequence[TaskOrder], copy: CopyRows) -> DataFrame:
    """Return the frame of results. Nothing is copied before the frame is collected.

    Args:
        kept: from ``kept_of``; its tasks are those of ``orders``, in this order.
    """
    from pyspark.sql import DataFrame  # noqa: PLC0415  (an extra)
    from pyspark.sql.udf import UserDefinedFunction  # noqa: PLC0415
    from pyspark.util import PythonEvalType  # noqa: PLC0415

    def body(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415  (an extra)
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        if context is None:
            raise AssertionError("this runs in a task")
        found = copy(orders[context.partitionId()], context.attemptNumber(), rows)
        deque(rows, maxlen=0)  # Spark starts another Python process where one leaves rows unread
        yield pa.RecordBatch.from_pylist([dict(row) for row in found], schema=arrow_schema())

    # DataFrame.mapInArrow does the same, but requires pandas, which nothing here needs.
    function = UserDefinedFunction(body, returnType=COLUMNS, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[kept[name] for name in kept.columns])
    return DataFrame(kept._jdf.mapInArrow(column._jc, False, None), kept.sparkSession)
