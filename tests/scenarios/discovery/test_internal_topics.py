"""Internal topics that are deleted while mm2py runs: it logs that, and fills them again once they are back."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.gaps.test_gaps import HOUR_S, STATUS, gaps, texts, until, write
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)

OFFSETS = "mm2-offsets.A.internal"
COMPACT = {"cleanup.policy": "compact"}
ORDERS = {"orders": "A.orders", "idle": "A.idle"}


def said(world: World, event: str) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if f" {event} " in line]


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def world_with_topics() -> World:
    world = World(3)
    for topic in ORDERS:
        world.source.create_topic(topic, 1)
        write(world.source, *numbers(0, 4), topic=topic)
    return world


async def test_a_deleted_positions_topic_is_logged_and_all_positions_are_stored_again_when_it_is_back() -> None:
    world = world_with_topics()
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        world.target.delete_topic(OFFSETS)
        write(world.source, *numbers(5, 9))
        await until(lambda: bool(said(world, "positions.topic_gone")))
        await asyncio.sleep(600)
        (line,) = said(world, "positions.topic_gone")
        assert OFFSETS in line and "cleanup.policy=compact" in line
        assert texts(world) == numbers(0, 9), "copying continues"
        world.target.create_topic(OFFSETS, 3, COMPACT)
        await until(lambda: bool(said(world, "positions.back")))
        await asyncio.sleep(5)
    write(world.source, *numbers(10, 12))
    write(world.source, *numbers(5, 7), topic="idle")
    async with world.worker():
        await until(lambda: texts(world) == numbers(0, 12) and texts(world, 0, "A.idle") == numbers(0, 7))
        assert not said(world, "topic.refused")


async def test_a_flow_that_has_lost_its_positions_does_not_continue_as_if_it_were_new() -> None:
    world = world_with_topics()
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await world.stop(herder)
    world.target.delete_topic(OFFSETS)
    write(world.source, *numbers(5, 9))
    async with world.worker() as herder:
        await until(lambda: len(said(world, "topic.refused")) == 2)
        await asyncio.sleep(60)
        assert herder.status()[0].refused.keys() == ORDERS.keys()
        assert texts(world) == numbers(0, 4)


async def test_gaps_of_a_deleted_status_topic_are_stored_again_in_a_new_one() -> None:
    world = world_with_topics()
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        world.source.recreate_topic("orders")
        await until(lambda: bool(gaps(world)))
        before = gaps(world)
        world.target.delete_topic(STATUS)
        await until(lambda: bool(said(world, "status.topic_gone")))
        await until(lambda: gaps(world) == before)
        world.source.recreate_topic("idle")
        await until(lambda: len(gaps(world)) == 2)
        assert len(said(world, "status.topic_gone")) == 1
