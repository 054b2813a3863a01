"""Partitions that move while others do not get away, one story each: what is unanswered holds up itself alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import pytest

from connectors.source.connector import SourceConnector
from mm2py.kafka.port import ProduceRequest
from tests.scenarios.gate import Request
from tests.scenarios.shared_world import Process, SharedWorld, run

NEVER_S = 70.0
"""A request arrives so late that everybody has given it up."""


def writes_to(topic: str, partitions: Collection[int] | None = None, cluster: str = "B") -> Callable[..., bool]:
    """Tell requests that write to a topic, or to some of its partitions."""

    def does(name: str, request: Request) -> bool:
        return (
            name == cluster
            and isinstance(request, ProduceRequest)
            and any(
                one.name == topic and any(partitions is None or part.partition in partitions for part in one.partitions)
                for one in request.topics
            )
        )

    return does


def taking(seconds: float, concerns: Callable[..., bool]) -> Callable[[str, Request], float]:
    return lambda cluster, request: seconds if concerns(cluster, request) else 0.0


def led_by(world: SharedWorld, topic: str, broker: int) -> set[int]:
    return {part.index for part in world.target.topics[topic].partitions if part.leader == broker}


async def settled(world: SharedWorld, workers: int, **clusters: object) -> list[Process]:
    begun = [world.start(**clusters) for _ in range(workers)]  # type: ignore[arg-type]
    await world.until(lambda: world.is_shared_out() and world.is_copied())
    return begun


@pytest.mark.parametrize("apart_s", [0.1, 0.3])
@pytest.mark.parametrize("slow_s", [0.5, 2.5])
def test_what_is_given_away_while_other_partitions_drain_is_drained_too_before_it_is_let_go(
    apart_s: float, slow_s: float
) -> None:
    """w2 joins, the target is slow to answer w1, and w3 joins before w1 has drained what goes to w2."""

    async def scenario() -> None:
        world = SharedWorld()
        (name,) = world.make_topics(1, 12)
        (first,) = await settled(world, 1)
        first.slow_s = taking(slow_s, writes_to("A.t0"))
        traffic = asyncio.create_task(world.traffic([name]))
        world.start()
        await asyncio.sleep(apart_s)
        world.start()
        await asyncio.sleep(8)
        traffic.cancel()
        first.slow_s = lambda *_: 0.0
        await world.finish()
        assert world.promises_once
        assert first.herder.connectors[0].lives == 1

    run(scenario())


def test_what_is_copied_no_more_and_was_left_unanswered_moves_in_doubt_too() -> None:
    """Its topic was excluded while the target did not answer; then a worker joins, and the topic is wanted again."""

    async def scenario() -> None:
        world = SharedWorld()
        (name,) = world.make_topics(1, 6)
        (first,) = await settled(world, 1)
        connector = first.herder.connectors[0].connector
        assert isinstance(connector, SourceConnector)
        task = connector._task
        assert task is not None
        first.late_s = taking(NEVER_S, writes_to("A.t0"))
        world.write(name)
        await asyncio.sleep(0.3)
        async with connector._settling:  # as whoever excludes it
            await task.remove(list(task.partitions))
            first.late_s = lambda *_: 0.0
            assert task.unsettled == world.keys()
            world.start()
            await world.until(lambda: bool(connector._ownership.to_release()))
        await world.until(world.is_shared_out)
        assert first.herder.connectors[0].lives == 2
        await asyncio.gather(*first.under_way)
        await world.finish()
        assert world.promises_once

    run(scenario())


def test_a_partition_that_is_not_answered_holds_up_no_other_that_moves_when_a_worker_joins() -> None:
    """One broker of the target is frozen. What it leads is in doubt after half a minute; the flow is begun anew then,
    and those that stay pause once for that."""

    async def scenario() -> None:
        world = SharedWorld()
        (name,) = world.make_topics(1, 12)
        (first,) = await settled(world, 1)
        frozen = led_by(world, "A.t0", 1)
        healthy = [("A.t0", number) for number in range(12) if number not in frozen]
        assert frozen
        assert healthy
        tasks = [asyncio.create_task(world.traffic([name])), asyncio.create_task(world.watch())]
        await asyncio.sleep(2)
        first.late_s = taking(NEVER_S, writes_to("A.t0", frozen))
        await asyncio.sleep(0.5)
        world.pauses.clear()
        joined = world.start()
        await world.until(lambda: bool(joined.owns(world.flow)), within_s=5)
        await asyncio.sleep(20)
        assert max(world.pauses[at] for at in healthy) < 1.0, world.pauses
        assert {(f"A.{topic}", number) for topic, number in joined.owns(world.flow)} < set(healthy)
        await asyncio.sleep(20)
        assert max(world.pauses[at] for at in healthy) < 3.0, world.pauses
        for task in tasks:
            task.cancel()
        first.late_s = lambda *_: 0.0
        await asyncio.gather(*first.under_way)
        await world.finish()
        assert world.promises_once

    run(scenario())
