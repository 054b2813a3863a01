"""``mm2py translate`` on real brokers, as a process. No worker runs: the tests write the ledger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

from deploy.local.kafka import KafkaCluster
from mm2py.flow import TopicName
from mm2py.offsets.runs import Run
from mm2py.records import ledger_record, offset_sync
from mm2py.records.batch import NewRecord
from mm2py.records.ledger_record import ChunkKey, LedgerChunk
from mm2py.records.offset_sync import OffsetSync
from mm2py.records.quarantined import (
    Provenance,
    QuarantineEntry,
    RecordOrigin,
    Replayed,
    encode_quarantined,
    encode_replayed,
)
from tests.cluster.copies import make_topic, new_topic
from tests.cluster.kafka_client import new_name, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, one_way_properties


class Scene:
    """One flow with aliases of its own, whose remote topic holds ten records."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.alias, self.other = new_name("A").replace("-", ""), new_name("B").replace("-", "")
        self.topic = new_topic(source, "orders")
        self.remote = f"{self.alias}.{self.topic}"
        make_topic(target, self.remote, 1)
        write(target, self.remote, [b"%d" % number for number in range(10)])
        properties = one_way_properties(source, target, names=(self.alias, self.other))
        self.run = Mm2py(properties | {f"{self.alias}->{self.other}.topics": self.topic})

    def ledger(self, *runs: Run) -> None:
        key = ChunkKey(TopicName(self.topic), 0, 1, runs[0].source_offset)
        chunk = LedgerChunk(key, runs[0].target_offset, runs, runs[-1].source_end + 1, is_whole=True)
        name = f"mm2-ledger.{self.alias}.internal"
        make_topic(self.target, name, 3, {"cleanup.policy": "compact"})
        put(self.target, name, [ledger_record.encode(chunk, 0)], partition=2)

    def translate(self, *arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "mm2py", "translate", str(self.run.file), f"{self.alias}->{self.other}"]
        ended = subprocess.run(
            [*command, "--partition", "0", *arguments],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            text=True,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        assert ended.stdout, ended.stderr
        return ended.returncode, ended.stdout

    def found(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        code, text = self.translate(*arguments, "--json")
        found = json.loads(text)
        assert (found["format"], found["exit_code"]) == (1, code)
        return code, found["offsets"]


def put(cluster: KafkaCluster, topic: str, records: Sequence[NewRecord], partition: int = 0) -> None:
    client = Producer({"bootstrap.servers": cluster.internal_bootstrap, "log_level": 0})
    for one in records:
        client.produce(topic, one.value, one.key, partition=partition, headers=list(one.headers))
    assert client.flush(ANSWER_S) == 0


def test_translate_answers_from_the_ledger_in_both_directions(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    scene = Scene(source_cluster, target_cluster)
    scene.ledger(Run(5, 0, 4), Run(10, 4, 6))
    code, text = scene.translate("--topic", scene.topic, "--offset", "7", "9", "--offset", "17")
    assert code == 0
    assert text.splitlines() == [
        f"{scene.topic}-0 offset 7 -> {scene.remote}-0 offset 2, exact (copied)",
        f"{scene.topic}-0 offset 9 -> {scene.remote}-0 offset 4, exact"
        " (nothing to copy there: a marker, aborted or compacted away; the next copied record)",
        f"{scene.topic}-0 offset 17 -> {scene.remote}-0 offset 10, exact (behind the last copied record)",
    ]
    for name in (scene.topic, scene.remote):
        code, (back,) = scene.found("--topic", name, "--offset", "4", "--reverse")
        assert (code, back["other_topic"], back["other_offset"], back["kind"]) == (0, scene.topic, 10, "copied")
    code, found = scene.found("--topic", scene.topic, "--offset", "6", "99")
    assert (code, [one["kind"] for one in found]) == (3, ["copied", "not_yet"])


def test_without_a_ledger_translate_answers_by_offset_syncs_and_says_so(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    scene = Scene(source_cluster, target_cluster)
    code, (unknown,) = scene.found("--topic", scene.topic, "--offset", "12")
    assert (code, unknown["kind"], unknown["basis"]) == (3, "before_ledger", "")
    syncs = f"mm2-offset-syncs.{scene.other}.internal"
    make_topic(source_cluster, syncs, 1)
    put(source_cluster, syncs, [offset_sync.encode(OffsetSync(TopicName(scene.topic), 0, 10, 5), 0)])
    code, (found,) = scene.found("--topic", scene.topic, "--offset", "12")
    assert (code, found["other_offset"], found["is_exact"], found["basis"]) == (0, 6, False, "offset-syncs")


def test_a_record_that_replay_has_appended_is_found_again(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    scene = Scene(source_cluster, target_cluster)
    scene.ledger(Run(0, 0, 7), Run(8, 7, 3))
    origin = RecordOrigin(scene.topic, 0, 7)
    record = NewRecord(b"key", b"large", 0, [("header", None)])
    put(target_cluster, scene.remote, [record])
    quarantine = f"mm2-quarantine.{scene.alias}.internal"
    make_topic(target_cluster, quarantine, 1)
    kept = QuarantineEntry(Provenance("A->B", None, origin, 0, 10, "too large", 0), record)
    put(target_cluster, quarantine, [encode_quarantined(kept), encode_replayed(Replayed(origin, scene.remote, 0))])
    code, (back,) = scene.found("--topic", scene.topic, "--offset", "10", "--reverse")
    assert (code, back["kind"], back["other_offset"], back["is_exact"]) == (0, "replayed", 7, True)
    code, (there,) = scene.found("--topic", scene.topic, "--offset", "7")
    assert (there["kind"], there["other_offset"]) == ("quarantined", 7)
