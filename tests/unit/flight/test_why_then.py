"""Was it replicated then? The rules of the present, with what was true at that moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mm2py.flight.past import FlightLine, PastFacts
from mm2py.flight.why_then import PastExplanation, config_then, explain_then, held_then, lines_of
from mm2py.flow import ConnectorName, Kind
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.records.control_record import Beat, Entry
from mm2py.records.history_record import HistoryEntry, HistoryKind
from mm2py.records.operator_request import TargetState
from mm2py.status.bodies import WhyBody
from mm2py.status.facts import GroupFacts
from mm2py.status.report import report_of
from mm2py.status.why import Replicated
from tests.fakes.v1_services import FLOW, W1, W2, B, facts_of, flow_facts, group_state

NAMES = {W1: "host-1", W2: "host-2"}
ALL = PastFacts((), (), 0, frozenset({W1, W2}))
NOTHING = PastFacts((), (), 0, frozenset())
T = 1_000_000


def then(topic: str, past: PastFacts = ALL, *, is_known: bool = True, **extra: Any) -> PastExplanation:
    facts = flow_facts(gaps=(), **extra)
    state = group_state() if is_known else None
    group = GroupFacts(B, "mm2py", "mm2-cluster.mm2py.internal", state)
    report = report_of(facts_of(facts)).flows[0]
    return explain_then(facts, group, report, (topic, None), NAMES, past, T)


def test_what_the_workers_copied_then_is_told_with_those_who_copied_it() -> None:
    found = then("orders").found
    assert found.replicated is Replicated.YES
    assert "host-2" in found.text


def test_it_is_not_known_where_an_owner_has_recorded_nothing() -> None:
    found = then("orders", NOTHING).found
    assert found.replicated is Replicated.UNKNOWN
    assert "host-2 could not tell it to the flight recorder" in found.text


def test_it_is_not_known_where_records_cannot_be_read() -> None:
    found = then("orders", replace(ALL, unreadable=2)).found
    assert found.replicated is Replicated.UNKNOWN
    assert "2 record(s) of that time in the flight recorder cannot be read" in found.text


def test_what_the_settings_decide_needs_no_recorder() -> None:
    found = then("tmp", NOTHING).found
    assert (found.replicated, found.reason) == (Replicated.NO, "excluded")


def test_a_worker_that_could_not_store_its_reasons_has_recorded_them() -> None:
    state = group_state()
    beat = Beat(W2, {FLOW: 4}, troubles={FLOW: "READ is missing."})
    state.take(Entry(state.next_offset, T, beat))
    facts = flow_facts(gaps=())
    group = GroupFacts(B, "mm2py", "mm2-cluster.mm2py.internal", state)
    report = report_of(facts_of(facts, state=state)).flows[0]
    assert explain_then(facts, group, report, ("orders", None), NAMES, ALL, T).found.replicated is Replicated.YES


def test_the_past_is_told_as_past_and_without_an_order() -> None:
    found = then("tmp").found
    assert found.text.startswith("It was not replicated. Pattern `tmp`") and found.remedy, found
    assert found.remedy not in found.text
    assert then("payments").found.text.startswith("It was replicated to A.payments.")


def test_it_is_not_known_of_a_time_without_a_control_log() -> None:
    found = then("orders", is_known=False).found
    assert found.replicated is Replicated.UNKNOWN
    assert "has no records of 1970-01-01T00:16:40Z" in found.text


def test_a_topic_that_no_worker_had_listed_was_not_replicated() -> None:
    found = then("nowhere").found
    assert (found.replicated, found.reason) == (Replicated.NO, "missing")
    assert "The workers had not listed it" in found.text


def test_what_changed_around_it_names_the_worker_and_what_is_missing() -> None:
    past = replace(ALL, around=(FlightLine(T, W1, "starts the flow"), FlightLine(T, "gone", "x")), lost=1_200)
    found = then("orders", past)
    assert lines_of(found) == [
        "1970-01-01T00:16:40Z  host-1  starts the flow",
        "1970-01-01T00:16:40Z  gone  x",
        "1,200 more changes around then had no room in the recorder",
    ]
    body = WhyBody.of_past(FLOW, found, exit_code=0).plain()
    assert (body["at_ms"], body["lost"], body["around"][0]["member"]) == (T, 1_200, "host-1")


def test_the_settings_of_a_moment_are_those_stored_last_before_it() -> None:
    first = FlowConfig({"topics": "a"}, DecidedBy.FILE, 1, at_ms=100)
    second = FlowConfig({"topics": "b"}, DecidedBy.REST, 2, at_ms=200, previous=first)
    third = FlowConfig({"topics": "c"}, DecidedBy.REST, 3, at_ms=300, previous=second)
    assert [config_then(third, at_ms) for at_ms in (99, 100, 199, 200, 300, 400)] == [
        first,
        first,
        first,
        second,
        third,
        third,
    ]
    assert config_then(None, 100) is None


def test_a_pause_holds_from_its_request_to_the_next_one() -> None:
    connector = str(ConnectorName(FLOW, Kind.SOURCE))
    entries = [
        HistoryEntry(300, HistoryKind.RESUMED, "ann", connector=connector),
        HistoryEntry(100, HistoryKind.PAUSED, "bob", connector=connector),
        HistoryEntry(150, HistoryKind.RESTARTED, "bob", topic="orders"),
        HistoryEntry(160, HistoryKind.SETTINGS, "bob"),
    ]
    assert held_then(FLOW, entries, 99) == {}
    held = held_then(FLOW, entries, 299)
    assert {kind: (one.state, one.by, one.at_ms) for kind, one in held.items()} == {
        Kind.SOURCE: (TargetState.PAUSED, "bob", 100)
    }
    assert held_then(FLOW, entries, 300) == {}
