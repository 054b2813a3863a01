"""The history of a flow on real brokers: it outlives REST and its worker, and a killed coordinator leaves a gap."""

from __future__ import annotations

import os
import signal
from typing import Any

import httpx2

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import new_name, record_count, topic_config, write
from tests.cluster.rest.test_rest_process import rest_processes
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, one_way_properties, pause

POINTS_S = 60.0 * PATIENCE
"""Within this time three points are written, also on a busy machine."""


class Scene:
    """A worker that copies a topic, and its REST."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.alias = new_name("H").replace("-", "")
        self.topic = new_topic(source, "orders")
        settings = {
            f"{self.alias}->B.topics": self.topic,
            "mm2py.group": new_name("history"),
            "status.storage.replication.factor": 1,
            "listeners": "http://127.0.0.1:0",
        }
        self.run = Mm2py(one_way_properties(source, target, names=(self.alias, "B"), **settings))

    def told(self, query: str = "?from=1h") -> Any:
        at = self.run.events("rest.listening")[-1]["at"]
        answer = httpx2.get(f"{at}/v1/flows/{self.alias}->B/history{query}", timeout=ANSWER_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def points(self) -> dict[int, float]:
        """Return the lag at each time of which a point was written."""
        told = self.told()
        return {
            at: lag for at, lag in zip(told["times_ms"], told["series"]["lag_records"], strict=True) if lag is not None
        }

    def has_points(self, count: int) -> None:
        self.run.wait_until(lambda: len(self.points()) >= count, f"it has {count} points", deadline_s=POINTS_S)


def test_a_history_outlives_rest_and_its_worker_and_a_killed_coordinator_leaves_a_gap(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    scene = Scene(source_cluster, target_cluster)
    write(source_cluster, scene.topic, [b"%d" % number for number in range(1_000)])
    with scene.run as run:
        run.wait_for_event("rest.listening")
        remote = f"{scene.alias}.{scene.topic}"
        run.wait_until(lambda: record_count(target_cluster, remote) == 1_000, "they are copied")
        scene.has_points(1)
        write(source_cluster, scene.topic, [b"%d" % number for number in range(1_000)])
        scene.has_points(3)
        before = scene.points()
        assert set(list(before.values())[1:]) == {0}
        told = scene.told()
        assert max(filter(None, told["series"]["copied_records_per_s"])) > 50
        assert told["problem"] == ""
        assert topic_config(target_cluster, f"mm2-history.{scene.alias}.internal", "cleanup.policy") == "compact,delete"

        (rest,) = rest_processes(run.pid)
        os.kill(rest, signal.SIGKILL)
        run.wait_for_event("rest.ended")
        again = scene.points()
        assert {at: again[at] for at in before} == before, "a REST process that has just started tells the same"

        run.kill()
        pause(25.0, "two points are missed: nothing runs that could say so")
        run.start()
        begun = run.wait_for_event("rest.listening", after=run.events("rest.ended")[-1])
        run.wait_until(
            lambda: scene.points().keys() - again.keys() and scene.told()["gaps"],
            "it goes on writing",
            deadline_s=POINTS_S,
        )
        told, last = scene.told(), scene.points()
        assert begun and {at: last[at] for at in before} == before
        (gap,) = [one for one in told["gaps"] if one["to_ms"] - one["from_ms"] >= 20_000]
        in_gap = {
            lag
            for at, lag in zip(told["times_ms"], told["series"]["lag_records"], strict=True)
            if gap["from_ms"] <= at < gap["to_ms"]
        }
        assert in_gap == {None}
        assert "member.evicted" in [one["kind"] for one in told["events"]]
        assert not run.events("history.waiting")
        assert run.terminate() == 0
