"""An operator pauses, stops and resumes connectors under load, while workers join, die and restart."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from mm2py.flow import Kind
from mm2py.kafka.port import ProduceRequest
from mm2py.records.operator_request import TargetState
from tests.fakes.metrics_page import Page, page_of
from tests.scenarios.config_world import FLOW, TOPIC, put
from tests.scenarios.gate import Request
from tests.scenarios.paused_world import (
    BY,
    FOLLOWED_S,
    copied,
    direct,
    held,
    nothing_is_copied,
    resumed,
    states,
    under_load,
)
from tests.scenarios.shared_world import SharedWorld
from tests.simulation.incarnation import SimulationLoop

ALERTS = (Path(__file__).resolve().parents[3] / "deploy" / "grafana" / "alerts.yaml").read_text()

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)


@pytest.mark.parametrize("state", [TargetState.PAUSED, TargetState.STOPPED])
async def test_a_held_flow_writes_nothing_on_any_worker_and_resumes_behind_its_last_record(state: TargetState) -> None:
    async with under_load() as (world, processes):
        await asyncio.sleep(2)
        await held(world, state)
        await nothing_is_copied(world)
        (status,) = processes[0].herder.status()
        assert (status.state, status.reason) == (state.lower(), f"{state.lower()} by {BY}")
        assert world.is_fully_assigned()
        await resumed(world)
    assert not any(line["records"] for process in processes for line in process.said("partitions.reconciled"))


@pytest.mark.parametrize("state", [TargetState.PAUSED, TargetState.STOPPED])
async def test_while_a_flow_is_held_one_series_of_its_connector_tells_so(state: TargetState) -> None:
    """The story: a pause was forgotten, and no alert on lag could see it, since no worker told a lag any more."""
    (rule,) = re.findall(r"- alert: Mm2pyFlowHeld\n +expr: .*\((\w+)\{status=~\"(.+)\"\}\) > 0\n", ALERTS)
    alert_of, alert_states = rule
    async with under_load(1) as (world, (process,)):
        assert of_flow(page_of(process.herder)) >= {"mm2py_lag_records", "mm2py_flow_state"}
        await held(world, state)
        process.kill()
        again = world.start()
        await world.until(lambda: states(world) == {state.lower()}, within_s=60)
        page = page_of(again.herder)
        assert of_flow(page) == {"mm2py_connector_starts_total"}
        (told,) = [one for one in page.labels(alert_of) if "MirrorSourceConnector" in one["connector"]]
        assert told["status"] == state.lower()
        assert told["status"] in alert_states.split("|")
        await resumed(world, within_s=60)


def of_flow(page: Page) -> set[str]:
    """Return the names of mm2py's own series of the flow."""
    return {one.name for one in page.samples if one.labels.get("flow") == str(FLOW)}


async def test_asking_for_the_present_state_writes_nothing() -> None:
    async with under_load(1) as (world, _):
        end = len(world.target.records(TOPIC, 0))
        await direct(world, TargetState.STARTED)
        assert len(world.target.records(TOPIC, 0)) == end
        for _ in range(2):
            await direct(world, TargetState.PAUSED)
        assert len(world.target.records(TOPIC, 0)) == end + 2, "the state, and its entry in the history"
        await direct(world, TargetState.STARTED)


async def test_a_worker_that_joins_while_the_flow_is_paused_gets_its_part_at_once() -> None:
    async with under_load(1) as (world, _):
        await held(world, TargetState.PAUSED)
        newcomer = world.start()
        await world.until(lambda: world.is_fully_assigned() and bool(newcomer.owns(FLOW)), within_s=10)
        await nothing_is_copied(world)
        assert states(world) == {"paused"}
        await resumed(world)


async def test_a_worker_stopped_while_the_flow_is_paused_leaves_in_order() -> None:
    async with under_load(2) as (world, processes):
        await held(world, TargetState.PAUSED)
        assert await processes[0].stop() == 0
        await world.until(world.is_fully_assigned, within_s=10)
        await nothing_is_copied(world, 5)
        await resumed(world)
    assert not any(process.said("member.fenced") for process in processes)


async def test_a_worker_whose_last_requests_have_no_answer_is_fenced_before_its_partitions_move_while_paused() -> None:
    """Else a request that arrives late would stand among the records of the next owner."""
    async with under_load(2) as (world, processes):

        def late(cluster: str, request: Request) -> float:
            to_copies = isinstance(request, ProduceRequest) and request.topics[0].name.startswith("A.t")
            return 90.0 if cluster == "B" and to_copies else 0.0

        first = processes[0]
        first.late_s = late
        await asyncio.sleep(1)
        await direct(world, TargetState.PAUSED)
        await world.until(lambda: states(world) == {"paused"}, within_s=120)
        first.late_s = lambda *_: 0.0
        await world.until(lambda: bool(processes[1].said("member.fenced") or first.said("member.fenced")))
        await world.until(world.is_fully_assigned, within_s=20)
        await nothing_is_copied(world)
        await resumed(world, within_s=10)
        await asyncio.sleep(60)  # by then the last of them has arrived


async def test_a_flow_that_fails_again_and_again_is_paused_within_two_seconds() -> None:
    async with under_load(1) as (world, processes):
        world.target.denied_topics.add("mm2-offsets.A.internal")
        await world.until(lambda: len(processes[0].said("flow.failed")) > 5, within_s=300)
        await held(world, TargetState.PAUSED, within_s=10)
        world.target.denied_topics.clear()
        await nothing_is_copied(world)
        await resumed(world, within_s=10)


async def test_paused_heartbeats_are_not_emitted_and_the_flow_goes_on() -> None:
    def beats(world: SharedWorld) -> int:
        return len(world.target.records("heartbeats", 0))

    async with under_load(2, **{"emit.heartbeats.enabled": "true"}) as (world, _):
        await world.until(lambda: "heartbeats" in world.target.topics and beats(world) > 2)
        await direct(world, TargetState.PAUSED, Kind.HEARTBEAT)
        await asyncio.sleep(FOLLOWED_S)
        before, records = beats(world), copied(world)
        await asyncio.sleep(10)
        assert beats(world) == before
        assert copied(world) > records
        await direct(world, TargetState.STARTED, Kind.HEARTBEAT)
        await world.until(lambda: beats(world) > before, within_s=4)


async def test_junk_under_the_key_of_a_target_state_changes_nothing() -> None:
    async with under_load(1) as (world, _):
        key = b"target-state-MirrorSourceConnector"
        await held(world, TargetState.PAUSED)
        junk = [b"", b"no JSON", b"[]", b"{}", b'{"state.v2":"LOST"}', b'{"state":7}', b'{"state.v2":null}']
        await put(world, *((key, value) for value in junk))
        await nothing_is_copied(world)
        await put(world, (key, b'{"state":"STARTED"}'))  # by an older Connect
        await world.until(lambda: states(world) == {"running"}, within_s=FOLLOWED_S)
        await put(world, (key, b'{"state":"PAUSED","state.v2":7}'))
        await world.until(lambda: states(world) == {"paused"}, within_s=FOLLOWED_S)
        await put(world, (key, None))
        await world.until(lambda: states(world) == {"running"}, within_s=FOLLOWED_S)
