"""The history of one flow in memory: a ring of an hour, a ring of a day, and the last events. Pure.

A history takes about 150 KB, and 350 KB with 500 long events, however long the worker runs. Where no point was written
there is none: a chart shows a gap there, and never a zero. Times are those of the coordinators' clocks. If a clock is
set back, what is written then replaces what was written at those times before; what lies in the future is not shown.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.records.flow_history_record import (
    EVENTS_MOST,
    FINE_S,
    MINUTE_S,
    SLOTS,
    TEXT_MOST,
    HistoryEvent,
    HistoryPoint,
    HistoryRecord,
    Series,
)

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
LATEST_MS: Final = 3 * FINE_S * 1000
"""The newest point may be so much older than a reader's clock, and the chart ends with it without a gap."""
KIND_MOST: Final = 20
"""How many events of one kind are kept of one write; of others only the number is."""
MORE: Final = "more"
HIGHEST: Final = frozenset(
    {Series.LAG_RECORDS, Series.LAG_BYTES, Series.LAG_S, Series.SAFE_AGE_S, Series.TOPICS_NOT_COPIED}
)
"""Of a longer step the highest number is kept, so that no peak disappears; of the other series the mean is."""


@dataclass(frozen=True, slots=True)
class FreshEvent:
    """An event that may not be in the history yet."""

    at_ms: int
    kind: str
    text: str
    place: str
    """See ``HistoryEvent``."""


@dataclass(frozen=True, slots=True)
class HistoryGap:
    """A stretch in which nothing was written: no coordinator ran, or it could not write."""

    from_ms: int
    to_ms: int
    """Where it ends: the next point's time, or the end of the chart."""


@dataclass(frozen=True, slots=True)
class HistoryChart:
    """A part of a history on an even grid."""

    step_s: int
    times_ms: Sequence[int]
    series: Mapping[Series, Sequence[float | None]]
    """Each as long as ``times_ms``. None: not known."""
    gaps: Sequence[HistoryGap]
    events: Sequence[HistoryEvent]


class _Ring:
    """The points of one step. A place is taken by what was written there last."""

    def __init__(self, step_s: int) -> None:
        self._size = SLOTS[step_s]
        self.slots = array("q", [-1]) * self._size
        self._columns = {name: array("d", [math.nan]) * self._size for name in Series}

    def take(self, point: HistoryPoint) -> None:
        at = point.slot % self._size
        self.slots[at] = point.slot
        for name, column in self._columns.items():
            column[at] = point.values.get(name, math.nan)

    def forget(self, slot: int) -> None:
        if self.has(slot):
            self.slots[slot % self._size] = -1

    def has(self, slot: int) -> bool:
        return self.slots[slot % self._size] == slot

    def values(self, slot: int) -> dict[Series, float] | None:
        """Return what is known of a slot; None: there is no point."""
        if not self.has(slot):
            return None
        at = slot % self._size
        return {name: column[at] for name, column in self._columns.items() if not math.isnan(column[at])}


class FlowHistory:
    """The history of one flow. ``take`` each record of the topic in the order of the log."""

    def __init__(self) -> None:
        self._fine: _Ring | None = None
        self._minutes: _Ring | None = None
        self._events: dict[int, HistoryEvent] = {}
        """By place in their ring."""
        self._places: set[str] = set()
        self.newest_ms: int | None = None
        """The time of the last point that was written; None: there is none."""

    def take(self, record: HistoryRecord) -> None:
        """Take a record that was written."""
        if isinstance(record, HistoryEvent):
            at = record.number % EVENTS_MOST
            if (before := self._events.get(at)) is not None:
                self._places.discard(before.place)
            self._events[at] = record
            self._places.add(record.place)
            return
        if self._fine is None or self._minutes is None:  # a flow without a history takes no room
            self._fine, self._minutes = _Ring(FINE_S), _Ring(MINUTE_S)
        if record.step_s == FINE_S:
            self._fine.take(record)
            self._minutes.forget(record.at_ms // 60_000)  # it is thinned from all its points, when it is over
            self.newest_ms = record.at_ms
        else:
            self._minutes.take(record)

    def last_event(self, kind: str) -> HistoryEvent | None:
        """Return the last event of a kind that was written; None: none is kept."""
        found = (one for one in self._events.values() if one.kind == kind)
        return max(found, key=lambda one: one.number, default=None)

    def minutes_due(self, now_ms: int, by: str) -> list[HistoryPoint]:
        """Return the minutes that are over and have no point yet: of each a point that thins those of ten seconds."""
        if self._fine is None or self._minutes is None:
            return []
        oldest, now = (now_ms - DAY_MS) // 60_000, now_ms // 60_000
        minutes = {slot * FINE_S // MINUTE_S for slot in self._fine.slots if slot >= 0}
        return [
            HistoryPoint(minute * 60_000, MINUTE_S, by, thinned(self._of_minute(minute)))
            for minute in sorted(minutes)
            if oldest < minute < now and not self._minutes.has(minute)
        ]

    def events_due(self, found: Iterable[FreshEvent], now_ms: int) -> list[HistoryEvent]:
        """Return the events that the history does not have yet, in the order of time, with their numbers.

        The story: a thousand partitions lose records at once. The events of one kind beyond the first twenty are only
        counted, so that they do not replace all others.
        """
        fresh = {one.place: one for one in found if one.place not in self._places and one.at_ms > now_ms - DAY_MS}
        kept: list[FreshEvent] = []
        others: dict[str, list[FreshEvent]] = {}
        counts: dict[str, int] = {}
        for one in sorted(fresh.values(), key=lambda one: one.at_ms):
            counts[one.kind] = counts.get(one.kind, 0) + 1
            if counts[one.kind] <= KIND_MOST:
                kept.append(one)
            else:
                others.setdefault(one.kind, []).append(one)
        for kind, left in others.items():
            text = f"{len(left)} more: {kind}, the last one: {left[-1].text}"
            kept.append(FreshEvent(left[-1].at_ms, MORE, text, f"more {left[-1].place}"))
        first = 1 + max((one.number for one in self._events.values()), default=-1)
        return [
            HistoryEvent(number, one.at_ms, one.kind, one.text[:TEXT_MOST], one.place)
            for number, one in enumerate(kept[-EVENTS_MOST:], first)
        ]

    def chart(self, from_ms: int, to_ms: int, step_s: int, now_ms: int) -> HistoryChart:
        """Return a part of the history.

        Args:
            from_ms: not older than an hour for steps of less than a minute, and not older than a day.
            step_s: ``FINE_S``, or a multiple of a minute.
            now_ms: what is newer by more than half a minute is not shown: a clock was ahead.
        """
        step_ms = step_s * 1000
        latest_ms = now_ms + LATEST_MS
        last = min(to_ms, latest_ms) // step_ms
        newest = self.newest_ms
        if newest is not None and now_ms - LATEST_MS <= newest <= latest_ms:  # the next point is still to come
            last = min(last, newest // step_ms)
        first = from_ms // step_ms
        if (kept := SLOTS.get(step_s)) is not None:
            first = max(first, last + 1 - kept)
        slots = range(first, last + 1)
        found = [self._at(slot, step_s) for slot in slots]
        events = [one for one in self._events.values() if from_ms <= one.at_ms <= min(to_ms, latest_ms)]
        return HistoryChart(
            step_s,
            [slot * step_ms for slot in slots],
            {name: [None if one is None else one.get(name) for one in found] for name in Series},
            list(self._gaps(slots, found, step_ms)),
            sorted(events, key=lambda one: (one.at_ms, one.number)),
        )

    def _gaps(self, slots: range, found: Sequence[object], step_ms: int) -> Iterator[HistoryGap]:
        first_ms = self._first_ms(slots.start * step_ms)
        begun: int | None = None
        for slot, one in zip(slots, found, strict=True):
            if one is not None or first_ms is None or slot * step_ms < first_ms:
                if begun is not None:
                    yield HistoryGap(begun, slot * step_ms)
                begun = None
            elif begun is None:
                begun = slot * step_ms
        if begun is not None:
            yield HistoryGap(begun, slots.stop * step_ms)

    def _first_ms(self, from_ms: int) -> int | None:
        """Return when the history begins, if that is later than ``from_ms``: before it there is no gap. None: never."""
        if self._fine is None or self._minutes is None:
            return None
        starts = [slot * FINE_S * 1000 for slot in self._fine.slots if slot >= 0]
        fine_minute = min(starts, default=0) // 60_000
        starts += [slot * MINUTE_S * 1000 for slot in self._minutes.slots if 0 <= slot != fine_minute]
        return max(from_ms, min(starts, default=from_ms))

    def _at(self, slot: int, step_s: int) -> dict[Series, float] | None:
        if self._fine is None or self._minutes is None:
            return None
        if step_s == FINE_S:
            return self._fine.values(slot)
        a_slot = step_s // MINUTE_S
        minutes = [self._minute(minute) for minute in range(slot * a_slot, (slot + 1) * a_slot)]
        known = [one for one in minutes if one is not None]
        return thinned(known) if known else None

    def _minute(self, minute: int) -> dict[Series, float] | None:
        assert self._minutes is not None  # noqa: S101
        if (found := self._minutes.values(minute)) is not None:
            return found
        points = self._of_minute(minute)
        return thinned(points) if points else None

    def _of_minute(self, minute: int) -> list[dict[Series, float]]:
        assert self._fine is not None  # noqa: S101
        a_minute = MINUTE_S // FINE_S
        found = [self._fine.values(slot) for slot in range(minute * a_minute, (minute + 1) * a_minute)]
        return [one for one in found if one is not None]


def thinned(points: Sequence[Mapping[Series, float]]) -> dict[Series, float]:
    """Return one point for several: the highest lag, the mean rate, of what is known."""
    found: dict[Series, float] = {}
    for name in Series:
        if known := [one[name] for one in points if name in one]:
            found[name] = max(known) if name in HIGHEST else round(sum(known) / len(known), 3)
    return found
