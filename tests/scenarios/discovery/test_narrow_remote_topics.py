"""Remote topics that have fewer partitions than their upstream topics, and may not grow: what fits is copied."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.shared_world import SESSION_S, SharedWorld
from tests.scenarios.standstills import causes, reasons
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)


async def test_partitions_that_fit_into_a_narrow_remote_topic_are_copied_at_once_by_their_new_owner() -> None:
    """Once, they were skipped like refused topics: a partition that a worker got after that waited for a minute."""
    world = SharedWorld(1, extra={"A->B.remote.partitions.max": "3"})
    world.source.create_topic("narrow", 4)
    world.target.create_topic("A.narrow", 3, replication_factor=3)
    written: list[bytes] = []

    def write(value: bytes) -> None:
        written.append(value)
        for number in range(3):
            world.source.append("narrow", number, [value])

    def is_copied() -> bool:
        copies = [[record.value for record in world.target.records("A.narrow", number)] for number in range(3)]
        return copies == [written] * 3

    write(b"1")
    first, second = world.start(), world.start()
    assert await world.until(is_copied) < 10
    await world.until(lambda: bool(first.owns(world.flow)) and bool(second.owns(world.flow)))
    assert await world.until(lambda: all(process.said("topic.too_narrow") for process in world.up)) < 10
    await asyncio.sleep(5)
    write(b"2")
    assert await world.until(is_copied) < 5
    first.kill()
    write(b"3")
    assert await world.until(is_copied) < SESSION_S + 2
    assert await second.stop() == 0


async def test_what_was_refused_is_told_no_more_by_any_worker_once_an_operator_has_acted() -> None:
    """Once, only the owner of the partition that fits now took its word back."""
    world = SharedWorld(1, extra={"A->B.remote.partitions.max": "3"})
    for name in ("narrow", "filled"):
        world.source.create_topic(name, 4)
    world.target.create_topic("A.narrow", 3, replication_factor=3)
    world.target.create_topic("A.filled", 4, replication_factor=3)
    world.target.append("A.filled", 0, [b"foreign"])
    first, second = world.start(), world.start()

    await world.until(lambda: {"narrow", "filled"} <= reasons(world.target).keys())
    (cause, *_) = causes(world.target)["narrow"]
    assert (cause.reason, cause.partitions) == ("refused", "3"), "the others are copied"
    world.target.add_partitions("A.narrow", 4)
    world.target.recreate_topic("A.filled")
    await world.until(lambda: not {"narrow", "filled"} & reasons(world.target).keys(), within_s=90)
    assert await first.stop() == await second.stop() == 0
