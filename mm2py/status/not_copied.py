"""Whether a topic is being copied, and if not: why, since when, and what an operator does about it. Pure.

This is the one table of reasons. The log, the metrics and the records of workers, ``mm2py status``, ``/v1`` and
Connect's status all use it, so they say the same. A worker calls ``cause_of`` to find out why it does not copy one of
its partitions, and stores the cause in ``mm2-status.A.internal``. Status and REST call ``why_not_copied`` with what the
clusters report. MirrorMaker 2 has nothing like it: its tasks are RUNNING as long as they throw no exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from mm2py.copying.partition_errors import BLOCKED_PAUSE_S, refusal_remedy
from mm2py.flow import Flow
from mm2py.records.partition_ranges import numbers, ranges
from mm2py.records.pause_record import TopicPause
from mm2py.records.standstill import Cause


class Sort(Enum):
    """Who has to do something about a reason."""

    CHOSEN = "the settings leave the topic out"
    HELD = "an operator, or a backfill, keeps the flow, the topic or a partition from being copied for now"
    PASSING = "it begins or ends to be copied; this takes a minute at most"
    RETRIED = "a cluster does not let it be copied; it is tried again"
    WAITING = "it waits for an operator"


class Reason(StrEnum):
    """Why a topic, or a partition, is not copied. The more urgent come first."""

    STOPPED = "stopped"
    """At a gap: see ``mm2py gaps``."""
    RECORD_REFUSED = "record-refused"
    """The target refuses a record, for example because it is too large."""
    RECORD_UNREADABLE = "record-unreadable"
    """A batch of the source is damaged, or of a kind that cannot be copied."""
    SOURCE_DENIED = "source-denied"
    """mm2py may not read the source topic."""
    TARGET_DENIED = "target-denied"
    """mm2py may not write to the remote topic."""
    REFUSED = "refused"
    """A worker must not copy the topic, for example because its remote topic is not empty."""
    MISSING = "missing"
    """``topics`` names it, and the source does not show it."""
    UNDECIDED = "undecided"
    """Matching a pattern takes too long."""
    STALLED = "stalled"
    """Records wait, and none was acknowledged for ``stall.timeout.ms``."""
    STANDING = "standing"
    """Records wait, its position does not move, and no worker reports a reason that needs an operator."""
    UNOWNED = "unowned"
    """No worker has it."""
    NOT_RUNNING = "not-running"
    """No worker runs the flow."""
    BOTH_ON = "both-on"
    """The flow and the flow back are on, and only one of the two may be: both have stopped."""
    NOT_STARTED = "not-started"
    """A worker tries to start the flow, and it fails again and again."""
    SOURCE_SILENT = "source-silent"
    """The source does not answer the workers, or has never answered one of them."""
    NO_LEADER = "no-leader"
    POSITION_UNSTORED = "position-unstored"
    """Its position must be stored before it is copied, and that is not possible."""
    RETRYING = "retrying"
    """The failed step is tried again."""
    GONE = "gone"
    """It was copied, and the source does not have it any more."""
    HELD = "held"
    """An operator has paused or stopped the flow."""
    PAUSED = "paused"
    """An operator has paused the topic, or the partition."""
    STANDBY = "standby"
    """The flow is standby: it copies nothing until it is turned on."""
    BACKFILL = "backfill"
    """The workers do not copy it until a backfill has copied its history."""
    SWITCHED_OFF = "switched-off"
    NO_MATCH = "no-match"
    """A pattern of ``topics`` matches no topic."""
    NEW = "new"
    """It was found just now."""
    STARTING = "starting"
    """The worker is finding out where to continue, and what is there already."""
    MOVING = "moving"
    """It moves to another worker."""
    DESELECTED = "deselected"
    """It is not selected any more, and the workers stop copying it."""
    OWN_TOPIC = "own-topic"
    INTERNAL = "internal"
    CYCLE = "cycle"
    RING = "ring"
    """A flow back from the target has made it. The ids of clusters show this where names do not."""
    EXCLUDED = "excluded"
    NOT_INCLUDED = "not-included"


_SORTS: Final[Mapping[Sort, frozenset[Reason]]] = {
    Sort.WAITING: frozenset(
        {
            Reason.STOPPED,
            Reason.RECORD_REFUSED,
            Reason.RECORD_UNREADABLE,
            Reason.SOURCE_DENIED,
            Reason.TARGET_DENIED,
            Reason.REFUSED,
            Reason.MISSING,
            Reason.UNDECIDED,
            Reason.STALLED,
            Reason.STANDING,
            Reason.UNOWNED,
            Reason.NOT_RUNNING,
            Reason.BOTH_ON,
            Reason.NOT_STARTED,
        }
    ),
    Sort.RETRIED: frozenset(
        {Reason.SOURCE_SILENT, Reason.NO_LEADER, Reason.POSITION_UNSTORED, Reason.RETRYING, Reason.GONE}
    ),
    Sort.HELD: frozenset({Reason.HELD, Reason.PAUSED, Reason.STANDBY, Reason.BACKFILL, Reason.SWITCHED_OFF}),
    Sort.PASSING: frozenset({Reason.NEW, Reason.STARTING, Reason.MOVING, Reason.DESELECTED}),
    Sort.CHOSEN: frozenset(
        {
            Reason.NO_MATCH,
            Reason.OWN_TOPIC,
            Reason.INTERNAL,
            Reason.CYCLE,
            Reason.RING,
            Reason.EXCLUDED,
            Reason.NOT_INCLUDED,
        }
    ),
}
FAILED: Final = frozenset(
    {
        Reason.STOPPED,
        Reason.RECORD_REFUSED,
        Reason.RECORD_UNREADABLE,
        Reason.SOURCE_DENIED,
        Reason.TARGET_DENIED,
        Reason.NOT_STARTED,
    }
)
"""If a partition has one of these reasons, its task is FAILED in Connect's terms. Connect has no term for the other
reasons: the connector or its task is RUNNING, and the reason is shown in addition (docs/decisions/0022)."""
OF_THE_FLOW: Final = frozenset({Reason.SOURCE_SILENT, Reason.NOT_STARTED})
"""Reasons that stop the whole flow of a worker. They are reported once, not for each topic."""
SORT_OF: Final[Mapping[Reason, Sort]] = {reason: sort for sort, reasons in _SORTS.items() for reason in reasons}
"""The sort of each reason. A test checks that none is missing."""
GONE: Final = "The source does not have it any more. Its copy is kept."
RUN_UNKNOWN: Final = "It is not known whether a worker runs the flow"
"""How ``NotRunning.why`` begins if ``is_known`` is false."""
_URGENCY: Final[Mapping[str, int]] = {reason: place for place, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class NotCopied:
    """Why a topic, or some of its partitions, are not copied."""

    reason: Reason
    """The reason as a word."""
    why: str
    """The reason in a sentence."""
    remedy: str
    """What an operator does about it; empty: nothing."""
    since_ms: int | None
    """Since when, by the clock of the worker that found it out; None: not known."""
    partitions: str
    """As ranges, ``0-3,7``; empty: the whole topic."""
    waits_for_operator: bool
    """It does not end by itself, and no operator asked for it."""

    @property
    def is_problem(self) -> bool:
        """Whether the status lists it as a problem."""
        return self.waits_for_operator or self.reason is Reason.SOURCE_SILENT

    @property
    def is_left_out(self) -> bool:
        """Whether nothing of the topic is to be copied. Then nothing waits, and it has no lag."""
        return SORT_OF[self.reason] is Sort.CHOSEN or self.reason is Reason.DESELECTED

    @property
    def text(self) -> str:
        """Partitions, reason and remedy in one text, without the time."""
        where = f"partition{'' if self.partitions.isdigit() else 's'} {self.partitions}: " if self.partitions else ""
        return f"{where}{self.why}{f' {self.remedy}' if self.remedy else ''}"


def not_copied(
    reason: Reason, why: str, remedy: str = "", *, since_ms: int | None = None, partitions: str = ""
) -> NotCopied:
    """Make a ``NotCopied``; the reason decides whether it waits for an operator."""
    why = why.strip()
    ended = why if not why or why[-1] in ".!?" else f"{why}."
    return NotCopied(reason, ended, remedy, since_ms, partitions, SORT_OF[reason] is Sort.WAITING)


def reason_of_hold(state: str, flow: Flow | str) -> tuple[Reason, str]:
    """Return the reason of a flow that is held, and what changes it.

    Args:
        state: see ``HeldReport.state``.
    """
    if state == "standby":
        return Reason.STANDBY, f"To turn it on: mm2py dr turn FILE '{flow}'"
    if state == "both-on":
        return Reason.BOTH_ON, f"Turn one of the two off: mm2py dr turn FILE '{flow}' --off"
    return Reason.HELD, f"To copy it again: mm2py resume FILE '{flow}'"


def urgency_of(cause: Cause) -> tuple[int, str]:
    """Sort key of causes: the most urgent comes first."""
    return _URGENCY.get(cause.reason, len(_URGENCY)), cause.partitions


def most_urgent_first(found: Iterable[NotCopied]) -> list[NotCopied]:
    """Sort reasons in the order in which an operator sees them."""
    return sorted(found, key=lambda one: (_URGENCY[one.reason], one.partitions))


# -- what a worker knows of a partition of its own ---------------------------------------------------------------------


class PartitionFacts(NamedTuple):
    """What a worker knows of a partition that it copies. Texts are empty where there is nothing to say."""

    gap: str = ""
    """The gap at which it has stopped."""
    paused: str = ""
    """Who has paused it, and why."""
    is_paused_alone: bool = False
    """The partition is paused, and not its whole topic."""
    failure: str = ""
    """Why its last attempt failed, until another one succeeds."""
    reported: str = ""
    """The log event of that failure."""
    refused_with: int = 0
    """The error code with which the target refuses it, or would refuse it; 0: it does not."""
    lacks_leader: str = ""
    position_problem: str = ""
    """Why the position that it waits for cannot be stored."""
    starting: str = ""
    """What the worker finds out before it copies the partition."""
    stalled: str = ""
    """Why records wait and none is acknowledged, if that has lasted for ``stall.timeout.ms``."""
    source_silent: str = ""
    """Why the source does not answer reads."""


class FoundReason(NamedTuple):
    """A reason with its texts."""

    reason: Reason
    why: str
    remedy: str = ""

    @property
    def is_shown_at_once(self) -> bool:
        """Whether it is shown at once. Other reasons may pass within seconds, and are shown only if they last."""
        return SORT_OF[self.reason] is Sort.WAITING


def reason_of(event: str, refused_with: int) -> Reason:
    """Return why a partition waits, by a copier's log event; ``refused_with``: see ``PartitionFacts``."""
    if event == "source.denied":
        return Reason.SOURCE_DENIED
    if event == "target.denied":
        return Reason.TARGET_DENIED
    return Reason.RECORD_REFUSED if refused_with else Reason.RECORD_UNREADABLE


def remedy_of(event: str, refused_with: int, flow: Flow, topic: str, remote_topic: str) -> str:
    """Return what an operator does about a partition that waits; after a refusal the error code decides."""
    if refused_with:
        remedy = refusal_remedy(refused_with, flow, topic, remote_topic)
        return remedy if event == "target.denied" else f"{remedy} It is tried again every {BLOCKED_PAUSE_S:g} s."
    if event == "source.denied":
        return f"Grant READ on {topic} on {flow.source}."
    return f"Look at {topic} on {flow.source}; it is read again every {BLOCKED_PAUSE_S:g} s."


def cause_of(seen: PartitionFacts, flow: Flow, topic: str, remote_topic: str) -> FoundReason | None:
    """Return why a worker does not copy one of its partitions; None: it copies it."""
    if seen.gap:
        return FoundReason(
            Reason.STOPPED, seen.gap, f"See mm2py gaps, and let it go on: mm2py gaps FILE accept '{flow}:{topic}'."
        )
    if seen.paused:  # nothing is read or tried again before it is resumed
        partitions = "N" if seen.is_paused_alone else ""  # partitions with the same words share a cause
        return FoundReason(Reason.PAUSED, _paused_text(seen.paused), resume_remedy(flow, topic, partitions))
    if seen.failure and seen.reported:
        reason = reason_of(seen.reported, seen.refused_with)
        return FoundReason(reason, seen.failure, remedy_of(seen.reported, seen.refused_with, flow, topic, remote_topic))
    if seen.stalled:
        why = f"records wait and none is acknowledged: {seen.stalled}"
        return FoundReason(
            Reason.STALLED, why, "Look at what it waits for: docs/runbooks/Mm2pyPartitionsStalled.md says how."
        )
    if seen.lacks_leader:
        return FoundReason(Reason.NO_LEADER, seen.lacks_leader, "Check that the brokers which hold its replicas run.")
    if seen.position_problem:
        remedy = f"Grant WRITE on the topic of the flow's positions on {flow.target}, or look at its brokers."
        return FoundReason(Reason.POSITION_UNSTORED, seen.position_problem, remedy)
    if seen.source_silent:
        return FoundReason(
            Reason.SOURCE_SILENT, f"the source does not answer: {seen.source_silent}", source_remedy(flow)
        )
    if seen.starting:
        return FoundReason(Reason.STARTING, seen.starting)
    return FoundReason(Reason.RETRYING, seen.failure) if seen.failure else None


def _paused_text(who_and_why: str) -> str:
    return f"Paused by {who_and_why}"


def resume_remedy(flow: Flow, topic: str, partitions: str) -> str:
    """Return the command that ends a pause.

    Args:
        partitions: as ranges, ``0-3,7``; empty: the topic is paused as a whole.
    """
    what = f"--partition {topic}/{partitions}" if partitions else f"--topic {topic}"
    return f"To copy it again: mm2py resume FILE '{flow}' {what}"


def source_remedy(flow: Flow) -> str:
    """Return what an operator does about a source that does not answer."""
    return f"Look whether {flow.source} runs, and whether its workers reach it."


# -- what status and REST know of a topic ------------------------------------------------------------------------------


class NotRunning(NamedTuple):
    """Why no worker runs a flow."""

    why: str
    remedy: str = ""
    since_ms: int | None = None
    """When the last record of its group was appended; None: not known, or the group runs other flows."""
    is_known: bool = True
    """False: it is not known whether a worker runs it."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the clusters report about one topic that the settings select, or that was copied."""

    partitions: int
    """How many it has on the source; 0: not known."""
    selected: bool | None
    """The source has it, and the settings select it; None: the source does not answer."""
    left_out: tuple[Reason, str] | None = None
    """Why the settings leave it out."""
    has_positions: bool = False
    listed: int = 0
    """How many partitions the flow coordinator has listed."""
    unowned: str = ""
    """Partitions without a worker, as ranges; the next two fields are ranges, too."""
    moving: str = ""
    standing: str = ""
    """Partitions with waiting records whose position does not move."""
    standing_since_ms: int | None = None
    """When the first of them stopped: the earliest of the times at which their positions last moved."""
    is_switched_off: bool = False
    held: str = ""
    """Who has paused or stopped the flow, or why it is standby, in words."""
    held_state: str = ""
    """See ``HeldReport.state``."""
    held_since_ms: int | None = None
    pauses: Sequence[TopicPause] = ()
    """What operators have paused of it."""
    flow: Flow | None = None
    """The flow, for commands that name it; there must be one if something is paused."""
    backfill: str = ""
    """The state of the backfill that the workers wait for, in words."""
    not_running: NotRunning | None = None
    """None: a worker runs the flow."""
    stopped: str = ""
    """Partitions that wait at a gap, as ranges."""
    stopped_since_ms: int | None = None
    gaps: str = ""
    """The gaps at which they wait, in words."""
    conflict: str = ""
    """Why its remote topic is impossible, or which other flows claim it."""
    causes: Sequence[Cause] = ()
    """The causes that live workers have stored for it."""
    flow_causes: Sequence[Cause] = ()
    """Causes that concern a worker's whole flow (see ``OF_THE_FLOW``), with the partitions concerned."""


def why_not_copied(seen: TopicFacts) -> tuple[NotCopied, ...]:
    """Return why a topic is not copied, or not all of it; the most urgent first. Empty: all of it is copied.

    A reason that stops the whole topic hides the other reasons, but not that an operator has paused something of it.
    """
    found = _besides_pauses(seen)
    if any(one.is_left_out for one in found):
        return found
    return tuple(most_urgent_first([*found, *_pauses(seen)]))


def _pauses(seen: TopicFacts) -> list[NotCopied]:
    """Return what is paused; pauses of partitions with the same words become one."""
    together: dict[str, list[TopicPause]] = {}
    is_whole = any(one.partition is None for one in seen.pauses)
    for one in seen.pauses:
        if one.partition is None or not is_whole:
            together.setdefault(one.who_and_why, []).append(one)
    return [_paused(seen, text, those) for text, those in together.items()]


def _paused(seen: TopicFacts, text: str, pauses: Sequence[TopicPause]) -> NotCopied:
    assert seen.flow is not None, "its flow is not known"  # noqa: S101
    partitions = ranges(sorted(one.partition for one in pauses if one.partition is not None))
    remedy = resume_remedy(seen.flow, pauses[0].topic, partitions)
    since_ms = min((one.at_ms for one in pauses if one.at_ms is not None), default=None)
    return not_copied(Reason.PAUSED, _paused_text(text), remedy, since_ms=since_ms, partitions=partitions)


def _paused_numbers(seen: TopicFacts) -> set[int]:
    """Return the partitions that are paused."""
    if any(one.partition is None for one in seen.pauses):
        return set(range(max(seen.partitions, seen.listed)))
    return {one.partition for one in seen.pauses if one.partition is not None}


def _besides_pauses(seen: TopicFacts) -> tuple[NotCopied, ...]:
    is_told = any(not cause.partitions for cause in seen.flow_causes)  # a problem of the flow is reported once
    stored = [of_cause(cause) for cause in seen.causes if not (is_told and is_silence(cause))]
    stored += map(of_cause, seen.flow_causes)
    paused = _paused_numbers(seen)  # the records of the pauses say the same, and were read later
    stored = [one for one in stored if not (one.reason is Reason.PAUSED and paused.issuperset(_about(seen, one)))]
    standing = ranges(sorted(set(numbers(seen.standing)) - paused))
    whole = most_urgent_first(one for one in stored if not one.partitions)
    if ring := tuple(one for one in whole if one.reason is Reason.RING):
        return ring  # it is left out in every state of the flow
    if seen.is_switched_off:
        remedy = f"Set {seen.flow or 'A->B'}.enabled = true in FILE, then: mm2py apply FILE."
        return (not_copied(Reason.SWITCHED_OFF, "The flow is switched off.", remedy),)
    if seen.held:
        reason, remedy = reason_of_hold(seen.held_state, seen.flow or "A->B")
        why = f"The flow is {seen.held}."
        if reason is Reason.BOTH_ON:
            why = f"Both directions are on, and only one may be: {seen.held.removeprefix('both-on: ')}."
        return (not_copied(reason, why, remedy, since_ms=seen.held_since_ms),)
    if seen.not_running is not None:
        why, remedy, since_ms, _ = seen.not_running
        return (not_copied(Reason.NOT_RUNNING, why, remedy, since_ms=since_ms),)
    if seen.backfill:
        return (not_copied(Reason.BACKFILL, seen.backfill),)
    is_chosen = seen.left_out is not None and seen.left_out[0] is not Reason.UNDECIDED
    knows_better = bool(seen.causes) and not is_chosen
    if seen.selected is False and not knows_better:  # workers may have other rights
        return (_not_selected(seen),)
    if whole and not seen.listed and (not standing or any(one.is_problem for one in whole)):
        return tuple(whole)
    if seen.conflict and not seen.listed:
        return (not_copied(Reason.REFUSED, seen.conflict),)
    found = [*stored]
    if seen.stopped:
        at_gaps = set(numbers(seen.stopped))  # the gaps themselves say more
        found = [one for one in found if not (one.reason is Reason.STOPPED and at_gaps.issuperset(_about(seen, one)))]
        text = f"It waits for an operator at a gap: {seen.gaps}."
        remedy = "See mm2py gaps."
        found.append(
            not_copied(
                Reason.STOPPED, text, remedy, since_ms=seen.stopped_since_ms, partitions=_some(seen, seen.stopped)
            )
        )
    if seen.unowned:
        why, remedy = "No worker has it.", "Look at the log of the leader, which mm2py status FILE names."
        found.append(not_copied(Reason.UNOWNED, why, remedy, partitions=_some(seen, seen.unowned)))
    waiting = {number for one in found if one.waits_for_operator for number in _about(seen, one)}
    if (still := set(numbers(standing)) - waiting) and not is_told:
        said = most_urgent_first(one for one in found if not still.isdisjoint(_about(seen, one)))
        found.append(_standing(seen, ranges(sorted(still)), said))
    told = {number for one in found for number in _about(seen, one)}
    if new := [number for number in range(seen.listed, seen.partitions) if number not in told]:
        text = "Its new partitions are about to be copied."
        if seen.listed == 0:
            text = "The flow coordinator has found it just now."
        found.append(not_copied(Reason.NEW, text, partitions=_some(seen, ranges(new))))
    if seen.moving:
        text = "Its previous worker has not released it yet."
        found.append(not_copied(Reason.MOVING, text, partitions=_some(seen, seen.moving)))
    return tuple(most_urgent_first(found))


def partitions_not_copied(causes: Iterable[NotCopied], partitions: int) -> int:
    """Return how many of a topic's ``partitions`` the causes concern."""
    causes = list(causes)
    if any(not one.partitions for one in causes):
        return partitions
    return len({number for one in causes for number in numbers(one.partitions)})


def is_silence(cause: Cause) -> bool:
    """Return whether a cause says that the source does not answer."""
    return cause.reason == Reason.SOURCE_SILENT


def of_cause(cause: Cause) -> NotCopied:
    """Return the reason that a worker has stored."""
    reason = Reason(cause.reason) if cause.reason in _URGENCY else Reason.RETRYING  # from a later version
    return not_copied(reason, cause.why, cause.remedy, since_ms=cause.since_ms, partitions=cause.partitions)


def _not_selected(seen: TopicFacts) -> NotCopied:
    if seen.left_out is None:
        if not seen.has_positions:
            return not_copied(Reason.NEW, "The workers have found it just now.")
        return not_copied(Reason.GONE, GONE)
    reason, why = seen.left_out
    if seen.listed and reason is not Reason.UNDECIDED:
        why = f"The settings do not select it any more, and the workers are ending it: {why}"
        return not_copied(Reason.DESELECTED, why)
    return not_copied(reason, why)


def _standing(seen: TopicFacts, standing: str, said: Sequence[NotCopied]) -> NotCopied:
    if said:
        why = f"Records wait and its position does not move: {said[0].why}"
        return not_copied(Reason.STANDING, why, said[0].remedy, since_ms=said[0].since_ms, partitions=standing)
    if seen.listed == 0:
        why = "It holds records, and no worker has begun to copy it."
        return not_copied(Reason.STANDING, why, "Look at the log of the flow coordinator.")
    why = "Records wait, its position does not move, and no worker has said why yet."
    remedy, some = "Look at the log of its worker, which mm2py status FILE --all names.", _some(seen, standing)
    return not_copied(Reason.STANDING, why, remedy, since_ms=seen.standing_since_ms, partitions=some)


def _about(seen: TopicFacts, one: NotCopied) -> Iterable[int]:
    """Return the partitions that a reason is about."""
    return numbers(one.partitions) if one.partitions else range(seen.partitions)


def _some(seen: TopicFacts, partitions: str) -> str:
    """Return the partitions, or nothing if they are all that the topic has."""
    return "" if partitions == ("0" if seen.partitions == 1 else f"0-{seen.partitions - 1}") else partitions
