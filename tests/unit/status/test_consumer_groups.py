"""What ``mm2py groups`` says of each group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.cli.groups import text_of
from mm2py.connector import TopicName
from mm2py.kafka.consumer_groups import Commit, ListedGroup
from mm2py.offsets.sync_store import SyncStore
from mm2py.records.checkpoint import Checkpoint
from mm2py.status.consumer_groups import ConsumerGroupFacts, ConsumerGroupsFacts, PartitionReport, report_of

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
) -> ConsumerGroupsFacts:
    group = ConsumerGroupFacts(
        ListedGroup("pay", "consumer", "Stable"),
        None if state is None else ListedGroup("pay", "consumer", state),
        {KEY: Commit(committed)},
        {} if on_target is None else {REMOTE: Commit(on_target)},
    )
    found = None if checkpoint is None else Checkpoint("pay", TopicName("A.orders"), 0, *checkpoint, "")
    return ConsumerGroupsFacts(
        [group], {KEY: REMOTE}, {KEY: 130}, syncs(*pairs), {} if found is None else {("pay", REMOTE): found}, is_synced
    )


def test_a_group_whose_sync_is_just_before_its_commit_goes_on_at_the_exact_record() -> None:
    (report,) = report_of(facts())
    assert (report.ready, report.why, report.lag, report.reads_again_at_most) == (True, "", 30, 0)
    assert report.partitions == (PartitionReport("orders", 0, 100, 30, "A.orders", 50, 0, 50, ""),)


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
        ({"on_target": 20}, "orders-0: not committed on the target yet"),
        ({"on_target": None, "state": None}, "orders-0: not committed on the target yet"),
        ({"on_target": None, "state": None, "is_synced": False}, ""),
        ({"on_target": 60}, ""),  # it has gone on there
    ],
)
def test_a_group_that_is_not_ready_says_why(given: dict[str, object], why: str) -> None:
    (report,) = report_of(facts(**given))  # type: ignore[arg-type]
    assert (report.ready, report.why) == (not why, why)


def test_groups_that_are_not_ready_come_first_and_an_end_that_is_not_known_is_no_lag_of_zero() -> None:
    base = facts()
    names = [
        replace(base.groups[0], source=ListedGroup(name, "consumer", "Empty"), committed_on_target={})
        for name in ("b", "a")
    ]
    reports = report_of(replace(base, groups=[*base.groups, *names], ends={}))
    assert [one.group for one in reports] == ["a", "b", "pay"]
    assert reports[2].lag is None
    text = text_of(reports, partitions=True)
    assert text.startswith("3 groups, 1 ready to go on on the target\n")
    assert "\x1b" not in text_of(report_of(replace(base, groups=[replace(base.groups[0], source=ESCAPED)])))


ESCAPED = ListedGroup("\x1b[31mred", "consumer", "Empty")
