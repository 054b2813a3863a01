"""Which topics of its source a flow really copies, after all filters; and why it does not copy the others. Pure.

MirrorMaker 2 tells neither. A rule of the settings, the remote name and the claims of other flows are seen from here.
What only workers find out, such as a remote topic that is not empty, they write to their control log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.connector import Kind
from mm2py.group.group_state import GroupState
from mm2py.records.control_record import REFUSALS_MOST, TopicClaim
from mm2py.status.facts import UNDECIDED, FlowFacts, LeftOut
from mm2py.status.flow_report import FlowReport, TopicReport
from mm2py.status.left_out import why_left_out
from mm2py.topics.filters import WhyNot
from mm2py.topics.names import remote_name_problem
from rest.reports.lag import Looks, lag_of, sum_of


class Reason(StrEnum):
    """Why a topic is not copied."""

    OWN_TOPIC = "own-topic"
    INTERNAL = "internal"
    CYCLE = "cycle"
    NOT_INCLUDED = "not-included"
    EXCLUDED = "excluded"
    UNDECIDED = "undecided"
    GONE = "gone"
    SWITCHED_OFF = "switched-off"
    HELD = "held"
    """An operator has paused or stopped the flow."""
    BACKFILL = "backfill"
    """The workers wait with it until a backfill has copied its history."""
    NOT_RUNNING = "not-running"
    REFUSED = "refused"
    NOT_LISTED = "not-listed"


_RULES: Final[Mapping[LeftOut, tuple[Reason, str]]] = {
    WhyNot.OWN_TOPIC: (Reason.OWN_TOPIC, "mm2py keeps its own state in it."),
    WhyNot.INTERNAL: (Reason.INTERNAL, "It is an internal topic of Kafka, Kafka Connect or MirrorMaker 2."),
    WhyNot.CYCLE: (Reason.CYCLE, "Its name says that its records have been on the target."),
    WhyNot.NOT_INCLUDED: (Reason.NOT_INCLUDED, "No pattern of topics matches it."),
    WhyNot.EXCLUDED: (Reason.EXCLUDED, "A pattern of topics.exclude matches it."),
    UNDECIDED: (Reason.UNDECIDED, "A pattern of topics or topics.exclude finds no answer in time. Rewrite it."),
}


@dataclass(frozen=True, slots=True)
class TopicCopy:
    """One topic of the source."""

    topic: str
    """Its name on the source."""
    remote_topic: str
    """The name of its copy on the target, whether it is copied or not."""
    is_copied: bool
    """Workers own partitions of it."""
    reason: Reason | None
    """Why it is not copied; null: it is."""
    why: str
    """The same in a sentence. Of a topic that is copied: what is not copied of it; empty if all is."""
    lag_records: int | None
    """In offsets, summed over its partitions; null: not known of all of them, or it is left out."""
    lag_bytes: int | None
    """Estimated by the mean size of the records that were copied; null: see lag_note."""
    lag_s: float | None
    """The age of the last copied record in the partition that is furthest behind; null: see lag_note."""
    lag_note: str
    """Why a lag is not known."""
    copy: TopicReport | None
    """Its partitions in numbers, and who copies them; null: the settings leave it out."""


def topic_copies(facts: FlowFacts, report: FlowReport, state: GroupState | None, looks: Looks) -> list[TopicCopy]:
    """Return all topics of the source, and those that were copied from there, by name.

    Args:
        state: of the group that runs the flow; None if no worker does.
    """
    remote, refused = facts.settings.remote_topic, _refused(facts, report, state)
    found = [_left_out(topic, remote(topic), why, facts) for topic, why in facts.left_out.items()]
    found += [_selected(topic, facts, report, state, refused, looks) for topic in report.topics]
    return sorted({copy.topic: copy for copy in found}.values(), key=lambda copy: copy.topic)


def _left_out(topic: str, remote: str, why: LeftOut, facts: FlowFacts) -> TopicCopy:
    reason, text = _RULES[why]
    if why in (WhyNot.EXCLUDED, WhyNot.NOT_INCLUDED):
        text = why_left_out(topic, facts.settings.topic_filter, facts.origins) or text
    return TopicCopy(topic, remote, False, reason, text, None, None, None, "", None)


def _refused(facts: FlowFacts, report: FlowReport, state: GroupState | None) -> dict[str, str]:
    """Return the topics that members do not copy, or not wholly, and why; the flow coordinator knows best."""
    found: dict[str, str] = {}
    members = [] if state is None else list(state.members.items())
    for _, member in sorted(members, key=lambda one: one[0] == report.coordinator):
        found |= member.refusals.get(facts.settings.flow, {})
    return found


def _selected(
    topic: TopicReport,
    facts: FlowFacts,
    report: FlowReport,
    state: GroupState | None,
    refused: Mapping[str, str],
    looks: Looks,
) -> TopicCopy:
    remote = facts.settings.remote_topic(topic.topic)
    if topic.owners and not topic.is_gone:
        lag = sum_of([lag_of(facts, (topic.topic, number), looks) for number in range(topic.partitions)])
        why = refused.get(topic.topic, "")
        return TopicCopy(topic.topic, remote, True, None, why, *lag, topic)
    reason, why = _why_not(topic, remote, facts, report, state, refused)
    return TopicCopy(topic.topic, remote, False, reason, why, topic.lag, None, None, "it is not copied", topic)


def _why_not(
    topic: TopicReport,
    remote: str,
    facts: FlowFacts,
    report: FlowReport,
    state: GroupState | None,
    refused: Mapping[str, str],
) -> tuple[Reason, str]:
    settings = facts.settings
    if topic.is_gone:
        return Reason.GONE, "The source does not have it any more."
    if not report.settings.enabled:
        return Reason.SWITCHED_OFF, "The flow is switched off."
    if held := next((one for one in report.held if one.connector is Kind.SOURCE), None):
        return Reason.HELD, f"An operator has {held.state} the flow."
    if backfill := next((one for one in report.backfills if topic.topic in one.topics and one.is_holding), None):
        return Reason.BACKFILL, f"Backfill {backfill.id}: {backfill.text}"
    if state is None:
        return Reason.NOT_RUNNING, "No worker runs the flow, or its control log cannot be read."
    if why := refused.get(topic.topic, ""):
        return Reason.REFUSED, why
    if problem := remote_name_problem(remote):
        return Reason.REFUSED, f"Its remote name {remote[:100]} cannot be, {problem}."
    claim = TopicClaim.of(topic.topic, remote, mixes=settings.many_to_one)
    others = state.topic_claims.conflicting_flows(settings.flow, topic.topic, claim)
    if others:
        return Reason.REFUSED, f"{', '.join(map(str, sorted(others)))} also leads into {remote}."
    if report.coordinator is None:
        return Reason.NOT_LISTED, "The flow has no coordinator at the moment, and none has listed it yet."
    why = "The flow coordinator has found it just now, or waits for its leaders"
    if len(refused) >= REFUSALS_MOST:
        why += f", or refuses it: {REFUSALS_MOST} are told here, its log (topic.refused) names all"
    return Reason.NOT_LISTED, f"{why}."
