"""When a flow may copy, which turns are refused, and where a flow begins that is turned on."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from mm2py.flow import parse_flow
from mm2py.kafka.port import TopicPartition
from mm2py.records.direction_record import Direction, DirectionState
from mm2py.records.operator_request import TargetState
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition
from mm2py.shared_settings.direction import (
    Seen,
    TurnFacts,
    TurnRefused,
    both_on,
    extras,
    first_direction,
    hold_of,
    refuse_turn,
    starts_behind,
)

THERE, BACK = parse_flow("A->B"), parse_flow("B->A")
KEY: TopicPartition = ("orders", 0)


def seen(state: DirectionState | None, *, standby: bool = False, offset: int = 7) -> Seen:
    return Seen(None if state is None else Direction(state, 3, "ann", 5, "w"), standby, offset)


ON, TURNING_ON, OFF = map(seen, DirectionState)
EACH = [None, *DirectionState]


@pytest.mark.parametrize(("state", "standby"), list(itertools.product(EACH, [False, True])))
def test_what_is_stored_counts_and_else_the_file(state: DirectionState | None, standby: bool) -> None:
    one = seen(state, standby=standby)
    assert one.is_on is (not standby if state is None else state is DirectionState.ON)
    assert (hold_of(one) is None) is one.is_on
    assert one.claims is (one.is_on or state is DirectionState.TURNING_ON)


def test_a_flow_that_is_standby_says_by_whom_and_where_that_is_stored() -> None:
    hold = hold_of(OFF)
    assert hold is not None and (hold.word, hold.text, hold.offset) == ("standby", "standby by ann", 7)
    by_file = hold_of(seen(None, standby=True))
    assert by_file is not None and by_file.text == "standby by its file"


@pytest.mark.parametrize(("own", "other"), list(itertools.product(EACH, EACH)))
def test_two_that_are_on_are_both_held(own: DirectionState | None, other: DirectionState | None) -> None:
    is_conflict = other is DirectionState.ON and own in {None, DirectionState.ON}
    assert both_on(seen(own), seen(other)) is is_conflict
    hold = hold_of(seen(own), BACK, seen(other))
    assert (hold is not None and hold.state is TargetState.BOTH_ON) is is_conflict
    if is_conflict:
        assert hold is not None and hold.text == "both-on: B->A is on by ann (generation 3) as well"
    assert not both_on(seen(own), None)


@pytest.mark.parametrize(("standby", "other"), list(itertools.product([False, True], [None, *map(seen, EACH)])))
def test_the_first_worker_stores_what_its_file_says_unless_the_flow_back_is_on(
    standby: bool, other: Seen | None
) -> None:
    is_taken = other in (ON, TURNING_ON)
    found = first_direction(standby=standby, other=other)
    assert (found.state is DirectionState.ON) is (not standby and not is_taken)
    assert found.generation == 1


def test_a_flow_is_turned_on_only_when_the_flow_back_has_ended_and_has_copied_all() -> None:
    facts = TurnFacts(BACK, THERE, OFF, "", {})
    refuse_turn(facts, force=False)
    refuse_turn(replace(facts, other=seen(None, standby=True)), force=False)
    for force in (False, True):
        for other in (ON, TURNING_ON, seen(None)):
            with pytest.raises(TurnRefused, match=r"B->A cannot be turned on: A->B is .* by .*Turn A->B off first"):
                refuse_turn(replace(facts, other=other), force=force)
        with pytest.raises(TurnRefused, match="A->B may still write: worker w1 has not said so"):
            refuse_turn(replace(facts, runs="worker w1 has not said so"), force=force)
    many = replace(facts, extras={("t", number): 1_200 for number in range(5)})
    with pytest.raises(TurnRefused, match=r"A has records that A->B has not copied to B: t-0 \(1,200\), .* and 2 more"):
        refuse_turn(many, force=False)
    refuse_turn(many, force=True)


def at(source: int, target: int | None = None, by: str = "w") -> StoredPosition:
    return StoredPosition(next_source=source, next_target=target, by=by)


@pytest.mark.parametrize(
    ("theirs", "mine", "start"),
    [
        (at(90, 80), None, 80),
        (at(90, 80), at(70), 80),
        (at(90, 80), at(80), None),
        (at(90, 80), at(95), None),
        (at(90, 300), None, 100),
        (at(90), None, 100),
        (at(90, by=BY_OPERATOR), at(70), None),
        (at(90, by=BY_OPERATOR), None, 100),
        (at(0, 0), None, 0),
        (None, at(70), None),
    ],
)
def test_a_flow_begins_behind_what_the_flow_back_has_brought(
    theirs: StoredPosition | None, mine: StoredPosition | None, start: int | None
) -> None:
    brought = {} if theirs is None else {KEY: theirs}
    own = {} if mine is None else {KEY: mine}
    assert starts_behind(brought, own, {KEY: 100}) == ({} if start is None else {KEY: start})


def test_a_deleted_position_is_no_place_to_go_on() -> None:
    deleted = StoredPosition(next_source=0, by=BY_OPERATOR, recopy=True)
    assert starts_behind({KEY: at(90, 80)}, {KEY: deleted}, {KEY: 100}) == {KEY: 80}


@pytest.mark.parametrize(
    ("theirs", "mine", "begin", "count"),
    [
        (at(100), None, 0, None),
        (at(90), None, 0, 10),
        (None, None, 40, 60),
        (None, None, 100, None),
        (at(40), at(0, 100), 0, None),
        (at(40), at(0, 95), 0, 5),
        (None, at(0, 100), 0, None),
    ],
)
def test_extras_are_what_neither_flow_has_brought_over(
    theirs: StoredPosition | None, mine: StoredPosition | None, begin: int, count: int | None
) -> None:
    brought = {} if theirs is None else {KEY: theirs}
    own = {} if mine is None else {KEY: mine}
    assert extras(brought, own, {KEY: begin}, {KEY: 100}) == ({} if count is None else {KEY: count})
