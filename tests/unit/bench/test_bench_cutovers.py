"""``make cutovers``: its page says how often, what was lost or repeated, and how long producers stood still."""

from __future__ import annotations

from bench.cutovers import report
from bench.runs import Run

MEASURES = {
    "cutover_0_s": 40.0,
    "rollback_1_s": 50.0,
    "complete_2_s": 9.0,
    "cutover_3_s": 41.0,
    "lost": 0.0,
    "again": 0.0,
    "differs": 0.0,
    "records": 1234.0,
    "refused": 1.0,
    "pause_0_orders_s": 12.0,
    "pause_1_paid_s": 16.0,
}


def test_the_page_counts_switches_and_shows_pauses_and_durations() -> None:
    runs = [Run("cutovers", "identity", number, 0, MEASURES) for number in range(2)]
    page = report(runs, {"date": "2026-11-29"}, groups=20)
    assert "| identity | 2 | 4 | 2 | 1,234 | 0 | 0 | 0 | 2 |" in page
    assert "| identity | 4 | 12.0 s | 16.0 s | 16.0 s |" in page
    assert "| identity | rollback | 2 | 50.0 s | 50.0 s | 50.0 s |" in page
    assert "20 groups" in page


def test_a_round_that_lost_something_is_named() -> None:
    bad = Run("cutovers", "prefixed", 3, 0, {**MEASURES, "lost": 2.0}, failed="2 lost for a group")
    page = report([bad], {"date": "2026-11-29"})
    assert "prefixed, round 4 **failed**: 2 lost for a group" in page
    assert "| prefixed | 1 | 2 | 1 | 1,234 | 2 | 0 | 0 | 1 |" in page
