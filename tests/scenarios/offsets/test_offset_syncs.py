"""Offset syncs of whole flows between two cluster models: each names a record and its copy, and none that is due is
missing."""

from __future__ import annotations

import asyncio
import random

import pytest

from mm2py.records.offset_sync import OffsetSync, decode
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.scenarios.copying.test_copying_under_faults import STORM, fill
from tests.scenarios.world import World

ON_SOURCE, ON_TARGET = "mm2-offset-syncs.B.internal", "mm2-offset-syncs.A.internal"


def syncs_in(cluster: ClusterModel, topic: str) -> list[OffsetSync]:
    return [decode(record.key, record.value) for record in cluster.records(topic, 0)]


def assert_true(world: World, syncs: list[OffsetSync]) -> None:
    """The record at the one offset is the copy of the record at the other."""
    for sync in syncs:
        (one,) = [
            record
            for record in world.source.records(sync.topic, sync.partition)
            if record.offset == sync.upstream_offset
        ]
        (copy,) = [
            record
            for record in world.target.records(f"A.{sync.topic}", sync.partition)
            if record.offset == sync.downstream_offset
        ]
        assert one.content == copy.content, sync


def numbered(count: int, first: int = 0) -> list[Record]:
    return [Record(key=b"k%d" % number, value=b"v%d" % number) for number in range(first, first + count)]


async def test_after_every_hundred_records_and_after_every_gap_there_is_a_sync() -> None:
    world = World(2, extra={"A.consumer.isolation.level": "read_committed"})
    world.source.create_topic("orders", 1)
    async with world.worker():
        for round_ in range(5):
            world.source.append("orders", 0, numbered(70, 70 * round_))
        transaction = world.source.transaction()
        transaction.append("orders", 0, numbered(3, 500))
        transaction.abort()
        world.source.append("orders", 0, numbered(1, 600))
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(1)
        found = syncs_in(world.source, ON_SOURCE)
    assert [one.upstream_offset for one in found] == [0, 101, 202, 303, 354], "354 follows an aborted transaction"
    assert_true(world, found)


@pytest.mark.parametrize("seed", range(4))
async def test_under_faults_every_sync_is_true(seed: int) -> None:
    world = World(seed, nodes=3, extra={"offset.lag.max": "3", "A.consumer.isolation.level": "read_committed"})
    world.source.create_topic("orders", 3)
    rng = random.Random(seed)
    fill(world, "orders", rng, 60)
    for cluster in (world.source, world.target):
        cluster.inject(STORM)
    async with world.worker():
        for _ in range(20):
            fill(world, "orders", rng, 3)
            await asyncio.sleep(0.7)
        for cluster in (world.source, world.target):
            cluster.heal()
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(30)
    found = syncs_in(world.source, ON_SOURCE)
    assert len(found) > 20
    assert_true(world, found)
    for partition in range(3):
        last = world.source.records("orders", partition, committed=True)[-1].offset
        assert [one.upstream_offset for one in found if one.partition == partition][-1] == last


async def test_without_the_right_to_write_to_the_source_records_are_copied_and_the_way_out_is_named() -> None:
    world = World(3)
    world.source.create_topic("orders", 1)
    world.source.create_topic(ON_SOURCE, 1)
    world.source.deny(ON_SOURCE)
    async with world.worker():
        world.source.append("orders", 0, numbered(10))
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        (line,) = [line for line in world.log_text.getvalue().splitlines() if "offset_syncs.waiting" in line]
        assert ON_SOURCE in line and "copying of records does not need them" in line
        world.source.allow(ON_SOURCE)
        world.source.append("orders", 0, numbered(1, 10))
        await asyncio.sleep(60)
    assert [one.upstream_offset for one in syncs_in(world.source, ON_SOURCE)][-1:] == [10]


async def test_switched_off_nothing_is_written() -> None:
    world = World(4, extra={"emit.offset-syncs.enabled": "false"})
    world.source.create_topic("orders", 1)
    async with world.worker():
        world.source.append("orders", 0, numbered(10))
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(15)
    assert set(world.source.topics) == {"orders"}


async def test_a_stop_leaves_a_sync_for_the_last_record() -> None:
    world = World(5)
    world.source.create_topic("orders", 1)
    async with world.worker() as herder:
        world.source.append("orders", 0, numbered(10))
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(1)
        await world.stop(herder)
    assert [one.upstream_offset for one in syncs_in(world.source, ON_SOURCE)] == [0, 9]
