"""What the demo shows and how it judges, without clusters."""

from __future__ import annotations

import argparse

import pytest

from deploy.local.demo import STILL_S, CaughtUp, parse_seconds
from deploy.local.demo_table import RATE_WINDOW_S, Rates, problems_of, rows_of
from deploy.local.demo_verdict import conclude
from mm2py.connector import FlowStatus, TopicStatus
from mm2py.flow import parse_flow
from tests.checker.check import Report, TopicReport
from tests.checker.dumped import Dumped
from tests.checker.judge import judge_partition

FLOW = parse_flow("west-1->west-2")
ORDERS = (FLOW, "orders")


def topic(
    name: str = "orders",
    records: int = 0,
    size: int = 0,
    lag_records: int | None = 0,
    rebuilt: dict[str, int] | None = None,
    problems: tuple[str, ...] = (),
) -> TopicStatus:
    return TopicStatus(
        topic=name,
        remote_topic=f"west-1.{name}",
        partitions=1,
        records=records,
        bytes=size,
        passed=3,
        rebuilt=rebuilt or {},
        dropped={},
        lag_records=lag_records,
        lag_s=None if lag_records is None else 0.0,
        problems=problems,
    )


def status(*topics: TopicStatus, state: str = "running", reason: str = "") -> list[FlowStatus]:
    return [FlowStatus(FLOW, state, reason, "at-least-once", topics, {})]


def log(*values: bytes) -> list[Dumped]:
    return [Dumped(offset, 1, 1_000 + offset, b"k", value) for offset, value in enumerate(values)]


def report(source: list[Dumped], target: list[Dumped]) -> Report:
    verdicts = [judge_partition(source, target, topic="orders")]
    return Report([TopicReport("orders", "west-1.orders", verdicts)])


# The verdict


def test_an_exact_copy_is_equal_and_the_exit_code_is_zero() -> None:
    (line, result), code = conclude([report(log(b"a", b"b"), log(b"a", b"b"))])
    assert code == 0
    assert line.split() == ["equal", "orders", "->", "west-1.orders", "2", "records,", "2", "in", "the", "copy"]
    assert result.startswith("Both sides are equal in all 1 topics")


@pytest.mark.parametrize(
    "tampered",
    [
        log(b"a", b"b"),
        log(b"a", b"c", b"b"),
        log(b"a", b"b", b"C"),
        log(b"a", b"b", b"c", b"c"),
        [record._replace(headers=(("h", b"1"),)) for record in log(b"a", b"b", b"c")],
        [record._replace(timestamp_ms=0) for record in log(b"a", b"b", b"c")],
        [],
    ],
    ids=["record lost", "order changed", "byte changed", "record twice", "header added", "time changed", "empty"],
)
def test_a_tampered_copy_makes_the_demo_fail_and_names_the_topic(tampered: list[Dumped]) -> None:
    source = log(b"a", b"b", b"c")
    lines, code = conclude([report(source, source), report(source, tampered)])
    assert code == 1
    assert lines[0].split()[:2] == ["equal", "orders"]
    assert lines[1].split()[:2] == ["DIFFERENT", "orders"]
    assert "orders-0" in lines[2]
    assert lines[-1] == "1 of 2 topics are not as they should be."


def test_a_topic_without_records_proves_nothing() -> None:
    lines, code = conclude([report([], [])])
    assert code == 1
    assert any("proves nothing" in line for line in lines)


def test_comparing_nothing_is_a_failure() -> None:
    assert conclude([])[1] == 1
    assert conclude([Report()])[1] == 1


# The table


def test_rates_are_those_of_the_last_seconds_and_averages_those_of_the_run() -> None:
    rates = Rates()
    for second in range(11):
        records = 100 * min(second, 5)  # nothing comes after five seconds
        rates.add(status(topic(records=records, size=10 * records)), float(second))
    assert rates.recent(ORDERS) == (0.0, 0.0)
    assert rates.average(ORDERS) == (50.0, 500.0)
    rates.add(status(topic(records=500 + int(100 * RATE_WINDOW_S), size=5_000)), 11.0)
    assert rates.recent(ORDERS) == (100.0, 0.0)


def test_a_lag_that_nobody_knows_yet_is_no_number() -> None:
    (row,) = rows_of(status(topic(lag_records=None)))
    assert row[5:7] == ("?", "?")


def test_topics_with_the_same_problem_share_a_line() -> None:
    problem = "the target answered X"
    orders, clicks = topic("orders", problems=(problem,)), topic("clicks", problems=(problem, "another"))
    assert problems_of(status(orders, clicks, reason="west-2 cannot be reached")) == [
        "west-1->west-2: west-2 cannot be reached",
        "west-1->west-2 orders, clicks: the target answered X",
        "west-1->west-2 clicks: another",
    ]


# Waiting until everything is copied


def test_a_copy_has_caught_up_when_nothing_is_behind_and_nothing_moves_any_more() -> None:
    caught_up = CaughtUp({ORDERS: 10})
    complete = status(topic(records=10))
    assert not caught_up.by(complete, 100.0)
    assert not caught_up.by(complete, 100.0 + STILL_S / 2)
    assert caught_up.by(complete, 100.0 + STILL_S)
    assert caught_up.behind == []


@pytest.mark.parametrize(
    "statuses",
    [status(), status(topic(records=9)), status(topic(records=10, lag_records=1)), status(topic(lag_records=None))],
    ids=["no topic", "records missing", "lag", "lag unknown"],
)
def test_what_is_behind_is_named_however_long_nothing_moves(statuses: list[FlowStatus]) -> None:
    caught_up = CaughtUp({ORDERS: 10})
    assert not caught_up.by(statuses, 100.0)
    assert not caught_up.by(statuses, 200.0)
    assert len(caught_up.behind) == 1
    assert "orders" in caught_up.behind[0]


def test_heartbeats_that_go_on_keep_nobody_from_having_caught_up() -> None:
    caught_up = CaughtUp({ORDERS: 7})
    for second in range(5):
        statuses = status(topic(records=7), topic("heartbeats", records=second))
        done = caught_up.by(statuses, float(second))
    assert done


def test_of_a_compacted_topic_only_the_lag_counts() -> None:
    caught_up = CaughtUp({ORDERS: None})
    assert not caught_up.by(status(topic(records=3)), 100.0)
    assert caught_up.by(status(topic(records=3)), 100.0 + STILL_S)


# The command line


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_seconds_have_to_be_a_positive_number(text: str) -> None:
    with pytest.raises((ValueError, argparse.ArgumentTypeError)):
        parse_seconds(text)
