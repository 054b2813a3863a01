"""Two flows that lead into one remote topic: one of them has it, whoever is faster, and none is mixed in unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from mm2py.flow import parse_flow
from tests.scenarios.shared_world import Process, run
from tests.scenarios.test_ill_sources import Ill, Scene, silent, slow, unreachable, well
from tests.scenarios.test_settings_followed import apply

C_B = parse_flow("C->B")
KEEPS_NAMES = {"replication.policy.class": "IdentityReplicationPolicy", "C->B.topics": "t0"}
PARTITIONS = 4


class Rivals(Scene):
    """A and C both have ``t0``, which keeps its name on B."""

    def __init__(self, extra: Mapping[str, str] | None = None) -> None:
        super().__init__(well, KEEPS_NAMES | (extra or {}))

    def make(self, *clusters: str) -> None:
        for name in clusters:
            cluster = self.world.source if name == "A" else self.other
            cluster.create_topic("t0", PARTITIONS)
            self.write(name)

    def write(self, name: str) -> None:
        for number in range(PARTITIONS):
            (self.world.source if name == "A" else self.other).append("t0", number, [name.encode()])

    def copied(self, partition: int) -> set[str]:
        """Return of which clusters records stand in a partition of the copy."""
        if "t0" not in self.world.target.topics:
            return set()
        return {(record.value or b"").decode() for record in self.world.target.records("t0", partition)}

    def is_of(self, name: str) -> bool:
        """Whether all of the copy is of one cluster."""
        return all(self.copied(number) == {name} for number in range(PARTITIONS))

    def empty(self, partition: int) -> None:
        """Let retention take all that is in a partition of the copy."""
        target = self.world.target
        target.delete_records("t0", partition, target.topics["t0"].partitions[partition].log.end_offset)

    async def copied_by_c(self) -> None:
        """Let C->B copy it; then nobody runs, and A gets a topic of that name."""
        self.make("C")
        first = self.start()
        await self.world.until(lambda: self.is_of("C"))
        assert await first.stop() == 0
        self.make("A")


def refused(*processes: Process) -> set[str]:
    return {line["flow"] for process in processes for line in process.said("topic.refused")}


@pytest.mark.parametrize("ill", [unreachable, silent, slow])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("emptied", ["not", "in part", "whole"])
def test_who_copied_a_topic_before_keeps_it_however_late_its_source_answers(
    ill: Ill, workers: int, emptied: str
) -> None:
    """Retention may have emptied the copy: it is C's nevertheless."""

    async def scenario() -> None:
        scene = Rivals()
        world = scene.world
        await scene.copied_by_c()
        for number in range({"not": 0, "in part": 2, "whole": PARTITIONS}[emptied]):
            scene.empty(number)
        ill(scene.other)
        processes = [scene.start() for _ in range(workers)]
        await world.until(lambda: refused(*processes) == {"A->B"})
        await asyncio.sleep(90)
        assert not any("A" in scene.copied(number) for number in range(PARTITIONS))
        assert refused(*processes) == {"A->B"}

    run(scenario())


@pytest.mark.parametrize("late_s", [0.0, 0.1, 1.0, 4.0])
def test_of_two_that_begin_at_once_one_has_all_of_it_though_each_worker_hears_another_one_first(late_s: float) -> None:
    async def scenario() -> None:
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

    run(scenario())


@pytest.mark.parametrize("ill", [unreachable, silent, slow])
def test_who_comes_later_is_refused_also_after_a_leader_and_the_head_have_died(ill: Ill) -> None:
    async def scenario() -> None:
        scene = Rivals()
        world = scene.world
        scene.make("A", "C")
        ill(scene.other)
        processes = [scene.start() for _ in range(3)]
        await world.until(lambda: scene.is_of("A"))
        next(process for process in world.up if process.is_leader).kill()
        await world.until(lambda: any(process.is_head(world.flow) for process in world.up))
        next(process for process in world.up if process.is_head(world.flow)).kill()
        get_well(scene)
        scene.write("A")
        await world.until(lambda: "C->B" in refused(*processes))
        await asyncio.sleep(60)
        assert scene.is_of("A")

    run(scenario())


def get_well(scene: Scene) -> None:
    for node, state in scene.other.nodes.items():
        if not state.up:
            scene.other.start_broker(node)
    scene.other._latency_s = lambda: 0.001


def test_a_flow_that_is_switched_off_has_nothing() -> None:
    async def scenario() -> None:
        scene = Rivals()
        world = scene.world
        await scene.copied_by_c()
        for number in range(PARTITIONS):
            scene.empty(number)
        process = scene.start()
        await world.until(lambda: refused(process) == {"A->B"})
        await apply(world, C_B, enabled="false")
        await world.until(lambda: scene.is_of("A"), within_s=60)

    run(scenario())


@pytest.mark.parametrize("mixing", ["A", "C", "AC"])
def test_flows_are_mixed_only_if_each_of_them_is_told_to(mixing: str) -> None:
    async def scenario() -> None:
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

    run(scenario())


def test_what_was_mixed_once_is_refused_to_all_who_copied_there_when_that_is_not_wanted_any_more() -> None:
    async def scenario() -> None:
        scene = Rivals({"many.to.one": "true"})
        scene.make("A", "C")
        first = scene.start()
        await scene.world.until(lambda: all(scene.copied(number) == {"A", "C"} for number in range(PARTITIONS)))
        assert await first.stop() == 0
        scene.world.extra["many.to.one"] = "false"
        second = scene.start()
        await scene.world.until(lambda: refused(second) == {"A->B", "C->B"})

    run(scenario())
