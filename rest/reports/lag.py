"""How far copies are behind in records, bytes and seconds. Pure.

Offsets tell the lag in records. How old and how large records are is known to the worker that copies a partition, and
to no topic: so these are null, with a note, where a worker copies that was not asked. None is made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mm2py.connector import Flow
from mm2py.kafka.port import TopicPartition
from mm2py.metrics.snapshot import FlowSnapshot, PartitionRow, WorkerSnapshot
from mm2py.records.control_record import MemberId
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import begin_of
from mm2py.worker.facts import WorkerFacts

NO_OFFSETS: Final = "its position or its end is not known"
ELSEWHERE: Final = "age and size are known to its owner only; ask the REST interface of that worker"
NOTHING_COPIED: Final = "nothing was copied since its owner got it, so age and size are not known"


@dataclass(frozen=True, slots=True)
class OwnWorker:
    """What the worker beside this process tells of itself."""

    facts: WorkerFacts
    snapshot: WorkerSnapshot


@dataclass(frozen=True, slots=True)
class OwnCopies:
    """What it tells of one flow."""

    member: MemberId | None = None
    """Its id in the group; None: it has not joined, or does not answer."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Topics that it does not copy, or not wholly, and why."""
    rows: Mapping[TopicPartition, PartitionRow] = field(default_factory=dict)
    """The partitions that it copies, as on the source."""
    now_ms: int = 0
    """When it was asked, by the clock of its machine."""


def own_copies(worker: OwnWorker | None, flow: Flow) -> OwnCopies:
    """Return what a worker tells of a flow; None: it does not answer."""
    if worker is None:
        return OwnCopies()
    refused = next((one.refused for one in worker.facts.flows if one.flow == flow), {})
    rows: dict[TopicPartition, PartitionRow] = {}
    for snapshot in worker.snapshot.flows:
        if (snapshot.source, snapshot.target) == (flow.source, flow.target):
            rows |= _rows_of(snapshot)
    return OwnCopies(worker.facts.members.get(flow.target), refused, rows, worker.snapshot.now_ms)


def _rows_of(snapshot: FlowSnapshot) -> dict[TopicPartition, PartitionRow]:
    rows = (PartitionRow._make(row) for row in snapshot.partitions)
    return {(row.source_topic, row.partition): row for row in rows}


class Lag(NamedTuple):
    """How far a copy is behind; None is not known, and the note says why."""

    records: int | None
    bytes: int | None
    seconds: float | None
    note: str


def lag_of(facts: FlowFacts, key: TopicPartition, own: OwnCopies) -> Lag:
    """Return the lag of a source partition.

    The bytes are estimated by the mean size of the records of the partition that its owner has copied; the seconds are
    the age of the last one, when the worker was asked.
    """
    begin, end = begin_of(facts, key, facts.positions.get(key)), facts.ends.get(key)
    if begin is None or end is None:
        return Lag(None, None, None, NO_OFFSETS)
    records, row = max(0, end - begin), own.rows.get(key)
    if not records:
        return Lag(0, 0, 0.0, "")
    if row is None:
        return Lag(records, None, None, ELSEWHERE)
    size = round(records * row.bytes / row.records) if row.records else None
    age_s = max(0.0, (own.now_ms - row.last_timestamp_ms) / 1000) if row.last_timestamp_ms >= 0 else None
    return Lag(records, size, age_s, "" if size is not None and age_s is not None else NOTHING_COPIED)


def sum_of(lags: Sequence[Lag]) -> Lag:
    """Return the sum of several, and the largest age; each is None if one of them is."""
    records = [lag.records for lag in lags if lag.records is not None]
    sizes = [lag.bytes for lag in lags if lag.bytes is not None]
    ages = [lag.seconds for lag in lags if lag.seconds is not None]
    return Lag(
        sum(records) if len(records) == len(lags) else None,
        sum(sizes) if len(sizes) == len(lags) else None,
        max(ages, default=0.0) if len(ages) == len(lags) else None,
        next((lag.note for lag in lags if lag.note), ""),
    )
