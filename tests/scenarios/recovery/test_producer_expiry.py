"""How long the target remembers producers decides what may be resent (docs/broker-facts.md#c1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from mm2py.kafka.errors import RequestTimedOut
from mm2py.kafka.messages import DescribeConfigsRequest
from mm2py.kafka.port import BrokerId, Brokers, ProduceRequest
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.gate import Request
from tests.scenarios.two_incarnations import Source, make, said, until
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

MINUTE_MS = 60_000
TOPICS = {"orders": "A.orders"}


class Network:
    """Stands between a worker and a cluster (``World.worker``). Loses answers on demand."""

    def __init__(self) -> None:
        self.silent_questions = 0
        """The number of requests for the setting that get no answer."""
        self.denies = False
        """The setting may not be read."""
        self.on_lost_copy: Callable[[], None] | None = None
        """The next copy to partition 0 is stored, this is called, and the answer is lost."""

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Link(self, cluster))


class _Link(NearBrokers):
    def __init__(self, network: Network, cluster: Brokers) -> None:
        self._network = network
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        network = self._network
        asks = isinstance(request, DescribeConfigsRequest) and "producer.id.expiration.ms" in str(request)
        if asks and network.silent_questions:
            network.silent_questions -= 1
            raise RequestTimedOut("the broker", "DescribeConfigs", 1.0)
        reply: Any = await self._cluster.send(broker, request, channel=channel)
        if asks and network.denies:
            denied = ErrorCode.cluster_authorization_failed
            return replace(reply, results=tuple(replace(one, error_code=denied, configs=()) for one in reply.results))
        if network.on_lost_copy is not None and _copies_to_first(request):
            network.on_lost_copy()
            network.on_lost_copy = None
            raise RequestTimedOut("the broker", "Produce", 1.0)
        return reply


def _copies_to_first(request: Request) -> bool:
    return isinstance(request, ProduceRequest) and any(
        topic.name == "A.orders" and any(part.partition == 0 for part in topic.partitions) for topic in request.topics
    )


@pytest.mark.parametrize("silent", [0, 1, 5])
@pytest.mark.virtual_time(limit_s=6000)
async def test_an_unanswered_request_for_the_setting_is_repeated_and_no_default_is_assumed_meanwhile(
    silent: int,
) -> None:
    """The target forgets producers after ten minutes, and the request for that setting is lost once. If a day were
    assumed, a batch nine minutes old would be resent after a restart of the broker, and stored a second time.
    """
    world = World(
        1,
        nodes=3,
        extra={
            "offset.storage.replication.factor": "3",
            "status.storage.replication.factor": "3",
            "replication.factor": "1",
        },
        broker_config={"producer.id.expiration.ms": str(10 * MINUTE_MS)},
    )
    world.source.create_topic("orders", 3)
    source, witness, network = Source(world), Witness(world, "orders"), Network()
    network.silent_questions = silent
    for number in range(3):
        source.fill(4, partition=number, age_ms=8 * MINUTE_MS)
    async with world.worker(through=network):
        await world.copied(TOPICS)
        await asyncio.sleep(3)
        assert network.silent_questions == 0
        leader = world.target.topics["A.orders"].partitions[0].leader
        assert leader is not None
        network.on_lost_copy = lambda: world.target.stop_broker(leader)
        source.fill(3, partition=0, age_ms=10 * MINUTE_MS - 10_000)
        await until(lambda: network.on_lost_copy is None, world)
        await asyncio.sleep(15)
        world.target.start_broker(leader)
        await world.copied(TOPICS)
        await asyncio.sleep(5)
    assert witness.findings() == []
    assert not said(world, "producer_expiry.assumed")


@pytest.mark.virtual_time(limit_s=600)
async def test_where_the_setting_may_not_be_read_the_log_names_the_assumed_value() -> None:
    world, source, _ = make(2)
    source.fill(3)
    network = Network()
    network.denies = True
    async with world.worker(through=network):
        await world.copied(TOPICS)
    lines = said(world, "producer_expiry.assumed")
    assert lines
    for line in lines:
        assert "assumed_ms=86400000" in line
        assert "CLUSTER_AUTHORIZATION_FAILED" in line
        assert "Grant DESCRIBE_CONFIGS on the cluster" in line
