"""``client.rack``: a partition is read from a follower near the worker, and from its leader whenever that one fails.

Broker 1 leads and is far; broker 2 follows in the worker's rack.
"""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from mm2py.copying.reading.read_replica import FOLLOWED_S, LEADER_ONLY_S
from tests.fakes.faults import Faults
from tests.scenarios.copying.test_copying_under_faults import STORM, assert_legal, fill
from tests.scenarios.copying.test_stripes import FAR, SMALL_READS
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

TOPICS = {"orders": "A.orders"}
LEADER, FOLLOWER = 1, 2
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


def rack_world(seed: int = 1, *, partitions: int = 2, rack: str = "near", nodes: int = 2, **extra: str) -> World:
    world = World(seed, nodes=nodes, extra={"A.consumer.client.rack": rack, **extra}, broker_config=SELECTOR)
    make_topic(world, partitions)
    return world


def make_topic(world: World, partitions: int) -> None:
    for node in world.source.nodes.values():
        node.rack = "near" if node.id == FOLLOWER else f"far-{node.id}"
    world.source.create_topic("orders", partitions)
    for number in range(partitions):
        world.source.move_leader("orders", number, LEADER)


def read_from(world: World, since: int = 0) -> set[int]:
    """Return the brokers that answered reads of records with a success since then."""
    return {
        node
        for _, node, channel, api, _ in list(world.source.trace)[since:]
        if api == "Fetch" and channel.split()[-1].split("-")[0] in {"backlog", "tail", "far", "idle", "pool"}
    }


def assert_no_gap(world: World) -> None:
    log = world.log_text.getvalue()
    assert "first_offset=" not in log, log[-3000:]  # what the report of each gap says
    assert_legal(world, TOPICS, exact=True)


async def copy_some(world: World, batches: int = 30, *, deadline_s: float = 20.0) -> int:
    """Fill the topic, wait until all is copied and stored, and return the length of the trace before."""
    since = len(world.source.trace)
    fill(world, "orders", world.rng, batches)
    await world.copied(TOPICS, deadline_s=deadline_s)
    await asyncio.sleep(2)  # its ledger follows within a second
    return since


async def test_a_follower_that_only_the_worker_cannot_reach_holds_up_no_record() -> None:
    """The leader sees it well and names it for ever. Asked for a replica each time, it would never send a record."""
    world = rack_world()
    async with world.worker():
        await copy_some(world)
        world.source.cut_broker(FOLLOWER)
        await copy_some(world, deadline_s=60)  # the read that was under way has to time out first
        assert read_from(world, await copy_some(world, deadline_s=5)) == {LEADER}
    assert_no_gap(world)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.offset_out_of_range,
        ErrorCode.offset_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
    ],
    ids=lambda code: code.name,
)
async def test_what_a_follower_refuses_is_asked_of_the_leader(code: ErrorCode) -> None:
    world = rack_world(partitions=1)
    async with world.worker():
        await copy_some(world)
        world.source.follower_error = code
        since = await copy_some(world, deadline_s=5)
        assert read_from(world, since) == {LEADER, FOLLOWER}
        assert read_from(world, await copy_some(world)) == {LEADER}
    assert_no_gap(world)


async def test_records_that_expired_are_a_gap_that_the_leader_tells_once() -> None:
    world = rack_world(partitions=1)
    async with world.worker():
        await copy_some(world)
    fill(world, "orders", world.rng, 30)
    partition = world.source.partition("orders", 0)
    world.source.delete_records("orders", 0, partition.log.end_offset - 3)
    async with world.worker():
        await copy_some(world)
    log = world.log_text.getvalue()
    assert log.count("source.expired") == 1, log[-3000:]
    assert world.target.complaints == []


@pytest.mark.virtual_time(limit_s=900)
async def test_a_follower_that_lags_is_left_after_five_minutes() -> None:
    world = rack_world(partitions=1)
    async with world.worker():
        await copy_some(world)
        partition = world.source.partition("orders", 0)
        partition.set_isr([LEADER], now_s=world.clock.monotonic())  # it copies no more, and answers
        since = len(world.source.trace)
        fill(world, "orders", world.rng, 30)
        await asyncio.sleep(10)
        assert read_from(world, since) == {FOLLOWER}
        await world.copied(TOPICS, deadline_s=FOLLOWED_S)
        assert read_from(world, await copy_some(world)) == {LEADER}
    assert_no_gap(world)


async def test_a_new_leader_is_asked_anew() -> None:
    world = rack_world(partitions=1, nodes=3)
    async with world.worker():
        await copy_some(world)
        world.source.move_leader("orders", 0, 3)
        await copy_some(world)
        await asyncio.sleep(LEADER_ONLY_S + 5)
        await copy_some(world)
        assert read_from(world, await copy_some(world)) == {FOLLOWER}
        world.source.move_leader("orders", 0, FOLLOWER)
        await copy_some(world)
        assert read_from(world, await copy_some(world)) == {FOLLOWER}
    assert_no_gap(world)


@pytest.mark.walk(range(3))
@pytest.mark.virtual_time
async def test_storms_and_dying_followers_amid_stripes_cost_no_record(seed: int) -> None:
    extra = {"A.consumer.client.rack": "near", **SMALL_READS}
    world = World(seed, nodes=3, extra=extra, broker_config=SELECTOR, latency_s=FAR)
    make_topic(world, 2)
    fill(world, "orders", world.rng, 2_000)
    world.source.inject(STORM)
    world.target.inject(Faults(drop_reply=0.02, delay=0.05))
    async with world.worker():
        for _ in range(4):
            await asyncio.sleep(world.rng.uniform(2.0, 6.0))
            world.source.stop_broker(FOLLOWER, clean=world.rng.random() < 0.5)
            await asyncio.sleep(world.rng.uniform(2.0, 20.0))
            world.source.start_broker(FOLLOWER)
            world.source.move_leader("orders", world.rng.randrange(2))
        world.source.heal()
        world.target.heal()
        await world.copied(TOPICS, deadline_s=900)
        await asyncio.sleep(2)  # its ledger follows within a second
    assert FOLLOWER in read_from(world)
    assert_legal(world, TOPICS, exact=True)
