"""Two processes that run one flow, and lives that follow each other: the younger one goes on, the older one stops."""

from __future__ import annotations

import asyncio

from mm2py.kafka.port import ProduceRequest
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.gate import Gate
from tests.scenarios.test_copying_under_faults import assert_legal, fill
from tests.scenarios.world import World

TOPICS = {"orders": "A.orders"}


def markers(world: World) -> int:
    """Return how many markers stand in the remote topic."""
    parts = range(len(world.target.topics["A.orders"].partitions))
    return sum(batch.control for number in parts for batch in world.target.batches("A.orders", number))


def test_of_two_processes_the_older_one_stops_and_says_why() -> None:
    async def scenario() -> None:
        world = World(1)
        world.source.create_topic("orders", 3)
        fill(world, "orders", world.rng, 60)
        async with world.worker() as older:
            await world.copied(TOPICS)
            async with world.worker() as younger:
                for _ in range(10):
                    fill(world, "orders", world.rng, 20)
                    await asyncio.sleep(1.0)
                await world.copied(TOPICS)
                assert [status.state for status in younger.status()] == ["running"]
                (status,) = older.status()
                assert status.state == "refused", status
                assert "another mm2py process has taken it over" in status.reason
                said = world.log_text.getvalue()
                await asyncio.sleep(60)
                assert world.log_text.getvalue().count("flow.ready") == said.count("flow.ready"), "no to and fro"
        assert_legal(world, TOPICS, exact=True)

    run_virtual(scenario(), limit_s=600)


def test_two_processes_that_start_at_once_leave_one() -> None:
    async def scenario(seed: int) -> None:
        world = World(seed)
        world.source.create_topic("orders", 3)
        fill(world, "orders", world.rng, 60)
        async with world.worker() as one, world.worker() as other:
            for _ in range(10):
                fill(world, "orders", world.rng, 10)
                await asyncio.sleep(1.0)
            await world.copied(TOPICS)
            await asyncio.sleep(10)
            states = sorted(status.state for herder in (one, other) for status in herder.status())
            assert states == ["refused", "running"], f"seed {seed}"
        assert_legal(world, TOPICS, exact=True)

    for seed in range(10):
        run_virtual(scenario(seed), seed=seed, limit_s=600)


def test_a_clean_restart_leaves_no_marker_and_a_kill_one_in_each_partition() -> None:
    async def scenario() -> None:
        world = World(2)
        world.source.create_topic("orders", 3)
        fill(world, "orders", world.rng, 60)
        for _ in range(3):
            async with world.worker() as herder:
                await world.copied(TOPICS)
                await world.stop(herder)
            fill(world, "orders", world.rng, 20)
        assert markers(world) == 0
        async with world.worker():
            await world.copied(TOPICS)
        assert markers(world) == 0
        async with world.worker() as herder:
            fill(world, "orders", world.rng, 20)
            await world.copied(TOPICS)
            await world.stop(herder)
        assert markers(world) == 3
        assert_legal(world, TOPICS, exact=True)

    run_virtual(scenario(), limit_s=600)


STATUS = "mm2-status.A.internal"


def test_without_a_status_topic_the_younger_still_shuts_the_older_out_and_the_guarantee_says_why() -> None:
    """Coordinators know of the older one, though it has left neither a record nor a position."""

    async def scenario() -> None:
        world = World(3)
        world.source.create_topic("orders", 3)
        world.target.create_topic(STATUS, 5, {"cleanup.policy": "delete"})
        fill(world, "orders", world.rng, 60)
        gate = Gate(lambda request: isinstance(request, ProduceRequest))
        gate.shut()
        async with world.worker(through=gate) as older:
            while not gate.held:
                await asyncio.sleep(0.1)
            (status,) = older.status()
            assert status.guarantee.startswith("at-least-once") and STATUS in status.guarantee, status.guarantee
            async with world.worker():
                await world.copied(TOPICS)
                gate.open()
                await asyncio.sleep(0.5)
                fenced = "Another process has fenced mm2py-mm2py-000000000001-0-A->B"
                assert fenced in world.log_text.getvalue()
        async with world.worker():
            fill(world, "orders", world.rng, 20)
            await world.copied(TOPICS)
        assert_legal(world, TOPICS, exact=True)

    run_virtual(scenario(), limit_s=600)


def test_a_process_without_a_record_begins_anew_when_the_status_topic_can_be_used() -> None:
    async def scenario() -> None:
        world = World(4)
        world.source.create_topic("orders", 3)
        world.target.create_topic(STATUS, 5, {"cleanup.policy": "delete"})
        fill(world, "orders", world.rng, 60)
        async with world.worker() as one, world.worker() as other:
            await world.copied(TOPICS)
            world.target.configure_topic(STATUS, {"cleanup.policy": "compact"})
            for _ in range(30):
                fill(world, "orders", world.rng, 10)
                await asyncio.sleep(1.0)
            await world.copied(TOPICS)
            await asyncio.sleep(10)
            found = [status for herder in (one, other) for status in herder.status()]
            assert sorted(status.state for status in found) == ["refused", "running"]
            assert [status.guarantee for status in found if status.state == "running"] == ["exactly-once"]
        assert_legal(world, TOPICS, exact=True)

    run_virtual(scenario(), limit_s=600)
