"""``mm2py backfill --where --select`` on real brokers: what is kept comes once, and what cannot be used is refused."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from deploy.local.kafka import KafkaCluster
from deploy.local.spark import SparkCluster
from mm2py.backfill.copy_job import TaskOrder
from mm2py.backfill.pipeline.expressions import Expressions
from mm2py.backfill.pipeline.job import kept_of
from mm2py.cli import verify
from mm2py.errors import ConfigError
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import read, record_count
from tests.cluster.running import wait_until
from tests.cluster.spark.backfills import EXECUTORS, FLOW, JOB_S, backfill, finished, held, worker
from tests.cluster.spark.frames import Sent, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="Run `make venv-spark`.")

HISTORY = 2_000
LATER = 50
PARTITIONS = 3
WHERE = "get_json_object(CAST(value AS STRING), '$.region') = 'eu' AND partition < 2"
SELECT = "to_json(named_struct('n', get_json_object(CAST(value AS STRING), '$.n'))) AS value"


def sent(number: int, partition: int) -> Sent:
    region = "eu" if number % 7 == 0 and number < HISTORY - 100 else "us"
    value = json.dumps({"n": str(number), "region": region}).encode()
    headers = [("h", b"%d" % number), ("h", None)]
    return Sent(value, b"k%d" % number, 1_700_000_000_000 + number, headers, partition)


def assert_kept(target: KafkaCluster, topic: str, kept: list[Sent], later: list[Sent]) -> None:
    """Wait for the copies, and judge: of each partition what is kept of its history, then all that came later."""
    remote, numbers = f"A.{topic}", range(PARTITIONS)
    wait_until(lambda: record_count(target, remote, numbers) >= len(kept) + len(later), "all is copied")
    copies = read(target, remote, numbers)
    for partition in numbers:
        wanted = [
            one._replace(value=json.dumps({"n": json.loads(one.value or b"")["n"]}, separators=(",", ":")).encode())
            for one in kept
            if one.partition == partition
        ]
        wanted += [one for one in later if one.partition == partition]
        found = [
            Sent(one.value(), one.key(), one.timestamp()[1], one.headers(), one.partition())
            for one in copies
            if one.partition() == partition
        ]
        assert found == wanted


def test_records_are_chosen_and_changed_and_the_live_flow_copies_all_behind_the_seam(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    """A partition of which nothing is kept ends at its seam as well; the ledger has the holes; verify leaves it out."""
    topic = new_topic(source_cluster, "filtered", PARTITIONS)
    history = [sent(number, partition) for partition in range(PARTITIONS) for number in range(HISTORY)]
    send(source_cluster, topic, history)
    run = worker(source_cluster, target_cluster, [topic])
    with backfill(run.file, "--master", "local[2]", "--where", WHERE, "--select", SELECT, "--topics", topic) as process:
        held(process)
        run.start()
        output = finished(process)
    kept = [one for one in history if b"eu" in (one.value or b"") and one.partition < 2]
    assert f"is done: {len(kept):,} records" in output
    later = [sent(HISTORY + number, partition) for partition in range(PARTITIONS) for number in range(LATER)]
    send(source_cluster, topic, later)
    assert_kept(target_cluster, topic, kept, later)
    assert run.terminate() == 0
    capsys.readouterr()
    assert verify.run([str(run.file), FLOW, "--topics", topic, "--json"]) == 0
    verified = json.loads(capsys.readouterr().out)
    left_out = {(one["partition"], one["why"]): one["offsets"] for one in verified["not_compared"]}
    assert {left_out[partition, "filtered"] for partition in range(PARTITIONS)} == {HISTORY}
    run.kill()


@pytest.mark.slow
def test_a_killed_executor_and_a_killed_driver_repeat_nothing_that_is_kept(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """F82 with expressions: they are stored, and --resume goes on with them where the positions stand."""
    topic = new_topic(source_cluster, "filtered-kills", PARTITIONS)
    padding = "x" * 1_000
    history = [
        Sent(
            json.dumps({"n": str(number), "region": "eu" if number % 3 else "us", "p": padding}).encode(), None, 5_000
        )._replace(partition=partition, headers=[("h", b"1")])
        for partition in range(PARTITIONS)
        for number in range(4 * HISTORY)
    ]
    send(source_cluster, topic, history)
    kept = [one for one in history if b'"eu"' in (one.value or b"") and one.partition < 2]
    run = worker(source_cluster, target_cluster, [topic])
    numbers = range(PARTITIONS)

    def wait_for_copies(count: int) -> None:
        wait_until(
            lambda: record_count(target_cluster, f"A.{topic}", numbers) >= count, "some are copied", deadline_s=JOB_S
        )

    with SparkCluster(environment=EXECUTORS) as cluster:
        arguments = ("--master", cluster.master, "--max-mb-per-second", "1", "--topics", topic)
        expressions = ("--where", WHERE, "--select", SELECT)
        with backfill(run.file, *arguments, *expressions, settings=cluster.client_settings) as process:
            backfill_id = held(process)
            run.start()
            wait_for_copies(500)
            os.kill(cluster.workers[0].executors()[0], signal.SIGKILL)
            wait_for_copies(2_000)
            assert process.poll() is None, "the driver must be killed while it copies"
            os.killpg(process.pid, signal.SIGKILL)
    with backfill(run.file, "--resume", backfill_id, "--where", "key IS NULL") as process:
        assert "has them already" in finished(process, 2)

    def resumed() -> str:
        with backfill(run.file, "--resume", backfill_id, "--master", "local[2]") as process:
            output, _ = process.communicate(timeout=JOB_S)
        assert process.returncode == 0 or "wrote" in output, output
        return output if process.returncode == 0 else ""

    assert f": {len(kept):,} records" in wait_until(resumed, "the backfill is resumed", deadline_s=JOB_S)
    later = [sent(HISTORY + number, partition) for partition in numbers for number in range(LATER)]
    send(source_cluster, topic, later)
    assert_kept(target_cluster, topic, kept, later)
    assert run.terminate() == 0
    run.kill()


REFUSED = [
    ("--where", "nope = 1", "nope"),
    ("--where", "key = ", "[Ss]yntax"),
    ("--where", "rand() > 0.5", r"rand\(\) gives something else each time"),
    ("--where", "timestamp > current_timestamp()", r"current_timestamp\(\) depends on when or by whom"),
    ("--where", "1 = 0", "it is never true"),
    ("--where", "offset = (SELECT 1)", "subquery"),
    ("--select", "count(*) AS value", "Aggregate"),
    ("--select", "DISTINCT key", "Distinct"),
    ("--select", "explode(headers.value) AS value", "Generate"),
    ("--select", "first(value) OVER (ORDER BY offset) AS value", "Window"),
    ("--select", "uuid() AS value", r"uuid\(\)"),
    ("--select", "1 AS value", "its value is of type int"),
    ("--select", "headers.key AS headers", "its headers is of type"),
    ("--select", "*", "it makes a column 'topic'"),
    ("--select", "key, timestamp", "it makes a column 'timestamp'"),
    ("--select", "key, value AS key", "names a column twice"),
    ("--select", "value FROM other", "[Ss]yntax"),
]


def frame_of(spark: SparkSession, expressions: Expressions) -> list[str]:
    order = TaskOrder("none", "", FLOW, None, "0badcafe", 0, 0, {}, None)
    return kept_of(spark, order, [], expressions, read_committed=False).columns


def test_expressions_that_need_more_than_one_record_or_the_moment_are_refused(spark: SparkSession) -> None:
    for option, text, told in REFUSED:
        expressions = Expressions(**{option.removeprefix("--"): text})
        with pytest.raises(ConfigError, match=f"(?s)^{option} cannot be used.*{told}"):
            frame_of(spark, expressions)
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    for select in ("", "key", "'{a}' AS value -- all", "transform(headers, h -> h) AS headers", "NULL AS key"):
        where = "exists(headers, h -> h.key = 'a') AND date_format(timestamp, 'yyyy') = '2026'"
        if select == "NULL AS key":
            with pytest.raises(ConfigError, match="its key is of type void"):
                frame_of(spark, Expressions(where, select))
            continue
        assert frame_of(spark, Expressions(where, select)) == columns
