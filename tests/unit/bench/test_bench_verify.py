"""The bench of verification: both sides hold the same records, and the page says which goal was held."""

from __future__ import annotations

from dataclasses import replace

from bench.runs import Run
from bench.verify import SHAPES, batches, report
from mm2py.records.batch import read_records


def test_both_sides_hold_the_same_records_in_other_batches() -> None:
    shape = replace(SHAPES["records-200"], total_bytes=1)
    sides = [[*batches(shape, size)] for size in (shape.source_batch, shape.target_batch)]
    records = [[one[1:] for batch in side for one in read_records(batch)] for side in sides]
    assert records[0] == records[1]
    assert len(records[0]) == shape.records
    assert len(sides[0]) == shape.records // 16


def test_the_page_tells_which_goal_was_held() -> None:
    runs = [Run(name, "mm2py", 0, 1, {"mb": 400.0, "records": 200_000.0, "load": 0.5}) for name in SHAPES]
    page = report(runs, {"date": "2026-11-23", "machine": {"cores": 2}})
    assert (page.count("MB: held"), page.count("records: **missed**")) == (3, 3)
