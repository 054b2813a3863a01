"""The virtual loop itself: time jumps, order is kept, and a run that cannot go on says who waits where."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from tests.fakes.virtual_time import EPOCH_MS, Deadlock, Livelock, TimeLimit, VirtualClock, VirtualLoop, run_virtual


def test_a_day_of_sleep_costs_nothing() -> None:
    clock = VirtualClock()

    async def day() -> int:
        await asyncio.sleep(86_400)
        return clock.wall_ms()

    begun_s = time.process_time()
    assert run_virtual(day(), limit_s=100_000) == EPOCH_MS + 86_400_000
    assert time.process_time() - begun_s < 10
    assert clock.monotonic() == 86_400  # also after the run


def test_timeouts_of_asyncio_obey_virtual_time() -> None:
    async def waits() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        return asyncio.get_running_loop().time()

    assert run_virtual(waits()) == 5


def test_timers_of_one_moment_fire_in_the_order_they_were_set() -> None:
    fired: list[int] = []

    async def set_many() -> None:
        loop = asyncio.get_running_loop()
        for number in range(200):
            loop.call_at(1.0, fired.append, number)
        await asyncio.sleep(2)

    run_virtual(set_many())
    assert fired == list(range(200))


def test_waiting_for_nobody_is_a_deadlock_that_names_the_waiter() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(forever(), name="the one who waits")

    with pytest.raises(Deadlock, match=r"the one who waits < Event\.wait:\d+ < .*forever"):
        run_virtual(main())


def test_a_run_ends_at_its_limit() -> None:
    async def ticks() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(TimeLimit, match="60 s"):
        run_virtual(ticks(), limit_s=60)


def test_tasks_that_spin_without_time_moving_on_are_found() -> None:
    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock):
        run_virtual(spins())


def test_what_still_runs_at_the_end_is_cancelled_and_cleans_up() -> None:
    cleaned: list[str] = []

    async def lives_on() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            cleaned.append("yes")

    async def main() -> None:
        task = asyncio.create_task(lives_on())
        await asyncio.sleep(1)
        assert not task.done()

    run_virtual(main())
    assert cleaned == ["yes"]


def test_even_sets_of_tasks_have_the_same_order_in_every_run() -> None:
    async def main() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0), name=f"t{number}") for number in range(50)}
        await asyncio.wait(tasks)
        return [task.get_name() for task in tasks]

    ballast = []
    orders = []
    for _ in range(3):
        orders.append(run_virtual(main()))
        ballast.append([object() for _ in range(1000)])  # moves the next tasks to other addresses
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("seed", range(3))
def test_the_seed_decides_what_the_loops_generator_gives(seed: int) -> None:
    async def draw() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.rng.random()

    assert run_virtual(draw(), seed=seed) == random.Random(seed).random()
