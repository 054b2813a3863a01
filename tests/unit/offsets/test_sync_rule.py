"""When an offset sync is due: for runs of records as MirrorMaker 2 decides it for single ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.offsets.sync_rule import SyncRule
from mm2py.offsets.sync_store import SLOTS


@dataclass
class RuleOfSingleRecords:
    """MM2's own, asked for each record: what it emits, and the record whose sync it delays."""

    previous_source: int = -1
    previous_target: int = -1
    last_synced_target: int = -1
    delayed: tuple[int, int] | None = None
    emitted: list[tuple[int, int]] = field(default_factory=list)

    def stored(self, source: int, target: int, lag_max: int) -> None:
        if (
            self.last_synced_target == -1
            or target - (self.last_synced_target + 1) >= lag_max
            or source - self.previous_source != 1
            or target < self.previous_target
        ):
            self.last_synced_target = target
            self.emitted.append((source, target))
            self.delayed = None
        else:
            self.delayed = (source, target)
        self.previous_source = source
        self.previous_target = target


@pytest.mark.parametrize(
    ("lag_max", "due"),
    [
        (50, [True, True, False, True, False, False, True, True, False, True, False, True]),
        (0, [True] * 12),
    ],
)
def test_single_records_get_syncs_as_in_mirrormaker_2(lag_max: int, due: list[bool]) -> None:
    records = [(0, 100), (2, 102), (3, 152), (4, 153), (5, 154), (6, 203)]
    records += [(7, 204), (2, 206), (3, 207), (4, 3), (5, 4), (7, 6)]
    rule = SyncRule()
    assert [rule.stored(*record, 1, lag_max=lag_max) == [record] for record in records] == due


def test_in_a_run_every_record_past_the_lag_is_due() -> None:
    rule = SyncRule()
    assert rule.stored(0, 1000, 250, lag_max=100) == [(0, 1000), (101, 1101), (202, 1202)]
    assert rule.latest == (249, 1249)
    assert rule.stored(250, 1250, 53, lag_max=100) == []
    assert rule.stored(303, 1303, 1, lag_max=100) == [(303, 1303)]
    assert rule.latest is None


def test_a_large_run_asks_for_no_more_than_a_store_keeps() -> None:
    due = SyncRule().stored(0, 0, 10_000_000, lag_max=0)
    assert due == [(offset, offset) for offset in range(10_000_000 - SLOTS, 10_000_000)]


def test_the_latest_record_is_delayed_until_a_sync_names_it() -> None:
    rule = SyncRule()
    assert rule.latest is None
    rule.stored(0, 0, 1, lag_max=100)
    assert rule.latest is None
    rule.stored(1, 1, 10, lag_max=100)
    assert rule.latest == (10, 10)
    rule.stored(11, 11, 1, lag_max=100)
    rule.named(10, 10)  # its sync was on the way when more records were stored
    assert rule.latest == (11, 11)
    rule.named(11, 11)
    assert rule.latest is None


def test_a_delayed_sync_does_not_count_for_the_lag() -> None:
    rule = SyncRule()
    rule.stored(0, 0, 90, lag_max=100)
    rule.named(89, 89)
    assert rule.stored(90, 90, 20, lag_max=100) == [(101, 101)]


def test_a_run_without_records_is_refused() -> None:
    with pytest.raises(ValueError, match="a run of 0 records"):
        SyncRule().stored(0, 0, 0, lag_max=100)


RUNS = st.lists(
    st.tuples(
        st.one_of(st.just(0), st.integers(-30, 30), st.integers(-1000, 1000)),
        st.one_of(st.just(0), st.integers(-30, 30), st.integers(-1000, 1000)),
        st.one_of(st.integers(1, 3), st.integers(1, 400)),
        st.one_of(st.none(), st.integers(0, 200)),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(RUNS, st.one_of(st.integers(0, 5), st.integers(0, 200)))
def test_runs_get_the_same_syncs_as_their_single_records(
    runs: list[tuple[int, int, int, int | None, bool]], lag_max: int
) -> None:
    """Source and target offsets jump ahead and back; the lag changes now and then; delayed syncs are sent."""
    rule, expected = SyncRule(), RuleOfSingleRecords()
    source, target = 500, 700
    for source_jump, target_jump, count, new_lag_max, sends_delayed in runs:
        lag_max = lag_max if new_lag_max is None else new_lag_max
        source, target = max(0, source + source_jump), max(0, target + target_jump)
        expected.emitted = []
        for index in range(count):
            expected.stored(source + index, target + index, lag_max)
        assert rule.stored(source, target, count, lag_max=lag_max) == expected.emitted[-SLOTS:]
        assert rule.latest == expected.delayed
        if sends_delayed and rule.latest is not None:
            rule.named(*rule.latest)
            expected.delayed = None
        source, target = source + count, target + count
