"""The report of ``mm2py status``: members, flows and problems, derived from what both clusters say. Pure.

A worker may know more about itself, and logs that. Programs get every field of these classes by its name.

Counterpart: the status of connectors and tasks in Connect's REST API and the lag that MirrorMaker 2 leaves to JMX.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final

from mm2py.command_lines import for_group
from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.group.membership import GroupState
from mm2py.moments import ago, time_text
from mm2py.records.control_record import MemberId
from mm2py.status.facts import Facts, FlowFacts, GroupFacts
from mm2py.status.flow_report import FlowReport, FlowTasks, flow_report, late_members, why_drift, why_off, why_running
from mm2py.status.not_copied import RUN_UNKNOWN, NotCopied, NotRunning, Reason
from mm2py.status.return_flow import ReturnFlow, return_flow

SILENT_TIMES: Final = 3
"""If no record came for this many session time-outs, no worker runs."""
AHEAD_MS: Final = 2_000
"""If a record is ahead of our clock by more, the clocks differ."""


class ProblemKind(StrEnum):
    """What is wrong. The order is that in which an operator sees them."""

    UNREACHABLE = "unreachable"
    NOT_RUNNING = "not-running"
    RETURN_FLOW = "return-flow"
    """A cutover can be undone, and the flow that leads back does not copy."""
    GAP = "gap"
    NOT_COPIED = "not-copied"
    """A topic, or some of its partitions, wait for an operator, or it is not known why they are not copied."""
    BACKFILL = "backfill"
    """The workers do not copy topics because of a backfill whose driver is dead."""
    UNOWNED = "unowned"
    REFUSED = "refused"
    SWITCHED_OFF = "switched-off"
    """The file enables a flow that is stored as switched off, or enables none."""
    DRIFT = "drift"
    """The workers do not run by the file."""
    BEHIND = "behind"
    """A member has not applied the stored settings although it had time to."""
    MEMBER = "member"
    """A session has expired, or a member is not fenced yet. The group handles that, or tasks have no worker."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    kind: ProblemKind
    where: str
    """A cluster, a group, a flow, or a flow and its topic."""
    text: str
    """What it is, in a sentence."""


class MemberState(StrEnum):
    ALIVE = "alive"
    EXPIRED = "session-expired"
    """It has not written for its session time-out, while other members have."""
    STOPPED = "stopped"
    """No member of its group writes any more."""


@dataclass(frozen=True, slots=True)
class MemberReport:
    """One worker, as a member of a group."""

    member: MemberId
    """Its id."""
    name: str
    """For people: its host and process."""
    version: str
    """The version of mm2py that it runs."""
    core: str
    """Whether it runs with the compiled core, and why not; empty if it is too old to say."""
    url: str
    """Where its REST interface is; empty if it has none."""
    state: MemberState
    leads: bool
    """It is the leader of the group, or was the last one."""
    last_seen_ms_ago: int
    """When its last record was appended."""
    flows: tuple[Flow, ...]
    """The flows that it may run."""
    tasks: int
    """Of all kinds: partitions, heartbeats and the coordination of flows."""
    bytes_per_s: int
    """The rate of its partitions, as last measured."""


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group. Without ``members``: no worker has ever joined, or the control log cannot be read (``unread``)."""

    target: ClusterAlias
    """The cluster that its workers write to."""
    name: str
    """Its name, by ``mm2py.group``."""
    topic: str
    """Its control log."""
    unread: str
    """Why the control log cannot be read; empty if it can."""
    runs: bool | None
    """Whether a worker of the group runs; None: not known."""
    last_append_ms_ago: int | None
    """When the last record was appended."""
    leader: MemberId | None
    """The leader; if no worker runs, the last one."""
    leader_epoch: int
    """Goes up with each election."""
    generation: int
    """Goes up with each assignment of tasks."""
    members: tuple[MemberReport, ...]
    being_fenced: tuple[MemberId, ...]
    """Members that were evicted and are not fenced yet."""
    unfenced: Mapping[int, str]
    """By producer id: why it could not be fenced."""


@dataclass(frozen=True, slots=True)
class Report:
    """The whole status at one moment."""

    at_ms: int
    clusters: Mapping[ClusterAlias, str]
    groups: tuple[GroupReport, ...]
    flows: tuple[FlowReport, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """Doubtful entries of the file, such as misspelt keys."""

    @property
    def summary(self) -> str:
        """The heading: whether all is copied, and what operators or backfills hold."""
        count = len(self.problems)
        held = [text for flow in self.flows for text in _held_back(flow)]
        if count:
            return f"{count} problem{'s' if count > 1 else ''}{'; not copied: ' if held else ''}{', '.join(held)}"
        if not held:
            return "nothing is wrong"
        enabled = [flow for flow in self.flows if flow.settings.enabled]
        is_all_held = bool(enabled) and all(_is_held(flow) for flow in enabled)
        return f"{'nothing is copied:' if is_all_held else 'copied except'} {', '.join(held)}"

    @property
    def is_whole(self) -> bool:
        """Whether all clusters answered, and everything could be read."""
        return all(problem.kind is not ProblemKind.UNREACHABLE for problem in self.problems)

    @property
    def is_well(self) -> bool:
        """Whether nothing waits for an operator."""
        return all(problem.kind is ProblemKind.MEMBER for problem in self.problems)


def return_flows(facts: Facts, report: Report) -> list[ReturnFlow]:
    """Return the flows that must copy while a cutover can be undone."""
    runs = {each.settings.flow: each.recovery for each in facts.flows}
    found = (return_flow(flow.flow, runs.get(flow.flow), flow.verdict) for flow in report.flows)
    return [one for one in found if one is not None]


def report_of(facts: Facts) -> Report:
    """Return the report of these facts: problems and the largest lag first."""
    groups = tuple(_group_report(group, facts.at_ms) for group in facts.groups)
    states = {group.target: group.state for group in facts.groups}
    work = {
        group.target: FlowTasks(state) for group in groups if group.runs and (state := states[group.target]) is not None
    }
    idle = {group.target: _why_not_running(facts, group) for group in groups if not group.runs}
    flows = [
        flow_report(
            each,
            states.get(each.settings.flow.target),
            work.get(each.settings.flow.target),
            facts.at_ms,
            idle=idle.get(each.settings.flow.target),
        )
        for each in facts.flows
    ]
    flows.sort(key=lambda flow: (-len(flow.open_gaps), -flow.unowned, -(flow.lag or 0), flow.flow))
    others = {each.settings.flow: each.other_group for each in facts.flows}
    runs = {each.settings.flow: each.recovery for each in facts.flows}
    problems = [*_cluster_problems(facts), *_group_problems(facts, groups)]
    for flow in flows:
        problems += _flow_problems(flow, work.get(flow.flow.target), facts.clusters)
        problems += _unstored(flow.flow, work.get(flow.flow.target))
        problems += _settings_problems(flow, groups, facts.at_ms, others[flow.flow])
        back = return_flow(flow.flow, runs[flow.flow], flow.verdict)
        if back is not None and back.dead:
            problems.append(Problem(ProblemKind.RETURN_FLOW, str(flow.flow), back.dead))
    for each in facts.flows:
        if each.mm2_runs:
            problems.append(Problem(ProblemKind.NOT_RUNNING, str(each.settings.flow), each.mm2_runs))
        if each.config_unusable:
            text = for_group(each.config_unusable, each.other_group)
            problems.append(Problem(ProblemKind.REFUSED, str(each.settings.flow), text))
        problems += _owner_problems(each)
    for off, why in facts.off_unread.items():
        if why not in facts.clusters.values():  # already reported as a problem of the cluster
            problems.append(Problem(ProblemKind.UNREACHABLE, str(off), why))
    for off, stored in facts.off.items():
        if why := why_running(off, stored):
            text = for_group(why, facts.off_owners.get(off, ""))
            problems.append(Problem(ProblemKind.DRIFT, str(off), text))
    if not facts.flows and not facts.refused:
        text = "it enables no flow, or none that --clusters names: nothing is copied. Enable one: A->B.enabled = true."
        problems.append(Problem(ProblemKind.SWITCHED_OFF, "the file", text))
    order = list(ProblemKind)
    problems.sort(key=lambda problem: order.index(problem.kind))
    return Report(facts.at_ms, facts.clusters, groups, tuple(flows), tuple(dict.fromkeys(problems)), facts.warnings)


# -- groups ------------------------------------------------------------------------------------------------------------


def seems_stopped(state: GroupState, now_ms: int) -> bool:
    """Return whether the last record is so old, or so far in the future, that only a growing log shows a live group.

    Example: the clock of this machine, or of the broker, is an hour ahead. By the age of its last record a live group
    would seem dead, or one that died half an hour ago alive. Whether the log grows does not depend on clocks.
    """
    age_ms = now_ms - state.append_time_ms
    return bool(state.members) and not -AHEAD_MS <= age_ms <= SILENT_TIMES * _session_timeout_ms(state)


def is_running(facts: GroupFacts, now_ms: int) -> bool | None:
    """Return whether a worker of a group runs; None: its control log cannot be read."""
    state = facts.state
    if state is None:
        return None if facts.unread else False
    return bool(state.members) and (facts.has_grown or (facts.has_grown is None and not seems_stopped(state, now_ms)))


def _session_timeout_ms(state: GroupState) -> int:
    return max((member.joined.session_timeout_ms for member in state.members.values()), default=0)


def _group_report(facts: GroupFacts, now_ms: int) -> GroupReport:
    state, runs = facts.state, is_running(facts, now_ms)
    if state is None:
        return GroupReport(facts.target, facts.name, facts.topic, facts.unread, runs, None, None, 0, 0, (), (), {})
    # If the log grows, its last record is from just now, whatever the clocks say.
    age_ms = 0 if facts.has_grown else max(0, now_ms - state.append_time_ms)
    members = [
        MemberReport(
            name,
            member.joined.name,
            member.joined.runs,
            member.joined.core,
            _without_user(member.joined.url),
            MemberState.STOPPED if not runs else MemberState.EXPIRED if member.expired else MemberState.ALIVE,
            name == state.leader,
            age_ms + state.log_time_ms - member.last_time_ms,
            tuple(sorted({*member.joined.flows, *chain(*member.joined.undivided.values())})),
            len(state.owned_by(name)),
            sum(state.loads.get(task, 0) for task in state.owned_by(name)),
        )
        for name, member in state.members.items()
    ]
    members.sort(key=lambda member: (member.state is MemberState.ALIVE, not member.leads, member.name, member.member))
    return GroupReport(
        facts.target,
        facts.name,
        facts.topic,
        facts.unread,
        runs,
        age_ms if state.next_offset else None,
        state.leader,
        state.leader_epoch,
        state.generation,
        tuple(members),
        tuple(sorted(state.to_fence)),
        dict(state.unfenced),
    )


def _without_user(url: str) -> str:
    """Remove user and password from an address that a worker has published."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url.rpartition("@")[2]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


# -- problems ----------------------------------------------------------------------------------------------------------


def _cluster_problems(facts: Facts) -> Iterable[Problem]:
    for alias, why in facts.clusters.items():
        if why:
            yield Problem(ProblemKind.UNREACHABLE, alias, why)
    for flow, why in facts.refused.items():
        yield Problem(ProblemKind.REFUSED, str(flow), why)


def _group_problems(facts: Facts, groups: Sequence[GroupReport]) -> Iterable[Problem]:
    for group in groups:
        where = f"group {group.name} on {group.target}"
        if group.unread and not facts.clusters.get(group.target):
            yield Problem(ProblemKind.UNREACHABLE, where, group.unread)
        if group.runs is False:
            last_ms = group.last_append_ms_ago
            since = "" if last_ms is None else f", the last record is {ago(last_ms)} old"
            yield Problem(ProblemKind.NOT_RUNNING, where, f"no worker runs{since}. {_how_to_start(facts, group)}")
        if group.runs and group.leader is None:
            yield Problem(ProblemKind.MEMBER, where, "no member is leader at the moment.")
        for member in group.members:
            if member.state is MemberState.EXPIRED:
                text = f"the session of {member.name} has expired, last seen {ago(member.last_seen_ms_ago)} ago."
                yield Problem(ProblemKind.MEMBER, where, text)
        for name in group.being_fenced:
            yield Problem(ProblemKind.MEMBER, where, f"{name} was evicted and is not fenced yet; its tasks wait.")


def _how_to_start(facts: Facts, group: GroupReport) -> str:
    """Return how to start a worker. If other groups run all flows of the file, a worker with it would be refused."""
    flows = [flow for flow in facts.flows if flow.settings.flow.target == group.target] or facts.flows
    others = [flow.other_group for flow in flows]
    if not others or not all(others):
        return "Start one: mm2py FILE."
    commands = ", ".join(for_group("mm2py FILE", other) for other in sorted(set(others)))
    return (
        f"Others have its flows: {commands} starts a worker of theirs. If none of them runs, one of this group takes"
        " over: mm2py FILE."
    )


def _flow_problems(flow: FlowReport, work: FlowTasks | None, clusters: Mapping[ClusterAlias, str]) -> Iterable[Problem]:
    where = str(flow.flow)
    for why in flow.unread:
        if why not in clusters.values():  # already reported as a problem of the cluster
            yield Problem(ProblemKind.UNREACHABLE, where, why)
    for one in flow.refused:
        told = f"{one.worker} refuses it: {one.why} Then restart the connector over REST, or the worker."
        yield Problem(ProblemKind.REFUSED, f"{where}.{one.connector}", told)
    is_refused = any(one.connector is Kind.SOURCE for one in flow.refused)
    if work is not None and not work.runs(flow.flow) and flow.settings.enabled and not is_refused:
        yield Problem(ProblemKind.NOT_RUNNING, where, "no member of the group runs this flow.")
    kinds: dict[str, Counter[str]] = {}
    for gap in flow.open_gaps:
        kinds.setdefault(gap.topic, Counter())[gap.kind] += 1
    for topic, counts in kinds.items():
        what = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        text = f"stopped and waits for an operator: {what}. See mm2py gaps."
        yield Problem(ProblemKind.GAP, f"{where} {topic}", text)
    for said in flow.not_copied:
        if said.is_problem:
            yield Problem(ProblemKind.NOT_COPIED, where, f"{flow.told(said)}{_since(said)}")
    for topic_report in flow.topics:
        for said in flow.problems_of(topic_report):
            if not topic_report.is_named_otherwise(said):
                yield Problem(ProblemKind.NOT_COPIED, f"{where} {topic_report.topic}", f"{said.text}{_since(said)}")
    for backfill in flow.backfills:
        if backfill.is_dead:
            yield Problem(ProblemKind.BACKFILL, f"{where} backfill {backfill.id}", backfill.text)
    if flow.unowned:
        yield Problem(ProblemKind.UNOWNED, where, f"{flow.unowned} task(s) have no worker.")


def _unstored(flow: Flow, work: FlowTasks | None) -> Iterable[Problem]:
    """Yield a problem for workers that cannot store why they do not copy topics: the reasons are then not known."""
    if work is None:
        return
    whys: dict[str, list[str]] = {}
    for member, why in work.unstored(flow).items():
        whys.setdefault(why, []).append(work.state.members[member].joined.name)
    for why, names in whys.items():
        text = f"{', '.join(sorted(names))} cannot store which topics are not copied, and why. {why}"
        yield Problem(ProblemKind.NOT_COPIED, str(flow), text)


PAUSED_NAMED_MOST: Final = 3
"""How many paused topics of a flow the heading names."""
_OTHERS: Final = {Kind.CHECKPOINT: "checkpoints", Kind.HEARTBEAT: "heartbeats"}


def _since(said: NotCopied) -> str:
    return "" if said.since_ms is None else f" Since {time_text(said.since_ms)}."


def _is_held(flow: FlowReport) -> bool:
    """Return whether operators have paused or stopped the flow itself."""
    return any(held.connector is Kind.SOURCE for held in flow.held)


def _held_back(flow: FlowReport) -> Iterable[str]:
    """Yield what operators have paused or stopped, and what waits for backfills, with its lag."""
    for held in flow.held:
        if held.connector is Kind.SOURCE:
            lag = "" if held.state == "standby" else f"; lag {'?' if flow.lag is None else f'{flow.lag:,}'}"
            yield f"{flow.flow} ({held.told}{lag})"
        elif held.state not in {"standby", "both-on"}:  # these are states of the whole flow
            yield f"{_OTHERS[held.connector]} of {flow.flow} ({held.told})"
    if _is_held(flow):
        return
    paused = [(topic, said) for topic in flow.topics for said in topic.not_copied if said.reason is Reason.PAUSED]
    for topic, said in paused[:PAUSED_NAMED_MOST]:
        since = "" if said.since_ms is None else f" since {time_text(said.since_ms)}"
        what = f"{topic.topic}{f' {said.partitions}' if said.partitions else ''} of {flow.flow}"
        why = said.why.removeprefix("Paused").rstrip(".")
        yield f"{what} (paused{since}{why}; lag {'?' if topic.lag is None else f'{topic.lag:,}'})"
    if len(paused) > PAUSED_NAMED_MOST:
        yield f"{len(paused) - PAUSED_NAMED_MOST} more paused topics of {flow.flow}"
    for backfill in flow.backfills:
        if backfill.is_holding:
            topics = [topic for topic in flow.topics if topic.topic in backfill.topics]
            known = [topic.lag for topic in topics if topic.lag is not None]
            lag = f"{sum(known):,}" if len(known) == len(backfill.topics) else "?"
            yield f"{len(backfill.topics)} topic(s) of {flow.flow} (backfill {backfill.id}, lag {lag})"


def _why_not_running(facts: Facts, group: GroupReport) -> NotRunning:
    if group.unread:
        return NotRunning(f"{RUN_UNKNOWN}: {group.unread}", is_known=False)
    since_ms = None if group.last_append_ms_ago is None else facts.at_ms - group.last_append_ms_ago
    return NotRunning(f"No worker of group {group.name} runs.", _how_to_start(facts, group), since_ms)


def _settings_problems(
    flow: FlowReport, groups: Sequence[GroupReport], now_ms: int, other_group: str
) -> Iterable[Problem]:
    where, settings = str(flow.flow), flow.settings
    if why := why_off(settings):
        yield Problem(ProblemKind.SWITCHED_OFF, where, for_group(why, other_group))
    if why := why_drift(settings, is_others=bool(other_group)):
        yield Problem(ProblemKind.DRIFT, where, for_group(why, other_group))
    names = {member.member: member.name for group in groups for member in group.members}
    for late in late_members(settings, now_ms):
        assert settings.stored is not None  # noqa: S101
        by = f"by version {late.version}" if late.version else "by its own file"
        text = f"{names[late.member]} runs it {by}, and version {settings.stored.version} is stored. Its log says why."
        yield Problem(ProblemKind.BEHIND, where, text)


def _owner_problems(flow: FlowFacts) -> Iterable[Problem]:
    """Yield a problem if a group other than the file's runs the flow: its workers are in another control log."""
    if owner := flow.other_group:
        text = (
            f"run by group {owner}, and this file names group {flow.settings.group}. Set mm2py.group = {owner} in it to"
            " see the workers that run the flow."
        )
        yield Problem(ProblemKind.REFUSED, str(flow.settings.flow), text)
