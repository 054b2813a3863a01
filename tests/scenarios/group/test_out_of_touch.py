"""A worker that was asleep or cut off for long writes nothing under its old id: its fence may have expired.

See docs/broker-facts.md#h4.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.virtual_time import DozingClock
from tests.scenarios.gate import Gate
from tests.scenarios.two_incarnations import Source, all_copied, said, until, written
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3000)

EXPIRY_S = 160
SHORT_EXPIRY = {
    "producer.id.expiration.ms": str(EXPIRY_S * 1000),
    "producer.id.expiration.check.interval.ms": "1000",
}


def make(seed: int) -> tuple[World, Source, Witness]:
    world = World(seed, broker_config=SHORT_EXPIRY)
    world.source.create_topic("orders", 1)
    return world, Source(world), Witness(world, "orders")


@pytest.mark.parametrize("suspended", [True, False], ids=["suspended machine", "stopped process"])
async def test_a_worker_asleep_until_its_fence_has_expired_sends_nothing_when_it_wakes(suspended: bool) -> None:
    world, source, witness = make(1)
    source.fill(10)
    zombie, clock = Gate(), DozingClock(world.clock)
    async with world.worker(through=zombie, clock=clock):
        await all_copied(world)
        await asyncio.sleep(5)
        its_own = {producer for producer, _ in written(world)}
        zombie.shut()
        await asyncio.sleep(5)
        async with world.worker():
            await asyncio.sleep(5)
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(2 * EXPIRY_S)
            clock.doze(2.0 * EXPIRY_S, suspended=suspended)
            before = written(world)
            zombie.open()
            await until(lambda: bool(said(world, "group.rejoining")), world)
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(5)
            assert not its_own & {producer for producer, _ in written(world) - before}
    assert witness.findings() == []


@pytest.mark.parametrize(("away_s", "incarnations"), [(EXPIRY_S / 4 - 20, 1), (EXPIRY_S / 4 + 60, 2)])
async def test_a_worker_cut_off_from_the_target_for_a_quarter_of_that_time_returns_as_a_new_incarnation(
    away_s: float, incarnations: int
) -> None:
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
    assert len(said(world, "flow.ready")) == incarnations
    assert len(said(world, "group.rejoining", "acknowledged no heartbeat for")) == incarnations - 1
    assert witness.findings() == []
