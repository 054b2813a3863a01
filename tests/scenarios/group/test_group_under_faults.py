"""Workers of a group while brokers stop, leaders move, and workers freeze, are cut off and wake."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.fakes.faults import Faults
from tests.scenarios.group_world import SESSION_S, GroupWorld, Worker

PARTITIONS = 12
FAULTS_S = 90.0


def free_to_copy(workers: list[Worker], number: int) -> list[str]:
    """Return the workers that may write to the copy of a partition now: they own it in their view and hold a lease."""
    return [
        worker.name
        for worker in workers
        if worker.members and worker.member.gate.is_open and worker.ownership().may_copy(("orders", number))
    ]


async def disturb(world: GroupWorld, worker: Worker, rng: random.Random) -> None:
    """Disturb one worker now and then."""
    while True:
        await asyncio.sleep(rng.uniform(2, 25))
        lasts_s = rng.choice([0.5, 2.0, SESSION_S + 1, 10.0])
        if rng.random() < 0.5:
            worker.freeze()
            await asyncio.sleep(lasts_s)
            worker.thaw()
        else:
            worker.wire.is_cut = True
            await asyncio.sleep(lasts_s)
            worker.wire.is_cut = False


@pytest.mark.walk(range(3))
@pytest.mark.virtual_time(limit_s=2000)
async def test_two_workers_never_write_to_one_partition_at_a_time_and_in_the_end_all_are_copied(seed: int) -> None:
    world = GroupWorld(seed)
    rng = random.Random(seed)
    epochs: dict[int, set[str]] = {}
    async with world.running(4) as workers:
        await world.list_topic(workers, PARTITIONS)
        for worker in workers:
            await world.writes(worker, f"mm2py-{worker.name}")
        world.cluster.inject(Faults(leader_move_every_s=4.0, broker_stop_every_s=25.0, broker_down_s=(1.0, 12.0)))
        disturbing = [asyncio.create_task(disturb(world, worker, rng)) for worker in workers[1:]]
        end_s = world.clock.monotonic() + FAULTS_S
        while world.clock.monotonic() < end_s:
            await asyncio.sleep(0.05)
            for number in range(PARTITIONS):
                assert len(free_to_copy(world.workers, number)) <= 1, world.log_text.getvalue()
            for worker in workers:
                view = worker.member.view
                if view.leader is not None:
                    epochs.setdefault(view.leader_epoch, set()).add(view.leader)
        for task in disturbing:
            task.cancel()
        await asyncio.gather(*disturbing, return_exceptions=True)
        for worker in workers:
            worker.thaw()
            worker.wire.is_cut = False
        world.cluster.heal()
        await world.until(
            lambda: all(len(free_to_copy(workers, number)) == 1 for number in range(PARTITIONS)), within_s=60
        )
        assert all(len(leaders) == 1 for leaders in epochs.values())
        assert not world.lines("group.refused") and "ZeroDivision" not in world.log_text.getvalue()
        assert "please report" not in world.log_text.getvalue()
        assert not world.cluster.complaints
