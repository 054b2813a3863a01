"""The parts of the bench that decide and calculate: shapes, ratios, rounding, goals, tables, flatness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.__main__ import parse
from bench.batches import dated, templates
from bench.flatness import Sample, after_warm_up, judge, trend
from bench.measure import Reading, copy_measures
from bench.mirrors import FRANZ_GO, MM2_1, MM2_4, MM2PY, Launch, Options, properties
from bench.paced import latencies_ms, percentile
from bench.report import report
from bench.rounds import left_of, plan
from bench.runs import OtherConditions, Run, RunLog, read_runs
from bench.summary import GOALS, Goal, Summary, shown, shown_ratio, times_better
from bench.workloads import UNCOMPRESSED, WORKLOADS, ZSTD, Workload
from mm2py.records.batch import crc_is_right, read_header, read_records

CONDITIONS = {"commit": "a", "settings": ""}


def _run(mirror: str, number: int = 0, workload: str = "uncompressed", **measures: float) -> Run:
    return Run(workload, mirror, number, 1_000, measures)


def _goal(workload: str, measure: str) -> Goal:
    return next(goal for goal in GOALS if (goal.workload, goal.measure) == (workload, measure))


# What is copied


@pytest.mark.parametrize("workload", list(WORKLOADS.values()), ids=lambda workload: workload.name)
def test_every_batch_has_exactly_the_shape_of_its_workload(workload: Workload) -> None:
    shape = workload.shape
    for template in templates(shape, count=2):
        batch = dated(template, 1_700_000_000_000)
        header = read_header(batch)
        assert crc_is_right(batch)
        assert (header.record_count, header.codec) == (shape.records_per_batch, shape.codec)
        for record in read_records(batch):
            assert len(record.value or b"") == shape.value_bytes
            assert record.timestamp_ms == 1_700_000_000_000


def test_zstandard_makes_the_texts_several_times_smaller_and_not_absurdly_so() -> None:
    plain = ZSTD.shape.value_bytes * ZSTD.shape.records_per_batch
    assert 2 < plain / len(templates(ZSTD.shape)[0]) < 8


# The order of runs


def test_each_round_begins_with_another_mirror_and_all_take_their_turn() -> None:
    planned = plan([UNCOMPRESSED, ZSTD], ["a", "b", "c"], 3)
    assert [each.mirror for each in planned if each.workload is ZSTD] == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert [each.round for each in planned] == [0] * 6 + [1] * 6 + [2] * 6


def test_a_resumed_bench_repeats_what_is_missing_or_had_another_size_but_no_failure(tmp_path: Path) -> None:
    planned = plan([UNCOMPRESSED.with_records(1_920)], ["a", "b", "c", "d"], 1)
    log = RunLog(tmp_path / "runs.jsonl", CONDITIONS, resume=False)
    log.add(Run("uncompressed", "a", 0, 1_920, {"peak_mb": 1.0}))
    log.add(Run("uncompressed", "b", 0, 1_920, failed="too slow"))
    log.add(Run("uncompressed", "c", 0, 192, {"peak_mb": 1.0}))
    with log.path.open("a") as file:
        file.write('{"workload": "unco')  # the bench was killed in the middle of a line
    resumed = RunLog(log.path, CONDITIONS, resume=True)
    assert [each.mirror for each in left_of(planned, resumed)] == ["c", "d"]
    assert [run.failed for run in resumed.runs] == [None, "too slow", None]


@pytest.mark.parametrize("now", [{"commit": "b"}, {"commit": "a", "settings": "copy.mode=pass"}, {}])
def test_runs_of_other_conditions_are_not_mixed(tmp_path: Path, now: dict[str, str]) -> None:
    log = RunLog(tmp_path / "runs.jsonl", CONDITIONS, resume=False)
    log.add(Run("zstd", "a", 0, 10, {"peak_mb": 3.0}))
    with pytest.raises(OtherConditions, match=r"runs\.jsonl cannot be gone on with: .* was "):
        RunLog(log.path, now, resume=True)
    assert read_runs(log.path) == (CONDITIONS, log.runs), "nothing is lost by that"


@pytest.mark.parametrize("beside", [["--quick"], ["--set", "copy.mode=pass"], ["--profile", "p"]])
def test_only_a_bench_with_default_settings_is_saved(beside: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--save", *beside])
    assert parse(["--save"]).save


# What a mirror is told


def test_both_mirrors_read_the_same_file_and_none_serves_rest() -> None:
    launches = [Launch(mirror, UNCOMPRESSED, "0x0", Options()) for mirror in (MM2PY, MM2_4)]
    ours, theirs = (properties(launch, ("s:1", "t:1"), {}) for launch in launches)
    assert ours == {**theirs, "listeners": ""}
    assert ours["s0x0->t0x0.topics"] == "uncompressed"


def test_settings_of_the_command_line_are_for_mm2py_only() -> None:
    options = Options({"{flow}.copy.mode": "pass"})
    ours, theirs = (
        properties(Launch(mirror, UNCOMPRESSED, "1", options), ("s:1", "t:1"), {}) for mirror in (MM2PY, MM2_1)
    )
    assert ours["s1->t1.copy.mode"] == "pass"
    assert not any("copy.mode" in key for key in theirs)
    assert (ours["tasks.max"], theirs["tasks.max"]) == ("4", "1")


def test_tls_is_told_for_both_sides() -> None:
    told = properties(Launch(MM2_4, UNCOMPRESSED, "1", Options()), ("s:1", "t:1"), {"security.protocol": "SSL"})
    assert (told["s1.security.protocol"], told["t1.security.protocol"]) == ("SSL", "SSL")


# From readings to measures


def test_the_steady_rate_leaves_out_the_start_and_what_came_with_the_first_look() -> None:
    before = Reading(10.0, 0, 0.0, 5.0, 6.0, 20.0, 100.0)
    first = Reading(12.0, 100_000, 1.0, 5.1, 6.2, 20.0, 101.0)
    last = Reading(14.0, 500_000, 2.0, 6.0, 8.0, 25.0, 109.0)
    measures = copy_measures(UNCOMPRESSED, before, first, last, 120.0)
    assert measures["records_per_s"] == pytest.approx(200_000)
    assert measures["mb_per_s"] == pytest.approx(204.8)
    assert measures["records_per_s_from_start"] == pytest.approx(125_000)
    assert measures["cpu_s_per_million"] == pytest.approx(4.0)
    assert measures["cpu_s_per_million_steady"] == pytest.approx(2.5)
    assert measures["cpu_s_per_gb"] == pytest.approx(2.0 / 0.512)
    assert measures["first_record_s"] == 2.0
    assert measures["last_record_s"] == 4.0
    assert measures["source_broker_cpu_s_per_million"] == pytest.approx(2.0)
    assert measures["target_broker_cpu_s_per_million"] == pytest.approx(4.0)
    assert measures["other_cpu_percent"] == pytest.approx(100.0)


def test_a_copy_that_is_there_at_the_first_look_has_no_steady_rate() -> None:
    before = Reading(10.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    only = Reading(12.0, 1_000, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert "records_per_s" not in copy_measures(UNCOMPRESSED, before, only, only, 1.0)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([5.0, 1.0, 3.0], 0.5) == 3.0
    assert percentile([float(value) for value in range(1, 101)], 0.99) == 99.0
    assert percentile([7.0], 0.99) == 7.0


def test_records_of_the_settling_time_do_not_count() -> None:
    assert latencies_ms([(10, 9_000_000), (20, 2_000_000), (30, 3_000_000)], from_ns=20) == [2.0, 3.0]


# Ratios, rounding, goals


def test_a_ratio_says_how_many_times_better_whichever_way_a_measure_counts() -> None:
    assert times_better("records_per_s", 300.0, 100.0) == 3.0
    assert times_better("cpu_s_per_million", 2.0, 20.0) == 10.0
    assert times_better("p99_ms", 20.0, 10.0) == 0.5


def test_a_shown_ratio_is_never_more_than_it_is() -> None:
    assert shown_ratio(2.99) == "2.9"
    assert shown_ratio(3.0) == "3"
    assert shown_ratio(11.999) == "11.9"
    assert shown_ratio(0.999) == "0.99"


def test_figures_are_rounded_against_mm2py() -> None:
    assert shown("records_per_s", 123_999, ours=True) == "123,000"
    assert shown("records_per_s", 123_001, ours=False) == "124,000"
    assert shown("cpu_s_per_million", 1.451, ours=True) == "1.46"
    assert shown("cpu_s_per_million", 20.39, ours=False) == "20.3"
    assert shown("peak_mb", 126.0, ours=True) == "126"
    assert shown("cpu_s_per_million", 0.0, ours=True) == "0"


def test_the_better_mirrormaker_is_chosen_for_each_measure_by_itself() -> None:
    summary = Summary(
        [
            _run(MM2_1, records_per_s=50.0, peak_mb=900.0),
            _run(MM2_4, records_per_s=60.0, peak_mb=1_300.0),
            _run(MM2PY, records_per_s=180.0, peak_mb=90.0),
        ]
    )
    assert summary.better_mm2("uncompressed", "records_per_s") == MM2_4
    assert summary.better_mm2("uncompressed", "peak_mb") == MM2_1
    ratio = summary.against_mm2("uncompressed", "peak_mb")
    assert ratio is not None
    assert ratio.median == 10.0


def test_the_spread_of_a_ratio_is_its_worst_and_its_best_round() -> None:
    runs = [_run(MM2_4, number, records_per_s=value) for number, value in enumerate((50.0, 40.0, 60.0))]
    runs += [_run(MM2PY, number, records_per_s=value) for number, value in enumerate((200.0, 100.0, 180.0))]
    ratio = Summary(runs).against_mm2("uncompressed", "records_per_s")
    assert ratio is not None
    assert (ratio.median, ratio.lowest, ratio.highest) == (180.0 / 50.0, 2.5, 4.0)


def test_a_goal_is_judged_by_what_was_measured_and_not_by_what_is_shown() -> None:
    runs = [_run(MM2_4, records_per_s=100.0), _run(MM2PY, records_per_s=299.9)]
    goal = _goal("uncompressed", "records_per_s")
    assert Summary(runs).verdict(goal).held is False
    assert Summary([runs[0], replace(runs[1], measures={"records_per_s": 300.0})]).verdict(goal).held is True


def test_a_goal_without_the_other_side_is_not_measured_but_an_amount_is() -> None:
    summary = Summary([_run(MM2PY, records_per_s=300.0, first_record_s=2.1)])
    assert summary.verdict(_goal("uncompressed", "records_per_s")).held is None
    assert summary.verdict(_goal("uncompressed", "first_record_s")).held is False


def test_a_failed_run_of_mm2py_misses_every_goal_of_its_workload() -> None:
    runs = [_run(MM2_4, records_per_s=1.0), _run(MM2PY, records_per_s=300.0)]
    runs.append(Run("uncompressed", MM2PY, 1, 1_000, failed="7 of 1,000 records were there"))
    verdict = Summary(runs).verdict(_goal("uncompressed", "records_per_s"))
    assert verdict.held is False
    assert "1 runs failed" in verdict.why


def test_latency_no_worse_than_mirrormaker_holds_when_equal() -> None:
    runs = [_run(MM2_1, workload="latency", p99_ms=9.0), _run(MM2PY, workload="latency", p99_ms=9.0)]
    assert Summary(runs).verdict(_goal("latency", "p99_ms")).held is True


# What is shown


def _some_runs() -> list[Run]:
    runs = []
    for number in range(3):
        for mirror, rate, cpu in ((MM2PY, 180_123.0, 1.5), (MM2_1, 40_000.0, 25.0), (MM2_4, 51_000.0, 20.0)):
            measures = {"records_per_s": rate + number, "cpu_s_per_million_steady": cpu, "peak_mb": 100 + cpu}
            runs.append(Run("uncompressed", mirror, number, 1_000_128, measures))
        runs.append(Run("uncompressed", FRANZ_GO, number, 1_000_128, not_measured="no Go"))
    return runs


def test_the_page_names_goals_ratios_failures_and_what_was_not_measured() -> None:
    runs = [*_some_runs(), Run("zstd", MM2_4, 0, 10, failed="not done within 300 s: 4 of 10 records were there\nlog")]
    page = report(runs, {"Run": {"on": "2026-01-02", "commit": ""}}, ["a note"])
    assert "| 1 KB, 16 records a batch, uncompressed | records/s, first to last record | 180,000 /s |" in page
    assert "| 3.5x (3.5–3.5) | 3x | held | - |" in page
    assert "franz-go loop: not measured: no Go." in page
    assert "MM2, tasks.max=4, round 1: **failed**, not done within 300 s: 4 of 10 records were there" in page
    assert "* a note" in page
    assert "commit" not in page


def test_the_page_says_what_tls_costs() -> None:
    runs = [_run(MM2PY, records_per_s=200.0), _run(MM2PY, workload="tls", records_per_s=150.0)]
    assert "| mm2py | 200 | 150 | 0.75x |" in report(runs, {}, [])


# Flatness


def _samples(count: int, memory: float = 0.0, per_sample: float = 0.0, *, files: int = 30) -> list[Sample]:
    """One sample every ten seconds; the memory wanders by half a megabyte."""
    return [
        Sample(at * 10.0, memory + at * per_sample + (0.5 if at % 7 in {1, 4} else 0.0), files, 1, 20)
        for at in range(count)
    ]


def test_a_line_is_found_again() -> None:
    found = trend([(at, 5.0 + at / 3_600 * 2.5) for at in range(0, 3_600, 10)])
    assert found.per_hour == pytest.approx(2.5)
    assert found.error_per_hour == pytest.approx(0.0, abs=1e-6)


def test_memory_that_wanders_is_flat_and_memory_that_grows_is_not() -> None:
    assert all(finding.flat for finding in judge(_samples(360, 80.0), most_mb_per_hour=1.0))
    findings = judge(_samples(360, 80.0, per_sample=3.0 / 360), most_mb_per_hour=1.0)  # 3 MB in the hour
    assert [finding.flat for finding in findings] == [False, True, True, True]
    assert "MB an hour" in findings[0].text


def test_the_warm_up_is_not_judged() -> None:
    grows_at_first = [*_samples(36, 10.0, per_sample=2.0), *_samples(364, 80.0)[36:]]
    assert after_warm_up(grows_at_first)[0].at_s == 370.0
    assert all(finding.flat for finding in judge(grows_at_first, most_mb_per_hour=1.0))


def test_sockets_that_are_never_closed_are_found() -> None:
    leaking = [replace(sample, open_files=30 + at // 50) for at, sample in enumerate(_samples(360, 80.0))]
    assert [finding.flat for finding in judge(leaking, most_mb_per_hour=1.0)] == [True, False, True, True]


def test_too_few_samples_are_not_called_flat() -> None:
    assert [finding.flat for finding in judge(_samples(5), most_mb_per_hour=1.0)] == [False]
    assert [finding.flat for finding in judge([], most_mb_per_hour=1.0)] == [False]
