"""Was a topic, or a partition of it, replicated at a moment of the last day, and what decided that? Pure.

The present is asked with ``status/why.py``; the same rules answer here, from what was true then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mm2py.flight.past import FlightLine, PastFacts
from mm2py.flow import ConnectorName, Flow, Kind
from mm2py.moments import time_text
from mm2py.records.connector_config import FlowConfig
from mm2py.records.control_record import MemberId
from mm2py.records.history_record import KIND_OF, TURNS, HistoryEntry, HistoryKind
from mm2py.records.operator_request import Target, TargetState
from mm2py.secret import shown_name
from mm2py.shared_settings.current_settings import COPYING
from mm2py.status.facts import FlowFacts, GroupFacts
from mm2py.status.flow_report import FlowReport
from mm2py.status.not_copied import Reason
from mm2py.status.why import Explanation, Replicated, explain_topic

_PAST = {
    "It is not replicated.": "It was not replicated.",
    "Not all of it is replicated.": "Not all of it was replicated.",
    "It is replicated to": "It was replicated to",
    "It is not known whether it is replicated:": "It is not known whether it was replicated:",
}
"""How answers begin."""
_STATE_OF = {kind: state for state, kind in KIND_OF.items()}


@dataclass(frozen=True, slots=True)
class PastExplanation:
    """The answer, with what the recorder has of the minutes around the moment."""

    at_ms: int
    """The moment."""
    found: Explanation
    around: tuple[FlightLine, ...]
    """What changed around it, in the order of time."""
    lost: int
    """How many changes around the moment the recorder had no room for."""


def config_then(now: FlowConfig | None, at_ms: int) -> FlowConfig | None:
    """Return the stored settings of a moment; of one before all that are kept, the oldest."""
    while now is not None and now.at_ms > at_ms and now.previous is not None:
        now = now.previous
    return now


def held_then(flow: Flow, entries: Iterable[HistoryEntry], at_ms: int) -> Mapping[Kind, Target]:
    """Return the connectors of a flow that were paused, stopped or standby at a moment.

    Args:
        entries: the history of the flow.
    """
    held: dict[Kind, Target] = {}
    standby: Target | None = None
    names = {str(ConnectorName(flow, kind)): kind for kind in Kind}
    for entry in sorted(entries, key=lambda one: one.at_ms):
        if entry.kind in TURNS and entry.at_ms <= at_ms:
            is_standby = entry.kind is HistoryKind.STANDBY
            standby = Target(TargetState.STANDBY, entry.by, entry.at_ms, author=entry.author) if is_standby else None
        kind, state = names.get(entry.connector), _STATE_OF.get(entry.kind)
        if kind is not None and state is not None and entry.at_ms <= at_ms:
            held[kind] = Target(state, entry.by, entry.at_ms, author=entry.author)
    found = {} if standby is None else dict.fromkeys(COPYING, standby)
    return found | {kind: target for kind, target in held.items() if target.state is not TargetState.STARTED}


def explain_then(
    facts: FlowFacts,
    group: GroupFacts,
    report: FlowReport,
    asked: tuple[str, int | None],
    names: Mapping[MemberId, str],
    past: PastFacts,
    at_ms: int,
) -> PastExplanation:
    """Return whether a topic, or one partition of it, was replicated at a moment.

    Args:
        facts: those of the moment; ``selected`` has the topics that the group had listed then.
        group: ``state`` is that of the moment; None: the control log does not go back so far.
        asked: the topic, and the partition or None.
        names: the members of the group, for people.
    """
    topic, partition = asked
    what = f"topic {shown_name(topic)}" if partition is None else f"partition {shown_name(topic)}-{partition}"
    around = tuple(FlightLine(one.at_ms, names.get(MemberId(one.member), one.member), one.text) for one in past.around)
    if group.state is None:
        why = f"{group.topic} has no records of {time_text(at_ms)}: no worker ran then, or they are deleted by now."
        text = f"It is not known whether it was replicated: {why}"
        found = Explanation(what, Replicated.UNKNOWN, text, "", why, "", None, ())
    elif _was_unlisted(facts, report, topic):
        why = f"The workers had not listed it: {report.flow.source} did not show it to them, or they had just found it."
        text = f"It was not replicated. {why}"
        found = Explanation(what, Replicated.NO, text, str(Reason.MISSING), why, "", None, ())
    else:
        recorded = replace(report, unstored={})  # what a worker could not store, it may have recorded
        found = _in_the_past(explain_topic(facts, recorded, topic, partition, names))
        unrecorded = sorted({*_owners(report, topic)} - past.covered)
        if (unrecorded or past.unreadable) and found.replicated is Replicated.YES:
            who = ", ".join(names.get(MemberId(one), one) for one in unrecorded)
            why = f"{who} could not tell it to the flight recorder, or not all of it."
            if not unrecorded:
                why = f"{past.unreadable:,} record(s) of that time in the flight recorder cannot be read by this mm2py."
            text = f"It is not known whether it was replicated: {why}"
            found = Explanation(what, Replicated.UNKNOWN, text, "", why, "", None, ())
    return PastExplanation(at_ms, found, around, past.lost)


def _in_the_past(found: Explanation) -> Explanation:
    """Return an answer as of the past, without what would have changed it."""
    text = found.text.removesuffix(found.remedy).strip() if found.remedy else found.text
    for begin, past in _PAST.items():
        if text.startswith(begin):
            text = past + text.removeprefix(begin)
    return replace(found, text=text)


def _was_unlisted(facts: FlowFacts, report: FlowReport, topic: str) -> bool:
    """Whether the settings selected a topic, and yet no worker knew it."""
    is_reported = any(one.topic == topic for one in report.topics)
    return not is_reported and topic not in facts.left_out


def _owners(report: FlowReport, topic: str) -> Iterable[str]:
    return (str(owner) for one in report.topics if one.topic == topic for owner in one.owners)


def lines_of(then: PastExplanation) -> Sequence[str]:
    """Return the lines below the answer: what changed around the moment."""
    lines = [f"{time_text(one.at_ms)}  {one.member}  {one.text}" for one in then.around]
    if then.lost:
        lines.append(f"{then.lost:,} more changes around then had no room in the recorder")
    return lines
