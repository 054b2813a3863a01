"""What is compared of a partition, and what is named instead: expired, gaps, quarantine, what the ledger lacks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mm2py.backfill.verifying import merkle, ranges
from mm2py.backfill.verifying.finding import Difference, DifferenceKind
from mm2py.backfill.verifying.planning import (
    PartitionPlan,
    VerifyFacts,
    Why,
    numbered,
    plan_partition,
    sampled,
    uncovered,
)
from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange
from mm2py.backfill.verifying.results import PartitionResult, RangeResult, Verification, body, table
from mm2py.backfill.verifying.returned import Returned, returned_by
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import NumberedLedger
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.records.gap_record import Done, Gap, GapKind


def ledger(*entries: Entry, start: tuple[int, int] = (0, 0), whole: bool = True, number: int = 1) -> NumberedLedger:
    found = Ledger(*start, is_whole=whole)
    for entry in entries:
        found.append(entry)
    return NumberedLedger(number, found)


def plan(
    ledgers: Sequence[NumberedLedger], source: tuple[int, int], target: tuple[int, int], **more: Any
) -> PartitionPlan:
    return plan_partition(VerifyFacts("t", 0, "A.t", ledgers, source, target, **more))


def left_out(found: PartitionPlan) -> list[tuple[str, int, int]]:
    return [(str(one.why), one.start, one.end) for one in found.not_compared]


def gap(first: int, last: int) -> Gap:
    return Gap(GapKind.EXPIRED, "t", 0, first, last, Done.CONTINUED, first, "", 1)


def test_what_either_log_has_deleted_is_named_and_not_compared() -> None:
    found = plan([ledger(Run(0, 0, 50), Run(60, 50, 40))], (20, 100), (55, 90))
    (one,) = found.ranges
    assert (one.source, one.target, one.runs) == ((65, 100), (55, 90), (Run(65, 55, 35),))
    assert left_out(found) == [("expired", 0, 65)]


def test_what_the_flow_back_has_brought_is_no_difference_and_everything_else_is_compared() -> None:
    # A->B copied 0 to 10, B->A brought 5 records of B, A->B copied on, B->A brings 3 more.
    ours = ledger(Run(0, 0, 10), Hole(10, 10, 5, 0, HoleCause.GAP), Run(15, 15, 20))
    back = Ledger(10, 10, is_whole=True)
    for entry in (Run(10, 10, 5), Hole(15, 15, 20, 0, HoleCause.GAP), Run(35, 35, 3)):
        back.append(entry)
    returned = returned_by([back])
    assert returned == Returned(((10, 15), (35, 38)), ((10, 15), (35, 38)))
    found = plan([ours], (0, 38), (0, 38), returned=returned)
    (one,) = found.ranges
    assert (one.source, one.target, one.source_left_out, one.target_left_out) == (
        (0, 35),
        (0, 35),
        ((10, 15),),
        ((10, 15),),
    )
    assert left_out(found) == [("brought by the flow back", 10, 15), ("not copied yet", 35, 38)]
    alone = plan([ours], (0, 38), (0, 38))
    assert left_out(alone)[0] == ("gap", 10, 15)
    assert alone.ranges[0].target_left_out == (), "a record of somebody else in the middle is a difference"


def test_a_ledger_that_begins_behind_what_the_flow_back_brought_lacks_nothing() -> None:
    back = Ledger(0, 0, is_whole=True)
    back.append(Run(0, 0, 10))
    ours = ledger(Run(10, 10, 5), start=(10, 10), whole=False)
    known = plan([ours], (0, 15), (0, 15), returned=returned_by([back]))
    assert {why for why, _, _ in left_out(known)} == {"brought by the flow back"}
    short = Ledger(0, 0, is_whole=True)
    short.append(Run(0, 0, 9))
    assert {why for why, _, _ in left_out(plan([ours], (0, 15), (0, 15), returned=returned_by([short])))} == {
        "not in the ledger"
    }


def test_what_a_filtered_backfill_has_copied_is_named_and_the_rest_compared() -> None:
    of = ledger(Run(0, 0, 10), Run(15, 10, 5), Run(40, 15, 60))
    found = plan([of], (0, 100), (0, 75), filtered=[(10, 30), (20, 40)])
    assert [(one.source, one.target, one.runs) for one in found.ranges] == [
        ((0, 10), (0, 10), (Run(0, 0, 10),)),
        ((40, 100), (15, 75), (Run(40, 15, 60),)),
    ]
    assert left_out(found) == [("filtered", 10, 40)]
    compacted = plan([of], (0, 120), (0, 75), filtered=[(10, 30)], is_compacted=True)
    assert (compacted.ranges, left_out(compacted)[0]) == ([], ("filtered", 0, 100))


def test_holes_gaps_and_quarantine_are_named_and_a_record_without_a_reason_stays() -> None:
    noted = ledger(
        Run(0, 0, 10),
        Hole(10, 10, 5, 0, HoleCause.GAP),
        Hole(15, 10, 1, 0, HoleCause.QUARANTINED),
        Run(20, 10, 5),
        Run(30, 15, 5),
    )
    found = plan([noted], (0, 35), (0, 20), gaps=[gap(16, 17)], quarantined={18, 3})
    assert left_out(found) == [("gap", 10, 15), ("quarantine", 15, 16), ("gap", 16, 18), ("quarantine", 18, 19)]
    (one,) = found.ranges
    assert one.source_left_out == ((10, 19),)
    assert uncovered(one, (0, 35)) == [(19, 20), (25, 30)]


def test_what_was_copied_before_the_ledger_is_not_compared_on_either_side() -> None:
    found = plan([ledger(Run(50, 40, 10), start=(50, 40), whole=False)], (0, 60), (0, 50))
    assert left_out(found) == [("not in the ledger", 0, 50), ("not in the ledger", 0, 40)]
    assert [one.is_target for one in found.not_compared] == [False, True]
    found = plan([ledger(Run(50, 3, 10), start=(50, 3))], (0, 60), (0, 13))
    assert left_out(found) == [("before the copying began", 0, 50)]
    assert found.ranges[0].target == (0, 13)  # what stood there before is foreign


def test_a_partition_without_a_ledger_is_unknown_unless_it_is_empty() -> None:
    """The exit code was 0 although nothing of it had been compared."""
    found = plan([], (0, 60), (0, 50))
    assert left_out(found) == [("not in the ledger", 0, 60), ("not in the ledger", 0, 50)]
    assert found.is_unknown
    told = Verification(("A", "B"), [PartitionResult(found, [])], [], [], 0, 0.0)
    assert told.has_problems
    assert body(told, 1)["partitions"][0]["result"] == "not compared"
    assert "the first is A/t/0" in table(told)
    assert "Run mm2py rebuild-ledger FILE 'A->B'" in table(told)
    assert not plan([], (0, 0), (0, 0)).is_unknown
    assert not plan([ledger(Run(50, 40, 10), start=(50, 40), whole=False)], (0, 60), (0, 50)).is_unknown


def compared(found: PartitionPlan, records: int, problem: str = "") -> PartitionResult:
    alike = merkle.root([b"one"])
    results = [
        RangeResult(one.number, one.source[0], one.target[0], records, 0, 0, alike, alike, b"", b"", b"", -1, problem)
        for one in found.ranges
    ]
    return PartitionResult(found, results)


def test_the_last_line_of_the_table_says_whether_the_copy_is_right() -> None:
    """An operator read ``equal`` in each row above a record of another client, and looked for the verdict."""

    def last_line(*partitions: PartitionResult) -> str:
        return table(Verification(("A", "B"), partitions, [], [], 0, 0.0)).splitlines()[-1]

    of = ledger(Run(0, 0, 10))
    assert last_line() == "Nothing was compared."
    assert (
        last_line(compared(plan([of], (0, 10), (0, 10)), 10)) == "No difference: 10 records of 1 partition are equal."
    )
    behind = compared(plan([of], (0, 15), (0, 10)), 10)
    assert last_line(behind, behind) == (
        "No difference: 20 records of 2 partitions are equal. 10 offsets were not compared, for the reasons above."
    )
    foreign = compared(plan([of], (0, 10), (0, 11)), 10)
    foreign.difference = Difference(DifferenceKind.FOREIGN, "t", 0, "A.t", 10, 10, None, None)
    assert last_line(behind, foreign) == "DIFFERENT: 1 of 2 partitions, the first is A/t/0."
    assert "A/t/0: foreign, at source offset 10, target offset 10: another client wrote it" in table(
        Verification(("A", "B"), [foreign], [], [], 0, 0.0)
    )
    unread = compared(plan([of], (0, 10), (0, 10)), 0, "A does not answer")
    assert last_line(unread) == "NOT KNOWN: not all could be read, see above. 0 records of 1 partition are equal."


def test_what_is_not_copied_yet_and_what_the_ledger_lacks_yet_is_named() -> None:
    found = plan([ledger(Run(0, 0, 10))], (0, 15), (0, 12))
    assert left_out(found) == [("not copied yet", 10, 15)]
    assert (found.tail, found.tail_source) == ((10, 12), 10)


def test_a_remote_partition_that_has_lost_its_end_is_compared_to_where_the_records_should_be() -> None:
    found = plan([ledger(Run(0, 0, 10))], (0, 10), (0, 8), log_ends=(10, 8))
    (one,) = found.ranges
    assert (one.source, one.target, one.record_count) == ((0, 10), (0, 8), 10)
    assert left_out(plan([ledger(Run(0, 0, 10))], (0, 7), (0, 10), log_ends=(7, 10))) == [("cut back", 7, 10)]


def test_a_position_that_was_set_back_is_two_ledgers_and_both_copies_are_compared() -> None:
    first, second = ledger(Run(0, 0, 100)), ledger(Run(50, 101, 60), start=(50, 101), whole=False, number=2)
    found = plan([first, second], (0, 110), (0, 161))
    assert [(one.source, one.target) for one in found.ranges] == [((0, 100), (0, 101)), ((50, 110), (101, 161))]
    assert left_out(found) == []


def test_only_what_is_new_enough_is_compared() -> None:
    found = plan([ledger(Run(0, 0, 100))], (0, 100), (0, 100), since=70)
    assert [(one.source, one.target) for one in found.ranges] == [((70, 100), (70, 100))]
    assert left_out(found) == [("older than --since", 0, 70)]
    assert plan([ledger(Run(0, 0, 100))], (0, 100), (0, 100), since=100).ranges == []


def test_a_long_partition_is_cut_at_the_borders_of_leaves() -> None:
    end = 10 * LEAF_OFFSETS + 7
    found = plan([ledger(Run(3, 0, end - 3), start=(3, 0))], (3, end), (0, end - 3), bytes_per_offset=64 << 20)
    assert [one.source[1] for one in found.ranges] == [*range(LEAF_OFFSETS, end, LEAF_OFFSETS), end]
    assert sum(one.record_count for one in found.ranges) == end - 3


def test_a_sample_names_what_it_leaves_out_and_is_the_same_for_the_same_seed() -> None:
    end = 100 * LEAF_OFFSETS
    chosen = []
    for seed in (7, 7, 8):
        plans = [plan([ledger(Run(0, 0, end))], (0, end), (0, end), bytes_per_offset=64 << 20)]
        sampled(plans, 10, seed)
        chosen.append([one.source for one in plans[0].ranges])
        assert len(plans[0].ranges) == 10
        assert sum(one.count for one in plans[0].not_compared if one.why is Why.SAMPLE) == 90 * LEAF_OFFSETS
    assert chosen[0] == chosen[1] != chosen[2]


def test_behind_a_compacted_partition_keys_are_only_looked_up() -> None:
    plans = [plan([ledger(Run(0, 0, 10))], (0, 15), (0, 12), is_compacted=True)]
    numbered(plans)
    assert [(one.number, one.is_later, one.source, one.target) for one in plans[0].ranges] == [
        (0, False, (0, 10), (0, 10)),
        (1, True, (10, 15), (10, 12)),
    ]


@given(st.data())
def test_parts_of_a_range_have_all_its_offsets_once_and_places_rise(data: st.DataObject) -> None:
    runs = []
    source = target = 0
    for _ in range(data.draw(st.integers(0, 5))):
        source, target = source + data.draw(st.integers(0, 3)), target + data.draw(st.integers(0, 3))
        count = data.draw(st.integers(1, 5))
        runs.append(Run(source, target, count))
        source, target = source + count, target + count
    end = (source + data.draw(st.integers(1, 3)), target + data.draw(st.integers(0, 3)))
    whole = ComparedRange(4, "t", 1, "A.t", (0, end[0]), (0, end[1]), tuple(runs))
    assert ranges.decoded(whole.encoded()) == whole
    places = [whole.place_of_target(offset) for offset in range(end[1])]
    assert places == sorted(places)
    cuts = sorted({0, end[0], *data.draw(st.lists(st.integers(0, end[0]), max_size=4))})
    parts = [whole.cut(start, stop) for start, stop in pairwise(cuts)]
    assert [one.target[0] for one in parts[1:]] == [one.target[1] for one in parts[:-1]]
    assert (parts[0].target[0], parts[-1].target[1]) == whole.target
    for part in parts:
        for offset in range(*part.target):
            assert part.place_of_target(offset) == max(whole.place_of_target(offset), 2 * part.source[0] - 1)
    assert sum(one.record_count for one in parts) == whole.record_count


def test_offsets_before_the_last_ones_are_left_out_when_only_these_are_wanted() -> None:
    found = plan([ledger(Run(0, 0, 10))], (0, 10), (0, 10), since=7, is_last_wanted=True)
    assert left_out(found) == [("before the last records, which were wanted", 0, 7)]
    assert [(one.source, one.target) for one in found.ranges] == [((7, 10), (7, 10))]
