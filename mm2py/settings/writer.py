"""Writes to the configs topic of a flow under a producer id of its own, which is asked for when there is something.

Most workers never write there: they begin by what stands there already.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.kafka.topic_writer import TopicWriter
from mm2py.records.batch import NewRecord


class ConfigWriter:
    """A ``TopicWriter`` of the configs topic that begins when it is first needed."""

    def __init__(
        self, settings: FlowSettings, brokers: Brokers, name: str, *, clock: Clock, rng: random.Random
    ) -> None:
        """``brokers`` are those of the target; ``name`` differs between all who write, in any life of them."""
        self._settings = settings
        self._brokers = brokers
        self._name = f"mm2py-{settings.group}-{name}"
        self._clock = clock
        self._rng = rng
        self._writer: TopicWriter | None = None
        self._beginning = asyncio.Lock()

    async def begin(self) -> None:
        """Return when it may write. Raises: as ``Incarnation.start``."""
        async with self._beginning:
            if self._writer is None:
                self._writer = await self._begin()

    async def write(self, records: Mapping[int, Sequence[NewRecord]]) -> None:
        """Append records. Raises: as ``TopicWriter.write``."""
        assert self._writer is not None, "it was not begun"  # noqa: S101
        await self._writer.write(records)

    async def _begin(self) -> TopicWriter:
        incarnation = Incarnation(
            self._brokers,
            lambda _: self._name,
            clock=self._clock,
            rng=self._rng,
            report=lambda _: None,
            waiting=lambda _: None,
        )
        await incarnation.start()
        return TopicWriter(
            self._brokers,
            self._settings.configs_topic,
            incarnation,
            rng=self._rng,
            timeout_ms=int(self._settings.target_request_timeout_s * 500),
            channel="configs",
        )
