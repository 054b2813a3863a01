"""One flow has an unhealthy source; another flow in the same workers must not notice."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.settings.test_settings_followed import apply, reach_all
from tests.scenarios.shared_world import Process, SharedWorld, run
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

DELAYED_MOST_S = 1.0
FLOWS = {
    "clusters": "A,B,C",
    "C.bootstrap.servers": "c:1",
    "C->B.enabled": "true",
    "config.storage.replication.factor": "1",
    "A->B.topics": "t0,t1",
}
NEVER_S = 1e6
Condition = Callable[[ClusterModel], None]


def healthy(cluster: ClusterModel) -> None:
    """The source answers."""


def unreachable(cluster: ClusterModel) -> None:
    """Nothing listens at the source's addresses."""
    for node in cluster.nodes:
        cluster.stop_broker(node, clean=False)


def silent(cluster: ClusterModel) -> None:
    """The source takes every request and answers none."""
    cluster._latency_s = lambda: NEVER_S


def slow(cluster: ClusterModel) -> None:
    """Every answer takes seconds, as under an exhausted quota."""
    rng = random.Random(1)
    cluster._latency_s = lambda: rng.uniform(2.0, 8.0)


class Scene:
    """Workers of A->B and C->B; C is unhealthy from the start."""

    def __init__(self, unhealthy: Condition, extra: Mapping[str, str] | None = None) -> None:
        self.world = SharedWorld(extra={**FLOWS, **(extra or {})})
        self.other = self.world.another_cluster("C")
        self.other.create_topic("c0", 2)
        unhealthy(self.other)

    def start(self) -> Process:
        return self.world.start(C=self.other)

    async def until_copied(self, *names: str, prefix: str = "A.") -> float:
        """Write to topics, and return how long it takes until all records are on the target."""
        for name in names:
            self.world.write(name)
        return await self.world.until(lambda: all(self.world._is_copied(name, prefix + name) for name in names))


def measured(unhealthy: Condition) -> dict[str, float]:
    took: dict[str, float] = {}

    async def scenario() -> None:
        scene = Scene(unhealthy)
        world = scene.world
        world.source.create_topic("t0", 6)
        scene.start()
        took["start"] = await scene.until_copied("t0")
        scene.start()
        await world.until(lambda: len(world.owners()) == 6 and all(process.owns(world.flow) for process in world.up))
        world.source.create_topic("t1", 6)
        took["new topic"] = await scene.until_copied("t1")
        world.source.create_topic("t2", 6)
        begun_s = world.clock.monotonic()
        version = await apply(world, topics="t0,t1,t2")
        await scene.until_copied("t2")
        await reach_all(world, version, within_s=10)
        took["change in place"] = world.clock.monotonic() - begun_s
        begun_s = world.clock.monotonic()
        await reach_all(world, await apply(world, **{"source.consumer.isolation.level": "read_committed"}), within_s=20)
        assert all(len(process.said("flow.changing")) == 1 for process in world.up)
        await scene.until_copied("t0", "t1", "t2")
        took["change that restarts the flow"] = world.clock.monotonic() - begun_s
        next(process for process in world.up if process.is_leader).kill()
        took["failover"] = await scene.until_copied("t0", "t1", "t2")
        assert not world.findings(), world.findings()

    run(scenario())
    return took


@pytest.mark.parametrize("unhealthy", [unreachable, silent, slow])
def test_an_unhealthy_source_delays_no_other_flow_by_a_second(unhealthy: Condition) -> None:
    alone, beside = measured(healthy), measured(unhealthy)
    assert beside.keys() == alone.keys()
    late = {what: (alone[what], beside[what]) for what in alone if beside[what] >= alone[what] + DELAYED_MOST_S}
    assert not late, late


@pytest.mark.parametrize("unhealthy", [unreachable, silent])
async def test_after_a_restart_topics_that_keep_their_names_resume_at_once_beside_an_unhealthy_source(
    unhealthy: Condition,
) -> None:
    """Both flows could copy into any topic, and A->B has copied t0."""

    async def restarted(scene: Scene) -> float:
        process = scene.start()
        took_s = await scene.until_copied("t0", prefix="")
        assert await process.stop() == 0
        return took_s

    scene = Scene(healthy, {"replication.policy.class": "IdentityReplicationPolicy", "C->B.topics": ".*"})
    world = scene.world
    world.source.create_topic("t0", 2)
    first = scene.start()
    await scene.until_copied("t0", prefix="")
    assert await first.stop() == 0
    began_s = await restarted(scene)
    unhealthy(scene.other)
    assert await restarted(scene) < began_s + DELAYED_MOST_S


@pytest.mark.parametrize("unhealthy", [unreachable, silent, slow])
async def test_topics_that_keep_their_names_start_at_once_beside_an_unhealthy_source_even_if_they_are_new(
    unhealthy: Condition,
) -> None:
    async def started_beside(how: Condition) -> float:
        scene = Scene(how, {"replication.policy.class": "IdentityReplicationPolicy", "C->B.topics": ".*"})
        scene.world.source.create_topic("t0", 2)
        scene.start()
        return await scene.until_copied("t0", prefix="")

    assert await started_beside(unhealthy) < await started_beside(healthy) + DELAYED_MOST_S
