"""Two flows that lead back and forth under the identity policy, in one file: at most one of them is on."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import cast

from mm2py.cli.plan import Connected, plan_of_file
from mm2py.config.configuration import SettingsFile
from mm2py.config.properties import Properties, PropertyEntry
from mm2py.config.settings import ClusterSettings
from mm2py.connector_offsets.turning import Turned, TurnedFlow, turn_off, turn_on, turned_flow
from mm2py.flow import Flow, parse_flow
from mm2py.flow_plan.planned import PlannedFlow
from mm2py.records.direction_record import Direction, DirectionState
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.status.inquiry import Inquiry
from mm2py.status.report import Report, report_of
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.scenarios.process import Process
from tests.scenarios.settings.test_plan_command import Line
from tests.scenarios.settings.test_status_command import Link
from tests.scenarios.world import World

THERE, BACK = parse_flow("A->B"), parse_flow("B->A")
BY = "ann (mm2py dr)"


class TurnWorld(World):
    """Clusters A and B, and workers of one file with both flows; topic ``orders`` has two partitions on A."""

    def __init__(self, seed: int = 1, **extra: str) -> None:
        super().__init__(seed)
        lines = {
            "clusters": "A,B",
            "A.bootstrap.servers": "a:1",
            "B.bootstrap.servers": "b:1",
            "A->B.enabled": "true",
            "B->A.enabled": "true",
            "B->A.standby": "true",
            "replication.policy.class": "IdentityReplicationPolicy",
            "offset.storage.partitions": "3",
            "offset.flush.interval.ms": "1000",
            "topics": "orders.*",
            **extra,
        }
        entries = {key: PropertyEntry(value, key, number) for number, (key, value) in enumerate(lines.items(), 1)}
        self.settings_file = SettingsFile(Path("mm2.properties"), Properties(entries), ())
        self.number = 0
        self.source.create_topic("orders", 2)

    @property
    def both(self) -> dict[str, ClusterModel]:
        return {"A": self.source, "B": self.target}

    def run(self, *into: str, file: SettingsFile | None = None) -> Process:
        """Start a worker of both flows, or only of those into some clusters."""
        whole = file or self.settings_file
        chosen = SettingsFile(whole.path, whole.properties, into)
        process = Process(self, len(self.processes) + 1, chosen, self.both)
        self.processes.append(process)
        return process

    def write(self, cluster: ClusterModel, count: int = 3, topic: str = "orders") -> None:
        """Let a client write records; each has a value of its own."""
        for partition in cluster.topics[topic].partitions:
            for _ in range(count):
                self.number += 1
                cluster.append(topic, partition.index, [Record(value=f"{cluster.name}{self.number}".encode())])

    def values(self, cluster: ClusterModel, topic: str = "orders") -> Counter[bytes]:
        """Return how often each record is in a topic."""
        if topic not in cluster.topics:
            return Counter()
        numbers = [one.index for one in cluster.topics[topic].partitions]
        return Counter(one.value or b"" for number in numbers for one in cluster.records(topic, number))

    def is_same(self) -> bool:
        """Whether both clusters have the same records, each once."""
        a, b = self.values(self.source), self.values(self.target)
        return a == b and set(a.values()) <= {1}

    async def until(self, reached: Callable[[], bool], *, within_s: float = 60.0) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not reached():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(self.log_text.getvalue()[-6000:]) from None

    async def stays(self, held: Callable[[], bool], *, for_s: float = 15.0) -> None:
        for _ in range(int(for_s * 5)):
            assert held(), self.log_text.getvalue()[-6000:]
            await asyncio.sleep(0.2)

    def states(self, flow: Flow) -> list[str]:
        return [
            one.state
            for process in self.processes
            if process.is_up
            for one in process.herder.status()
            if one.flow == flow
        ]

    def said(self, event: str) -> Iterable[str]:
        return [line.get("why", "") for process in self.processes for line in process.said(event)]

    # Turns

    async def _turned(self, flow: Flow, file: SettingsFile | None) -> TurnedFlow:
        file = file or self.settings_file
        configuration = file.configuration()
        (settings,) = [one for one in configuration.flows if one.flow == flow]
        return await turned_flow(
            file,
            settings,
            configuration.groups[flow.target],
            source=self.both[flow.source],
            target=self.both[flow.target],
            clock=self.clock,
            rng=random.Random(self.rng.random()),
        )

    async def off(self, flow: Flow, *, file: SettingsFile | None = None, by: str = BY) -> Turned:
        return await turn_off(await self._turned(flow, file), by=by)

    async def on(self, flow: Flow, *, force: bool = False, file: SettingsFile | None = None) -> Turned:
        here = await self._turned(flow, file)
        back = None if here.settings.flow_back is None else here.settings.flow_back.flow
        return await turn_on(here, None if back is None else await self._turned(back, file), by=BY, force=force)

    async def turn(self, to: Flow) -> Turned:
        """Turn the other flow off, and this one on."""
        await self.off(THERE if to == BACK else BACK)
        return await self.on(to)

    async def write_state(self, flow: Flow, state: DirectionState) -> None:
        """Store a state of a flow, whatever the other is: no turn does that."""
        log = (await self._turned(flow, None)).log
        current = log.records.direction.current
        generation = 1 if current is None else current.generation + 1
        await log.turn(Direction(state, generation, "a mistake", 0), instead_of=current)

    async def stored(self, flow: Flow) -> str:
        """Return what is stored of a flow's direction."""
        table = ConfigTable(self.both[flow.target], f"mm2-configs.{flow.source}.internal")
        await table.read_patiently(random.Random(1))
        current = table.records.direction.current
        return "" if current is None else current.text

    async def plan(self) -> Sequence[PlannedFlow]:
        """Return what ``mm2py plan`` says, A->B first."""

        def connect(_: Flow, cluster: ClusterSettings, __: float, ___: random.Random) -> Connected:
            return cast("Connected", Line(self.both[cluster.alias], is_dead=False, is_throttled=False))

        found = await plan_of_file(self.settings_file, connect, self.clock)
        return sorted(found, key=lambda one: one.flow)

    async def report(self) -> Report:
        """Return what ``mm2py status`` says."""
        inquiry = Inquiry(
            self.settings_file,
            lambda _, cluster, __, ___: Link(self.both[cluster.alias], lambda *_: True),
            clock=self.clock,
            rng=random.Random(1),
        )
        report = report_of(await inquiry.look())
        await inquiry.close()
        return report
