"""One run: carries out a schedule on two cluster models under virtual time, and judges it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from mm2py.config.configuration import SettingsFile
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock, VirtualTimeStopped, run_virtual
from tests.scenarios.world import settings_file
from tests.simulation.actions import ClusterActions
from tests.simulation.history import POISON_MS, Traffic
from tests.simulation.incarnation import SimulationLoop
from tests.simulation.judgement import Judge
from tests.simulation.schedule import (
    FAR_LATENCY_S,
    NEAR_LATENCY_S,
    ClusterPlan,
    End,
    IncarnationPlan,
    Schedule,
    make_schedule,
)
from tests.simulation.worker import Worker

DEADLINE_S: Final = 900.0
"""Virtual time in which the last worker must finish the copy."""
OWNED_AGAIN_S: Final = 120.0
"""Time in which the last workers must own each partition. Transaction time-outs are the longest part."""
_LAST: Final = IncarnationPlan(0, 0.0, False, End.STOP, 0.0, 0, (), 0.0, {})


@dataclass(slots=True)
class Outcome:
    """The result of a seed. ``trace`` is the same whenever the seed is run."""

    seed: int
    virtual_s: float = 0.0
    owned_s: float = 0.0
    """How long it took after the faults ended until each partition had an owner."""
    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    trace: str = ""
    records: int = 0
    strict: bool = True
    """No duplicate is allowed."""

    @property
    def ok(self) -> bool:
        return not self.findings


def run_seed(seed: int) -> Outcome:
    """Run the schedule of a seed."""
    return run_schedule(make_schedule(seed))


def run_schedule(schedule: Schedule, *, show: bool = False) -> Outcome:
    """Run a schedule; ``show`` prints the logs of all its workers."""
    outcome = Outcome(schedule.seed)
    simulation = Simulation(schedule, outcome)
    try:
        run_virtual(
            simulation.run(),
            seed=schedule.seed,
            limit_s=schedule.lasts_s + DEADLINE_S + 3600.0,
            make_loop=SimulationLoop,
        )
    except VirtualTimeStopped as stopped:
        outcome.findings.append(f"{type(stopped).__name__}: {stopped}")
    if show:
        for worker in simulation.workers:
            for event in worker.events:
                print(worker.number, event)
    return outcome


class Simulation:
    """The parts of a run."""

    def __init__(self, schedule: Schedule, outcome: Outcome) -> None:
        self.schedule = schedule
        self.outcome = outcome
        self.workers: list[Worker] = []
        self._rng = random.Random(schedule.seed)
        self._clock = VirtualClock()
        self._trace = blake2b(digest_size=16)
        self.source, self.target = (
            self._cluster("A", schedule.source),
            self._cluster("B", schedule.target),
        )
        self._topics = {plan.name: plan for plan in schedule.topics}
        self.traffic = Traffic(self.source, self._topics, random.Random(self._rng.random()))
        self._actions = ClusterActions(self.source, self.target, self.traffic, self._topics, outcome.counts)
        self.judge = Judge(schedule, self.source, self.target, self.traffic, self.workers)

    def _cluster(self, name: str, plan: ClusterPlan) -> ClusterModel:
        rng = random.Random(self._rng.random())
        return ClusterModel(
            name,
            self._clock,
            rng,
            nodes=plan.nodes,
            broker_config=plan.broker_config,
            latency_s=FAR_LATENCY_S if plan.is_far else NEAR_LATENCY_S,
        )

    async def run(self) -> None:
        schedule, loop = self.schedule, asyncio.get_running_loop()
        self._make_topics()
        for _ in range(self._rng.choice([0, 20, 60])):
            self.traffic.write()
        self.source.inject(schedule.source.faults)
        self.target.inject(schedule.target.faults)
        for action in schedule.actions:
            loop.call_later(action.at_s, self._actions.do, action)
        others = [asyncio.create_task(self._write(), name="traffic"), *self._start_incarnations()]
        await asyncio.sleep(schedule.lasts_s)
        await self._end(others)
        self._heal()
        await self._finish()
        self._count()
        self.outcome.findings += self.judge.verdict()
        self.outcome.strict = self.judge.strict
        self.outcome.virtual_s = loop.time()
        self.outcome.trace = self._seal()

    def _make_topics(self) -> None:
        for plan in self.schedule.topics:
            configs = {"cleanup.policy": "compact"} if plan.compacted else {}
            if plan.poison:
                configs["message.timestamp.after.max.ms"] = str(1 << 62)
                self.target.create_topic(plan.remote, plan.partitions)
            self.source.create_topic(plan.name, plan.partitions, configs)

    def _file(self, plan: IncarnationPlan) -> SettingsFile:
        replicas = str(self.schedule.target.nodes)
        lines = {
            "emit.heartbeats.enabled": "false",
            "replication.factor": replicas,
            "offset.storage.replication.factor": replicas,
            "config.storage.replication.factor": replicas,
            **self.schedule.settings,
            **plan.settings,
        }
        return settings_file(tuple(sorted(lines.items())))

    def _worker(self, plan: IncarnationPlan) -> Worker:
        worker = Worker(
            len(self.workers) + 1,
            plan,
            self._file(plan),
            self.source,
            self.target,
            memory_max_bytes=self.schedule.memory_max_bytes,
            clock=self._clock,
            rng=random.Random(self._rng.random()),
            counts=self.outcome.counts,
            trace=self._trace,
        )
        self.workers.append(worker)
        return worker

    def _start_incarnations(self) -> Sequence[asyncio.Task[None]]:
        tasks: list[asyncio.Task[None]] = []
        begun: list[asyncio.Event] = []
        for number, plan in enumerate(self.schedule.incarnations):
            begun.append(asyncio.Event())
            follows = number > 0 and self.schedule.incarnations[number - 1].place == plan.place
            before = (begun[number - 1], tasks[number - 1]) if follows else None
            tasks.append(
                asyncio.create_task(self._live(plan, before, begun[number]), name=f"planned incarnation {number}")
            )
        return tasks

    async def _live(
        self, plan: IncarnationPlan, before: tuple[asyncio.Event, asyncio.Task[None]] | None, begun: asyncio.Event
    ) -> None:
        if before is not None and plan.beside:
            await before[0].wait()
        elif before is not None:
            await asyncio.wait({before[1]})
        await asyncio.sleep(plan.begins_s)
        worker = self._worker(plan)
        beside = [other for other in self.workers[:-1] if not other.incarnation.over]
        if beside:
            self.outcome.counts["worker started beside another"] += 1
            self.outcome.counts["worker started beside a paused one"] += any(
                other.incarnation.paused for other in beside
            )
        begun.set()
        await worker.run()

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(self._rng.expovariate(1.0 / self.schedule.writes_every_s))
            for _ in range(self._rng.choice([1, 1, 1, 8])):
                self.traffic.write()
            self.traffic.end_transactions()

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    def _heal(self) -> None:
        for cluster in (self.source, self.target):
            cluster.heal()
        for plan in self.schedule.topics:
            if plan.remote in self.target.topics:
                self.target.configure_topic(plan.remote, {"max.message.bytes": "1048588"})

    async def _finish(self) -> None:
        """Let one or two more workers finish the copy, and stop them in order."""
        lasts = [self._worker(_LAST) for _ in range(self._rng.choice([1, 2]))]
        self.judge.lasts = lasts
        for last in lasts:
            last.begin()
        begun_s = asyncio.get_running_loop().time()
        while self.traffic.is_open:
            await asyncio.sleep(0.5)
            self.traffic.end_transactions(all_of_them=True)
        owned_s: float | None = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not (self.judge.is_copied() and all(last.is_settled for last in lasts) and owned_s is not None):
                    if owned_s is None and self.judge.is_fully_assigned():
                        owned_s = asyncio.get_running_loop().time() - begun_s
                    await asyncio.sleep(0.5)
                    for at, last in enumerate(lasts):
                        if last.was_taken_over:
                            lasts[at] = self._worker(_LAST)
                            lasts[at].begin()
            await asyncio.sleep(3.0)
        except TimeoutError:
            self.outcome.findings.append(f"not copied within {DEADLINE_S:g} s: {self.judge.missing()}")
        if owned_s is None or owned_s > OWNED_AGAIN_S:
            self.outcome.findings.append(f"all partitions were owned again after {owned_s} s only")
        self.outcome.owned_s = owned_s or DEADLINE_S
        self.outcome.findings += self.judge.views()
        for last in lasts:
            await last.stop()
            if not last.incarnation.over:
                last.incarnation.die(asyncio.get_running_loop())  # type: ignore[arg-type]
                await asyncio.sleep(1.0)
        await asyncio.sleep(1.0)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            self.outcome.findings.append(f"tasks are left: {sorted(task.get_name() for task in rest)}")

    def _count(self) -> None:
        counts = self.outcome.counts
        for cluster in (self.source, self.target):
            for kind, times in cluster.counts.items():
                if not kind.startswith(("request ", "partitions ", "produce_error ")):
                    counts[kind] += times
        tables = [
            replica.table
            for topic in self.target.topics.values()
            for partition in topic.partitions
            for replica in partition.replicas.values()
        ]
        counts["producer forgotten"] += sum(table.expired for table in tables)
        counts["transactional id forgotten"] += self.target.coordinator.expired
        histories = self.traffic.history.values()
        counts["record refused for good"] += sum(
            record.timestamp_ms == POISON_MS for history in histories for record in history.records.values()
        )
        self.outcome.records = sum(len(history.records) for history in histories)

    def _seal(self) -> str:
        for worker in self.workers:
            for event in worker.events:
                event.pop("exception", None)
                self._trace.update(repr(sorted(event.items())).encode())
        for topic in self.target.topics.values():
            for partition in topic.partitions:
                for batch in partition.log.batches:
                    self._trace.update(batch.raw)
        return self._trace.hexdigest()
