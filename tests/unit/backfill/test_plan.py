"""The plan of a backfill: every partition in one task, honest sizes, and what retention may delete."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from mm2py.backfill.pipeline.expressions import Expressions
from mm2py.backfill.plan import TASKS_A_SLOT, TASKS_MOST, BackfillFacts, BackfillPlan, make_plan, retention_warned_of
from mm2py.cli.backfill_printout import plan_text
from mm2py.moments import duration_text
from mm2py.records.backfill_record import Range

TB = 10**12


def planned(*partitions: BackfillFacts, slots: int = 2, rate: int | None = None) -> BackfillPlan:
    return make_plan(
        partitions,
        slots=slots,
        missing_topics=["A.orders"],
        bytes_per_second_max=None if rate is None else rate * 10**6,
        memory_bytes_a_task=96 << 20,
    )


def part(number: int, *, first: int = 0, seam: int = 100, size: int | None = 1_000, **more: int) -> BackfillFacts:
    return BackfillFacts("orders", number, 0, 100, first, seam, size, **more)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.integers(1, 8))
def test_each_partition_is_in_exactly_one_task(sizes: list[int], slots: int) -> None:
    plan = planned(*(part(number, size=size) for number, size in enumerate(sizes)), slots=slots)
    assert sorted(key for task in plan.tasks for key in task) == [("orders", number) for number in range(len(sizes))]
    assert 1 <= len(plan.tasks) <= min(len(sizes), slots * TASKS_A_SLOT)


def test_on_a_cluster_each_partition_has_a_task_up_to_a_bound() -> None:
    facts = [BackfillFacts("t", number, 0, 100, 0, 100, 1_000) for number in range(TASKS_MOST + 100)]
    make = {"missing_topics": [], "bytes_per_second_max": None, "memory_bytes_a_task": 1}
    assert len(make_plan(facts[:30], slots=None, **make).tasks) == 30
    assert len(make_plan(facts, slots=None, **make).tasks) == TASKS_MOST


def test_large_partitions_are_spread_before_small_ones() -> None:
    plan = planned(*(part(number, size=size) for number, size in enumerate([900, 1, 1, 1, 890])), slots=1)
    first, second = plan.tasks
    assert len({0, 4} & {number for _, number in first}) == len({0, 4} & {number for _, number in second}) == 1


def test_bytes_are_the_part_of_the_log_that_is_copied() -> None:
    assert part(0, first=25, seam=75).bytes == 500
    assert part(0, first=100, seam=100).bytes == 0
    assert part(0, size=None).bytes is None
    plan = planned(part(0), part(1, size=None))
    assert (plan.bytes, plan.seconds) == (None, None)
    assert "unknown number of bytes" in plan_text(plan, "A->B", Expressions(), as_json=False)


def test_time_follows_the_limit_where_there_is_one() -> None:
    assert planned(part(0, size=600 * 10**6), rate=10).seconds == 60
    assert planned(part(0, size=600 * 10**6)).seconds == 10


def test_what_retention_may_delete_is_told_once_a_topic() -> None:
    plan = planned(part(0, expires_before=40), part(1, expires_before=200), part(2))
    (warning,) = plan.warnings
    assert "140 offsets of orders" in warning
    assert "Raise retention.ms" in warning
    assert not planned(part(0, first=50, expires_before=40)).warnings


def test_a_log_without_later_records_may_expire_as_a_whole() -> None:
    assert retention_warned_of({("t", 0): 70, ("t", 1): 9}, {("t", 0): -1, ("t", 1): 3}) == {("t", 0): 70, ("t", 1): 3}


def test_the_ranges_are_those_of_the_partitions() -> None:
    assert planned(part(3, first=5, seam=9)).ranges() == {"orders": {3: Range(5, 9)}}


def test_a_filtered_backfill_has_a_task_for_each_partition() -> None:
    facts = [BackfillFacts("t", number, 0, 100, 0, 100) for number in (2, 0, 1)]
    plan = make_plan(
        facts, slots=1, missing_topics=[], bytes_per_second_max=None, memory_bytes_a_task=1, is_filtered=True
    )
    assert plan.tasks == ((("t", 0),), (("t", 1),), (("t", 2),))


def test_a_plan_of_a_hundred_terabytes_takes_no_five_seconds() -> None:
    """Made-up sizes: 20,000 partitions of 5 GB. CPU time counts, as others use the machine."""
    facts = [BackfillFacts(f"t{n // 100}", n % 100, 0, 5 * 10**6, 0, 5 * 10**6, 5 * 10**9) for n in range(20_000)]
    begun_s = time.process_time()
    plan = planned(*facts, slots=64)
    text = plan_text(plan, "A->B", Expressions(), as_json=False)
    assert time.process_time() - begun_s < 5
    assert plan.bytes == 100 * TB
    assert len(plan.tasks) == 128
    assert "100,000,000 MB, about 7 h 14 min" in text
    assert "and 19960 more" in text


def test_durations_are_told_in_two_units() -> None:
    assert [duration_text(s) for s in (5, 65, 3_700, 90_000)] == ["5 s", "1 min 5 s", "1 h 1 min", "1 d 1 h"]
