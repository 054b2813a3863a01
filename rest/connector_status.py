"""The state of connectors and tasks in Connect's words, out of what both clusters say. Pure.

A task of a source connector is here what one worker copies of a flow. Checkpoints and heartbeats are one task each. A
connector that is switched off does not exist for Connect's clients: DELETE switches it off, POST on again.
Source: AbstractStatus.State, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

from collections.abc import Iterable

from mm2py.config.flow_properties import is_enabled, meaning
from mm2py.connector import ConnectorName, Kind, TopicName
from mm2py.records.control_record import MemberId, TaskName
from mm2py.records.gap_record import Gap
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport
from mm2py.status.report import MemberReport, MemberState
from rest.clusters.live import View
from rest.models import ConnectorState, ConnectorStatus, TaskState
from rest.settings.check import SWITCHES

UNASSIGNED, RUNNING, FAILED, PAUSED, STOPPED = "UNASSIGNED", "RUNNING", "FAILED", "PAUSED", "STOPPED"
RESTARTING = "RESTARTING"
GAPS_TOLD_MOST = 20


def is_switched_off(kind: Kind, facts: FlowFacts) -> bool:
    """Whether the workers of a flow are not to run one of its connectors, paused or not."""
    properties = facts.file if facts.stored is None else facts.stored.properties
    if kind is not Kind.HEARTBEAT and not is_enabled(properties):
        return True
    switch = SWITCHES[kind].name
    return kind is not Kind.SOURCE and meaning(switch, properties.get(switch)) is False


def active_topics(kind: Kind, facts: FlowFacts) -> list[str]:
    """Return the topics on the target that a connector has written records to, as far as it is known."""
    settings = facts.settings
    match kind:
        case Kind.SOURCE:
            topics = {TopicName(topic) for topic, _ in facts.positions}
            return sorted(settings.policy.format_remote_topic(settings.flow.source, topic) for topic in topics)
        case Kind.CHECKPOINT:
            return [settings.checkpoints.topic] if settings.checkpoints is not None else []
        case _:
            return [settings.policy.heartbeats_topic()]


def status_of(name: ConnectorName, view: View) -> ConnectorStatus:
    """Return the status of a connector."""
    if name.flow in view.facts.refused:
        return _status(name, FAILED, None, view.facts.refused[name.flow], [])
    members = {
        member.member: member
        for group in view.report.groups
        if group.target == name.flow.target
        for member in group.members
        if member.state is MemberState.ALIVE
    }
    flow = next((one for one in view.report.flows if one.flow == name.flow), None)
    states = {group.target: group.state for group in view.facts.groups}
    state = states.get(name.flow.target)
    owner = None if state is None else state.owner(TaskName(name.flow, name.kind))
    leading = members.get(owner) if owner is not None else None
    if name.kind is Kind.SOURCE and flow is not None:
        owners = sorted(task.member for task in flow.tasks if task.member in members)
    else:
        owners = [leading.member] if leading is not None else []
    stopped = _stopped_partitions(flow) if name.kind is Kind.SOURCE else {}
    tasks = [_task(number, members[member], stopped.get(member, [])) for number, member in enumerate(owners)]
    refused = [one for one in (() if flow is None else flow.refused) if one.connector is name.kind]
    runs = leading is not None or bool(tasks)
    for one in refused:
        if one.member in members and one.member not in owners:
            member = members[one.member]
            tasks.append(
                TaskState(id=len(tasks), state=FAILED, worker_id=member.name, trace=one.why, version=member.version)
            )
    held = next((one.state for one in flow.held if one.connector is name.kind), "") if flow is not None else ""
    match held:
        case "stopped":
            return _status(name, STOPPED, leading, None, [])
        case "paused":
            paused = [task.model_copy(update={"state": PAUSED, "trace": None}) for task in tasks]
            return _status(name, PAUSED, leading, None, paused)
    trace = "\n".join(_told(stopped.get(None, []))) or None
    if refused and not runs:
        trace = "\n".join(f"{one.worker}: {one.why}" for one in refused)
        return _status(name, FAILED, members.get(refused[0].member), trace, tasks)
    return _status(name, RUNNING if runs else UNASSIGNED, leading, trace, tasks)


def _stopped_partitions(flow: FlowReport | None) -> dict[MemberId | None, list[Gap]]:
    """Return the gaps at which copying has stopped and waits for an operator, by the worker that copies there."""
    found: dict[MemberId | None, list[Gap]] = {}
    if flow is None:
        return found
    owners = {
        (topic.topic, partition): member
        for topic in flow.topics
        if topic.open_gaps
        for member, ranges in topic.owners.items()
        for partition in _numbers(ranges)
    }
    for gap in flow.open_gaps:
        found.setdefault(owners.get((gap.topic, gap.partition)), []).append(gap)
    return found


def _numbers(ranges: str) -> Iterable[int]:
    for run in ranges.split(","):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _told(gaps: list[Gap]) -> list[str]:
    """Return what waits for an operator, in the place of a stack trace."""
    lines = [f"{gap.topic}-{gap.partition} has stopped ({gap.kind}): {gap.text}" for gap in gaps]
    if len(lines) > GAPS_TOLD_MOST:
        lines = [*lines[:GAPS_TOLD_MOST], f"And {len(lines) - GAPS_TOLD_MOST} more."]
    return [*lines, "It waits for an operator: see mm2py gaps."] if lines else []


def _task(number: int, member: MemberReport, stopped: list[Gap]) -> TaskState:
    trace = "\n".join(_told(stopped)) or None
    state = FAILED if stopped else RUNNING
    return TaskState(id=number, state=state, worker_id=member.name, trace=trace, version=member.version)


def _status(
    name: ConnectorName, state: str, member: MemberReport | None, trace: str | None, tasks: list[TaskState]
) -> ConnectorStatus:
    worker, version = (member.name, member.version) if member is not None else ("", None)
    connector = ConnectorState(state=state, worker_id=worker, trace=trace, version=version)
    return ConnectorStatus(name=str(name), connector=connector, tasks=tasks)


def restarting(found: ConnectorStatus, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
    """Return a status in which that is RESTARTING which was chosen to, as Connect answers."""

    def state_of(state: str) -> str:
        return RESTARTING if state == FAILED or not only_failed else state

    tasks = found.tasks
    if include_tasks:
        tasks = [task.model_copy(update={"state": state_of(task.state)}) for task in tasks]
    connector = found.connector.model_copy(update={"state": state_of(found.connector.state)})
    return found.model_copy(update={"connector": connector, "tasks": tasks})
