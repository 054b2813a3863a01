"""From which broker a partition is read: when a follower counts, and when its leader does again."""

from __future__ import annotations

import pytest

from mm2py.copying.reading.read_replica import (
    FOLLOWED_S,
    LEADER,
    LEADER_ONLY_S,
    ReadReplica,
    after_failure,
    named_by_leader,
)
from mm2py.kafka.port import BrokerId, FetchedPartition

LEADING = BrokerId(1)
NAMED = FetchedPartition("t", 0, 0, 9, 9, 0, preferred_replica=2)


def test_a_replica_that_a_leader_names_is_read_for_five_minutes() -> None:
    replica = named_by_leader(NAMED, leader=LEADING, now_s=10.0)
    assert replica == ReadReplica(BrokerId(2), 10.0 + FOLLOWED_S)
    assert not replica.is_over(309.9)
    assert replica.is_over(310.0)


@pytest.mark.parametrize(
    "answer",
    [
        NAMED._replace(preferred_replica=-1),
        NAMED._replace(preferred_replica=1),
        NAMED._replace(error_code=6),
        NAMED._replace(records=memoryview(b"records")),
    ],
    ids=["none", "itself", "error", "records"],
)
def test_any_other_answer_of_a_leader_leaves_the_partition_there(answer: FetchedPartition) -> None:
    assert named_by_leader(answer, leader=LEADING, now_s=10.0) is None


def test_after_a_failed_follower_the_leader_names_none_for_a_while() -> None:
    failed = after_failure(10.0)
    assert failed.follower is None
    assert not failed.is_over(1e9)
    assert not failed.may_ask(10.0 + LEADER_ONLY_S - 0.1)
    assert failed.may_ask(10.0 + LEADER_ONLY_S)


def test_at_first_a_partition_is_read_from_its_leader_which_may_name_another() -> None:
    assert LEADER.follower is None
    assert LEADER.may_ask(0.0)
    assert not LEADER.is_over(1e9)
