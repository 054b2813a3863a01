"""Which groups may move to the other cluster, and where they go on: never behind, never ahead of the exact record."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.dr.groups.judgement import (
    GroupMove,
    GroupToMove,
    MoveState,
    PartitionToMove,
    commits_of,
    judge_at_ends,
    judge_idle,
    place_in_other_log,
)
from mm2py.kafka.consumer_groups import Commit
from mm2py.kafka.group_members import GroupMember
from mm2py.offsets.answers import BEFORE_LEDGER, NOT_YET, Answer, AnswerKind
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Run

EXACT = Answer(AnswerKind.COPIED, 90, True)
PART = PartitionToMove(
    "orders",
    0,
    "A.orders",
    Commit(100, "page 7"),
    log_start=10,
    log_end=200,
    stable_end=200,
    start_there=5,
    end_there=190,
    place=EXACT,
)
GROUP = GroupToMove("pay", "A", "B", protocol_type="consumer", partitions=(PART,))
MEMBERS = (GroupMember("m-1", "billing", "10.0.0.3"), GroupMember("m-2", "billing", "10.0.0.4"))
ACTIVE = replace(GROUP, state="Stable", members=MEMBERS)


def of(**changes: object) -> GroupToMove:
    """Return the group with one other partition."""
    return replace(GROUP, partitions=(replace(PART, **changes),))  # type: ignore[arg-type]


def test_an_idle_group_goes_on_at_its_exact_record_with_its_metadata() -> None:
    move = judge_idle(GROUP)
    assert (move.state, move.why, move.is_there) == (MoveState.READY, "", False)
    assert commits_of(GROUP, move) == {("A.orders", 0): Commit(90, "page 7")}
    assert move.partitions[0].line == "orders-0  100 -> A.orders-0  90, exact"
    there = of(committed_there=90)
    assert judge_idle(there).is_there


@pytest.mark.parametrize(
    ("changes", "state", "why"),
    [
        ({"place": None, "unknown": "A->B does not copy orders"}, MoveState.REFUSED, "A->B does not copy orders"),
        ({"committed": Commit(201)}, MoveState.REFUSED, "its commit is beyond the end of orders-0 on A, which is 200"),
        ({"place": NOT_YET}, MoveState.WAITS, "what it has read is not copied yet, or not in the ledger"),
        (
            {"place": NOT_YET, "stable_end": 99},
            MoveState.WAITS,
            "what it has read is not copied yet, or not in the ledger: an open transaction begins at 99",
        ),
        ({"place": BEFORE_LEDGER}, MoveState.REFUSED, "it has committed an offset before the ledger"),
        (
            {"start_there": 91},
            MoveState.REFUSED,
            "B has deleted the records before 91 of A.orders-0, which it has not read",
        ),
        (
            {"end_there": 89},
            MoveState.REFUSED,
            "its place is 90; A.orders-0 ends at 89 on B: records were lost there",
        ),
        (
            {"place": Answer(AnswerKind.COUNTED, 80, False)},
            MoveState.REFUSED,
            "its exact place is not known (counted); it would read records again",
        ),
        (
            {"committed_there": 91, "read_there": 90},
            MoveState.REFUSED,
            "on B it has committed 91, and would be set back to 90",
        ),
        (
            {"only_here": 95, "place": Answer(AnswerKind.NOT_YET, 90, False)},
            MoveState.REFUSED,
            "it has read records from 95 on in orders-0 on A that B does not have",
        ),
    ],
)
def test_one_partition_that_cannot_move_keeps_the_group_where_it_is(
    changes: dict[str, object], state: MoveState, why: str
) -> None:
    fine = replace(PART, partition=1)
    group = replace(GROUP, partitions=(*of(**changes).partitions, fine))
    move = judge_idle(group)
    assert (move.state, move.why) == (state, f"orders-0: {why}")
    assert [one.state for one in move.partitions] == [state, MoveState.READY]
    assert not move.partitions[0].is_exact
    assert move.remedy or state is MoveState.WAITS
    with pytest.raises(AssertionError):
        commits_of(group, move)


def test_a_refusal_counts_before_something_that_passes_by_itself() -> None:
    waits, refused = replace(PART, place=NOT_YET), replace(PART, partition=1, place=BEFORE_LEDGER)
    move = judge_idle(replace(GROUP, partitions=(waits, refused)))
    assert (move.state, move.why) == (MoveState.REFUSED, "orders-1: it has committed an offset before the ledger")


def test_a_group_at_the_end_goes_on_where_the_log_there_starts_if_only_markers_were_deleted() -> None:
    """Its commit would be out of range there, and its consumers would reset by their own policy."""
    group = of(place=Answer(AnswerKind.END, 90, True), start_there=93, end_there=95)
    assert commits_of(group, judge_idle(group)) == {("A.orders", 0): Commit(93, "page 7")}


def test_a_commit_that_is_there_stays_if_only_markers_lie_before_it() -> None:
    """A group that stood behind the marker of a transaction would be set back by one offset."""
    move = judge_idle(of(committed_there=92))
    assert (move.state, move.partitions[0].goes_on_at, move.is_there) == (MoveState.READY, 92, True)
    assert judge_idle(of(committed_there=80)).partitions[0].goes_on_at == 90
    beyond = judge_idle(of(committed_there=500))
    assert (beyond.partitions[0].goes_on_at, beyond.is_there) == (190, False), "its commit was out of range"


def test_a_group_with_members_is_refused_by_name() -> None:
    move = judge_idle(ACTIVE)
    assert move.state is MoveState.REFUSED
    assert move.why == "it has members on A (Stable): m-1 on 10.0.0.3, m-2 on 10.0.0.4"
    many = replace(ACTIVE, members=[GroupMember(f"m-{number}", "c", "h") for number in range(8)])
    assert judge_idle(many).why.endswith("m-4 on h and 3 more")
    assert judge_idle(replace(ACTIVE, members=())).why.endswith("the cluster does not tell which")


def test_a_group_that_is_active_on_the_other_cluster_is_refused_by_name() -> None:
    group = replace(GROUP, state_there="Stable", protocol_type_there="consumer", members_there=MEMBERS[:1])
    for move in (judge_idle(group), judge_at_ends(group)):
        assert (move.state, move.why) == (MoveState.REFUSED, "it has members on B (Stable): m-1 on 10.0.0.3")
    other = replace(GROUP, state_there="Empty", protocol_type_there="connect")
    assert judge_idle(other).why == "on B it is a connect group"
    assert judge_idle(replace(GROUP, state_there="Empty")).state is MoveState.READY


def test_share_groups_are_named_and_not_moved() -> None:
    share = replace(ACTIVE, protocol_type="share", partitions=())
    for move in (judge_idle(share), judge_at_ends(share)):
        assert move.state is MoveState.LEFT
        assert move.why == "it is a share group, and keeps its positions in another way: it is not moved"


def test_without_the_right_to_commit_nothing_is_moved() -> None:
    move = judge_idle(replace(GROUP, refused="Grant mm2py READ on group pay."))
    assert (move.state, move.why) == (MoveState.REFUSED, "Grant mm2py READ on group pay.")


def test_a_group_without_commits_is_not_moved() -> None:
    assert judge_idle(replace(GROUP, partitions=())).state is MoveState.REFUSED


@pytest.mark.parametrize(
    ("group", "state", "why"),
    [
        (GROUP, MoveState.READY, ""),  # idle: final wherever it is
        (ACTIVE, MoveState.READY, ""),  # connected, and nothing is left to read
        (
            replace(ACTIVE, partitions=(replace(PART, next_record=150),)),
            MoveState.WAITS,
            "it has members on A, and has not read orders-0 from 150 on",
        ),
        (
            replace(ACTIVE, partitions=(replace(PART, next_record=150), replace(PART, partition=1, next_record=3))),
            MoveState.WAITS,
            "it has members on A, and has not read orders-0 from 150 on, and 1 more",
        ),
        (
            replace(ACTIVE, partitions=(replace(PART, stable_end=120),)),
            MoveState.WAITS,
            "it has members on A, and an open transaction in orders-0 begins at 120",
        ),
        (
            replace(ACTIVE, uncommitted=(("orders", 1),)),
            MoveState.WAITS,
            "it has members on A, and it has committed nothing in orders-1, which holds records",
        ),
        (
            replace(ACTIVE, partitions=(replace(PART, place=NOT_YET),)),
            MoveState.WAITS,
            "orders-0: what it has read is not copied yet, or not in the ledger",
        ),
        (
            replace(GROUP, partitions=(replace(PART, place=BEFORE_LEDGER),)),
            MoveState.REFUSED,
            "orders-0: it has committed an offset before the ledger",
        ),
    ],
)
def test_at_the_fenced_ends_a_group_is_final_if_it_is_idle_or_has_read_all(
    group: GroupToMove, state: MoveState, why: str
) -> None:
    move = judge_at_ends(group)
    assert (move.state, move.why) == (state, why)
    if state is MoveState.READY:
        assert commits_of(group, move) == {("A.orders", 0): Commit(90, "page 7")}


def test_an_operator_may_leave_a_group_out() -> None:
    busy = replace(ACTIVE, partitions=(replace(PART, next_record=150),))
    assert judge_at_ends(busy, is_left=True).state is MoveState.LEFT


# ---- by the ledgers: against a plain list of records


@dataclass
class Logs:
    """Two logs of a partition, as a list of pairs: what each record's copy is. A began, B took over at the seam."""

    to_b: list[tuple[int, int]]
    """Offsets on A and B of what A->B has copied."""
    to_a: list[tuple[int, int]]
    """Offsets on A and B of what B->A has copied."""
    ends: tuple[int, int]
    """Of A and B."""
    forth: PartitionLedger
    back: PartitionLedger

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return self.to_b + self.to_a

    def move(self, offset: int, *, from_b: bool) -> tuple[GroupToMove, GroupMove]:
        """Judge a group that is idle at an offset of A, or of B."""
        outward, homeward = (self.back, self.forth) if from_b else (self.forth, self.back)
        here, there = (self.ends[1], self.ends[0]) if from_b else self.ends
        place = place_in_other_log(offset, outward, homeward)
        part = PartitionToMove("t", 0, "t", Commit(offset), log_end=here, stable_end=here, end_there=there, place=place)
        group = GroupToMove("g", "A", "B", protocol_type="consumer", partitions=(part,))
        return group, judge_idle(group)


@st.composite
def copied(draw: st.DrawFn, begin: tuple[int, int]) -> tuple[PartitionLedger, list[tuple[int, int]], tuple[int, int]]:
    """Copy some records from a log to another one: markers and compacted records on one side, markers on the other.

    Returns: the ledger, the pairs, and the ends of both.
    """
    source, target = begin
    ledger, pairs = Ledger(*begin, is_whole=begin == (0, 0)), []
    for _ in range(draw(st.integers(0, 6))):
        source += draw(st.sampled_from([0, 1, 1, 2, 5]))
        target += draw(st.sampled_from([0, 0, 1, 3]))
        count = draw(st.integers(1, 4))
        ledger.append(Run(source, target, count))
        pairs += [(source + at, target + at) for at in range(count)]
        source, target = source + count, target + count
    source += draw(st.integers(0, 2))
    ledger.advance(source)
    found = PartitionLedger()
    found.start(1, ledger)
    return found, pairs, (source, target)


@st.composite
def both_ways(draw: st.DrawFn, is_two_way: bool) -> Logs:
    forth, to_b, (end_a, end_b) = draw(copied((0, 0)))
    if not is_two_way:
        return Logs(to_b, [], (end_a, end_b), forth, PartitionLedger())
    seam = forth.newest.target_end if forth.newest is not None else 0
    end_a += draw(st.integers(0, 3))  # what A has and B never got
    back, pairs, (end_b, end_a) = draw(copied((seam, end_a)))
    return Logs(to_b, [(a, b) for b, a in pairs], (end_a, end_b), forth, back)


@given(st.data(), st.booleans(), st.booleans())
def test_no_group_goes_on_ahead_of_a_record_that_it_has_not_read_or_behind_one_that_it_has_read(
    data: st.DataObject, is_two_way: bool, from_b: bool
) -> None:
    logs = data.draw(both_ways(is_two_way))
    here, there = (1, 0) if from_b else (0, 1)
    for offset in range(logs.ends[here] + 1):
        group, move = logs.move(offset, from_b=from_b)
        if move.state is not MoveState.READY:
            assert offset not in {pair[here] for pair in logs.pairs}, "the place of each copied record is known"
            continue
        ((_, commit),) = commits_of(group, move).items()
        for pair in logs.pairs:
            if pair[here] >= offset:
                assert pair[there] >= commit.offset, "it skips no record"
            else:
                assert pair[there] < commit.offset, "it reads none again"


@given(st.data(), st.booleans())
def test_what_was_moved_and_moved_back_is_at_the_next_record_again(data: st.DataObject, is_two_way: bool) -> None:
    logs = data.draw(both_ways(is_two_way))
    for offset in range(logs.ends[0] + 1):
        _, move = logs.move(offset, from_b=False)
        if move.state is not MoveState.READY:
            continue
        at = move.partitions[0].goes_on_at
        assert at is not None
        _, back = logs.move(at, from_b=True)
        if back.state is not MoveState.READY:
            continue
        home = back.partitions[0].goes_on_at
        assert home is not None
        low, high = sorted((offset, home))
        assert not [a for a, _ in logs.pairs if low <= a < high], "no copied record lies between"


def test_a_group_that_lags_behind_the_seam_is_found_in_the_ledger_of_the_way_there() -> None:
    """B took over from A at 50, and the flow back began there: only the ledger of A->B knows what is before."""
    forth, back = PartitionLedger(), PartitionLedger()
    there, home = Ledger(0, 0, is_whole=True), Ledger(50, 63, is_whole=False)
    there.append(Run(10, 0, 50))
    home.append(Run(50, 63, 20))
    forth.start(1, there)
    back.start(1, home)
    assert place_in_other_log(30, back, forth) == Answer(AnswerKind.COPIED, 40, True)
    assert place_in_other_log(50, back, forth) == Answer(AnswerKind.COPIED, 63, True)
    assert place_in_other_log(71, back, forth) == NOT_YET
    assert place_in_other_log(70, forth, back) == Answer(AnswerKind.COPIED, 57, True)
    assert place_in_other_log(83, forth, back) == Answer(AnswerKind.END, 70, True)
    assert place_in_other_log(62, forth, back) == NOT_YET, "A alone has what is between"
    assert place_in_other_log(30, PartitionLedger(), PartitionLedger()) == BEFORE_LEDGER
