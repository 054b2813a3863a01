"""Is a topic, a partition or a consumer group replicated, and what decides that? One answer, in a sentence. Pure.

The reasons are those of the status (``not_copied.py``). Here they are asked for one thing, with the rule or setting
that decided, since when, and the command that would change it. MirrorMaker 2 answers none of this: an operator searches
the log.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from mm2py.config import keys
from mm2py.config.flow_properties import is_enabled
from mm2py.config.origins import SettingOrigin
from mm2py.flow import Flow, TopicName
from mm2py.moments import time_text
from mm2py.offsets.checkpoint_rule import upstream_topic_of
from mm2py.records.connector_config import FlowConfig
from mm2py.records.control_record import MemberId
from mm2py.records.gap_record import Done, GapKind
from mm2py.records.partition_ranges import numbers, ranges
from mm2py.secret import shown_name
from mm2py.status.bottleneck import Bottleneck
from mm2py.status.facts import UNDECIDED, FlowFacts
from mm2py.status.flow_report import FlowReport, TopicReport, left_out_of, rule_of
from mm2py.status.left_out import why_excluded_as_well, why_let_pass
from mm2py.status.not_copied import (
    GONE,
    RUN_UNKNOWN,
    SORT_OF,
    NotCopied,
    Reason,
    Sort,
    not_copied,
    partitions_not_copied,
)
from mm2py.status.partition_lags import begin_of, end_of
from mm2py.status.pausable import NEAR_MOST
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import quarantine

_BEGIN_SENTENCES: Final = frozenset({"it", "its", "no", "records", "source", "the", "they"})
"""Words with which workers begin a reason in lower case."""
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
    """What was asked about: ``topic orders``, ``partition orders/3`` or ``group billing``."""
    replicated: Replicated
    text: str
    """The answer in a sentence or two: what decides it, since when, and what would change it."""
    reason: str
    """Why it is not replicated, in a word, as in the status; empty: it is, or it is not known."""
    why: str
    """The rule or the setting that decides, in a sentence."""
    remedy: str
    """What would change it, or make it faster; empty: nothing has to, or nothing can."""
    since_ms: int | None
    """Since when, by the clock of the worker that found it out; None: not known."""
    others: tuple[NotCopied, ...]
    """Further reasons, the most urgent first."""


class TopicDetails(NamedTuple):
    """What the clusters are asked about one topic only if ``why`` is asked about it."""

    is_hidden: bool = False
    """The source has a topic of this name, or may have, and the user who asks may not describe it."""
    quarantined: Mapping[int, int] = {}
    """By partition: how many of its records are in quarantine, and were not replayed."""
    quarantine_unread: str = ""
    """Why the quarantine cannot be read."""


NO_DETAILS: Final = TopicDetails()


def explain_topic(
    facts: FlowFacts,
    report: FlowReport,
    topic: str,
    partition: int | None,
    names: Mapping[MemberId, str],
    details: TopicDetails = NO_DETAILS,
) -> Explanation:
    """Return whether a topic, or one partition of it, is replicated.

    Args:
        topic: its name on the source.
        partition: None: the whole topic.
        names: the members of the group, for people.
        details: what is known besides.
    """
    asked = asked_about(topic, partition)
    found = next((one for one in report.topics if one.topic == topic), None)
    if found is not None and partition is not None and found.partitions and partition >= found.partitions:
        count = f"{found.partitions} partition{'' if found.partitions == 1 else 's'}"
        why = f"{report.flow.source} has {count} of {shown_name(topic)}, numbered from 0."
        return answer(asked, Replicated.NO, not_copied(Reason.MISSING, why))
    causes = _causes_of(facts, report, topic, found, details)
    if facts.other_group:
        return unknown(asked, f"Group {facts.other_group} runs the flow: ask with its file.")
    if causes and causes[0].why.startswith(RUN_UNKNOWN):
        return unknown(asked, causes[0].why)
    about = [one for one in causes if partition is None or not one.partitions or partition in numbers(one.partitions)]
    if about:
        partitions = 0 if found is None or partition is not None else found.partitions
        is_some = partitions_not_copied(about, partitions) < partitions
        first, word = decided(facts, topic, about[0]), Replicated.PARTLY if is_some else Replicated.NO
        return answer(asked, word, first, others=about[1:], remedy=_remedy(facts, topic, first))
    if unread := _unread(facts, topic):
        return unknown(asked, unread)
    if found is not None and found.ahead:
        return unknown(asked, _ahead(report.flow))
    assert found is not None  # noqa: S101 - a topic of which nothing is known has a cause
    kept = {number: count for number, count in details.quarantined.items() if partition in {None, number}}
    if kept:
        return answer(asked, Replicated.PARTLY, _in_quarantine(report.flow, topic, partition, kept))
    if unstored := _unstored(report, found, partition, names):
        return unknown(asked, unstored)
    if details.quarantine_unread and facts.settings.quarantines:
        kept_in = f"records may be in {quarantine(report.flow.source).name}, which could not be read"
        return unknown(asked, f"{kept_in} (that needs DESCRIBE and READ): {details.quarantine_unread}")
    limit = report.bottleneck if _is_limited(facts, report, found, partition) else None
    why = why_let_pass(topic, facts.settings.topic_filter, facts.origins)
    told = [
        f"It is replicated to {facts.settings.remote_topic(topic)}{_by_rule(facts, topic)}.",
        why,
        *_details(facts, found, partition, names),
        *([] if limit is None else [f"What limits the flow: {limit.text}.", limit.remedy]),
        _skipped(facts, topic, partition),
        details.quarantine_unread and f"Note: records may be in quarantine: {details.quarantine_unread}",
    ]
    remedy = "" if limit is None else limit.remedy
    return Explanation(asked, Replicated.YES, " ".join(filter(None, told)), "", why, remedy, None, ())


def explain_switched_off(asked: str, origin: SettingOrigin, stored: FlowConfig | None) -> Explanation:
    """Return the answer about a flow that the file of the user switches off.

    Args:
        asked: as in ``Explanation``.
        origin: where the file does that.
        stored: the settings by which the workers run.
    """
    if stored is not None and is_enabled(stored.properties):
        why = f"FILE switches the flow off by {origin.text}, and it is on by what is stored (version {stored.version})."
        return unknown(asked, f"{why} Ask with the file of its workers, or: mm2py apply FILE switches it off.")
    cause = not_copied(
        Reason.SWITCHED_OFF,
        f"The flow is switched off: {origin.key} is false ({origin.where}).",
        "To copy it, set it to true, then: mm2py apply FILE.",
    )
    return answer(asked, Replicated.NO, cause)


def asked_about(topic: str, partition: int | None) -> str:
    """Return what was asked about, in words."""
    return f"topic {shown_name(topic)}" if partition is None else f"partition {shown_name(topic)}/{partition}"


def unknown(asked: str, why: str, what: str = "it is replicated") -> Explanation:
    """Return the answer that it is not known. ``what``: what is not known."""
    text = f"It is not known whether {what}: {why}"
    return Explanation(asked, Replicated.UNKNOWN, text, "", why, "", None, ())


def answer(
    asked: str, replicated: Replicated, cause: NotCopied, *, others: Sequence[NotCopied] = (), remedy: str | None = None
) -> Explanation:
    """Return the answer that it is not replicated, or not all of it.

    Args:
        asked: as in ``Explanation``.
        remedy: in place of that of the cause.
    """
    remedy = cause.remedy if remedy is None else remedy
    first = "" if asked.startswith("group ") else "It is not replicated."
    if replicated is Replicated.PARTLY:
        first = "Not all of it is replicated."
    where = f"Partition{'' if cause.partitions.isdigit() else 's'} {cause.partitions}: " if cause.partitions else ""
    if asked.startswith("partition ") or not where:
        where, cause = "", replace(cause, why=_sentence(cause.why))
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


def _sentence(text: str) -> str:
    """Begin a text with a capital, unless it begins with a name."""
    return text[0].upper() + text[1:] if text.partition(" ")[0] in _BEGIN_SENTENCES else text


def _ahead(flow: Flow) -> str:
    return (
        f"On {flow.source} its log ends before the position up to which it was copied: the log was cut back, or the"
        " topic was recreated."
    )


def _causes_of(
    facts: FlowFacts, report: FlowReport, topic: str, found: TopicReport | None, details: TopicDetails
) -> Sequence[NotCopied]:
    """Return why a topic is not copied, the most urgent first."""
    if found is not None:
        return found.not_copied
    if topic in facts.left_out:
        return [not_copied(*left_out_of(facts, topic))]
    if _unread(facts, topic):
        return ()
    source, name = report.flow.source, shown_name(topic)
    rule = _rule(facts, topic)
    if details.is_hidden:
        why = f"The user of the file may not describe {name} on {source}, so mm2py does not see it. {rule}"
        return [not_copied(Reason.SOURCE_DENIED, why, f"Grant DESCRIBE and READ on {name} on {source}.")]
    if any(one == topic for one, _ in facts.positions):
        return [not_copied(Reason.GONE, GONE, f"If it is to be copied again, create it on {source}.")]
    if (upstream := _upstream_of(facts, topic)) is not None:
        why = f"{name} is the name of the copy on {report.flow.target}, and of no topic on {source}."
        return [
            not_copied(Reason.MISSING, why, f"Ask for its topic: mm2py why FILE '{report.flow}' --topic {upstream}")
        ]
    near = difflib.get_close_matches(topic, {one for one, _ in facts.positions} | {*(facts.selected or ())}, NEAR_MOST)
    meant = f" Do you mean {', '.join(map(shown_name, near))}?" if near else ""
    remedy = f"Create it on {source}, or correct its name: mm2py status FILE --all shows those that are copied.{meant}"
    return [not_copied(Reason.MISSING, f"{source} has no topic of this name. {rule}", remedy)]


def _upstream_of(facts: FlowFacts, topic: str) -> str | None:
    """Return the topic of the source whose copy has this name; None: the flow knows none."""
    known = [*dict.fromkeys(one for one, _ in facts.positions), *(facts.selected or ())]
    upstream = upstream_topic_of(TopicName(topic), facts.settings.policy, facts.settings.flow, known)
    return upstream if upstream in known and upstream != topic else None


def _by_rule(facts: FlowFacts, topic: str) -> str:
    """Return the rule of ``topics.rename`` that gives a topic's copy its name, in words; empty: none does."""
    renaming = facts.settings.renaming
    rule = None if renaming is None else renaming.rule_of(topic)
    return "" if rule is None else f", by the rule {rule} of topics.rename"


def _rule(facts: FlowFacts, topic: str) -> str:
    """Return what the settings decide about a topic that the source does not show."""
    try:
        why = facts.settings.decision(topic).why_not
    except PatternTooSlow:
        return rule_of(facts, topic, UNDECIDED)[1]
    return rule_of(facts, topic, why)[1] if why else why_let_pass(topic, facts.settings.topic_filter, facts.origins)


def _unread(facts: FlowFacts, topic: str) -> str:
    """Return what could not be read that may hide a reason, by cluster; empty: everything answered."""
    flow = facts.settings.flow
    if topic in facts.hidden:
        return f"The user of the file may not describe {shown_name(topic)} on {flow.source}: grant it DESCRIBE."
    of_source = next(iter(facts.source_unread), "")
    of_target = next(filter(None, (facts.positions_unread, facts.status_unread, facts.config_unread)), "")
    told = [(flow.source, of_source), (flow.target, of_target)]
    return " ".join(text if text.startswith(f"{alias} ") else f"{alias}: {text}" for alias, text in told if text)


def _remedy(facts: FlowFacts, topic: str, cause: NotCopied) -> str:
    """Return what would change it, with the setting where a setting decides."""
    if cause.remedy:
        return cause.remedy
    if cause.reason in {Reason.EXCLUDED, Reason.NOT_INCLUDED}:
        names = facts.settings.topic_filter
        is_both = cause.reason is Reason.NOT_INCLUDED and bool(why_excluded_as_well(topic, names, facts.origins))
        return _change(facts, names.decision(topic).key, is_excluded_as_well=is_both)
    if cause.reason is Reason.BACKFILL:
        return "It ends with the backfill; mm2py backfill FILE --abandon ID ends it now."
    if cause.reason in {Reason.CYCLE, Reason.RING}:
        return "No setting changes that: its records would come back to where they are from."
    return "No setting changes that." if SORT_OF[cause.reason] is Sort.CHOSEN else ""


def _change(facts: FlowFacts, key: str, *, is_excluded_as_well: bool) -> str:
    """Return the command that changes a setting. The file may have another value already, which does not count yet."""
    is_pending = facts.stored is not None and facts.stored.properties.get(key) != facts.file.get(key)
    note = f" FILE has another {key}, which is not applied yet: mm2py plan FILE shows it." if is_pending else ""
    how = f"add it to {key} in FILE" if key == keys.TOPICS.name else f"set {key} in FILE without this pattern"
    if is_excluded_as_well:
        how += f", and set {keys.TOPICS_EXCLUDE.name} without that pattern"
    return f"To copy it, {how}, then: mm2py apply FILE.{note}"


def decided(facts: FlowFacts, topic: str, cause: NotCopied) -> NotCopied:
    """Return the cause with what decided it: the gap, the second pattern, or who has switched the flow off."""
    stored = facts.stored
    if cause.reason is Reason.NOT_INCLUDED:
        as_well = why_excluded_as_well(topic, facts.settings.topic_filter, facts.origins)
        return replace(cause, why=f"{cause.why} {as_well}".rstrip())
    if cause.reason is Reason.STOPPED:
        return _at_gap(facts, topic, cause)
    if cause.reason is not Reason.SWITCHED_OFF or stored is None:
        return cause
    while stored.previous is not None and not is_enabled(stored.previous.properties):
        stored = stored.previous
    why = f"The flow is switched off: enabled is false, stored as version {stored.version} by {stored.who_and_why}."
    return replace(cause, why=why, since_ms=stored.at_ms)


def _at_gap(facts: FlowFacts, topic: str, cause: NotCopied) -> NotCopied:
    some = set(numbers(cause.partitions))
    gaps = [one for one in facts.gaps if one.is_open and one.topic == topic and (not some or one.partition in some)]
    if not gaps:
        return cause
    gap = gaps[0]
    again = gap.kind in {GapKind.RECREATED, GapKind.DELETED, GapKind.TARGET_DELETED}
    go_on = "copy it from its first record on" if again else "go on behind it"
    remedy = f"Look at it: mm2py gaps FILE. To {go_on}: mm2py gaps FILE accept '{facts.settings.flow}:{topic}'"
    more = f" (and {len(gaps) - 1} more)" if len(gaps) > 1 else ""
    why = f"Copying has stopped at a gap ({gap.kind}){more}: {gap.text}."
    return replace(cause, why=why, remedy=remedy)


def _unstored(report: FlowReport, found: TopicReport, partition: int | None, names: Mapping[MemberId, str]) -> str:
    """Return why reasons may be missing: a worker that would have them cannot store them; empty: all can."""
    asked = {member for member, parts in found.owners.items() if partition is None or partition in numbers(parts)}
    for member, why in report.unstored.items():
        if member in asked or member == report.coordinator:
            return f"{names.get(member, member)} cannot store which topics are not copied, and why. {why}"
    return ""


def _is_limited(facts: FlowFacts, report: FlowReport, found: TopicReport, partition: int | None) -> bool:
    """Whether it does not keep up, and what limits its flow is known."""
    if report.bottleneck.cause in {Bottleneck.NOTHING_WAITS, Bottleneck.UNKNOWN}:
        return False
    if found.movement is None or not found.movement.is_behind or not found.lag:
        return False
    if partition is None:
        return True
    key = (found.topic, partition)
    position = facts.positions.get(key)
    return begin_of(facts, key, position) != end_of(facts, key, position)


def _in_quarantine(flow: Flow, topic: str, partition: int | None, kept: Mapping[int, int]) -> NotCopied:
    count = sum(kept.values())
    records = "1 record that" if count == 1 else f"{count:,} records that"
    why = f"{records} {flow.target} has refused {'is' if count == 1 else 'are'} in quarantine, and not in the copy."
    remedy = f"To append them: mm2py replay FILE '{flow}:{topic}' --append. The rest is copied."
    return not_copied(
        Reason.RECORD_REFUSED, why, remedy, partitions="" if partition is not None else ranges(sorted(kept))
    )


def _skipped(facts: FlowFacts, topic: str, partition: int | None) -> str:
    """Return how many stretches of records are missing in the copy for good; empty: none."""
    count = sum(
        gap.topic == topic
        and partition in {None, gap.partition}
        and not (gap.is_open or gap.kind.is_unexpected or gap.done is Done.KEPT)
        for gap in facts.gaps
    )
    stretches = "1 stretch" if count == 1 else f"{count:,} stretches"
    return f"But {stretches} of its records could not be copied: mm2py gaps FILE --all shows them." if count else ""


def _details(
    facts: FlowFacts, found: TopicReport, partition: int | None, names: Mapping[MemberId, str]
) -> Sequence[str]:
    """Return who copies it, and how far."""
    if partition is None:
        owners = ", ".join(f"{names.get(member, member)} ({parts})" for member, parts in found.owners.items())
        at_least = "at least " if found.unknown else ""
        lag = "" if found.lag is None else f"It is {at_least}{found.lag:,} records behind."
        if found.lag == 0 and not found.unknown:
            lag = "Nothing waits to be copied."
        count = f"{found.partitions} partition{'' if found.partitions == 1 else 's'}"
        return [f"{count}, copied by {owners}." if owners else f"{count}.", lag]
    key = (found.topic, partition)
    owner = next((member for member, parts in found.owners.items() if partition in numbers(parts)), None)
    position = facts.positions.get(key)
    begin, end = begin_of(facts, key, position), end_of(facts, key, position)
    where = "" if begin is None or end is None else f"Copied up to offset {begin:,} of {end:,}."
    return ["" if owner is None else f"{names.get(owner, owner)} copies it.", where]
