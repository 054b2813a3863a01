"""What keys, looks and answers do to the screen's state, and what they ask to be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mm2py.records.author import REASON_MOST
from mm2py.status.report import report_of
from mm2py.status.why import TopicDetails
from mm2py.top.keyboard import KeyTyped, TextPasted
from mm2py.top.rows import TopicOrder
from mm2py.top.state import (
    AskDetails,
    AskGroups,
    ChangeEnded,
    DetailsTold,
    GroupsRead,
    GroupsShown,
    LookAgain,
    LookEnded,
    PauseWanted,
    Place,
    Quit,
    RedrawAll,
    StorePause,
    TopEffect,
    TopLook,
    TopState,
    chosen_topic,
    step,
)
from mm2py.top.topic_rates import FlowTopic
from tests.fakes.v1_services import FLOW, NOW_MS, facts_of, flow_facts, group_report
from tests.scenarios.world import flow_settings

RATES = {FlowTopic(FLOW, "payments"): 12.0, FlowTopic(FLOW, "orders"): 3.0}


def look(**extra: Any) -> TopLook:
    facts = facts_of(flow_facts(**extra))
    return TopLook(facts, report_of(facts), RATES)


def started(**extra: Any) -> TopState:
    return step(TopState("mm2.properties"), LookEnded(look(**extra)))[0]


def typed(state: TopState, *keys: str) -> tuple[TopState, list[TopEffect]]:
    done: list[TopEffect] = []
    for key in keys:
        state, effects = step(state, KeyTyped(key))
        done += effects
    return state, done


def names(state: TopState) -> Sequence[str]:
    return [row.topic.topic for row in state.rows]


def test_before_the_first_look_no_key_does_anything_but_help_and_quit() -> None:
    state, done = typed(TopState("f"), "p", "r", "P", "g", "enter", "down", "s")
    assert (state.asking, state.place, done) == (None, Place.TOPICS, [])
    assert typed(state, "q")[1] == [Quit()]
    assert typed(state, "?")[0].place is Place.HELP


def test_topics_that_wait_for_an_operator_come_first_then_the_largest_lag() -> None:
    found = names(started())
    assert found[0] == "orders" and found.index("narrow") < found.index("payments"), found
    assert "audit" not in found, "the settings leave it out"


@pytest.mark.parametrize(
    ("order", "first"),
    [(TopicOrder.LAG, "orders"), (TopicOrder.RATE, "payments"), (TopicOrder.NAME, "aaaa")],
)
def test_s_goes_through_the_orders_and_begins_again(order: TopicOrder, first: str) -> None:
    state = started()
    while state.order is not order:
        state, _ = typed(state, "s")
    assert names(state)[0] == first
    for _ in TopicOrder:
        state, _ = typed(state, "s")
    assert state.order is order


def test_the_first_row_is_selected_until_somebody_moves_then_a_topic_is() -> None:
    state = started()
    assert chosen_topic(state) == state.rows[0].key
    state, _ = typed(state, "down")
    second = state.rows[1].key
    assert chosen_topic(state) == second
    later, _ = step(replace(state, order=TopicOrder.NAME), LookEnded(look()))
    assert later.rows != state.rows
    assert chosen_topic(later) == second, "its row moved, and the selection with it"
    assert chosen_topic(typed(later, "home")[0]) == later.rows[0].key
    assert chosen_topic(typed(later, "end")[0]) == later.rows[-1].key
    assert chosen_topic(typed(later, "end", "down", "page-down")[0]) == later.rows[-1].key
    assert chosen_topic(typed(later, *["up"] * 20)[0]) == later.rows[0].key


def test_a_filter_is_typed_and_no_key_of_it_is_a_command() -> None:
    state, done = typed(started(), "/", *"PAYq", "backspace", "enter")
    assert (names(state), done, state.is_filtering) == (["payments"], [], False)
    state, _ = typed(state, "/", "escape")
    assert len(names(state)) > 3
    state, _ = typed(state, "/", *"no such topic", "enter")
    assert chosen_topic(state) is None
    state, _ = typed(state, "p")
    assert state.asking is None, "there is nothing to pause"
    assert len(names(typed(state, "escape")[0])) > 3


def test_a_pause_asks_for_a_reason_and_to_be_confirmed_and_is_stored_only_then() -> None:
    state, done = typed(started(), "p", *"ticket 4711", "enter")
    assert done == [] and state.asking is not None
    assert state.asking.text == "Pause orders of A->B"
    state, done = typed(state, "y")
    assert done == [StorePause(PauseWanted(FLOW, ("orders", None), True, "ticket 4711", True))]
    assert state.asking is None and "Pause orders of A->B" in state.doing
    again, done = typed(state, "p")
    assert again.asking is None and done == [], "one at a time"
    ended, effects = step(state, ChangeEnded(["A->B: orders paused."]))
    assert (ended.doing, ended.said, effects) == ("", ("A->B: orders paused.",), (LookAgain(),))
    assert typed(ended, "down")[0].said == ()


@pytest.mark.parametrize("keys", [["escape"], ["enter", "n"], ["enter", "escape"], ["enter", "enter"], ["enter", "q"]])
def test_whatever_does_not_confirm_changes_nothing(keys: list[str]) -> None:
    state, done = typed(started(), "r", *keys)
    assert (state.asking, done, state.said) == (None, [], ("Nothing was changed.",))


def test_what_was_asked_about_stays_the_same_when_a_look_changes_the_order() -> None:
    state, _ = typed(started(), "p", "enter")
    state, _ = step(state, LookEnded(look(gaps=(), ends={("payments", 0): 9_000, ("orders", 0): 70, ("orders", 1): 5})))
    assert state.rows[0].topic.topic != "orders"
    _, done = typed(state, "y")
    (stored,) = done
    assert isinstance(stored, StorePause) and stored.wanted.part == ("orders", None)


def test_a_pasted_text_goes_into_the_reason_and_confirms_nothing() -> None:
    state, _ = typed(started(), "p")
    state, done = step(state, TextPasted("because y"))
    assert state.asking is not None
    assert (state.asking.reason, done) == ("because y", ())
    state, _ = typed(state, "enter")
    state, done = step(state, TextPasted("y"))
    assert state.asking is not None and state.asking.is_confirming and done == ()
    idle, done = step(started(), TextPasted("pqP"))
    assert (idle.asking, done) == (None, ())


def test_a_reason_that_may_hold_a_secret_is_refused_without_being_shown() -> None:
    state, done = typed(started(), "p", *"password=hunter2", "enter")
    assert state.asking is not None and not state.asking.is_confirming and done == []
    assert "credential" in state.said[0] and "hunter2" not in state.said[0]
    state, _ = typed(state, "clear", *("x" * 300))
    assert state.asking is not None and state.asking.reason == "x" * REASON_MOST


def test_a_whole_flow_and_one_partition_are_paused_by_their_own_keys() -> None:
    state, done = typed(started(), "P", "enter", "y")
    assert done == [StorePause(PauseWanted(FLOW, None, True, "", True))]
    state, done = typed(started(), "enter", "down", "p", "enter", "y")
    assert done[-1] == StorePause(PauseWanted(FLOW, ("orders", 1), True, "", True))
    assert state.place is Place.PARTITIONS
    _, done = typed(started(), "R", "enter", "y")
    assert done == [StorePause(PauseWanted(FLOW, None, False, "", True))]


def test_quitting_waits_for_a_change_that_is_being_stored() -> None:
    """An operator confirms a pause and types q at once: it must not be lost without a word."""
    state, done = typed(started(), "p", "enter", "y", "q")
    assert not any(isinstance(one, Quit) for one in done) and state.is_quitting
    state, effects = step(state, ChangeEnded(["A->B: orders paused."]))
    assert (effects, state.said) == ((Quit(),), ("A->B: orders paused.",))


def test_enter_opens_a_topic_and_asks_what_else_is_to_be_known_of_it() -> None:
    state, done = typed(started(), "enter")
    orders = FlowTopic(FLOW, "orders")
    assert (state.place, state.opened, done) == (Place.PARTITIONS, orders, [AskDetails(orders)])
    assert [(row.partition, row.position, row.end, row.lag, row.owner) for row in state.partitions] == [
        (0, 70, 90, 20, "host-0000000b"),
        (1, 5, 15, 10, "host-0000000b"),
    ]
    assert [row.is_problem for row in state.partitions] == [False, True]
    state, _ = step(state, DetailsTold(orders, TopicDetails(quarantined={0: 2}), 5))
    assert (state.details, state.details_at_ms) == (TopicDetails(quarantined={0: 2}), 5)
    state, _ = step(state, DetailsTold(FlowTopic(FLOW, "payments"), TopicDetails(), 6))
    assert state.details == TopicDetails(quarantined={0: 2}), "that was about another topic"
    state, done = typed(state, "down", "down", " ", "escape")
    assert (state.partition, state.place, done) == (1, Place.TOPICS, [LookAgain(), AskDetails(orders)])


def test_g_shows_the_groups_of_the_flow_that_is_in_view() -> None:
    state, done = typed(started(), "g")
    assert (state.place, done) == (Place.GROUPS, [AskGroups(FLOW)])
    told = GroupsShown(FLOW, NOW_MS, reports=(group_report("slow", ready=False), group_report("fast")))
    state, _ = step(state, GroupsRead(told))
    state, done = typed(state, "down", "p", " ")
    assert (state.group, state.asking, done) == ("fast", None, [LookAgain(), AskGroups(FLOW)])
    assert typed(state, "escape")[0].place is Place.TOPICS
    off = started(settings=flow_settings((("topics", "orders"), ("emit.checkpoints.enabled", "false"))))
    state, done = typed(off, "g")
    assert done == [] and "emits no checkpoints" in state.said[0]


def test_help_leads_back_to_where_it_was_opened() -> None:
    for keys in (["enter", "?"], ["enter", "?", "?"]):
        state, _ = typed(started(), *keys)
        assert state.place is Place.HELP
        assert typed(state, "escape")[0].place is Place.PARTITIONS
    assert typed(started(), "?", "escape")[0].place is Place.TOPICS


def test_the_other_keys_ask_for_what_they_say() -> None:
    assert typed(started(), " ")[1] == [LookAgain()]
    assert typed(started(), "redraw")[1] == [RedrawAll()]
    assert typed(started(), "x", "1", "left")[1] == []
