"""What partitions that are behind wait for, found by looking at them once a second. Pure.

A look tells what a partition waits for at this moment, and the looks of the last ten seconds how often it was what.
Times that lanes know anyway, such as how long a broker took for an answer, are summed. So copying itself pays next to
nothing for it: no clock is read for a batch.

MirrorMaker 2 does not tell what limits it.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, NamedTuple

from mm2py.metrics.counters import CpuTime
from mm2py.records.flow_waits import FlowWaits, Wait

KEPT_S: Final = 10.0
"""For how long a look counts."""


class BrokerTimes:
    """How long the brokers of one cluster took to answer a flow, and for how long their quotas delayed it."""

    __slots__ = ("_throttled_s", "_throttled_until_s", "answered_s", "answers")

    def __init__(self) -> None:
        self.answers = 0
        self.answered_s = 0.0
        """The sum over all answers."""
        self._throttled_s = 0.0
        self._throttled_until_s = 0.0

    def answered(self, took_s: float) -> None:
        """Count an answer."""
        self.answers += 1
        self.answered_s += took_s

    def throttled(self, throttle_ms: int, now_s: float) -> None:
        """Count the delay that an answer names. Delays of several brokers at the same time count once."""
        if throttle_ms > 0:
            until_s = now_s + throttle_ms / 1000
            self._throttled_s += max(0.0, until_s - max(now_s, self._throttled_until_s))
            self._throttled_until_s = max(until_s, self._throttled_until_s)

    def throttled_s(self, now_s: float) -> float:
        """Return for how long there were delays, up to now."""
        return self._throttled_s - max(0.0, self._throttled_until_s - now_s)


class WaitFacts(NamedTuple):
    """What is known of a partition that is behind, at one moment."""

    is_planned: bool
    """What was read of it is being decoded."""
    has_room: bool
    """It may be read: not as much is in flight to the target as may be."""
    rate_s: float
    """How long ``bytes.per.second.max`` delays the next read."""
    memory_is_full: bool
    """A read for its target broker waits for memory."""
    target_is_full: bool
    """Its target broker gets no further request, because enough are under way."""
    is_source_far: bool
    is_target_far: bool


def wait_of(seen: WaitFacts) -> Wait:
    """Return what it waits for. Memory that is full of what the target does not take is the target's fault."""
    target = Wait.TARGET_LINK if seen.is_target_far else Wait.TARGET
    if seen.is_planned:
        return Wait.PLANNING
    if not seen.has_room:
        return target
    if seen.rate_s > 0:
        return Wait.RATE
    if seen.memory_is_full:
        return target if seen.target_is_full else Wait.MEMORY
    return Wait.SOURCE_LINK if seen.is_source_far else Wait.SOURCE


class WaitSums(NamedTuple):
    """Sums since the flow was started, at one moment."""

    at_s: float
    sent_bytes: int
    cpu: CpuTime
    source_throttled_s: float
    source_answers: int
    source_answered_s: float
    target_throttled_s: float
    target_answers: int
    target_answered_s: float


class WaitLooks:
    """The looks of the last seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[WaitSums, Counter[Wait]]] = deque()

    def forget(self) -> None:
        """Forget all: no partition is behind."""
        self._looks.clear()

    def add(self, sums: WaitSums, waits: Counter[Wait]) -> None:
        """Add a look: how many partitions were found to wait for what."""
        self._looks.append((sums, waits))
        while sums.at_s - self._looks[0][0].at_s > KEPT_S:
            self._looks.popleft()

    def told(self, *, behind: int, round_trip_s: float, memory_bytes: int, rebuilds: str) -> FlowWaits | None:
        """Return what heartbeats tell; None: there is only one look. Arguments: see ``FlowWaits``."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0][0], self._looks[-1][0]
        passed_s = last.at_s - first.at_s
        waits = sum((found for _, found in self._looks), Counter[Wait]())
        total = max(1, waits.total())

        def percent(begun: float, ended: float) -> int:
            return max(0, round(100 * (ended - begun) / passed_s))

        def mean_ms(answers: int, answered_s: float) -> int:
            return round(1000 * answered_s / answers) if answers > 0 else 0

        return FlowWaits(
            behind,
            {str(word): round(100 * count / total) for word, count in waits.most_common()},
            min(100, percent(first.source_throttled_s, last.source_throttled_s)),
            min(100, percent(first.target_throttled_s, last.target_throttled_s)),
            percent(first.cpu.used_s, last.cpu.used_s),
            min(100, percent(first.cpu.waited_s, last.cpu.waited_s)),
            round((last.sent_bytes - first.sent_bytes) / passed_s),
            mean_ms(last.source_answers - first.source_answers, last.source_answered_s - first.source_answered_s),
            mean_ms(last.target_answers - first.target_answers, last.target_answered_s - first.target_answered_s),
            round(1000 * round_trip_s),
            memory_bytes,
            rebuilds,
        )
