"""Workers share a flow between two cluster models: what is copied while they join, stop and die."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.shared_world import BEAT_S, SESSION_S, SharedWorld
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

SEEDS = range(2)


async def settled(world: SharedWorld, workers: int) -> None:
    for _ in range(workers):
        world.start()
    await world.until(world.is_fully_assigned)


@pytest.mark.walk(SEEDS)
async def test_three_workers_copy_ten_topics_once_and_share_their_partitions_evenly(seed: int) -> None:
    world = SharedWorld(seed)
    names = world.make_topics(10, 3)
    await settled(world, 3)
    traffic = asyncio.create_task(world.traffic(names))
    await asyncio.sleep(5)
    traffic.cancel()
    assert all(9 <= len(process.owns(world.flow)) <= 11 for process in world.processes)
    await world.finish()
    assert world.promises_once


@pytest.mark.parametrize(("leads", "suspended"), [(False, True), (True, None)])
async def test_partitions_of_a_killed_or_frozen_worker_are_copied_again_a_second_after_its_session_expired(
    leads: bool, suspended: bool | None
) -> None:
    world = SharedWorld(5)
    names = world.make_topics(10, 2)
    await settled(world, 3)
    tasks = [asyncio.create_task(world.traffic(names)), asyncio.create_task(world.watch())]
    await asyncio.sleep(5)
    dead = next(process for process in world.up if process.is_leader is leads)
    had = dead.owns(world.flow)
    others = [process for process in world.up if process is not dead]
    world.pauses.clear()
    if suspended is None:
        dead.kill()
    else:
        dead.freeze(suspended=suspended)
    await asyncio.sleep(8)
    # A session expires by two records of another member, a session apart; each comes up to one heartbeat late.
    # Then it is evicted and fenced, and the new owners look up what it has copied.
    most_s = SESSION_S + 2 * BEAT_S + 0.3
    assert all(world.pauses[f"A.{name}", number] < most_s for name, number in had), world.pauses
    moved = {key for process in others for key in process.owns(world.flow)}
    assert moved == world.keys()
    dead.thaw()
    await asyncio.sleep(5)
    for task in tasks:
        task.cancel()
    await world.finish()
    assert world.promises_once


@pytest.mark.walk(SEEDS)
async def test_a_worker_that_joins_or_stops_in_order_pauses_no_partition_for_more_than_a_second(seed: int) -> None:
    world = SharedWorld(seed)
    names = world.make_topics(10, 2)
    await settled(world, 2)
    tasks = [asyncio.create_task(world.traffic(names)), asyncio.create_task(world.watch())]
    await asyncio.sleep(5)
    joined = world.start()
    await world.until(lambda: len(joined.owns(world.flow)) >= 5)
    await asyncio.sleep(3)
    for process in world.processes[:2]:
        assert await process.stop() == 0
        await world.until(world.is_fully_assigned, within_s=3)
        await asyncio.sleep(3)
    for task in tasks:
        task.cancel()
    assert max(world.pauses.values()) < 1.0, world.pauses
    await world.finish()
    assert world.promises_once
    assert not joined.said("member.evicted")


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.003, 0.006, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4])
async def test_a_worker_that_is_stopped_while_it_starts_ends_in_order(after_s: float) -> None:
    world = SharedWorld()
    world.make_topics(2, 2)
    await settled(world, 1)
    late = world.start()
    await asyncio.sleep(after_s)
    assert await late.stop() == 0
    await world.finish()
    assert world.promises_once


async def test_a_worker_that_is_stopped_while_the_target_does_not_answer_ends_in_order() -> None:
    world = SharedWorld()
    process = world.start()
    process.cut_off_from.add("B")
    await asyncio.sleep(5)
    assert await process.stop() == 0
    assert world.findings() == []


@pytest.mark.walk(range(2))
async def test_a_remote_topic_that_the_target_shows_late_is_copied_without_refresh(seed: int) -> None:
    """Once, the coordinator looked one time only, before the new remote topic was in the target's metadata. It listed
    no partition, so none had an owner, and without refresh it never looked again.
    """
    world = SharedWorld(seed, extra={"refresh.topics.enabled": "false"})
    for name in world.make_topics(3, 2):
        world.write(name)
    world.start()
    assert await world.until(world.is_copied) < 10
    await world.finish()


def without_refresh(**extra: str) -> SharedWorld:
    return SharedWorld(extra={"refresh.topics.enabled": "false", **extra})


async def test_a_deleted_remote_topic_is_copied_again_without_refresh_where_policy_says_so() -> None:
    world = without_refresh(**{"on.target.loss": "recopy"})
    for name in world.make_topics(2, 2):
        world.write(name)
    world.start()
    await world.until(world.is_copied)
    world.target.delete_topic("A.t0")
    world.write("t0")
    await world.until(lambda: "A.t0" in world.target.topics and world.is_copied())


async def test_a_refused_topic_is_checked_again_without_refresh_by_the_new_owner_of_its_partitions() -> None:
    """A coordinator refused a topic; the cause was gone before another worker replaced it. Once, the old coordinator
    still skipped its partitions of that topic as recently refused, and without refresh it never looked again.
    """
    world = without_refresh()
    for name in world.make_topics(3, 2):
        world.write(name)
    world.target.denied_topics.add("A.t0")
    first = world.start()
    await world.until(lambda: bool(first.said("topic.refused")))
    second = world.start()
    await world.until(lambda: bool(second.owns(world.flow)))
    world.target.denied_topics.clear()
    assert await second.stop() == 0
    await world.until(world.is_copied)
