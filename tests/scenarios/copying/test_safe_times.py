"""The safe time that a group tells of a flow: never too new, and a few seconds old while copying keeps up."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest
from kio.static.protocol import Payload

from mm2py.group.membership import GroupState
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest, ProduceReply
from mm2py.metrics.worker_numbers import FlowSnapshot
from mm2py.status.verdict import safety_of
from mm2py.worker.herder import Herder
from tests.fakes.broker.producer_state import Refused
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.gate import Request
from tests.scenarios.process import Wire
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3600)
PARTITIONS = 4
KEEPS_UP_MS = 4_000
"""Three things happen once a second: an end is asked for, partitions are looked at, and a heartbeat is sent."""
SAFE = {"offset.storage.replication.factor": "3", "status.storage.replication.factor": "3"}


class Watched:
    """A flow whose source grows, and what its group tells of it."""

    def __init__(self, seed: int, *, latency_s: tuple[float, float] = (0.0002, 0.002), **extra: str) -> None:
        self.rng = random.Random(seed)
        self.world = World(seed, nodes=3, extra=SAFE | extra, latency_s=latency_s)
        self.world.source.create_topic("orders", PARTITIONS, replication_factor=3)
        self.acknowledged: list[tuple[int, int, int]] = []
        """When, in which partition, and the end behind it."""
        self._appended: list[tuple[int, int]] = []

    def append(self, partition: int) -> None:
        try:
            base = self.world.source.append("orders", partition, [b"1"])
        except Refused:
            return  # it has no leader
        self._appended.append((partition, base + 1))
        self.look()

    def look(self) -> None:
        """Note which records all replicas in sync have by now."""
        ends = [self.world.source.partition("orders", number).high_watermark for number in range(PARTITIONS)]
        now_ms = self.world.clock.wall_ms()
        self.acknowledged += [(now_ms, number, end) for number, end in self._appended if end <= ends[number]]
        self._appended = [(number, end) for number, end in self._appended if end > ends[number]]

    def age_ms(self, view: GroupState) -> int | None:
        """Return the age of the safe time; None if it is not known. AssertionError: it is too new."""
        self.look()
        at_ms = safety_of(self.world.settings.flow, view).at_ms
        if at_ms is None:
            return None
        self._check(at_ms)
        return self.world.clock.wall_ms() - at_ms

    def check_partitions(self, herder: Herder) -> int:
        """Check what the worker itself knows, before heartbeats tell it; returns how many partitions have a time."""
        self.look()
        (source,) = [one.connector for one in herder.connectors if one.copies]
        task = getattr(source, "task", None)
        parts = [] if task is None else task.partitions.values()
        times = {part.partition: part.safe.at_ms for part in parts if part.safe.at_ms is not None}
        for number, at_ms in times.items():
            self._check(at_ms, number)
        return len(times)

    def exported(self, herder: Herder) -> set[int]:
        """Return the safe time that the worker's metrics have of the flow."""
        (source,) = [one.connector for one in herder.connectors if one.copies]
        parts = [] if source is None else source.measure()
        return {part.safe_ms for part in parts if isinstance(part, FlowSnapshot) and part.safe_ms is not None}

    def _check(self, at_ms: int, only: int | None = None) -> None:
        for acknowledged_ms, partition, end in self.acknowledged:
            if acknowledged_ms < at_ms and only in {None, partition}:
                there = self.world.target.partition("A.orders", partition).high_watermark
                assert there >= end, f"safe to {at_ms}, and {end - there} records of partition {partition} lack"


async def test_while_copying_keeps_up_it_is_a_few_seconds_old() -> None:
    """Two partitions get records, two are idle."""
    watched = Watched(1)
    for number in range(PARTITIONS):
        watched.append(number)
    async with watched.world.worker() as herder:
        await watched.world.copied({"orders": "A.orders"})
        (group,) = herder.groups.values()
        assert group.member is not None
        await asyncio.sleep(10)
        ages = []
        for _ in range(200):
            watched.append(watched.rng.randrange(2))
            await asyncio.sleep(0.1)
            ages.append(watched.age_ms(group.member.view))
        known = [age for age in ages if age is not None]
        assert len(known) == len(ages) and max(known) <= KEEPS_UP_MS, ages


@pytest.mark.parametrize("wait_ms", [500, 10_000])
async def test_reads_that_wait_for_long_at_the_broker_do_not_make_it_old(wait_ms: int) -> None:
    watched = Watched(2, **{"consumer.fetch.max.wait.ms": str(wait_ms)})
    for number in range(PARTITIONS):
        watched.append(number)
    async with watched.world.worker() as herder:
        await watched.world.copied({"orders": "A.orders"})
        (group,) = herder.groups.values()
        assert group.member is not None
        await asyncio.sleep(30)
        ages = []
        for _ in range(60):
            await asyncio.sleep(0.5)
            ages.append(watched.age_ms(group.member.view))
        known = [age for age in ages if age is not None]
        assert len(known) == len(ages) and max(known) <= KEEPS_UP_MS + 1_000, ages


async def test_over_a_slow_link_no_partition_is_ever_safe_to_a_time_that_is_too_new() -> None:
    """An answer counts from the moment at which its request was sent, and only what is acknowledged is copied."""
    watched = Watched(3, latency_s=(0.02, 0.2))
    watched.append(0)
    known = 0
    exported = set()
    async with watched.world.worker() as herder:
        await watched.world.copied({"orders": "A.orders"})
        for _ in range(1500):
            watched.append(watched.rng.randrange(2))
            await asyncio.sleep(0.02)
            known += watched.check_partitions(herder)
            exported |= watched.exported(herder)
    assert known > 1500
    assert 0 in exported and max(exported) > 1_000_000, "a metric that is not known yet is old, and not missing"


class _Throttling(NearBrokers):
    """A cluster whose brokers answer reads within a quota while it lasts: without any partition, as real ones do."""

    def __init__(self, cluster: Brokers) -> None:
        self.is_throttling = False
        self._cluster = cluster

    async def send(
        self, broker: BrokerId, request: Request, *, channel: str = "control"
    ) -> FetchReply | ProduceReply | Payload:
        if self.is_throttling and isinstance(request, FetchRequest) and request.topics[0].name == "orders":
            await asyncio.sleep(0.05)
            return FetchReply([], size_bytes=0, throttle_ms=50)
        return await self._cluster.send(broker, request, channel=channel)


async def test_a_read_that_a_quota_empties_says_nothing_of_ends() -> None:
    """A burst exceeds the quota of the worker's user: replies come back empty while records wait."""
    watched = Watched(4)
    watched.append(0)
    made: list[_Throttling] = []

    def through(cluster: Wire) -> Brokers:
        made.append(_Throttling(cast("Brokers", cluster)))
        return cast("Brokers", made[-1])

    async with watched.world.worker(through=through) as herder:
        await watched.world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        assert watched.check_partitions(herder) == PARTITIONS
        for one in made:
            one.is_throttling = True
        for _ in range(40):
            watched.append(watched.rng.randrange(PARTITIONS))
            await asyncio.sleep(0.1)
            watched.check_partitions(herder)
        for one in made:
            one.is_throttling = False
        await watched.world.copied({"orders": "A.orders"})


@pytest.mark.parametrize("seed", range(4))
async def test_while_leaders_move_and_brokers_die_it_is_never_too_new_and_comes_back(seed: int) -> None:
    watched = Watched(seed)
    world, rng = watched.world, watched.rng
    known = 0
    async with world.worker() as herder:
        (group,) = herder.groups.values()
        for step in range(600):
            for _ in range(rng.choice([0, 0, 1, 5])):
                watched.append(rng.randrange(PARTITIONS))
            if step % 25 == 24:
                world.source.move_leader("orders", rng.randrange(PARTITIONS))
            if step % 150 == 100:
                world.source.stop_broker(rng.choice(sorted(world.source.nodes)), clean=rng.random() < 0.5)
            if step % 150 == 140:
                for node in set(world.source.nodes) - set(world.source.alive):
                    world.source.start_broker(node)
            await asyncio.sleep(rng.uniform(0.02, 0.3))
            watched.check_partitions(herder)
            if group.member is not None:
                known += watched.age_ms(group.member.view) is not None
        await asyncio.sleep(30)
        assert group.member is not None
        age_ms = watched.age_ms(group.member.view)
        assert age_ms is not None and age_ms <= KEEPS_UP_MS
    assert known > 200, "it is known most of the time"
