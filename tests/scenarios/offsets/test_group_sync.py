"""Group offsets on the target, of whole flows between two cluster models."""

from __future__ import annotations

import asyncio

from tests.scenarios.offsets.test_checkpoints import ON, lines
from tests.scenarios.offsets.test_offset_syncs import numbered
from tests.scenarios.world import World

SYNC = {
    **ON,
    "emit.checkpoints.interval.seconds": "5",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "5",
    "offset.lag.max": "0",
}


def synced_world(**extra: str) -> World:
    world = World(1, extra={**SYNC, **{name.replace("_", "."): value for name, value in extra.items()}})
    world.source.create_topic("orders", 2)
    world.source.append("orders", 0, numbered(100))
    return world


def on_target(world: World, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    return world.target.groups.commits_of(group) if group in world.target.groups.known else {}


async def test_a_group_that_becomes_idle_is_moved_at_once() -> None:
    world = synced_world(emit_checkpoints_interval_seconds="60", sync_group_offsets_interval_seconds="60")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        world.source.groups.activate("pay")
        await asyncio.sleep(90)
        world.source.groups.commit("pay", {("orders", 0): (100, "")})
        world.source.groups.deactivate("pay")
        await asyncio.sleep(5)
        assert on_target(world, "pay") == {("A.orders", 0): (100, "")}


async def test_a_group_with_members_on_the_target_is_never_moved_and_that_is_said_once() -> None:
    world = synced_world()
    world.target.groups.activate("pay")
    world.source.groups.commit("pay", {("orders", 0): (100, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(60)
        assert on_target(world, "pay") == {}
        (line,) = lines(world, "group_offsets.skipped")
        assert "pay" in line and "has members on the target" in line
        world.target.groups.deactivate("pay")
        await asyncio.sleep(10)
        assert on_target(world, "pay") == {("A.orders", 0): (100, "")}
        assert lines(world, "group_offsets.no_longer_skipped")


async def test_a_deliberate_rewind_is_followed_if_asked_for_and_a_consumer_of_the_target_is_not_set_back() -> None:
    for rewind in ("false", "true"):
        world = synced_world(sync_group_offsets_rewind=rewind)
        for group in ("pay", "failed-over"):
            world.source.groups.commit(group, {("orders", 0): (100, "")})
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(15)
            world.target.groups.commit("failed-over", {("A.orders", 0): (97, "")})
            for group in ("pay", "failed-over"):
                world.source.groups.commit(group, {("orders", 0): (40, "")})
            await asyncio.sleep(15)
            found, _ = on_target(world, "pay")["A.orders", 0]
            assert found == 100 if rewind == "false" else found <= 40
            assert on_target(world, "failed-over")["A.orders", 0][0] == 97


async def test_a_coordinator_that_refuses_one_group_keeps_no_other_back() -> None:
    world = synced_world()
    for group in ("locked", "pay"):
        world.source.groups.commit(group, {("orders", 0): (100, "")})
    world.target.groups.unwritable.add("locked")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(60)
        assert on_target(world, "pay") == {("A.orders", 0): (100, "")}
        (line,) = lines(world, "group_offsets.skipped")
        assert "locked" in line and "Grant mm2py READ" in line
