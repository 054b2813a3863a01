"""``mm2py pause`` and ``mm2py resume`` on real brokers: topics and partitions, by the command and over REST."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.login import login_name
from tests.cluster.copies import assert_copied, make_topic
from tests.cluster.groups import Group
from tests.cluster.kafka_client import new_name, read, record_count, values, write
from tests.cluster.rest.serving import asked
from tests.cluster.running import during, one_way_properties, wait_until
from tests.cluster.six_places import FIRST, MORE, Scene

LOOKED_AT_S = 5.0
"""How long it is looked whether a paused partition stands still."""


@pytest.fixture(scope="module")
def scene(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Scene]:
    with Scene(source_cluster, target_cluster).running() as scene:
        yield scene


def test_a_paused_topic_is_told_in_all_places_and_goes_on_at_the_next_record(scene: Scene) -> None:
    topic = scene.topic("paused")
    scene.copied(topic, len(FIRST))
    said = scene.run.ordered("pause", scene.flow, "--topic", topic, "--reason", "ticket 4711")
    assert said == f"{scene.flow}: {topic} paused.\n"
    scene.run.wait_for_event("topic.paused", topic=topic)
    write(scene.source, topic, MORE)
    for _ in during(LOOKED_AT_S, "nothing of it is copied"):
        assert record_count(scene.target, scene.remote(topic)) == len(FIRST)
    scene.says(topic, "paused", lag=len(MORE))
    look = scene.look()
    assert look.code == 0 and look.found["summary"].startswith(f"copied except {topic} of {scene.flow} (paused since")
    assert f"by {login_name()} on " in look.found["summary"] and ": ticket 4711; lag 25)" in look.found["summary"]
    assert f"mm2py resume {scene.run.file} '{scene.flow}' --topic {topic}" in look.text
    verdict = look.flow["verdict"]
    assert verdict["readiness"] == "incomplete" and f"{topic} (paused)" in verdict["text"], verdict
    assert [one["topic"] for one in verdict["left_out"]] == [topic]
    code, text = scene.run.why(scene.flow, "--topic", topic)
    assert code == 3 and "(mm2py pause): ticket 4711. Since " in text, text
    assert f"mm2py resume {scene.run.file} '{scene.flow}' --topic {topic}" in text, text
    code, text = scene.run.why(scene.flow, "--partition", f"{topic}/0")
    assert code == 3 and "ticket 4711" in text, text
    (counted,) = scene.metric("mm2py_flow_paused_partitions", flow=scene.flow)
    assert counted == 1
    assert {task["state"] for task in scene.in_connect()["tasks"]} == {"RUNNING"}
    before = scene.run.ordered("pause", scene.flow, "--topic", topic, "--reason", "another")
    assert "is paused already, by " in before and "ticket 4711" in before, before
    said = scene.run.ordered("resume", scene.flow, "--topic", topic)
    assert said == f"{scene.flow}: {topic} resumed.\n"
    wait_until(lambda: values(scene.target, scene.remote(topic)) == FIRST + MORE, "it goes on at the next record")
    scene.is_copied(topic)
    scene.is_silent_about(topic, "paused")
    assert "was not paused" in scene.run.ordered("resume", scene.flow, "--topic", topic)
    history = scene.run.ordered("history", scene.flow)
    assert f"{topic} paused by {login_name()} on " in history and f"{topic} resumed by " in history, history
    wait_until(lambda: scene.look().flow["verdict"]["readiness"] == "safe", "it is safe to fail over")


def test_a_name_that_the_flow_does_not_copy_is_refused_with_what_may_be_meant(scene: Scene) -> None:
    topic = scene.topic("named")
    scene.copied(topic, len(FIRST))
    before = len(read(scene.target, f"mm2-configs.{scene.alias}.internal"))
    wait_until(lambda: scene.in_v1(topic), "it is known")
    told = scene.rest.told("PUT", f"/v1/flows/{scene.flow}/topics/{topic[:-1]}/pause", 404)
    assert f"copies no topic {topic[:-1]}. Do you mean {topic}" in told["message"], told
    scene.rest.told("PUT", f"/v1/flows/{scene.flow}/topics/{topic}/partitions/1/pause", 404)
    records = read(scene.target, f"mm2-configs.{scene.alias}.internal")[before:]
    assert {(record.key() or b"").rpartition(b"-audit-")[0] for record in records} <= {b"mm2py"}, "only the audit"


def test_a_paused_partition_stays_paused_when_its_owner_is_killed_and_nothing_is_lost_or_repeated(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    alias, topic, partitions = new_name("P").replace("-", ""), new_name("orders"), (0, 1, 2, 3)
    flow, copy = f"{alias}->B", f"{alias}.{topic}"
    make_topic(source_cluster, topic, len(partitions))

    def send(names: list[str]) -> None:
        for partition in partitions:
            write(source_cluster, topic, names, partition=partition)

    def count(*wanted: int) -> int:
        return len(values(target_cluster, copy, wanted))  # offsets would count the markers of the fence as well

    send([f"a{number}" for number in range(20)])
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(alias, "B"),
        **{f"{flow}.topics": topic, "config.storage.replication.factor": 1, "listeners": "http://127.0.0.1:0"},
    )
    with (group := Group(target_cluster, properties, workers=2)):
        first, second = group.workers
        wait_until(lambda: count(*partitions) == 80, "all is copied")
        group.wait_until_assigned(len(partitions))
        first.ordered("pause", flow, "--partition", f"{topic}/0-2", "--reason", "ticket 4711")
        rest = asked(second, flow)
        rest.told("PUT", f"/v1/flows/{flow}/topics/{topic}/partitions/2/resume?reason=not+this", 202)
        for worker in group.workers:
            worker.wait_for_event("topic.resumed", topic=topic, partition=2)
        send([f"b{number}" for number in range(10)])
        wait_until(lambda: count(2, 3) == 60, "those that are not paused go on")
        first.kill()
        third = group.start_another()
        group.wait_until_assigned(len(partitions), among=2)
        third.wait_for_event("topic.paused", topic=topic, partition=0)
        send([f"c{number}" for number in range(10)])
        wait_until(lambda: count(2, 3) == 80, "the others go on with their next owners")
        for _ in during(LOOKED_AT_S, "the paused ones stand still"):
            assert count(0, 1) == 40
        wait_until(
            lambda: (
                [
                    [one["reason"] for one in part["not_copied"]]
                    for part in rest.told("GET", f"/v1/flows/{flow}/topics/{topic}/partitions", 200)["items"]
                ]
                == [["paused"], ["paused"], [], []]
            ),
            "/v1 says which are paused",
        )
        _, found = third.status()
        (its,) = found["flows"]
        assert its["verdict"]["readiness"] == "incomplete" and its["lag"] == 40, its["verdict"]
        assert its["verdict"]["left_out"] == [{"topic": topic, "reason": "paused", "partitions": "0-1"}]
        rest.told("PUT", f"/v1/flows/{flow}/topics/{topic}/resume?reason=it+is+done", 202)
        wait_until(lambda: count(*partitions) == 160, "they go on")
        assert_copied(source_cluster, target_cluster, topic, copy, run=third)
        for worker in (second, third):
            assert worker.terminate() == 0
    assert_copied(source_cluster, target_cluster, topic, copy)
    records = read(target_cluster, f"mm2-configs.{alias}.internal")
    latest = {record.key(): record.value() for record in records}
    assert [key for key, value in latest.items() if (key or b"").startswith(b"mm2py-paused-") and value] == []
    audit = [json.loads(value) for key, value in latest.items() if value and (key or b"").startswith(b"mm2py-audit-")]
    assert any(one["path"].endswith(f"/topics/{topic}/resume") and one["status"] == 202 for one in audit), audit


def test_without_a_topic_the_whole_flow_is_paused_as_connect_does_it(scene: Scene) -> None:
    topic = scene.topic("whole")
    scene.copied(topic, len(FIRST))
    scene.run.ordered("pause", scene.flow, "--topic", topic)
    assert "paused by " in scene.run.ordered("pause", scene.flow, "--reason", "maintenance")
    wait_until(lambda: scene.in_connect()["connector"]["state"] == "PAUSED", "Connect's clients see it")
    assert "it is paused already, by " in scene.run.ordered("pause", scene.flow)
    said = scene.run.ordered("resume", scene.flow)
    assert "resumed by " in said and f"{topic} is still paused since " in said, said
    wait_until(lambda: scene.in_connect()["connector"]["state"] == "RUNNING", "it goes on")
    scene.run.ordered("resume", scene.flow, "--topic", topic)
    write(scene.source, topic, MORE)
    scene.copied(topic, len(FIRST) + len(MORE))
