"""What leaves for a target broker when: at once where it answers quickly, in fewer and fuller requests where not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from mm2py.copying.copied_partition import CopiedPartition, LaneProblem, Leaders, Shell
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings, Event, Fetched, PositionStored
from mm2py.copying.planning.steps import Outgoing, Plan, TargetRules
from mm2py.copying.positions import Position
from mm2py.copying.produce_lane import (
    BULK_BYTES,
    BULK_S,
    REQUESTS_IN_FLIGHT,
    TAIL_BYTES,
    WORTHWHILE_BYTES,
    ProduceLane,
    SendSettings,
)
from mm2py.kafka.port import BrokerId, ProducedPartition, ProduceReply, ProduceRequest, ProducerIdentity
from tests.fakes.near_brokers import NearBrokers

pytestmark = pytest.mark.real_time

BROKER = BrokerId(1)
IDENTITY = ProducerIdentity(7, 0, "mm2py-test")


class _Lease:
    read_at_s = 0.0

    def hold(self, extra_bytes: int, holders: int = 1) -> None: ...
    def release(self, extra_bytes: int) -> None: ...


@dataclass
class _World(NearBrokers):
    """A lane, a clock that is set by hand, and a broker that answers when told to."""

    now_s: float = 0.0
    open: list[tuple[ProduceRequest, asyncio.Future[ProduceReply]]] = field(default_factory=list)
    partitions: dict[int, CopiedPartition] = field(default_factory=dict)
    read_again: list[int] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    """Of each request so far."""
    closed: list[str] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    """Where the next batch of each partition is stored."""

    def monotonic(self) -> float:
        return self.now_s

    def boottime(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    async def send(self, _broker: BrokerId, request: Any, *, channel: str = "") -> Any:
        self.channels.append(channel)
        reply: asyncio.Future[ProduceReply] = asyncio.get_running_loop().create_future()
        self.open.append((request, reply))
        return await reply

    def close_channel(self, _broker: BrokerId, channel: str) -> None:
        self.closed.append(channel)

    def sizes(self) -> list[int]:
        """How many batches are in each request that is not answered yet."""
        return [sum(len(topic.partitions) for topic in request.topics) for request, _ in self.open]

    async def answer(self) -> None:
        request, reply = self.open.pop(0)
        stored = []
        for each in (each for topic in request.topics for each in topic.partitions):
            at = self.ends.get(each.partition, 0)
            self.ends[each.partition] = at + 1  # every batch here has one record
            stored.append(ProducedPartition("A.t", each.partition, 0, base_offset=at))
        reply.set_result(ProduceReply(stored))
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def with_lane(
    walk: Callable[[_World, Callable[..., Awaitable[None]]], Awaitable[None]], *, connections_max: int = 64
) -> None:
    """Run ``walk`` with a world, and with a way to let a partition have a batch to send."""
    world = _World()

    class Copies:
        def tell(self, partition: CopiedPartition, event: Event, /) -> None:
            partition.copier.handle(event)
            lane.offer(partition)

        def sent(self, partition: CopiedPartition, /) -> None:
            world.read_again.append(partition.partition)

        def read_elsewhere(self, partition: CopiedPartition, /) -> None:
            raise AssertionError(partition)

    lane = ProduceLane(
        BROKER,
        world,  # type: ignore[arg-type]
        settings=SendSettings(1_000, lambda: -1, lambda: connections_max),
        clock=world,
        problem=LaneProblem(lambda _: None),
    )

    async def has(*numbers: int, size: int = 100, behind: int = 0) -> None:
        for number in numbers:
            part = world.partitions.get(number)
            if part is None:
                part = world.partitions[number] = _partition(number, Copies())
            at = part.copier.fetch_offset
            step = Outgoing(at, at + 1, 1, 1_000, 0, bytearray(size))
            part.copier.handle(Fetched(Plan([step], at + 1), _Lease(), at, at + 1 + behind, world.now_s))
            lane.offer(part)
        await settle()

    running = asyncio.create_task(lane.run())
    try:
        await settle()
        await walk(world, has)
    finally:
        running.cancel()


def _partition(number: int, shell: Shell) -> CopiedPartition:
    copier = Copier(f"t-{number}", Position(0), IDENTITY, CopySettings(1 << 30))
    copier.handle(PositionStored(IDENTITY))
    return CopiedPartition("t", "A.t", number, copier, TargetRules(1 << 30), shell, leaders=Leaders(target=BROKER))


async def _answers_in_a_millisecond(world: _World, has: Callable[..., Awaitable[None]]) -> None:
    await has(0)
    world.now_s += 0.001
    await world.answer()


async def test_beside_a_request_that_is_not_late_another_one_leaves_at_once() -> None:
    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        await _answers_in_a_millisecond(world, has)
        for number in range(REQUESTS_IN_FLIGHT + 2):
            await has(number)
        assert world.sizes() == [1] * REQUESTS_IN_FLIGHT
        await world.answer()
        assert world.sizes() == [1] * (REQUESTS_IN_FLIGHT - 1) + [2]

    await with_lane(walk)


async def test_behind_two_requests_of_which_one_is_late_what_is_ready_goes_together_with_the_next_answer() -> None:
    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        await _answers_in_a_millisecond(world, has)
        await has(0)
        world.now_s += 0.025
        await has(1)
        assert world.sizes() == [1, 1], "the first may only have met a slow network"
        await has(2, 3)
        await has(4)
        assert world.sizes() == [1, 1], "three more would stand in the broker's queue"
        assert world.read_again == [0, 0, 1]
        await world.answer()
        assert world.sizes() == [1, 3]
        assert world.read_again == [0, 0, 1, 2, 3, 4]

    await with_lane(walk)


@pytest.mark.parametrize(("quick_answers", "slow_answers"), [(0, 1), (1, 500)])
async def test_a_long_link_is_not_late_even_where_answers_once_were_quick(
    quick_answers: int, slow_answers: int
) -> None:
    """The broker may have moved to the other side of the world."""

    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        for _ in range(quick_answers):
            await _answers_in_a_millisecond(world, has)
        for _ in range(slow_answers):
            await has(0)
            world.now_s += 0.100
            await world.answer()
        await has(0)
        world.now_s += 0.090
        await has(1)
        await has(2)
        assert world.sizes() == [1, 1, 1]

    await with_lane(walk)


async def test_behind_a_request_that_is_late_a_megabyte_does_not_wait() -> None:
    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        await _answers_in_a_millisecond(world, has)
        await has(0)
        world.now_s += 0.025
        await has(1)
        await has(2, size=WORTHWHILE_BYTES // 2)
        assert world.sizes() == [1, 1]
        await has(3, size=WORTHWHILE_BYTES // 2)
        assert world.sizes() == [1, 1, 2]

    await with_lane(walk)


async def test_a_partition_at_the_end_of_its_log_does_not_wait_behind_those_that_catch_up() -> None:
    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        for number in range(REQUESTS_IN_FLIGHT):
            await has(number, size=WORTHWHILE_BYTES, behind=1_000)
        await has(10)
        assert world.channels == ["produce"] * REQUESTS_IN_FLIGHT + ["produce-tail"]

    await with_lane(walk)


async def _another_catches_up(world: _World, has: Callable[..., Awaitable[None]]) -> None:
    """Let 10 be written over a connection of its own beside 0, which is behind."""
    await has(0, size=BULK_BYTES, behind=1_000)
    await has(10)
    assert world.channels == ["produce", "produce-tail"]
    await world.answer()
    await world.answer()


async def test_when_the_others_have_caught_up_all_share_one_connection_again() -> None:
    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        await _another_catches_up(world, has)
        world.now_s += BULK_S
        await has(10)
        assert world.channels == ["produce", "produce-tail", "produce"]
        assert world.closed == ["produce-tail"]

    await with_lane(walk)


async def test_many_partitions_at_the_end_of_their_logs_are_no_backlog_of_each_other() -> None:
    """All of them moved to the second connection, and stayed there."""

    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        for _ in range(5):
            for number in range(10):
                await has(number, size=BULK_BYTES // 4)
            while world.open:
                await world.answer()
        assert set(world.channels) == {"produce"}

    await with_lane(walk)


async def test_a_partition_that_falls_behind_gives_the_connection_up() -> None:
    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        await _another_catches_up(world, has)
        await has(10, size=5 * TAIL_BYTES)
        assert world.channels == ["produce", "produce-tail", "produce"]

    await with_lane(walk)


async def test_with_one_connection_allowed_there_is_no_second_one() -> None:
    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        await has(0, size=BULK_BYTES, behind=1_000)
        await has(10)
        assert world.channels == ["produce", "produce"]

    await with_lane(walk, connections_max=1)


async def test_a_partition_changes_its_connection_only_when_all_its_batches_are_answered() -> None:
    """Its batches would overtake each other, and the broker refuses one that comes out of sequence."""

    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        await has(10)
        await world.answer()
        await has(10)
        await has(0, size=WORTHWHILE_BYTES, behind=1_000)
        await has(10)
        assert world.channels == ["produce"] * 3
        await world.answer()
        assert world.channels == ["produce"] * 3 + ["produce-tail"]

    await with_lane(walk)


async def test_a_partition_with_much_to_send_does_not_move_to_and_fro() -> None:
    async def walk(world: _World, has: Callable[..., Awaitable[None]]) -> None:
        await has(10)
        await world.answer()
        for behind in (1, 0, 1, 0):
            await has(10, size=WORTHWHILE_BYTES, behind=behind)
        assert world.channels == ["produce"] * 5

    await with_lane(walk)
