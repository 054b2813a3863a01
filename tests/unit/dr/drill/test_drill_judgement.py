"""When a drill says that a group would go on at the exact record, and each way in which it must not say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.dr.drill.judgement import DrilledPartition, GoesOn, ReadFrom, judge_partition
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.records.batch import Record

COMMITTED, POSITION = 100, 40
"""The group goes on at 100 on the source. Its copies are 60 offsets before their records."""
SHIFT = COMMITTED - POSITION


def record(offset: int, value: str = "", *, key: str = "k", at_ms: int = 5, header: str = "h") -> Record:
    return Record(offset, at_ms, key.encode(), (value or f"{offset}").encode(), (("name", header.encode()),))


def copy(source_offset: int, *, shift: int = SHIFT) -> Record:
    """Return the copy of a record, as it is on the target."""
    return record(source_offset)._replace(offset=source_offset - shift)


def copied(offset: int) -> Answer:
    return Answer(AnswerKind.COPIED, offset, True)


def facts(
    here: range | None = range(100, 103), there: range | None = range(100, 103), *, shift: int = SHIFT
) -> DrilledPartition:
    """Return a partition in which these source offsets are read on the source, and their copies on the target."""
    known = range(80, 120)
    return DrilledPartition(
        "orders",
        0,
        "A.orders",
        COMMITTED,
        POSITION,
        "",
        POSITION,
        ReadFrom(COMMITTED, tuple(map(record, here or ())), True, record(99), 0, 120),
        ReadFrom(POSITION, tuple(copy(one, shift=shift) for one in there or ()), True, copy(99, shift=shift), 0, 60),
        {one: copied(one - SHIFT) for one in known},
        {one - SHIFT: copied(one) for one in known},
    )


def judged(of: DrilledPartition) -> tuple[GoesOn, int | None]:
    found = judge_partition(of)
    return found.result, found.records


def test_the_same_next_record_is_exact() -> None:
    found = judge_partition(facts())
    assert (found.result, found.is_green, found.text) == (GoesOn.EXACT, True, "")
    assert (found.source_record, found.target_record) == (100, 40)


@pytest.mark.parametrize(
    "other",
    [
        record(40, "another value"),
        record(40, "100", key="another key"),
        record(40, "100", at_ms=6),
        record(40, "100", header="another header"),
    ],
)
def test_a_record_that_differs_in_anything_is_not_exact(other: Record) -> None:
    found = facts(there=None)
    found = replace(found, there=ReadFrom(POSITION, (other,), True, copy(99), 0, 60))
    assert judge_partition(found).result is GoesOn.DIFFERS


def test_timestamps_of_the_target_itself_do_not_count() -> None:
    found = facts(there=None)
    found = replace(found, there=ReadFrom(POSITION, (record(40, "100", at_ms=6),), True, None, 0, 60))
    assert judge_partition(found).result is GoesOn.DIFFERS
    assert judge_partition(replace(found, own_timestamps=False)).result is GoesOn.EXACT


def test_a_place_that_is_too_early_reads_again() -> None:
    assert judged(facts(there=range(97, 103))) == (GoesOn.READS_AGAIN, 3)


def test_a_place_that_is_too_late_skips() -> None:
    assert judged(facts(here=range(100, 110), there=range(104, 110))) == (GoesOn.SKIPS, 4)


def test_two_equal_records_in_a_row_do_not_hide_a_place_that_is_one_too_far() -> None:
    """A producer sends the same record twice. One was skipped, and the next one looks like it."""
    twins = tuple(record(offset, "twin") for offset in (100, 101, 102))
    found = facts(there=None)
    assert found.here is not None
    found = replace(
        found,
        here=replace(found.here, records=twins),
        there=ReadFrom(POSITION, (twins[1]._replace(offset=40),), True, twins[0]._replace(offset=39), 0, 60),
    )
    assert judge_partition(found).result is GoesOn.DIFFERS


def test_a_group_at_both_ends_goes_on_at_the_end() -> None:
    found = judge_partition(facts(here=None, there=None))
    assert (found.result, found.is_green, found.text) == (GoesOn.AT_END, True, "")


def test_at_the_end_the_last_record_must_be_the_same() -> None:
    found = facts(here=None, there=None)
    found = replace(found, there=ReadFrom(POSITION, (), True, copy(95), 0, 60))
    assert judge_partition(found).result is GoesOn.DIFFERS


def test_a_copy_that_is_missing_at_the_end_is_skipped_if_the_ledger_has_it() -> None:
    found = facts(there=None)
    assert judge_partition(found).result is GoesOn.SKIPS
    behind = replace(found, to_other={**found.to_other, 100: Answer(AnswerKind.NOT_YET, None, False)})
    assert judge_partition(behind).result is GoesOn.AT_END


def test_a_group_that_has_read_what_is_not_copied_goes_on_at_the_end() -> None:
    found = facts(here=None, there=None)
    found = replace(
        found,
        there=ReadFrom(POSITION, (), True, copy(95), 0, 60),
        to_other={99: Answer(AnswerKind.NOT_YET, None, False)},
    )
    told = judge_partition(found)
    assert (told.result, told.text) == (GoesOn.AT_END, "it has read records on the source that are not copied yet")


@pytest.mark.parametrize("cause", [AnswerKind.GAP, AnswerKind.QUARANTINED])
@pytest.mark.parametrize("there", [range(102, 103), None])
def test_records_in_a_gap_are_skipped(cause: AnswerKind, there: range | None) -> None:
    found = facts(there=there)
    lost = {offset: Answer(cause, 42, False) for offset in (100, 101)}
    told = judge_partition(replace(found, to_other={**found.to_other, **lost}))
    assert told.result is GoesOn.SKIPS
    assert "mm2py gaps FILE" in told.text


def test_records_of_a_foreign_writer_are_no_records_read_again() -> None:
    foreign = record(40, "not of the flow")
    for here in (range(100, 103), None):
        found = facts(here=here, there=None)
        found = replace(
            found,
            there=ReadFrom(POSITION, (foreign, *(copy(one)._replace(offset=one - 59) for one in here or ())), True),
            to_source={40: Answer(AnswerKind.NOT_OURS, 100, False)},
        )
        found = replace(found, there=replace(found.there, log_end=60)) if found.there is not None else found
        assert judge_partition(found).result is GoesOn.DIFFERS


def test_copies_that_the_source_has_compacted_away_are_not_read_again() -> None:
    """Records 100 and 101 have newer values by now, and the cleaner of the source has removed them."""
    found = facts(here=range(102, 105), there=range(100, 105))
    assert judged(found) == (GoesOn.READS_AGAIN, 2)
    cleaned = judge_partition(replace(found, may_lose_records=True))
    assert (cleaned.result, cleaned.is_green) == (GoesOn.EXACT, True)
    assert "deleted 2 record(s)" in cleaned.text


def test_a_wrong_ledger_does_not_pass_for_compaction() -> None:
    """The ledger says that target record 37 is the copy of 100, and it is that of 97. The source still has 100."""
    found = facts(there=range(97, 103))
    wrong = {offset: copied(offset + 63) for offset in range(37, 60)}
    told = judge_partition(replace(found, to_source=wrong, may_lose_records=True))
    assert told.result is GoesOn.READS_AGAIN


def test_copies_that_the_target_has_compacted_away_are_not_skipped() -> None:
    found = facts(here=range(100, 105), there=range(102, 105))
    assert judged(found) == (GoesOn.SKIPS, 2)
    assert judged(replace(found, may_lose_records=True)) == (GoesOn.EXACT, None)
    before = {offset: copied(offset - 80) for offset in range(100, 105)}  # the group would not have met them
    assert judged(replace(found, may_lose_records=True, to_other=before)) == (GoesOn.SKIPS, 2)


def test_copies_that_the_target_has_deleted_are_skipped() -> None:
    found = facts(here=range(100, 105), there=range(102, 105))
    assert found.there is not None
    found = replace(found, there=replace(found.there, log_start=POSITION))
    told = judge_partition(found)
    assert told.result is GoesOn.SKIPS
    assert "the target has deleted" in told.text


def test_records_that_the_source_has_deleted_since_are_not_read_again() -> None:
    found = facts(here=range(102, 105), there=range(100, 105))
    assert found.here is not None
    found = replace(found, here=replace(found.here, log_start=102, before=None))
    assert judged(found) == (GoesOn.EXACT, None)


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"committed": None}, GoesOn.NOT_KNOWN),
        ({"position": None, "why": "no checkpoint"}, GoesOn.NO_PLACE),
        ({"shadow": POSITION - 1}, GoesOn.NOT_KNOWN),
        ({"shadow": None}, GoesOn.NOT_KNOWN),
        ({"there": None}, GoesOn.NOT_KNOWN),
        ({"here": None}, GoesOn.NOT_KNOWN),
        ({"why": "it has no leader"}, GoesOn.NOT_KNOWN),
        ({"position": 61, "shadow": 61}, GoesOn.NO_PLACE),
        ({"committed": 121}, GoesOn.NOT_KNOWN),
    ],
)
def test_what_is_not_known_is_never_exact(changes: dict[str, object], result: GoesOn) -> None:
    found = judge_partition(replace(facts(), **changes))  # type: ignore[arg-type]
    assert found.result is result
    assert not found.is_green
    assert found.text


def test_the_end_of_what_was_searched_is_told() -> None:
    found = facts(there=range(90, 95))
    assert found.there is not None
    found = replace(
        found,
        there=replace(found.there, is_whole=False),
        to_other={100: Answer(AnswerKind.NOT_YET, None, False)},
    )
    told = judge_partition(found)
    assert told.result is GoesOn.READS_AGAIN
    assert told.text == "it would read at least 5 record(s) again"
