"""Workers that copy under load while an operator asks something of their connectors."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace

from mm2py.flow import Kind
from mm2py.records.control_record import MemberId
from mm2py.records.operator_request import Restart, TargetState
from mm2py.shared_settings.config_log import ConfigTable
from tests.scenarios.config_world import FLOW, TOPIC, log_of
from tests.scenarios.process import Process
from tests.scenarios.shared_world import SharedWorld

FOLLOWED_S = 2.0
BY = "ann over REST"


async def direct(world: SharedWorld, state: TargetState, kind: Kind = Kind.SOURCE) -> None:
    log = await log_of(world, f"operator-{world.rng.random()}")
    await log.write_target(kind, state, by=BY)


async def restart(world: SharedWorld, wanted: Restart) -> None:
    log = await log_of(world, f"operator-{world.rng.random()}")
    await log.write_restart(replace(wanted, by=BY))


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
