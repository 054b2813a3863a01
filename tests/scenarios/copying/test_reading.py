"""When a flow reads: nothing waits for more unless linger.ms asks for it, and idle partitions delay no other."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.virtual_time import run_virtual
from tests.scenarios.world import World

ARRIVAL_MOST_S = 0.2
"""Two round trips on the models' network, and the clock steps of this test."""


def _world(*topics: str, **extra: str) -> World:
    world = World(11, extra=extra)
    for topic in topics:
        world.source.create_topic(topic, 1)
        world.source.append(topic, 0, [b"first"])
    return world


async def _arrival_s(world: World, topic: str) -> float:
    """Append a record and return how long it takes to the target."""
    wanted = len(world.target.records(f"A.{topic}", 0)) + 1
    begun_s = world.clock.monotonic()
    world.source.append(topic, 0, [b"x"])
    async with asyncio.timeout(60):
        while len(world.target.records(f"A.{topic}", 0)) < wanted:
            await asyncio.sleep(0.01)
    return world.clock.monotonic() - begun_s


@pytest.mark.parametrize("rests_s", [0.0, 1.0, 9.9, 10.1, 61.0])
async def test_a_record_is_copied_at_once_however_long_its_partition_was_idle(rests_s: float) -> None:
    world = _world("quiet", "busy", "idle")
    async with world.worker():
        await world.copied({name: f"A.{name}" for name in ("quiet", "busy", "idle")})
        stop = asyncio.Event()

        async def keep_busy() -> None:
            while not stop.is_set():
                world.source.append("busy", 0, [b"b"])
                await asyncio.sleep(0.7)

        busy = asyncio.create_task(keep_busy())
        for _ in range(3):
            await asyncio.sleep(rests_s)
            assert await _arrival_s(world, "quiet") < ARRIVAL_MOST_S
        stop.set()
        await busy


async def test_idle_partitions_are_not_requested_again_with_every_record_of_a_busy_one() -> None:
    world = _world(*[f"idle{number}" for number in range(20)], "busy")
    async with world.worker():
        await world.copied({name: f"A.{name}" for name in ("busy", "idle19")})
        await asyncio.sleep(30)
        begun = world.source.counts["partitions asked for"]
        for _ in range(200):
            assert await _arrival_s(world, "busy") < ARRIVAL_MOST_S
        asked = world.source.counts["partitions asked for"] - begun
        assert asked < 200 * 5


async def test_idle_partitions_are_read_together_twice_a_second() -> None:
    """Once the two reads for idle partitions overlapped, each stayed brief: forty reads a second brought nothing."""
    world = _world(*[f"idle{number}" for number in range(20)])
    async with world.worker():
        await world.copied({"idle19": "A.idle19"})
        await asyncio.sleep(20)
        begun = world.source.counts["request Fetch"]
        await asyncio.sleep(30)
        assert world.source.counts["request Fetch"] - begun < 30 * 3


@pytest.mark.parametrize(("pause_s", "least", "most"), [(0.0005, 100, 550), (0.02, 45, 60)])
@pytest.mark.virtual_time(limit_s=600)
async def test_a_stream_of_records_is_not_read_one_by_one(pause_s: float, least: int, most: int) -> None:
    """50 reads a second suffice. Once, 2,000 records a second took 2,000 reads, each dearer than its record."""
    world = World(11, latency_s=(0.0001, 0.0002))
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"first"])
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        begun, begun_s = world.source.counts["partitions asked for"], world.clock.monotonic()
        while world.clock.monotonic() < begun_s + 1:
            world.source.append("orders", 0, [b"x"])
            await asyncio.sleep(pause_s)
        assert least <= world.source.counts["partitions asked for"] - begun <= most
        await world.copied({"orders": "A.orders"})


def test_linger_collects_records_that_come_meanwhile() -> None:
    async def arrivals(**extra: str) -> int:
        """Return how many times the remote topic grew while 40 records came in over two seconds."""
        world = _world("orders", **extra)
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            seen = {1}
            for number in range(400):
                if number < 200 and number % 5 == 0:
                    world.source.append("orders", 0, [b"x"])
                await asyncio.sleep(0.01)
                seen.add(len(world.target.records("A.orders", 0)))
            assert max(seen) == 41
            return len(seen) - 1

    assert run_virtual(arrivals(), limit_s=600) >= 30
    assert run_virtual(arrivals(**{"B.producer.linger.ms": "1000"}), limit_s=600) <= 4
