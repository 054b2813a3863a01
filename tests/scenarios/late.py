"""A network that delays a request until long after its sender has given it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from kio.static.protocol import Payload

from mm2py.kafka.errors import RequestTimedOut
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, ProduceReply, ProduceRequest
from tests.fakes.near_brokers import NearBrokers
from tests.fakes.network_model import frozen
from tests.scenarios.gate import Request


class StuckRequests:
    """Stands between a worker and a cluster (``World.worker``), and keeps the next ``wanted`` requests."""

    def __init__(self, holds: Callable[[Request], bool]) -> None:
        self._holds = holds
        self.wanted = 0
        self._stuck: list[tuple[Brokers, BrokerId, ProduceRequest]] = []

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Stuck(self, cluster))

    def keep(self, cluster: Brokers, broker: BrokerId, request: Request) -> bool:
        if not self.wanted or not isinstance(request, ProduceRequest) or not self._holds(request):
            return False
        self.wanted -= 1
        self._stuck.append((cluster, broker, frozen(request)))
        return True

    async def arrive(self) -> list[int]:
        """Deliver the kept requests; return what the partitions of all of them answer."""
        stuck, self._stuck = self._stuck, []
        replies = [await cluster.send(broker, request, channel="late") for cluster, broker, request in stuck]
        return [answer.error_code for reply in replies for answer in reply.partitions]


class _Stuck(NearBrokers):
    def __init__(self, stuck: StuckRequests, cluster: Brokers) -> None:
        self._stuck = stuck
        self._cluster = cluster

    async def send(
        self, broker: BrokerId, request: Request, *, channel: str = "control"
    ) -> FetchReply | ProduceReply | Payload:
        if self._stuck.keep(self._cluster, broker, request):
            raise RequestTimedOut("the broker", "Produce", 1.0)
        return await self._cluster.send(broker, request, channel=channel)
