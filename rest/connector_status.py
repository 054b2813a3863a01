"""The state of connectors and tasks in Connect's words, out of what both clusters say. Pure.

A task of a source connector is here what one worker copies of a flow. Checkpoints and heartbeats are one task each.
Source: AbstractStatus.State, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

from mm2py.connector import ConnectorName, Flow, Kind
from mm2py.records.control_record import MemberId
from mm2py.status.flow_report import FlowReport
from mm2py.status.report import MemberReport, MemberState, ProblemKind, Report
from rest.models import ConnectorState, ConnectorStatus, TaskState

UNASSIGNED, RUNNING, FAILED, STOPPED = "UNASSIGNED", "RUNNING", "FAILED", "STOPPED"


def status_of(name: ConnectorName, report: Report, refused: Mapping[Flow, str]) -> ConnectorStatus:
    """Return the status of a connector.

    Args:
        refused: why flows of the file must not run.
    """
    members = {
        member.member: member
        for group in report.groups
        if group.target == name.flow.target
        for member in group.members
        if member.state is MemberState.ALIVE
    }
    flow = next((one for one in report.flows if one.flow == name.flow), None)
    owner = _owner(name, flow)
    if name.flow in refused:
        return _status(name, FAILED, None, refused[name.flow], [])
    if flow is not None and not flow.settings.enabled and name.kind is not Kind.HEARTBEAT:
        return _status(name, STOPPED, None, None, [])
    trace = _trace(name, report)
    if name.kind is Kind.SOURCE and flow is not None:
        owners = sorted(task.member for task in flow.tasks if task.member in members)
    else:
        owners = [owner] if owner is not None and owner in members else []
    tasks = [_task(number, members[member]) for number, member in enumerate(owners)]
    leading = members.get(owner) if owner is not None else None
    runs = leading is not None or bool(tasks)
    return _status(name, RUNNING if runs else UNASSIGNED, leading, trace, tasks)


def _owner(name: ConnectorName, flow: FlowReport | None) -> MemberId | None:
    if flow is None:
        return None
    match name.kind:
        case Kind.SOURCE:
            return flow.coordinator
        case Kind.CHECKPOINT:
            return flow.checkpoints
        case _:
            return flow.heartbeats


def _trace(name: ConnectorName, report: Report) -> str | None:
    """Return what waits for an operator; Connect has only a stack trace there."""
    if name.kind is not Kind.SOURCE:
        return None
    where = str(name.flow)
    told = [
        f"{problem.where}: {problem.text}"
        for problem in report.problems
        if problem.kind in (ProblemKind.GAP, ProblemKind.REFUSED)
        and (problem.where == where or problem.where.startswith(f"{where} "))
    ]
    return "\n".join(told) or None


def _task(number: int, member: MemberReport) -> TaskState:
    return TaskState(id=number, state=RUNNING, worker_id=member.name, version=member.version)


def _status(
    name: ConnectorName, state: str, member: MemberReport | None, trace: str | None, tasks: list[TaskState]
) -> ConnectorStatus:
    worker, version = (member.name, member.version) if member is not None else ("", None)
    connector = ConnectorState(state=state, worker_id=worker, trace=trace, version=version)
    return ConnectorStatus(name=str(name), connector=connector, tasks=tasks)
