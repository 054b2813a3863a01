"""Values computed from a worker's snapshot: lags, rates and statistics of partitions, sums of topics and flows. Pure.

Counterpart: the sensors of MirrorSourceMetrics and MirrorCheckpointMetrics, Apache Kafka, connect/mirror.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from mm2py.metrics.windows import Stats, rate, stats
from mm2py.metrics.worker_numbers import (
    SOURCE_CONNECTOR,
    ConnectorSnapshot,
    DepartedRow,
    FlowSnapshot,
    GroupSnapshot,
    PartitionRow,
    WorkerSnapshot,
)
from mm2py.records.lag_seen import LagSeen
from mm2py.status.lag_movement import KEEPS_UP, NOT_KNOWN, BehindFacts, LagMovement, movement_of, together
from mm2py.status.not_copied import FAILED
from mm2py.status.return_flow import ReturnFlow
from mm2py.topics.retention import Retention

ALL: Final = "all"
"""The label ``partition`` of a topic's partitions that have no series of their own."""
STATES: Final = ("copying", "drained", "draining", "reconciling", "stopped", "storing", "waiting")
"""States of a copied partition, explained in docs/internals/copier-states.md."""


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """One copied partition, or several of a topic together. None: unknown."""

    flow: str
    source: str
    target: str
    source_topic: str
    remote_topic: str
    partition: str
    records: int
    record_rate: float
    bytes: int
    byte_rate: float
    age_ms: Stats
    latency_ms: Stats
    lag_records: int | None
    lag_s: float | None
    """The age of the last copied record; 0 if none waits."""
    lag_bytes: float | None
    """An estimate, by the size of the records copied so far."""


@dataclass(slots=True)
class TopicValues:
    """A source topic: sums over the partitions that this worker has copied since the flow started."""

    batches: Counter[str] = field(default_factory=Counter)
    """By how they were copied: ``pass``, or why they were rebuilt."""
    dropped: Counter[str] = field(default_factory=Counter)
    copy_modes: Counter[str] = field(default_factory=Counter)
    """Partitions that are copied now, by their copy mode and its reason."""
    timed: int = 0
    age_ms: float = 0.0
    held_ms: float = 0.0
    movement: LagMovement | None = None
    """How its lag moves; None: no partition is copied now."""


@dataclass(slots=True)
class FlowValues:
    """What this worker copies of a flow."""

    snapshot: FlowSnapshot
    name: str
    now_s: float
    free_bytes: int
    """Bytes that records in memory may still take, over all flows."""
    topics: dict[str, TopicValues] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    """Partitions by state."""
    stalled: int = 0
    records: int = 0
    record_rate: float = 0.0
    active: int = 0
    """Source offsets read and not acknowledged."""
    ledger_waiting: int = 0

    def topic(self, name: str) -> TopicValues:
        return self.topics.setdefault(name, TopicValues())


class Values(NamedTuple):
    """All values of a worker's page."""

    worker: WorkerSnapshot
    flows: Sequence[FlowValues]
    partitions: Sequence[PartitionValues]
    left_out: int
    """How many partitions have no series of their own."""
    return_flows: Sequence[ReturnFlow] = ()
    """The flows that must copy while a cutover can be undone."""


def values_of(worker: WorkerSnapshot, *, partitions_max: int) -> Values:
    """Return the values of a snapshot.

    Args:
        partitions_max: how many partitions have series of their own: the first by flow, remote topic and number. The
            others are summed for each topic.
    """
    flows: list[FlowValues] = []
    partitions: list[PartitionValues] = []
    left_out = 0
    for flow in sorted(worker.flows, key=_name_of):
        rows = [PartitionRow._make(row) for row in flow.partitions]
        flows.append(_flow_values(flow, rows, worker))
        rows.sort(key=lambda row: (row.remote_topic, row.partition))
        own = max(0, partitions_max - len(partitions))
        partitions += [partition_values(flow, [row], worker) for row in rows[:own]]
        others: dict[str, list[PartitionRow]] = {}
        for row in rows[own:]:
            others.setdefault(row.source_topic, []).append(row)
        left_out += len(rows[own:])
        partitions += [partition_values(flow, together, worker) for together in others.values()]
    return Values(replace(worker, connectors=_as_connect_has_it(worker)), flows, partitions, left_out)


def _as_connect_has_it(worker: WorkerSnapshot) -> tuple[ConnectorSnapshot, ...]:
    """Return the connectors, failed where a partition has failed, as over REST."""
    failed = {
        _name_of(flow)
        for flow in worker.flows
        if any(partitions and why in FAILED for why, _, partitions in flow.not_copied)
    }
    return tuple(
        one._replace(state="failed")
        if one.flow in failed and one.kind == SOURCE_CONNECTOR and one.state == "running"
        else one
        for one in worker.connectors
    )


def partition_values(flow: FlowSnapshot, rows: Sequence[PartitionRow], worker: WorkerSnapshot) -> PartitionValues:
    """Return the values of one partition, or of several of a topic: sums, and the largest of ages, latencies and lags
    in seconds."""
    first = rows[0]
    samples = [sample for row in rows for sample in row.samples]
    lags = [(row, row.end_offset - row.position) for row in rows if row.end_offset is not None]
    if len(lags) < len(rows):
        lags = []  # a sum without some of them would be wrong
    behind = [(row, lag) for row, lag in lags if lag > 0]
    newest_ms = [row.newest_ms for row, _ in behind if row.newest_ms is not None]
    timed = len(newest_ms) == len(behind)
    sized = all(row.records for row, _ in behind)
    oldest_ms = min(newest_ms, default=worker.now_ms)
    return PartitionValues(
        _name_of(flow),
        flow.source,
        flow.target,
        first.source_topic,
        first.remote_topic,
        str(first.partition) if len(rows) == 1 else ALL,
        records=sum(row.records for row in rows),
        record_rate=rate([(one.begun_s, one.records) for one in samples], worker.now_s),
        bytes=sum(row.bytes for row in rows),
        byte_rate=rate([(one.begun_s, one.bytes) for one in samples], worker.now_s),
        age_ms=stats(_largest([row.age_ms for row in rows]), [one.age for one in samples], worker.now_s),
        latency_ms=stats(_largest([row.latency_ms for row in rows]), [one.latency for one in samples], worker.now_s),
        lag_records=sum(max(0, lag) for _, lag in lags) if lags else None,
        lag_s=max(0.0, (worker.now_ms - oldest_ms) / 1000) if lags and timed else None,
        lag_bytes=sum(lag * row.bytes / row.records for row, lag in behind) if lags and sized else None,
    )


def is_rebalancing(group: GroupSnapshot) -> bool:
    """Whether this worker must still release partitions to others, or takes no part in the group for now."""
    return group.tasks_to_release > 0 or group.state != "Active"


def _flow_values(flow: FlowSnapshot, rows: Sequence[PartitionRow], worker: WorkerSnapshot) -> FlowValues:
    free_bytes = max(0, worker.process.held_max_bytes - worker.process.held_bytes)
    found = FlowValues(flow, _name_of(flow), worker.now_s, free_bytes, states=Counter(dict.fromkeys(STATES, 0)))
    for departed in map(DepartedRow._make, flow.departed):
        _add(found.topic(departed.source_topic), departed.passed, departed.rebuilt, departed.dropped)
        topic = found.topic(departed.source_topic)
        topic.timed += departed.timed
        topic.age_ms += departed.age_ms
        topic.held_ms += departed.held_ms
        found.records += departed.records
    moving: dict[str, list[LagMovement]] = {}
    retentions = {topic: Retention(*limits) for topic, *limits in flow.retentions}
    for row in rows:
        topic = found.topic(row.source_topic)
        moving.setdefault(row.source_topic, []).append(_movement(row, retentions.get(row.source_topic), worker.now_ms))
        _add(topic, row.passed, row.rebuilt, row.dropped)
        topic.copy_modes[row.copy_mode] += row.was_read
        topic.timed += row.earlier_timed + row.sample_timed
        topic.age_ms += row.earlier_age_ms + row.age_total
        topic.held_ms += row.earlier_held_ms + row.held_total
        found.states[row.state.lower()] += 1
        found.stalled += row.is_stalled
        found.records += row.records
        found.active += max(0, row.fetch_offset - row.position)
        found.ledger_waiting += row.ledger_waiting
    for name, movements in moving.items():
        found.topic(name).movement = together(movements)
    samples = [sample for row in rows for sample in row.samples]
    found.record_rate = rate([(one.begun_s, one.records) for one in samples], worker.now_s)
    return found


def _movement(row: PartitionRow, retention: Retention | None, now_ms: int) -> LagMovement:
    """Return how the lag of a partition moves."""
    if row.end_offset is None:
        return NOT_KNOWN
    size = row.bytes / row.records if row.records else None
    lag = row.end_offset - row.position
    if lag <= 0:
        return KEEPS_UP
    if row.behind_since_ms is None:
        return KEEPS_UP.with_bytes(None if size is None else round(lag * size))
    now = LagSeen(now_ms, row.end_offset, row.position, row.newest_ms)
    before = None if row.lag_before is None else LagSeen(*row.lag_before)
    return movement_of(BehindFacts(now, before, row.behind_since_ms, size, _waiting_most_s(row, now_ms), retention))


def _waiting_most_s(row: PartitionRow, now_ms: int) -> float | None:
    """Return how old the oldest record that waits can be, by its timestamp; None: not known.

    It is younger than the last one copied. The story: a topic was at rest for ten hours, a record comes, and the target
    does not take it for a minute. The record came after the safe time. What was copied last had reached the target
    ``latency_ms`` after its timestamp; so the record that waits, too, may have been that old when it came.
    """
    if row.newest_ms is None:
        return None
    age_ms = float(now_ms - row.newest_ms)
    if row.safe_ms is not None and not math.isnan(row.latency_ms):
        age_ms = min(age_ms, now_ms - row.safe_ms + row.latency_ms)
    return max(0.0, age_ms / 1000)


def _add(topic: TopicValues, passed: int, rebuilt: dict[str, int] | None, dropped: dict[str, int] | None) -> None:
    topic.batches["pass"] += passed
    topic.batches.update(rebuilt or {})
    topic.dropped.update(dropped or {})


def _name_of(flow: FlowSnapshot) -> str:
    return f"{flow.source}->{flow.target}"


def _largest(numbers: Sequence[float]) -> float:
    return max((one for one in numbers if not math.isnan(one)), default=math.nan)
