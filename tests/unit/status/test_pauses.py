"""What operators have paused of a flow, as the status tells it: it is never counted as copied, and it is named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from mm2py.config.configuration import flow_of
from mm2py.flow import parse_flow
from mm2py.records.author import Author
from mm2py.records.pause_record import Pauses, TopicPause
from mm2py.records.standstill import Cause
from mm2py.status.facts import Facts, FlowFacts
from mm2py.status.not_copied import (
    FAILED,
    NotCopied,
    NotRunning,
    PartitionFacts,
    Reason,
    TopicFacts,
    cause_of,
    why_not_copied,
)
from mm2py.status.pausable import why_not_pausable
from mm2py.status.report import Report, report_of
from mm2py.status.verdict import FlowSafety, FlowVerdict, Readiness, VerdictFacts, verdict_of
from mm2py.topics.filters import WhyNot
from tests.scenarios.config_world import file_of

A_TO_B = parse_flow("A->B")
NOW_MS = 1_764_000_000_000
ANN = Author("ann", "ops1", "ticket 4711")
WHO = "ann on ops1 (mm2py pause)"
PAUSED_AT_MS = NOW_MS - 60_000


def paused(topic: str = "orders", partition: int | None = None, author: Author = ANN) -> TopicPause:
    return TopicPause(topic, partition, WHO, PAUSED_AT_MS, author)


COPIED = TopicFacts(partitions=4, selected=True, has_positions=True, listed=4, flow=A_TO_B)


def told(*pauses: TopicPause, **facts: Any) -> list[tuple[str, str]]:
    return [(str(one.reason), one.partitions) for one in why_not_copied(replace(COPIED, pauses=pauses, **facts))]


# A worker's own partitions


def test_a_worker_says_who_has_paused_its_partition_and_how_it_goes_on() -> None:
    found = cause_of(PartitionFacts(paused=f"{WHO}: ticket 4711"), A_TO_B, "orders", "A.orders")
    assert found is not None
    assert found.reason is Reason.PAUSED
    assert found.why == "Paused by ann on ops1 (mm2py pause): ticket 4711"
    assert found.remedy == "To copy it again: mm2py resume FILE 'A->B' --topic orders"
    alone = cause_of(PartitionFacts(paused=WHO, is_paused_alone=True), A_TO_B, "orders", "A.orders")
    assert alone is not None
    assert alone.remedy.endswith("--partition orders/N")
    assert Reason.PAUSED not in FAILED, "Connect shows its task as RUNNING"


@pytest.mark.parametrize(
    "facts", [{"starting": "looks"}, {"failure": "x", "reported": "source.denied"}, {"stalled": "x"}]
)
def test_while_it_is_paused_nothing_else_is_tried_so_the_pause_is_the_reason(facts: dict[str, str]) -> None:
    found = cause_of(PartitionFacts(paused=WHO, **facts), A_TO_B, "orders", "A.orders")
    assert found is not None and found.reason is Reason.PAUSED


def test_a_gap_at_which_it_has_stopped_is_more_urgent_than_a_pause() -> None:
    found = cause_of(PartitionFacts(gap="expired", paused=WHO), A_TO_B, "orders", "A.orders")
    assert found is not None and found.reason is Reason.STOPPED


# A topic


def test_a_topic_is_paused_as_a_whole_or_in_parts() -> None:
    assert told() == []
    assert told(paused()) == [("paused", "")]
    assert told(paused(partition=1), paused(partition=3)) == [("paused", "1,3")]
    assert told(paused(), paused(partition=3)) == [("paused", "")]
    other = paused(partition=2, author=Author("bob", "ops2", ""))
    assert told(paused(partition=0), paused(partition=1), other) == [("paused", "0-1"), ("paused", "2")]


def test_what_a_worker_has_stored_of_a_pause_is_not_told_twice_and_counts_after_it_was_resumed() -> None:
    stored = Cause("paused", "Paused by ann", "mm2py resume", PAUSED_AT_MS, "0-3")
    assert told(paused(), causes=[stored]) == [("paused", "")]
    assert told(causes=[stored]) == [("paused", "0-3")], "the worker has not gone on yet"
    assert told(paused(partition=0), causes=[stored]) == [("paused", "0"), ("paused", "0-3")]


def test_a_paused_partition_that_stands_still_is_no_problem_and_another_one_is() -> None:
    assert told(paused(), standing="0-3") == [("paused", "")]
    assert told(paused(partition=1), standing="1-2") == [("standing", "2"), ("paused", "1")]


def test_other_reasons_do_not_hide_a_pause() -> None:
    refused = Cause("refused", "its remote topic is not empty", "", 0)
    assert told(paused(), causes=[refused], listed=0) == [("refused", ""), ("paused", "")]
    assert told(paused(), not_running=NotRunning("no worker")) == [("not-running", ""), ("paused", "")]
    assert told(paused(), held="paused by bob") == [("held", ""), ("paused", "")]
    assert told(paused(partition=2), stopped="1", gaps="1 expired") == [("stopped", "1"), ("paused", "2")]


def test_a_topic_that_the_settings_leave_out_is_not_told_as_paused() -> None:
    assert told(paused(), selected=False, left_out=(Reason.EXCLUDED, "A pattern matches it."), listed=0) == [
        ("excluded", "")
    ]


# The verdict


def verdict(causes: Iterable[NotCopied], *, left_out: int) -> FlowVerdict:
    safety = FlowSafety(NOW_MS - 400, "bills-0", "", left_out)
    topics = [("orders", 4, tuple(causes)), ("bills", 2, ())]
    return verdict_of(VerdictFacts(A_TO_B, NOW_MS, True, "", "", True, safety, 7, False, topics, 0, (), None))


@pytest.mark.parametrize("pauses", [(paused(),), (paused(partition=2),)])
def test_a_flow_with_a_paused_topic_or_partition_is_not_safe_and_names_it(pauses: tuple[TopicPause, ...]) -> None:
    assert verdict((), left_out=0).readiness is Readiness.SAFE
    found = verdict(why_not_copied(replace(COPIED, pauses=pauses)), left_out=4)
    assert found.readiness is Readiness.INCOMPLETE
    assert [(one.topic, one.reason) for one in found.left_out] == [("orders", "paused")]
    assert "not safe to fail over" in found.text
    assert "(paused)" in found.text
    assert found.safe_at_ms == NOW_MS - 400, "of the rest"


def test_if_workers_leave_partitions_out_that_nobody_names_it_is_not_known_whether_it_is_safe() -> None:
    """An operator has resumed a topic, and its worker has not gone on yet."""
    assert verdict((), left_out=1).readiness is Readiness.UNKNOWN


# The report


def reported(*pauses: TopicPause, **facts: Any) -> Report:
    settings = flow_of(file_of({}), "A->B")
    flow = FlowFacts(settings, selected={"orders": 4, "bills": 2}, pauses=Pauses.of(pauses), **facts)
    return report_of(Facts(NOW_MS, {}, [], [flow], {}))


def test_the_report_has_each_pause_with_who_when_why_and_the_command_that_resumes_it() -> None:
    report = reported(paused(partition=3), paused("bills"))
    bills, orders = report.flows[0].paused
    assert (bills.name, bills.partition, bills.user, bills.reason, bills.at_ms) == (
        "bills",
        None,
        "ann",
        "ticket 4711",
        PAUSED_AT_MS,
    )
    assert bills.text.startswith("paused since 2025-11-24T")
    assert "by ann on ops1 (mm2py pause): ticket 4711. " in bills.text
    assert bills.text.endswith("mm2py resume FILE 'A->B' --topic bills")
    assert orders.name == "orders-3"
    assert orders.text.endswith("mm2py resume FILE 'A->B' --partition orders/3")


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (("orders", None), ""),
        (("orders", 3), ""),
        (("orders", 4), "A has 4 partitions of orders, numbered from 0."),
        (("oders", None), "A->B copies no topic oders. Do you mean orders?"),
        (
            ("zzz", 0),
            "A->B copies no topic zzz. A shows no topic of this name: it does not exist, or DESCRIBE is missing.",
        ),
        (("drafts", None), "A->B does not copy drafts: Pattern"),
    ],
)
def test_a_name_that_the_flow_does_not_copy_cannot_be_paused(part: tuple[str, int | None], why: str) -> None:
    report = reported(left_out={"drafts": WhyNot.EXCLUDED})
    settings = flow_of(file_of({"A->B.topics.exclude": "drafts"}), "A->B")
    facts = FlowFacts(settings, selected={"orders": 4, "bills": 2}, left_out={"drafts": WhyNot.EXCLUDED})
    found = why_not_pausable(facts, report.flows[0], part)
    assert found.startswith(why) and bool(found) is bool(why)
