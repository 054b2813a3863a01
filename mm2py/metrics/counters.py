"""What one worker counts apart from its partitions' records: gaps, stalled partitions, delay of its event loop."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from mm2py.flow import Flow
from mm2py.metrics.windows import Window


class CpuTime(NamedTuple):
    """What a process has had of its machine's cores since it started, in seconds."""

    used_s: float = 0.0
    """By all its threads."""
    waited_s: float = 0.0
    """In which its event loop could have run, and no core was free. 0 if the system does not count it."""


class Metrics:
    """The counters of one process. They begin at 0 when it starts."""

    def __init__(self) -> None:
        self.loop_delay_s = Window()
        """How late the event loop ran callbacks that were due, in seconds. Empty while nothing measures it."""
        self.cpu = CpuTime()
        """Zeros while nothing measures it."""
        self._gaps: Counter[tuple[Flow, str, str]] = Counter()
        self._stalled: dict[Flow, int] = {}

    def count_gap(self, flow: Flow, topic: str, kind: str) -> None:
        self._gaps[flow, topic, kind] += 1

    def set_stalled(self, flow: Flow, partitions: int) -> None:
        """Set the number of partitions in which records wait and none was acknowledged for ``stall.timeout.ms``."""
        self._stalled[flow] = partitions

    def gaps(self, flow: Flow, topic: str, kind: str) -> int:
        """Return how many gaps of a kind were found in a topic, counted for each partition."""
        return self._gaps[flow, topic, kind]

    def all_gaps(self) -> tuple[tuple[str, str, str, int], ...]:
        """Return (flow, topic, kind, count) of all gaps."""
        return tuple((str(flow), topic, str(kind), count) for (flow, topic, kind), count in self._gaps.items())

    def stalled(self, flow: Flow) -> int:
        return self._stalled.get(flow, 0)
