"""One partition of the offsets topic takes no records: positions kept there wait and are named, and delay nothing else.

The topics of records have two replicas, the offsets topic has one. So one stopped broker takes away one of its three
partitions, and no record is kept from being copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from mm2py.kafka.error_codes import NOT_ENOUGH_REPLICAS
from mm2py.kafka.port import BrokerId, Brokers, ProducedPartition, ProduceReply, ProduceRequest
from mm2py.records.source_offset import SourcePartition, decode_key, decode_value, encode_key, partition_of
from mm2py.worker.herder import Herder
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.gate import Request
from tests.scenarios.process import Wire
from tests.scenarios.two_incarnations import OFFSETS, said, until
from tests.scenarios.world import World

HOUR_S = 3600.0
pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)
STUCK = 0
LEDGER = "mm2-ledger.A.internal"
"""The partition of the offsets topic that becomes unavailable."""
COPIED = {"orders": "A.orders"}


def make(**extra: str) -> World:
    safe = {"status.storage.replication.factor": "3", "replication.factor": "2"}
    world = World(
        1, nodes=3, extra=safe | {name.replace("__", "->").replace("_", "."): value for name, value in extra.items()}
    )
    create(world, "orders", 12)
    return world


def create(world: World, topic: str, partitions: int) -> None:
    world.source.create_topic(topic, partitions, replication_factor=3)
    fill(world, topic, 0)


def fill(world: World, topic: str, number: int) -> None:
    for partition in range(len(world.source.topics[topic].partitions)):
        world.source.append(topic, partition, [b"%d" % number])


def kept_in_stuck(topic: str, partitions: int) -> set[int]:
    return {no for no in range(partitions) if partition_of(encode_key(SourcePartition("A", topic, no)), 3) == STUCK}


def on_stuck_broker(world: World, topic: str, partitions: int) -> set[int]:
    """Return the partitions whose position, or ledger, is on the broker that ``stuck`` stops."""
    node = world.target.topics[OFFSETS].partitions[STUCK].leader
    ours = (world.target.topics[name].partitions for name in (OFFSETS, LEDGER))
    numbers = {number for parts in ours for number, part in enumerate(parts) if part.leader == node}
    return {no for no in range(partitions) if partition_of(encode_key(SourcePartition("A", topic, no)), 3) in numbers}


@contextmanager
def stuck(world: World) -> Iterator[None]:
    """Stop the one broker that has this partition."""
    node = world.target.topics[OFFSETS].partitions[STUCK].leader
    world.target.stop_broker(node)
    yield
    world.target.start_broker(node)


class Short:
    """Stands between a worker and its target: one partition of the offsets topic has too few replicas in sync."""

    def __init__(self) -> None:
        self.is_on = False

    def __call__(self, wire: Wire) -> Brokers:
        return cast("Brokers", _Short(self, wire))

    @contextmanager
    def of_replicas(self) -> Iterator[None]:
        self.is_on = True
        yield
        self.is_on = False


class _Short(NearBrokers):
    def __init__(self, short: Short, wire: Wire) -> None:
        self._short = short
        self._wire = wire

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        if self._short.is_on and isinstance(request, ProduceRequest):
            (topic,) = request.topics
            if (topic.name, [part.partition for part in topic.partitions]) == (OFFSETS, [STUCK]):
                return ProduceReply([ProducedPartition(OFFSETS, STUCK, NOT_ENOUGH_REPLICAS)])
        return await self._wire.send(broker, request, channel=channel)


def copied(world: World, topic: str) -> list[int]:
    remote = f"A.{topic}"
    return [len(world.target.records(remote, part.index)) for part in world.target.topics[remote].partitions]


def stored(world: World) -> dict[tuple[str, int], int]:
    """Return the next source offsets stored in partitions that have a leader."""
    found: dict[tuple[str, int], int] = {}
    for part in world.target.topics[OFFSETS].partitions:
        for record in world.target.records(OFFSETS, part.index) if part.leader > 0 else ():
            key, value = decode_key(record.key), decode_value(record.value)
            assert key is not None and value is not None
            found[key.topic, key.partition] = value.next_source
    return found


def problems(herder: Herder, topic: str) -> list[str]:
    (shown,) = [one for one in herder.status()[0].topics if one.topic == topic]
    return list(shown.problems)


async def test_while_positions_cannot_be_read_new_topics_wait_and_running_partitions_continue() -> None:
    """Another worker may have stored a position there."""
    world = make()
    async with world.worker() as herder:
        await world.copied(COPIED)
        with stuck(world):
            create(world, "fresh", 12)
            for number in range(1, 30):
                fill(world, "orders", number)
                await asyncio.sleep(1)
            assert copied(world, "fresh") == [0] * 12
            assert copied(world, "orders") == [30] * 12
            assert f"{OFFSETS}-0" in herder.status()[0].reason
            (line,) = said(world, "watch.failing")
            assert f"Reading {OFFSETS}-0 was refused with LEADER_NOT_AVAILABLE" in line
        await world.copied({"fresh": "A.fresh"}, deadline_s=20)


async def test_a_topic_deleted_meanwhile_does_not_prevent_the_worker_from_learning_new_leaders() -> None:
    """Its last positions cannot be stored; then a third of the source's leaders move."""
    world = make()
    names = [f"gone{number}" for number in range(20)]
    for name in names:
        create(world, name, 1)
    async with world.worker():
        await world.copied(COPIED | {name: f"A.{name}" for name in names})
        await asyncio.sleep(3)
        kept = {name for name in names if on_stuck_broker(world, name, 1)}
        with stuck(world):
            await asyncio.sleep(5)
            for name in names:
                fill(world, name, 1)
            await world.copied({name: f"A.{name}" for name in names})
            for name in names:
                world.source.delete_topic(name)
            await asyncio.sleep(30)
            assert len(said(world, "topic.gone")) + len(said(world, "topics.gone")) > 0
            world.source.stop_broker(1)
            await asyncio.sleep(10)
            fill(world, "orders", 1)
            await world.copied(COPIED, deadline_s=30)
            in_time = {name for name in names if stored(world).get((name, 0)) == 2}
            assert in_time == set(names) - kept and 0 < len(in_time) < len(names)
        await asyncio.sleep(5)
        assert {stored(world)[name, 0] for name in names} == {2}, "stored later"


async def test_a_stop_logs_the_positions_that_it_cannot_store_and_the_next_incarnation_resumes_exactly() -> None:
    world = make()
    async with world.worker() as herder:
        await world.copied(COPIED)
        await asyncio.sleep(3)
        waiting = on_stuck_broker(world, "orders", 12)
        with stuck(world):
            for number in range(1, 20):
                fill(world, "orders", number)
                await asyncio.sleep(1)
            await world.copied(COPIED)
            begun_s = world.clock.monotonic()
            herder.stop()
            await until(lambda: bool(said(world, "drain.failed")), world)
            assert world.clock.monotonic() - begun_s < 10
            (line,) = said(world, "drain.failed")
            assert f"{len(waiting)} position(s) could not be stored" in line and "it has no leader" in line
            assert {no for (_, no), at in stored(world).items() if at == 20} == set(range(12)) - waiting
    async with world.worker():
        fill(world, "orders", 20)
        await world.copied(COPIED)
        await asyncio.sleep(3)
    assert [verdict.findings for verdict in world.judge("orders", "A.orders", exact=True) if not verdict.ok] == []
    assert copied(world, "orders") == [21] * 12
    assert world.target.complaints == []


async def test_a_recreated_topic_starts_where_its_positions_can_be_stored_and_waits_where_they_cannot() -> None:
    world, short = make(on_source_gap="restart"), Short()
    async with world.worker(through=short):
        await world.copied(COPIED)
        await asyncio.sleep(3)
        with short.of_replicas():
            await asyncio.sleep(10)
            world.source.delete_topic("orders")
            create(world, "orders", 12)
            create(world, "fresh", 12)
            await asyncio.sleep(60)
            assert copied(world, "orders") == [1 if no in kept_in_stuck("orders", 12) else 2 for no in range(12)]
            assert copied(world, "fresh") == [0 if no in kept_in_stuck("fresh", 12) else 1 for no in range(12)]
        await asyncio.sleep(10)
        assert copied(world, "orders") == [2] * 12
        assert copied(world, "fresh") == [1] * 12
