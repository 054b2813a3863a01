"""Two incarnations of a worker, the first killed far ahead of its stored positions: shared helpers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from mm2py.kafka.port import ProduceRequest
from tests.fakes.broker.record_batch import Record, StoredRecord
from tests.scenarios.gate import Gate, Request
from tests.scenarios.true_ledger import wrong_answers
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

OFFSETS = "mm2-offsets.A.internal"
LEDGER = "mm2-ledger.A.internal"


def is_position(request: Request) -> bool:
    return isinstance(request, ProduceRequest) and request.topics[0].name == OFFSETS


def is_data(request: Request) -> bool:
    return isinstance(request, ProduceRequest) and request.topics[0].name not in {OFFSETS, LEDGER}


def is_ledger(request: Request) -> bool:
    return isinstance(request, ProduceRequest) and request.topics[0].name == LEDGER


class Source:
    """Appends records to ``orders``, each with its own id."""

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
        (wanted,) = world.source.newest("orders", 0, committed=world.settings.read_committed)
        have = world.target.newest("A.orders", 0, count=30) if "A.orders" in world.target.topics else []
        return wanted.headers in [record.headers for record in have]

    await until(is_there, world)


@asynccontextmanager
async def worker_with_old_positions(world: World, source: Source) -> AsyncIterator[Gate]:
    """Run a worker that has copied everything; then its positions stop arriving, and the block's end kills it."""
    gate = Gate(is_position)
    async with world.worker(through=gate):
        await all_copied(world)
        await asyncio.sleep(3)
        gate.shut()
        yield gate


async def killed_ahead(world: World, source: Source, before: int, ahead: int) -> None:
    """Let a worker copy ``before`` batches and store its position, then copy ``behind`` more, and be killed."""
    source.fill(before)
    async with worker_with_old_positions(world, source) as gate:
        source.fill(ahead)
        await all_copied(world)
        await until(lambda: gate.held > 0, world)


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


def make(seed: int, *, partitions: int = 1, nodes: int = 1, **extra: str) -> tuple[World, Source, Witness]:
    world = World(
        seed, nodes=nodes, extra={name.replace("__", "->").replace("_", "."): value for name, value in extra.items()}
    )
    world.source.create_topic("orders", partitions)
    return world, Source(world), Witness(world, "orders")


async def finish(world: World, source: Source, witness: Witness) -> None:
    """Copy the rest with one more incarnation, and judge."""
    async with world.worker():
        source.fill(5)
        await all_copied(world)
        await asyncio.sleep(3)
    assert witness.findings() == [], world.log_text.getvalue()[-3000:]
    assert [verdict.findings for verdict in world.judge("orders", "A.orders", exact=True) if not verdict.ok] == []
    assert world.target.complaints == []
    committed = world.settings.read_committed
    assert wrong_answers(world.source, world.target, "orders", "A.orders", committed=committed, is_over=True) == []


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


def forget_transactional_ids(world: World) -> None:
    """Expire them as a target does after ``transactional.id.expiration.ms`` (docs/broker-facts.md#c2)."""
    world.target.coordinator.transactional_ids.clear()
