"""Short descriptions of clusters, workers and flows, made from the status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from pydantic import Field

from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.group.membership import GroupState
from mm2py.records.control_record import MemberId
from mm2py.status.bodies import JsonBody
from mm2py.status.bottleneck import FlowBottleneck
from mm2py.status.consumer_groups import ConsumerGroupsReport
from mm2py.status.facts import Facts
from mm2py.status.flow_report import FlowReport, Guarantee
from mm2py.status.not_copied import OF_THE_FLOW
from mm2py.status.report import MemberReport, Report
from mm2py.status.verdict import FlowVerdict
from mm2py_rest.reports.lag import Lag, sum_of
from mm2py_rest.reports.topics import TopicCopy


class ClusterBody(JsonBody):
    """One cluster of the flows."""

    cluster: ClusterAlias = Field(examples=["A"])
    """Its alias in the file. Addresses are not shown."""
    is_reachable: bool
    """It has answered the last time."""
    why: str
    """Why it does not answer; empty if it does."""
    source_of: tuple[str, ...] = Field(examples=[["A->B"]])
    """The flows that read from it."""
    target_of: tuple[str, ...] = Field(examples=[["B->A"]])
    """The flows that write to it."""
    group: str | None = Field(examples=["mm2py"])
    """The group of the workers that write to it; null: none does."""


class WorkerBody(JsonBody):
    """One worker, as a member of the group of one target cluster. A worker with two targets is there twice."""

    target: ClusterAlias = Field(examples=["B"])
    """The cluster that the group writes to."""
    group: str = Field(examples=["mm2py"])
    """The name of the group."""
    leader_epoch: int = Field(examples=[3])
    """Of the group: goes up with each election."""
    generation: int = Field(examples=[7])
    """Of the group: goes up with each assignment of tasks."""
    member: MemberReport
    """As in ``/v1/status``."""


class FlowState(StrEnum):
    """Whether a flow copies."""

    RUNNING = "running"
    SWITCHED_OFF = "switched-off"
    HELD = "held"
    """An operator has paused or stopped it, or the flow back is on as well."""
    STANDBY = "standby"
    """It copies nothing until it is turned on."""
    NOT_RUNNING = "not-running"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class FlowBody(JsonBody):
    """One flow in short; ``/v1/flows/A->B`` has everything."""

    flow: str = Field(examples=["A->B"])
    """Source and target."""
    state: FlowState
    """Whether it copies."""
    why: str
    """Why it is refused, held or not known; else empty. Where it runs: why other workers must not run it, that its
    source does not answer, or why workers cannot start it."""
    verdict: FlowVerdict | None = None
    """Whether it is safe to fail over now; null: the flow is refused."""
    loss: str = ""
    """What would be lost if the source were lost now, in a sentence; empty: the flow is not to copy anything."""
    bottleneck: FlowBottleneck | None = None
    """What limits it, and what would help; null: the flow is refused."""
    guarantee: Guarantee | None = None
    """How often a record is in the copy after crashes; null: the flow is refused."""
    coordinator: MemberId | None = None
    """The member that finds and lists its topics; null: none does."""
    workers: int = 0
    """How many workers copy partitions of it."""
    unowned: int = 0
    """Tasks without a worker."""
    topics_copied: int = 0
    """See ``/v1/flows/A->B/topics``."""
    topics_not_copied: int = 0
    """Other topics of the source; the same list says why."""
    topics_waiting: int = 0
    """Those among them that wait for an operator."""
    lag_records: int | None = None
    """In offsets, summed over what is known."""
    lag_is_partial: bool = False
    """Partitions of which the lag is not known are left out of ``lag_records``."""
    lag_bytes: int | None = None
    """An estimate; null: see lag_note."""
    lag_s: float | None = None
    """The age of the last copied record in the partition that is furthest behind; null: see lag_note."""
    lag_note: str = ""
    """Why a lag is not known."""
    lag_as_of_ms: int | None = None
    """The source does not answer: the lag is what workers knew at this time, or a little before. Null: as of now."""
    open_gaps: int = 0
    """Gaps that wait for an operator, see ``/v1/flows/A->B/gaps``."""
    settings_version: int = 0
    """Which version of its settings is stored; 0: none is, and each worker runs by its file."""
    consumer_groups: ConsumerGroupsReport | None = None
    """Null: the flow emits no checkpoints, or they cannot be read."""
    unread: tuple[str, ...] = ()
    """What could not be found out."""


def cluster_bodies(report: Report, facts: Facts) -> list[ClusterBody]:
    """Return all clusters, by alias."""
    flows = sorted([*(one.settings.flow for one in facts.flows), *facts.refused])
    groups = {group.target: group.name for group in report.groups}
    return [
        ClusterBody(
            cluster=alias,
            is_reachable=not why,
            why=why,
            source_of=tuple(str(flow) for flow in flows if flow.source == alias),
            target_of=tuple(str(flow) for flow in flows if flow.target == alias),
            group=groups.get(alias),
        )
        for alias, why in sorted(report.clusters.items())
    ]


def worker_bodies(report: Report) -> list[WorkerBody]:
    """Return all members of all groups, by target and id."""
    found = [
        WorkerBody(
            target=group.target,
            group=group.name,
            leader_epoch=group.leader_epoch,
            generation=group.generation,
            member=member,
        )
        for group in report.groups
        for member in group.members
    ]
    return sorted(found, key=lambda one: (one.target, one.member.member))


def state_of(report: Report, facts: Facts, flow: Flow) -> GroupState | None:
    """Return the state of the group that runs a flow now; None if no worker does."""
    runs = any(group.target == flow.target and group.runs for group in report.groups)
    state = next((group.state for group in facts.groups if group.target == flow.target), None)
    return state if runs and state is not None and flow in state.flows else None


def flow_body(flow: FlowReport, report: Report, state: GroupState | None, topics: Iterable[TopicCopy]) -> FlowBody:
    """Return the body of a flow that is not refused; ``state`` as ``state_of`` returns it."""
    topics = list(topics)
    copied = [topic for topic in topics if topic.is_copied]
    owned = [topic for topic in topics if topic.copy is not None and topic.copy.owners]
    lag = sum_of([Lag(one.lag_records, one.lag_bytes, one.lag_s, one.lag_note) for one in owned])
    group = next((one for one in report.groups if one.target == flow.flow.target), None)
    what, why = FlowState.RUNNING, ""
    if not flow.settings.enabled:
        what = FlowState.SWITCHED_OFF
    elif held := next((one for one in flow.held if one.connector is Kind.SOURCE), None):
        what, why = FlowState.STANDBY if held.state == "standby" else FlowState.HELD, held.text
    elif group is not None and group.runs is None:
        what, why = FlowState.UNKNOWN, group.unread
    elif refusals := [one for one in flow.refused if one.connector is Kind.SOURCE]:
        what = FlowState.REFUSED if state is None else FlowState.RUNNING
        why = "\n".join(f"{one.worker}: {one.why}" for one in refusals)
    elif state is None:
        what = FlowState.NOT_RUNNING
    else:
        why = "\n".join(flow.told(one) for one in flow.not_copied if one.reason in OF_THE_FLOW)
    return FlowBody(
        flow=str(flow.flow),
        state=what,
        why=why,
        verdict=flow.verdict,
        loss=flow.loss,
        bottleneck=flow.bottleneck,
        guarantee=flow.guarantee,
        coordinator=flow.coordinator,
        workers=len(flow.tasks),
        unowned=flow.unowned,
        topics_copied=len(copied),
        topics_not_copied=len(topics) - len(copied),
        topics_waiting=sum(any(why.is_problem for why in one.not_copied) for one in topics),
        lag_records=flow.lag,
        lag_is_partial=flow.lag_is_partial,
        lag_bytes=lag.bytes,
        lag_s=lag.seconds,
        lag_note=lag.note,
        lag_as_of_ms=flow.lag_as_of_ms,
        open_gaps=len(flow.open_gaps),
        settings_version=0 if flow.settings.stored is None else flow.settings.stored.version,
        consumer_groups=flow.consumer_groups,
        unread=flow.unread,
    )


def refused_bodies(refused: Mapping[Flow, str]) -> list[FlowBody]:
    """Return the bodies of the flows that the file enables and that must not run."""
    return [FlowBody(flow=str(flow), state=FlowState.REFUSED, why=why) for flow, why in refused.items()]
