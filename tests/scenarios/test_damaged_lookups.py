"""One flipped bit in what a broker answers while something is looked up: what an earlier life got to, and the like.

What came damaged is read again: nothing is left out, repeated or stopped.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.virtual_time import run_virtual
from tests.scenarios.damage import Spoiler, flip, flip_holder_of
from tests.scenarios.test_quarantine import copied, good, kept, make_world, poison
from tests.scenarios.test_quarantine import until as until_kept
from tests.scenarios.two_incarnations import (
    Source,
    all_copied,
    finish,
    killed_ahead,
    make,
    said,
    until,
)
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

BITS = [8 * 16 + 2, 8 * 17, 8 * 21 + 4, 8 * 26, 8 * 62]
"""Of the magic byte, the checksum, the attributes, the number of offsets, and the records."""


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
def test_a_source_batch_that_came_damaged_does_not_mislead_the_count_behind_a_killed_life(bit: int, back: int) -> None:
    async def scenario() -> None:
        world, source, witness = make(6)
        last = await _killed_life(world, source)
        source.fill(30)
        await _next_life(world, source, witness, Spoiler("reconcile", "orders", flip_holder_of(last - back, bit)))

    run_virtual(scenario(), limit_s=3000)


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("number", [0, -2, -1])
def test_a_target_batch_that_came_damaged_does_not_mislead_it_either(bit: int, number: int) -> None:
    async def scenario() -> None:
        world, source, witness = make(7)
        await _killed_life(world, source)
        source.fill(5)
        await _next_life(world, source, witness, Spoiler("reconcile", "A.orders", flip(number, bit)))

    run_virtual(scenario(), limit_s=3000)


@pytest.mark.parametrize("bit", BITS)
def test_the_record_that_was_refused_is_kept_and_no_other_one_in_its_place(bit: int) -> None:
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
