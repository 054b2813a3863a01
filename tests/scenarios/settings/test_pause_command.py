"""What ``mm2py pause`` and ``mm2py resume`` say to the operator after they have stored it."""

from __future__ import annotations

import pytest

from mm2py.cli.pause import _Change
from mm2py.records.author import Author
from mm2py.records.pause_record import PausedAsAWhole, PausedPart
from tests.scenarios.config_world import FLOW, log_of
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)
ANN = Author("ann", "ops1", "ticket 4711")


async def said(world: World, *parts: PausedPart, is_paused: bool) -> list[str]:
    log = await log_of(world, f"operator-{world.rng.random()}")
    await log.read_patiently(log.rng)
    command = "mm2py pause" if is_paused else "mm2py resume"
    return await _Change(FLOW, parts, ANN, command, is_paused=is_paused).store(log)


async def test_each_topic_and_partition_is_named_with_what_was_so_before() -> None:
    world = World(1)
    assert await said(world, ("orders", 2), ("bills", None), is_paused=True) == ["A->B: orders-2, bills paused."]
    assert await said(world, ("orders", 2), ("orders", 3), is_paused=True) == [
        "A->B: orders-3 paused.",
        "A->B: orders-2 is paused already, by ann on ops1 (mm2py pause): ticket 4711.",
    ]
    assert await said(world, ("orders", 1), ("orders", 2), is_paused=False) == [
        "A->B: orders-2 resumed.",
        "A->B: orders-1 was not paused.",
    ]
    assert await said(world, ("orders", None), is_paused=False) == ["A->B: orders-3 resumed."]
    with pytest.raises(PausedAsAWhole):
        await said(world, ("bills", 0), is_paused=False)


async def test_the_whole_flow_and_single_topics_do_not_hide_each_other() -> None:
    world = World(1)
    assert await said(world, is_paused=True) == ["A->B: paused by ann on ops1 (mm2py pause): ticket 4711."]
    assert await said(world, is_paused=True) == [
        "A->B: it is paused already, by ann on ops1 (mm2py pause): ticket 4711."
    ]
    await said(world, ("orders", None), ("bills", None), is_paused=True)
    (resumed, held) = await said(world, ("bills", None), is_paused=False)
    assert resumed == "A->B: bills resumed."
    assert held.startswith("A->B: nothing is copied, as the whole flow is paused by ann on ops1 (mm2py pause)")
    assert held.endswith("To copy it again: mm2py resume FILE 'A->B'")
    running, left = await said(world, is_paused=False)
    assert running.startswith("A->B: resumed by ann on ops1 (mm2py resume)")
    assert left.startswith("A->B: orders is still paused since ")
    assert left.endswith("mm2py resume FILE 'A->B' --topic orders")
    assert (await said(world, is_paused=False))[0] == "A->B: it is running already."
