"""The status report of one flow: its settings, its guarantee, its topics and its tasks. Pure.

A running worker logs its own guarantee, and may know more reasons. Lag is counted in offsets, so it includes
transaction markers and records that compaction has removed. It is counted from the stored positions, which are about a
second old.

Counterpart: ``GET /connectors/NAME/config`` of Connect's REST API, which returns the stored settings, but not which
member runs by them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from mm2py.config.flow_properties import ENABLED, is_enabled
from mm2py.flow import Flow, Kind, TopicName
from mm2py.group.membership import GroupState
from mm2py.records.author import Author, with_reason
from mm2py.records.connector_config import DecidedBy, FlowConfig, told_writer
from mm2py.records.control_record import MemberId, NotStarted, TaskName, TopicClaim
from mm2py.records.gap_record import Done, Gap, GapKind
from mm2py.records.link_use import LinkUse
from mm2py.records.partition_ranges import numbers, ranges
from mm2py.records.pause_record import TopicPause
from mm2py.records.standstill import Cause
from mm2py.secret import HIDDEN, is_hidden, shown_key
from mm2py.shared_settings.flow_config import Change, behind, difference
from mm2py.status.backfill_report import BackfillReport, backfill_reports
from mm2py.status.bottleneck import FlowBottleneck, LimitedWorker, bottleneck_of
from mm2py.status.connector_report import HeldReport, RefusalReport, held_of, refusals_of
from mm2py.status.consumer_groups import ConsumerGroupsReport
from mm2py.status.facts import UNDECIDED, FlowFacts, LeftOut
from mm2py.status.lag_movement import NOT_KNOWN, LagMovement, together
from mm2py.status.left_out import why_left_out
from mm2py.status.loss import loss_text, rest_of, uncopied_of
from mm2py.status.not_copied import (
    OF_THE_FLOW,
    SORT_OF,
    NotCopied,
    NotRunning,
    Reason,
    Sort,
    TopicFacts,
    is_silence,
    most_urgent_first,
    of_cause,
    source_remedy,
    why_not_copied,
)
from mm2py.status.partition_lags import (
    BEHIND_MOST,
    PartitionBehind,
    begin_of,
    end_of,
    partition_behind,
    partition_movement,
    worst_first,
)
from mm2py.status.pause_report import PauseReport, pause_reports
from mm2py.status.verdict import KEEPS_UP_S, FlowVerdict, Readiness, VerdictFacts, no_match, safety_of, verdict_of
from mm2py.topics.filters import PatternTooSlow, WhyNot

APPLYING_MS: Final = 60_000
"""How long a member may take to apply a version before it is reported. It may have to drain the flow first."""
SURELY_BEHIND_S: Final = 3 * KEEPS_UP_S
"""If the safe time is older, workers have had the time to tell that they see records wait."""
SETTINGS_NAMED_MOST: Final = 5
TOPICS_NAMED_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class StoredReport:
    """Which version of a flow's settings is stored, and who stored it."""

    version: int
    """Goes up by one with each change."""
    by: DecidedBy
    worker: str
    """The worker or the command that stored it, for people."""
    at_ms: int
    """When, by the clock of the machine that stored it."""
    user: str = ""
    """Who decided it. Empty: an earlier version of mm2py stored it, without the user."""
    host: str = ""
    """The machine of that user; over REST, the machine of the worker that was asked."""
    reason: str = ""
    """The reason that the user gave; empty: none."""

    @property
    def who_and_why(self) -> str:
        """Who stored it and why, for people."""
        return with_reason(told_writer(self.by, Author(self.user, self.host), self.worker), self.reason)


@dataclass(frozen=True, slots=True)
class DriftReport:
    """One setting whose value in the file differs from the stored one. None means the default; secrets are hidden."""

    setting: str
    """Its name."""
    stored: str | None
    """The stored value."""
    file: str | None
    """Its value in the file."""
    text: str
    """The difference in a line."""


@dataclass(frozen=True, slots=True)
class AppliedReport:
    """The version of the settings by which a member runs a flow."""

    member: MemberId
    """The member."""
    version: int | None
    """0: it runs by its own file, because it could not read the stored settings. None: it has not reported one yet."""
    is_behind: bool
    """It has not applied the stored version."""


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """The settings by which a flow runs."""

    stored: StoredReport | None
    """None: mm2py has stored no settings, or they cannot be read."""
    enabled: bool
    """Whether the flow is to copy, by the stored settings; without them, by the file."""
    drift: tuple[DriftReport, ...]
    """How the file differs from the stored settings; empty if both mean the same."""
    applied: tuple[AppliedReport, ...]
    """The live members that run the flow; those that have not applied it come first. Empty while no worker runs."""


def settings_of(facts: FlowFacts, state: GroupState | None) -> SettingsReport:
    """Return what is known about the settings of a flow.

    Args:
        state: the state of the group that runs the flow; None if no worker runs it.
    """
    flow, stored = facts.settings.flow, facts.stored
    members = {} if state is None else {name: one for name, one in state.members.items() if not one.expired}
    versions = {name: one.applied.get(flow) for name, one in members.items() if flow in one.joined.flows}
    late = set(behind(0 if stored is None else stored.version, {name: said or 0 for name, said in versions.items()}))
    applied = [AppliedReport(name, said, name in late) for name, said in sorted(versions.items())]
    return SettingsReport(
        None if stored is None else _stored(stored),
        True if stored is None else is_enabled(stored.properties),
        () if stored is None else tuple(map(_drift, difference(stored.properties, facts.file))),
        tuple(sorted(applied, key=lambda one: (not one.is_behind, one.member))),
    )


def _stored(stored: FlowConfig) -> StoredReport:
    author = stored.author
    return StoredReport(stored.version, stored.by, stored.worker, stored.at_ms, author.user, author.host, author.reason)


def _drift(change: Change) -> DriftReport:
    old, new = (
        HIDDEN if value is not None and is_hidden(change.name, value) else value for value in (change.old, change.new)
    )
    return DriftReport(shown_key(change.name), old, new, str(change))


def why_off(report: SettingsReport) -> str:
    """Return the message for a flow that the file enables and the stored settings switch off; empty if they do not."""
    if report.enabled or report.stored is None or all(change.setting != ENABLED for change in report.drift):
        return ""
    return f"it is switched off {_origin_of(report.stored)}: nothing is copied. mm2py apply FILE switches it on again."


def why_drift(report: SettingsReport, *, is_others: bool) -> str:
    """Return the message for a file that differs from the stored settings in more than ``enabled``; else empty.

    Args:
        is_others: a group other than the file's runs the flow. That group does not use this file.
    """
    names = [change.setting for change in report.drift if change.setting != ENABLED]
    if report.stored is None or not names:
        return ""
    return (
        f"its workers run by what is stored {_origin_of(report.stored)}, NOT by this file, which differs in"
        f" {_some(names, SETTINGS_NAMED_MOST)}. To {'change that' if is_others else 'make them run by the file'}:"
        " mm2py apply FILE"
    )


def why_running(flow: Flow, stored: FlowConfig) -> str:
    """Return the message for a flow that the file switches off and the stored settings switch on; else empty."""
    if not is_enabled(stored.properties):
        return ""
    return f"the file switches {flow} off, and it is on {_origin_of(stored)}. mm2py apply FILE switches it off."


def late_members(report: SettingsReport, now_ms: int) -> Iterable[AppliedReport]:
    """Yield the members that should have applied the stored version by now.

    A member that is starting has not reported a version yet, and is left out. The time of storing comes from the clock
    of the machine that stored it. The log has no better time, because writers set its timestamps.
    """
    if report.stored is not None and now_ms - report.stored.at_ms > APPLYING_MS:
        yield from (one for one in report.applied if one.is_behind and one.version is not None)


def _origin_of(stored: FlowConfig | StoredReport) -> str:
    return f"(version {stored.version}, by {stored.who_and_why})"


@dataclass(frozen=True, slots=True)
class Unstarted:
    """Live workers that cannot start a flow: nothing of the flow runs on them."""

    causes: Mapping[frozenset[MemberId], Cause] = field(default_factory=dict)
    is_whole: bool = False
    """The flow runs on no worker at all."""

    @property
    def members(self) -> frozenset[MemberId]:
        return frozenset().union(*self.causes)


ON_ALL: Final = Unstarted()
"""The flow runs on all its workers."""


class Level(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How often a record is in the copy after crashes."""

    level: Level
    reasons: tuple[str, ...]
    """Why the level is not better. Under exactly-once: what else an operator should know."""


def guarantee_of(facts: FlowFacts, state: GroupState | None, unstarted: Unstarted = ON_ALL) -> Guarantee:
    """Return the guarantee of a flow, as far as it is known.

    Args:
        state: the state of the group on its target; None if it cannot be read, or no worker has joined a group.
        unstarted: the workers that cannot start the flow.
    """
    reasons = list(_why_not_once(facts, state))
    if reasons:
        return Guarantee(Level.AT_LEAST_ONCE, tuple(reasons))
    unread = tuple(dict.fromkeys(filter(None, (facts.positions_unread, facts.status_unread))))
    if unread:
        return Guarantee(Level.UNKNOWN, unread)
    if unstarted.is_whole:
        is_silent = any(cause.reason == Reason.SOURCE_SILENT for cause in unstarted.causes.values())
        source = facts.settings.flow.source
        why = f"{source} has not answered its workers yet" if is_silent else "its workers cannot start it"
        return Guarantee(Level.UNKNOWN, (why,))
    flow = facts.settings.flow
    if not facts.positions and (state is None or flow not in state.flows):
        return Guarantee(Level.UNKNOWN, ("it has not run yet",))
    return Guarantee(Level.EXACTLY_ONCE, tuple(_others(facts)))


def _why_not_once(facts: FlowFacts, state: GroupState | None) -> Iterable[str]:
    flow = facts.settings.flow
    if facts.settings.many_to_one:
        yield "several flows write to one topic"
    own_ids = {position.producer_id for position in facts.positions.values()}
    plain = set()
    if state is not None:
        for member in state.members.values():
            writers = [writer for writer in member.writers.values() if writer.flow == flow]
            own_ids |= {writer.producer_id for writer in writers}
            if any(writer.transactional_id is None for writer in writers):
                plain.add(member.joined.name)
        # A producer whose flow is not known any more may have written for this one.
        others = {
            writer.producer_id
            for member in state.members.values()
            for writer in member.writers.values()
            if writer.flow != flow
        }
        unfenced = {pid: why for pid, why in state.unfenced.items() if pid in own_ids or pid not in others}
        if unfenced:
            whys = sorted(set(unfenced.values()))
            yield f"{len(unfenced)} producer id(s) could not be fenced: {_some(whys)}"
    elif any(position.by is None and position.producer_id is not None for position in facts.positions.values()):
        plain.add("the last writer")
    if plain:
        yield f"{_some(sorted(plain))} writes without a transactional id, and cannot be fenced surely"
    repeated = _topics_with(facts, GapKind.REPEATED)
    if repeated:
        yield f"records of {_some(repeated)} may be there twice"


def _others(facts: FlowFacts) -> Iterable[str]:
    foreign = _topics_with(facts, GapKind.FOREIGN)
    if foreign:
        yield f"others write to the copies of {_some(foreign)} as well"


def _topics_with(facts: FlowFacts, kind: GapKind) -> list[str]:
    """Return the topics with gaps of one kind. Gaps that an operator has accepted do not count."""
    return sorted({gap.topic for gap in facts.gaps if gap.kind is kind and gap.done is not Done.ACCEPTED})


def _some(names: list[str], most: int = TOPICS_NAMED_MOST) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic."""

    topic: str
    """Its name on the source."""
    partitions: int
    """How many partitions it has."""
    lag: int | None
    """Summed over the partitions whose lag is known; None if there are none."""
    lag_s: float | None
    """The age of the oldest record that waits, by its timestamp. 0: none waits. None: not known."""
    unknown: int
    """Partitions whose end or position is not known."""
    not_started: int
    """Partitions that hold records and have no position."""
    ahead: int
    """Partitions that end before their position: the source was cut back, or the topic was deleted and made again."""
    not_listed: int
    """Partitions that the settings select and the flow coordinator has not listed; 0 while no worker runs the flow."""
    unowned: int
    """Partitions that no worker owns."""
    waiting: int
    """Partitions whose previous owner has not released them yet."""
    open_gaps: int
    """Gaps that wait for an operator."""
    is_gone: bool
    """The topic is not on the source any more."""
    owners: Mapping[MemberId, str]
    """Partitions by owner, as ranges: ``0-3,7``. Empty while no worker runs the flow."""
    not_copied: tuple[NotCopied, ...]
    """Why it is not copied, or not all of it; the most urgent first. Empty: all of it is copied."""
    newest_ms: int | None
    """The newest timestamp of its records that were copied last; None: not known."""
    movement: LagMovement | None
    """How its lag moves. None: its lag is not known, or it is left out."""

    @property
    def is_copied(self) -> bool:
        """Whether all of it is copied."""
        return not self.not_copied

    def is_named_otherwise(self, said: NotCopied) -> bool:
        """Whether the status already reports this reason as a problem of a gap, a group or a task."""
        return said.reason in {Reason.NOT_RUNNING, Reason.UNOWNED} or (
            said.reason is Reason.STOPPED and self.open_gaps > 0
        )


_RULES: Final[Mapping[LeftOut, tuple[Reason, str]]] = {
    WhyNot.OWN_TOPIC: (Reason.OWN_TOPIC, "mm2py keeps its own state in it."),
    WhyNot.INTERNAL: (Reason.INTERNAL, "It is an internal topic of Kafka, Kafka Connect or MirrorMaker 2."),
    WhyNot.CYCLE: (Reason.CYCLE, "Its name says that its records have been on the target."),
    WhyNot.NOT_INCLUDED: (Reason.NOT_INCLUDED, "No pattern of topics matches it."),
    WhyNot.EXCLUDED: (Reason.EXCLUDED, "A pattern of topics.exclude matches it."),
    UNDECIDED: (Reason.UNDECIDED, "A pattern of topics or topics.exclude finds no answer in time. Rewrite it."),
}


def left_out_of(facts: FlowFacts, topic: str) -> tuple[Reason, str]:
    """Return why the settings leave a topic out, with the pattern that decided and where it is written."""
    return rule_of(facts, topic, facts.left_out[topic])


def rule_of(facts: FlowFacts, topic: str, why: LeftOut) -> tuple[Reason, str]:
    """Return the same of a rule that leaves a topic out."""
    reason, text = _RULES[why]
    if why in {WhyNot.EXCLUDED, WhyNot.NOT_INCLUDED}:
        text = why_left_out(topic, facts.settings.topic_filter, facts.origins) or text
    return reason, text


@dataclass(frozen=True, slots=True)
class FlowCircumstances:
    """Facts that apply to all topics of a flow."""

    is_enabled: bool = True
    held: str = ""
    held_since_ms: int | None = None
    held_state: str = ""
    not_running: NotRunning | None = None
    """None: a worker runs the flow."""
    backfills: Mapping[str, str] = field(default_factory=dict)
    """By topic: the backfill that the workers wait for, in words."""
    pauses: Mapping[str, Sequence[TopicPause]] = field(default_factory=dict)
    """By topic: what operators have paused of it."""
    causes: Mapping[str, Sequence[Cause]] = field(default_factory=dict)
    """By topic: the causes that live workers have stored; the empty name means the whole flow."""
    unstarted: Unstarted = ON_ALL

    def of_the_flow(self, owners: Mapping[MemberId, Sequence[int]], listed: int) -> Iterable[Cause]:
        """Yield the causes that concern a worker's whole flow, as far as they concern one topic.

        Args:
            owners: the topic's partitions by owner; ``listed`` of them are listed.
        """
        yield from filter(is_silence, self.causes.get("", ()))
        for members, cause in self.unstarted.causes.items():
            about = sorted(number for one in members for number in owners.get(one, ()))
            if self.unstarted.is_whole or about:
                is_all = self.unstarted.is_whole or len(about) == listed
                yield replace(cause, partitions="" if is_all else ranges(about))


def unstarted_of(flow: Flow, state: GroupState) -> Unstarted:
    """Return the workers that cannot start a flow, and why, as their heartbeats report it."""
    runners = {name: one for name, one in state.members.items() if not one.expired and flow in one.joined.flows}
    told: dict[tuple[str, str], dict[MemberId, NotStarted]] = {}
    for name, one in runners.items():
        if (why := one.not_started.get(flow)) is not None:  # what a source says differs from worker to worker
            told.setdefault((why.reason, "" if why.reason == Reason.SOURCE_SILENT else why.why), {})[name] = why
    causes = {}
    for (reason, _), found in told.items():
        names = _some(sorted(runners[name].joined.name for name in found))
        latest = max(found.values(), key=lambda one: one.since_ms)
        since_ms = min(one.since_ms for one in found.values())
        if reason == Reason.SOURCE_SILENT:
            text, remedy = f"{flow.source} has not answered {names} yet: {latest.why}", source_remedy(flow)
        else:
            text, remedy = f"{names} cannot start the flow: {latest.why}", ""
        causes[frozenset(found)] = Cause(reason, text, remedy, since_ms)
    return Unstarted(causes, len(frozenset().union(*causes)) == len(runners) > 0)


@dataclass(slots=True)
class _Lag:
    """Sums over the partitions of a topic."""

    records: int = 0
    known: int = 0
    unknown: int = 0
    not_started: int = 0
    ahead: int = 0
    since_ms: int | None = None
    """The timestamp of the oldest record that waits."""
    undated: int = 0
    """Partitions with waiting records whose age is not known."""
    behind: dict[int, LagMovement] = field(default_factory=dict)
    """How the lags of partitions that are behind move."""
    keeping_up: list[LagMovement] = field(default_factory=list)
    """The same of partitions with waiting records that keep up."""

    def movement(self) -> LagMovement | None:
        if not self.known:
            return None
        return together([*self.behind.values(), *self.keeping_up, *[NOT_KNOWN] * bool(self.unknown)])

    def seconds(self, now_ms: int) -> float | None:
        if not self.known or self.unknown or self.undated:
            return None
        return 0.0 if self.since_ms is None else max(0.0, (now_ms - self.since_ms) / 1000)


def topics_of(
    facts: FlowFacts, state: GroupState | None, seen: FlowCircumstances, now_ms: int
) -> tuple[tuple[TopicReport, ...], list[PartitionBehind]]:
    """Return a report for each topic that is, or should be, copied, and the partitions that are behind.

    Topics that need an operator come first. Partitions come in the order in which they need help.

    Args:
        state: the state of the group that runs the flow; None if no worker runs it.
    """
    flow = facts.settings.flow
    listed = {} if state is None else state.topics.get(flow, {})
    gaps: dict[str, list[Gap]] = {}
    for gap in facts.gaps:
        if gap.is_open:
            gaps.setdefault(gap.topic, []).append(gap)
    stored: dict[str, int] = {}
    newest_ms: dict[str, int] = {}
    for (topic, partition), at in facts.positions.items():
        stored[topic] = max(stored.get(topic, 0), partition + 1)
        newest_ms[topic] = max(newest_ms.get(topic, -1), -1 if at.newest_ms is None else at.newest_ms)
    standing: dict[str, list[int]] = {}
    moved_ms: dict[str, list[int]] = {}
    for (topic, partition), at_ms in sorted(facts.standing.items()):
        standing.setdefault(topic, []).append(partition)
        moved_ms.setdefault(topic, []).extend([] if at_ms is None else [at_ms])
    undecided = {topic for topic, why in facts.left_out.items() if why == UNDECIDED}
    names = {*listed, *gaps, *undecided, *seen.causes} - {""}
    names |= (stored.keys() - facts.left_out.keys()) if facts.selected is None else facts.selected.keys()
    names |= facts.hidden & stored.keys()
    reports = []
    behind: list[PartitionBehind] = []
    for topic in names:
        count = (facts.selected or {}).get(topic) or max(listed.get(topic, 0), stored.get(topic, 0))
        is_left_out = topic in facts.left_out
        is_hidden = topic in facts.hidden
        is_gone = facts.selected is not None and topic not in facts.selected and not is_hidden
        has_causes = any(cause.reason != Reason.SOURCE_SILENT for cause in seen.causes.get(topic, ()))
        if any(cause.reason == Reason.RING for cause in seen.causes.get(topic, ())):
            lag = _Lag()  # it is left out, as if by the settings
        elif is_left_out and topic not in undecided:
            lag = _Lag()
        elif is_hidden:
            lag = _Lag(unknown=count)
        elif is_gone:  # or the topic exists, and the user who asks may not see it
            is_expected = has_causes or topic in undecided or (topic in listed and topic not in gaps)
            lag = _Lag(unknown=max(1, count) if is_expected else 0)
        elif facts.selected is None and (has_causes or topic in gaps):
            lag = _Lag(unknown=count)  # its last known end is older than the silence
        else:
            lag = _lag_of(facts, topic, count, now_ms)
        owners: dict[MemberId, list[int]] = {}
        unowned: list[int] = []
        moving: list[int] = []
        for partition in range(listed.get(topic, 0)):
            owned = None if state is None else state.owners.get(TaskName(flow, Kind.SOURCE, topic, partition))
            if owned is None or owned.member is None:
                unowned.append(partition)
                continue
            owners.setdefault(owned.member, []).append(partition)
            if owned.waits_for is not None:
                moving.append(partition)
        not_copied = why_not_copied(
            TopicFacts(
                partitions=count,
                selected=False if is_left_out else None if is_hidden or facts.selected is None else not is_gone,
                left_out=left_out_of(facts, topic) if is_left_out else None,
                has_positions=topic in stored,
                listed=listed.get(topic, 0),
                unowned=ranges(unowned),
                moving=ranges(moving),
                standing=ranges(standing.get(topic, [])),
                standing_since_ms=min(moved_ms.get(topic, []), default=None),
                is_switched_off=not seen.is_enabled,
                held=seen.held,
                held_since_ms=seen.held_since_ms,
                held_state=seen.held_state,
                backfill=seen.backfills.get(topic, ""),
                pauses=seen.pauses.get(topic, ()),
                flow=flow,
                not_running=seen.not_running,
                stopped=ranges(sorted({gap.partition for gap in gaps.get(topic, [])})),
                stopped_since_ms=min((gap.at_ms for gap in gaps.get(topic, [])), default=None),
                gaps=_gaps_told(gaps.get(topic, [])),
                conflict="" if state is None else _conflict(facts, topic, state),
                causes=seen.causes.get(topic, ()),
                flow_causes=tuple(seen.of_the_flow(owners, listed.get(topic, 0))),
            )
        )
        reports.append(
            TopicReport(
                topic,
                count,
                lag.records if lag.known or not (count or lag.unknown) else None,
                lag.seconds(now_ms),
                lag.unknown,
                lag.not_started,
                lag.ahead,
                0 if state is None or is_gone else max(0, count - listed.get(topic, 0)),
                len(unowned),
                len(moving),
                len(gaps.get(topic, [])),
                is_gone and not is_left_out and (topic in stored or topic in listed),
                {member: ranges(numbers) for member, numbers in sorted(owners.items())},
                not_copied,
                newest_ms.get(topic, -1) if newest_ms.get(topic, -1) >= 0 else None,
                lag.movement(),
            )
        )
        told = (partition_behind(facts, (topic, number), one, now_ms) for number, one in lag.behind.items())
        behind += filter(None, told)
    return tuple(sorted(reports, key=_urgency)), worst_first(behind)


def _gaps_told(gaps: Sequence[Gap]) -> str:
    counts = Counter(str(gap.kind) for gap in gaps)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def _conflict(facts: FlowFacts, topic: str, state: GroupState) -> str:
    """Return why a topic's remote topic is impossible, or which other flows claim it; empty if neither."""
    settings = facts.settings
    remote = settings.remote_topic(topic)
    if problem := settings.remote_problem(topic):
        return f"Its remote name {remote[:100]} cannot be, {problem}."
    claim = TopicClaim.of(topic, remote, mixes=settings.many_to_one)
    others = state.topic_claims.conflicting_flows(settings.flow, topic, claim)
    if others:
        return f"{', '.join(map(str, sorted(others)))} also leads into {remote}."
    other = state.topic_claims.conflicting_topic(settings.flow, topic, claim)
    return f"{other} is copied into {remote}, and topics.rename gives both that name." if other else ""


def _urgency(topic: TopicReport) -> tuple[object, ...]:
    is_problem = any(one.is_problem for one in topic.not_copied)
    return (
        not is_problem,
        -topic.open_gaps,
        -topic.ahead,
        -topic.unowned,
        -topic.not_listed,
        -(topic.lag or 0),
        topic.topic,
    )


def _lag_of(facts: FlowFacts, topic: str, count: int, now_ms: int) -> _Lag:
    lag = _Lag()
    for partition in range(count):
        key = (topic, partition)
        position = facts.positions.get(key)
        end = end_of(facts, key, position)
        begin = begin_of(facts, key, position)
        if end is None or begin is None or (position is None and facts.positions_unread):
            lag.unknown += 1
            continue
        if begin > end:  # the source was cut back, or is another topic: the number of waiting records is not known
            lag.ahead += 1
            lag.unknown += 1
            continue
        lag.known += 1
        lag.records += end - begin
        if end > begin:
            since_ms = facts.waiting_since_ms.get(key)
            lag.undated += since_ms is None
            lag.since_ms = min(filter(None, (lag.since_ms, since_ms)), default=None)
            movement = partition_movement(facts, key, now_ms)
            if movement.is_behind:
                lag.behind[partition] = movement
            else:
                lag.keeping_up.append(movement)
        lag.not_started += position is None and end > facts.starts.get(key, end)
    return lag


@dataclass(frozen=True, slots=True)
class LinkReport:
    """How a member uses a long link, over several connections."""

    connections: int
    """How many connections the member has."""
    bytes_per_s: int
    """Their rate together, as last measured."""
    percent_of_best: int
    """This rate in percent of the best rate so far."""
    limit: str
    """What limits the rate."""
    text: str
    """The same in a sentence."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The partitions of a flow that one member copies."""

    member: MemberId
    """The member."""
    partitions: int
    """How many it owns."""
    waiting: int
    """How many of them it may not copy yet, because their previous owner has not released them."""
    bytes_per_s: int
    """Their rate, as last measured."""
    link: LinkReport | None = None
    """None: it needs only one connection to each broker."""


@dataclass(frozen=True, slots=True)
class FlowReport:
    """One flow."""

    flow: Flow
    """The flow."""
    owner_group: str
    """The group that runs the flow, as stored with the flow. Empty: no group has claimed it."""
    settings: SettingsReport
    held: tuple[HeldReport, ...]
    paused: tuple[PauseReport, ...]
    """The topics and partitions that operators have paused."""
    refused: tuple[RefusalReport, ...]
    """Connectors that some workers must not run; other workers may run them."""
    guarantee: Guarantee
    coordinator: MemberId | None
    """The member that finds and lists its topics; None: none does."""
    heartbeats: MemberId | None
    """The member that emits its heartbeats; None: none does."""
    checkpoints: MemberId | None
    """The member that emits its checkpoints; None: none does."""
    tasks: tuple[TaskReport, ...]
    tasks_max: int | None
    """The most workers over which its partitions are spread; None: all."""
    unowned: int
    """Tasks without a worker; 0 while no worker of the group runs at all."""
    lag: int | None
    """In offsets, summed over the topics whose lag is known; None if none is known."""
    lag_s: float | None
    """The age of the oldest record that waits in any topic. 0: none waits. None: not known."""
    lag_is_partial: bool
    """Some partitions are not in ``lag``."""
    lag_as_of_ms: int | None
    """If the source does not answer: when, or shortly before when, workers knew this ``lag``. None: it is current."""
    not_copied: tuple[NotCopied, ...]
    """Reasons that concern the flow as a whole: its source is silent, or patterns match no topic."""
    notes: tuple[str, ...]
    """What an operator should know and no worker has reported."""
    topics: tuple[TopicReport, ...]
    open_gaps: tuple[Gap, ...]
    gaps_passed: int
    """Gaps that need no operator."""
    backfills: tuple[BackfillReport, ...]
    consumer_groups: ConsumerGroupsReport | None
    """None: the flow emits no checkpoints, or they cannot be read."""
    unread: tuple[str, ...]
    """What could not be read, and why."""
    verdict: FlowVerdict
    """Whether it is safe to fail over now."""
    movement: LagMovement | None
    """How its lag moves. None: it is not known of any topic."""
    behind: tuple[PartitionBehind, ...]
    """The partitions that need help first, ten at most."""
    partitions_behind: int
    """How many there are."""
    bottleneck: FlowBottleneck
    """What limits it, and what would help."""
    unstored: Mapping[MemberId, str]
    """By live member: why it cannot store what it does not copy. Reasons may be missing then."""
    loss: str = ""
    """What would be lost if the source were lost now, in a sentence; empty: the flow is not to copy anything."""

    def told(self, said: NotCopied) -> str:
        """Return the text of a reason that concerns the whole flow; if it stops topics, also how many."""
        count = sum(any(one.reason is said.reason for one in topic.not_copied) for topic in self.topics)
        if said.reason not in OF_THE_FLOW or not count:
            return said.text
        return f"{said.text} Not copied, or not all of it: {count} topic(s)."

    def problems_of(self, topic: TopicReport) -> Iterable[NotCopied]:
        """Yield the problems of a topic, without those that the flow reports once for all its topics."""
        told = OF_THE_FLOW.intersection(one.reason for one in self.not_copied)
        for one in topic.not_copied:
            if one.is_problem and one not in self.not_copied and one.reason not in told:
                yield one


class FlowTasks:
    """The tasks of a running group by flow. There may be 50,000, so each is read only once."""

    def __init__(self, state: GroupState) -> None:
        self.state = state
        self.unowned = Counter(task.flow for task in state.tasks() if state.owner(task) is None)
        tasks: dict[tuple[Flow, MemberId], list[TaskName]] = {}
        for member in state.members:
            for task in state.owned_by(member):
                if task.is_partition:
                    tasks.setdefault((task.flow, member), []).append(task)
        self._tasks: dict[Flow, list[TaskReport]] = {}
        for (flow, member), owned in tasks.items():
            waiting = sum(state.owners[task].waits_for is not None for task in owned)
            load = sum(state.loads.get(task, 0) for task in owned)
            link = _link_report(state.members[member].links.get(flow))
            self._tasks.setdefault(flow, []).append(TaskReport(member, len(owned), waiting, load, link))

    def tasks(self, flow: Flow) -> tuple[TaskReport, ...]:
        """Return the members that copy partitions of a flow, most loaded first."""
        found = self._tasks.get(flow, [])
        return tuple(sorted(found, key=lambda task: (-task.bytes_per_s, -task.partitions, task.member)))

    def unstored(self, flow: Flow) -> Mapping[MemberId, str]:
        """Return by live member why it cannot store what it does not copy."""
        live = ((name, one) for name, one in self.state.members.items() if not one.expired)
        return {name: why for name, one in live if (why := one.troubles.get(flow))}

    def runs(self, flow: Flow) -> bool:
        return flow in self.state.flows


def _link_report(use: LinkUse | None) -> LinkReport | None:
    if use is None:
        return None
    rate = f"{use.bytes_per_s / 1e6:.1f} MB/s, {use.percent} % of the best so far"
    text = f"{use.connections} connections: {rate}; limit: {use.limit}"
    return LinkReport(use.connections, use.bytes_per_s, use.percent, use.limit, text)


def flow_report(
    facts: FlowFacts, state: GroupState | None, work: FlowTasks | None, now_ms: int, *, idle: NotRunning | None = None
) -> FlowReport:
    """Return the report of a flow.

    Args:
        work: None while no worker of its group runs.
        idle: why no worker of its group runs.
    """
    flow = facts.settings.flow
    copied = work is not None and work.runs(flow)
    settings, held = settings_of(facts, state if copied else None), held_of(facts.held)
    backfills = backfill_reports(flow, facts.backfills, facts.positions, now_ms)
    source_held = next((one for one in held if one.connector is Kind.SOURCE), None)
    is_standby = source_held is not None and source_held.state == "standby"
    if is_standby:
        facts = replace(facts, ends={}, starts={}, standing={})  # what it would copy is no lag
    is_to_run = copied and settings.enabled and not source_held
    unstarted = ON_ALL if state is None or not is_to_run else unstarted_of(flow, state)
    causes = _causes(facts, state if copied else None, unstarted, is_idle=not copied or source_held is not None)
    refusals = () if work is None else refusals_of(flow, work.state)
    seen = FlowCircumstances(
        settings.enabled,
        "" if source_held is None else source_held.text,
        None if source_held is None else source_held.at_ms,
        "" if source_held is None else source_held.state,
        None if copied else _why_not_running(facts, idle, refusals),
        {topic: f"Backfill {one.id}: {one.text}" for one in backfills if one.is_holding for topic in one.topics},
        _pauses_of(facts),
        causes,
        unstarted,
    )
    topics, behind = topics_of(facts, state if copied else None, seen, now_ms)
    told = causes.get("", ())
    whole = most_urgent_first(map(of_cause, [*told, *unstarted.causes.values()]))
    known = [topic.lag for topic in topics if topic.lag is not None]
    ages = [topic.lag_s for topic in topics if topic.lag_s is not None]
    is_partial = any(topic.unknown for topic in topics) or bool(facts.source_unread)
    parts = (facts.config_unread, facts.positions_unread, facts.status_unread, *facts.source_unread)
    hidden = tuple(_hidden(facts, topics))
    unread = tuple(filter(None, (*parts, *hidden, facts.consumer_groups_unread)))
    lag = sum(known) if (known or not unread) and not is_standby else None

    apart = topics if is_to_run else ()  # else all topics wait for the same reason
    uncopied = uncopied_of(facts, ((one.topic, one.partitions, one.lag, one.not_copied) for one in apart))
    names = {topic.topic for topic in topics}
    listed = {} if state is None or not copied else state.topics.get(flow, {})
    verdict = verdict_of(
        VerdictFacts(
            flow,
            now_ms,
            settings.enabled,
            seen.held,
            "" if seen.not_running is None else seen.not_running.why,
            not facts.other_group and (seen.not_running is None or seen.not_running.is_known),
            safety_of(flow, state if copied else None),
            rest_of(lag, uncopied),
            is_partial,
            [(topic.topic, listed.get(topic.topic, 0), topic.not_copied) for topic in topics],
            sum(not (gap.is_open or gap.kind.is_unexpected) for gap in facts.gaps),
            (*filter(None, parts), *hidden, *_doubts(facts, topics, state if copied else None)),
            facts.consumer_groups,
            facts.consumer_groups_unread,
            _nothing_shown(facts),
            [one.entry for one in facts.unmatched if one.entry not in names],
            is_standby,
        )
    )

    def owner_of(kind: Kind) -> MemberId | None:
        return None if work is None else work.state.owner(TaskName(flow, kind))

    is_known = verdict.readiness is not Readiness.UNKNOWN
    loss = ""
    if settings.enabled and not is_standby and (topics or lag is None):
        loss = loss_text(
            flow.source,
            uncopied,
            rest_of(lag, uncopied),
            is_partial=is_partial or not is_known,
            behind_s=verdict.behind_s if is_known else None,
            as_of_ms=_as_of_ms(facts, told),
        )

    return FlowReport(
        flow,
        facts.owner_group,
        settings,
        held,
        pause_reports(flow, facts.pauses),
        refusals,
        guarantee_of(facts, state, unstarted),
        owner_of(Kind.SOURCE),
        owner_of(Kind.HEARTBEAT),
        owner_of(Kind.CHECKPOINT),
        work.tasks(flow) if work is not None else (),
        facts.settings.tasks_max,
        work.unowned[flow] if work is not None else 0,
        lag,
        max(ages, default=0.0) if len(ages) == len(topics) and not is_partial else None,
        is_partial,
        _as_of_ms(facts, told),
        tuple(whole),
        tuple(_notes(facts, topics, whole)),
        topics,
        tuple(sorted(filter(_is_open, facts.gaps), key=lambda gap: (gap.topic, gap.partition, gap.at_ms))),
        sum(not gap.is_open for gap in facts.gaps),
        backfills,
        facts.consumer_groups,
        tuple(dict.fromkeys(unread)),
        verdict,
        together(moving) if (moving := [one.movement for one in topics if one.movement is not None]) else None,
        tuple(behind[:BEHIND_MOST]),
        len(behind),
        bottleneck_of(
            flow,
            _workers_of(flow, work) if is_to_run else (),
            why_unknown=_why_limit_unknown(facts, seen, unowned=work is not None and bool(work.unowned[flow])),
            unseen=_waits_unseen(facts, topics, verdict),
            tasks_max=facts.settings.tasks_max,
        ),
        {} if work is None else work.unstored(flow),
        loss,
    )


def _workers_of(flow: Flow, work: FlowTasks | None) -> Sequence[LimitedWorker]:
    """Return what is known of the workers that own partitions of a flow. An expired session tells nothing."""
    members = [] if work is None else [work.state.members[one.member] for one in work.tasks(flow)]
    return [LimitedWorker(one.joined.name, one.waits_of(flow), one.links.get(flow), one.joined.core) for one in members]


def _why_limit_unknown(facts: FlowFacts, seen: FlowCircumstances, *, unowned: bool) -> str:
    """Return why no worker can tell what limits the flow, or not of all of it; empty: they can."""
    if facts.selected is None:
        return f"{facts.settings.flow.source} does not answer"
    if not seen.is_enabled or seen.held:
        return f"it is {seen.held or 'switched off'}"
    if seen.not_running is not None:
        return seen.not_running.why.rstrip(".")
    return "partitions of it have no worker" if unowned else ""


def _waits_unseen(facts: FlowFacts, topics: Iterable[TopicReport], verdict: FlowVerdict) -> str:
    """Return what waits and is not counted by workers, which measure only what they can copy; empty: nothing."""
    for topic in topics:
        for one in topic.not_copied:
            if _has_waiting(facts, topic, one):
                some = f" {one.partitions}" if one.partitions else ""
                return f"records wait in what is not copied: {topic.topic}{some} ({one.reason})"
    if verdict.behind_s is None or verdict.behind_s <= SURELY_BEHIND_S:
        return ""
    source = facts.settings.flow.source
    why = f"; a transaction may be open on {source}" if facts.settings.read_committed else ""
    return f"{verdict.oldest} is behind, and no worker finds records of it to copy{why}"


def _has_waiting(facts: FlowFacts, topic: TopicReport, cause: NotCopied) -> bool:
    """Whether records wait, or may wait, in the partitions that are not copied for this reason."""
    if SORT_OF[cause.reason] in {Sort.CHOSEN, Sort.PASSING} or cause.reason is Reason.GONE:
        return False
    if cause.reason in {Reason.STALLED, Reason.STANDING}:
        return True  # behind an open transaction the end is not shown
    for partition in numbers(cause.partitions) if cause.partitions else range(topic.partitions):
        key = (topic.topic, partition)
        position = facts.positions.get(key)
        begin, end = begin_of(facts, key, position), end_of(facts, key, position)
        if begin is None or end is None or begin != end:
            return True
    return False


def _pauses_of(facts: FlowFacts) -> Mapping[str, Sequence[TopicPause]]:
    found: dict[str, list[TopicPause]] = {}
    for one in facts.pauses.all():
        found.setdefault(one.topic, []).append(one)
    return found


def _nothing_shown(facts: FlowFacts) -> str:
    """Return why the source may have topics to copy although it shows none but heartbeats; empty: see ``VerdictFacts``.

    The story: the right to describe the topics was missing, or the pattern had a slip. Heartbeats of the other
    direction were copied, and the flow was called safe. On a standby cluster, which has nothing but the copies of what
    the pattern selects, there is nothing to copy.
    """
    flow, policy = facts.settings.flow, facts.settings.policy
    if facts.selected is None or not all(policy.is_heartbeats_topic(TopicName(topic)) for topic in facts.selected):
        return ""
    if not facts.settings.topic_filter.included.entries:
        return ""
    if any(why is WhyNot.CYCLE and _is_copy_of_selected(facts, topic) for topic, why in facts.left_out.items()):
        return ""
    entries = [one.entry for one in facts.unmatched]
    return no_match(flow, entries) if entries else f"{flow.source} shows no topic that is to be copied"


def _is_copy_of_selected(facts: FlowFacts, topic: str) -> bool:
    """Return whether a topic is a copy of a topic that ``topics`` would select."""
    policy = facts.settings.policy
    upstream = policy.upstream_topic(TopicName(topic))
    if upstream is None or policy.is_heartbeats_topic(TopicName(topic)):
        return False
    with contextlib.suppress(PatternTooSlow):
        return facts.settings.topic_filter.should_replicate(upstream)
    return False


def _doubts(facts: FlowFacts, topics: Iterable[TopicReport], state: GroupState | None) -> Iterable[str]:
    """Yield why more may not be copied than is known."""
    flow = facts.settings.flow
    if facts.other_group:
        yield f"group {facts.other_group} runs it; ask with its file"
    for member in [] if state is None else state.members.values():
        if why := member.troubles.get(flow):
            yield f"{member.joined.name} cannot store which topics are not copied: {why}"
    for topic in topics:
        if topic.ahead and topic.is_copied:
            yield f"{topic.topic} ends before its position on {flow.source}"


def _hidden(facts: FlowFacts, topics: Iterable[TopicReport]) -> Iterable[str]:
    """Yield a sentence on topics that the user who asks may not describe, unless another reason explains them."""
    names = [
        topic.topic
        for topic in topics
        if topic.topic in facts.hidden
        and not any(one.is_problem or SORT_OF[one.reason] is Sort.HELD for one in topic.not_copied)
    ]
    if names:
        yield (
            f"The user of this file may not describe {_some(sorted(names))} on {facts.settings.flow.source}, so it is"
            " not known whether all of it is copied. Grant it DESCRIBE there."
        )


def _why_not_running(facts: FlowFacts, idle: NotRunning | None, refusals: Iterable[RefusalReport]) -> NotRunning:
    if facts.mm2_runs:
        return NotRunning(facts.mm2_runs, "Stop it before you start mm2py.")
    for one in refusals:
        if one.connector is Kind.SOURCE:
            remedy = "Then restart the connector over REST, or the worker."
            return NotRunning(f"{one.worker} refuses it: {one.why}", remedy)
    return idle or NotRunning("No worker runs the flow.", "Start one whose file has the flow: mm2py FILE.")


def _causes(
    facts: FlowFacts, state: GroupState | None, unstarted: Unstarted, *, is_idle: bool
) -> Mapping[str, Sequence[Cause]]:
    """Return by topic the causes that members which run the flow have stored. Causes of other members may be outdated.

    Args:
        is_idle: no worker runs the flow, so no worker can find topics that a flow back from the target has made. The
            RING causes that were stored last then count.
    """
    live = set() if state is None else {name for name, member in state.members.items() if not member.expired}
    live -= unstarted.members  # their causes are from a previous attempt
    is_idle = is_idle or unstarted.is_whole
    found: dict[str, list[Cause]] = {}
    wanted = {entry for entry, _ in facts.settings.topic_filter.included.singles}
    for one in facts.standstills:
        causes = [
            cause
            for cause in one.causes
            if (one.member in live and (cause.reason != Reason.MISSING or one.topic in wanted))
            or (is_idle and cause.reason == Reason.RING)
        ]
        if causes:
            found.setdefault(one.topic, []).extend(cause for cause in causes if cause not in found.get(one.topic, ()))
    return found


def _as_of_ms(facts: FlowFacts, told: Iterable[Cause]) -> int | None:
    """Return the time up to which the lag is known if the source does not answer; None if it answers.

    Workers knew the lag until the source fell silent. A worker that it has never answered knew nothing.
    """
    if facts.selected is not None:
        return None
    silent = [one.since_ms for one in told if is_silence(one)]
    moved = [at.moved_ms for at in facts.positions.values() if at.moved_ms is not None]
    return min(silent, default=max(moved, default=None))


def _notes(facts: FlowFacts, topics: Iterable[TopicReport], whole: Iterable[NotCopied]) -> Iterable[str]:
    """Yield the entries of ``topics`` that match no topic, unless a worker has reported them."""
    told = {topic.topic for topic in topics}
    if any(one.reason is Reason.NO_MATCH for one in whole):
        told |= {one.entry for one in facts.unmatched if not one.is_name}
    source = facts.settings.flow.source
    if facts.selected is not None and not facts.selected:
        yield f"no topic of {source} is selected by topics."
    for one in facts.unmatched:
        if one.entry not in told:
            if one.is_name:
                yield f"topics names {one.entry}, and {source} does not show it."
            else:
                yield f"the pattern {one.entry} of topics matches no topic that {source} shows."


def _is_open(gap: Gap) -> bool:
    return gap.is_open
