"""What a worker sends to the process that serves ``/metrics``: raw numbers, and the names they belong to. Pure.

The worker's event loop copies records, so for metrics it only reads attributes into tuples. The serving process
computes lag, rates, sums and labels. Both processes run the same release, so the format may change at any time.

A snapshot is sent in parts of at most ``ROWS_A_PART`` rows, so that the event loop can copy between two parts. The
first part is a ``WorkerSnapshot`` without flows, checkpoints and paths; ``assembled`` adds these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mm2py.metrics.windows import CopySample, Sample, WindowState
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse

PlainRow = tuple[object, ...]
"""A row as it is sent: without its class, because pickling the class would take longer than all the rest."""
ROWS_A_PART: Final = 250
"""Reading and pickling this many rows takes about a millisecond."""
DEPARTED, PARTITIONS, CHECKPOINT_ROWS = "departed", "partitions", "rows"
"""The fields of a connector's snapshot that have rows."""


class PartitionRow(NamedTuple):
    """One copied partition. Counts are since this worker began to copy it; times are of ``WorkerSnapshot.now_s``."""

    source_topic: str
    remote_topic: str
    partition: int
    records: int
    bytes: int
    """Of batches as they were sent."""
    passed: int
    """Batches that were passed as they are."""
    rebuilt: dict[str, int] | None
    """Other batches, by reason; None: there are none."""
    dropped: dict[str, int] | None
    """Source records without a copy, by reason; None: there are none."""
    newest_ms: int | None
    """See ``CopiedPartition.newest_ms``: it may be of a batch that a previous owner copied."""
    position: int
    """The next source offset to be copied."""
    fetch_offset: int
    """The next source offset to be read."""
    end_offset: int | None
    """The end of the source log as far as it may be read; None if no answer of the last seconds contained it."""
    was_read: bool
    """True if it was read at least once since this worker began to copy it."""
    state: str
    """The class of the copier's state: ``Copying``, ``Waiting``, ..."""
    is_stalled: bool
    copy_mode: str
    """How its batches travel now, with the reason, in words."""
    ledger_waiting: int
    """Stretches of acknowledged records that the ledger does not contain yet."""
    safe_ms: int | None
    """Up to when it is copied; None: not known."""
    behind_since_ms: int | None
    """See ``LagTrend``."""
    lag_before: tuple[int, int, int, int | None] | None
    """The fields of a ``LagSeen``: how far it was ten seconds ago or more; None: not known."""
    latency_ms: float
    """For this field and all that follow see ``CopyMeter``."""
    age_ms: float
    previous_sample: tuple[float, ...]
    """A ``CopySample``, or empty."""
    earlier_timed: int
    """Records with a timestamp in all samples before the present one; likewise the sums."""
    earlier_age_ms: float
    earlier_held_ms: float
    begun_s: float
    """Of the present sample, like all fields that follow."""
    sample_records: int
    sample_bytes: int
    sample_timed: int
    latency_total: float
    latency_low: float
    latency_high: float
    age_total: float
    age_low: float
    age_high: float
    held_total: float

    @property
    def samples(self) -> tuple[CopySample, ...]:
        """The two samples, oldest first, as far as there are any."""
        now = (self.begun_s, self.sample_records, self.sample_bytes, self.sample_timed)
        times = (self.latency_total, self.latency_low, self.latency_high, self.age_total, self.age_low, self.age_high)
        found = (self.previous_sample, (*now, *times) if self.sample_records else ())
        return tuple(CopySample._make(one) for one in found if one)


class DepartedRow(NamedTuple):
    """Counts of a topic's partitions that this worker copied once and other workers copy now. Without these counts the
    counters of the topic would decrease."""

    source_topic: str
    records: int
    passed: int
    rebuilt: dict[str, int] | None
    dropped: dict[str, int] | None
    timed: int
    """Records with a timestamp; ``age_ms`` and ``held_ms`` are the sums over them."""
    age_ms: float
    held_ms: float


@dataclass(frozen=True, slots=True)
class FlowSnapshot:
    """What this worker copies of one flow."""

    source: str
    target: str
    state: str
    """As in ``FlowStatus``, and likewise the next two."""
    guarantee: str
    positions_unstored_s: float
    refused_topics: int = 0
    held_topics: int = 0
    """Topics that wait for a backfill."""
    paused_partitions: int = 0
    """Partitions of this worker that operators have paused."""
    recorder_failing: bool = False
    """The flight recorder cannot be written."""
    not_copied: tuple[tuple[str, int, int], ...] = ()
    """What this worker does not copy: (reason, number of whole topics, number of partitions)."""
    position_writes_ms: WindowState | None = None
    """How long storing positions took."""
    read_bytes: int = 0
    sent_bytes: int = 0
    ledger_chunks: int = 0
    """Written to the ledger topic since the start; a chunk that grows is written again, and counted again."""
    ledger_entries: int = 0
    """In these chunks."""
    link: LinkUse | None = None
    """None: all reads use one connection to each broker."""
    waits: FlowWaits | None = None
    """What this worker waits for; None: not known yet."""
    from_followers: int = 0
    """Partitions that are read from a nearer follower, see ``client.rack``."""
    safe_ms: int | None = None
    """Up to when this worker's partitions are copied; 0: not known; None: the flow has not started."""
    retentions: tuple[tuple[str, int | None, int | None], ...] = ()
    """Of topics that are behind: name, and the fields of its ``Retention`` on the source, as far as that is known."""
    departed: tuple[PlainRow, ...] = ()
    """The fields of ``DepartedRow``."""
    partitions: tuple[PlainRow, ...] = ()
    """The fields of ``PartitionRow``."""


class CheckpointRow(NamedTuple):
    """The checkpoints of one group in one remote partition."""

    group: str
    topic: str
    partition: int
    last_ms: float
    """How long the last one took to be acknowledged."""
    plain_samples: tuple[tuple[float, ...], ...]
    """The fields of each ``Sample``, oldest first."""

    @property
    def samples(self) -> tuple[Sample, ...]:
        return tuple(Sample._make(one) for one in self.plain_samples)


@dataclass(frozen=True, slots=True)
class CheckpointSnapshot:
    """What this worker's checkpoint connector of one flow has emitted."""

    source: str
    target: str
    emitted: int
    groups: int
    """How many groups in remote partitions have had checkpoints; ``rows`` may be fewer."""
    rows: tuple[PlainRow, ...] = ()
    """The fields of ``CheckpointRow``."""


@dataclass(frozen=True, slots=True)
class PathSnapshot:
    """The heartbeats that came through a flow; None while there are none."""

    source: str
    target: str
    heartbeat_age_s: float | None
    latency_ms: float | None


@dataclass(frozen=True, slots=True)
class Rows:
    """Further rows of the connector whose snapshot came last."""

    field: str
    """Which: ``DEPARTED``, ``PARTITIONS`` or ``CHECKPOINT_ROWS``."""
    rows: tuple[PlainRow, ...]


ConnectorPart = FlowSnapshot | CheckpointSnapshot | PathSnapshot | Rows
"""What a connector measures: first its snapshot, without rows, then these."""

SOURCE_CONNECTOR: Final = "MirrorSourceConnector"


class ConnectorSnapshot(NamedTuple):
    """One connector of this worker."""

    flow: str
    kind: str
    """As MirrorMaker 2 names it."""
    state: str
    """In Connect's words: ``running``, ``paused``, ``stopped``, ``failed``, ``restarting``, ``unassigned``."""
    attempts: int
    """How often it was started."""


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """The group of one target cluster, as this worker knows it."""

    target: str
    name: str
    state: str
    """The class of the member's state: ``Active``, ``Suspended``, ...; empty before it has joined."""
    is_leader: bool = False
    has_leader: bool = False
    leader_epoch: int = 0
    generation: int = 0
    members: int = 0
    tasks: int = 0
    """That this worker owns."""
    tasks_to_release: int = 0
    """That other workers wait for."""
    unfenced_producers: int = 0
    """Of former members, which could not be fenced."""


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """The process of the worker."""

    pid: int
    started_at_s: float
    """In epoch seconds."""
    cpu_s: float
    resident_bytes: int
    held_bytes: int
    """Records in memory, and what they may take."""
    held_max_bytes: int
    loop_delay_s: WindowState


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One worker at one moment."""

    name: str
    version: str
    now_s: float
    """Monotonic time, like in all windows."""
    now_ms: int
    """The machine's clock."""
    process: ProcessSnapshot
    groups: tuple[GroupSnapshot, ...]
    connectors: tuple[ConnectorSnapshot, ...]
    flows: tuple[FlowSnapshot, ...]
    checkpoints: tuple[CheckpointSnapshot, ...]
    paths: tuple[PathSnapshot, ...]
    gaps: tuple[tuple[str, str, str, int], ...]
    """(flow, source topic, kind, count) since the process began."""


SnapshotPart = WorkerSnapshot | ConnectorPart


def in_parts(field: str, rows: Sequence[PlainRow]) -> Iterator[Rows]:
    """Yield rows in parts."""
    for at in range(0, len(rows), ROWS_A_PART):
        yield Rows(field, tuple(rows[at : at + ROWS_A_PART]))


def assembled(parts: Iterable[SnapshotPart]) -> WorkerSnapshot:
    """Return the snapshot that these parts make, in their order. Raises: ValueError, the first part is missing."""
    worker: WorkerSnapshot | None = None
    connectors: list[tuple[FlowSnapshot | CheckpointSnapshot | PathSnapshot, dict[str, list[PlainRow]]]] = []
    for part in parts:
        match part:
            case WorkerSnapshot():
                worker = part
            case Rows(field, rows):
                connectors[-1][1].setdefault(field, []).extend(rows)
            case _:
                connectors.append((part, {}))
    if worker is None:
        raise ValueError("a snapshot begins with its worker")
    whole = [replace(one, **{name: tuple(found) for name, found in rows.items()}) for one, rows in connectors]  # type: ignore[arg-type]
    return replace(
        worker,
        flows=tuple(one for one in whole if isinstance(one, FlowSnapshot)),
        checkpoints=tuple(one for one in whole if isinstance(one, CheckpointSnapshot)),
        paths=tuple(one for one in whole if isinstance(one, PathSnapshot)),
    )
