"""``exactly.once.source.support`` in the order of MirrorMaker 2's upgrade: ``preparing``, then ``enabled``."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.gate import Gate
from tests.scenarios.two_incarnations import (
    Source,
    all_copied,
    copies,
    is_position,
    make,
    said,
)
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

STEPS = ("disabled", "preparing", "enabled")


def set_support(world: World, support: str) -> None:
    world.rewrite_file({"B.exactly.once.source.support": support})


def write(world: World, source: Source) -> set[bytes]:
    """Append plain records, committed transactions and aborted ones; return the ids of the aborted records."""
    aborted: set[bytes] = set()
    for at in range(8):
        source.fill(2)
        transaction, records = world.source.transaction(), source.records(3)
        transaction.append("orders", 0, records)
        if at % 2:
            transaction.commit()
        else:
            transaction.abort()
            aborted |= {value or b"" for record in records for _, value in record.headers}
    source.fill(1)
    return aborted


@pytest.mark.parametrize("is_killed", [False, True])
async def test_over_both_steps_each_record_is_copied_once_and_uncommitted_ones_only_before_the_second(
    is_killed: bool,
) -> None:
    """The second step resumes after a killed incarnation, although the next one reads the source in another way."""
    world, source, witness = make(1)
    for support in STEPS:
        set_support(world, support)
        gate = Gate(is_position)
        async with world.worker(through=gate) as herder:
            aborted = write(world, source)
            await all_copied(world)
            await asyncio.sleep(3)
            if is_killed:
                gate.shut()
                aborted |= write(world, source)
                await all_copied(world)
                await asyncio.sleep(2)
            (status,) = herder.status()
            assert (status.state, status.guarantee) == ("running", "exactly-once"), support
            if not is_killed:
                await world.stop(herder)
        have = {value for record in copies(world) for _, value in record.headers}
        assert aborted & have == (set() if support == "enabled" else aborted), support
        assert witness.findings() == [], support
    set_support(world, "enabled")
    async with world.worker():
        write(world, source)
        await all_copied(world)
    assert witness.findings() == []
    assert not said(world, "gap.") and not said(world, "foreign.writer") and not said(world, "copy.repeated")


async def test_on_a_target_without_coordinators_the_first_step_copies_and_the_second_does_not() -> None:
    world, source, witness = make(3)
    world.target.transactions_available = False
    for support in (*STEPS, "preparing"):
        set_support(world, support)
        source.fill(5)
        async with world.worker() as herder:
            await asyncio.sleep(60)  # the worker waits for a coordinator twice: for the settings and for the records
            (status,) = herder.status()
            if support == "enabled":
                assert status.state == "refused"
                assert "let __transaction_state be created there" in status.reason
            else:
                assert (status.state, status.guarantee.split()[0]) == ("running", "at-least-once")
                await all_copied(world)
                await world.stop(herder)
    assert witness.findings() == []
