"""An earlier life is shut out before anything is believed: however it ended, it writes nothing more."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.kafka.messages import AddPartitionsToTxnRequest, EndTxnRequest
from mm2py.kafka.port import FetchRequest
from tests.fakes.faults import Faults
from tests.fakes.partition_model import NO_LEADER
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.gate import Gate, Request
from tests.scenarios.two_lives import (
    OFFSETS,
    all_copied,
    finish,
    is_data,
    is_position,
    life_with_old_positions,
    make,
    said,
    until,
    written,
)


@pytest.mark.walk(range(3))
def test_lives_that_are_killed_within_their_first_moments_repeat_nothing(seed: int) -> None:
    """Also during the take-over itself, and with partitions that none of several lives came to own."""

    async def scenario() -> None:
        world, source, witness = make(seed, partitions=4)
        for number in range(4):
            source.fill(20, partition=number)
        for _ in range(30):
            async with world.worker():
                await asyncio.sleep(world.rng.uniform(0.0, 0.12))
                source.fill(3, partition=world.rng.randrange(4))
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_two_processes_that_start_at_the_same_moment_shut_each_other_out_and_repeat_nothing() -> None:
    async def scenario() -> None:
        world, source, witness = make(3, partitions=3)
        for number in range(3):
            source.fill(30, partition=number)
        async with world.worker(), world.worker():
            for _ in range(20):
                await asyncio.sleep(0.5)
                source.fill(3, partition=world.rng.randrange(3))
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


@pytest.mark.parametrize("frozen_after_s", [0.004, 0.008, 0.012, 0.016, 0.02, 0.03, 0.05, 0.3, 5.0])
def test_a_frozen_worker_that_wakes_after_the_take_over_writes_neither_records_nor_positions(
    frozen_after_s: float,
) -> None:
    """Frozen with requests on their way, wherever it stands: it may not even have stored a first position."""

    async def scenario() -> None:
        world, source, witness = make(4, partitions=2)
        for number in range(2):
            source.fill(40, partition=number)
        zombie = Gate()
        async with world.worker(through=zombie):
            await asyncio.sleep(frozen_after_s)
            zombie.shut()
            await asyncio.sleep(0.5)
            its_own = {producer for producer, _ in written(world)}
            async with world.worker():
                await all_copied(world)
                await asyncio.sleep(2)
                source.fill(20)
                await all_copied(world)
                await asyncio.sleep(2)
                before = written(world)
                zombie.open()
                await asyncio.sleep(20)
            late = [(producer, at) for producer, at in written(world) if (producer, at) not in before]
            assert not its_own & {producer for producer, _ in late}
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_a_worker_frozen_before_its_first_position_is_known_by_its_claim_and_shut_out() -> None:
    async def scenario() -> None:
        world, source, witness = make(20)
        source.fill(40)
        position_writes = 0

        def is_behind_the_claim(request: Request) -> bool:
            nonlocal position_writes
            position_writes += is_position(request)
            return is_position(request) and position_writes > 1

        zombie = Gate(is_behind_the_claim)
        zombie.shut()
        async with world.worker(through=zombie):
            await until(lambda: zombie.held > 0, world)
            async with world.worker():
                await all_copied(world)
                await asyncio.sleep(2)
                zombie.open()
                await until(lambda: bool(said(world, "flow.failed", "has fenced")), world, deadline_s=10)
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_what_waits_for_an_earlier_life_to_be_shut_out_is_named_in_log_and_status() -> None:
    """The coordinator hangs, so no marker comes."""

    async def scenario() -> None:
        world, source, witness = make(9)
        source.fill(10)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(2)
            source.fill(10)
            await asyncio.sleep(0.05)
        held = Gate(lambda request: isinstance(request, AddPartitionsToTxnRequest) and "A.orders" in str(request))
        held.shut()
        async with world.worker(through=held) as herder:
            await until(lambda: bool(said(world, "partitions.waiting", "previous producers are being fenced")), world)
            (status,) = herder.status()
            assert any(
                "previous producers are being fenced" in text for topic in status.topics for text in topic.problems
            )
            held.open()
            await all_copied(world)
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_a_marker_left_out_for_want_of_a_leader_is_written_again_before_anything_is_believed() -> None:
    """C3: the coordinator calls it done while the partition has none; the zombie writes until it is shut out."""

    async def scenario() -> None:
        world, source, witness = make(8)
        source.fill(10)
        zombie = Gate(lambda request: is_data(request) or "mm2-status" in str(request))  # nor does it hear of others
        async with world.worker(through=zombie):
            await all_copied(world)
            await asyncio.sleep(2)
            zombie.shut()
            source.fill(20)
            await asyncio.sleep(1)
            part = world.target.partition("A.orders", 0)
            before = part.high_watermark
            asked: list[str] = []

            def come_back() -> None:
                part.elect(1, [1], now_s=world.clock.monotonic())
                zombie.open()

            def watch(request: Request) -> bool:
                if isinstance(request, AddPartitionsToTxnRequest) and "A.orders" in str(request):
                    asked.append("partition added")
                elif isinstance(request, EndTxnRequest) and asked == ["partition added"]:
                    asked.append("leader lost")
                    part.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
                    asyncio.get_running_loop().call_later(0.7, come_back)
                return False

            async with world.worker(through=Gate(watch)):
                await until(lambda: bool(said(world, "partitions.reconciled")), world)
                assert part.high_watermark > before + 20, "the zombie wrote after the coordinator had said done"
                await all_copied(world)
            assert asked.count("partition added") >= 2
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_positions_are_believed_only_when_the_marker_behind_them_was_seen() -> None:
    """C3, H5: the offsets topic has no leader for a moment while an earlier life is shut out of it."""

    async def scenario() -> None:
        world, source, witness = make(21)
        source.fill(10)
        zombie = Gate(lambda request: is_position(request) or "mm2-status" in str(request))
        async with world.worker(through=zombie):
            await all_copied(world)
            await asyncio.sleep(2)
            its_own = {producer for producer, _ in written(world)}
            zombie.shut()
            source.fill(20)
            await asyncio.sleep(1.5)
            parts = world.target.topics[OFFSETS].partitions
            asked: list[str] = []

            def come_back() -> None:
                for part in parts:
                    part.elect(1, [1], now_s=world.clock.monotonic())

            def watch(request: Request) -> bool:
                if isinstance(request, AddPartitionsToTxnRequest) and OFFSETS in str(request):
                    asked.append("partitions added")
                elif isinstance(request, EndTxnRequest) and asked == ["partitions added"]:
                    asked.append("leaders lost")
                    for part in parts:
                        part.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
                    asyncio.get_running_loop().call_later(0.7, come_back)
                return False

            async with world.worker(through=Gate(watch)):
                await until(lambda: len(said(world, "flow.ready")) == 2, world)
                assert "leaders lost" in asked
                before = written(world)
                zombie.open()
                await asyncio.sleep(5)
                late = {producer for producer, (topic, *_) in written(world) - before if topic == OFFSETS}
                assert not its_own & late, "a position of a life that was shut out"
                await all_copied(world)
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_a_remote_topic_deleted_meanwhile_does_not_keep_the_others_from_being_fenced() -> None:
    """H8: one unknown topic in a transaction is refused together with all others of the request."""

    async def scenario() -> None:
        world, source, witness = make(9)
        world.source.create_topic("gone", 1)
        world.source.append("gone", 0, [b"1"])
        source.fill(10)
        async with life_with_old_positions(world, source):
            source.fill(20)
            await all_copied(world)
        asked = 0

        def watch(request: Request) -> bool:
            nonlocal asked
            if isinstance(request, AddPartitionsToTxnRequest) and "A.gone" in str(request):
                asked += 1
                if asked == 1:
                    world.target.delete_topic("A.gone")
            return False

        async with world.worker(through=Gate(watch)):
            source.fill(5)
            await until(lambda: bool(said(world, "partitions.reconciled")), world, deadline_s=20)
            await all_copied(world)
        assert asked
        world.source.delete_topic("gone")
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_a_remote_topic_that_may_be_written_to_no_more_does_not_keep_the_others_from_being_fenced() -> None:
    """H8: the right was taken away between two lives. That topic waits until it is given back, and misses nothing."""

    async def scenario() -> None:
        world, source, witness = make(25)
        world.source.create_topic("locked", 1)
        for text in (b"1", b"2"):
            world.source.append("locked", 0, [text])
        source.fill(10)
        async with life_with_old_positions(world, source):
            source.fill(20)
            world.source.append("locked", 0, [b"3"])
            await all_copied(world)
            await until(lambda: len(world.target.records("A.locked", 0)) == 3, world)
        world.target.unwritable_topics.add("A.locked")
        async with world.worker() as herder:
            source.fill(5)
            world.source.append("locked", 0, [b"4"])
            await all_copied(world)
            assert [batch.producer_epoch for batch in world.target.batches("A.orders", 0) if batch.control] == [1]
            await asyncio.sleep(60)
            assert [record.value for record in world.target.records("A.locked", 0)] == [b"1", b"2", b"3"]
            (status,) = herder.status()
            assert (status.state, status.guarantee) == ("running", "exactly-once")
            (problems,) = [topic.problems for topic in status.topics if topic.topic == "locked"]
            assert any("READ and WRITE on the remote topic" in text for text in problems)
            assert said(world, "partitions.waiting", "topic=locked", "READ and WRITE on the remote topic")
            world.target.unwritable_topics.clear()
            await world.copied({"locked": "A.locked"})
        assert [record.value for record in world.target.records("A.locked", 0)] == [b"1", b"2", b"3", b"4"]
        assert not said(world, "writer.unfenced")
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_a_flow_that_cannot_shut_earlier_lives_out_of_the_positions_says_what_it_waits_for() -> None:
    async def scenario() -> None:
        world, source, witness = make(24)
        source.fill(10)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(2)
        held = Gate(lambda request: isinstance(request, AddPartitionsToTxnRequest) and OFFSETS in str(request))
        held.shut()
        async with world.worker(through=held) as herder:
            await until(lambda: bool(said(world, "flow.waiting", "WRITE on that topic")), world)
            (status,) = herder.status()
            assert OFFSETS in status.reason
            held.open()
            source.fill(5)
            await all_copied(world)
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_positions_that_came_while_an_earlier_life_was_being_shut_out_are_read_once_more() -> None:
    """H5: w2 has read the positions and is about to fence w1, which fences itself and copies on under another id. The
    position that w2 read first names an id that did not write last."""

    async def scenario() -> None:
        world, source, witness = make(22)
        source.fill(10, age_ms=2 * 86_400_000)
        deaf = Gate(lambda request: isinstance(request, FetchRequest) and "mm2-status" in str(request))
        fences = Gate(lambda request: isinstance(request, AddPartitionsToTxnRequest) and OFFSETS in str(request))
        async with world.worker(through=deaf):
            await all_copied(world)
            await asyncio.sleep(2)
            deaf.shut()
            fences.shut()
            async with world.worker(through=fences):
                await until(lambda: fences.held > 0, world)
                world.target.inject(Faults(drop_reply=1.0))
                source.fill(5, age_ms=2 * 86_400_000)
                await asyncio.sleep(1)
                world.target.heal()
                await until(lambda: bool(said(world, "partitions.reconciled")), world)
                source.fill(10, age_ms=2 * 86_400_000)
                await all_copied(world)
                await asyncio.sleep(2)
                fences.open()
                await until(lambda: len(said(world, "flow.ready")) == 2, world)
                await all_copied(world)
                await asyncio.sleep(2)
        await finish(world, source, witness)
        assert not said(world, "foreign.writer")

    run_virtual(scenario(), limit_s=900)
