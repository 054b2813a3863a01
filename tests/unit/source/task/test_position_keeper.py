"""How far positions may stay behind, which are stored first when there are many, and what a stuck one delays."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from mm2py.copying.copied_partition import CopiedPartition, Shell
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings, Diverged, Event
from mm2py.copying.planning.steps import TargetRules
from mm2py.copying.positions import PER_SECOND_MAX, Position, PositionBudget, PositionStore
from mm2py.copying.states import Copying
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import ProducerIdentity
from mm2py.logs import make_logger
from mm2py.records.batch import NewRecord
from mm2py.records.ledger_record import LedgerChunk, decode
from mm2py.records.source_offset import StoredPosition
from mm2py_connectors.source.task.ledger_keeper import LedgerKeeper
from mm2py_connectors.source.task.position_keeper import HELD_UP_S, PositionKeeper
from tests.fakes.flow_context import make_context
from tests.fakes.shell import DeafShell
from tests.fakes.virtual_time import VirtualClock
from tests.unit.copying.test_copier import batches, fetched, send_all

IDENTITY = ProducerIdentity(7, 0, "mm2py-test")


@dataclass
class Store:
    """Notes when what was stored; the target answers after a hundredth of a second.

    The topic has three partitions; those that are ``stuck`` take nothing until that is over.
    """

    clock: VirtualClock
    topic: str = "positions"
    is_missing: bool = False
    times_recreated: int = 0
    writes: list[tuple[float, dict[tuple[str, int], int]]] = field(default_factory=list)
    stuck: dict[int, asyncio.Event] = field(default_factory=dict)

    def number_of(self, key: tuple[str, int]) -> int:
        return key[1] % 3

    def trouble(self, number: int) -> str | None:
        return "it has no leader" if number in self.stuck else None

    def let_go(self) -> None:
        for event in self.stuck.values():
            event.set()
        self.stuck.clear()

    async def store(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        (number,) = {self.number_of(key) for key in positions}
        if number in self.stuck:
            await self.stuck[number].wait()
        self.writes.append((self.clock.monotonic(), {key: at.next_source for key, at in positions.items()}))
        await asyncio.sleep(0.01)


@dataclass
class LedgerTopic:
    """Has one partition, and notes what is written when; it takes nothing while it is ``stuck``."""

    clock: VirtualClock
    topic: str = "ledger"
    times_recreated: int = 0
    trouble: dict[int, str] = field(default_factory=dict)
    writes: list[tuple[float, list[LedgerChunk]]] = field(default_factory=list)
    stuck: asyncio.Event | None = None

    async def write(self, records: Mapping[int, Sequence[NewRecord]]) -> None:
        if self.stuck is not None:
            await self.stuck.wait()
        found = [decode(record.key, record.value) for ours in records.values() for record in ours]
        self.writes.append((self.clock.monotonic(), [chunk for chunk in found if chunk is not None]))

    def copied_to(self, partition: int) -> int:
        found = [chunk.copied_to for _, chunks in self.writes for chunk in chunks if chunk.key.partition == partition]
        return max(found, default=-1)


class Rig(DeafShell):
    def __init__(self, partitions: int, *, budget: PositionBudget | None = None) -> None:
        super().__init__()
        self.waits = 0
        self.gaps_written = asyncio.Event()
        self.gaps_written.set()
        self.clock = VirtualClock()
        self.log_text = io.StringIO()
        self.store = Store(self.clock)
        self.acted: list[int] = []
        self.parts = {("t", number): _partition(number, self) for number in range(partitions)}
        context = make_context(
            position_budget=budget or PositionBudget(),
            clock=self.clock,
            log=make_logger("info", "text", self.log_text),
        )
        self.ledger_topic = LedgerTopic(self.clock)
        self.ledger = LedgerKeeper(context, 1, cast("TopicWriter", self.ledger_topic), self._before_first)
        for part in self.parts.values():
            self.ledger.start(part)
        self.keeper = PositionKeeper(
            context,
            None,
            cast("PositionStore", self.store),
            self.ledger,
            self.parts,
            before_first=self._before_first,
        )

    async def _before_first(self) -> None:
        self.waits += 1
        await self.gaps_written.wait()

    def tell(self, part: CopiedPartition, event: Event, /) -> None:
        self.acted.append(part.partition)
        part.copier.handle(event)

    def move_all(self) -> None:
        for part in self.parts.values():
            position = part.copier.position
            part.copier.position = position._replace(source_offset=position.source_offset + 1)


def _partition(number: int, shell: Shell) -> CopiedPartition:
    copier = Copier(f"t-{number}", Position(0), IDENTITY, CopySettings(1))
    return CopiedPartition("t", "A.t", number, copier, TargetRules(1 << 20), shell)


@asynccontextmanager
async def _running(*rigs: Rig) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(rig.keeper.run()) for rig in rigs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _move_for(seconds: float, *rigs: Rig) -> None:
    until_s = rigs[0].clock.monotonic() + seconds
    while rigs[0].clock.monotonic() < until_s:
        for rig in rigs:
            rig.move_all()
        await asyncio.sleep(0.2)


def _written_within_a_second(writes: list[tuple[float, dict[tuple[str, int], int]]]) -> int:
    return max(sum(len(keys) for at_s, keys in writes if from_s <= at_s < from_s + 0.999) for from_s, _ in writes)


@pytest.mark.virtual_time(limit_s=100)
async def test_a_thousand_busy_partitions_are_at_most_a_second_behind() -> None:
    rig = Rig(PER_SECOND_MAX)
    for part in rig.parts.values():
        rig.keeper.store_first(part)
    async with _running(rig):
        await _move_for(10.0, rig)
        assert rig.keeper.age_s() <= 1.1
    assert all(type(part.copier.state) is Copying for part in rig.parts.values()), "first acts were acknowledged"
    times = [at_s for at_s, written in rig.store.writes if ("t", 0) in written]
    assert max(after - before for before, after in itertools.pairwise(times)) <= 1.1


@pytest.mark.virtual_time(limit_s=100)
async def test_with_more_busy_partitions_the_oldest_changes_are_stored_first_and_their_age_is_shown() -> None:
    async def scenario() -> Any:
        rig = Rig(3 * PER_SECOND_MAX)
        async with _running(rig):
            await _move_for(12.0, rig)
            ages_s = []
            for _ in range(10):
                await _move_for(0.1, rig)
                ages_s.append(rig.keeper.age_s())
            assert 1.8 < max(ages_s) < 4.0
        return rig

    rig = await scenario()
    assert _written_within_a_second(rig.store.writes) == PER_SECOND_MAX
    counts = dict.fromkeys(rig.parts, 0)
    for _, written in rig.store.writes:
        for key in written:
            counts[key] += 1
    assert min(counts.values()) >= max(counts.values()) - 1, "by turns"


@pytest.mark.virtual_time(limit_s=100)
async def test_two_flows_of_a_worker_share_its_limit_of_positions_a_second() -> None:
    budget = PositionBudget()
    small, large = Rig(1_500, budget=budget), Rig(4_000, budget=budget)
    async with _running(small, large):
        await _move_for(20.0, small, large)
    assert _written_within_a_second([*small.store.writes, *large.store.writes]) <= PER_SECOND_MAX
    stored = [sum(len(keys) for _, keys in rig.store.writes) for rig in (small, large)]
    assert min(stored) > 0.9 * max(stored), "both want more than half of it"


@pytest.mark.virtual_time(limit_s=100)
async def test_first_and_final_positions_are_stored_at_once() -> None:
    rig = Rig(3 * PER_SECOND_MAX)
    for part in rig.parts.values():
        rig.keeper.store_first(part)
    async with _running(rig):
        await asyncio.sleep(0.1)
        assert sum(len(written) for _, written in rig.store.writes) == 3 * PER_SECOND_MAX
        rig.move_all()
        rig.store.writes.clear()
        rig.waits = 0
        assert await rig.keeper.store_final(rig.parts.values()) == 0
        assert sum(len(written) for _, written in rig.store.writes) == 3 * PER_SECOND_MAX
        assert rig.waits == 3, "what they pass over is on record before, for each partition of the topic"
        await asyncio.sleep(5)
        assert len(rig.store.writes) == 3, "and nothing of it comes twice"


@pytest.mark.virtual_time(limit_s=100)
async def test_a_partition_that_is_not_ours_yet_keeps_the_position_of_the_previous_writer() -> None:
    rig = Rig(1)
    part = rig.parts["t", 0]
    part.copier = Copier("t-0", Position(5), IDENTITY, CopySettings(1), lookup="it is looked up")
    async with _running(rig):
        await asyncio.sleep(3)
        await rig.keeper.store_final([part])
    assert rig.store.writes == []


@pytest.mark.virtual_time(limit_s=60)
async def test_a_topic_that_is_missing_for_a_moment_is_not_reported_as_deleted() -> None:
    rig = Rig(1)
    async with _running(rig):
        await _go_missing(rig, 5)
        assert rig.log_text.getvalue().count("positions.topic_gone") == 0
        await _go_missing(rig, 20)
        assert rig.log_text.getvalue().count("positions.topic_gone") == 1
        assert rig.log_text.getvalue().count("positions.back") == 1


async def _go_missing(rig: Rig, seconds: int) -> None:
    """Delete the topic for a while after all positions were stored in it."""
    for part in rig.parts.values():
        rig.keeper.store_first(part)
    await asyncio.sleep(1.0)
    rig.store.is_missing = True
    for _ in range(seconds):
        rig.keeper.look()
        await asyncio.sleep(1)
    rig.store.is_missing = False
    rig.keeper.look()


@pytest.mark.virtual_time(limit_s=100)
async def test_a_topic_that_was_created_again_is_back_when_all_positions_are_stored_in_it() -> None:
    """One of the topic's partitions has no leader yet. A crash now would refuse topics without one."""
    rig = Rig(2)
    async with _running(rig):
        await _go_missing(rig, 5)
        rig.store.is_missing = True
        for _ in range(20):
            rig.keeper.look()
            await asyncio.sleep(1)
        rig.store.stuck[1] = asyncio.Event()
        rig.store.is_missing = False
        rig.store.times_recreated += 1
        rig.keeper.look()
        rig.move_all()
        await asyncio.sleep(5)
        rig.keeper.look()
        assert "positions.back" not in rig.log_text.getvalue()
        assert "without some positions" in rig.keeper.problem
        rig.store.let_go()
        await asyncio.sleep(3)
        rig.keeper.look()
        assert rig.log_text.getvalue().count("positions.back") == 1
        assert not rig.keeper.problem


@pytest.mark.virtual_time(limit_s=60)
async def test_a_topic_that_was_created_again_gets_the_positions_of_idle_partitions_as_well() -> None:
    rig = Rig(3)
    async with _running(rig):
        await asyncio.sleep(5)
        assert len(rig.store.writes) == 3, "after the first time nothing has changed"
        rig.store.times_recreated += 1
        rig.parts["t", 0].copier.position = Position(1)
        await asyncio.sleep(5)
    later = [key for _, positions in rig.store.writes[3:] for key in positions]
    assert sorted(later) == [("t", 0), ("t", 0), ("t", 1), ("t", 2)]


@pytest.mark.virtual_time(limit_s=60)
async def test_a_partition_of_the_topic_that_accepts_nothing_delays_its_own_positions_only() -> None:
    rig = Rig(6)
    rig.store.stuck[1] = asyncio.Event()
    for part in rig.parts.values():
        rig.keeper.store_first(part)
    async with _running(rig):
        for _ in range(20):
            await _move_for(1.0, rig)
            rig.keeper.look()
        assert sorted(rig.acted) == [0, 2, 3, 5]
        stored = [key[1] for at_s, keys in rig.store.writes if at_s > 15 for key in keys]
        assert set(stored) == {0, 2, 3, 5} and len(stored) >= 16, "one a second of each"
        assert rig.keeper.problem == "positions, partition(s) 1: it has no leader"
        assert [part.position_problem for part in rig.parts.values()] == [
            "",
            "positions-1: it has no leader",
            "",
        ] * 2
        (line,) = [line for line in rig.log_text.getvalue().splitlines() if "positions.held_up" in line]
        assert 'partitions=1 why="it has no leader" effect="2 copied partitions wait' in line
        rig.store.let_go()
        await asyncio.sleep(2)
        rig.keeper.look()
        assert sorted(rig.acted) == list(range(6))
        assert rig.keeper.problem == "" and not any(part.position_problem for part in rig.parts.values())
        assert rig.log_text.getvalue().count("positions.stored_again") == 1


@pytest.mark.virtual_time(limit_s=60)
async def test_a_stop_does_not_wait_for_final_positions_that_are_stuck_and_they_are_stored_later() -> None:
    rig = Rig(6)
    async with _running(rig):
        await asyncio.sleep(2)
        rig.store.stuck[1] = asyncio.Event()
        rig.move_all()
        for number, left, waited_s in ((1, 1, HELD_UP_S), (4, 2, 0.0), (2, 2, 0.0)):
            part, begun_s = rig.parts["t", number], rig.clock.monotonic()
            assert await rig.keeper.store_final([part]) == left
            assert waited_s <= rig.clock.monotonic() - begun_s < waited_s + 0.1
            del rig.parts[part.key]
            rig.keeper.forget(part)
        begun_s = rig.clock.monotonic()
        assert await rig.keeper.store_final([], patience_s=3.0) == 2, "a stop waits a little longer"
        assert 3.0 <= rig.clock.monotonic() - begun_s < 4.1
        rig.store.writes.clear()
        rig.store.let_go()
        await asyncio.sleep(1)
    assert {key: at for _, keys in rig.store.writes for key, at in keys.items()} == {("t", 1): 1, ("t", 4): 1}


@pytest.mark.virtual_time(limit_s=60)
async def test_a_partition_that_starts_again_stores_its_first_position_instead_of_the_owed_one() -> None:
    rig = Rig(2)
    rig.store.stuck[1] = asyncio.Event()
    async with _running(rig):
        await asyncio.sleep(2)
        await rig.keeper.store({("t", 1): StoredPosition(7)})
        part = rig.parts["t", 1]
        part.copier.position = Position(9)
        rig.keeper.store_first(part)
        rig.store.let_go()
        await asyncio.sleep(2)
    assert [keys["t", 1] for _, keys in rig.store.writes if ("t", 1) in keys][-1] == 9
    assert 7 not in [keys.get(("t", 1)) for _, keys in rig.store.writes]
    assert rig.acted == [1]


def _stop_with_a_batch_on_its_way(part: CopiedPartition) -> None:
    """Meet a gap that is not reported before the target has answered."""
    part.copier.handle(fetched(part.copier, batches(part.copier.fetch_offset, 1)))
    assert send_all(part.copier)
    part.copier.handle(Diverged(3, 0))
    assert part.copier.has_untold_gaps


@pytest.mark.virtual_time(limit_s=60)
async def test_a_gap_that_stops_a_partition_during_a_write_keeps_its_stored_position() -> None:
    """Its position was chosen for storing, and it met the gap while the write waited for records of other gaps."""
    rig = Rig(6)
    for part in rig.parts.values():
        rig.keeper.store_first(part)
    async with _running(rig):
        await asyncio.sleep(3)
        rig.store.writes.clear()
        rig.gaps_written.clear()
        rig.move_all()
        rig.keeper.store_first(rig.parts["t", 3])
        await asyncio.sleep(2)
        assert rig.waits > 3, "the write waits that has the changed position of the first partition as well"
        _stop_with_a_batch_on_its_way(rig.parts["t", 0])
        rig.gaps_written.set()
        await asyncio.sleep(2)
    assert {key[1] for _, keys in rig.store.writes for key in keys} == {1, 2, 3, 4, 5}


@pytest.mark.virtual_time(limit_s=60)
async def test_a_drain_that_ends_before_a_gap_is_settled_stores_nothing_of_that_partition() -> None:
    rig = Rig(2)
    for part in rig.parts.values():
        rig.keeper.store_first(part)
    async with _running(rig):
        await asyncio.sleep(3)
        rig.store.writes.clear()
        _stop_with_a_batch_on_its_way(rig.parts["t", 0])
        rig.move_all()
        assert await rig.keeper.store_final(rig.parts.values()) == 0
    assert [keys for _, keys in rig.store.writes] == [{("t", 1): 1}]


async def test_a_position_is_stored_when_the_ledger_reaches_it_and_not_before() -> None:
    rig = Rig(1)
    rig.ledger_topic.stuck = asyncio.Event()
    part = rig.parts["t", 0]
    async with _running(rig):
        part.copier.new_runs.add(0, 0, 7)
        part.copier.position = part.copier.position._replace(source_offset=7, target_offset=7)
        await asyncio.sleep(20)
        assert not rig.store.writes
        rig.keeper.look()
        assert "positions.held_up" in rig.log_text.getvalue()
        rig.ledger_topic.stuck.set()
        await asyncio.sleep(2)
        (first, *_) = [at for at, _ in rig.store.writes]
        assert rig.ledger_topic.copied_to(0) == 7
        assert rig.ledger_topic.writes[0][0] <= first


async def test_the_ledger_of_a_busy_partition_is_at_most_a_second_behind() -> None:
    rig = Rig(1)
    part = rig.parts["t", 0]
    async with _running(rig):
        for at in range(200):
            part.copier.new_runs.add(at * 2, at, 1)
            part.copier.position = part.copier.position._replace(source_offset=at * 2 + 1, target_offset=at + 1)
            await asyncio.sleep(0.05)
            if at >= 30:
                assert rig.ledger_topic.copied_to(0) >= (at - 21) * 2


async def test_the_last_chunk_of_a_partition_that_leaves_is_stored_before_its_owed_position() -> None:
    rig = Rig(1)
    part = rig.parts["t", 0]
    async with _running(rig):
        await asyncio.sleep(2)
        rig.store.stuck[0] = asyncio.Event()
        part.copier.new_runs.add(0, 0, 9)
        part.copier.position = part.copier.position._replace(source_offset=9, target_offset=9)
        assert await rig.keeper.store_final([part]) == 1
        rig.keeper.forget(part)
        rig.ledger.forget(part)
        rig.store.let_go()
        await asyncio.sleep(2)
        assert rig.ledger_topic.copied_to(0) == 9
        assert rig.store.writes[-1][1] == {("t", 0): 9}
