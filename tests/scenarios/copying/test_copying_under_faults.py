"""Whole flows between two cluster models: under any fault no record is lost or reordered, and bytes are equal."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STORM = Faults(
    delay=0.02,
    drop_request=0.01,
    drop_reply=0.01,
    reset=0.02,
    duplicate_produce=0.02,
    produce_error=0.05,
    fetch_error=0.02,
    flip_bit=0.01,
    throttle=0.01,
    leader_move_every_s=3.0,
    broker_stop_every_s=20.0,
)


def fill(world: World, topic: str, rng: random.Random, batches: int) -> None:
    """Append batches of every shape to the partitions of a topic; some transactions are aborted."""
    partitions = len(world.source.topics[topic].partitions)
    for number in range(batches):
        records = [
            Record(
                value=rng.choice([None, b"", rng.randbytes(rng.randint(1, 60)), b"%d" % number]),
                key=rng.choice([None, b"", b"key-%d" % rng.randint(0, 9)]),
                headers=rng.choice([(), (("h", None), ("h", b"")), (("", b"\xff"),)]),
                timestamp_ms=rng.choice([None, None, 0, 1_000_000]),
            )
            for _ in range(rng.randint(1, 12))
        ]
        partition = rng.randrange(partitions)
        if rng.random() < 0.1:
            transaction = world.source.transaction()
            transaction.append(topic, partition, records, codec=rng.choice(CODECS))
            transaction.abort() if rng.random() < 0.5 else transaction.commit()
        else:
            world.source.append(topic, partition, records, codec=rng.choice(CODECS))


def assert_legal(world: World, topics: dict[str, str], *, exact: bool = False) -> None:
    for name, remote in topics.items():
        for verdict in world.judge(name, remote, exact=exact):
            assert verdict.ok, f"seed {world.seed}: {verdict.findings}\n{world.log_text.getvalue()[-3000:]}"
    assert world.target.complaints == [], f"seed {world.seed}"


@pytest.mark.parametrize("committed", ["read_uncommitted", "read_committed"])
async def test_a_copy_without_faults_is_exact_and_releases_all_memory(committed: str) -> None:
    world = World(1, extra={"A.consumer.isolation.level": committed})
    world.source.create_topic("orders", 3)
    fill(world, "orders", world.rng, 200)
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        fill(world, "orders", world.rng, 100)
        await world.copied({"orders": "A.orders"})
        await world.stop(herder)
    assert_legal(world, {"orders": "A.orders"}, exact=True)
    (process,) = world.processes
    assert process.budget.held_bytes == 0
    assert process.budget.peak_bytes <= process.budget.limit_bytes


@pytest.mark.walk([*range(4), 5028])  # 5028: one bit of a base offset flips; no checksum covers it
@pytest.mark.virtual_time
async def test_storms_and_kills_lose_and_reorder_no_record(seed: int) -> None:
    world = World(seed, nodes=3)
    topics = {"orders": "A.orders", "clicks": "A.clicks"}
    for name in topics:
        world.source.create_topic(name, 3)
        fill(world, name, world.rng, 60)
    world.source.inject(STORM)
    world.target.inject(STORM)
    for _ in range(3):  # three incarnations, each of them killed
        async with world.worker():
            for _ in range(4):
                await asyncio.sleep(world.rng.uniform(1.0, 8.0))
                for name in topics:
                    try:
                        fill(world, name, world.rng, 10)
                    except Exception as refused:  # the source partition may have no leader at this moment
                        assert "leader" in str(refused), refused
    world.source.heal()
    world.target.heal()
    async with world.worker():
        await world.copied(topics, deadline_s=900)
    assert_legal(world, topics, exact=True)


async def test_offsets_near_2_to_the_62_are_exact() -> None:
    world = World(5)
    world.source.create_topic("far", 1)
    world.source.append("far", 0, [b"near"])
    world.source.append("far", 0, [b"far"], at_offset=(1 << 62) - 3)
    world.source.append("far", 0, [b"a", b"b"])
    async with world.worker() as herder:
        await world.copied({"far": "A.far"})
        await world.stop(herder)
    assert [record.value for record in world.target.records("A.far", 0)] == [b"near", b"far", b"a", b"b"]
    world.source.append("far", 0, [b"c"])
    async with world.worker():
        await world.copied({"far": "A.far"})
    assert_legal(world, {"far": "A.far"}, exact=True)


@pytest.mark.virtual_time(limit_s=900)
async def test_a_partition_that_the_target_keeps_refusing_is_tried_less_and_less_often() -> None:
    world = World(10)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [b"before"])
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        world.target.configure_topic("A.orders", {"min.insync.replicas": "2"})
        world.source.append("orders", 0, [b"later"])
        await asyncio.sleep(30)
        assert "NOT_ENOUGH_REPLICAS" in world.log_text.getvalue()
        asked = world.source.counts["request Fetch"]
        await asyncio.sleep(300)
        assert world.source.counts["request Fetch"] - asked < 300
        assert world.target.records("A.orders", 0)[-1].value == b"before"
        world.target.configure_topic("A.orders", {"min.insync.replicas": "1"})
        await world.copied({"orders": "A.orders"})
