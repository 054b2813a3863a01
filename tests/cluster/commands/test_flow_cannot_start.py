"""A flow whose positions may not be stored cannot start, and says so in six places, see ``test_not_copied.py``."""

from __future__ import annotations

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import without_right
from tests.cluster.kafka_client import record_count, write
from tests.cluster.running import wait_until
from tests.cluster.six_places import FIRST, MORE, SLOW_S, TOPICS, Scene


def positions(scene: Scene) -> str:
    return f"mm2-offsets.{scene.alias}.internal"


def test_a_flow_that_may_not_store_positions_says_so_although_nothing_of_it_runs(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    """The status said nothing for half a minute, and then that no worker has said why."""
    scene = Scene(source_cluster, guarded_cluster)
    with scene.running():
        topic = scene.topic("before")
        scene.copied(topic, len(FIRST))
        with without_right(scene.target, positions(scene), AclOperation.WRITE):
            write(scene.source, topic, MORE)
            new = scene.topic("new")
            failed = scene.run.wait_for_event("flow.failed", flow=scene.flow, deadline_s=SLOW_S)
            for one in (topic, new):
                scene.wait_for_v1(one, "not-started")
                scene.why_tells("flow-cannot-start", one)
            look = scene.look()
            (said,) = [one for one in look.flow["not_copied"] if one["reason"] == "not-started"]
            assert "cannot start the flow: " in said["why"] and positions(scene) in said["why"], (said, failed)
            assert said["since_ms"] and said["waits_for_operator"], said
            (problem,) = look.found["problems"]
            assert (look.code, problem["kind"], problem["where"]) == (3, "not-copied", scene.flow)
            assert problem["text"][:80] in look.text
            assert scene.rest.told("GET", f"/v1/flows/{scene.flow}", 200)["summary"]["why"]
            connector = scene.in_connect()["connector"]
            assert connector["state"] == "FAILED" and positions(scene) in connector["trace"], connector
            wait_until(lambda: sum(scene.metric(TOPICS, flow=scene.flow, reason="not-started")) == 1, "it counts")
            wait_until(lambda: "Mm2pyNotCopied" in scene.alerts(), "its alert has a series")
            assert record_count(scene.target, scene.remote(new)) == 0
        for one, count in ((topic, len(FIRST) + len(MORE)), (new, len(FIRST))):
            scene.copied(one, count)
            scene.is_copied(one)
        code, found = scene.run.status()
        assert (code, found["problems"]) == (0, [])
        assert scene.in_connect()["connector"]["state"] == "RUNNING"
