"""Reads the counts of a task's partitions, for ``/metrics``.

MirrorMaker 2 keeps its sensors in JMX, where a scrape reads them one by one. Here partitions are read in parts, in
about a microsecond each: while a part is read, nothing is copied. So a row is flat, and a plain tuple.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.metrics.worker_numbers import PARTITIONS, ROWS_A_PART, PlainRow, Rows


def partition_parts(partitions: Sequence[CopiedPartition], now_s: float, now_ms: int) -> Iterator[Rows]:
    """Yield the rows of all partitions, in their order. What is counted while they are read may be in a row or not."""
    for at in range(0, len(partitions), ROWS_A_PART):
        yield Rows(PARTITIONS, partition_rows(partitions[at : at + ROWS_A_PART], now_s, now_ms))


def partition_rows(partitions: Iterable[CopiedPartition], now_s: float, now_ms: int) -> tuple[PlainRow, ...]:
    """Return the fields of a ``PartitionRow`` for each partition, in its order."""
    rows: list[PlainRow] = []
    add = rows.append
    for part in partitions:
        copier, meter = part.copier, part.meter
        tally = copier.tally
        add(
            (
                part.source_topic,
                part.target_topic,
                part.partition,
                tally.records,
                tally.bytes,
                tally.passed,
                dict(tally.rebuilt) if tally.rebuilt else None,
                dict(tally.dropped) if tally.dropped else None,
                part.newest_ms,
                copier.position.source_offset,
                copier.fetch_offset,
                _shown_end(part, now_s),
                copier.end_offset is not None,
                type(copier.state).__name__,
                part.stalled != "",
                part.reading.merging.why,
                len(copier.new_runs),
                part.safe.at_ms,
                part.lag_trend.behind_since_ms,
                before if (before := part.lag_trend.before(now_ms)) is None else tuple(before),
                meter.latency_ms,
                meter.age_ms,
                meter.previous,
                meter.all_timed,
                meter.all_age_ms,
                meter.all_held_ms,
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
                meter.held_total,
            )
        )
    return tuple(rows)


def _shown_end(part: CopiedPartition, now_s: float) -> int | None:
    """Return the end offset from which lag is computed; None where it is not known.

    The story: a flow reads committed records, and a transaction on its source never ends. All readable records are
    copied, so the lag was 0 while the partition was reported as stalled. How many of the hidden records count as lag is
    not known.
    """
    end = part.known_end(now_s)
    return None if part.stalled and end is not None and end <= part.copier.position.source_offset else end


@dataclass(slots=True)
class _Totals:
    records: int = 0
    passed: int = 0
    rebuilt: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    timed: int = 0
    age_ms: float = 0.0
    held_ms: float = 0.0


class Departed:
    """The counts of partitions that are not copied any more."""

    def __init__(self) -> None:
        self._topics: dict[str, _Totals] = {}

    def add(self, part: CopiedPartition) -> None:
        """Keep the counts of a partition."""
        totals, tally, meter = self._topics.setdefault(part.source_topic, _Totals()), part.copier.tally, part.meter
        totals.records += tally.records
        totals.passed += tally.passed
        totals.rebuilt.update(tally.rebuilt)
        totals.dropped.update(tally.dropped)
        totals.timed += meter.all_timed + meter.timed
        totals.age_ms += meter.all_age_ms + meter.age_total
        totals.held_ms += meter.all_held_ms + meter.held_total

    def rows(self) -> tuple[PlainRow, ...]:
        """Return the fields of a ``DepartedRow`` for each topic."""
        return tuple(
            (
                name,
                one.records,
                one.passed,
                dict(one.rebuilt) if one.rebuilt else None,
                dict(one.dropped) if one.dropped else None,
                one.timed,
                one.age_ms,
                one.held_ms,
            )
            for name, one in self._topics.items()
        )
