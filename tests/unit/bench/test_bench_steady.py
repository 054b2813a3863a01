"""What the cost of a part is said to be, given pairs of runs."""

from __future__ import annotations

import pytest

from bench.mirrors import MM2PY
from bench.runs import Run
from bench.steady import BARE, PARTS, STEADY, cost, pairs_of, report
from bench.workloads import WORKLOADS


def run_of(number: int, mirror: str, cpu_s: float) -> Run:
    return Run("uncompressed", mirror, number, 100, {"cpu_s_per_million": cpu_s})


def test_a_pair_counts_when_both_of_it_are_there() -> None:
    runs = [run_of(0, MM2PY, 2.0), run_of(0, BARE, 1.0), run_of(1, MM2PY, 3.0), Run("uncompressed", BARE, 1, 100)]
    assert pairs_of(runs, "cpu_s_per_million") == [(2.0, 1.0)]


def test_the_cost_is_the_median_of_the_pairs_and_a_machine_that_slows_down_does_not_change_it() -> None:
    found = cost([(1.02 * slow, slow) for slow in (1.0, 2.0, 3.0, 4.0, 5.0)])
    assert found.median == pytest.approx(2.0)
    assert (found.low, found.high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_the_interval_of_the_median_is_narrower_than_all_pairs_and_holds_it() -> None:
    pairs = [(1 + percent / 100, 1.0) for percent in range(-10, 11)]
    found = cost(pairs)
    assert found.median == pytest.approx(0.0)
    assert found.low == pytest.approx(-5.0)
    assert found.high == pytest.approx(5.0)
    assert found.quartiles == (pytest.approx(-5.5), pytest.approx(5.5))


@pytest.mark.parametrize(("percent", "word"), [(0.9, "held"), (1.1, "**missed**")])
def test_the_page_names_the_part_and_holds_its_cost_against_its_own_goal(percent: float, word: str) -> None:
    runs = [
        Run("uncompressed", mirror, number, 100, {STEADY: cpu_s, "other_cpu_percent": 3.0})
        for number in range(3)
        for mirror, cpu_s in ((MM2PY, 1 + percent / 100), (BARE, 1.0))
    ]
    page = report(PARTS["verdict"], runs, WORKLOADS["uncompressed"], {})
    assert "# What the verdict and the flight recorder cost" in page
    assert f"| +{percent:.2f} % |" in page
    assert f"| 3 | {word} |" in page
