"""Topics that rules give other names on the target: copied under these, one into each, and never moved in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.scenarios.shared_world import Process, SharedWorld
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

RULES = "orders -> sales.orders, (.*)\\\\.v1 -> $1"
RENAMED = {"orders": "A.sales.orders", "bills.v1": "A.bills", "users": "A.users"}


def world_of(rules: str = RULES, *topics: str, extra: Mapping[str, str] | None = None) -> SharedWorld:
    world = SharedWorld(1, extra=lines(rules, extra))
    for topic in topics or RENAMED:
        world.source.create_topic(topic, 2)
        world.write(topic, 3)
    return world


def lines(rules: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {"A->B.topics.rename": rules, "refresh.topics.interval.seconds": "5", **(extra or {})}


def refused(process: Process) -> dict[str, str]:
    return {line["topic"]: line["why"] for line in process.said("topic.refused")}


def judged(world: SharedWorld, topic: str, remote: str) -> list[str]:
    return [str(one) for verdict in world.judge(topic, remote, exact=True) for one in verdict.findings]


async def test_topics_are_copied_under_their_new_names_and_a_restart_goes_on_there() -> None:
    world = world_of()
    for _ in range(2):
        process = world.start()
        await world.copied(RENAMED)
        assert await process.stop() == 0
        for topic in RENAMED:
            world.write(topic)
    world.start()
    await world.copied(RENAMED)
    assert not any(judged(world, topic, remote) for topic, remote in RENAMED.items())
    assert {name for name in world.target.topics if name.startswith("A.")} == set(RENAMED.values())


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_topic_that_comes_later_and_would_get_the_same_name_is_refused_by_name(restarts: bool) -> None:
    world = world_of()
    process = world.start()
    await world.copied(RENAMED)
    if restarts:
        assert await process.stop() == 0
    world.source.create_topic("bills", 2)
    world.write("bills", 2)
    process = world.start() if restarts else process
    await world.until(lambda: "bills" in refused(process))
    assert "bills.v1 is copied into A.bills" in refused(process)["bills"]
    world.write("bills.v1")
    await world.copied(RENAMED)
    await asyncio.sleep(60)
    assert judged(world, "bills.v1", "A.bills") == []


async def test_of_two_topics_with_one_name_that_are_there_at_the_start_one_is_copied() -> None:
    world = world_of(RULES, "bills", "bills.v1")
    process = world.start()
    await world.until(lambda: "bills.v1" in refused(process))
    await world.copied({"bills": "A.bills"})
    await asyncio.sleep(30)
    assert judged(world, "bills", "A.bills") == []


async def test_a_topic_whose_name_would_change_waits_for_an_operator() -> None:
    world = world_of()
    process = world.start()
    await world.copied(RENAMED)
    assert await process.stop() == 0
    world.rewrite_file({**world.extra, **lines("orders -> other.orders, (.*)\\\\.v1 -> $1")})
    world.write("orders")
    process = world.start(apply=True)
    await world.until(lambda: "orders" in refused(process))
    assert "its copy is A.sales.orders on B" in refused(process)["orders"]
    await asyncio.sleep(60)
    assert "A.other.orders" not in world.target.topics
    assert await process.stop() == 0
    world.recopies = {world.settings.flow: {"orders"}}
    process = world.start(apply=True)
    await world.copied({"orders": "A.other.orders"})
    assert judged(world, "orders", "A.other.orders") == []
    assert await process.stop() == 0
    world.recopies = {}
    world.write("orders")
    world.start()
    await world.copied({"orders": "A.other.orders"})
    assert judged(world, "orders", "A.other.orders") == []


async def test_a_rule_that_is_taken_away_or_added_moves_no_topic() -> None:
    world = world_of("orders -> sales.orders", "orders", "users")
    process = world.start()
    await world.copied({"orders": "A.sales.orders", "users": "A.users"})
    assert await process.stop() == 0
    world.rewrite_file({**world.extra, **lines("users -> people")})
    process = world.start(apply=True)
    await world.until(lambda: {"orders", "users"} <= refused(process).keys())
    await asyncio.sleep(30)
    assert not {"A.orders", "A.people"} & world.target.topics.keys()
