"""A loss is accepted and no position names the previous incarnations: they are fenced before copying resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mm2py.kafka.messages import AddPartitionsToTxnRequest
from mm2py.kafka.port import ProduceRequest
from mm2py.records.gap_record import Command
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.partition_model import NO_LEADER
from tests.scenarios.gaps.test_gaps import (
    HOUR_S,
    ORDERS,
    RECOPY,
    accept,
    answer_to,
    command,
    gaps,
    kept,
    numbers,
    seen,
    texts,
    until,
    write,
)
from tests.scenarios.gate import Gate, Request
from tests.scenarios.two_incarnations import said
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)

LOST = ("target-truncated", 0, None, 9, "stopped")
ENABLED = {"B.exactly.once.source.support": "enabled"}


def is_copy(request: Request) -> bool:
    return isinstance(request, ProduceRequest) and request.topics[0].name == "A.orders"


@asynccontextmanager
async def frozen_with_request_in_flight(world: World) -> AsyncIterator[Gate]:
    """An incarnation that has copied 0 to 9 is frozen with 10 to 14 in flight. Opening the gate delivers only them."""
    request, connections = Gate(is_copy), Gate()

    def through(cluster: ClusterModel) -> ClusterModel:
        return connections(request(cluster))  # type: ignore[return-value]

    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker(through=through):
        await world.copied(ORDERS)
        await asyncio.sleep(3)
        request.shut()
        write(world.source, *numbers(10, 14))
        await until(lambda: request.held > 0)
        connections.shut()
        yield request


async def nothing_more_arrives(world: World, request: Gate, *expected: str) -> None:
    await until(lambda: texts(world) == list(expected))
    request.open()
    await asyncio.sleep(5)
    assert texts(world) == list(expected)


def markers(world: World) -> set[int]:
    """Return the producers whose markers stand in the remote partition."""
    return {batch.producer_id for batch in world.target.batches("A.orders", 0) if batch.control}


async def test_a_late_request_of_a_frozen_incarnation_is_not_stored_when_a_lost_copy_is_copied_again() -> None:
    world = World(2, extra=RECOPY)
    async with frozen_with_request_in_flight(world) as request:
        world.target.truncate("A.orders", 0, 0)
        async with world.worker():
            await nothing_more_arrives(world, request, *numbers(0, 14))


async def test_a_late_request_of_a_frozen_incarnation_is_not_stored_in_a_recreated_remote_topic() -> None:
    """Brokers before 4.1 identify the topic of a batch by its name only."""
    world = World(3)
    world.target.produce_by_topic_id = False
    async with frozen_with_request_in_flight(world) as request:
        world.target.recreate_topic("A.orders")
        async with world.worker():
            await seen(world, ("target-deleted", 0, None, 9, "stopped"))
            assert (await accept(world, 10)).carried_out
            await nothing_more_arrives(world, request, *numbers(0, 14))


async def test_a_fence_that_was_lost_with_the_end_is_written_again_before_copying_resumes() -> None:
    world = World(4)
    async with frozen_with_request_in_flight(world) as request, world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        assert markers(world)
        world.target.truncate("A.orders", 0, 0)
        await until(lambda: bool(gaps(world)))
        assert (await accept(world, 15)).carried_out
        request.open()
        await asyncio.sleep(5)
        assert texts(world) == []


async def test_a_drained_incarnation_is_not_fenced_when_a_loss_is_accepted() -> None:
    world = World(5)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await world.stop(herder)
    (drained,) = {batch.producer_id for batch in world.target.batches("A.orders", 0)}
    world.target.truncate("A.orders", 0, 0)
    write(world.source, "10")
    async with world.worker():
        await seen(world, LOST)
        assert (await accept(world, 10)).carried_out
        await until(lambda: texts(world) == ["10"])
    assert drained not in markers(world)


@pytest.mark.parametrize("extra", [{}, ENABLED], ids=["disabled", "enabled"])
async def test_a_previous_incarnation_that_cannot_be_fenced_lowers_the_guarantee_or_stops_the_flow(
    extra: dict[str, str],
) -> None:
    world = World(6, extra=extra)
    async with frozen_with_request_in_flight(world):
        world.target.truncate("A.orders", 0, 0)
        async with world.worker() as younger:
            await until(lambda: bool(gaps(world)))
            del world.target.coordinator.transactional_ids[f"mm2py-mm2py-{world.processes[0].member_id}-0-A->B"]
            world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
            command(world, Command("c1", "orders", 0, 10, 1))
            if extra:
                await until(lambda: younger.status()[0].state == "refused")
                assert "cannot be kept" in younger.status()[0].reason
                assert texts(world) == []
            else:
                await until(lambda: texts(world) == numbers(10, 14))
                assert said(world, "producer.unfenced", "records may be there twice")
                assert younger.status()[0].guarantee.startswith("at-least-once")


async def test_an_accepted_partition_waits_for_a_leader_that_can_take_the_fence() -> None:
    world = World(7)
    async with frozen_with_request_in_flight(world) as request:
        world.target.truncate("A.orders", 0, 0)
        async with world.worker():
            await until(lambda: bool(gaps(world)))
            remote = world.target.partition("A.orders", 0)
            remote.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
            one = Command("c1", "orders", 0, 10, 1)
            command(world, one)
            known = len(kept(world))
            asked = world.target.counts["request Metadata"]
            await asyncio.sleep(60)
            assert len(kept(world)) == known, "the command is not answered yet"
            assert world.target.counts["request Metadata"] - asked < 250
            remote.elect(1, [1], now_s=world.clock.monotonic())
            assert (await answer_to(world, one)).carried_out
            await nothing_more_arrives(world, request, *numbers(10, 14))


async def test_a_missing_marker_is_logged_and_other_partitions_start_meanwhile() -> None:
    """The transaction coordinator hangs."""
    world = World(8)
    held = Gate(lambda request: isinstance(request, AddPartitionsToTxnRequest) and "A.orders" in str(request))
    async with frozen_with_request_in_flight(world) as request:
        world.target.truncate("A.orders", 0, 0)
        held.shut()
        async with world.worker(through=held):
            await until(lambda: bool(gaps(world)))
            one = Command("c1", "orders", 0, 10, 1)
            command(world, one)
            await until(lambda: bool(said(world, "flow.waiting", "fencing previous producers in A.orders")))
            world.source.create_topic("bills", 1)
            write(world.source, "1", topic="bills")
            await world.copied({"bills": "A.bills"}, deadline_s=100)
            assert texts(world) == []
            held.open()
            assert (await answer_to(world, one)).carried_out
            await nothing_more_arrives(world, request, *numbers(10, 14))


async def test_a_recopied_topic_waits_for_a_leader_that_can_take_the_fence() -> None:
    world = World(9)
    async with frozen_with_request_in_flight(world) as request:
        world.source.truncate("orders", 0, 5)  # the position no longer fits the log: --allow-recopy is the way out
        remote = world.target.partition("A.orders", 0)
        remote.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
        async with world.worker(allow_recopy=frozenset({"orders"})):
            await asyncio.sleep(30)
            remote.elect(1, [1], now_s=world.clock.monotonic())
            await nothing_more_arrives(world, request, *numbers(0, 9), *numbers(0, 4))
