"""An operator pauses topics and partitions of workers that copy under load, and what the status then says."""

from __future__ import annotations

import random
from typing import Any

from mm2py.config.settings import ClusterSettings
from mm2py.flow import Flow
from mm2py.flow_clusters import Connected
from mm2py.kafka.port import BrokerId
from mm2py.records.author import Author
from mm2py.records.pause_record import PausedPart, parts_to_resume
from mm2py.status.facts import FlowFacts
from mm2py.status.inquiry import Inquiry
from mm2py.status.report import Report, report_of
from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.config_world import log_of
from tests.scenarios.shared_world import SharedWorld
from tests.scenarios.world import World

ANN = Author("ann", "host", "ticket 4711")
BY = ANN.by_command("mm2py pause")


async def pause(world: World, *parts: PausedPart) -> list[PausedPart]:
    log = await log_of(world, f"operator-{world.rng.random()}")
    return await log.write_pauses(parts, is_paused=True, by=BY, author=ANN)


async def resume(world: World, *parts: PausedPart) -> list[PausedPart]:
    log = await log_of(world, f"operator-{world.rng.random()}")
    await log.read_patiently(log.rng)
    ended = parts_to_resume(log.records.pauses, parts)
    return await log.write_pauses(ended, is_paused=False, by=BY, author=ANN)


def copied(world: World, topic: str, partition: int | None = None) -> int:
    """Return how many records a remote topic has, or one partition of it."""
    parts = world.target.topics[f"A.{topic}"].partitions
    numbers = range(len(parts)) if partition is None else [partition]
    return sum(len(world.target.records(f"A.{topic}", number)) for number in numbers)


class _Connection:
    """A connection of the status to a cluster model."""

    def __init__(self, cluster: ClusterModel) -> None:
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        return await self._cluster.send(broker, request, channel=f"status {channel}")

    async def close(self) -> None:
        pass


async def status_of(world: SharedWorld) -> tuple[FlowFacts, Report]:
    """Return what ``mm2py status`` finds out now."""

    def connect(flow: Flow, cluster: ClusterSettings, timeout_s: float, rng: random.Random) -> Connected:
        return _Connection(world.source if cluster.alias == "A" else world.target)  # type: ignore[return-value]

    inquiry = Inquiry(world.file({}), connect, clock=world.clock, rng=random.Random(3))
    try:
        facts = await inquiry.look()
    finally:
        await inquiry.close()
    return facts.flows[0], report_of(facts)
