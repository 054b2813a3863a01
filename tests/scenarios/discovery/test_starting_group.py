"""``starting.offsets.group``: a copy goes on where the group of an older mirror has stopped."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3600.0)
GROUP = {"A->B.starting.offsets.group": "old-mirror", "refresh.topics.interval.seconds": "5"}
IDENTITY = {"replication.policy.class": "IdentityReplicationPolicy"}


def world_of(extra: dict[str, str]) -> World:
    """Return two clusters: an older mirror has copied three records of each of two partitions, and committed them."""
    world = World(5, extra={**GROUP, **extra})
    world.source.create_topic("orders", 3)
    for number in range(3):
        world.source.append("orders", number, [b"%d" % at for at in range(6)])
    world.source.groups.commit("old-mirror", {("orders", 0): (3, ""), ("orders", 1): (3, "")})
    return world


def values(world: World, topic: str) -> list[list[bytes | None]]:
    return [[record.value for record in world.target.records(topic, number)] for number in range(3)]


async def refusal(world: World) -> str:
    async with asyncio.timeout(60.0):
        while "topic.refused" not in world.log_text.getvalue():
            await asyncio.sleep(0.1)
    return world.log_text.getvalue()


async def test_partitions_start_at_the_commits_and_others_at_their_first_record() -> None:
    world = world_of({})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
    assert values(world, "A.orders") == [[b"3", b"4", b"5"], [b"3", b"4", b"5"], [b"%d" % at for at in range(6)]]


async def test_what_the_older_mirror_has_copied_does_not_stand_in_the_way() -> None:
    world = world_of(IDENTITY)
    world.target.create_topic("orders", 3)
    for number in range(2):
        world.target.append("orders", number, [b"%d" % at for at in range(3)])
    async with world.worker():
        await world.copied({"orders": "orders"})
    assert values(world, "orders") == [[b"%d" % at for at in range(6)]] * 3


async def test_a_partition_that_is_not_empty_and_not_committed_refuses_its_topic() -> None:
    world = world_of(IDENTITY)
    world.target.create_topic("orders", 3)
    for number in range(3):
        world.target.append("orders", number, [b"%d" % at for at in range(3)])
    async with world.worker():
        assert "no position is stored for partition(s) 2" in await refusal(world)
    assert values(world, "orders") == [[b"0", b"1", b"2"]] * 3


async def test_while_the_older_mirror_reads_nothing_starts_and_then_it_goes_on_behind_it() -> None:
    """The story: the older mirror was not stopped. It would have gone on copying what this flow copies, too."""
    world = world_of({})
    world.source.groups.activate("old-mirror")
    async with world.worker():
        assert "group old-mirror of A stands (starting.offsets.group), and it has members (Stable)" in (
            await refusal(world)
        )
        assert "A.orders" not in world.target.topics or values(world, "A.orders") == [[]] * 3
        world.source.groups.commit("old-mirror", {("orders", 0): (5, ""), ("orders", 1): (5, "")})
        world.source.groups.deactivate("old-mirror")
        await world.copied({"orders": "A.orders"})
    assert values(world, "A.orders")[:2] == [[b"5"]] * 2


async def test_a_stored_position_counts_and_the_group_is_not_asked_again() -> None:
    world = world_of({})
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        await world.stop(herder)
    world.source.groups.commit("old-mirror", {("orders", 0): (1, "")})
    world.source.append("orders", 0, [b"6"])
    async with world.worker():
        await world.copied({"orders": "A.orders"})
    assert values(world, "A.orders")[0] == [b"3", b"4", b"5", b"6"]
