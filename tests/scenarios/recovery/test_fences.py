"""A previous incarnation is fenced before its positions are trusted: however it ended, it writes nothing more."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.kafka.messages import AddPartitionsToTxnRequest, EndTxnRequest
from tests.fakes.broker.partition_model import NO_LEADER
from tests.scenarios.gate import Gate, Request
from tests.scenarios.two_incarnations import (
    OFFSETS,
    all_copied,
    finish,
    is_data,
    is_position,
    make,
    said,
    until,
    worker_with_old_positions,
    written,
)
from tests.scenarios.witness import stored_positions

pytestmark = pytest.mark.virtual_time(limit_s=600)


@pytest.mark.walk(range(3))
async def test_incarnations_that_are_killed_within_their_first_moments_cause_no_duplicates(seed: int) -> None:
    """Kills also hit the takeover itself, and partitions that several incarnations in a row never came to own."""
    world, source, witness = make(seed, partitions=4)
    for number in range(4):
        source.fill(20, partition=number)
    for _ in range(30):
        async with world.worker():
            await asyncio.sleep(world.rng.uniform(0.0, 0.12))
            source.fill(3, partition=world.rng.randrange(4))
    await finish(world, source, witness)


@pytest.mark.parametrize("frozen_after_s", [0.004, 0.012, 0.02, 0.3])
async def test_a_frozen_worker_that_wakes_after_the_takeover_writes_neither_records_nor_positions(
    frozen_after_s: float,
) -> None:
    """It is frozen with requests in flight, at any step; it may not even have stored a first position."""
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


async def test_a_worker_frozen_before_its_first_position_is_known_by_its_claim_and_fenced() -> None:
    world, source, witness = make(20)
    source.fill(40)
    position_writes = 0

    def is_behind_the_claim(request: Request) -> bool:
        nonlocal position_writes
        position_writes += is_position(request)
        return position_writes > 1

    zombie = Gate(is_behind_the_claim)
    zombie.shut()
    async with world.worker(through=zombie):
        await until(lambda: zombie.held > 0, world)
        async with world.worker():
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            await all_copied(world)
            await asyncio.sleep(2)
            zombie.open()
            await until(lambda: bool(said(world, "group.rejoining")), world, deadline_s=10)
    await finish(world, source, witness)


async def test_a_takeover_that_waits_for_a_fence_is_named_in_log_and_status() -> None:
    """The coordinator hangs, so no marker comes."""
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
        assert any("previous producers are being fenced" in text for topic in status.topics for text in topic.problems)
        held.open()
        await all_copied(world)
    await finish(world, source, witness)


async def test_a_marker_that_is_missing_for_want_of_a_leader_is_written_again_before_positions_are_trusted() -> None:
    """The coordinator reports the fence complete although one partition lacks its marker (docs/broker-facts.md#c3). The
    zombie can write there until the marker is written again.
    """
    world, source, witness = make(8)
    source.fill(10)
    writes, zombie = Gate(lambda request: is_data(request) and "A.orders" in str(request)), Gate()
    async with world.worker(through=lambda wire: zombie(writes(wire))):
        await all_copied(world)
        await asyncio.sleep(2)
        writes.shut()
        source.fill(20)
        await asyncio.sleep(1)
        zombie.shut()
        part = world.target.partition("A.orders", 0)
        before = part.high_watermark
        asked: list[str] = []

        def come_back() -> None:
            part.elect(1, [1], now_s=world.clock.monotonic())
            writes.open()

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
            assert part.high_watermark > before + 20, (
                "the zombie wrote after the coordinator had reported the fence complete"
            )
            await all_copied(world)
        assert asked.count("partition added") >= 2
    await finish(world, source, witness)


async def test_positions_are_trusted_only_after_their_marker_was_seen() -> None:
    """The offsets topic has no leader for a moment while a previous incarnation is fenced there
    (docs/broker-facts.md#c3, #h5).
    """
    world, source, witness = make(21)
    source.fill(10)
    positions, zombie = Gate(is_position), Gate()
    async with world.worker(through=lambda wire: zombie(positions(wire))):
        await all_copied(world)
        await asyncio.sleep(2)
        its_own = {producer for producer, _ in written(world)}
        positions.shut()
        source.fill(20)
        await asyncio.sleep(1.5)
        zombie.shut()
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
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            assert "leaders lost" in asked
            before = written(world)
            positions.open()
            zombie.open()
            await asyncio.sleep(5)
            late = {producer for producer, (topic, *_) in written(world) - before if topic == OFFSETS}
            assert not its_own & late, "a position of a fenced incarnation"
            await all_copied(world)
    await finish(world, source, witness)


async def test_a_remote_topic_that_was_deleted_meanwhile_does_not_prevent_the_fence_of_the_others() -> None:
    """One unknown topic in AddPartitionsToTxn makes the broker refuse all (docs/broker-facts.md#h8)."""
    world, source, witness = make(9)
    world.source.create_topic("gone", 1)
    world.source.append("gone", 0, [b"1"])
    source.fill(10)
    async with worker_with_old_positions(world, source):
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


async def test_a_remote_topic_whose_write_right_was_revoked_does_not_prevent_the_fence_of_the_others() -> None:
    """The right was revoked between two incarnations. That topic waits until it is granted again."""
    world, source, witness = make(25)
    world.source.create_topic("locked", 1)
    for text in (b"1", b"2"):
        world.source.append("locked", 0, [text])
    source.fill(10)
    async with worker_with_old_positions(world, source):
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
    assert not said(world, "producer.unfenced")
    await finish(world, source, witness)


async def test_a_flow_that_cannot_fence_the_positions_topic_logs_what_it_waits_for() -> None:
    world, source, witness = make(24)
    source.fill(10)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(2)
    world.target.delete_topic("mm2-cluster.mm2py.internal")  # otherwise the leader of the group would fence
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


@pytest.mark.virtual_time(limit_s=900)
async def test_a_late_position_of_a_fenced_worker_is_where_the_next_owner_starts() -> None:
    """w2 joins and reads the positions. Only then a position of the killed w1 arrives (docs/broker-facts.md#h5)."""
    world, source, witness = make(22, offset_flush_interval_ms="500")
    source.fill(10)
    is_stuck = False
    first = world.start()
    first.late_s = lambda _, request: 6.0 if is_stuck and is_position(request) else 0.0
    await all_copied(world)
    await asyncio.sleep(2)
    is_stuck = True
    source.fill(10)
    await until(lambda: bool(first.under_way), world)
    first.kill()
    fences = Gate(lambda request: isinstance(request, AddPartitionsToTxnRequest) and OFFSETS in str(request))
    fences.shut()
    async with world.worker(through=fences):
        await until(lambda: fences.held > 0 and len(said(world, "flow.ready")) == 2, world)
        before = await stored_positions(world)
        await asyncio.gather(*first.under_way)
        after = await stored_positions(world)
        assert after["orders", 0].next_source > before["orders", 0].next_source
        fences.open()
        await until(lambda: bool(said(world, "partitions.reconciled")), world)
        (line,) = said(world, "partitions.reconciled")
        assert "records=0 " in line, "nothing was copied past the later position"
    await finish(world, source, witness)
