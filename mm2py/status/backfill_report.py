"""The report on the backfills of a flow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.flow import Flow
from mm2py.kafka.port import TopicPartition
from mm2py.records.backfill_record import DEAD_AFTER_MS, Backfill, BackfillState
from mm2py.records.source_offset import StoredPosition

ENDED_SHOWN_MS: Final = 3_600_000
"""How long the status shows a backfill that is over."""


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """One backfill. If it is over, the status shows it for an hour, and the list of backfills for a week."""

    id: str
    """Its id."""
    flow: Flow
    """The flow whose topics it copies."""
    state: BackfillState
    """copying: the workers do not copy its topics yet. done, stopped: they continue after it."""
    topics: tuple[str, ...]
    """As the source names them."""
    partitions: int
    """The number of partitions of these topics."""
    offsets_copied: int
    """How many are copied, by the stored positions, up to the seams."""
    offsets: int
    """How many there are to copy; there may be fewer records."""
    begun_at_ms: int
    """When it began, by the clock of its driver."""
    last_seen_ms_ago: int
    """When its driver last wrote."""
    resumed: int
    """How often it was resumed."""
    by: str
    """Who began it, or resumed it last, and where."""
    text: str
    """Its state in a sentence, and what to do if its driver is dead."""
    where: str
    """SQL: which records it copies; empty: all."""
    select: str
    """SQL: what it makes of them; empty: they stay as they are."""
    is_holding: bool
    """The workers do not copy its topics until it is over."""
    is_dead: bool
    """The workers wait for it, and its driver has stopped writing."""


def backfill_reports(
    flow: Flow, backfills: Iterable[Backfill], positions: Mapping[TopicPartition, StoredPosition], now_ms: int
) -> tuple[BackfillReport, ...]:
    """Return the backfills that the status of a flow shows, the latest first.

    A backfill that ended long ago is left out: it would hide newer ones.
    """
    shown = [one for one in backfills if one.holds or now_ms - one.seen_at_ms <= ENDED_SHOWN_MS]
    return all_backfill_reports(flow, shown, positions, now_ms)


def all_backfill_reports(
    flow: Flow, backfills: Iterable[Backfill], positions: Mapping[TopicPartition, StoredPosition], now_ms: int
) -> tuple[BackfillReport, ...]:
    """Return the backfills of a flow, the latest first."""
    found = [_report(flow, one, positions, now_ms) for one in backfills]
    return tuple(sorted(found, key=lambda one: (-one.begun_at_ms, one.id)))


def progress_of(backfill: Backfill, positions: Mapping[TopicPartition, StoredPosition]) -> tuple[int, int]:
    """Return how many offsets of a backfill are copied, by the stored positions, and how many there are."""
    done = total = 0
    for key, (first, seam) in backfill.ranges().items():
        total += seam - first
        stored = positions.get(key)
        if stored is not None:
            done += min(max(stored.next_source, first), seam) - first
    return done, total


def _report(
    flow: Flow, one: Backfill, positions: Mapping[TopicPartition, StoredPosition], now_ms: int
) -> BackfillReport:
    done, total = progress_of(one, positions)
    silent_ms = max(0, now_ms - one.seen_at_ms)
    is_dead = one.holds and silent_ms > DEAD_AFTER_MS
    return BackfillReport(
        one.id,
        flow,
        one.state,
        tuple(sorted(one.topics)),
        sum(map(len, one.topics.values())),
        done,
        total,
        one.begun_at_ms,
        silent_ms,
        one.run,
        one.by,
        _text(flow, one, done, total, silent_ms if is_dead else None),
        one.where,
        one.select,
        one.holds,
        is_dead,
    )


def _text(flow: Flow, one: Backfill, done: int, total: int, silent_ms: int | None) -> str:
    told = _state_text(flow, one, done, total, silent_ms)
    return f"{told} It is filtered (--where, --select)." if one.is_filtered else told


def _state_text(flow: Flow, one: Backfill, done: int, total: int, silent_ms: int | None) -> str:
    part = f"{done:,} of {total:,} offsets are copied"
    if silent_ms is not None:
        return (
            f"its driver ({one.by}) has not written for {silent_ms // 1000} s, and the workers wait with"
            f" {', '.join(sorted(one.topics))}: resume it (mm2py backfill FILE '{flow}' --resume {one.id}), or let them"
            f" copy the rest (--abandon {one.id}); {part}."
        )
    if one.holds:
        return f"the workers wait with its topics; {part}."
    if one.state is BackfillState.DONE:
        return "all of it is copied, and the workers have gone on behind it."
    return f"it was stopped ({one.reason}), and the workers copy the rest."
