"""Requests that arrive long after their worker has given them up (docs/broker-facts.md#c1): none is stored any more.

Their records are old, so a broker forgets their producer as soon as it looks, and also a fence with the same producer
id. So a partition continues under another producer id once it was fenced, and the marker is the last of the fenced one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from mm2py.kafka.messages import InitProducerIdRequest
from mm2py.kafka.port import ProduceRequest
from mm2py.kafka.producer.fencing import TransactionalId, parse
from tests.scenarios.gate import Gate, Request
from tests.scenarios.late import StuckRequests
from tests.scenarios.recovery.test_reconcile_storms import DAY_MS
from tests.scenarios.two_incarnations import OFFSETS, Source, all_copied, finish, is_data, make, said, until
from tests.scenarios.witness import Witness, stored_positions
from tests.scenarios.world import BEATS_SELDOM, World

pytestmark = pytest.mark.virtual_time(limit_s=600)

OLD_MS = 30 * DAY_MS
STATUS = "mm2-status.A.internal"
FENCED = 47


def is_copy(request: Request) -> bool:
    return is_data(request) and isinstance(request, ProduceRequest) and request.topics[0].name == "A.orders"


def goes_to(partition: int, request: Request) -> bool:
    if not (is_copy(request) and isinstance(request, ProduceRequest)):
        return False
    return any(one.partition == partition for topic in request.topics for one in topic.partitions)


def is_for_a_further_id(request: Request) -> bool:
    return isinstance(request, InitProducerIdRequest) and ".1-" in str(request.transactional_id)


def ids(world: World) -> dict[TransactionalId, int]:
    """Return the producer ids that the coordinators know, by transactional id."""
    known = world.target.coordinator.transactional_ids.items()
    named = ((parse(text, world.settings.group), one.producer_id) for text, one in known)
    return {name: producer_id for name, producer_id in named if name is not None}


def writers(world: World, partition: int = 0, topic: str = "A.orders") -> list[tuple[int, int]]:
    """Return the writers of a partition in order: producer id and epoch, each stretch once."""
    found: list[tuple[int, int]] = []
    for batch in world.target.batches(topic, partition):
        if not batch.control and found[-1:] != [(batch.producer_id, batch.producer_epoch)]:
            found.append((batch.producer_id, batch.producer_epoch))
    return found


def markers(world: World, partitions: Iterable[int] = (0,)) -> int:
    return sum(batch.control for number in partitions for batch in world.target.batches("A.orders", number))


@pytest.mark.parametrize(("times", "forgets_by"), [(1, "tick"), (3, "restart")])
@pytest.mark.virtual_time(limit_s=4000)
async def test_a_late_request_of_old_records_is_not_stored_although_the_broker_has_forgotten_its_producer(
    forgets_by: str, times: int
) -> None:
    """A request is delayed, the worker fences itself and continues, old records follow, the broker forgets their
    producer, and the request arrives.
    """
    world, source, witness = make(1)
    source.fill(10, age_ms=OLD_MS)
    stuck = StuckRequests(is_copy)
    async with world.worker(through=stuck):
        await all_copied(world)
        for _ in range(times):
            stuck.wanted = 1
            source.fill(5, age_ms=OLD_MS)
            await all_copied(world)
        source.fill(5, age_ms=OLD_MS)
        await all_copied(world)
        if forgets_by == "restart":
            world.target.stop_broker(1)
            await asyncio.sleep(0.1)
            world.target.start_broker(1)
        else:
            await asyncio.sleep(1260)
        await asyncio.sleep(5)
        assert await stuck.arrive() == [FENCED] * times
        source.fill(5, age_ms=OLD_MS)
        await all_copied(world)
    assert len(ids(world)) == times + 1
    await finish(world, source, witness)


async def test_only_partitions_of_unknown_outcome_move_to_the_next_producer_id_and_they_share_it() -> None:
    world, source, witness = make(2, partitions=3)

    async def copy() -> None:
        for number in range(3):  # one after the other: a request must not carry batches of both
            source.fill(3, partition=number, age_ms=OLD_MS)
            await world.copied({"orders": "A.orders"})
        await asyncio.sleep(3)

    chosen = [0]
    stuck = StuckRequests(lambda request: goes_to(chosen[0], request))
    async with world.worker(through=stuck):
        await copy()
        for number in (0, 1, 0):
            chosen[0], stuck.wanted = number, 1
            await copy()
        assert len(ids(world)) == 3
        first, second, third = (ids(world)[name] for name in sorted(ids(world), key=lambda name: name.number))
        assert writers(world, 0) == [(first, 0), (second, 0), (third, 0)]
        assert writers(world, 1) == [(first, 0), (second, 0)]
        assert writers(world, 2) == [(first, 0)]
        assert {producer for number in range(3) for producer, _ in writers(world, number, OFFSETS)} == {first}
        assert {stored.producer_id for stored in (await stored_positions(world)).values()} == {first, second, third}
        assert await stuck.arrive() == [FENCED] * 3
    await finish(world, source, witness)


async def test_a_clean_stop_drains_all_producer_ids_and_leaves_none_to_fence() -> None:
    world, source, witness = make(3)
    stuck = StuckRequests(is_copy)
    source.fill(5, age_ms=OLD_MS)
    async with world.worker(through=stuck) as herder:
        await all_copied(world)
        stuck.wanted = 1
        source.fill(5, age_ms=OLD_MS)
        await all_copied(world)
        await asyncio.sleep(2)
        await world.stop(herder)
    assert len(ids(world)) == 2
    before = markers(world)
    async with world.worker() as herder:
        source.fill(5, age_ms=OLD_MS)
        await all_copied(world)
        assert not said(world, "foreign.writer")
        await world.stop(herder)
    assert markers(world) == before == 1
    await finish(world, source, witness)


async def test_a_frozen_worker_that_wakes_and_gets_a_further_id_writes_nothing_under_it() -> None:
    """w1 has fenced itself and freezes while it asks for its next id. The group evicts it, and w2 fences its first id.
    w1 wakes and gets an id that no worker knows. It writes nothing under it.
    """
    world, source, witness = make(4)
    source.fill(10, age_ms=OLD_MS)
    stuck = StuckRequests(is_copy)
    asks = Gate(lambda request: asks.held > 0 or is_for_a_further_id(request))
    asks.shut()
    async with world.worker(through=lambda wire: stuck(asks(wire))):
        await all_copied(world)
        stuck.wanted = 1
        source.fill(10, age_ms=OLD_MS)
        await until(lambda: asks.held > 0, world)
        frozen = world.processes[0].member_id
        assert len(ids(world)) == 1
        async with world.worker() as younger:
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            await all_copied(world)
            await asyncio.sleep(3)
            asks.open()
            await until(lambda: bool(said(world, "group.rejoining")), world)
            await asyncio.sleep(20)
            further = [name for name in ids(world) if name.number]
            assert [name.process for name in further] == [frozen]
            written = writers(world) + [at for number in range(3) for at in writers(world, number, OFFSETS)]
            assert ids(world)[further[0]] not in {producer_id for producer_id, _ in written}
            assert [status.state for status in younger.status()] == ["running"]
            assert await stuck.arrive() == [FENCED]
            source.fill(10, age_ms=OLD_MS)
            await all_copied(world)
    await finish(world, source, witness)


async def test_a_worker_that_freezes_after_its_position_under_a_further_id_is_fenced_by_that_id() -> None:
    world, source, witness = make(5)
    source.fill(10, age_ms=OLD_MS)
    stuck = StuckRequests(is_copy)
    data = Gate(is_copy)
    async with world.worker(through=lambda cluster: stuck(data(cluster))):
        await all_copied(world)
        stuck.wanted = 1
        source.fill(10, age_ms=OLD_MS)
        await until(lambda: stuck.wanted == 0, world)
        data.shut()
        await until(lambda: data.held > 0, world)
        (name,) = [name for name in ids(world) if name.number]
        (stored,) = (await stored_positions(world)).values()
        assert stored.by == str(name)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(3)
            source.fill(5, age_ms=OLD_MS)
            await all_copied(world)
            data.open()
            await asyncio.sleep(20)
            assert ids(world)[name] not in {who for who, _ in writers(world)}
            assert await stuck.arrive() == [FENCED]
    await finish(world, source, witness)


@pytest.mark.virtual_time(limit_s=2000)
async def test_all_producer_ids_of_a_long_incarnation_stay_known_to_the_target() -> None:
    expiry_s = 120.0
    world = World(6, extra=BEATS_SELDOM, broker_config={"transactional.id.expiration.ms": str(int(expiry_s * 1000))})
    world.source.create_topic("orders", 1)
    source, witness = Source(world), Witness(world, "orders")
    stuck = StuckRequests(is_copy)
    source.fill(5, age_ms=OLD_MS)
    async with world.worker(through=stuck):
        await all_copied(world)
        stuck.wanted = 1
        source.fill(5, age_ms=OLD_MS)
        await all_copied(world)
        before = ids(world)
        assert len(before) == 2
        await asyncio.sleep(4 * expiry_s)
        source.fill(5, age_ms=OLD_MS)
        await all_copied(world)
        assert ids(world) == before
        await asyncio.sleep(0.05)
    await finish(world, source, witness)
    assert not said(world, "producer.unfenced")


@pytest.mark.parametrize("age_ms", [0, OLD_MS])
async def test_a_request_of_unknown_outcome_at_a_clean_stop_is_fenced_by_the_next_incarnation(age_ms: int) -> None:
    """All but this request were answered. The stop does not wait for it: it could be resent only after a pause."""
    world, source, witness = make(7)
    source.fill(10, age_ms=age_ms)
    stuck = StuckRequests(is_copy)
    async with world.worker(through=stuck) as herder:
        await all_copied(world)
        await asyncio.sleep(2)
        stuck.wanted = 1
        source.fill(3, age_ms=age_ms)
        await until(lambda: stuck.wanted == 0, world)
        await world.stop(herder)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(3)
        assert await stuck.arrive() == [FENCED]
    await finish(world, source, witness)
