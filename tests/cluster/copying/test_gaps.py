"""Gaps on real brokers, with real processes: what is said of them, what ``mm2py gaps`` shows, and what follows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import TopicPartition

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic, new_topic
from tests.cluster.kafka_client import admin, delete_topic, new_name, record_count, values, write
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, Value, one_way_properties


def flow_of(source: KafkaCluster, target: KafkaCluster, topic: str, **extra: Value) -> tuple[str, Mapping[str, Value]]:
    """Return an alias that no other test has, and a file: status topics are shared by all flows from one alias."""
    alias = new_name("G").replace("-", "")
    return alias, one_way_properties(source, target, names=(alias, "B"), **{f"{alias}->B.topics": topic, **extra})


def delete_before(cluster: KafkaCluster, topic: str, offset: int) -> None:
    client, at = admin(cluster), TopicPartition(topic, 0, offset)
    client.delete_records([at])[at].result(ANSWER_S)


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def test_deleted_records_are_a_gap_that_copying_goes_on_behind(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "expired")
    alias, properties = flow_of(source_cluster, target_cluster, topic)
    remote = f"{alias}.{topic}"
    write(source_cluster, topic, numbered(0, 9))
    with Mm2py(properties) as run:
        run.wait_until(lambda: record_count(target_cluster, remote) == 10, "the first ten are copied")
        assert run.terminate() == 0
    write(source_cluster, topic, numbered(10, 29))
    delete_before(source_cluster, topic, 25)
    with Mm2py(properties) as run:
        met = run.wait_for_event("source.expired", topic=topic)
        assert (met["first_offset"], met["last_offset"], met["done"]) == (10, 24, "continued")
        run.wait_until(lambda: record_count(target_cluster, remote) == 15, "what is left is copied")
        assert values(target_cluster, remote) == numbered(0, 9) + numbered(25, 29)
        run.wait_until(lambda: run.gaps("--all")[1], "the gap is kept")
        code, (gap,) = run.gaps("--all")
        assert code == 0, "it waits for nobody"
        assert (gap["kind"], gap["topic"], gap["partition"], gap["open"]) == ("expired", topic, 0, False)
        assert (gap["first_offset"], gap["last_offset"], gap["done"]) == (10, 24, "continued")
        assert run.gaps() == (0, [])


@pytest.mark.slow
def test_a_topic_recreated_stops_and_goes_on_when_its_gap_is_accepted(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "anew")
    alias, properties = flow_of(source_cluster, target_cluster, topic)
    remote = f"{alias}.{topic}"
    write(source_cluster, topic, numbered(0, 9))
    with Mm2py(properties) as run:
        run.wait_until(lambda: record_count(target_cluster, remote) == 10, "ten are copied")
        assert run.terminate() == 0
    delete_topic(source_cluster, topic)
    make_topic(source_cluster, topic)
    write(source_cluster, topic, [b"new"])
    with Mm2py(properties) as run:
        run.wait_for_event("topic.refused", topic=topic)
        run.wait_until(lambda: run.gaps()[1], "the gap is kept")
        code, (gap,) = run.gaps()
        assert code == 3
        assert (gap["kind"], gap["done"], gap["position"], gap["open"]) == ("recreated", "stopped", 10, True)
        assert record_count(target_cluster, remote) == 10
        code, (answer,) = run.gaps("accept", f"{alias}->B:{topic}:0")
        assert (code, answer["accepted"]) == (0, True), answer
        run.wait_until(lambda: record_count(target_cluster, remote) == 11, "the new topic is copied")
        assert values(target_cluster, remote) == [*numbered(0, 9), b"new"]
        assert run.gaps() == (0, [])
        code, (answer,) = run.gaps("accept", f"{alias}->B:{topic}:0")
        assert (code, answer["accepted"], answer["text"]) == (1, False, "no gap of it is open.")
        write(source_cluster, topic, [b"newer"])
        run.wait_until(lambda: record_count(target_cluster, remote) == 12, "it goes on")
        assert run.terminate() == 0


def test_under_restart_and_recopy_both_sides_are_copied_anew_by_themselves(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "restart")
    policies: dict[str, Value] = {"on.source.gap": "restart", "on.target.loss": "recopy"}
    alias, properties = flow_of(source_cluster, target_cluster, topic, **policies)
    remote = f"{alias}.{topic}"
    write(source_cluster, topic, numbered(0, 9))
    with Mm2py(properties) as run:
        run.wait_until(lambda: record_count(target_cluster, remote) == 10, "ten are copied")
        run.wait_until(lambda: record_count(target_cluster, f"mm2-offsets.{alias}.internal", range(5)) > 1, "stored")
        delete_topic(source_cluster, topic)
        make_topic(source_cluster, topic)
        write(source_cluster, topic, numbered(100, 102))
        both = numbered(0, 9) + numbered(100, 102)
        run.wait_until(lambda: values(target_cluster, remote) == both, "the new topic is copied behind the old one")
        delete_topic(target_cluster, remote)
        write(source_cluster, topic, [b"last"])
        anew = [*numbered(100, 102), b"last"]
        run.wait_until(
            lambda: values(target_cluster, remote) == anew, "the copy is made once more", deadline_s=90 * PATIENCE
        )
        run.wait_until(lambda: len(run.gaps("--all")[1]) >= 2, "both gaps are kept")
        code, found = run.gaps("--all")
        assert code == 0
        assert {"target-deleted": "restarted"}.items() <= {gap["kind"]: gap["done"] for gap in found}.items()
        assert {gap["done"] for gap in found} <= {"restarted", "kept"}
        assert not run.events("flow.crashed"), run.tail()
        assert run.terminate() == 0
