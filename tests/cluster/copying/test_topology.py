"""Flows in both directions and in rings: every topic arrives once at each place, and none comes back home."""

from __future__ import annotations

from itertools import islice, pairwise

from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, make_topic, send
from tests.cluster.kafka_client import new_name, topic_names
from tests.cluster.running import Mm2py, one_way_properties, two_way_properties


def _load(cluster: KafkaCluster, topic: str, seed: int) -> None:
    make_topic(cluster, topic, 2)
    send(cluster, topic, islice(Traffic(seed=seed, partitions=2).records(), 500))


def test_three_clusters_in_a_ring_end_in_a_finite_set_of_topics(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    """B70: A->B->C->A. Each topic reaches the two other clusters, and each copy is exact, hop by hop."""
    clusters = {"A": source_cluster, "B": target_cluster, "C": guarded_cluster}
    stem = new_name("ring")
    properties = {
        **one_way_properties(source_cluster, target_cluster),
        "clusters": "A,B,C",
        "C.bootstrap.servers": guarded_cluster.bootstrap,
        "B->C.enabled": True,
        "C->A.enabled": True,
        "topics": f".*{stem}.*",
    }
    ways = {"A": "ABC", "B": "BCA", "C": "CAB"}
    with Mm2py(properties) as run:
        # The second of each cluster is made when all copies of the first are there: had any of them been due to go
        # on, a round of discovery has seen it by the time the second has arrived everywhere.
        expected: dict[str, set[str]] = {alias: set() for alias in clusters}
        for number in range(2):
            for seed, (alias, way) in enumerate(ways.items()):
                topic = f"{stem}-{alias.lower()}{number}"
                _load(clusters[alias], topic, seed)
                expected[alias].add(topic)
                for source, target in pairwise(way):
                    remote = f"{source}.{topic}"
                    assert_copied(clusters[source], clusters[target], topic, remote, run=run)
                    expected[target].add(remote)
                    topic = remote
        for alias, cluster in clusters.items():
            assert {name for name in topic_names(cluster) if stem in name} == expected[alias]
        assert run.terminate() == 0


def test_two_clusters_that_copy_each_other_do_not_copy_copies(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B69, B70: a topic that only looks like a copy is none of ours to send back either."""
    stem = new_name("both")
    mine, theirs, lookalike = f"{stem}-a", f"{stem}-b", f"B.{stem}-c"
    with Mm2py(two_way_properties(source_cluster, target_cluster, topics=f".*{stem}.*")) as run:
        for seed, (cluster, topic) in enumerate(
            [(source_cluster, lookalike), (source_cluster, mine), (target_cluster, theirs)]
        ):
            _load(cluster, topic, seed)
        assert_copied(source_cluster, target_cluster, mine, f"A.{mine}", run=run)
        assert_copied(target_cluster, source_cluster, theirs, f"B.{theirs}", run=run)
        last = f"{stem}-last"
        _load(source_cluster, last, 9)
        assert_copied(source_cluster, target_cluster, last, f"A.{last}", run=run)
        assert {name for name in topic_names(source_cluster) if stem in name} == {mine, lookalike, last, f"B.{theirs}"}
        assert {name for name in topic_names(target_cluster) if stem in name} == {theirs, f"A.{mine}", f"A.{last}"}
        assert run.terminate() == 0


def test_under_the_identity_policy_topics_keep_their_names(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    stem = new_name("same")
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        **{
            "A->B.topics": f"{stem}.*",
            "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        },
    )
    with Mm2py(properties) as run:
        _load(source_cluster, f"{stem}-x", 1)
        assert_copied(source_cluster, target_cluster, f"{stem}-x", f"{stem}-x", run=run)
        assert run.terminate() == 0
