"""What the benches of REST say of what they saw: pauses at changed settings, starts with REST and without."""

from __future__ import annotations

import pytest

from bench import rest_load, rest_start, settings_pause
from bench.runs import Run
from bench.workloads import UNCOMPRESSED

FACTS = {"date": "2026-11-23", "machine": {"cores": 2}}


def _window(kind: str, number: int, gaps: list[float], **more: float) -> Run:
    measures = {f"gap-{at}": gap for at, gap in enumerate(gaps)}
    return Run("settings", kind, number, 24, {**measures, "writer": 0.05, "others_percent": 7.0, **more})


def test_of_each_partition_the_longest_gap_in_a_window_counts() -> None:
    found = settings_pause.window_measures({0: [1.0, 2.0, 2.5, 4.0], 1: [1.5, 2.5, 3.5]}, [1.0, 2.0, 3.0], (2.0, 3.0))
    assert found == pytest.approx({"gap-0": 1.0, "gap-1": 1.0, "writer": 1.0})
    assert settings_pause.gaps_of(Run("settings", "quiet", 0, 24, found)) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("changed_s", "verdict"), [([0.11, 0.09, 0.1, 0.12, 0.08, 0.1], "held"), ([0.3] * 6, "**missed**")]
)
def test_a_goal_is_missed_if_partitions_pause_for_sure_longer_in_windows_with_a_change(
    changed_s: list[float], verdict: str
) -> None:
    runs = [_window("quiet", at, [0.1, 0.06]) for at in range(6)]
    runs += [_window("changed", at, [gap, 0.06], applied_s=0.4) for at, gap in enumerate(changed_s)]
    page = settings_pause.report(runs, 10.0, FACTS)
    assert f"or below: {verdict}." in page
    assert "| quiet: partitions | 12 | 0.060 s | 0.100 s | 0.100 s |" in page
    assert "had applied the change: 0.40 s (median), 0.40 s (longest)" in page


def test_pairs_of_starts_take_turns_and_the_goal_is_that_of_starts_with_rest() -> None:
    assert [rest_start.order_of(number)[0] for number in range(3)] == ["with REST", "without REST", "with REST"]
    runs = [
        Run("uncompressed", name, number, 10, {"first_record_s": first_s + number * 0.1, "last_record_s": 2.0})
        for name, first_s in (("with REST", 1.4), ("without REST", 1.1))
        for number in range(3)
    ]
    page = rest_start.report([*runs, Run("uncompressed", "with REST", 3, 10, failed="ended")], UNCOMPRESSED, FACTS)
    assert "| with REST: start to first record | 3 | 1.50 s | 1.40 s | 1.60 s |" in page
    assert "(median): 1.50 s, held." in page
    assert "in each pair: +0.30 s (median)" in page
    assert "Pair 4, with REST, failed: ended" in page


def test_tabs_of_a_browser_are_one_more_kind_of_clients_and_their_heap_is_told() -> None:
    met = {"failed": [], "latencies_ms": [9.0, 11.0], "first_ms": 900.0, "late_ms": [1.0], "events": 0}
    heap = {"heap_mb": [5.0, 6.5, 6.0], "browser_cpu_s": 12.0}
    assert "heap_p50_mb" not in rest_load.latency_measures(met)
    measures = rest_load.latency_measures({**met, **heap}) | {
        f"{name}_{measure}": value
        for name, rate in (("asked", 98_000.0), ("quiet", 100_000.0))
        for measure, value in (("records_per_s", rate), ("worker_cpu_s_per_million", 2.0), ("rest_cpu_percent", 4.0))
    }
    runs = [Run("uncompressed", rest_load.ASKED, number, 10, measures) for number in range(3)]
    page = rest_load.report(runs, UNCOMPRESSED, FACTS, rest_load.of_tabs(20))
    assert "20 tabs of one browser" in page and "they ask for 4 s" in page
    assert "Records a second with clients beside without: -2.0 %" in page
    assert "5.0 MB in the first second, 6.0 MB in the middle, 6.0 MB in the last second" in page
    assert "took 12.0 s of CPU" in page
