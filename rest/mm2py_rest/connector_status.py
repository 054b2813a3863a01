"""The state of connectors and tasks in Connect's words, from what both clusters report. Pure.

A task of a source connector is here what one worker copies of a flow. Checkpoints and heartbeats are one task each. A
connector that is switched off does not exist for Connect's clients: DELETE switches it off, POST switches it on again.
Source: AbstractStatus.State, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mm2py.config.flow_properties import is_enabled, meaning
from mm2py.flow import ConnectorName, Kind, TopicName
from mm2py.records.control_record import MemberId, TaskName
from mm2py.records.gap_record import Gap
from mm2py.records.partition_ranges import numbers
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import ON_ALL, FlowReport, Unstarted, unstarted_of
from mm2py.status.not_copied import FAILED as FAILED_REASONS
from mm2py.status.not_copied import Reason, of_cause
from mm2py.status.report import MemberReport, MemberState
from mm2py_rest.clusters.live import View
from mm2py_rest.models import ConnectorState, ConnectorStatus, TaskState
from mm2py_rest.settings.check import SWITCHES

UNASSIGNED, RUNNING, FAILED, PAUSED, STOPPED = "UNASSIGNED", "RUNNING", "FAILED", "PAUSED", "STOPPED"
RESTARTING = "RESTARTING"
LINES_MOST = 20


def is_switched_off(kind: Kind, facts: FlowFacts) -> bool:
    """Whether one connector of a flow is switched off, so that no worker runs it, paused or not."""
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
    unstarted = ON_ALL
    if name.kind is Kind.SOURCE and flow is not None and flow.settings.enabled and state is not None and members:
        unstarted = unstarted_of(name.flow, state)
    told = _not_copied(flow, unstarted) if name.kind is Kind.SOURCE else {}
    tasks = [_task(number, members[member], told.get(member, _Told())) for number, member in enumerate(owners)]
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
        case "paused" | "standby" | "both-on":
            paused = [task.model_copy(update={"state": PAUSED, "trace": None}) for task in tasks]
            return _status(name, PAUSED, leading, None, paused)
    trace = told.get(None, _Told()).trace
    if refused and not runs:
        trace = "\n".join(f"{one.worker}: {one.why}" for one in refused)
        return _status(name, FAILED, members.get(refused[0].member), trace, tasks)
    has_failed = unstarted.is_whole and any(cause.reason in FAILED_REASONS for cause in unstarted.causes.values())
    return _status(name, FAILED if has_failed else RUNNING if runs else UNASSIGNED, leading, trace, tasks)


@dataclass(slots=True)
class _Told:
    """What the status of a task, or of the connector, shows in place of a stack trace."""

    lines: list[str] = field(default_factory=list)
    has_failed: bool = False

    @property
    def trace(self) -> str | None:
        most = [*self.lines[:LINES_MOST]]
        if len(self.lines) > LINES_MOST:
            most.append(f"And {len(self.lines) - LINES_MOST} more: see mm2py status.")
        return "\n".join(most) or None


def _not_copied(flow: FlowReport | None, unstarted: Unstarted) -> dict[MemberId | None, _Told]:
    """Return what is not copied, by the worker whose task it is. Key None: it belongs to no task.

    A task is FAILED where one of its partitions waits for an operator and a task of Connect would have failed as well:
    a right is missing, a record is refused, a gap has stopped it. Connect has no word for other problems: the task is
    RUNNING, with the reason. Where workers cannot start the flow, their tasks are FAILED; if none can, so is the
    connector.
    """
    found: dict[MemberId | None, _Told] = {}
    if flow is None:
        return found
    for one in flow.not_copied:
        if one.is_problem:
            found.setdefault(None, _Told()).lines.append(flow.told(one))
    gaps: dict[str, list[Gap]] = {}
    for gap in flow.open_gaps:
        gaps.setdefault(gap.topic, []).append(gap)
    for topic in flow.topics:
        owners = {number: member for member, owned in topic.owners.items() for number in numbers(owned)}
        for gap in gaps.pop(topic.topic, []):
            told = found.setdefault(owners.get(gap.partition), _Told())
            told.has_failed = True
            told.lines.append(_gap_told(gap))
        for one in flow.problems_of(topic):
            if topic.is_named_otherwise(one) and one.reason is not Reason.UNOWNED:
                continue  # Connect shows tasks without a worker nowhere else
            about = set(owners) if not one.partitions else set(numbers(one.partitions))
            for member in sorted({owners.get(number) for number in about} or {None}, key=str):
                told = found.setdefault(member, _Told())
                told.has_failed |= one.reason in FAILED_REASONS
                told.lines.append(f"{topic.topic}: {one.text}")
    for members, cause in unstarted.causes.items():
        for member in members if cause.reason in FAILED_REASONS else ():
            told = found.setdefault(member, _Told())
            told.has_failed = True
            told.lines.append(of_cause(cause).text)
    for gap in (gap for left in gaps.values() for gap in left):
        told = found.setdefault(None, _Told())
        told.lines.append(_gap_told(gap))
    return found


def _gap_told(gap: Gap) -> str:
    text = f"{gap.topic}-{gap.partition} has stopped ({gap.kind}): {gap.text}"
    return f"{text.rstrip('.')}. It waits for an operator: see mm2py gaps."


def _task(number: int, member: MemberReport, told: _Told) -> TaskState:
    state = FAILED if told.has_failed else RUNNING
    return TaskState(id=number, state=state, worker_id=member.name, trace=told.trace, version=member.version)


def _status(
    name: ConnectorName, state: str, member: MemberReport | None, trace: str | None, tasks: list[TaskState]
) -> ConnectorStatus:
    worker, version = (member.name, member.version) if member is not None else ("", None)
    connector = ConnectorState(state=state, worker_id=worker, trace=trace, version=version)
    return ConnectorStatus(name=str(name), connector=connector, tasks=tasks)


def restarting(found: ConnectorStatus, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
    """Return a status in which the chosen connector and tasks are RESTARTING, as Connect answers."""

    def state_of(state: str) -> str:
        return RESTARTING if state == FAILED or not only_failed else state

    tasks = found.tasks
    if include_tasks:
        tasks = [task.model_copy(update={"state": state_of(task.state)}) for task in tasks]
    connector = found.connector.model_copy(update={"state": state_of(found.connector.state)})
    return found.model_copy(update={"connector": connector, "tasks": tasks})
