"""A verification that is interrupted says what it has compared, and does not claim more."""

from __future__ import annotations

from dataclasses import replace

from mm2py.backfill.verifying.local.so_far import SHOWN_MOST, lines_so_far
from mm2py.backfill.verifying.planning import PartitionPlan, VerifyFacts, numbered
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.backfill.verifying.results import RangeResult, failed
from mm2py.offsets.runs import Run

FLOW = ("A", "B")


def plan(topic: str, *, is_compacted: bool = False) -> PartitionPlan:
    """Return a partition with three ranges of ten records."""
    facts = VerifyFacts(topic, 0, f"A.{topic}", (), (0, 30), (0, 30), is_compacted=is_compacted)
    whole = ComparedRange(0, topic, 0, f"A.{topic}", (0, 30), (0, 30), (Run(0, 0, 30),), is_compacted=is_compacted)
    return PartitionPlan(facts, [whole.cut(at, at + 10) for at in range(0, 30, 10)])


def equal(compared: ComparedRange) -> RangeResult:
    return failed(compared, "")._replace(records=10)


def test_what_was_compared_is_named_with_differences_first() -> None:
    plans = [plan("t"), plan("u"), plan("v")]
    ranges = numbered(plans)
    results = {one.number: equal(one) for one in (*ranges[:2], *ranges[3:5])}
    results[4] = results[4]._replace(target_root=b"other")
    results[5] = failed(ranges[5], "its leader is away")
    assert lines_so_far(FLOW, plans, results, 72.4) == [
        "interrupted after 1 min 12 s: compared 5 of 9 ranges, 40 records. There is no certificate.",
        "A/u/0 [10, 20) different",
        "A/u/0 [20, 30) its leader is away",
        "A/t/0 [0, 20) equal",
        "A/u/0 [0, 10) equal",
    ]


def test_before_the_ranges_are_known_nothing_was_compared() -> None:
    assert lines_so_far(FLOW, [], {}, 1) == ["interrupted after 1 s: nothing was compared yet."]


def test_a_compacted_partition_is_not_called_equal_before_its_keys_were_compared() -> None:
    plans = [plan("t", is_compacted=True)]
    ranges = numbered(plans)
    assert lines_so_far(FLOW, plans, {one.number: equal(one) for one in ranges}, 1)[1:] == [
        "1 compacted partition(s) are judged only at the end, so not yet."
    ]


def test_of_many_stretches_the_rest_is_counted() -> None:
    plans = [replace_topic(plan("t"), f"t{number:03}") for number in range(SHOWN_MOST + 3)]
    results = {one.number: equal(one) for one in numbered(plans)}
    first, *lines, more = lines_so_far(FLOW, plans, results, 1)
    assert first.startswith("interrupted after 1 s: compared 129 of 129 ranges")
    assert (len(lines), lines[-1], more) == (SHOWN_MOST, "A/t039/0 [0, 30) equal", "and 3 more stretches")


def replace_topic(of: PartitionPlan, topic: str) -> PartitionPlan:
    return PartitionPlan(replace(of.facts, topic=topic), [replace(one, topic=topic) for one in of.ranges])
