"""``mm2py plan`` and ``mm2py apply P`` as processes on real brokers: before and after each kind of change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import ConfigResource

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from tests.cluster.commands.test_refusals import member_of
from tests.cluster.copies import add_partitions, make_topic, new_topic, partitions_of, set_by_hand
from tests.cluster.kafka_client import admin, create_topic, new_name, record_count, topic_names, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, Value, one_way_properties, wait_until

Clusters = tuple[KafkaCluster, KafkaCluster]


def command(*arguments: str | Path) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it wrote to standard output and error."""
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    return ended.returncode, ended.stdout, ended.stderr


def state_of(cluster: KafkaCluster) -> Mapping[str, object]:
    """Return the partitions and the settings of all topics of a cluster."""
    client = admin(cluster)
    topics = client.list_topics(timeout=ANSWER_S).topics
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in sorted(topics)]
    configs = client.describe_configs(asked) if asked else {}
    return {
        resource.name: (
            len(topics[resource.name].partitions),
            {entry.name: entry.value for entry in found.result(ANSWER_S).values() if not entry.is_default},
        )
        for resource, found in configs.items()
    }


class Planner:
    """Plans one flow of a file, and sees that this changes nothing."""

    def __init__(self, clusters: Clusters, folder: Path, properties: Mapping[str, Value]) -> None:
        self.file = folder / "mm2.properties"
        self.properties = dict(properties)
        self._clusters = clusters
        self.write()

    def write(self, **changed: Value) -> None:
        """Write the file, with changed properties from now on."""
        self.properties |= changed
        self.file.write_text(render_properties({"listeners": "", **self.properties}))

    def plan(self, *, is_alone: bool = False) -> tuple[int, Any]:
        """Return the exit code and the plan. ``is_alone``: no worker runs, so nothing may have changed."""
        before = [state_of(cluster) for cluster in self._clusters] if is_alone else []
        code, out, err = command("plan", self.file, "--json")
        assert out, err
        body = json.loads(out)
        assert body["exit_code"] == code
        (flow,) = body["flows"]
        if is_alone:
            assert [state_of(cluster) for cluster in self._clusters] == before
        return code, flow


def a_planner(clusters: Clusters, folder: Path, topics: str, **extra: Value) -> tuple[str, Planner]:
    """Return the alias of the source, and a planner of its flow."""
    alias = new_name("P").replace("-", "")
    flow = f"{alias}->B"
    properties = one_way_properties(
        *clusters,
        names=(alias, "B"),
        **{f"{flow}.topics": topics, "config.storage.replication.factor": 1, "replication.factor": 1, **extra},
    )
    return alias, Planner(clusters, folder, properties)


def test_each_kind_of_change_is_planned_and_after_it_there_is_nothing_to_do(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    clusters = (source_cluster, target_cluster)
    stem = new_name("planned")
    first, second = f"{stem}-a", f"{stem}-b"
    make_topic(source_cluster, first, 2, {"retention.ms": "7200000"})
    slow: dict[str, Value] = {"topics.watch.interval.ms": 600_000, "sync.topic.configs.interval.seconds": 3600}
    alias, planner = a_planner(clusters, tmp_path, f"{stem}.*", **slow)
    write(source_cluster, first, [b"1"])
    code, found = planner.plan(is_alone=True)
    assert (code, found["starts"], found["runs"]) == (3, ["MirrorSourceConnector"], [])
    (created,) = found["creates"]
    assert (created["remote"], created["partitions"], created["replication_factor"]) == (f"{alias}.{first}", 2, 1)
    assert created["configs"]["retention.ms"] == "7200000"
    assert f"mm2-offsets.{alias}.internal" in {one["name"] for one in found["internal"]}
    assert not found["refusals"]

    with Mm2py(planner.file) as run:
        run.wait_until(lambda: record_count(target_cluster, f"{alias}.{first}") == 1, "it is copied")
        own = {one["name"] for one in found["internal"]}
        wait_until(
            lambda: own <= topic_names(source_cluster) | topic_names(target_cluster), "all of its own topics are made"
        )
        wait_until(lambda: planner.plan()[0] == 0, "there is nothing to do")
        code, found = planner.plan()
        assert (code, found["runs"], found["internal"]) == (0, ["MirrorSourceConnector"], [])
        code, out, _ = command("plan", planner.file)
        assert code == 0 and out.endswith("\n  nothing to do\n"), out

        make_topic(source_cluster, second, 3)
        code, found = planner.plan()
        assert code == 3 and [one["remote"] for one in found["creates"]] == [f"{alias}.{second}"]
        assert command("plan", planner.file, "--allow-changes")[0] == 0
        add_partitions(source_cluster, first, 4)
        code, found = planner.plan()
        assert [(one["remote"], one["has"], one["wants"]) for one in found["widens"]] == [(f"{alias}.{first}", 2, 4)]
        set_by_hand(source_cluster, first, retention_ms="3600000")
        code, found = planner.plan()
        assert [(one["setting"], one["old"], one["new"]) for one in found["configs"]] == [
            ("retention.ms", "7200000", "3600000")
        ]
        assert partitions_of(target_cluster, f"{alias}.{first}") == 2
        assert f"{alias}.{second}" not in topic_names(target_cluster)

        planner.write(**{f"{alias}->B.topics": first})
        code, found = planner.plan()
        assert code == 3 and found["stores_settings"] and not found["creates"]
        assert [one["text"] for one in found["settings"]] == [f"topics: '{stem}.*' -> '{first}'"]
        assert run.terminate() == 0
    with Mm2py(planner.file) as run:
        run.wait_until(lambda: partitions_of(target_cluster, f"{alias}.{first}") == 4, "it is widened")
        wait_until(lambda: planner.plan()[0] == 0, "there is nothing to do")


def test_a_topic_of_others_is_refused_and_so_are_more_replicas_than_brokers(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic, wide = new_topic(source_cluster, "foreign"), new_topic(source_cluster, "replicated")
    alias, planner = a_planner(
        (source_cluster, target_cluster), tmp_path, f"{topic},{wide}", **{"replication.factor": 7}
    )
    create_topic(target_cluster, f"{alias}.{topic}")
    write(target_cluster, f"{alias}.{topic}", [b"of someone else"])
    code, found = planner.plan(is_alone=True)
    refused = {one["topic"]: f"{one['why']} {one['remedy']}" for one in found["refusals"]}
    assert code == 3 and set(refused) == {topic, wide}
    assert f"{alias}.{topic} on B is not empty there" in refused[topic]
    assert "Set replication.factor (7) to what B can hold." in refused[wide]


def test_a_cluster_that_does_not_answer_is_named_and_a_wrong_file_is_told_from_it(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    alias, planner = a_planner((source_cluster, target_cluster), tmp_path, "x")
    planner.write(**{f"{alias}.bootstrap.servers": "127.0.0.1:9"})
    code, found = planner.plan(is_alone=True)
    assert code == 1 and len(found["unread"]) == 1 and "127.0.0.1:9" in found["unread"][0]
    saved = tmp_path / "P"
    code, _, err = command("plan", planner.file, "-o", saved)
    assert code == 1 and not saved.exists() and "not complete" in err
    assert command("plan", planner.file, "--allow-changes")[0] == 1
    planner.write(**{"offset.lag.max": "many"})
    assert command("plan", planner.file)[0] == 2


def test_a_flow_that_mirrormaker_2_runs_is_refused(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    alias, planner = a_planner((source_cluster, target_cluster), tmp_path, "x")
    with member_of(target_cluster, f"{alias}-mm2"):
        code, found = planner.plan(is_alone=True)
    assert code == 1 and found["refused"].startswith(f"Flow {alias}->B is refused: MirrorMaker 2 runs it"), found
    assert not found["starts"] and not found["creates"]


def test_a_fresh_plan_is_applied_and_a_stale_one_is_refused(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    stem, saved = new_name("saved"), tmp_path / "next.plan"
    make_topic(source_cluster, f"{stem}-a")
    alias, planner = a_planner((source_cluster, target_cluster), tmp_path, f"{stem}.*")
    flow = f"{alias}->B"
    code, _, err = command("plan", planner.file, "-o", saved)
    assert code == 3 and f"mm2py apply {saved}" in err

    make_topic(source_cluster, f"{stem}-b", 2)
    code, out, err = command("apply", saved, "--yes")
    assert code == 1 and "is stale" in err, err
    assert f"{flow}: +       {alias}.{stem}-b (2 partitions, 1 replica" in out, out
    assert f"{flow}: changed since the plan was made: topics of the source" in out
    assert f"mm2-configs.{alias}.internal" not in topic_names(target_cluster)

    assert command("plan", planner.file, "-o", saved)[0] == 3
    planner.write(**{f"{flow}.topics": f"{stem}-a"})
    code, out, err = command("apply", saved, "--yes")
    assert code == 1 and f"{flow}: its settings in the file have changed" in out

    assert command("plan", planner.file, "-o", saved)[0] == 3
    code, out, err = command("apply", saved)
    assert code == 2 and "without a terminal --yes is needed" in out
    code, out, err = command("apply", saved, "--yes")
    assert code == 0 and out.endswith(f"{flow}: version 1 is stored.\n"), (out, err)
    assert f"{alias}.{stem}-a" not in topic_names(target_cluster), "topics are created by workers"
    code, out, err = command("apply", saved, "--yes")
    assert code == 1 and "is stale" in err, "its settings are stored by now"
    assert command("apply", saved, "--previous")[0] == 2
