"""The ledger of whole flows between two cluster models: exact after restarts, kills, moves, gaps and second copies."""

from __future__ import annotations

import asyncio
import random

import pytest

from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.offsets.partition_ledger import PartitionLedger
from tests.fakes.broker.producer_state import Refused
from tests.fakes.broker.record_batch import Record
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.copying.test_copying_under_faults import STORM
from tests.scenarios.gaps.test_gaps import ORDERS, expired_while_down, numbers, until, write
from tests.scenarios.true_ledger import ledgers_in, wrong_answers
from tests.scenarios.two_incarnations import LEDGER, is_ledger, make
from tests.scenarios.world import World

SETTLED_S = 4.0


def ledger_of(world: World, partition: int = 0, topic: str = "orders") -> PartitionLedger:
    return ledgers_in(world.target)[topic, partition]


def assert_complete(world: World, *topics: str, committed: bool = False) -> None:
    """Every record of the source has an exact answer, and all answers are true."""
    for topic in topics or ("orders",):
        found = wrong_answers(world.source, world.target, topic, f"A.{topic}", committed=committed, is_over=True)
        assert found == []
        for number in range(len(world.source.topics[topic].partitions)):
            ledger = ledger_of(world, number, topic)
            for one in world.source.records(topic, number, committed=committed):
                assert ledger.forward(one.offset).kind is AnswerKind.COPIED, (topic, number, one.offset)
            for copy in world.target.records(f"A.{topic}", number):
                assert ledger.reverse(copy.offset).kind is AnswerKind.COPIED, (topic, number, copy.offset)


async def test_a_plain_topic_is_one_run_and_within_a_second_its_end_is_known() -> None:
    world = World(1, extra={"offset.flush.interval.ms": "60000"})
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(1, 50))
    async with world.worker():
        for number in range(51, 80):
            write(world.source, f"{number}")
            await asyncio.sleep(0.3)
            await world.copied(ORDERS)
        await asyncio.sleep(1.2)
        newest = ledger_of(world).newest
        assert newest is not None and len(list(newest.entries())) == 1
        assert_complete(world)
        assert ledger_of(world).forward(79) == Answer(AnswerKind.END, 79, True)


@pytest.mark.parametrize("seed", range(3))
async def test_transactions_under_faults_and_kills_have_exact_answers(seed: int) -> None:
    world = World(seed, nodes=3, extra={"A.consumer.isolation.level": "read_committed"})
    world.source.create_topic("orders", 2)
    rng, number = random.Random(seed), 0

    def fill() -> None:
        nonlocal number
        for partition in range(2):
            transaction = world.source.transaction()
            many = [Record(value=b"%d" % (number + at)) for at in range(rng.randint(1, 9))]
            number += len(many)
            try:
                transaction.append("orders", partition, many)
            except Refused:  # it has no leader just now
                continue
            transaction.commit() if rng.random() < 0.8 else transaction.abort()

    for cluster in (world.source, world.target):
        cluster.inject(STORM)
    for _ in range(4):
        async with world.worker():
            for _ in range(20):
                fill()
                await asyncio.sleep(rng.random())
    for cluster in (world.source, world.target):
        cluster.heal()
    async with world.worker():
        fill()
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        assert wrong_answers(world.source, world.target, "orders", "A.orders", committed=True, is_over=True) == []
        known = [
            ledger_of(world, partition).forward(one.offset)
            for partition in range(2)
            for one in world.source.records("orders", partition, committed=True)
        ]
        assert all(answer.offset is not None for answer in known)
        exact = sum(answer.kind is AnswerKind.COPIED for answer in known)
        assert exact > 0.9 * len(known), "what only a count was found of after a kill is the exception"


async def test_records_that_expired_before_they_were_copied_are_a_gap_and_the_ledger_goes_on() -> None:
    world = World(4)
    await expired_while_down(world)
    before = [one.offset for one in world.target.records("A.orders", 0)]
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
    ledger = ledger_of(world)
    start = world.source.records("orders", 0)[0].offset
    assert ledger.forward(0) == Answer(AnswerKind.COPIED, 0, True)
    assert ledger.forward(start - 1).kind is AnswerKind.GAP
    (first,) = [copy.offset for copy in world.target.records("A.orders", 0) if copy.offset > before[-1]][:1]
    assert ledger.forward(start - 1) == Answer(AnswerKind.GAP, first, True)


def test_a_second_copy_that_is_allowed_begins_a_ledger_and_readers_of_the_first_copy_find_their_way_back() -> None:
    async def scenario() -> None:
        world = World(6)
        world.source.create_topic("orders", 1)
        write(world.source, *numbers(1, 9))
        async with world.worker() as herder:
            await world.copied(ORDERS)
            await asyncio.sleep(SETTLED_S)
            await world.stop(herder)
        world.target.delete_topic("mm2-offsets.A.internal")
        async with world.worker(allow_recopy=frozenset({"orders"})):
            await until(lambda: len(world.target.records("A.orders", 0)) == 18)
            await asyncio.sleep(SETTLED_S)
        ledger = ledger_of(world)
        second = world.target.records("A.orders", 0)[9].offset
        assert ledger.forward(4) == Answer(AnswerKind.COPIED, second + 4, True)
        assert ledger.reverse(4) == Answer(AnswerKind.COPIED, 4, True)
        assert ledger.reverse(second + 4) == Answer(AnswerKind.COPIED, 4, True)

    run_virtual(scenario())


async def test_a_lost_ledger_topic_is_made_again_and_a_plain_partition_is_known_again() -> None:
    """Its position says that all before it is one run."""
    world = World(7)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(1, 9))
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        await world.stop(herder)
    world.target.delete_topic("mm2-ledger.A.internal")
    async with world.worker():
        write(world.source, *numbers(10, 12))
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        assert_complete(world)
        world.target.delete_topic("mm2-ledger.A.internal")
        await asyncio.sleep(1)
        write(world.source, *numbers(13, 15))
        await world.copied(ORDERS)
        await asyncio.sleep(2 * SETTLED_S)
        assert_complete(world)
        assert "ledger.topic_recreated" in world.log_text.getvalue()


@pytest.mark.parametrize("control_log_is_lost", [False, True])
async def test_a_late_chunk_of_a_worker_that_was_replaced_is_refused(control_log_is_lost: bool) -> None:
    """After compaction it could be all that is left of an older ledger, and seem to be the newest."""
    world, source, _ = make(8)
    source.fill(5)
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        before = producers_of_chunks(world)
        world.processes[0].late_s = lambda _, request: 30.0 if is_ledger(request) else 0.0
        source.fill(5)
        await until(lambda: bool(world.processes[0].under_way))
    if control_log_is_lost:
        world.target.delete_topic("mm2-cluster.mm2py.internal")
    async with world.worker():
        source.fill(5)
        await world.copied(ORDERS)
        await asyncio.sleep(SETTLED_S)
        await asyncio.sleep(40)
        after = producers_of_chunks(world)
        assert after[: len(before)] == before and len(after) > len(before)
        assert not set(before) & set(after[len(before) :])
        assert_complete(world)


def producers_of_chunks(world: World) -> list[int]:
    topic = world.target.topics[LEDGER]
    batches = [batch for part in topic.partitions for batch in world.target.batches(LEDGER, part.index)]
    return [batch.producer_id for batch in batches if not batch.control]
