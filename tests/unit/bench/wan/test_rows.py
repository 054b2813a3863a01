"""The table of ``make bench-wan``: medians, ratios to MirrorMaker 2 with defaults, and what failed."""

from __future__ import annotations

import pytest

from bench.mirrors import MM2_1, MM2_TUNED, MM2PY
from bench.runs import Run
from bench.wan.rows import ROWS, sized, table


def run_of(mirror: str, number: int, rate: float) -> Run:
    return Run("wan-12", mirror, number, 1_000, {"mb_per_s": rate, "peak_mb": 150.0, "cpu_s_per_gb_steady": 1.25})


def test_ratios_are_those_of_medians_and_a_failed_run_says_why() -> None:
    runs = [run_of(MM2PY, number, rate) for number, rate in enumerate([70.0, 90.0, 80.0])]
    runs += [run_of(MM2_1, 0, 2.0), Run("wan-12", MM2_TUNED, 0, 1_000, failed="no record within 120 s")]
    lines = table([ROWS["wan-12"]], runs).splitlines()
    assert [line.split(" | ")[1:] for line in lines[2:5]] == [
        ["mm2py", "80", "40.0", "", "1.25", "150", "3 of 3 |"],
        ["MM2, defaults", "2", "1.0", "", "1.25", "150", "1 of 1 |"],
        ["MM2, tuned (12 tasks, 1 MB receive buffers, large fetches)", *[""] * 5, "0 of 1 |"],
    ]
    assert lines[5:] == ["", "* wan-12, mm2-tuned, round 1: no record within 120 s"]


def test_a_row_has_so_many_records_and_a_paced_one_so_many_seconds() -> None:
    copied = sized(ROWS["wan-12"], records=20_000, paced_s=5.0).workload
    assert (copied.name, copied.records >= 20_000, copied.records % (16 * 12)) == ("wan-12", True, 0)
    paced = sized(ROWS["wan-paced"], records=1_000_000, paced_s=5.0).workload
    assert paced.pace is not None and (paced.pace.measured_s, paced.pace.settle_s) == (5.0, 5.0)


def test_a_backlog_is_gone_in_time_if_the_full_rate_less_what_arrives_allows_it() -> None:
    """1,200 MB at 80 - 20 MB/s take 20 s."""
    row = sized(ROWS["wan-catch-up"], records=1_000, paced_s=5.0, backlog_minutes=1.0)
    assert row.workload.records * row.workload.record_bytes / 1e6 == pytest.approx(1_200, rel=1e-3)
    full = run_of(MM2PY, 0, 80.0)
    for took_s, verdict in [(22.0, "+10 %, held"), (24.0, "+20 %, **missed**")]:
        measures = {"backlog_mb": 1_200.0, "gone_after_s": took_s, "arrived_mb_per_s": 20.0}
        late = Run("wan-catch-up", MM2PY, 0, row.workload.records, measures)
        (line,) = [line for line in table([ROWS["wan-12"], row], [full, late]).splitlines() if line.startswith("*")]
        assert line.endswith(f"would take 20 s: {verdict}")
        alone = table([row], [late]).splitlines()[-1]
        assert alone == f"* wan-catch-up: 1,200 MB were gone after {took_s:.0f} s while 20.0 MB/s arrived"
