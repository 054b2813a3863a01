"""One sentence on each flow: is it safe to fail over now, and what would be lost? Pure.

Safe means: everything that the flow copies was copied up to a moment that is at most ``KEEPS_UP_S`` ago. The moment is
the *safe time* that its workers observe (``mm2py/copying/safe_time.py``) and tell with their heartbeats. Whatever is
not copied is named, and what an operator has not chosen to leave out makes a flow unsafe. A verdict is never better
than what is known: where a worker has not said yet, or partitions move, the safe time is not known.

MirrorMaker 2 gives no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.flow import Flow, Kind
from mm2py.group.membership import GroupState
from mm2py.moments import time_text
from mm2py.records.control_record import TaskName
from mm2py.records.direction_record import is_by_failover
from mm2py.records.safe_point import SafePoint
from mm2py.status.consumer_groups import ConsumerGroupsReport
from mm2py.status.loss import NO_LOSS
from mm2py.status.not_copied import NotCopied, Reason, partitions_not_copied

AHEAD_MS: Final = 2_000
"""If a safe time is ahead of this machine's clock by more, the clocks differ too much to say how old it is."""
KEEPS_UP_S: Final = 10.0
"""A flow whose safe time is older is behind."""
NAMED_MOST: Final = 3
"""How many topics or groups the sentence names."""


class Readiness(StrEnum):
    """Whether it is safe to fail over now."""

    SAFE = "safe"
    BEHIND = "behind"
    """All is copied, and the safe time is old."""
    INCOMPLETE = "incomplete"
    """Some of what is selected is not copied."""
    UNKNOWN = "unknown"
    """What is not copied yet is not known."""
    NOT_COPIED = "not-copied"
    """The flow is switched off, paused or stopped, or no worker runs it."""


@dataclass(frozen=True, slots=True)
class FlowSafety:
    """Up to which moment a flow is copied."""

    at_ms: int | None
    """By the clock of the worker that is furthest behind. None: not known, see ``why``."""
    oldest: str
    """The partition that is furthest behind; empty if that is not known."""
    why: str
    """Why the safe time is not known; empty if it is."""
    left_out: int = 0
    """How many partitions the workers do not count."""


def safety_of(flow: Flow, state: GroupState | None) -> FlowSafety:
    """Return the safe time of a flow: the oldest that its workers tell.

    What a worker tells counts only if it had read the last change of owners before it looked at its partitions. Else a
    partition that has just moved might be in nobody's count.

    Args:
        state: of the group that runs the flow; None if no worker does.
    """
    if state is None:
        return FlowSafety(None, "", "no worker runs it")
    owners = set()
    for topic, partitions in state.topics.get(flow, {}).items():
        for number in range(partitions):
            owned = state.owners.get(TaskName(flow, Kind.SOURCE, topic, number))
            if owned is None or owned.member is None:
                return FlowSafety(None, f"{topic}-{number}", f"{topic}-{number} has no worker")
            if owned.waits_for is not None:
                return FlowSafety(None, f"{topic}-{number}", f"{topic}-{number} moves to another worker")
            owners.add(owned.member)
    told: list[SafePoint] = []
    left_out = 0
    for name in owners:
        member = state.members.get(name)
        point = None if member is None else member.safe.get(flow)
        if member is None or point is None or point.seen <= state.moved_at:
            who = name if member is None else member.joined.name
            return FlowSafety(None, "", f"no safe time from {who} yet")
        left_out += point.left_out
        if point.at_ms is None and point.oldest:
            why = f"{point.oldest} still copies its backlog, or has not begun"
            return FlowSafety(None, point.oldest, why)
        if point.at_ms is not None:
            told.append(point)
    if not told:
        return FlowSafety(None, "", "no partition of it is being copied", left_out)
    oldest = min(told, key=lambda point: point.at_ms or 0)
    return FlowSafety(oldest.at_ms, oldest.oldest, "", left_out)


@dataclass(frozen=True, slots=True)
class LeftOutTopic:
    """A topic that is not copied, or not all of it, although it is selected."""

    topic: str
    """Its name on the source."""
    reason: str
    """The most urgent reason, in a word."""
    partitions: str
    """As ranges, ``0-3,7``; empty: the whole topic."""


@dataclass(frozen=True, slots=True)
class FlowVerdict:
    """Whether it is safe to fail a flow over now, and what would be lost."""

    readiness: Readiness
    """In a word."""
    text: str
    """In a sentence."""
    safe_at_ms: int | None
    """Everything that is copied at all is copied up to this moment, by the clock of a worker. None: not known."""
    behind_s: float | None
    """How long ago that was, by the clock of this machine. None: not known."""
    oldest: str
    """The partition that is furthest behind, as ``orders-3``; empty: not known."""
    left_out: tuple[LeftOutTopic, ...]
    """Topics that do not count in ``safe_at_ms``, or not all of their partitions."""
    parts: tuple[str, ...] = ()
    """What ``text`` says, point by point, without the name of the flow."""


@dataclass(frozen=True, slots=True)
class VerdictFacts:
    """What a verdict follows from."""

    flow: Flow
    now_ms: int
    is_enabled: bool
    held: str
    """By whom the flow is paused or stopped; empty: it is not."""
    not_running: str
    """Why no worker runs it; empty: one does."""
    is_running_known: bool
    """False: whether a worker runs it is not known."""
    safety: FlowSafety
    lag: int | None
    """In records; while a worker runs the flow, without the topics of which nothing is copied."""
    is_lag_partial: bool
    topics: Sequence[tuple[str, int, Sequence[NotCopied]]]
    """Each topic, how many of its partitions the workers have listed, and why it is not copied."""
    skipped: int
    """Stretches of records that are not in the copy: gaps that a policy or an operator has passed."""
    unread: Sequence[str]
    """What could not be found out about topics."""
    consumer_groups: ConsumerGroupsReport | None
    consumer_groups_unread: str = ""
    """Why nothing is known of consumer groups."""
    nothing_shown: str = ""
    """Why the source may have topics to copy although it shows none; empty: it shows some, or it is known that it has
    none."""
    unmatched: Sequence[str] = ()
    """Other entries of the setting ``topics``, which match no topic that the source shows."""
    is_standby: bool = False
    """``held`` says that the flow is standby."""


def verdict_of(facts: VerdictFacts) -> FlowVerdict:
    """Return the verdict on a flow."""
    known = ((topic, _known(facts, causes)) for topic, _, causes in facts.topics)
    left_out = tuple(
        LeftOutTopic(topic, str(causes[0].reason), causes[0].partitions)
        for topic, causes in known
        if causes and not (causes[0].is_left_out or causes[0].reason in NO_LOSS)
    )
    safety = facts.safety
    behind_s = None if safety.at_ms is None else max(0.0, (facts.now_ms - safety.at_ms) / 1000)
    why = _why_unknown(facts)
    readiness = _readiness(facts, behind_s, why, is_complete=not left_out)
    parts = tuple(filter(None, _points(facts, readiness, why, behind_s, left_out)))
    text = f"{facts.flow}: {'; '.join(parts)}"
    return FlowVerdict(readiness, text, safety.at_ms, behind_s, safety.oldest, left_out, parts)


def _known(facts: VerdictFacts, causes: Sequence[NotCopied]) -> Sequence[NotCopied]:
    """Return the causes that are known; without ``not-running`` if it is not known whether a worker runs the flow."""
    return causes if facts.is_running_known else [one for one in causes if one.reason is not Reason.NOT_RUNNING]


def _is_source_silent(facts: VerdictFacts) -> bool:
    return any(one.reason is Reason.SOURCE_SILENT for _, _, causes in facts.topics for one in causes)


def _why_unknown(facts: VerdictFacts) -> str:
    """Return why it is not known what is copied; empty: it is known."""
    if not facts.is_running_known:
        return facts.not_running
    if facts.unread:
        return facts.unread[0]
    if facts.nothing_shown:
        return facts.nothing_shown
    if facts.safety.at_ms is None:
        return facts.safety.why
    if (ahead_ms := facts.safety.at_ms - facts.now_ms) > AHEAD_MS:
        return f"the clock of a worker is {ahead_ms / 1000:,.0f} s ahead of this machine's"
    named = sum(min(listed, partitions_not_copied(causes, listed)) for _, listed, causes in facts.topics)
    if facts.safety.left_out > named:
        return f"workers do not count {facts.safety.left_out} partitions, and have told the reason of {named} only"
    return ""


def _readiness(facts: VerdictFacts, behind_s: float | None, why_unknown: str, *, is_complete: bool) -> Readiness:
    if not facts.is_enabled or facts.held or (facts.not_running and facts.is_running_known):
        return Readiness.NOT_COPIED
    if not is_complete:
        return Readiness.INCOMPLETE
    if not (facts.topics or facts.nothing_shown or facts.unread) and facts.is_running_known:
        return Readiness.SAFE  # there is nothing to copy
    if _is_source_silent(facts) and behind_s is not None:
        return Readiness.BEHIND
    if behind_s is None or why_unknown:
        return Readiness.UNKNOWN
    return Readiness.SAFE if behind_s <= KEEPS_UP_S else Readiness.BEHIND


def _points(
    facts: VerdictFacts,
    readiness: Readiness,
    why_unknown: str,
    behind_s: float | None,
    left_out: Sequence[LeftOutTopic],
) -> Sequence[str]:
    """Return the points of the sentence; empty ones do not count."""
    match readiness:
        case Readiness.NOT_COPIED if facts.is_standby and facts.is_enabled and is_by_failover(facts.held):
            return facts.held.rstrip("."), f"{facts.flow.source} was lost, and nothing of it is copied any more"
        case Readiness.NOT_COPIED if facts.is_standby and facts.is_enabled:
            return facts.held.rstrip("."), f"turns on with mm2py dr turn FILE '{facts.flow}'"
        case Readiness.NOT_COPIED:
            why = "it is switched off" if not facts.is_enabled else f"it is {facts.held}" if facts.held else ""
            first = f"not safe to fail over: {why or facts.not_running}"
        case Readiness.INCOMPLETE:
            first = "not safe to fail over: part of what is selected is not copied"
        case Readiness.UNKNOWN:
            first = f"not known whether it is safe to fail over: {why_unknown}"
        case Readiness.BEHIND if _is_source_silent(facts):
            first = f"{facts.flow.source} does not answer: a failover now loses what the safe time does not cover"
        case Readiness.BEHIND:
            first = f"not safe to fail over: {facts.safety.oldest} is behind the others"
        case Readiness.SAFE:
            first = "safe to fail over" if facts.topics else "safe to fail over: there is nothing to copy"
    skipped = f"{facts.skipped} stretches of records were skipped (mm2py gaps FILE --all)" if facts.skipped else ""
    return (
        first.rstrip("."),
        _behind(facts, behind_s, left_out),
        _named_left_out(facts, left_out),
        "" if facts.nothing_shown else _unmatched(facts),
        skipped,
        *_groups(facts),
    )


def _behind(facts: VerdictFacts, behind_s: float | None, left_out: Sequence[LeftOutTopic]) -> str:
    """Return how far the copy is behind, in time and records."""
    if facts.lag is None or (facts.is_lag_partial and not facts.lag):
        records = ""  # "at least 0" would say nothing
    else:
        records = f"{'at least ' if facts.is_lag_partial else ''}{facts.lag:,} record{'' if facts.lag == 1 else 's'}"
    if behind_s is not None and facts.safety.at_ms is not None:
        long_ago = f" (all was copied up to {time_text(facts.safety.at_ms)})" if behind_s > KEEPS_UP_S else ""
        seconds = f"{behind_s:,.1f}" if behind_s < KEEPS_UP_S else f"{behind_s:,.0f}"
        rest = "the rest is " if left_out else ""
        return f"{rest}{seconds} s{f' and {records}' if records else ''} behind{long_ago}"
    return f"{records} behind" if records else ""


def _named_left_out(facts: VerdictFacts, left_out: Sequence[LeftOutTopic]) -> str:
    if not left_out or facts.held or facts.not_running or not facts.is_enabled:
        return ""
    named = [
        f"{one.topic}{f' {one.partitions}' if one.partitions else ''} ({one.reason})" for one in left_out[:NAMED_MOST]
    ]
    more = f" and {len(left_out) - NAMED_MOST} more" if len(left_out) > NAMED_MOST else ""
    return f"not copied: {', '.join(named)}{more}"


def _unmatched(facts: VerdictFacts) -> str:
    """Return which entries of ``topics`` match nothing. A flow whose list has more than it needs is no less safe."""
    return no_match(facts.flow, facts.unmatched) if facts.unmatched else ""


def no_match(flow: Flow, entries: Sequence[str]) -> str:
    """Return that these entries of ``topics`` match no topic of the source that may be seen."""
    more = f" and {len(entries) - NAMED_MOST} more" if len(entries) > NAMED_MOST else ""
    return f"no topic that {flow.source} shows matches {', '.join(entries[:NAMED_MOST])}{more}"


def _groups(facts: VerdictFacts) -> Sequence[str]:
    groups = facts.consumer_groups
    if facts.consumer_groups_unread:
        return [f"groups not known: {facts.consumer_groups_unread.rstrip('.')}"]
    if groups is None or not groups.count:
        return []
    waiting = groups.count - groups.ready - groups.following_late
    resting = groups.ready - (groups.following - groups.following_late)
    plural = "" if groups.count == 1 else "s"
    named = [f"{one.group} ({one.why})" for one in groups.not_ready[: min(NAMED_MOST, waiting)]]
    more = f" and {waiting - len(named)} more" if waiting > len(named) else ""
    told = []
    if waiting:
        told.append(f"{waiting} of {groups.count} group{plural} not ready: {', '.join(named)}{more}")
    elif resting:
        told.append(f"{resting} group{'' if resting == 1 else 's'} ready")
    if groups.following:
        goes = f"group{'' if groups.following == 1 else 's'} that run{'s' if groups.following == 1 else ''}"
        told.append(f"{groups.following} {goes} would go on at the last checkpoint")
    if groups.partly:
        told.append(f"{groups.partly} of the ready ones have commits also in what {facts.flow} does not copy")
    if not groups.is_synced:
        where = f"mm2py groups FILE '{facts.flow}' says where each goes on"
        told.append(f"mm2py commits nothing for groups on {facts.flow.target}: {where}")
    return told
