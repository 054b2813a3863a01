"""Workers of a group with an election backend, while the control log is unavailable and after it has come back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mm2py.group.election.backend import CandidateState
from mm2py.records.control_record import Claim, Evicted, Resigned
from tests.scenarios.group_world import BEAT_S, LOG, SESSION_S, Election, GroupWorld, Worker

pytestmark = pytest.mark.virtual_time(limit_s=40_000)

SEEDS = range(2)
PATIENCE_S = 1.0


class Queue(Election):
    """An election backend with a queue, like ZooKeeper's: the first may lead. Joining and leaving take time."""

    def __init__(self, line: list[object], rng: random.Random) -> None:
        self._line = line
        self._rng = rng

    @property
    def state(self) -> CandidateState:  # type: ignore[override]
        return CandidateState.MAY_LEAD if self._line[:1] == [self] else CandidateState.LOST

    @property
    def evidence(self) -> str:  # type: ignore[override]
        return "first in line" if self.state is CandidateState.MAY_LEAD else ""

    async def run(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.01, 0.3))
        self._line.append(self)
        try:
            await super().run()
        finally:
            self._line.remove(self)
            await asyncio.sleep(self._rng.uniform(0.01, 0.3))


@asynccontextmanager
async def running(world: GroupWorld, line: list[object]) -> AsyncIterator[list[Worker]]:
    """Three workers that are candidates in ``line``."""
    workers = [world.add(f"w{number}", election="zookeeper") for number in (1, 2, 3)]
    for worker in workers:
        worker.election = Queue(line, world.rng)
    try:
        await world.until(lambda: all(world.agree(workers)))
        await world.list_topic(workers, 12)
        yield workers
    finally:
        await asyncio.gather(*(worker.kill() for worker in world.workers))


@asynccontextmanager
async def outage(world: GroupWorld, *, at_least_s: float) -> AsyncIterator[None]:
    """The control log refuses appends and reads."""
    partition = world.cluster.partition(LOG, 0)
    leader, partition.leader = partition.leader, -1
    await asyncio.sleep(at_least_s)
    yield
    partition.leader = leader


@pytest.mark.parametrize("outage_s", [SESSION_S + BEAT_S, 9.0, 30.0])
@pytest.mark.walk(SEEDS)
async def test_an_outage_of_the_control_log_costs_no_election(seed: int, outage_s: float) -> None:
    world = GroupWorld(seed)
    async with running(world, []) as workers:
        leader = world.leader(workers)
        async with outage(world, at_least_s=outage_s):
            pass
        await asyncio.sleep(3 * SESSION_S)
        assert leader.member.is_leader
        assert (len(world.written(Claim)), world.written(Resigned), world.written(Evicted)) == (1, [], [])
        assert leader.election.state is CandidateState.MAY_LEAD, "it is first in the queue again, and still leads"
        dead = world.others(workers)[0]
        await dead.kill()
        await world.until(lambda: dead.member.id not in leader.member.view.members, within_s=SESSION_S + PATIENCE_S)


@pytest.mark.walk(SEEDS)
async def test_a_leader_that_died_in_an_outage_of_the_control_log_is_replaced_one_session_after_it(seed: int) -> None:
    world = GroupWorld(seed)
    async with running(world, []) as workers:
        leader, others = world.leader(workers), world.others(workers)
        async with outage(world, at_least_s=9.0):
            await leader.kill()
        await world.until(
            lambda: any(worker.member.is_leader for worker in others), within_s=SESSION_S + 2 * BEAT_S + PATIENCE_S
        )
        await world.until(lambda: world.copied(others) == list(range(12)))


@pytest.mark.walk(SEEDS)
async def test_a_leader_that_lost_its_place_in_an_outage_does_nothing_and_resigns_after_a_session(
    seed: int,
) -> None:
    world = GroupWorld(seed)
    line: list[object] = []
    async with running(world, line) as workers:
        leader, (dead, other) = world.leader(workers), world.others(workers)
        async with outage(world, at_least_s=9.0):
            line.append("another worker")
            await dead.kill()
        await world.until(lambda: leader.member.gate.is_fresh)
        await asyncio.sleep(SESSION_S - BEAT_S)
        assert not world.written(Resigned)
        await world.until(lambda: bool(world.written(Resigned)), within_s=2 * BEAT_S + PATIENCE_S)
        line.remove("another worker")
        await world.until(lambda: world.copied([leader, other]) == list(range(12)))
        assert {evicted.leader_epoch for evicted in world.written(Evicted)} == {2}


@pytest.mark.walk(SEEDS)
async def test_a_leader_that_alone_cannot_reach_the_control_log_does_not_block_a_new_election(seed: int) -> None:
    world = GroupWorld(seed)
    async with running(world, []) as workers:
        leader, others = world.leader(workers), world.others(workers)
        leader.wire.is_cut = True
        await world.until(
            lambda: any(worker.member.is_leader for worker in others), within_s=SESSION_S + 2 * BEAT_S + PATIENCE_S
        )
        await world.until(lambda: world.copied(others) == list(range(12)))
        leader.wire.is_cut = False
        await world.until(lambda: all(world.agree(workers)))
        assert not leader.member.is_leader
