"""Checkpoints of whole flows between two cluster models: where a group may continue, when, and which groups."""

from __future__ import annotations

import asyncio
import random

import pytest

from mm2py.records.checkpoint import Checkpoint, decode, encode
from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.scenarios.offsets.test_offset_syncs import numbered
from tests.scenarios.world import World

TOPIC = "A.checkpoints.internal"
ON = {"emit.checkpoints.enabled": "true"}


def checkpoints(world: World) -> list[Checkpoint]:
    if TOPIC not in world.target.topics:
        return []
    return [decode(record.key, record.value) for record in world.target.records(TOPIC, 0)]


def last_of(world: World, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (str(one.topic), one.partition): (one.upstream_offset, one.downstream_offset)
        for one in checkpoints(world)
        if one.group == group
    }


def lines(world: World, event: str) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if f" {event} " in line]


def keyed(world: World, rng: random.Random, batches: int) -> None:
    """Append batches of records with keys; some of a compacted topic go, and some transactions are aborted."""
    for _ in range(batches):
        records = [Record(key=b"%d" % rng.randint(0, 30), value=rng.randbytes(8)) for _ in range(rng.randint(1, 9))]
        if rng.random() < 0.2:
            transaction = world.source.transaction()
            transaction.append("orders", rng.randrange(2), records)
            transaction.abort() if rng.random() < 0.5 else transaction.commit()
        else:
            world.source.append("orders", rng.randrange(2), records)


async def copied_world(seed: int = 1, *, records: int = 1000, **extra: str) -> World:
    world = World(seed, extra={**ON, **{name.replace("_", "."): value for name, value in extra.items()}})
    world.source.create_topic("orders", 2)
    world.source.append("orders", 0, numbered(records))
    return world


async def test_a_group_that_ends_with_its_topic_gets_an_exact_checkpoint_without_waiting_for_the_interval() -> None:
    """Its first checkpoint is behind: the sync of the last record of a topic that rests comes up to 10 s later."""
    world = await copied_world(emit_checkpoints_interval_seconds="3600")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        world.source.groups.activate("pay")
        await asyncio.sleep(90)
        world.source.append("orders", 0, numbered(50))
        world.source.groups.commit("pay", {("orders", 0): (1050, "")})
        world.source.groups.deactivate("pay")
        await asyncio.sleep(20)
        assert last_of(world, "pay") == {("A.orders", 0): (1050, 1050)}


async def test_a_group_that_moves_gets_checkpoints_every_interval_and_one_that_rests_gets_none() -> None:
    world = await copied_world(emit_checkpoints_interval_seconds="10")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(12)
        world.source.groups.activate("moves")
        world.source.groups.commit("rests", {("orders", 0): (5, "")})
        for step in range(1, 7):
            world.source.append("orders", 0, numbered(300))
            world.source.groups.commit("moves", {("orders", 0): (1000 + 300 * step - 100, "")})
            await asyncio.sleep(10)
        found = checkpoints(world)
    assert len([one for one in found if one.group == "moves"]) in {5, 6}
    assert len([one for one in found if one.group == "rests"]) == 1
    assert all(one.downstream_offset <= one.upstream_offset for one in found), "nothing is skipped"


@pytest.mark.parametrize("committed", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("seed", range(3))
async def test_no_record_behind_a_commit_lies_before_its_checkpoint(seed: int, committed: str) -> None:
    """Compaction, aborted transactions, faults of all requests, and two workers one after the other (I6)."""
    world = World(
        seed,
        extra={
            **ON,
            "emit.checkpoints.interval.seconds": "1",
            "offset.lag.max": "5",
            "A.consumer.isolation.level": committed,
        },
    )
    rng = random.Random(seed)
    world.source.create_topic("orders", 2, {"cleanup.policy": "compact"})
    keyed(world, rng, 40)
    world.source.compact("orders")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(2)
    for cluster in (world.source, world.target):
        cluster.inject(Faults(delay=0.02, drop_reply=0.01, reset=0.02, produce_error=0.05))
    for _ in range(2):
        async with world.worker():
            for _ in range(20):
                keyed(world, rng, 2)
                for partition in range(2):
                    ends = [record.offset + 1 for record in world.source.records("orders", partition)] or [0]
                    for group in ("g1", "g2"):
                        world.source.groups.commit(group, {("orders", partition): (rng.choice(ends), "")})
                await asyncio.sleep(1)
    for cluster in (world.source, world.target):
        cluster.heal()
    async with world.worker():
        await world.copied({"orders": "A.orders"})
    found = checkpoints(world)
    assert len(found) > 2, world.log_text.getvalue()[-2000:]
    for one in found:
        copies = world.target.records("A.orders", one.partition)
        sources = world.source.records("orders", one.partition, committed=committed == "read_committed")
        assert [copy.content for copy in copies] == [source.content for source in sources]
        skipped = copies[: sum(copy.offset < one.downstream_offset for copy in copies)]
        read = sum(source.offset < one.upstream_offset for source in sources)
        assert len(skipped) <= read, f"seed {seed}: {one} skips {len(skipped) - read} records"


async def test_only_groups_and_topics_that_are_asked_for_count() -> None:
    world = await copied_world(groups="pay.*, gr.*", groups_exclude="payroll", topics="orders")
    world.source.create_topic("other", 1)
    world.source.append("other", 0, numbered(10))
    for group in ("payments", "payroll", "audit", "grüppe ☃"):
        world.source.groups.commit(group, {("orders", 0): (7, ""), ("other", 0): (7, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(70)
    assert {(one.group, one.topic) for one in checkpoints(world)} == {
        ("payments", "A.orders"),
        ("grüppe ☃", "A.orders"),
    }


async def test_share_groups_are_named_once_and_connect_s_are_not() -> None:
    world = await copied_world()
    world.source.groups.activate("shared", protocol_type="share")
    world.source.groups.activate("workers", protocol_type="connect")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(200)
    (line,) = lines(world, "checkpoints.not_mirrored")
    assert "shared" in line and "workers" not in line


async def test_a_group_goes_back_only_if_it_did_on_the_source_also_after_a_restart() -> None:
    world = await copied_world(emit_checkpoints_interval_seconds="2", offset_lag_max="9")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        world.source.groups.commit("g", {("orders", 0): (995, "")})
        await asyncio.sleep(15)
    before = last_of(world, "g")["A.orders", 0]
    for number in range(30):
        world.source.append("orders", 0, numbered(50, 1000 + 50 * number))
    async with world.worker():
        await asyncio.sleep(20)
        assert last_of(world, "g")["A.orders", 0] == before, "more syncs make older translations less exact"
        world.source.groups.commit("g", {("orders", 0): (500, "")})
        await asyncio.sleep(10)
    upstream, downstream = last_of(world, "g")["A.orders", 0]
    assert upstream == 500 and downstream <= 500


async def test_another_writer_s_older_checkpoint_is_written_over() -> None:
    world = await copied_world(emit_checkpoints_interval_seconds="2")
    world.source.groups.commit("g", {("orders", 0): (1000, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(20)
        assert last_of(world, "g")["A.orders", 0] == (1000, 1000)
        late = encode(Checkpoint("g", "A.orders", 0, 900, 850, ""), world.clock.wall_ms())
        world.target.append(TOPIC, 0, [Record(key=b"?", value=b""), Record(key=late.key, value=late.value)])
        await asyncio.sleep(10)
        assert last_of_readable(world, "g") == (1000, 1000)
    (line,) = lines(world, "checkpoints.malformed_record")
    assert TOPIC in line


def last_of_readable(world: World, group: str) -> tuple[int, int]:
    found = [decode(record.key, record.value) for record in world.target.records(TOPIC, 0) if record.key != b"?"]
    last = [one for one in found if one.group == group][-1]
    return last.upstream_offset, last.downstream_offset


async def test_without_rights_on_the_source_s_groups_records_are_copied_and_the_way_out_is_named() -> None:
    world = await copied_world()
    world.source.create_topic("mm2-offset-syncs.B.internal", 1)
    world.target.create_topic(TOPIC, 1)
    world.target.deny(TOPIC)
    world.source.groups.commit("g", {("orders", 0): (1000, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
        (line,) = lines(world, "checkpoints.waiting")
        assert TOPIC in line and "copying of records does not need them" in line
        world.target.allow(TOPIC)
        await asyncio.sleep(60)
    assert last_of(world, "g")
