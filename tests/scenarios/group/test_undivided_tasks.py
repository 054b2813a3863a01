"""Tasks that are not divided, one of each kind in a flow: each is assigned to one worker at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from mm2py.flow import Flow, Kind, parse_flow
from mm2py.records.control_record import Evicted, TaskName
from mm2py.shared_settings.current_settings import CurrentSettings
from mm2py.worker.connector_schedule import UndividedSchedule
from tests.scenarios.group_world import GroupWorld, Worker
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

FLOWS = tuple(parse_flow(f"S{number}->B") for number in range(6))


class Tasks:
    """Runs a worker's checkpoint tasks of all flows, each as the herder does."""

    def __init__(self, worker: Worker, *, wanted: bool = True) -> None:
        self.worker = worker
        self._wanted = object() if wanted else None
        self._running: dict[Flow, UndividedSchedule[object]] = {}
        self._tasks = [asyncio.create_task(self._run(flow), name=f"{worker.name} {flow}") for flow in FLOWS]

    async def _run(self, flow: Flow) -> None:
        schedule = UndividedSchedule(
            self.worker.group, TaskName(flow, Kind.CHECKPOINT), CurrentSettings(None, None), lambda: self._wanted
        )
        while True:
            await schedule.granted()
            self._running[flow] = schedule
            try:
                await schedule.revoked()
                await asyncio.sleep(0.1)  # it drains
            finally:
                del self._running[flow]
            await schedule.stopped(outcome_unknown=False)

    @property
    def running(self) -> set[Flow]:
        """The tasks that run and can write: a request needs the lease of its member, or waits for it."""
        return {flow for flow, schedule in self._running.items() if schedule.member.gate.is_open}

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Scene:
    def __init__(self) -> None:
        self.world = GroupWorld()
        self.tasks: list[Tasks] = []

    def add(self, name: str, *, wanted: bool = True) -> Tasks:
        found = Tasks(self.world.add(name, checkpoints=FLOWS), wanted=wanted)
        self.tasks.append(found)
        return found

    def are_spread(self, workers: int) -> bool:
        """Whether each task runs now, on so many workers, and none of them runs more than one above its part."""
        numbers = [len(each.running) for each in self.tasks if each.running]
        return len(numbers) == workers and sum(numbers) == len(FLOWS) and max(numbers) <= len(FLOWS) // workers + 1

    async def watch(self) -> None:
        while True:
            where = Counter(flow for each in self.tasks for flow in each.running)
            assert not where or max(where.values()) == 1, where
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """Three workers that run six tasks; no task ever runs on two of them at a time."""
    found = Scene()
    try:
        for name in ("w1", "w2", "w3"):
            found.add(name)
        watching = asyncio.create_task(found.watch(), name="watch")
        await found.world.until(lambda: found.are_spread(3))
        yield found
        assert not watching.done(), watching
        watching.cancel()
    finally:
        await asyncio.gather(*(each.end() for each in found.tasks))
        await asyncio.gather(*(worker.kill() for worker in found.world.workers))


async def test_tasks_move_to_a_joining_worker_and_from_a_leaving_one_without_a_fence() -> None:
    async with scene() as found:
        joined = found.add("w4")
        await found.world.until(lambda: found.are_spread(4))
        assert joined.running
        gone = next(each for each in found.tasks if each is not joined)
        await gone.end()
        await gone.worker.group.leave(outcome_unknown=False)
        await found.world.until(lambda: found.are_spread(3))
        assert not found.world.written(Evicted)


async def test_a_worker_that_returns_after_a_cut_runs_no_task_that_another_worker_has_now() -> None:
    async with scene() as found:
        cut = next(each for each in found.tasks if not each.worker.member.is_leader)
        cut.worker.wire.is_cut = True
        await found.world.until(lambda: not cut.running and found.are_spread(2))
        cut.worker.wire.is_cut = False
        await found.world.until(lambda: found.are_spread(3))


async def test_a_worker_that_does_not_want_its_tasks_releases_those_that_move() -> None:
    """By its file checkpoints are switched off. The group assigns it the tasks all the same, and they move on."""
    found = Scene()
    try:
        found.add("w1", wanted=False)
        await asyncio.sleep(5.0)
        owners = found.tasks[0].worker.member.view.owners
        assert {task.flow for task in owners if task.kind is Kind.CHECKPOINT} == set(FLOWS)
        other = found.add("w2")
        await found.world.until(lambda: bool(other.running) and not _waits(other.worker))
    finally:
        await asyncio.gather(*(each.end() for each in found.tasks))
        await asyncio.gather(*(worker.kill() for worker in found.world.workers))


def _waits(worker: Worker) -> bool:
    """Whether a task waits until its previous owner has released it."""
    return any(owned.waits_for for owned in worker.member.view.owners.values())
