"""What a start makes of the lives before it: many, forgotten ones, and such as never came to write anything."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest
from mm2py.kafka.producer.transactional_ids import parse
from mm2py.records.status_record import IncarnationRecord, Life
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.gate import Gate, Request
from tests.scenarios.late import StuckRequests
from tests.scenarios.test_gaps import kept
from tests.scenarios.test_late_requests import OLD_MS, STATUS, ids, is_copy, lives
from tests.scenarios.two_lives import OFFSETS, Source, all_copied, finish, forget_transactional_ids, make, said, until
from tests.scenarios.witness import Witness
from tests.scenarios.world import World

ENABLED = {"B.exactly.once.source.support": "enabled"}
DENIED = 29


async def copied_no_more(*, killed: bool = False, **extra: str) -> tuple[World, Source, Witness]:
    """Two lives of a flow, in the second of which one of its two topics is deleted upstream: its position stays."""
    world, source, witness = make(6, **extra)
    world.source.create_topic("old", 1)
    world.source.append("old", 0, [b"1"])
    source.fill(10)
    for life in range(2):
        async with world.worker() as herder:
            await until(lambda: "A.old" in world.target.topics and bool(world.target.records("A.old", 0)), world)
            source.fill(2)
            await all_copied(world)
            await asyncio.sleep(5)
            if life == 1:
                world.source.delete_topic("old")
                await asyncio.sleep(20)
            if not (killed and life == 1):
                await world.stop(herder)
    return world, source, witness


def lose_track_of(world: World, transactional_id: str) -> None:
    """Only a position tells of it any more: records of lives are gone, and its coordinator has forgotten it."""
    world.target.delete_topic(STATUS)
    del world.target.coordinator.transactional_ids[transactional_id]


def cannot_write_markers(world: World) -> None:
    world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}


def recorded_lives(world: World) -> list[int]:
    """Return the numbers of the lives of which the status topic tells, as ``World.worker`` counts them."""
    names = [
        parse(one.transactional_id, world.settings.group) for one in kept(world) if isinstance(one, IncarnationRecord)
    ]
    return sorted(int(name.process, 16) for name in names if name is not None)


async def state_of_next_life(world: World, source: Source) -> tuple[str, str]:
    """Let a life begin, copy and stop; returns its state and its guarantee, or why it was refused."""
    async with world.worker() as herder:
        source.fill(2)
        await asyncio.sleep(30)
        (status,) = herder.status()
        if status.state == "running":
            await all_copied(world)
            await world.stop(herder)
    return status.state, status.guarantee if status.state == "running" else status.reason


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("extra", [{}, ENABLED])
def test_a_topic_that_is_copied_no_more_does_not_stop_the_flow_when_its_writer_is_forgotten(
    extra: dict[str, str], killed: bool
) -> None:
    """The story: a topic is deleted upstream; its last position names a life that was drained, or shut out. Weeks
    later coordinators know nothing of that one, and markers may not be written without them."""

    async def scenario() -> None:
        world, source, witness = await copied_no_more(killed=killed, **extra)
        for _ in range(4):
            assert await state_of_next_life(world, source) == ("running", "exactly-once")
            assert not said(world, "writer.unfenced")
            forget_transactional_ids(world)  # a week goes by
            cannot_write_markers(world)
        world.target.denied_on_cluster.clear()
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=3000)


def test_records_of_lives_that_coordinators_have_forgotten_end_unless_a_position_names_them() -> None:
    """Each start leaves one, and all of them are read at every start. The second life is the last that copied a topic
    that is gone upstream; a life's own copies are named until the next one stores its positions."""

    async def scenario() -> None:
        world, source, _ = await copied_no_more()
        await state_of_next_life(world, source)
        assert recorded_lives(world) == [1, 2, 3], "coordinators know them all"
        for life in range(4, 8):
            forget_transactional_ids(world)
            assert await state_of_next_life(world, source) == ("running", "exactly-once")
            assert recorded_lives(world) == [2, life - 1, life]

    run_virtual(scenario(), limit_s=3000)


def test_once_a_writer_of_which_only_a_position_tells_was_shut_out_later_starts_need_no_right_for_it() -> None:
    """The status topic is lost, and with it the record that says that this life was drained."""

    async def scenario() -> None:
        world, source, witness = await copied_no_more(**ENABLED)
        await state_of_next_life(world, source)
        lose_track_of(world, "mm2py-mm2py-000000000002-0-A->B")
        cannot_write_markers(world)
        state, why = await state_of_next_life(world, source)
        assert state == "refused"
        assert "000000000002-0-A->B cannot be fenced" in why and "ALTER on the cluster" in why
        world.target.denied_on_cluster.clear()
        assert await state_of_next_life(world, source) == ("running", "exactly-once")
        cannot_write_markers(world)
        assert await state_of_next_life(world, source) == ("running", "exactly-once")
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=3000)


def test_a_life_that_cannot_be_shut_out_of_the_positions_lowers_the_guarantee() -> None:
    async def scenario() -> None:
        world, source, _ = await copied_no_more()
        await state_of_next_life(world, source)
        lose_track_of(world, "mm2py-mm2py-000000000002-0-A->B")
        cannot_write_markers(world)
        async with world.worker() as herder:
            source.fill(2)
            await all_copied(world)
            (status,) = herder.status()
        assert said(world, "writer.unfenced", f"topic={OFFSETS}", "its positions may replace ours")
        assert not said(world, "writer.unfenced", "records may be there twice")
        assert status.guarantee.startswith("at-least-once (mm2py-mm2py-000000000002-0-A->B cannot be fenced")
        assert said(world, "flow.ready", "at-least-once")

    run_virtual(scenario(), limit_s=3000)


def test_many_earlier_producers_are_shut_out_side_by_side() -> None:
    """A life that had to fence itself 40 times leaves 41 ids; one after the other they took 1.2 seconds."""

    async def scenario() -> None:
        world, source, witness = make(1)
        source.fill(10, age_ms=OLD_MS)
        stuck = StuckRequests(is_copy)
        async with world.worker(through=stuck):
            await all_copied(world)
            for _ in range(40):
                stuck.wanted = 1
                source.fill(5, age_ms=OLD_MS)
                await all_copied(world)
            await asyncio.sleep(3)
        assert len(ids(world)) == 41
        world.log_text.truncate(0)
        begun_s = world.clock.monotonic()
        async with world.worker():
            await until(lambda: bool(said(world, "flow.ready")), world)
            assert world.clock.monotonic() - begun_s < 0.3
            assert [lives(world)[str(name)] for name in ids(world) if name.process.endswith("1")] == [Life.FENCED] * 41
            await all_copied(world)
            await asyncio.sleep(2)
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=6000)


class Denies:
    """Stands between a worker and a cluster; see ``World.worker``. Positions may not be read while it is ``on``."""

    def __init__(self) -> None:
        self.on = True

    def __call__(self, cluster: Brokers) -> Brokers:
        return cast("Brokers", _Denying(self, cluster))


class _Denying:
    def __init__(self, denies: Denies, cluster: Brokers) -> None:
        self._denies = denies
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        reply = await self._cluster.send(broker, request, channel=channel)
        if self._denies.on and isinstance(request, FetchRequest) and request.topics[0].name == OFFSETS:
            assert isinstance(reply, FetchReply)
            nothing = [part._replace(error_code=DENIED, records=memoryview(b"")) for part in reply.partitions]
            return replace(reply, partitions=nothing)
        return reply


def test_attempts_that_fail_before_anything_is_written_say_so_and_need_not_be_shut_out() -> None:
    """The story: READ on the offsets topic is missing for a weekend, and every half minute another life begins."""

    async def scenario() -> None:
        world, source, witness = make(1)
        source.fill(3)
        denies = Denies()
        async with world.worker(through=denies):
            await asyncio.sleep(3600)
            assert len(lives(world)) > 100
            assert set(lives(world).values()) == {Life.DRAINED}
            assert said(world, "flow.failed", f"mm2py needs READ on {OFFSETS}.")
            denies.on = False
            await until(lambda: bool(said(world, "flow.ready")), world)
            assert world.target.counts["request AddPartitionsToTxn"] <= 2, "the keep-alive only"
            await all_copied(world)
            await asyncio.sleep(2)
            found = sorted(lives(world).values())
            assert found.count(Life.WRITING) == 1
            assert found.count(Life.DRAINED) == len(found) - 1
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=9000)


def test_a_stop_that_the_target_does_not_answer_says_what_the_next_start_does_and_so_it_does() -> None:
    async def scenario() -> None:
        world, source, witness = make(3)
        source.fill(10)
        gate = Gate(is_copy)
        async with world.worker(through=gate) as herder:
            await all_copied(world)
            await asyncio.sleep(3)
            gate.shut()
            source.fill(3)
            await until(lambda: gate.held > 0, world)
            herder.stop()
            await until(lambda: bool(said(world, "drain.failed")), world)
            (line,) = said(world, "drain.failed")
            assert "without an answer of the target within 30 s. Nothing is lost: the next start looks up what" in line
            assert "the next start shuts this process out" in line
            assert "nothing is copied twice, unless the guarantee of the flow is at-least-once" in line
            gate.open()
        async with world.worker():
            await until(lambda: bool(said(world, "flow.ready", "guarantee=exactly-once")), world)
            await all_copied(world)
        assert list(lives(world).values()) == [Life.FENCED, Life.WRITING]
        await finish(world, source, witness)

    run_virtual(scenario(), limit_s=900)
