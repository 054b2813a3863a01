"""``mm2py uninstall`` as a process on real brokers: what a flow has left is removed, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster
from mm2py.records.backfill_record import Backfill, Range, backfill_key, encode_backfill
from tests.cluster.copies import new_topic, now_ms
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import admin, new_name, record_count, topic_names, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, one_way_properties, wait_until

RECORDS = 100
EXACT, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


class GoneFlow:
    """A flow with aliases of its own that has copied a topic, and whose worker was stopped."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, folder: Path) -> None:
        self.source, self.target, self.folder = source, target, folder
        self.alias, self.other = (new_name(letter).replace("-", "") for letter in "GH")
        self.flow = f"{self.alias}->{self.other}"
        self.topic = new_topic(source, "left")
        self.remote = f"{self.alias}.{self.topic}"
        self.group = new_name("gone")
        self.run = Mm2py(
            one_way_properties(source, target, names=(self.alias, self.other))
            | {
                f"{self.flow}.topics": self.topic,
                "mm2py.group": self.group,
                "config.storage.replication.factor": 1,
                "emit.checkpoints.enabled": True,
                "emit.checkpoints.interval.seconds": 1,
                "groups": f"{self.topic}.*",
            }
        )

    @property
    def internal(self) -> dict[str, set[str]]:
        """The topics that the flow has made for itself, as they are on source and target."""
        return {
            "source": {name for name in topic_names(self.source) if name == f"mm2-offset-syncs.{self.other}.internal"},
            "target": {
                name
                for name in topic_names(self.target)
                if name.endswith(".internal") and self.alias in name.split(".") and not name.startswith("mm2-recovery")
            },
        }

    def copy(self) -> None:
        write(self.source, self.topic, [f"{number}" for number in range(RECORDS)])
        commit(self.source, f"{self.topic}-reads", self.topic, RECORDS // 2)
        self.run.wait_until(lambda: record_count(self.target, self.remote) == RECORDS, "all is copied")
        self.run.wait_until(
            lambda: record_count(self.target, f"{self.alias}.checkpoints.internal") > 0, "there is a checkpoint"
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "mm2py", "uninstall", str(self.run.file), self.flow, *arguments]

    def uninstall(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code, and all that is printed."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_S,
            check=False,
            text=True,
        )
        return done.returncode, done.stdout

    def killed_at(self, text: str, *arguments: str) -> int:
        """Kill the command at the first line with this text; return its exit code, or the number of the signal."""
        with subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if text in line:
                    process.send_signal(signal.SIGKILL)
            return process.wait(COMMAND_S)


def lines_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rules_of(cluster: KafkaCluster, names: set[str]) -> set[str]:
    """Return the names in ACLs of topics, as far as they are among ``names``."""
    anything = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return {one.name for one in admin(cluster).describe_acls(anything).result(ANSWER_S)} & names


def test_what_a_flow_has_left_is_removed_also_by_a_command_that_was_killed(
    guarded_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    gone = GoneFlow(guarded_cluster, target_cluster, tmp_path)
    syncs = f"mm2-offset-syncs.{gone.other}.internal"
    with gone.run:
        gone.copy()
        before = gone.internal
        assert before["source"] == {syncs}
        kinds = ("configs", "offsets", "ledger", "status")
        assert {f"mm2-{kind}.{gone.alias}.internal" for kind in kinds} <= before["target"]
        code, text = gone.uninstall("--yes")
        assert (code, f"run {gone.flow}" in text) == (1, True), text
        assert gone.run.terminate() == 0
        assert gone.internal == before

        code, text = gone.uninstall("--plan")
        assert code == 3, text
        assert f"{gone.other}: {gone.remote}: it was not named" in text
        code, text = gone.uninstall()
        assert (code, "without a terminal --yes is needed" in text) == (2, True), text
        assert gone.internal == before

        names = {syncs, syncs[:8]}
        rules = [
            AclBinding(ResourceType.TOPIC, name, kind, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
            for name, kind in ((syncs, EXACT), (syncs[:8], PREFIXED))
        ]
        for made in admin(guarded_cluster).create_acls(rules).values():
            made.result(ANSWER_S)
        try:
            killed = gone.killed_at("is deleted", "--yes", "--export", "first")
            left = gone.internal
            assert left["target"] < before["target"]
            assert killed == 0 or f"mm2-configs.{gone.alias}.internal" in left["target"]
            (position,) = lines_in(tmp_path / "first" / "positions.jsonl")
            assert (position["topic"], position["partition"]) == (gone.topic, 0)
            assert position["value"]["next_source"] == RECORDS
            chunks = lines_in(tmp_path / "first" / "ledger.jsonl")
            assert sum(entry[2] for chunk in chunks for entry in chunk["entries"]) >= RECORDS

            code, text = gone.uninstall("--yes", "--export", "first")
            assert killed == 0 or (code == 1 and "first is not empty" in text), text
            code, text = gone.uninstall("--yes", "--json")
            assert code == 0, text
            wait_until(lambda: gone.internal == {"source": set(), "target": set()}, "all of it is gone")
            assert rules_of(guarded_cluster, names) == {syncs[:8]}, "one by its exact name, none by a prefix"
        finally:
            any_rule = None, None, AclOperation.ANY, AclPermissionType.ANY
            own = [AclBindingFilter(ResourceType.TOPIC, name, ResourcePatternType.ANY, *any_rule) for name in names]
            for deleted in admin(guarded_cluster).delete_acls(own).values():
                deleted.result(ANSWER_S)
        code, text = gone.uninstall("--yes")
        assert (code, "nothing is left to remove" in text) == (0, True), text
        assert record_count(target_cluster, gone.remote) == RECORDS
        assert f"mm2-cluster.{gone.group}.internal" in topic_names(target_cluster)


def test_it_is_refused_while_a_backfill_or_a_fence_uses_the_flow_and_removes_a_copy_that_is_named(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    gone = GoneFlow(source_cluster, target_cluster, tmp_path)
    with gone.run:
        gone.copy()
        assert gone.run.terminate() == 0
        before = gone.internal

        backfill = Backfill("0123abcd", {gone.topic: {0: Range(0, 10)}}, (((gone.topic, 0),),), begun_at_ms=now_ms())
        put(target_cluster, f"mm2-configs.{gone.alias}.internal", backfill_key(backfill.id), encode_backfill(backfill))
        code, text = gone.uninstall("--yes")
        assert (code, "Backfill 0123abcd" in text) == (1, True), text
        put(target_cluster, f"mm2-configs.{gone.alias}.internal", backfill_key(backfill.id), None)

        gone.run.dr("fence", gone.flow, "--hook-fence", "true", "--yes")
        code, text = gone.uninstall("--yes")
        assert (code, "A fence of producers" in text) == (1, True), text
        gone.run.dr("unfence", gone.flow, "--hook-fence", "true", "--yes")
        assert gone.internal == before

        code, text = gone.uninstall("--remote-topic", gone.remote, "--yes")
        assert code == 0, text
        wait_until(lambda: gone.remote not in topic_names(target_cluster), "the copy is gone")
        wait_until(lambda: gone.internal == {"source": set(), "target": set()}, "all of it is gone")
        assert record_count(source_cluster, gone.topic) == RECORDS


def put(cluster: KafkaCluster, topic: str, key: bytes, value: bytes | None) -> None:
    client = Producer({"bootstrap.servers": cluster.internal_bootstrap, "log_level": 0})
    client.produce(topic, value, key)
    assert client.flush(ANSWER_S) == 0
