"""The checker beside real brokers: what it loads, dumps and compares. The mirror is a consume-and-produce loop."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from deploy.local.kafka import KafkaCluster
from tests.checker.check import check_copy
from tests.checker.check import main as check_main
from tests.checker.dump import DumpFailed, Reader
from tests.checker.dumped import Dumped, sent
from tests.checker.ledger import Ledger
from tests.checker.load import Load, create_topic
from tests.checker.traffic import Traffic
from tests.cluster.kafka_client import admin, new_name, topic_names
from tests.cluster.running import ANSWER_S, COMMAND_S, PATIENCE, ROOT, wait_until


def topics(
    source: KafkaCluster, target: KafkaCluster, stem: str, partitions: int = 2, **configs: str
) -> tuple[str, str]:
    """Create a source topic and its remote topic and return both names."""
    topic = new_name(f"checker.{stem}")
    create_topic(
        source.bootstrap, topic, partitions, {name.replace("_", "."): value for name, value in configs.items()}
    )
    create_topic(target.bootstrap, f"A.{topic}", partitions)
    return topic, f"A.{topic}"


def load(source: KafkaCluster, topic: str, records: int, *, transactions: bool = False, **traffic: object) -> Ledger:
    """Send odd traffic with all codecs and return the ledger."""
    ledger = Ledger()
    partitions = len(admin(source).list_topics(topic).topics[topic].partitions)
    planned = Traffic(seed=11, partitions=partitions, first_timestamp_ms=now_ms(), **traffic)  # type: ignore[arg-type]
    ids = topic if transactions else None
    assert Load(source.bootstrap, topic, planned, ledger, transactional_id=ids).run(records=records) == records
    if transactions:
        for number in range(partitions):
            committed = sum(not entry.is_aborted for entry in ledger.of(topic, number))
            wait_until(
                lambda number=number, committed=committed: len(dump(source, topic, number)) >= committed,
                "the last transaction has its marker: the answer to a commit comes before",
            )
    return ledger


def now_ms() -> int:
    return int(time.time() * 1000)


def dump(cluster: KafkaCluster, topic: str, partition: int = 0, *, read_committed: bool = True) -> list[Dumped]:
    with Reader(cluster.bootstrap, read_committed=read_committed) as reader:
        return list(reader.records(topic, partition, *reader.bounds(topic, [partition])[partition]))


def write(cluster: KafkaCluster, topic: str, records: Sequence[Dumped], partition: int = 0) -> None:
    """Produce records as a mirror would that decodes and encodes them."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=partition,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
        producer.poll(0)
    assert producer.flush(ANSWER_S) == 0


def mirror(source: KafkaCluster, target: KafkaCluster, topic: str, remote: str, *, read_committed: bool = True) -> None:
    for number in range(len(admin(source).list_topics(topic).topics[topic].partitions)):
        write(target, remote, dump(source, topic, number, read_committed=read_committed), number)


# Dumps and loads


def test_a_dump_holds_exactly_what_was_acknowledged(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    topic, _ = topics(source_cluster, target_cluster, "acknowledged")
    ledger = load(source_cluster, topic, 3_000)
    assert len(ledger) == 3_000
    for number in range(2):
        records = dump(source_cluster, topic, number)
        assert [sent(record) for record in records] == list(ledger.of(topic, number))
        assert {record.timestamp_type for record in records} == {1}


def test_the_isolation_level_decides_whether_a_dump_holds_aborted_records(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, _ = topics(source_cluster, target_cluster, "aborted")
    ledger = load(source_cluster, topic, 3_000, transactions=True)
    for number in range(2):
        everything = ledger.of(topic, number)
        assert {entry.is_aborted for entry in everything} == {True, False}
        committed = [entry for entry in everything if not entry.is_aborted]
        seen = [(record.offset, sent(record).digest) for record in dump(source_cluster, topic, number)]
        assert seen == [(entry.offset, entry.digest) for entry in committed]
        offsets = [record.offset for record in dump(source_cluster, topic, number, read_committed=False)]
        assert offsets == [entry.offset for entry in everything]


def test_a_committed_dump_ends_before_an_open_transaction(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, _ = topics(source_cluster, target_cluster, "open", 1)
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(ANSWER_S)
    for value in (b"committed", b"aborted", b"open"):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(ANSWER_S) == 0
        if value == b"committed":
            producer.commit_transaction(ANSWER_S)
        elif value == b"aborted":
            producer.abort_transaction(ANSWER_S)
    assert [record.value for record in dump(source_cluster, topic)] == [b"committed"]
    uncommitted = dump(source_cluster, topic, read_committed=False)
    assert [record.value for record in uncommitted] == [b"committed", b"aborted", b"open"]
    producer.abort_transaction(ANSWER_S)
    assert [record.value for record in dump(source_cluster, topic)] == [b"committed"], "the rest is no record"


def test_a_dump_stays_within_the_bounds_it_was_given(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, _ = topics(source_cluster, target_cluster, "bounds", 1)
    load(source_cluster, topic, 500)
    with Reader(source_cluster.bootstrap, read_committed=True) as reader:
        assert [record.offset for record in reader.records(topic, 0, 100, 250)] == list(range(100, 250))
        assert list(reader.records(topic, 0, 250, 250)) == []
        start = TopicPartition(topic, 0, 300)
        client = admin(source_cluster)
        client.delete_records([start])[start].result(ANSWER_S)
        assert reader.bounds(topic, [0])[0] == (300, 500)
        with pytest.raises(DumpFailed):
            list(reader.records(topic, 0, 100, 250))
        assert reader.partitions(new_name("absent")) == 0


def test_a_dump_passes_over_what_a_cleaner_left(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    configs = {"cleanup_policy": "compact", "segment_ms": "500", "min_cleanable_dirty_ratio": "0.01"}
    topic, remote = topics(source_cluster, target_cluster, "cleaned", 1, **configs)
    ledger = load(source_cluster, topic, 1_000, compacted=True, keys=20)

    def cleaned() -> bool:
        rolling = Traffic(seed=now_ms(), partitions=1, first_timestamp_ms=now_ms(), compacted=True, keys=20)
        Load(source_cluster.bootstrap, topic, rolling, ledger, codecs=["zstd"]).run(records=5)
        return len(dump(source_cluster, topic)) < 500

    wait_until(cleaned, "the cleaner removed half of it", deadline_s=60 * PATIENCE)
    records = dump(source_cluster, topic)
    known = {entry.offset: entry for entry in ledger.of(topic, 0)}
    assert [sent(record) for record in records] == [known[record.offset] for record in records]
    assert records[-1].offset > len(records)
    mirror(source_cluster, target_cluster, topic, remote)
    report = check_copy(source_cluster.bootstrap, target_cluster.bootstrap, {topic: remote}, ledger=ledger)
    assert report.ok, str(report)
    with pytest.raises(ValueError, match="ledger"):
        check_copy(source_cluster.bootstrap, target_cluster.bootstrap, {topic: remote})


def test_a_load_runs_at_its_rate_until_it_is_told_to_stop(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, _ = topics(source_cluster, target_cluster, "rate")
    ledger = Ledger()
    steady = Load(source_cluster.bootstrap, topic, Traffic(seed=1, partitions=2), ledger, per_second=200)
    begun_s = time.monotonic()
    with steady.in_background():
        wait_until(lambda: steady.acknowledged >= 100, "some records are acknowledged")
    assert time.monotonic() - begun_s >= steady.acknowledged / 200
    assert len(ledger) == steady.acknowledged
    stop = threading.Event()
    stop.set()
    assert steady.run(stop=stop) == steady.acknowledged


# Checks


@pytest.mark.parametrize("read_committed", [True, False])
def test_a_true_copy_passes_at_the_isolation_level_of_its_flow(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, read_committed: bool
) -> None:
    topic, remote = topics(source_cluster, target_cluster, "true")
    ledger = load(source_cluster, topic, 2_000, transactions=True)
    mirror(source_cluster, target_cluster, topic, remote, read_committed=read_committed)

    def breaches(*, at: bool) -> set[str]:
        report = check_copy(
            source_cluster.bootstrap, target_cluster.bootstrap, {topic: remote}, read_committed=at, ledger=ledger
        )
        return {invariant for verdict in report.verdicts for invariant in verdict.breaches}

    assert breaches(at=read_committed) == set()
    assert ("I1" if read_committed else "I5") in breaches(at=not read_committed), "aborted records are told apart"


def test_each_breach_on_the_target_is_reported_where_it_stands(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, remote = topics(source_cluster, target_cluster, "breaches", 4)
    load(source_cluster, topic, 800, twins=False)  # a changed twin may as well be a lost one: another stands beside it
    logs = [dump(source_cluster, topic, number) for number in range(4)]
    write(target_cluster, remote, [*logs[0][:20], *logs[0][21:]], 0)
    write(target_cluster, remote, [*logs[1][:30], *logs[1][20:]], 1)
    write(target_cluster, remote, [*logs[2][:13], logs[2][13]._replace(value=b"other"), *logs[2][14:]], 2)
    write(target_cluster, remote, logs[3], 3)
    report = check_copy(source_cluster.bootstrap, target_cluster.bootstrap, {topic: remote})
    assert not report.ok
    found = [(finding.invariant, finding.partition, finding.target_offset) for finding in report.findings]
    assert found == [("I1", 0, 20), ("I3", 1, 30), ("I5", 2, 13)]
    assert report.verdicts[0].findings[0].source_offset == 20
    rewound = check_copy(source_cluster.bootstrap, target_cluster.bootstrap, {topic: remote}, max_rewinds=1)
    assert {finding.invariant for finding in rewound.findings} == {"I1", "I5"}


def test_partition_counts_are_compared_first(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    topic, remote = topics(source_cluster, target_cluster, "counts", 1)
    absent, wide = new_name("checker.absent"), new_name("checker.wide")
    create_topic(source_cluster.bootstrap, absent, 1)
    create_topic(source_cluster.bootstrap, wide, 2)
    load(source_cluster, wide, 100)
    pairs = {topic: remote, absent: f"A.{absent}", wide: remote}
    report = check_copy(source_cluster.bootstrap, target_cluster.bootstrap, pairs)
    assert [topic.ok for topic in report.topics] == [True, False, False]
    assert {finding.invariant for finding in report.findings} == {"I12", "I1"}
    assert "no such topic on the target" in str(report)
    assert f"A.{absent}" not in topic_names(target_cluster), "asking for a topic made it"


def test_a_target_that_stamps_records_itself_is_compared_without_timestamps(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_name("checker.stamped")
    create_topic(source_cluster.bootstrap, topic, 1)
    create_topic(target_cluster.bootstrap, f"A.{topic}", 1, {"message.timestamp.type": "LogAppendTime"})
    ledger = load(source_cluster, topic, 200)
    mirror(source_cluster, target_cluster, topic, f"A.{topic}")
    report = check_copy(source_cluster.bootstrap, target_cluster.bootstrap, {topic: f"A.{topic}"}, ledger=ledger)
    assert report.ok, str(report)


def test_records_that_the_source_stamped_are_in_the_ledger_as_they_are_read(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, remote = topics(source_cluster, target_cluster, "append", message_timestamp_type="LogAppendTime")
    ledger = load(source_cluster, topic, 500)
    mirror(source_cluster, target_cluster, topic, remote)
    report = check_copy(source_cluster.bootstrap, target_cluster.bootstrap, {topic: remote}, ledger=ledger)
    assert report.ok, str(report)


def test_a_check_waits_for_a_copy_that_is_only_behind(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, remote = topics(source_cluster, target_cluster, "behind", 1)
    load(source_cluster, topic, 300)
    records = dump(source_cluster, topic)
    write(target_cluster, remote, records[:100])
    pairs = {topic: remote}
    assert not check_copy(source_cluster.bootstrap, target_cluster.bootstrap, pairs).ok
    late = threading.Timer(1.0, write, (target_cluster, remote, records[100:]))
    late.start()
    assert check_copy(source_cluster.bootstrap, target_cluster.bootstrap, pairs, wait_s=60).ok
    late.join()


def test_a_copy_is_judged_from_where_it_begins_behind_an_earlier_one(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """As when the source topic was recreated, and the remote topic holds the copy of the old one as well."""
    earlier, remote = topics(source_cluster, target_cluster, "earlier")
    load(source_cluster, earlier, 100)
    mirror(source_cluster, target_cluster, earlier, remote)
    with Reader(target_cluster.bootstrap, read_committed=True) as reader:
        ends = {number: bounds.end for number, bounds in reader.bounds(remote, range(2)).items()}
    topic, _ = topics(source_cluster, target_cluster, "later")
    load(source_cluster, topic, 200)
    mirror(source_cluster, target_cluster, topic, remote)

    def is_whole(target_starts: dict[tuple[str, int], int] | None) -> bool:
        copies = source_cluster.bootstrap, target_cluster.bootstrap, {topic: remote}
        return check_copy(*copies, target_starts=target_starts).ok

    assert is_whole({(topic, number): end for number, end in ends.items()})
    assert not is_whole({(topic, number): end + 1 for number, end in ends.items()})
    assert not is_whole(None)


def test_the_commands_load_a_topic_and_judge_its_copy(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_name("checker.commands")
    command = [sys.executable, "-m", "tests.checker.load", "--bootstrap", source_cluster.bootstrap, "--topic", topic]
    command += ["--create", "2", "--rate", "500", "--ledger", str(tmp_path / "ledger")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: topic in topic_names(source_cluster) and dump(source_cluster, topic), "records are coming")
    process.terminate()
    output, _ = process.communicate(timeout=COMMAND_S)
    ledger = Ledger.load(tmp_path / "ledger")
    assert process.returncode == 0
    assert output == f"{len(ledger)} records acknowledged\n"
    assert len(ledger) == len(dump(source_cluster, topic, 0)) + len(dump(source_cluster, topic, 1))

    create_topic(target_cluster.bootstrap, f"A.{topic}", 2)
    arguments = ["--source", source_cluster.bootstrap, "--target", target_cluster.bootstrap]
    arguments += ["--topics", f"{topic}=A.{topic}", "--ledger", str(tmp_path / "ledger")]
    assert check_main(arguments) == 1
    assert f"FAIL {topic} -> A.{topic}: 2 partitions" in capsys.readouterr().out
    mirror(source_cluster, target_cluster, topic, f"A.{topic}")
    assert check_main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"ok   {topic} -> A.{topic}: 2 partitions, {len(ledger)} records")
    assert check_main([*arguments, "--ledger", str(tmp_path / "absent")]) == 2
