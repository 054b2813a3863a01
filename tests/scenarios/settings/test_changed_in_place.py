"""All settings that change in place, some at a time, under load: no partition pauses for them.

On real brokers: tests/cluster/rest/test_changes_while_copying.py; pauses there are measured: bench/settings_pause.py.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from mm2py.config.flow_properties import ENABLED
from mm2py.shared_settings.flow_config import named
from tests.scenarios.settings.test_settings_followed import apply, reach_all, started, starts, traffic, world_of
from tests.scenarios.shared_world import GROWTH_EVERY_S
from tests.simulation.incarnation import SimulationLoop

AT_ONCE: Final = 6
QUIET_S: Final = 20.0
CHANGES: Final = {
    "topics": "t.*,other",
    "topics.exclude": "none",
    "heartbeats.replication.enabled": "false",
    "refresh.topics.enabled": "false",
    "refresh.topics.interval.seconds": "300",
    "topics.watch.interval.ms": "1000",
    "replication.factor": "2",
    "remote.partitions.max": "5000",
    "config.properties.exclude": "flush.ms",
    "use.defaults.from": "source",
    "sync.topic.configs.enabled": "false",
    "sync.topic.configs.interval.seconds": "60",
    "sync.topic.configs.dry.run": "true",
    "sync.topic.acls.enabled": "true",
    "sync.topic.acls.interval.seconds": "60",
    "sync.topic.acls.dry.run": "true",
    "remote.acls.max": "50",
    "bytes.per.second.max": "50000000",
    "connections.per.broker.max": "16",
    "source.consumer.fetch.max.bytes": "10000000",
    "source.consumer.max.partition.fetch.bytes": "500000",
    "source.consumer.fetch.min.bytes": "2",
    "source.consumer.fetch.max.wait.ms": "400",
    "producer.override.linger.ms": "1",
    "copy.mode": "pass",
    "copy.mode.pass.topics": "t0",
    "copy.mode.repack.topics": "t1",
    "on.source.gap": "stop",
    "on.target.loss": "recopy",
    "on.poison.record": "quarantine",
    "offset.flush.interval.ms": "500",
    "offset.storage.partitions": "7",
    "offset.storage.replication.factor": "2",
    "status.storage.partitions": "7",
    "status.storage.replication.factor": "2",
    "stall.timeout.ms": "10000",
    "emit.offset-syncs.enabled": "false",
    "offset.lag.max": "7",
    "offset-syncs.topic.location": "target",
    "offset-syncs.topic.replication.factor": "2",
    "groups": "g.*",
    "groups.exclude": "none",
    "refresh.groups.enabled": "false",
    "refresh.groups.interval.seconds": "300",
    "emit.checkpoints.enabled": "true",
    "emit.checkpoints.interval.seconds": "5",
    "checkpoints.topic.replication.factor": "2",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "5",
    "sync.group.offsets.rewind": "true",
    "emit.heartbeats.enabled": "true",
    "emit.heartbeats.interval.seconds": "5",
    "heartbeats.topic.replication.factor": "2",
}
"""A value for each, other than what it has before."""


def test_every_setting_that_changes_in_place_has_its_turn_below() -> None:
    assert CHANGES.keys() == named() - {ENABLED, "tasks.max"}, "tasks.max moves partitions to other workers"


@pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)
async def test_no_partition_pauses_longer_for_changes_in_place_than_in_an_equal_quiet_time() -> None:
    world = world_of()
    names = world.make_topics(2, 3)
    workers = await started(world, 2)
    async with traffic(world, names):
        await asyncio.sleep(5)
        world.pauses.clear()
        await asyncio.sleep(QUIET_S)
        quiet = {at: pause_s for at, pause_s in world.pauses.items() if at[0] in {f"A.{name}" for name in names}}
        assert len(quiet) == 6
        begun_s, left = world.clock.monotonic(), list(CHANGES.items())
        while left:
            some, left = dict(left[:AT_ONCE]), left[AT_ONCE:]
            world.pauses.clear()
            await reach_all(world, await apply(world, **some))
            await asyncio.sleep(0.5)
            longer = {at: world.pauses[at] for at in quiet if world.pauses[at] > quiet[at] + GROWTH_EVERY_S}
            assert not longer, f"by {sorted(some)}; in the quiet time it was {quiet}"
        assert world.clock.monotonic() - begun_s < QUIET_S
    assert starts(world) == [1, 1]
    assert not any(process.said("flow.changing") for process in workers)
    await world.finish()
    assert world.promises_once
