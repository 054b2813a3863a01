"""Where source partitions end that are not read just now."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from mm2py.copying.copied_partition import CopiedPartition, Leaders
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings
from mm2py.copying.planning.steps import TargetRules
from mm2py.copying.positions import Position
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import BrokerId, ProducerIdentity
from mm2py_connectors.source.task.lookups import LOOK_EVERY_S, SourceEnds
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.flow_context import make_context
from tests.fakes.shell import DeafShell
from tests.fakes.virtual_time import VirtualClock

SILENT = BrokerId(1)


class OneIsSilent:
    """A cluster of which one broker never answers."""

    def __init__(self, cluster: ClusterModel) -> None:
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if broker == SILENT:
            await asyncio.Event().wait()
        return await self._cluster.send(broker, request, channel=channel)


def copied(number: int, leader: BrokerId | None) -> CopiedPartition:
    copier = Copier(f"t-{number}", Position(0), ProducerIdentity(7, 0, "mm2py-test"), CopySettings(1 << 20))
    return CopiedPartition("t", "A.t", number, copier, TargetRules(1 << 20), DeafShell(), leaders=Leaders(leader))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_leader_that_is_silent_does_not_delay_the_ends_of_the_others(order: tuple[int, int]) -> None:
    cluster = ClusterModel("A", VirtualClock(), random.Random(1), nodes=2)
    cluster.create_topic("t", 2)
    await asyncio.sleep(1)
    topic = (await fetch_metadata(cluster, ["t"])).topics["t"]
    leaders = [topic.partitions[number].leader for number in range(2)]
    assert set(leaders) == {SILENT, BrokerId(2)}
    silent = leaders.index(SILENT)
    parts = [copied(number, leader) for number, leader in enumerate(leaders)]
    context = make_context(source=OneIsSilent(cluster))
    ends = SourceEnds(context, {parts[number].key: parts[number] for number in order})
    running = asyncio.create_task(ends.run())
    for count in (1, 2):
        cluster.append("t", 1 - silent, [b"v"])
        await asyncio.sleep(2 * LOOK_EVERY_S + 1)
        assert [part.asked.end for part in parts] == [0 if number == silent else count for number in range(2)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
