"""Which topics are copied, with which settings, and where copies meet; as MM2 4.3.1 decides unless the name says so."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import ClusterAlias, Flow, TopicName
from mm2py.topics.filters import TopicFilter, is_cycle, should_replicate
from mm2py.topics.names import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    make_policy,
    remote_name_problem,
    rings,
)
from mm2py.topics.topic_configs import ConfigPropertyFilter, ConfigSource, TopicConfigEntry, remote_topic_configs

SOURCE, TARGET = ClusterAlias("source"), ClusterAlias("target")
DOT = DefaultReplicationPolicy()
UNDERSCORE = DefaultReplicationPolicy(separator="_")
IDENTITY = IdentityReplicationPolicy(SOURCE)
EVERYTHING = TopicFilter(exclude=())
NOTHING = TopicFilter(include=())


def why_not(
    topic: str,
    policy: ReplicationPolicy = DOT,
    topic_filter: TopicFilter = EVERYTHING,
    heartbeats_replication: bool = True,
) -> str | None:
    decision = should_replicate(
        TopicName(topic),
        policy=policy,
        topic_filter=topic_filter,
        heartbeats_replication=heartbeats_replication,
        target_alias=TARGET,
        aliases=(SOURCE, TARGET, ClusterAlias("A")),
    )
    assert decision.replicate is (decision.why_not is None)
    return decision.why_not


@pytest.mark.parametrize(
    ("topic", "cycle"),
    [
        ("target.topic1", True),
        ("target.source.topic1", True),
        ("source.target.topic1", True),
        ("x.y.target.topic1", True),
        ("topic1", False),
        ("source.topic1", False),
        ("topic.target", False),
        ("target.", False),
        (".b", False),
        ("", False),
    ],
)
def test_topic_that_has_been_on_the_target_is_a_cycle(topic: str, cycle: bool) -> None:
    assert is_cycle(TopicName(topic), DOT, TARGET) is cycle


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("topic1", None),
        ("target.topic1", None),
        ("source.topic1", None),
        ("heartbeats", None),
        ("othersource.heartbeats", None),
        ("target.heartbeats", "cycle"),
        ("source.target.heartbeats", "cycle"),
    ],
)
def test_identity_cuts_cycles_of_heartbeats_alone(topic: str, expected: str | None) -> None:
    assert why_not(topic, IDENTITY) == expected


def test_identity_from_the_target_itself_is_a_cycle_throughout() -> None:
    assert is_cycle(TopicName("orders"), IdentityReplicationPolicy(TARGET), TARGET)


@pytest.mark.parametrize(
    ("topic", "policy", "topic_filter", "heartbeats_replication", "expected"),
    [
        ("heartbeats", DOT, NOTHING, True, None),
        ("us-west.heartbeats", DOT, NOTHING, True, None),
        ("us-west.heartbeats", UNDERSCORE, NOTHING, True, "not included"),  # no heartbeats topic under this separator
        ("heartbeats", DOT, NOTHING, False, "not included"),
        ("us-west.heartbeats", DOT, NOTHING, False, "not included"),
        ("heartbeats", DOT, EVERYTHING, False, None),
        ("us-west.heartbeats", DOT, EVERYTHING, False, None),
        ("heartbeats", DOT, TopicFilter(exclude=("heartbeats",)), True, None),
        ("heartbeats", DOT, TopicFilter(exclude=("heartbeats",)), False, "excluded"),
        ("target.heartbeats", DOT, NOTHING, True, "cycle"),
    ],
)
def test_heartbeats_pass_whatever_the_filter_says_unless_switched_off(
    topic: str, policy: ReplicationPolicy, topic_filter: TopicFilter, heartbeats_replication: bool, expected: str | None
) -> None:
    assert why_not(topic, policy, topic_filter, heartbeats_replication) == expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", None),
        ("x.internal", None),
        ("app-store-changelog", None),
        ("orders.replica", "excluded"),
        ("__consumer_offsets", "internal"),
        (".hidden", "internal"),
        ("mm2-anything.internal", "internal"),
        ("mm2-offset-syncs.B.internal", "own topic"),
        ("A.checkpoints.internal", "own topic"),
        ("target.orders", "cycle"),
        ("target.mm2-status.A.internal", "own topic"),
    ],
)
def test_default_filter_and_policy_say_why_a_topic_stays(topic: str, expected: str | None) -> None:
    assert why_not(topic, topic_filter=TopicFilter()) == expected


@pytest.mark.parametrize("policy", [DOT, UNDERSCORE, IDENTITY, DefaultReplicationPolicy(separator="X")])
@pytest.mark.parametrize(
    "own", ["mm2-offsets.A.internal", "mm2-cluster.mm2py.internal", "mm2-ledger.A.internal", "mm2-fence.internal"]
)
def test_own_topics_are_never_mirrored_whatever_separator_and_filters_say(policy: ReplicationPolicy, own: str) -> None:
    for hops in ("", "A.", "A_", "B.A.", f"A{policy.separator}"):
        assert why_not(hops + own, policy) == "own topic"


@pytest.mark.parametrize(
    ("topic", "policy", "expected"),
    [
        ("y.checkpoints.internal", UNDERSCORE, None),  # a user's: MM2 copies it, too
        ("y_checkpoints_internal", UNDERSCORE, "internal"),
        ("A.checkpoints.internal", UNDERSCORE, "own topic"),  # of another flow, or from before the separator changed
        ("C_A.checkpoints.internal", UNDERSCORE, "own topic"),
        ("y.checkpoints.internal", DOT, "internal"),
        ("y_checkpoints_internal", DefaultReplicationPolicy(separator="_", internal_separator="."), None),
        ("A_checkpoints_internal", DefaultReplicationPolicy(separator="_", internal_separator="."), "own topic"),
        ("y.checkpoints.internal", DefaultReplicationPolicy(separator="_", internal_separator="."), "internal"),
    ],
)
def test_a_checkpoints_topic_is_a_users_if_neither_policy_nor_file_know_whose_it_is(
    topic: str, policy: ReplicationPolicy, expected: str | None
) -> None:
    assert why_not(topic, policy, TopicFilter()) == expected


ALIASES = [ClusterAlias(alias) for alias in "ABCD"]


def spread(
    policies: Mapping[Flow, ReplicationPolicy], topic: str, most_hops: int
) -> set[tuple[ClusterAlias, str]] | None:
    """Return every (cluster, topic) that a topic of each cluster becomes, or None if copying does not end."""
    found: set[tuple[ClusterAlias, str]] = set()

    def copied(cluster: ClusterAlias, name: TopicName, way: tuple[tuple[ClusterAlias, str], ...]) -> bool:
        if (cluster, name) in way or len(way) > most_hops:
            return False
        found.add((cluster, name))
        return all(
            copied(flow.target, policy.format_remote_topic(flow.source, name), (*way, (cluster, name)))
            for flow, policy in policies.items()
            if flow.source == cluster and not is_cycle(name, policy, flow.target)
        )

    ends = [copied(cluster, TopicName(topic), ()) for cluster in {flow.source for flow in policies}]
    return found if all(ends) else None


PAIRS = [Flow(source, target) for source, target in itertools.permutations(ALIASES, 2)]


@given(
    flows=st.sets(st.sampled_from(PAIRS), min_size=1),
    topic=st.text("xA._-", min_size=1, max_size=6),
    separator=st.sampled_from([".", "_", "-", "__"]),
)
def test_cycles_are_always_cut_under_the_default_policy(flows: set[Flow], topic: str, separator: str) -> None:
    policy = DefaultReplicationPolicy(separator=separator)
    assert spread(dict.fromkeys(flows, policy), topic, most_hops=2 * len(ALIASES)) is not None


@given(
    policies=st.dictionaries(
        st.sampled_from(PAIRS), st.sampled_from(["DefaultReplicationPolicy", "IdentityReplicationPolicy"]), max_size=6
    )
)
def test_flows_are_called_a_ring_exactly_when_copying_does_not_end(policies: dict[Flow, str]) -> None:
    made = {
        flow: make_policy(name, source_alias=flow.source, separator=None, internal_separator_enabled=None)
        for flow, name in policies.items()
    }
    assert (rings(made, dict.fromkeys(made, (".*",))) == {}) is (spread(made, "x", most_hops=20) is not None)


@pytest.mark.parametrize("name", ["a", "A.orders", "a_b-c.9", "...", "a" * 249])
def test_legal_remote_names_have_no_problem(name: str) -> None:
    assert remote_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        (".", "not allowed"),
        ("..", "not allowed"),
        ("a" * 250, "250 characters"),
        ("a b", "' '"),
        ("a/b", "'/'"),
        ("grün", "'ü'"),
        ("a\n", "'\\n'"),
    ],
)
def test_names_a_broker_refuses_have_a_problem(name: str, problem: str) -> None:
    assert problem in (remote_name_problem(name) or "")


def entry(
    name: str, source: int = ConfigSource.DYNAMIC_TOPIC, value: str | None = "1", **flags: bool
) -> TopicConfigEntry:
    return TopicConfigEntry(name, value, source, **flags)


@pytest.mark.parametrize(
    ("setting", "use_defaults_from", "copied"),
    [
        (entry("retention.ms"), "target", True),
        (entry("retention.ms", ConfigSource.DYNAMIC_BROKER), "target", True),
        (entry("retention.ms", ConfigSource.DYNAMIC_DEFAULT_BROKER), "target", True),
        (entry("retention.ms", ConfigSource.STATIC_BROKER), "target", False),
        (entry("retention.ms", ConfigSource.STATIC_BROKER), "source", False),
        (entry("retention.ms", ConfigSource.DEFAULT), "target", False),
        (entry("retention.ms", ConfigSource.DEFAULT), "anything", False),
        (entry("retention.ms", ConfigSource.DEFAULT), "source", True),
        (entry("retention.ms", read_only=True), "target", False),
        (entry("retention.ms", sensitive=True), "target", False),
        (entry("retention.ms", value=None), "target", False),
        (entry("min.insync.replicas"), "target", False),
        (entry("min.insync.replicas", ConfigSource.DEFAULT), "source", False),
        (entry("message.timestamp.before.max.ms"), "target", False),  # only a looser one, which the target tells
        (entry("message.timestamp.after.max.ms"), "target", False),
    ],
)
def test_remote_topic_is_created_with_what_was_set_on_its_upstream_topic(
    setting: TopicConfigEntry, use_defaults_from: str, copied: bool
) -> None:
    chosen = remote_topic_configs([setting], ConfigPropertyFilter(use_defaults_from=use_defaults_from))
    assert chosen == ({setting.name: "1"} if copied else {})


def test_excluded_settings_are_patterns() -> None:
    chosen = remote_topic_configs(
        [entry("delete.retention.ms"), entry("retention.ms")], ConfigPropertyFilter(exclude=(r"delete\.retention\..*",))
    )
    assert chosen == {"retention.ms": "1"}
