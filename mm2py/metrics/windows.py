"""Measured values of the last 30 to 60 seconds: last, average, lowest, highest, and rates. Pure.

A sample collects values for 30 seconds, from its first value on. The last two samples count, until each is a minute
old. Without a sample the value is NaN, as in MirrorMaker 2.

A worker adds to a window with each acknowledged batch, so adding must be cheap. Averages and rates are computed only
when a page is requested, in another process, which gets a ``WindowState``.

Counterpart: the sampled statistics of Kafka's metrics (``metrics.num.samples`` = 2, ``metrics.sample.window.ms`` = 30
s), in which MirrorMaker 2 keeps record age and latencies.
"""

# ruff: noqa: PLR1730  (min and max would cost as much again as all the rest of CopyMeter.add)

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

SAMPLE_S: Final = 30.0
KEPT_S: Final = 2 * SAMPLE_S


class Sample(NamedTuple):
    """Values of up to 30 seconds."""

    begun_s: float
    weight: int
    """How many values the sample has."""
    total: float
    low: float
    high: float


class WindowState(NamedTuple):
    """A window at one moment. ``weight`` and ``total`` are of all values since the window was made."""

    last: float
    weight: int
    total: float
    samples: tuple[Sample, ...]


class Stats(NamedTuple):
    """The numbers that are shown for a window; NaN where there is no value."""

    last: float = math.nan
    avg: float = math.nan
    low: float = math.nan
    high: float = math.nan


class Window:
    """A window of single values."""

    __slots__ = ("_all", "_last", "_now", "_previous", "_sum")

    def __init__(self) -> None:
        self._all = 0
        self._sum = 0.0
        self._last = math.nan
        self._previous: Sample | None = None
        self._now: Sample | None = None

    def add(self, value: float, now_s: float) -> None:
        """Add a value. ``now_s`` is monotonic time."""
        now = self._now
        if now is None or now_s - now.begun_s >= SAMPLE_S:
            self._previous, now = now, Sample(now_s, 0, 0.0, math.inf, -math.inf)
        low, high = min(now.low, value), max(now.high, value)
        self._now = Sample(now.begun_s, now.weight + 1, now.total + value, low, high)
        self._last = value
        self._all += 1
        self._sum += value

    @property
    def last(self) -> float:
        """The last value; NaN before the first."""
        return self._last

    def plain_samples(self) -> tuple[tuple[float, ...], ...]:
        """Return the fields of each sample, oldest first, without their class: quick to pickle."""
        return tuple(tuple(one) for one in (self._previous, self._now) if one is not None)

    def state(self) -> WindowState:
        """Return the state of the window, in plain values."""
        samples = tuple(one for one in (self._previous, self._now) if one is not None)
        return WindowState(self._last, self._all, self._sum, samples)


def stats(last: float, samples: Iterable[Sample], now_s: float) -> Stats:
    """Return the numbers for samples. The last value stays, however old; the others use samples that still count."""
    counted = [one for one in samples if one.weight and now_s - one.begun_s < KEPT_S]
    if not counted:
        return Stats(last)
    average = sum(one.total for one in counted) / sum(one.weight for one in counted)
    return Stats(last, average, min(one.low for one in counted), max(one.high for one in counted))


class CopySample(NamedTuple):
    """Acknowledged records of one partition in up to 30 seconds. Times are in ms, and weighted by records."""

    begun_s: float
    records: int
    bytes: int
    timed_records: int
    """Records of batches that have timestamps."""
    latency_total: float
    latency_low: float
    latency_high: float
    age_total: float
    age_low: float
    age_high: float

    @property
    def latency(self) -> Sample:
        return Sample(self.begun_s, self.timed_records, self.latency_total, self.latency_low, self.latency_high)

    @property
    def age(self) -> Sample:
        return Sample(self.begun_s, self.timed_records, self.age_total, self.age_low, self.age_high)


class CopyMeter:
    """How old the batches of one partition were: when they were fetched (age), and when acknowledged (latency).

    A worker does not decode a batch that it passes. So the newest timestamp, from the header, counts for all its
    records.
    """

    __slots__ = (
        *("age_high", "age_low", "age_ms", "age_total", "all_age_ms", "all_held_ms", "all_timed", "begun_s", "bytes"),
        *("held_total", "latency_high", "latency_low", "latency_ms", "latency_total", "previous", "records", "timed"),
    )
    begun_s: float
    records: int
    bytes: int
    timed: int
    latency_total: float
    latency_low: float
    latency_high: float
    age_total: float
    age_low: float
    age_high: float
    held_total: float

    def __init__(self) -> None:
        self.latency_ms = self.age_ms = math.nan
        """Of the batch that was acknowledged last."""
        self.previous: tuple[float, ...] = ()
        """The sample before the present one: the fields of a ``CopySample`` as a tuple; empty if there is none."""
        self.all_timed = 0
        """Records with a timestamp in all samples before the present one. The two sums below are over them."""
        self.all_age_ms = self.all_held_ms = 0.0
        self._begin(-math.inf)

    def add(
        self, max_timestamp_ms: int, record_count: int, size: int, *, read_at_s: float, now_s: float, now_ms: int
    ) -> None:
        """Add a batch that was acknowledged at ``now_ms`` by this machine's clock. This is called for each batch.

        Args:
            size: in bytes, as it was sent.
            read_at_s: when it was fetched, in monotonic time like ``now_s``.
        """
        if now_s - self.begun_s >= SAMPLE_S:
            self._end()
            self._begin(now_s)
        self.records += record_count
        self.bytes += size
        if max_timestamp_ms < 0:
            return
        held_ms = (now_s - read_at_s) * 1000.0
        latency_ms: float = now_ms - max_timestamp_ms
        if latency_ms < 0:
            latency_ms = 0  # the clocks of the machines differ
        age_ms = latency_ms - held_ms
        if age_ms < 0.0:
            age_ms = 0.0
        self.latency_ms, self.age_ms = latency_ms, age_ms
        self.timed += record_count
        self.latency_total += latency_ms * record_count
        self.age_total += age_ms * record_count
        self.held_total += held_ms * record_count
        if latency_ms < self.latency_low:
            self.latency_low = latency_ms
        if latency_ms > self.latency_high:
            self.latency_high = latency_ms
        if age_ms < self.age_low:
            self.age_low = age_ms
        if age_ms > self.age_high:
            self.age_high = age_ms

    def _end(self) -> None:
        self.previous = (
            ()
            if not self.records
            else (
                *(self.begun_s, self.records, self.bytes, self.timed),
                *(self.latency_total, self.latency_low, self.latency_high),
                *(self.age_total, self.age_low, self.age_high),
            )
        )
        self.all_timed += self.timed
        self.all_age_ms += self.age_total
        self.all_held_ms += self.held_total

    def _begin(self, now_s: float) -> None:
        self.begun_s = now_s
        self.records = self.bytes = self.timed = 0
        self.latency_total = self.age_total = self.held_total = 0.0
        self.latency_low = self.age_low = math.inf
        self.latency_high = self.age_high = -math.inf


def rate(amounts: Iterable[tuple[float, float]], now_s: float) -> float:
    """Return an amount a second.

    Args:
        amounts: for each sample (when it began, amount).
    Source: Rate.measure, Apache Kafka, clients: by the time since the oldest sample began, at least 30 s.
    """
    counted = [one for one in amounts if now_s - one[0] < KEPT_S]
    if not counted:
        return 0.0
    return sum(amount for _, amount in counted) / max(SAMPLE_S, now_s - min(begun_s for begun_s, _ in counted))
