"""Why the topics of a whole flow are not copied, in six places: see ``test_not_copied.py``.

One worker is paused, stopped, switched off, frozen and ended. Its REST is a process of its own, and answers while the
worker is frozen.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic
from tests.cluster.copying.test_gaps import delete_before
from tests.cluster.kafka_client import record_count, values, write
from tests.cluster.running import Value, wait_until
from tests.cluster.six_places import FIRST, MORE, SLOW_S, Look, Scene
from tests.cluster.why_table import wait_for_cause

EARLIER = {"Mm2pyGap", "Mm2pyConnectorRestarts"}
"""Alerts that have a series for a quarter of an hour after a gap, and after the flow was resumed several times."""


@pytest.fixture(scope="module")
def scene(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Scene]:
    extra: dict[str, Value] = {
        "{flow}.on.source.gap": "stop",
        "stall.timeout.ms": 2000,
        "B.session.timeout.ms": 60_000,  # a frozen worker counts as alive
    }
    with Scene(source_cluster, target_cluster, extra).running() as scene:
        yield scene


def says(
    scene: Scene, topic: str, reason: str, *, code: int, problems: list[str], connector: str, alert: str = ""
) -> Look:
    """Assert what five of the places tell of a topic of a flow that is not copied; return what the status says.

    Args:
        problems: the kinds of those of the flow.
        connector: its state in Connect's words; empty: Connect's clients do not see it.
        alert: the one that has a series; empty: no operator has to be woken.
    """
    scene.wait_for_v1(topic, reason)
    look = scene.look()
    (said,) = look.topic(topic)["not_copied"]
    assert said["reason"] == reason and said["why"] and not said["waits_for_operator"], said
    assert (look.code, [one["kind"] for one in look.found["problems"]]) == (code, problems), look.found["problems"]
    assert all(one["text"][:60] in look.text for one in look.found["problems"])
    if connector:
        state = scene.in_connect()
        assert state["connector"]["state"] == connector, state
        assert all(task["state"] == connector for task in state["tasks"]), state
    else:
        scene.rest.told("GET", f"{scene.rest.connector()}/status", 404)
    wanted = {alert} - {""}
    wait_until(lambda: scene.alerts() - EARLIER == wanted, f"the alerts are {wanted}")
    lag = scene.lags(topic)
    assert lag in ([], [float(len(MORE))]), "a lag is true, or there is none"
    return look


@contextmanager
def held(scene: Scene, verb: str, state: str) -> Iterator[None]:
    """Pause or stop the connector while the ``with`` block lasts."""
    before, event = len(scene.run.events(f"connector.{state}")), f"connector.{state}"
    scene.rest.told("PUT", f"{scene.rest.connector()}/{verb}", 202 if verb == "pause" else 204)
    try:
        wait_until(lambda: len(scene.run.events(event)) > before, f"it is {state}", deadline_s=SLOW_S)
        yield
    finally:
        scene.rest.told("PUT", f"{scene.rest.connector()}/resume", 202)


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("stop", "stopped")])
def test_a_held_flow_is_named_in_the_heading_with_its_lag(scene: Scene, verb: str, state: str) -> None:
    topic = scene.topic(state)
    scene.copied(topic, len(FIRST))
    with held(scene, verb, state):
        write(scene.source, topic, MORE)
        wait_until(lambda: (scene.in_v1(topic) or {}).get("lag_records") == len(MORE), "/v1 tells the lag")
        look = says(scene, topic, "held", code=0, problems=[], connector=state.upper(), alert="Mm2pyFlowHeld")
        scene.why_tells({"paused": "flow-paused", "stopped": "flow-stopped"}[state], topic)
        assert re.search(rf"nothing is copied: {scene.flow} \({state} since .*; lag 25\)", look.found["summary"]), (
            look.found
        )
        assert look.found["summary"] in look.text
        assert re.search(rf"^{topic} .* held$", look.text, re.MULTILINE)
        status = {one["metric"]["status"] for one in scene.prometheus.query("kafka_connect_connector_status == 1")}
        assert state in status, status
    scene.copied(topic, len(FIRST) + len(MORE))


def test_a_partition_that_stops_at_a_gap_waits_for_an_operator(scene: Scene) -> None:
    topic = scene.topic("expired")
    scene.copied(topic, len(FIRST))
    with held(scene, "pause", "paused"):
        write(scene.source, topic, MORE)
        delete_before(scene.source, topic, len(FIRST) + 5)
    scene.says(topic, "stopped", lag=len(MORE))
    code, (answer,) = scene.run.gaps("accept", f"{scene.flow}:{topic}:0")
    assert (code, answer["accepted"]) == (0, True), answer
    wait_until(lambda: values(scene.target, scene.remote(topic)) == FIRST + MORE[5:], "it goes on", deadline_s=SLOW_S)
    scene.is_silent_about(topic, "stopped")


def test_a_flow_that_is_switched_off_is_told_with_the_way_back(scene: Scene) -> None:
    topic = scene.topic("off")
    scene.copied(topic, len(FIRST))
    config = scene.rest.told("GET", f"{scene.rest.connector()}/config", 200)
    scene.rest.told("DELETE", scene.rest.connector(), 204)
    try:
        write(scene.source, topic, MORE)
        wait_until(lambda: not scene.metric("mm2py_lag_records", flow=scene.flow), "the worker has ended it")
        says(scene, topic, "switched-off", code=3, problems=["switched-off"], connector="")
        scene.why_tells("switched-off", topic)
    finally:
        scene.rest.told("POST", "/connectors", 201, json={"name": config["name"], "config": config})
    scene.copied(topic, len(FIRST) + len(MORE))


def test_what_the_settings_leave_out_is_told_with_the_pattern_that_decided(scene: Scene) -> None:
    """It has no lag, it is no problem, and Connect, metrics and alerts have nothing of it."""
    deselected, pattern = scene.topic("left-before"), f"{scene.stem}-t-left-.*"
    scene.copied(deselected, len(FIRST))
    config = f"{scene.rest.connector()}/config"
    scene.rest.told("PATCH", config, 200, json={"topics.exclude": pattern})
    try:
        scene.says(deselected, "deselected", cause="deselected")  # for a minute: then it is excluded, as the next one
        topics = {
            "excluded": f"{scene.stem}-t-left-out",
            "cycle": f"B.{scene.stem}-t-cycle",
            "internal": f"mm2-{scene.stem}.internal",
            "own-topic": f"mm2-ledger.{scene.stem}.internal",
            "not-included": f"{scene.stem}-others",
        }
        for topic in topics.values():
            make_topic(scene.source, topic, 1)
            write(scene.source, topic, FIRST)
        found = {reason: scene.wait_for_v1(topic, reason) for reason, topic in topics.items()}
        assert f"Pattern `{pattern}` (entry 1 of topics.exclude, stored" in found["excluded"]["why"], found["excluded"]
        look = scene.look()
        assert {one["kind"] for one in look.found["problems"]} <= {"drift"}, "the file has another topics.exclude"
        for reason, topic in topics.items():
            assert found[reason]["why"] and found[reason]["lag_records"] is None
            assert look.topic(topic) is None and topic not in look.text
            assert topic not in str(scene.in_connect())
            assert not scene.lags(topic)
            assert record_count(scene.target, scene.remote(topic)) == 0
        assert scene.alerts() <= EARLIER
    finally:
        scene.rest.told("PATCH", config, 200, json={"topics.exclude": None})
    scene.is_copied(deselected)
    scene.copied(topics["excluded"], len(FIRST))


def test_a_worker_that_hangs_is_not_believed(scene: Scene) -> None:
    """It is alive for its group, and nothing says what it does not copy: positions tell it."""
    topic = scene.topic("standing")
    scene.copied(topic, len(FIRST))
    scene.is_copied(topic)
    scene.run.signal(signal.SIGSTOP)
    try:
        write(scene.source, topic, MORE)
        new = f"{scene.stem}-t-late"
        make_topic(scene.source, new, 1)
        scene.wait_for_v1(topic, "standing")
        look = scene.look()
        scene.says(topic, "standing", look=look, cause="worker-hangs")
        scene.says(new, "new", look=look, cause="new")
        assert not scene.metric("mm2py_lag_records", flow=scene.flow), "no lag is told"
    finally:
        scene.run.signal(signal.SIGCONT)
    scene.copied(topic, len(FIRST) + len(MORE))
    scene.is_copied(new)


def test_a_flow_without_a_worker_is_not_running(scene: Scene) -> None:
    """Its REST has ended with it, and so have its metrics."""
    topic = scene.topic("ended")
    scene.copied(topic, len(FIRST))
    assert scene.run.terminate() == 0
    write(scene.source, topic, MORE)
    look = scene.look()
    (said,) = look.topic(topic)["not_copied"]
    assert (said["reason"], said["waits_for_operator"], look.topic(topic)["lag"]) == ("not-running", True, len(MORE))
    kinds = {one["kind"] for one in look.found["problems"]}
    wait_for_cause("worker-ended", lambda: json.loads(scene.run.why(scene.flow, "--topic", topic, "--json")[1]))
    assert look.code == 3 and "not-running" in kinds and "not-copied" not in kinds, look.found["problems"]
    assert "no worker runs" in look.text
    wait_until(lambda: "Mm2pyNoWorker" in scene.alerts(), f"the alert has a series: {scene.alerts()}")
    assert not scene.metric("mm2py_lag_records", flow=scene.flow), "no lag is told"
