"""Which groups take part in a cutover, which stay, and what is stored of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.dr.cutover.final_groups import as_there, facts_of, left_topics, refuse_groups, waiting
from mm2py.dr.cutover.pair import CutoverRefused
from mm2py.dr.groups.judgement import GroupToMove, MoveState, PartitionToMove, judge_at_ends
from mm2py.dr.groups.moving import JudgedGroup
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.consumer_groups import Commit
from mm2py.kafka.group_members import GroupMember
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy

PART = PartitionToMove(
    "orders",
    0,
    "A.orders",
    Commit(100),
    log_end=100,
    stable_end=100,
    end_there=190,
    place=Answer(AnswerKind.END, 90, True),
)
GROUP = GroupToMove("pay", "A", "B", protocol_type="consumer", partitions=(PART,))
MEMBERS = (GroupMember("m-1", "billing", "10.0.0.3"),)
FLOW = Flow(ClusterAlias("A"), ClusterAlias("B"))


def judged(group: GroupToMove = GROUP) -> JudgedGroup:
    return JudgedGroup(group, judge_at_ends(group))


def reading_there(committed_there: int | None) -> GroupToMove:
    part = replace(PART, committed_there=committed_there)
    return replace(
        GROUP, partitions=(part,), state_there="Stable", protocol_type_there="consumer", members_there=MEMBERS
    )


def test_a_group_that_reads_on_the_other_cluster_already_stays_there() -> None:
    found = judged(reading_there(95))
    assert found.move.state is MoveState.REFUSED, found.move
    there = as_there(found)
    assert (there.move.state, there.move.why) == (MoveState.LEFT, "it reads on B already")
    refuse_groups([there])
    assert facts_of([there]).groups == {}


@pytest.mark.parametrize("committed_there", [None, 89], ids=["nothing", "less"])
def test_a_group_that_would_read_again_there_is_not_taken_for_moved(committed_there: int | None) -> None:
    found = as_there(judged(reading_there(committed_there)))
    assert found.move.state is MoveState.REFUSED
    with pytest.raises(CutoverRefused, match=r"Group pay cannot move to B: it has members on B .*--leave-group pay"):
        refuse_groups([found])


def test_what_is_stored_of_groups_has_the_names_of_the_source() -> None:
    facts = facts_of([judged()])
    assert facts.groups == {"pay": {"orders-0": 90}}
    assert facts.target_ends == {"orders-0": 190}


def test_a_group_with_members_that_have_not_read_all_waits() -> None:
    busy = replace(GROUP, state="Stable", members=MEMBERS, partitions=(replace(PART, next_record=97),))
    (text,) = waiting([judged(busy), judged()])
    assert text.startswith("group pay: it has members on A, and has not read orders-0 from 97 on")


def test_groups_stay_in_topics_that_do_not_move() -> None:
    there = ["orders", "stock", "B.orders", "B.prices"]
    policy = DefaultReplicationPolicy()
    found = left_topics(there, moved=["orders"], copied=["orders", "stock"], policy=policy, flow=FLOW)
    assert found == {"stock", "B.prices"}
    same = left_topics(
        ["orders", "stock"],
        moved=["orders"],
        copied=["orders", "stock"],
        policy=IdentityReplicationPolicy(),
        flow=FLOW,
    )
    assert same == {"stock"}
