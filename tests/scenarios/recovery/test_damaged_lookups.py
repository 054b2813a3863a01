"""A broker's answer to a lookup, for example of the last copied record, comes with one flipped bit.

A damaged answer is read again: no record is skipped or repeated, and no partition stops.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.copying.test_quarantine import copied, good, kept, make_world, poison
from tests.scenarios.copying.test_quarantine import until as until_kept
from tests.scenarios.damage import Spoiler, flip, flip_holder_of
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

pytestmark = pytest.mark.virtual_time(limit_s=3000)

BITS = [8 * 16 + 2, 8 * 17, 8 * 21 + 4, 8 * 26, 8 * 62]
"""Places in the magic byte, the checksum, the attributes, the number of offsets, and the records."""


async def _kill_past_position(world: World, source: Source) -> int:
    """Kill an incarnation some batches past its stored position; return the last source offset it copied."""
    await killed_ahead(world, source, 3, 10)
    return world.source.records("orders", 0)[-1].offset


async def _next_incarnation(world: World, source: Source, witness: Witness, spoiler: Spoiler) -> None:
    async with world.worker(through=spoiler):
        await until(lambda: bool(said(world, "partitions.reconciled")), world)
        source.fill(10)
        await all_copied(world)
        await asyncio.sleep(5)
    assert spoiler.struck == 1
    await finish(world, source, witness)


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("back", [0, 4, -1])
async def test_a_damaged_source_batch_does_not_mislead_the_count_after_a_kill(bit: int, back: int) -> None:
    world, source, witness = make(6)
    last = await _kill_past_position(world, source)
    source.fill(30)
    await _next_incarnation(world, source, witness, Spoiler("reconcile", "orders", flip_holder_of(last - back, bit)))


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("number", [0, -2, -1])
async def test_a_damaged_target_batch_does_not_mislead_the_count_after_a_kill(bit: int, number: int) -> None:
    world, source, witness = make(7)
    await _kill_past_position(world, source)
    source.fill(5)
    await _next_incarnation(world, source, witness, Spoiler("reconcile", "A.orders", flip(number, bit)))


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.virtual_time(limit_s=600)
async def test_the_refused_record_is_quarantined_and_no_other_in_its_place(bit: int) -> None:
    world = make_world(1)
    world.source.append("orders", 0, [poison(number) if number == 41 else good(number) for number in range(100)])
    spoiler = Spoiler("quarantine", "orders", flip(0, bit))
    async with world.worker(through=spoiler):
        await until_kept(lambda: len(copied(world)) == 99, world, deadline_s=10)
    assert spoiler.struck == 1
    assert [(one.provenance.origin.offset, one.record.value) for one in kept(world)] == [(41, b"41")]
    assert "quarantine.failing" not in world.log_text.getvalue()
