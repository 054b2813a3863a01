"""Remote topics: made as the source's are, found soon, widened in time, and said so where that cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from confluent_kafka.admin import AclOperation, ConfigResource

from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Planned, Traffic
from tests.cluster.copies import (
    add_partitions,
    assert_copied,
    dump,
    make_topic,
    new_topic,
    now_ms,
    partitions_of,
    send,
    without_right,
)
from tests.cluster.kafka_client import admin, new_name, record_count, topic_names
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, one_way_properties

FOUND_WITHIN_S = 50.0 * PATIENCE
"""Ten times what is promised: a loaded machine must not fail the test."""


def _own_settings(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    """Return the settings that a topic has of its own."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = admin(cluster)
    entries = client.describe_configs([resource])[resource].result(ANSWER_S)
    return {name: str(entry.value) for name, entry in entries.items() if entry.source == 1}


def test_a_remote_topic_has_the_sources_partitions_and_settings_and_its_own_copies(
    source_cluster: KafkaCluster, three_node_cluster: KafkaCluster
) -> None:
    """B80: what concerns the source's brokers and not the data stays behind, as in MirrorMaker 2."""
    travels = {
        "retention.ms": "123456789",
        "cleanup.policy": "compact,delete",
        "max.message.bytes": "2000000",
        "segment.bytes": "20000000",
        "compression.type": "lz4",
        "delete.retention.ms": "1234",
    }
    stays = {
        "min.insync.replicas": "1",
        "message.timestamp.type": "LogAppendTime",
        "unclean.leader.election.enable": "true",
        "follower.replication.throttled.replicas": "*",
        "leader.replication.throttled.replicas": "*",
    }
    topic = new_topic(source_cluster, "described", 5, {**travels, **stays})
    properties = one_way_properties(source_cluster, three_node_cluster) | {
        "A->B.topics": topic,
        "replication.factor": 2,
    }
    with Mm2py(properties) as run:
        run.wait_for_event("topics.copying")
        assert run.terminate() == 0
    remote = admin(three_node_cluster).list_topics(f"A.{topic}", timeout=ANSWER_S).topics[f"A.{topic}"]
    assert {number: len(part.replicas) for number, part in remote.partitions.items()} == dict.fromkeys(range(5), 2)
    assert _own_settings(three_node_cluster, f"A.{topic}") == travels


def test_new_topics_are_copied_within_seconds_and_internal_ones_never(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B71, with the interval that mm2py has by default."""
    stem = new_name("found")
    properties: Mapping[str, str | int | float | bool] = {
        name: value
        for name, value in one_way_properties(source_cluster, target_cluster, **{"A->B.topics": f".*{stem}.*"}).items()
        if name != "topics.watch.interval.ms"
    }
    with Mm2py(properties) as run:
        run.wait_for_event("flow.ready")
        for name in (f"mm2-{stem}.internal", f"{stem}.replica", f"__{stem}"):
            make_topic(source_cluster, name)
        for number in range(3):
            topic = f"{stem}-{number}"
            make_topic(source_cluster, topic, 3)
            send(source_cluster, topic, [Planned(2, now_ms(), None, b"first", ())])
            run.wait_until(
                lambda topic=topic: record_count(target_cluster, f"A.{topic}", range(3)) == 1,
                f"{topic} is copied",
                deadline_s=FOUND_WITHIN_S,
            )
        wanted = {f"A.{stem}-{number}" for number in range(3)}
        assert {name for name in topic_names(target_cluster) if stem in name} == wanted
        assert run.terminate() == 0


def test_without_refresh_neither_topics_nor_partitions_are_added(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Beside it runs a flow that does refresh: when that one has found both, this one would have."""
    stem = new_name("fixed")
    old, new = f"{stem}-old", f"{stem}-new"
    make_topic(source_cluster, old, 1)
    properties = one_way_properties(source_cluster, target_cluster, topics=f"{stem}.*") | {
        "clusters": "A,R,B",
        "R.bootstrap.servers": source_cluster.bootstrap,
        "R->B.enabled": True,
        "A->B.refresh.topics.enabled": False,
    }
    with Mm2py(properties) as run:
        for flow in ("A->B", "R->B"):
            run.wait_for_event("topics.copying", flow=flow)
        for number in range(2):
            make_topic(source_cluster, f"{new}{number}", 1)
            add_partitions(source_cluster, old, 2 + number)
            everywhere = islice(Traffic(seed=number, partitions=2 + number).records(), 100)
            send(source_cluster, old, everywhere)
            assert_copied(source_cluster, target_cluster, f"{new}{number}", f"R.{new}{number}", run=run)
            assert_copied(source_cluster, target_cluster, old, f"R.{old}", run=run)
        first = dump(source_cluster, old, [0])[0]
        run.wait_until(
            lambda: len(dump(target_cluster, f"A.{old}", [0])[0]) == len(first), "the old partition is copied on"
        )
        assert partitions_of(target_cluster, f"A.{old}") == 1
        assert not {f"A.{new}0", f"A.{new}1"} & topic_names(target_cluster)
        assert run.terminate() == 0


def test_a_remote_topic_that_cannot_be_widened_gets_what_fits(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    """B65: records of the fourth partition go nowhere else, and that is said with the way out; then it is taken."""
    topic = new_name("narrow")
    remote = f"A.{topic}"
    make_topic(guarded_cluster, remote, 3)
    make_topic(source_cluster, topic, 4)
    send(source_cluster, topic, islice(Traffic(seed=1, partitions=4).records(), 400))
    properties = one_way_properties(source_cluster, guarded_cluster, **{"A->B.topics": topic})
    with without_right(guarded_cluster, remote, AclOperation.ALTER), Mm2py(properties) as run:
        said = run.wait_for_event("topic.too_narrow", topic=topic)["why"]
        assert f"Remote topic {remote} has 3 partitions, its upstream topic 4" in said
        assert f"Grant mm2py ALTER on {remote}" in said
        expected = {number: len(records) for number, records in dump(source_cluster, topic, range(3)).items()}
        run.wait_until(
            lambda: {n: len(records) for n, records in dump(guarded_cluster, remote, range(3)).items()} == expected,
            "the three are copied",
        )
        assert run.terminate() == 0
    with Mm2py(properties) as run:
        assert_copied(source_cluster, guarded_cluster, topic, remote, run=run)
        assert run.terminate() == 0


def test_a_name_that_collides_on_the_target_is_told_and_the_others_go_on(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B68: A.x cannot be beside A_x, for both have one name in a broker's metrics."""
    stem = new_name("collides")
    make_topic(target_cluster, f"A_{stem}")
    make_topic(source_cluster, stem)
    make_topic(source_cluster, f"{stem}-other")
    send(source_cluster, f"{stem}-other", islice(Traffic(seed=1, partitions=1).records(), 50))
    with Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": f"{stem}.*"})) as run:
        said = run.wait_for_event("topic.refused", topic=stem)["why"]
        assert "collides" in said
        assert_copied(source_cluster, target_cluster, f"{stem}-other", f"A.{stem}-other", run=run)
        assert run.terminate() == 0
