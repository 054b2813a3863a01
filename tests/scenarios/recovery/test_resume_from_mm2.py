"""mm2py follows a MirrorMaker 2 that was killed past its last stored position: no record is copied twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from tests.fakes.broker.partition_model import NO_LEADER
from tests.fakes.broker.record_batch import Record, StoredRecord
from tests.fakes.faults import Faults
from tests.scenarios.two_incarnations import OFFSETS, all_copied, copies, finish, make, said, until
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)


class MirrorMaker2:
    """Copies ``orders`` as MirrorMaker 2 does, record by record, and stores positions only when told to."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.target.create_topic("A.orders", len(world.source.topics["orders"].partitions))
        world.target.create_topic(OFFSETS, 1, {"cleanup.policy": "compact"})
        self.next: dict[int, int] = {}

    def copy(self, count: int, *, partition: int = 0) -> Sequence[StoredRecord]:
        """Copy so many records from its current place; for zero, return the position of the last copied one."""
        records = self.world.source.records("orders", partition, committed=self.world.settings.read_committed)
        left = [record for record in records if record.offset >= self.next.get(partition, 0)][:count]
        for at in range(0, len(left), 3):
            self.world.target.append(
                "A.orders",
                partition,
                [
                    Record(one.value, one.key, headers=one.headers, timestamp_ms=one.timestamp_ms)
                    for one in left[at : at + 3]
                ],
            )
        if left:
            self.next[partition] = left[-1].offset + 1
        return left

    def store(self, *, partition: int = 0) -> None:
        key = ["MirrorSourceConnector", {"cluster": "A", "partition": partition, "topic": "orders"}]
        record = Record(
            json.dumps({"offset": self.next[partition] - 1}).encode(),
            key=json.dumps(key, separators=(",", ":")).encode(),
        )
        self.world.target.append(OFFSETS, 0, [record])


async def test_the_first_incarnation_after_mirrormaker_2_leaves_a_position_that_the_next_is_reconciled_with() -> None:
    world, source, witness = make(2, partitions=3)
    for number in range(3):
        source.fill(40, partition=number)
    mm2 = MirrorMaker2(world)
    for number in range(3):
        mm2.copy(30, partition=number)
        mm2.store(partition=number)
        mm2.copy(25 * number, partition=number)
    for _ in range(10):  # killed repeatedly, also while it compares
        async with world.worker():
            await asyncio.sleep(world.rng.uniform(0.0, 0.1))
            source.fill(3, partition=world.rng.randrange(3))
    await finish(world, source, witness)


@pytest.mark.walk(range(2))
@pytest.mark.virtual_time(limit_s=900)
async def test_the_end_of_a_copy_is_found_although_brokers_fail_meanwhile(seed: int) -> None:
    world, source, witness = make(seed, partitions=4, nodes=3)
    for number in range(4):
        source.fill(60, partition=number)
    mm2 = MirrorMaker2(world)
    for number in range(4):
        mm2.copy(50, partition=number)
        mm2.store(partition=number)
        mm2.copy(60, partition=number)
    for cluster in (world.source, world.target):
        cluster.inject(Faults(drop_reply=0.1, flip_bit=0.1))
    async with world.worker():
        await asyncio.sleep(30)
        world.source.heal()
        world.target.heal()
        await all_copied(world)
    await finish(world, source, witness)


async def test_a_partition_without_a_leader_waits_alone_and_is_named() -> None:
    world, source, witness = make(3, partitions=2)
    mm2 = MirrorMaker2(world)
    for number in range(2):
        source.fill(40, partition=number)
        mm2.copy(30, partition=number)
        mm2.store(partition=number)
        mm2.copy(30, partition=number)
    lonely = world.target.partition("A.orders", 1)
    lonely.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
    async with world.worker():
        await all_copied(world)
        await until(lambda: bool(said(world, "partitions.waiting")), world)
        lonely.elect(1, [1], now_s=world.clock.monotonic())
        await until(lambda: bool(said(world, "partitions.resumed_from_mm2", "partitions=2", "records=60 ")), world)
    await finish(world, source, witness)


async def test_a_growing_source_does_not_delay_a_copy_that_foreign_records_follow() -> None:
    world, source, witness = make(8)
    source.fill(200)
    mm2 = MirrorMaker2(world)
    mm2.copy(300)
    mm2.store()
    behind = len(mm2.copy(10_000))
    world.target.producer().append("A.orders", 0, [b"foreign"])
    async with world.worker():
        for _ in range(40):
            source.fill(1)
            await asyncio.sleep(0.2)
        (line,) = said(world, "partitions.resumed_from_mm2")
        assert f"records={behind} ambiguous=0 unproven=0" in line, line
        source.fill(1)
        await all_copied(world)
    assert witness.findings(foreign=True) == []


async def test_an_undecided_transaction_of_mirrormaker_2_counts_only_once_it_is_decided() -> None:
    """With its ``exactly.once``, positions are part of the transaction: the records after them were aborted."""
    world, source, _ = make(4)
    source.fill(40)
    mm2 = MirrorMaker2(world)
    mm2.copy(30)
    mm2.store()
    first = mm2.next[0]
    transaction = world.target.transaction()
    for record in world.source.records("orders", 0)[30:50]:
        content = Record(record.value, record.key, headers=record.headers, timestamp_ms=record.timestamp_ms)
        transaction.append("A.orders", 0, [content])
    async with world.worker():
        await asyncio.sleep(20)
        assert not said(world, "partitions.resumed_from_mm2")
        transaction.abort()
        await all_copied(world)
    assert said(world, "partitions.resumed_from_mm2", "records=0 ambiguous=0 unproven=0")
    committed = [record.content for record in world.target.records("A.orders", 0, committed=True)]
    assert committed == [record.content for record in world.source.records("orders", 0)]
    assert first == 30


async def test_indistinguishable_records_are_repeated_rather_than_lost_and_that_is_logged() -> None:
    world, _, _ = make(5)
    now_ms = world.clock.wall_ms()
    world.source.append("orders", 0, [Record(b"same", timestamp_ms=now_ms) for _ in range(10)])
    world.source.append("orders", 0, [Record(b"last", headers=(("id", b"1"),), timestamp_ms=now_ms)])
    mm2 = MirrorMaker2(world)
    mm2.copy(4)
    mm2.store()
    mm2.copy(3)
    async with world.worker():
        await all_copied(world)
    assert said(world, "WARNING", "partitions.resumed_from_mm2", "ambiguous=1")
    assert [record.value for record in copies(world)] == [b"same"] * (7 + 6) + [b"last"]


async def test_with_exactly_once_enabled_indistinguishable_records_stop_the_flow() -> None:
    world, _, _ = make(5, **{"B.exactly.once.source.support": "enabled"})
    world.source.append("orders", 0, [Record(b"same", timestamp_ms=world.clock.wall_ms()) for _ in range(10)])
    mm2 = MirrorMaker2(world)
    mm2.copy(4)
    mm2.store()
    mm2.copy(3)
    async with world.worker() as herder:
        await asyncio.sleep(30)
        (status,) = herder.status()
    assert status.state == "refused"
    assert "How far MirrorMaker 2 has copied orders-0" in status.reason
    assert "Go on behind what is there: PUT /connectors/A->B.MirrorSourceConnector/stop, PATCH" in status.reason
    assert "set B.exactly.once.source.support=disabled for the first start" in status.reason
    assert len(copies(world)) == 7


@pytest.mark.parametrize("lost", ["the copy expired", "the source expired", "the source was cut back"])
async def test_where_no_record_is_left_to_compare_copying_resumes_at_the_position_and_that_is_logged(lost: str) -> None:
    world, source, _ = make(6)
    source.fill(60)
    mm2 = MirrorMaker2(world)
    mm2.copy(30)
    mm2.store()
    mm2.copy(30)
    if lost == "the copy expired":
        world.target.delete_records("A.orders", 0, 60)
    elif lost == "the source expired":
        world.source.delete_records("orders", 0, 40)
    else:
        world.source.truncate("orders", 0, 20)
        source.fill(30)
    async with world.worker():
        source.fill(5)
        await all_copied(world)
    (line,) = said(world, "partitions.resumed_from_mm2")
    assert "records=0 ambiguous=0 unproven=1" in line, line
    wanted = [record.value for record in world.source.records("orders", 0) if record.offset >= 30]
    assert [record.value for record in copies(world)][-len(wanted) :] == wanted


async def test_a_drain_before_the_end_of_the_copy_is_found_keeps_the_position_of_mirrormaker_2() -> None:
    world, source, witness = make(7)
    source.fill(60)
    mm2 = MirrorMaker2(world)
    mm2.copy(30)
    mm2.store()
    mm2.copy(30)
    part = world.target.partition("A.orders", 0)
    part.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
    async with world.worker() as herder:
        await asyncio.sleep(3)
        await world.stop(herder)
    part.elect(1, [1], now_s=world.clock.monotonic())
    await finish(world, source, witness)
