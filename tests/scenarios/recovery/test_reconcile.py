"""Partitions are taken over one by one: without a leader, truncated, gone for a while, or moved by an operator."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from mm2py.kafka.messages import ListOffsetsRequest
from mm2py.kafka.port import BrokerId, Brokers
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.partition_model import NO_LEADER
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.gate import Gate, Request
from tests.scenarios.process import Wire
from tests.scenarios.two_incarnations import (
    all_copied,
    copies,
    finish,
    is_data,
    killed_ahead,
    make,
    said,
    until,
    worker_with_old_positions,
)

pytestmark = pytest.mark.virtual_time(limit_s=600)


async def test_one_fence_suffices_while_the_source_has_no_leader_to_compare_with() -> None:
    """The source was trimmed past the position, so its records are compared; its leader is lost just before that."""

    class LosesTheLeader(NearBrokers):
        def __init__(self, wire: Wire, cluster: ClusterModel) -> None:
            self._wire = wire
            self._cluster = cluster
            self.is_lost = False

        async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
            if isinstance(request, ListOffsetsRequest) and channel == "control" and not self.is_lost:
                self.is_lost = True
                self._cluster.partition("orders", 0).elect(NO_LEADER, [1], now_s=self._cluster.clock.monotonic())
            return await self._wire.send(broker, request, channel=channel)

    world, source, witness = make(16)
    source.fill(10)
    async with worker_with_old_positions(world, source):
        source.fill(20)
        await all_copied(world)
        await asyncio.sleep(65)  # the position stays behind the copy
    witness.look()
    upstream = world.source.partition("orders", 0)
    world.source.delete_records("orders", 0, upstream.high_watermark - 5)
    losing: list[LosesTheLeader] = []

    def through(wire: Wire) -> Brokers:
        if wire.name != "A":
            return wire
        losing.append(LosesTheLeader(wire, world.source))
        return cast("Brokers", losing[-1])

    async with world.worker(through=through):
        await until(lambda: any(one.is_lost for one in losing), world)
        await asyncio.sleep(60)
        fences = [batch for batch in world.target.batches("A.orders", 0) if batch.control]
        assert len(fences) == 1
        upstream.elect(1, [1], now_s=world.clock.monotonic())
        await until(lambda: bool(said(world, "partitions.reconciled", "by_content=1")), world)
        source.fill(5)
        await all_copied(world)
    assert witness.findings() == []


async def test_a_topic_that_vanishes_before_it_is_reconciled_and_returns_causes_no_duplicates() -> None:
    world, source, witness = make(12)
    await killed_ahead(world, source, 10, 20)
    lonely = world.target.partition("A.orders", 0)
    lonely.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
    async with world.worker():
        await asyncio.sleep(3)
        world.source.deny("orders")
        await asyncio.sleep(30)
        world.source.allow("orders")
        lonely.elect(1, [1], now_s=world.clock.monotonic())
        await asyncio.sleep(30)
        source.fill(5)
        await all_copied(world)
    await finish(world, source, witness)


async def test_an_operators_position_is_used_once_and_fences_a_frozen_worker_too() -> None:
    world, source, _ = make(15)
    source.fill(10)
    zombie = Gate(is_data)
    async with world.worker(through=zombie):
        await all_copied(world)
        await asyncio.sleep(2)
        zombie.shut()
        source.fill(10)
        await asyncio.sleep(1)
        world.source.truncate("orders", 0, 10)  # the position no longer fits the log: --allow-recopy is the way out
        recopied = frozenset({"orders"})
        async with world.worker(allow_recopy=recopied):
            await asyncio.sleep(5)
            end = world.target.partition("A.orders", 0).high_watermark
            zombie.open()
            await asyncio.sleep(5)
            assert world.target.partition("A.orders", 0).high_watermark == end
    for _ in range(2):
        async with world.worker(allow_recopy=recopied):
            await asyncio.sleep(5)
    assert len(said(world, "topic.recopied")) == 1
    values = [record.value for record in copies(world)]
    assert values[-10:] == [record.value for record in world.source.records("orders", 0)]
