"""One producer sends batches that cost much: its partition may wait, and nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.copying.planning import rebuild
from mm2py.records.compression import RECORDS_MAX
from tests.fakes.broker.record_batch import Record, build_batch
from tests.fakes.hostile_batches import batch_of_one_byte_members, batch_of_tiny_records, log_append_time, tiny_records
from tests.fakes.virtual_time import VirtualLoop
from tests.scenarios.copying.test_copying_under_faults import assert_legal, fill
from tests.scenarios.copying.test_stripes import TOPICS, channels_of, far_world
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

HEAVY = {
    "a member for each byte": batch_of_one_byte_members(tiny_records(6_000), 6_000),
    "20 MB of little": build_batch([Record(bytes(20_000_000), timestamp_ms=0)], codec="zstd"),
    "100,000 records": batch_of_tiny_records(100_000),
}


def _beside() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.beside


@pytest.mark.parametrize("name", HEAVY)
async def test_a_heavy_batch_is_copied_and_is_decoded_beside_the_loop(name: str) -> None:
    world = World(3, extra={"max.request.size": "50000000"})
    world.source.create_topic("heavy", 1, {"max.message.bytes": "50000000"})
    world.source.create_topic("healthy", 1)
    async with world.worker():
        world.source.append("healthy", 0, [b"first"])
        await world.copied({"healthy": "A.healthy"})
        assert _beside() == 0
        world.source.append("heavy", 0, log_append_time(HEAVY[name]), as_is=True)
        world.source.append("heavy", 0, [b"behind it"])
        world.source.append("healthy", 0, [b"second"])
        await world.copied({"heavy": "A.heavy", "healthy": "A.healthy"}, deadline_s=5)
        assert _beside() > 0


async def test_a_batch_over_its_budget_stops_its_partition_and_no_other() -> None:
    world = World(3)
    world.source.create_topic("orders", 2)
    world.source.append("orders", 0, [b"before"])
    world.source.append("orders", 0, log_append_time(batch_of_tiny_records(RECORDS_MAX + 1)), as_is=True)
    async with world.worker():
        for _ in range(20):
            world.source.append("orders", 1, [b"x"])
            await asyncio.sleep(1)
        assert len(world.target.records("A.orders", 0)) == 1
        assert len(world.target.records("A.orders", 1)) == 20
        (line,) = [line for line in world.log_text.getvalue().splitlines() if " source.over_budget " in line]
        assert "orders" in line
        assert "partition=0" in line
        assert f"alter the offset of the partition to {RECORDS_MAX + 1}, and resume it" in line
        assert "source offset 1 cannot be copied: A batch of 1048577 records has more than the 1048576" in line


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.virtual_time
async def test_what_is_decoded_beside_the_loop_is_copied_once_and_in_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each small batch is heavy here. Workers are killed meanwhile, and look up what the one before has written."""
    monkeypatch.setattr(rebuild, "LIGHT_WORK_BYTES", 1)
    world = World(seed, extra={"producer.compression.type": "lz4"})
    world.source.create_topic("orders", 2)
    for life in range(4):
        async with world.worker():
            for number in range(10):
                for partition in range(2):
                    world.source.append("orders", partition, [b"%d-%d" % (life, number)] * 3, codec="gzip")
                await asyncio.sleep(world.rng.random() * 0.2)
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        assert _beside() > 0
        await world.stop(herder)
    assert not [verdict.breaches for verdict in world.judge("orders", "A.orders", exact=True) if verdict.breaches]


async def test_heavy_stripes_over_a_long_link_are_copied_exactly_and_all_memory_is_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rebuild, "LIGHT_WORK_BYTES", 1)
    world = far_world(1, **{"producer.compression.type": "lz4"})
    world.source.create_topic("orders", 2)
    fill(world, "orders", world.rng, 1_500)
    async with world.worker() as herder:
        await world.copied(TOPICS)
        assert len(channels_of(world)) > 4
        assert _beside() > 100
        await world.stop(herder)
    assert_legal(world, TOPICS, exact=True)
    (process,) = world.processes
    assert process.budget.held_bytes == 0
    assert process.budget.peak_bytes <= process.budget.limit_bytes
