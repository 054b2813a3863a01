"""What would be lost if the source were lost now: one sentence of what is not copied and of what is behind."""

from __future__ import annotations

import pytest

from mm2py.flow import ClusterAlias
from mm2py.status.loss import UncopiedRecords, loss_text, rest_of, uncopied_of
from mm2py.status.not_copied import NotCopied, Reason, not_copied
from mm2py.status.report import report_of
from mm2py.status.verdict import Readiness
from tests.fakes.v1_services import facts_of, flow_facts

WEST = ClusterAlias("west-1")
PAUSED = UncopiedRecords("orders", "paused", "", 1200)
STOPPED = UncopiedRecords("payments", "stopped", "3", None)


def said(
    *uncopied: UncopiedRecords,
    rest: int | None = 30,
    is_partial: bool = False,
    behind_s: float | None = 0.4,
    as_of_ms: int | None = None,
) -> str:
    return loss_text(WEST, uncopied, rest, is_partial=is_partial, behind_s=behind_s, as_of_ms=as_of_ms)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (said(PAUSED), "1,200 records of orders (paused) + 30 records of the rest, the last 0.4 s"),
        (said(), "30 records, the last 0.4 s"),
        (said(rest=1, behind_s=500), "1 record, the last 500 s"),
        (said(rest=0), "nothing that was there 0.4 s ago"),
        (said(PAUSED, rest=0), "1,200 records of orders (paused) + nothing of the rest that was there 0.4 s ago"),
        (said(rest=30, behind_s=None), "30 records"),
        (said(rest=0, behind_s=None), "nothing that is known"),
        (said(rest=30, is_partial=True), "at least 30 records, the last 0.4 s"),
        (said(rest=0, is_partial=True), "an unknown number of records"),
        (said(rest=None), "an unknown number of records"),
        (
            said(STOPPED, PAUSED, rest=0, behind_s=None),
            "1,200 records of orders (paused) + an unknown number of records of payments/3 (stopped) + nothing of the"
            " rest that is known",
        ),
    ],
)
def test_what_is_not_copied_and_what_is_behind_are_told_as_one_sum(text: str, wanted: str) -> None:
    assert text == f"If west-1 were lost now: {wanted}."


def test_a_source_that_is_silent_is_told_as_of_before() -> None:
    text = said(PAUSED, as_of_ms=1_764_000_000_000)
    assert text.startswith("If west-1 stays lost: 1,200 records of orders (paused) + ")
    assert text.endswith(", as known at 2025-11-24T16:00:00Z, and all that came to it since.")


def test_the_topics_that_lose_the_most_are_named_and_the_others_counted() -> None:
    many = [UncopiedRecords(f"t{number}", "refused", "", number) for number in range(6)]
    assert said(*many, rest=0) == (
        "If west-1 were lost now: 5 records of t5 (refused) + 4 records of t4 (refused) + 3 records of t3 (refused)"
        " + 3 records of 2 more topics + nothing of the rest that was there 0.4 s ago."
    )
    unknown = UncopiedRecords("late", "new", "", None)
    assert "at least 3 records of 3 more topics" in said(*many, unknown)


def test_a_partition_counts_once() -> None:
    """Two reasons name partition 1; its records are neither counted twice nor in the rest."""
    facts = flow_facts()
    reasons: list[NotCopied] = [
        not_copied(Reason.STOPPED, "a gap", partitions="1"),
        not_copied(Reason.PAUSED, "by ann", partitions="1"),
    ]
    whole = [not_copied(Reason.REFUSED, "it has other records")]
    left_out = [not_copied(Reason.EXCLUDED, "a pattern matches it")]
    orders, narrow = uncopied_of(
        facts,
        [("orders", 2, 30, reasons), ("narrow", 3, 8, whole), ("tmp", 1, None, left_out), ("payments", 1, 10, ())],
    )
    assert (orders.partitions, orders.reason) == ("1", "stopped")
    key = ("orders", 1)
    assert orders.records == facts.ends[key] - facts.positions[key].next_source
    assert (narrow.topic, narrow.partitions, narrow.records) == ("narrow", "", 8)
    assert rest_of(48, [orders, narrow]) == 48 - (orders.records or 0) - 8
    assert rest_of(None, [orders]) is None


def test_the_numbers_of_the_sentence_add_up_to_the_lag_of_the_flow() -> None:
    flow = report_of(facts_of(flow_facts())).flows[0]
    assert flow.verdict.readiness is Readiness.INCOMPLETE
    assert flow.lag == 50
    assert "10 records of orders/1 (stopped) + 8 records of narrow (refused)" in flow.loss
    assert "at least 30 records of the rest" in flow.loss
