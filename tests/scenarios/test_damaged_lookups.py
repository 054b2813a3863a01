"""One flipped bit in what a broker answers while something is looked up: what an earlier life got to, and the like.

No checksum covers where a batch lies. So what seems damaged is read again; nothing is left out, repeated or stopped.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.log_model import PartitionLog
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.damage import LEADER_EPOCH, LENGTH, Spoiler, flip, flip_holder_of, move_holder_of
from tests.scenarios.test_quarantine import copied, good, kept, make_world, poison
from tests.scenarios.test_quarantine import until as until_kept
from tests.scenarios.test_succession import MirrorMaker2
from tests.scenarios.two_lives import (
    Source,
    all_copied,
    copies,
    finish,
    killed_ahead,
    life_with_old_positions,
    make,
    said,
    until,
)
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

LOW_BITS = range(56, 63)
"""Of the base offset, the lowest ones: they make a batch change places with its neighbours."""
BITS = [24, *LOW_BITS, 63, 8 * LENGTH[-1] + 1, 8 * LENGTH[0] + 1, 8 * LEADER_EPOCH[-1] + 3, 8 * LEADER_EPOCH[0]]


async def _killed_life(world: World, source: Source) -> int:
    """Have a life killed with some batches behind its stored position; return the last source offset copied."""
    await killed_ahead(world, source, 3, 10)
    return world.source.records("orders", 0)[-1].offset


async def _next_life(world: World, source: Source, witness: Witness, spoiler: Spoiler) -> None:
    async with world.worker(through=spoiler):
        await until(lambda: bool(said(world, "partitions.reconciled")), world)
        source.fill(10)
        await all_copied(world)
        await asyncio.sleep(5)
    assert spoiler.struck == 1
    await finish(world, source, witness)


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("back", [0, 4, -1])
def test_a_source_batch_that_seems_to_lie_elsewhere_does_not_mislead_the_count_behind_a_killed_life(
    bit: int, back: int
) -> None:
    """The story: the last batch that was copied seems to end 32 offsets later, and these would be left out."""

    async def scenario() -> None:
        world, source, witness = make(6)
        last = await _killed_life(world, source)
        source.fill(30)
        await _next_life(world, source, witness, Spoiler("reconcile", "orders", flip_holder_of(last - back, bit)))

    run_virtual(scenario(), limit_s=3000)


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("number", [0, -2, -1])
def test_a_target_batch_that_seems_to_lie_elsewhere_does_not_mislead_it_either(bit: int, number: int) -> None:
    """The story: the only batch behind the position seems to lie before it, and would be copied once more."""

    async def scenario() -> None:
        world, source, witness = make(7)
        await _killed_life(world, source)
        source.fill(5)
        await _next_life(world, source, witness, Spoiler("reconcile", "A.orders", flip(number, bit)))

    run_virtual(scenario(), limit_s=3000)


@pytest.mark.parametrize("by", [-1, -16, 2, 4, 8])
def test_a_batch_that_moves_within_a_hole_is_looked_at_twice_before_copying_goes_on_inside_it(by: int) -> None:
    """A cleaner has been there, and the earlier life was killed in the middle of the batch. Nothing beside it tells
    that it was moved."""

    async def scenario() -> None:
        world, source, _ = make(40, sync_topic_configs_enabled="false")
        world.target.create_topic("A.orders", 1, {"max.message.bytes": "400"})
        source.fill(1)
        async with life_with_old_positions(world, source):
            batches = len(world.target.batches("A.orders", 0))
            first = between_holes(world, source, size=150)
            await until(lambda: len(world.target.batches("A.orders", 0)) >= batches + 3, world)
        await asyncio.sleep(1)  # what was on its way arrives
        assert 1 < len(copies(world)) < 41, "some of one batch is there"
        spoiler = Spoiler("reconcile", "orders", move_holder_of(first, by))
        async with world.worker(through=spoiler):
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            await all_copied(world)
        assert spoiler.struck == 1
        assert [one.value for one in copies(world)] == [one.value for one in world.source.records("orders", 0)]

    run_virtual(scenario(), limit_s=600)


def between_holes(world: World, source: Source, *, size: int = 12) -> int:
    """Append a batch of 40 records with a hole before and behind it; return its first offset."""
    world.source.append("orders", 0, source.records(16))
    first = world.source.append("orders", 0, source.records(40, size=size))
    behind = world.source.append("orders", 0, source.records(16))
    source.fill(1)
    clean_away(world.source.partition("orders", 0).log, first - 16, behind)
    return first


def clean_away(log: PartitionLog, *base_offsets: int) -> None:
    """Take batches out, as a cleaner does that keeps none of their records."""
    log.batches = [batch for batch in log.batches if batch.base_offset not in base_offsets]
    log._last_offsets = [batch.last_offset for batch in log.batches]


@pytest.mark.parametrize("by", [2, 4, 8])
def test_behind_mirrormaker_2_a_batch_that_moves_within_a_hole_is_looked_at_twice_as_well(by: int) -> None:
    async def scenario() -> None:
        world, source, _ = make(5)
        source.fill(1)
        first = between_holes(world, source)
        mm2 = MirrorMaker2(world)
        mm2.copy(1)
        mm2.store()
        mm2.copy(20)
        spoiler = Spoiler("reconcile", "orders", move_holder_of(first, by))
        async with world.worker(through=spoiler):
            await until(lambda: bool(said(world, "partitions.inherited")), world)
            await all_copied(world)
        assert spoiler.struck == 1
        assert [one.value for one in copies(world)] == [one.value for one in world.source.records("orders", 0)]

    run_virtual(scenario(), limit_s=600)


def test_that_a_target_was_cut_back_is_believed_when_it_was_read_twice() -> None:
    """A cleaner took all but the last batch behind the position; moved back by one, it stands too near to it."""

    async def scenario() -> None:
        world, source, _ = make(8, A__B_copy_mode="pass", sync_topic_configs_enabled="false")
        world.target.create_topic("A.orders", 1, {"cleanup.policy": "compact"})
        world.source.append("orders", 0, source.records(1, keys=90))
        async with life_with_old_positions(world, source):
            world.source.append("orders", 0, source.records(16, keys=90))
            world.source.append("orders", 0, source.records(5, keys=90))
            await all_copied(world)
            await asyncio.sleep(2)
        clean_away(world.target.partition("A.orders", 0).log, 1)
        spoiler = Spoiler("reconcile", "A.orders", move_holder_of(17, -1))
        async with world.worker(through=spoiler):
            await until(lambda: bool(said(world, "partitions.reconciled")), world)
            source.fill(1, keys=90)
            await all_copied(world)
        assert spoiler.struck == 1
        values = [one.value for one in world.source.records("orders", 0)]
        assert [one.value for one in copies(world)] == [values[0], *values[17:]]

    run_virtual(scenario(), limit_s=600)


@pytest.mark.parametrize("bit", BITS)
def test_the_record_that_was_refused_is_kept_and_no_other_one_in_its_place(bit: int) -> None:
    """The story: its batch seems to begin one offset later, so the record before it is kept, and it is nowhere."""

    async def scenario() -> None:
        world = make_world(1)
        world.source.append("orders", 0, [poison(number) if number == 41 else good(number) for number in range(100)])
        spoiler = Spoiler("quarantine", "orders", flip(0, bit))
        async with world.worker(through=spoiler):
            await until_kept(lambda: len(copied(world)) == 99, world, deadline_s=10)
        assert spoiler.struck == 1
        assert [(one.provenance.origin.offset, one.record.value) for one in kept(world)] == [(41, b"41")]
        assert "quarantine.failing" not in world.log_text.getvalue()

    run_virtual(scenario(), limit_s=600)
