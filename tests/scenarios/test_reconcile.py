"""A life killed far ahead of its stored positions, and the one after it: each record is there once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from mm2py.kafka.messages import AddPartitionsToTxnRequest, EndTxnRequest
from mm2py.kafka.port import ProduceRequest
from tests.fakes.faults import Faults
from tests.fakes.partition_model import NO_LEADER
from tests.fakes.record_batch import Record, StoredRecord
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.gate import Gate, Request
from tests.scenarios.test_reconcile_storms import DAY_MS
from tests.scenarios.witness import Witness, stored_positions
from tests.scenarios.world import World, flow_settings

OFFSETS = "mm2-offsets.A.internal"


def is_position(request: Request) -> bool:
    return isinstance(request, ProduceRequest) and request.topics[0].name == OFFSETS


def is_data(request: Request) -> bool:
    return isinstance(request, ProduceRequest) and request.topics[0].name != OFFSETS


class Source:
    """Appends records to ``orders``, each with an id of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.number = 0

    def fill(self, batches: int, *, partition: int = 0, age_ms: int = 0, size: int = 12, keys: int = 0) -> None:
        for _ in range(batches):
            self.world.source.append("orders", partition, self.records(1 + self.number % 5, age_ms, size, keys))

    def records(self, count: int, age_ms: int = 0, size: int = 12, keys: int = 0) -> list[Record]:
        made = []
        for _ in range(count):
            self.number += 1
            made.append(
                Record(
                    value=b"%d" % self.number + b"x" * size,
                    key=b"k%d" % (self.number % keys) if keys else None,
                    headers=(("id", b"%d" % self.number),),
                    timestamp_ms=self.world.clock.wall_ms() - age_ms,
                )
            )
        return made


async def all_copied(world: World) -> None:
    """Wait for the last record of the first partition; the target may have set its timestamp."""

    def is_there() -> bool:
        wanted = world.source.records("orders", 0, committed=world.settings.read_committed)
        have = world.target.records("A.orders", 0) if "A.orders" in world.target.topics else []
        return bool(have) and wanted[-1].headers in [record.headers for record in have[-30:]]

    await until(is_there, world)


@asynccontextmanager
async def life_with_old_positions(world: World, source: Source) -> AsyncIterator[Gate]:
    """A worker that has copied all there was; from then on its positions do not arrive, and in the end it is killed."""
    gate = Gate(is_position)
    async with world.worker(through=gate):
        await all_copied(world)
        await asyncio.sleep(3)
        gate.shut()
        yield gate


def said(world: World, *words: str) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if all(word in line for word in words)]


async def until(condition: Callable[[], bool], world: World, *, deadline_s: float = 200.0) -> None:
    try:
        async with asyncio.timeout(deadline_s):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(world.log_text.getvalue()[-3000:]) from None


def copies(world: World) -> list[StoredRecord]:
    return world.target.records("A.orders", 0)


@dataclass(frozen=True)
class Case:
    """How the batches behind the position look, and what happens to the logs before the next life."""

    extra: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[str, str] = field(default_factory=dict)
    source_config: Mapping[str, str] = field(default_factory=dict)
    target_config: Mapping[str, str] = field(default_factory=dict)
    keys: int = 0
    size: int = 12
    age_ms: int = 0
    before: Callable[[World, Witness, Source], object] = lambda *_: None
    """Before the batches behind the position are copied."""
    between: Callable[[World, Witness, Source], object] = lambda *_: None
    """Between the two lives."""
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
    "encoded anew": Case(extra={"B.producer.compression.type": "zstd"}, later={"B.producer.compression.type": "gzip"}),
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
    "isolation raised between the lives": Case(
        extra={"A.consumer.isolation.level": "read_uncommitted"},
        later={"A.consumer.isolation.level": "read_committed"},
        before=transactions,
        by_content=1,
    ),
    "isolation lowered between the lives": Case(
        extra={"A.consumer.isolation.level": "read_committed"},
        later={"A.consumer.isolation.level": "read_uncommitted"},
        before=transactions,
        by_content=1,
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


LOWERED = "isolation lowered between the lives"
OPEN = pytest.mark.xfail(strict=True, reason="records left out as aborted look like a source that was filled anew")


@pytest.mark.parametrize("name", [pytest.param(name, marks=OPEN if name == LOWERED else ()) for name in CASES])
def test_what_stands_behind_the_position_is_counted_whatever_it_looks_like(name: str) -> None:
    case = CASES[name]

    async def scenario() -> None:
        world = World(1, extra={"sync.topic.configs.enabled": "false", **case.extra})
        source, witness = Source(world), Witness(world, "orders")
        world.source.create_topic("orders", 1, case.source_config)
        world.target.create_topic("A.orders", 1, case.target_config)
        source.fill(10, keys=case.keys, age_ms=case.age_ms)
        async with life_with_old_positions(world, source):
            before = len(copies(world))
            case.before(world, witness, source)
            source.fill(50, keys=case.keys, size=case.size, age_ms=case.age_ms)
            await all_copied(world)
            behind = len(copies(world)) - before
            await asyncio.sleep(65)  # the position stays behind
        world.settings = flow_settings(
            tuple(sorted({"sync.topic.configs.enabled": "false", **case.extra, **case.later}.items()))
        )
        case.between(world, witness, source)
        async with world.worker():
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            source.fill(5, keys=case.keys, age_ms=case.age_ms)
            await all_copied(world)
            await asyncio.sleep(5)
        (line,) = said(world, "partitions.reconciled")
        assert f"by_content={case.by_content} " in line, line
        assert f"records={behind} " in line, (behind, line)
        if name == LOWERED:  # what was left out before is not copied now
            assert [text for text in witness.findings() if "are not there" not in text] == []
        else:
            assert witness.findings(foreign=case.foreign, timestamps=case.timestamps) == []
        assert len(said(world, "foreign.writer", "has written 2 records")) == case.foreign
        assert world.target.complaints == []

    run_virtual(scenario(), limit_s=2000)


def make(seed: int, *, partitions: int = 1, nodes: int = 1, **extra: str) -> tuple[World, Source, Witness]:
    world = World(
        seed, nodes=nodes, extra={name.replace("__", "->").replace("_", "."): value for name, value in extra.items()}
    )
    world.source.create_topic("orders", partitions)
    return world, Source(world), Witness(world, "orders")


async def finish(world: World, source: Source, witness: Witness) -> None:
    """Copy to the end in one more life, and judge."""
    async with world.worker():
        source.fill(5)
        await all_copied(world)
        await asyncio.sleep(3)
    assert witness.findings() == [], world.log_text.getvalue()[-3000:]
    assert [verdict.findings for verdict in world.judge("orders", "A.orders", exact=True) if not verdict.ok] == []
    assert world.target.complaints == []


@pytest.mark.parametrize("seed", range(6))
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


def written(world: World) -> set[tuple[int, tuple[str, int, int]]]:
    """Return the producer and the place of each batch of records and positions."""
    return {
        (batch.producer_id, (name, part.index, batch.base_offset))
        for name in ("A.orders", OFFSETS)
        if name in world.target.topics
        for part in world.target.topics[name].partitions
        for batch in world.target.batches(name, part.index)
        if not batch.control
    }


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


def test_an_id_that_the_target_has_forgotten_is_fenced_by_markers_straight_to_the_leaders() -> None:
    async def scenario() -> None:
        world, source, witness = make(5)
        source.fill(10)
        zombie = Gate()
        async with world.worker(through=zombie):
            await all_copied(world)
            await asyncio.sleep(2)
            zombie.shut()
            source.fill(10)
            await asyncio.sleep(1)
            forget_transactional_ids(world)
            async with world.worker():
                await all_copied(world)
                await asyncio.sleep(2)
                ends = world.target.partition("A.orders", 0).high_watermark
                zombie.open()
                await until(lambda: bool(said(world, "flow.failed", "has fenced")), world)
                assert world.target.partition("A.orders", 0).high_watermark == ends
        assert world.target.counts["request WriteTxnMarkers"] > 0
        assert not said(world, "writer.unfenced")
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def forget_transactional_ids(world: World) -> None:
    """As a target does after ``transactional.id.expiration.ms`` (C2)."""
    world.target.coordinator.transactional_ids.clear()


def test_without_the_right_to_write_markers_a_forgotten_id_is_reported_and_nothing_claims_to_have_fenced_it() -> None:
    async def scenario() -> None:
        world, source, witness = make(6)
        source.fill(10)
        async with life_with_old_positions(world, source):
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(2)
        forget_transactional_ids(world)
        world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
        async with world.worker():
            source.fill(5)
            await all_copied(world)
        assert said(world, "writer.unfenced", "its positions may replace ours")
        assert said(world, "writer.unfenced", "records may be there twice")
        world.target.denied_on_cluster.clear()
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_where_exactly_once_is_a_must_an_earlier_life_that_cannot_be_fenced_stops_the_flow() -> None:
    async def scenario() -> None:
        world, source, _ = make(6, **{"B.exactly.once.source.support": "enabled"})
        source.fill(10)
        async with life_with_old_positions(world, source):
            await all_copied(world)
            await asyncio.sleep(2)
        forget_transactional_ids(world)
        world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
        before = world.target.partition("A.orders", 0).high_watermark
        async with world.worker() as herder:
            source.fill(5)
            await asyncio.sleep(30)
            (status,) = herder.status()
        assert (status.state, world.target.partition("A.orders", 0).high_watermark) == ("refused", before)
        assert "exactly.once.source.support=enabled cannot be kept" in status.reason

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
            await until(lambda: bool(said(world, "partitions.waiting", "an earlier life is being shut out")), world)
            (status,) = herder.status()
            assert any(
                "an earlier life is being shut out" in text for topic in status.topics for text in topic.problems
            )
            held.open()
            await all_copied(world)
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_markers_that_were_written_twice_cost_nothing() -> None:
    async def scenario() -> None:
        world, source, witness = make(7)
        source.fill(10)
        async with life_with_old_positions(world, source):
            source.fill(30)
            await all_copied(world)
            await asyncio.sleep(2)
        for _ in range(2):  # each life fences the one before it; the marker of the fence comes once more, later
            async with world.worker():
                await all_copied(world)
                await asyncio.sleep(2)
                for batch in world.target.batches("A.orders", 0):
                    if batch.control:
                        world.target.write_marker("A.orders", 0, batch.producer_id, batch.producer_epoch)
                source.fill(5)
                await all_copied(world)
        assert not said(world, "foreign.writer")
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


def test_a_partition_without_a_leader_waits_alone() -> None:
    async def scenario() -> None:
        world, source, witness = make(10, partitions=2)
        source.fill(10)
        source.fill(10, partition=1)
        async with life_with_old_positions(world, source):
            source.fill(10)
            source.fill(10, partition=1)
            await all_copied(world)
            await asyncio.sleep(2)
        lonely = world.target.partition("A.orders", 1)
        lonely.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
        for _ in range(3):  # several lives own the first partition, and none of them the second
            async with world.worker():
                source.fill(5)
                source.fill(5, partition=1)
                await all_copied(world)
                await asyncio.sleep(3)
        lonely.elect(1, [1], now_s=world.clock.monotonic())
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_a_drain_before_the_partition_is_reconciled_keeps_the_earlier_position() -> None:
    async def scenario() -> None:
        world, source, witness = make(11, partitions=2)
        source.fill(10)
        source.fill(10, partition=1)
        async with life_with_old_positions(world, source):
            source.fill(10, partition=1)
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(2)
        lonely = world.target.partition("A.orders", 1)
        lonely.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
        before = (await stored_positions(world))["orders", 1]
        async with world.worker() as herder:
            await asyncio.sleep(3)
            await world.stop(herder)
        assert (await stored_positions(world))["orders", 1] == before
        lonely.elect(1, [1], now_s=world.clock.monotonic())
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_a_topic_that_vanishes_before_it_is_reconciled_and_returns_repeats_nothing() -> None:
    async def scenario() -> None:
        world, source, witness = make(12)
        source.fill(10)
        async with life_with_old_positions(world, source):
            source.fill(20)
            await all_copied(world)
            await asyncio.sleep(2)
        lonely = world.target.partition("A.orders", 0)
        lonely.elect(NO_LEADER, [1], now_s=world.clock.monotonic())
        async with world.worker():
            await asyncio.sleep(3)
            world.source.deny("orders")
            await asyncio.sleep(30)
            world.source.allow("orders")
            lonely.elect(1, [1], now_s=world.clock.monotonic())
            await asyncio.sleep(30)
            source.fill(5)
            await all_copied(world)
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=600)


def test_a_target_cut_back_below_the_position_stops_its_partition_and_nothing_is_written_over_it() -> None:
    async def scenario() -> None:
        world, source, witness = make(13, partitions=2)
        source.fill(10)
        source.fill(10, partition=1)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(5)
        cut = world.target.partition("A.orders", 1).high_watermark - 5
        world.target.truncate("A.orders", 1, cut)
        for _ in range(2):
            async with world.worker():
                source.fill(5)
                source.fill(5, partition=1)
                await all_copied(world)
                await asyncio.sleep(10)
        assert len(said(world, "target.truncated")) == 2
        assert world.target.partition("A.orders", 1).high_watermark <= cut
        assert not [text for text in witness.findings() if text.startswith("orders-0")]

    run_virtual(scenario(), limit_s=600)


def test_a_target_cut_back_under_a_running_worker_stops_its_partition() -> None:
    async def scenario() -> None:
        world, source, _ = make(14, nodes=2)
        source.fill(10)
        async with world.worker():
            await all_copied(world)
            await asyncio.sleep(5)
            cut = world.target.partition("A.orders", 0).high_watermark - 5
            world.target.truncate("A.orders", 0, cut)
            world.source.append("orders", 0, source.records(12))
            await until(lambda: bool(said(world, "target.truncated")), world)

    run_virtual(scenario(), limit_s=600)


def test_an_operators_position_is_used_once_and_shuts_a_frozen_worker_out_as_well() -> None:
    async def scenario() -> None:
        world, source, _ = make(15)
        source.fill(10)
        zombie = Gate(is_data)
        async with world.worker(through=zombie):
            await all_copied(world)
            await asyncio.sleep(2)
            zombie.shut()
            source.fill(10)
            await asyncio.sleep(1)
            world.source.truncate("orders", 0, 10)  # the position fits no more: --allow-recopy is the way out
            recopied = frozenset({"orders"})
            async with world.worker(allow_recopy=recopied):
                await asyncio.sleep(5)
                end = world.target.partition("A.orders", 0).high_watermark
                zombie.open()
                await asyncio.sleep(5)
                assert world.target.partition("A.orders", 0).high_watermark == end
        for _ in range(2):
            async with world.worker(allow_recopy=recopied):
                await asyncio.sleep(5)
        assert len(said(world, "topic.recopied")) == 1
        values = [record.value for record in copies(world)]
        assert values[-10:] == [record.value for record in world.source.records("orders", 0)]

    run_virtual(scenario(), limit_s=600)


@pytest.mark.parametrize("age_ms", [0, 30 * DAY_MS])
def test_answers_lost_around_a_clean_restart_of_a_broker_repeat_nothing(age_ms: int) -> None:
    """H1: a restarted broker knows one batch of each producer, and answers 45 for the others. C1: of old ones none."""

    async def scenario() -> None:
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

    run_virtual(scenario(), limit_s=900)


def test_a_first_batch_that_is_refused_lets_none_behind_it_in() -> None:
    """H2: of a producer that it does not know a broker takes any sequence."""

    async def scenario() -> None:
        world, source, witness = make(17, A__B_copy_mode="pass")
        source.fill(10)
        async with life_with_old_positions(world, source):
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

    run_virtual(scenario(), limit_s=900)


def test_what_expired_behind_the_last_copied_record_is_reported_after_a_kill_as_well() -> None:
    async def scenario() -> None:
        world, source, _ = make(18)
        source.fill(10)
        async with life_with_old_positions(world, source):
            source.fill(10)
            await all_copied(world)
            await asyncio.sleep(2)
        copied_to = world.source.partition("orders", 0).high_watermark
        source.fill(20)
        world.source.delete_records("orders", 0, copied_to + 15)
        async with world.worker():
            source.fill(5)
            await all_copied(world)
        assert said(world, f"source offsets {copied_to} to {copied_to + 14} were deleted")

    run_virtual(scenario(), limit_s=600)


def test_a_quarantined_record_behind_the_stored_position_is_not_counted_as_copied() -> None:
    async def scenario() -> None:
        world, source, _ = make(19, on_poison_record="quarantine", sync_topic_configs_enabled="false")
        world.source.configure_topic("orders", {"message.timestamp.after.max.ms": str(1 << 62)})
        source.fill(10)
        gate = Gate(is_position)
        async with world.worker(through=gate):
            await all_copied(world)
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

    run_virtual(scenario(), limit_s=600)
