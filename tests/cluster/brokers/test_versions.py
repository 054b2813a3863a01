"""Older protocol versions, forced on today's broker: what Kafka 3.3 offers, and a Fetch without topic ids."""

from __future__ import annotations

from itertools import islice

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.cli.main import VERSION_CAPS_VARIABLE
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, new_topic, send
from tests.cluster.running import Mm2py, one_way_properties

PRODUCE, FETCH = 0, 1


@pytest.mark.parametrize(
    ("produce", "fetch", "topic_ids"), [(9, 13, True), (12, 12, False), (12, 17, True)], ids=["3.3", "no ids", "4.0"]
)
def test_a_copy_over_older_protocol_versions_is_exact(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, produce: int, fetch: int, topic_ids: bool
) -> None:
    topic = new_topic(source_cluster, "versions", 3)
    records = Traffic(seed=51, partitions=3).records()
    properties = one_way_properties(source_cluster, target_cluster, **{"A->B.topics": topic})
    caps = {VERSION_CAPS_VARIABLE: f"{PRODUCE}:{produce},{FETCH}:{fetch}"}
    with Mm2py(properties, environment=caps) as run:
        for codec in ("none", "zstd"):
            send(source_cluster, topic, islice(records, 500), compression_type=codec)
        assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
        assert run.terminate() == 0
        run.start()
        send(source_cluster, topic, islice(records, 500))
        assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
        assert run.terminate() == 0
        told = {event["cluster"] for event in run.events("cluster.no_topic_ids")}
        assert told == (set() if topic_ids else {"A", "B"})
