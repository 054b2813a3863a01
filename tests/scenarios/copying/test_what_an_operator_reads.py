"""The log of a long night: a stop is logged once, with its remedy; idle parts log nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from tests.scenarios.world import BEATS_SELDOM, World

MINUTE_S, HOUR_S = 60.0, 3600.0
pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)


class Night:
    """A world whose log is read line by line."""

    def __init__(self, world: World) -> None:
        self.world = world

    def lines(self, event: str = "") -> list[str]:
        return [line for line in self.world.log_text.getvalue().splitlines() if re.search(rf" {event}", line)]

    async def until(self, condition: Callable[[], bool], *, deadline_s: float) -> None:
        async with asyncio.timeout(deadline_s):
            while not condition():
                await asyncio.sleep(0.1)

    def count(self, remote: str) -> int:
        return len(self.world.target.records(remote, 0)) if remote in self.world.target.topics else 0


def night_with(*topics: str, **extra: str) -> Night:
    world = World(7, extra={**BEATS_SELDOM, **extra})
    for topic in topics:
        world.source.create_topic(topic, 1)
        world.source.append(topic, 0, [b"1"])
    return Night(world)


async def test_an_idle_worker_logs_nothing() -> None:
    night = night_with("orders", "bills")
    async with night.world.worker():
        await night.world.copied({"orders": "A.orders", "bills": "A.bills"})
        await asyncio.sleep(MINUTE_S)
        begun = len(night.lines())
        assert begun < 30
        await asyncio.sleep(15 * MINUTE_S)
        assert night.lines()[begun:] == []


@pytest.mark.virtual_time(limit_s=3 * HOUR_S)
async def test_a_recopy_flag_does_not_count_for_the_next_time_the_topic_is_recreated() -> None:
    """--allow-recopy was left in the unit file; in the night a job deletes and recreates the source topic."""
    night = night_with("orders")
    night.world.target.create_topic("A.orders", 1)
    night.world.target.append("A.orders", 0, [b"0"])
    async with night.world.worker(allow_recopy=frozenset({"orders"})):
        await night.until(lambda: night.count("A.orders") == 2, deadline_s=MINUTE_S)
        night.world.source.recreate_topic("orders")
        night.world.source.append("orders", 0, [b"another 1"])
        await asyncio.sleep(10 * MINUTE_S)
        assert night.count("A.orders") == 2
        assert len(night.lines("topic.recopied")) == 1
        assert len(night.lines("topic.refused")) == 1
        assert not night.lines("recopy.unused")
    async with night.world.worker(allow_recopy=frozenset({"orders", "oders"})):
        await night.until(lambda: night.count("A.orders") == 3, deadline_s=3 * MINUTE_S)
        (line,) = night.lines("recopy.unused")
        assert 'topic=oders why="--allow-recopy names it, and A->B copies no such topic."' in line
    async with night.world.worker(allow_recopy=frozenset({"orders"})):
        await night.until(lambda: len(night.lines("recopy.unused")) == 2, deadline_s=3 * MINUTE_S)
        line = night.lines("recopy.unused")[1]
        assert "topic=orders" in line
        assert "a position is stored that fits both topics: it goes on from there" in line


async def test_a_topic_that_vanishes_and_returns_loses_no_record() -> None:
    """The right to see it is revoked for a minute. After that its next record is the second that is ever copied."""
    night = night_with("orders")
    async with night.world.worker():
        await night.world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
        for value in (b"2", b"3", b"4", b"5"):
            night.world.source.deny("orders")
            gone = len(night.lines("topic.(gone|hidden)"))
            await night.until(lambda gone=gone: len(night.lines("topic.(gone|hidden)")) > gone, deadline_s=MINUTE_S)
            night.world.source.allow("orders")
            night.world.source.append("orders", 0, [value])
            await night.world.copied({"orders": "A.orders"}, deadline_s=MINUTE_S)
        values = [record.value for record in night.world.target.records("A.orders", 0)]
        assert values == [b"1", b"2", b"3", b"4", b"5"]


def wide_night(partitions: int) -> Night:
    night = Night(World(7))
    night.world.source.create_topic("orders", partitions)
    write_to_all(night, b"1")
    return night


def write_to_all(night: Night, value: bytes) -> None:
    for number in range(len(night.world.source.topics["orders"].partitions)):
        night.world.source.append("orders", number, [value])


async def test_a_right_that_stays_revoked_is_logged_once_and_again_after_the_next_revocation() -> None:
    night = wide_night(partitions=3)
    world = night.world

    async def revoked(*partitions: int) -> None:
        world.target.deny("A.orders")
        for number in partitions:
            world.source.append("orders", number, [b"2"])
            await asyncio.sleep(MINUTE_S)

    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await revoked(0, 1)
        assert len(night.lines("target.denied")) == 1, "partition 1 is refused while 0 still is"
        world.target.allow("A.orders")
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(MINUTE_S)
        await revoked(2)
        assert len(night.lines("target.denied")) == 2


@pytest.mark.virtual_time(limit_s=5 * HOUR_S)
async def test_a_target_that_is_unavailable_for_a_night_is_logged_now_and_then() -> None:
    night = night_with("orders")
    async with night.world.worker():
        await night.world.copied({"orders": "A.orders"})
        begun = len(night.lines())
        (node,) = night.world.target.alive
        night.world.target.stop_broker(node)
        night.world.source.append("orders", 0, [b"2"])
        await asyncio.sleep(20 * MINUTE_S)
        said = night.lines()[begun:]
        assert 1 <= len(said) <= 30, said[-5:]  # one a minute, and a few when it begins
        night.world.target.start_broker(node)
        await night.until(lambda: night.count("A.orders") == 2, deadline_s=MINUTE_S)


async def test_a_pattern_that_runs_for_ever_is_named_with_its_topic_and_stops_no_other() -> None:
    slow = "a" * 60 + "b"
    night = night_with("orders", slow, **{"A->B.topics": "(a|a)+c,orders"})
    async with night.world.worker():
        await night.world.copied({"orders": "A.orders"})
        await asyncio.sleep(10 * MINUTE_S)
        (line,) = night.lines("topic.refused")
        assert f"topic={slow}" in line
        assert "(a|a)+c" in line


@pytest.mark.parametrize("records", [0, 1])
async def test_a_stop_ends_within_a_minute_although_the_target_is_unavailable(records: int) -> None:
    night = night_with("orders")
    async with night.world.worker() as herder:
        await night.world.copied({"orders": "A.orders"})
        (node,) = night.world.target.alive
        night.world.target.stop_broker(node)
        for _ in range(records):
            night.world.source.append("orders", 0, [b"2"])
        await asyncio.sleep(10)
        herder.stop()
        ended = ("worker.drained", "drain.failed")
        await night.until(lambda: any(night.lines(event) for event in ended), deadline_s=MINUTE_S)
