"""Holds back requests of a worker, as a frozen process or a blocked network does, and sends them later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from kio.static.protocol import Payload

from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest, ProduceReply, ProduceRequest
from tests.fakes.near_brokers import NearBrokers

Request = FetchRequest | ProduceRequest | Payload


class Gate:
    """Stands between a worker and a cluster (``World.worker``). While shut, requests that ``holds`` names wait."""

    def __init__(self, holds: Callable[[Request], bool] = lambda _: True) -> None:
        self._holds = holds
        self._opened = asyncio.Event()
        self._opened.set()
        self.held = 0

    def shut(self) -> None:
        self._opened.clear()

    def open(self) -> None:
        self._opened.set()

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Gated(self, cluster))

    async def pass_through(self, request: Request) -> None:
        if self._holds(request) and not self._opened.is_set():
            self.held += 1
            await self._opened.wait()


class _Gated(NearBrokers):
    def __init__(self, gate: Gate, cluster: Brokers) -> None:
        self._gate = gate
        self._cluster = cluster

    async def send(
        self, broker: BrokerId, request: Request, *, channel: str = "control"
    ) -> FetchReply | ProduceReply | Payload:
        await self._gate.pass_through(request)
        return await self._cluster.send(broker, request, channel=channel)
