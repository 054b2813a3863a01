"""``mm2py apply`` as a process, against a real broker: what it stores there, and takes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.flow import parse_flow
from mm2py.login import host_name, login_name
from mm2py.records.control_record import Beat
from tests.cluster.copies import make_topic
from tests.cluster.groups import Group
from tests.cluster.kafka_client import admin, new_name, read, topic_names, values, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, Value, one_way_properties, wait_until

BEAT_S = 0.5


def run_apply(file: Path, properties: Mapping[str, Value], *arguments: str) -> tuple[int, str, str]:
    """Run the command with these properties; returns its exit code and what it wrote."""
    file.write_text(render_properties(properties))
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", "apply", str(file), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_a_file_is_stored_changed_and_taken_back(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    alias, file = new_name("C").replace("-", ""), tmp_path / "mm2.properties"
    topic = f"mm2-configs.{alias}.internal"
    flow = f"{alias}->B"
    first = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{f"{flow}.topics": "orders", "config.storage.replication.factor": 1, f"{alias}.client.id": "hunter2"},
    )
    note = f"mm2py: note: these settings do nothing yet: {alias}.client.id\n"
    code, out, err = run_apply(file, first, "--dry-run")
    assert (code, err) == (3, note)
    assert out.startswith(f"{flow} is new:\n")
    code, out, err = run_apply(file, first)
    assert (code, err) == (2, note)
    assert out.endswith("\nNothing was stored: without a terminal --yes is needed.\n")
    assert topic not in admin(target_cluster).list_topics(timeout=ANSWER_S).topics

    code, out, err = run_apply(file, first, "--yes")
    assert (code, err) == (0, note)
    assert out.endswith(f"{flow}: version 1 is stored.\n")
    code, out, err = run_apply(file, first)
    assert (code, err) == (0, note)
    by = f"{login_name()} on {host_name()} (mm2py apply)"
    assert out.startswith(f"{flow}: nothing to do (version 1, by {by}, 20")

    code, out, err = run_apply(file, {**first, f"{flow}.topics": "payments"}, "--yes")
    assert (code, err) == (0, note)
    assert f"\n  topics: 'orders' -> 'payments'\n{flow}: version 2 is stored.\n" in out
    code, found = Mm2py(first).status()
    (shown,) = found["flows"]
    assert (code, shown["settings"]["stored"]["version"], shown["settings"]["stored"]["by"]) == (3, 2, "apply")
    assert shown["settings"]["drift"] == [
        {"setting": "topics", "stored": "payments", "file": "orders", "text": "topics: 'payments' -> 'orders'"}
    ]
    code, out, err = run_apply(file, first, "--previous", "--yes")
    assert (code, err) == (0, note)
    assert f"\n  topics: 'payments' -> 'orders'\n{flow}: version 3 is stored.\n" in out

    records = {message.key(): message.value() for message in read(target_cluster, topic)}
    assert sum((key or b"").startswith(b"mm2py-history-") for key in records) == 3
    assert [key for key in records if not (key or b"").startswith(b"mm2py-history-")] == [
        b"connector-MirrorSourceConnector",
        b"connector-MirrorHeartbeatConnector",
        b"mm2py-flow",
    ]
    connector = json.loads(records[b"connector-MirrorSourceConnector"] or b"")["properties"]
    assert (connector["topics"], connector["source.cluster.alias"]) == ("orders", alias)
    everything = b"".join(value or b"" for value in records.values())
    for never in (source_cluster.bootstrap, target_cluster.bootstrap, "hunter2", str(first["mm2py.group"])):
        assert never.encode() not in everything


def test_workers_that_run_follow_what_is_applied_and_say_so(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The version stands in their beats; other topics begin in place, another isolation level begins the flow anew."""
    alias = new_name("C").replace("-", "")
    flow, first, second = f"{alias}->B", new_name("first"), new_name("second")
    for topic in (first, second):
        make_topic(source_cluster, topic, 6)
        write(source_cluster, topic, map(str, range(20)))
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{f"{flow}.topics": first, "config.storage.replication.factor": 1},
    )
    group = Group(target_cluster, properties, workers=2)

    def applied() -> set[int]:
        return {member.applied.get(parse_flow(flow), 0) for member in group.view().members.values()}

    def apply(**settings: Value) -> float:
        """Apply, and return how long after that was stored the last worker has said that it runs by it."""
        code, out, err = run_apply(tmp_path / "mm2.properties", {**properties, **settings}, "--yes")
        assert (code, err) == (0, "")
        version = int(out.rpartition("version ")[2].split()[0])
        wait_until(lambda: applied() == {version}, f"all have applied version {version}")
        records = {message.key(): message.value() for message in read(target_cluster, f"mm2-configs.{alias}.internal")}
        stored = json.loads(records[b"mm2py-flow"] or b"")
        assert (stored["version"], stored["by"]) == (version, "apply")
        told_ms: dict[str, int] = {}
        for entry in group.entries():
            if isinstance(entry.record, Beat) and entry.record.applied.get(parse_flow(flow)) == version:
                told_ms.setdefault(entry.record.member, entry.time_ms)
        assert len(told_ms) == 2
        return (max(told_ms.values()) - int(stored["at_ms"])) / 1000

    with group:
        wait_until(lambda: len(applied()) == 1 and 0 not in applied(), "both run the stored settings")
        group.wait_until_assigned(6)
        both = {f"{flow}.topics": f"{first},{second}"}
        assert apply(**both) < 10 * (2 + BEAT_S)
        wait_until(lambda: f"{alias}.{second}" in topic_names(target_cluster), "the second topic is copied")
        assert [len(worker.events("flow.ready")) for worker in group.workers] == [1, 1]
        assert apply(**both, **{f"{alias}.consumer.isolation.level": "read_committed"}) < 10 * (2 + BEAT_S)
        for worker in group.workers:
            wait_until(lambda: len(worker.events("flow.ready")) == 2, "begun anew")  # noqa: B023
        group.wait_until_assigned(12)
        group.assert_steady()
        assert not any(worker.events("drain.failed") for worker in group.workers)
        for worker in group.workers:
            assert worker.terminate() == 0
    for topic in (first, second):
        assert values(target_cluster, f"{alias}.{topic}") == [b"%d" % number for number in range(20)]


NOBODY: Final = "127.0.0.1:1"


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    good = one_way_properties(NOBODY, NOBODY)
    code, out, err = run_apply(file, {**good, "A->B.topics": "("})
    assert (code, out) == (2, "")
    assert "A->B.topics" in err


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, out, err = run_apply(tmp_path / "mm2.properties", one_way_properties(NOBODY, NOBODY))
    assert (code, out) == (1, "")
    assert "A->B: B does not answer: reading mm2-configs.A.internal took more than 30 s." in err
