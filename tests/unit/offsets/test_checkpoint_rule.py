"""Which checkpoints are emitted, from the committed offset of a group to its translation."""

from __future__ import annotations

import pytest

from mm2py.flow import ClusterAlias, TopicName, parse_flow
from mm2py.kafka.port import TopicPartition
from mm2py.offsets.checkpoint_rule import is_more_recent, remote_topic_of
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy

KEY: TopicPartition = ("orders", 3)
FLOW = parse_flow("source1->target2")


@pytest.mark.parametrize(
    ("last", "new", "emitted"),
    [
        (None, (5, 5), True),
        ((5, 5), (5, 5), False),
        ((5, 5), (6, 5), False),
        ((5, 5), (5, 6), True),
        ((5, 5), (6, 6), True),
        ((5, 5), (6, 4), False),
        ((5, 5), (4, 4), True),
        ((5, 5), (4, 5), True),
    ],
)
def test_a_checkpoint_is_emitted_if_it_moves_ahead_or_the_group_went_back(
    last: tuple[int, int] | None, new: tuple[int, int], emitted: bool
) -> None:
    assert is_more_recent(last, new) is emitted


def test_an_exact_checkpoint_goes_back_where_the_copy_was_made_again() -> None:
    assert is_more_recent((5, 50), (6, 5), is_exact=True)
    assert is_more_recent((5, 50), (5, 5), is_exact=True)
    assert not is_more_recent((5, 50), (6, 50), is_exact=True)


@pytest.mark.parametrize(
    ("topic", "remote"),
    [
        ("topic3", "source1.topic3"),
        ("target2.topic3", "topic3"),
        ("target2.source1.topic3", "topic3"),
        ("source6.topic7", "source1.source6.topic7"),
    ],
)
def test_a_group_goes_on_in_the_remote_topic_or_in_the_original_one(topic: str, remote: str) -> None:
    assert remote_topic_of(TopicName(topic), DefaultReplicationPolicy(), FLOW) == remote


def test_under_the_identity_policy_topics_keep_their_names_and_heartbeats_their_hops() -> None:
    policy = IdentityReplicationPolicy(ClusterAlias("source1"))
    names = ["orders", "target2.orders", "heartbeats", "target2.heartbeats"]
    remote = [remote_topic_of(TopicName(name), policy, FLOW) for name in names]
    assert remote == ["orders", "target2.orders", "source1.heartbeats", "heartbeats"]
