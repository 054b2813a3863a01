"""The status topic as a table: followed while it grows, read again when it was recreated, and kept small."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from kio.static.protocol import Payload

from mm2py.copying.gap_log import ANSWERS_KEPT_MS, GapLog, GapTable
from mm2py.kafka.errors import BrokerRefused, BrokerUnreachable, KafkaError
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, ProducedPartition, ProduceReply, ProduceRequest
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.records.gap_record import Command, CommandAnswer, Done, Gap, GapKind
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.gate import Request
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

TOPIC = "mm2-status.A.internal"
GAP = Gap(GapKind.EXPIRED, "orders", 3, 10, 19, Done.STOPPED, 10, "deleted", 1_000)
COMMAND = Command("c1", "orders", 3, 10, 2_000)


def world_with_topic() -> World:
    world = World(1)
    world.target.create_topic(TOPIC, 5, {"cleanup.policy": "compact"})
    return world


class AnswerLost(NearBrokers):
    """Stands before a cluster: the first batch is stored, and its answer is lost."""

    def __init__(self, cluster: Brokers) -> None:
        self._cluster = cluster
        self._is_lost = False

    async def send(
        self, broker: BrokerId, request: Request, *, channel: str = "control"
    ) -> FetchReply | ProduceReply | Payload:
        reply = await self._cluster.send(broker, request, channel=channel)
        if isinstance(request, ProduceRequest) and not self._is_lost:
            self._is_lost = True
            await asyncio.Event().wait()
        return reply


class LostThenDenied(NearBrokers):
    """Stands before a cluster: the first batch is stored and its answer lost, then the right to write is revoked."""

    def __init__(self, cluster: Brokers) -> None:
        self._cluster = cluster
        self._sent = 0

    async def send(
        self, broker: BrokerId, request: Request, *, channel: str = "control"
    ) -> FetchReply | ProduceReply | Payload:
        if not isinstance(request, ProduceRequest):
            return await self._cluster.send(broker, request, channel=channel)
        self._sent += 1
        if self._sent == 2:
            return ProduceReply([ProducedPartition(TOPIC, request.topics[0].partitions[0].partition, 29, -1)])
        reply = await self._cluster.send(broker, request, channel=channel)
        if self._sent == 1:
            raise BrokerUnreachable("the target", "the connection was reset")
        return reply


async def log_of(world: World, *, through: Callable[[Brokers], object] | None = None) -> GapLog:
    incarnation = Incarnation(
        world.target,
        lambda number: f"mm2py-test-{number}",
        clock=world.clock,
        rng=random.Random(1),
        report=lambda _: None,
        waiting=lambda _: None,
    )
    await incarnation.start()
    brokers = world.target if through is None else cast("Brokers", through(world.target))
    writer = TopicWriter(brokers, TOPIC, incarnation, rng=random.Random(1), timeout_ms=1_000)
    return GapLog(world.target, TOPIC, 5, writer, world.clock)


async def test_a_follower_reads_new_records_once() -> None:
    world = world_with_topic()
    log, reader = await log_of(world), GapTable(world.target, TOPIC)
    assert await reader.read() == 0
    await log.put([GAP])
    assert (await reader.read(), reader.gaps()) == (1, [GAP])
    await log.put([COMMAND])
    assert (await reader.read(), reader.unanswered()) == (1, [COMMAND])
    assert await reader.read() == 0


async def test_a_command_ends_with_its_answer() -> None:
    world = world_with_topic()
    log, reader = await log_of(world), GapTable(world.target, TOPIC)
    await log.put([COMMAND])
    await log.answer({COMMAND: CommandAnswer(COMMAND.command_id, True, "resumed", 3)})
    await reader.read()
    assert reader.unanswered() == []
    answer = reader.answer_to(COMMAND)
    assert answer is not None and answer.carried_out and answer.text == "resumed"
    assert list(reader.records) == [answer.key]


async def test_answers_are_forgotten_after_a_day() -> None:
    world = world_with_topic()
    log = await log_of(world)
    now_ms = world.clock.wall_ms()
    old, young = CommandAnswer("old", True, "", now_ms - ANSWERS_KEPT_MS - 1), CommandAnswer("young", True, "", now_ms)
    await log.put([old, young, GAP])
    assert log.old_answers() == [old.key]
    await log.remove(log.old_answers())
    reader = GapTable(world.target, TOPIC)
    await reader.read()
    assert set(reader.records) == {young.key, GAP.key}


@pytest.mark.parametrize("records", [1, 30])
async def test_a_recreated_status_topic_is_read_from_its_start(records: int) -> None:
    """Also if it is already longer than the old one was."""
    world = world_with_topic()
    log, reader = await log_of(world), GapTable(world.target, TOPIC)
    await log.put([Gap(GapKind.EXPIRED, "old", number, 0, 1, Done.KEPT, 0, "", 1) for number in range(10)])
    await reader.read()
    world.target.recreate_topic(TOPIC)
    writer = await log_of(world)
    await writer.put([Gap(GapKind.EXPIRED, "new", number, 0, 1, Done.KEPT, 0, "", 1) for number in range(records)])
    for _ in range(3):
        try:
            await reader.read()
        except KafkaError:
            continue
    assert {gap.topic for gap in reader.gaps()} == {"new"}
    assert len(reader.gaps()) == records


async def test_a_missing_status_topic_is_empty_and_looked_up_again() -> None:
    world = World(2)
    reader = GapTable(world.target, TOPIC)
    assert (await reader.read(), reader.is_missing, reader.partitions) == (0, True, 0)
    world.target.create_topic(TOPIC, 5, {"cleanup.policy": "compact"})
    await (await log_of(world)).put([GAP])
    assert (await reader.read(), reader.is_missing, reader.partitions) == (1, False, 5)


async def test_a_cancelled_write_of_unknown_outcome_suppresses_no_later_record() -> None:
    """Its answer was lost. Under the same sequence the target would take another record for a repeat."""
    world = world_with_topic()
    log, reader = await log_of(world, through=AnswerLost), GapTable(world.target, TOPIC)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(15):
            await log.put([GAP])
    later = replace(GAP, done=Done.ACCEPTED)
    await log.put([later])
    await reader.read()
    assert reader.gaps() == [later]


async def test_a_refused_write_of_unknown_outcome_suppresses_no_later_record() -> None:
    world = world_with_topic()
    log, reader = await log_of(world, through=LostThenDenied), GapTable(world.target, TOPIC)
    with pytest.raises(BrokerRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        await log.put([GAP])
    later = replace(GAP, done=Done.ACCEPTED)
    await log.put([later])
    await reader.read()
    assert reader.gaps() == [later]
