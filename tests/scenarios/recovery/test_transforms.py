"""A worker with a filter is killed far ahead of its positions: what comes out of the filter is copied exactly once."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from mm2py.cli.gaps import read_gaps
from mm2py.records.gap_record import Done, GapKind
from mm2py.records.source_offset import decode_value
from tests.fakes.broker.record_batch import Record
from tests.scenarios.copying.test_copying_under_faults import STORM, fill
from tests.scenarios.copying.test_quarantine import copied as copied_values
from tests.scenarios.copying.test_quarantine import good, kept, make_world, poison
from tests.scenarios.gaps.test_resuming_after_gaps import accept_all
from tests.scenarios.gate import Gate
from tests.scenarios.true_ledger import wrong_answers
from tests.scenarios.two_incarnations import OFFSETS, copies, is_position, said, until
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=900)

FILTER = {
    "A->B.transforms": "clean",
    "A->B.transforms.clean.type": "org.apache.kafka.connect.transforms.Filter",
    "A->B.transforms.clean.predicate": "marked",
    "A->B.predicates": "marked",
    "A->B.predicates.marked.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "A->B.predicates.marked.name": "drop",
}
TOMBSTONE = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"
OTHER = {**FILTER, "A->B.transforms.clean.negate": "true"}


class Filling:
    """Appends records to ``orders``, some of which are dropped on their way."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0
        self.kept: list[bytes] = []

    def fill(self, batches: int) -> None:
        rng = self._world.rng
        for _ in range(batches):
            drops_all = rng.random() < 0.2
            records = []
            for _ in range(rng.randint(1, 6)):
                self._number += 1
                value, is_dropped = b"%d" % self._number, drops_all or rng.random() < 0.4
                headers = (("drop", b""),) if is_dropped else (("id", value),)
                records.append(Record(value=value, headers=headers, timestamp_ms=self._world.clock.wall_ms()))
                if not is_dropped:
                    self.kept.append(value)
            self._world.source.append("orders", 0, records)
        last = b"last of %d" % self._number  # something comes out, so that the end can be waited for
        self._world.source.append("orders", 0, [Record(value=last, timestamp_ms=self._world.clock.wall_ms())])
        self.kept.append(last)


def make(seed: int, extra: dict[str, str] = FILTER) -> tuple[World, Filling]:
    world = World(seed, extra=extra)
    world.source.create_topic("orders", 1)
    return world, Filling(world)


def values(world: World) -> list[bytes]:
    return [one.value or b"" for one in copies(world)] if "A.orders" in world.target.topics else []


async def copied(world: World, filling: Filling) -> None:
    await until(lambda: values(world)[-1:] == filling.kept[-1:], world)


async def killed_ahead(world: World, filling: Filling) -> None:
    """Let a worker store a position, copy more behind it, and be killed."""
    filling.fill(20)
    gate = Gate(is_position)
    async with world.worker(through=gate):
        await copied(world, filling)
        await asyncio.sleep(3)
        gate.shut()
        filling.fill(30)
        await copied(world, filling)
        await until(lambda: gate.held > 0, world)


@pytest.mark.walk(range(6))
async def test_what_stands_behind_the_position_is_counted_through_the_filter(seed: int) -> None:
    world, filling = make(seed)
    await killed_ahead(world, filling)
    filling.fill(10)
    async with world.worker():
        await copied(world, filling)
        await asyncio.sleep(3)
    assert said(world, "partitions.reconciled", "by_content=0")
    assert values(world) == filling.kept
    assert wrong_answers(world.source, world.target, "orders", "A.orders", committed=False, is_over=True) == []
    assert world.target.complaints == []


@pytest.mark.walk(range(4))
async def test_kills_at_any_moment_lose_and_repeat_nothing(seed: int) -> None:
    world, filling = make(seed)
    for _ in range(8):
        filling.fill(world.rng.randint(1, 40))
        async with world.worker():
            await asyncio.sleep(world.rng.uniform(0.0, 2.0))
    async with world.worker():
        filling.fill(1)
        await copied(world, filling)
        await asyncio.sleep(3)
    assert values(world) == filling.kept
    assert wrong_answers(world.source, world.target, "orders", "A.orders", committed=False, is_over=True) == []


@pytest.mark.walk(range(6))
async def test_storms_and_kills_lose_and_repeat_nothing_that_comes_out(seed: int) -> None:
    extra = {key: value for key, value in FILTER.items() if not key.endswith(".name")}
    world = World(seed, nodes=3, extra={**extra, "A->B.predicates.marked.type": TOMBSTONE})
    world.source.create_topic("orders", 3)
    fill(world, "orders", world.rng, 60)
    world.source.inject(STORM)
    world.target.inject(STORM)
    for _ in range(3):
        async with world.worker():
            for _ in range(3):
                await asyncio.sleep(world.rng.uniform(1.0, 8.0))
                with contextlib.suppress(Exception):  # the source partition may have no leader at this moment
                    fill(world, "orders", world.rng, 20)
    world.source.heal()
    world.target.heal()

    def wanted(number: int) -> list[object]:
        records = world.source.records("orders", number, committed=False)
        return [one.content for one in records if one.value is not None]

    def there(number: int) -> list[object]:
        is_made = "A.orders" in world.target.topics
        return [one.content for one in world.target.records("A.orders", number)] if is_made else []

    async with world.worker():
        await until(
            lambda: all(there(number)[-1:] == wanted(number)[-1:] for number in range(3)), world, deadline_s=900
        )
        await asyncio.sleep(10)
    for number in range(3):
        assert there(number) == wanted(number), f"seed {seed}"
    assert world.target.complaints == []
    assert wrong_answers(world.source, world.target, "orders", "A.orders", committed=False) == []


@pytest.mark.parametrize("then", [OTHER, {}])
async def test_another_chain_stops_the_partition_and_the_old_one_goes_on(then: dict[str, str]) -> None:
    world, filling = make(3)
    await killed_ahead(world, filling)
    before = values(world)
    world.rewrite_file(then)
    async with world.worker():
        await until(lambda: bool(said(world, "transforms.changed", "done=stopped")), world)
        filling.fill(3)
        await asyncio.sleep(60)
        assert values(world) == before, "nothing is copied behind what cannot be counted"
    world.rewrite_file(FILTER)
    async with world.worker():
        await copied(world, filling)
        await asyncio.sleep(3)
    assert values(world) == filling.kept
    (gap,) = await read_gaps(world.settings, world.target)
    assert (gap.kind, gap.done) == (GapKind.TRANSFORMS, Done.CONTINUED), "it waits for nobody any more"


async def test_an_operator_lets_another_chain_copy_once_more_what_stands_behind_the_position() -> None:
    world, filling = make(8)
    await killed_ahead(world, filling)
    before = values(world)
    world.rewrite_file({})
    async with world.worker():
        await until(lambda: bool(said(world, "transforms.changed", "done=stopped")), world)
        await asyncio.sleep(3)
        (gap,) = await read_gaps(world.settings, world.target)
        await accept_all(world)
        every = [(one.offset, one.value) for one in world.source.records("orders", 0)]
        again = [value for offset, value in every if offset >= gap.position]
        await until(lambda: len(values(world)) == len(before) + len(again), world)
        assert values(world) == [*before, *again], "nothing of the source is left out"


async def test_after_a_drained_stop_another_chain_begins_where_the_old_one_ended() -> None:
    world, filling = make(4)
    filling.fill(20)
    async with world.worker() as herder:
        await copied(world, filling)
        await world.stop(herder)
    before = values(world)
    world.rewrite_file({})
    async with world.worker():
        world.source.append("orders", 0, [Record(value=b"marked", headers=(("drop", b""),))])
        await until(lambda: values(world)[-1:] == [b"marked"], world)
    assert values(world) == [*before, b"marked"]


async def test_positions_name_the_chain_and_the_status_the_way_of_batches() -> None:
    world, filling = make(5)
    filling.fill(5)
    async with world.worker():
        await copied(world, filling)
        await asyncio.sleep(3)
    stored = [one for number in range(3) for one in world.target.records(OFFSETS, number)]
    found = [position for one in stored if (position := decode_value(one.value)) is not None]
    assert {position.transforms for position in found if position.next_target is not None} - {None} != set()
    assert found[-1].mode == "transform"


async def test_a_refused_record_is_kept_in_quarantine_as_it_came_out() -> None:
    drop = {"A->B.transforms": "d", "A->B.transforms.d.type": "DropHeaders", "A->B.transforms.d.headers": "h"}
    world = make_world(1)
    world.rewrite_file({**world.extra, **drop})
    world.source.append("orders", 0, [good(1), poison(2), good(3)])
    async with world.worker():
        await until(lambda: copied_values(world) == [b"1", b"3"], world)
    (entry,) = kept(world)
    assert (entry.record.value, entry.record.headers) == (b"2", (("mm2py-key", b"mine"),))
