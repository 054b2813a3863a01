"""The snapshot of a worker that copies A->B, made of real partitions; parts that a test does not give are ordinary."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from mm2py.copying.copied_partition import CopiedPartition, Reading
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings, PositionStored
from mm2py.copying.planning.steps import MERGE_SMALL, Outgoing, TargetRules
from mm2py.copying.positions import Position
from mm2py.kafka.port import ProducerIdentity
from mm2py.metrics.windows import Window, WindowState
from mm2py.metrics.worker_numbers import (
    CheckpointSnapshot,
    ConnectorSnapshot,
    FlowSnapshot,
    GroupSnapshot,
    PathSnapshot,
    ProcessSnapshot,
    WorkerSnapshot,
)
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse
from mm2py.records.source_offset import StoredPosition
from mm2py_connectors.source.task.measures import Departed, partition_rows
from tests.fakes.shell import DeafShell

NOW_S = 1000.0
NOW_MS = 1_700_000_000_000
_IDENTITY = ProducerIdentity(7, 0, "mm2py-test")


def copied(
    topic: str = "orders",
    number: int = 0,
    *,
    records: int = 20,
    end: int | None = 20,
    newest_ms: int = NOW_MS - 500,
    start: int = 0,
    stored: StoredPosition | None = None,
) -> CopiedPartition:
    """Return a partition with one batch that was copied now and fetched 0.2 s ago.

    Args:
        records: number of records in that batch; 0: nothing was copied yet.
        end: end of the source log; None: it was not read yet.
        newest_ms: the newest timestamp in the batch.
        start: where copying began.
        stored: the position that was stored before.
    """
    copier = Copier(f"{topic}-{number}", Position(start), _IDENTITY, CopySettings(1 << 30))
    copier.handle(PositionStored(_IDENTITY))
    part = CopiedPartition(
        topic, f"A.{topic}", number, copier, TargetRules(1 << 20), DeafShell(), reading=Reading(merging=MERGE_SMALL)
    )
    part.stored = stored
    if records:
        copier.tally.count(Outgoing(start, start + records, records, newest_ms, 0, bytearray(100 * records)))
        copier.position = Position(start + records)
        copier.fetch_offset = start + records
        part.meter.add(newest_ms, records, 100 * records, read_at_s=NOW_S - 0.2, now_s=NOW_S, now_ms=NOW_MS)
    copier.end_offset = end
    part.reading.end_told_at_s = NOW_S
    return part


def window(*values: float, now_s: float = NOW_S) -> WindowState:
    """Return a window that has these values."""
    found = Window()
    for value in values:
        found.add(value, now_s)
    return found.state()


def checkpoints(*keys: tuple[str, str, int], latency_ms: float = 7.0, groups: int | None = None) -> CheckpointSnapshot:
    """Return the checkpoints of these (group, remote topic, partition); ``groups``: how many the connector knows."""
    found = Window()
    found.add(latency_ms, NOW_S)
    rows = tuple((*key, found.last, found.plain_samples()) for key in keys)
    return CheckpointSnapshot("A", "B", 4, len(keys) if groups is None else groups, rows)


def flow(
    partitions: Sequence[CopiedPartition] = (), *, departed: Iterable[CopiedPartition] = (), **parts: Any
) -> FlowSnapshot:
    gone = Departed()
    for part in departed:
        gone.add(part)
    fields: dict[str, Any] = {
        "source": "A",
        "target": "B",
        "state": "running",
        "guarantee": "exactly-once",
        "positions_unstored_s": 0.5,
        "refused_topics": 0,
        "position_writes_ms": window(3.0, 5.0),
        "read_bytes": 5000,
        "sent_bytes": 4000,
        "ledger_chunks": 3,
        "ledger_entries": 9,
        "link": LinkUse(14, 23_400_000, 92, "the link"),
        "waits": FlowWaits(2, {"target": 90, "source": 10}),
        "from_followers": 2,
        "safe_ms": NOW_MS - 400,
        "not_copied": (("missing", 1, 0), ("source-denied", 0, 2)),
        "departed": gone.rows(),
        "partitions": partition_rows(partitions, NOW_S, NOW_MS),
    }
    return FlowSnapshot(**{**fields, **parts})


def worker(*flows: FlowSnapshot, **parts: Any) -> WorkerSnapshot:
    """Return a worker; without ``flows`` it copies one topic of two partitions."""
    fields: dict[str, Any] = {
        "name": "host:7",
        "version": "0.1.0",
        "now_s": NOW_S,
        "now_ms": NOW_MS,
        "process": ProcessSnapshot(7, 1_699_999_000.0, 12.5, 90_000_000, 1_000_000, 96_000_000, window(0.001, 0.003)),
        "groups": (GroupSnapshot("B", "mm2py", "Active", True, True, 3, 5, 2, 20, 0, 0),),
        "connectors": (
            ConnectorSnapshot("A->B", "MirrorSourceConnector", "running", 1),
            ConnectorSnapshot("A->B", "MirrorCheckpointConnector", "running", 1),
            ConnectorSnapshot("A->B", "MirrorHeartbeatConnector", "failed", 2),
        ),
        "flows": flows or (flow([copied(number=0), copied(number=1)]),),
        "checkpoints": (checkpoints(("readers", "A.orders", 0)),),
        "paths": (PathSnapshot("A", "B", 0.8, 40.0),),
        "gaps": (("A->B", "orders", "expired", 2),),
    }
    return WorkerSnapshot(**{**fields, **parts})


def many(partitions: int, *, topics: int, seed: int = 1) -> WorkerSnapshot:
    """Return a worker that copies this many partitions of this many topics, with numbers drawn from the seed."""
    rng = random.Random(seed)
    found = [
        copied(f"t{number % topics:04}", number // topics, records=rng.randint(1, 1000), end=rng.randint(1000, 2000))
        for number in range(partitions)
    ]
    return worker(flow(found))
