"""Transaction coordinators are missing (docs/broker-facts.md#m8): less is guaranteed, and copying continues."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from mm2py.kafka.port import BrokerId, Brokers, ProducedPartition, ProduceReply, ProduceRequest
from mm2py.kafka.producer import transactions
from tests.fakes.near_brokers import NearBrokers
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.gate import Request
from tests.scenarios.process import Wire
from tests.scenarios.two_incarnations import (
    Source,
    all_copied,
    copies,
    finish,
    make,
    said,
    until,
    worker_with_old_positions,
)
from tests.scenarios.witness import Witness
from tests.scenarios.world import BEATS_SELDOM, World

pytestmark = pytest.mark.virtual_time(limit_s=9000)

OUT_OF_ORDER_SEQUENCE = 45


def make_small(seed: int, **extra: str) -> tuple[World, Source, Witness]:
    """Return a world whose target has too few brokers for ``__transaction_state``: it can never be created."""
    world, source, witness = make(seed, **extra)
    world.target.transactions_available = False
    source.fill(20)
    return world, source, witness


@pytest.mark.parametrize("may_write_markers", [True, False])
@pytest.mark.virtual_time(limit_s=600)
async def test_an_incarnation_killed_where_no_coordinator_exists_does_not_block_the_next(
    may_write_markers: bool,
) -> None:
    """Its record names a transactional id that it never got: no coordinator will ever raise its epoch."""
    world, source, witness = make_small(2)
    async with worker_with_old_positions(world, source):
        source.fill(20)
        await all_copied(world)
        await asyncio.sleep(2)
    if not may_write_markers:
        world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
    await finish(world, source, witness)
    assert bool(said(world, "producer.unfenced")) is not may_write_markers


def test_where_exactly_once_is_required_a_target_without_coordinators_gets_nothing_and_the_remedy_is_logged() -> None:
    async def scenario() -> None:
        world, _, _ = make_small(3, **{"B.exactly.once.source.support": "enabled"})
        async with world.worker() as herder:
            await asyncio.sleep(300)
            (status,) = herder.status()
            assert status.state == "refused"
            assert "exactly.once.source.support=enabled cannot be kept" in status.reason
            assert "COORDINATOR_NOT_AVAILABLE" in status.reason
            assert "let __transaction_state be created there" in status.reason
            assert "or set B.exactly.once.source.support=disabled" in status.reason
        assert "A.orders" not in world.target.topics or copies(world) == []

    run_virtual(scenario(), limit_s=600)


async def test_coordinators_that_go_away_do_not_stop_a_running_flow() -> None:
    """They are needed for fences, and now and then to keep the transactional id alive; no batch needs them."""
    world = World(4, extra=BEATS_SELDOM, broker_config={"transactional.id.expiration.ms": "1600000"})
    world.source.create_topic("orders", 1)
    source, witness = Source(world), Witness(world, "orders")
    world.target.create_topic(transactions.TOPIC, 1)
    source.fill(20)
    async with world.worker() as herder:
        await all_copied(world)
        world.target.transactions_available = False
        for _ in range(4):
            await asyncio.sleep(150)  # it renews its transactional id after 400 seconds
            source.fill(5)
            begun_s = world.clock.monotonic()
            await all_copied(world)
            assert world.clock.monotonic() - begun_s < 5
        (status,) = herder.status()
        assert (status.state, status.guarantee) == ("running", "exactly-once")
        world.target.transactions_available = True
        await asyncio.sleep(1600)
        source.fill(5)
        await all_copied(world)
        assert not said(world, "flow.failed") and not said(world, "flow.waiting")
    await finish(world, source, witness)


class _LosesTrack:
    """The target answers once that it does not know the producer of the second partition."""

    def __init__(self) -> None:
        self.is_armed = False

    def __call__(self, wire: Wire) -> Brokers:
        return cast("Brokers", _Losing(self, wire))


class _Losing(NearBrokers):
    def __init__(self, losing: _LosesTrack, wire: Wire) -> None:
        self._losing = losing
        self._wire = wire

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        if self._losing.is_armed and isinstance(request, ProduceRequest) and request.topics[0].name == "A.orders":
            numbers = [part.partition for part in request.topics[0].partitions]
            if numbers == [1]:
                self._losing.is_armed = False
                return ProduceReply([ProducedPartition("A.orders", 1, OUT_OF_ORDER_SEQUENCE)])
        return await self._wire.send(broker, request, channel=channel)


async def test_a_partition_of_unknown_outcome_waits_for_a_coordinator_and_the_others_are_copied_meanwhile() -> None:
    world, source, witness = make(5, partitions=2)
    world.target.create_topic(transactions.TOPIC, 1)
    source.fill(20)
    source.fill(20, partition=1)
    losing = _LosesTrack()
    async with world.worker(through=losing) as herder:
        await all_copied(world)
        await asyncio.sleep(2)
        world.target.transactions_available = False
        losing.is_armed = True
        before = world.target.partition("A.orders", 1).high_watermark
        source.fill(5, partition=1)
        await until(lambda: not losing.is_armed, world)
        for _ in range(10):
            await asyncio.sleep(10)
            source.fill(1)
            await all_copied(world)
        assert world.target.partition("A.orders", 1).high_watermark == before
        problems = [text for topic in herder.status()[0].topics for text in topic.problems]
        assert any("the target lost track of this producer" in text for text in problems), problems
        world.target.transactions_available = True
        await until(lambda: world.target.partition("A.orders", 1).high_watermark > before + 5, world)
        assert len(said(world, "flow.ready")) == 1
    await finish(world, source, witness)
