"""Finds every second which partitions of a task stand still, why, and since when; logs, counts and keeps that.

A MirrorSourceTask of MirrorMaker 2 is RUNNING while a right is missing, and logs the refusal at every attempt. Here
each partition has one reason of the table in ``mm2py/status/not_copied.py``. It is logged once; partitions of a topic
with the same reason share a line. ``causes`` returns what the status topic stores for status and REST.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from mm2py.copying.copied_partition import NOT_STORED, Circumstances, CopiedPartition
from mm2py.copying.states import Copying, Drained, Draining, Reconciling, Stopped, Waiting
from mm2py.kafka.cluster import WAITING_REPORT_S
from mm2py.kafka.port import TopicPartition
from mm2py.records.partition_ranges import ranges
from mm2py.records.pause_record import TopicPause
from mm2py.records.standstill import Cause
from mm2py.status.not_copied import FoundReason, PartitionFacts, Reason, cause_of
from mm2py_connectors.source.context import FlowContext

LOOKED_AT: Final = "the target has not told yet whether it still holds all that was copied"
AT_A_GAP: Final = "a gap has stopped it"
"""The same words for all partitions of a topic: the gaps themselves are stored separately."""
SILENT_S: Final = 10.0
"""A source without an answer to a read for this long counts as silent. At a log's end it answers twice a second."""
TEXT_KEPT_S: Final = 30.0
"""How long the words for a reason stay: each attempt may fail in other words."""
_ENDING: Final = (Draining, Drained)
_ENDED_BY_OPERATOR: Final = frozenset(
    {
        Reason.STOPPED,
        Reason.RECORD_REFUSED,
        Reason.RECORD_UNREADABLE,
        Reason.SOURCE_DENIED,
        Reason.TARGET_DENIED,
        Reason.PAUSED,
    }
)
"""What an operator has to end. A partition that is stalled may go on by itself when a cluster is back."""
_LOGGED_ELSEWHERE: Final = frozenset({Reason.STOPPED, Reason.STALLED, Reason.PAUSED})
"""Gaps, stalls and pauses have lines of their own."""


@dataclass(slots=True)
class Standing:
    """One partition that stands still."""

    found: FoundReason
    since_s: float
    since_ms: int
    worded_s: float

    def is_shown(self, now_s: float) -> bool:
        """Return whether it is shown. A reason that may end within seconds, such as a move of leaders or a failed
        request, is shown only when it has lasted."""
        is_at_once = self.found.is_shown_at_once or self.found.reason is Reason.PAUSED
        return is_at_once or now_s - self.since_s >= WAITING_REPORT_S


class Standstills:
    """The standstills of one flow's task."""

    def __init__(self, context: FlowContext, circumstances: Callable[[CopiedPartition], Circumstances]) -> None:
        """``circumstances`` returns what is known of a partition now."""
        self._context = context
        self._flow = context.flow
        self._log = context.log
        self._clock = context.clock
        self._circumstances = circumstances
        self._standing: dict[CopiedPartition, Standing] = {}
        self._logged: dict[tuple[str, FoundReason], int] = {}
        self._waiting: set[CopiedPartition] = set()
        """Partitions that were logged as waiting, and that have not been copied since."""

    def look(self, partitions: Mapping[TopicPartition, CopiedPartition], now_s: float) -> None:
        """Update the standstills; log those that have lasted for a while, and those that are over."""
        before, self._standing = self._standing, {}
        now_ms = self._clock.wall_ms()
        for part in partitions.values():
            found = self._cause(part, now_s)
            if found is None:
                continue
            one = before.get(part)
            if one is None or one.found.reason is not found.reason:
                one = Standing(found, now_s, self._since_ms(part, found, now_s, now_ms), now_s)
            elif now_s - one.worded_s >= TEXT_KEPT_S:
                one.found, one.worded_s = found, now_s
            self._standing[part] = one
        if self._standing or self._waiting:
            self._say(set(partitions.values()), now_s)

    def _pause(self, part: CopiedPartition) -> TopicPause | None:
        return self._context.state.pauses.find(part.source_topic, part.partition)

    def _since_ms(self, part: CopiedPartition, found: FoundReason, now_s: float, now_ms: int) -> int:
        """Return since when a partition stands still: for a silent source since its last answer, and of a pause since
        the operator asked for it, not since we noticed."""
        if found.reason is Reason.PAUSED and (pause := self._pause(part)) is not None and pause.at_ms is not None:
            return pause.at_ms
        if found.reason is Reason.SOURCE_SILENT and math.isfinite(part.reading.answered_at_s):
            return now_ms - round((now_s - part.reading.answered_at_s) * 1000)
        return now_ms

    def causes(self, now_s: float) -> dict[str, list[Cause]]:
        """Return by source topic why partitions are not copied; those with the same reason and words share a cause."""
        together: dict[tuple[str, FoundReason], list[tuple[int, int]]] = {}
        for part, one in self._standing.items():
            if one.is_shown(now_s):
                together.setdefault((part.source_topic, one.found), []).append((part.partition, one.since_ms))
        causes: dict[str, list[Cause]] = {}
        for (topic, found), parts in together.items():
            since_ms = min(since for _, since in parts)
            numbers = ranges(sorted(number for number, _ in parts))
            causes.setdefault(topic, []).append(Cause(found.reason, found.why, found.remedy, since_ms, numbers))
        return causes

    def waits_for_operator(self, part: CopiedPartition) -> bool:
        """Whether a partition stands still for a reason that an operator has to end."""
        one = self._standing.get(part)
        return one is not None and one.found.reason in _ENDED_BY_OPERATOR

    def counts(self, now_s: float) -> Mapping[str, int]:
        """Return how many partitions stand still, by reason."""
        return Counter(str(one.found.reason) for one in self._standing.values() if one.is_shown(now_s))

    def _cause(self, part: CopiedPartition, now_s: float) -> FoundReason | None:
        copier = part.copier
        state = copier.state
        if type(state) is Copying and not (state.cause or part.stalled or copier.is_paused):
            may_be_silent = now_s - part.reading.answered_at_s > SILENT_S  # a first look, without settings
            if not may_be_silent and part.lacks_leader is None and not copier.is_end_unverified:
                return None  # nearly always
        if isinstance(state, _ENDING):
            return None
        is_failing = isinstance(state, Waiting) or (type(state) is Copying and copier.is_failing)
        starting = ""
        if isinstance(state, Reconciling):
            starting = copier.kind_of_reason or state.label
        elif type(state) is Copying and copier.is_end_unverified:
            starting = LOOKED_AT
        pause = self._pause(part) if copier.is_paused else None
        seen = PartitionFacts(
            paused="" if pause is None else pause.who_and_why,
            is_paused_alone=pause is not None and pause.partition is not None,
            gap=AT_A_GAP if isinstance(state, Stopped) else "",
            failure=_failure(part) if is_failing and state.cause else "",
            reported=state.reported if is_failing else "",
            refused_with=state.refused_with if is_failing else 0,
            lacks_leader=part.lacks_leader or "",
            position_problem=f"{NOT_STORED}: {part.position_problem}" if part.waits_for_position else "",
            starting=starting,
            stalled=part.stalled,
            source_silent=self._why_silent(part, now_s),
        )
        return cause_of(seen, self._flow, part.source_topic, part.target_topic)

    def _why_silent(self, part: CopiedPartition, now_s: float) -> str:
        """Return why reads of a partition are not answered; empty if they are, or if this worker delays them itself."""
        after_s = SILENT_S + self._context.settings.fetch_max_wait_ms / 1000
        if now_s - part.reading.answered_at_s <= after_s or not isinstance(part.copier.state, Copying):
            return ""
        seen = self._circumstances(part)
        if seen.source_problem:
            return seen.source_problem
        if part.reading.current is None or seen.throttled_s > 0 or seen.memory_is_full:
            return ""
        return f"a read has had no answer for more than {after_s:g} s"

    def _say(self, copied: Set[CopiedPartition], now_s: float) -> None:
        """Log partitions that have stood still for a while, and logged topics that are copied again."""
        lines: dict[tuple[str, FoundReason], int] = {}
        due: set[CopiedPartition] = set()
        for part, one in self._standing.items():
            is_due = now_s - one.since_s >= WAITING_REPORT_S and one.found.reason not in _LOGGED_ELSEWHERE
            if is_due:
                due.add(part)
                at = (part.source_topic, one.found)
                lines[at] = lines.get(at, 0) + 1
        for topic, found in lines.keys() - self._logged.keys():
            remedy = {"remedy": found.remedy} if found.remedy else {}
            self._log.warning(
                "partitions.waiting",
                topic=topic,
                partitions=lines[topic, found],
                reason=str(found.reason),
                why=found.why,
                **remedy,
            )
        self._logged = lines
        waited = self._waiting
        self._waiting = {part for part in waited | due if part in self._standing}  # also for what is logged elsewhere
        over = {part.source_topic for part in waited & copied} - {part.source_topic for part in self._waiting}
        for topic in sorted(over):
            self._log.info("partitions.copying", topic=topic)


def _failure(part: CopiedPartition) -> str:
    """Return why the last attempt failed. Without numbers, partitions with the same problem share a cause; but an
    operator who must find a record needs its offset."""
    return part.copier.reason if part.copier.is_blocked else part.copier.kind_of_reason
