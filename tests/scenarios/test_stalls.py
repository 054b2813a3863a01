"""A partition that stands still is told after ``stall.timeout.ms``, with what it waits for, and when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.fakes.virtual_time import run_virtual
from tests.scenarios.world import World

MINUTE_S, HOUR_S = 60.0, 3600.0


def lines(world: World, event: str) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if f" {event} " in line]


async def until(condition: Callable[[], bool], *, deadline_s: float = 120.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.1)


def world_with(*topics: str, partitions: int = 1, extra: dict[str, str] | None = None, nodes: int = 1) -> World:
    world = World(1, nodes=nodes, extra=extra)
    for topic in topics:
        world.source.create_topic(topic, partitions)
        for number in range(partitions):
            world.source.append(topic, number, [b"1"])
    return world


def stalled(world: World) -> int:
    return world.metrics.stalled(world.settings.flow)


def test_a_target_that_is_gone_stalls_what_has_records_waiting_and_nothing_else() -> None:
    async def scenario() -> None:
        world = world_with("orders", "idle", partitions=3)
        async with world.worker() as herder:
            await world.copied({"orders": "A.orders", "idle": "A.idle"})
            (node,) = world.target.alive
            world.target.stop_broker(node)
            for number in range(2):
                world.source.append("orders", number, [b"2"])
            await asyncio.sleep(25)
            assert not lines(world, "partition.stalled")
            await until(lambda: bool(lines(world, "partition.stalled")), deadline_s=15)
            await asyncio.sleep(10 * MINUTE_S)
            (line,) = lines(world, "partition.stalled")
            assert "topic=orders" in line and "partitions=2" in line
            assert "cannot be reached" in line or "has no leader" in line
            assert stalled(world) == 2
            orders = next(topic for topic in herder.status()[0].topics if topic.topic == "orders")
            assert any(problem.startswith("stalled: ") for problem in orders.problems)
            world.target.start_broker(node)
            await until(lambda: bool(lines(world, "partition.moving")))
            assert "partitions=2" in lines(world, "partition.moving")[0]
            assert stalled(world) == 0

    run_virtual(scenario(), limit_s=HOUR_S)


def test_nothing_to_copy_is_no_stall_however_long_it_lasts() -> None:
    async def scenario() -> None:
        world = world_with("orders", extra={"A.consumer.isolation.level": "read_committed"})
        transaction = world.source.transaction()
        transaction.append("orders", 0, [b"of a transaction"])
        transaction.abort()
        async with world.worker():
            await asyncio.sleep(2 * MINUTE_S)
            assert not lines(world, "partition.stalled")

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_transaction_that_nobody_ends_is_named_as_what_hides_the_records_behind_it() -> None:
    async def scenario() -> None:
        world = world_with("orders", partitions=2, extra={"A.consumer.isolation.level": "read_committed"})
        transaction = world.source.transaction()
        transaction.append("orders", 0, [b"of a transaction that stays open"])
        async with world.worker():
            await asyncio.sleep(25)
            assert not lines(world, "partition.stalled")
            await until(lambda: bool(lines(world, "partition.stalled")), deadline_s=15)
            await asyncio.sleep(10 * MINUTE_S)
            (line,) = lines(world, "partition.stalled")
            assert "a transaction on the source has not ended" in line and "partitions=1" in line
            transaction.abort()
            await until(lambda: bool(lines(world, "partition.moving")))
            assert stalled(world) == 0

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_record_that_cannot_be_copied_is_named_as_the_reason() -> None:
    async def scenario() -> None:
        world = world_with("orders", extra={"sync.topic.configs.enabled": "false", "stall.timeout.ms": "120000"})
        world.target.create_topic("A.orders", 1, {"max.message.bytes": "1000"})
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            begun_s = world.clock.monotonic()
            world.source.append("orders", 0, [b"x" * 5_000])
            await until(lambda: bool(lines(world, "partition.stalled")), deadline_s=5 * MINUTE_S)
            assert 120 <= world.clock.monotonic() - begun_s < 125, "stall.timeout.ms counts"
            assert "cannot be copied" in lines(world, "partition.stalled")[0]

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_limit_that_holds_a_partition_for_long_is_named_as_the_reason() -> None:
    async def scenario() -> None:
        """One batch is read whole, whatever its size; at 50 bytes a second the next has to wait for 40 seconds."""
        world = world_with("orders", extra={"bytes.per.second.max": "50"})
        for _ in range(3):
            world.source.append("orders", 0, [b"x" * 2_000])
        async with world.worker():
            await until(lambda: bool(lines(world, "partition.stalled")), deadline_s=5 * MINUTE_S)
            assert "bytes.per.second.max holds reading back" in lines(world, "partition.stalled")[0]
            await until(lambda: bool(lines(world, "partition.moving")), deadline_s=5 * MINUTE_S)

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_partition_that_is_taken_away_is_not_said_to_move() -> None:
    async def scenario() -> None:
        world = world_with("orders", extra={"sync.topic.configs.enabled": "false"})
        world.target.create_topic("A.orders", 1, {"max.message.bytes": "1000"})
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            world.source.append("orders", 0, [b"x" * 5_000])
            await until(lambda: bool(lines(world, "partition.stalled")))
            world.source.delete_topic("orders")
            await until(lambda: stalled(world) == 0)
            assert not lines(world, "partition.moving")

    run_virtual(scenario(), limit_s=HOUR_S)
