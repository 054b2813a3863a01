"""What a cluster does not let be copied for now, and is tried again: told in six places, see ``test_not_copied.py``.

It is no problem before records have waited for ``stall.timeout.ms``, so that is long here, and no alert has a series.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import admin
from tests.cluster.kafka_client import write
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
        scene.says(topic, "no-leader")
    finally:
        scene.source.start()
    scene.is_copied(topic)
    write(scene.source, topic, MORE)
    scene.copied(topic, len(FIRST) + len(MORE))
