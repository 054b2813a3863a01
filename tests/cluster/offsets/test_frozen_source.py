"""``mm2py groups``, ``translate``, ``status`` and REST on real brokers, while the source's broker is frozen: what the
target alone tells. How soon it is told: tests/scenarios/offsets/test_source_silent.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import new_name, record_count, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, one_way_properties, wait_until


class Scene:
    """A flow with one group whose source is frozen while the test looks."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.alias, self.group = new_name("F").replace("-", ""), new_name("app")
        self.flow, self.topic = f"{self.alias}->B", new_topic(source, "frozen")
        self.remote = f"{self.alias}.{self.topic}"
        write(source, self.topic, [b"%d" % number for number in range(20)])
        commit(source, self.group, self.topic, 12)
        properties = one_way_properties(
            source,
            target,
            names=(self.alias, "B"),
            **{
                f"{self.flow}.topics": self.topic,
                f"{self.flow}.groups": self.group,
                "config.storage.replication.factor": 1,
                "emit.checkpoints.enabled": True,
                "emit.checkpoints.interval.seconds": 1,
                "sync.group.offsets.enabled": True,
                "sync.group.offsets.interval.seconds": 1,
                "listeners": "http://127.0.0.1:0",
            },
        )
        self.run = Mm2py(properties)

    def start(self) -> None:
        self.run.start()
        self.at = self.run.wait_for_event("rest.listening")["at"]
        self.run.wait_until(lambda: record_count(self.target, self.remote) == 20, "twenty are copied")
        wait_until(lambda: self.command("groups", self.flow, "--json")[0] == 0, "the group is ready")

    def command(self, *arguments: str) -> tuple[int, str]:
        ended = subprocess.run(
            [sys.executable, "-m", "mm2py", arguments[0], str(self.run.file), *arguments[1:]],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        assert ended.stdout, ended.stderr.decode()
        return ended.returncode, ended.stdout.decode()

    def get(self, path: str) -> Any:
        answer = httpx2.get(f"{self.at}/v1/flows/{self.flow}/{path}".rstrip("/"), timeout=ANSWER_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def assert_told(self, found: Any) -> None:
        """The group is told by the target, as of a checkpoint whose age is told."""
        assert found["unread"].startswith(f"{self.alias} has not answered since ")
        (group,) = found["groups"]
        assert (group["group"], group["state"], group["lag"], group["ready"]) == (self.group, "", None, True)
        assert group["is_exact"], group
        (part,) = group["partitions"]
        assert (part["committed"], part["checkpoint_source_offset"], part["goes_on_at"]) == (None, 12, 12)
        assert part["committed_on_target"] == 12
        assert self.begun_ms < part["checkpoint_at_ms"] <= found["at_ms"]

    begun_ms = int(time.time() * 1000)


@pytest.fixture(scope="module")
def scene(guarded_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Scene]:
    found = Scene(guarded_cluster, target_cluster)
    (broker,) = guarded_cluster.brokers
    try:
        found.start()
        broker.freeze()
        yield found
    finally:
        broker.thaw()
        found.run.kill()


def test_groups_are_told_as_of_their_checkpoints(scene: Scene) -> None:
    code, text = scene.command("groups", scene.flow, "--json")
    found = json.loads(text)
    assert (code, found["exit_code"]) == (1, 1)
    scene.assert_told(found)
    code, text = scene.command("groups", scene.flow)
    assert code == 1 and f"{scene.alias} has not answered since " in text
    assert "1 group, 1 ready to go on on the target" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith(scene.group)]
    assert row[1:4] == [scene.remote, "0", "12"]


def test_offsets_are_translated_and_what_is_not_checked_is_said(scene: Scene) -> None:
    asked = ("translate", scene.flow, "--topic", scene.topic, "--partition", "0", "--offset")
    code, text = scene.command(*asked, "7")
    assert code == 0 and f"{scene.topic}-0 offset 7 -> {scene.remote}-0 offset 7, exact (copied)" in text
    assert f"not checked: whether the topic was recreated on {scene.alias} " in text
    code, text = scene.command(*asked, "7", "30", "--json")
    found = json.loads(text)
    assert code == 1 and found["unread"] and [one["kind"] for one in found["offsets"]] == ["copied", "not_yet"]


def test_the_status_names_the_source_and_tells_the_rest(scene: Scene) -> None:
    code, found = scene.run.status()
    assert (code, found["clusters"]["B"]) == (1, "")
    assert found["clusters"][scene.alias].startswith(f"{scene.alias} has not answered since ")
    assert found["groups"][0]["runs"] and found["flows"][0]["guarantee"]["level"] == "exactly-once"
    (flow,) = found["flows"]
    (topic,) = flow["topics"]
    assert (flow["lag"], flow["lag_is_partial"]) == (0, True), "as the worker knew it"
    assert scene.begun_ms < flow["lag_as_of_ms"] <= found["at_ms"]
    assert scene.begun_ms < topic["newest_ms"] <= found["at_ms"], "the last source time that was copied"


def test_rest_tells_the_same_as_the_commands(scene: Scene) -> None:
    found = scene.get("groups")
    scene.assert_told(found)
    assert found["total"] == 1
    found = scene.get(f"translate?topic={scene.topic}&partition=0&offset=7")
    assert found["unread"] and (found["exit_code"], found["offsets"][0]["other_offset"]) == (0, 7)
    asked_ms = found["at_ms"]
    (part,) = scene.get(f"topics/{scene.topic}/partitions")["items"]
    assert (part["position"], part["end"]) == (20, 20)
    for told in (part, *scene.get("topics")["items"], scene.get("")["summary"]):
        assert scene.begun_ms < told["lag_as_of_ms"] <= asked_ms + ANSWER_S * 1000, told
