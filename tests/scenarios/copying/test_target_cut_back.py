"""A remote partition that ends before its stored position is noticed before anything is written to it.

See docs/broker-facts.md#m4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from kio.static.primitive import i64

from mm2py.kafka.messages import ListOffsetsResponse
from mm2py.kafka.port import BrokerId, Brokers, ProduceRequest
from tests.fakes.broker.partition_model import Partition
from tests.fakes.near_brokers import NearBrokers
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.gate import Request
from tests.scenarios.process import Wire
from tests.scenarios.recovery.test_reconcile_storms import DAY_MS
from tests.scenarios.two_incarnations import all_copied, copies, make, said, until
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

REMOTE = "A.orders"


def remote(world: World) -> Partition:
    return world.target.partition(REMOTE, 0)


def led_elsewhere(world: World, but: int = 0) -> None:
    """Make another broker the leader of the remote partition, and not ``but``."""
    others = [node for node in remote(world).isr if node not in {remote(world).leader, but}]
    world.target.move_leader(REMOTE, 0, others[0])


@pytest.mark.parametrize("elected", [True, False], ids=["by an unclean election", "without a new leader epoch"])
@pytest.mark.virtual_time(limit_s=900)
async def test_an_idle_partition_that_was_truncated_is_noticed_within_minutes(elected: bool) -> None:
    world, source, _ = make(1)
    source.fill(10)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(20)
        if elected:
            world.target.truncate(REMOTE, 0, 5)
        else:
            remote(world).truncate(5)
        end = remote(world).log.end_offset
        words = "target.truncated", f"ends at offset {end}"
        await until(lambda: bool(said(world, *words)), world, deadline_s=40 if elected else 125)
        source.fill(10)
        await asyncio.sleep(120)
        assert remote(world).log.end_offset == end
    assert len(said(world, "target.truncated", "done=stopped")) == 1


@pytest.mark.virtual_time(limit_s=900)
async def test_idle_partitions_are_checked_together_and_busy_ones_not_at_all() -> None:
    world, source, _ = make(3, partitions=8)
    for number in range(8):
        source.fill(1, partition=number)
    async with world.worker():
        await asyncio.sleep(90)
        asked = world.target.counts["request ListOffsets"]
        for _ in range(150):
            source.fill(1)
            await asyncio.sleep(2)
        assert 4 <= world.target.counts["request ListOffsets"] - asked <= 6
    assert not said(world, "target.truncated")


@pytest.mark.parametrize("age_ms", [0, 30 * DAY_MS], ids=["new records", "old records"])
@pytest.mark.walk(range(2))
async def test_after_an_unclean_election_elsewhere_no_batch_is_stored(seed: int, age_ms: int) -> None:
    """The new leader knows no producer, so it would take any sequence (docs/broker-facts.md#h2)."""
    world, source, _ = make(seed, nodes=3, replication_factor="3")
    source.fill(10, age_ms=age_ms)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(5)
        before = remote(world).leader
        world.target.truncate(REMOTE, 0, 0)  # this also elects a leader
        led_elsewhere(world, but=before)
        source.fill(10, age_ms=age_ms)
        await until(lambda: bool(said(world, "target.truncated")), world)
        await asyncio.sleep(60)
    assert copies(world) == []


@pytest.mark.parametrize("age_ms", [0, 30 * DAY_MS], ids=["new records", "old records"])
async def test_no_batch_is_stored_after_a_leader_has_returned_with_fewer_records(age_ms: int) -> None:
    world, source, _ = make(5)
    source.fill(10, age_ms=age_ms)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(5)
        world.target.stop_broker(1, clean=False)
        source.fill(10, age_ms=age_ms)
        await asyncio.sleep(20)
        remote(world).truncate(0)
        world.target.start_broker(1)
        await until(lambda: bool(said(world, "target.truncated")), world)
        await asyncio.sleep(60)
    assert copies(world) == []


class Short(NearBrokers):
    """Brokers whose reported end lags while ``lags`` is set; counts produce requests."""

    def __init__(self) -> None:
        self.lags: Callable[[], bool] = lambda: False
        self.produced = 0

    def __call__(self, cluster: Brokers) -> Brokers:
        self._cluster = cluster
        return cast("Brokers", self)

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        if isinstance(request, ProduceRequest) and request.topics[0].name == REMOTE:
            self.produced += 1
        reply = await self._cluster.send(broker, request, channel=channel)
        if isinstance(reply, ListOffsetsResponse) and self.lags():
            topics = tuple(
                replace(
                    topic, partitions=tuple(replace(part, offset=i64(part.offset - 3)) for part in topic.partitions)
                )
                for topic in reply.topics
                if topic.name == REMOTE
            )
            return replace(reply, topics=topics or reply.topics)
        return reply


@pytest.mark.parametrize("lasting_s", [2.0, 20.0])
async def test_a_reported_end_that_only_lags_is_waited_for_and_no_batch_is_sent_meanwhile(lasting_s: float) -> None:
    world, source, witness = make(6, nodes=3, replication_factor="3")
    source.fill(10)
    short = Short()

    def through(wire: Wire) -> Brokers:
        return short(wire) if wire.name == "B" else wire

    async with world.worker(through=through):
        await all_copied(world)
        await asyncio.sleep(5)
        until_s = world.clock.monotonic() + lasting_s
        short.lags = lambda: world.clock.monotonic() < until_s
        led_elsewhere(world)
        source.fill(1)  # the old leader refuses it, so that the new one is looked up
        await asyncio.sleep(0.5)
        before = short.produced
        source.fill(10)
        await asyncio.sleep(1.3)
        assert short.produced == before
        if lasting_s < 3:
            await all_copied(world)
            await asyncio.sleep(5)
            assert not said(world, "target.truncated")
            assert witness.findings() == []
        else:
            await until(lambda: bool(said(world, "target.truncated")), world)
            assert short.produced == before


@pytest.mark.parametrize("by_topic_id", [True, False], ids=["brokers from 4.1 on", "older ones"])
async def test_no_batch_is_written_to_a_remote_topic_that_was_recreated_while_its_broker_was_away(
    by_topic_id: bool,
) -> None:
    world, source, _ = make(7)
    world.target.produce_by_topic_id = by_topic_id
    source.fill(10)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(5)
        world.target.stop_broker(1, clean=False)
        source.fill(10)
        await asyncio.sleep(20)
        world.target.start_broker(1)
        world.target.recreate_topic(REMOTE)
        await until(lambda: bool(said(world, "was deleted and recreated")), world)
        await asyncio.sleep(60)
    assert copies(world) == []
    assert not said(world, "target.truncated")


def test_no_batch_is_written_to_a_remote_topic_recreated_between_two_checks_where_batches_carry_topic_ids() -> None:
    async def scenario() -> None:
        world, source, _ = make(8)
        source.fill(10)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(5)
            world.target.recreate_topic(REMOTE)
            source.fill(10)
            await until(lambda: bool(said(world, "was deleted and recreated")), world)
            await asyncio.sleep(60)
        assert copies(world) == []

    run_virtual(scenario(), limit_s=600)
