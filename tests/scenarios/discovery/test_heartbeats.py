"""Heartbeats on the broker model: how an unavailable, slow or strict target affects them, over virtual hours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mm2py.config.settings import ClusterSettings, HeartbeatSettings
from mm2py.connector import Connector, PathStatus
from mm2py.flow import ClusterAlias, parse_flow
from mm2py.kafka.port import BrokerId, Brokers, FetchRequest
from mm2py.records.heartbeat import Heartbeat, decode, encode
from mm2py_connectors.heartbeat.connector import HeartbeatConnector
from mm2py_connectors.heartbeat.path import PathConnector
from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.world import World

AB, BA = parse_flow("A->B"), parse_flow("B->A")


def emitter(world: World, *, interval_s: float | None = 1.0) -> HeartbeatConnector:
    """The heartbeat connector of A->B, which writes to the target."""
    settings = HeartbeatSettings(
        flow=AB,
        target=ClusterSettings(ClusterAlias("B"), (), 30.0, None),
        request_timeout_s=30.0,
        interval_s=interval_s,
        replication_factor=1,
        compression=None,
    )
    return HeartbeatConnector(settings, world.target, clock=world.clock, rng=world.rng, log=world.log)


def reader(world: World, *, brokers: Brokers | None = None) -> PathConnector:
    target = brokers or world.target
    return PathConnector(AB, "A.heartbeats", target, interval_s=1.0, clock=world.clock, rng=world.rng, log=world.log)


@asynccontextmanager
async def running(connector: Connector) -> AsyncIterator[None]:
    task = asyncio.create_task(connector.run())
    try:
        yield
        assert not task.done(), "it never ends by itself"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def beats(world: World) -> list[Heartbeat]:
    return [decode(record.key, record.value) for record in world.target.records("heartbeats", 0)]


def lines(world: World, event: str) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if re.search(rf" {re.escape(event)}\b", line)]


# -- emitting ----------------------------------------------------------------------------------------------------------


async def test_one_heartbeat_is_emitted_each_interval_and_the_first_after_one_interval() -> None:
    world = World(1)
    began_ms = world.clock.wall_ms()
    async with running(emitter(world)):
        await asyncio.sleep(60.5)
    found = beats(world)
    assert 58 <= len(found) <= 60
    assert {beat.flow for beat in found} == {AB}
    times = [beat.timestamp_ms - began_ms for beat in found]
    assert 1000 <= times[0] < 3000
    assert times == sorted(times)
    assert [record.timestamp_ms - began_ms for record in world.target.records("heartbeats", 0)] == times
    assert not lines(world, "heartbeats.waiting")


async def test_a_drained_connector_emits_no_heartbeats() -> None:
    world = World(3)
    connector = emitter(world)
    task = asyncio.create_task(connector.run())
    await asyncio.sleep(10)
    await connector.drain()
    await task
    count = len(beats(world))
    await asyncio.sleep(10)
    assert len(beats(world)) == count > 5


async def test_a_deleted_heartbeats_topic_is_recreated() -> None:
    world = World(4)
    async with running(emitter(world)):
        await asyncio.sleep(10)
        world.target.delete_topic("heartbeats")
        await asyncio.sleep(10)
        assert len(beats(world)) >= 5


@pytest.mark.virtual_time(limit_s=7200)
async def test_more_replicas_than_brokers_are_logged_once_with_the_setting_that_fixes_it() -> None:
    world = World(5)
    connector = HeartbeatConnector(
        HeartbeatSettings(AB, ClusterSettings(ClusterAlias("B"), (), 30.0, None), 30.0, 1.0, 3, None),
        world.target,
        clock=world.clock,
        rng=world.rng,
        log=world.log,
    )
    async with running(connector):
        await asyncio.sleep(3600)
    (line,) = lines(world, "heartbeats.waiting")
    assert "INVALID_REPLICATION_FACTOR" in line
    assert "Set heartbeats.topic.replication.factor (3) to what the cluster can hold" in line
    assert "no heartbeats are written; copying of records does not need them" in line


@pytest.mark.virtual_time(limit_s=7200)
async def test_a_storm_loses_heartbeats_and_nothing_else() -> None:
    """Connections break, brokers stop, answers get lost. Afterwards one heartbeat a second is written, in order."""
    world = World(6, nodes=3)
    began_ms = world.clock.wall_ms()
    async with running(emitter(world)):
        await asyncio.sleep(10)
        world.target.inject(Faults(delay=0.2, drop_reply=0.02, reset=0.05, produce_error=0.2, broker_stop_every_s=60.0))
        await asyncio.sleep(900)
        world.target.heal()
        await asyncio.sleep(120)
    times = [beat.timestamp_ms - began_ms for beat in beats(world)]
    calm = [at_ms for at_ms in times if at_ms >= 960_000]
    assert calm == times[-len(calm) :] == sorted(calm)
    assert len(calm) >= 60


# -- reading back ------------------------------------------------------------------------------------------------------


def arrive(world: World, *, age_ms: int = 40) -> None:
    """Append the copy of a heartbeat of B->A to the target."""
    if "A.heartbeats" not in world.target.topics:
        world.target.create_topic("A.heartbeats", 1)
    record = encode(Heartbeat(BA, world.clock.wall_ms() - age_ms))
    stored = Record(record.value, record.key, timestamp_ms=record.timestamp_ms)
    world.target.append("A.heartbeats", 0, [stored])


class Watched(NearBrokers):
    """The target's brokers, with a list of the offsets at which reads started."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.offsets: list[int] = []

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if isinstance(request, FetchRequest):
            self.offsets += [part.fetch_offset for topic in request.topics for part in topic.partitions]
        return await self._brokers.send(broker, request, channel=channel)


@pytest.mark.virtual_time(limit_s=7200)
async def test_a_path_is_proven_then_silent_then_proven_again() -> None:
    world = World(7)
    connector = reader(world)
    async with running(connector):
        await asyncio.sleep(20)
        assert connector.status() == PathStatus(None, None)
        for age_ms in (5_000, 40):  # the first heartbeat is there when the topic is found
            arrive(world, age_ms=age_ms)
            await asyncio.sleep(15)
        status = connector.status()
        assert status.path_latency_ms is not None and 40 <= status.path_latency_ms < 500
        assert status.heartbeat_age_s is not None and 14 < status.heartbeat_age_s < 16
        assert len(lines(world, "path.proven")) == 1
        await asyncio.sleep(3600)
        (line,) = lines(world, "path.silent")
        assert "no further heartbeat has come into A.heartbeats" in line
        assert "If it does, no worker writes heartbeats to A: start one with mm2py FILE --clusters A" in line
        arrive(world)
        await asyncio.sleep(10)
        assert len(lines(world, "path.proven")) == 2


async def test_old_heartbeats_are_not_read() -> None:
    world = World(8)
    for _ in range(500):
        arrive(world, age_ms=1_000_000)
    watched = Watched(world.target)
    connector = reader(world, brokers=watched)
    async with running(connector):
        await asyncio.sleep(5)
        assert connector.status().path_latency_ms is None
        assert connector.status().heartbeat_age_s is not None
        assert min(watched.offsets) == 490


async def test_an_unavailable_target_is_not_a_silent_path() -> None:
    world = World(9)
    connector = reader(world)
    async with running(connector):
        arrive(world)
        await asyncio.sleep(10)
        arrive(world)
        await asyncio.sleep(5)
        world.target.stop_broker(1)
        await asyncio.sleep(600)
        assert not lines(world, "path.silent")
        assert len(lines(world, "path.waiting")) == 1
        world.target.start_broker(1)
        for _ in range(30):
            await asyncio.sleep(1)
            arrive(world)
        assert len(lines(world, "path.back")) == 1
        assert not lines(world, "path.silent")
