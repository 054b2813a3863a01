"""A snapshot of a whole worker, for the process that serves ``/metrics``.

MirrorMaker 2 answers a scrape inside the JVM that copies. Here the event loop hands out plain values, which another
process turns into text. It does so in parts of about a millisecond each, and continues to copy between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mm2py import __version__
from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.group.group import Group
from mm2py.metrics.worker_numbers import (
    CHECKPOINT_ROWS,
    ConnectorSnapshot,
    FlowSnapshot,
    GroupSnapshot,
    Rows,
    SnapshotPart,
    WorkerSnapshot,
)
from mm2py.worker.herder import Herder, RunningConnector

_CONNECTORS = (Kind.SOURCE, Kind.CHECKPOINT, Kind.HEARTBEAT)
"""Those that MirrorMaker 2 has as well."""


def snapshot_parts(herder: Herder, *, checkpoints_max: int) -> Iterator[SnapshotPart]:
    """Yield what a worker counts now; ``assembled`` joins the parts. Call this in the worker's event loop.

    Args:
        checkpoints_max: how many groups in remote partitions are shown, of all flows together: those that had
            checkpoints first. The others are only counted.
    """
    vitals = herder.vitals
    up = [running.connector for running in herder.connectors if running.is_up and running.connector is not None]
    states = [_connector(running) for running in herder.connectors if running.name.kind in _CONNECTORS]
    states += [ConnectorSnapshot(str(flow), str(Kind.SOURCE), "failed", 0) for flow in herder.refused_flows]
    yield WorkerSnapshot(
        vitals.name,
        __version__,
        vitals.clock.monotonic(),
        vitals.clock.wall_ms(),
        vitals.measure(),
        tuple(_group(at, group) for at, group in herder.groups.items()),
        tuple(states),
        (),
        (),
        (),
        vitals.metrics.all_gaps(),
    )
    for running in herder.connectors:
        if running.copies and not running.is_up and running.refused is None and _is_to_run(running, herder):
            at_rest = FlowSnapshot(running.flow.source, running.flow.target, "waiting", "", 0.0)
            yield _with_start_problem(at_rest, herder)
    for connector in up:
        for part in connector.measure():
            if isinstance(part, FlowSnapshot):
                yield _with_start_problem(part, herder)
            elif isinstance(part, Rows) and part.field == CHECKPOINT_ROWS:
                if not checkpoints_max:
                    break
                told = replace(part, rows=part.rows[:checkpoints_max])
                checkpoints_max -= len(told.rows)
                yield told
            else:
                yield part


def _is_to_run(running: RunningConnector, herder: Herder) -> bool:
    """Whether a flow that is not up waits for something, before its first attempt or between two."""
    waits = running.has_failed or bool(running.plan.schedule.waits_for)
    return waits or _start_problem(running.flow, herder) is not None


def _start_problem(flow: Flow, herder: Herder) -> tuple[str, int, int] | None:
    """Return why a flow does not start here, as ``FlowSnapshot.not_copied`` counts that: as one topic."""
    group = herder.groups.get(flow.target)
    member = None if group is None else group.member
    why = None if member is None else member.not_started.get(flow)
    return None if member is None or why is None else (why.reason, 1, len(member.ownership(flow).mine()))


def _with_start_problem(part: FlowSnapshot, herder: Herder) -> FlowSnapshot:
    """Return a part with what is not copied because its flow does not start here."""
    problem = _start_problem(Flow(ClusterAlias(part.source), ClusterAlias(part.target)), herder)
    return part if problem is None else replace(part, not_copied=(problem,))


def _connector(running: RunningConnector) -> ConnectorSnapshot:
    if running.refused is not None:
        state = "failed"
    elif running.is_up:
        state = "running"
    elif (held := running.plan.schedule.held) is not None:
        state = held.word
    elif running.has_failed:
        state = "restarting"
    else:  # another worker has it, or it is switched off
        state = "unassigned"
    return ConnectorSnapshot(str(running.flow), str(running.name.kind), state, running.attempts)


def _group(at: ClusterAlias, group: Group) -> GroupSnapshot:
    member = group.member
    if member is None:
        return GroupSnapshot(at, group.name, "")
    view = member.view
    return GroupSnapshot(
        at,
        group.name,
        type(member.state).__name__,
        is_leader=member.is_leader,
        has_leader=view.leader is not None,
        leader_epoch=view.leader_epoch,
        generation=view.generation,
        members=len(view.members),
        tasks=len(view.owned_by(member.id)),
        tasks_to_release=len(view.awaited_of(member.id)),
        unfenced_producers=len(view.unfenced),
    )
