"""What the screen shows, at which size: the verdicts and the worst topics always, and nothing from outside as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mm2py.flow import parse_flow
from mm2py.group.membership import GroupState
from mm2py.moments import time_text
from mm2py.records.control_record import MemberId
from mm2py.records.pause_record import Pauses, TopicPause
from mm2py.records.standstill import Cause, Standstill
from mm2py.status.report import report_of
from mm2py.status.verdict import Readiness
from mm2py.status.why import TopicDetails
from mm2py.top.cells import PLAIN_BARS, Ink, ScreenLine, text_of_line, width_of
from mm2py.top.flow_chart import ChartEvent, FlowChart
from mm2py.top.keyboard import KeyTyped
from mm2py.top.screen import DETAILS_KEPT_MS, OLD_MS, printed, screen
from mm2py.top.state import (
    ChangeEnded,
    DetailsTold,
    GroupsRead,
    GroupsShown,
    HistoriesTold,
    LookEnded,
    Place,
    TopLook,
    TopState,
    step,
)
from mm2py.top.topic_rates import FlowTopic
from tests.fakes.v1_services import FLOW, NOW_MS, facts_of, flow_facts, group_report

EVENT = ChartEvent(NOW_MS - 60_000, "leader.elected", "host-0000000a leads, leader epoch 1.")
CHART = FlowChart([None, 0, 5, 30], [1.5, 2.0, None, 12.0], (EVENT,), "")
ATTACK = "\x1b]0;owned\x07"


def looked(state: TopState, **extra: Any) -> TopState:
    facts = facts_of(flow_facts(**extra))
    look = TopLook(facts, report_of(facts), {FlowTopic(FLOW, "payments"): 12.0})
    return step(state, LookEnded(look))[0]


def started(**extra: Any) -> TopState:
    state = looked(TopState("/etc/mm2.properties"), **extra)
    return step(state, HistoriesTold({FLOW: CHART}, ""))[0]


def typed(state: TopState, *keys: str) -> TopState:
    for key in keys:
        state, _ = step(state, KeyTyped(key))
    return state


def lines_of(state: TopState, width: int = 120, height: int = 40, **options: Any) -> Sequence[ScreenLine]:
    return screen(state, width, height, NOW_MS + 2_000, **options)


def shown(state: TopState, width: int = 120, height: int = 40, **options: Any) -> str:
    return "\n".join(map(text_of_line, lines_of(state, width, height, **options)))


def row_of(text: str, topic: str) -> str:
    (row,) = [one for one in text.splitlines() if one.lstrip("> ").startswith(f"{topic} ")]
    return row


PLACES = {
    "nothing yet": TopState("f"),
    "topics": started(),
    "no history": step(started(), HistoriesTold({}, "http://127.0.0.1:8083 does not answer."))[0],
    "partitions": typed(started(), "enter"),
    "groups": step(typed(started(), "g"), GroupsRead(GroupsShown(FLOW, NOW_MS, reports=(group_report("billing"),))))[0],
    "no groups yet": typed(started(), "g"),
    "problems": typed(started(), "!"),
    "help": typed(started(), "?"),
    "reason": typed(started(), "p", *"because of ticket 4711"),
    "confirm": typed(started(), "p", *"because", "enter"),
    "filter": typed(started(), "/", *"nothing like it"),
    "said": step(started(), ChangeEnded(["A->B: orders paused. " * 9]))[0],
}


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_at_any_size_there_are_as_many_lines_as_the_terminal_has_and_none_is_too_long(place: str) -> None:
    for width in (1, 2, 3, 7, 20, 40, 79, 80, 132, 300):
        for height in (1, 2, 3, 5, 10, 24, 60):
            lines = lines_of(PLACES[place], width, height)
            assert len(lines) == height, (width, height)
            assert max(width_of(text_of_line(one)) for one in lines) <= width, (width, height)


def test_a_usual_terminal_shows_the_verdict_the_problems_the_worst_topic_and_the_keys() -> None:
    text = shown(started(), 80, 24)
    assert "A->B: not safe to fail over" in text
    assert "5 problems" in text and "! A->B orders: stopped and waits" in text and "more problems: ! shows all" in text
    assert text.count("> orders") == 1 and "30" in row_of(text, "orders") and "! stopped (1)" in row_of(text, "orders")
    assert "q quit" in text.splitlines()[-1]


def test_a_small_terminal_still_shows_the_verdict_and_the_worst_topic_with_its_lag_and_reason() -> None:
    text = shown(started(), 40, 10)
    assert "A->B: not safe" in text
    row = row_of(text, "orders")
    assert " 30 " in row and "stopped" in row
    assert "q quit" in text.splitlines()[-1]


def test_a_wide_terminal_shows_all_columns_workers_charts_and_events() -> None:
    text = shown(started(), 160, 40)
    (head,) = [one for one in text.splitlines() if "TOPIC" in one]
    assert head.split() == ["TOPIC", "LAG", "AGE", "GROWTH", "CAUGHT", "UP", "RATE", "OWNERS", "STATE"]
    assert "12/s" in row_of(text, "payments") and "host-0000000a 1" in row_of(text, "payments")
    assert "Workers of mm2py on B: 2 of 2 alive, host-0000000a leads, generation 2" in text
    assert "alive, leads" in text
    assert "·▁▃█" in text and "group on B leader.elected: host-0000000a leads" not in text
    assert "leader.elected: host-0000000a leads, leader epoch 1." in text


def test_charts_can_be_drawn_in_ascii() -> None:
    (line,) = [one for one in shown(started(), bars=PLAIN_BARS).splitlines() if "copied 12/s" in one]
    assert line.isascii() and "  _:#" in line


def test_without_history_it_says_what_is_missing_and_shows_the_rest() -> None:
    state, _ = step(started(), HistoriesTold({}, "http://127.0.0.1:8083 does not answer: Connection refused."))
    text = shown(state, 110)
    assert "No history, no charts and no events: http://127.0.0.1:8083 does not answer" in text
    assert "▁" not in text and "A->B: not safe to fail over" in text and "> orders" in text
    assert "No history" not in shown(started())
    part, _ = step(started(), HistoriesTold({FLOW: CHART}, "it answers 404 for C->B."))
    assert "Not all history is told: it answers 404 for C->B." in shown(part)
    told = replace(CHART, problem="DESCRIBE is missing on mm2-history.A.internal.")
    assert "A->B: DESCRIBE is missing" in shown(step(started(), HistoriesTold({FLOW: told}, ""))[0])


def test_of_several_flows_each_topic_names_its_own() -> None:
    other = replace(flow_facts(), settings=replace(flow_facts().settings, flow=parse_flow("C->B")))
    facts = facts_of(flow_facts(), other)
    state, _ = step(TopState("f"), LookEnded(TopLook(facts, report_of(facts), {})))
    text = shown(state, 160)
    assert " FLOW " in text
    assert {one.split()[1] for one in text.splitlines() if one.startswith("  payments ")} == {"A->B", "C->B"}


def test_several_flows_are_named_before_their_events() -> None:
    other = replace(FLOW, source=FLOW.target, target=FLOW.source)
    gap = ChartEvent(NOW_MS, "gap", "lost")
    charts = {FLOW: replace(CHART, events=(EVENT, gap)), other: replace(CHART, events=(EVENT,))}
    text = shown(step(started(), HistoriesTold(charts, ""))[0])
    assert "A->B gap: lost" in text
    assert "group on B leader.elected" in text and "group on A leader.elected" in text


def test_no_name_from_outside_steers_the_terminal() -> None:
    cause = Cause("refused", f"why {ATTACK}", f"do {ATTACK}", 1)
    state = started(
        selected={f"evil{ATTACK}": 1},
        pauses=Pauses.of([TopicPause(f"evil{ATTACK}", None, f"ann {ATTACK}", 1)]),
        standstills=[Standstill(MemberId("0000000a"), f"evil{ATTACK}", (cause,))],
    )
    state, _ = step(state, HistoriesTold({FLOW: replace(CHART, events=(ChartEvent(1, ATTACK, ATTACK),))}, ATTACK))
    groups = GroupsShown(FLOW, NOW_MS, ATTACK, ATTACK, (replace(group_report(ATTACK, ready=False), why=ATTACK),))
    for one in (
        state,
        typed(state, "enter"),
        typed(state, "p", "enter"),
        step(typed(state, "g"), GroupsRead(groups))[0],
        step(state, ChangeEnded([ATTACK]))[0],
    ):
        for width in (40, 200):
            text = shown(one, width)
            assert all(line.isprintable() for line in text.split("\n")), one.place
            assert "owned" in text or width == 40
    assert all(line.isprintable() for line in printed(state, 200).split("\n"))


def test_what_is_bad_says_so_in_words_and_not_by_colour_alone() -> None:
    lines = lines_of(started(), 160)
    bad = [text_of_line(one) for one in lines if any(span.ink is Ink.BAD for span in one)]
    assert len(bad) > 5
    for text in bad:
        is_of_a_sentence = text.startswith("  ") and text.split()[0][0] not in "0123456789"
        assert "! " in text or "not safe" in text or "problem" in text or is_of_a_sentence, text
    (chosen,) = [text_of_line(one) for one in lines if any(span.ink is Ink.CHOSEN for span in one)]
    assert chosen.startswith("> orders")


def test_the_rows_around_the_selected_one_are_shown_and_their_numbers() -> None:
    state = started(
        selected={f"t{number:02}": 1 for number in range(50)}, positions={}, ends={}, gaps=(), standstills=()
    )
    first = shown(state, 100, 24)
    assert "TOPIC 1-" in first and f"/{len(state.rows)} " in first
    last = typed(state, "end")
    text = shown(last, 100, 24)
    assert f"> {last.rows[-1].topic.topic}" in text and f"-{len(state.rows)}/{len(state.rows)} " in text


def test_a_topic_shows_what_why_says_and_each_partition() -> None:
    text = shown(typed(started(), "enter"))
    assert "A->B, topic orders" in text
    assert "Not all of it is replicated. Partition 1: Copying has stopped at a gap (expired)" in text
    assert "mm2py gaps /etc/mm2.properties accept 'A->B:orders'" in " ".join(text.split())
    rows = [one.split() for one in text.splitlines() if one.lstrip("> ")[:2] in {"0 ", "1 "}]
    assert rows[0][:5] == [">", "0", "70", "90", "20"] and rows[1][:4] == ["1", "5", "15", "10"]
    assert rows[1][-2:] == ["!", "stopped"]


def test_a_topic_is_not_called_replicated_before_the_quarantine_was_read() -> None:
    key = FlowTopic(FLOW, "payments")
    state = replace(typed(started(), "enter"), opened=key)
    assert "Not known yet: whether records of it are in quarantine." in shown(state)
    assert "in quarantine" not in shown(step(state, DetailsTold(key, TopicDetails(), NOW_MS))[0])
    told, _ = step(state, DetailsTold(key, TopicDetails(), NOW_MS - DETAILS_KEPT_MS))
    assert "Not known any more (space asks again): whether records of it are in quarantine." in shown(told)
    kept, _ = step(state, DetailsTold(key, TopicDetails(quarantined={0: 2}), NOW_MS))
    assert "Not all of it is replicated. Partition 0: 2 records that B has refused are in quarantine" in shown(kept)


def test_all_problems_are_shown_in_full_on_a_page_of_their_own() -> None:
    state = typed(started(), "!")
    text = shown(state)
    assert text.count("\n! ") == 5 and "! B->A: B->A is refused: it is MM2's." in text
    assert shown(typed(state, "down", "down")).count("\n! ") == 3
    assert shown(typed(state, *["down"] * 20)).count("\n! ") == 1
    assert shown(typed(state, "down", "home")) == text
    assert state.look is not None
    noted = replace(state.look, report=replace(state.look.report, notes=("topics.exclud is unknown.",)))
    assert "note: topics.exclud is unknown." in shown(step(state, LookEnded(noted))[0])
    well = replace(state.look, report=replace(state.look.report, problems=()))
    assert "There are no problems." in shown(step(state, LookEnded(well))[0])


def test_groups_show_what_why_says_of_the_selected_one() -> None:
    told = GroupsShown(FLOW, NOW_MS - 3_000, reports=(group_report("slow", ready=False), group_report("fast")))
    state, _ = step(typed(started(), "g"), GroupsRead(told))
    text = shown(state)
    assert "Consumer groups of A->B: 5.0 s ago" in text
    assert "it has members on the target (Stable)" in row_of(text, "slow") and row_of(text, "fast").endswith("yes")
    assert "It cannot continue on B" in text
    assert "It can continue on B" in shown(typed(state, "down"))
    failed, _ = step(typed(started(), "g"), GroupsRead(GroupsShown(FLOW, NOW_MS, problem="B does not answer.")))
    assert "B does not answer." in shown(failed)


def test_a_question_names_what_would_be_changed_and_the_reason() -> None:
    state = typed(started(), "p", *"ticket 4711")
    assert "Pause orders of A->B. Reason (may be empty; enter: go on, esc: cancel): ticket 4711_" in shown(state)
    text = shown(typed(state, "enter"))
    assert "Pause orders of A->B? y: yes, any other key: no. Reason: ticket 4711" in text
    assert "Pause all of A->B? y: yes, any other key: no. No reason is given." in shown(typed(started(), "P", "enter"))
    assert "Resume orders-1 of A->B" in shown(typed(started(), "enter", "down", "r"))
    state = typed(started(), "p", *("because " * 20), "enter")
    for width in (40, 80):
        tail = " ".join(shown(state, width, 10).splitlines()[-5:])
        assert "Pause orders of A->B? y: yes, any other key: no." in tail


def test_a_paused_topic_says_so_where_it_is_listed() -> None:
    state = started(pauses=Pauses.of([TopicPause("payments", None, "ann on ops1", NOW_MS - 5)]))
    assert row_of(shown(state), "payments").endswith("paused")
    assert "payments of A->B (paused since" in shown(state, 200)


def test_while_the_source_is_silent_no_topic_keeps_up() -> None:
    """The lag that workers knew before is 0, and nobody knows what has come since."""
    facts = flow_facts().positions[("payments", 0)]
    positions = {("payments", 0): replace(facts, source_end=90, moved_ms=NOW_MS - 60_000)}
    state = started(selected=None, source_unread=("A does not answer.",), positions=positions, gaps=(), standstills=())
    row = row_of(shown(state), "payments")
    assert row.partition(" was 0 ")[2].split()[:3] == ["?", "?", "?"] and row.endswith("source does not answer")
    assert "keeps up" not in shown(state) and "  lag was " in shown(state)
    opened = typed(state, "/", *"payments", "enter", "enter")
    assert "was 0" in shown(opened) and "source does not answer" in shown(opened)


def test_what_an_old_look_has_found_is_not_called_good_any_more() -> None:
    """A cluster answers slowly, or the laptop was asleep: a flow that was safe then stood there in green."""
    state = started()
    assert state.look is not None
    (flow,) = state.look.report.flows
    verdict = replace(flow.verdict, readiness=Readiness.SAFE, text="A->B: safe to fail over.")
    report = replace(state.look.report, flows=(replace(flow, verdict=verdict),), problems=())
    state, _ = step(state, LookEnded(replace(state.look, report=report)))
    shown_inks = {}
    for age_ms in (OLD_MS, OLD_MS + 1):
        lines = screen(state, 120, 40, NOW_MS + age_ms)
        (told,) = [one for one in lines if "safe to fail over" in text_of_line(one)]
        shown_inks[age_ms] = {span.ink for span in told}, lines[0][-1].ink
    assert shown_inks == {OLD_MS: ({Ink.GOOD}, Ink.FAINT), OLD_MS + 1: ({Ink.DOUBTFUL}, Ink.DOUBTFUL)}
    assert text_of_line(told) == f"As of {time_text(NOW_MS).partition('T')[2]}: A->B: safe to fail over."


def test_a_rate_of_before_is_not_told_as_the_one_of_now() -> None:
    """The target has been away for half an hour: the last rate that the history knows is from before that."""

    def rate(chart: FlowChart, **extra: Any) -> str:
        state = looked(TopState("f"), **extra)
        assert state.look is not None
        state, _ = step(state, LookEnded(replace(state.look, rates={})))
        state, _ = step(state, HistoriesTold({FLOW: chart}, ""))
        (row,) = [one for one in shown(state).splitlines() if "copied " in one and "  lag " in one]
        return row.partition("copied ")[2].split()[0]

    assert rate(CHART) == "12/s"
    assert rate(replace(CHART, rate=[12.0, None])) == "12/s", "the newest sample may have just begun"
    assert rate(replace(CHART, rate=[12.0, None, None])) == "?"
    assert rate(CHART, positions_unread="B does not answer.") == "?"


def test_a_worker_that_has_stopped_copies_at_no_rate() -> None:
    """What it measured last was shown as its rate, hours later."""
    facts = facts_of()

    def row_at(at_ms: int) -> str:
        later = replace(facts, at_ms=at_ms)
        state, _ = step(TopState("f"), LookEnded(TopLook(later, report_of(later), {})))
        return row_of(shown(state, 160, 60), "host-0000000a")

    assert "alive" in row_at(NOW_MS) and "B/s" in row_at(NOW_MS)
    assert "stopped" in row_at(NOW_MS + 60_000) and "B/s" not in row_at(NOW_MS + 60_000)


def test_without_topics_it_says_whether_there_are_none_or_they_are_not_known() -> None:
    empty = {"positions": {}, "gaps": (), "standstills": (), "left_out": {}}
    for extra, told in (
        ({"selected": {}}, "no topic is copied"),
        ({"selected": None, "source_unread": ("A does not answer.",)}, "no topic is known, see above"),
    ):
        facts = facts_of(flow_facts(**empty, **extra), state=GroupState())
        state, _ = step(TopState("f"), LookEnded(TopLook(facts, report_of(facts), {})))
        assert told in shown(state)


def test_every_key_of_the_help_and_every_column_is_on_its_page() -> None:
    text = shown(typed(started(), "?"), 80, 24)
    for word in ("enter", "esc", "pause or resume", "sort", "space", "LAG", "GROWTH", "CAUGHT UP", "RATE", "OWNERS"):
        assert word in text, word
    assert typed(started(), "?").place is Place.HELP


def test_once_it_prints_the_same_as_plain_text_and_says_how_much_is_left_out() -> None:
    selected = {f"t{number:02}": 1 for number in range(30)}
    text = printed(started(selected=selected, positions={}, ends={}, gaps=(), standstills=()), 160)
    assert "A->B: not" in text and "Workers of mm2py on B" in text and "leader.elected" in text
    assert sum(one.startswith("t") for one in text.splitlines()) <= 20
    assert "more (mm2py status /etc/mm2.properties --all)" in text
    assert "\x1b" not in text and ">" not in {one[:1] for one in text.splitlines()}
    assert printed(TopState("f"), 160) == ""
