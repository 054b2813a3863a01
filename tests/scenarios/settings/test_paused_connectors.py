"""An operator pauses, stops and resumes connectors under load, while workers join, die and restart."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from mm2py.connector import Kind
from mm2py.kafka.port import ProduceRequest
from mm2py.records.control_record import MemberId
from mm2py.records.operator_request import TargetState
from mm2py.shared_settings.config_log import ConfigTable
from tests.scenarios.config_world import FLOW, TOPIC, log_of, put
from tests.scenarios.gate import Request
from tests.scenarios.process import Process
from tests.scenarios.shared_world import SharedWorld, run

FOLLOWED_S = 2.0
BY = "ann over REST"


async def direct(world: SharedWorld, state: TargetState, kind: Kind = Kind.SOURCE) -> None:
    log = await log_of(world, f"operator-{world.rng.random()}")
    await log.write_target(kind, state, by=BY)


async def offset_of(world: SharedWorld) -> int:
    table = ConfigTable(world.target, TOPIC)
    await table.read_patiently(random.Random(1))
    return table.records.target_of(Kind.SOURCE).offset


def copied(world: SharedWorld) -> int:
    return sum(
        len(partition.log.batches)
        for name, topic in world.target.topics.items()
        if name.startswith("A.t")
        for partition in topic.partitions
    )


def states(world: SharedWorld) -> set[str]:
    return {status.state for process in world.up for status in process.herder.status()}


async def held(world: SharedWorld, state: TargetState, *, within_s: float = FOLLOWED_S) -> None:
    """Pause or stop the flow, and wait until all workers have followed and said so to their group."""
    await direct(world, state)
    await world.until(lambda: states(world) == {state.lower()}, within_s=within_s)
    offset = await offset_of(world)
    await world.until(lambda: set(said(world).values()) == {offset}, within_s=max(FOLLOWED_S, within_s))


def said(world: SharedWorld) -> dict[MemberId, int | None]:
    """Return which target state each member says that it has followed, as one of them reads it."""
    member = world.up[0].member
    if member is None:
        return {}
    return {name: one.held.get(FLOW) for name, one in member.view.members.items()}


async def resumed(world: SharedWorld, *, within_s: float = FOLLOWED_S) -> None:
    before = copied(world)
    await direct(world, TargetState.STARTED)
    await world.until(lambda: copied(world) > before, within_s=within_s)


async def nothing_is_copied(world: SharedWorld, for_s: float = 10.0) -> None:
    before = copied(world)
    await asyncio.sleep(for_s)
    assert copied(world) == before


@contextlib.asynccontextmanager
async def under_load(
    workers: int = 2, *, seed: int = 1, **extra: str
) -> AsyncIterator[tuple[SharedWorld, list[Process]]]:
    """Workers that copy while records come in; judged when the block is left."""
    world = SharedWorld(seed, extra={"config.storage.replication.factor": "1", **extra})
    names = world.make_topics(2, 3)
    processes = [world.start() for _ in range(workers)]
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    traffic = asyncio.ensure_future(world.traffic(names, 0.1))
    try:
        yield world, processes
    finally:
        traffic.cancel()
        await asyncio.gather(traffic, return_exceptions=True)
    await world.finish()


@pytest.mark.parametrize("state", [TargetState.PAUSED, TargetState.STOPPED])
def test_a_held_flow_writes_nothing_on_any_worker_and_resumes_behind_its_last_record(state: TargetState) -> None:
    async def scenario() -> None:
        async with under_load() as (world, processes):
            await asyncio.sleep(2)
            await held(world, state)
            await nothing_is_copied(world)
            (status,) = processes[0].herder.status()
            assert (status.state, status.reason) == (state.lower(), f"{state.lower()} by {BY}")
            assert world.is_fully_assigned()
            await resumed(world)
        assert not any(line["records"] for process in processes for line in process.said("partitions.reconciled"))

    run(scenario())


def test_a_stop_after_a_pause_is_said_by_all_workers_and_starts_nothing() -> None:
    async def scenario() -> None:
        async with under_load() as (world, _):
            await held(world, TargetState.PAUSED)
            before = copied(world)
            await held(world, TargetState.STOPPED)
            assert copied(world) == before
            await direct(world, TargetState.STARTED)
            await world.until(lambda: set(said(world).values()) == {None}, within_s=FOLLOWED_S)

    run(scenario())


def test_asking_for_the_present_state_writes_nothing() -> None:
    async def scenario() -> None:
        async with under_load(1) as (world, _):
            end = len(world.target.records(TOPIC, 0))
            await direct(world, TargetState.STARTED)
            assert len(world.target.records(TOPIC, 0)) == end
            for _ in range(2):
                await direct(world, TargetState.PAUSED)
            assert len(world.target.records(TOPIC, 0)) == end + 1
            await direct(world, TargetState.STARTED)

    run(scenario())


def test_a_worker_killed_while_the_flow_is_paused_loses_its_partitions_to_the_others() -> None:
    async def scenario() -> None:
        async with under_load(3) as (world, processes):
            await held(world, TargetState.PAUSED)
            processes[0].kill()
            await world.until(world.is_fully_assigned, within_s=20)
            await nothing_is_copied(world, 5)
            await resumed(world)

    run(scenario())


def test_a_worker_that_joins_while_the_flow_is_paused_gets_its_part_at_once() -> None:
    async def scenario() -> None:
        async with under_load(1) as (world, _):
            await held(world, TargetState.PAUSED)
            newcomer = world.start()
            await world.until(lambda: world.is_fully_assigned() and bool(newcomer.owns(FLOW)), within_s=10)
            await nothing_is_copied(world)
            assert states(world) == {"paused"}
            await resumed(world)

    run(scenario())


def test_a_worker_stopped_while_the_flow_is_paused_leaves_in_order() -> None:
    async def scenario() -> None:
        async with under_load(2) as (world, processes):
            await held(world, TargetState.PAUSED)
            assert await processes[0].stop() == 0
            await world.until(world.is_fully_assigned, within_s=10)
            await nothing_is_copied(world, 5)
            await resumed(world)
        assert not any(process.said("member.fenced") for process in processes)

    run(scenario())


def test_a_pause_outlives_a_restart_of_all_workers() -> None:
    async def scenario() -> None:
        async with under_load(2) as (world, processes):
            await held(world, TargetState.STOPPED)
            processes[0].kill()
            assert await processes[1].stop() in {0, 1}
            world.start()
            await world.until(lambda: states(world) == {"stopped"}, within_s=20)
            await nothing_is_copied(world)
            await resumed(world, within_s=20)

    run(scenario())


def test_a_flow_paused_before_its_first_start_copies_nothing_until_it_is_resumed() -> None:
    async def scenario() -> None:
        world = SharedWorld(1, extra={"config.storage.replication.factor": "1"})
        await direct(world, TargetState.PAUSED)
        world.make_topics(1, 2)
        world.start()
        await world.until(lambda: states(world) == {"paused"})
        await asyncio.sleep(10)
        assert "A.t0" not in world.target.topics
        await direct(world, TargetState.STARTED)
        await world.until(world.is_copied, within_s=5)
        await world.finish()

    run(scenario())


def test_a_worker_whose_last_requests_have_no_answer_is_fenced_before_its_partitions_move_while_paused() -> None:
    """Else a request that arrives late would stand among the records of the next owner."""

    async def scenario() -> None:
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

    run(scenario())


def test_a_flow_that_fails_again_and_again_is_paused_within_two_seconds() -> None:
    async def scenario() -> None:
        async with under_load(1) as (world, processes):
            world.target.denied_topics.add("mm2-offsets.A.internal")
            await world.until(lambda: len(processes[0].said("flow.failed")) > 5, within_s=300)
            await held(world, TargetState.PAUSED, within_s=10)
            world.target.denied_topics.clear()
            await nothing_is_copied(world)
            await resumed(world, within_s=10)

    run(scenario())


def test_paused_heartbeats_are_not_emitted_and_the_flow_goes_on() -> None:
    def beats(world: SharedWorld) -> int:
        return len(world.target.records("heartbeats", 0))

    async def scenario() -> None:
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

    run(scenario())


def test_paused_checkpoints_are_not_emitted_and_the_flow_goes_on() -> None:
    async def scenario() -> None:
        extra = {"emit.checkpoints.enabled": "true"}
        async with under_load(2, **extra) as (world, processes):
            await direct(world, TargetState.PAUSED, Kind.CHECKPOINT)
            await asyncio.sleep(FOLLOWED_S)
            checkpoints = [
                running
                for process in processes
                for running in process.herder.connectors
                if running.name.kind is Kind.CHECKPOINT
            ]
            assert [running.is_up for running in checkpoints] == [False, False]
            await direct(world, TargetState.STARTED, Kind.CHECKPOINT)
            await world.until(lambda: sum(running.is_up for running in checkpoints) == 1, within_s=FOLLOWED_S)

    run(scenario())


def test_junk_under_the_key_of_a_target_state_changes_nothing() -> None:
    async def scenario() -> None:
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

    run(scenario())
