"""The numbers of a flow at one look at both clusters, as the status reports them. Pure.

Rates are those between two looks: how far the ends of the source partitions and the stored positions have moved. They
count offsets, as lag does. What a look has not found out is not known, and has no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.kafka.port import TopicPartition
from mm2py.records.flow_history_record import Series
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport
from mm2py.status.verdict import AHEAD_MS, Readiness

APART_MOST_S: Final = 60.0
"""Two looks that are further apart tell no rate of a moment."""


@dataclass(frozen=True, slots=True)
class SampledLook:
    """What one look has found of a flow."""

    at_ms: int
    facts: FlowFacts
    report: FlowReport


def values_of(now: SampledLook, before: SampledLook | None) -> dict[Series, float]:
    """Return what is known at a look. ``before``: the look before, for rates; None: there is none."""
    report, facts = now.report, now.facts
    is_current = not report.lag_is_partial and report.lag_as_of_ms is None
    size = 0 if report.lag == 0 else None if report.movement is None else report.movement.bytes
    found: dict[Series, float | None] = {
        Series.LAG_RECORDS: report.lag if is_current else None,
        Series.LAG_BYTES: size if is_current else None,
        Series.LAG_S: report.lag_s if is_current else None,
        Series.SAFE_AGE_S: report.verdict.behind_s if knows_age(report, now.at_ms) else None,
        Series.TOPICS_NOT_COPIED: len(report.verdict.left_out) if _knows_topics(facts) else None,
    }
    if before is not None and 0 < (passed_s := (now.at_ms - before.at_ms) / 1000) <= APART_MOST_S:
        found |= _rates(facts, before.facts, passed_s)
    return {name: round(number, 3) for name, number in found.items() if number is not None}


def knows_age(report: FlowReport, at_ms: int) -> bool:
    """Return whether the age of the safe time counts.

    The story: the clock of a worker is minutes ahead. Whatever is behind, the age of its safe time is 0.
    """
    safe_at_ms = report.verdict.safe_at_ms
    is_ahead = safe_at_ms is not None and safe_at_ms - at_ms > AHEAD_MS
    return report.verdict.readiness is not Readiness.UNKNOWN and not is_ahead


def _knows_topics(facts: FlowFacts) -> bool:
    return facts.selected is not None and not (facts.status_unread or facts.positions_unread)


def _rates(now: FlowFacts, before: FlowFacts, passed_s: float) -> dict[Series, float | None]:
    found: dict[Series, float | None] = {}
    if not any(one.selected is None or one.source_unread for one in (now, before)):
        came = _moved(now.ends, before.ends)
        found[Series.IN_RECORDS_PER_S] = sum(came.values()) / passed_s
        found[Series.IN_BYTES_PER_S] = _bytes(now, came, passed_s)
    if not (now.positions_unread or before.positions_unread):
        copied = _moved(
            {key: at.next_source for key, at in now.positions.items()},
            {key: at.next_source for key, at in before.positions.items()},
        )
        found[Series.COPIED_RECORDS_PER_S] = sum(copied.values()) / passed_s
        found[Series.COPIED_BYTES_PER_S] = _bytes(now, copied, passed_s)
    return found


def _moved(now: Mapping[TopicPartition, int], before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return by how much offsets have grown. A partition that was not there before, or was cut back, tells nothing."""
    return {key: at - before[key] for key, at in now.items() if key in before and at > before[key]}


def _bytes(facts: FlowFacts, records: Mapping[TopicPartition, int], passed_s: float) -> float | None:
    """Return how many bytes a second these records are, by the mean size of each partition's copied ones; None: of one
    that is not known."""
    total = 0
    for key, count in records.items():
        size = None if (position := facts.positions.get(key)) is None else position.record_bytes
        if size is None:
            return None
        total += count * size
    return total / passed_s
