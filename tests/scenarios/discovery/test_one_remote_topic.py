"""Two flows that lead into one remote topic: one of them owns it, and records are never mixed without a setting."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from mm2py.flow import parse_flow
from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.copying.test_unhealthy_sources import Condition, Scene, healthy, silent, slow, unreachable
from tests.scenarios.settings.test_settings_followed import apply
from tests.scenarios.shared_world import Process
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

C_B = parse_flow("C->B")
KEEPS_NAMES = {"replication.policy.class": "IdentityReplicationPolicy", "C->B.topics": "t0"}
PARTITIONS = 4


class Rivals(Scene):
    """A and C both have ``t0``, which keeps its name on B."""

    def __init__(self, extra: Mapping[str, str] | None = None) -> None:
        super().__init__(healthy, KEEPS_NAMES | (extra or {}))

    def make(self, *clusters: str) -> None:
        for name in clusters:
            cluster = self.world.source if name == "A" else self.other
            cluster.create_topic("t0", PARTITIONS)
            self.write(name)

    def write(self, name: str) -> None:
        for number in range(PARTITIONS):
            (self.world.source if name == "A" else self.other).append("t0", number, [name.encode()])

    def copied(self, partition: int) -> set[str]:
        """Return the clusters whose records stand in a partition of the copy."""
        if "t0" not in self.world.target.topics:
            return set()
        return {(record.value or b"").decode() for record in self.world.target.records("t0", partition)}

    def is_of(self, name: str) -> bool:
        """Whether all records of the copy come from one cluster."""
        return all(self.copied(number) == {name} for number in range(PARTITIONS))

    def empty(self, partition: int) -> None:
        """Let retention remove all records of a partition of the copy."""
        target = self.world.target
        target.delete_records("t0", partition, target.topics["t0"].partitions[partition].log.end_offset)

    async def copied_by_c(self) -> None:
        """C->B copies the topic; then no worker runs, and A gets a topic of that name."""
        self.make("C")
        first = self.start()
        await self.world.until(lambda: self.is_of("C"))
        assert await first.stop() == 0
        self.make("A")


class LeadersTaken:
    """The partitions of a target topic have no leader until ``give_back``."""

    def __init__(self, target: ClusterModel, topic: str) -> None:
        self._partitions = target.topics[topic].partitions
        self._kept = [(part.leader, part.replicas, part.isr) for part in self._partitions]
        for part in self._partitions:
            part.leader, part.replicas, part.isr = -1, [], []

    def give_back(self) -> None:
        for part, kept in zip(self._partitions, self._kept, strict=True):
            part.leader, part.replicas, part.isr = kept


def refused(*processes: Process) -> set[str]:
    return {line["flow"] for process in processes for line in process.said("topic.refused")}


@pytest.mark.parametrize(
    ("unhealthy", "workers", "emptied"), [(unreachable, 1, "not"), (silent, 2, "in part"), (slow, 2, "not")]
)
async def test_a_copy_with_records_is_refused_to_another_flow_while_the_source_of_the_first_is_unavailable(
    unhealthy: Condition, workers: int, emptied: str
) -> None:
    """Retention may have emptied a part of the copy."""
    scene = Rivals()
    world = scene.world
    await scene.copied_by_c()
    for number in range({"not": 0, "in part": 2}[emptied]):
        scene.empty(number)
    unhealthy(scene.other)
    processes = [scene.start() for _ in range(workers)]
    await world.until(lambda: refused(*processes) == {"A->B"})
    await asyncio.sleep(90)
    assert not any("A" in scene.copied(number) for number in range(PARTITIONS))
    assert refused(*processes) == {"A->B"}


async def test_an_empty_copy_goes_to_the_flow_that_is_listed_first_after_a_start() -> None:
    """C->B has copied the topic before, but C does not answer when the group starts again."""
    scene = Rivals()
    world = scene.world
    await scene.copied_by_c()
    for number in range(PARTITIONS):
        scene.empty(number)
    unreachable(scene.other)
    process = scene.start()
    await world.until(lambda: scene.is_of("A"))
    get_well(scene)
    scene.write("C")
    await world.until(lambda: refused(process) == {"C->B"}, within_s=120)
    await asyncio.sleep(60)
    assert scene.is_of("A")


@pytest.mark.parametrize("late_s", [0.0, 0.1, 1.0, 4.0])
async def test_of_two_flows_that_start_at_once_one_gets_all_partitions_whichever_a_worker_hears_first(
    late_s: float,
) -> None:
    scene = Rivals()
    scene.make("A", "C")
    processes = [scene.start(), scene.start()]
    for process, far in zip(processes, "CA", strict=True):
        process.slow_s = lambda name, _request, far=far: late_s if name == far else 0.0  # type: ignore[misc]
    await scene.world.until(lambda: scene.is_of("A") or scene.is_of("C"), within_s=300)
    for name in "AC":
        scene.write(name)
    await asyncio.sleep(60)
    assert scene.is_of("A") or scene.is_of("C")
    assert refused(*processes) == {"C->B" if scene.is_of("A") else "A->B"}


@pytest.mark.parametrize("unhealthy", [unreachable, silent, slow])
async def test_the_second_flow_is_refused_also_after_a_leader_and_the_coordinator_have_died(
    unhealthy: Condition,
) -> None:
    scene = Rivals()
    world = scene.world
    scene.make("A", "C")
    unhealthy(scene.other)
    processes = [scene.start() for _ in range(3)]
    await world.until(lambda: scene.is_of("A"))
    next(process for process in world.up if process.is_leader).kill()
    await world.until(lambda: any(process.is_coordinator(world.flow) for process in world.up))
    next(process for process in world.up if process.is_coordinator(world.flow)).kill()
    get_well(scene)
    scene.write("A")
    await world.until(lambda: "C->B" in refused(*processes))
    await asyncio.sleep(60)
    assert scene.is_of("A")


def get_well(scene: Scene) -> None:
    for node, state in scene.other.nodes.items():
        if not state.up:
            scene.other.start_broker(node)
    scene.other._latency_s = lambda: 0.001


async def test_a_disabled_flow_owns_no_remote_topic() -> None:
    scene = Rivals()
    world = scene.world
    scene.make("C")
    process = scene.start()
    await world.until(lambda: scene.is_of("C"))
    scene.make("A")
    await world.until(lambda: refused(process) == {"A->B"})
    for number in range(PARTITIONS):
        scene.empty(number)
    await apply(world, C_B, enabled="false")
    await world.until(lambda: scene.is_of("A"), within_s=60)


@pytest.mark.parametrize("mixing", ["A", "C", "AC"])
async def test_flows_are_mixed_only_if_each_of_them_is_told_to(mixing: str) -> None:
    scene = Rivals({f"{name}->B.many.to.one": "true" for name in mixing})
    scene.make("A", "C")
    processes = [scene.start(), scene.start()]
    await asyncio.sleep(60)
    if len(mixing) == 2:
        assert all(scene.copied(number) == {"A", "C"} for number in range(PARTITIONS))
        assert not refused(*processes)
    else:
        assert scene.is_of("A") or scene.is_of("C")
        assert len(refused(*processes)) == 1


async def test_a_mixed_copy_goes_to_the_flow_that_is_listed_first_once_mixing_is_disabled() -> None:
    scene = Rivals({"many.to.one": "true"})
    world = scene.world
    scene.make("A", "C")
    first = scene.start()
    await world.until(lambda: all(scene.copied(number) == {"A", "C"} for number in range(PARTITIONS)))
    assert await first.stop() == 0
    world.extra["many.to.one"] = "false"
    second = world.start(C=scene.other, apply=True)
    await world.until(lambda: len(refused(second)) == 1)
    # Records of the other flow that expire before they are looked at would count as this one's.
    await world.until(lambda: bool(second.said("partitions.reconciled")))
    for number in range(PARTITIONS):
        scene.empty(number)
    scene.write("A")
    scene.write("C")
    await asyncio.sleep(60)
    assert len(refused(second)) == 1
    assert scene.is_of("C" if refused(second) == {"A->B"} else "A")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("away", [{"enabled": "false"}, {"topics": "none"}])
async def test_a_flow_that_was_disabled_for_a_while_resumes_with_its_topic(away: dict[str, str], workers: int) -> None:
    """Meanwhile A->B finds foreign records in the copy; it must not keep a claim on a topic that it may not copy."""
    scene = Rivals()
    world = scene.world
    await scene.copied_by_c()
    processes = [scene.start() for _ in range(workers)]
    await world.until(lambda: refused(*processes) == {"A->B"})
    await apply(world, C_B, **away)
    await asyncio.sleep(120)
    await apply(world, C_B, enabled="true", topics="t0")
    scene.write("C")
    await world.until(lambda: all(len(world.target.records("t0", number)) == 2 for number in range(PARTITIONS)))
    assert scene.is_of("C")


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_partly_empty_copy_goes_to_no_other_flow(workers: int) -> None:
    scene = Rivals()
    world = scene.world
    await scene.copied_by_c()
    processes = [scene.start() for _ in range(workers)]
    await world.until(lambda: refused(*processes) == {"A->B"})
    for number in (0, 2):
        scene.empty(number)
    await apply(world, C_B, enabled="false")
    await asyncio.sleep(120)
    assert [scene.copied(number) for number in range(PARTITIONS)] == [set(), {"C"}, set(), {"C"}]


async def test_a_deleted_copy_whose_source_is_gone_is_free() -> None:
    scene = Rivals()
    world = scene.world
    scene.make("C")
    process = scene.start()
    await world.until(lambda: scene.is_of("C"))
    scene.other.delete_topic("t0")
    await world.until(lambda: bool(process.said("topic.gone")), within_s=120)
    assert await process.stop() == 0
    world.target.delete_topic("t0")
    scene.make("A")
    scene.start()
    await world.until(lambda: scene.is_of("A"))


async def test_positions_of_another_remote_topic_name_block_no_flow() -> None:
    """A->B copied t0 to A.t0 before it kept names; t0 on B is C's, and stays so."""
    default = {"A->B.replication.policy.class": "DefaultReplicationPolicy"}
    scene = Rivals(default)
    world = scene.world
    scene.make("A", "C")
    first = scene.start()
    await world.until(lambda: scene.is_of("C") and world._is_copied("t0", "A.t0"))
    assert await first.stop() == 0
    world.extra["A->B.replication.policy.class"] = "IdentityReplicationPolicy"
    second = world.start(C=scene.other, apply=True)
    await world.until(lambda: refused(second) == {"A->B"})
    scene.write("C")
    await world.until(lambda: all(len(world.target.records("t0", number)) == 2 for number in range(PARTITIONS)))
    assert scene.is_of("C")


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_flow_that_can_never_start_a_topic_does_not_block_the_flow_that_can(workers: int) -> None:
    """``auto.offset.reset=none`` refuses the topic of one flow; C has a topic of that name only later."""
    scene = Rivals({"A->B.source.consumer.auto.offset.reset": "none"})
    scene.make("A")
    processes = [scene.start() for _ in range(workers)]
    await scene.world.until(lambda: refused(*processes) == {"A->B"})
    scene.make("C")
    await scene.world.until(lambda: scene.is_of("C"), within_s=120)
    assert refused(*processes) == {"A->B"}


@pytest.mark.parametrize("on_loss", ["recopy", "stop"])
async def test_a_position_of_a_deleted_copy_gives_no_right_to_its_successor(on_loss: str) -> None:
    """A->B copied t0 once. That copy was deleted, and C->B has copied t0 since."""
    scene = Rivals({"A->B.on.target.loss": on_loss, "C->B.topics": "none"})
    world = scene.world
    scene.make("A")
    first = scene.start()
    await world.until(lambda: scene.is_of("A"))
    assert await first.stop() == 0
    world.target.delete_topic("t0")
    scene.make("C")
    world.extra |= {"A->B.topics": "none", "C->B.topics": "t0"}
    second = world.start(C=scene.other, apply=True)
    await world.until(lambda: scene.is_of("C"))
    assert await second.stop() == 0
    world.extra["A->B.topics"] = "t0"
    unreachable(scene.other)
    third = world.start(C=scene.other, apply=True)
    await world.until(lambda: refused(third) == {"A->B"})
    get_well(scene)
    scene.write("C")
    await world.until(lambda: all(len(world.target.records("t0", number)) == 2 for number in range(PARTITIONS)))
    assert refused(third) == {"A->B"}
    assert scene.is_of("C")


async def test_a_flow_that_created_a_remote_topic_but_came_second_does_not_take_the_records_of_the_first() -> None:
    """A->B creates t0 on B, which has no leader for a while; meanwhile C->B is listed."""
    scene = Rivals()
    world = scene.world
    processes = [scene.start(), scene.start()]
    await world.until(lambda: len(world.up) == 2 and any(process.is_coordinator(world.flow) for process in processes))
    await asyncio.sleep(5)
    made_by_a = asyncio.create_task(world.until(lambda: "t0" in world.target.topics))
    scene.make("A")
    await made_by_a
    leaders = LeadersTaken(world.target, "t0")
    scene.make("C")
    await asyncio.sleep(10)
    leaders.give_back()
    await world.until(lambda: scene.is_of("A") or scene.is_of("C"))
    first, second = ("A", "C") if scene.is_of("A") else ("C", "A")
    await world.until(lambda: refused(*processes) == {f"{second}->B"})
    await apply(world, parse_flow(f"{first}->B"), enabled="false")
    await asyncio.sleep(120)
    assert scene.is_of(first)
