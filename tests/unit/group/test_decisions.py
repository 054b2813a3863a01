"""What a member does about what it has read: who claims, whom a leader evicts, what it gives to whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.group.decisions import PART_BYTES_MOST, Action, Append, FenceMember, Planned, Situation, decide
from mm2py.group.election.backend import CandidateState
from mm2py.group.membership import GroupState
from mm2py.group.state_snapshot import read_snapshot, snapshot_text
from mm2py.records.control_codec import encode
from mm2py.records.control_record import (
    UNASSIGNED,
    UNDIVIDED,
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Evicted,
    Joined,
    Left,
    Listed,
    Loads,
    MemberId,
    Released,
    Resigned,
    Snapshot,
    TaskName,
)
from tests.fakes.group_log import A_B, C_B, HEAD, W1, W2, W3, GroupLog, group_of, joined, share, writer


class Acting:
    """A member that reads all of a log and does what it decides."""

    def __init__(self, log: GroupLog, me: MemberId, **situation: Any) -> None:
        self.log, self.me = log, me
        says = log.view.members[me].joined if me in log.view.members else joined(me)
        self.situation = Situation(says, random_id=f"random-{me}", **situation)

    def decide(self) -> list[Action]:
        actions = decide(self.log.view, self.me, self.situation)
        for action in actions:
            if isinstance(action, Planned):
                self.situation = replace(self.situation, plan=action)
        return actions

    def act(self) -> list[ControlRecord]:
        records = [action.record for action in self.decide() if isinstance(action, Append)]
        self.log.add(*records)
        return records

    def settle(self) -> list[ControlRecord]:
        done: list[ControlRecord] = []
        while records := self.act():
            done += records
            assert len(done) < 1000
        return done


def moves(records: Iterable[ControlRecord]) -> dict[TaskName, MemberId]:
    return {at: to for each in records if isinstance(each, Assigned) for at, to in each.owners.items()}


def release_all(log: GroupLog) -> None:
    for member in list(log.view.members):
        log.add(Released(member, log.view.generation, frozenset(log.view.awaited_of(member))))


def all_run(view: GroupState) -> bool:
    return all(view.may_run(each, view.owner(each) or UNASSIGNED) for each in view.tasks())


# Who leads


def test_a_member_claims_when_nobody_leads_and_leads_from_then_on() -> None:
    log = GroupLog()
    log.add(joined(W1), joined(W2))
    claim = Claim(W1, 1, "random-w1", "znode 7")
    assert Acting(log, W1, evidence="znode 7").act() == [claim]
    assert log.view.leader == W1
    assert not Acting(log, W2).decide()


def test_who_may_not_claim_does_not_and_who_is_no_member_does_nothing() -> None:
    log = GroupLog()
    log.add(joined(W1))
    assert not Acting(log, W1, candidate=CandidateState.SUSPENDED).decide()
    assert not Acting(log, W2).decide()


def test_a_leader_whose_session_expired_is_followed_evicted_and_fenced_and_its_tasks_go_on() -> None:
    log = group_of(W1, W2, W3)
    Acting(log, W1).settle()
    log.beat([W2, W3], for_ms=4000)
    second = Acting(log, W2)
    assert second.act() == [Claim(W2, 2, "random-w2")]
    assert second.act() == [Evicted(W2, 2, W1)]
    actions = second.decide()
    assert actions[0] == FenceMember(W1, {100: writer(100)})
    log.add(*(action.record for action in actions if isinstance(action, Append)))
    assert {log.view.owner(each) for each in log.view.tasks()} == {W2, W3}
    assert not all_run(log.view)
    log.fenced(W1)
    assert all_run(log.view)


def test_a_fence_that_is_under_way_is_not_started_again() -> None:
    log = group_of(W1, W2)
    log.add(Left(W2, outcome_unknown=True))
    fences = [action for action in Acting(log, W1).decide() if isinstance(action, FenceMember)]
    assert fences == [FenceMember(W2, {101: writer(101)})]
    again = Acting(log, W1, fencing=frozenset({W2})).decide()
    assert not [action for action in again if isinstance(action, FenceMember)]


def test_a_leader_whose_leave_to_lead_is_suspended_waits_and_one_that_lost_it_resigns() -> None:
    log = group_of(W1, W2)
    log.beat([W1], for_ms=4000)
    assert not Acting(log, W1, candidate=CandidateState.SUSPENDED).decide()
    assert Acting(log, W1, candidate=CandidateState.LOST).act() == [Resigned(W1, 1)]
    assert not Acting(log, W1, candidate=CandidateState.LOST).decide()
    assert log.view.leader is None


def test_what_the_group_knows_of_a_member_is_put_right_when_it_is_not_what_it_says() -> None:
    log = group_of(W1, W2)
    changed = joined(W2, A_B, C_B)
    second = Acting(log, W2)
    second.situation = replace(second.situation, joined=changed)
    assert second.settle() == [changed]
    log.add(joined(W2))  # a late duplicate of the first
    assert second.settle() == [changed]


# Who owns what


def test_a_new_partition_is_one_message_to_one_worker() -> None:
    log = group_of(W1, W2, partitions=10)
    leader = Acting(log, W1)
    leader.settle()
    release_all(log)
    log.list_topics(W1, {"bills": 1})
    assert list(moves(leader.settle())) == [share(0, "bills")]


def test_a_leader_that_has_planned_says_nothing_until_something_changes() -> None:
    log = group_of(W1, W2)
    leader = Acting(log, W1)
    leader.settle()
    log.beat([W1, W2], for_ms=20_000)
    assert not leader.decide()
    release_all(log)
    assert not leader.decide()
    log.add(Beat(W2, {A_B: 3}))
    assert not leader.decide()


def test_an_assignment_that_did_not_count_is_made_again() -> None:
    log = group_of(W1, W2)
    leader = Acting(log, W1)
    lost = moves(action.record for action in leader.decide() if isinstance(action, Append))
    assert lost
    assert moves(leader.act()) == lost
    assert not moves(leader.settle())


def test_who_leads_again_plans_anew_for_another_one_led_meanwhile() -> None:
    log = group_of(W1, W2, partitions=2)
    leader = Acting(log, W1)
    leader.settle()
    log.add(Resigned(W1, 1))
    log.lead(W2)
    log.own({share(0): UNASSIGNED, share(1): UNASSIGNED})
    log.add(Resigned(W2, 2))
    log.lead(W1)
    assert set(moves(leader.settle())) == {share(0), share(1)}


def test_what_is_copied_no_more_is_taken_from_its_owner() -> None:
    log = group_of(W1, W2, partitions=2)
    leader = Acting(log, W1)
    leader.settle()
    owner = log.view.owner(share(1))
    assert owner is not None
    log.list_topics(W1, {"orders": 1})
    assert moves(leader.settle())[share(1)] == UNASSIGNED
    release_all(log)
    assert share(1) not in log.view.owners


def test_a_member_gets_only_what_it_may_run() -> None:
    log = group_of(W1, partitions=6)
    beats = Joined(W2, "", "", "", (C_B,), (A_B,), {}, None, "log", 3000)
    log.add(beats)
    Acting(log, W1).settle()
    assert set(log.view.owned_by(W2)) == {TaskName(C_B, Kind.SOURCE), TaskName(A_B, Kind.HEARTBEAT)}
    assert len(log.view.owned_by(W1)) == 7


def test_tasks_that_are_not_divided_are_spread_by_their_number_over_those_who_may_run_them() -> None:
    flows = [Flow(ClusterAlias(f"S{number}"), ClusterAlias("B")) for number in range(6)]
    log = GroupLog()
    workers = [W1, W2, W3]
    log.add(*(replace(joined(worker), heartbeats=tuple(flows[:3]), checkpoints=tuple(flows)) for worker in workers))
    log.lead(W1)
    leader = Acting(log, W1)
    leader.settle()
    log.add(Loads(W1, {TaskName(A_B, Kind.SOURCE): 5e9}))
    for kind, each in ((Kind.HEARTBEAT, 1), (Kind.CHECKPOINT, 2)):
        owned = [[share for share in log.view.owned_by(worker) if share.kind is kind] for worker in workers]
        assert [len(shares) for shares in owned] == [each] * 3
    assert not any(share.flow == A_B for share in log.view.tasks() if share.kind in UNDIVIDED)
    before = dict(log.view.owners)
    log.beat([W1, W2], for_ms=4000)
    moved = moves(leader.settle())
    assert {share for share in moved if share.kind in UNDIVIDED} == {
        share for share, owned_before in before.items() if owned_before.member == W3
    }
    assert Counter(log.view.owner(TaskName(flow, Kind.CHECKPOINT)) for flow in flows) == {W1: 3, W2: 3}


def test_a_flows_checkpoints_are_run_by_one_who_may_whatever_its_tasks_max_is() -> None:
    log = group_of(W1, W2, W3, partitions=9)
    log.add(*(replace(joined(worker), tasks_max={A_B: 1}, checkpoints=(A_B,)) for worker in (W2, W3)))
    Acting(log, W1).settle()
    assert log.view.owner(TaskName(A_B, Kind.CHECKPOINT)) in {W2, W3}


def test_what_its_owner_may_run_no_more_and_nobody_else_may_is_taken_away() -> None:
    log = group_of(W1, W2, partitions=1)
    leader = Acting(log, W1)
    leader.settle()
    only_c = joined(W1, C_B)
    log.add(only_c, joined(W2, C_B))
    leader.situation = replace(leader.situation, joined=only_c)
    leader.settle()
    assert {each for each in log.view.owners if log.view.owner(each)} == {TaskName(C_B, Kind.SOURCE)}


def test_tasks_max_bounds_on_how_many_workers_a_flow_runs() -> None:
    log = group_of(W1, W2, W3, partitions=9)
    bounded = replace(joined(W2), tasks_max={A_B: 2})
    log.add(bounded, replace(joined(W3), tasks_max={A_B: 3}))
    Acting(log, W1).settle()
    assert len({log.view.owner(each) for each in log.view.tasks()}) == 2


def test_tasks_that_are_merged_into_one_remote_partition_have_one_owner() -> None:
    log = GroupLog()
    log.add(joined(W1, A_B, C_B), joined(W2, A_B, C_B))
    log.lead(W1)
    heads = {HEAD: W1, TaskName(C_B, Kind.SOURCE): W1}
    log.own(heads)
    for flow in (A_B, C_B):
        log.add(Listed(W1, flow, {"orders": 8}))
    Acting(log, W1, bundle_of=lambda each: each._replace(flow=A_B) if each.is_partition else each).settle()
    for partition in range(8):
        assert log.view.owner(share(partition)) == log.view.owner(share(partition, flow=C_B)) is not None


@pytest.mark.parametrize("dead", [W1, W3])
def test_what_a_dead_member_had_moves_and_nothing_else_also_when_loads_were_measured_meanwhile(dead: MemberId) -> None:
    """Whether it was the leader or not: another one does not know by what loads it had planned."""
    log = group_of(W1, W2, W3, partitions=12)
    Acting(log, W1).settle() if dead == W1 else None
    leader = Acting(log, W1 if dead == W3 else W2)
    leader.settle()
    release_all(log)
    alive = [W2, W3] if dead == W1 else [W1, W2]
    kept = {each for each in log.view.tasks() if log.view.owner(each) in alive}
    heavy = {each for each in log.view.owned_by(W2) if each.is_partition}
    log.add(Loads(W2, dict.fromkeys(heavy, 5e6)))
    log.beat(alive, for_ms=4000)
    moved = moves(leader.settle())
    assert moved
    assert not moved.keys() & kept
    log.fenced(dead)
    log.beat(alive, for_ms=60_000)
    assert moves(leader.settle()).keys() & heavy, "that is done when loads are balanced next"


@pytest.mark.parametrize("ended", ["dies", "resigns"])
@pytest.mark.parametrize("then", ["a new topic", "another death"])
def test_a_new_leader_moves_nothing_else_either_before_it_has_balanced(ended: str, then: str) -> None:
    """The story: it has kept what was, though loads are askew. Seconds later something else is to be planned."""
    workers = [W1, W2, W3, MemberId("w4")]
    log = group_of(*workers, partitions=12)
    Acting(log, W1).settle()
    release_all(log)
    log.add(Loads(W2, dict.fromkeys((each for each in log.view.owned_by(W2) if each.is_partition), 5e6)))
    if ended == "resigns":
        log.add(Resigned(W1, 1))
    else:
        log.beat(workers[1:], for_ms=4000)
    leader = Acting(log, W2)
    leader.settle()
    if ended == "dies":
        log.fenced(W1)
    release_all(log)
    alive = workers[1:] if ended == "dies" else workers
    if then == "another death":
        log.beat([each for each in alive if each != workers[-1]], for_ms=4000)
    else:
        head = log.view.owner(HEAD)
        assert head is not None
        log.list_topics(head, {"fresh": 1})
    before = {each: log.view.owner(each) for each in log.view.tasks()}
    moved = moves(leader.settle())
    assert moved
    assert all(before[each] in {None, workers[-1] if then == "another death" else None} for each in moved)


def test_who_joins_while_there_is_no_leader_gets_its_part_from_the_next_one_at_once() -> None:
    log = group_of(W1, W2, partitions=12)
    Acting(log, W1).settle()
    release_all(log)
    log.add(joined(W3), Resigned(W1, 1))
    second = Acting(log, W2)
    second.settle()
    assert len([each for each in log.view.owned_by(W3) if each.is_partition]) >= 3


def test_loads_are_taken_anew_when_a_member_joins() -> None:
    log = group_of(W1, W2, partitions=8)
    leader = Acting(log, W1)
    leader.settle()
    release_all(log)
    heavy, *light = sorted(each for each in log.view.owned_by(W1) if each.is_partition)
    log.add(Loads(W1, {heavy: 9e6, **dict.fromkeys(light, 3e6)}))
    log.add(joined(W3))
    assert moves(leader.settle()) == {heavy: W3}, "by their number it would have got two or three"


def test_loads_that_wobble_move_nothing() -> None:
    log = group_of(W1, W2, partitions=40)
    leader = Acting(log, W1)
    leader.settle()
    release_all(log)

    def moved_by(loads: dict[MemberId, float]) -> dict[TaskName, MemberId]:
        for member, load in loads.items():
            log.add(Loads(member, {each: load for each in log.view.owned_by(member) if each.is_partition}))
        log.beat([W1, W2], for_ms=60_000)
        return moves(leader.settle())

    assert not moved_by({W1: 1e6, W2: 1e6})
    assert not moved_by({W1: 1.2e6})
    assert moved_by({W1: 1.4e6})


def test_topics_that_come_and_go_do_not_put_balancing_off() -> None:
    log = group_of(W1, W2, partitions=8)
    leader = Acting(log, W1)
    leader.settle()
    release_all(log)
    mine = [each for each in log.view.owned_by(W1) if each.is_partition]
    log.add(Loads(W1, dict.fromkeys(mine, 5e6)))
    for number in range(6):
        log.beat([W1, W2], for_ms=9_500)
        log.list_topics(W1, {f"bills-{number}": 1})
        assert not moves(leader.settle()).keys() & set(mine)
    log.beat([W1, W2], for_ms=3_000)
    assert moves(leader.settle()).keys() & set(mine)


def test_a_large_assignment_is_cut_in_parts_that_a_topic_takes() -> None:
    log = group_of(W1, W2, partitions=1)
    log.list_topics(W1, {f"{'topic' * 40}-{number}": 2 for number in range(5000)})
    records = Acting(log, W1).act()
    parts = [record for record in records if isinstance(record, Assigned)]
    assert len(parts) >= 2
    assert max(len(encode(part)) for part in parts) <= PART_BYTES_MOST
    assert all(log.view.owner(each) for each in log.view.tasks())


# Snapshots


def test_a_leader_writes_a_snapshot_when_it_takes_office_and_each_minute() -> None:
    log = group_of(W1, W2)
    leader = Acting(log, W1)
    written = [record for record in leader.settle() if isinstance(record, Snapshot)]
    assert len(written) == 1
    log.beat([W1, W2], for_ms=59_500)
    assert not leader.decide()
    log.beat([W1, W2], for_ms=500)
    assert [type(record) for record in leader.settle()] == [Snapshot]
    log.add(Resigned(W1, 1))
    log.lead(W2)
    assert Snapshot in map(type, Acting(log, W2).settle())


def test_a_snapshot_with_what_was_written_since_is_the_whole_log() -> None:
    log = group_of(W1, W2)
    records = Acting(log, W1).settle()
    snapshot = next(record for record in records if isinstance(record, Snapshot))
    view = read_snapshot(snapshot.state)
    for entry in log.entries[snapshot.covers :]:
        view.take(entry)
    assert snapshot_text(view) == snapshot_text(log.view)


def test_a_large_snapshot_is_cut_in_parts_that_a_topic_takes() -> None:
    log = group_of(W1, W2)
    log.list_topics(W1, {f"{'é' * 100}-{number}": 2 for number in range(2000)})
    parts = [record for record in Acting(log, W1).act() if isinstance(record, Snapshot)]
    assert len(parts) >= 2
    assert max(len(encode(part)) for part in parts) <= PART_BYTES_MOST
    assert {(part.snapshot_id, part.parts) for part in parts} == {("random-w1", len(parts))}
    assert read_snapshot("".join(part.state for part in parts)).next_offset == parts[0].covers
