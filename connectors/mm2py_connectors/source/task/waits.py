"""Looks once a second at what the partitions that are behind wait for; heartbeats and metrics tell it.

MirrorMaker 2 does not tell what limits it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from mm2py.copying.waits import WaitLooks, WaitSums
from mm2py.records.flow_waits import FlowWaits
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.task.lags import Lags
from mm2py_connectors.source.task.lanes import Lanes

LOOKED_AT_MOST: Final = 100
"""A look takes the time of the event loop that copies. Of more partitions, each look takes others."""


class Waits:
    """Looks at the partitions of one task that are behind."""

    def __init__(self, context: FlowContext, lanes: Lanes, lags: Lags) -> None:
        self.told: FlowWaits | None = None
        """What is known; None: nothing yet."""
        self._context = context
        self._lanes = lanes
        self._lags = lags
        self._looks = WaitLooks()
        self._round = 0

    def look(self) -> None:
        """Look once. The task does this every second."""
        behind = self._lags.behind
        if not behind:
            self._looks.forget()
            self.told = None if behind is None else FlowWaits()
            return
        step = -(-len(behind) // LOOKED_AT_MOST)
        self._round += 1
        parts = behind[self._round % step :: step]
        waits, round_trip_s = self._lanes.waits(parts)
        self._looks.add(self._sums(), waits)
        made: Counter[str] = Counter()
        for part in parts:
            made[""] += part.copier.tally.passed
            made.update(part.copier.tally.rebuilt)
        ((most, _),) = made.most_common(1)
        limit_bytes = self._context.memory.limit_bytes
        told = self._looks.told(
            behind=len(behind), round_trip_s=round_trip_s, memory_bytes=limit_bytes, rebuilds=str(most)
        )
        self.told = told or self.told

    def _sums(self) -> WaitSums:
        now_s, source, target = self._context.clock.monotonic(), self._lanes.source_times, self._lanes.target_times
        return WaitSums(
            now_s,
            self._lanes.sent_bytes,
            self._context.metrics.cpu,
            source.throttled_s(now_s),
            source.answers,
            source.answered_s,
            target.throttled_s(now_s),
            target.answers,
            target.answered_s,
        )
