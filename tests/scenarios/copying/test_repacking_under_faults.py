"""Batches are merged between two cluster models in storms: no record is lost or reordered, and bytes are equal.

The model checks sequences and repeats as brokers do, so a repeat that is cut differently shows.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from mm2py.copying.planning.steps import MERGED_MAX_BYTES
from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.scenarios.copying.test_copying_under_faults import CODECS, STORM, assert_legal, fill
from tests.scenarios.witness import stored_positions
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

MODES = ("auto", "pass", "repack")
LOST_ANSWERS = Faults(drop_reply=0.04, reset=0.04, delay=0.02)
TOPICS = {name: f"A.{name}" for name in ("orders", "raw", "clicks")}
LISTS = {"A->B.copy.mode.pass.topics": "raw", "A->B.copy.mode.repack.topics": "clicks"}


def fill_small(
    world: World,
    topic: str,
    rng: random.Random,
    batches: int,
    *,
    codec: str | None = None,
    timestamp_ms: int | None = 1_000,
) -> None:
    """Append batches of one or two records, mostly of one codec, as many producers without linger write them.

    Without a timestamp their time is now; of old ones the target forgets the producer at once
    (docs/broker-facts.md#c1).
    """
    usual = codec or rng.choice(CODECS)
    for number in range(batches):
        records = [
            Record(
                value=b"%d-" % number + rng.randbytes(rng.choice([3, 3, 90, 900])), key=b"k", timestamp_ms=timestamp_ms
            )
            for _ in range(rng.choice([1, 1, 2]))
        ]
        partition = rng.randrange(len(world.source.topics[topic].partitions))
        world.source.append(topic, partition, records, codec=usual if codec or rng.random() < 0.9 else "none")


def with_mode(world: World, mode: str, **extra: str) -> None:
    """Give the worker's next incarnation another copy mode."""
    replicas = str(len(world.target.nodes))
    lines = {"replication.factor": replicas, "offset.storage.replication.factor": replicas, **LISTS, **extra}
    lines["A->B.copy.mode"] = mode
    world.rewrite_file(lines)


def batch_counts(world: World, name: str) -> tuple[int, int]:
    """Return the number of batches of a topic on the source, and on the target."""
    numbers = range(len(world.source.topics[name].partitions))
    return (
        sum(len(world.source.batches(name, number)) for number in numbers),
        sum(len(world.target.batches(TOPICS[name], number)) for number in numbers),
    )


@pytest.mark.virtual_time
async def test_lost_answers_alone_cause_no_duplicates_whatever_is_merged() -> None:
    """No leader moves and nothing is refused: every repeat is cut as before, so the target recognises it."""
    world = World(2)
    with_mode(world, "repack")
    for name in TOPICS:
        world.source.create_topic(name, 2)
    world.target.inject(LOST_ANSWERS)
    async with world.worker() as herder:
        for _ in range(60):
            for name in TOPICS:
                fill_small(world, name, world.rng, 25, timestamp_ms=None)
            await asyncio.sleep(world.rng.uniform(0.1, 3.0))
        world.target.heal()
        await world.copied(TOPICS, deadline_s=600)
        said = world.log_text.getvalue()
        await world.stop(herder)
    assert "partitions.reconciled" not in said
    assert_legal(world, TOPICS, exact=True)


async def test_a_refused_record_splits_its_merged_batch_and_both_are_logged_once() -> None:
    """The remote topic becomes compacted meanwhile: a record without a key does not keep back records before it."""
    world = World(1, extra={"sync.topic.configs.enabled": "false"})
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [Record(value=b"first", key=b"k", timestamp_ms=1_000)])
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        world.target.configure_topic("A.orders", {"cleanup.policy": "compact"})
        for number in range(20):
            record = Record(value=b"x", key=None if number == 15 else b"k%d" % number, timestamp_ms=1_000)
            world.source.append("orders", 0, [record])
        await asyncio.sleep(120)
        said = world.log_text.getvalue()
    assert len(world.target.records("A.orders", 0)) == 16
    assert said.count("topic.not_merged") == 1
    assert "source offset 16" in said


@pytest.mark.parametrize("described", [True, False])
async def test_a_limit_that_is_lowered_at_run_time_costs_neither_a_record_nor_an_epoch(described: bool) -> None:
    """``max.message.bytes`` of the remote topic shrinks to a few small batches; the target may not say so."""
    world = World(3)
    with_mode(world, "repack")
    world.source.create_topic("orders", 2)
    fill_small(world, "orders", world.rng, 300)
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        world.target.configure_topic("A.orders", {"max.message.bytes": "2500"})
        if not described:
            world.target.hidden_configs.add("A.orders")
        fill_small(world, "orders", world.rng, 2_000, codec="none")
        await world.copied({"orders": "A.orders"}, deadline_s=15)
        said = world.log_text.getvalue()
        await world.stop(herder)
    assert "partitions.reconciled" not in said
    assert_legal(world, {"orders": "A.orders"}, exact=True)


@pytest.mark.parametrize("codec", ["zstd", "none"])
async def test_small_batches_are_merged_and_recompressed_in_one_step(codec: str) -> None:
    world = World(4)
    with_mode(world, "auto", **{"B.producer.compression.type": codec})
    world.source.create_topic("orders", 2)
    fill_small(world, "orders", world.rng, 300, codec="gzip")
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        await world.stop(herder)
    batches = [batch for number in range(2) for batch in world.target.batches("A.orders", number)]
    assert Counter(batch.codec for batch in batches) == {codec: len(batches)}
    assert len(batches) < 20
    assert max(len(batch.raw) for batch in batches) <= MERGED_MAX_BYTES
    assert_legal(world, {"orders": "A.orders"}, exact=True)


@pytest.mark.walk(range(3))
@pytest.mark.virtual_time
async def test_storms_over_small_batches_in_changing_modes_lose_and_reorder_no_record(seed: int) -> None:
    await storm(seed)


async def storm(seed: int) -> None:
    """Three incarnations under all faults, each killed and each in another mode; then one that copies the rest."""
    rng = random.Random(seed)
    world = World(seed, nodes=3)
    for name in TOPICS:
        world.source.create_topic(name, 2)
        fill_small(world, name, rng, 60)
    world.source.inject(STORM)
    world.target.inject(STORM)
    for mode in rng.sample(MODES, 3):
        with_mode(world, mode)
        async with world.worker():
            for _ in range(4):
                await asyncio.sleep(rng.uniform(0.5, 8.0))
                if rng.random() < 0.2 and "A.orders" in world.target.topics:
                    limit = rng.choice(["3000", "20000", "1048588"])
                    world.target.configure_topic("A.orders", {"max.message.bytes": limit})
                for name in TOPICS:
                    try:
                        fill_small(world, name, rng, 25)
                        fill(world, name, rng, 3)
                    except Exception as refused:  # the source partition may have no leader at this moment
                        assert "leader" in str(refused), refused
    world.source.heal()
    world.target.heal()
    with_mode(world, rng.choice(MODES))
    async with world.worker():
        await world.copied(TOPICS, deadline_s=900)
    assert_legal(world, TOPICS)


async def test_a_position_says_how_the_last_batch_travelled_and_a_worker_that_copies_nothing_leaves_it() -> None:
    world = World(5)
    with_mode(world, "auto")
    for name in TOPICS:
        world.source.create_topic(name, 1)
        fill_small(world, name, world.rng, 300, codec="none")
    for _ in range(2):
        async with world.worker() as herder:
            await world.copied(TOPICS)
            await asyncio.sleep(5)
            await world.stop(herder)
        stored = {name: position.mode for (name, _), position in (await stored_positions(world)).items()}
        assert stored == {"orders": "repack", "raw": "pass", "clicks": "repack"}
