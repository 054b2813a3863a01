"""A worker that was asleep or cut off for long writes nothing more under its old id: the fence may be over (H4)."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from mm2py.kafka.port import BrokerId, Brokers, FetchRequest, ProduceRequest
from tests.fakes.virtual_time import DozingClock, run_virtual
from tests.scenarios.gate import Gate, Request
from tests.scenarios.two_lives import Source, all_copied, said, until
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

EXPIRY_S = 160
SHORT_EXPIRY = {
    "producer.id.expiration.ms": str(EXPIRY_S * 1000),
    "producer.id.expiration.check.interval.ms": "1000",
}


def make(seed: int) -> tuple[World, Source, Witness]:
    world = World(seed, broker_config=SHORT_EXPIRY)
    world.source.create_topic("orders", 1)
    return world, Source(world), Witness(world, "orders")


class Counted:
    """Counts what is produced through it."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.status = Gate(_reads_status)
        self.produced = 0

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _CountedCluster(self, self.status(self.gate(cluster))))


def _reads_status(request: Request) -> bool:
    return isinstance(request, FetchRequest) and request.topics[0].name == "mm2-status.A.internal"


class _CountedCluster:
    def __init__(self, counted: Counted, cluster: Brokers) -> None:
        self._counted = counted
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        self._counted.produced += isinstance(request, ProduceRequest)
        return await self._cluster.send(broker, request, channel=channel)


@pytest.mark.parametrize("suspended", [True, False], ids=["suspended machine", "stopped process"])
def test_a_worker_asleep_until_the_fence_is_over_sends_nothing_when_it_wakes(suspended: bool) -> None:
    async def scenario() -> None:
        world, source, witness = make(1)
        source.fill(10)
        zombie, clock = Counted(), DozingClock(world.clock)
        async with world.worker(through=zombie, clock=clock):
            await all_copied(world)
            await asyncio.sleep(5)
            zombie.gate.shut()
            zombie.status.shut()  # what would tell it of a successor comes late
            await asyncio.sleep(5)
            async with world.worker():
                await asyncio.sleep(5)
                source.fill(10)
                await all_copied(world)
                await asyncio.sleep(2 * EXPIRY_S)
                clock.doze(2.0 * EXPIRY_S, suspended=suspended)
                before = zombie.produced
                zombie.gate.open()
                await asyncio.sleep(3)
                assert zombie.produced == before
                zombie.status.open()
                await until(lambda: bool(said(world, "flow.refused", "has taken it over")), world)
                source.fill(10)
                await all_copied(world)
        assert witness.findings() == []

    run_virtual(scenario(), limit_s=3000)


def test_whoever_sleeps_less_than_a_quarter_of_that_goes_on() -> None:
    async def scenario() -> None:
        world, source, witness = make(2)
        source.fill(10)
        clock = DozingClock(world.clock)
        async with world.worker(clock=clock):
            await all_copied(world)
            for _ in range(5):
                clock.doze(EXPIRY_S / 4 - 5, suspended=True)
                source.fill(10)
                await all_copied(world)
                await asyncio.sleep(2)
        assert len(said(world, "flow.ready")) == 1
        assert not said(world, "flow.failed")
        assert witness.findings() == []

    run_virtual(scenario(), limit_s=3000)


@pytest.mark.parametrize(("away_s", "lives"), [(EXPIRY_S / 4 - 20, 1), (EXPIRY_S / 4 + 60, 2)])
def test_a_worker_that_did_not_reach_the_target_for_a_quarter_of_that_comes_back_as_a_new_one(
    away_s: float, lives: int
) -> None:
    async def scenario() -> None:
        world, source, witness = make(3)
        source.fill(10)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(5)
            world.target.cut_broker(1)
            source.fill(10)
            await asyncio.sleep(away_s)
            world.target.heal()
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(5)
        assert len(said(world, "flow.ready")) == lives
        assert len(said(world, "flow.failed", "acknowledged no request for")) == lives - 1
        assert witness.findings() == []

    run_virtual(scenario(), limit_s=3000)


def test_an_idle_flow_stays_in_touch() -> None:
    async def scenario() -> None:
        world, source, _ = make(4)
        source.fill(10)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(3 * EXPIRY_S)
        assert len(said(world, "flow.ready")) == 1

    run_virtual(scenario(), limit_s=3000)
