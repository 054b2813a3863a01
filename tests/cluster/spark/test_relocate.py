"""``mm2py relocate spark`` on real brokers: a query with state stops on A, and goes on on B at the exact record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("pyspark", reason="Run `make venv-spark`.")

from deploy.local.broker_settings import render_properties
from deploy.local.jars import spark_kafka_directory
from deploy.local.kafka import KafkaCluster
from mm2py.backfill import register
from mm2py.relocate.checkpoint_folder import read_checkpoint
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import values
from tests.cluster.running import COMMAND_S, OWN_PATH, PATIENCE, ROOT, Mm2py, wait_until
from tests.cluster.spark.conftest import SETTINGS
from tests.cluster.spark.counting_query import CountingQuery, arguments_of, counts_in
from tests.cluster.spark.frames import FlowFile, Sent, send, send_transactions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH: Final = "20"
"""Offsets a batch."""
QUERY_S: Final = 200.0 * PATIENCE


class Stream:
    """A topic of two partitions that a worker copies, and a query that counts its values."""

    def __init__(self, folder: Path, flow: FlowFile) -> None:
        self.flow = flow
        self.topic = new_topic(flow.source, "orders", 2)
        self.remote = f"{flow.alias}.{self.topic}"
        self.checkpoint = folder / "query"
        self.counts = folder / "counts"
        self.counts.mkdir()
        self.sent: Counter[str] = Counter()

    def send(self, count: int) -> None:
        """Write records; before them an aborted transaction, so that offsets of both sides differ."""
        lost = [Sent(b"lost", partition=number % 2) for number in range(7)]
        send_transactions(self.flow.source, self.topic, [(False, lost)])
        begin = self.sent.total()
        found = [Sent(b"%d" % (number % 7), partition=number % 2) for number in range(begin, begin + count)]
        send(self.flow.source, self.topic, found)
        self.sent.update(str(number % 7) for number in range(begin, begin + count))

    def await_copies(self) -> None:
        wait_until(
            lambda: len(values(self.flow.target, self.remote, (0, 1))) == self.sent.total() or None,
            f"{self.remote} has all {self.sent.total()} records",
        )

    def relocate(self, *arguments: str) -> dict[str, Any]:
        """Call the command. The ledger may be a moment late, so a refusal is asked again."""
        command = [sys.executable, "-m", "mm2py", "relocate", "spark", str(self.flow.path), str(self.checkpoint)]

        def ask() -> dict[str, Any] | None:
            ended = subprocess.run(
                [*command, "--flow", self.flow.flow, "--yes", "--json", *arguments],
                capture_output=True,
                timeout=COMMAND_S,
                check=False,
                text=True,
                env={**os.environ, "PYTHONPATH": OWN_PATH},
            )
            assert ended.stdout, ended.stderr
            found: dict[str, Any] = json.loads(ended.stdout)
            return found if found["exit_code"] == 0 else None

        return wait_until(ask, "every offset has its exact place")

    def query(self, source_format: str, checkpoint: Path, *, ends_in_batch: int = -1, **options: str) -> CountingQuery:
        return CountingQuery(source_format, options, str(checkpoint), str(self.counts), ends_in_batch)


@pytest.fixture
def stream(source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path) -> Iterator[Stream]:
    found = Stream(tmp_path, FlowFile(tmp_path, source_cluster, target_cluster))
    found.flow.properties[f"{found.flow.flow}.topics"] = found.topic
    found.flow.properties[f"{found.flow.alias}.consumer.isolation.level"] = "read_committed"
    found.flow.path.write_text(render_properties(found.flow.properties))
    with Mm2py(found.flow.properties):
        yield found


def check_relocated(stream: Stream, found: dict[str, Any]) -> Path:
    """Check that the batch in which the query ended has both its ends on B, and return the new checkpoint."""
    new = Path(found["new_checkpoint"])
    assert new.name == f"query-{stream.flow.other}" and found["outcome"] == "relocated"
    old = read_checkpoint(stream.checkpoint)
    assert old.batches.planned is not None and read_checkpoint(new).batches == old.batches
    assert {one["is_planned"] for one in found["offsets"]} == {False, True}
    assert all(one["other_topic"] == stream.remote for one in found["offsets"])
    assert any(one["offset"] != one["other_offset"] for one in found["offsets"]), "the two logs have other offsets"
    return new


def test_a_query_of_format_mm2py_goes_on_at_the_exact_record_with_its_state(
    spark: SparkSession, stream: Stream
) -> None:
    register(spark)
    stream.send(30)
    options = {"maxOffsetsPerTrigger": BATCH}
    here = stream.flow.options(stream.topic, **options)
    stream.query("mm2py", stream.checkpoint, ends_in_batch=1, **here).run(spark)
    before = counts_in(stream.counts)
    assert 0 < sum(before.values()) < 30
    stream.await_copies()
    new = check_relocated(stream, stream.relocate())
    stream.send(15)
    stream.await_copies()
    there = stream.flow.options(stream.remote, "target", **options)
    stream.query("mm2py", new, **there).run(spark)
    assert counts_in(stream.counts) == dict(stream.sent)


@pytest.mark.slow  # a session of its own for each of two runs, and jars that nothing else needs
def test_a_query_of_sparks_own_kafka_source_goes_on_at_the_exact_record_with_its_state(stream: Stream) -> None:
    stream.send(30)
    options = {"maxOffsetsPerTrigger": BATCH, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    here = {"kafka.bootstrap.servers": stream.flow.source.bootstrap, "subscribe": stream.topic, **options}
    in_own_session(stream.query("kafka", stream.checkpoint, ends_in_batch=1, **here))
    before = counts_in(stream.counts)
    assert 0 < sum(before.values()) < 30
    stream.await_copies()
    new = check_relocated(stream, stream.relocate())
    stream.send(15)
    stream.await_copies()
    there = {"kafka.bootstrap.servers": stream.flow.target.bootstrap, "subscribe": stream.remote, **options}
    in_own_session(stream.query("kafka", new, **there))
    assert counts_in(stream.counts) == dict(stream.sent)


def in_own_session(query: CountingQuery) -> None:
    jars = ",".join(map(str, sorted(spark_kafka_directory().glob("*.jar"))))
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tests.cluster.spark.counting_query"),
            arguments_of(query, {**SETTINGS, "spark.jars": jars}),
        ],
        capture_output=True,
        timeout=QUERY_S,
        check=False,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
