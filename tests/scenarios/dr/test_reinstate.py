"""The old side returns after a failover between two cluster models: what only it has is listed and settled, exactly."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mm2py.connector_offsets.turning import stored_positions
from mm2py.dr.cutover.pair import CutoverRefused
from mm2py.dr.extras import replaying
from mm2py.dr.extras.found import ExtrasFound
from mm2py.dr.extras.reinstating import ReinstateActions
from mm2py.dr.extras.settlement import ExtrasChoice
from mm2py.dr.journal import JournalEntry
from mm2py.dr.journal_topic import JournalTopics
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.runner import RecoveryGoal, RecoveryRunner, RecoveryStopped
from mm2py.dr.states import RecoveryEvent, RecoveryFacts, RecoveryState
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.records.author import Author
from mm2py.records.batch import NewRecord
from mm2py.records.direction_record import DirectionState
from mm2py.records.quarantined import QuarantineEntry, decode
from tests.fakes.broker.record_batch import Record
from tests.scenarios.dr.cutover_world import GROUP, A, B, CutoverWorld, ProcessKilled
from tests.scenarios.standby_world import BACK, THERE
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

S, E, G = RecoveryState, RecoveryEvent, RecoveryGoal
BOTH_POLICIES = pytest.mark.parametrize("keeps_names", [True, False], ids=["identity", "prefixed"])
FAILOVER = (E.FAILOVER_ASKED, E.WRITERS_CUT_OFF, E.GROUPS_AT_CHOSEN, E.SWITCH_CONFIRMED, E.HOOK_DONE, E.PRODUCERS_FREE)
REPLAY = ExtrasChoice(replays=True)
LEAVE = ExtrasChoice(leaves_all=True)


class ReturnWorld(CutoverWorld):
    """A is lost with records that B never got, and comes back."""

    extras: Counter[bytes]
    """What only A has."""

    async def fail_over(self, extra: int = 4) -> None:
        """Let A->B end, A take more records, and clients go to B, as ``mm2py dr failover`` leaves it."""
        await self.off(THERE)
        before = self.sent.copy()
        if extra:
            self.produce(extra)
        self.extras = self.sent - before
        await self.note_failover()
        self.clients_on = B
        self.produce()

    async def note_failover(self) -> None:
        rng = random.Random(self.rng.random())
        store = JournalTopics(THERE, {B: self.target}, clock=self.clock, rng=rng)
        journal = await JournalWriter.open(store, author=Author("ann", "ops1"), clock=self.clock, rng=rng)
        found = await stored_positions(self.pair("failover").settings[THERE], self.target, rng=rng)
        copied = {f"{topic}-{number}": at.next_source for (topic, number), at in found.items()}
        for event in FAILOVER:
            await journal.append(event, THERE, topics=("orders",), seen=RecoveryFacts(copied_to=copied))

    def actions(self, choice: ExtrasChoice) -> ReinstateActions:
        return ReinstateActions(self.pair("reinstate"), self.options(), choice, say=self.told.append)

    async def look(self) -> ExtrasFound:
        entry = JournalEntry(0, 0, "", "", "failover", THERE, S.FAILED_OVER, E.HOOK_DONE, 0, topics=("orders",))  # type: ignore[arg-type]
        return await self.actions(LEAVE).look(entry)

    async def reinstate(self, choice: ExtrasChoice, *, killed_after: int | None = None) -> RecoveryState:
        actions = self.actions(choice)
        rng = random.Random(self.rng.random())
        store = JournalTopics(THERE, {A: self.source, B: self.target}, clock=self.clock, rng=rng)
        journal = await JournalWriter.open(store, author=Author("ann", "ops1"), clock=self.clock, rng=rng)
        actions.journal = journal
        count = 0

        def told(_: JournalEntry) -> None:
            nonlocal count
            count += 1
            if count == killed_after:
                raise ProcessKilled

        journal.tell = told
        return await RecoveryRunner(journal, actions).run(G.REINSTATE, THERE)

    def held(self, alias: str) -> Counter[bytes]:
        cluster = self.both[alias]
        found = Counter[bytes]()
        for topic in self.read_topics(cluster):
            found += self.values(cluster, topic)
        return found


async def failed_over(*, keeps_names: bool, extra: int = 4) -> ReturnWorld:
    world = ReturnWorld(keeps_names=keeps_names)
    world.produce()
    world.run()
    world.consume()
    await world.until(world.copies)
    await asyncio.sleep(5)
    await world.fail_over(extra)
    return world


async def until_same(world: ReturnWorld, missing_on_b: Counter[bytes]) -> None:
    """A gets everything once; B has everything but what was left."""
    await world.until(lambda: world.held(A) == world.sent and world.held(B) == world.sent - missing_on_b)
    await asyncio.sleep(10)
    assert world.held(A) == world.sent and world.held(B) == world.sent - missing_on_b


@BOTH_POLICIES
@pytest.mark.parametrize(
    ("choice", "killed_after"), [*((REPLAY, after) for after in range(1, 6)), (LEAVE, 3), (LEAVE, 4)]
)
async def test_killed_after_any_step_the_same_call_ends_it(
    killed_after: int, choice: ExtrasChoice, *, keeps_names: bool
) -> None:
    world = await failed_over(keeps_names=keeps_names)
    if choice is REPLAY and not keeps_names and killed_after == 5:
        killed_after = 3  # the flow itself replays: there is an entry less
    with pytest.raises(ProcessKilled):
        await world.reinstate(choice, killed_after=killed_after)
    world.produce()
    assert await world.reinstate(choice) is S.COMPLETE, world.told
    world.produce()
    await until_same(world, Counter() if choice is REPLAY else world.extras)


async def test_a_flow_that_has_copied_since_the_failover_ended_it_is_told_and_no_way_back_is_begun() -> None:
    """Else B->A begins behind these copies, and A never gets what clients have written to B before them."""
    world = await failed_over(keeps_names=True)
    await world.write_state(THERE, DirectionState.ON)
    await world.until(lambda: world.held(B) == world.sent)
    await world.off(THERE)
    with pytest.raises(CutoverRefused, match=r"A->B has copied orders-0 up to 7, orders-1 up to 7 since the failover"):
        await world.reinstate(REPLAY)
    assert await world.reinstate(LEAVE) is S.COMPLETE


class WriterKilled(TopicWriter):
    """Ends the process when so many batches were written."""

    left = 0
    before_sending = False
    world: ReturnWorld

    async def write(self, records: Mapping[int, Sequence[NewRecord]]) -> None:
        WriterKilled.world.produce(1)  # clients go on meanwhile
        WriterKilled.left -= 1
        if WriterKilled.left == 0 and WriterKilled.before_sending:
            raise ProcessKilled
        await super().write(records)
        if WriterKilled.left == 0:
            raise ProcessKilled


@pytest.mark.parametrize("before_sending", [True, False])
@pytest.mark.parametrize("killed_at", range(1, 5))
async def test_a_replay_that_is_killed_in_the_middle_repeats_nothing_and_keeps_the_order(
    monkeypatch: pytest.MonkeyPatch, killed_at: int, *, before_sending: bool
) -> None:
    monkeypatch.setattr(replaying, "BATCH_RECORDS", 3)
    monkeypatch.setattr(replaying, "TopicWriter", WriterKilled)
    world = await failed_over(keeps_names=True, extra=7)
    WriterKilled.world = world
    for at in (killed_at, 2):
        WriterKilled.left, WriterKilled.before_sending = at, before_sending
        with pytest.raises(ProcessKilled):
            await world.reinstate(REPLAY)
    WriterKilled.left = 0
    assert await world.reinstate(REPLAY) is S.COMPLETE, world.told
    for number in (0, 1):
        there = [one.value for one in world.target.records("orders", number) if (one.value or b"") in world.extras]
        assert there == [one.value for one in world.source.records("orders", number)][3:10]
    await until_same(world, Counter())


async def test_a_worker_of_the_flow_back_that_is_killed_among_replayed_records_repeats_and_loses_nothing() -> None:
    world = await failed_over(keeps_names=True)
    assert await world.reinstate(REPLAY) is S.COMPLETE
    await world.until(lambda: world.held(A) == world.sent)
    world.produce()
    await world.until(lambda: world.held(A).total() > world.sent.total() - 4)
    world.processes[0].kill()
    world.run()
    world.produce()
    await until_same(world, Counter())


@BOTH_POLICIES
async def test_copies_behind_the_position_of_a_killed_worker_are_no_extras(*, keeps_names: bool) -> None:
    world = ReturnWorld(keeps_names=keeps_names)
    world.produce()
    world.run()
    await world.until(world.copies)
    await asyncio.sleep(5)
    world.produce(2)
    await world.until(world.copies)
    world.processes[0].kill()  # the position of the last two is not stored
    world.run()
    world.produce(0)
    await world.off(THERE)
    before = world.sent.copy()
    world.produce(4)
    world.extras = world.sent - before
    await world.note_failover()
    world.clients_on = B
    found = await world.look()
    assert [(one.first, one.records, one.unclear) for one in found.partitions] == [(5, 4, ""), (5, 4, "")]
    assert await world.reinstate(REPLAY) is S.COMPLETE
    world.produce()
    await until_same(world, Counter())


@BOTH_POLICIES
async def test_without_a_decision_it_stops_and_says_what_to_do(*, keeps_names: bool) -> None:
    world = await failed_over(keeps_names=keeps_names)
    with pytest.raises(RecoveryStopped, match=r"Nobody has decided yet about the records of orders that only A has"):
        await world.reinstate(ExtrasChoice())
    assert world.fenced == {"A"}
    with pytest.raises(RecoveryStopped, match="Nobody has decided yet"):
        await world.reinstate(ExtrasChoice(replays=True, topics=("bills",)))
    assert await world.reinstate(ExtrasChoice(leaves=("orders",))) is S.COMPLETE
    await until_same(world, world.extras)


async def test_what_the_old_side_gets_after_the_decision_is_open_again() -> None:
    world = await failed_over(keeps_names=True)
    with pytest.raises(ProcessKilled):
        await world.reinstate(LEAVE, killed_after=3)  # the decision is stored
    world.write(world.source, 1)  # a super user, whom no fence stops
    with pytest.raises(RecoveryStopped, match="Nobody has decided yet"):
        await world.reinstate(ExtrasChoice())


@BOTH_POLICIES
async def test_extras_are_exported_to_a_topic_once_with_their_origin(*, keeps_names: bool) -> None:
    world = await failed_over(keeps_names=keeps_names)
    choice = ExtrasChoice(export_topic="extras.A")
    with pytest.raises(ProcessKilled):
        await world.reinstate(choice, killed_after=4)
    assert await world.reinstate(choice) is S.COMPLETE
    entries = [decode(one) for one in world.target.records("extras.A", 0)]  # type: ignore[arg-type]
    assert all(isinstance(one, QuarantineEntry) for one in entries)
    kept = [one for one in entries if isinstance(one, QuarantineEntry)]
    assert Counter(one.record.value for one in kept) == world.extras
    assert sorted(one.provenance.origin[:3] for one in kept) == [
        ("orders", number, offset) for number in (0, 1) for offset in range(3, 7)
    ]
    await until_same(world, world.extras)


async def test_extras_are_exported_as_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    world = await failed_over(keeps_names=True)
    assert await world.reinstate(ExtrasChoice(folder=str(tmp_path / "extras"), replays=True)) is S.COMPLETE
    rows = parquet.read_table(tmp_path / "extras").to_pylist()
    assert Counter(row["value"] for row in rows) == world.extras
    assert [row["offset"] for row in rows if row["partition"] == 0] == [3, 4, 5, 6]
    await until_same(world, Counter())


@BOTH_POLICIES
@pytest.mark.parametrize("choice", [REPLAY, LEAVE], ids=["replay", "leave"])
async def test_every_extra_is_listed_and_settled_and_the_failback_loses_and_repeats_nothing(
    choice: ExtrasChoice, *, keeps_names: bool
) -> None:
    world = await failed_over(keeps_names=keeps_names)
    found = await world.look()
    assert [(one.partition, one.first, one.end, one.records) for one in found.partitions] == [
        ("orders-0", 3, 7, 4),
        ("orders-1", 3, 7, 4),
    ]
    await move_group(world)
    world.consume()
    assert await world.reinstate(choice) is S.COMPLETE
    world.produce()
    await asyncio.sleep(10)
    world.consume()
    left = Counter[bytes]() if choice is REPLAY else world.extras
    assert world.read == world.sent - left
    await asyncio.sleep(5)
    assert await world.call(G.CUTOVER, BACK) is S.REVERSED, world.told
    assert (world.clients_on, world.fenced) == (A, {"B"})
    world.produce()
    await world.until(lambda: world.held(A) == world.sent and world.held(B) == world.sent - left)
    world.consume()
    assert world.read == world.sent - left, "each once, but what was left on A behind which the group goes on"


async def move_group(world: ReturnWorld) -> None:
    """Commit the group on B behind the copies, as the failover does."""
    topic = "orders" if world.keeps_names else "A.orders"
    world.target.groups.commit(GROUP, {(topic, number): (3, "") for number in (0, 1)})


async def test_where_the_old_side_was_cut_back_there_is_a_gap_and_nothing_is_replayed() -> None:
    world = await failed_over(keeps_names=True)
    world.source.truncate("orders", 0, 2)
    world.source.append("orders", 0, [Record(value=f"after {number}".encode()) for number in range(3)])
    found = await world.look()
    assert [(one.first, one.end, one.records, one.lost) for one in found.partitions] == [
        (2, 5, 3, (2, 3)),
        (3, 7, 4, None),
    ]
    with pytest.raises(RecoveryStopped, match="In orders there is a gap as well"):
        await world.reinstate(REPLAY)
    assert await world.reinstate(LEAVE) is S.COMPLETE
