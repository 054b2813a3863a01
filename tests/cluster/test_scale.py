"""A million records in 200 partitions, and a thousand partitions at once."""

from __future__ import annotations

from itertools import islice

from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, new_topic, now_ms, send
from tests.cluster.running import Mm2py, one_way_properties

RECORDS = 1_000_000


def test_a_million_records_in_200_partitions_are_copied_exactly(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Half of them old, in all codecs, with a stop and a start in the middle."""
    topic = new_topic(source_cluster, "million", 200)
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    records = Traffic(seed=41, partitions=200, plain=True, value_bytes=60).records()
    run = Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": topic}))
    with run:
        for number, codec in enumerate(codecs):
            send(source_cluster, topic, islice(records, RECORDS // len(codecs)), compression_type=codec)
            if number == 2:
                assert run.terminate() == 0
                run.start()
        assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run, deadline_s=120)
        assert run.terminate() == 0


def test_a_thousand_partitions_begin_at_once(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """B64."""
    topic = new_topic(source_cluster, "thousand", 1_000)
    traffic = Traffic(seed=42, partitions=1_000, first_timestamp_ms=now_ms(), plain=True)
    send(source_cluster, topic, islice(traffic.records(), 5_000))
    with Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": topic})) as run:
        run.wait_for_event("topics.copying", deadline_s=60)
        assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
        assert run.terminate() == 0
