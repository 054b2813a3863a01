"""``mm2py dr drill`` on real brokers: what it proves is true, and it says what is not.

Five groups of both protocols read plain, transactional and compacted topics, and stop anywhere. The drill names the
place where each would go on in the copies. Then a plain client really reads from these places.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from deploy.local.kafka import KafkaCluster
from mm2py.flow import TopicName
from mm2py.records import checkpoint
from mm2py.records.checkpoint import Checkpoint
from tests.checker.dump import dumped
from tests.checker.dumped import Dumped, digest
from tests.cluster.copies import now_ms, producer
from tests.cluster.drills import READ_S, DrillTopics, Stood, stop_anywhere
from tests.cluster.group_offsets import commit, member
from tests.cluster.judged_offsets import Place
from tests.cluster.kafka_client import admin, new_name, topic_names, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, PATIENCE, Mm2py, Value, one_way_properties, wait_until

pytestmark = pytest.mark.timeout(600 * PATIENCE)

RECORDS = 400
"""Of each topic."""
PROTOCOLS = ("classic", "consumer", "classic", "consumer", "classic")


class DrillScene:
    """A flow of plain, transactional and compacted topics, and five groups that have stopped anywhere in them."""

    run: Mm2py

    def __init__(self, source: KafkaCluster, target: KafkaCluster, seed: int) -> None:
        print(f"seed {seed}")
        self.source, self.target = source, target
        self.topics = DrillTopics(source, seed=seed)
        self.a, self.b = (new_name(one).replace("-", "") for one in "AB")
        self.flow, self.stem = f"{self.a}->{self.b}", new_name("drill")
        self.topics.make_remotes(target, self.a)
        self.topics.write(RECORDS)
        logs, chance = self.topics.logs(), random.Random(seed)
        self.stood = [
            stop_anywhere(source, f"{self.stem}-{number}", logs, chance, protocol=protocol)
            for number, protocol in enumerate(PROTOCOLS)
        ]
        self.properties: dict[str, Value] = one_way_properties(source, target, names=(self.a, self.b)) | {
            f"{self.flow}.topics": ",".join(self.topics.topics),
            f"{self.flow}.groups": f"{self.stem}.*",
            f"{self.a}.consumer.isolation.level": "read_committed",
            "config.storage.replication.factor": 1,
            "sync.topic.configs.enabled": False,
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": True,
            "sync.group.offsets.interval.seconds": 1,
        }

    def drill(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run the command; returns its exit code and its JSON."""
        ended = self._call("drill", "--yes", "--json", *arguments)
        assert ended.stdout, ended.stderr.decode()
        found: dict[str, Any] = json.loads(ended.stdout)
        assert found["exit_code"] == ended.returncode
        assert found["shadow_groups_left"] == {}
        return ended.returncode, found

    def history(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._call("history", "--json").stdout)["drills"]
        return found

    def _call(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "mm2py", "dr", verb, str(self.run.file), self.flow, *arguments],
            capture_output=True,
            timeout=2 * COMMAND_S,
            check=False,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )

    def wait_until_ready(self) -> None:
        """Wait until all is copied, and each group has its checkpoint."""

        def is_ready() -> bool:
            return self.run._output_of("groups", self.flow)[0] == 0 and self.run.dr("check", self.flow)[0] in {0, 3}

        self.run.wait_until(is_ready, "all groups are ready", deadline_s=2 * ANSWER_S)

    def other(self, topic: str) -> str:
        return f"{self.a}.{topic}"

    def shadows(self) -> list[str]:
        return [name for name in groups_of(self.target) if name.startswith("mm2py-drill.")]


@pytest.fixture(scope="module")
def scene(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[DrillScene]:
    found = DrillScene(source_cluster, target_cluster, seed=20)
    with Mm2py(found.properties) as found.run:
        found.wait_until_ready()
        yield found


def groups_of(cluster: KafkaCluster) -> list[str]:
    return [one.group_id for one in admin(cluster).list_consumer_groups().result(ANSWER_S).valid]


def commits_of(cluster: KafkaCluster, group: str) -> dict[Place, int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin(cluster).list_consumer_group_offsets(asked)[group].result(ANSWER_S)
    return {(one.topic, one.partition): one.offset for one in found.topic_partitions or ()}


def read_at(cluster: KafkaCluster, places: Mapping[Place, int]) -> dict[Place, list[Dumped]]:
    """Read from these offsets to the ends, with a client that knows nothing of mm2py."""
    client = Consumer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "group.id": new_name("reader"),
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    client.assign([TopicPartition(*place, offset) for place, offset in places.items()])
    found: dict[Place, list[Dumped]] = {place: [] for place in places}
    ended: set[Place] = set()

    def is_at_the_end() -> bool:
        for message in client.consume(500, 0.1):
            error, place = message.error(), (str(message.topic()), message.partition() or 0)
            if error is None:
                found[place].append(dumped(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(place)
            else:
                raise KafkaException(error)
        return ended == set(places)

    try:
        wait_until(is_at_the_end, "the copies are read from where the drill says", deadline_s=READ_S)
    finally:
        client.close()
    return found


def judge(stood: Stood, group: Mapping[str, Any], scene: DrillScene, logs: Mapping[Place, Sequence[Dumped]]) -> None:
    """Read from the places that the drill names, and compare with what the group has read and has not."""
    parts = {(one["topic"], one["partition"]): one for one in group["partitions"]}
    assert parts.keys() == stood.committed.keys()
    met = read_at(scene.target, {(one["other_topic"], one["partition"]): one["position"] for one in parts.values()})
    for place, part in parts.items():
        assert part["committed"] == stood.committed[place]
        ours = [digest(one) for one in met[part["other_topic"], part["partition"]]]
        unread = [digest(one) for one in logs[place] if one.offset >= stood.committed[place]]
        read = {content for offset, content in stood.read[place] if offset < stood.committed[place]}
        assert not read & set(ours), f"{stood.group} would read again in {place}"
        if place[0] == scene.topics.cleaned:  # the cleaner goes on here, and not there
            assert set(unread) <= set(ours), f"{stood.group} would skip records in {place}"
        else:
            assert unread == ours, f"{stood.group} would not go on exactly in {place}"


def test_what_a_drill_proves_is_true_and_nothing_is_moved(scene: DrillScene, tmp_path: Path) -> None:
    before = {
        one.group: (commits_of(scene.source, one.group), commits_of(scene.target, one.group)) for one in scene.stood
    }
    topics = topic_names(scene.source)
    code, found = scene.drill("--report", str(tmp_path))
    assert (code, found["verdict"], found["reasons"]) == (0, "proven", []), found["reasons"]
    groups = {one["group"]: one for one in found["groups"]}
    assert groups.keys() == {one.group for one in scene.stood}
    logs = scene.topics.logs()
    for stood in scene.stood:
        assert {one["result"] for one in groups[stood.group]["partitions"]} <= {"exact", "at-end"}
        judge(stood, groups[stood.group], scene, logs)
    assert found["verification"]["result"] == "equal"
    assert found["verification"]["source_root"] == found["verification"]["target_root"] != ""
    assert found["recovery_time"]["seconds"] > 0
    assert found["recovery_point"]["lost_records"] == 0

    assert scene.shadows() == []
    for group, (here, there) in before.items():
        assert (commits_of(scene.source, group), commits_of(scene.target, group)) == (here, there)
    added = topic_names(scene.source) - topics
    assert {one for one in added if scene.a in one} == {f"mm2-drills.{scene.a}.{scene.b}.internal"}

    page = next(tmp_path.glob("*.html")).read_text()
    assert "PROVEN" in page
    assert json.loads(next(tmp_path.glob("*.json")).read_text()) == found
    [kept] = scene.history()
    assert (kept["run"], kept["verdict"]) == (found["run"], "proven")


def test_a_plan_commits_nothing(scene: DrillScene) -> None:
    code, text = scene.run.dr("drill", scene.flow, "--plan")
    assert code == 3
    assert all(stood.group in text for stood in scene.stood)
    assert scene.shadows() == []


def test_what_a_killed_drill_has_left_is_removed(scene: DrillScene) -> None:
    old = f"mm2py-drill.{scene.a}.20200101T000000-0a0a0a.{scene.stem}-0"
    new = f"mm2py-drill.{scene.a}.29990101T000000-0a0a0a.{scene.stem}-0"
    for name in (old, new):
        commit(scene.target, name, scene.other(scene.topics.plain), 1)
    scene.history()
    assert scene.shadows() == [new]
    _, found = scene.drill("--verify-records", "0")
    assert found["shadow_groups_removed"] == [new]
    assert scene.shadows() == []


def test_a_group_without_a_commit_is_not_proven(scene: DrillScene) -> None:
    group = f"{scene.stem}-nothing"
    client = member(scene.source, group)
    client.subscribe([scene.topics.plain])
    wait_until(lambda: client.poll(0.2) is not None, "it reads", deadline_s=READ_S)
    try:
        code, found = scene.drill("--groups", group, "--verify-records", "0")
    finally:
        client.close()
        admin(scene.source).delete_consumer_groups([group])[group].result(ANSWER_S)
    assert (code, found["verdict"]) == (3, "not-proven")
    assert any(group in one and "nothing" in one for one in found["reasons"])


def test_a_checkpoint_that_is_wrong_is_found(scene: DrillScene) -> None:
    """No worker runs then: it would emit the right one again."""
    group, topic = f"{scene.stem}-wrong", scene.other(scene.topics.plain)
    commit(scene.source, group, scene.topics.plain, 20)
    try:
        wait_until(lambda: commits_of(scene.target, group), "its checkpoint is there", deadline_s=ANSWER_S)
        scene.run.terminate()
        for position, result, records in ((20, "exact", None), (17, "reads-again", 3), (22, "skips", 2)):
            if position != 20:
                wrong = checkpoint.encode(Checkpoint(group, TopicName(topic), 0, 20, position, ""), now_ms())
                client = producer(scene.target)
                client.produce(f"{scene.a}.checkpoints.internal", key=wrong.key, value=wrong.value)
                assert client.flush(ANSWER_S) == 0
            code, found = scene.drill("--groups", group, "--verify-records", "0")
            [place] = [one for one in found["groups"][0]["partitions"] if one["partition"] == 0]
            assert (place["position"], place["result"], place["records"]) == (position, result, records)
            assert code == 3
    finally:
        if not scene.run.alive:
            scene.run.start()
        admin(scene.source).delete_consumer_groups([group])[group].result(ANSWER_S)


def test_a_paused_topic_is_not_proven(scene: DrillScene) -> None:
    scene.run.ordered("pause", scene.flow, "--topic", scene.topics.plain, "--reason", "a test")
    try:
        write(scene.source, scene.topics.plain, ["late"])
        code, found = scene.drill("--verify-records", "0")
        assert (code, found["verdict"]) == (3, "not-proven")
        assert "not-copied" in [one["kind"] for one in found["obstacles"]]
    finally:
        scene.run.ordered("resume", scene.flow, "--topic", scene.topics.plain)


def test_a_record_of_somebody_else_is_found(scene: DrillScene) -> None:
    """It leaves the copy of one topic damaged, so it is the last test of the module."""
    group = f"{scene.stem}-end"
    end = read_at(scene.source, {(scene.topics.plain, 0): 0})[scene.topics.plain, 0][-1].offset + 1
    commit(scene.source, group, scene.topics.plain, end)
    wait_until(lambda: group in groups_of(scene.target), "the group is synced", deadline_s=ANSWER_S)
    write(scene.target, scene.other(scene.topics.plain), ["not of the flow"])

    def found_out() -> dict[str, Any] | None:
        code, found = scene.drill("--groups", group)
        return found if found["verification"]["result"] == "different" and code == 3 else None

    found = wait_until(found_out, "the foreign record is found", deadline_s=2 * ANSWER_S)
    [place] = [one for one in found["groups"][0]["partitions"] if one["partition"] == 0]
    assert place["result"] in {"differs", "reads-again"}, place
