"""The virtual loop itself: time jumps, order is kept, and a run that cannot go on says who waits where."""

from __future__ import annotations

import asyncio

from tests.fakes.virtual_time import run_virtual


def test_timers_of_one_moment_fire_in_the_order_they_were_set() -> None:
    fired: list[int] = []

    async def set_many() -> None:
        loop = asyncio.get_running_loop()
        for number in range(200):
            loop.call_at(1.0, fired.append, number)
        await asyncio.sleep(2)

    run_virtual(set_many())
    assert fired == list(range(200))


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
