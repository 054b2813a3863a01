"""Whole workers that share a flow, each held in one hand: begun, frozen, cut off, stopped and killed at any time."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import json
import random
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, cast

from connectors.composition import Means, Sharing, make_herder
from mm2py.config.settings import ClusterSettings
from mm2py.connector import Kind, Side
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerUnreachable, KafkaError
from mm2py.kafka.port import BrokerId, Brokers, ProduceRequest
from mm2py.logs import make_logger
from mm2py.records.control_record import Share
from mm2py.replication.memory import MemoryBudget
from mm2py.worker.group import Group
from mm2py.worker.member import Member
from tests.fakes.broker_model import ClusterModel
from tests.fakes.network_model import frozen
from tests.fakes.record_batch import Record
from tests.fakes.virtual_time import VirtualClock, run_virtual
from tests.scenarios.gate import Request
from tests.scenarios.world import World, configuration, settings_file
from tests.simulation.life import Life, SimulationLoop, tasks_left

SESSION_S = 3.0
BEAT_S = 0.5
GROWTH_EVERY_S = 0.02
QUIET = {"emit.heartbeats.enabled": "false", "offset.flush.interval.ms": "1000"}
AT_LEAST_ONCE = ("writer.unfenced", "producer.degraded", "member.unfenced")
"""What a worker says that cannot promise that each record is there once."""

Key = tuple[str, int]


def run(scenario: Coroutine[Any, Any, None], seed: int = 1, *, limit_s: float = 20_000) -> None:
    run_virtual(scenario, seed=seed, limit_s=limit_s, make_loop=SimulationLoop)


class MachineClock:
    """The clock of a worker whose machine may sleep: meanwhile its monotonic clock stands still."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.slept_s = 0.0
        self._readings = 0

    def monotonic(self) -> float:
        self._readings += 1  # a clock moves on: else who sleeps for a rest that rounding left would never wake
        return self._clock.monotonic() - self.slept_s + self._readings * 1e-10

    def boottime(self) -> float:
        return self._clock.monotonic()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


class Wire:
    """One worker's way to one cluster, on connections of its own. A ``Brokers``."""

    def __init__(self, process: Process, cluster: ClusterModel, channels: str, timeout_s: float) -> None:
        self._process = process
        self._cluster = cluster
        self._channels = channels
        self._timeout_s = timeout_s
        self._outside = contextvars.copy_context()

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        await self._pass()
        late_s = self._process.late_s(self._cluster.name, request)
        sending = asyncio.get_running_loop().create_task(
            self._send(broker, request, channel, late_s), name=f"{self._channels} {channel}", context=self._outside
        )
        reply = await sending
        await self._pass()
        return reply

    async def _send(self, broker: BrokerId, request: Request, channel: str, late_s: float) -> object:
        timeout_s = min(self._timeout_s, self._cluster.request_timeout_s)
        if late_s:
            request = frozen(request) if isinstance(request, ProduceRequest) else request
            later = asyncio.create_task(self._send_late(broker, request, late_s), name="late")
            self._process.under_way.append(later)
            await asyncio.sleep(timeout_s)
            raise BrokerUnreachable(self._cluster.name, f"no answer within {timeout_s} s")
        if slow_s := self._process.slow_s(self._cluster.name, request):
            request = frozen(request) if isinstance(request, ProduceRequest) else request
            await asyncio.sleep(slow_s)
        name = f"{self._channels} {channel}"
        return await self._cluster.send(broker, cast("Any", request), channel=name, timeout_s=timeout_s)

    async def _send_late(self, broker: BrokerId, request: Request, late_s: float) -> None:
        await asyncio.sleep(late_s)
        with contextlib.suppress(KafkaError):
            await self._cluster.send(broker, cast("Any", request), channel=f"late {self._channels} {late_s}")

    async def _pass(self) -> None:
        if self._process.life.dead:
            await asyncio.get_running_loop().create_future()  # whoever is dead waits for the cancellation under way
        if self._cluster.name in self._process.cut_off_from:
            await asyncio.sleep(self._timeout_s)
            raise BrokerUnreachable(self._cluster.name, "no way there")


class Process:
    """One worker: a process with a clock, connections and a log of its own."""

    def __init__(
        self,
        world: SharedWorld,
        number: int,
        extra: Mapping[str, str],
        clusters: Mapping[str, ClusterModel],
        *,
        apply: bool = False,
    ) -> None:
        self.number = number
        self.name = f"w{number}"
        self.life = Life(number)
        self.clock = MachineClock(world.clock)
        self.cut_off_from: set[str] = set()
        self.late_s: Callable[[str, Request], float] = lambda *_: 0.0
        """How long a request is on its way, by the cluster's name. It arrives also when the worker is gone by then."""
        self.slow_s: Callable[[str, Request], float] = lambda *_: 0.0
        """How long a request takes to get there that is answered then."""
        self.under_way: list[asyncio.Task[None]] = []
        self.budget = MemoryBudget(96 << 20)
        self._world = world
        self._clusters = clusters
        self._text = io.StringIO()
        self._frozen_at_s: float | None = None
        self._suspended = False
        self._wires = 0
        lines = tuple(sorted({**QUIET, **world.extra, **extra}.items()))
        means = Means(
            self._connect,
            self.clock,
            random.Random(world.rng.random()),
            self.budget,
            make_logger("info", "json", self._text),
            name=self.name,
        )
        self.herder = make_herder(
            configuration(lines),
            world.recopies,
            means,
            Sharing(settings_file(lines), apply) if world.shares_settings else None,
        )
        group = self.herder._groups.get(ClusterAlias("B"))
        assert group is None or isinstance(group, Group)
        self.group = group
        self.life.begin(_loop(), self.herder.run())

    def _connect(self, flow: Flow, cluster: ClusterSettings, timeout_s: float) -> Side:
        self._wires += 1
        brokers = cast("Brokers", Wire(self, self._clusters[cluster.alias], f"{self.number} {self._wires}", timeout_s))

        async def identify() -> str | None:
            return (await fetch_metadata(brokers, [])).cluster_id

        return Side(ClusterAlias(cluster.alias), brokers, identify)

    # What it is

    @property
    def is_up(self) -> bool:
        return not (self.life.dead or self.life.over)

    @property
    def member(self) -> Member | None:
        """The member that it is of its group, if its group knows it."""
        member = None if self.group is None else self.group.member
        return member if member is not None and member.takes_part else None

    def owns(self, flow: Flow) -> set[Key]:
        member = self.member
        if not self.is_up or member is None:
            return set()
        return set(member.shares(flow).mine())

    def is_head(self, flow: Flow) -> bool:
        member = self.member
        return self.is_up and member is not None and member.view.may_run(Share(flow, Kind.SOURCE), member.id)

    @property
    def is_leader(self) -> bool:
        return self.is_up and self.member is not None and self.member.is_leader

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._text.getvalue().splitlines()]

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.events if line["event"] == event]

    @property
    def promises_once(self) -> bool:
        guarantees = [line["guarantee"] for line in self.said("flow.ready")]
        guarantees += [flow.guarantee for flow in self.herder.status() if flow.guarantee]
        return not any(map(self.said, AT_LEAST_ONCE)) and not any(
            text.startswith("at-least-once") for text in guarantees
        )

    # What is done to it

    def kill(self) -> None:
        """End it as kill -9 does: what it had sent may still arrive."""
        if self.is_up:
            self.life.die(_loop())
            for cluster in self._clusters.values():
                cluster.hang_up(f"{self.number} ")

    def freeze(self, *, suspended: bool = False) -> None:
        """Stop its process; or suspend its machine, and with it one of its clocks."""
        if self.is_up and self._frozen_at_s is None:
            self._frozen_at_s, self._suspended = self._world.clock.monotonic(), suspended
            self.life.pause()

    def thaw(self) -> None:
        if self._frozen_at_s is not None:
            if self._suspended:
                self.clock.slept_s += self._world.clock.monotonic() - self._frozen_at_s
            self._frozen_at_s = None
            self.life.go_on(_loop())

    async def stop(self) -> int:
        """Stop it as SIGTERM does, and return its exit code."""
        self.herder.stop()
        assert self.life.task is not None
        await asyncio.wait({self.life.task}, timeout=120)
        assert self.life.over, f"{self.name} does not stop"
        return int(self.life.task.result())


class SharedWorld(World):
    """Two clusters, and workers that share the flow between them."""

    def __init__(self, seed: int = 1, *, nodes: int = 3, extra: Mapping[str, str] | None = None, **more: Any) -> None:
        replicas = str(min(3, nodes))
        self.extra = {
            "replication.factor": replicas,
            "offset.storage.replication.factor": replicas,
            "status.storage.replication.factor": replicas,
            **(extra or {}),
        }
        super().__init__(seed, nodes=nodes, extra=self.extra, **more)
        self.flow = self.settings.flow
        self.recopies: Mapping[Flow, set[str]] = {}
        self.shares_settings = False
        """Workers share their settings by the configs topic."""
        self.processes: list[Process] = []
        self.number = 0
        self.pauses: dict[Key, float] = {}
        """By remote topic and partition: the longest time in which nothing was copied, while traffic was on."""

    def start(
        self, extra: Mapping[str, str] | None = None, *, apply: bool = False, **clusters: ClusterModel
    ) -> Process:
        """Start a worker, whose file has ``extra`` lines; ``clusters`` are what it finds at other addresses.

        ``apply``: with ``--apply``.
        """
        all_clusters = {"A": self.source, "B": self.target, **clusters}
        process = Process(self, len(self.processes) + 1, extra or {}, all_clusters, apply=apply)
        self.processes.append(process)
        return process

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
        grown: dict[Key, tuple[int, float]] = {}
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

    def keys(self) -> set[Key]:
        """All partitions that are to be copied."""
        return {
            (name, partition.index)
            for name, topic in self.source.topics.items()
            if name.startswith("t")
            for partition in topic.partitions
        }

    def owners(self) -> dict[Key, list[str]]:
        found: dict[Key, list[str]] = {}
        for process in self.processes:
            for key in process.owns(self.flow) & self.keys():
                found.setdefault(key, []).append(process.name)
        return found

    def is_shared_out(self) -> bool:
        """Whether each partition is copied by one worker, and all by some."""
        owners = self.owners()
        members = {process.member.id for process in self.up if process.member is not None}
        agreed = all(
            process.member is not None and process.member.view.members.keys() == members for process in self.up
        )
        return agreed and owners.keys() == self.keys() and all(len(names) == 1 for names in owners.values())

    def is_copied(self) -> bool:
        return all(self._is_copied(name, f"A.{name}") for name, _ in self.keys())

    async def until(self, reached: Callable[[], bool], *, within_s: float = 60.0) -> float:
        """Wait for something, and return how long it took."""
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
        """Return all that is wrong with the copy, and with who made it."""
        exact = self.promises_once if exact is None else exact
        wrong = [f"complaint: {it!r}" for cluster in (self.source, self.target) for it in cluster.complaints]
        for name in sorted({name for name, _ in self.keys()}):
            wrong += [str(one) for verdict in self.judge(name, f"A.{name}", exact=exact) for one in verdict.findings]
        for process in self.processes:
            wrong += [
                f"{process.name}: {it}" for it in process.events if it["event"].endswith(".crashed") or "at" in it
            ]
            if not process.is_up and (left := tasks_left(process.life)):
                wrong.append(f"{process.name} left tasks: {left}")
            ended = process.life.task
            if ended is not None and ended.done() and not ended.cancelled() and ended.exception() is not None:
                wrong.append(f"{process.name} ended with {ended.exception()!r}")
        return wrong

    async def finish(self, *, within_s: float = 120.0) -> None:
        """Wait until all is shared out and copied, and judge."""
        await self.until(lambda: self.is_shared_out() and self.is_copied(), within_s=within_s)
        await asyncio.sleep(2.0)
        wrong = self.findings()
        assert not wrong, f"seed {self.seed}: {wrong[:10]}\n{self.logs()}"


def _loop() -> SimulationLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    return loop
