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
from mm2py.records.safe_point import SafePoint
from mm2py.status.consumer_groups import ConsumerGroupsReport
from mm2py.status.not_copied import SORT_OF, NotCopied, Reason, Sort

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
    for name in owners:
        member = state.members.get(name)
        point = None if member is None else member.safe.get(flow)
        if member is None or point is None or point.seen <= state.moved_at:
            who = name if member is None else member.joined.name
            return FlowSafety(None, "", f"{who} has not told yet up to when its partitions are copied")
        if point.at_ms is None and point.partitions + bool(point.oldest):
            why = f"{point.oldest} has not reached an end of its source partition yet"
            return FlowSafety(None, point.oldest, why)
        if point.at_ms is not None:
            told.append(point)
    if not told:
        return FlowSafety(None, "", "it copies no partition")
    oldest = min(told, key=lambda point: point.at_ms or 0)
    return FlowSafety(oldest.at_ms, oldest.oldest, "")


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
    safety: FlowSafety
    lag: int | None
    is_lag_partial: bool
    topics: Sequence[tuple[str, Sequence[NotCopied]]]
    """Each topic, and why it is not copied."""
    unread: Sequence[str]
    """What could not be found out."""
    consumer_groups: ConsumerGroupsReport | None


def verdict_of(facts: VerdictFacts) -> FlowVerdict:
    """Return the verdict on a flow."""
    left_out = tuple(
        LeftOutTopic(topic, str(causes[0].reason), causes[0].partitions)
        for topic, causes in facts.topics
        if causes and not causes[0].is_left_out and causes[0].reason is not Reason.GONE  # nothing of it would be lost
    )
    chosen = {
        topic for topic, causes in facts.topics if causes and all(SORT_OF[one.reason] is Sort.HELD for one in causes)
    }
    missing = [one for one in left_out if one.topic not in chosen]
    safety = facts.safety
    behind_s = None if safety.at_ms is None else max(0.0, (facts.now_ms - safety.at_ms) / 1000)
    readiness = _readiness(facts, behind_s, is_complete=not missing)
    text = f"{facts.flow}: {_sentence(facts, readiness, behind_s, left_out)}"
    return FlowVerdict(readiness, text, safety.at_ms, behind_s, safety.oldest, left_out)


def _readiness(facts: VerdictFacts, behind_s: float | None, *, is_complete: bool) -> Readiness:
    if not facts.is_enabled or facts.held or facts.not_running:
        return Readiness.NOT_COPIED
    if not is_complete:
        return Readiness.INCOMPLETE
    if behind_s is None or facts.unread:
        return Readiness.UNKNOWN
    return Readiness.SAFE if behind_s <= KEEPS_UP_S else Readiness.BEHIND


def _sentence(
    facts: VerdictFacts, readiness: Readiness, behind_s: float | None, left_out: Sequence[LeftOutTopic]
) -> str:
    match readiness:
        case Readiness.NOT_COPIED:
            why = "it is switched off" if not facts.is_enabled else f"it is {facts.held}" if facts.held else ""
            first = f"not safe to fail over: {why or facts.not_running}"
        case Readiness.INCOMPLETE:
            first = "not safe to fail over: not all of it is copied"
        case Readiness.UNKNOWN:
            why = facts.unread[0] if facts.unread else facts.safety.why
            first = f"not known whether it is safe to fail over: {why}"
        case Readiness.BEHIND:
            first = f"not safe to fail over: {facts.safety.oldest} is behind"
        case Readiness.SAFE:
            first = "safe to fail over"
    parts = [first.rstrip("."), _behind(facts, behind_s), _named_left_out(facts, left_out), _groups(facts)]
    return "; ".join(filter(None, parts))


def _behind(facts: VerdictFacts, behind_s: float | None) -> str:
    """Return how far the copy is behind, in time and records."""
    if facts.lag is None:
        records = ""
    else:
        records = f"{'at least ' if facts.is_lag_partial else ''}{facts.lag:,} record{'' if facts.lag == 1 else 's'}"
    if behind_s is not None and facts.safety.at_ms is not None:
        long_ago = f" (all was copied up to {time_text(facts.safety.at_ms)})" if behind_s > KEEPS_UP_S else ""
        seconds = f"{behind_s:,.1f}" if behind_s < KEEPS_UP_S else f"{behind_s:,.0f}"
        return f"{seconds} s{f' and {records}' if records else ''} behind{long_ago}"
    return f"{records} behind" if records else ""


def _named_left_out(facts: VerdictFacts, left_out: Sequence[LeftOutTopic]) -> str:
    if not left_out or facts.held or facts.not_running or not facts.is_enabled:
        return ""
    named = [
        f"{one.topic}{f' {one.partitions}' if one.partitions else ''} ({one.reason})" for one in left_out[:NAMED_MOST]
    ]
    more = f" and {len(left_out) - NAMED_MOST} more" if len(left_out) > NAMED_MOST else ""
    return f"not copied: {', '.join(named)}{more}"


def _groups(facts: VerdictFacts) -> str:
    groups = facts.consumer_groups
    if groups is None or not groups.count:
        return ""
    missing = groups.count - groups.ready
    if not missing:
        return f"{groups.count} group{'' if groups.count == 1 else 's'} ready"
    named = [f"{one.group} ({one.why})" for one in groups.not_ready[:NAMED_MOST]]
    more = f" and {missing - len(named)} more" if missing > len(named) else ""
    return f"{missing} of {groups.count} group{'' if groups.count == 1 else 's'} not ready: {', '.join(named)}{more}"
