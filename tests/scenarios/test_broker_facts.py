"""Surprising broker behaviour, met by a whole flow: docs/broker-facts.md, fact by fact."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.scenarios.recovery.test_reconcile_storms import DAY_MS
from tests.scenarios.two_incarnations import all_copied, copies, finish, make, said, until, worker_with_old_positions
from tests.scenarios.world import World


@pytest.mark.parametrize("age_ms", [0, 30 * DAY_MS])
@pytest.mark.virtual_time(limit_s=900)
async def test_answers_lost_around_a_clean_broker_restart_cause_no_duplicates(age_ms: int) -> None:
    """H1: a restarted broker knows one batch of each producer, and answers 45 for others. C1: of old ones none."""
    world, source, witness = make(16)
    source.fill(10, age_ms=age_ms)
    async with world.worker():
        await all_copied(world)
        for _ in range(8):
            world.target.inject(Faults(drop_reply=0.5))
            source.fill(12, age_ms=age_ms)
            await asyncio.sleep(0.3)
            world.target.stop_broker(1)
            await asyncio.sleep(0.1)
            world.target.start_broker(1)
            world.target.heal()
            await asyncio.sleep(2)
        await all_copied(world)
    await finish(world, source, witness)


@pytest.mark.virtual_time(limit_s=900)
async def test_a_refused_first_batch_prevents_later_batches_from_being_stored() -> None:
    """H2: a broker accepts any first sequence of a producer that it does not know."""
    world, source, witness = make(17, A__B_copy_mode="pass")
    source.fill(10)
    async with worker_with_old_positions(world, source):
        source.fill(1)
        await all_copied(world)
    world.target.configure_topic("A.orders", {"max.message.bytes": "900"})
    source.fill(1, size=1500)
    source.fill(20)
    async with world.worker():
        await asyncio.sleep(10)
        world.target.configure_topic("A.orders", {"max.message.bytes": "1048588"})
        await asyncio.sleep(60)
    await finish(world, source, witness)


@pytest.mark.virtual_time(limit_s=600)
async def test_a_restarted_broker_that_knows_only_the_last_batch_causes_no_duplicates() -> None:
    """H1: five batches are stored and their answers lost. After a clean restart the oldest is refused with 45. Java's
    producer would raise its epoch and store all of them again.
    """
    world, source, witness = make(30, A__B_copy_mode="pass")
    source.fill(10)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(3)  # and acknowledged: until then a first batch travels alone
        before = len(copies(world))
        world.target.inject(Faults(drop_reply=1.0))
        source.fill(5)
        await asyncio.sleep(10)  # all is stored that may be sent without an answer: the last record may not be
        behind = len(copies(world)) - before
        assert behind > 1
        world.target.stop_broker(1)
        world.target.heal()
        world.target.start_broker(1)
        await until(lambda: bool(said(world, "partitions.reconciled")), world)
        (line,) = said(world, "partitions.reconciled")
        assert "OUT_OF_ORDER_SEQUENCE_NUMBER (45)" in line, line
        assert f"records={behind} " in line, line
        source.fill(5)
        await all_copied(world)
        first, *_, last = [batch for batch in world.target.batches("A.orders", 0) if not batch.control]
        assert last.producer_id != first.producer_id, "copying resumes under another producer id"
    await finish(world, source, witness)


@pytest.mark.virtual_time(limit_s=600)
async def test_a_first_batch_that_is_too_large_prevents_later_batches_from_being_stored() -> None:
    """H2, E13b: the size limit is lowered under a running worker. Its first batch under a new producer id is refused.
    The broker does not know that producer, so it would store later batches if they were in flight.
    """
    world, source, witness = make(31, A__B_copy_mode="pass", sync_topic_configs_enabled="false")
    world.target.create_topic("A.orders", 1)
    async with world.worker():
        await until(lambda: bool(said(world, "topics.copying")), world)
        await asyncio.sleep(1)
        world.target.configure_topic("A.orders", {"max.message.bytes": "900"})
        source.fill(1, size=1500)
        source.fill(10)
        await asyncio.sleep(3)
        assert copies(world) == []
        assert not said(world, "target.out_of_order")
        world.target.configure_topic("A.orders", {"max.message.bytes": "1048588"})
        await all_copied(world)
    await finish(world, source, witness)


@pytest.mark.parametrize("mode", ["pass", "repack"])
@pytest.mark.virtual_time(limit_s=10 * DAY_MS / 1000)
async def test_a_tombstone_stays_for_slow_readers_of_the_copy_after_the_source_has_removed_it(mode: str) -> None:
    """H6: the source's cleaner has stamped the batch with the time from which its tombstone may be removed."""
    compacted = {"cleanup.policy": "compact"}
    world = World(32, extra={"A->B.copy.mode": mode, "sync.topic.configs.enabled": "false"})
    world.source.create_topic("orders", 1, {**compacted, "delete.retention.ms": "1000"})
    world.target.create_topic("A.orders", 1, compacted)
    for value in (b"1", None):
        world.source.append("orders", 0, [Record(value, key=b"k")])
    world.source.append("orders", 0, [Record(b"2", key=b"other")])
    world.source.compact("orders")
    assert any(batch.delete_horizon_ms for batch in world.source.batches("orders", 0))
    await asyncio.sleep(5)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
    world.target.compact("A.orders")
    assert [(record.key, record.value) for record in copies(world)] == [(b"k", None), (b"other", b"2")]
    await asyncio.sleep(2 * DAY_MS / 1000)
    world.target.compact("A.orders")
    assert [(record.key, record.value) for record in copies(world)] == [(b"other", b"2")], "a day later it is removed"
