"""Names of topics tell the clusters they came through, and the telling ends also where a name does not change."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.client.topic_paths import replication_hops, source_clusters
from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy

ALIASES = st.lists(st.text("abcXYZ12", min_size=1, max_size=4), min_size=1, max_size=5, unique=True)
POLICIES = st.builds(DefaultReplicationPolicy, separator=st.sampled_from([".", "_", "-", "__", ".-"]))


def copied(topic: str, path: list[str], policy: DefaultReplicationPolicy) -> str:
    """Return the name after a topic was copied from each of these clusters, the first one at first."""
    return reduce(
        lambda name, alias: policy.format_remote_topic(ClusterAlias(alias), name),
        path,
        TopicName(topic),
    )


@given(ALIASES, POLICIES)
def test_a_copied_heartbeats_topic_names_its_clusters_the_nearest_first(
    path: list[str], policy: DefaultReplicationPolicy
) -> None:
    topic = copied("heartbeats", path, policy)
    assert source_clusters(topic, policy) == path[::-1]
    assert [replication_hops(topic, alias, policy) for alias in path[::-1]] == [*range(1, len(path) + 1)]
    assert replication_hops(topic, "elsewhere", policy) is None


@given(ALIASES, POLICIES)
def test_a_cluster_that_comes_up_again_ends_the_path(path: list[str], policy: DefaultReplicationPolicy) -> None:
    topic = copied("heartbeats", [*path, *path], policy)
    assert source_clusters(topic, policy) == path[::-1]


@pytest.mark.parametrize(
    ("topic", "clusters"),
    [
        ("orders", ["A"]),
        ("B.orders", ["A"]),
        ("heartbeats", []),
        ("A.heartbeats", ["A"]),
        ("B.A.heartbeats", ["B", "A"]),
    ],
)
def test_under_the_identity_policy_only_heartbeats_tell_more_than_one_cluster(topic: str, clusters: list[str]) -> None:
    assert source_clusters(topic, IdentityReplicationPolicy(source_alias=ClusterAlias("A"))) == clusters
    assert source_clusters("orders", IdentityReplicationPolicy()) == []
