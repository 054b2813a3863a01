"""A stalled partition is logged after ``stall.timeout.ms`` with what it waits for, and again when it continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mm2py.kafka import messages
from mm2py.kafka.list_offsets import LATEST
from mm2py.kafka.port import FetchRequest, ProduceRequest
from tests.scenarios.gate import Gate, Request
from tests.scenarios.world import World

MINUTE_S, HOUR_S = 60.0, 3600.0
pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)
SAFE = {"offset.storage.replication.factor": "3", "status.storage.replication.factor": "3"}


def lines(world: World, event: str) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if f" {event} " in line]


async def until(condition: Callable[[], bool], *, deadline_s: float = 120.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.1)


def world_with(*topics: str, partitions: int = 1, extra: dict[str, str] | None = None, nodes: int = 1) -> World:
    world = World(1, nodes=nodes, extra=extra)
    for topic in topics:
        world.source.create_topic(topic, partitions)
        for number in range(partitions):
            world.source.append(topic, number, [b"1"])
    return world


def stalled(world: World) -> int:
    return world.metrics.stalled(world.settings.flow)


async def test_a_reason_that_appears_later_is_logged_too_and_each_reason_once() -> None:
    """At first a target only does not answer. Then it reports missing replicas, which the operator has to read."""
    extra = {**SAFE, "sync.topic.configs.enabled": "false", "stall.timeout.ms": "5000"}
    world = world_with("orders", nodes=3, extra=extra)
    world.target.create_topic("A.orders", 1, {"min.insync.replicas": "3"}, replication_factor=3)
    gate = Gate(lambda request: isinstance(request, ProduceRequest) and request.topics[0].name == "A.orders")
    async with world.worker(through=gate):
        await world.copied({"orders": "A.orders"})
        gate.shut()
        world.source.append("orders", 0, [b"2"])
        await until(lambda: bool(lines(world, "partition.stalled")))
        assert "the target has not acknowledged what was read" in lines(world, "partition.stalled")[0]
        leader = world.target.topics["A.orders"].partitions[0].leader
        world.target.stop_broker(next(node for node in world.target.alive if node != leader))
        gate.open()
        await until(lambda: len(lines(world, "partition.stalled")) == 2)
        assert "NOT_ENOUGH_REPLICAS" in lines(world, "partition.stalled")[1]
        assert "for_s=5.0" not in lines(world, "partition.stalled")[1]
        await asyncio.sleep(2 * MINUTE_S)
        said = [line.split(" why=")[1].split(" for_s=")[0] for line in lines(world, "partition.stalled")]
        assert len(said) == len(set(said)) < 5
        assert not lines(world, "partition.moving")


async def test_a_wait_that_becomes_a_stall_is_not_logged_as_copying() -> None:
    """The log said that partitions were copied again at the moment in which they began to count as stalled."""
    world = world_with("orders", extra={"stall.timeout.ms": "20000"})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        (node,) = world.target.alive
        world.target.stop_broker(node)
        world.source.append("orders", 0, [b"2"])
        await until(lambda: bool(lines(world, "partition.stalled")))
        await asyncio.sleep(MINUTE_S)
        assert lines(world, "partitions.waiting")
        assert not lines(world, "partitions.copying")
        world.target.start_broker(node)
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(MINUTE_S)
        assert len(lines(world, "partitions.copying")) == 1


async def test_a_partition_without_new_records_never_stalls() -> None:
    world = world_with("orders", extra={"A.consumer.isolation.level": "read_committed"})
    transaction = world.source.transaction()
    transaction.append("orders", 0, [b"of a transaction"])
    transaction.abort()
    async with world.worker():
        await asyncio.sleep(2 * MINUTE_S)
        assert not lines(world, "partition.stalled")


async def test_an_open_transaction_is_named_as_what_hides_the_records_after_it() -> None:
    world = world_with("orders", partitions=2, extra={"A.consumer.isolation.level": "read_committed"})
    transaction = world.source.transaction()
    transaction.append("orders", 0, [b"of a transaction that stays open"])
    async with world.worker():
        await asyncio.sleep(25)
        assert not lines(world, "partition.stalled")
        await until(lambda: bool(lines(world, "partition.stalled")), deadline_s=15)
        await asyncio.sleep(10 * MINUTE_S)
        (line,) = lines(world, "partition.stalled")
        assert "a transaction on the source has not ended" in line and "partitions=1" in line
        transaction.abort()
        await until(lambda: bool(lines(world, "partition.moving")))
        assert stalled(world) == 0


async def test_a_record_that_cannot_be_copied_is_named_as_the_reason() -> None:
    world = world_with("orders", extra={"sync.topic.configs.enabled": "false", "stall.timeout.ms": "120000"})
    world.target.create_topic("A.orders", 1, {"max.message.bytes": "1000"})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        begun_s = world.clock.monotonic()
        world.source.append("orders", 0, [b"x" * 5_000])
        await until(lambda: bool(lines(world, "partition.stalled")), deadline_s=5 * MINUTE_S)
        assert 120 <= world.clock.monotonic() - begun_s < 125, "stall.timeout.ms counts"
        assert "cannot be copied" in lines(world, "partition.stalled")[0]


async def test_a_rate_limit_that_delays_a_partition_for_long_is_named_as_the_reason() -> None:
    """One batch is read whole, whatever its size; at 50 bytes a second the next read waits for 40 seconds."""
    world = world_with("orders", extra={"bytes.per.second.max": "50"})
    for _ in range(3):
        world.source.append("orders", 0, [b"x" * 2_000])
    async with world.worker():
        await until(lambda: bool(lines(world, "partition.stalled")), deadline_s=5 * MINUTE_S)
        assert "bytes.per.second.max holds reading back" in lines(world, "partition.stalled")[0]
        await until(lambda: bool(lines(world, "partition.moving")), deadline_s=5 * MINUTE_S)


async def test_a_revoked_partition_is_not_logged_as_moving_again() -> None:
    world = world_with("orders", extra={"sync.topic.configs.enabled": "false"})
    world.target.create_topic("A.orders", 1, {"max.message.bytes": "1000"})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        world.source.append("orders", 0, [b"x" * 5_000])
        await until(lambda: bool(lines(world, "partition.stalled")))
        world.source.delete_topic("orders")
        await until(lambda: stalled(world) == 0)
        assert not lines(world, "partition.moving")


class Asked:
    """Counts how often the source is asked for the ends of partitions."""

    def __init__(self) -> None:
        self.times = 0
        self.partitions = 0
        self.gate = Gate(self._look)

    def _look(self, request: Request) -> bool:
        if isinstance(request, messages.ListOffsetsRequest):
            asked = [part for topic in request.topics if topic.name == "orders" for part in topic.partitions]
            if any(part.timestamp == LATEST for part in asked):
                self.times += 1
                self.partitions += len(asked)
        return False


async def test_new_records_are_seen_while_the_remote_partition_has_no_leader_although_they_are_not_read() -> None:
    world = world_with("orders", partitions=9, nodes=3, extra=SAFE)
    asked = Asked()
    async with world.worker(through=asked.gate):
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
        asked.times = 0
        await asyncio.sleep(MINUTE_S)
        assert asked.times == 0, "a read answers where partitions end"
        node = world.target.topics["A.orders"].partitions[0].leader
        world.target.stop_broker(node)
        gone = [part.index for part in world.target.topics["A.orders"].partitions if part.leader < 0]
        asked.times = asked.partitions = 0
        await asyncio.sleep(2 * MINUTE_S)
        assert not lines(world, "partition.stalled"), "no record waits in them"
        assert 0 < asked.times <= 3 * 24 and asked.partitions <= 24 * len(gone), "one request for each broker, in 5 s"
        world.source.append("orders", gone[0], [b"2"])
        await asyncio.sleep(25)
        assert not lines(world, "partition.stalled")
        await until(lambda: bool(lines(world, "partition.stalled")), deadline_s=15)
        (line,) = lines(world, "partition.stalled")
        assert "partitions=1" in line and "the remote partition has no leader" in line
        world.target.start_broker(node)
        await until(lambda: bool(lines(world, "partition.moving")))
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
        asked.times = 0
        await asyncio.sleep(MINUTE_S)
        assert asked.times == 0 and stalled(world) == 0


async def test_a_partition_that_takes_long_to_reconcile_while_records_wait_is_stalled() -> None:
    """The worker is killed; the next one cannot read what it has left on the target."""
    world = world_with("orders", partitions=3, nodes=3, extra=SAFE)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(3)
    gate = Gate(lambda request: isinstance(request, FetchRequest) and request.topics[0].name == "A.orders")
    async with world.worker(through=gate):
        gate.shut()
        for _ in range(60):
            world.source.append("orders", 0, [b"2"])
            await asyncio.sleep(1)
        (line,) = lines(world, "partition.stalled")
        assert "partitions=1" in line and "previous producers are being fenced" in line
        gate.open()
        await until(lambda: bool(lines(world, "partition.moving")))


async def test_a_full_memory_does_not_hide_new_records_of_an_idle_partition() -> None:
    """The target broker of a busy partition takes nothing: the records read of it fill the memory."""
    world = World(1, memory_max_bytes=1 << 20)
    for topic in ("busy", "orders"):
        world.source.create_topic(topic, 1)
        world.source.append(topic, 0, [b"1"])
    gate = Gate(lambda request: isinstance(request, ProduceRequest) and request.topics[0].name == "A.busy")
    async with world.worker(through=gate):
        await world.copied({"busy": "A.busy", "orders": "A.orders"})
        gate.shut()
        for _ in range(100):
            world.source.append("busy", 0, [b"x" * 100_000])
        await asyncio.sleep(10)
        world.source.append("orders", 0, [b"2"])
        await asyncio.sleep(60)
        found = [line for line in lines(world, "partition.stalled") if "topic=orders" in line]
        assert len(found) == 1 and "memory.max.bytes is used up" in found[0]
