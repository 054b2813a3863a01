"""The record that a life leaves of itself in the status topic, while that topic is slow, or takes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from kio.static.protocol import Payload

from mm2py.kafka.port import (
    BrokerId,
    Brokers,
    FetchReply,
    FetchRequest,
    ProducedPartition,
    ProduceReply,
    ProduceRequest,
)
from mm2py.records.status_record import Life
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.gate import Gate, Request
from tests.scenarios.test_copying_under_faults import fill
from tests.scenarios.test_late_requests import lives
from tests.scenarios.two_lives import all_copied, forget_transactional_ids, make, said
from tests.scenarios.world import World

STATUS = "mm2-status.A.internal"
TOPICS = {"orders": "A.orders"}
NOT_ENOUGH_REPLICAS = 19
TOPIC_DENIED = 29


class StatusTopic:
    """Stands between a worker and the target: the status topic answers late from its start, or takes nothing."""

    def __init__(self, *, refuses_with: int = 0, opens_after_s: float = 0.0) -> None:
        self.refuses_with = refuses_with
        self._opens_after_s = opens_after_s

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Behind(self, cluster))

    async def answer(
        self, broker: BrokerId, request: Request, cluster: Brokers, channel: str
    ) -> FetchReply | ProduceReply | Payload:
        of_status = isinstance(request, FetchRequest | ProduceRequest) and request.topics[0].name == STATUS
        if of_status and isinstance(request, ProduceRequest) and self.refuses_with:
            await asyncio.sleep(0.01)
            parts = request.topics[0].partitions
            return ProduceReply([ProducedPartition(STATUS, part.partition, self.refuses_with) for part in parts])
        if of_status and isinstance(request, FetchRequest):
            from_start = all(part.fetch_offset == 0 for part in request.topics[0].partitions)
            await asyncio.sleep(self._opens_after_s if from_start else 0)
        return await cluster.send(broker, request, channel=channel)


class _Behind:
    def __init__(self, status: StatusTopic, cluster: Brokers) -> None:
        self._status = status
        self._cluster = cluster

    async def send(
        self, broker: BrokerId, request: Request, *, channel: str = "control"
    ) -> FetchReply | ProduceReply | Payload:
        return await self._status.answer(broker, request, self._cluster, channel)


def own(number: int, life: int = 0) -> str:
    return f"mm2py-mm2py-{number:012x}-{life}-A->B"


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    world = World(4)
    world.source.create_topic("orders", 3)
    fill(world, "orders", world.rng, 60)
    run_virtual(scenario(world), limit_s=9000)


@pytest.mark.parametrize("code", [NOT_ENOUGH_REPLICAS, TOPIC_DENIED])
def test_a_status_topic_that_takes_no_record_keeps_no_flow_from_copying(code: int) -> None:
    """It says what it waits for, then begins; the record is written as soon as that can be, by the same life."""

    async def scenario(world: World) -> None:
        status = StatusTopic(refuses_with=code)
        async with world.worker(through=status) as herder:
            await world.copied(TOPICS, deadline_s=60)
            (found,) = herder.status()
            assert found.state == "running"
            assert found.guarantee.startswith("at-least-once") and STATUS in found.guarantee
            assert bool(said(world, "flow.waiting", "looking for earlier lives")) is (code == NOT_ENOUGH_REPLICAS)
            await asyncio.sleep(60)
            status.refuses_with = 0
            fill(world, "orders", world.rng, 60)
            await asyncio.sleep(30)
            await world.copied(TOPICS)
            (found,) = herder.status()
            assert found.guarantee == "exactly-once", world.log_text.getvalue()[-3000:]
            assert lives(world) == {own(1): Life.WRITING}
            assert not said(world, "flow.failed")
            await world.stop(herder)
            assert lives(world) == {own(1): Life.DRAINED}

    run(scenario)


def test_a_flow_that_copies_is_not_ended_because_the_status_topic_can_be_read_again() -> None:
    """The story: it could be used by nobody at first, then it can be read, but its replicas are too few to write."""

    async def scenario(world: World) -> None:
        world.target.create_topic(STATUS, 5, {"cleanup.policy": "delete"})
        async with world.worker(through=StatusTopic(refuses_with=NOT_ENOUGH_REPLICAS)) as herder:
            await world.copied(TOPICS)
            world.target.configure_topic(STATUS, {"cleanup.policy": "compact"})
            await asyncio.sleep(60)
            fill(world, "orders", world.rng, 60)
            await world.copied(TOPICS, deadline_s=5)
            assert [status.state for status in herder.status()] == ["running"]
        assert not said(world, "flow.failed")

    run(scenario)


def test_a_status_topic_that_opens_slowly_each_time_ends_no_life() -> None:
    async def scenario(world: World) -> None:
        async with world.worker(through=StatusTopic(opens_after_s=16.0)) as herder:
            await world.copied(TOPICS)
            await asyncio.sleep(600)
            assert [status.guarantee for status in herder.status()] == ["exactly-once"]
            assert lives(world) == {own(1): Life.WRITING}
        assert len(said(world, "flow.ready")) == 1

    run(scenario)


def test_of_two_processes_that_leave_their_records_late_one_stops() -> None:
    """Each begins before it can have read of the other, and shuts it out; they wait longer each time, until one has."""

    async def scenario(world: World) -> None:
        slow = StatusTopic(opens_after_s=16.0)
        async with world.worker(through=slow) as older:
            await world.copied(TOPICS)
            await asyncio.sleep(60)
            async with world.worker(through=slow) as younger:
                for _ in range(60):
                    fill(world, "orders", world.rng, 5)
                    await asyncio.sleep(10)
                await world.copied(TOPICS)
                found = [*older.status(), *younger.status()]
                assert sorted(status.state for status in found) == ["refused", "running"], said(world, " flow.")

    run(scenario)


@pytest.mark.parametrize(("opens_after_s", "is_read_next"), [(16.0, True), (90.0, False)])
def test_whom_a_late_record_finds_not_shut_out_makes_one_life_begin_anew_and_is_named_until_it_is(
    opens_after_s: float, is_read_next: bool
) -> None:
    """Coordinators have forgotten w1, which has stored no position; the first life of w2 begins before it reads of it,
    and perhaps each."""

    async def scenario(world: World) -> None:
        gate = Gate(lambda request: isinstance(request, ProduceRequest) and request.topics[0].name != STATUS)
        gate.shut()
        async with world.worker(through=gate):
            while not gate.held:
                await asyncio.sleep(0.1)
        assert lives(world) == {own(1): Life.WRITING}
        forget_transactional_ids(world)
        async with world.worker(through=StatusTopic(opens_after_s=opens_after_s)) as herder:
            await asyncio.sleep(600)
            await world.copied(TOPICS)
            assert len(said(world, "flow.failed", "is begun anew", own(1))) == 1
            assert len(said(world, "flow.ready")) == 3, "one of w1, two of w2"
            (status,) = herder.status()
            told = "exactly-once" if is_read_next else f"at-least-once ({own(1)} was not shut out"
            assert status.guarantee.startswith(told), status.guarantee
            assert lives(world)[own(1)] is (Life.FENCED if is_read_next else Life.WRITING)

    run(scenario)


def test_a_life_that_could_not_be_fenced_is_met_by_each_that_follows() -> None:
    """Its id is forgotten, and ALTER is missing: it may still write, so nobody after it says exactly-once."""

    async def scenario() -> None:
        world, source, _ = make(6)
        source.fill(10)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(3)
        forget_transactional_ids(world)
        world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
        for _ in range(3):
            async with world.worker() as herder:
                source.fill(2)
                await all_copied(world)
                await asyncio.sleep(3)
                assert herder.status()[0].guarantee.startswith("at-least-once")
                assert lives(world)[own(1)] is Life.WRITING
                await world.stop(herder)
        world.target.denied_on_cluster.clear()
        async with world.worker() as herder:
            source.fill(2)
            await all_copied(world)
            assert herder.status()[0].guarantee == "exactly-once"
            assert lives(world)[own(1)] is Life.FENCED

    run_virtual(scenario(), limit_s=9000)
