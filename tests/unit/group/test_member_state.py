"""The states of a member: every transition is in the diagram of docs/internals/group-member.md, and no other."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import get_args

import pytest

from mm2py.errors import Mm2Error
from mm2py.flow import parse_flow
from mm2py.group.member_state import (
    Active,
    DrainExpired,
    Effect,
    Event,
    EvictionRead,
    FlowEnded,
    FlowsBegin,
    HeartbeatAcknowledged,
    HistoryRead,
    Joining,
    JoinRead,
    LeaveAsked,
    Leaving,
    MemberDraining,
    MemberEnded,
    MemberFailed,
    MemberStopped,
    Preparing,
    RecordTooNew,
    Refused,
    RequestWaits,
    Sent,
    State,
    Suspended,
    step,
)

DIAGRAM = Path(__file__).parents[3] / "docs" / "internals" / "group-member.md"
A_B, C_B = parse_flow("A->B"), parse_flow("C->B")
WHY, TOO_NEW = Mm2Error("It was so.", remedy="Change it."), Mm2Error("It is newer.", remedy="Upgrade.")
NOTHING, ONE, TWO = Sent(), Sent(frozenset({A_B})), Sent(frozenset({A_B, C_B}))
STATES: list[State] = [
    Preparing(),
    Joining(),
    *(state for sent in (NOTHING, ONE, TWO) for state in (Active(sent), Suspended(sent))),
    MemberDraining(ONE, TOO_NEW),
    MemberDraining(TWO, TOO_NEW),
    Leaving(outcome_unknown=True, cause=WHY),
    MemberEnded(None),
]
EVENTS: list[Event] = [
    HistoryRead(),
    JoinRead(),
    FlowsBegin(frozenset({A_B})),
    FlowEnded(A_B, outcome_unknown=False),
    FlowEnded(A_B, outcome_unknown=True),
    RequestWaits(),
    HeartbeatAcknowledged(),
    RecordTooNew(TOO_NEW),
    DrainExpired(),
    EvictionRead(WHY),
    LeaveAsked(outcome_unknown=False),
    LeaveAsked(outcome_unknown=True, cause=WHY),
    Refused(WHY),
    MemberFailed(WHY),
    MemberStopped(),
]


def transitions() -> set[tuple[str, str, str]]:
    """Return (state, event, next state) of everything that changes a state."""
    return {
        (type(state).__name__, type(event).__name__, type(after).__name__)
        for state, event in itertools.product(STATES, EVENTS)
        if (after := step(state, event)[0]) != state
    }


def test_the_samples_hold_every_state_and_every_event() -> None:
    assert {type(state) for state in STATES} == {*get_args(State)}
    assert {type(event) for event in EVENTS} == {*get_args(Event)}


def test_the_diagram_has_every_transition_of_the_code_and_no_other() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+): (.+)$", DIAGRAM.read_text(), re.M)
    assert {(state, event, after) for state, after, events in drawn for event in events.split(", ")} == transitions()


def test_every_effect_is_of_some_transition_and_none_of_what_changes_nothing() -> None:
    effects: set[Effect] = set()
    for state, event in itertools.product(STATES, EVENTS):
        after, found = step(state, event)
        assert after != state or not found
        effects.update(found)
    assert effects == {*Effect}


def test_a_member_that_has_ended_stays_so_and_every_end_closes_the_gate() -> None:
    for state, event in itertools.product(STATES, EVENTS):
        after, effects = step(state, event)
        assert not isinstance(state, MemberEnded) or after == state
        ends = isinstance(after, MemberEnded) and not isinstance(state, MemberEnded)
        assert ends == (Effect.CLOSE_GATE in effects)


def test_every_state_ends_when_its_tasks_have() -> None:
    for state in STATES:
        assert isinstance(step(state, MemberStopped())[0], MemberEnded)


def run(*events: Event) -> State:
    state: State = Preparing()
    for event in events:
        state, _ = step(state, event)
    return state


JOINED = (HistoryRead(), JoinRead())


def test_a_member_that_no_other_knows_yet_ends_without_a_word() -> None:
    assert run(LeaveAsked(outcome_unknown=True)) == MemberEnded(None)
    assert run(Refused(WHY)) == MemberEnded(WHY)


def test_a_member_that_is_refused_leaves_outcome_unknown_and_names_the_cause() -> None:
    assert run(*JOINED, Refused(WHY)) == Leaving(outcome_unknown=True, cause=WHY)
    assert run(*JOINED, Refused(WHY), MemberStopped()) == MemberEnded(WHY)


def test_a_member_is_suspended_until_a_heartbeat_is_acknowledged_and_keeps_what_it_has_sent() -> None:
    begun = (*JOINED, FlowsBegin(frozenset({A_B})))
    assert run(*begun, RequestWaits()) == Suspended(ONE)
    assert run(*begun, RequestWaits(), HeartbeatAcknowledged()) == Active(ONE)


@pytest.mark.parametrize("outcome_unknown", [False, True])
def test_a_drained_member_leaves_no_unknown_outcome_unless_a_flow_left_a_request_unanswered(
    outcome_unknown: bool,
) -> None:
    drains = (*JOINED, FlowsBegin(frozenset({A_B, C_B})), RecordTooNew(TOO_NEW))
    assert run(*drains) == MemberDraining(TWO, TOO_NEW)
    one_left = (*drains, FlowEnded(C_B, outcome_unknown))
    assert run(*one_left, FlowEnded(C_B, outcome_unknown)) == MemberDraining(
        Sent(frozenset({A_B}), outcome_unknown), TOO_NEW
    )
    assert run(*one_left, FlowEnded(A_B, outcome_unknown=False)) == Leaving(outcome_unknown, TOO_NEW)
    assert run(*one_left, DrainExpired()) == Leaving(outcome_unknown=True, cause=TOO_NEW)


def test_a_member_with_nothing_to_drain_leaves_at_once() -> None:
    assert run(*JOINED, RecordTooNew(TOO_NEW)) == Leaving(outcome_unknown=False, cause=TOO_NEW)
    ended = (FlowsBegin(frozenset({A_B})), FlowEnded(A_B, outcome_unknown=True))
    assert run(*JOINED, *ended, RecordTooNew(TOO_NEW)) == Leaving(outcome_unknown=True, cause=TOO_NEW)


def test_while_it_drains_no_flow_begins() -> None:
    drains = (*JOINED, FlowsBegin(frozenset({A_B})), RecordTooNew(TOO_NEW))
    assert run(*drains, FlowsBegin(frozenset({C_B}))) == run(*drains)
