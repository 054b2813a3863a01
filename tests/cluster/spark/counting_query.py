"""A query with state: how often each value has come. It ends with what there is, or in the middle of a batch.

python -m tests.cluster.spark.counting_query ARGUMENTS   (JSON; for a session of its own, with Spark's own source)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mm2py.backfill.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES: Final = 5
"""How often a query is started again after Spark's own time-out."""
IN_THE_MIDDLE: Final = "ended in the middle of a batch"


@dataclass(frozen=True, slots=True)
class CountingQuery:
    """The query, and where it keeps what."""

    source_format: str
    options: Mapping[str, str]
    checkpoint: str
    counts: str
    """A folder: each batch writes a file with the counts that have changed."""
    ends_in_batch: int = -1
    """The batch that fails after it was planned, and before it is committed; -1: none does."""

    def run(self, spark: SparkSession) -> None:
        """Run it until it has read all, or has failed where it is to fail."""
        from pyspark.errors import PySparkException

        for try_ in range(TRIES):
            query = self._start(spark)
            try:
                query.awaitTermination()
                return
            except PySparkException as error:
                if IN_THE_MIDDLE in str(error):
                    return
                # Spark gives a Python process of its own 10 s to start, which a busy machine may need.
                if "connect back" not in str(error) or try_ == TRIES - 1:
                    raise

    def _start(self, spark: SparkSession) -> Any:
        frame = spark.readStream.format(self.source_format).options(**self.options).load()
        return (
            frame.selectExpr("cast(value as string) as value")
            .groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(self._write)
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    def _write(self, frame: DataFrame, batch: int) -> None:
        found = {row["value"]: row["count"] for row in frame.collect()}
        if batch == self.ends_in_batch:
            raise RuntimeError(IN_THE_MIDDLE)
        Path(self.counts, f"{batch:06d}").write_text(json.dumps(found))


def counts_in(folder: Path) -> dict[str, int]:
    """Return the last count of each value."""
    found: dict[str, int] = {}
    for file in sorted(folder.iterdir()):
        found |= json.loads(file.read_text())
    return found


def arguments_of(query: CountingQuery, settings: Mapping[str, str]) -> str:
    """Return what ``main`` takes."""
    return json.dumps({"query": asdict(query), "settings": dict(settings)})


def main(arguments: list[str]) -> int:
    """Run a query in a session of its own."""
    found = json.loads(arguments[0])
    spark = open_session("counting", master="local[2,2]", settings=found["settings"])
    CountingQuery(**found["query"]).run(spark)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
