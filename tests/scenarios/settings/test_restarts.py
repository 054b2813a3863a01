"""An operator restarts connectors, topics and partitions under load: once, and no record comes twice."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.copying.states import Waiting
from mm2py.flow import Kind
from mm2py.records.operator_request import RestartConnector, RestartPartitions, TargetState
from tests.scenarios.paused_world import FOLLOWED_S, copied, held, restart, resumed, under_load
from tests.scenarios.process import Process
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)


def starts(processes: list[Process]) -> list[int]:
    return [len(process.said("flow.ready")) for process in processes]


async def test_a_restarted_flow_is_drained_and_starts_again_on_every_worker_once() -> None:
    async with under_load(2) as (world, processes):
        before = starts(processes)
        await restart(world, RestartConnector(Kind.SOURCE))
        await world.until(lambda: starts(processes) == [count + 1 for count in before], within_s=FOLLOWED_S + 2)
        await asyncio.sleep(10)
        newcomer = world.start()
        await world.until(world.is_fully_assigned)
        await asyncio.sleep(10)
        assert starts(processes) == [count + 1 for count in before]
        assert starts([newcomer]) == [1]
    assert not any(line["records"] for process in processes for line in process.said("partitions.reconciled"))


@pytest.mark.parametrize("only_failed", [False, True])
async def test_a_failed_flow_is_tried_again_at_once(*, only_failed: bool) -> None:
    async with under_load(1) as (world, (worker,)):
        world.target.denied_topics.add("mm2-offsets.A.internal")
        await world.until(lambda: len(worker.said("flow.failed")) > 6, within_s=300)
        failures = len(worker.said("flow.failed"))
        world.target.denied_topics.clear()
        await restart(world, RestartConnector(Kind.SOURCE, only_failed=only_failed))
        await world.until(lambda: copied(world) > 0 and world.is_fully_assigned(), within_s=FOLLOWED_S + 3)
        assert len(worker.said("flow.failed")) == failures


async def test_restarted_heartbeats_start_again_and_the_flow_goes_on() -> None:
    async with under_load(2, **{"emit.heartbeats.enabled": "true"}) as (world, processes):
        beating = [
            running
            for process in processes
            for running in process.herder.connectors
            if running.name.kind is Kind.HEARTBEAT
        ]
        before, flows = sum(running.attempts for running in beating), starts(processes)
        await restart(world, RestartConnector(Kind.HEARTBEAT))
        await world.until(lambda: sum(running.attempts for running in beating) == before + 1, within_s=FOLLOWED_S)
        assert starts(processes) == flows


async def test_a_restart_asked_while_a_flow_is_paused_starts_nothing() -> None:
    async with under_load(2) as (world, processes):
        await held(world, TargetState.PAUSED)
        before = copied(world)
        await restart(world, RestartConnector(Kind.SOURCE))
        await restart(world, RestartPartitions("t0"))
        await asyncio.sleep(5)
        assert copied(world) == before
        await resumed(world)
        await world.until(lambda: starts(processes) == [2, 2], within_s=FOLLOWED_S)


async def test_a_restart_ends_the_pause_of_a_partition_that_waits() -> None:
    async with under_load(1) as (world, (worker,)):
        assert worker.task is not None
        part = worker.task.partitions["t0", 0]
        world.target.denied_topics.add("A.t0")
        await world.until(lambda: isinstance(part.copier.state, Waiting) and (part.copier.resume_at_s or 0) > 0)
        await asyncio.sleep(1)
        world.target.denied_topics.clear()
        before = part.copier.position.source_offset
        assert (part.copier.resume_at_s or 0) - worker.clock.monotonic() > 5
        await restart(world, RestartPartitions("t0", 0))
        await world.until(lambda: part.copier.position.source_offset > before, within_s=FOLLOWED_S)
