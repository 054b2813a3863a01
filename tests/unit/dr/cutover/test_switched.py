"""What ``mm2py dr complete`` wants to see: everything up to the fenced ends is compared, and equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mm2py.backfill.verifying.planning import NotCompared, VerifyFacts, Why, plan_partition
from mm2py.backfill.verifying.results import PartitionResult, RangeResult, Verification
from mm2py.backfill.verifying.verification import is_behind
from mm2py.dr.cutover.switched import not_clean, switched_ranges
from mm2py.dr.journal import JournalEntry, StepTold, next_entry
from mm2py.dr.states import RecoveryEvent, RecoveryFacts
from mm2py.flow import ClusterAlias, Flow
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import NumberedLedger
from mm2py.offsets.runs import Entry, Run

E = RecoveryEvent
FLOW = Flow(ClusterAlias("A"), ClusterAlias("B"))
ENDS = {("orders", 0): 10}


def result(*entries: Entry, source_end: int, target_end: int, problem: str = "") -> PartitionResult:
    """Return the result of a partition whose compared ranges are all equal."""
    ledger = Ledger(0, 0, is_whole=True)
    for entry in entries:
        ledger.append(entry)
    facts = VerifyFacts("orders", 0, "orders", [NumberedLedger(1, ledger)], (0, source_end), (0, target_end))
    plan = plan_partition(facts)
    found = [
        RangeResult(0, *one.source[:1], one.target[0], 10, 0, 0, b"", b"", b"", b"", b"", -1, problem)
        for one in plan.ranges
    ]
    return PartitionResult(plan, found)


def verification(*partitions: PartitionResult, left_out: Sequence[NotCompared] = ()) -> Verification:
    return Verification(("A", "B"), partitions, left_out, (), 0, 1.0)


def journal(*events: E) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    for event in events:
        facts: dict[str, Any] = {}
        if event in (E.FENCE_HOLDS, E.SWITCH_CONFIRMED):
            facts = {"source_ends": {"orders-0": 10}}
        if event is E.ALL_COPIED:
            facts = {"copied_to": {"orders-0": 10}}
        told = StepTold(1, len(entries), f"m{len(entries)}", topics=("orders", "new"))
        entries.append(next_entry(entries, event, FLOW, told, RecoveryFacts(**facts))[0])
    return entries


REVERSED = journal(
    *(E.CUTOVER_ASKED, E.FENCE_SET, E.FENCE_HOLDS, E.ALL_COPIED, E.GROUPS_EXACT),
    *(E.SWITCH_CONFIRMED, E.HOOK_DONE, E.FLOW_REVERSED, E.PRODUCERS_FREE),
)


def test_what_is_compared_are_the_fenced_ends_of_the_run_that_stands() -> None:
    found = switched_ranges(REVERSED, FLOW)
    assert found is not None
    assert (found.run, found.topics, found.ends) == (REVERSED[0].run, ("orders",), ENDS)


def test_a_run_that_is_not_reversed_or_leads_the_other_way_has_nothing_to_complete() -> None:
    assert switched_ranges([], FLOW) is None
    assert switched_ranges(REVERSED[:-2], FLOW) is None
    assert switched_ranges(REVERSED, Flow(ClusterAlias("B"), ClusterAlias("A"))) is None
    undone = journal(*(one.event for one in REVERSED), E.UNDO_ASKED)
    assert switched_ranges(undone, FLOW) is None


def test_everything_up_to_the_fenced_ends_is_equal() -> None:
    assert not_clean(verification(result(Run(0, 0, 10), source_end=10, target_end=10)), ENDS) == []


def test_what_clients_and_the_flow_back_have_written_behind_the_ends_is_no_copy() -> None:
    found = result(Run(0, 0, 10), source_end=17, target_end=15)
    assert is_behind(found.plan, ENDS), "records behind the switch would be called foreign"
    found.plan.note(Why.BEHIND_LEDGER, (10, 15), is_target=True)
    assert not_clean(verification(found), ENDS) == []


def test_what_an_earlier_run_has_switched_the_other_way_is_no_reason() -> None:
    found = result(Run(0, 0, 10), source_end=10, target_end=10)
    found.plan.not_compared.append(NotCompared(Why.NOT_IN_LEDGER, "orders", 0, 0, 7, 7))
    assert len(not_clean(verification(found), ENDS)) == 1
    found.plan.not_compared[-1] = replace(found.plan.not_compared[-1], why=Why.RETURNED)
    assert not_clean(verification(found), ENDS) == []


def test_a_record_in_the_range_that_was_not_compared_is_named() -> None:
    short = result(Run(0, 0, 9), source_end=10, target_end=10)
    assert not is_behind(short.plan, ENDS)
    assert not_clean(verification(short), ENDS) == ["1 offset(s) of orders-0 were not compared: not copied yet"]
    short.plan.note(Why.BEHIND_LEDGER, (9, 10), is_target=True)
    assert len(not_clean(verification(short), ENDS)) == 2


def test_a_difference_a_problem_and_a_partition_that_is_missing_are_named() -> None:
    good = result(Run(0, 0, 10), source_end=10, target_end=10)
    good.differing = 1
    assert not_clean(verification(good), ENDS) == ["orders-0 differs"]
    unread = result(Run(0, 0, 10), source_end=10, target_end=10, problem="a leader is silent")
    assert not_clean(verification(unread), ENDS) == ["orders-0 [0, 10] was not compared: a leader is silent"]
    assert not_clean(verification(), ENDS) == ["orders-0 was not looked at"]
    gone = NotCompared(Why.UNREADABLE, "orders", 0, 0, 1, 1)
    assert not_clean(verification(left_out=[gone]), ENDS) == ["1 offset(s) of orders-0 were not compared: no answer"]


def test_what_both_logs_have_deleted_and_what_is_known_to_be_lost_is_no_reason() -> None:
    found = result(Run(0, 0, 10), source_end=10, target_end=10)
    for why in (Why.EXPIRED, Why.BEFORE_COPYING, Why.GAP, Why.QUARANTINE):
        found.plan.not_compared.append(NotCompared(why, "orders", 0, 2, 3, 1))
    assert not_clean(verification(found), ENDS) == []
    found.plan.not_compared.append(replace(found.plan.not_compared[0], why=Why.COUNTED))
    assert len(not_clean(verification(found), ENDS)) == 1
