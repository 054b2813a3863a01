"""What the routes of ``/v1`` answer, on made-up facts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from mm2py.cli.gaps import gaps_json
from mm2py.config.flow_properties import stored_keys
from mm2py.config.origins import SettingOrigin
from mm2py.dr.calls.verbs import VERBS
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow_history.rings import FlowHistory
from mm2py.group.membership import GroupState
from mm2py.records.backfill_record import Backfill, BackfillState, Range
from mm2py.records.control_record import Entry, Joined, Listed, TopicClaim
from mm2py.records.flow_history_record import FINE_S, MINUTE_S, HistoryEvent, HistoryPoint, Series
from mm2py.records.lag_seen import LagSeen
from mm2py.records.source_offset import StoredPosition
from mm2py.records.standstill import Cause, Standstill
from mm2py.status.bodies import GroupsBody, StatusBody, json_of
from mm2py.status.exit_codes import exit_of_report
from mm2py.status.facts import GroupFacts
from mm2py.status.report import report_of
from mm2py.topics.filters import WhyNot
from mm2py.topics.retention import Retention
from mm2py_rest.access.callers import Role, User
from mm2py_rest.events.feed import STREAMS_MOST, EventFeed
from mm2py_rest.reports.cursors import LIMIT_MOST
from mm2py_rest.reports.flows import flow_body
from mm2py_rest.routes.v1.asking import EXAMPLES
from tests.fakes.v1_services import (
    CONFLICT,
    FLOW,
    GAPS,
    NOW_MS,
    REFUSED,
    STORED,
    W1,
    W2,
    A,
    B,
    FakeHistory,
    FakeQuestions,
    client,
    facts_of,
    flow_facts,
    group_report,
    group_state,
)
from tests.scenarios.world import flow_settings


def get(path: str, asked: TestClient | None = None, *, status: int = 200) -> Any:
    answer = (asked or client()).get(f"/v1/{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def items(path: str, asked: TestClient | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(path, asked)["items"]
    return found


def by(name: str, rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {row[name]: row for row in rows}


# The history


class _HistoryOf:
    """A flow whose lag was 7 ten minutes ago, whose coordinator was then away for five minutes."""

    def __init__(self, error: Mm2Error | None = None) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        history = FlowHistory()
        for ago_s in [*range(600, 500, -10), *range(200, -10, -10)]:
            at_ms = self.now_ms - ago_s * 1000
            history.take(HistoryPoint(at_ms, FINE_S, "w1", {Series.LAG_RECORDS: 7 if ago_s > 500 else 0}))
        history.take(HistoryPoint(self.now_ms - 7_200_000, MINUTE_S, "w1", {Series.LAG_RECORDS: 99}))
        history.take(HistoryEvent(0, self.now_ms - 500_000, "member.evicted", "w1 was evicted.", "a:1"))
        self.asked = client(histories={FLOW: FakeHistory(history, error)})

    def told(self, query: str = "", status: int = 200) -> Any:
        return get(f"flows/A->B/history{query}", self.asked, status=status)


def test_the_history_is_an_even_grid_with_nulls_and_gaps_where_nothing_was_written() -> None:
    told = _HistoryOf().told("?from=15m")
    times, lags = told["times_ms"], told["series"]["lag_records"]
    assert told["step_s"] == 10
    assert times == list(range(times[0], times[0] + 10_000 * len(times), 10_000))
    assert {len(numbers) for numbers in told["series"].values()} == {len(times)}
    before, gap = told["gaps"]
    assert before["from_ms"] == times[0], "two hours ago there was a point"
    assert {lag for at, lag in zip(times, lags, strict=True) if gap["from_ms"] <= at < gap["to_ms"]} == {None}
    assert lags.count(7) == 10 and lags.count(0) == 21 and lags[-1] == 0
    assert set(told["series"]["lag_bytes"]) == {None}, "what was not written is not known"
    assert [one["kind"] for one in told["events"]] == ["member.evicted"]
    assert told["problem"] == ""


def test_older_than_an_hour_the_history_has_minutes_and_of_longer_steps_the_highest_lag() -> None:
    world = _HistoryOf()
    day = world.told("?from=24h&step=10")
    assert day["step_s"] == 60 and len(day["times_ms"]) <= 1441
    assert next(lag for lag in day["series"]["lag_records"] if lag is not None) == 99
    hours = world.told("?from=3h&step=3600")
    assert hours["step_s"] == 3600 and 99 in hours["series"]["lag_records"]
    assert world.told("?from=7d")["from_ms"] >= world.now_ms - 24 * 3_600_000 - 60_000


@pytest.mark.parametrize("query", ["?from=soon", "?to=never", "?from=5m&to=10m", "?step=15", "?step=90"])
def test_a_history_of_no_time_or_no_step_is_refused(query: str) -> None:
    assert _HistoryOf().told(query, 400)["error_code"] == 400


def test_a_history_that_cannot_be_read_now_is_told_as_far_as_it_is_known_with_the_reason() -> None:
    told = _HistoryOf(ConfigError("B does not answer.", remedy="Wait.")).told("?from=15m")
    assert told["problem"] == "B does not answer. Wait."
    assert 7 in told["series"]["lag_records"]


def test_a_user_of_some_flows_is_not_told_of_the_members_of_the_group() -> None:
    """``/v1/workers`` and ``/v1/events`` refuse them as well."""
    now_ms = time.time_ns() // 1_000_000
    history = FlowHistory()
    told = {
        "gap": "orders-3 has a gap.",
        "more": "7 more: member.joined, the last one: w9 joined.",
        "leader.elected": "w1 leads.",
        "member.left": "w2 left.",
    }
    for number, (kind, text) in enumerate(told.items()):
        history.take(HistoryEvent(number, now_ms - 9000 + number, kind, text, f"a:{number}"))
    history.take(HistoryEvent(9, now_ms - 100, "more", "7 more: gap, the last one: orders-9 has a gap.", "a:9"))
    histories = {FLOW: FakeHistory(history, None)}
    some = client(histories=histories, user=User("ci", Role.READER, frozenset({"A->B"})))
    assert [one["kind"] for one in get("flows/A->B/history", some)["events"]] == ["gap", "more"]
    assert len(get("flows/A->B/history", client(histories=histories))["events"]) == 5


# One code with the commands


def test_status_gaps_and_groups_are_what_the_commands_print() -> None:
    report = report_of(facts_of())
    printed = json_of(StatusBody.of(report, exit_code=exit_of_report(report)))
    assert get("status") == json.loads(printed)
    assert items("flows/A->B/gaps?all=true") == json.loads(gaps_json([(FLOW, GAPS[1]), (FLOW, GAPS[0])]))
    assert items("flows/A->B/gaps") == json.loads(gaps_json([(FLOW, GAPS[0])]))
    reports = (group_report("slow", ready=False), group_report("fast"), group_report("good"))
    groups = json.loads(json_of(GroupsBody(exit_code=3, flow="A->B", at_ms=NOW_MS, groups=reports)))
    assert get("flows/A->B/groups") == {**groups, "next": None, "total": 3}


def test_translate_asks_what_the_command_asks() -> None:
    asked = FakeQuestions()
    found = get("flows/A->B/translate?topic=A.orders&partition=0&offset=7&offset=8&reverse=true", client_with(asked))
    (question,) = asked.asked
    assert (question.key, list(question.offsets), question.is_reverse) == (("orders", 0), [7, 8], True)
    assert list(found) == ["format", "exit_code", "flow", "is_reverse", "at_ms", "unread", "offsets"]
    assert found["offsets"][0]["other_offset"] == 5


def test_a_source_that_does_not_answer_leaves_what_the_target_tells_and_the_reason_beside_it() -> None:
    """Both routes said 503, when a failover needed them."""
    asked = FakeQuestions(unread="A has not answered since 12:00.")
    facts = replace(facts_of(), clusters={A: asked.unread, B: ""})
    groups = get("flows/A->B/groups", client(facts, questions={FLOW: asked}))
    assert (groups["exit_code"], groups["unread"], groups["total"]) == (1, asked.unread, 3)
    found = get("flows/A->B/translate?topic=orders&partition=0&offset=7", client(facts, questions={FLOW: asked}))
    assert (found["exit_code"], found["unread"], found["offsets"][0]["other_offset"]) == (0, asked.unread, 5)
    facts = replace(facts_of(), clusters={A: "", B: asked.unread})
    assert get("flows/A->B/groups", client(facts, questions={FLOW: asked}), status=503)["message"] == asked.unread


def client_with(questions: FakeQuestions) -> TestClient:
    return client(questions={FLOW: questions})


def test_backfills_are_listed_for_days_after_their_end_and_leave_the_status_after_an_hour() -> None:
    stopped = Backfill(
        "0badcafe", {"orders": {0: Range(0, 70)}}, (), BackfillState.STOPPED, seen_at_ms=NOW_MS - 4_000_000
    )
    asked = client(facts_of(flow_facts(backfills=[stopped])))
    (found,) = items("backfills", asked)
    assert (found["id"], found["flow"], found["state"], found["offsets_copied"]) == (
        "0badcafe",
        {"source": "A", "target": "B"},
        "stopped",
        70,
    )
    assert get("status", asked)["flows"][0]["backfills"] == []


def test_what_cannot_be_read_is_not_told_as_an_empty_list() -> None:
    """The page said "No worker is known. Start one", in red, while three of them copied."""
    lost = flow_facts(gaps=(), status_unread="reading mm2-status: no answer", config_unread="reading mm2-configs: no")
    unread = GroupFacts(B, "mm2py", "mm2-cluster.mm2py.internal", None, "reading mm2-cluster: no answer")
    asked = client(replace(facts_of(lost), groups=[unread]))
    assert get("workers", asked, status=503)["message"] == unread.unread
    assert get("flows/A->B/gaps", asked, status=503)["message"] == lost.status_unread
    assert get("backfills", asked, status=503)["message"] == lost.config_unread
    known = client(facts_of(flow_facts(gaps=GAPS, status_unread="reading mm2-status: no answer")))
    assert len(items("flows/A->B/gaps", known)) == 1, "what was read before is told"


def test_lists_that_were_read_in_part_say_what_is_not_in_them() -> None:
    lost = flow_facts(gaps=GAPS, status_unread="reading mm2-status: no answer", config_unread="reading mm2-configs: no")
    backfill = Backfill("0badcafe", {"orders": {0: Range(0, 70)}}, (), BackfillState.COPYING, seen_at_ms=NOW_MS)
    facts = facts_of(replace(lost, backfills=[backfill]))
    silent = GroupFacts(A, "mm2py", "mm2-cluster.mm2py.internal", None, "reading mm2-cluster: no answer")
    asked = client(replace(facts, groups=[*facts.groups, silent]))
    unread = {
        "workers": [silent.unread],
        "flows/A->B/gaps": [lost.status_unread],
        "backfills": [lost.config_unread],
    }
    for path, wanted in unread.items():
        body = get(path, asked)
        assert (body["unread"], bool(body["items"])) == (wanted, True), path
        assert get(path)["unread"] == [], "all was read"


# Flows, workers, clusters


def test_a_flow_in_short_says_whether_it_runs_and_how_far_it_is_behind() -> None:
    flow, refused = items("flows")
    assert (flow["flow"], flow["state"], flow["coordinator"], flow["workers"]) == ("A->B", "running", W1, 2)
    assert (flow["topics_copied"], flow["topics_not_copied"], flow["open_gaps"]) == (1, 9, 1)
    assert (flow["lag_records"], flow["lag_s"], flow["settings_version"]) == (50, None, 4)
    assert "does not tell the age and size" in flow["lag_note"], "MirrorMaker 2 has stored the positions of orders"
    assert (refused["flow"], refused["state"]) == (str(REFUSED), "refused") and "MM2" in refused["why"]


def test_a_flow_without_workers_is_not_running_and_copies_nothing() -> None:
    facts = facts_of(state=GroupState())
    (flow, _) = items("flows", client(facts))
    assert (flow["state"], flow["topics_copied"]) == ("not-running", 0)
    topics = by("topic", items("flows/A->B/topics?copied=false", client(facts)))
    assert topics["orders"]["reason"] == "not-running" and topics["orders"]["lag_records"] == 30


def test_clusters_and_workers_name_their_flows_groups_and_leader() -> None:
    source, target = items("clusters")
    assert (source["cluster"], source["source_of"], source["group"]) == ("A", ["A->B"], None)
    assert (target["is_reachable"], target["target_of"], target["group"]) == (True, ["A->B"], "mm2py")
    first, second = items("workers")
    assert (first["target"], first["member"]["member"], first["member"]["leads"]) == ("B", W1, True)
    assert (second["member"]["name"], second["member"]["tasks"]) == (f"host-{W2}", 3)
    (group,) = get("status")["groups"]
    for one in (first, second):
        assert (one["leader_epoch"], one["generation"]) == (group["leader_epoch"], group["generation"])


@pytest.mark.parametrize("path", ["status", "flows", "flows/A->B/topics", "workers", "clusters", "flows/A->B/gaps"])
def test_each_answer_about_flows_says_when_the_clusters_were_looked_at(path: str) -> None:
    assert client().get(f"/v1/{path}").headers["mm2py-looked-at"] == str(NOW_MS)


def test_one_flow_has_the_same_report_as_the_status() -> None:
    assert get("flows/A->B")["report"] == get("status")["flows"][0]


def test_a_partition_its_topic_and_its_flow_say_alike_how_the_lag_moves() -> None:
    before = LagSeen(NOW_MS - 10_000, 60, 50)
    slow = StoredPosition(
        90, newest_ms=NOW_MS - 2500, record_bytes=100, behind_since_ms=NOW_MS - 60_000, lag_before=before
    )
    facts = flow_facts(
        positions={("payments", 0): slow},
        ends={("payments", 0): 200},
        selected={"payments": 1},
        retentions={"payments": Retention(3_600_000)},
        waiting_since_ms={("payments", 0): NOW_MS - 1_800_000},
    )
    asked = client(facts_of(facts))
    (partition,) = items("flows/A->B/topics/payments/partitions", asked)
    found = partition["movement"]
    assert (found["per_s"], found["trend"], found["since_ms"]) == (10.0, "growing", NOW_MS - 60_000)
    assert (found["bytes"], found["retention_share"]) == (11_000, 0.5)
    report = get("flows/A->B", asked)["report"]
    (behind,) = report["behind"]
    topic = by("topic", items("flows/A->B/topics?copied=true", asked))["payments"]
    assert found == topic["copy"]["movement"] == behind["movement"] == report["movement"]
    assert get("status", asked)["flows"][0]["behind"] == [behind]
    assert "110 records behind" in behind["text"] and "growing by 10/s" in behind["text"]


@pytest.mark.parametrize("name", ["A->B", "A-%3EB", "A%2D%3EB"])
def test_the_arrow_may_be_encoded(name: str) -> None:
    assert get(f"flows/{name}")["summary"]["flow"] == "A->B"


def test_a_flow_that_is_refused_unknown_or_none_says_which() -> None:
    assert "MM2" in get("flows/B->A/topics", status=409)["message"]
    for name in ("X->Y", "A", "A->A"):
        found = get(f"flows/{name}/gaps", status=404)
        assert found["error_code"] == 404 and name in found["message"]


# Topics


def test_each_topic_of_the_source_is_copied_or_says_why_not() -> None:
    topics = by("topic", items("flows/A->B/topics"))
    assert {name: row["reason"] for name, row in topics.items() if not row["is_copied"]} == {
        "audit": "not-included",
        "tmp": "excluded",
        "__consumer_offsets": "internal",
        "B.orders": "cycle",
        "mm2-offsets.B.internal": "own-topic",
        "aaaa": "undecided",
        "narrow": "refused",
        "late": "new",
        "orders": "stopped",
    }
    assert topics["narrow"]["why"] == "Topic narrow of A->B is refused: no.", "as its coordinator has stored it"
    assert (topics["orders"]["remote_topic"], topics["orders"]["copy"]["open_gaps"]) == ("A.orders", 1)
    assert all(row["why"] for row in topics.values() if not row["is_copied"])
    assert [row["topic"] for row in items("flows/A->B/topics?copied=true")] == ["payments"]


def test_a_topic_that_is_left_out_names_the_pattern_and_where_it_stands() -> None:
    origins = {
        "topics": SettingOrigin("topics", "stored as version 4 by rest"),
        "topics.exclude": SettingOrigin("A->B.topics.exclude", "mm2.properties line 14"),
    }
    settings = flow_settings((("A->B.topics", "orders,tmp.*"), ("A->B.topics.exclude", "x.*,tmp.*")))
    facts = facts_of(flow_facts(settings=settings, origins=origins))
    topics = by("topic", items("flows/A->B/topics", client(facts)))
    assert topics["tmp"]["why"] == (
        "Pattern `tmp.*` (entry 2 of A->B.topics.exclude, mm2.properties line 14) matches it."
    )
    assert topics["audit"]["why"] == "No pattern of topics (stored as version 4 by rest) matches it."


def test_what_any_worker_does_not_copy_is_told_with_its_partitions_and_the_dead_are_not_believed() -> None:
    """A remote topic that is too narrow is copied in part: its owner alone may have found that out."""
    in_part = Cause("refused", "Partition 1 is not copied.", "Widen it.", NOW_MS - 5000, "1")
    denied = Cause("source-denied", "mm2py may not read it.", "Grant READ.", NOW_MS - 4000, "0-1")
    standstills = (Standstill(W2, "orders", (in_part, denied)), Standstill("0000dead", "payments", (denied,)))
    service = client(facts_of(flow_facts(standstills=standstills, gaps=())))
    topics = by("topic", items("flows/A->B/topics", service))
    orders = topics["orders"]
    assert (orders["is_copied"], orders["reason"], orders["since_ms"]) == (False, "source-denied", NOW_MS - 4000)
    assert (orders["why"], orders["remedy"]) == ("mm2py may not read it.", "Grant READ.")
    assert [(one["reason"], one["partitions"]) for one in orders["not_copied"]] == [
        ("source-denied", "0-1"),
        ("refused", "1"),
    ]
    assert topics["payments"]["is_copied"], "no member of the group says otherwise"
    first, second = items("flows/A->B/topics/orders/partitions", service)
    assert [one["reason"] for one in first["not_copied"]] == ["source-denied"]
    assert [one["reason"] for one in second["not_copied"]] == ["source-denied", "refused"]


def test_a_topic_that_another_flow_has_listed_first_names_that_flow() -> None:
    other = Joined(W2, "host", "0.1.0", "", (FLOW, CONFLICT), (), {}, "id-B", "log", 3000)
    view = group_state()
    claims = {"narrow": TopicClaim("A.", False)}
    for record in (other, Listed(W2, CONFLICT, {"narrow": 1}, claims=claims)):
        view.take(Entry(view.next_offset, 999_990, record))
    view.topic_claims.take(CONFLICT, "narrow", claims["narrow"])
    topics = by("topic", items("flows/A->B/topics", client(facts_of(flow_facts(standstills=()), state=view))))
    assert "C->B also leads into A.narrow" in topics["narrow"]["why"]


def test_a_topic_with_a_name_that_the_target_would_refuse_says_so() -> None:
    long = "x" * 249
    facts = facts_of(flow_facts(selected={long: 1}, left_out={}, positions={}, gaps=()))
    topics = by("topic", items("flows/A->B/topics", client(facts)))
    assert topics[long]["reason"] == "refused" and "251 characters" in topics[long]["why"]


def test_lag_in_bytes_and_seconds_is_told_by_the_stored_position_and_never_made_up() -> None:
    topics = by("topic", items("flows/A->B/topics"))
    payments, orders = topics["payments"], topics["orders"]
    assert (payments["lag_records"], payments["lag_bytes"], payments["lag_s"]) == (10, 1000, 2.5)
    assert (orders["lag_records"], orders["lag_bytes"], orders["lag_s"]) == (30, None, None)
    assert "does not tell the age and size" in orders["lag_note"]


def test_what_came_since_the_look_before_is_no_older_than_that_however_long_the_partition_rested() -> None:
    """Else one of a thousand partitions that get a record every ten minutes always looks ten minutes late."""
    for end_before, lag_s in ((90, 2.0), (91, 2.5)):
        before = replace(facts_of(flow_facts(ends={("payments", 0): end_before})), at_ms=NOW_MS - 2000)
        topics = by("topic", items("flows/A->B/topics", client(before=before)))
        assert (topics["payments"]["lag_records"], topics["payments"]["lag_s"]) == (10, lag_s)


@pytest.mark.parametrize("is_partial", [True, False])
def test_a_lag_that_leaves_out_what_is_not_known_says_so(*, is_partial: bool) -> None:
    report = report_of(facts_of())
    assert flow_body(replace(report.flows[0], lag_is_partial=is_partial), report, None, []).lag_is_partial is is_partial


def test_no_lag_is_no_lag_whoever_stored_the_position() -> None:
    ends = {("orders", 0): 70, ("orders", 1): 5, ("payments", 0): 100}
    topics = by("topic", items("flows/A->B/topics", client(facts_of(flow_facts(ends=ends, selected={"orders": 2})))))
    assert (topics["orders"]["lag_records"], topics["orders"]["lag_bytes"], topics["orders"]["lag_s"]) == (0, 0, 0)


def test_a_lag_that_the_status_does_not_know_is_not_known_here_and_one_of_before_says_as_of_when() -> None:
    """With a right missing and the source silent, the last end that was stored is the position: /v1 said lag 0."""
    denied = Standstill(W1, "orders", (Cause("source-denied", "mm2py may not read it.", "Grant READ.", 9, "0-1"),))
    at_end = {
        key: replace(position, source_end=position.next_source, moved_ms=NOW_MS - 7000)
        for key, position in flow_facts().positions.items()
    }
    silent = {"selected": None, "ends": {}, "source_unread": ("away",)}
    service = client(facts_of(flow_facts(gaps=(), positions=at_end, standstills=(denied,), **silent)))
    topics = by("topic", items("flows/A->B/topics", service))
    assert (topics["orders"]["lag_records"], topics["orders"]["lag_as_of_ms"]) == (None, NOW_MS - 7000)
    assert "not known" in topics["orders"]["lag_note"]
    assert (topics["payments"]["lag_records"], topics["payments"]["lag_as_of_ms"]) == (0, NOW_MS - 7000)
    assert "as of lag_as_of_ms" in topics["payments"]["lag_note"]
    missing = Standstill(W1, "ghost", (Cause("missing", "topics names ghost.", "Create it.", 9),))
    facts = flow_facts(standstills=(missing,), settings=flow_settings((("A->B.topics", "orders,ghost"),)))
    ghost = by("topic", items("flows/A->B/topics", client(facts_of(facts))))["ghost"]
    assert (ghost["reason"], ghost["lag_records"], ghost["lag_s"]) == ("missing", None, None)
    for row in items("flows/A->B/topics/orders/partitions", service):
        assert (row["lag_records"], row["lag_as_of_ms"]) == (None, NOW_MS - 7000)
    (flow, _) = items("flows", service)
    assert flow["lag_as_of_ms"] == NOW_MS - 7000
    assert flow["lag_is_partial"], "that of orders is not in it"
    assert all(row["lag_as_of_ms"] is None for row in items("flows/A->B/topics"))


def test_connects_status_tells_a_stop_at_a_gap_that_is_not_stored() -> None:
    at_a_gap = Standstill(W2, "orders", (Cause("stopped", "A gap has stopped it.", "See mm2py gaps.", 9, "0-1"),))
    service = client(facts_of(flow_facts(gaps=(), standstills=(at_a_gap,))))
    found = service.get("/connectors/A->B.MirrorSourceConnector/status").json()
    (trace,) = [task["trace"] for task in found["tasks"] if task["state"] == "FAILED"]
    assert trace == "orders: partitions 0-1: A gap has stopped it. See mm2py gaps."


# Partitions


def test_a_partition_tells_where_it_stands_who_copies_it_and_what_waits() -> None:
    first, second = items("flows/A->B/topics/orders/partitions")
    assert (first["start"], first["position"], first["end"], first["target_position"]) == (3, 70, 90, 68)
    assert (first["lag_records"], first["owner"], first["owner_name"]) == (20, W2, f"host-{W2}")
    assert first["open_gaps"] == [] and [gap["kind"] for gap in second["open_gaps"]] == ["expired"]
    (payment,) = items("flows/A->B/topics/payments/partitions")
    assert (payment["lag_bytes"], payment["lag_s"], payment["lag_note"]) == (1000, 2.5, "")


def test_a_partition_that_has_not_started_lags_from_its_start() -> None:
    (late,) = items("flows/A->B/topics/late/partitions")
    assert (late["position"], late["start"], late["lag_records"], late["owner"]) == (None, 0, 2, None)


def test_partitions_of_a_topic_that_is_not_copied_say_why() -> None:
    assert "topics.exclude" in get("flows/A->B/topics/tmp/partitions", status=404)["message"]
    assert "has no topic none" in get("flows/A->B/topics/none/partitions", status=404)["message"]


def test_how_batches_travel_is_told_of_partitions_and_topics() -> None:
    positions = {
        ("orders", 0): StoredPosition(70, mode="pass"),
        ("orders", 1): StoredPosition(5, mode="log append time"),
        ("payments", 0): StoredPosition(90),
    }
    asked = client(facts_of(flow_facts(positions=positions)))
    partitions = items("flows/A->B/topics/orders/partitions", asked)
    assert [one["mode"] for one in partitions] == ["pass", "rebuild: log append time"]
    topics = by("topic", items("flows/A->B/topics", asked))
    assert topics["orders"]["modes"] == {"pass": 1, "rebuild: log append time": 1}
    assert (topics["payments"]["modes"], topics["tmp"]["modes"]) == ({}, {}), "no version that tells has copied it"


# Settings


def test_each_setting_of_a_flow_says_where_its_value_comes_from() -> None:
    found = get("flows/A->B/config")
    settings = by("name", found["settings"])
    assert (found["stored"]["version"], found["stored"]["by"], found["stored"]["worker"]) == (4, "rest", "host-1")
    topics, lag_max, default = settings["topics"], settings["offset.lag.max"], settings["groups"]
    assert (topics["value"], topics["origin"], topics["differs"]) == ("orders", "stored", True)
    assert topics["file"]["key"] == "topics" and topics["file"]["line"] > 1
    assert (lag_max["value"], lag_max["origin"], lag_max["file"]["value"]) == ("100", "default", "7")
    assert lag_max["file"]["key"] == "A->B.offset.lag.max"
    assert (default["value"], default["origin"], default["file"]) == (".*", "default", None)


def test_of_each_setting_it_is_told_whether_it_may_be_changed_and_whether_the_flow_restarts_for_it() -> None:
    settings = by("name", get("flows/A->B/config")["settings"])
    told = {name: (one["may_change"], one["in_place"]) for name, one in settings.items()}
    assert told["topics"] == (True, True)
    assert told["exactly.once.source.support"] == (True, False)
    assert {name for name, (may_change, _) in told.items() if may_change} == stored_keys().keys()
    assert {one for name, one in told.items() if "sasl" in name or "bootstrap" in name} == {(False, False)}
    assert not any(setting["may_change"] for setting in get("config")["settings"])
    secret = replace(STORED, properties={"topics": "x, sasl.jaas.config=hunter2"})
    hidden = by("name", get("flows/A->B/config", client(facts_of(flow_facts(stored=secret))))["settings"])["topics"]
    assert (hidden["value"], hidden["may_change"]) == ("[hidden]", False), "who edits it would store [hidden]"


def test_without_stored_settings_the_file_counts() -> None:
    found = get("flows/A->B/config", client(facts_of(flow_facts(stored=None))))
    settings = by("name", found["settings"])
    assert found["stored"] is None
    assert (settings["offset.lag.max"]["value"], settings["offset.lag.max"]["origin"]) == ("7", "file")
    assert settings["status.storage.topic"]["value"] == "mm2-status.A.internal"
    assert not any(setting["differs"] for setting in found["settings"])


def test_secrets_are_hidden_and_addresses_masked() -> None:
    both = client()
    for path in ("flows/A->B/config", "config"):
        text = both.get(f"/v1/{path}").text
        assert "canary" not in text and "a:1" not in text and "b:1" not in text
    settings = by("name", get("flows/A->B/config")["settings"])
    assert settings["source.consumer.sasl.jaas.config"]["value"] == "[hidden]"
    assert settings["source.consumer.bootstrap.servers"]["value"] == "[address]"
    assert settings["source.consumer.sasl.mechanism"]["value"] == "PLAIN"


def test_a_worker_tells_its_own_settings_and_those_of_its_groups() -> None:
    found = get("config")
    settings = by("name", found["settings"])
    assert (found["worker"], found["file"]) == ("host-a", "mm2.properties")
    assert (settings["memory.max.bytes"]["value"], settings["memory.max.bytes"]["origin"]) == ("50000000", "file")
    assert (settings["B.session.timeout.ms"]["value"], settings["B.session.timeout.ms"]["default"]) == ("6000", "3000")
    assert settings["A.bootstrap.servers"]["value"] == "[address]"


# Lists, errors, description


def test_pages_follow_each_other_without_a_gap_and_without_an_item_twice() -> None:
    asked, found, after = client(), [], ""
    for _ in range(10):
        page = get(f"flows/A->B/topics?limit=3{after}", asked)
        assert page["total"] == 10
        found += [row["topic"] for row in page["items"]]
        after = f"&after={page['next']}"
        if page["next"] is None:
            break
    assert found == sorted(found) and len(set(found)) == 10
    first = get("flows/A->B/groups?limit=1", asked)
    second = get(f"flows/A->B/groups?limit=1&after={first['next']}", asked)
    assert [first["groups"][0]["group"], second["groups"][0]["group"]] == ["slow", "fast"]


def test_a_page_goes_on_where_the_last_one_ended_although_a_topic_has_come_before_it() -> None:
    page = get("flows/A->B/topics?limit=5")
    left_out = {**flow_facts().left_out, "AAA": WhyNot.EXCLUDED}
    rest = items(f"flows/A->B/topics?after={page['next']}", client(facts_of(flow_facts(left_out=left_out))))
    assert len(rest) == 5 and rest[0]["topic"] > page["items"][-1]["topic"]


@pytest.mark.parametrize(
    "query", ["after=zzz", "after=WzFd", "after=eyJhIjoxfQ", f"limit={LIMIT_MOST + 1}", "limit=0", "limit=x"]
)
def test_a_wrong_page_is_an_error_that_says_so(query: str) -> None:
    found = get(f"flows/A->B/topics?{query}", status=400)
    assert found["error_code"] == 400 and ("after" in found["message"] or "limit" in found["message"])


def test_a_wrong_question_to_the_ledger_is_an_error_that_says_so() -> None:
    assert "does not copy 'tmp'" in get("flows/A->B/translate?topic=tmp&partition=0&offset=1", status=400)["message"]
    assert "offset" in get("flows/A->B/translate?topic=orders&partition=0", status=400)["message"]


def test_nothing_under_v1_changes_anything_but_operators_at_a_topic_or_a_partition_and_recoveries() -> None:
    paths = client().get("/openapi.json").json()["paths"]
    changing = {path for path, methods in paths.items() if path.startswith("/v1") and set(methods) != {"get"}}
    topic = "/v1/flows/{flow}/topics/{topic}"
    pauses = {f"{topic}{part}/{verb}" for part in ("", "/partitions/{partition}") for verb in ("pause", "resume")}
    losses = {f"{topic}/partitions/{{partition}}/accept", f"{topic}/replay"}
    validates = {"/v1/flows/{flow}/config/validate"}  # and changes nothing
    recoveries = {f"/v1/flows/{{flow}}/dr/{verb}" for verb in VERBS}
    assert changing == {f"{topic}/restart", *pauses, *losses, *validates, *recoveries}


def test_openapi_describes_each_field_and_has_an_example_of_each_error() -> None:
    document = client().get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    wanted: set[str] = set()
    for path, methods in document["paths"].items():
        if path.startswith("/v1") and "get" in methods:
            operation = methods["get"]
            assert operation["summary"] and operation["description"], path
            assert set(operation["responses"]) >= {"200", "400", "404", "503"}, path
            assert operation["responses"]["503"]["content"]["application/json"]["example"]["error_code"] == 503
            wanted |= _named(operation["responses"]["200"]["content"], schemas, set())
    assert len(wanted) > 25
    stream = document["paths"]["/v1/events"]["get"]["responses"]["200"]
    assert "settings.changed" in stream["content"]["text/event-stream"]["example"]
    assert all("description" in field or "$ref" in field for field in stream["x-event"]["properties"].values())
    bare = [
        f"{name}.{field}"
        for name in sorted(wanted)
        for field, schema in schemas[name].get("properties", {}).items()
        if "description" not in schema and "$ref" not in json.dumps(schema)
    ]
    assert bare == []


def test_the_example_of_each_route_has_the_shape_of_its_answer() -> None:
    asked = client()
    questions = {"translate": "?topic=orders&partition=0&offset=7", "topics": "?copied=true", "why": "?topic=tmp"}
    for path, methods in asked.get("/openapi.json").json()["paths"].items():
        content = methods["get"]["responses"]["200"]["content"] if path.startswith("/v1") and "get" in methods else {}
        if "application/json" in content:
            assert content["application/json"]["example"]
            url = path.replace("{flow}", "A->B").replace("{topic}", "orders") + questions.get(path.split("/")[-1], "")
            assert differences(EXAMPLES[path], asked.get(url).json()) == [], path


def differences(example: Any, real: Any, at: str = "") -> list[str]:
    """Return where an example has other fields than what is answered; lists are compared by their first items."""
    if isinstance(example, dict) and isinstance(real, dict) and example.keys() != real.keys() and at != ".clusters":
        return [f"{at}: {sorted(example.keys() ^ real.keys())}"]
    if isinstance(example, dict) and isinstance(real, dict):
        return [one for key in example for one in differences(example[key], real[key], f"{at}.{key}")]
    if isinstance(example, list) and isinstance(real, list) and example and real:
        return differences(example[0], real[0], f"{at}[]")
    return []


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"Last-Event-ID": "x"}, "", 400),
        ({}, "?since=yesterday", 400),
        ({}, "?flow=A", 400),
        ({}, "?flow=A->B", 503),
        ({}, "?since=24h", 503),
    ],
    ids=["no id", "no time", "no flow", "too many", "too many since a time"],
)
def test_a_stream_that_cannot_be_says_why(headers: dict[str, str], query: str, status: int) -> None:
    feed = EventFeed()
    feed.streams = STREAMS_MOST
    answer = client(events=feed).get(f"/v1/events{query}", headers=headers)
    assert (answer.status_code, answer.json()["error_code"]) == (status, status)
    assert feed.streams == STREAMS_MOST


def _named(schema: Any, schemas: dict[str, Any], found: set[str]) -> set[str]:
    """Return all schemas that one refers to."""
    if isinstance(schema, dict):
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name and name not in found:
            found.add(name)
            _named(schemas[name], schemas, found)
        for value in schema.values():
            _named(value, schemas, found)
    elif isinstance(schema, list):
        for value in schema:
            _named(value, schemas, found)
    return found


def test_neither_a_worker_nor_an_application_imports_pydantic() -> None:
    for module in ("mm2py.cli.main, mm2py_connectors.wiring", "mm2py.client"):
        check = f"import sys, {module}; sys.exit('pydantic' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0, module
