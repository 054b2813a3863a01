"""The pool of connections for backlogs: which reads it sends, and that it comes to rest."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from mm2py.copying.copied_partition import CopiedPartition, LaneProblem, Leaders
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings, PositionStored
from mm2py.copying.planning.steps import TargetRules
from mm2py.copying.positions import Position
from mm2py.copying.reading.limits import MemoryBudget, RateLimit, ReadLimits
from mm2py.copying.reading.read_pool import HOLES_A_CONNECTION, ReadPool
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.port import BrokerId, FetchedPartition, FetchReply, ProducerIdentity
from mm2py.records.batch import NewRecord, build_batch
from tests.fakes.near_brokers import NearBrokers
from tests.fakes.read_settings import READ_SETTINGS
from tests.fakes.shell import DeafShell

BROKER = BrokerId(1)
RECORDS = 40_000


class _Clock:
    def monotonic(self) -> float:
        return 100.0

    def boottime(self) -> float:
        return 100.0

    def wall_ms(self) -> int:
        return 0


def _log() -> list[tuple[int, bytes]]:
    """Return batches of ten records, by the offset behind them; long stretches have small ones."""
    batches = []
    for first in range(0, RECORDS, 10):
        size = 20 if first // 2_000 % 2 else 400
        batch = build_batch([NewRecord(None, bytes(size), 0)] * 10)
        batches.append((first + 10, first.to_bytes(8) + bytes(batch[8:])))
    return batches


class _Brokers(NearBrokers):
    """Answers all reads but the first of a partition at once; those over the connections for holes as it is told."""

    def __init__(self, *, refuses_holes: bool) -> None:
        self.refuses_holes = refuses_holes
        self.holes: list[str] = []
        self._log = _log()

    async def send(self, _broker: BrokerId, request: Any, *, channel: str = "") -> Any:
        asked = request.topics[0].partitions[0]
        if not asked.fetch_offset:
            await asyncio.get_running_loop().create_future()
        if "holes" in channel:
            self.holes.append(channel)
            if not self.refuses_holes:
                await asyncio.get_running_loop().create_future()
            await asyncio.sleep(0)
            return FetchReply([FetchedPartition("t", 0, OFFSET_OUT_OF_RANGE, RECORDS, RECORDS, 0, memoryview(b""))], 0)
        await asyncio.sleep(0)
        data = b"".join(batch for behind, batch in self._log if behind > asked.fetch_offset)
        records = memoryview(bytearray(data[: asked.max_bytes]))
        return FetchReply([FetchedPartition("t", 0, 0, RECORDS, RECORDS, 0, records)], len(records))


class _Lane:
    """Takes what the pool has read, and nothing of it is heavy."""

    settings = READ_SETTINGS

    def is_read_here(self, _: CopiedPartition) -> bool:
        return True

    def take_stripe(self, *_: object) -> None:
        return None

    async def plan_beside(self, *_: object) -> None:
        raise AssertionError("no read is heavy")

    def offer(self, _: CopiedPartition, /) -> None:
        """The pool has it until the end."""

    def rack(self, _: object) -> str:
        return ""

    def lost_replica(self, _: CopiedPartition) -> bool:
        return False


@pytest.mark.parametrize("refuses_holes", [True, False])
@pytest.mark.real_time
async def test_holes_that_no_copier_waits_for_are_few_and_not_asked_for_again_as_soon_as_they_are_refused(
    refuses_holes: bool,
) -> None:
    """The story: retention overtook a hole while the target was slow. The same read was refused each round trip."""
    brokers = _Brokers(refuses_holes=refuses_holes)

    account = MemoryBudget(96 << 20).open()
    limits = ReadLimits(lambda _: account, RateLimit(None))
    problem = LaneProblem(lambda _: None)
    pool = ReadPool(
        BROKER,
        brokers,
        limits,
        _Lane(),
        clock=_Clock(),
        rng=random.Random(0),
        problem=problem,
    )
    copier = Copier("t-0", Position(0), ProducerIdentity(7, 0, "t"), CopySettings(1 << 20))
    copier.handle(PositionStored(copier.identity))
    copier.end_offset = RECORDS
    part = CopiedPartition("t", "A.t", 0, copier, TargetRules(1 << 20), DeafShell(), leaders=Leaders(target=BROKER))
    part.leaders.source_epoch, part.reading.bytes_per_offset = 0, 220.0
    pool.tuner.connections = 7
    async with asyncio.TaskGroup() as tasks:
        pool.start(tasks)
        pool.add(part)
        for _ in range(300):
            await asyncio.sleep(0)
        settled = len(brokers.holes)
        for _ in range(300):
            await asyncio.sleep(0)
        assert len(brokers.holes) == settled
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    assert brokers.holes
    if not refuses_holes:
        assert len(brokers.holes) <= HOLES_A_CONNECTION
