"""Looks at the lag of a task's partitions every few seconds, and asks how long the source keeps what is behind.

What is seen stays in each partition (``LagTrend``). The position keeper stores it with the position, and the metrics
show it. MirrorMaker 2 does not look at its lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.errors import Mm2Error
from mm2py.kafka.admin import describe_topic_configs
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import TopicPartition
from mm2py.topics.retention import RETENTION_KEYS, Retention, retention_of
from mm2py_connectors.source.context import FlowContext

LOOK_EVERY_S: Final = 5.0
LOOKED_AT_ONCE: Final = 500
"""So many partitions take less than a millisecond. Between two such parts others run."""
RETENTION_KEPT_S: Final = 60.0
TOPICS_ASKED_MOST: Final = 200
"""The source is asked for at most so many topics: those that are behind for the longest time."""
ASK_PATIENCE_S: Final = 10.0


class Lags:
    """Looks at the lags of one task's partitions."""

    def __init__(self, context: FlowContext, partitions: Mapping[TopicPartition, CopiedPartition]) -> None:
        """Make one; ``run`` starts it. ``partitions`` are those that are copied; it may change meanwhile."""
        self.retentions: Mapping[str, Retention] = {}
        """How long the source keeps the records of topics that are behind, as far as it tells."""
        self.behind: Sequence[CopiedPartition] | None = None
        """The partitions that were behind at the last look; None before the first."""
        self._context = context
        self._partitions = partitions
        self._clock = context.clock
        self._asked: frozenset[str] = frozenset()
        self._asked_at_s = float("-inf")

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            parts = list(self._partitions.values())
            for at in range(0, len(parts), LOOKED_AT_ONCE):
                now_s, now_ms = self._clock.monotonic(), self._clock.wall_ms()
                for part in parts[at : at + LOOKED_AT_ONCE]:
                    part.look_at_lag(now_s, now_ms)
                await asyncio.sleep(0)
            self.behind = [part for part in parts if part.lag_trend.behind_since_ms is not None]
            await self._ask(self._topics_behind(self.behind))

    def _topics_behind(self, parts: Sequence[CopiedPartition]) -> list[str]:
        since: dict[str, int] = {}
        for part in parts:
            behind_ms = part.lag_trend.behind_since_ms
            if behind_ms is not None:
                since[part.source_topic] = min(behind_ms, since.get(part.source_topic, behind_ms))
        return sorted(since, key=lambda topic: (since[topic], topic))[:TOPICS_ASKED_MOST]

    async def _ask(self, topics: list[str]) -> None:
        """Ask for topics that were not asked for, or for all after a while. What is not answered is not known."""
        now_s = self._clock.monotonic()
        if self._asked.issuperset(topics) and (not topics or now_s - self._asked_at_s < RETENTION_KEPT_S):
            return
        self._asked, self._asked_at_s = frozenset(topics), now_s
        try:
            async with asyncio.timeout(ASK_PATIENCE_S):
                answers = await describe_topic_configs(
                    self._context.source.brokers, topics, keys=RETENTION_KEYS, channel="sync"
                )
        except (Mm2Error, TimeoutError):  # copying meets the same trouble, and tells of it
            self.retentions = {}
            return
        found: dict[str, Retention] = {}
        for topic, answer in answers.items():
            if not isinstance(answer, BrokerRefused):
                told = retention_of({one.name: one.value for one in answer})
                if told is not None:
                    found[topic] = told
        self.retentions = found
