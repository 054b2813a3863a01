"""The parts of the fault campaign that decide and calculate: files, counts, recoveries, reports of gaps, the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.fault_cases import CASES, java_hash
from bench.fault_mirrors import MIRRORS, MM2, MM2_EOS, MM2PY, TITLES, Plan, command, properties
from bench.fault_outcome import (
    MENTIONED,
    SILENT,
    WARNED,
    Counts,
    Kept,
    Outcome,
    Recovery,
    Reported,
    gap_report,
    recreation_report,
    table,
)
from bench.fault_watch import Course, recovery
from bench.faults import kept_outcomes, left_of, missing_of, parse, path_of
from tests.checker.dumped import Dumped
from tests.checker.judge import judge_partition

PLAN = Plan(MM2PY, "1", "source:1", "target:1", ["orders", "users"], source_replicas=3, target_replicas=1)
COUNTS = Counts(records=10, lost=0, not_copied=0, repeated=0, rewinds=0, reordered=0, changed=0)
OUTCOME = Outcome("F02", MM2, 20, counts=COUNTS, recoveries=(Recovery("stop", 1.0, 2.0),))
CONDITIONS = {"commit": "a", "rate": 1_500.0}


def _counts(source: str, target: str) -> Counts:
    """Return the counts of one partition whose records are letters."""
    logs = [[Dumped(at, 1, 1, b"k", letter.encode()) for at, letter in enumerate(text)] for text in (source, target)]
    return Counts.of([judge_partition(*logs, max_rewinds=None)])


def _rows(*outcomes: Outcome) -> list[str]:
    return table(outcomes, {name: case.title for name, case in CASES.items()}, TITLES).splitlines()[2:]


# Counts


def test_a_copy_that_is_complete_lost_and_repeated_nothing() -> None:
    assert _counts("abcdef", "abcdef") == replace(COUNTS, records=6)


def test_records_with_later_ones_behind_them_are_lost_and_those_at_the_end_are_not_copied() -> None:
    found = _counts("abcdefgh", "abef")
    assert (found.lost, found.not_copied) == (2, 2)


def test_every_copy_beyond_the_first_is_a_repeat_however_many_rewinds_made_it() -> None:
    found = _counts("abcdef", "abcdcdecdef")
    assert (found.repeated, found.rewinds, found.lost, found.not_copied) == (5, 2, 0, 0)


def test_a_record_that_comes_after_later_ones_is_reordered_and_not_lost() -> None:
    found = _counts("abcdef", "abdcef")
    assert found.reordered > 0
    assert (found.lost, found.not_copied) == (0, 0)


def test_a_record_that_the_source_does_not_have_is_a_change() -> None:
    assert _counts("abc", "abxc").changed == 1


# Recoveries


def test_a_course_tells_when_a_record_that_late_was_first_seen() -> None:
    course = Course()
    for at_s, sequence in ((1.0, 5), (2.0, 9), (3.0, 6), (4.0, 12)):  # the third is a repeat
        course.note(at_s, sequence)
    assert [course.reached(sequence) for sequence in (5, 6, 9, 10, 13)] == [1.0, 2.0, 2.0, 4.0, None]


def test_a_fault_is_felt_until_the_slowest_partition_is_copied_again() -> None:
    assert recovery("kill", 10.0, [11.5, 14.0, 12.0]) == Recovery("kill", 1.5, 4.0)


def test_a_partition_that_is_not_copied_again_leaves_the_recovery_open() -> None:
    assert recovery("kill", 10.0, [11.5, None]) == Recovery("kill", 1.5, None)
    assert recovery("kill", 10.0, [None, None]) == Recovery("kill", None, None)


# What a log says

LOST = {0: (100, 150), 1: (200, 260)}


def test_a_gap_is_reported_when_a_warning_names_partition_and_offsets() -> None:
    log = """
2026-11-21T12:00:00Z WARNING source.expired topic=orders partition=0 why="source offsets 100 to 149 were deleted"
2026-11-21T12:00:00Z ERROR   source.expired partition=orders-1 why="source offsets 200 to 259 were deleted"
"""
    found = gap_report(log, "orders", LOST)
    assert found.level == WARNED
    assert len(found.lines) == 2


def test_a_gap_of_which_one_partition_is_not_named_is_not_reported() -> None:
    log = "WARN x - orders-0: offsets 100 to 149 are gone"
    assert gap_report(log, "orders", LOST).level == SILENT


def test_lines_below_a_warning_only_mention_a_gap() -> None:
    log = "\n".join(
        f"12:00:00.000 [task] INFO SubscriptionState - Seeking to offset {first} for partition orders-{number}\n"
        f"12:00:00.100 [task] INFO SubscriptionState - Resetting offset for partition orders-{number} to position "
        f"FetchPosition{{offset={end}, offsetEpoch=Optional.empty}}."
        for number, (first, end) in LOST.items()
    )
    assert gap_report(log, "orders", LOST).level == MENTIONED
    assert gap_report(log.replace("Resetting offset", "Nothing"), "orders", LOST).level == MENTIONED
    assert gap_report("\n".join(log.splitlines()[::2]), "orders", LOST).level == SILENT


@pytest.mark.parametrize(
    "line",
    [
        "WARN x - old-orders-0: offsets 100 to 149 are gone",
        "WARN x - orders-01: offsets 100 to 149 are gone",
        "WARN x - topic=orders partition=01: offsets 100 to 149 are gone",
        "WARN x - s1.orders-0: offsets 100 to 149 are gone",
        "WARN x - orders-0: offsets 1000 to 1490 are gone",
        "WARN x - orders-0 at 12:00:00.100, epoch=150",
    ],
)
def test_another_topic_another_partition_or_another_number_is_no_report(line: str) -> None:
    assert gap_report(line, "orders", {0: (100, 150)}).level == SILENT


def test_a_topic_recreated_is_reported_when_a_warning_says_so() -> None:
    loud = 'ERROR topic.refused topic=orders text="it was deleted and recreated upstream"'
    assert recreation_report(loud, "orders") == Reported(WARNED, [loud])
    assert recreation_report(loud.replace("ERROR", "INFO"), "orders").level == MENTIONED
    assert recreation_report("WARN x - orders-0 LEADER_NOT_AVAILABLE", "orders").level == SILENT
    assert recreation_report(loud, "users").level == SILENT


# The files


@pytest.mark.parametrize("mirror", MIRRORS)
def test_all_mirrors_read_the_same_file_but_for_exactly_once(mirror: str) -> None:
    plan = replace(PLAN, mirror=mirror)
    common, own = properties(PLAN, rest_port=1), properties(plan, rest_port=1)
    assert common.pop("listeners") == "", "MirrorMaker 2 serves no REST either"
    assert common.items() <= own.items()
    further = {"t1.exactly.once.source.support", "s1.consumer.isolation.level"}
    further |= {"dedicated.mode.enable.internal.rest", "listeners"}
    assert own.keys() - common.keys() == (further if mirror == MM2_EOS else {"listeners"} if mirror == MM2PY else set())
    further_set = properties(replace(plan, mm2_settings={"{target}.group.id": "g"}), rest_port=1)
    assert further_set.get("t1.group.id") == (None if mirror == MM2PY else "g")
    assert command(plan, Path("file"))[-1] == "file"


def test_internal_topics_have_the_replicas_of_the_cluster_they_are_on() -> None:
    file = properties(PLAN, rest_port=1)
    assert file["offset-syncs.topic.replication.factor"] == file["s1.offset.storage.replication.factor"] == "3"
    assert file["t1.offset.storage.replication.factor"] == file["replication.factor"] == "1"
    assert file["heartbeats.topic.replication.factor"] == "1", "that topic is on both"


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("a", 97), ("hello", 99_162_322), ("polygenelubricants", 1 << 31)]
)
def test_a_group_is_hashed_as_java_does(text: str, expected: int) -> None:
    assert java_hash(text) == expected


# The campaign


def test_an_outcome_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    whole = replace(OUTCOME, reported=Reported(SILENT, ("a line",)), course=((0.5, "load begins"),), gap_records=3)
    for outcome in (whole, Outcome("F02", MM2, 20, failed="no broker")):
        path = path_of(tmp_path, "F02", MM2)
        outcome.save(path, CONDITIONS)
        assert Kept.load(path) == Kept(outcome, CONDITIONS)


def test_only_what_ran_under_the_same_conditions_counts(tmp_path: Path) -> None:
    OUTCOME.save(path_of(tmp_path, "F02", MM2), CONDITIONS)
    path_of(tmp_path, "F06", MM2).write_text("{cut off")
    assert [*kept_outcomes(tmp_path, CONDITIONS)] == [("F02", MM2)]
    assert kept_outcomes(tmp_path, {**CONDITIONS, "commit": "b"}) == {}


def test_a_campaign_goes_on_with_what_is_missing_or_failed_case_by_case() -> None:
    failed = replace(OUTCOME, case="F06", counts=None, failed="no broker")
    kept = {(each.case, each.mirror): Kept(each) for each in (OUTCOME, failed)}
    assert left_of(["F02", "F14", "F06"], [MM2PY, MM2], kept) == {
        (1, 1): [("F02", MM2PY), ("F06", MM2PY), ("F06", MM2)],
        (3, 1): [("F14", MM2PY), ("F14", MM2)],
    }


def test_only_a_whole_campaign_may_be_saved(capsys: pytest.CaptureFixture[str]) -> None:
    for changed in (["--kills", "3"], ["--mm2-set", "tasks.max=4"]):
        with pytest.raises(SystemExit):
            parse(["--save", *changed])
        assert "leave out --kills" in capsys.readouterr().err
    assert parse(["--save"]).kills == 10


def test_a_campaign_is_whole_when_every_mirror_has_an_outcome_in_every_case() -> None:
    whole = [Outcome(case, mirror, 20) for case in CASES for mirror in MIRRORS]
    assert missing_of(whole) == []
    assert missing_of(whole[1:]) == [f"{whole[0].case} {whole[0].mirror}"]


# The table


def test_the_table_goes_case_by_case_and_marks_what_nobody_wants() -> None:
    lossy = replace(OUTCOME, mirror=MM2_EOS, counts=replace(COUNTS, lost=1_234, repeated=5), restarts_by_hand=1)
    first, second = _rows(lossy, OUTCOME)
    title = CASES["F02"].title
    assert first == f"| {title} | MM2 | 1 | 10 | 0 | 0 | 0 | 0 | 1.0 | 2.0 | 0 | - |"
    assert second == f"| {title} | MM2, exactly-once | 1 | 10 | **1,234** | 0 | 5 | 0 | 1.0 | 2.0 | 1 | - |"


def test_the_table_shows_the_median_and_the_worst_recovery_or_that_it_never_came() -> None:
    three = [Recovery("kill", first_s, all_s) for first_s, all_s in ((1.0, 2.0), (9.0, None), (3.0, None))]
    assert "| 3.0 (9.0) | 2.0 (never 2 of 3) |" in _rows(replace(OUTCOME, recoveries=three))[0]
    assert "| **never 1 of 1** |" in _rows(replace(OUTCOME, recoveries=[Recovery("kill", None, None)]))[0]


def test_the_table_says_of_a_gap_whether_it_was_silent() -> None:
    said = [replace(OUTCOME, gap_records=1_000, reported=Reported(level)) for level in (WARNED, MENTIONED, SILENT)]
    endings = [_rows(outcome)[0].rpartition(" | ")[2] for outcome in said]
    assert endings == ["1,000: reported |", "1,000: INFO lines only |", "1,000: **silent** |"]


def test_a_case_that_failed_is_in_the_table_with_its_reason_and_all_rows_are_equally_wide() -> None:
    failed = replace(OUTCOME, mirror=MM2PY, counts=None, failed="no | broker\nTraceback")
    rows = _rows(failed, OUTCOME)
    assert "failed: no / broker" in rows[0]
    assert rows[0].count("|") == rows[1].count("|")
