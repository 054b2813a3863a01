"""``spark.read.format("mm2py")`` and ``readStream`` on real brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.backfill import PUSHDOWN, register
from mm2py.flow import TopicName
from mm2py.offsets.runs import Run
from mm2py.records import ledger_record
from mm2py.records.batch import read_records
from mm2py.records.ledger_record import ChunkKey, LedgerChunk
from tests.checker.ledger import Ledger
from tests.cluster.cleaned_topics import cleaned_topic
from tests.cluster.copies import add_partitions, make_topic, new_topic
from tests.cluster.kafka_client import delete_topic, new_name, read
from tests.cluster.offsets.test_translate import put
from tests.cluster.spark.frames import FlowFile, Sent, send, send_transactions

pytest.importorskip("pyspark", reason="Run `make venv-spark`.")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DAY = 1_700_000_000_000
TRIES = 5
"""How often a query is started again after Spark's own time-out."""


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def flow(source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path) -> FlowFile:
    return FlowFile(tmp_path, source_cluster, target_cluster)


def numbers(count: int, *, first: int = 0, partition: int = 0) -> list[Sent]:
    return [
        Sent(b"%d" % number, b"k", DAY + number * 1000, partition=partition) for number in range(first, first + count)
    ]


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.select("value").collect()]


def of(count: int, *, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_a_record_is_read_with_all_that_it_has(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.source, "frames", 3)
    sent = [
        Sent(b"one", b"k", DAY + 123, [("trace", b"1"), ("trace", None), ("", b"")], partition=1),
        Sent(None, None, DAY + 124, partition=1),
    ]
    send(flow.source, topic, sent, **{"compression.type": "zstd"})
    first, second = flow.read(spark, topic).orderBy("offset").collect()
    assert (first.topic, first.partition, first.offset, first.timestampType) == (topic, 1, 0, 0)
    assert first.timestamp.astimezone(UTC) == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"one")
    assert [tuple(header) for header in first.headers] == [("trace", b"1"), ("trace", None), ("", b"")]
    assert (second.offset, second.key, second.value, second.headers) == (1, None, None, [])
    other = flow.read(spark, new_topic(flow.target, "frames"), "target")
    assert other.collect() == []  # no records, and no partition that has any


def test_options_choose_partitions_offsets_and_times(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.source, "frames", 2)
    send(flow.source, topic, [*numbers(100), *numbers(100, first=500, partition=1)])
    cases: list[tuple[dict[str, str], list[bytes]]] = [
        ({"partitions": "1"}, of(100, first=500)),
        ({"partitions": "0", "startingOffsets": '{"0": 7}', "endingOffsets": '{"0": 9}'}, of(2, first=7)),
        ({"partitions": "0", "startingTimestamp": str(DAY + 89_001)}, of(10, first=90)),
        ({"partitions": "0", "endingTimestamp": str(DAY + 5_000)}, of(5)),
        ({"startingOffsets": "latest"}, []),
        ({"partitions": "0", "startingOffsets": '{"0": -1}'}, []),
    ]
    for options, expected in cases:
        assert values(flow.read(spark, topic, **options).orderBy("offset")) == expected, options


def test_one_partition_can_be_read_by_several_tasks(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.source, "frames", 2)
    send(flow.source, topic, [*numbers(1000), *numbers(1)])
    frame = flow.read(spark, topic, minPartitions="4", partitions="0")
    parts = frame.rdd.map(lambda row: row.offset).glom().collect()
    assert len(parts) == 4
    assert [offset for part in parts for offset in part] == list(range(1001))


def test_only_committed_records_are_read_and_counted(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.source, "frames")
    transactions = [(number % 3 != 0, numbers(10, first=number * 10)) for number in range(9)]
    send_transactions(flow.source, topic, transactions)
    expected = [value for is_committed, sent in transactions if is_committed for value in (one.value for one in sent)]
    frame = flow.read(spark, topic)
    assert values(frame.orderBy("offset")) == expected
    assert frame.count() == 60
    assert flow.read(spark, topic, isolation="read_uncommitted").count() == 90
    from_inside = flow.read(spark, topic, startingOffsets='{"0": 25}')  # inside of a committed transaction
    assert values(from_inside.orderBy("offset")) == expected[expected.index(b"23") :]


def test_what_the_cleaner_left_is_read_exactly(spark: SparkSession, flow: FlowFile) -> None:
    topic = cleaned_topic(flow.source, Ledger())
    left = [(message.offset(), message.key(), message.value()) for message in read(flow.source, topic)]
    end = left[-1][0]
    bounds = {"endingOffsets": json.dumps({"0": end})}  # the cleaner may go on behind
    rows = flow.read(spark, topic, **bounds).orderBy("offset").collect()
    found = {row.offset: (row.key and bytes(row.key), row.value and bytes(row.value)) for row in rows}
    again = {message.offset(): (message.key(), message.value()) for message in read(flow.source, topic)}
    assert set(again) - {offset for offset in again if offset >= end} <= set(found)
    assert all(again[offset] == record for offset, record in found.items() if offset in again)
    assert set(found) <= {offset for offset, _, _ in left}
    assert len(rows) == len(found) < end


def test_raw_batches_are_what_the_broker_has(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.source, "frames")
    for first in (0, 100):
        send(flow.source, topic, numbers(100, first=first), **{"compression.type": "lz4", "linger.ms": 500})
    rows = flow.read(spark, topic, batches="true").orderBy("base_offset").collect()
    assert sum(row.record_count for row in rows) == 200
    assert {row.codec for row in rows} == {"lz4"}
    assert [record.value for row in rows for record in read_records(bytes(row.batch))] == of(200)
    assert [row.next_offset for row in rows[:-1]] == [row.base_offset for row in rows[1:]]


def test_the_ledger_tells_the_offset_on_the_other_side(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.source, "frames")
    remote = f"{flow.alias}.{topic}"
    make_topic(flow.target, remote)
    send(flow.source, topic, numbers(10))
    send(flow.target, remote, [Sent(b"foreign"), *numbers(4), Sent(b"foreign"), *numbers(3, first=5)])
    runs = (Run(0, 1, 4), Run(5, 6, 3))
    chunk = LedgerChunk(ChunkKey(TopicName(topic), 0, 1, 0), 1, runs, 8, is_whole=True)
    make_topic(flow.target, f"mm2-ledger.{flow.alias}.internal", 3, {"cleanup.policy": "compact"})
    put(flow.target, f"mm2-ledger.{flow.alias}.internal", [ledger_record.encode(chunk, 0)], partition=2)
    rows = flow.read(spark, topic, offsets="both").orderBy("offset").collect()
    assert [row.source_offset for row in rows] == list(range(10))
    assert [row.target_offset for row in rows] == [1, 2, 3, 4, None, 6, 7, 8, None, None]
    rows = flow.read(spark, remote, "target", offsets="both").orderBy("offset").collect()
    assert [row.source_offset for row in rows] == [None, 0, 1, 2, 3, None, 5, 6, 7]
    assert [row.target_offset for row in rows] == list(range(9))
    batches = flow.read(spark, remote, "target", offsets="both", batches="true").orderBy("base_offset").collect()
    assert [row.target_offset for row in batches] == [row.base_offset for row in batches]
    others = {row.target_offset: row.source_offset for row in rows}
    assert [row.source_offset for row in batches] == [others[row.base_offset] for row in batches]


def test_conditions_leave_ranges_out_if_spark_allows_it(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.source, "frames", 3)
    send(flow.source, topic, [one for partition in range(3) for one in numbers(100, partition=partition)])
    spark.conf.set(PUSHDOWN, "true")
    try:
        register(spark)
        frame = flow.read(spark, topic)
        assert frame.rdd.getNumPartitions() == 3
        found = frame.where("partition in (1, 2) and offset >= 10 and offset < 20 and key = 'k'")
        assert found.count() == 20
        assert found.rdd.getNumPartitions() == 2
        since = frame.where("partition = 0 and timestamp >= timestamp_millis(1700000098000)")
        assert values(since.orderBy("offset")) == of(2, first=98)
    finally:
        spark.conf.unset(PUSHDOWN)
        register(spark)


def test_what_is_gone_and_what_is_wrong_is_told(spark: SparkSession, flow: FlowFile) -> None:
    topic = new_topic(flow.source, "frames")
    send(flow.source, topic, numbers(5))
    cases = [
        ({"startingoffset": "earliest"}, "Unknown option 'startingoffset'"),
        ({"endingOffsets": '{"0": 50}'}, f"{topic}-0 has no offset 5 yet"),
        ({"startingOffsets": '{"4": 0}'}, f"{topic} has no partition 4"),
        ({"TOPIC": new_name("absent")}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"file": "/nowhere/mm2.properties"}, "/nowhere/mm2.properties"),
    ]
    for options, told in cases:
        with pytest.raises(Exception, match=told):
            flow.read(spark, topic, **options).collect()


@pytest.fixture
def streamed(spark: SparkSession, flow: FlowFile, tmp_path: Path) -> Iterator[Any]:
    """Runs a stream into a table in memory: as much as there is, then it stops."""

    def start(frame: DataFrame, out: Path, name: str) -> StreamingQuery:
        return (
            frame.select("partition", "offset", "value")
            .writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName(name)
            .trigger(availableNow=True)
            .start()
        )

    def run(topic: str, **options: str) -> list[Row]:
        from pyspark.errors import PySparkException

        name = new_name("table").replace("-", "_")
        frame = spark.readStream.format("mm2py").options(**flow.options(topic, **options)).load()
        out = tmp_path / "out"
        for try_ in range(TRIES):
            query = start(frame, out, name)
            try:
                assert query.awaitTermination(200)
                break
            except PySparkException as error:
                # Spark gives a Python process of its own 10 s to start, which a busy machine may need: a user starts
                # the query again, and it goes on at its checkpoint.
                if "connect back" not in str(error) or try_ == TRIES - 1:
                    raise
            finally:
                query.stop()
        run.batches = len(query.recentProgress)  # type: ignore[attr-defined]
        return spark.read.parquet(str(out)).orderBy("partition", "offset").collect()

    yield run


def test_a_stream_goes_on_where_its_checkpoint_ends_with_new_partitions(
    spark: SparkSession, flow: FlowFile, streamed: Any
) -> None:
    topic = new_topic(flow.source, "frames")
    send(flow.source, topic, numbers(10))
    assert [row.offset for row in streamed(topic, maxOffsetsPerTrigger="4")] == list(range(10))
    assert streamed.batches >= 3
    add_partitions(flow.source, topic, 2)
    send(flow.source, topic, [*numbers(5, first=10), *numbers(3, partition=1)])
    rows = streamed(topic)
    assert [(row.partition, row.offset) for row in rows] == [*((0, at) for at in range(15)), (1, 0), (1, 1), (1, 2)]
    delete_topic(flow.source, topic)
    make_topic(flow.source, topic, 2)
    with pytest.raises(Exception, match="was recreated"):
        streamed(topic)
