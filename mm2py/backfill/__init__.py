"""The data pipeline on Spark: reading and writing the clusters of a file as DataFrames, and copying history in bulk.

MirrorMaker 2 has no counterpart. A worker does not use this package: PySpark is the extra ``mm2py[spark]``, and is
imported only when something here is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Let a session read topics by ``format("mm2py")``; docs/spark.md has the options and examples.

    If the session's setting ``spark.sql.python.filterPushdown.enabled`` is true when this is called, offsets that the
    conditions of WHERE on partition, offset and timestamp rule out are not read.

    Raises:
        SparkMissing: PySpark is not installed.
    """
    try:
        from mm2py.backfill.frames.source import PruningTopicSource, SparkTopicSource  # noqa: PLC0415  (an extra)
    except ImportError as error:
        from mm2py.backfill.session import no_pyspark  # noqa: PLC0415

        raise no_pyspark() from error
    prunes = spark.conf.get(PUSHDOWN, "false") == "true"
    spark.dataSource.register(PruningTopicSource if prunes else SparkTopicSource)
