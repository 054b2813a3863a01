"""Which checkpoints are emitted, from the committed offset of a group to its translation."""

from __future__ import annotations

import pytest

from mm2py.connector import ClusterAlias, TopicName, parse_flow
from mm2py.kafka.port import TopicPartition
from mm2py.offsets.checkpoint_rule import is_more_recent, remote_topic_of
from mm2py.offsets.sync_store import SyncStore
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy

KEY: TopicPartition = ("orders", 3)
FLOW = parse_flow("source1->target2")


class OneGroup:
    """The checkpoints of a group in one partition: each that is emitted is remembered."""

    def __init__(self, store: SyncStore, last: tuple[int, int] | None = None) -> None:
        self.store = store
        self.last = last

    def commits(self, upstream: int) -> int | None:
        """Return the downstream offset of the checkpoint that is emitted, None if none is."""
        downstream = self.store.translate(KEY, upstream)
        if downstream is None or downstream < 0 or not is_more_recent(self.last, (upstream, downstream)):
            return None
        self.last = (upstream, downstream)
        return downstream


def store_with(*offsets: int, keeps_history: bool = True) -> SyncStore:
    store = SyncStore(keeps_history=keeps_history)
    for offset in offsets:
        store.add(KEY, offset, offset)
    store.loaded()
    return store


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


def test_a_group_past_a_sync_resumes_one_record_after_it() -> None:
    store = store_with()
    group = OneGroup(store)
    assert group.commits(10) is None  # nothing is known of the partition
    store.add(KEY, 3, 4)
    assert group.commits(10) == 5
    store.add(KEY, 7, 8)
    assert group.commits(12) == 9
    assert group.commits(7) == 8


def test_a_group_older_than_all_syncs_gets_no_checkpoint() -> None:
    assert OneGroup(store_with(100)).commits(99) is None


def test_a_less_exact_translation_is_not_emitted_until_the_group_itself_goes_back() -> None:
    store = store_with(*range(0, 1001, 10))
    group = OneGroup(store)
    assert group.commits(965) == 961
    for offset in range(1010, 10_001, 10):
        store.add(KEY, offset, offset)
    assert store.translate(KEY, 970) == 1  # the store has dropped the syncs near it
    assert group.commits(970) is None
    assert group.commits(5000) == 3841
    assert group.commits(900) == 1


def test_after_a_restart_checkpoints_of_before_keep_a_group_from_going_back() -> None:
    before = OneGroup(store_with(100, 200, 300))
    assert before.commits(250) == 201
    after = OneGroup(store_with(175, 375, 475), last=before.last)
    assert [after.store.translate(KEY, upstream) for upstream in (250, 370, 400)] == [176, 176, 376]
    assert after.commits(250) is None
    assert after.commits(370) is None
    assert after.commits(400) == 376
