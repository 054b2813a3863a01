"""What a cluster does not let be copied for now, and is tried again: told in six places, see ``test_not_copied.py``.

It is no problem before records have waited for ``stall.timeout.ms``, so that is long here, and no alert has a series.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import admin, set_by_hand
from tests.cluster.kafka_client import record_count, write
from tests.cluster.running import ANSWER_S
from tests.cluster.six_places import FIRST, MORE, Scene


@pytest.fixture(scope="module")
def scene(three_node_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Scene]:
    with Scene(three_node_cluster, target_cluster, {"stall.timeout.ms": 900_000}).running() as scene:
        yield scene


def test_a_partition_without_a_leader_says_so(scene: Scene) -> None:
    topic = scene.topic("headless")
    scene.copied(topic, len(FIRST))
    scene.is_copied(topic)
    leader = admin(scene.source).list_topics(topic, ANSWER_S).topics[topic].partitions[0].leader
    scene.source.broker(leader).kill()
    try:
        scene.says(topic, "no-leader", cause="source-without-leader")
    finally:
        scene.source.start()
    scene.is_copied(topic)
    write(scene.source, topic, MORE)
    scene.copied(topic, len(FIRST) + len(MORE))


@pytest.fixture(scope="module")
def replicated(source_cluster: KafkaCluster, three_node_cluster: KafkaCluster) -> Iterator[Scene]:
    """A flow all of whose topics on the target have three replicas."""
    kinds = ("", "config.storage.", "offset.storage.", "status.storage.")
    extra = {"stall.timeout.ms": 900_000, **{f"{kind}replication.factor": 3 for kind in kinds}}
    with Scene(source_cluster, three_node_cluster, extra).running() as scene:
        yield scene


def test_with_too_few_replicas_in_sync_partitions_say_what_is_tried_again(replicated: Scene) -> None:
    scene = replicated
    old = scene.topic("old")
    scene.copied(old, len(FIRST))
    for topic in (scene.remote(old), f"mm2-offsets.{scene.alias}.internal"):
        set_by_hand(scene.target, topic, min_insync_replicas="3")
    scene.target.broker(3).kill()
    try:
        new = scene.topic("new")
        write(scene.source, old, MORE)
        scene.says(new, "position-unstored", cause="position-not-stored")
        scene.says(old, "retrying", cause="too-few-replicas")
        assert (record_count(scene.target, scene.remote(new)), record_count(scene.target, scene.remote(old))) == (0, 10)
    finally:
        scene.target.start()
    for topic, count in ((new, len(FIRST)), (old, len(FIRST) + len(MORE))):
        scene.copied(topic, count)
        scene.is_copied(topic)
