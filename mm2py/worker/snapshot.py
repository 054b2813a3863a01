"""One look at a whole worker, for the process that serves ``/metrics``.

MirrorMaker 2 answers a scrape inside the JVM that copies. Here the event loop gives away plain values, which another
process turns into text: ``snapshot`` takes about a microsecond for each partition.
"""

from __future__ import annotations

from mm2py import __version__
from mm2py.connector import ClusterAlias, Kind
from mm2py.group.group import Group
from mm2py.metrics.snapshot import (
    CheckpointSnapshot,
    ConnectorState,
    FlowSnapshot,
    GroupSnapshot,
    PathSnapshot,
    WorkerSnapshot,
)
from mm2py.worker.herder import Herder, RunningConnector

_CONNECTORS = (Kind.SOURCE, Kind.CHECKPOINT, Kind.HEARTBEAT)
"""Those that MirrorMaker 2 has as well."""


def snapshot(herder: Herder) -> WorkerSnapshot:
    """Return what a worker counts now. It has to be called in the worker's event loop, and never waits."""
    vitals = herder.vitals
    up = [running.connector for running in herder.connectors if running.is_up and running.connector is not None]
    found = [connector.measure() for connector in up]
    states = [_connector(running) for running in herder.connectors if running.name.kind in _CONNECTORS]
    states += [ConnectorState(str(flow), str(Kind.SOURCE), "failed", 0) for flow in herder.refused_flows]
    return WorkerSnapshot(
        vitals.name,
        __version__,
        vitals.clock.monotonic(),
        vitals.clock.wall_ms(),
        vitals.measure(),
        tuple(_group(at, group) for at, group in herder.groups.items()),
        tuple(states),
        tuple(one for one in found if isinstance(one, FlowSnapshot)),
        tuple(one for one in found if isinstance(one, CheckpointSnapshot)),
        tuple(one for one in found if isinstance(one, PathSnapshot)),
        vitals.metrics.all_gaps(),
    )


def _connector(running: RunningConnector) -> ConnectorState:
    if running.refused is not None:
        state = "failed"
    elif running.is_up:
        state = "running"
    elif (held := running.plan.schedule.held) is not None:
        state = held.word
    else:
        state = "restarting" if running.attempts else "unassigned"
    return ConnectorState(str(running.flow), str(running.name.kind), state, running.attempts)


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
