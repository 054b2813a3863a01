"""What the failover drill of groups asks of both mirrors, and what its page says."""

from __future__ import annotations

import pytest

from bench import group_failover
from bench.fault_mirrors import MM2, MM2PY, Plan, properties
from bench.runs import Run

KINDS = ("plain", "transactions", "compacted")


def run(mirror: str, number: int, *, lag: int, again: int, skipped: int = 0) -> Run:
    measures = {"lag": lag, "skipped": skipped, "again": again, "settled_s": 3.5}
    return Run("group-failover", mirror, number, 6_000, {**measures, **{f"again_{kind}": again // 3 for kind in KINDS}})


@pytest.mark.parametrize("mirror", group_failover.MIRRORS)
def test_both_mirrors_have_the_same_settings_for_groups(mirror: str) -> None:
    settings = group_failover.settings_of("drill")
    file = properties(Plan(mirror, "x", "source:1", "target:2", ["orders"], 1, 1, settings=settings), rest_port=0)
    assert file["sync.group.offsets.enabled"] == "true"
    assert file["sx.consumer.isolation.level"] == "read_committed"
    assert file["groups"] == "drill-.*"
    assert "offset.lag.max" not in file, "both have 100 by default"
    assert not any("{" in key for key in file)


def test_the_page_has_a_row_for_each_group_those_with_the_least_lag_first() -> None:
    runs = [
        *(run(MM2, number, lag=100 * (3 - number), again=30 * number) for number in range(3)),
        *(run(MM2PY, number, lag=100 * (3 - number), again=0) for number in range(3)),
    ]
    page = group_failover.report(runs, {"date": "2026-11-23"})
    assert "| MM2 | 3 | 0 | 90 | 30 | 60 | 1 |" in page
    assert "| mm2py | 3 | 0 | 0 | 0 | 0 | 3 |" in page
    assert "| MM2 | 30 | 30 | 30 |" in page
    rows = [line for line in page.splitlines() if line.count("|") == 7 and line.startswith(("| 0", "| 1", "| 2"))]
    assert rows == ["| 2 | 100 | 0 | 60 | 0 | 0 |", "| 1 | 200 | 0 | 30 | 0 | 0 |", "| 0 | 300 | 0 | 0 | 0 | 0 |"]
    assert "MM2 3.5 s, mm2py 3.5 s" in page
