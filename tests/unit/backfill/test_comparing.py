"""The two sides of a range compared: digests differ if and only if the records do, whatever the batches are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.backfill.verifying import merkle, ranges
from mm2py.backfill.verifying.comparing import RangeComparison
from mm2py.backfill.verifying.finding import DifferenceKind, first_difference, placed_records, side_by_side
from mm2py.backfill.verifying.places import SOURCE, TARGET
from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange
from mm2py.backfill.verifying.records import placed
from mm2py.copying.planning.steps import MERGE_ALL, PASS_ALL, SMALL_BYTES, MergeRule, Outgoing
from mm2py.records.batch import NewRecord, assemble
from mm2py.records.varints import CorruptBatch, varint
from tests.unit.backfill.logs import Content, batches, runs_of, steps_of

MERGE_SINGLES = MergeRule(SMALL_BYTES, 0, "small batches of one record", 1)


class Logs(NamedTuple):
    compared: ComparedRange
    source: bytearray
    target: bytearray


def record(number: int, value: str = "") -> NewRecord:
    headers = [("h", b"1"), ("n", None)] if number % 5 == 0 else []
    return NewRecord(None if number % 3 == 0 else b"k%d" % number, (value or f"v{number}").encode(), number, headers)


def compare(
    logs: Logs, *, at_once: Sequence[int] = (1000, 1000), merging: Sequence[MergeRule] = (PASS_ALL, PASS_ALL)
) -> RangeComparison:
    """Compare two logs that come so many steps at once."""
    found = RangeComparison(logs.compared)
    starts = (logs.compared.source[0], logs.compared.target[0])
    ends = (logs.compared.source[1], logs.compared.target[1])
    left = [steps_of(log, start, rule) for log, start, rule in zip(logs[1:], starts, merging, strict=True)]
    while sides := found.wanted():
        for side in sides:
            taken, left[side] = left[side][: at_once[side]], left[side][at_once[side] :]
            found.take(side, taken, taken[-1].next_offset if left[side] else ends[side])
    return found


def logs_of(
    source: Sequence[Content],
    target: Sequence[Content],
    pairs: Sequence[tuple[int, int]],
    sizes: Sequence[Sequence[int]] = ((7,) * 99, (7,) * 99),
    *,
    codec: int = 0,
) -> Logs:
    compared = ComparedRange(0, "t", 0, "A.t", (0, len(source)), (0, len(target)), runs_of(pairs))
    return Logs(compared, batches(0, source, sizes[0]), batches(0, target, sizes[1], codec=codec))


def is_equal(found: RangeComparison) -> bool:
    return merkle.root([leaf.source for leaf in found.leaves]) == merkle.root([leaf.target for leaf in found.leaves])


def test_small_batches_that_are_decoded_at_once_stay_apart_where_a_run_ends() -> None:
    """Single records on the source, with markers between runs and a header key that is no text."""
    records = [record(number) for number in range(60)]
    records[20] = records[20]._replace(headers=[("\udcff", b"1")])
    source = [*records[:30], None, *records[30:]]
    target = [*records[:10], None, *records[10:]]
    pairs = [(at + (at >= 30), at + (at >= 10)) for at in range(60)]
    logs = logs_of(source, target, pairs, ([1] * 60, [10, 40, 10]))
    found = compare(logs)
    assert is_equal(found)
    assert (found.passed_records, found.decoded_records) == (0, 60)
    records[45] = record(45, "other")
    assert not is_equal(compare(logs_of(source, [*records[:10], None, *records[10:]], pairs, ([1] * 60, [10, 40, 10]))))


def test_batches_are_passed_again_behind_some_that_were_repacked() -> None:
    records = [record(number) for number in range(100)]
    found = compare(logs_of(records, records, [(at, at) for at in range(100)], ([1] * 10 + [30] * 3, [10, 30, 30, 30])))
    assert is_equal(found)
    assert (found.passed_records, found.decoded_records) == (90, 10)


def leaf_numbers(found: RangeComparison) -> list[int]:
    return [leaf.number for leaf in found.leaves]


def test_the_leaf_that_differs_is_found_in_a_long_range() -> None:
    count = 3 * LEAF_OFFSETS
    records = [NewRecord(None, b"%d" % number, 1) for number in range(count)]
    changed = [*records]
    changed[LEAF_OFFSETS + 5] = NewRecord(None, b"other", 1)
    pairs = [(at, at) for at in range(count)]
    found = compare(logs_of(records, changed, pairs, ([100] * 500, [100] * 500)), at_once=(3, 5))
    assert leaf_numbers(found) == [0, 1, 2]
    assert merkle.first_difference([one.source for one in found.leaves], [one.target for one in found.leaves]) == 1
    assert found.decoded_records == 100


NAMES = ("A", "B")


def difference(logs: Logs):  # type: ignore[no-untyped-def]
    compared = logs.compared
    source = placed_records(compared, SOURCE, steps_of(logs.source, 0))
    target = placed_records(compared, TARGET, steps_of(logs.target, 0))
    return first_difference(compared, source, target)


def test_a_changed_record_is_shown_beside_its_original() -> None:
    records = [record(number) for number in range(9)]
    changed = [*records]
    changed[4] = record(4, "other")
    found = difference(logs_of(records, [None, *changed], [(at, at + 1) for at in range(9)]))
    assert (found.kind, found.source_offset, found.target_offset, found.what) == (
        DifferenceKind.DIFFERENT,
        4,
        5,
        "different: value",
    )
    assert side_by_side(found, NAMES).splitlines() == [
        "             A/t/0                        B/A.t/0",
        "  offset     4                            5",
        "  timestamp  4 (1970-01-01 00:00:00 UTC)  4 (1970-01-01 00:00:00 UTC)",
        "  key        'k4'                         'k4'",
        "! value      'v4'                         'other'",
        "  headers    none                         none",
    ]


def test_a_foreign_record_and_one_that_was_not_copied_are_differences() -> None:
    records = [record(number) for number in range(6)]
    pairs = [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5), (5, 6)]
    logs = logs_of(records, [*records[:2], record(99), *records[2:]], pairs)
    assert not is_equal(compare(logs))
    found = difference(logs)
    assert (found.kind, found.target_offset, found.source) == (DifferenceKind.FOREIGN, 2, None)
    logs = logs_of(records, [*records[:2], *records[3:]], [(0, 0), (1, 1), (3, 2), (4, 3), (5, 4)])
    assert not is_equal(compare(logs))
    found = difference(logs)
    assert (found.kind, found.source_offset, found.target) == (DifferenceKind.NO_COPY, 2, None)


def test_a_batch_with_a_length_near_2_63_cannot_be_decoded_and_nothing_else_goes_wrong() -> None:
    body = b"\x20\0\0\0" + varint(2**63 - 2) + b"\x01\0"
    data = assemble(body, codec=0, record_count=1, base_timestamp_ms=0, max_timestamp_ms=0)
    step = Outgoing(0, 1, 1, 0, 0, data)
    with pytest.raises(CorruptBatch):
        placed(ComparedRange(0, "orders", 0, "A.orders", (0, 1), (0, 1), runs=()), SOURCE, step)


def test_what_is_left_out_is_no_difference() -> None:
    records = [record(number) for number in range(6)]
    logs = logs_of(records, [*records[:2], *records[3:]], [(0, 0), (1, 1), (3, 2), (4, 3), (5, 4)])
    compared = ranges.decoded(ComparedRange(**{**logs.compared.__dict__, "source_left_out": ((2, 3),)}).encoded())
    assert is_equal(compare(logs._replace(compared=compared)))
    assert difference(logs._replace(compared=compared)) is None


@settings(deadline=None)
@given(st.data())
def test_digests_differ_if_and_only_if_records_do(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 30))
    source: list[Content] = []
    target: list[Content] = []
    pairs = []
    for number in range(count):
        if data.draw(st.integers(0, 9)) == 0:
            source.append(None)
        if data.draw(st.integers(0, 9)) == 0:
            target.append(None)
        pairs.append((len(source), len(target)))
        source.append(record(number))
        target.append(record(number))
    exact = [*target]
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(target) - 1))
        what = data.draw(st.sampled_from(["swap", "change", "remove", "shift", "insert"]))
        match what:
            case "change":
                target[at] = record(at, "changed")
            case "remove":
                target[at] = None
            case "swap":
                other = data.draw(st.integers(0, len(target) - 1))
                target[at], target[other] = target[other], target[at]
            case "shift":
                target.pop(at)
                target.append(None)
            case "insert":
                target.insert(at, record(77))
                target.pop()
    sizes = [data.draw(st.lists(st.integers(1, 12), max_size=30)) for _ in range(2)]
    logs = logs_of(source, target, pairs, sizes, codec=data.draw(st.sampled_from([0, 1, 4])))
    at_once = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    merging = [data.draw(st.sampled_from([PASS_ALL, MERGE_SINGLES, MERGE_ALL])) for _ in range(2)]
    found = compare(logs, at_once=at_once, merging=merging)
    assert is_equal(found) == (target == exact)
    first = difference(logs)
    assert (first is None) == (target == exact)
    middle = data.draw(st.integers(0, len(source)))
    parts = [logs.compared.cut(0, middle), logs.compared.cut(middle, len(source))]
    assert parts[0].target[1] == parts[1].target[0]
    equal = [
        is_equal(compare(logs._replace(compared=part), merging=merging))
        for part in parts
        if part.source[0] < part.source[1]
    ]
    assert all(equal) == (target == exact)
