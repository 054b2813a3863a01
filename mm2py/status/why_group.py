"""Can a consumer group continue on the target now, and if not: what prevents it? One answer, in a sentence. Pure.

What is so of each group is in ``consumer_groups.py``. Here it is asked for one group, with the setting that decided, or
the reason for which a topic of it is not copied. MirrorMaker 2 answers none of this.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from mm2py.config import keys
from mm2py.config.flow_properties import is_true
from mm2py.flow import ConnectorName, Flow, Kind
from mm2py.kafka.consumer_groups import ListedGroup
from mm2py.offsets.group_sync import CONSUMERS
from mm2py.secret import shown_name
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport, left_out_of
from mm2py.status.left_out import why_left_out, why_let_pass
from mm2py.status.not_copied import NotCopied, Reason, not_copied, reason_of_hold
from mm2py.status.why import Explanation, Replicated, answer, decided, unknown

TOPICS_NAMED_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class GroupOnSource:
    """What the source says of a group that has no commit in a topic which the flow copies."""

    listed: ListedGroup | None
    """None: it shows no such group."""
    topics: frozenset[str] = frozenset()
    """The topics in which it has committed."""
    refused: str = ""
    """Why its commits cannot be read; empty: they can."""


def explain_group(
    facts: FlowFacts,
    report: FlowReport,
    group: str,
    found: ConsumerGroupReport | None,
    on_source: GroupOnSource | None,
    unread: str,
) -> Explanation:
    """Return whether a consumer group could continue on the target now.

    Args:
        found: what is known of it; None: it has no commit in a topic that the flow copies, or is left out.
        on_source: what the source says of it if ``found`` is None; None: it was not asked.
        unread: why the source does not answer, so that ``found`` is as old as the group's last checkpoint; empty: it
            does.
    """
    asked, flow = asked_about_group(group), report.flow
    if facts.other_group:
        why = f"Group {facts.other_group} of workers runs the flow: ask with its file."
        return unknown(asked, why, f"it can continue on {flow.target}")
    if facts.settings.checkpoints is None:
        return answer(asked, Replicated.NO, _emits_no_checkpoints(facts))
    names = facts.settings.checkpoints.group_filter
    if why := why_left_out(group, names, facts.origins):
        cause = not_copied(Reason.EXCLUDED, f"The settings leave it out: {why}")
        return answer(asked, Replicated.NO, cause, remedy="Change that setting, then: mm2py apply FILE.")
    if unread and (found is None or found.ready):
        return unknown(asked, unread, f"it can continue on {flow.target}")
    if found is None:
        return answer(asked, Replicated.NO, not_copied(Reason.MISSING, *_why_unknown(facts, on_source)))
    besides = [_also_elsewhere(facts, found.left_out)] if found.left_out else []
    idle, remedy = _why_no_emitter(facts, report)
    if not found.ready:
        why, do = _why_not_ready(facts, report, found)
        what = f"It cannot continue on {flow.target}: {why}."
        if idle and not do:
            what, do = f"{what} {idle}", remedy
        return answer(asked, Replicated.NO, not_copied(Reason.RETRYING, what, do), others=besides)
    again = found.reads_again_at_most
    where = "at the exact record" if again == 0 else "at its checkpoint"
    if again:
        where += f", and reads at most {again:,} records again"
    why = why_let_pass(group, names, facts.origins)
    note = f"Note: {found.note}." if found.note else ""
    told = [f"It can continue on {flow.target} {where}.", why, note, _why_not_committed(facts)]
    stands = _topic_not_copied(facts, report, {one.topic for one in found.partitions})
    if stands is not None and stands[1].why != idle:
        told.append(f"But {stands[0]} is not copied: {stands[1].why} {stands[1].remedy}")
    if idle:
        told.append(f"But it does not follow any more: {idle} {remedy}")
    if besides:
        (cause,) = besides
        text = " ".join(filter(None, [told[0], cause.why, cause.remedy, *told[1:]]))
        return Explanation(asked, Replicated.PARTLY, text, str(cause.reason), cause.why, cause.remedy, None, ())
    return Explanation(asked, Replicated.YES, " ".join(filter(None, told)), "", why, "", None, ())


def asked_about_group(group: str) -> str:
    """Return what was asked about, in words."""
    return f"group {shown_name(group)}"


def _emits_no_checkpoints(facts: FlowFacts) -> NotCopied:
    properties = facts.file if facts.stored is None else facts.stored.properties
    key, value = keys.EMIT_CHECKPOINTS_ENABLED.name, "true"
    if is_true(properties.get(key, "true")):
        key, value = keys.EMIT_CHECKPOINTS_INTERVAL.name, "a positive number"
    why = f"{facts.settings.flow} emits no checkpoints, by {_place(facts, key)}."
    return not_copied(Reason.SWITCHED_OFF, why, f"Set {key} to {value}, then: mm2py apply FILE.")


def _place(facts: FlowFacts, key: str) -> str:
    """Return a setting with the place where its value is written."""
    origin = facts.origins.get(key)
    return key if origin is None or not origin.where else origin.text


def _why_unknown(facts: FlowFacts, on_source: GroupOnSource | None) -> tuple[str, str]:
    """Return why nothing is known of a group, and what would change it."""
    source, flow = facts.settings.flow.source, facts.settings.flow
    if on_source is None:
        return f"It has no commit in a topic that {flow} copies.", ""
    if on_source.refused:
        return f"Its commits cannot be read: {on_source.refused}", ""
    if on_source.listed is None:
        why = f"{source} has no such group: it has never committed, its offsets have expired, or mm2py may not see it."
        return why, f"Let it commit on {source}, or grant mm2py DESCRIBE on it."
    if on_source.listed.protocol_type not in CONSUMERS:
        return f"It is a group of type {on_source.listed.protocol_type}: only consumers commit offsets to follow.", ""
    if not on_source.topics:
        return f"It has committed nothing on {source} that mm2py may see.", f"Let it commit on {source}."
    topics = sorted(on_source.topics)
    return f"It has commits only in {_topics_left_out(facts, topics)}", _see(flow, topics[0])


def _also_elsewhere(facts: FlowFacts, topics: Sequence[str]) -> NotCopied:
    """Return why a group can continue only in part."""
    reason = left_out_of(facts, topics[0])[0] if topics[0] in facts.left_out else Reason.NOT_INCLUDED
    why = f"It also has commits in {_topics_left_out(facts, topics)}"
    return not_copied(reason, why, _see(facts.settings.flow, topics[0]))


def _topics_left_out(facts: FlowFacts, topics: Sequence[str]) -> str:
    """Return the topics that the flow does not copy, with the rule that leaves out the first."""
    more = f" and {len(topics) - TOPICS_NAMED_MOST} more" if len(topics) > TOPICS_NAMED_MOST else ""
    shown = ", ".join(map(shown_name, topics[:TOPICS_NAMED_MOST])) + more
    rule = f" {topics[0]}: {left_out_of(facts, topics[0])[1]}" if topics[0] in facts.left_out else ""
    return f"topics that {facts.settings.flow} does not copy: {shown}.{rule}"


def _see(flow: Flow, topic: str) -> str:
    return f"See mm2py why FILE '{flow}' --topic {topic}"


def _why_not_ready(facts: FlowFacts, report: FlowReport, found: ConsumerGroupReport) -> tuple[str, str]:
    """Return why a group is not ready, without a stop at the end, and what would change it.

    If it waits in a topic that is not copied, that is the reason.
    """
    stands = _topic_not_copied(facts, report, {one.topic for one in found.partitions if one.waits_for})
    if stands is not None:
        return f"{found.why}. {stands[0]} is not copied: {stands[1].why.rstrip('.')}", stands[1].remedy
    if found.state_on_target not in ("", "Empty", "Dead"):
        return found.why, f"Stop its consumers on {report.flow.target}, and leave them to {report.flow.source}."
    return found.why.rstrip("."), ""


def _topic_not_copied(facts: FlowFacts, report: FlowReport, topics: Set[str]) -> tuple[str, NotCopied] | None:
    """Return one of these topics that is not copied, or not all of it, and why; None: all of them are copied."""
    for one in report.topics:
        if one.topic in topics and one.not_copied:
            return shown_name(one.topic), decided(facts, one.topic, one.not_copied[0])
    return None


def _why_no_emitter(facts: FlowFacts, report: FlowReport) -> tuple[str, str]:
    """Return why no worker emits checkpoints now, in a sentence, and what would change it; empty: one does."""
    for one in report.held:
        if one.connector is Kind.CHECKPOINT:
            remedy = _resume(report.flow)
            if one.state in {"standby", "both-on"}:
                remedy = reason_of_hold(one.state, report.flow)[1]
            return f"Its checkpoint connector is {one.told}.", remedy
    for topic in report.topics:
        for cause in topic.not_copied:
            if cause.reason in {Reason.NOT_RUNNING, Reason.SWITCHED_OFF, Reason.NOT_STARTED}:
                return decided(facts, topic.topic, cause).why, cause.remedy
    return (
        ("", "") if report.checkpoints is not None else ("No worker emits its checkpoints.", "See mm2py status FILE.")
    )


def _resume(flow: Flow) -> str:
    return f"Resume it over REST: PUT /connectors/{ConnectorName(flow, Kind.CHECKPOINT)}/resume"


def _why_not_committed(facts: FlowFacts) -> str:
    """Return that nothing is committed for groups on the target; empty if that is done."""
    checkpoints, flow, target = facts.settings.checkpoints, facts.settings.flow, facts.settings.flow.target
    if checkpoints is None or checkpoints.group_sync is not None:
        return ""
    place = _place(facts, keys.SYNC_GROUPS_ENABLED.name)
    return f"Note: nothing is committed for it on {target}, by {place}: mm2py groups FILE '{flow}' says where to go on."
