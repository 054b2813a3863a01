"""What a fetch lane asks its broker for: how long it waits there, and how much may come."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from mm2py.copying.copied_partition import CopiedPartition, LaneProblem, Leaders, Reading
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings, Diverged, Event, PositionStored
from mm2py.copying.planning.steps import TargetRules
from mm2py.copying.positions import Position
from mm2py.copying.reading.fetch_lane import LAST_WAIT_MS, FetchLane
from mm2py.copying.reading.limits import TAIL_READS, MemoryBudget, RateLimit, ReadLimits
from mm2py.copying.reading.read_replica import LEADER, ReadReplica
from mm2py.copying.reading.read_settings import ReadSettings
from mm2py.kafka.port import BrokerId, FetchedPartition, FetchReply, FetchRequest, ProducerIdentity
from mm2py.records.batch import NewRecord, build_batch
from tests.fakes.near_brokers import NearBrokers
from tests.fakes.read_settings import READ_SETTINGS
from tests.fakes.shell import DeafShell

pytestmark = pytest.mark.real_time

BROKER = BrokerId(1)


class _Clock:
    def monotonic(self) -> float:
        return 100.0

    def boottime(self) -> float:
        return 100.0

    def wall_ms(self) -> int:
        return 0


def lane_of(
    brokers: NearBrokers,
    *,
    limit_bytes: int = 96 << 20,
    settings: ReadSettings = READ_SETTINGS,
) -> FetchLane:
    account = MemoryBudget(limit_bytes).open()
    return FetchLane(
        BROKER,
        brokers,  # type: ignore[arg-type]
        settings,
        ReadLimits(lambda _: account, RateLimit(None)),
        clock=_Clock(),
        rng=random.Random(0),
        problem=LaneProblem(lambda _: None),
    )


async def asked(
    walk: Callable[[Callable[..., Awaitable[None]]], Awaitable[None]], limit_bytes: int
) -> list[FetchRequest]:
    """Return what a lane asks for while ``walk`` offers it partitions; nothing is ever answered."""
    requests: list[FetchRequest] = []

    class Brokers(NearBrokers):
        async def send(self, _broker: BrokerId, request: Any, *, channel: str = "") -> Any:
            del channel
            requests.append(request)
            await asyncio.get_running_loop().create_future()

    lane = lane_of(Brokers(), limit_bytes=limit_bytes)

    async def offer(number: int, *, end_offset: int, fetch_bytes: int = 0) -> None:
        copier = Copier(f"t-{number}", Position(5), ProducerIdentity(7, 0, "t"), CopySettings(1 << 20))
        copier.handle(PositionStored(copier.identity))
        copier.end_offset = end_offset
        part = CopiedPartition(
            "t",
            "A.t",
            number,
            copier,
            TargetRules(1 << 20),
            DeafShell(),
            leaders=Leaders(target=BROKER),
            reading=Reading(fetch_bytes=fetch_bytes),
        )
        part.reading.active_at_s = 100.0
        lane.partitions[part.key] = part
        lane.offer(part)
        for _ in range(10):
            await asyncio.sleep(0)

    running = asyncio.create_task(lane.run())
    try:
        await walk(offer)
    finally:
        running.cancel()
    return requests


async def test_the_last_free_read_at_the_end_of_the_log_is_back_soon() -> None:
    """Partitions that reached their ends one by one had parked all reads; the next one waited half a second for one."""

    async def walk(offer: Callable[..., Awaitable[None]]) -> None:
        for number in range(TAIL_READS + 1):
            await offer(number, end_offset=5)

    assert [request.max_wait_ms for request in await asked(walk, 96 << 20)] == [500] * (TAIL_READS - 1) + [LAST_WAIT_MS]


async def test_a_backlog_is_read_without_waiting() -> None:
    async def walk(offer: Callable[..., Awaitable[None]]) -> None:
        await offer(0, end_offset=1_000)

    [request] = await asked(walk, 96 << 20)
    assert (request.max_wait_ms, request.min_bytes) == (0, 0)


async def test_more_is_asked_of_a_partition_that_is_read_alone() -> None:
    async def walk(offer: Callable[..., Awaitable[None]]) -> None:
        await offer(0, end_offset=1_000)

    async def walk_two(offer: Callable[..., Awaitable[None]]) -> None:
        await asyncio.gather(offer(0, end_offset=1_000), offer(1, end_offset=1_000))

    sizes = [
        [part.max_bytes for request in await asked(way, 96 << 20) for part in request.topics[0].partitions]
        for way in (walk, walk_two)
    ]
    assert sizes == [[4 << 20], [1 << 20, 1 << 20]]


async def test_a_batch_that_was_cut_is_asked_for_as_a_whole_however_little_memory_there_is() -> None:
    """A merged batch of 876 KB was in doubt, and reads had shrunk to 512 KB meanwhile: it could never be read again."""

    async def walk(offer: Callable[..., Awaitable[None]]) -> None:
        await offer(0, end_offset=1_000, fetch_bytes=5_800_000)

    [request] = await asked(walk, 2 << 20)
    assert request.max_bytes == 5_800_000
    assert request.topics[0].partitions[0].max_bytes == 5_800_000


async def test_a_length_that_a_flipped_bit_has_made_gigabytes_is_asked_for_step_by_step() -> None:
    """The next read shows what it is in truth; asked for at once, a backlog of so many bytes would come."""
    sizes: list[int] = []

    class Brokers(NearBrokers):
        async def send(self, _broker: BrokerId, request: Any, *, channel: str = "") -> Any:
            del channel
            sizes.append(request.topics[0].partitions[0].max_bytes)
            if len(sizes) > 3:
                await asyncio.get_running_loop().create_future()
            records = memoryview(
                bytearray((5).to_bytes(8) + (1 << 30).to_bytes(4) + b"\x00\x00\x00\x06\x02" + bytes(99))
            )
            return FetchReply([FetchedPartition("t", 0, 0, 1_000, 1_000, 0, records)], len(records))

    lane = lane_of(Brokers())
    copier = Copier("t-0", Position(5), ProducerIdentity(7, 0, "t"), CopySettings(1 << 20))
    copier.handle(PositionStored(copier.identity))
    part = CopiedPartition("t", "A.t", 0, copier, TargetRules(1 << 20), DeafShell(), leaders=Leaders(target=BROKER))
    lane.partitions[part.key] = part
    lane.offer(part)
    running = asyncio.create_task(lane.run())
    for _ in range(100):
        await asyncio.sleep(0)
    running.cancel()
    assert sizes[:4] == [4 << 20, 4 << 20, 4 << 20, 8 << 20]


@pytest.mark.parametrize(
    ("round_trip_s", "size", "is_shared"), [(0.1, 8 << 10, True), (0.1, 1 << 10, False), (None, 8 << 10, False)]
)
async def test_over_a_long_link_the_end_of_a_log_is_read_over_the_connections_its_backlog_came_over(
    round_trip_s: float | None, size: int, is_shared: bool
) -> None:
    """A connection that had only carried small answers took 20 ms for one of 11 KB: bbr paces it. What is smaller
    needs none that carried more; heartbeats held one, and a busy partition had to do with another."""
    channels: list[str] = []
    batch = bytes(build_batch([NewRecord(None, bytes(size), 0)]))

    class Brokers(NearBrokers):
        def round_trip_s(self, _broker: BrokerId) -> float | None:
            return round_trip_s

        async def send(self, _broker: BrokerId, _request: Any, *, channel: str = "") -> Any:
            channels.append(channel)
            if len(channels) > 1:
                await asyncio.get_running_loop().create_future()
            part.copier.end_offset = part.copier.fetch_offset  # the shell is deaf: nothing else moves the copier
            records = memoryview(bytearray(batch))
            return FetchReply([FetchedPartition("t", 0, 0, 6, 6, 0, records)], len(records))

    copier = Copier("t-0", Position(5), ProducerIdentity(7, 0, "t"), CopySettings(1 << 20))
    copier.handle(PositionStored(copier.identity))
    copier.end_offset = 1_000
    part = CopiedPartition("t", "A.t", 0, copier, TargetRules(1 << 20), DeafShell(), leaders=Leaders(target=BROKER))
    part.reading.active_at_s = 100.0
    lane = lane_of(Brokers(), settings=replace(READ_SETTINGS, connections_max=64))
    lane.partitions[part.key] = part
    lane.offer(part)
    running = asyncio.create_task(lane.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    backlog, tail = channels
    assert (backlog == tail) is is_shared


async def test_what_a_follower_said_before_it_led_is_no_gap() -> None:
    """It lagged, and its answer came when it was known to lead: it had become whole before it was elected."""
    shell = DeafShell()
    asked = asyncio.Event()
    answers = asyncio.Event()

    class Brokers(NearBrokers):
        async def send(self, _broker: BrokerId, _request: Any, *, channel: str = "") -> Any:
            del channel
            asked.set()
            await answers.wait()
            answers.clear()
            return FetchReply([FetchedPartition("t", 0, 0, 9, 9, 0, memoryview(b""), diverging_epoch=(2, 3))], 0)

    lane = lane_of(Brokers())
    copier = Copier("t-0", Position(5, 3), ProducerIdentity(7, 0, "t"), CopySettings(1 << 20))
    copier.handle(PositionStored(copier.identity))
    part = CopiedPartition("t", "A.t", 0, copier, TargetRules(1 << 20), shell, leaders=Leaders(target=BROKER))
    part.leaders.replica = ReadReplica(BROKER, until_s=1_000.0)
    lane.partitions[part.key] = part
    lane.offer(part)
    running = asyncio.create_task(lane.run())
    await asked.wait()
    part.leaders.replica = LEADER
    answers.set()
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    assert shell.told == []


@pytest.mark.parametrize("begins_anew", [True, False])
async def test_a_read_from_before_a_restart_of_its_partition_is_ignored(begins_anew: bool) -> None:
    """The story: a partition is taken out and put in again while a read is parked at the broker. That its log diverged
    where the old one stood would have stalled the new one before that was looked up."""
    shell = DeafShell()

    def partition() -> CopiedPartition:
        copier = Copier("t-0", Position(5, 3), ProducerIdentity(7, 0, "t"), CopySettings(1 << 20))
        copier.handle(PositionStored(copier.identity))
        return CopiedPartition("t", "A.t", 0, copier, TargetRules(1 << 20), shell, leaders=Leaders(target=BROKER))

    class Brokers(NearBrokers):
        def __init__(self) -> None:
            self.answers = asyncio.Event()

        async def send(self, _broker: BrokerId, _request: Any, *, channel: str = "") -> Any:
            del channel
            await self.answers.wait()
            return FetchReply([FetchedPartition("t", 0, 0, 9, 9, 0, memoryview(b""), diverging_epoch=(2, 3))], 0)

    wanted: list[tuple[CopiedPartition, Event]] = []
    brokers, before = Brokers(), partition()
    lane = lane_of(brokers)
    lane.partitions[before.key] = before
    lane.offer(before)
    running = asyncio.create_task(lane.run())
    for _ in range(10):
        await asyncio.sleep(0)
    if begins_anew:
        lane.partitions[before.key] = partition()
    else:
        wanted.append((before, Diverged(2, 3)))
    brokers.answers.set()
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    assert shell.told[:1] == wanted
