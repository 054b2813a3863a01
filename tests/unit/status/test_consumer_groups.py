"""What ``mm2py groups`` says of each group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mm2py.cli.groups import text_of
from mm2py.flow import TopicName
from mm2py.kafka.consumer_groups import Commit, ListedGroup
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Hole, HoleCause, Run
from mm2py.offsets.sync_store import SyncStore
from mm2py.records.checkpoint import Checkpoint
from mm2py.status.consumer_groups import (
    NOT_COMMITTED,
    NOT_THERE,
    ConsumerGroupFacts,
    ConsumerGroupsFacts,
    PartitionReport,
    in_short,
    report_of,
)
from tests.fakes.ledger_topic import chunk

KEY, REMOTE = ("orders", 0), ("A.orders", 0)


def syncs(*pairs: tuple[int, int]) -> SyncStore:
    store = SyncStore(keeps_history=True)
    for upstream, downstream in pairs:
        store.add(KEY, upstream, downstream)
    store.loaded()
    return store


def facts(
    committed: int = 100,
    *,
    checkpoint: tuple[int, int] | None = (100, 50),
    on_target: int | None = 50,
    state: str | None = "Empty",
    pairs: tuple[tuple[int, int], ...] = ((0, 0), (99, 49)),
    is_synced: bool = True,
    ledger: PartitionLedger | None = None,
    start: int = 0,
    stale: str = "",
    refused: str = "",
) -> ConsumerGroupsFacts:
    group = ConsumerGroupFacts(
        "pay",
        ListedGroup("pay", "consumer", "Stable"),
        None if state is None else ListedGroup("pay", "consumer", state),
        {KEY: Commit(committed)},
        {} if on_target is None else {REMOTE: Commit(on_target)},
        refused,
    )
    found = None if checkpoint is None else Checkpoint("pay", TopicName("A.orders"), 0, *checkpoint, "")
    return ConsumerGroupsFacts(
        [group],
        {KEY: REMOTE},
        {KEY: 130},
        {REMOTE: start},
        {} if ledger is None else {KEY: ledger},
        {KEY: stale} if stale else {},
        syncs(*pairs),
        {} if found is None else {("pay", REMOTE): found},
        is_synced,
    )


def test_a_group_whose_sync_is_just_before_its_commit_goes_on_at_the_exact_record() -> None:
    (report,) = report_of(facts())
    assert (report.ready, report.why, report.lag, report.reads_again_at_most) == (True, "", 30, 0)
    assert report.partitions == (
        PartitionReport("orders", 0, 100, 30, "A.orders", 50, 0, 50, "", True, "offset-syncs", "", 100),
    )


def test_a_group_between_two_syncs_reads_again_what_it_has_read_since_the_earlier_one() -> None:
    (report,) = report_of(facts(checkpoint=(100, 41), on_target=41, pairs=((0, 0), (80, 40), (120, 60))))
    assert (report.ready, report.reads_again_at_most) == (True, 19)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"state": "Stable"}, "it has members on the target (Stable)"),
        ({"checkpoint": None, "pairs": ()}, "orders-0: nothing of it is known to be copied"),
        (
            {"checkpoint": None, "pairs": ((200, 100),)},
            "orders-0: it has committed an offset before the oldest offset sync",
        ),
        ({"checkpoint": (90, 45)}, "orders-0: its next checkpoint is not emitted yet"),
        ({"on_target": 20}, f"orders-0: {NOT_COMMITTED}"),
        ({"on_target": None, "state": None}, f"orders-0: {NOT_COMMITTED}"),
        ({"on_target": None, "state": None, "is_synced": False}, ""),
        ({"on_target": 60}, ""),  # it has gone on there
    ],
)
def test_a_group_that_is_not_ready_says_why(given: dict[str, object], why: str) -> None:
    (report,) = report_of(facts(**given))  # type: ignore[arg-type]
    assert (report.ready, report.why) == (not why, why)


def test_a_group_whose_commit_may_be_refused_says_where_the_reason_is() -> None:
    (report,) = report_of(facts(on_target=20))
    assert report.why.endswith("if it stays so, the worker's log tells why (group_offsets.skipped)")


def test_a_group_that_the_target_refuses_to_move_says_why_and_is_ready_while_nothing_is_to_be_committed() -> None:
    why = "Committing for group pay was refused with GROUP_AUTHORIZATION_FAILED (30). Grant mm2py READ on group pay."
    (waits,) = report_of(facts(on_target=20, refused=why))
    assert (waits.ready, waits.why, waits.refused) == (False, why, why)
    (ready,) = report_of(facts(refused=why))
    assert (ready.ready, ready.why, ready.note, ready.refused) == (True, "", why, why)
    (busy,) = report_of(facts(on_target=20, state="Stable", refused=why))
    assert busy.why == "it has members on the target (Stable)"
    assert why in text_of([waits]) and f"yes; {why}" in text_of([ready])


def test_groups_that_are_not_ready_come_first_and_an_end_that_is_not_known_is_no_lag_of_zero() -> None:
    base = facts()
    names = [
        replace(base.groups[0], group=name, source=ListedGroup(name, "consumer", "Empty"), committed_on_target={})
        for name in ("b", "a")
    ]
    reports = report_of(replace(base, groups=[*base.groups, *names], ends={}))
    assert [one.group for one in reports] == ["a", "b", "pay"]
    assert reports[2].lag is None
    text = text_of(reports, partitions=True)
    assert text.startswith("3 groups, 1 ready to go on on the target\n")
    assert "\x1b" not in text_of(report_of(replace(base, groups=[replace(base.groups[0], source=ESCAPED)])))


def ledger(*runs: Run, begin: tuple[int, int] = (0, 0)) -> PartitionLedger:
    found = PartitionLedger()
    found.take(chunk(*runs, begin=begin))
    return found


WHOLE = (Run(0, 0, 45), Run(60, 45, 70))
"""Offset 100 of the source is 85 of the target."""


def test_the_ledger_says_how_many_records_a_group_would_read_again_where_offset_syncs_only_say_how_many_at_most() -> (
    None
):
    (behind,) = report_of(facts(checkpoint=(95, 80), on_target=80, ledger=ledger(*WHOLE)))
    assert (behind.ready, behind.reads_again_at_most, behind.is_exact) == (False, 5, False)
    assert behind.why == "orders-0: its next checkpoint is not emitted yet"
    (exact,) = report_of(facts(checkpoint=(100, 85), on_target=85, ledger=ledger(*WHOLE)))
    assert (exact.ready, exact.reads_again_at_most, exact.is_exact) == (True, 0, True)
    assert exact.partitions[0].basis == "ledger"


def test_a_group_that_reads_faster_than_the_flow_copies_is_ready_to_go_on_at_its_last_checkpoint() -> None:
    (report,) = report_of(facts(checkpoint=(40, 40), on_target=40, ledger=ledger(Run(0, 0, 45))))
    assert (report.ready, report.reads_again_at_most, report.partitions[0].basis) == (True, 60, "ledger")
    assert report.note == f"orders-0: {NOT_THERE}"
    (without,) = report_of(facts(checkpoint=None, on_target=None, ledger=ledger(Run(0, 0, 45))))
    assert without.why == f"orders-0: {NOT_THERE}"


def test_a_group_before_the_ledger_is_told_by_offset_syncs() -> None:
    (report,) = report_of(facts(checkpoint=(100, 50), ledger=ledger(Run(110, 60, 5), begin=(110, 60))))
    assert (report.ready, report.partitions[0].basis) == (True, "offset-syncs")
    unknown = facts(checkpoint=None, pairs=(), ledger=ledger(Run(110, 60, 5), begin=(110, 60)))
    assert report_of(unknown)[0].why == "orders-0: it has committed an offset before the ledger"


def test_a_group_whose_checkpoint_is_ahead_of_it_gets_a_lower_one_first() -> None:
    (ahead,) = report_of(facts(checkpoint=(100, 500), on_target=500, ledger=ledger(*WHOLE)))
    assert ahead.why == "orders-0: its next checkpoint is not emitted yet"
    (went_back,) = report_of(facts(checkpoint=(120, 105), on_target=105, ledger=ledger(*WHOLE)))
    assert went_back.why == "orders-0: its next checkpoint is not emitted yet"


def test_a_group_that_would_skip_records_by_its_offset_on_the_target_is_told() -> None:
    (ahead,) = report_of(facts(checkpoint=(100, 85), on_target=500, ledger=ledger(*WHOLE)))
    assert ahead.why.startswith("orders-0: its offset on the target is ahead of it")
    lost = ledger(Run(0, 0, 120))
    lost.take(chunk(Run(120, 90, 10), number=2, begin=(120, 90), is_whole=False))
    (ahead,) = report_of(facts(checkpoint=(100, 90), on_target=100, ledger=lost))
    assert "its offset on the target is ahead of it" in ahead.why


def test_a_group_that_would_skip_records_is_not_said_to_be_exact() -> None:
    """It was set back from 100 to 40, and its checkpoint and its commit on the target are still those of 100."""
    (waits,) = report_of(facts(40, checkpoint=(100, 85), on_target=85, ledger=ledger(*WHOLE)))
    assert waits.why == "orders-0: its next checkpoint is not emitted yet"
    (ahead,) = report_of(facts(40, checkpoint=(40, 40), on_target=85, ledger=ledger(*WHOLE)))
    assert ahead.why.startswith("orders-0: its offset on the target is ahead of it")
    for report in (waits, ahead):
        assert (report.is_exact, report.reads_again_at_most) == (False, None)
        assert in_short([report], is_synced=True).exact == 0


def test_a_group_whose_copies_the_target_has_deleted_is_ready_and_not_exact() -> None:
    """Group sync commits nothing below the first offset of the target's log."""
    for checkpoint in ((40, 40), (38, 38)):
        (report,) = report_of(facts(40, checkpoint=checkpoint, on_target=90, start=90, ledger=ledger(*WHOLE)))
        assert (report.ready, report.why, report.is_exact, report.reads_again_at_most) == (True, "", False, None)
        assert report.note == "orders-0: the target has deleted the copies before offset 90"
        assert "yes; orders-0: the target has deleted" in text_of([report])
    (waits,) = report_of(facts(40, checkpoint=(40, 40), on_target=40, start=90, ledger=ledger(*WHOLE)))
    assert waits.why == f"orders-0: {NOT_COMMITTED}"
    (ahead,) = report_of(facts(40, checkpoint=(40, 40), on_target=95, start=90, ledger=ledger(*WHOLE)))
    assert "its offset on the target is ahead of it" in ahead.why


def test_a_group_of_a_topic_that_was_recreated_is_neither_ready_nor_exact() -> None:
    (report,) = report_of(facts(stale="orders was recreated"))
    assert (report.ready, report.why, report.is_exact) == (False, "orders-0: orders was recreated", False)
    assert (report.reads_again_at_most, report.note) == (None, "")


def test_an_offset_in_a_counted_stretch_is_no_sign_of_skipped_records() -> None:
    counted = PartitionLedger()
    counted.take(chunk(Run(0, 0, 40), Hole(40, 40, 90, 80, HoleCause.COUNTED)))
    (fine,) = report_of(facts(checkpoint=(100, 95), on_target=95, ledger=counted))
    assert (fine.ready, fine.reads_again_at_most) == (True, 60)


def test_the_short_form_counts_the_groups_and_names_the_one_that_reads_the_most_again() -> None:
    base = facts(checkpoint=(90, 75), on_target=75, ledger=ledger(*WHOLE), is_synced=False)
    busy = replace(base.groups[0], source=ListedGroup("a", "consumer", "Empty"), committed={KEY: Commit(90)})
    short = in_short(
        report_of(
            replace(
                base,
                groups=[*base.groups, busy],
                checkpoints={
                    ("pay", REMOTE): Checkpoint("pay", TopicName("A.orders"), 0, 90, 75, ""),
                    ("a", REMOTE): Checkpoint("a", TopicName("A.orders"), 0, 90, 75, ""),
                },
            )
        ),
        is_synced=False,
    )
    assert (short.count, short.ready, short.exact, short.is_synced) == (2, 1, 1, False)
    assert [(one.group, one.why) for one in short.not_ready] == [
        ("pay", "orders-0: its next checkpoint is not emitted yet")
    ]
    assert (short.reads_again_at_most, short.reads_most_again) == (10, "pay")
    assert in_short([], is_synced=True).reads_again_at_most is None


def test_a_group_that_also_reads_what_is_not_copied_is_ready_in_part() -> None:
    base = facts()
    pay = replace(base.groups[0], left_out=("drafts", "payments"))
    busy = replace(pay, group="busy", target=ListedGroup("busy", "consumer", "Stable"))
    reports = report_of(replace(base, groups=[pay, busy]))
    assert [(one.group, one.ready, one.left_out) for one in reports] == [
        ("busy", False, ("drafts", "payments")),
        ("pay", True, ("drafts", "payments")),
    ]
    assert in_short(reports, is_synced=True).partly == 1, "of those that are ready"
    text = text_of(reports)
    assert text.startswith("2 groups, 1 ready to go on on the target, 1 of them in part\n")
    assert "in part (not copied: drafts, payments)" in text and "yes" not in text
    assert in_short(report_of(base), is_synced=True).partly == 0


ESCAPED = ListedGroup("\x1b[31mred", "consumer", "Empty")


def test_a_group_that_runs_follows_from_checkpoint_to_checkpoint_whether_it_is_ready_at_this_moment_or_not() -> None:
    """Its newest commit was in a checkpoint a second ago, and is not now: the verdict must not change with that."""
    (ready,) = report_of(facts(checkpoint=(100, 85), on_target=85, ledger=ledger(*WHOLE)))
    (late,) = report_of(facts(checkpoint=(95, 80), on_target=80, ledger=ledger(*WHOLE)))
    assert [(one.ready, one.follows) for one in (ready, late)] == [(True, True), (False, True)]
    for reports, following_late in (([ready], 0), ([late], 1)):
        short = in_short(reports, is_synced=True)
        assert (short.count, short.following, short.following_late) == (1, 1, following_late)


@pytest.mark.parametrize(
    "given",
    [
        {"checkpoint": None, "on_target": None},  # there is nothing to go on at
        {"checkpoint": (120, 105), "on_target": 105},  # it would skip records
        {"checkpoint": (95, 80), "on_target": 80, "state": "Stable"},  # it has members on the target
        {"stale": "orders was recreated"},
    ],
)
def test_a_group_that_cannot_go_on_at_its_checkpoint_does_not_follow(given: dict[str, Any]) -> None:
    (report,) = report_of(facts(ledger=ledger(*WHOLE), **given))
    assert (report.ready, report.follows) == (False, False)
    assert in_short([report], is_synced=True).following == 0


def test_a_group_without_members_on_the_source_waits_for_its_checkpoint() -> None:
    given = facts(checkpoint=(95, 80), on_target=80, ledger=ledger(*WHOLE))
    idle = replace(given.groups[0], source=ListedGroup("pay", "consumer", "Empty"))
    (report,) = report_of(replace(given, groups=[idle]))
    assert (report.ready, report.follows) == (False, False)
