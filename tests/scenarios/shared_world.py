"""Workers that share a flow. A test can start, freeze, cut off, stop and kill each of them at any time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from mm2py.kafka.port import TopicPartition
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.process import Process
from tests.scenarios.world import World
from tests.simulation.incarnation import SimulationLoop, tasks_left

SESSION_S = 3.0
BEAT_S = 0.5
GROWTH_EVERY_S = 0.02


def run(scenario: Coroutine[Any, Any, None], seed: int = 1, *, limit_s: float = 20_000) -> None:
    run_virtual(scenario, seed=seed, limit_s=limit_s, make_loop=SimulationLoop)


class SharedWorld(World):
    """Two clusters and the workers that replicate between them."""

    def __init__(self, seed: int = 1, *, nodes: int = 3, extra: Mapping[str, str] | None = None, **more: Any) -> None:
        replicas = str(min(3, nodes))
        lines = {
            "offset.flush.interval.ms": "1000",
            "replication.factor": replicas,
            "offset.storage.replication.factor": replicas,
            "status.storage.replication.factor": replicas,
            "config.storage.replication.factor": replicas,
        }
        super().__init__(seed, nodes=nodes, extra={**lines, **(extra or {})}, **more)
        self.flow = self.settings.flow
        self.number = 0
        self.pauses: dict[TopicPartition, float] = {}
        """The longest time without a copied record while traffic was on, by remote topic and partition."""

    def another_cluster(self, name: str) -> ClusterModel:
        return ClusterModel(name, self.clock, random.Random(self.rng.random()), nodes=3)

    def make_topics(self, topics: int, partitions: int) -> list[str]:
        names = [f"t{number}" for number in range(topics)]
        for name in names:
            self.source.create_topic(name, partitions)
            self.write(name, 3)
        return names

    def write(self, name: str, batches: int = 1) -> None:
        """Append batches to each partition of a topic that has a leader."""
        for partition in self.source.topics[name].partitions:
            if partition.leader not in self.source.nodes or not self.source.nodes[partition.leader].up:
                continue
            for _ in range(batches):
                self.number += 1
                record = Record(value=b"%d" % self.number, headers=(("id", b"%d" % self.number),))
                self.source.append(name, partition.index, [record])

    async def traffic(self, names: Collection[str], every_s: float = 0.1) -> None:
        while True:
            for name in names:
                self.write(name)
            await asyncio.sleep(every_s)

    async def watch(self) -> None:
        """Measure ``pauses`` until cancelled."""
        grown: dict[TopicPartition, tuple[int, float]] = {}
        while True:
            now_s = self.clock.monotonic()
            for name, topic in self.target.topics.items():
                if not name.startswith("A."):
                    continue
                for partition in topic.partitions:
                    batches = partition.log.batches
                    at = (name, partition.index)
                    size, since_s = grown.get(at, (0, now_s))
                    if any(not batch.control for batch in batches[size:]) or at not in grown:
                        self.pauses[at] = max(self.pauses.get(at, 0.0), now_s - since_s)
                        grown[at] = len(batches), now_s
            await asyncio.sleep(GROWTH_EVERY_S)

    @property
    def up(self) -> list[Process]:
        return [process for process in self.processes if process.is_up]

    def keys(self) -> set[TopicPartition]:
        """All partitions that must be copied."""
        return {
            (name, partition.index)
            for name, topic in self.source.topics.items()
            if name.startswith("t")
            for partition in topic.partitions
        }

    def owners(self) -> dict[TopicPartition, list[str]]:
        found: dict[TopicPartition, list[str]] = {}
        for process in self.processes:
            for key in process.owns(self.flow) & self.keys():
                found.setdefault(key, []).append(process.name)
        return found

    def is_fully_assigned(self) -> bool:
        """Whether each partition has exactly one owner, and together they own all."""
        owners = self.owners()
        members = {process.member.id for process in self.up if process.member is not None}
        agreed = all(
            process.member is not None and process.member.view.members.keys() == members for process in self.up
        )
        return agreed and owners.keys() == self.keys() and all(len(names) == 1 for names in owners.values())

    def is_copied(self) -> bool:
        return all(self._is_copied(name, f"A.{name}") for name in sorted({name for name, _ in self.keys()}))

    async def until(self, reached: Callable[[], bool], *, within_s: float = 60.0) -> float:
        """Wait for a condition, and return how long that took."""
        begun_s = self.clock.monotonic()
        while not reached():
            if self.clock.monotonic() - begun_s > within_s:
                raise AssertionError(f"seed {self.seed}: not within {within_s} s\n{self.logs()}")
            await asyncio.sleep(0.01)
        return self.clock.monotonic() - begun_s

    def logs(self, last: int = 60) -> str:
        lines = [(event["timestamp"], process.name, event) for process in self.processes for event in process.events]
        lines.sort(key=lambda line: line[0])
        return "\n".join(
            f"{at[11:23]} {name} {event.pop('event')} "
            + " ".join(f"{key}={value}" for key, value in event.items() if key not in {"timestamp", "level", "flow"})
            for at, name, event in lines[-last:]
        )

    @property
    def promises_once(self) -> bool:
        return all(process.promises_once for process in self.processes)

    def findings(self, *, exact: bool | None = None) -> list[str]:
        """Return all faults of the copy, and of the workers that made it."""
        exact = self.promises_once if exact is None else exact
        wrong = [f"complaint: {it!r}" for cluster in (self.source, self.target) for it in cluster.complaints]
        for name in sorted({name for name, _ in self.keys()}):
            wrong += [str(one) for verdict in self.judge(name, f"A.{name}", exact=exact) for one in verdict.findings]
        for process in self.processes:
            wrong += [
                f"{process.name}: {it}" for it in process.events if it["event"].endswith(".crashed") or "at" in it
            ]
            if not process.is_up and (left := tasks_left(process.incarnation)):
                wrong.append(f"{process.name} left tasks: {left}")
            ended = process.incarnation.task
            if ended is not None and ended.done() and not ended.cancelled() and ended.exception() is not None:
                wrong.append(f"{process.name} ended with {ended.exception()!r}")
        return wrong

    async def finish(self, *, within_s: float = 120.0) -> None:
        """Wait until all partitions are assigned and copied, and judge."""
        await self.until(lambda: self.is_fully_assigned() and self.is_copied(), within_s=within_s)
        await asyncio.sleep(2.0)
        wrong = self.findings()
        assert not wrong, f"seed {self.seed}: {wrong[:10]}\n{self.logs()}"
