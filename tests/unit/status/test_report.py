"""What ``mm2py status`` makes of facts: who runs, what is wrong, how large the lag is, which guarantee holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2py.cli.status import parse_arguments
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, ConnectorName, Flow, Kind, parse_flow
from mm2py.group.membership import GroupState
from mm2py.moments import ago
from mm2py.records.author import UNKNOWN
from mm2py.records.backfill_record import Backfill, BackfillState, Range
from mm2py.records.connector_config import DecidedBy as ConfigWriter
from mm2py.records.connector_config import FlowConfig
from mm2py.records.control_record import (
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Entry,
    Evicted,
    Fenced,
    Joined,
    Listed,
    Loads,
    MemberId,
    NotStarted,
    Released,
    TaskName,
    Writer,
    Writes,
)
from mm2py.records.flow_waits import FlowWaits, Wait
from mm2py.records.gap_record import Done, Gap, GapKind
from mm2py.records.link_use import LinkUse
from mm2py.records.operator_request import Target, TargetState
from mm2py.records.partition_ranges import ranges
from mm2py.records.pause_record import Pauses, TopicPause
from mm2py.records.safe_point import SafePoint
from mm2py.records.source_offset import StoredPosition
from mm2py.records.standstill import Cause, Standstill
from mm2py.status.backfill_report import all_backfill_reports
from mm2py.status.bodies import StatusBody
from mm2py.status.bottleneck import Bottleneck
from mm2py.status.consumer_groups import ConsumerGroupsReport, NotReady
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS, exit_of_report
from mm2py.status.facts import UNDECIDED, Facts, FlowFacts, GroupFacts, LeftOut
from mm2py.status.flow_report import SURELY_BEHIND_S, FlowReport, Guarantee, Level, TopicReport, guarantee_of
from mm2py.status.lag_movement import Expiry, LagTrendWord
from mm2py.status.printout import ROWS_MOST, text_of
from mm2py.status.report import MemberState, ProblemKind, Report, report_of, seems_stopped
from mm2py.status.verdict import Readiness
from mm2py.topics.filters import WhyNot
from mm2py.topics.unmatched import Unmatched
from tests.scenarios.world import flow_settings

A, B = ClusterAlias("A"), ClusterAlias("B")
A_TO_B, C_TO_B = parse_flow("A->B"), parse_flow("C->B")
W1, W2, W3 = MemberId("0000000a"), MemberId("0000000b"), MemberId("0000000c")
SETTINGS = flow_settings(())
NOW_MS = 1_000_000
GROUPS = ConsumerGroupsReport(9, 7, 6, True, (NotReady("busy", "it has members on the target (Stable)"),), 1200, "lags")
STORED = FlowConfig({"topics": "orders"}, ConfigWriter.APPLY, 2, at_ms=NOW_MS)
HEAD = TaskName(A_TO_B, Kind.SOURCE)


def share(topic: str, partition: int, flow: Flow = A_TO_B) -> TaskName:
    return TaskName(flow, Kind.SOURCE, topic, partition)


def joined(member: MemberId, *, flows: tuple[Flow, ...] = (A_TO_B,), timeout_ms: int = 3000, url: str = "") -> Joined:
    return Joined(member, f"host-{member}", "0.1.0", url, flows, flows, {}, "id-B", "log", timeout_ms)


def object_of(report: Report, *, exit_code: int) -> dict[str, Any]:
    found: dict[str, Any] = StatusBody.of(report, exit_code=exit_code).plain()
    return found


class Log:
    """A control log in the making; each record is appended 100 ms after the one before."""

    def __init__(self, at_ms: int = NOW_MS) -> None:
        self.view = GroupState()
        self.at_ms = at_ms

    def take(self, *records: ControlRecord) -> Log:
        for record in records:
            self.view.take(Entry(self.view.next_offset, self.at_ms, record))
            self.at_ms += 100
        return self

    def beat_for_5_s(self, *members: MemberId) -> Log:
        for _ in range(5):
            self.at_ms += 1000 - 100 * len(members)
            self.take(*map(Beat, members))
        return self

    def facts(self, **extra: Any) -> GroupFacts:
        return GroupFacts(B, "mm2py", "mm2-cluster.mm2py.internal", self.view, **extra)


def two_members(owners: Mapping[TaskName, MemberId], topics: Mapping[str, int]) -> Log:
    return Log().take(
        joined(W1),
        joined(W2),
        Claim(W1, 1, "c"),
        Assigned(W1, 1, 1, {HEAD: W1, TaskName(A_TO_B, Kind.HEARTBEAT): W2}),
        Listed(W1, A_TO_B, topics),
        Assigned(W1, 1, 2, owners),
    )


def of_flow(**extra: Any) -> FlowFacts:
    return FlowFacts(SETTINGS, **{"selected": {}, **extra})


BACKFILL = Backfill("0badcafe", {"history": {0: Range(0, 100)}}, (), seen_at_ms=NOW_MS, by="ann@host7")


HOUR_MS = 3_600_000


def test_a_backfill_that_is_over_leaves_the_status_after_an_hour_and_one_that_holds_topics_never() -> None:
    """A stopped backfill stood in the status for a week, above what had to be done."""
    at_ms = NOW_MS + HOUR_MS
    ended = [
        replace(BACKFILL, id=name, state=state, seen_at_ms=seen_ms)
        for name, state, seen_ms in (
            ("old", BackfillState.STOPPED, NOW_MS - 1),
            ("older", BackfillState.DONE, NOW_MS - HOUR_MS),
            ("recent", BackfillState.STOPPED, NOW_MS),
            ("dead", BackfillState.COPYING, NOW_MS - 100 * HOUR_MS),
        )
    ]
    (flow,) = reported(of_flow(backfills=ended), at_ms=at_ms).flows
    assert [one.id for one in flow.backfills] == ["dead", "recent"]
    whole = all_backfill_reports(A_TO_B, ended, {}, at_ms)
    assert [one.id for one in whole] == ["dead", "old", "older", "recent"]


def whole_flow() -> FlowFacts:
    """Return facts in which nothing is empty."""
    return of_flow(
        selected={"orders": 1},
        positions={("orders", 0): StoredPosition(5)},
        ends={("orders", 0): 9},
        gaps=[gap()],
        stored=STORED,
        held={Kind.SOURCE: Target(TargetState.STOPPED, "ann", NOW_MS)},
        pauses=Pauses.of([TopicPause("orders", 0, "ann", NOW_MS)]),
        file={"topics": "x"},
        consumer_groups=GROUPS,
        backfills=[BACKFILL],
    )


def gap(kind: GapKind = GapKind.EXPIRED, topic: str = "orders", done: Done = Done.STOPPED, partition: int = 0) -> Gap:
    return Gap(kind, topic, partition, 5, 9, done, 5, "gone", 1_000)


def reported(
    *flows: FlowFacts,
    group: GroupFacts | None = None,
    at_ms: int = NOW_MS + 1000,
    clusters: Mapping[ClusterAlias, str] | None = None,
    refused: Mapping[Flow, str] | None = None,
    **extra: Any,
) -> Report:
    groups = [] if group is None else [group]
    return report_of(Facts(at_ms, clusters or {A: "", B: ""}, groups, flows or [of_flow()], refused or {}, **extra))


NO_WORKER = GroupFacts(B, "mm2py", "mm2-cluster.mm2py.internal", None)


def topic_of(report: Report, name: str = "orders") -> TopicReport:
    (flow,) = report.flows
    return next(topic for topic in flow.topics if topic.topic == name)


def kinds(report: Report) -> list[str]:
    return [problem.kind for problem in report.problems]


# Whether anybody runs


@pytest.mark.parametrize(
    ("age_ms", "stopped"), [(0, False), (9_000, False), (9_001, True), (-2_000, False), (-2_001, True)]
)
def test_after_three_session_timeouts_or_with_a_record_of_the_future_only_looking_on_tells_who_runs(
    age_ms: int, *, stopped: bool
) -> None:
    log = Log().take(joined(W1, timeout_ms=1000), joined(W2, timeout_ms=3000))
    assert seems_stopped(log.view, log.view.log_time_ms + age_ms) is stopped


def test_how_old_the_last_record_is_says_its_own_append_time_not_the_highest_of_all() -> None:
    """One append was stamped an hour ahead; nobody would seem to run until that hour is over."""
    log = Log().take(joined(W1))
    log.at_ms += 3_600_000
    log.take(Beat(W1))
    log.at_ms -= 3_600_000
    log.take(Beat(W1))
    assert not seems_stopped(log.view, log.at_ms)
    assert reported(group=log.facts(), at_ms=log.at_ms + 200).groups[0].last_append_ms_ago == 300


def test_a_log_that_grows_has_a_writer_and_one_that_does_not_has_none_whatever_the_clocks_say() -> None:
    log = Log().take(joined(W1), Claim(W1, 1, "c"))
    for at_ms in (NOW_MS - 3_600_000, NOW_MS + 3_600_000):
        (alive,) = reported(group=log.facts(has_grown=True), at_ms=at_ms).groups
        (dead,) = reported(group=log.facts(has_grown=False), at_ms=at_ms).groups
        assert (alive.runs, dead.runs) == (True, False)
        assert alive.last_append_ms_ago == 0
        assert alive.members[0].last_seen_ms_ago == 0


def test_a_member_that_wrote_before_the_last_record_was_seen_longer_ago_than_that() -> None:
    log = Log().take(joined(W1), joined(W2), Claim(W1, 1, "c"), *[Beat(W1)] * 5)
    at_ms = log.view.log_time_ms + 300
    (group,) = reported(group=log.facts(), at_ms=at_ms).groups
    assert group.last_append_ms_ago == 300
    assert {member.member: member.last_seen_ms_ago for member in group.members} == {W1: 300, W2: 300 + 600}


def test_of_a_group_that_nobody_ever_joined_nobody_runs_and_of_an_unread_one_nobody_knows() -> None:
    missing = GroupFacts(B, "mm2py", "t", None)
    assert reported(group=missing).groups[0].runs is False
    assert kinds(reported(group=missing)) == ["not-running"]
    unread = replace(missing, unread="denied")
    assert reported(group=unread).groups[0].runs is None
    assert kinds(reported(group=unread)) == ["unreachable"]


def test_an_expired_member_stands_before_the_leader_and_both_before_the_others() -> None:
    log = Log().take(joined(W1), joined(W2), joined(W3), Claim(W2, 1, "c")).beat_for_5_s(W1, W2)
    assert log.view.is_expired(W3)
    report = reported(group=log.facts(), at_ms=log.at_ms)
    assert [(one.member, one.state) for one in report.groups[0].members] == [
        (W3, "session-expired"),
        (W2, "alive"),
        (W1, "alive"),
    ]
    assert "the session of host-0000000c has expired" in report.problems[-1].text


def test_a_group_without_a_leader_says_so_and_so_does_one_with_a_member_that_is_not_fenced() -> None:
    log = Log().take(joined(W1), joined(W2), Claim(W1, 1, "c"), Writes(W2, Writer(A_TO_B, "t", 7, 0)))
    log.beat_for_5_s(W1).take(Evicted(W1, 1, W2))
    group = log.facts()
    report = reported(group=group, at_ms=log.at_ms)
    assert report.groups[0].being_fenced == (W2,)
    assert any("and is not fenced yet; its tasks wait." in problem.text for problem in report.problems)
    nobody_leads = Log().take(joined(W1))
    assert any("no member is leader" in one.text for one in reported(group=nobody_leads.facts()).problems)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:hunter2@host:8083/a@b", "http://host:8083/a@b"),
        ("https://host:8083", "https://host:8083"),
        ("user:hunter2@host:8083", "host:8083"),
        ("", ""),
    ],
)
def test_a_password_in_a_members_address_is_not_shown(url: str, shown: str) -> None:
    report = reported(group=Log().take(joined(W1, url=url)).facts())
    assert report.groups[0].members[0].url == shown


def test_each_worker_says_whether_it_runs_with_the_compiled_core() -> None:
    with_it, without = "with the compiled core", "without the compiled core: MM2PY_NATIVE=0"
    log = Log().take(replace(joined(W1), core=with_it), replace(joined(W2), core=without), joined(W3))
    log.take(Claim(W1, 1, "c"))
    report = reported(group=log.facts())
    assert {one.member: one.core for one in report.groups[0].members} == {W1: with_it, W2: without, W3: ""}
    lines = [line.strip() for line in text_of(report).splitlines()]
    assert [line for line in lines if "compiled" in line] == [f"{with_it}: host-{W1}", f"{without}: host-{W2}"]


# Owners


def test_owners_and_tasks_are_told_by_partition() -> None:
    owners = {share("orders", 0): W1, share("orders", 1): W2, share("orders", 2): W1}
    log = two_members(owners, {"orders": 3}).take(Loads(W1, {share("orders", 2): 500.0}))
    report = reported(of_flow(selected={"orders": 3}), group=log.facts())
    (flow,) = report.flows
    assert topic_of(report).owners == {W1: "0,2", W2: "1"}
    assert [(one.member, one.partitions, one.bytes_per_s) for one in flow.tasks] == [(W1, 2, 500), (W2, 1, 0)]
    assert (flow.coordinator, flow.heartbeats, flow.unowned) == (W1, W2, 0)
    assert {one.member: one.tasks for one in report.groups[0].members} == {W1: 3, W2: 2}
    assert report.problems == ()


def test_over_how_many_connections_a_member_reads_and_what_bounds_it_is_told() -> None:
    log = two_members({share("orders", 0): W1, share("orders", 1): W2}, {"orders": 2})
    log.take(Beat(W1, links={A_TO_B: LinkUse(14, 23_400_000, 92, "the link")}))
    report = reported(of_flow(selected={"orders": 2}), group=log.facts())
    links = {task.member: task.link for task in report.flows[0].tasks}
    assert links[W2] is None
    assert links[W1] is not None
    assert links[W1].text == "14 connections: 23.4 MB/s, 92 % of the best so far; limit: the link"
    assert f"host-{W1}: 14 connections: 23.4 MB/s, 92 % of the best so far; limit: the link" in text_of(report)
    log.take(Beat(W1))
    assert reported(of_flow(selected={"orders": 2}), group=log.facts()).flows[0].tasks[0].link is None


def test_what_limits_a_flow_is_told_of_the_workers_that_copy_it() -> None:
    owners = {share("orders", 0): W1, share("orders", 1): W2}
    log = two_members(owners, {"orders": 2})

    def told(*waits: FlowWaits | None, facts: FlowFacts | None = None) -> tuple[str, str]:
        for member, found in zip((W1, W2), waits, strict=True):
            log.take(Beat(member, waits={} if found is None else {A_TO_B: found}))
        report = reported(facts or of_flow(selected={"orders": 2}), group=log.facts())
        (flow,) = report.flows
        limit = flow.bottleneck
        assert f"what limits it: {limit.text}" in text_of(report)
        return str(limit.cause), limit.text

    slow = FlowWaits(1, {Wait.TARGET: 93}, bytes_per_s=3_100_000, target_ms=412)
    assert told(FlowWaits(), FlowWaits()) == ("nothing-waits", "nothing waits")
    assert told(FlowWaits(), slow)[0] == "target-write"
    assert told(FlowWaits(), slow)[1].startswith(f"host-{W2} waits for acknowledgements of B 93 % of the time, 412 ms")
    assert told(FlowWaits(), None)[0] == "unknown", "an older version tells nothing"
    paused = of_flow(selected={"orders": 2}, held={Kind.SOURCE: Target(TargetState.PAUSED, "ann", NOW_MS)})
    assert told(FlowWaits(), FlowWaits(), facts=paused)[0] == "unknown"
    log.take(Listed(W1, A_TO_B, {"orders": 3}))
    assert told(FlowWaits(), FlowWaits()) == ("unknown", "not known: partitions of it have no worker")


def safe(log: Log, behind_s: float) -> None:
    for member in (W1, W2):
        point = SafePoint(round(NOW_MS - behind_s * 1000), "orders-1", 0, log.view.next_offset)
        log.take(Beat(member, safe={A_TO_B: point}, waits={A_TO_B: FlowWaits()}))


def test_nothing_waits_is_not_said_while_a_partition_is_behind_for_long() -> None:
    """Behind an open transaction workers see nothing to read, so they told that nothing waits."""
    log = two_members({share("orders", 0): W1, share("orders", 1): W2}, {"orders": 2})

    def limit(behind_s: float) -> tuple[str, str]:
        safe(log, behind_s)
        facts = FlowFacts(replace(SETTINGS, read_committed=True), selected={"orders": 2})
        (flow,) = reported(facts, group=log.facts(), at_ms=NOW_MS).flows
        return str(flow.bottleneck.cause), flow.bottleneck.text

    assert limit(2.0) == ("nothing-waits", "nothing waits")
    assert limit(SURELY_BEHIND_S) == ("nothing-waits", "nothing waits"), "workers tell within seconds what is behind"
    cause, text = limit(SURELY_BEHIND_S + 1)
    assert cause == "unknown"
    assert text == (
        "not known: orders-1 is behind, and no worker finds records of it to copy; a transaction may be open on A"
    )


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"standstills": [Standstill(W1, "wide", (Cause("refused", "No.", "", 5),))]}, "wide (refused)"),
        ({"pauses": Pauses.of([TopicPause("orders", 1, "ann", NOW_MS)])}, "orders 1 (paused)"),
        ({"pauses": Pauses.of([TopicPause("orders", 0, "ann", NOW_MS)])}, ""),
        ({"standstills": [Standstill(W1, "orders", (Cause("stalled", "A transaction.", "", 5, "0"),))]}, "orders 0"),
        (
            {"backfills": [Backfill("0badcafe", {"orders": {0: Range(0, 9)}}, (), seen_at_ms=NOW_MS)]},
            "orders (backfill)",
        ),
        ({"standstills": [Standstill(W1, "wide", (Cause("starting", "It looks.", "", 5),))]}, ""),
    ],
)
def test_nothing_waits_is_not_said_while_records_wait_in_what_is_not_copied(facts: dict[str, Any], text: str) -> None:
    """Of what a worker does not copy it measures nothing: refused, held by a backfill, paused, behind a transaction."""
    log = two_members({share("orders", 0): W1, share("orders", 1): W2}, {"orders": 2})
    safe(log, 1.0)
    seen = of_flow(
        selected={"orders": 2, "wide": 1},
        positions={("orders", number): StoredPosition(next_source) for number, next_source in ((0, 9), (1, 5))},
        starts={("wide", 0): 0},
        ends={("orders", 0): 9, ("orders", 1): 9, ("wide", 0): 7},
        **facts,
    )
    (flow,) = reported(seen, group=log.facts(), at_ms=NOW_MS).flows
    assert flow.bottleneck.cause is (Bottleneck.UNKNOWN if text else Bottleneck.NOTHING_WAITS), flow.bottleneck.text
    assert text in flow.bottleneck.text


def test_a_worker_whose_session_has_expired_tells_no_longer_what_limits_it() -> None:
    log = two_members({share("orders", 0): W1, share("orders", 1): W2}, {"orders": 2})
    for member in (W1, W2):
        log.take(Beat(member, waits={A_TO_B: FlowWaits()}))
    for _ in range(5):
        log.at_ms += 1000
        log.take(Beat(W1, waits={A_TO_B: FlowWaits()}))
    assert log.view.members[W2].expired
    (flow,) = reported(of_flow(selected={"orders": 2}), group=log.facts(), at_ms=log.at_ms).flows
    assert flow.bottleneck.cause is Bottleneck.UNKNOWN and f"host-{W2} has not told" in flow.bottleneck.text


def test_who_runs_a_flows_checkpoints_is_told_where_there_are_any() -> None:
    log = two_members({share("orders", 0): W1}, {"orders": 1})
    assert reported(of_flow(selected={"orders": 1}), group=log.facts()).flows[0].checkpoints is None
    task = TaskName(A_TO_B, Kind.CHECKPOINT)
    log.take(replace(joined(W1), checkpoints=(A_TO_B, C_TO_B)), Assigned(W1, 1, 3, {task: W1}))
    report = reported(of_flow(selected={"orders": 1}), group=log.facts())
    assert (report.flows[0].checkpoints, report.flows[0].heartbeats) == (W1, W2)
    assert C_TO_B in next(one.flows for one in report.groups[0].members if one.member == W1)
    assert f"checkpoints host-{W1}" in text_of(report)
    assert object_of(report, exit_code=0)["flows"][0]["checkpoints"] == W1


def test_a_partition_on_its_way_is_owned_and_waits_until_it_is_released() -> None:
    log = two_members({share("orders", 0): W1}, {"orders": 1}).take(Assigned(W1, 1, 3, {share("orders", 0): W2}))
    report = reported(of_flow(selected={"orders": 1}), group=log.facts())
    assert (topic_of(report).waiting, report.flows[0].tasks[0].waiting, report.flows[0].unowned) == (1, 1, 0)
    log.take(Released(W1, 3, frozenset({share("orders", 0)})))
    assert topic_of(reported(of_flow(selected={"orders": 1}), group=log.facts())).waiting == 0


def test_what_should_be_owned_and_is_not_is_a_problem_of_its_flow_only_while_somebody_runs() -> None:
    log = two_members({share("orders", 0): W1}, {"orders": 3})
    report = reported(of_flow(selected={"orders": 4}), group=log.facts())
    assert (report.flows[0].unowned, topic_of(report).unowned, topic_of(report).not_listed) == (2, 2, 1)
    assert kinds(report) == ["unowned"]
    later = reported(of_flow(selected={"orders": 4}), group=log.facts(), at_ms=NOW_MS + 60_000)
    assert (later.flows[0].unowned, topic_of(later).unowned, topic_of(later).not_listed) == (0, 0, 0)
    assert kinds(later) == ["not-running"]


def test_a_flow_that_no_member_of_a_running_group_has_in_its_file_is_run_by_nobody() -> None:
    log = Log().take(joined(W1, flows=(C_TO_B,)), Claim(W1, 1, "c"), Assigned(W1, 1, 1, {}))
    report = reported(group=log.facts())
    assert [(one.kind, one.where) for one in report.problems] == [("not-running", "A->B")]


# Lag


def test_lag_is_the_sum_over_partitions_of_what_is_behind_their_positions() -> None:
    facts = of_flow(
        selected={"orders": 3, "payments": 1},
        positions={("orders", 0): StoredPosition(10), ("orders", 1): StoredPosition(7)},
        ends={("orders", 0): 10, ("orders", 1): 19, ("orders", 2): 5, ("payments", 0): 0},
        starts={("orders", 2): 2, ("payments", 0): 0},
    )
    report = reported(facts)
    orders, payments = topic_of(report), topic_of(report, "payments")
    assert (orders.lag, orders.not_started, orders.unknown) == (12 + 3, 1, 0)
    assert (payments.lag, payments.not_started) == (0, 0), "an empty partition has nothing to begin with"
    assert (report.flows[0].lag, report.flows[0].lag_is_partial) == (15, False)


def test_a_flow_that_begins_at_the_end_has_no_lag_where_it_has_not_started() -> None:
    facts = of_flow(selected={"orders": 1}, ends={("orders", 0): 9}, starts={("orders", 0): 2})
    latest = replace(facts, settings=replace(SETTINGS, auto_offset_reset="latest"))
    assert (topic_of(reported(facts)).lag, topic_of(reported(latest)).lag) == (7, 0)
    assert topic_of(reported(latest)).not_started == 1


def test_a_source_that_ends_before_the_position_is_marked_and_takes_nothing_from_the_lag_of_others() -> None:
    facts = of_flow(
        selected={"orders": 2},
        positions={("orders", 0): StoredPosition(100), ("orders", 1): StoredPosition(5)},
        ends={("orders", 0): 40, ("orders", 1): 8},
    )
    assert (topic_of(reported(facts)).lag, topic_of(reported(facts)).ahead) == (3, 1)


def test_partitions_that_the_source_does_not_tell_of_are_not_counted_as_copied() -> None:
    facts = of_flow(
        selected={"orders": 2},
        positions={("orders", 0): StoredPosition(5), ("orders", 1): StoredPosition(5)},
        ends={("orders", 0): 6},
        source_unread=("broker 1 is away",),
    )
    report = reported(facts)
    assert (topic_of(report).lag, topic_of(report).unknown) == (1, 1)
    assert (report.flows[0].lag, report.flows[0].lag_is_partial) == (1, True)
    assert [problem.text for problem in report.problems] == ["broker 1 is away"]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_without_positions_nobody_knows_the_lag(reset: Any) -> None:
    facts = of_flow(selected={"orders": 1}, ends={("orders", 0): 6}, positions_unread="denied")
    report = reported(replace(facts, settings=replace(SETTINGS, auto_offset_reset=reset)))
    assert (topic_of(report).lag, topic_of(report).unknown, report.flows[0].lag) == (None, 1, None)


def test_topics_of_a_flow_that_its_workers_refuse_say_that_and_not_that_a_worker_should_be_started() -> None:
    name = str(ConnectorName(A_TO_B, Kind.SOURCE))
    log = Log().take(
        replace(joined(W1, flows=(C_TO_B,)), refused={name: "A and B are one cluster. Correct one."}), Claim(W1, 1, "c")
    )
    facts = of_flow(selected={"orders": 1}, positions={("orders", 0): StoredPosition(5)}, ends={("orders", 0): 5})
    report = reported(facts, group=log.facts())
    assert kinds(report) == ["refused"]
    (said,) = topic_of(report).not_copied
    assert (said.reason, said.why) == ("not-running", "host-0000000a refuses it: A and B are one cluster. Correct one.")
    assert "restart the connector" in said.remedy and "Start one" not in said.remedy


def test_topics_come_from_positions_where_the_source_does_not_tell_which_there_are() -> None:
    facts = of_flow(selected=None, positions={("orders", 4): StoredPosition(5)}, source_unread=("away",))
    assert (topic_of(reported(facts)).partitions, topic_of(reported(facts)).lag) == (5, None)


def test_a_topic_that_the_file_selects_no_more_is_left_out_and_one_with_an_open_gap_is_not() -> None:
    positions = {("old", 0): StoredPosition(5), ("deleted", 0): StoredPosition(5)}
    facts = of_flow(selected={}, positions=positions, gaps=[gap(GapKind.DELETED, "deleted")])
    (flow,) = reported(facts).flows
    (topic,) = flow.topics
    assert (topic.topic, topic.is_gone, topic.open_gaps) == ("deleted", True, 1)
    assert (topic.unknown, flow.lag, flow.lag_is_partial) == (0, 0, False), "there is nothing to copy any more"


SILENT = NotStarted(NOW_MS - 9_000, "source-silent", "connection refused")
ORDERS = {share("orders", number): member for number, member in enumerate((W1, W1, W2))}


def silent_facts(*members: MemberId, **extra: Any) -> tuple[FlowFacts, GroupFacts]:
    """Return a flow of two workers and one topic that is copied to its end; the source has not answered ``members``."""
    log = two_members(ORDERS, {"orders": 3}).take(*[Beat(one, not_started={A_TO_B: SILENT}) for one in members])
    positions = {("orders", number): StoredPosition(5, source_end=5, moved_ms=NOW_MS - 60_000) for number in range(3)}
    ends = dict.fromkeys(positions, 5)
    return of_flow(**({"selected": {"orders": 3}, "positions": positions, "ends": ends} | extra)), log.facts()


def test_a_source_that_has_answered_no_worker_is_a_problem_of_the_flow_and_its_guarantee_is_not_known() -> None:
    """All was copied, so nothing waited: the status was green, exactly-once, lag 0."""
    facts, group = silent_facts(W1, W2)
    report = reported(facts, group=group)
    (flow,) = report.flows
    (why,) = flow.not_copied
    assert (why.reason, why.since_ms, why.is_problem) == ("source-silent", SILENT.since_ms, True)
    assert why.why == "A has not answered host-0000000a, host-0000000b yet: connection refused."
    assert flow.guarantee == Guarantee(Level.UNKNOWN, ("A has not answered its workers yet",))
    assert exit_of_report(report) == EXIT_WAITS
    (said,) = topic_of(report).not_copied
    assert (said.reason, said.partitions) == ("source-silent", "")


def test_a_silent_source_is_told_once_and_its_topics_are_counted_beneath() -> None:
    """Each topic was a problem of its own beside that of the flow."""
    facts, group = silent_facts(W1, W2, standing={("orders", 0): NOW_MS - 9_000})
    report = reported(facts, group=group)
    (problem,) = report.problems
    assert (problem.kind, problem.where) == ("not-copied", "A->B")
    assert "Not copied, or not all of it: 1 topic(s)." in problem.text
    assert text_of(report).count("has not answered host-") == 2, "as a problem, and with its flow"

    own = Cause("source-silent", "the source does not answer: no answer.", "", 9, "0-1")
    stored = [Standstill(W1, "", (replace(own, why="no answer", partitions=""),)), Standstill(W1, "orders", (own,))]
    facts, group = silent_facts(standstills=stored)
    report = reported(facts, group=group)
    (problem,) = report.problems
    assert (problem.where, report.flows[0].guarantee.level) == ("A->B", Level.EXACTLY_ONCE), "it has answered before"
    assert "1 topic(s)" in problem.text


def test_a_source_that_has_not_answered_one_worker_is_told_with_its_partitions_and_the_others_copy() -> None:
    facts, group = silent_facts(W2)
    report = reported(facts, group=group)
    assert report.flows[0].guarantee.level is Level.EXACTLY_ONCE
    (said,) = topic_of(report).not_copied
    assert (said.reason, said.partitions, exit_of_report(report)) == ("source-silent", "2", EXIT_WAITS)
    facts, group = silent_facts(W2, held={Kind.SOURCE: Target(TargetState.PAUSED, "ann", NOW_MS)})
    assert reported(facts, group=group).problems == (), "it is paused, and asks nothing"


def test_what_a_worker_stored_before_its_source_fell_silent_is_not_told_beside_it() -> None:
    old = [Standstill(W2, "orders", (Cause("retrying", "It failed.", "", 9, "2"),))]
    facts, group = silent_facts(W1, W2, standstills=old)
    assert [one.reason for one in topic_of(reported(facts, group=group)).not_copied] == ["source-silent"]


def test_lag_beside_a_source_that_never_answered_is_as_of_the_last_position() -> None:
    facts, group = silent_facts(W1, W2, selected=None, ends={}, source_unread=("away",))
    (flow,) = reported(facts, group=group, clusters={A: "away", B: ""}).flows
    assert (flow.lag, flow.lag_is_partial, flow.lag_as_of_ms) == (0, True, NOW_MS - 60_000)
    assert flow.bottleneck.text == f"not known: {flow.flow.source} does not answer"


def test_beside_a_silent_source_a_deselected_topic_stays_deselected_and_an_undecided_one_is_told() -> None:
    positions = {(topic, 0): StoredPosition(5, source_end=9) for topic in ("orders", "old", "slow")}
    left_out: dict[str, LeftOut] = {"old": WhyNot.EXCLUDED, "slow": UNDECIDED}
    facts = of_flow(selected=None, positions=positions, left_out=left_out, source_unread=("away",))
    log = two_members({share("orders", 0): W1}, {"orders": 1})
    (flow,) = reported(facts, group=log.facts()).flows
    assert {topic.topic: [str(one.reason) for one in topic.not_copied] for topic in flow.topics} == {
        "orders": [],
        "slow": ["undecided"],
    }
    log = two_members({share("old", 0): W1}, {"old": 1})
    facts = replace(facts, positions={("old", 0): StoredPosition(5, source_end=9)}, left_out={"old": WhyNot.EXCLUDED})
    (flow,) = reported(facts, group=log.facts()).flows
    (old,) = [topic for topic in flow.topics if topic.topic == "old"]
    assert [str(one.reason) for one in old.not_copied] == ["deselected"], "its workers have listed it still"
    assert (old.lag, old.unknown, old.is_gone, flow.lag) == (None, 0, False, None)


def test_a_topic_that_a_ring_leaves_out_is_no_lag_of_a_paused_flow() -> None:
    ring = Standstill(W1, "a.orders", (Cause("ring", "Flow b->a has made it.", "", 9),))
    denied = Standstill(W1, "orders", (Cause("source-denied", "It may not be read.", "", 9),))
    held = {Kind.SOURCE: Target(TargetState.PAUSED, "ann", NOW_MS)}
    keys = {("orders", 0), ("a.orders", 0)}
    facts = of_flow(
        selected={"orders": 1, "a.orders": 1},
        starts=dict.fromkeys(keys, 0),
        ends=dict.fromkeys(keys, 7),
        held=held,
        standstills=[ring, denied],
    )
    for group in (two_members({}, {}).facts(), None):  # also when the worker that has said it is gone
        report = reported(facts, group=group)
        assert (topic_of(report, "a.orders").lag, topic_of(report).lag) == (None, 7)
        assert "A->B (paused since " in report.summary and " by ann; lag 7)" in report.summary
        assert [str(one.reason) for one in topic_of(report, "a.orders").not_copied] == ["ring"]
        assert [str(one.reason) for one in topic_of(report).not_copied] == ["held"]


def test_a_worker_that_stands_at_a_gap_is_a_problem_although_the_gap_is_not_stored() -> None:
    """Status left it to the gaps, which were not there: nothing was wrong, exit code 0."""
    at_a_gap = Standstill(W1, "orders", (Cause("stopped", "A gap has stopped it.", "See mm2py gaps.", 9, "0-1"),))
    positions = {("orders", number): StoredPosition(5, source_end=5) for number in range(3)}
    facts = of_flow(
        selected={"orders": 3}, positions=positions, ends=dict.fromkeys(positions, 5), standstills=[at_a_gap]
    )
    report = reported(facts, group=two_members(ORDERS, {"orders": 3}).facts())
    (problem,) = report.problems
    assert (problem.kind, problem.where, exit_of_report(report)) == ("not-copied", "A->B orders", EXIT_WAITS)
    assert problem.text.startswith("partitions 0-1: A gap has stopped it. See mm2py gaps.")
    assert "stopped (0-1)" in text_of(report)
    report = reported(replace(facts, gaps=[gap(), gap(partition=1)]), group=two_members(ORDERS, {"orders": 3}).facts())
    assert [problem.kind for problem in report.problems] == ["gap"], "it is told once"


def test_a_topic_that_is_not_shown_has_no_lag_of_0() -> None:
    """Records may wait in it: it is missing for this user, or a pattern that finds no answer leaves it out."""
    missing = Standstill(W1, "ghost", (Cause("missing", "topics names ghost.", "Create it.", 9),))
    slow: dict[str, LeftOut] = {"slow": UNDECIDED}
    facts = of_flow(selected={"orders": 3}, standstills=[missing], left_out=slow)
    facts = replace(facts, settings=flow_settings((("A->B.topics", "orders,ghost,slow"),)))
    report = reported(facts, group=two_members(ORDERS, {"orders": 3}).facts())
    assert [(topic_of(report, name).lag, topic_of(report, name).unknown) for name in ("ghost", "slow")] == [
        (None, 1)
    ] * 2
    assert report.flows[0].lag_is_partial


@pytest.mark.parametrize(
    ("reason", "code"), [("", EXIT_FAILED), ("retrying", EXIT_FAILED), ("source-denied", EXIT_WAITS)]
)
def test_a_topic_that_this_user_may_not_describe_is_not_well_whatever_passing_trouble_a_worker_has_stored(
    reason: str, code: int
) -> None:
    """A cause that is no problem, or one of a worker that is dead, once made the status green."""
    positions = {("orders", number): StoredPosition(5, source_end=5) for number in range(3)}
    stored = [Standstill(member, "orders", (Cause(reason, "It failed.", "", 9),)) for member in (W1, "0000dead")]
    facts = of_flow(hidden=frozenset({"orders"}), positions=positions, standstills=stored if reason else ())
    group = two_members(ORDERS, {"orders": 3}).facts()
    report = reported(facts, group=group)
    assert exit_of_report(report) == code
    assert any("may not describe orders on A" in problem.text for problem in report.problems) == (code == EXIT_FAILED)
    dead = reported(replace(facts, standstills=stored[1:]), group=group)
    assert exit_of_report(dead) == EXIT_FAILED
    held = {Kind.SOURCE: Target(TargetState.PAUSED, "ann", NOW_MS)}
    assert reported(replace(facts, held=held), group=group).problems == (), "it is known that nothing is copied"


def test_a_lag_of_before_tells_that_it_lacks_what_is_not_known() -> None:
    denied = Standstill(W1, "bills", (Cause("source-denied", "It may not be read.", "", 9),))
    positions = {(topic, 0): StoredPosition(5, source_end=7, moved_ms=NOW_MS) for topic in ("orders", "bills")}
    facts = of_flow(selected=None, positions=positions, source_unread=("away",), standstills=[denied])
    log = two_members({share(topic, 0): W1 for topic in ("orders", "bills")}, {"orders": 1, "bills": 1})
    assert "\nlag was at least 2, " in text_of(reported(facts, group=log.facts()))
    assert "\nlag was 4, " in text_of(reported(replace(facts, standstills=()), group=log.facts()))


def test_a_group_of_which_others_have_all_flows_is_not_told_to_start_a_worker() -> None:
    """One of this group would be refused, also on a cluster into which it emits heartbeats only."""
    flow = of_flow(owner_group="laptop")
    told = reported(flow, group=GroupFacts(A, "mm2py", "log", None))
    (problem,) = [one for one in told.problems if one.where == "group mm2py on A"]
    assert "Others have its flows" in problem.text and "(the file of group laptop)" in problem.text


def test_topics_stand_in_the_order_of_their_need() -> None:
    names = ["gap", "ahead", "behind", "fine"]
    facts = of_flow(
        selected=dict.fromkeys(reversed(names), 1),
        positions={(name, 0): StoredPosition(10) for name in names},
        ends={("gap", 0): 10, ("ahead", 0): 9, ("behind", 0): 1000, ("fine", 0): 10},
        gaps=[gap(topic="gap"), gap(topic="fine", done=Done.CONTINUED)],
    )
    (flow,) = reported(facts).flows
    assert [topic.topic for topic in flow.topics] == names
    assert (len(flow.open_gaps), flow.gaps_passed) == (1, 1)


def test_partitions_are_written_as_ranges() -> None:
    assert [ranges(numbers) for numbers in ([], [3], [0, 1, 2], [0, 2, 3, 9])] == ["", "3", "0-2", "0,2-3,9"]


# The guarantee


def written(producer_id: int = 1) -> dict[tuple[str, int], StoredPosition]:
    by = "mm2py-g-0000000a-1-A->B"
    return {("orders", 0): StoredPosition(5, producer_id=producer_id, producer_epoch=0, by=by)}


def test_a_flow_that_has_run_and_of_which_nothing_speaks_against_it_is_exactly_once() -> None:
    assert guarantee_of(of_flow(positions=written()), None) == Guarantee(Level.EXACTLY_ONCE, ())
    assert guarantee_of(of_flow(), None).level is Level.UNKNOWN
    assert guarantee_of(of_flow(), Log().take(joined(W1)).view).level is Level.EXACTLY_ONCE
    assert guarantee_of(of_flow(), Log().take(joined(W1, flows=(C_TO_B,))).view).level is Level.UNKNOWN


def test_what_cannot_be_read_leaves_the_guarantee_unknown_unless_it_is_known_to_be_worse() -> None:
    facts = of_flow(positions=written(), status_unread="denied")
    assert guarantee_of(facts, None) == Guarantee(Level.UNKNOWN, ("denied",))
    many = replace(facts, settings=replace(SETTINGS, many_to_one=True))
    assert guarantee_of(many, None) == Guarantee(Level.AT_LEAST_ONCE, ("several flows write to one topic",))


@pytest.mark.parametrize(
    ("done", "level"),
    [
        (Done.STOPPED, Level.AT_LEAST_ONCE),
        (Done.CONTINUED, Level.AT_LEAST_ONCE),
        (Done.ACCEPTED, Level.EXACTLY_ONCE),
    ],
)
def test_records_that_may_be_there_twice_count_until_an_operator_has_seen_to_it(done: Done, level: Level) -> None:
    facts = of_flow(positions=written(), gaps=[gap(GapKind.REPEATED, done=done)])
    assert guarantee_of(facts, None).level is level


def test_of_foreign_writers_is_told_although_our_own_records_are_there_once() -> None:
    facts = of_flow(positions=written(), gaps=[gap(GapKind.FOREIGN, topic) for topic in ("a", "b", "c", "d")])
    assert guarantee_of(facts, None) == Guarantee(
        Level.EXACTLY_ONCE,
        ("others write to the copies of a, b, c and 1 more as well",),
    )


def test_a_producer_id_that_was_not_fenced_counts_for_its_own_flow() -> None:
    log = Log().take(joined(W1, flows=(A_TO_B, C_TO_B)), Claim(W1, 1, "c"))
    log.take(Writes(W1, Writer(C_TO_B, "t", 8, 0)), Fenced(W1, 1, None, {}, {8: "no coordinator"}))
    assert guarantee_of(of_flow(positions=written()), log.view).level is Level.EXACTLY_ONCE
    log.take(Fenced(W1, 1, None, {}, {9: "no right"}))
    assert guarantee_of(of_flow(positions=written()), log.view).reasons == (
        "1 producer id(s) could not be fenced: no right",
    ), "whose it was nobody knows"
    log.take(Fenced(W1, 1, None, {9: 3}))
    assert guarantee_of(of_flow(positions=written()), log.view).level is Level.EXACTLY_ONCE
    own = guarantee_of(of_flow(positions=written(8)), log.view)
    assert own.reasons == ("1 producer id(s) could not be fenced: no coordinator",)


def test_writing_without_a_transactional_id_is_at_least_once() -> None:
    plain = Log().take(joined(W1), Writes(W1, Writer(A_TO_B, None, 5, 0)))
    assert guarantee_of(of_flow(), plain.view).reasons == (
        "host-0000000a writes without a transactional id, and cannot be fenced surely",
    )
    of_another = Log().take(joined(W1, flows=(A_TO_B, C_TO_B)), Writes(W1, Writer(C_TO_B, None, 5, 0)))
    assert guarantee_of(of_flow(), of_another.view).level is Level.EXACTLY_ONCE
    stored = {("orders", 0): StoredPosition(5, producer_id=5)}
    assert guarantee_of(of_flow(positions=stored), None).level is Level.AT_LEAST_ONCE
    by_mm2 = {("orders", 0): StoredPosition(5)}
    assert guarantee_of(of_flow(positions=by_mm2), None).level is Level.EXACTLY_ONCE


# Problems and exit codes


def test_problems_stand_in_the_order_in_which_they_matter_and_decide_the_exit_code() -> None:
    well = reported(of_flow(positions=written()), group=two_members({}, {}).facts())
    assert (well.problems, exit_of_report(well)) == ((), EXIT_DONE)
    waits = reported(of_flow(gaps=[gap(), gap(partition=1)]), refused={C_TO_B: "no Kerberos"})
    assert kinds(waits) == [ProblemKind.GAP, ProblemKind.REFUSED]
    assert waits.problems[0].text == "stopped and waits for an operator: 2 expired. See mm2py gaps."
    assert exit_of_report(waits) == EXIT_WAITS
    both = reported(of_flow(gaps=[gap()]), clusters={A: "refused", B: ""})
    assert kinds(both) == [ProblemKind.UNREACHABLE, ProblemKind.GAP]
    assert exit_of_report(both) == EXIT_FAILED
    for report in (waits, both):
        assert not report.is_well


def test_a_file_that_differs_is_told_by_the_names_of_its_settings_and_waits_for_an_operator() -> None:
    names = [f"copy.mode.of.{number}" for number in range(8)]
    report = reported(of_flow(stored=STORED, file={"topics": "orders", **dict.fromkeys(names, "x")}))
    (problem,) = report.problems
    assert problem.kind is ProblemKind.DRIFT
    assert (
        "in copy.mode.of.0, copy.mode.of.1, copy.mode.of.2, copy.mode.of.3, copy.mode.of.4 and 3 more. To make"
        in problem.text
    )
    assert exit_of_report(report) == EXIT_WAITS
    assert reported(of_flow(stored=STORED, file={"topics": " orders"})).problems == ()


def test_a_member_that_has_not_said_by_what_it_runs_is_shown_and_not_called_late() -> None:
    """It has joined just now; what has been stored for a day says nothing of how long it has had."""
    log = two_members({}, {}).take(Beat(W2, {A_TO_B: 2}))
    stored = replace(STORED, at_ms=NOW_MS - 86_400_000)
    report = reported(of_flow(stored=stored, file={"topics": "orders"}), group=log.facts())
    applied = report.flows[0].settings.applied
    assert [(one.member, one.version, one.is_behind) for one in applied] == [(W1, None, True), (W2, 2, False)]
    assert report.problems == ()


def test_a_cluster_that_is_away_is_said_once() -> None:
    facts = of_flow(positions_unread="B is away", status_unread="B is away", source_unread=("broker 2 is away",))
    group = GroupFacts(B, "mm2py", "t", None, unread="B is away")
    report = reported(facts, group=group, clusters={A: "", B: "B is away"})
    assert [(one.where, one.text) for one in report.problems] == [("B", "B is away"), ("A->B", "broker 2 is away")]


def test_flows_with_open_gaps_come_before_those_with_the_largest_lag() -> None:
    three = [
        FlowFacts(
            replace(SETTINGS, flow=parse_flow(f"{name}->B")),
            selected={"orders": 1},
            positions={("orders", 0): StoredPosition(0)},
            ends={("orders", 0): lag},
            gaps=[gap()] if has_gap else [],
        )
        for name, lag, has_gap in (("A", 1, False), ("C", 50, False), ("D", 0, True))
    ]
    assert [str(flow.flow) for flow in reported(*three).flows] == ["D->B", "C->B", "A->B"]


# What is printed


def many_topics(count: int) -> Report:
    names = [f"topic-{number:03}" for number in range(count)]
    facts = of_flow(
        selected=dict.fromkeys(names, 1),
        positions={(name, 0): StoredPosition(0) for name in names},
        ends={(name, 0): number for number, name in enumerate(names)},
    )
    return reported(facts, group=two_members({}, {}).facts())


def test_long_lists_are_cut_for_people_and_never_for_programs() -> None:
    report = many_topics(ROWS_MOST + 5)
    cut, whole = text_of(report), text_of(report, everything=True)
    assert cut.count("\ntopic-") == ROWS_MOST
    assert "... and 5 more (--all)" in cut
    assert "topic-024" in cut and "topic-004" not in cut, "the largest lag stays"
    assert whole.count("\ntopic-") == ROWS_MOST + 5 and "(--all)" not in whole
    assert len(object_of(report, exit_code=0)["flows"][0]["topics"]) == ROWS_MOST + 5
    assert "(--all)" not in text_of(many_topics(ROWS_MOST))


@pytest.mark.parametrize(
    ("topics", "selected", "left_out", "unmatched", "why"),
    [
        ("payments.*", ["heartbeats"], {}, ["payments.*"], "no topic that A shows matches payments.*"),
        ("payments.*", [], {}, ["payments.*"], "no topic that A shows matches payments.*"),
        (".*", ["heartbeats"], {"B.heartbeats": WhyNot.CYCLE}, [], "A shows no topic that is to be copied"),
        ("payments.*", [], {"B.orders": WhyNot.CYCLE}, ["payments.*"], "no topic that A shows matches payments.*"),
        ("orders.*", ["heartbeats"], {"B.orders": WhyNot.CYCLE}, ["orders.*"], ""),
        (".*", [], {"B.orders": WhyNot.CYCLE}, [], ""),
        ("", ["heartbeats"], {"orders": WhyNot.NOT_INCLUDED}, [], ""),
        ("a.*,b.*", ["heartbeats", "a1"], {}, ["b.*"], ""),
    ],
)
def test_a_flow_of_which_the_source_shows_nothing_but_heartbeats_is_not_called_safe(
    topics: str, selected: list[str], left_out: Mapping[str, WhyNot], unmatched: list[str], why: str
) -> None:
    """DESCRIBE was missing, or a pattern misspelt. A standby cluster, with copies only, has nothing to copy."""
    log = two_members({share(topic, 0): W1 for topic in selected}, dict.fromkeys(selected, 1))
    log.take(Beat(W1, safe={A_TO_B: SafePoint(log.at_ms, "heartbeats-0", 0, log.view.next_offset)}))
    facts = FlowFacts(
        flow_settings((("topics", topics),)),
        selected=dict.fromkeys(selected, 1),
        positions={(topic, 0): StoredPosition(5) for topic in selected},
        ends={(topic, 0): 5 for topic in selected},
        left_out=left_out,
        unmatched=tuple(Unmatched(one, is_name=False) for one in unmatched),
    )
    (flow,) = reported(facts, group=log.facts(), at_ms=log.at_ms).flows
    assert flow.verdict.readiness is (Readiness.UNKNOWN if why else Readiness.SAFE), flow.verdict
    said = f"not known whether it is safe to fail over: {why}" if why else "safe to fail over"
    assert flow.verdict.text.startswith(f"A->B: {said}")
    assert ("; no topic that A shows matches b.*" in flow.verdict.text) == ("b.*" in unmatched)


def test_a_topic_that_no_worker_lists_explains_no_partition_that_workers_do_not_count() -> None:
    log = two_members({share("orders", 0): W1}, {"orders": 1})
    log.take(Beat(W1, safe={A_TO_B: SafePoint(log.at_ms, "orders-0", 1, log.view.next_offset)}))
    facts = of_flow(
        selected={"orders": 1, "copies": 12},
        positions={("orders", 0): StoredPosition(5)},
        ends={("orders", 0): 5},
        standstills=[Standstill(W1, "copies", (Cause("ring", "Flow B->A has made it.", "", 9),))],
    )
    (flow,) = reported(facts, group=log.facts(), at_ms=log.at_ms).flows
    assert "workers do not count 1 partitions, and have told the reason of 0 only" in flow.verdict.text


def test_consumer_groups_of_a_flow_are_told_in_a_line_and_those_that_are_not_ready_in_one_each() -> None:
    told = text_of(reported(of_flow(consumer_groups=GROUPS)))
    assert (
        "consumer groups: 9, 7 ready to go on on B, 6 at the exact record; lags would read at most 1,200 again\n"
        "  not ready: busy: it has members on the target (Stable)\n"
        "... and 1 more (mm2py groups FILE 'A->B')\n"
    ) in told
    assert "consumer groups" not in text_of(reported(of_flow()))
    assert "consumer groups" not in text_of(
        reported(of_flow(consumer_groups=replace(GROUPS, count=0, ready=0, not_ready=())))
    )


def test_consumer_groups_that_cannot_be_read_are_a_part_that_did_not_answer() -> None:
    report = reported(of_flow(consumer_groups_unread="B refused."))
    assert not report.is_whole and report.flows[0].unread == ("B refused.",)
    assert not reported(of_flow(consumer_groups=GROUPS)).problems, "a group with members on the target is no fault"


def test_of_a_paused_connector_it_is_told_who_paused_it_and_that_is_no_problem() -> None:
    held = {Kind.SOURCE: Target(TargetState.PAUSED, "ann", NOW_MS), Kind.HEARTBEAT: Target(TargetState.STOPPED)}
    report = reported(of_flow(held=held))
    text = text_of(report)
    assert "A->B: paused by ann, " in text
    again = "To copy it again: mm2py resume FILE 'A->B'"
    assert f"MirrorSourceConnector: paused since 1970-01-01T00:16:40Z by ann. {again}\n" in text
    assert "MirrorHeartbeatConnector: stopped by another writer of the configs topic than mm2py\n" in text
    assert kinds(report) == kinds(reported(of_flow()))


def test_the_heading_says_what_operators_hold_back_since_when_and_why() -> None:
    author = replace(UNKNOWN, reason="night work")
    paused = Target(TargetState.PAUSED, "ann", NOW_MS, author=author)
    told = "A->B (paused since 1970-01-01T00:16:40Z by ann: night work; lag 0)"
    (running,) = reported(of_flow()).flows
    (held,) = reported(of_flow(held={Kind.SOURCE: paused})).flows
    (silent,) = reported(of_flow(held={Kind.HEARTBEAT: replace(paused, state=TargetState.STOPPED)})).flows
    off = replace(running, settings=replace(running.settings, enabled=False))

    def heading(*flows: FlowReport) -> str:
        return replace(reported(of_flow()), flows=flows, problems=()).summary

    assert heading(running) == heading(off) == heading() == "nothing is wrong"
    assert heading(held) == heading(held, off) == f"nothing is copied: {told}"
    assert heading(held, running) == f"copied except {told}"
    assert heading(silent) == "copied except heartbeats of A->B (stopped since 1970-01-01T00:16:40Z by ann: night work)"


def test_a_backfill_is_shown_with_its_progress_and_one_without_a_driver_is_a_problem() -> None:
    stored = {("history", 0): StoredPosition(40)}
    (report,) = reported(of_flow(backfills=[BACKFILL], positions=stored)).flows
    (one,) = report.backfills
    assert (one.offsets_copied, one.offsets, one.is_holding, one.is_dead) == (40, 100, True, False)
    dead = reported(of_flow(backfills=[BACKFILL]), at_ms=NOW_MS + 60_000)
    assert ProblemKind.BACKFILL in kinds(dead)
    text = text_of(dead)
    assert "A->B backfill 0badcafe: its driver (ann@host7) has not written for 60 s" in text
    assert "--resume 0badcafe" in text
    assert "--abandon 0badcafe" in text
    over = replace(BACKFILL, state=BackfillState.STOPPED, reason="abandoned")
    assert ProblemKind.BACKFILL not in kinds(reported(of_flow(backfills=[over]), at_ms=NOW_MS + 60_000))


def test_advice_about_a_flow_of_another_group_names_the_file_of_that_group() -> None:
    """The story: ``mm2py status`` with a file of group laptop advised ``mm2py apply`` with that file, which is refused
    as long as group mm2py runs the flow."""
    facts = of_flow(
        stored=replace(STORED, properties={"topics": "orders", "enabled": "false"}),
        file={"topics": ".*", "enabled": "true"},
        owner_group="g",
        config_unusable="Apply a file that can: mm2py apply FILE; --previous takes the last one back.",
    )
    off = FlowConfig({"topics": "c"}, ConfigWriter.APPLY, 3, at_ms=NOW_MS)
    report = reported(facts, group=NO_WORKER, off={C_TO_B: off}, off_owners={C_TO_B: "h"})
    texts = "\n".join(problem.text for problem in report.problems)
    assert report.flows[0].owner_group == "g"
    other = "OTHER.properties (the file of group g)"
    assert f"nothing is copied. mm2py apply {other} switches it on again." in texts
    assert f"which differs in topics. To change that: mm2py apply {other}" in texts
    assert f"Apply a file that can: mm2py apply {other}; --previous" in texts
    assert f"no worker runs. Others have its flows: mm2py {other} starts a worker of theirs." in texts
    assert "If none of them runs, one of this group takes over: mm2py FILE." in texts
    assert "mm2py apply OTHER.properties (the file of group h) switches it off." in texts
    page = text_of(report, file="mm2.properties")
    assert "mm2py apply mm2.properties" not in page and "mm2py apply FILE" not in page
    assert f"by which the workers of group g run (to change it: mm2py apply {other}):" in page


def test_advice_about_a_flow_of_the_files_group_names_the_file() -> None:
    facts = of_flow(stored=STORED, file={"topics": ".*"}, owner_group="mm2py")
    page = text_of(reported(facts, group=NO_WORKER), file="mm2.properties")
    assert "To make them run by the file: mm2py apply mm2.properties" in page
    assert "no worker runs. Start one: mm2py mm2.properties." in page and "OTHER" not in page


def test_only_a_terminal_gets_colours() -> None:
    report = reported(of_flow(gaps=[gap()]))
    assert "\x1b" not in text_of(report)
    styled = text_of(report, styled=True)
    assert "\x1b[31m! A->B orders: stopped" in styled
    assert styled.count("\x1b[0m") == styled.count("\x1b[31m") + styled.count("\x1b[1m")


def test_the_object_for_programs_keeps_its_shape() -> None:
    """Whoever changes this changes what others' programs read: add fields, and keep those that are here."""
    log = two_members({share("orders", 0): W1}, {"orders": 1}).take(Fenced(W1, 1, None, {}, {7: "why"}))
    facts = whole_flow()
    found = json.loads(json.dumps(object_of(reported(facts, group=log.facts()), exit_code=3)))
    assert (found["format"], found["exit_code"], found["at_ms"]) == (1, 3, NOW_MS + 1000)
    assert found["clusters"] == {"A": "", "B": ""}
    group, flow = found["groups"][0], found["flows"][0]
    assert group["unfenced"] == {"7": "why"}
    settings = flow["settings"]
    shapes = {
        "problem": "kind text where",
        "group": "being_fenced generation last_append_ms_ago leader leader_epoch members name runs target topic"
        " unfenced unread",
        "member": "bytes_per_s core flows last_seen_ms_ago leads member name state tasks url version",
        "paused": "at_ms by partition reason text topic user",
        "flow": "backfills behind bottleneck checkpoints consumer_groups coordinator flow gaps_passed guarantee"
        " heartbeats held lag lag_as_of_ms lag_is_partial lag_s loss movement not_copied notes open_gaps owner_group"
        " partitions_behind paused refused settings tasks tasks_max topics unowned unread unstored verdict",
        "verdict": "behind_s left_out oldest parts readiness safe_at_ms text",
        "bottleneck": "bytes_per_s cause percent remedy text worker",
        "consumer_groups": "count exact following following_late is_synced not_ready partly reads_again_at_most"
        " reads_most_again ready",
        "not_ready": "group why",
        "held": "at_ms by connector state text",
        "backfill": "begun_at_ms by flow id is_dead is_holding last_seen_ms_ago offsets offsets_copied partitions"
        " resumed select state text topics where",
        "settings": "applied drift enabled stored",
        "stored": "at_ms by host reason user version worker",
        "applied": "is_behind member version",
        "drift": "file setting stored text",
        "guarantee": "level reasons",
        "task": "bytes_per_s link member partitions waiting",
        "topic": "ahead is_gone lag lag_s movement newest_ms not_copied not_listed not_started open_gaps owners"
        " partitions topic unknown unowned waiting",
        "movement": "bytes catch_up_s expires_s expiry per_s retention_share since_ms trend",
        "behind": "lag lag_s movement partition text topic",
        "not_copied": "partitions reason remedy since_ms waits_for_operator why",
        "gap": "at_ms done first_offset kind last_offset partition position text topic topic_id",
    }
    objects = {
        "problem": found["problems"][0],
        "group": group,
        "member": group["members"][0],
        "flow": flow,
        "consumer_groups": flow["consumer_groups"],
        "not_ready": flow["consumer_groups"]["not_ready"][0],
        "held": flow["held"][0],
        "paused": flow["paused"][0],
        "backfill": flow["backfills"][0],
        "settings": settings,
        "stored": settings["stored"],
        "applied": settings["applied"][0],
        "drift": settings["drift"][0],
        "guarantee": flow["guarantee"],
        "task": flow["tasks"][0],
        "not_copied": flow["topics"][0]["not_copied"][0],
        "verdict": flow["verdict"],
        "bottleneck": flow["bottleneck"],
        "topic": flow["topics"][0],
        "movement": flow["movement"],
        "behind": flow["behind"][0],
        "gap": flow["open_gaps"][0],
    }
    assert {name: " ".join(sorted(each)) for name, each in objects.items()} == shapes


def test_every_field_and_word_for_programs_is_described() -> None:
    page = (Path(__file__).parents[3] / "docs" / "status.md").read_text()
    log = two_members({share("orders", 0): W1}, {"orders": 1}).take(Fenced(W1, 1, None, {}, {7: "why"}))
    facts = whole_flow()
    words = {
        *ProblemKind,
        *MemberState,
        *Level,
        *Bottleneck,
        *LagTrendWord,
        *Expiry,
        *fields_of(object_of(reported(facts, group=log.facts()), exit_code=3)),
    }
    undescribed = {word for word in words if f"`{word}`" not in page and f"`{word}[]`" not in page}
    assert undescribed == {"format"}, "that one stands in the text as it is written"
    assert '`"format": 1`' in page


def fields_of(found: Any) -> set[str]:
    if isinstance(found, list):
        return set().union(*map(fields_of, found))
    if not isinstance(found, dict):
        return set()
    names = {name for name in found if name not in {W1, W2, "A", "B", "7"}}
    return names.union(*map(fields_of, found.values()))


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0.0 s"),
        (9_940, "9.9 s"),
        (61_000, "61 s"),
        (300_000, "5 min"),
        (7_200_000, "2 h"),
        (864_000_000, "10 days"),
    ],
)
def test_a_span_of_time_is_said_as_people_say_it(ms: int, said: str) -> None:
    assert ago(ms) == said


# The command line


def test_watch_takes_seconds_or_none() -> None:
    assert parse_arguments(["f"]).watch is None
    assert parse_arguments(["f", "--watch"]).watch == 2
    assert parse_arguments(["f", "--watch", "0.5", "--json"]).watch == 0.5
    assert parse_arguments(["--watch", "5", "f"]).watch == 5


@pytest.mark.parametrize("arguments", [[], ["f", "--watch", "0"], ["f", "--watch", "nan"], ["f", "--wat"], ["f", "g"]])
def test_what_cannot_be_understood_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse_arguments(arguments)


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_waits_and_null_where_that_is_not_known() -> None:
    positions = {(topic, 0): StoredPosition(10) for topic in ("busy", "late", "still", "undated")}
    ends = {("busy", 0): 11, ("late", 0): 99, ("still", 0): 10, ("undated", 0): 12}
    since_ms = {("busy", 0): NOW_MS - 400, ("late", 0): NOW_MS - 125_000}
    extra: dict[str, Any] = {"positions": positions, "ends": ends, "waiting_since_ms": since_ms}
    known = reported(of_flow(selected=dict.fromkeys(("busy", "late", "still"), 1), **extra), at_ms=NOW_MS)
    (flow,) = known.flows
    assert {topic.topic: topic.lag_s for topic in flow.topics} == {"busy": 0.4, "late": 125.0, "still": 0.0}
    assert flow.lag_s == 125.0
    assert "lag 90 (125 s)" in text_of(known) and "89 (125 s)" in text_of(known)
    unknown = reported(of_flow(selected=dict.fromkeys(("busy", "undated"), 1), **extra), at_ms=NOW_MS)
    (flow,) = unknown.flows
    assert {topic.topic: topic.lag_s for topic in flow.topics} == {"busy": 0.4, "undated": None}
    assert (flow.lag, flow.lag_s) == (3, None)
    assert "lag 3\n" in text_of(unknown) or "lag 3," in text_of(unknown)
    (silent,) = reported(of_flow(selected=None, **(extra | {"ends": {}, "waiting_since_ms": {}})), at_ms=NOW_MS).flows
    assert silent.lag_s is None
