"""A topic that is not copied says why in six places: in the log, ``status``, ``/v1``, Connect, metrics and alerts.

Each test makes one reason happen on real brokers, asks all six, takes the cause away, and sees the topic copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from deploy.local.prometheus import Prometheus
from tests.cluster.copies import make_topic, without_right
from tests.cluster.kafka_client import create_topic, delete_topic, new_name, record_count, write
from tests.cluster.rest.serving import Asked, asked
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties

SLOW_S = 90.0 * PATIENCE
FIRST, MORE = [b"%d" % number for number in range(10)], [b"%d" % number for number in range(10, 35)]
ALERTS = (Path(__file__).parents[3] / "deploy" / "grafana" / "alerts.yaml").read_text()


def expression_of(alert: str) -> str:
    found = re.search(rf"- alert: {alert}\n +expr: (.+)\n", ALERTS)
    assert found is not None
    return found.group(1)


class Scene:
    """One worker of a flow between two clusters, and everybody who asks about it."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, **extra: str | int | bool) -> None:
        self.source, self.target = source, target
        self.stem = new_name("seen")
        self.alias = new_name("N").replace("-", "")
        self.flow = f"{self.alias}->B"
        self.missing = f"{self.stem}-absent"
        settings: dict[str, str | int | bool] = {
            f"{self.flow}.topics": f"{self.stem}-t.*,{self.missing}",
            "config.storage.replication.factor": 1,
            "sync.topic.acls.enabled": False,
            "sync.topic.configs.enabled": False,
            "stall.timeout.ms": 5000,
            "refresh.topics.interval.seconds": 5,
            "listeners": "http://127.0.0.1:0",
            **extra,
        }
        self.run = Mm2py(one_way_properties(source, target, names=(self.alias, "B"), **settings))
        self.rest: Asked
        self.prometheus: Prometheus

    def topic(self, name: str, records: list[bytes] = FIRST) -> str:
        topic = f"{self.stem}-t-{name}"
        make_topic(self.source, topic, 1)
        write(self.source, topic, records)
        return topic

    def remote(self, topic: str) -> str:
        return f"{self.alias}.{topic}"

    def copied(self, topic: str, count: int) -> None:
        self.run.wait_until(
            lambda: record_count(self.target, self.remote(topic)) == count, f"{topic} is copied", deadline_s=SLOW_S
        )

    # The six places

    def in_status(self, topic: str) -> tuple[int, Any, list[str]]:
        code, found = self.run.status()
        flow = found["flows"][0]
        reports = [one for one in flow["topics"] if one["topic"] == topic]
        problems = [one["text"] for one in found["problems"] if one["where"].endswith(f" {topic}")]
        return code, reports[0] if reports else None, problems

    def in_v1(self, topic: str) -> Any:
        items = self.rest.told("GET", f"/v1/flows/{self.flow}/topics?limit=1000", 200)["items"]
        return next((one for one in items if one["topic"] == topic), None)

    def in_connect(self) -> tuple[str, list[str], str]:
        """Return the connector's state, those of its tasks, and all traces."""
        found = self.rest.told("GET", f"{self.rest.connector()}/status", 200)
        traces = [one.get("trace") or "" for one in (found["connector"], *found["tasks"])]
        return found["connector"]["state"], [task["state"] for task in found["tasks"]], "\n".join(traces)

    def metric(self, name: str, **labels: str) -> list[float]:
        wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return [float(one["value"][1]) for one in self.prometheus.query(f"{name}{{{wanted}}}")]

    def worker_state(self) -> str:
        """Return what the worker itself says of its connector."""
        found = self.prometheus.query("kafka_connect_connector_status == 1")
        return next((one["metric"]["status"] for one in found if "Source" in one["metric"]["connector"]), "")

    def says(self, topic: str, reason: str, *, alert: str, task_fails: bool, partitions: bool = True) -> None:
        """Assert that all six places tell this reason of a topic."""

        def v1() -> bool:
            found = self.in_v1(topic)
            return found is not None and not found["is_copied"] and found["reason"] == reason and bool(found["why"])

        self.run.wait_until(v1, f"/v1 says {reason}", deadline_s=SLOW_S)
        code, report, problems = self.in_status(topic)
        assert code == 3 and problems, (code, problems)
        (said, *_) = [one for one in report["not_copied"] if one["reason"] == reason]
        assert said["since_ms"] and said["why"] and said["waits_for_operator"], said

        def connect() -> bool:
            state, tasks, traces = self.in_connect()
            return state == "RUNNING" and ("FAILED" in tasks) == task_fails and topic in traces

        self.run.wait_until(connect, f"Connect's status tells it: {self.in_connect()}")
        of_metric = f"mm2py_flow_not_copied_{'partitions' if partitions else 'topics'}"
        self.run.wait_until(lambda: sum(self.metric(of_metric, flow=self.flow, reason=reason)) > 0, "it is counted")
        expression = expression_of(alert)
        self.run.wait_until(
            lambda: any(one["metric"].get("flow") == self.flow for one in self.prometheus.query(expression)),
            f"{alert} has a series",
        )
        lag = self.metric("mm2py_lag_records", flow=self.flow, topic=topic)
        assert 0 not in lag, "a lag that is not known is no lag of 0"

    def is_silent_about(self, topic: str, reason: str) -> None:
        def over() -> bool:
            found = self.in_v1(topic)
            return found is None or all(one["reason"] != reason for one in found["not_copied"])

        self.run.wait_until(over, f"nothing says {reason} any more", deadline_s=SLOW_S)


def started(scene: Scene) -> Iterator[Scene]:
    write_first = scene.topic("first")
    with scene.run:
        scene.rest = asked(scene.run, scene.flow)
        scene.copied(write_first, len(FIRST))
        with Prometheus([scene.rest.address.removeprefix("http://")], {}) as prometheus:
            scene.prometheus = prometheus
            yield scene


@pytest.fixture(scope="module")
def from_guarded(guarded_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Scene]:
    yield from started(Scene(guarded_cluster, target_cluster))


@pytest.fixture(scope="module")
def to_guarded(source_cluster: KafkaCluster, guarded_cluster: KafkaCluster) -> Iterator[Scene]:
    yield from started(Scene(source_cluster, guarded_cluster))


def test_a_name_that_the_source_does_not_show_is_missing(from_guarded: Scene) -> None:
    scene, name = from_guarded, from_guarded.missing
    said = scene.run.wait_for_event("topic.missing", topic=name, reason="missing", deadline_s=SLOW_S)
    assert "does not show it" in said["why"] and "Create it" in said["remedy"]
    scene.says(name, "missing", alert="Mm2pyTopicsMissing", task_fails=False, partitions=False)
    create_topic(scene.source, name, partitions=1)
    write(scene.source, name, FIRST)
    scene.copied(name, len(FIRST))
    scene.is_silent_about(name, "missing")
    code, found = scene.run.status()
    assert (code, found["problems"], found["summary"]) == (0, [], "nothing is wrong")


def test_a_source_topic_that_may_not_be_read_any_more(from_guarded: Scene) -> None:
    """Its lag was 0 and its status well, while 25 records waited."""
    scene, topic = from_guarded, from_guarded.topic("revoked")
    scene.copied(topic, len(FIRST))
    with without_right(scene.source, topic, AclOperation.READ):
        said = scene.run.wait_for_event("source.denied", topic=topic, deadline_s=SLOW_S)
        write(scene.source, topic, MORE)
        assert said["reason"] == "source-denied" and "Grant READ" in said["remedy"]
        scene.says(topic, "source-denied", alert="Mm2pyNotCopied", task_fails=True)
        assert record_count(scene.target, scene.remote(topic)) == len(FIRST)
    scene.copied(topic, len(FIRST) + len(MORE))
    scene.is_silent_about(topic, "source-denied")


def test_a_source_topic_that_might_never_be_read(from_guarded: Scene) -> None:
    scene, name = from_guarded, f"{from_guarded.stem}-t-never"
    with without_right(scene.source, name, AclOperation.READ):
        topic = scene.topic("never")
        scene.says(topic, "source-denied", alert="Mm2pyNotCopied", task_fails=True)
    scene.copied(topic, len(FIRST))


def test_a_remote_topic_that_may_not_be_written_to_any_more(to_guarded: Scene) -> None:
    scene, topic = to_guarded, to_guarded.topic("unwritable")
    scene.copied(topic, len(FIRST))
    with without_right(scene.target, scene.remote(topic), AclOperation.WRITE):
        write(scene.source, topic, MORE)
        said = scene.run.wait_for_event("target.denied", topic=topic, deadline_s=SLOW_S)
        assert said["reason"] == "target-denied"
        scene.says(topic, "target-denied", alert="Mm2pyNotCopied", task_fails=True)
    scene.copied(topic, len(FIRST) + len(MORE))
    scene.is_silent_about(topic, "target-denied")


def test_a_topic_whose_remote_topic_is_not_empty(to_guarded: Scene) -> None:
    scene = to_guarded
    remote = scene.remote(f"{scene.stem}-t-filled")
    create_topic(scene.target, remote, partitions=1)
    write(scene.target, remote, ["whose is this?"])
    topic = scene.topic("filled")
    scene.run.wait_for_event("topic.refused", topic=topic, deadline_s=SLOW_S)
    scene.says(topic, "refused", alert="Mm2pyTopicsRefused", task_fails=False, partitions=False)
    delete_topic(scene.target, remote)
    scene.copied(topic, len(FIRST))
    scene.is_silent_about(topic, "refused")


def test_a_record_that_the_target_refuses(to_guarded: Scene) -> None:
    scene = to_guarded
    remote = scene.remote(f"{scene.stem}-t-large")
    create_topic(scene.target, remote, 1, {"max.message.bytes": "2000"})
    topic = scene.topic("large", [b"small", b"x" * 5000, b"small again"])
    said = scene.run.wait_for_event("source.too_large", topic=topic, deadline_s=SLOW_S)
    assert said["reason"] == "record-refused"
    scene.says(topic, "record-refused", alert="Mm2pyNotCopied", task_fails=True)


def test_a_paused_flow_is_named_in_the_heading_with_its_lag_and_held_everywhere(to_guarded: Scene) -> None:
    scene = to_guarded
    topic = scene.topic("paused")
    scene.copied(topic, len(FIRST))
    scene.rest.told("PUT", f"{scene.rest.connector()}/pause", 202)
    try:
        scene.run.wait_until(lambda: scene.worker_state() == "paused", "its worker has paused it", deadline_s=SLOW_S)
        write(scene.source, topic, MORE)
        summary: list[str] = []

        def named() -> bool:
            _, found = scene.run.status()
            summary[:] = [found["summary"]]
            report = next(one for one in found["flows"][0]["topics"] if one["topic"] == topic)
            return report["lag"] == len(MORE) and report["not_copied"][0]["reason"] == "held"

        scene.run.wait_until(named, "the status names the pause", deadline_s=SLOW_S)
        assert re.search(rf"{scene.flow} \(paused.*, lag [\d,]+\)", summary[0]), summary
        scene.run.wait_until(lambda: scene.in_v1(topic)["reason"] == "held", "/v1 says held")
        assert scene.in_v1(topic)["is_copied"] is False
        assert scene.metric("mm2py_lag_records", flow=scene.flow, topic=topic) in ([], [float(len(MORE))])
    finally:
        scene.rest.told("PUT", f"{scene.rest.connector()}/resume", 202)
    scene.copied(topic, len(FIRST) + len(MORE))


def test_topics_that_come_and_go_have_words_of_their_own(from_guarded: Scene) -> None:
    """Once a topic just created was ``gone``, and one just deselected was said not to be on the source."""
    scene = from_guarded
    scene.in_v1("")  # its list of topics is older than the next one
    topic = scene.topic("new")
    seen = set()

    def is_copied() -> bool:
        found = scene.in_v1(topic)
        seen.add(None if found is None else found["reason"])
        return found is not None and found["is_copied"]

    scene.run.wait_until(is_copied, "it is copied", deadline_s=SLOW_S)
    assert seen <= {None, "new", "starting", "not-listed", "standing"}, seen
    name = f"{scene.flow}.MirrorSourceConnector"
    before = scene.rest.told("GET", f"/connectors/{name}/config", 200)["topics"]
    scene.rest.told("PATCH", f"/connectors/{name}/config", 200, json={"topics.exclude": topic})
    try:
        scene.run.wait_until(lambda: scene.in_v1(topic)["reason"] in {"deselected", "excluded"}, "it is deselected")
    finally:
        scene.rest.told("PATCH", f"/connectors/{name}/config", 200, json={"topics.exclude": "", "topics": before})
    scene.run.wait_until(is_copied, "it is copied again", deadline_s=SLOW_S)
    assert json.dumps(sorted(map(str, seen))).count("gone") == 0
