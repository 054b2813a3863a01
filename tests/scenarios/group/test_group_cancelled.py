"""Workers of a group are cancelled at each await: none of their tasks continues, and no member waits for them."""

from __future__ import annotations

import asyncio

import pytest

from tests.scenarios.group_world import GroupWorld

CANCELLED = 60
STEP_S = 0.003
"""Delays of the cancellation: some event loop cycles each, until a worker owns a part of the work."""


@pytest.mark.walk(range(1))
@pytest.mark.virtual_time(limit_s=40_000)
async def test_a_worker_that_is_cancelled_at_any_await_leaves_no_task_and_no_partition_behind(seed: int) -> None:
    """F81: while it opens the log, joins, sends heartbeats, is a candidate, and is assigned partitions."""
    world = GroupWorld(seed)
    async with world.running(2) as workers:
        await world.list_topic(workers, 6)
        before = {task.get_name() for task in asyncio.all_tasks()}
        for number in range(CANCELLED):
            late = world.add(f"late-{number}")
            await asyncio.sleep(number * STEP_S)
            for _ in range(world.rng.randrange(10)):
                await asyncio.sleep(0)
            await late.kill()
            left = {task.get_name() for task in asyncio.all_tasks()} - before
            assert not {name for name in left if name.startswith("late-")}, left
            if late.members:
                left = {name for name in left if str(late.member.id) in name}
                assert not left, left
        joined = len(world.lines("member.joined")) - len(workers)
        print(f"{joined} of {CANCELLED} had joined")
        assert CANCELLED / 4 < joined < CANCELLED
        await world.until(lambda: all(world.agree(workers)), within_s=60)
        await world.until(lambda: world.copied(workers) == list(range(6)), within_s=60)
        assert all(len(worker.members) == 1 for worker in workers)
