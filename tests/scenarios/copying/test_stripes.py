"""A backlog behind a long link is read in stripes over several connections: nothing is lost, repeated or reordered.

Stripes are small here (``max.partition.fetch.bytes``), so that a few hundred batches are many of them.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.faults import Faults
from tests.scenarios.copying.test_copying_under_faults import STORM, assert_legal, fill
from tests.scenarios.paused_topics import copied, pause, resume
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

FAR = (0.02, 0.03)
TOPICS = {"orders": "A.orders"}
SMALL_READS = {"A.consumer.max.partition.fetch.bytes": "2000"}


def far_world(seed: int, *, nodes: int = 1, **extra: str) -> World:
    return World(seed, nodes=nodes, extra={**SMALL_READS, **extra}, latency_s=FAR)


def channels_of(world: World) -> set[str]:
    """Return the connections over which stripes were read."""
    return {
        channel.split()[-1] for _, _, channel, api, _ in world.source.trace if api == "Fetch" and "pool-" in channel
    }


async def test_a_backlog_in_stripes_is_copied_exactly_and_all_memory_is_free_again() -> None:
    world = far_world(1, **{"A.consumer.isolation.level": "read_committed"})
    world.source.create_topic("orders", 2)
    fill(world, "orders", world.rng, 300)
    world.source.compact("orders")
    fill(world, "orders", world.rng, 1_500)
    async with world.worker() as herder:
        await world.copied(TOPICS)
        assert len(channels_of(world)) > 4
        await asyncio.sleep(60)
        before = len(world.source.trace)
        fill(world, "orders", world.rng, 20)
        await world.copied(TOPICS)
        assert not any("pool-" in channel for _, _, channel, _, _ in list(world.source.trace)[before:])
        await world.stop(herder)
    assert_legal(world, TOPICS, exact=True)
    (process,) = world.processes
    assert process.budget.held_bytes == 0
    assert process.budget.peak_bytes <= process.budget.limit_bytes


async def test_a_far_target_is_written_over_several_connections_each_partition_over_one() -> None:
    world = far_world(2, **{"A->B.copy.mode": "pass"})
    world.source.create_topic("orders", 12)
    fill(world, "orders", world.rng, 1_500)
    world.target.inject(Faults(drop_reply=0.01, reset=0.02, delay=0.05))
    async with world.worker():
        await world.copied(TOPICS)
        await asyncio.sleep(2)
    used = {channel.split()[-1] for _, _, channel, api, _ in world.target.trace if api == "Produce"}
    assert {"produce", "produce-1", "produce-2"} <= used
    assert_legal(world, TOPICS, exact=True)


async def test_without_the_setting_a_far_backlog_is_read_over_one_connection() -> None:
    world = far_world(1, **{"connections.per.broker.max": "1"})
    world.source.create_topic("orders", 2)
    fill(world, "orders", world.rng, 300)
    async with world.worker():
        await world.copied(TOPICS)
    assert channels_of(world) == set()
    assert_legal(world, TOPICS, exact=True)


@pytest.mark.virtual_time
async def test_little_memory_holds_up_no_stripe_for_ever() -> None:
    """What waits for its turn must not take the room of the read that it waits for. Answers get lost meanwhile."""
    world = World(3, extra=SMALL_READS, latency_s=FAR, memory_max_bytes=1 << 20)
    world.source.create_topic("orders", 3)
    fill(world, "orders", world.rng, 800)
    world.source.inject(Faults(drop_reply=0.02, reset=0.05, delay=0.05))
    async with world.worker():
        await world.copied(TOPICS, deadline_s=900)
    assert channels_of(world)
    assert_legal(world, TOPICS, exact=True)


@pytest.mark.walk(range(3))
@pytest.mark.virtual_time
async def test_storms_kills_and_moves_of_leaders_amid_stripes_cost_no_record(seed: int) -> None:
    world = far_world(seed, nodes=3)
    world.source.create_topic("orders", 2)
    fill(world, "orders", world.rng, 1_200)
    world.source.inject(STORM)
    world.target.inject(STORM)
    striped = False
    for _ in range(3):  # three incarnations, each of them killed
        async with world.worker():
            await asyncio.sleep(world.rng.uniform(2.0, 6.0))
            world.source.move_leader("orders", world.rng.randrange(2))
            await asyncio.sleep(world.rng.uniform(0.5, 3.0))
        striped = striped or bool(channels_of(world))
    world.source.heal()
    world.target.heal()
    async with world.worker():
        await world.copied(TOPICS, deadline_s=900)
        await asyncio.sleep(2)  # its ledger follows within a second
    assert striped or channels_of(world)
    assert_legal(world, TOPICS, exact=True)


@pytest.mark.walk(range(3))
async def test_what_the_cleaner_takes_amid_stripes_is_no_hole(seed: int) -> None:
    world = far_world(seed)
    world.source.create_topic("orders", 1)
    fill(world, "orders", world.rng, 1_000)
    async with world.worker():
        while not channels_of(world):
            await asyncio.sleep(0.1)
        world.source.compact("orders")
        await world.copied(TOPICS)
    remote = [record.content for record in world.target.records("A.orders", 0)]
    kept = [record.content for record in world.source.records("orders", 0)]
    at = iter(remote)
    assert all(content in at for content in kept), "what the cleaner left is there, in order"
    assert world.target.complaints == []


async def test_a_partition_paused_amid_stripes_takes_no_memory_and_goes_on_exactly() -> None:
    world = far_world(4)
    # All that was read is sent at once: then the position tells the pool nothing of the pause.
    world.target = ClusterModel("B", world.clock, random.Random(4), nodes=1)
    world.source.create_topic("orders", 2)
    fill(world, "orders", world.rng, 3_000)
    async with world.worker():
        async with asyncio.timeout(60):
            while len(channels_of(world)) <= 4:
                await asyncio.sleep(0.1)
        await pause(world, ("orders", None))
        await asyncio.sleep(3)
        (process,) = world.processes
        assert process.budget.held_bytes == 0
        before, asked = copied(world, "orders"), len(world.source.trace)
        assert before < sum(len(world.source.records("orders", number)) for number in range(2))
        await asyncio.sleep(10)
        assert copied(world, "orders") == before
        assert not any(api == "Fetch" for _, _, _, api, _ in list(world.source.trace)[asked:])
        await resume(world, ("orders", None))
        await world.copied(TOPICS)
        await asyncio.sleep(2)
    assert_legal(world, TOPICS, exact=True)


@pytest.mark.walk(range(3))
@pytest.mark.virtual_time
async def test_pauses_amid_storms_kills_and_moves_of_leaders_cost_no_record(seed: int) -> None:
    world = far_world(seed, nodes=3)
    world.source.create_topic("orders", 2)
    fill(world, "orders", world.rng, 1_200)
    async with world.worker():
        await asyncio.sleep(2)
    world.source.inject(STORM)
    world.target.inject(STORM)
    for _ in range(3):
        async with world.worker():
            for _ in range(4):
                number = world.rng.randrange(2)
                await pause(world, ("orders", number))
                await asyncio.sleep(world.rng.uniform(0.0, 3.0))
                world.source.move_leader("orders", world.rng.randrange(2))
                if world.rng.random() < 0.7:
                    await resume(world, ("orders", number))
                await asyncio.sleep(world.rng.uniform(0.0, 2.0))
    world.source.heal()
    world.target.heal()
    await resume(world, ("orders", None), ("orders", 0), ("orders", 1))
    async with world.worker():
        await world.copied(TOPICS, deadline_s=900)
        await asyncio.sleep(2)
    assert_legal(world, TOPICS, exact=True)
