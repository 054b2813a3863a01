"""The topics mm2py and MM2 keep for themselves are known wherever they turn up, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import ClusterAlias, Flow
from mm2py.topics import names
from mm2py.topics.names import DefaultReplicationPolicy

A, B = ClusterAlias("A"), ClusterAlias("B")


def is_own_topic(name: str, separators: Collection[str] = ()) -> bool:
    return names.is_own_topic(name, separators, aliases=(A, B, "us-west"))


OURS = [
    names.quarantine(A),
    names.control_log("mm2py", producer_expiry_ms=86_400_000),
    names.fence_topic(),
    names.dr_fences_topic(),
    names.flight_topic(A),
    names.history_topic(A),
    names.recovery_topic(Flow(B, A)),
    names.drills_topic(Flow(B, A)),
    names.spark_writes_topic(),
]


def test_our_topics_are_called_like_those_of_mm2() -> None:
    assert [topic.name for topic in OURS] == [
        "mm2-quarantine.A.internal",
        "mm2-cluster.mm2py.internal",
        "mm2-fence.internal",
        "mm2-dr-fences.internal",
        "mm2-flight.A.internal",
        "mm2-history.A.internal",
        "mm2-recovery.A.B.internal",
        "mm2-drills.A.B.internal",
        "mm2-spark-writes.internal",
    ]


@pytest.mark.parametrize(
    ("producer_expiry_ms", "retention_ms"), [(86_400_000, 7 * 86_400_000), (5 * 86_400_000, 10 * 86_400_000)]
)
def test_control_log_outlives_twice_the_producer_expiry(producer_expiry_ms: int, retention_ms: int) -> None:
    log = names.control_log("mm2py", producer_expiry_ms=producer_expiry_ms)
    assert log.configs["retention.ms"] == str(retention_ms)
    assert log.configs["cleanup.policy"] == "delete"
    assert log.configs["message.timestamp.type"] == "LogAppendTime"


STORES = [
    "mm2-offsets.A.internal",
    "mm2-offsets.us.west.internal",
    "mm2-configs.A.internal",
    "mm2-status.A.internal",
    "mm2-ledger.A.internal",
]
PREFIXES = ["", "A.", "A_", "us-west.", "B.A.", "B_A_", "B.A_", "A--", "A.."]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", [topic.name for topic in OURS] + STORES)
def test_own_topics_are_known_with_any_hops_in_front(prefix: str, name: str) -> None:
    assert is_own_topic(prefix + name)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("separator", [".", "_", "-", "__", "..", "._", "X", "SEP"])
def test_offset_syncs_and_checkpoints_are_known_under_every_separator(prefix: str, separator: str) -> None:
    policy = DefaultReplicationPolicy(separator=separator)
    assert is_own_topic(prefix + policy.offset_syncs_topic(B))
    assert is_own_topic(prefix + policy.checkpoints_topic(A), separators=[separator])


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "heartbeats",
        "A.heartbeats",
        "mm2-offsets_CLUSTER_internal",
        "mm2-offsets.internal",
        "mm2-offsets..internal",
        "mm2-offsets.A.internal.copy",
        "mm2-offsetsXA.internal",
        "mm2-orders.A.internal",
        "mm2.internal",
        "MM2-offsets.A.internal",
        "comm2-status.line.internal",
        "mm2-offset-syncs-internal",
        "mm2-offset-syncs.A_internal",
        "mm2-fence_internal",
        "flink-checkpoints-internal",
        "app_checkpoints_internal",
        "checkpoints.internal",
        "x.internal",
        "app-store-changelog",
        "__consumer_offsets",
    ],
)
def test_ordinary_topics_are_not_taken_for_own_ones(name: str) -> None:
    assert not is_own_topic(name)


def test_checkpoints_topics_are_those_of_known_clusters_under_a_separator_in_use() -> None:
    assert is_own_topic("A_checkpoints_internal", separators=["_"])
    assert is_own_topic("B_us-west.checkpoints.internal", separators=["_"])
    assert not is_own_topic("A-checkpoints-internal", separators=["_"])
    assert not is_own_topic("y.checkpoints.internal", separators=["_"])
    assert not is_own_topic("dataA.checkpoints.internal", separators=["_"])


@given(
    hops=st.lists(
        st.tuples(st.text("abAB-_", min_size=1, max_size=5), st.sampled_from([".", "_", "-", "__"])), max_size=3
    ),
    owner=st.text("abAB-_.", min_size=1, max_size=8),
    store=st.sampled_from(["offsets", "configs", "status", "ledger", "quarantine", "cluster", "offset-syncs"]),
)
def test_no_mixture_of_hops_hides_an_own_topic(hops: list[tuple[str, str]], owner: str, store: str) -> None:
    name = "".join(alias + separator for alias, separator in hops) + f"mm2-{store}.{owner}.internal"
    assert is_own_topic(name)


@given(st.text("abcdef.-_", max_size=40))
def test_nothing_without_mm2_in_its_name_is_an_own_topic_but_checkpoints(name: str) -> None:
    assert not is_own_topic(name)
    assert is_own_topic(f"{name}.A.checkpoints.internal")
