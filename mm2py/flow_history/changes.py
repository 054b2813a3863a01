"""What changes in the state of a flow, as events of its history: its verdict, and how far it is behind. Pure.

A change counts when two looks in a row agree on it, so that a moment tells nothing. What was told last stands in the
history itself: a coordinator that has just started tells what changed while none was there.
"""

from __future__ import annotations

from typing import Final

from mm2py.flow_history.rings import FlowHistory, FreshEvent
from mm2py.flow_history.sampling import SampledLook, knows_age
from mm2py.moments import ago
from mm2py.status.verdict import KEEPS_UP_S, Readiness

VERDICT: Final = "verdict"
LAG: Final = "lag"
STEPS_S: Final = (60, 600, 3600)
"""A flow that is further behind than one of these gets an event; the next one when it keeps up again."""

_SAYS_ALL: Final = frozenset({Readiness.SAFE, Readiness.INCOMPLETE})
"""Words that say what the first point of the verdict says."""


def changes_of(history: FlowHistory, before: SampledLook | None, now: SampledLook) -> list[FreshEvent]:
    """Return what has changed since the history was last told. ``before``: the look before; None: there is none."""
    if before is None or before.at_ms >= now.at_ms:
        return []
    return [*_verdict(history, before, now), *_lag(history, before, now)]


def _verdict(history: FlowHistory, before: SampledLook, now: SampledLook) -> list[FreshEvent]:
    found, told = now.report.verdict.readiness, _told(history, VERDICT)
    if found != before.report.verdict.readiness or found == told:
        return []
    parts = now.report.verdict.parts
    if found in _SAYS_ALL:
        parts = parts[1:] or parts
    was = f" (was {told})" if told else ""
    return [_event(VERDICT, str(found), f"{found}{was}: {'; '.join(parts)}", before.at_ms)]


def _lag(history: FlowHistory, before: SampledLook, now: SampledLook) -> list[FreshEvent]:
    ages = [_age_s(before), _age_s(now)]
    known = [age for age in ages if age is not None]
    if len(known) < len(ages):
        return []
    told = int(_told(history, LAG) or 0)
    level = sum(min(known) > step for step in STEPS_S)
    if level > told:
        verdict = now.report.verdict
        text = f"{verdict.oldest or 'It'} is more than {ago(STEPS_S[level - 1] * 1000)} behind"
    elif told and max(known) <= KEEPS_UP_S:
        level, text = 0, "It keeps up again"
    else:
        return []
    return [_event(LAG, str(level), f"{text}: {ago(round(known[-1] * 1000))}.", before.at_ms)]


def _age_s(look: SampledLook) -> float | None:
    return look.report.verdict.behind_s if knows_age(look.report, look.at_ms) else None


def _told(history: FlowHistory, kind: str) -> str:
    """Return the state in the last event of a kind; empty: there is none."""
    last = history.last_event(kind)
    parts = [] if last is None else last.place.split()
    return parts[1] if len(parts) == 3 else ""


def _event(kind: str, state: str, text: str, at_ms: int) -> FreshEvent:
    return FreshEvent(at_ms, kind, text, f"{kind} {state} {at_ms}")
