"""The next incarnation knows a gap: a stopped partition stays stopped, and a skipped range stays on record."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.kafka.port import ProduceRequest
from tests.scenarios.gaps.test_gaps import (
    HOUR_S,
    ORDERS,
    RECOPY,
    STATUS,
    accept,
    expired_while_down,
    gaps,
    numbers,
    seen,
    texts,
    until,
    write,
)
from tests.scenarios.gate import Gate, Request
from tests.scenarios.two_incarnations import is_position
from tests.scenarios.witness import stored_positions
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)

FOREIGN = ["foreign"] * 10
LOST = ("target-truncated", 0, None, 9, "stopped")


async def lost_and_grown_again(world: World) -> None:
    """Lose the copy of 0 to 9. One incarnation stops at that, and another producer writes as many records there."""
    world.source.create_topic("orders", 2)
    write(world.source, *numbers(0, 9))
    async with world.worker() as herder:
        await world.copied(ORDERS)
        await world.stop(herder)
    world.target.truncate("A.orders", 0, 0)
    async with world.worker():
        await seen(world, LOST)
    write(world.target, *FOREIGN, topic="A.orders")
    write(world.source, "10")


async def test_a_lost_copy_stops_its_partition_after_every_restart_until_an_operator_accepts_it() -> None:
    world = World(1)
    await lost_and_grown_again(world)
    for _ in range(2):
        async with world.worker() as herder:
            write(world.source, "beside", partition=1)
            await asyncio.sleep(30)
            assert texts(world) == FOREIGN
            assert set(texts(world, 1)) == {"beside"}, "the others are copied"
            assert gaps(world) == [LOST]
            await world.stop(herder)
    async with world.worker():
        await asyncio.sleep(5)
        assert (await accept(world, 10)).carried_out
        await until(lambda: texts(world) == [*FOREIGN, "10"])
    async with world.worker():
        write(world.source, "11")
        await until(lambda: texts(world) == [*FOREIGN, "10", "11"])


async def test_a_truncated_source_stops_its_partition_after_every_restart_even_when_its_log_shows_no_trace() -> None:
    """The records that replaced the lost ones are deleted before the next start: they seem only to have expired."""
    world = World(3)
    world.source.create_topic("orders", 2)
    write(world.source, *numbers(0, 9))
    async with world.worker():
        await world.copied(ORDERS)
        await asyncio.sleep(3)
        world.source.truncate("orders", 0, 7)
        write(world.source, *[f"new-{number}" for number in range(7, 14)])
        cut = ("truncated", 0, 7, 9, "stopped")
        await seen(world, cut)
    world.source.delete_records("orders", 0, 14)
    write(world.source, "14")
    async with world.worker():
        await asyncio.sleep(30)
        assert texts(world) == numbers(0, 9)
        assert gaps(world) == [cut]
        assert (await accept(world, 10)).carried_out
        await until(lambda: texts(world) == [*numbers(0, 9), "14"])


async def test_a_lost_copy_that_stopped_its_partition_is_copied_again_after_a_change_of_policy() -> None:
    world = World(2)
    await lost_and_grown_again(world)
    assert "translate FILE 'A->B' --topic orders --partition 0 --reverse --offset END" in world.log_text.getvalue()
    world.rewrite_file(RECOPY)
    async with world.worker():
        await until(lambda: texts(world)[10:] == numbers(0, 10))
        await seen(world, (*LOST[:4], "restarted"))


@pytest.mark.parametrize("by", ["accepted", "continued"])
async def test_foreign_records_written_between_two_incarnations_stop_an_exactly_once_partition(by: str) -> None:
    """A killed incarnation left copies past its position, and a foreign writer appended records after them while no
    worker ran. The reconciling worker must report them, since no batch of its own will ever meet them.
    """
    world = World(5, extra={"B.exactly.once.source.support": "enabled"})
    world.source.create_topic("orders", 2)
    write(world.source, *numbers(0, 9))
    gate = Gate(is_position)
    async with world.worker(through=gate):
        await world.copied(ORDERS)
        await asyncio.sleep(3)
        gate.shut()
        write(world.source, *numbers(10, 19))
        await world.copied(ORDERS)
    write(world.target, *FOREIGN, topic="A.orders")
    write(world.source, "20")
    met = ("foreign-records", 0, None, None, "stopped")
    for _ in range(2):
        async with world.worker():
            write(world.source, "beside", partition=1)
            await seen(world, met)
            await asyncio.sleep(30)
            assert texts(world) == [*numbers(0, 19), *FOREIGN]
            assert set(texts(world, 1)) == {"beside"}, "the others are copied"
    lines = [line for line in world.log_text.getvalue().splitlines() if " foreign.writer " in line]
    assert len(lines) == 2, "each incarnation logs it"
    for line in lines:
        assert "has written 10 records to A.orders-0, at offsets 20 to 29; let only mm2py write there" in line
        assert "or set B.exactly.once.source.support=disabled" in line
        assert line.endswith("Let it go on with mm2py gaps FILE accept 'A->B:orders:0'.\"")
    await resume(world, by)
    await until(lambda: gaps(world) == [(*met[:4], by)])


async def resume(world: World, by: str) -> None:
    """Apply one of the two remedies: all that was not copied comes now and after restarts."""
    if by == "continued":
        world.rewrite_file({})
    async with world.worker():
        if by == "accepted":
            await asyncio.sleep(5)
            assert (await accept(world, 20)).carried_out
        write(world.source, "21")
        await until(lambda: texts(world) == [*numbers(0, 19), *FOREIGN, "20", "21"])
    async with world.worker():
        write(world.source, "22")
        await until(lambda: texts(world)[30:] == ["20", "21", "22"])


@pytest.mark.parametrize("held_s", [1.0, 60.0], ids=["slow", "stuck"])
async def test_a_gap_of_expired_records_is_stored_before_the_position_that_skips_them(held_s: float) -> None:
    """After a kill in between, the gap would not be found again. A stuck status topic is not waited for long."""

    def is_gap(request: Request) -> bool:
        return (
            isinstance(request, ProduceRequest) and request.topics[0].name == STATUS and b"gap" in str(request).encode()
        )

    world = World(3)
    await expired_while_down(world)
    gate = Gate(is_gap)
    gate.shut()
    async with world.worker(through=gate):
        await until(lambda: gate.held > 0)
        await asyncio.sleep(held_s)
        passed_over = (await stored_positions(world))["orders", 0].next_source > 10
        assert passed_over is (held_s > 10)
    async with world.worker():
        await world.copied(ORDERS)
        if not passed_over:
            await seen(world, ("expired", 0, 10, 24, "continued"))


async def test_a_drain_that_ends_without_answers_logs_the_gap_that_waits_for_them() -> None:
    """Operators stop a worker when its target hangs; otherwise no log would say why the partition stopped."""

    def is_order(request: Request) -> bool:
        return isinstance(request, ProduceRequest) and request.topics[0].name == "A.orders"

    world = World(24, nodes=3)
    world.source.create_topic("orders", 1)
    write(world.source, *numbers(0, 9))
    gate = Gate(is_order)
    async with world.worker(through=gate) as herder:
        await world.copied(ORDERS)
        await asyncio.sleep(5)
        gate.shut()
        world.source.append("orders", 0, [one.encode() for one in numbers(10, 19)])
        await until(lambda: gate.held > 0)
        led_before = world.source.partition("orders", 0).leader
        world.source.truncate("orders", 0, 5)
        write(world.source, *numbers(100, 130))
        world.source.stop_broker(led_before, clean=False)
        await asyncio.sleep(20)
        assert "source.truncated" not in world.log_text.getvalue(), "batches in flight may be stored"
        herder.stop()
        await until(lambda: "without an answer of the target" in world.log_text.getvalue())
        (line,) = [line for line in world.log_text.getvalue().splitlines() if "source.truncated" in line]
        assert "cut back to offset 5 " in line and "done=stopped" in line
