"""One incarnation of a whole worker: its own connections, memory and log, started and ended as its plan says."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import ClusterSettings
from mm2py.connector import Side
from mm2py.copying.reading.limits import MemoryBudget
from mm2py.copying.states import Reconciling
from mm2py.flow import ClusterAlias, Flow
from mm2py.group.group import Group
from mm2py.group.member import Member
from mm2py.kafka.cluster import fetch_metadata
from mm2py.logs import make_logger
from mm2py_connectors.source.connector import SourceConnector
from mm2py_connectors.wiring import WorkerContext, make_herder
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock
from tests.simulation.faulty_connection import Effects, FaultyConnection
from tests.simulation.incarnation import Incarnation, SimulationLoop
from tests.simulation.schedule import End, IncarnationPlan

COUNTED: Mapping[End, str] = {
    End.KILL: "worker killed",
    End.STOP: "worker stopped in order",
    End.CRASH_BEFORE: "crash before an effect",
    End.CRASH_SENT: "crash behind an effect",
    End.CRASH_ANSWERED: "crash after an effect",
    End.CANCEL: "cancelled at a resumption",
}


class Worker:
    """One worker of a run. ``events`` are the lines of its log, without their times."""

    def __init__(
        self,
        number: int,
        plan: IncarnationPlan,
        file: SettingsFile,
        source: ClusterModel,
        target: ClusterModel,
        *,
        memory_max_bytes: int,
        clock: VirtualClock,
        rng: random.Random,
        counts: Counter[str],
        trace: blake2b,
    ) -> None:
        self.number = number
        self.plan = plan
        self.budget = MemoryBudget(memory_max_bytes)
        self.incarnation = Incarnation(number, cancel_at=plan.count if plan.ends is End.CANCEL else None)
        self.overran = False
        """It did not stop within the time for a drain."""
        self._clusters = {"A": source, "B": target}
        self._connections = 0
        self._rng = rng
        self._trace = trace
        self._counts = counts
        self._text = io.StringIO()
        self._effects = Effects(self.incarnation, plan.ends, plan.count, self._die)
        context = WorkerContext(
            self._connect,
            clock,
            random.Random(rng.random()),
            self.budget,
            make_logger("info", "json", self._text),
            name=f"w{number}",
        )
        self.herder = make_herder(file, {}, context)
        group = self.herder.groups[ClusterAlias("B")]
        assert isinstance(group, Group)
        self.group = group

    def _connect(self, _: Flow, cluster: ClusterSettings, timeout_s: float) -> Side:
        self._connections += 1
        brokers = FaultyConnection(
            self._clusters[cluster.alias],
            self.incarnation,
            self._effects,
            channels=f"{self.number} {self._connections}",
            timeout_s=timeout_s,
            reorder=self.plan.reorder,
            rng=random.Random(self._rng.random()),
            counts=self._counts,
            trace=self._trace,
        )

        async def identify() -> str | None:
            return (await fetch_metadata(brokers, [])).cluster_id

        return Side(cluster.alias, brokers, identify)

    @property
    def member(self) -> Member | None:
        """This worker as its group knows it, or None."""
        member = self.group.member
        up = not (self.incarnation.dead or self.incarnation.over)
        return member if up and member is not None and member.takes_part else None

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._text.getvalue().splitlines()]
        return [{key: value for key, value in line.items() if key != "timestamp"} for line in lines]

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.events if line["event"] == event]

    @property
    def is_settled(self) -> bool:
        """Whether it knows how far previous incarnations copied: only then it can report losses."""
        connector = self.herder.connectors[0].connector
        task = connector.task if isinstance(connector, SourceConnector) else None
        states = [] if task is None else [part.copier.state for part in task.partitions.values()]
        looks_up = any(isinstance(state, Reconciling) and not state.owns_position for state in states)
        return task is not None and not looks_up

    @property
    def was_taken_over(self) -> bool:
        """Whether it was refused because the record of a killed incarnation arrived late and looks newer. An operator
        starts it again, as the error says.
        """
        return self.incarnation.over and any("has taken it over" in event["why"] for event in self.said("flow.refused"))

    def begin(self) -> asyncio.Task[Any]:
        return self.incarnation.begin(_loop(), self.herder.run())

    async def run(self) -> None:
        """Run as planned. Cancelling kills it."""
        running = self.begin()
        loop = _loop()
        pauses = [loop.call_later(after_s, self._pause, for_s) for after_s, for_s in self.plan.pauses]
        try:
            done, _ = await asyncio.wait({running}, timeout=self.plan.lasts_s)
            if done and self.incarnation.cancelled:
                self._counts[COUNTED[End.CANCEL]] += 1
            elif not done and self.plan.ends is End.STOP:
                self._counts[COUNTED[End.STOP]] += 1
                await self.stop()
        finally:
            for timer in pauses:
                timer.cancel()
            if not running.done():
                self._die(COUNTED[End.KILL])
            await asyncio.gather(running, return_exceptions=True)

    async def stop(self, deadline_s: float = 120.0) -> None:
        """Stop it as SIGTERM does and wait until it has drained."""
        assert self.incarnation.task is not None
        self.herder.stop()
        _, left = await asyncio.wait({self.incarnation.task}, timeout=deadline_s + 60.0 * len(self.plan.pauses))
        self.overran = bool(left)

    def _pause(self, for_s: float) -> None:
        if not self.incarnation.over:
            self._counts["worker paused"] += 1
            self.incarnation.pause()
            _loop().call_later(for_s, self.incarnation.go_on, _loop())

    def _die(self, counted: str) -> None:
        """Kill it at once; what it has sent may still arrive."""
        if self.incarnation.dead or self.incarnation.over:
            return
        self._counts[counted] += 1
        self.incarnation.die(_loop())
        for cluster in self._clusters.values():
            cluster.hang_up(f"{self.number} ")


def _loop() -> SimulationLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulationLoop)
    return loop
