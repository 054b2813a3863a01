"""How far positions may stay behind, and which are stored first when there are very many."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from connectors.source.position_keeper import PER_SECOND_MAX, PositionKeeper
from mm2py.kafka.port import ProducerIdentity
from mm2py.logs import make_logger
from mm2py.records.source_offset import StoredPosition
from mm2py.replication.copier import Copier, Phase
from mm2py.replication.events import Event
from mm2py.replication.lane import CopiedPartition
from mm2py.replication.position import Position
from mm2py.replication.position_store import PositionStore
from mm2py.replication.steps import TargetRules
from tests.fakes.virtual_time import VirtualClock, run_virtual

IDENTITY = ProducerIdentity(7, 0, "mm2py-test")


@dataclass
class Store:
    """Notes when what was stored; the target answers after a hundredth of a second."""

    clock: VirtualClock
    topic: str = "positions"
    is_missing: bool = False
    times_made_anew: int = 0
    writes: list[tuple[float, dict[tuple[str, int], int]]] = field(default_factory=list)

    async def store(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        self.writes.append((self.clock.monotonic(), {key: at.next_source for key, at in positions.items()}))
        await asyncio.sleep(0.01)


class Rig:
    def __init__(self, partitions: int) -> None:
        self.waits = 0
        self.clock = VirtualClock()
        self.log_text = io.StringIO()
        self.store = Store(self.clock)
        self.parts = {("t", number): _partition(number) for number in range(partitions)}
        self.keeper = PositionKeeper(
            cast("PositionStore", self.store),
            self.parts,
            interval_s=1.0,
            form=lambda part: StoredPosition(part.copier.position.source_offset),
            handle=self._handle,
            before_first=self._before_first,
            clock=self.clock,
            log=make_logger("info", "text", self.log_text),
        )

    async def _before_first(self) -> None:
        self.waits += 1

    def _handle(self, part: CopiedPartition, event: Event) -> None:
        part.copier.handle(event)

    def move_all(self) -> None:
        for part in self.parts.values():
            position = part.copier.position
            part.copier.position = position._replace(source_offset=position.source_offset + 1)


def _partition(number: int) -> CopiedPartition:
    copier = Copier(f"t-{number}", Position(0), IDENTITY, ready_max_bytes=1)
    return CopiedPartition("t", "A.t", number, copier, TargetRules(1 << 20))


async def _run(rig: Rig, seconds: float) -> None:
    running = asyncio.create_task(rig.keeper.run())
    try:
        while rig.clock.monotonic() < seconds:
            rig.move_all()
            await asyncio.sleep(0.1)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_thousand_busy_partitions_are_at_most_a_second_behind() -> None:
    async def scenario() -> Any:
        rig = Rig(PER_SECOND_MAX)
        for part in rig.parts.values():
            rig.keeper.store_first(part)
        await _run(rig, 10.0)
        return rig

    rig = run_virtual(scenario(), limit_s=100)
    assert all(part.copier.phase is Phase.COPYING for part in rig.parts.values()), "first acts were acknowledged"
    times = [at_s for at_s, written in rig.store.writes if ("t", 0) in written]
    assert max(after - before for before, after in itertools.pairwise(times)) <= 1.1
    assert rig.keeper.age_s() <= 1.1


def test_of_more_the_oldest_are_stored_first_and_the_age_is_told() -> None:
    async def scenario() -> Any:
        rig = Rig(3 * PER_SECOND_MAX)
        await _run(rig, 12.0)
        return rig

    rig = run_virtual(scenario(), limit_s=100)
    sizes = [len(written) for _, written in rig.store.writes]
    assert max(sizes) == PER_SECOND_MAX
    counts = dict.fromkeys(rig.parts, 0)
    for _, written in rig.store.writes:
        for key in written:
            counts[key] += 1
    assert min(counts.values()) >= max(counts.values()) - 1, "by turns"
    assert 1.9 < rig.keeper.age_s() < 4.0


def test_first_acts_and_final_positions_do_not_wait_for_their_turn() -> None:
    async def scenario() -> Any:
        rig = Rig(3 * PER_SECOND_MAX)
        for part in rig.parts.values():
            rig.keeper.store_first(part)
        await rig.keeper.store_changed(PER_SECOND_MAX)
        rig.move_all()
        await rig.keeper.store_changed()
        return rig

    rig = run_virtual(scenario(), limit_s=100)
    assert [len(written) for _, written in rig.store.writes] == [3 * PER_SECOND_MAX] * 2
    assert rig.waits == 2, "what they pass over is on record before"


def test_a_partition_that_is_not_ours_yet_keeps_the_position_of_whoever_wrote_before() -> None:
    async def scenario() -> Any:
        rig = Rig(1)
        part = rig.parts["t", 0]
        part.copier = Copier("t-0", Position(5), IDENTITY, ready_max_bytes=1, reconciling=True)
        await rig.keeper.store_changed()
        return rig

    assert run_virtual(scenario(), limit_s=100).store.writes == []


def test_a_topic_that_is_out_of_sight_for_a_moment_is_not_said_to_be_gone() -> None:
    async def scenario() -> None:
        rig = Rig(1)
        for seconds in (5, 20):
            rig.store.is_missing = True
            for _ in range(seconds):
                rig.keeper.look()
                await asyncio.sleep(1)
            assert rig.log_text.getvalue().count("positions.topic_gone") == (seconds == 20)
            rig.store.is_missing = False
            rig.keeper.look()
        assert rig.log_text.getvalue().count("positions.back") == 1

    run_virtual(scenario(), limit_s=60)


def test_in_a_topic_that_was_made_anew_what_stands_still_is_stored_once_more() -> None:
    async def scenario() -> None:
        rig = Rig(3)
        await rig.keeper.store_changed()
        await rig.keeper.store_changed()
        assert len(rig.store.writes) == 1, "nothing has changed"
        rig.store.times_made_anew += 1
        rig.parts["t", 0].copier.position = Position(1)
        await rig.keeper.store_changed()
        await rig.keeper.store_changed()
        assert [set(positions) for _, positions in rig.store.writes[1:]] == [{("t", 0)}, set(rig.parts)]

    run_virtual(scenario(), limit_s=60)
