"""What topics are called on the other side, as MM2 4.3.1 calls them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics.names import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    make_policy,
)

A = ClusterAlias("A")
JAVA = "org.apache.kafka.connect.mirror."

DOT = DefaultReplicationPolicy()
UNDERSCORE = DefaultReplicationPolicy(separator="_")
UNDERSCORE_BUT_DOT_INSIDE = DefaultReplicationPolicy(separator="_", internal_separator=".")
IDENTITY = IdentityReplicationPolicy(A)


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("A.orders", "A", "orders", "orders"),
        ("B.A.orders", "B", "A.orders", "orders"),
        ("foo.bar", "foo", "bar", "bar"),  # a local topic with the separator looks remote
        ("topic.", None, None, "topic."),  # Java's split drops empty parts at the end
        ("a..", None, None, "a.."),
        (".", None, None, "."),
        ("...", None, None, "..."),
        (".hidden", "", "hidden", "hidden"),
        ("..x", "", ".x", "x"),
        ("a..b", "a", ".b", "b"),
        ("a.b.", "a", "b.", "b."),
        ("", None, None, ""),
    ],
)
def test_default_policy_reads_hops_off_a_name(
    topic: str, source: str | None, upstream: str | None, original: str
) -> None:
    name = TopicName(topic)
    assert (DOT.topic_source(name), DOT.upstream_topic(name), DOT.original_topic(name)) == (source, upstream, original)


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "remote"),
    [
        ("orders", "A", "orders", "orders"),
        ("B.orders", "A", "B.orders", "B.orders"),
        ("heartbeats", None, None, "A.heartbeats"),
        ("B.heartbeats", "B", "heartbeats", "A.B.heartbeats"),
        ("foo-heartbeats", None, None, "A.foo-heartbeats"),
        ("my.heartbeats", "my", "heartbeats", "A.my.heartbeats"),
    ],
)
def test_identity_policy_keeps_every_name_that_does_not_end_in_heartbeats(
    topic: str, source: str | None, upstream: str | None, remote: str
) -> None:
    name = TopicName(topic)
    assert IDENTITY.format_remote_topic(A, name) == remote
    assert (IDENTITY.topic_source(name), IDENTITY.upstream_topic(name)) == (source, upstream)


def test_identity_policy_without_a_source_knows_no_source() -> None:
    assert IdentityReplicationPolicy().topic_source(TopicName("orders")) is None


@pytest.mark.parametrize(
    ("policy", "topic", "expected"),
    [
        (DOT, "heartbeats", True),
        (DOT, "source1.heartbeats", True),
        (DOT, "source2.source1.heartbeats", True),
        (DOT, "!heartbeats", False),
        (DOT, "source1heartbeats", False),
        (DOT, "source1-heartbeats", False),
        (DOT, "heartbeats.x", False),
        (UNDERSCORE, "heartbeats", True),
        (UNDERSCORE, "us-west_heartbeats", True),
        (UNDERSCORE, "us-west.heartbeats", False),
        (IDENTITY, "heartbeats", True),
        (IDENTITY, "A.heartbeats", True),
        (IDENTITY, "foo-heartbeats", False),
    ],
)
def test_heartbeats_are_known_through_any_number_of_hops(policy: ReplicationPolicy, topic: str, expected: bool) -> None:
    assert policy.is_heartbeats_topic(TopicName(topic)) is expected


@pytest.mark.parametrize(
    ("policy", "topic", "expected"),
    [
        (DOT, "source1.checkpoints.internal", True),
        (DOT, "checkpoints.internal", False),
        (DOT, "checkpoints-internal", False),
        (DOT, "source1.checkpoints.internal!", False),
        (DOT, "source1checkpointsinternal", False),
        (UNDERSCORE, "source1_checkpoints_internal", True),
        (UNDERSCORE, "source1.checkpoints.internal", False),
        (UNDERSCORE_BUT_DOT_INSIDE, "source1.checkpoints.internal", True),
    ],
)
def test_checkpoints_topics_are_known_by_their_ending(policy: ReplicationPolicy, topic: str, expected: bool) -> None:
    assert policy.is_checkpoints_topic(TopicName(topic)) is expected


@pytest.mark.parametrize(
    ("policy", "topic", "expected"),
    [
        (DOT, "__consumer_offsets", True),
        (DOT, "__transaction_state", True),
        (DOT, ".hidden", True),
        (DOT, "mm2-offsets.CLUSTER.internal", True),
        (DOT, "mm2-offset-syncs.B.internal", True),
        (DOT, "mm2anything.internal", True),
        (DOT, "A.checkpoints.internal", True),
        (DOT, "mm2-offsets_CLUSTER_internal", False),
        (DOT, "x.internal", False),
        (DOT, "x-internal", False),
        (DOT, "A.mm2-offsets.B.internal", False),  # MM2 would copy it; is_own_topic stops it
        (DOT, "app-store-changelog", False),
        (DOT, "orders", False),
        (UNDERSCORE, "mm2-offsets_CLUSTER_internal", True),
        (UNDERSCORE, "mm2-offsets.CLUSTER.internal", False),
        (UNDERSCORE_BUT_DOT_INSIDE, "mm2-offsets.CLUSTER.internal", True),
        (UNDERSCORE_BUT_DOT_INSIDE, "mm2-offsets_CLUSTER_internal", False),
        (IDENTITY, "mm2-status.A.internal", True),
    ],
)
def test_internal_topics_follow_the_internal_separator(policy: ReplicationPolicy, topic: str, expected: bool) -> None:
    assert policy.is_internal_topic(TopicName(topic)) is expected


@pytest.mark.parametrize(
    ("separator", "enabled", "offset_syncs", "checkpoints"),
    [
        (None, None, "mm2-offset-syncs.A.internal", "A.checkpoints.internal"),
        (None, True, "mm2-offset-syncs.A.internal", "A.checkpoints.internal"),
        (".", True, "mm2-offset-syncs.A.internal", "A.checkpoints.internal"),
        ("_", None, "mm2-offset-syncs_A_internal", "A_checkpoints_internal"),
        ("_", True, "mm2-offset-syncs_A_internal", "A_checkpoints_internal"),
        ("_", False, "mm2-offset-syncs.A.internal", "A.checkpoints.internal"),
        ("__", None, "mm2-offset-syncs__A__internal", "A__checkpoints__internal"),
        ("..", None, "mm2-offset-syncs..A..internal", "A..checkpoints..internal"),
    ],
)
@pytest.mark.parametrize("class_name", ["DefaultReplicationPolicy", "IdentityReplicationPolicy"])
def test_separator_reaches_internal_topics_unless_switched_off(
    class_name: str, separator: str | None, enabled: bool | None, offset_syncs: str, checkpoints: str
) -> None:
    policy = make_policy(class_name, source_alias=A, separator=separator, internal_separator_enabled=enabled)
    assert (policy.offset_syncs_topic(A), policy.checkpoints_topic(A)) == (offset_syncs, checkpoints)
    assert policy.heartbeats_topic() == "heartbeats"


@pytest.mark.parametrize(
    ("class_name", "remote"),
    [
        (f"{JAVA}DefaultReplicationPolicy", "A.orders"),
        (f"{JAVA}IdentityReplicationPolicy", "orders"),
        ("DefaultReplicationPolicy", "A.orders"),
        ("IdentityReplicationPolicy", "orders"),
        (f" {JAVA}IdentityReplicationPolicy ", "orders"),
    ],
)
def test_java_class_names_stand_for_our_policies(class_name: str, remote: str) -> None:
    policy = make_policy(class_name, source_alias=A, separator=None, internal_separator_enabled=None)
    assert policy.format_remote_topic(A, TopicName("orders")) == remote


@pytest.mark.parametrize(
    "class_name", ["", "os.system", "com.example.MyPolicy", "Default", "mirror", "ReplicationPolicy"]
)
def test_unknown_policy_class_is_refused_with_the_names_that_are_known(class_name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_policy(class_name, source_alias=A, separator=None, internal_separator_enabled=None)
    assert "replication.policy.class" in str(refused.value)
    assert "DefaultReplicationPolicy, IdentityReplicationPolicy" in refused.value.remedy


@pytest.mark.parametrize("separator", ["", "/", "->", " ", ":", "é", "." * 250])
def test_separator_that_makes_illegal_names_is_refused(separator: str) -> None:
    with pytest.raises(ConfigError, match="separator"):
        make_policy("DefaultReplicationPolicy", source_alias=A, separator=separator, internal_separator_enabled=None)


@pytest.mark.parametrize(
    ("alias", "separator"),
    [
        ("A.B", "."),  # A.B.orders would be B.orders of A
        ("us_west", "_"),
        ("a_", "__"),  # a___x is split after the a
        ("a" * 240, "."),
        ("us west", "."),
        ("A->B", "."),
    ],
)
def test_source_alias_whose_remote_names_do_not_parse_back_is_refused(alias: str, separator: str) -> None:
    with pytest.raises(ConfigError, match="Cluster"):
        make_policy(
            "DefaultReplicationPolicy",
            source_alias=ClusterAlias(alias),
            separator=separator,
            internal_separator_enabled=None,
        )


@pytest.mark.parametrize(("alias", "separator"), [("us_west", "."), ("us.west", "_"), ("us-west", "."), ("a_b", "__")])
def test_alias_may_hold_signs_that_are_not_the_separator(alias: str, separator: str) -> None:
    policy = make_policy(
        "DefaultReplicationPolicy",
        source_alias=ClusterAlias(alias),
        separator=separator,
        internal_separator_enabled=None,
    )
    assert policy.topic_source(TopicName(f"{alias}{separator}x")) == alias


NAME_CHARS = "ab._-X0"


@given(
    alias=st.text(NAME_CHARS, min_size=1, max_size=6),
    separator=st.text(NAME_CHARS, min_size=1, max_size=3),
    topic=st.text(NAME_CHARS, min_size=1, max_size=12),
)
def test_remote_names_parse_back_under_every_separator_that_is_accepted(alias: str, separator: str, topic: str) -> None:
    source = ClusterAlias(alias)
    try:
        policy = make_policy(
            "DefaultReplicationPolicy", source_alias=source, separator=separator, internal_separator_enabled=None
        )
    except ConfigError:
        assume(False)
    remote = policy.format_remote_topic(source, TopicName(topic))
    if topic.replace(separator, ""):
        assert (policy.topic_source(remote), policy.upstream_topic(remote)) == (alias, topic)
    else:  # a topic of separators alone is lost on Java's split, in MM2 too
        assert policy.topic_source(remote) is None


@given(topic=st.text(NAME_CHARS, max_size=20), separator=st.text(NAME_CHARS, min_size=1, max_size=3))
def test_original_topic_has_no_upstream_topic(topic: str, separator: str) -> None:
    policy = DefaultReplicationPolicy(separator=separator)
    assert policy.upstream_topic(policy.original_topic(TopicName(topic))) is None
