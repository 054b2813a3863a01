"""Is a topic, a partition or a consumer group replicated, and what decides that? One answer, in a sentence. Pure.

The reasons are those of the status (``not_copied.py``). Here they are asked for one thing, with the rule or setting
that decided, since when, and the command that would change it. MirrorMaker 2 answers none of this: an operator searches
the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.config.origins import SettingOrigin
from mm2py.flow import Flow
from mm2py.moments import time_text
from mm2py.records.control_record import MemberId
from mm2py.records.partition_ranges import numbers
from mm2py.secret import shown_name
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport, TopicReport, left_out_of
from mm2py.status.left_out import why_left_out, why_let_pass
from mm2py.status.not_copied import SORT_OF, NotCopied, Reason, Sort, not_copied, partitions_not_copied
from mm2py.status.partition_lags import begin_of, end_of
from mm2py.status.verdict import Readiness
from mm2py.topics.filters import GroupFilter

OTHERS_MOST: Final = 5
"""How many further reasons the text lists."""


class Replicated(StrEnum):
    """The answer in a word."""

    YES = "yes"
    PARTLY = "partly"
    """Some of its partitions are not copied."""
    NO = "no"
    UNKNOWN = "unknown"
    """A cluster did not answer, so it is not known."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Whether one thing is replicated, and what decides it."""

    asked: str
    """What was asked about: ``topic orders``, ``partition orders-3`` or ``group billing``."""
    replicated: Replicated
    text: str
    """The answer in a sentence or two: what decides it, since when, and what would change it."""
    reason: str
    """Why it is not replicated, in a word, as in the status; empty: it is, or it is not known."""
    why: str
    """The rule or the setting that decides, in a sentence."""
    remedy: str
    """What would change it; empty: nothing has to, or nothing can."""
    since_ms: int | None
    """Since when, by the clock of the worker that found it out; None: not known."""
    others: tuple[NotCopied, ...]
    """Further reasons, the most urgent first."""


def explain_topic(
    facts: FlowFacts, report: FlowReport, topic: str, partition: int | None, names: Mapping[MemberId, str]
) -> Explanation:
    """Return whether a topic, or one partition of it, is replicated.

    Args:
        topic: its name on the source.
        partition: None: the whole topic.
        names: the members of the group, for people.
    """
    asked = f"topic {shown_name(topic)}" if partition is None else f"partition {shown_name(topic)}-{partition}"
    found = next((one for one in report.topics if one.topic == topic), None)
    if found is not None and partition is not None and found.partitions and partition >= found.partitions:
        count = f"{found.partitions} partition{'' if found.partitions == 1 else 's'}"
        why = f"{report.flow.source} has {count} of {shown_name(topic)}, numbered from 0."
        return _answer(asked, Replicated.NO, not_copied(Reason.MISSING, why))
    causes = _causes_of(facts, report, topic, found)
    if facts.other_group:
        return _unknown(asked, f"Group {facts.other_group} runs the flow: ask with its file.")
    if causes and causes[0].reason is Reason.NOT_RUNNING and report.verdict.readiness is Readiness.UNKNOWN:
        return _unknown(asked, causes[0].why)
    about = [one for one in causes if partition is None or not one.partitions or partition in numbers(one.partitions)]
    if about:
        partitions = 0 if found is None or partition is not None else found.partitions
        answer = Replicated.PARTLY if partitions_not_copied(about, partitions) < partitions else Replicated.NO
        return _answer(asked, answer, about[0], others=about[1:], remedy=_remedy(facts, topic, about[0]))
    if unread := _unread(facts, topic):
        return _unknown(asked, unread)
    if found is not None and found.ahead:
        return _unknown(asked, f"It ends before its position on {report.flow.source}: it was cut back, or recreated.")
    assert found is not None  # noqa: S101 - a topic of which nothing is known has a cause
    why = why_let_pass(topic, facts.settings.topic_filter, facts.origins)
    told = [
        f"It is replicated to {facts.settings.remote_topic(topic)}.",
        why,
        *_details(facts, found, partition, names),
    ]
    return Explanation(asked, Replicated.YES, " ".join(filter(None, told)), "", why, "", None, ())


def explain_group(
    flow: Flow,
    group: str,
    found: ConsumerGroupReport | None,
    names: GroupFilter,
    origins: Mapping[str, SettingOrigin],
    unread: str,
) -> Explanation:
    """Return whether a consumer group could continue on the target now.

    Args:
        found: what is known of it; None: it has no commit in a topic that the flow copies, or is left out.
        names: the filter by which the workers run.
        origins: where its lists are written.
        unread: why the source does not answer, so that ``found`` is as old as the group's last checkpoint; empty: it
            does.
    """
    asked = f"group {shown_name(group)}"
    if why := why_left_out(group, names, origins):
        cause = not_copied(Reason.EXCLUDED, f"The settings leave it out: {why}")
        return _answer(asked, Replicated.NO, cause, remedy="Change that setting, then: mm2py apply FILE.")
    if unread and (found is None or found.ready):
        return _unknown(asked, unread)
    if found is None:
        why = f"It has no commit in a topic that {flow} copies, or the user of FILE may not describe it."
        return _answer(asked, Replicated.NO, not_copied(Reason.MISSING, why))
    if not found.ready:
        why = f"It cannot continue on {flow.target}: {found.why}"
        return _answer(asked, Replicated.NO, not_copied(Reason.RETRYING, why))
    again = found.reads_again_at_most
    where = "at the exact record" if again == 0 else "at its checkpoint"
    if again:
        where += f", and reads at most {again:,} records again"
    why = why_let_pass(group, names, origins)
    note = f"Note: {found.note}." if found.note else ""
    told = [f"It can continue on {flow.target} {where}.", why, note]
    return Explanation(asked, Replicated.YES, " ".join(filter(None, told)), "", why, "", None, ())


def _unknown(asked: str, why: str) -> Explanation:
    text = f"It is not known whether it is replicated: {why}"
    return Explanation(asked, Replicated.UNKNOWN, text, "", why, "", None, ())


def _answer(
    asked: str, replicated: Replicated, cause: NotCopied, *, others: Sequence[NotCopied] = (), remedy: str | None = None
) -> Explanation:
    remedy = cause.remedy if remedy is None else remedy
    first = "" if asked.startswith("group ") else "It is not replicated."
    if replicated is Replicated.PARTLY:
        first = "Not all of it is replicated."
    where = f"Partition{'' if cause.partitions.isdigit() else 's'} {cause.partitions}: " if cause.partitions else ""
    since = f"Since {time_text(cause.since_ms)}." if cause.since_ms is not None else ""
    told = [first, f"{where}{cause.why}", since, remedy]
    return Explanation(
        asked,
        replicated,
        " ".join(filter(None, told)),
        str(cause.reason),
        cause.why,
        remedy,
        cause.since_ms,
        tuple(others),
    )


def _causes_of(facts: FlowFacts, report: FlowReport, topic: str, found: TopicReport | None) -> Sequence[NotCopied]:
    """Return why a topic is not copied, the most urgent first."""
    if found is not None:
        return found.not_copied
    if topic in facts.left_out:
        return [not_copied(*left_out_of(facts, topic))]
    if _unread(facts, topic):
        return ()
    names = facts.settings.topic_filter
    rule = why_let_pass(topic, names, facts.origins) or why_left_out(topic, names, facts.origins)
    why = (
        f"{report.flow.source} shows no such topic: it does not exist, or the user of FILE may not describe it. {rule}"
    )
    return [not_copied(Reason.MISSING, why)]


def _unread(facts: FlowFacts, topic: str) -> str:
    """Return what could not be read that may hide a reason; empty: everything answered."""
    if topic in facts.hidden:
        return (
            f"The user of FILE may not describe {shown_name(topic)} on {facts.settings.flow.source}: grant it DESCRIBE."
        )
    parts = (*facts.source_unread, facts.positions_unread, facts.status_unread, facts.config_unread)
    return next(filter(None, parts), "")


def _remedy(facts: FlowFacts, topic: str, cause: NotCopied) -> str:
    """Return what would change it, with the setting where a setting decides."""
    if cause.remedy:
        return cause.remedy
    if cause.reason in {Reason.EXCLUDED, Reason.NOT_INCLUDED}:
        decision = facts.settings.topic_filter.decision(topic)
        return f"To copy it, change {decision.key}, then: mm2py apply FILE."
    if cause.reason is Reason.BACKFILL:
        return "It ends with the backfill; mm2py backfill FILE --abandon ID ends it now."
    if cause.reason in {Reason.CYCLE, Reason.RING}:
        return "No setting changes that: its records would come back to where they are from."
    return "No setting changes that." if SORT_OF[cause.reason] is Sort.CHOSEN else ""


def _details(
    facts: FlowFacts, found: TopicReport, partition: int | None, names: Mapping[MemberId, str]
) -> Sequence[str]:
    """Return who copies it, and how far."""
    if partition is None:
        owners = ", ".join(f"{names.get(member, member)} ({parts})" for member, parts in found.owners.items())
        at_least = "at least " if found.unknown else ""
        lag = "" if found.lag is None else f"It is {at_least}{found.lag:,} records behind."
        count = f"{found.partitions} partition{'' if found.partitions == 1 else 's'}"
        return [f"{count}, copied by {owners}." if owners else f"{count}.", lag]
    key = (found.topic, partition)
    owner = next((member for member, parts in found.owners.items() if partition in numbers(parts)), None)
    position = facts.positions.get(key)
    begin, end = begin_of(facts, key, position), end_of(facts, key, position)
    where = "" if begin is None or end is None else f"Copied up to offset {begin:,} of {end:,}."
    return ["" if owner is None else f"{names.get(owner, owner)} copies it.", where]
