"""Partitions move while others are delayed: an unanswered batch delays its own partition only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import pytest

from mm2py.kafka.port import ProduceRequest
from mm2py_connectors.source.connector import SourceConnector
from tests.scenarios.gate import Request
from tests.scenarios.shared_world import Process, SharedWorld
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

NEVER_S = 70.0
"""A request is delayed until every worker has given it up."""
TWO_SOURCES = {"clusters": "A,B,C", "C.bootstrap.servers": "c:1", "C->B.enabled": "true"}


def writes_to(topic: str, partitions: Collection[int] | None = None, cluster: str = "B") -> Callable[..., bool]:
    """Select requests that write to a topic, or to some of its partitions."""

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
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    return begun


@pytest.mark.parametrize("apart_s", [0.1, 0.3])
@pytest.mark.parametrize("slow_s", [0.5, 2.5])
async def test_a_partition_reassigned_while_others_drain_is_drained_before_its_release(
    apart_s: float, slow_s: float
) -> None:
    """w2 joins, the target is slow to answer w1, and w3 joins before w1 has drained the partitions for w2."""
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
    assert first.herder.connectors[0].attempts == 1


async def test_an_excluded_partition_with_unanswered_batches_moves_with_its_outcome_unknown() -> None:
    """Its topic was excluded while the target did not answer; then a worker joins, and the topic is included again."""
    world = SharedWorld()
    (name,) = world.make_topics(1, 6)
    (first,) = await settled(world, 1)
    connector = first.herder.connectors[0].connector
    assert isinstance(connector, SourceConnector)
    task = connector.task
    assert task is not None
    first.late_s = taking(NEVER_S, writes_to("A.t0"))
    world.write(name)
    await asyncio.sleep(0.3)
    async with task.settling:  # as if an operator excluded it
        await task.remove(list(task.partitions))
        first.late_s = lambda *_: 0.0
        assert task.unsettled == world.keys()
        world.start()
        await world.until(lambda: bool(connector._ownership.to_release()))
    await world.until(world.is_fully_assigned)
    assert first.herder.connectors[0].attempts == 2
    await asyncio.gather(*first.under_way)
    await world.finish()
    assert world.promises_once


async def test_an_unanswered_partition_delays_no_other_that_moves_when_a_worker_joins() -> None:
    """One broker of the target is frozen. The outcome of its batches is unknown after half a minute. The flow restarts
    then, and the partitions that stay pause once for that.
    """
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


async def test_a_stopping_worker_releases_drained_partitions_at_once_although_a_flow_waits_for_an_answer() -> None:
    world = SharedWorld(extra=TWO_SOURCES)
    other = world.another_cluster("C")
    other.create_topic("c0", 6)
    names = world.make_topics(1, 6)
    stops, _ = await settled(world, 2, C=other)
    await world.until(lambda: "C.c0" in world.target.topics)
    await asyncio.sleep(3)

    async def traffic() -> None:
        for count in range(10_000):
            for number in range(6):
                other.append("c0", number, [b"%d" % count])
            await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(world.traffic(names)), asyncio.create_task(world.watch())]
    tasks.append(asyncio.create_task(traffic()))
    await asyncio.sleep(1)
    (flow,) = [one.flow for one in stops.herder.connectors if one.copies and one.flow != world.flow]
    (stuck, *others) = sorted(number for _, number in stops.owns(flow))
    stops.late_s = taking(NEVER_S, writes_to("C.c0", {stuck}))
    await asyncio.sleep(0.3)
    ended = {("C.c0", number): len(world.target.records("C.c0", number)) for number in others}
    world.pauses.clear()
    stopping = asyncio.create_task(stops.stop())
    await asyncio.sleep(10)
    assert not stopping.done()
    assert max(pause_s for (topic, _), pause_s in world.pauses.items() if topic == "A.t0") < 1.0, world.pauses
    assert all(len(world.target.records(*at)) > count + 50 for at, count in ended.items())
    await stopping
    for task in tasks:
        task.cancel()
    await asyncio.gather(*stops.under_way)
    await world.finish()
    assert world.promises_once
    for number in range(6):
        copied = [record.value for record in world.target.records("C.c0", number)]
        assert copied == [record.value for record in other.records("c0", number)]
