"""Windows: what is shown of values that came within the last half to whole minute, as Kafka's metrics have it."""

from __future__ import annotations

import math

import pytest

from mm2py.metrics.windows import CopyMeter, CopySample, Window, rate, stats


def shown(window: Window, now_s: float) -> tuple[float, ...]:
    state = window.state()
    return tuple(stats(state.last, state.samples, now_s))


def test_without_a_value_nothing_is_known() -> None:
    assert all(math.isnan(number) for number in shown(Window(), 0.0))


def test_a_value_counts_for_a_minute_after_its_sample_began_and_the_last_one_stays() -> None:
    window = Window()
    window.add(9.0, 0.0)
    assert shown(window, 59.9)[1:] == (9.0, 9.0, 9.0)
    last, *others = shown(window, 60.0)
    assert last == 9.0
    assert all(math.isnan(number) for number in others)


def test_two_samples_of_thirty_seconds_count_and_an_older_one_does_not() -> None:
    window = Window()
    for value, at_s in ((100.0, 0.0), (2.0, 30.0), (4.0, 61.0)):
        window.add(value, at_s)
    assert shown(window, 61.0) == (4.0, 3.0, 2.0, 4.0)
    assert (window.state().weight, window.state().total) == (3, 106.0)


def copy_samples(meter: CopyMeter) -> list[CopySample]:
    now = CopySample(
        meter.begun_s,
        meter.records,
        meter.bytes,
        meter.timed,
        meter.latency_total,
        meter.latency_low,
        meter.latency_high,
        meter.age_total,
        meter.age_low,
        meter.age_high,
    )
    return [*([CopySample._make(meter.previous)] if meter.previous else []), now]


def test_latency_is_age_at_the_fetch_and_the_time_until_the_acknowledgement() -> None:
    meter = CopyMeter()
    meter.add(9_000, 10, 500, read_at_s=99.75, now_s=100.0, now_ms=10_000)
    assert (meter.latency_ms, meter.age_ms, meter.held_total) == (1000, 750.0, 2500.0)


def test_averages_count_records_and_not_batches() -> None:
    meter = CopyMeter()
    meter.add(9_900, 1, 50, read_at_s=100.0, now_s=100.0, now_ms=10_000)
    meter.add(9_500, 9, 450, read_at_s=100.0, now_s=100.0, now_ms=10_000)
    found = stats(meter.latency_ms, [one.latency for one in copy_samples(meter)], 100.0)
    assert found == (500, pytest.approx(460.0), 100, 500)
    assert rate([(one.begun_s, one.records) for one in copy_samples(meter)], 101.0) == pytest.approx(10 / 30)


def test_clocks_that_differ_make_no_negative_latency() -> None:
    meter = CopyMeter()
    meter.add(20_000, 1, 50, read_at_s=99.0, now_s=100.0, now_ms=10_000)
    assert (meter.latency_ms, meter.age_ms) == (0, 0.0)


def test_a_batch_without_timestamps_is_counted_and_has_no_age() -> None:
    meter = CopyMeter()
    meter.add(-1, 5, 250, read_at_s=99.0, now_s=100.0, now_ms=10_000)
    (sample,) = copy_samples(meter)
    assert (sample.records, sample.bytes, sample.timed_records) == (5, 250, 0)
    assert all(math.isnan(number) for number in stats(meter.latency_ms, [sample.latency], 100.0))


def test_sums_over_all_time_go_on_over_samples() -> None:
    meter = CopyMeter()
    for at_s in (0.0, 31.0, 62.0):
        meter.add(9_000, 2, 100, read_at_s=at_s - 0.5, now_s=at_s, now_ms=10_000)
    assert meter.all_timed + meter.timed == 6
    assert meter.all_held_ms + meter.held_total == pytest.approx(3000.0)
    assert meter.all_age_ms + meter.age_total == pytest.approx(3000.0)


def test_a_rate_is_over_the_time_since_the_oldest_sample_and_at_least_half_a_minute() -> None:
    assert rate([], 50.0) == 0.0
    assert rate([(49.0, 300)], 50.0) == 10.0
    assert rate([(0.0, 300), (30.0, 200)], 50.0) == 10.0
    assert rate([(0.0, 300), (30.0, 200)], 70.0) == 5.0
