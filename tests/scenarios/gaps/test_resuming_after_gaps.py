"""Stopped partitions resume without a lost or repeated record, whatever was in flight when they stopped and whichever
other partitions are stopped.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from mm2py.cli.gaps import CommandOutcome, WantedPartition, read_gaps
from mm2py.cli.gaps import accept as accept_by_command
from mm2py.kafka.errors import RequestTimedOut
from mm2py.kafka.port import BrokerId, ProduceRequest
from mm2py.records.gap_record import Command, Done, Gap, GapKind
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.near_brokers import NearBrokers
from tests.scenarios.gaps.test_gaps import (
    CONTINUE,
    HOUR_S,
    ORDERS,
    RECOPY,
    RESTART,
    STOP,
    accept,
    answer_to,
    command,
    counted,
    expired_while_down,
    gaps,
    kept,
    numbers,
    seen,
    texts,
    until,
    write,
)
from tests.scenarios.gate import Request
from tests.scenarios.two_incarnations import all_copied, make
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)

PASS = {"A->B.copy.mode": "pass"}
THREE = {f"{what}replication.factor": "3" for what in ("", "offset.storage.", "status.storage.")}


class Answers:
    """Delays or loses answers to batches of ``A.orders``; the target has stored these batches."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.free.set()
        self.are_lost = False
        self.held = 0
        self._one = asyncio.Semaphore(0)

    def __call__(self, cluster: ClusterModel) -> ClusterModel:
        inner, answers = cluster.send, self

        class Through(NearBrokers):
            async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
                reply = await inner(broker, request, channel=channel)
                if isinstance(request, ProduceRequest) and request.topics[0].name == "A.orders":
                    await answers.arrive()
                return reply

        return Through()  # type: ignore[return-value]

    def let_one_arrive(self) -> None:
        self._one.release()

    async def arrive(self) -> None:
        if self.are_lost:
            await asyncio.sleep(0.5)
            raise RequestTimedOut("the broker", "Produce", 1.0)
        if self.free.is_set():
            return
        self.held += 1
        waits = [asyncio.ensure_future(self.free.wait()), asyncio.ensure_future(self._one.acquire())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        self.held -= 1


async def accept_all(world: World) -> list[CommandOutcome]:
    """Accept all gaps of the topic, as ``mm2py gaps FILE accept A->B:orders`` does."""
    return await accept_by_command(
        world.settings,
        world.target,
        [WantedPartition(world.settings.flow, "orders", None)],
        clock=world.clock,
        rng=random.Random(1),
    )


# ---- batches in flight


async def cut_back_with_batches_in_flight(world: World, answers: Answers) -> None:
    """10 to 19 are stored and not acknowledged when the source loses 18 and 19 and gets two others."""
    await world.copied(ORDERS)
    await asyncio.sleep(5)
    answers.free.clear()
    write(world.source, *numbers(10, 19))
    await until(lambda: texts(world)[-1] == "14")
    world.source.truncate("orders", 0, 18)
    write(world.source, "other", "another")
    await asyncio.sleep(6)
    for _ in range(4):
        answers.let_one_arrive()
    await asyncio.sleep(1)


@pytest.mark.parametrize("lost", [False, True], ids=["late", "lost"])
@pytest.mark.parametrize("extra", [{}, CONTINUE], ids=["an operator", "policy"])
async def test_batches_in_flight_when_a_truncation_stopped_their_partition_are_copied_once(
    extra: dict[str, str], lost: bool
) -> None:
    """The truncation shows while two batches are stored and not acknowledged; both precede it. Once, the partition
    resumed at the first of them, and the gap named a position that was passed a moment later: no accept fitted it.
    """
    world = World(5, nodes=3, extra={**PASS, **extra})
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    answers = Answers()
    async with world.worker(through=answers):
        await cut_back_with_batches_in_flight(world, answers)
        answers.are_lost = lost
        await asyncio.sleep(5)
        answers.free.set()
        await asyncio.sleep(60 if lost else 5)
        answers.are_lost = False
        if not extra:
            (outcome,) = await accept_all(world)
            assert outcome.carried_out, outcome.text
        await until(lambda: texts(world)[-1] == "another")
        assert len(texts(world)) == len(set(texts(world))), texts(world)


@pytest.mark.walk(range(2))
async def test_an_accept_after_lost_answers_causes_no_duplicates(seed: int) -> None:
    """A foreign writer appends to the copy, which stops it while answers get lost: their batches are stored."""
    world, source, witness = make(seed, **{"B.exactly.once.source.support": "enabled", **PASS})
    source.fill(10)
    answers = Answers()
    async with world.worker(through=answers):
        await all_copied(world)
        await asyncio.sleep(3)
        world.target.append("A.orders", 0, [b"foreign"])
        answers.free.clear()
        source.fill(8)
        await asyncio.sleep(0.1)
        answers.let_one_arrive()  # this batch reveals the foreign writer
        await asyncio.sleep(1)
        answers.are_lost = True
        answers.free.set()
        await asyncio.sleep(1)
        answers.are_lost = False
        await until(lambda: bool(gaps(world)))
        await asyncio.sleep(5)
        (outcome,) = await accept_all(world)
        assert outcome.carried_out, outcome.text
        source.fill(3)
        await all_copied(world)
        await asyncio.sleep(5)
    assert [found for found in witness.findings() if "is not of the source" not in found] == []


@pytest.mark.walk(range(2))
async def test_a_gap_found_under_load_can_be_accepted_as_it_is_listed(seed: int) -> None:
    world, source, _ = make(seed, **{"B.exactly.once.source.support": "enabled", **PASS})
    source.fill(10)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(3)

        async def load() -> None:
            while not gaps(world):
                source.fill(3)
                await asyncio.sleep(0.001)

        loading = asyncio.get_running_loop().create_task(load())
        await asyncio.sleep(0.5)
        world.target.append("A.orders", 0, [b"foreign"])
        await loading
        (outcome,) = await accept_all(world)
        assert outcome.carried_out, outcome.text
        await all_copied(world)


async def test_an_accept_that_comes_before_all_batches_are_settled_waits_for_them() -> None:
    world = World(5, nodes=3, extra=PASS)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    answers = Answers()
    async with world.worker(through=answers):
        await cut_back_with_batches_in_flight(world, answers)
        assert gaps(world) == [], "the outcome of its batches is unknown"
        early = Command("early", "orders", 0, 20, 1)
        command(world, early)
        await asyncio.sleep(10)
        assert early in kept(world), "it is neither refused nor carried out"
        answers.free.set()
        answer = await answer_to(world, early)
        assert answer.carried_out or "list the gaps again" in answer.text


# ---- one gap after another


async def test_a_second_gap_at_a_position_that_was_accepted_before_can_be_accepted_too() -> None:
    """The copy is truncated, and that is accepted; no record comes, and then the remote topic is deleted."""
    world = World(1, nodes=3)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        world.target.truncate("A.orders", 0, 5)
        await until(lambda: ("target-truncated", 0, None, 9, "stopped") in gaps(world), deadline_s=300)
        assert (await accept(world, 10)).carried_out
        await asyncio.sleep(30)
        world.target.delete_topic("A.orders")
        await until(lambda: ("target-deleted", 0, None, 9, "stopped") in gaps(world), deadline_s=300)
        assert (await accept(world, 10, command_id="c2")).carried_out
        await until(lambda: texts(world) == numbers(0, 9), deadline_s=300)


async def test_records_that_expired_before_the_accept_do_not_stop_the_partition_again() -> None:
    world = World(2, extra=STOP)
    await expired_while_down(world)
    async with world.worker():
        await seen(world, ("expired", 0, 10, 24, "stopped"))
        world.source.delete_records("orders", 0, 30)
        answer = await accept(world, 10)
        assert answer.carried_out and "offset 30" in answer.text
        await until(lambda: texts(world) == [*numbers(0, 9), *numbers(30, 39)])
        await seen(world, ("expired", 0, 10, 29, "accepted"))


async def test_a_topic_that_is_recreated_repeatedly_is_a_gap_each_time() -> None:
    """Each time it had as many records as before, so its partition stopped at the position of the gap before."""
    world = World(6, extra=RESTART)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        for again in range(3):
            world.source.recreate_topic("orders")
            new = [f"{again} {number}" for number in range(10)]
            write(world.source, *new)
            await until(lambda new=new: texts(world)[-10:] == new)  # type: ignore[misc]
            await asyncio.sleep(10)
        assert counted(world, GapKind.RECREATED) == 3
        assert world.log_text.getvalue().count("source.recreated") == 3


# ---- beside others


async def test_a_partition_that_cannot_resume_yet_delays_no_other() -> None:
    """The copies of two partitions are truncated. The first has no leader on the source to ask for its start."""
    world = World(5, nodes=3, extra={**RECOPY, **THREE})
    world.source.create_topic("orders", 2, replication_factor=1)
    for partition in range(2):
        write(world.source, *numbers(0, 9), partition=partition)
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        leader = world.source.topics["orders"].partitions[0].leader
        world.source.stop_broker(leader)
        await asyncio.sleep(20)
        for partition in range(2):
            world.target.truncate("A.orders", partition, 5)
            await until(lambda count=partition + 1: len(gaps(world)) == count, deadline_s=300)  # type: ignore[misc]
        write(world.source, "more", partition=1)
        await until(lambda: texts(world, 1)[-11:] == [*numbers(0, 9), "more"], deadline_s=300)
        assert texts(world, 0)[-1:] != ["9"], "it waits"
        world.source.start_broker(leader)
        await until(lambda: texts(world, 0)[-10:] == numbers(0, 9), deadline_s=300)


async def test_many_partitions_are_accepted_together() -> None:
    """One after the other, 300 of them took 39 s, and 40 positions of other partitions were stored for each."""
    world = World(1, nodes=3, latency_s=(0.012, 0.013))
    count = 300
    world.source.create_topic("orders", count)
    for partition in range(count):
        write(world.source, "0", "1", "2", partition=partition)
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        for partition in range(count):
            world.source.truncate("orders", partition, 1)
            write(world.source, "other", partition=partition)
        async with asyncio.timeout(200):
            while len(await read_gaps(world.settings, world.target)) < count:
                await asyncio.sleep(0.5)
        since_s = world.clock.monotonic()
        outcomes = await accept_all(world)
        assert [one.text for one in outcomes if not one.carried_out] == []
        assert world.clock.monotonic() - since_s < 10
        await until(lambda: all(texts(world, partition)[-1] == "other" for partition in range(count)))


# ---- how many gaps are kept


async def test_the_last_few_gaps_of_each_partition_are_kept() -> None:
    world = World(7)
    world.source.create_topic("orders", 1)
    async with world.worker() as herder:
        await asyncio.sleep(5)
        end = 0
        for _ in range(30):
            end += 2
            write(world.source, "gone", "there")
            world.source.delete_records("orders", 0, end - 1)
            await asyncio.sleep(3)
        await world.stop(herder)
    found = [one for one in kept(world) if isinstance(one, Gap)]
    assert found and all(gap.done is Done.CONTINUED for gap in found)
    assert len(found) <= 10, "old gaps are removed"
