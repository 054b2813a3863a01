"""A flow that workers refuse while they run: REST of any worker tells why, and a restart tries it again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mm2py_connectors.source.connector import SourceConnector
from mm2py_connectors.source.refusals import ExactlyOnceImpossible
from mm2py_rest.reports.flows import FlowState, flow_body, state_of
from tests.scenarios.process import Process
from tests.scenarios.rest.rest_world import SOURCE, Rest, rest_of
from tests.scenarios.shared_world import SharedWorld
from tests.simulation.incarnation import SimulationLoop

TWO_FLOWS = {"clusters": "A, B, C", "C.bootstrap.servers": "c:1", "C->B.enabled": "true", "C->B.topics": "c.*"}
WHY = "__transaction_state is gone."


async def refuse(world: SharedWorld, worker: Process) -> None:
    """Let a worker meet something for which it refuses the flow."""

    async def refused() -> None:
        raise ExactlyOnceImpossible(world.flow, WHY)

    connector = worker.herder.connectors[0].connector
    assert isinstance(connector, SourceConnector)
    assert connector.task is not None
    connector.task._start(refused(), "a refusal")
    await world.until(lambda: bool(worker.said("flow.refused")))


async def told(rest: Rest) -> tuple[dict[str, Any], list[tuple[str, bool]]]:
    """Return the connector, and of each task its state and whether it says why."""
    await asyncio.sleep(4.0)  # heartbeats and looks
    status = await rest.told("GET", f"{SOURCE}/status", 200)
    return status["connector"], [(task["state"], WHY in (task.get("trace") or "")) for task in status["tasks"]]


async def in_short(rest: Rest) -> tuple[FlowState, bool]:
    """Return what ``/v1/flows`` says of the flow, and whether it says why."""
    view = await rest.live.view()
    flow = next(one for one in view.report.flows if str(one.flow) == "A->B")
    body = flow_body(flow, view.report, state_of(view.report, view.facts, flow.flow), ())
    return body.state, WHY in body.why


@pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)
async def test_rest_tells_why_a_flow_is_refused_and_a_restart_tries_it_again() -> None:
    world = SharedWorld(extra={**TWO_FLOWS, "B.exactly.once.source.support": "enabled"})
    other = world.another_cluster("C")
    (name,) = world.make_topics(1, 6)
    first, second = (world.start(C=other) for _ in range(2))
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    async with rest_of(world, also={"C": other}) as rest:
        await refuse(world, first)
        await world.until(lambda: second.owns(world.flow) >= world.keys())
        connector, tasks = await told(rest)
        assert connector["state"] == "RUNNING"
        assert sorted(tasks) == [("FAILED", True), ("RUNNING", False)]
        assert await in_short(rest) == (FlowState.RUNNING, True)

        await refuse(world, second)
        connector, tasks = await told(rest)
        assert (connector["state"], WHY in connector["trace"]) == ("FAILED", True)
        assert tasks == [("FAILED", True), ("FAILED", True)]
        assert await in_short(rest) == (FlowState.REFUSED, True)
        problems = [one for one in (await rest.live.report()).problems if WHY in one.text]
        assert {(one.kind, one.where) for one in problems} == {("refused", "A->B.MirrorSourceConnector")}

        world.write(name, 2)
        await rest.told("POST", f"{SOURCE}/restart?onlyFailed=true", 202)
        await world.until(lambda: world.is_fully_assigned() and world.is_copied())
        connector, tasks = await told(rest)
        assert (connector["state"], tasks) == ("RUNNING", [("RUNNING", False)] * 2)
        assert await in_short(rest) == (FlowState.RUNNING, False)
    wrong = world.findings(exact=True)
    assert not wrong, wrong
