"""The page of the backfill's bench says what was held and what was missed."""

from __future__ import annotations

import pytest

from bench.backfill import LIVE, report
from bench.runs import Run
from bench.workloads import WORKLOADS

WORKLOAD = WORKLOADS["uncompressed"].with_records(1_000)


def measured(kind: str, rate: float) -> Run:
    measures = {"records_per_s": rate, "first_record_s": 12.0, "cpu_s_per_million": 3.0}
    return Run(WORKLOAD.name, kind, 0, WORKLOAD.records, measures)


@pytest.mark.parametrize(
    ("two", "wanted"), [(250_000.0, ["1.00", ": held", "6.0 times, held"]), (100_000.0, ["0.40", "**missed**"])]
)
def test_goals_are_told_as_held_or_missed(two: float, wanted: list[str]) -> None:
    page = report([measured(LIVE, 250_000), measured("local[2]", two)], WORKLOAD, {"commit": "abc"})
    for text in wanted:
        assert text in page


def test_a_run_that_failed_is_named() -> None:
    failed = Run(WORKLOAD.name, "local[4]", 1, WORKLOAD.records, failed="no Java")
    assert "Round 2, local[4], failed: no Java" in report([failed], WORKLOAD, {"commit": "abc"})
