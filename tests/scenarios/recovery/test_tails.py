"""What a killed incarnation leaves after its stored position, in all shapes: the next one resumes after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.scenarios.gate import Gate
from tests.scenarios.recovery.test_reconcile_storms import DAY_MS
from tests.scenarios.two_incarnations import (
    Source,
    all_copied,
    copies,
    finish,
    is_position,
    make,
    said,
    until,
    worker_with_old_positions,
)
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)


@dataclass(frozen=True)
class Case:
    """The shape of the batches after the position, and what happens to the logs before the next start."""

    extra: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[str, str] = field(default_factory=dict)
    source_config: Mapping[str, str] = field(default_factory=dict)
    target_config: Mapping[str, str] = field(default_factory=dict)
    keys: int = 0
    size: int = 12
    age_ms: int = 0
    before: Callable[[World, Witness, Source], object] = lambda *_: None
    """Called before the batches after the position are copied."""
    between: Callable[[World, Witness, Source], object] = lambda *_: None
    """Called between the two incarnations."""
    timestamps: bool = True
    foreign: bool = False
    by_content: int = 0


def transactions(world: World, _: Witness, source: Source) -> None:
    for at in range(20):
        transaction = world.source.transaction()
        transaction.append("orders", 0, source.records(3))
        transaction.abort() if at % 3 == 0 else transaction.commit()


def foreign_writer(world: World, _: Witness, __: Source) -> None:
    world.target.producer().append("A.orders", 0, [b"foreign", b"too"])


def delete_all_of_target(world: World, witness: Witness, _: Source) -> None:
    witness.look()
    world.target.delete_records("A.orders", 0, 1 << 40)


def delete_half_of_tail(world: World, witness: Witness, _: Source) -> None:
    witness.look()
    end = world.target.partition("A.orders", 0).high_watermark
    world.target.delete_records("A.orders", 0, end - 33)


def delete_source(world: World, witness: Witness, _: Source) -> None:
    witness.look()
    world.source.delete_records("orders", 0, world.source.partition("orders", 0).high_watermark - 20)


def compact_source(_: World, witness: Witness, source: Source) -> None:
    witness.compact_source()
    source.fill(4, keys=3)


def compact_both(world: World, witness: Witness, source: Source) -> None:
    witness.compact_target()
    compact_source(world, witness, source)


COMPACT = {"cleanup.policy": "compact"}
CASES = {
    "passed as they were": Case(extra={"A->B.copy.mode": "pass"}),
    "repacked": Case(extra={"A->B.copy.mode": "repack"}),
    "repacked, then passed": Case(extra={"A->B.copy.mode": "repack"}, later={"A->B.copy.mode": "pass"}),
    "passed, then repacked": Case(extra={"A->B.copy.mode": "pass"}, later={"A->B.copy.mode": "repack"}),
    "re-encoded": Case(extra={"B.producer.compression.type": "zstd"}, later={"B.producer.compression.type": "gzip"}),
    "recompressed by the target": Case(target_config={"compression.type": "lz4"}),
    "stamped by the source": Case(source_config={"message.timestamp.type": "LogAppendTime"}),
    "stamped by the target": Case(target_config={"message.timestamp.type": "LogAppendTime"}, timestamps=False),
    "stamped by the target, aborted transactions": Case(
        target_config={"message.timestamp.type": "LogAppendTime"},
        extra={"A.consumer.isolation.level": "read_committed"},
        before=transactions,
        timestamps=False,
        by_content=1,
    ),
    "cut because they were too large": Case(target_config={"max.message.bytes": "400"}, size=150),
    "old, so the target forgets them": Case(age_ms=30 * DAY_MS),
    "aborted transactions between them": Case(
        extra={"A.consumer.isolation.level": "read_committed"}, before=transactions
    ),
    "isolation raised between two starts": Case(
        extra={"A.consumer.isolation.level": "read_uncommitted"},
        later={"A.consumer.isolation.level": "read_committed"},
        before=transactions,
        by_content=1,
    ),
    "isolation lowered between two starts": Case(
        extra={"A.consumer.isolation.level": "read_committed"},
        later={"A.consumer.isolation.level": "read_uncommitted"},
        before=transactions,
    ),
    "source compacted before they were copied": Case(
        source_config=COMPACT, target_config=COMPACT, keys=7, before=lambda _, witness, __: witness.compact_source()
    ),
    "source compacted after": Case(
        source_config=COMPACT, target_config=COMPACT, keys=3, between=compact_source, by_content=1
    ),
    "target compacted after": Case(
        source_config=COMPACT, target_config=COMPACT, keys=3, between=lambda _, witness, __: witness.compact_target()
    ),
    "both compacted after": Case(
        source_config=COMPACT, target_config=COMPACT, keys=3, between=compact_both, by_content=1
    ),
    "source trimmed past the position": Case(between=delete_source, by_content=1),
    "target trimmed within the tail": Case(between=delete_half_of_tail),
    "target trimmed, nothing left": Case(between=delete_all_of_target),
    "target expired by the times of its records": Case(
        age_ms=30 * DAY_MS, between=lambda _, witness, __: witness.expire_target()
    ),
    "a foreign writer behind them": Case(between=foreign_writer, foreign=True),
}
LOWERED = "isolation lowered between two starts"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.virtual_time(limit_s=2000)
async def test_batches_after_the_position_are_counted_whatever_their_shape(name: str) -> None:
    case = CASES[name]
    world = World(1, extra={"sync.topic.configs.enabled": "false", **case.extra})
    source, witness = Source(world), Witness(world, "orders")
    world.source.create_topic("orders", 1, case.source_config)
    world.target.create_topic("A.orders", 1, case.target_config)
    source.fill(10, keys=case.keys, age_ms=case.age_ms)
    async with worker_with_old_positions(world, source):
        before = len(copies(world))
        case.before(world, witness, source)
        source.fill(50, keys=case.keys, size=case.size, age_ms=case.age_ms)
        await all_copied(world)
        behind = len(copies(world)) - before
        await asyncio.sleep(65)  # the position stays behind the copy
    world.rewrite_file({"sync.topic.configs.enabled": "false", **case.extra, **case.later})
    case.between(world, witness, source)
    async with world.worker():
        await until(lambda: bool(said(world, "partitions.reconciled")), world)
        source.fill(5, keys=case.keys, age_ms=case.age_ms)
        await all_copied(world)
        await asyncio.sleep(5)
    (line,) = said(world, "partitions.reconciled")
    assert f"by_content={case.by_content} " in line, line
    assert f"records={behind} " in line, (behind, line)
    if name == LOWERED:  # records that were left out before are not copied now
        assert [text for text in witness.findings() if "are not there" not in text] == []
    else:
        assert witness.findings(foreign=case.foreign, timestamps=case.timestamps) == []
    assert len(said(world, "foreign.writer", "has written 2 records")) == case.foreign
    assert world.target.complaints == []


async def test_a_quarantined_record_after_the_stored_position_is_not_counted_as_copied() -> None:
    world, source, _ = make(19, on_poison_record="quarantine", sync_topic_configs_enabled="false")
    source.fill(10)
    gate = Gate(is_position)
    async with world.worker(through=gate):
        await all_copied(world)
        world.source.configure_topic("orders", {"message.timestamp.after.max.ms": str(1 << 62)})
        await asyncio.sleep(3)
        source.fill(10)
        world.source.append("orders", 0, [Record(b"poison", timestamp_ms=4_000_000_000_000)])
        source.fill(10)
        await until(lambda: "mm2-quarantine.A.internal" in world.target.topics, world)
        gate.shut()
        await asyncio.sleep(2)
    async with world.worker():
        await all_copied(world)
        await asyncio.sleep(2)
    wanted = [record.value for record in world.source.records("orders", 0) if record.value != b"poison"]
    assert [record.value for record in copies(world)] == wanted


async def test_the_copy_may_end_inside_one_source_batch() -> None:
    """The target takes small batches only, so a source batch is split; the kill comes after some of the parts."""
    world, source, witness = make(40, sync_topic_configs_enabled="false")
    world.target.create_topic("A.orders", 1, {"max.message.bytes": "400"})
    source.fill(1)
    async with worker_with_old_positions(world, source):
        batches = len(world.target.batches("A.orders", 0))
        first = world.source.append("orders", 0, source.records(40, size=150))
        await until(lambda: len(world.target.batches("A.orders", 0)) >= batches + 3, world)
    await asyncio.sleep(1)  # batches in flight arrive
    ends_at = len(copies(world))
    assert first < ends_at < first + 40, "a part of one batch is there"
    async with world.worker():
        await all_copied(world)
        (line,) = said(world, "partitions.reconciled")
        assert f"records={ends_at - first} by_content=0 " in line, line
    await finish(world, source, witness)


@pytest.mark.virtual_time(limit_s=900)
async def test_a_process_that_restarts_the_flow_resumes_after_its_own_previous_incarnation() -> None:
    """It was fenced and no worker took over: the same process returns under a new id, its positions minutes old."""
    world, source, witness = make(41)
    source.fill(10)
    gate = Gate(is_position)
    async with world.worker(through=gate) as herder:
        await all_copied(world)
        await asyncio.sleep(3)
        gate.shut()
        before = len(copies(world))
        source.fill(20)
        await all_copied(world)
        behind = len(copies(world)) - before
        await asyncio.sleep(180)
        own = world.target.batches("A.orders", 0)[-1].producer_id
        world.target.write_marker("A.orders", 0, own, 1)
        source.fill(1)
        await until(lambda: bool(said(world, "flow.failed", "has fenced")), world)
        gate.open()
        await all_copied(world)
        (line,) = said(world, "partitions.reconciled")
        assert f"records={behind} " in line, line
        assert world.target.batches("A.orders", 0)[-1].producer_id != own
        assert [status.state for status in herder.status()] == ["running"]
    await finish(world, source, witness)


@pytest.mark.virtual_time(limit_s=900)
async def test_an_incarnation_that_fenced_itself_is_counted_from_its_last_position() -> None:
    """It has fenced itself, and is killed minutes later: batches of two producers stand after the position."""
    world, source, witness = make(42, A__B_copy_mode="pass")
    source.fill(10)
    gate = Gate(is_position)
    async with world.worker(through=gate):
        await all_copied(world)
        await asyncio.sleep(3)
        world.target.inject(Faults(drop_reply=1.0))
        source.fill(5)
        await all_copied(world)
        world.target.stop_broker(1)
        world.target.heal()
        world.target.start_broker(1)
        await until(lambda: bool(said(world, "partitions.reconciled")), world)
        await asyncio.sleep(3)
        gate.shut()
        before = len(copies(world))
        source.fill(20)
        await all_copied(world)
        behind = len(copies(world)) - before
        await asyncio.sleep(180)
    ids = {batch.producer_id for batch in world.target.batches("A.orders", 0) if not batch.control}
    assert len(ids) == 2
    async with world.worker():
        await until(lambda: len(said(world, "partitions.reconciled")) == 2, world)
        assert f"records={behind} " in said(world, "partitions.reconciled")[-1]
    await finish(world, source, witness)
