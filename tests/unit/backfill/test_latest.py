"""Compacted topics: only the latest record of each key counts."""

from __future__ import annotations

from mm2py.backfill.verifying.latest import LATER, LatestRecords
from mm2py.backfill.verifying.places import SOURCE, TARGET
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.records.batch import NewRecord
from tests.unit.backfill.logs import Content, batches, runs_of, steps_of


def record(key: str, value: str | None) -> NewRecord:
    return NewRecord(key.encode(), None if value is None else value.encode(), 1)


def latest(source: list[Content], target: list[Content], *, is_later: bool = False) -> LatestRecords:
    runs = () if is_later else runs_of((at, at) for at in range(len(source)))
    compared = ComparedRange(
        0, "t", 0, "A.t", (0, len(source)), (0, len(target)), runs, is_compacted=True, is_later=is_later
    )
    found = LatestRecords(compared)
    assert found.wanted() == [SOURCE, TARGET]
    for side, log in ((SOURCE, source), (TARGET, target)):
        found.take(side, steps_of(batches(0, log, [3] * 99), 0), len(log))
    assert found.wanted() == []
    return found


def digests(found: LatestRecords) -> list[dict[bytes, bytes | None]]:
    return [{key: one.digest for key, one in side.items() if one.digest is not None} for side in found.sides]


def test_records_that_compaction_has_removed_on_one_side_are_no_difference() -> None:
    source = [None, record("b", "1"), record("a", "2"), None]
    target = [record("a", "1"), record("b", "1"), record("a", "2"), record("c", None)]
    one, other = digests(latest([*source], [*target]))
    assert one == other


def test_a_latest_record_with_another_value_is_a_difference() -> None:
    one, other = digests(latest([record("a", "1"), record("a", "2")], [record("a", "1"), record("a", "3")]))
    assert one != other


def test_a_foreign_record_is_counted_and_is_no_latest_record() -> None:
    found = latest([record("a", "1")], [record("a", "1"), record("a", "x")])
    one, other = digests(found)
    assert one == other
    assert (found.foreign, found.first_foreign) == (1, 1)


def test_a_key_behind_the_compared_ranges_is_only_noted() -> None:
    found = latest([record("a", "9")], [None], is_later=True)
    assert {one.digest for one in found.sides[SOURCE].values()} == {LATER}
    assert found.foreign == 0
