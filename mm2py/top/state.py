"""What ``mm2py top`` shows at a moment, and how keys, looks and answers change it. Pure.

``step`` takes an event and returns the new state with what has to be done. The selection is a topic, and not the number
of a row: when a look changes the order of the rows, a key still acts on the topic that was selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeVar, assert_never

from mm2py.errors import ConfigError
from mm2py.flow import Flow
from mm2py.records.author import REASON_MOST, checked_reason
from mm2py.records.pause_record import PausedPart, name_of_part
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.facts import Facts, FlowFacts
from mm2py.status.flow_report import FlowReport
from mm2py.status.report import Report
from mm2py.status.why import TopicDetails
from mm2py.top.flow_chart import FlowChart
from mm2py.top.keyboard import KeyTyped, TextPasted
from mm2py.top.rows import ShownPartition, TopicOrder, TopicRow, partition_rows, topic_rows
from mm2py.top.topic_rates import FlowTopic

T = TypeVar("T")
PAGE: Final = 10
"""How many rows Page Up and Page Down pass."""
FILTER_MOST: Final = 249


class Place(StrEnum):
    """What the screen shows."""

    TOPICS = "topics"
    PARTITIONS = "partitions"
    """Of one topic."""
    GROUPS = "groups"
    """The consumer groups of one flow."""
    PROBLEMS = "problems"
    """Each problem of the report in full."""
    HELP = "help"


@dataclass(frozen=True, slots=True)
class TopLook:
    """What one look at the clusters has found."""

    facts: Facts
    report: Report
    rates: Mapping[FlowTopic, float]
    """Copied records per second, where that is known."""


@dataclass(frozen=True, slots=True)
class GroupsShown:
    """The consumer groups of a flow, as of the last question."""

    flow: Flow
    at_ms: int | None = None
    """When they were asked for; None: the answer has not come yet."""
    unread: str = ""
    """Why the source does not answer; empty: it does."""
    problem: str = ""
    """Why nothing is known of them."""
    reports: Sequence[ConsumerGroupReport] = ()


@dataclass(frozen=True, slots=True)
class PauseWanted:
    """A pause, or its end, that an operator has begun to ask for."""

    flow: Flow
    part: PausedPart | None
    """None: the whole flow."""
    is_paused: bool
    reason: str = ""
    is_confirming: bool = False
    """The reason is complete; the next key confirms."""

    @property
    def text(self) -> str:
        what = "all" if self.part is None else name_of_part(self.part)
        return f"{'Pause' if self.is_paused else 'Resume'} {what} of {self.flow}"


@dataclass(frozen=True, slots=True)
class TopState:
    """All that the screen shows."""

    file: str
    """The settings file, as a command line takes it."""
    look: TopLook | None = None
    """None: the first look is not over yet."""
    rows: Sequence[TopicRow] = ()
    """The listed topics."""
    charts: Mapping[Flow, FlowChart] = field(default_factory=dict)
    no_history: str = ""
    """Why there is no history; empty: there is, or it was not asked yet."""
    place: Place = Place.TOPICS
    back_to: Place = Place.TOPICS
    """Where the help leads back to."""
    selected: FlowTopic | None = None
    """The selected topic. None, or one that is not listed: the first one is."""
    opened: FlowTopic | None = None
    """The topic whose partitions are shown."""
    partition: int = 0
    """The selected partition."""
    details: TopicDetails | None = None
    """What is known of ``opened`` besides; None: the answer has not come yet."""
    details_at_ms: int = 0
    """When that was asked for."""
    groups: GroupsShown | None = None
    group: str = ""
    """The selected consumer group."""
    problem: int = 0
    """The first problem that is shown of the list of them."""
    order: TopicOrder = TopicOrder.URGENT
    wanted: str = ""
    """The filter."""
    is_filtering: bool = False
    """The filter is being typed."""
    asking: PauseWanted | None = None
    doing: str = ""
    """The change that is being stored; empty: none is."""
    is_quitting: bool = False
    """It ends as soon as that is stored."""
    said: Sequence[str] = ()
    """What is told to the operator until the next key."""

    def flow_report(self, flow: Flow) -> FlowReport | None:
        """Return what the last look has found of a flow; None: nothing."""
        reports = () if self.look is None else self.look.report.flows
        return next((one for one in reports if one.flow == flow), None)

    def flow_facts(self, flow: Flow) -> FlowFacts | None:
        """Return what the clusters have said of a flow; None: nothing."""
        facts = () if self.look is None else self.look.facts.flows
        return next((one for one in facts if one.settings.flow == flow), None)

    @property
    def partitions(self) -> Sequence[ShownPartition]:
        """The partitions of the opened topic."""
        if self.look is None or self.opened is None:
            return ()
        facts, flow = self.flow_facts(self.opened.flow), self.flow_report(self.opened.flow)
        if facts is None or flow is None:
            return ()
        names = {member.member: member.name for group in self.look.report.groups for member in group.members}
        return partition_rows(facts, flow, self.opened.topic, names, self.look.report.at_ms)


# Events


@dataclass(frozen=True, slots=True)
class LookEnded:
    """A look is over."""

    look: TopLook


@dataclass(frozen=True, slots=True)
class HistoriesTold:
    """Workers have told the histories of flows over REST, or have not."""

    charts: Mapping[Flow, FlowChart]
    why: str
    """Why some are missing; empty: none is."""


@dataclass(frozen=True, slots=True)
class DetailsTold:
    """The clusters have told what else has to be known of a topic."""

    key: FlowTopic
    details: TopicDetails
    at_ms: int
    """When they were asked for."""


@dataclass(frozen=True, slots=True)
class GroupsRead:
    """The clusters have told the consumer groups of a flow, or have not."""

    groups: GroupsShown


@dataclass(frozen=True, slots=True)
class ChangeEnded:
    """A change is stored, or it is not."""

    lines: Sequence[str]


TopEvent = KeyTyped | TextPasted | LookEnded | HistoriesTold | DetailsTold | GroupsRead | ChangeEnded


# Effects


@dataclass(frozen=True, slots=True)
class Quit:
    """End the command."""


@dataclass(frozen=True, slots=True)
class RedrawAll:
    """Write the whole screen again."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Look at the clusters now."""


@dataclass(frozen=True, slots=True)
class StorePause:
    """Store a pause, or its end, as ``mm2py pause`` does."""

    wanted: PauseWanted


@dataclass(frozen=True, slots=True)
class AskDetails:
    """Ask the clusters what else has to be known of a topic. Answered by ``DetailsTold``."""

    key: FlowTopic


@dataclass(frozen=True, slots=True)
class AskGroups:
    """Ask the clusters for the consumer groups of a flow. Answered by ``GroupsRead``."""

    flow: Flow


TopEffect = Quit | RedrawAll | LookAgain | StorePause | AskDetails | AskGroups
Stepped = tuple[TopState, Sequence[TopEffect]]


def step(state: TopState, event: TopEvent) -> Stepped:
    """Return the state after an event, and what has to be done."""
    match event:
        case KeyTyped(key):
            return _key(replace(state, said=()), key)
        case TextPasted(text):
            return _typed_text(state, text), ()
        case LookEnded(look):
            return _listed(replace(state, look=look)), ()
        case HistoriesTold(charts, why):
            return replace(state, charts=charts, no_history=why), ()
        case DetailsTold(key, details, at_ms):
            is_shown = key == state.opened
            return (replace(state, details=details, details_at_ms=at_ms) if is_shown else state), ()
        case GroupsRead(groups):
            is_shown = state.groups is not None and state.groups.flow == groups.flow
            return (replace(state, groups=groups) if is_shown else state), ()
        case ChangeEnded(lines):
            return replace(state, doing="", said=tuple(lines)), ((Quit() if state.is_quitting else LookAgain()),)
        case _:
            assert_never(event)


def _key(state: TopState, key: str) -> Stepped:
    if key == "redraw":
        return state, (RedrawAll(),)
    if state.asking is not None:
        return _asking_key(state, state.asking, key)
    if state.is_filtering:
        return _filter_key(state, key), ()
    match key:
        case "q" if state.doing:
            return replace(state, is_quitting=True, doing=f"{state.doing} Then it ends."), ()
        case "q":
            return state, (Quit(),)
        case "?":
            at = state.back_to if state.place is Place.HELP else state.place
            return replace(state, place=Place.HELP, back_to=at), ()
        case "!":
            return replace(state, place=Place.PROBLEMS, problem=0), ()
        case "escape" | "backspace" | "left":
            return _back(state), ()
        case " ":
            return _look_again(state)
        case "up" | "k":
            return _moved(state, -1), ()
        case "down" | "j":
            return _moved(state, 1), ()
        case "page-up":
            return _moved(state, -PAGE), ()
        case "page-down":
            return _moved(state, PAGE), ()
        case "home":
            return _moved(state, None), ()
        case "end":
            return _moved(state, 1_000_000_000), ()
        case "p" | "r":
            return _wanted(state, is_paused=key == "p", is_whole=False), ()
        case "P" | "R":
            return _wanted(state, is_paused=key == "P", is_whole=True), ()
        case "g":
            return _groups(state)
    if state.place is Place.TOPICS:
        match key:
            case "enter":
                return _open(state)
            case "s":
                orders = list(TopicOrder)
                following = orders[(orders.index(state.order) + 1) % len(orders)]
                return _listed(replace(state, order=following, said=(f"Sorted by: {following}.",))), ()
            case "/":
                return replace(state, is_filtering=True), ()
    return state, ()


def _listed(state: TopState) -> TopState:
    """List the topics again: a look is over, or others are to be listed, or in another order."""
    if state.look is None:
        return state
    return replace(state, rows=topic_rows(state.look.report, state.look.rates, state.order, state.wanted))


# -- where the screen is ----------------------------------------------------------------------------------------------


def _back(state: TopState) -> TopState:
    if state.place is Place.HELP:
        return replace(state, place=state.back_to, back_to=Place.TOPICS)
    if state.place is Place.TOPICS:
        return _listed(replace(state, wanted=""))
    return replace(state, place=Place.TOPICS)


def _open(state: TopState) -> Stepped:
    key = chosen_topic(state)
    if key is None:
        return state, ()
    opened = replace(state, place=Place.PARTITIONS, opened=key, partition=0, details=None)
    return opened, (AskDetails(key),)


def _groups(state: TopState) -> Stepped:
    flow = _flow_in_view(state)
    if flow is None:
        return state, ()
    facts = state.flow_facts(flow)
    if facts is None or facts.settings.checkpoints is None:
        said = f"{flow} emits no checkpoints (emit.checkpoints.enabled): it follows no groups."
        return replace(state, said=(said,)), ()
    known = state.groups if state.groups is not None and state.groups.flow == flow else GroupsShown(flow)
    return replace(state, place=Place.GROUPS, groups=known), (AskGroups(flow),)


def _look_again(state: TopState) -> Stepped:
    if state.place is Place.GROUPS and state.groups is not None:
        return state, (LookAgain(), AskGroups(state.groups.flow))
    if state.place is Place.PARTITIONS and state.opened is not None:
        return state, (LookAgain(), AskDetails(state.opened))
    return state, (LookAgain(),)


def chosen_topic(state: TopState) -> FlowTopic | None:
    """Return the selected topic; None: no topic is listed."""
    keys = [row.key for row in state.rows]
    if state.selected in keys:
        return state.selected
    return keys[0] if keys else None


def _flow_in_view(state: TopState) -> Flow | None:
    """Return the flow that the selection belongs to; without any topic, the first one."""
    if state.place is Place.PARTITIONS and state.opened is not None:
        return state.opened.flow
    if state.place is Place.GROUPS and state.groups is not None:
        return state.groups.flow
    if (key := chosen_topic(state)) is not None:
        return key.flow
    flows = () if state.look is None else state.look.report.flows
    return flows[0].flow if flows else None


def _moved(state: TopState, by: int | None) -> TopState:
    """Move the selection by so many rows; None: to the first one.

    In the list of topics that is again the one that comes first at any moment.
    """
    match state.place:
        case Place.TOPICS if by is None:
            return replace(state, selected=None)
        case Place.TOPICS:
            keys = [row.key for row in state.rows]
            key = _neighbour(keys, chosen_topic(state), by)
            return state if key is None else replace(state, selected=key)
        case Place.PARTITIONS:
            partition = _neighbour([row.partition for row in state.partitions], state.partition, by)
            return state if partition is None else replace(state, partition=partition)
        case Place.GROUPS:
            names = [] if state.groups is None else [one.group for one in state.groups.reports]
            group = _neighbour(names, state.group, by)
            return state if group is None else replace(state, group=group)
        case Place.PROBLEMS:
            count = 0 if state.look is None else len(state.look.report.problems)
            problem = _neighbour(range(count), state.problem, by)
            return state if problem is None else replace(state, problem=problem)
        case Place.HELP:
            return state


def _neighbour(items: Sequence[T], item: T | None, by: int | None) -> T | None:
    if not items:
        return None
    at = items.index(item) if item in items else 0
    return items[0 if by is None else max(0, min(len(items) - 1, at + by))]


# -- texts that are typed ---------------------------------------------------------------------------------------------


def _filter_key(state: TopState, key: str) -> TopState:
    match key:
        case "enter":
            return replace(state, is_filtering=False)
        case "escape":
            return _listed(replace(state, is_filtering=False, wanted=""))
    return _listed(replace(state, wanted=_edited(state.wanted, key)[:FILTER_MOST]))


def _edited(text: str, key: str) -> str:
    if key == "backspace":
        return text[:-1]
    if key == "clear":
        return ""
    return text + key if len(key) == 1 else text


def _typed_text(state: TopState, text: str) -> TopState:
    """Take a pasted text where a text is typed. It confirms nothing, and is no command."""
    if state.asking is not None and not state.asking.is_confirming:
        return replace(state, asking=replace(state.asking, reason=(state.asking.reason + text)[:REASON_MOST]))
    if state.asking is None and state.is_filtering:
        return _listed(replace(state, wanted=(state.wanted + text)[:FILTER_MOST]))
    return state


# -- pausing and resuming ---------------------------------------------------------------------------------------------


def _wanted(state: TopState, *, is_paused: bool, is_whole: bool) -> TopState:
    """Begin to ask for the reason of a pause, or of its end."""
    if state.doing:
        return replace(state, said=("One change is being stored. Wait for it.",))
    flow = _flow_in_view(state)
    if flow is None or (not is_whole and state.place not in {Place.TOPICS, Place.PARTITIONS}):
        return state
    part: PausedPart | None = None
    if not is_whole:
        key = state.opened if state.place is Place.PARTITIONS else chosen_topic(state)
        if key is None:
            return state
        flow, part = key.flow, (key.topic, state.partition if state.place is Place.PARTITIONS else None)
    return replace(state, asking=PauseWanted(flow, part, is_paused))


def _asking_key(state: TopState, asked: PauseWanted, key: str) -> Stepped:
    if asked.is_confirming:
        if key in {"y", "Y"}:
            doing = f"{asked.text}: it is being stored ..."
            return replace(state, asking=None, doing=doing), (StorePause(asked),)
        return replace(state, asking=None, said=("Nothing was changed.",)), ()
    match key:
        case "escape":
            return replace(state, asking=None, said=("Nothing was changed.",)), ()
        case "enter":
            try:
                reason = checked_reason(asked.reason)
            except ConfigError as error:
                return replace(state, said=(str(error),)), ()
            return replace(state, asking=replace(asked, reason=reason, is_confirming=True)), ()
    return replace(state, asking=replace(asked, reason=_edited(asked.reason, key)[:REASON_MOST])), ()
