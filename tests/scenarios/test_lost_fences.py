"""A fence that a leader has lost is put up again as long as the earlier writer might come back (H4)."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.producer_state import Refused
from tests.fakes.record_batch import Record, build_batch
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.two_lives import OFFSETS, Source, all_copied, forget_transactional_ids, make, said, until
from tests.scenarios.world import World

REMOTE = "A.orders"


async def taken_over(world: World, source: Source) -> int:
    """Copy in one life that is killed. Returns its producer id."""
    source.fill(10)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(5)
    (producer_id,) = {batch.producer_id for batch in world.target.batches(REMOTE, 0) if not batch.control}
    return producer_id


def zombie_writes(world: World, producer_id: int, topic: str = REMOTE, partition: int = 0) -> None:
    """Send a batch of a producer that was shut out."""
    raw = build_batch([Record(b"zombie")], now_ms=world.clock.wall_ms(), producer_id=producer_id, base_sequence=500)
    world.target.append(topic, partition, raw)


def is_shut_out(world: World, producer_id: int, topic: str = REMOTE, partition: int = 0) -> bool:
    known = world.target.partition(topic, partition)
    producer = known.replicas[known.leader].table.producers.get(producer_id)
    return producer is not None and producer.epoch > 0


def test_a_marker_that_was_cut_off_is_written_again_and_copying_goes_on() -> None:
    async def scenario() -> None:
        world, source, witness = make(1)
        earlier = await taken_over(world, source)
        async with world.worker():
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            await asyncio.sleep(5)
            assert is_shut_out(world, earlier)
            world.target.truncate(REMOTE, 0, world.target.partition(REMOTE, 0).log.end_offset - 1)
            assert not is_shut_out(world, earlier)
            await until(lambda: is_shut_out(world, earlier), world, deadline_s=40)
            with pytest.raises(Refused, match="invalid_producer_epoch"):
                zombie_writes(world, earlier)
            await until(lambda: bool(said(world, "fences.renewed", "first=A.orders-0")), world)
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(5)
        assert not said(world, "target.truncated")
        assert not said(world, "foreign.writer")
        assert witness.findings() == []

    run_virtual(scenario(), limit_s=900)


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_a_fence_that_cannot_be_put_up_again_lowers_the_guarantee_or_stops_the_flow(support: str) -> None:
    async def scenario() -> None:
        world, source, _ = make(7, **{"B.exactly.once.source.support": support})
        await taken_over(world, source)
        async with world.worker() as herder:
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            await asyncio.sleep(5)
            forget_transactional_ids(world)
            world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
            world.target.truncate(REMOTE, 0, world.target.partition(REMOTE, 0).log.end_offset - 1)
            await asyncio.sleep(60)
            (status,) = herder.status()
        if support == "enabled":
            assert (status.state, "cannot be kept" in status.reason) == ("refused", True)
        else:
            assert said(world, "writer.unfenced")
            assert status.guarantee.startswith("at-least-once")

    run_virtual(scenario(), limit_s=900)


def test_a_marker_that_is_cut_off_with_records_behind_it_is_written_again_where_they_are_copied_again() -> None:
    async def scenario() -> None:
        world, source, _ = make(2, on_target_loss="recopy")
        earlier = await taken_over(world, source)
        async with world.worker():
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(5)
            world.target.truncate(REMOTE, 0, 0)
            await until(lambda: bool(said(world, "target.truncated")), world)
            await until(lambda: is_shut_out(world, earlier), world, deadline_s=100)
            await all_copied(world)

    run_virtual(scenario(), limit_s=900)


def test_a_fence_of_positions_is_put_up_again_too() -> None:
    async def scenario() -> None:
        world, source, _ = make(3)
        earlier = await taken_over(world, source)
        async with world.worker():
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            await asyncio.sleep(5)
            for number in range(3):
                world.target.truncate(OFFSETS, number, 0)
                assert not is_shut_out(world, earlier, OFFSETS, number)
            await until(
                lambda: all(is_shut_out(world, earlier, OFFSETS, number) for number in range(3)), world, deadline_s=60
            )
            source.fill(10)
            await all_copied(world)

    run_virtual(scenario(), limit_s=900)


def test_clean_leader_changes_write_no_marker() -> None:
    async def scenario() -> None:
        world, source, witness = make(4, nodes=3, replication_factor="3")
        await taken_over(world, source)
        async with world.worker():
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            for _ in range(5):
                source.fill(2)
                await asyncio.sleep(20)
                world.target.move_leader(REMOTE, 0)
            await all_copied(world)
        assert sum(batch.control for batch in world.target.batches(REMOTE, 0)) == 1
        assert world.target.counts["request DescribeProducers"] > 0
        assert witness.findings() == []

    run_virtual(scenario(), limit_s=900)


def test_a_fence_older_than_the_target_remembers_is_let_go() -> None:
    async def scenario() -> None:
        world = World(5, broker_config={"producer.id.expiration.ms": "200000"})
        world.source.create_topic("orders", 1)
        source = Source(world)
        await taken_over(world, source)
        async with world.worker():
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(250)
            before = world.target.counts["request DescribeProducers"]
            world.target.move_leader(REMOTE, 0)
            await asyncio.sleep(60)
            assert world.target.counts["request DescribeProducers"] == before

    run_virtual(scenario(), limit_s=900)
