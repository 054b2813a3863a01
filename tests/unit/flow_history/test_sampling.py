"""The numbers of a flow at one look: what the status reports, and rates between two looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mm2py.flow_history.sampling import APART_MOST_S, SampledLook, values_of
from mm2py.records.flow_history_record import Series
from mm2py.status.facts import FlowFacts
from mm2py.status.report import report_of
from mm2py.status.verdict import Readiness
from tests.fakes.v1_services import FLOW, NOW_MS, facts_of

RATES = {
    Series.IN_RECORDS_PER_S,
    Series.IN_BYTES_PER_S,
    Series.COPIED_RECORDS_PER_S,
    Series.COPIED_BYTES_PER_S,
}


def look(at_ms: int = NOW_MS, **changed: Any) -> SampledLook:
    facts = facts_of()
    flows = [replace(one, **changed) if one.settings.flow == FLOW else one for one in facts.flows]
    report = report_of(replace(facts, flows=flows))
    return SampledLook(
        at_ms,
        next(one for one in flows if one.settings.flow == FLOW),
        next(one for one in report.flows if one.flow == FLOW),
    )


def moved(look: SampledLook, **offsets: int) -> FlowFacts:
    """Return facts in which each position, or each end, is so much smaller."""
    facts = look.facts
    return replace(
        facts,
        positions={
            key: replace(at, next_source=at.next_source - offsets.get("positions", 0))
            for key, at in facts.positions.items()
        },
        ends={key: at - offsets.get("ends", 0) for key, at in facts.ends.items()},
    )


def test_lag_safe_time_and_topics_are_those_of_the_status() -> None:
    now = look()
    values = values_of(now, None)
    if now.report.lag_is_partial:
        assert Series.LAG_RECORDS not in values
    else:
        assert values[Series.LAG_RECORDS] == now.report.lag
    assert values[Series.TOPICS_NOT_COPIED] == len(now.report.verdict.left_out) > 0
    assert not RATES & values.keys(), "one look tells no rate"


@pytest.mark.parametrize(
    ("readiness", "ahead_ms", "is_known"),
    [
        (Readiness.BEHIND, -5000, True),
        (Readiness.UNKNOWN, -5000, False),
        (Readiness.INCOMPLETE, 1000, True),
        (Readiness.INCOMPLETE, 60_000, False),
    ],
)
def test_the_age_of_the_safe_time_is_recorded_where_it_is_known(
    readiness: Readiness, ahead_ms: int, *, is_known: bool
) -> None:
    """A worker whose clock is ahead drew a flat line at 0.0 s, however far it was behind."""
    now = look()
    verdict = replace(now.report.verdict, readiness=readiness, safe_at_ms=NOW_MS + ahead_ms, behind_s=0.0)
    values = values_of(replace(now, report=replace(now.report, verdict=verdict)), None)
    assert (Series.SAFE_AGE_S in values) == is_known


def test_rates_are_by_how_much_ends_and_positions_have_grown() -> None:
    now = look()
    before = SampledLook(NOW_MS - 10_000, moved(now, ends=50, positions=20), now.report)
    values = values_of(now, before)
    assert values[Series.IN_RECORDS_PER_S] == 5 * len(now.facts.ends)
    assert values[Series.COPIED_RECORDS_PER_S] == 2 * len(now.facts.positions)


def test_bytes_are_counted_by_the_mean_size_of_each_partition_and_not_known_without_one() -> None:
    facts = look().facts
    sized = {key: replace(at, record_bytes=100) for key, at in facts.positions.items()}
    now = look(positions=sized)
    before = SampledLook(NOW_MS - 10_000, moved(now, positions=20), now.report)
    values = values_of(now, before)
    assert values[Series.COPIED_BYTES_PER_S] == 100 * values[Series.COPIED_RECORDS_PER_S] > 0
    unsized = look(positions={key: replace(at, record_bytes=None) for key, at in facts.positions.items()})
    values = values_of(unsized, SampledLook(NOW_MS - 10_000, moved(unsized, positions=20), now.report))
    assert Series.COPIED_BYTES_PER_S not in values and Series.COPIED_RECORDS_PER_S in values


def test_a_partition_that_was_cut_back_or_has_just_come_takes_nothing_from_the_rate() -> None:
    now = look()
    first, *others = now.facts.ends
    ends = {key: now.facts.ends[key] - 30 for key in others} | {first: now.facts.ends[first] + 1_000_000}
    without = {key: at for key, at in ends.items() if key != first}
    for known in (ends, without):
        before = SampledLook(NOW_MS - 10_000, replace(now.facts, ends=known), now.report)
        assert values_of(now, before)[Series.IN_RECORDS_PER_S] == 3 * len(others)


def test_two_looks_of_which_one_says_nothing_or_that_are_far_apart_tell_no_rate() -> None:
    now = look()
    silent = look(selected=None, ends={}, source_unread=("A does not answer.",))
    assert (
        not {Series.IN_RECORDS_PER_S, Series.IN_BYTES_PER_S}
        & values_of(now, replace(silent, at_ms=NOW_MS - 10_000)).keys()
    )
    unread = look(positions={}, positions_unread="B does not answer.")
    assert Series.COPIED_RECORDS_PER_S not in values_of(now, replace(unread, at_ms=NOW_MS - 10_000))
    old = replace(now, at_ms=NOW_MS - int(APART_MOST_S * 1000) - 1)
    assert not RATES & values_of(now, old).keys()
    assert not RATES & values_of(now, replace(now, at_ms=NOW_MS + 5)).keys(), "the clock was set back"


def test_a_silent_source_leaves_the_lag_unknown_and_never_zero() -> None:
    values = values_of(look(selected=None, ends={}, source_unread=("A does not answer.",)), None)
    assert not {Series.LAG_RECORDS, Series.LAG_BYTES, Series.LAG_S, Series.TOPICS_NOT_COPIED} & values.keys()


def test_a_partial_sum_is_no_lag() -> None:
    now = look()
    ends = dict(list(now.facts.ends.items())[1:])
    values = values_of(look(ends=ends, source_unread=("1 partition(s) on A have no leader.",)), None)
    assert not {Series.LAG_RECORDS, Series.LAG_BYTES, Series.LAG_S} & values.keys()
