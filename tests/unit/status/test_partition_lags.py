"""Which partitions are behind, and how their lags move, by positions, ends and retention that both clusters tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mm2py.metrics.lag_trend import KEEPS_UP_MS
from mm2py.records.lag_seen import LagSeen
from mm2py.records.source_offset import StoredPosition
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowCircumstances, FlowReport, topics_of
from mm2py.status.lag_movement import KEEPS_UP, NOT_KNOWN, Expiry, LagMovement, LagTrendWord
from mm2py.status.movement import LagMemory
from mm2py.status.partition_lags import (
    BEHIND_MOST,
    TOPICS_ASKED_MOST,
    furthest_behind,
    partition_behind,
    partition_movement,
    worst_first,
)
from mm2py.status.printout import text_of
from mm2py.status.report import report_of
from mm2py.topics.retention import Retention
from tests.fakes.v1_services import facts_of
from tests.scenarios.world import flow_settings

NOW_MS = 1_764_338_527_000
KEY = ("orders", 0)
MOVING = StoredPosition(
    1_000,
    source_end=2_100,
    moved_ms=NOW_MS - 500,
    newest_ms=NOW_MS - 60_000,
    record_bytes=100,
    behind_since_ms=NOW_MS - 300_000,
    lag_before=LagSeen(NOW_MS - 20_000, 1_500, 700, NOW_MS - 70_000),
)
"""Its owner copies it more slowly than records come."""


def of_flow(position: StoredPosition | None = MOVING, end: int = 2_200, **extra: Any) -> FlowFacts:
    positions = {} if position is None else {KEY: position}
    return FlowFacts(
        flow_settings(()), **{"selected": {"orders": 1}, "positions": positions, "ends": {KEY: end}} | extra
    )


def movement(facts: FlowFacts) -> LagMovement:
    return partition_movement(facts, KEY, NOW_MS)


def test_one_look_tells_the_rate_by_what_the_owner_has_stored() -> None:
    found = movement(of_flow())
    assert (found.per_s, found.trend) == (20.0, LagTrendWord.GROWING), "1,200 wait now, and 20 seconds ago 800 did"
    assert (found.since_ms, found.bytes) == (NOW_MS - 300_000, 120_000)
    assert found.expiry is Expiry.UNKNOWN, "nobody has asked the source how long it keeps them"


def test_where_no_worker_copies_the_rate_is_that_since_the_last_position() -> None:
    """A flow that was paused at its end an hour ago; its stored position says when it moved last."""
    paused = replace(MOVING, source_end=1_000, moved_ms=NOW_MS - 60_000, behind_since_ms=None, lag_before=None)
    found = movement(
        of_flow(paused, waiting_since_ms={KEY: NOW_MS - 59_000}, retentions={"orders": Retention(119_000)})
    )
    assert (found.per_s, found.trend, found.catch_up_s) == (20.0, LagTrendWord.GROWING, None)
    assert (found.since_ms, found.expires_s) == (NOW_MS - 59_000, 60.0)


def test_a_newer_look_counts_more_than_a_stored_position() -> None:
    old = replace(MOVING, moved_ms=NOW_MS - 3_600_000, lag_before=None)
    assert movement(of_flow(old)).per_s == 100 / 3_600
    looked = {KEY: LagSeen(NOW_MS - 10_000, 2_100, 1_000)}
    assert movement(of_flow(old, looked_before=looked)).per_s == 10.0


def test_a_partition_that_is_copied_in_time_keeps_up_although_records_wait() -> None:
    busy = replace(MOVING, behind_since_ms=None)
    assert movement(of_flow(busy)) == KEEPS_UP.with_bytes(120_000)
    assert movement(of_flow(end=1_000)) == KEEPS_UP


def test_a_record_that_has_just_come_to_a_topic_at_rest_is_not_behind() -> None:
    rested = replace(MOVING, behind_since_ms=None, moved_ms=NOW_MS - 3_600_000)
    assert not movement(of_flow(rested, waiting_since_ms={KEY: NOW_MS - KEEPS_UP_MS})).is_behind
    assert movement(of_flow(rested, waiting_since_ms={KEY: NOW_MS - KEEPS_UP_MS - 1})).is_behind
    assert movement(of_flow(rested)).is_behind, "how old it is, is not known"
    assert movement(of_flow(rested)).since_ms is None


def test_what_cannot_be_known_is_not_told() -> None:
    assert movement(of_flow(end=999)) == NOT_KNOWN, "the source was cut back"
    assert movement(of_flow(ends={})) == NOT_KNOWN
    of_mm2 = movement(of_flow(StoredPosition(1_000)))
    assert (of_mm2.per_s, of_mm2.bytes, of_mm2.since_ms, of_mm2.expiry) == (None, None, None, Expiry.UNKNOWN)
    silent = movement(of_flow(selected=None, retentions={"orders": Retention(1)}, waiting_since_ms={KEY: 1}))
    assert (silent.per_s, silent.expiry, silent.since_ms) == (None, Expiry.UNKNOWN, NOW_MS - 300_000)


def test_a_topic_that_is_only_compacted_never_expires_and_one_whose_log_starts_behind_the_position_is_gone() -> None:
    assert movement(of_flow(retentions={"orders": Retention()})).expiry is Expiry.NEVER
    assert movement(of_flow(log_starts={KEY: 1_001})).expiry is Expiry.GONE
    assert movement(of_flow(log_starts={KEY: 1_000})).expiry is Expiry.UNKNOWN


def many(topics: int) -> FlowFacts:
    """Return topics of which 0, 1, 2, ... records wait."""
    keys = [(f"t{number:02}", 0) for number in range(topics)]
    positions = {
        key: replace(MOVING, next_source=1_000 - number, source_end=1_000, lag_before=None)
        for number, key in enumerate(keys)
    }
    return of_flow(
        selected=dict.fromkeys([key[0] for key in keys], 1), positions=positions, ends=dict.fromkeys(keys, 1_000)
    )


def test_the_source_is_asked_about_the_topics_that_are_furthest_behind() -> None:
    keys = furthest_behind(many(50), NOW_MS)
    assert keys == [(f"t{number:02}", 0) for number in range(49, 49 - TOPICS_ASKED_MOST, -1)]
    assert furthest_behind(of_flow(replace(MOVING, behind_since_ms=None)), NOW_MS) == [], "it keeps up"


def report(facts: FlowFacts) -> FlowReport:
    (flow,) = report_of(replace(facts_of(facts), at_ms=NOW_MS)).flows
    return flow


def test_a_flow_names_ten_and_counts_all_and_those_that_are_lost_come_first() -> None:
    facts = replace(
        many(50),
        retentions=dict.fromkeys(["t30", "t40"], Retention(ms=7_200_000)),
        waiting_since_ms={("t30", 0): NOW_MS - 3_600_000, ("t40", 0): NOW_MS - 60_000},
        log_starts={("t02", 0): 1_000},
    )
    facts = replace(
        facts, positions={key: replace(at, moved_ms=NOW_MS - 20_000) for key, at in facts.positions.items()}
    )
    flow = report(facts)
    assert (len(flow.behind), flow.partitions_behind) == (BEHIND_MOST, 49)
    assert [one.topic for one in flow.behind[:5]] == ["t02", "t30", "t40", "t49", "t48"]
    assert flow.movement is not None and flow.movement.expiry is Expiry.GONE
    assert flow.behind[1].text.endswith("the oldest expires in 60 min at this rate")


def test_status_has_a_line_for_each_partition_that_is_behind_and_none_for_others() -> None:
    facts = replace(facts_of(of_flow()), at_ms=NOW_MS)
    text = text_of(report_of(facts))
    line = "1,200 records behind, about 120 KB, growing by 20/s, since 13:57:07Z, not known when the oldest expires"
    assert f"\n  orders/0  {line}\n" in text
    assert "orders/0" not in text_of(report_of(replace(facts_of(of_flow(end=1_000)), at_ms=NOW_MS)))
    whole = text_of(report_of(replace(facts_of(many(50)), at_ms=NOW_MS)))
    assert whole.count(" behind, about ") == BEHIND_MOST
    assert "... and 39 more (/v1/flows/A->B/topics/T/partitions)" in whole


def test_a_topic_of_which_one_partition_is_not_known_is_not_well() -> None:
    facts = of_flow(replace(MOVING, behind_since_ms=None), selected={"orders": 2})
    (topic,), behind = topics_of(facts, None, FlowCircumstances(), NOW_MS)
    assert topic.movement is not None and topic.movement.trend is None and topic.movement.expiry is Expiry.UNKNOWN
    assert behind == []
    (topic,), _ = topics_of(replace(facts, selected={"orders": 1}), None, FlowCircumstances(), NOW_MS)
    assert topic.movement is not None and topic.movement.trend is LagTrendWord.KEEPS_UP


def test_a_topic_that_may_not_be_described_has_no_movement() -> None:
    facts = of_flow(selected={}, hidden=frozenset({"orders"}))
    (topic,), behind = topics_of(facts, None, FlowCircumstances(), NOW_MS)
    assert (topic.topic, topic.movement, behind) == ("orders", None, [])


def test_the_order_is_that_in_which_partitions_need_help() -> None:
    facts = of_flow()
    one = partition_behind(facts, KEY, movement(facts), NOW_MS)
    assert one is not None
    soon = replace(one, topic="soon", lag=1, movement=replace(one.movement, expiry=Expiry.AT_THIS_RATE, expires_s=5.0))
    later = replace(one, topic="later", movement=replace(one.movement, expiry=Expiry.AT_THIS_RATE, expires_s=50.0))
    large = replace(one, topic="large", lag=9_999)
    gone = replace(one, topic="gone", lag=1, movement=replace(one.movement, expiry=Expiry.GONE))
    assert [each.topic for each in worst_first([one, large, later, soon, gone])] == [
        "gone",
        "soon",
        "later",
        "large",
        "orders",
    ]


def test_looks_are_remembered_until_nothing_waits() -> None:
    memory = LagMemory()
    first = LagSeen(NOW_MS, 50, 40)
    assert memory.look({KEY: first}, NOW_MS) == {}
    assert memory.look({KEY: LagSeen(NOW_MS + 10_000, 60, 40)}, NOW_MS + 10_000) == {KEY: first}
    assert memory.look({}, NOW_MS + 11_000) == {}
    assert memory.look({KEY: LagSeen(NOW_MS + 12_000, 60, 50)}, NOW_MS + 12_000) == {}
