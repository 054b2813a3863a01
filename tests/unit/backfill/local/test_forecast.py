"""How a local verification says how far it is, and that it will take longer than an hour."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.backfill.verifying.local.forecast import (
    LocalProgress,
    expected_bytes,
    long_run,
    progress_bar,
    progress_line,
)
from mm2py.backfill.verifying.planning import VerifyFacts, numbered, plan_partition
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import NumberedLedger
from mm2py.offsets.runs import Run

MB = 1_000_000
QUARTER = LocalProgress(
    40, 10, 1_200_000, read_bytes=500 * MB, expected_bytes=1000 * MB, expected_done=250 * MB, seconds=10
)
"""The logs are twice as large as expected."""


def test_a_line_says_what_was_compared_how_fast_and_how_long_the_rest_takes() -> None:
    assert progress_line(QUARTER) == (
        "compared 10 of 40 ranges, 1,200,000 records; read 500 MB of both clusters, 50 MB/s, about 30 s left"
    )
    begun = replace(QUARTER, ranges_done=0, records=0, read_bytes=0, expected_done=0, seconds=0)
    assert progress_line(begun) == "compared 0 of 40 ranges, 0 records; read 0 MB of both clusters, 0 MB/s"


def test_a_bar_is_as_long_as_what_was_read() -> None:
    assert progress_bar(QUARTER) == (
        "[#####               ]  25.0%  10/40 ranges  1,200,000 records  50 MB/s  30 s left"
    )
    nothing = LocalProgress(0, 0, 0, 0, 0, 0, 0)
    assert progress_bar(nothing).startswith("[####################] 100.0%")


def test_before_anything_is_read_only_the_limit_tells_how_long_it_takes_at_least() -> None:
    begun = LocalProgress(9000, 0, 0, 0, expected_bytes=720_000 * MB, expected_done=0, seconds=0)
    assert long_run(begun, 100 * MB) == (
        "this takes at least 2 h 0 min, at 100 MB/s of both clusters together. --max-mb-per-second 100 is the limit;"
        " with a higher one Spark (without --local) spreads it."
    )
    assert long_run(begun, 200 * MB) is None, "an hour"
    assert long_run(begun, None) is None


@pytest.mark.parametrize("limit", [None, 100 * MB])
def test_once_something_is_read_its_rate_tells(limit: int | None) -> None:
    slow = LocalProgress(
        100, 1, 1000, read_bytes=100 * MB, expected_bytes=10_000 * MB, expected_done=50 * MB, seconds=20
    )
    assert long_run(slow, limit) == (
        "this takes about 1 h 6 min, at 5 MB/s of both clusters together."
        " Spark (without --local) spreads it over cores and machines."
    )
    assert long_run(replace(slow, expected_done=60 * MB), limit) is None
    assert long_run(replace(slow, seconds=9.9, expected_done=20 * MB), limit) is None, "too early"
    assert long_run(replace(slow, seconds=10, expected_done=20 * MB), limit) is not None


def test_what_is_expected_of_a_range_is_its_offsets_on_both_sides() -> None:
    ledger = Ledger(0, 0, is_whole=True)
    ledger.append(Run(0, 0, 10_000))
    facts = VerifyFacts("t", 0, "A.t", [NumberedLedger(1, ledger)], (0, 10_000), (0, 10_000), bytes_per_offset=200.0)
    plans = [plan_partition(facts, range_bytes=200 * 8192)]
    numbered(plans)
    assert expected_bytes(plans) == {0: 2 * 8192 * 200.0, 1: 2 * 1808 * 200.0}
