"""How far copies are behind in records, bytes and seconds. Pure.

All three are computed from the stored positions, so any worker can show them for all partitions. None is guessed: where
a position does not say how old and how large records are, bytes and seconds are null, with a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mm2py.kafka.port import TopicPartition
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import TopicReport
from mm2py.status.partition_lags import begin_of, end_of

NO_OFFSETS: Final = "its position or its end is not known"
CUT_BACK: Final = "the source ends before its position: it was cut back, or is another topic"
AS_OF: Final = "the source does not answer: as of lag_as_of_ms"
NOT_TOLD: Final = "its position does not tell the age and size of the records that were copied"


class Looks(NamedTuple):
    """When the clusters were looked at, and what the look before found of a flow."""

    at_ms: int
    before_ms: int
    ends_before: Mapping[TopicPartition, int]
    """Empty if this look is the first."""


class Lag(NamedTuple):
    """How far a copy is behind; None is not known, and the note says why."""

    records: int | None
    bytes: int | None
    seconds: float | None
    note: str


def lag_of(facts: FlowFacts, key: TopicPartition, looks: Looks) -> Lag:
    """Return the lag of a source partition.

    The bytes are estimated by the mean size of the records of the partition that its owner has copied; the seconds are
    the age of the last one.

    The story: a partition gets a record every ten minutes, and its position is stored a second later. Of a thousand
    such partitions there is always one that looks ten minutes late. But the record came after the look before, so it
    is younger than that look.
    """
    position = facts.positions.get(key)
    end = end_of(facts, key, position)
    begin = begin_of(facts, key, position)
    if begin is None or end is None:
        return Lag(None, None, None, NO_OFFSETS)
    if begin > end:
        return Lag(None, None, None, CUT_BACK)
    records = end - begin
    if not records:
        return Lag(0, 0, 0.0, "")
    size, newest_ms = (None, None) if position is None else (position.record_bytes, position.newest_ms)
    age_s = None if newest_ms is None else max(0.0, (looks.at_ms - newest_ms) / 1000)
    if age_s is not None and begin >= looks.ends_before.get(key, end):
        age_s = min(age_s, (looks.at_ms - looks.before_ms) / 1000)
    return Lag(records, None if size is None else records * size, age_s, NOT_TOLD if None in (size, age_s) else "")


def lags_of(facts: FlowFacts, topic: TopicReport, looks: Looks, as_of_ms: int | None) -> list[Lag]:
    """Return the lag of each partition of a topic. If the status does not know the topic's lag, all are unknown.

    Args:
        as_of_ms: when the source stopped answering; None: it answers.

    The story: a right is missing and the source is silent. The last end that the owner has stored is its position, and
    does not show which records have come since.
    """
    lags = [lag_of(facts, (topic.topic, number), looks) for number in range(topic.partitions)]
    if as_of_ms is not None:
        lags = [lag._replace(note=lag.note or AS_OF) for lag in lags]
    if topic.lag is not None:
        return lags
    return [lag if lag.records is None else Lag(None, None, None, NO_OFFSETS) for lag in lags]


def sum_of(lags: Sequence[Lag]) -> Lag:
    """Return the sum of several lags, and the largest age; each is None if one of them is."""
    records = [lag.records for lag in lags if lag.records is not None]
    sizes = [lag.bytes for lag in lags if lag.bytes is not None]
    ages = [lag.seconds for lag in lags if lag.seconds is not None]
    return Lag(
        sum(records) if len(records) == len(lags) else None,
        sum(sizes) if len(sizes) == len(lags) else None,
        max(ages, default=0.0) if len(ages) == len(lags) else None,
        next((lag.note for lag in lags if lag.note), ""),
    )
