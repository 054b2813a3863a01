"""The history of a flow over a day: two resolutions, bounded, gaps as gaps, and the same after a restart."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable

import pytest

from mm2py.flow_history.rings import DAY_MS, HOUR_MS, KIND_MOST, MORE, FlowHistory, FreshEvent, HistoryGap
from mm2py.records.flow_history_record import (
    EVENTS_MOST,
    FINE_S,
    MINUTE_S,
    HistoryEvent,
    HistoryPoint,
    HistoryRecord,
    Series,
    decode_history_record,
    encode_history_record,
)

BEGIN_MS = 1_760_000_400_000
"""The beginning of an hour."""
LAG = Series.LAG_RECORDS
FLOW = "A->B"


class Topic:
    """The topic of a history, compacted after each record, and a coordinator that writes it by the rules."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.history = FlowHistory()

    def write(self, records: Iterable[HistoryRecord]) -> None:
        for record in records:
            key, value = encode_history_record(FLOW, record)
            self.records.pop(key, None)
            self.records[key] = value
            self.history.take(record)

    def point(self, at_ms: int, lag: float | None = 0.0, by: str = "w1") -> None:
        values = {} if lag is None else {LAG: lag}
        self.write([HistoryPoint(at_ms, FINE_S, by, values), *self.history.minutes_due(at_ms, by)])

    def restarted(self) -> FlowHistory:
        """Return what a process that starts now reads."""
        found = FlowHistory()
        for key, value in self.records.items():
            record = decode_history_record(FLOW, key, value)
            assert record is not None
            found.take(record)
        return found


def lags(history: FlowHistory, from_ms: int, to_ms: int, step_s: int, now_ms: int) -> list[float | None]:
    return list(history.chart(from_ms, to_ms, step_s, now_ms).series[LAG])


def after(hours: float, seconds: float = 0.0) -> int:
    return BEGIN_MS + int(hours * HOUR_MS + seconds * 1000)


def run(topic: Topic, begin_ms: int, end_ms: int) -> None:
    """Write a point every ten seconds, whose lag is the number of seconds since BEGIN_MS."""
    for at_ms in range(begin_ms, end_ms, FINE_S * 1000):
        topic.point(at_ms, (at_ms - BEGIN_MS) // 1000)


def test_the_last_hour_has_a_point_in_ten_seconds_and_the_day_before_one_a_minute() -> None:
    topic = Topic()
    run(topic, BEGIN_MS, after(30))
    now_ms = after(30, -10)  # the time of the last point
    hour = lags(topic.history, now_ms - HOUR_MS, now_ms, FINE_S, now_ms)
    assert hour == [30 * 3600 - 10 * left for left in range(360, 0, -1)]
    day = lags(topic.history, now_ms - DAY_MS, now_ms, MINUTE_S, now_ms)
    assert day == [30 * 3600 - 60 * left + 50 for left in range(1440, 0, -1)], "the highest of each minute"
    assert topic.history.chart(now_ms - DAY_MS, now_ms, MINUTE_S, now_ms).gaps == []
    assert len(topic.records) == 360 + 1440


def test_what_a_process_reads_that_starts_later_is_what_the_first_one_tells() -> None:
    topic = Topic()
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    at_ms = BEGIN_MS
    for number in range(12_000):
        at_ms += 10_000 * (rng.randrange(500) if rng.random() < 0.002 else 1)
        topic.point(at_ms, rng.choice([None, 0, rng.randrange(1_000)]), by=rng.choice(["w1", "w2"]))
        if rng.random() < 0.05:
            event = FreshEvent(at_ms, f"kind {rng.randrange(4)}", "text", f"place {number}")
            topic.write(topic.history.events_due([event], at_ms))
    later = topic.restarted()
    for from_ms, step_s in ((at_ms - HOUR_MS, FINE_S), (at_ms - DAY_MS, MINUTE_S), (at_ms - DAY_MS, 3600)):
        told = topic.history.chart(from_ms, at_ms, step_s, at_ms)
        assert later.chart(from_ms, at_ms, step_s, at_ms) == told, f"seed {seed}"


def test_missed_points_are_a_gap_and_never_zeros() -> None:
    topic = Topic()
    run(topic, BEGIN_MS, after(0, 300))
    run(topic, after(0, 480), after(0, 600))  # the coordinator was killed, and the next one began three minutes later
    now_ms = after(0, 599)
    chart = topic.history.chart(BEGIN_MS, now_ms, FINE_S, now_ms)
    assert chart.series[LAG][30:48] == [None] * 18
    assert None not in [*chart.series[LAG][:30], *chart.series[LAG][48:]]
    assert chart.gaps == [HistoryGap(BEGIN_MS + 300_000, BEGIN_MS + 480_000)]
    by_minute = topic.history.chart(BEGIN_MS, now_ms, MINUTE_S, now_ms)
    assert by_minute.series[LAG] == [50, 110, 170, 230, 290, None, None, None, 530, 590]
    assert by_minute.gaps == chart.gaps


def test_a_history_that_nobody_writes_any_more_ends_in_a_gap() -> None:
    topic = Topic()
    run(topic, BEGIN_MS, after(0, 300))
    assert topic.history.chart(BEGIN_MS, after(0, 320), FINE_S, after(0, 320)).gaps == [], "the next one may come"
    chart = topic.history.chart(BEGIN_MS, after(0, 400), FINE_S, after(0, 400))
    assert chart.gaps == [HistoryGap(BEGIN_MS + 300_000, BEGIN_MS + 410_000)]


def test_before_its_first_point_a_history_has_no_gap_and_no_number() -> None:
    topic = Topic()
    assert topic.history.chart(BEGIN_MS, after(1), FINE_S, after(1)).gaps == []
    run(topic, after(0.5), after(1))
    now_ms = after(1, -10)
    chart = topic.history.chart(BEGIN_MS, now_ms, FINE_S, now_ms)
    assert chart.series[LAG][:180] == [None] * 180
    assert chart.gaps == []


def test_what_a_look_did_not_find_out_is_not_known_though_the_point_is_there() -> None:
    topic = Topic()
    topic.point(BEGIN_MS, 7)
    topic.point(BEGIN_MS + 10_000, None)
    chart = topic.history.chart(BEGIN_MS, BEGIN_MS + 10_000, FINE_S, BEGIN_MS + 10_000)
    assert chart.series[LAG] == [7, None]
    assert chart.gaps == []


def test_a_longer_step_has_the_highest_lag_and_the_mean_rate_of_what_is_known() -> None:
    topic = Topic()
    rate = Series.COPIED_RECORDS_PER_S
    for number, (lag, per_s) in enumerate([(5.0, 10.0), (90.0, 0.0), (None, None), (3.0, 5.0)]):
        values = {} if lag is None or per_s is None else {LAG: lag, rate: per_s}
        topic.write([HistoryPoint(BEGIN_MS + number * 10_000, FINE_S, "w1", values)])
    now_ms = BEGIN_MS + 30_000
    now = topic.history.chart(BEGIN_MS, now_ms, MINUTE_S, now_ms)
    assert (now.series[LAG], now.series[rate]) == ([90], [5]), "a minute that is not over is told as well"
    topic.write(topic.history.minutes_due(BEGIN_MS + 60_000, "w1"))
    later = topic.history.chart(BEGIN_MS, now_ms, 300, now_ms)
    assert (later.series[LAG], later.series[rate]) == ([90], [5])


def test_a_minute_whose_coordinator_died_is_thinned_by_the_next_one() -> None:
    topic = Topic()
    run(topic, BEGIN_MS, after(0, 30))
    successor = topic.restarted()
    assert [one.slot for one in successor.minutes_due(after(3), "w2")] == [BEGIN_MS // 60_000]
    assert successor.minutes_due(after(25), "w2") == [], "it is older than a day"


@pytest.mark.parametrize("ahead_h", [0.25, 2, 24 * 365])
def test_a_clock_that_was_ahead_leaves_nothing_behind_when_it_is_right_again(ahead_h: float) -> None:
    topic = Topic()
    run(topic, BEGIN_MS, after(1))
    for number in range(60):
        topic.point(after(1 + ahead_h, 10 * number), 1e6)
    run(topic, after(1, 600), after(6))
    now_ms = after(6, -10)
    chart = topic.history.chart(now_ms - DAY_MS, now_ms, MINUTE_S, now_ms)
    assert max(number for number in chart.series[LAG] if number is not None) < 1e6
    assert chart.gaps == [HistoryGap(BEGIN_MS + HOUR_MS, BEGIN_MS + HOUR_MS + 600_000)]
    assert topic.restarted().chart(now_ms - DAY_MS, now_ms, MINUTE_S, now_ms) == chart


def test_a_clock_that_is_set_back_replaces_what_was_there_and_what_is_ahead_is_not_shown() -> None:
    topic = Topic()
    run(topic, BEGIN_MS, after(3))
    for number in range(30):
        topic.point(after(2, 10 * number), 1e6)
    now_ms = after(2, 290)
    chart = topic.history.chart(now_ms - HOUR_MS, now_ms, FINE_S, now_ms)
    assert chart.times_ms[-1] <= now_ms
    assert chart.series[LAG][-30:] == [1e6] * 30


def test_an_event_is_kept_once_whichever_coordinator_reads_it() -> None:
    topic = Topic()
    topic.point(BEGIN_MS)
    event = FreshEvent(BEGIN_MS + 5, "member.left", "w1 has left.", "c0ffee00:17")
    topic.write(topic.history.events_due([event], BEGIN_MS + 10))
    successor = topic.restarted()
    assert successor.events_due([event], BEGIN_MS + 20) == []
    other = FreshEvent(BEGIN_MS + 6, "member.joined", "w2 has joined.", "c0ffee00:18")
    assert [one.number for one in successor.events_due([event, other], BEGIN_MS + 20)] == [1]
    chart = successor.chart(BEGIN_MS, BEGIN_MS + 1_000, FINE_S, BEGIN_MS + 1_000)
    assert [(one.kind, one.text) for one in chart.events] == [("member.left", "w1 has left.")]


def test_many_events_of_one_kind_at_once_are_counted_and_do_not_replace_the_others() -> None:
    history = FlowHistory()
    flood = [FreshEvent(BEGIN_MS + at, "gap", f"orders-{at}: expired", f"a:{at}") for at in range(1_000)]
    found = history.events_due([*flood, FreshEvent(BEGIN_MS + 3, "member.left", "w1 has left.", "b:1")], BEGIN_MS + 9)
    assert len(found) == KIND_MOST + 2
    assert [one.kind for one in found if one.kind != "gap"] == ["member.left", MORE]
    assert found[-1].text == "980 more: gap, the last one: orders-999: expired"


def test_a_history_takes_no_more_memory_after_a_week_of_events_than_after_a_day() -> None:
    topic = Topic()
    for number in range(5 * EVENTS_MOST):
        topic.write([HistoryEvent(number, BEGIN_MS + number, "gap", "x" * 300, f"a:{number}")])
    chart = topic.history.chart(BEGIN_MS, after(1), FINE_S, after(1))
    assert [one.number for one in chart.events] == list(range(4 * EVENTS_MOST, 5 * EVENTS_MOST))
    assert len(topic.records) == EVENTS_MOST


def test_a_thousand_full_histories_fit_into_memory_and_empty_ones_take_nothing() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        empty = [FlowHistory() for _ in range(100)]
        without, _ = tracemalloc.get_traced_memory()
        assert (without - before) / 100 < 2_000
        for history in empty[:10]:
            run_lightly(history)
        full, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (full - without) / 10 < 160_000, "a thousand flows: 160 MB"


def run_lightly(history: FlowHistory) -> None:
    values = dict.fromkeys(Series, 123.5)
    for number in range(360):
        history.take(HistoryPoint(BEGIN_MS + number * 10_000, FINE_S, "w1", values))
    for number in range(1440):
        history.take(HistoryPoint(BEGIN_MS - number * 60_000, MINUTE_S, "w1", values))
