"""``mm2py verify`` on real brokers: real copies are equal, and what is planted in a remote topic is found there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.cli import verify
from mm2py.offsets.runs import Run
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.compression import Codec
from tests.checker.dumped import Dumped, sent
from tests.checker.mutants import MUTANTS, Copy
from tests.checker.traffic import Planned, Traffic
from tests.cluster.copies import dump, make_topic, new_topic, now_ms, send
from tests.cluster.kafka_client import offsets as bounds_of
from tests.cluster.kafka_client import write
from tests.cluster.offsets.test_rebuild_ledger import transactions
from tests.cluster.planted_flow import batches, new_names, planted_flow
from tests.cluster.raw_batches import append_batches, append_rows
from tests.cluster.running import Mm2py, one_way_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 60


TIMES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|, \d\d:\d\d UTC|\"(?:at_ms|seconds)\": [\d.]+")


class Command:
    """The command, in this process and its Spark session, and once more with ``--local``: all that it says is the same.

    Both write a certificate beside the file.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str], file: Path, flow: str) -> None:
        self._capsys = capsys
        self._arguments = [str(file), flow, "--max-mb-per-second", "1000"]
        self.certificate = file.with_name("certificate-spark.txt")
        self._local_certificate = file.with_name("certificate-local.txt")

    def text(self, *arguments: str, parquet: Path | None = None) -> tuple[int, str]:
        of_spark = [] if parquet is None else ["--parquet", str(parquet)]
        code, out = self._run(*arguments, *of_spark, "--certificate", str(self.certificate))
        local = self._run(*arguments, "--local", "--certificate", str(self._local_certificate))
        assert (local[0], timeless(local[1])) == (code, timeless(out))
        assert timeless(self._local_certificate.read_text()) == timeless(self.certificate.read_text()) != ""
        return code, out

    def _run(self, *arguments: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = verify.run([*self._arguments, *arguments])
        return code, self._capsys.readouterr().out

    def json(self, *arguments: str, parquet: Path | None = None) -> tuple[int, dict[str, Any]]:
        code, text = self.text(*arguments, "--json", parquet=parquet)
        found = json.loads(text)
        assert found["exit_code"] == code
        return code, found


def timeless(text: str) -> str:
    """Return what the command says, without when it ran and how long."""
    return TIMES.sub("", text)


def differences(found: dict[str, Any]) -> dict[tuple[str, int], tuple[str, int, int]]:
    return {
        (one["topic"], one["partition"]): (first["kind"], first["source_offset"], first["target_offset"])
        for one in found["partitions"]
        if (first := one["difference"]) is not None
    }


def one_by_one(cluster: KafkaCluster, topic: str, records: Iterable[Planned], *, codec: int = 0) -> None:
    """Send each record as a batch of its own."""
    rows = [NewRecord(one.key, one.value, one.timestamp_ms, one.headers) for one in records]
    append_batches(cluster, topic, [build_batch([row], codec=codec) for row in rows])


def test_real_copies_are_equal_however_they_came_over_and_what_was_planted_since_is_named(
    spark: SparkSession,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alias, other = new_names()
    flow = f"{alias}->{other}"
    traffic = [*islice(Traffic(seed=3, partitions=1, first_timestamp_ms=now_ms()).records(), 300)]
    passed, small, packed, transactional = (
        new_topic(source_cluster, f"{alias}.{name}".lower()) for name in ("passed", "small", "packed", "transactional")
    )
    send(source_cluster, passed, traffic)
    one_by_one(source_cluster, small, traffic)
    one_by_one(source_cluster, packed, traffic, codec=Codec.ZSTD)
    transactions(source_cluster, transactional, [[f"{number}.{at}" for at in range(5)] for number in range(12)])
    compacted = new_topic(source_cluster, f"{alias}.compacted".lower(), 1, {"cleanup.policy": "compact"})
    keyed = Traffic(seed=4, partitions=1, compacted=True, keys=20, first_timestamp_ms=now_ms())
    send(source_cluster, compacted, islice(keyed.records(), 200))
    stamped = new_topic(source_cluster, f"{alias}.stamped".lower())
    send(source_cluster, stamped, traffic)
    make_topic(target_cluster, f"{alias}.{stamped}", 1, {"message.timestamp.type": "LogAppendTime"})
    properties = one_way_properties(source_cluster, target_cluster, names=(alias, other))
    properties |= {f"{flow}.topics": f"{alias}\\..*".lower(), f"{alias}.consumer.isolation.level": "read_committed"}
    properties["sync.topic.configs.enabled"] = "false"
    file = tmp_path / "mm2.properties"
    file.write_text(render_properties(properties))
    command = Command(capsys, file, flow)
    counts = {passed: 300, small: 300, packed: 300, transactional: 40, compacted: 200, stamped: 300}
    with Mm2py(file) as run:
        run.wait_until(
            lambda: all(len(dump(target_cluster, f"{alias}.{one}")[0]) == count for one, count in counts.items()),
            "all arrived",
        )
        assert run.terminate() == 0
    parquet = tmp_path / "parquet"
    code, found = command.json(parquet=parquet)
    assert (code, found["not_compared"], differences(found)) == (0, [], {}), found
    assert {one["topic"]: one["records"] for one in found["partitions"]} == counts
    assert {one["result"] for one in found["partitions"]} == {"equal"}
    text = command.certificate.read_text()
    assert f"{alias}/{passed}/0 [0, 300) = {other}/{alias}.{passed}/0 [0, 300), " in text
    rows = spark.read.parquet(str(parquet)).collect()
    assert {row.topic: row.records for row in rows} == counts
    ways = {row.topic: row.passed_records for row in rows}
    assert ways[passed] == 300
    assert ways[small] == ways[stamped] == 0

    end = bounds_of(target_cluster, f"{alias}.{transactional}")[1]
    write(target_cluster, f"{alias}.{transactional}", ["foreign"])
    latest = {one.key: one for one in dump(source_cluster, compacted)[0] if one.value is not None}
    key, lost = next((key, one) for key, one in latest.items() if key)
    append_batches(target_cluster, f"{alias}.{passed}", [build_batch([NewRecord(b"k", b"again", 1)])])
    code, found = command.json("--topics", transactional, passed, compacted)
    assert code == 1
    assert differences(found)[transactional, 0][::2] == ("foreign", end)
    assert differences(found)[passed, 0] == ("foreign", 300, 300)
    assert key is not None
    assert lost.offset < 200
    hour_ago = datetime.fromtimestamp(now_ms() // 1000 - 3600, UTC).isoformat()
    code, text = command.text("--topics", passed, "--sample", "50", "--seed", "1", "--since", hour_ago)
    assert code == 1
    assert "'again'" in text


def planted(source: Sequence[Dumped]) -> dict[str, list[Dumped]]:
    """Return the checker's mutants of an exact copy, by name."""
    aborted = [Dumped(-1, 1, 5, b"elsewhere", b"%d" % number) for number in range(3)]
    copy = Copy(source, source, aborted)
    return {str(mutant): mutant.apply(copy, Random(1)) for mutant in MUTANTS}


def first_difference(source: Sequence[Dumped], target: Sequence[Dumped]) -> int:
    """Return the first target offset that is not a copy of the source record there."""
    contents = [one.content for one in source]
    there = {one.offset: one.content for one in target}
    end = max(len(source), max(there, default=-1) + 1)
    return next(at for at in range(end) if contents[at : at + 1] != [there.get(at)])


def test_each_mutant_of_the_checker_is_found_and_its_offset_is_named(
    spark: SparkSession,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alias, other = new_names()
    topic = f"{alias}.all".lower()
    remote = f"{alias}.{topic}"
    sent_records = islice(Traffic(seed=7, partitions=1, first_timestamp_ms=now_ms()).records(), RECORDS)
    source = [Dumped(at, 1, one.timestamp_ms, one.key, one.value, one.headers) for at, one in enumerate(sent_records)]
    assert len({sent(one).digest for one in source}) > RECORDS // 2
    mutants = planted(source)
    assert len(mutants) == len(MUTANTS) > 70
    count = len(mutants) + 1  # the last partition has an exact copy
    make_topic(source_cluster, topic, count)
    make_topic(target_cluster, remote, count)
    append_rows(source_cluster, topic, [dict.fromkeys(range(count), bytes(one)) for one in batches(source, 16)])
    targets = [*mutants.values(), source]
    logs = [batches(target, 16 if number % 2 else 7) for number, target in enumerate(targets)]
    for at in range(max(map(len, logs))):
        append_rows(
            target_cluster, remote, [{number: bytes(log[at]) for number, log in enumerate(logs) if at < len(log)}]
        )
    runs = [(Run(0, 0, RECORDS),)] * count
    file = planted_flow(source_cluster, target_cluster, (alias, other), topic, runs, tmp_path)
    code, found = Command(capsys, file, f"{alias}->{other}").json("--topics", topic)
    assert code == 1
    named = differences(found)
    expected = {name: first_difference(source, target) for name, target in mutants.items()}
    assert {name: named.get((topic, at), (None, None, None))[2] for at, name in enumerate(mutants)} == expected
    assert (topic, count - 1) not in named


def test_of_a_compacted_topic_only_the_latest_record_of_each_key_counts(
    spark: SparkSession,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Partition 0 lacks records that were written again, 1 has another latest value, 2 lacks one, 3 a foreign one."""
    alias, other = new_names()
    topic = f"{alias}.keyed".lower()
    keys = ["a", "b", "a", "b", "a", "b"]
    source = [NewRecord(key.encode(), b"%d" % at, now_ms()) for at, key in enumerate(keys)]
    foreign = NewRecord(b"a", b"foreign", now_ms())
    tombstone = NewRecord(b"c", None, now_ms())
    targets = [
        [*source[:2], *source[4:]],
        [*source[:4], source[4]._replace(value=b"x"), source[5]],
        source[:5],
        [*source[:3], foreign, *source[3:], tombstone],
    ]
    whole = (Run(0, 0, 6),)
    runs = [(Run(0, 0, 2), Run(4, 2, 2)), whole, whole, (Run(0, 0, 3), Run(3, 4, 3))]
    make_topic(source_cluster, topic, 4, {"cleanup.policy": "compact"})
    make_topic(target_cluster, f"{alias}.{topic}", 4, {"cleanup.policy": "compact"})
    append_rows(source_cluster, topic, [dict.fromkeys(range(4), bytes(build_batch(source)))])
    append_rows(target_cluster, f"{alias}.{topic}", [{at: bytes(build_batch(one)) for at, one in enumerate(targets)}])
    file = planted_flow(source_cluster, target_cluster, (alias, other), topic, runs, tmp_path)
    code, found = Command(capsys, file, f"{alias}->{other}").json()
    assert code == 1
    assert differences(found) == {
        (topic, 1): ("latest_differs", 4, 4),
        (topic, 2): ("latest_differs", 5, 3),
        (topic, 3): ("foreign", 3, 3),
    }
    assert [one["differing"] for one in found["partitions"]] == [0, 1, 1, 1]
    assert found["partitions"][1]["difference"]["target"]["value"] == "eA=="
