"""``df.write.format("mm2py")`` and ``writeStream`` on real brokers: exactly what was given, exactly once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

pytest.importorskip("pyspark", reason="Run `make venv-spark`.")

import pyarrow as pa

from deploy.local.kafka import KafkaCluster
from mm2py.backfill import register
from mm2py.backfill.frames.sink import TaskWritten, _Part, end_all, write_task
from mm2py.backfill.frames.task_transaction import TransactionLost
from mm2py.backfill.frames.write_options import WriteOptions, write_options
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import has_open_transactions, read, values
from tests.cluster.running import DEADLINE_S, OWN_PATH, ROOT, pause, wait_until
from tests.cluster.spark.frames import FlowFile, Sent, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY: Final = 1_700_000_000_000
EXAMPLE: Final = re.findall(r"```python\n(.*?)```", (ROOT / "docs/spark.md").read_text(), re.DOTALL)[-1]


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def flow(source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path) -> FlowFile:
    return FlowFile(tmp_path, source_cluster, target_cluster)


def write(frame: DataFrame, flow: FlowFile, topic: str, **options: str) -> None:
    frame.write.format("mm2py").options(**flow.options(topic, "target", **options)).mode("append").save()
    all_ended(flow, topic)


def all_ended(flow: FlowFile, topic: str) -> None:
    wait_until(lambda: not has_open_transactions(flow.target, topic), "all markers are written")


def test_a_record_that_is_read_and_written_is_the_same_record(spark: SparkSession, flow: FlowFile) -> None:
    source, target = new_topic(flow.source, "frames", 2), new_topic(flow.target, "frames", 2)
    sent = [
        Sent(b"one", b"k", DAY + 123, [("trace", b"1"), ("trace", None), ("", b"")], partition=1),
        Sent(None, b"", DAY + 122, partition=1),
        Sent(b"", None, DAY, partition=0),
        *(Sent(b"%d" % number * 50, b"k", DAY + number, partition=0) for number in range(20_000)),
    ]
    send(flow.source, source, sent)
    write(flow.read(spark, source), flow, target, compression="zstd")
    for partition in (0, 1):
        there, here = read(flow.source, source, [partition]), read(flow.target, target, [partition])
        assert [_whole(message) for message in here] == [_whole(message) for message in there]


def _whole(message: Any) -> tuple[Any, ...]:
    return message.timestamp(), message.key(), message.value(), message.headers() or []


def test_nulls_are_kept_or_refused_by_name(spark: SparkSession, flow: FlowFile) -> None:
    """B88."""
    topic = new_topic(flow.target, "frames")
    row = "select 0 as partition, 'v' as value"
    none = (
        f"{row}, cast(null as timestamp) as timestamp, cast(null as array<struct<key:string,value:binary>>) as headers"
    )
    write(spark.sql(f"{none} union all {none}"), flow, topic)
    back = flow.read(spark, topic, "target").collect()
    assert [(one.timestamp, one.headers, bytes(one.value)) for one in back] == [(None, [], b"v")] * 2
    header = "array(named_struct('key', cast({} as string), 'value', cast(null as binary))) as headers"
    refused = [
        ("select 'v' as value", "no column partition"),
        ("select cast(null as int) as partition, 'v' as value", "1 of 1 rows have no partition"),
        ("select 5 as partition, 'v' as value", "A row is for partition 5"),
        (f"{row}, {header.format('null')}", "A header has no key"),
        (f"{row}, array(cast(null as struct<key:string,value:binary>)) as headers", "A header has no key"),
        (f"{row}, 'x' as colour", "no column 'colour'"),
        (f"{row}, 5 as key", "Column key is of type int"),
    ]
    for query, told in refused:
        with pytest.raises(Exception, match=told):
            write(spark.sql(query), flow, topic)
    with pytest.raises(Exception, match=r"Lower transactionTimeoutMs"):
        write(spark.sql(row), flow, topic, transactionTimeoutMs=str(10**9))
    assert len(values(flow.target, topic)) == 2
    write(spark.sql(f"{row}, {header.format(repr(''))}"), flow, topic)
    assert read(flow.target, topic)[-1].headers() == [("", None)]


def test_a_failed_write_leaves_nothing_and_a_named_one_is_done_once(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.target, "frames", 2)
    rows = spark.range(200, numPartitions=2).selectExpr("cast(id % 2 as int) as partition", "string(id) as value")
    fails = rows.selectExpr("partition", "if(value = '150', raise_error('on purpose'), value) as value")
    job = f"job-{uuid.uuid4().hex[:8]}"
    with pytest.raises(Exception, match="on purpose"):
        write(fails, flow, topic, job=job)
    assert values(flow.target, topic, [0, 1]) == []
    for _ in range(2):
        write(rows, flow, topic, job=job)
        assert sorted(map(int, values(flow.target, topic, [0, 1]))) == list(range(200))


class Tasks:
    """Two tasks of one batch, run as Spark would run them, with what a driver ends."""

    def __init__(self, flow: FlowFile, topic: str) -> None:
        self.options: WriteOptions = write_options(flow.options(topic, "target"), is_stream=False)
        self.job = f"job-{uuid.uuid4().hex[:8]}"

    def run(self, task: int, batch: int = 0) -> TaskWritten:
        texts = [f"{batch}-{task}-{number}" for number in range(3)]
        rows = pa.RecordBatch.from_pydict({"partition": pa.array([0] * 3, pa.int32()), "value": pa.array(texts)})
        return write_task(self.options, _Part(self.job, batch, task), iter([rows]))

    def commit(self, *written: TaskWritten) -> None:
        end_all(self.options, written, committed=True)


def test_a_rerun_writes_what_a_dead_driver_did_not_commit(flow: FlowFile) -> None:
    topic = new_topic(flow.target, "frames")
    tasks = Tasks(flow, topic)
    tasks.commit(*(tasks.run(task) for task in range(12)))
    first = [tasks.run(task, batch=1) for task in range(12)]
    tasks.commit(*first[1:])  # the driver dies before it ends the first, which stays open
    again = [tasks.run(task, batch=1) for task in range(12)]
    assert [one.records for one in again] == [3] + [0] * 11
    with pytest.raises(TransactionLost, match="ended by another attempt"):
        tasks.commit(first[0])  # it was not dead
    tasks.commit(*again)
    tasks.commit(*again)  # the answer was lost, and it asks again
    all_ended(flow, topic)
    expected = [f"{batch}-{task}-{number}" for batch in (0, 1) for task in range(12) for number in range(3)]
    assert sorted(value.decode() for value in values(flow.target, topic)) == sorted(expected)


@pytest.mark.slow
def test_a_transaction_that_takes_too_long_is_not_committed_and_says_so(flow: FlowFile) -> None:
    topic = new_topic(flow.target, "frames")
    tasks = Tasks(flow, topic)
    tasks.options = write_options(flow.options(topic, "target", transactionTimeoutMs="1000"), is_stream=False)
    written = tasks.run(0)

    pause(12, "the coordinator looks every ten seconds")
    with pytest.raises(TransactionLost, match="took longer than 1 s"):
        tasks.commit(written)
    assert values(flow.target, topic) == []


class Pipeline:
    """The example of docs/spark.md as a process of its own."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        script = folder / "pipeline.py"
        script.write_text(EXAMPLE)
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(script), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": OWN_PATH},
                start_new_session=True,
            )

    def check(self) -> None:
        assert self.process.poll() is None, self.log.read_text()[-4_000:]

    def kill(self) -> None:
        """SIGKILL to driver, JVM and tasks, which are a process group of their own."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def writing(flow: FlowFile) -> Iterator[tuple[str, threading.Event, list[Sent]]]:
    """A topic that is written to until the event is set."""
    topic, done, sent = new_topic(flow.source, "orders", 2), threading.Event(), list[Sent]()

    def run() -> None:
        while not done.is_set():
            first = len(sent)
            some = [
                Sent(b"order %d" % number, b"k", DAY + number, [("n", b"%d" % number)], partition=number % 2)
                for number in range(first, first + 500)
            ]
            send(flow.source, topic, some)
            sent.extend(some)
            done.wait(0.2)

    thread = threading.Thread(target=run)
    thread.start()
    yield topic, done, sent
    done.set()
    thread.join()


@pytest.mark.slow
def test_the_example_goes_on_after_a_kill_without_loss_or_repeat(
    flow: FlowFile, writing: tuple[str, threading.Event, list[Sent]], tmp_path: Path
) -> None:
    source, done, sent = writing
    target = new_topic(flow.target, "capitals", 2)
    arguments = [str(flow.path), flow.flow, source, target, str(tmp_path / "checkpoint")]
    pipeline = Pipeline(arguments, tmp_path)
    try:
        for count in (1, 3):  # killed once in the middle of its batches, and started again
            before = len(values(flow.target, target, [0, 1]))

            def has_written(least: int = before + count * 1_000, running: Pipeline = pipeline) -> bool:
                running.check()
                return len(values(flow.target, target, [0, 1])) >= least

            wait_until(has_written, "rows are written", deadline_s=3 * DEADLINE_S)
            if count == 1:
                pipeline.kill()
                pipeline = Pipeline(arguments, tmp_path)
        done.set()
        pause(0.5, "what was sent last is written")

        def is_complete() -> bool:
            pipeline.check()
            return len(values(flow.target, target, [0, 1])) >= len(sent)

        wait_until(is_complete, "all rows are written", deadline_s=2 * DEADLINE_S)
        pause(1, "a repeat would come now")
    finally:
        pipeline.kill()
    for partition in (0, 1):
        expected = [(one.value or b"").upper() for one in sent if one.partition == partition]
        found = read(flow.target, target, [partition])
        assert [message.value() for message in found] == expected
        assert [message.timestamp()[1] for message in found] == [
            one.timestamp_ms for one in sent if one.partition == partition
        ]
        assert all(message.headers() == [("n", (message.value() or b"").split()[-1])] for message in found)
