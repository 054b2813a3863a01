"""The table of states of a recovery: what may follow what, what is refused, and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.dr.pages import PAGE, states_page
from mm2py.dr.states import (
    ENDED,
    MAY_HAVE_SWITCHED,
    MEANING,
    TABLE,
    WITHOUT_SOURCE,
    WITHOUT_TARGET,
    NoSuchTransition,
    PromiseBroken,
    RecoveryEffect,
    RecoveryEvent,
    RecoveryFacts,
    RecoveryState,
    is_at_rest,
    transition,
)

S, E, F = RecoveryState, RecoveryEvent, RecoveryEffect
ROOT = Path(__file__).parents[3]
ENDS = RecoveryFacts(source_ends={"orders-0": 10, "orders-1": 7})


def test_the_page_is_what_the_table_says() -> None:
    """``python -m mm2py.config.pages`` makes it."""
    assert (ROOT / PAGE).read_text() == states_page()


def test_no_event_has_two_rows_in_a_state_and_each_state_is_explained() -> None:
    keys = [(row.state, row.event) for row in TABLE]
    assert len(set(keys)) == len(keys)
    assert set(MEANING) == set(S)
    assert {row.following for row in TABLE} == set(S) - {S.READY}


def test_a_cutover_goes_through_all_states_in_order() -> None:
    way = [E.CUTOVER_ASKED, E.FENCE_SET, E.FENCE_HOLDS, E.ALL_COPIED, E.GROUPS_EXACT, E.SWITCH_CONFIRMED]
    way += [E.HOOK_DONE, E.FLOW_REVERSED, E.PRODUCERS_FREE, E.COMPLETE_ASKED]
    seen = RecoveryFacts(ENDS.source_ends, ENDS.source_ends, ENDS.source_ends)
    state, states = S.READY, []
    for event in way:
        state = transition(state, event, seen, ENDS).following
        states.append(state)
    assert states == [
        *(S.FENCING, S.FENCED, S.FENCE_VERIFIED, S.DRAINED, S.GROUPS_FINAL),
        *(S.SWITCHING, S.SWITCHED, S.REVERSED, S.REVERSED, S.COMPLETE),
    ]


def test_only_what_has_not_switched_is_taken_back() -> None:
    for row in TABLE:
        if F.TAKE_BACK in row.effects:
            assert row.state not in MAY_HAVE_SWITCHED, row
            assert row.following is S.TAKING_BACK, row
        if row.event is E.FAILED and row.state in MAY_HAVE_SWITCHED:
            assert (row.following, row.effects) == (row.state, (F.ALARM,)), row
    assert {row.state for row in TABLE if row.event is E.FAILED} == set(S) - ENDED - {S.READY}


def test_the_hook_runs_only_in_states_that_say_so_and_producers_are_freed_only_behind_it() -> None:
    for row in TABLE:
        if F.RUN_HOOK in row.effects:
            assert row.following in {S.SWITCHING, S.FAILING_OVER}, row
        if F.FREE_PRODUCERS in row.effects:
            assert row.following in {S.REVERSED, S.FAILED_OVER}, row
        if F.SET_FENCE in row.effects:
            assert row.following in {S.FENCING, S.REINSTATING}, row


def test_what_was_verified_expires_with_its_process() -> None:
    for state in (S.FENCED, S.FENCE_VERIFIED, S.DRAINED, S.GROUPS_FINAL):
        row = transition(state, E.RESTARTED)
        assert (row.following, row.effects) == (S.FENCED, (F.VERIFY_FENCE,))
    assert transition(S.SWITCHING, E.RESTARTED).effects == (F.CONFIRM_SWITCH, F.RUN_HOOK)


def test_each_unfinished_state_goes_on_after_a_restart_or_can_be_left() -> None:
    for state in set(S) - ENDED - {S.READY}:
        assert transition(state, E.RESTARTED).following not in {S.READY}
    assert not (WITHOUT_SOURCE & WITHOUT_TARGET)
    assert WITHOUT_TARGET.isdisjoint(MAY_HAVE_SWITCHED)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (S.READY, E.SWITCH_CONFIRMED),
        (S.FENCED, E.ALL_COPIED),
        (S.DRAINED, E.SWITCH_CONFIRMED),
        (S.SWITCHING, E.TAKE_BACK_ASKED),
        (S.REVERSED, E.TAKE_BACK_ASKED),
        (S.COMPLETE, E.UNDO_ASKED),
        (S.FAILED_OVER, E.UNDO_ASKED),
    ],
)
def test_what_the_table_lacks_is_refused_with_what_can_be_done(state: S, event: E) -> None:
    with pytest.raises(NoSuchTransition, match=f"The recovery is {state}: {event} cannot happen now"):
        transition(state, event)


@pytest.mark.parametrize(
    ("state", "event", "seen", "why"),
    [
        (S.FENCED, E.FENCE_HOLDS, RecoveryFacts(), "no end of the source was seen"),
        (
            S.FENCE_VERIFIED,
            E.ALL_COPIED,
            RecoveryFacts(copied_to={"orders-0": 10, "orders-1": 6}),
            "orders-1 is copied",
        ),
        (S.FENCE_VERIFIED, E.ALL_COPIED, RecoveryFacts(copied_to={"orders-0": 10}), "orders-1 is copied to ?"),
        (S.GROUPS_FINAL, E.SWITCH_CONFIRMED, RecoveryFacts({"orders-0": 11, "orders-1": 7}), "orders-0 ends now at 11"),
        (
            S.GROUPS_FINAL,
            E.SWITCH_CONFIRMED,
            RecoveryFacts({**ENDS.source_ends, "orders-2": 0}),
            "orders-2 was not there",
        ),
        (
            S.DRAINED,
            E.GROUPS_EXACT,
            RecoveryFacts(target_ends={"orders-0": 10}, groups={"billing": {"orders-0": 11}}),
            "group billing would go on at 11 of orders-0, which ends at 10",
        ),
        (
            S.CUT_OFF,
            E.GROUPS_AT_CHOSEN,
            RecoveryFacts(groups={"billing": {"orders-0": 1}}),
            "group billing would go on at 1 of orders-0, which ends at 0",
        ),
    ],
)
def test_an_event_that_the_facts_deny_is_refused(state: S, event: E, seen: RecoveryFacts, why: str) -> None:
    with pytest.raises(PromiseBroken, match=why.replace("?", r"\?")):
        transition(state, event, seen, ENDS)


def test_all_copied_needs_stored_ends() -> None:
    with pytest.raises(PromiseBroken, match="no verified end is stored"):
        transition(S.FENCE_VERIFIED, E.ALL_COPIED)


def test_a_process_rests_only_where_nothing_of_it_can_be_under_way() -> None:
    assert is_at_rest(S.TAKEN_BACK, E.ALL_REMOVED)
    assert is_at_rest(S.REVERSED, E.PRODUCERS_FREE)
    assert is_at_rest(S.COMPLETE, E.COMPLETE_ASKED)
    for state, event in (
        *((S.REVERSED, E.FLOW_REVERSED), (S.TAKING_BACK, E.FAILED), (S.SWITCHING, E.FAILED)),
        *((S.FENCING, E.CUTOVER_ASKED), (S.FAILED_OVER, E.HOOK_DONE)),
    ):
        assert not is_at_rest(state, event)
