"""Stands between a worker and a cluster: counts and reorders requests, and kills the worker beside any."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, Literal

from tests.fakes.broker.broker_model import ClusterModel
from tests.simulation.incarnation import Incarnation
from tests.simulation.schedule import End

_READS: Final = frozenset(
    {
        "Fetch",
        "Metadata",
        "ListGroups",
        "ListOffsets",
        "OffsetFetch",
        "FindCoordinator",
        "DescribeConfigs",
        "DescribeGroups",
        "DescribeAcls",
        "DescribeProducers",
        "ListTransactions",
        "OffsetForLeaderEpoch",
        "ApiVersions",
    }
)
_HELD_S: Final = (0.001, 0.3)


class Effects:
    """The requests of one incarnation that change something, on both clusters, and the one at which it dies."""

    def __init__(self, incarnation: Incarnation, end: End, nth: int, die: Callable[[str], None]) -> None:
        self._incarnation = incarnation
        self._end = end
        self._nth = nth
        self._die = die
        self.count = 0

    def begins(self, api: str) -> bool:
        """Count a request; return whether it is the one at which this incarnation ends."""
        if api in _READS:
            return False
        self.count += 1
        return self.count == self._nth

    def die_if(self, end: End) -> None:
        if self._end is end:
            self._die(end.value)


class FaultyConnection:
    """One worker's connections to one cluster: a ``Brokers``. Each incarnation has its own."""

    def __init__(
        self,
        cluster: ClusterModel,
        incarnation: Incarnation,
        effects: Effects,
        *,
        channels: str,
        timeout_s: float,
        reorder: float,
        rng: random.Random,
        counts: Counter[str],
        trace: blake2b,
    ) -> None:
        self._cluster = cluster
        self._incarnation = incarnation
        self._effects = effects
        self._channels = channels
        self._timeout_s = timeout_s
        self._reorder = reorder
        self._rng = rng
        self._counts = counts
        self._trace = trace
        self._outside = contextvars.copy_context()
        self._locks: defaultdict[tuple[str, int, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._passed: Counter[str] = Counter()

    async def send(self, broker: Any, request: Any, *, channel: str = "control") -> Any:
        """See ``Brokers.send``."""
        api = type(request).__name__.removesuffix("Request")
        loop = asyncio.get_running_loop()
        if channel.startswith("pool-"):
            self._counts["stripe read"] += 1
        fatal = self._effects.begins(api)
        if fatal:
            self._effects.die_if(End.CRASH_BEFORE)
        await self._while_dead()
        await self._take_turn("requests", broker, channel)
        sending = loop.create_task(
            self._cluster.send(
                broker,
                request,
                channel=f"{self._channels} {channel}",
                timeout_s=min(self._timeout_s, self._cluster.request_timeout_s),
            ),
            name=f"incarnation {self._incarnation.number} {api}",
            context=self._outside,
        )
        if fatal:
            loop.call_soon(self._effects.die_if, End.CRASH_SENT, context=self._outside)  # after the task's first step
        outcome = "cancelled"
        try:
            reply = await sending
            outcome = "answered"
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            line = f"{loop.time()!r} {self._channels} {self._cluster.name} {broker} {channel} {api} {outcome}\n"
            self._trace.update(line.encode())
        if fatal:
            self._effects.die_if(End.CRASH_ANSWERED)
        await self._while_dead()
        await self._take_turn("replies", broker, channel)
        return reply

    def round_trip_s(self, broker: Any) -> float | None:
        """See ``Brokers.round_trip_s``."""
        return self._cluster.round_trip_s(broker)

    def close_channel(self, broker: Any, channel: str) -> None:
        """See ``Brokers.close_channel``."""
        self._cluster.close_channel(broker, f"{self._channels} {channel}")

    async def _while_dead(self) -> None:
        if self._incarnation.dead:
            await asyncio.get_running_loop().create_future()  # a killed worker waits until its cancellation is complete

    async def _take_turn(self, what: Literal["requests", "replies"], broker: int, channel: str) -> None:
        """Pass in the order of the channel; sometimes late, so that other channels overtake."""
        async with self._locks[what, broker, channel]:
            if self._reorder and self._rng.random() < self._reorder:
                before = self._passed[what]
                await asyncio.sleep(self._rng.uniform(*_HELD_S))
                self._counts[f"{what} reordered"] += self._passed[what] > before
            self._passed[what] += 1
