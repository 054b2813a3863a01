"""The heartbeat connector of a pair of clusters, together with its one task.

Answers to MirrorHeartbeatConnector of Apache Kafka's Connect, mirror. It only needs the target: a pair emits whether
its flow is enabled or not, and whether its source can be reached or not. It has connections of its own, waits for
whatever is missing, and so never disturbs a flow that copies.
"""

from __future__ import annotations

import asyncio
import random

from structlog.typing import FilteringBoundLogger

from connectors.heartbeat.task import HeartbeatTask
from mm2py.clock import Clock
from mm2py.config.settings import HeartbeatSettings
from mm2py.kafka.port import Brokers


class HeartbeatConnector:
    """Makes the topic, and emits if the settings say so."""

    def __init__(
        self,
        settings: HeartbeatSettings,
        brokers: Brokers,
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``brokers`` are those of the target."""
        self._emits = settings.interval_s is not None
        self._task = HeartbeatTask(settings, brokers, clock=clock, rng=rng, log=log)
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled or drained; it never fails on account of a cluster."""
        working = asyncio.create_task(self._work(), name="heartbeats")
        stopped = asyncio.create_task(self._stopped.wait(), name="heartbeats stop")
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, stopped):
                task.cancel()
            await asyncio.gather(working, stopped, return_exceptions=True)

    @property
    def leaves_doubt(self) -> bool:
        """What it writes stands for itself, whenever it comes."""
        return False

    async def drain(self) -> None:
        """Emit no more."""
        self._stopped.set()

    def status(self) -> None:
        """Heartbeats that are emitted say nothing of their own flow: they prove those that copy them."""

    async def _work(self) -> None:
        await self._task.prepare()
        if self._emits:
            await self._task.run()
        else:
            await self._stopped.wait()
