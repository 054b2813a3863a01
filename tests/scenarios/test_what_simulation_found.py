"""Failures that the simulation found first, each reduced to what it needs (``tests/simulation``)."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from kio.schema.errors import ErrorCode

from mm2py.kafka.messages import ListOffsetsRequest
from mm2py.kafka.port import ProduceRequest
from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=600)

ORDERS = {"orders": "A.orders"}
FORGOTTEN = Faults(
    produce_error=1.0, produce_errors=((ErrorCode.unknown_producer_id, 0.0),), produce_errors_in=("A.orders",)
)
"""The target answers that it does not know the producer: the partition is fenced and reconciled."""


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def copied(world: World) -> list[bytes | None]:
    return [record.value for record in world.target.records("A.orders", 0)]


async def until_said(world: World, text: str, *, deadline_s: float = 60.0) -> None:
    try:
        async with asyncio.timeout(deadline_s):
            while text not in world.log_text.getvalue():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{text!r} is not in\n{world.log_text.getvalue()[-3000:]}") from None


async def test_a_worker_that_is_fenced_while_it_reconciles_returns_and_logs_no_defect() -> None:
    world = World(1)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, numbers(0, 10))
    async with world.worker():
        await world.copied(ORDERS)
        own = f"mm2py-mm2py-{world.processes[0].member_id}-0-A->B"
        world.target.coordinator.init_producer_id(own, expected=None, now_ms=world.clock.wall_ms())
        world.target.inject(FORGOTTEN)
        world.source.append("orders", 0, numbers(10, 20))
        await until_said(world, "flow.failed")
        world.target.heal()
        await world.copied(ORDERS)
    assert copied(world) == numbers(0, 20)
    assert f"Another process has fenced {own}" in world.log_text.getvalue()
    assert "flow.crashed" not in world.log_text.getvalue()


async def test_a_partition_whose_end_on_the_target_is_unknown_starts_a_round_later() -> None:
    """If it had started, it could not be reconciled: the offset from which to read the remote partition was unknown."""
    world = World(2)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, [Record(value, timestamp_ms=1_000) for value in numbers(0, 10)])
    asked, sent = itertools.count(1), itertools.count(1)

    def is_cut_off(request: object) -> bool:
        if isinstance(request, ListOffsetsRequest):
            return (
                next(asked) == 3
            )  # start and end of the remote topic were requested before, to see whether it is empty
        is_copy = isinstance(request, ProduceRequest) and request.topics[0].name == "A.orders"
        return is_copy and next(sent) == 1

    world.target.cut_off_by = is_cut_off
    async with world.worker():
        await world.copied(ORDERS)
    assert next(asked) > 3
    assert copied(world) == numbers(0, 10)
    assert "partitions.reconciled" in world.log_text.getvalue()
    assert "flow.crashed" not in world.log_text.getvalue()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_truncated_remote_partition_that_has_grown_again_is_noticed(killed: bool) -> None:
    """An unclean leader lacks all records, and takes new ones: the log soon ends past the position again."""
    world = World(3, nodes=3)
    world.source.create_topic("orders", 1)
    async with world.worker():
        world.source.append("orders", 0, numbers(0, 10))
        await world.copied(ORDERS)
        await asyncio.sleep(2.0)  # its position is stored
        world.target.truncate("A.orders", 0, 0)
        world.source.append("orders", 0, numbers(10, 40))
        while not world.target.records("A.orders", 0):
            await asyncio.sleep(0.0001)
        if not killed:
            await until_said(world, "target.truncated")
    if killed:
        async with world.worker():
            await until_said(world, "target.truncated")
    said = world.log_text.getvalue()
    assert "topic=orders partition=0" in said
    assert "all up to 10 had been stored" in said
    assert set(copied(world)) <= set(numbers(10, 40))


@pytest.mark.parametrize(
    ("deleted_before", "said"),
    [(25, "source offsets 10 to 24 were deleted"), (10, None), (5, None), (30, "source offsets 10 to 29 were deleted")],
)
async def test_records_that_expired_between_a_kill_and_the_next_start_are_reported(
    deleted_before: int, said: str | None
) -> None:
    """The next incarnation finds the last copied record by content; records that it cannot find are reported."""
    world = World(4)
    world.source.create_topic("orders", 1)
    world.source.append("orders", 0, numbers(0, 10))
    async with world.worker():
        while "A.orders" not in world.target.topics or len(world.target.records("A.orders", 0)) < 10:
            await asyncio.sleep(0.0001)
    for number in range(10, 30):
        world.source.append("orders", 0, numbers(number, number + 1))
    world.source.delete_records("orders", 0, deleted_before)
    async with world.worker():
        await asyncio.sleep(5.0)
        world.source.append("orders", 0, [b"last"])
        await world.copied(ORDERS)
    assert copied(world) == [*numbers(0, 10), *numbers(max(10, deleted_before), 30), b"last"]
    assert ("source.expired" in world.log_text.getvalue()) is (said is not None)
    assert said is None or said in world.log_text.getvalue()
