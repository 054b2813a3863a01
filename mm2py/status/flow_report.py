"""What the status says of one flow: the settings it runs by, its guarantee, its topics and its tasks. Pure.

Settings answer to ``GET /connectors/NAME/config`` of Connect's REST API, which tells what is stored, but not which
member runs by it. A running worker logs its own guarantee, and may know more reasons. Lag is counted in offsets, so it
includes transaction markers and records that compaction has removed; it is the lag of the stored positions, about a
second behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.config.flow_properties import ENABLED, is_enabled
from mm2py.connector import Flow, Kind
from mm2py.group.group_state import GroupState
from mm2py.kafka.port import TopicPartition
from mm2py.records.author import Author, with_reason
from mm2py.records.connector_config import FlowConfig, Writer, told_writer
from mm2py.records.control_record import LinkUse, MemberId, TaskName
from mm2py.records.gap_record import Done, Gap, GapKind
from mm2py.records.source_offset import StoredPosition
from mm2py.secret import HIDDEN, is_hidden, shown_key
from mm2py.shared_settings.flow_config import Change, behind, difference
from mm2py.status.backfill_report import BackfillReport, backfill_reports
from mm2py.status.connector_report import HeldReport, RefusalReport, held_of, refusals_of
from mm2py.status.consumer_groups import ConsumerGroupsReport
from mm2py.status.facts import FlowFacts

APPLYING_MS: Final = 60_000
"""How long a member may take to apply a version before it is reported. It may have to drain the flow first."""
SETTINGS_NAMED_MOST: Final = 5
TOPICS_NAMED_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class StoredReport:
    """Which settings are stored of a flow, and who stored them."""

    version: int
    """Goes up by one with each change."""
    by: Writer
    worker: str
    """Who stored it, for people."""
    at_ms: int
    """When, by that machine's clock."""
    user: str = ""
    """Who decided it; empty: an earlier version of mm2py has stored it, and does not say."""
    host: str = ""
    """On which machine; over REST that of the worker that was asked."""
    reason: str = ""
    """Why, as that user has said; empty: no reason was given."""

    @property
    def who_and_why(self) -> str:
        """The same as people read it."""
        return with_reason(told_writer(self.by, Author(self.user, self.host), self.worker), self.reason)


@dataclass(frozen=True, slots=True)
class DriftReport:
    """One setting that the file has otherwise than it is stored. None stands for the default; secrets are hidden."""

    setting: str
    """Its name."""
    stored: str | None
    """Its value there."""
    file: str | None
    """Its value in the file."""
    text: str
    """The difference in a line."""


@dataclass(frozen=True, slots=True)
class AppliedReport:
    """By which version a member runs a flow."""

    member: MemberId
    """The member."""
    version: int | None
    """0: by its own file, because it could not read what is stored; None: it has not said yet."""
    is_behind: bool
    """It has not applied what is stored."""


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """By which settings a flow runs."""

    stored: StoredReport | None
    """None: mm2py has stored nothing, or it cannot be read."""
    enabled: bool
    """Whether the flow is to copy, by what is stored, else by the file."""
    drift: tuple[DriftReport, ...]
    """How the file differs from what is stored; empty if both mean the same."""
    applied: tuple[AppliedReport, ...]
    """Of the live members that run the flow, those behind first; empty while no worker runs."""


def settings_of(facts: FlowFacts, state: GroupState | None) -> SettingsReport:
    """Return what is known about the settings of a flow.

    Args:
        state: of the group that runs the flow; None if no worker does.
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
    """Return what to say of a flow that the file enables and that is stored as switched off; empty if it is not."""
    if report.enabled or report.stored is None or all(change.setting != ENABLED for change in report.drift):
        return ""
    return f"it is switched off {_origin_of(report.stored)}: nothing is copied. mm2py apply FILE switches it on again."


def why_drift(report: SettingsReport) -> str:
    """Return what to say of a file that differs in more than that; empty if it does not."""
    names = [change.setting for change in report.drift if change.setting != ENABLED]
    if report.stored is None or not names:
        return ""
    return (
        f"its workers run by what is stored {_origin_of(report.stored)}, NOT by this file, which differs in"
        f" {_some(names, SETTINGS_NAMED_MOST)}. To make them run by the file: mm2py apply FILE"
    )


def why_running(flow: Flow, stored: FlowConfig) -> str:
    """Return what to say of a flow that the file switches off and that is stored as switched on; empty if it is not."""
    if not is_enabled(stored.properties):
        return ""
    return f"the file switches {flow} off, and it is on {_origin_of(stored)}. mm2py apply FILE switches it off."


def late_members(report: SettingsReport, now_ms: int) -> Iterable[AppliedReport]:
    """Yield the members that should have applied what is stored by now. A member that starts has not said anything yet.

    The time at which it was stored comes from the clock of the machine that stored it. The log has no better time, as
    writers set its timestamps.
    """
    if report.stored is not None and now_ms - report.stored.at_ms > APPLYING_MS:
        yield from (one for one in report.applied if one.is_behind and one.version is not None)


def _origin_of(stored: FlowConfig | StoredReport) -> str:
    return f"(version {stored.version}, by {stored.who_and_why})"


class Level(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How often a record is in the copy after crashes."""

    level: Level
    reasons: tuple[str, ...]
    """Why it is no better. Under exactly-once: what else an operator should know."""


def guarantee_of(facts: FlowFacts, state: GroupState | None) -> Guarantee:
    """Return what is known of a flow.

    Args:
        state: of the group on its target; None if that cannot be read, or no worker has joined one.
    """
    reasons = list(_why_not_once(facts, state))
    if reasons:
        return Guarantee(Level.AT_LEAST_ONCE, tuple(reasons))
    unread = tuple(filter(None, (facts.positions_unread, facts.status_unread)))
    if unread:
        return Guarantee(Level.UNKNOWN, unread)
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
    """Gaps that an operator has accepted do not count."""
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
    """How many it has."""
    lag: int | None
    """Summed over the partitions whose lag is known; None if there are none."""
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


@dataclass(slots=True)
class _Lag:
    """Sums over the partitions of a topic."""

    records: int = 0
    known: int = 0
    unknown: int = 0
    not_started: int = 0
    ahead: int = 0


def topics_of(facts: FlowFacts, state: GroupState | None) -> tuple[TopicReport, ...]:
    """Return a report for each topic that is, or should be, copied; those that need an operator come first.

    Args:
        state: of the group that runs the flow; None if no worker does.
    """
    flow = facts.settings.flow
    listed = {} if state is None else state.topics.get(flow, {})
    gaps = Counter(gap.topic for gap in facts.gaps if gap.is_open)
    stored: dict[str, int] = {}
    for topic, partition in facts.positions:
        stored[topic] = max(stored.get(topic, 0), partition + 1)
    names = {*listed, *gaps} | (stored.keys() if facts.selected is None else facts.selected.keys())
    reports = []
    for topic in names:
        count = (facts.selected or {}).get(topic) or max(listed.get(topic, 0), stored.get(topic, 0))
        is_gone = facts.selected is not None and topic not in facts.selected
        lag = _Lag() if is_gone else _lag_of(facts, topic, count)
        owners: dict[MemberId, list[int]] = {}
        unowned = waiting = 0
        for partition in range(listed.get(topic, 0)):
            owned = None if state is None else state.owners.get(TaskName(flow, Kind.SOURCE, topic, partition))
            if owned is None or owned.member is None:
                unowned += 1
            else:
                owners.setdefault(owned.member, []).append(partition)
                waiting += owned.waits_for is not None
        reports.append(
            TopicReport(
                topic,
                count,
                lag.records if lag.known or not count else None,
                lag.unknown,
                lag.not_started,
                lag.ahead,
                0 if state is None or is_gone else max(0, count - listed.get(topic, 0)),
                unowned,
                waiting,
                gaps[topic],
                is_gone,
                {member: ranges(numbers) for member, numbers in sorted(owners.items())},
            )
        )
    return tuple(sorted(reports, key=_urgency))


def _urgency(topic: TopicReport) -> tuple[object, ...]:
    return (-topic.open_gaps, -topic.ahead, -topic.unowned, -topic.not_listed, -(topic.lag or 0), topic.topic)


def _lag_of(facts: FlowFacts, topic: str, count: int) -> _Lag:
    lag = _Lag()
    for partition in range(count):
        key = (topic, partition)
        end, position = facts.ends.get(key), facts.positions.get(key)
        begin = begin_of(facts, key, position)
        if end is None or begin is None or (position is None and facts.positions_unread):
            lag.unknown += 1
            continue
        lag.known += 1
        lag.records += max(0, end - begin)
        lag.ahead += begin > end
        lag.not_started += position is None and end > facts.starts.get(key, end)
    return lag


def begin_of(facts: FlowFacts, key: TopicPartition, position: StoredPosition | None) -> int | None:
    """Return from where a partition is to be copied; None: that is not known."""
    if position is not None:
        return position.next_source
    return facts.starts.get(key) if facts.settings.auto_offset_reset == "earliest" else facts.ends.get(key)


def ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ``0-3,7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@dataclass(frozen=True, slots=True)
class LinkReport:
    """How a member uses a long link, over several connections."""

    connections: int
    """How many there are."""
    bytes_per_s: int
    """What they carried when it was measured last."""
    percent_of_best: int
    """That, beside the most that they have carried."""
    limit: str
    """What keeps it from being more."""
    text: str
    """All of it in a sentence."""


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
    """What it has measured last."""
    link: LinkReport | None = None
    """None: it needs one connection to each broker only."""


@dataclass(frozen=True, slots=True)
class FlowReport:
    """One flow."""

    flow: Flow
    """The flow."""
    settings: SettingsReport
    held: tuple[HeldReport, ...]
    refused: tuple[RefusalReport, ...]
    """Connectors that workers must not run; other workers may run them."""
    guarantee: Guarantee
    coordinator: MemberId | None
    """The member that finds and lists its topics; None: none does."""
    heartbeats: MemberId | None
    """The member that emits its heartbeats; None: none does."""
    checkpoints: MemberId | None
    """The member that emits its checkpoints; None: none does."""
    tasks: tuple[TaskReport, ...]
    tasks_max: int | None
    """On so many workers at most its partitions are spread; None: on all."""
    unowned: int
    """Tasks without a worker; 0 while no worker of the group runs at all."""
    lag: int | None
    """In offsets, summed over what is known; None if nothing is."""
    lag_is_partial: bool
    """Some partitions are not in ``lag``."""
    topics: tuple[TopicReport, ...]
    open_gaps: tuple[Gap, ...]
    gaps_passed: int
    """Gaps that need no operator."""
    backfills: tuple[BackfillReport, ...]
    consumer_groups: ConsumerGroupsReport | None
    """None: the flow emits no checkpoints, or they cannot be read."""
    unread: tuple[str, ...]
    """What could not be found out, and why."""


class FlowTasks:
    """The tasks of a running group by flow. There may be 50,000: each is looked at once."""

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

    def runs(self, flow: Flow) -> bool:
        return flow in self.state.flows


def _link_report(use: LinkUse | None) -> LinkReport | None:
    if use is None:
        return None
    rate = f"{use.bytes_per_s / 1e6:.1f} MB/s, {use.percent} % of the best so far"
    text = f"{use.connections} connections: {rate}; limit: {use.limit}"
    return LinkReport(use.connections, use.bytes_per_s, use.percent, use.limit, text)


def flow_report(facts: FlowFacts, state: GroupState | None, work: FlowTasks | None, now_ms: int) -> FlowReport:
    """``work`` is None while no worker of its group runs."""
    flow = facts.settings.flow
    copied = work is not None and work.runs(flow)
    topics = topics_of(facts, state if copied else None)
    known = [topic.lag for topic in topics if topic.lag is not None]
    parts = (facts.config_unread, facts.positions_unread, facts.status_unread, *facts.source_unread)
    unread = tuple(filter(None, (*parts, facts.consumer_groups_unread)))

    def owner_of(kind: Kind) -> MemberId | None:
        return None if work is None else work.state.owner(TaskName(flow, kind))

    return FlowReport(
        flow,
        settings_of(facts, state if copied else None),
        held_of(facts.held),
        () if work is None else refusals_of(flow, work.state),
        guarantee_of(facts, state),
        owner_of(Kind.SOURCE),
        owner_of(Kind.HEARTBEAT),
        owner_of(Kind.CHECKPOINT),
        work.tasks(flow) if work is not None else (),
        facts.settings.tasks_max,
        work.unowned[flow] if work is not None else 0,
        sum(known) if known or not unread else None,
        any(topic.unknown for topic in topics) or bool(facts.source_unread),
        topics,
        tuple(sorted(filter(_is_open, facts.gaps), key=lambda gap: (gap.topic, gap.partition, gap.at_ms))),
        sum(not gap.is_open for gap in facts.gaps),
        backfill_reports(flow, facts.backfills, facts.positions, now_ms),
        facts.consumer_groups,
        tuple(dict.fromkeys(unread)),
    )


def _is_open(gap: Gap) -> bool:
    return gap.is_open
