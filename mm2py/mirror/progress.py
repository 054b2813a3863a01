"""How far a call of ``mm2py mirror`` has come, from the same report as ``mm2py status``. Pure.

It is caught up when every selected topic is copied up to the moment at which the command began. Some topics need an
operator, and are never copied by waiting: if only such topics are left for a while, it ends without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.moments import ago
from mm2py.status.flow_report import FlowReport
from mm2py.status.not_copied import Reason
from mm2py.status.report import Report
from mm2py.status.verdict import Readiness

STUCK_S: Final = 30.0
"""How long the same topics may keep a flow from being caught up, while everything else is."""
NAMED_MOST: Final = 3
_COPIES: Final = frozenset({Readiness.SAFE, Readiness.BEHIND})
_NEEDS_OPERATOR: Final = frozenset(
    {
        Reason.STOPPED,
        Reason.RECORD_REFUSED,
        Reason.RECORD_UNREADABLE,
        Reason.SOURCE_DENIED,
        Reason.TARGET_DENIED,
        Reason.REFUSED,
        Reason.MISSING,
        Reason.UNDECIDED,
        Reason.BOTH_ON,
        Reason.HELD,
        Reason.PAUSED,
        Reason.STANDBY,
        Reason.SWITCHED_OFF,
        Reason.NO_MATCH,
    }
)
"""Reasons that do not end by waiting. A flow that cannot start is none: that is tried again."""


class MirrorState(StrEnum):
    """How far it has come."""

    COPIES = "copies"
    CAUGHT_UP = "caught up"
    STUCK = "stuck"
    """Everything is caught up but what needs an operator."""


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """What to show, and whether to end."""

    state: MirrorState
    lines: tuple[str, ...]
    """A line for each flow, and one for each problem."""


class ProgressWatch:
    """Judges one look after the other."""

    def __init__(self, begun_ms: int) -> None:
        """``begun_ms``: when the command began, by the clock by which the workers tell their safe time."""
        self._begun_ms = begun_ms
        self._most: dict[str, int] = {}
        """By flow: the largest lag that was seen."""
        self._stuck_since_ms: int | None = None

    def judge(self, report: Report) -> MirrorProgress:
        """Return what one look says."""
        lines = [self._line(flow, report) for flow in report.flows]
        lines += [f"  {problem.where}: {problem.text}" for problem in report.problems]
        waiting = [flow for flow in report.flows if not self._is_caught_up(flow)]
        if report.flows and not waiting:
            self._stuck_since_ms = None
            return MirrorProgress(MirrorState.CAUGHT_UP, tuple(lines))
        if not report.flows or not all(self._lacks_only_topics(flow) for flow in waiting):
            self._stuck_since_ms = None
        elif self._stuck_since_ms is None:
            self._stuck_since_ms = report.at_ms
        is_stuck = self._stuck_since_ms is not None and report.at_ms - self._stuck_since_ms >= STUCK_S * 1000
        return MirrorProgress(MirrorState.STUCK if is_stuck else MirrorState.COPIES, tuple(lines))

    def _is_caught_up(self, flow: FlowReport) -> bool:
        verdict = flow.verdict
        if verdict.readiness is Readiness.SAFE and not flow.topics:
            return True  # there is nothing to copy
        return verdict.readiness in _COPIES and verdict.safe_at_ms is not None and verdict.safe_at_ms >= self._begun_ms

    def _lacks_only_topics(self, flow: FlowReport) -> bool:
        """Return whether only topics that need an operator keep a flow from being caught up, and there are such."""
        verdict = flow.verdict
        if verdict.safe_at_ms is not None and verdict.safe_at_ms < self._begun_ms:
            return False
        lacking = {one.reason for one in verdict.left_out}
        lacking |= {str(one.reason) for one in flow.not_copied if not flow.topics}
        return bool(lacking) and lacking <= {str(reason) for reason in _NEEDS_OPERATOR}

    def _line(self, flow: FlowReport, report: Report) -> str:
        name, verdict = str(flow.flow), flow.verdict
        parts = [f"{len(flow.topics):,} topic(s)"]
        if flow.lag is not None:
            most = self._most[name] = max(flow.lag, self._most.get(name, 0))
            share = 100 if not most else int(100 * (1 - flow.lag / most))
            parts.append(f"{flow.lag:,} records wait" + (f" ({share} % done)" if most else ""))
        rate = sum(
            member.bytes_per_s for group in report.groups for member in group.members if flow.flow in member.flows
        )
        parts.append(f"{rate / 1e6:,.1f} MB/s")
        if verdict.safe_at_ms is not None:
            parts.append(f"copied up to {ago(max(0, report.at_ms - verdict.safe_at_ms))} ago")
        if verdict.left_out:
            parts.append(f"not copied: {_named([one.topic for one in verdict.left_out])}")
        return f"{name}: {', '.join(parts)}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
    return f"{', '.join(names[:NAMED_MOST])}{more}"
