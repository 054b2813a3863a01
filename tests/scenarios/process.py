"""One worker as ``mm2py FILE`` starts it, between two cluster models; a test can freeze, cut off and kill it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import json
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO, cast, overload

from kio.static.protocol import Payload

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import ClusterSettings
from mm2py.connector import Side
from mm2py.copying.reading.limits import MemoryBudget
from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.group.group import Group
from mm2py.group.member import Member
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerUnreachable, KafkaError
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest, ProduceReply, ProduceRequest, TopicPartition
from mm2py.logs import _one_line, _text_line, make_logger
from mm2py.records.control_record import TaskName
from mm2py_connectors.source.connector import SourceConnector
from mm2py_connectors.source.task.source_task import SourceTask
from mm2py_connectors.wiring import WorkerContext, make_herder
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.network_model import frozen
from tests.fakes.virtual_time import VirtualClock
from tests.scenarios.gate import Request
from tests.simulation.incarnation import Incarnation

if TYPE_CHECKING:
    from tests.scenarios.world import World

AT_LEAST_ONCE = ("producer.unfenced", "producer.degraded", "member.unfenced")
"""Log events by which a worker says that it cannot guarantee exactly-once."""


class MachineClock:
    """The clock of a worker whose machine may be suspended: its monotonic clock stands still meanwhile."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.slept_s = 0.0
        self._readings = 0

    def monotonic(self) -> float:
        self._readings += 1  # a clock must advance: a sleep for the rest that rounding leaves would never end
        return self._clock.monotonic() - self.slept_s + self._readings * 1e-10

    def boottime(self) -> float:
        return self._clock.monotonic()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


class Wire:
    """The connections of one worker to one cluster. A ``Brokers``."""

    def __init__(self, process: Process, cluster: ClusterModel, channels: str, timeout_s: float) -> None:
        self.name = cluster.name
        self._process = process
        self._cluster = cluster
        self._channels = channels
        self._timeout_s = timeout_s
        self._outside = contextvars.copy_context()

    @overload
    async def send(self, broker: BrokerId, request: FetchRequest, *, channel: str = ...) -> FetchReply: ...
    @overload
    async def send(self, broker: BrokerId, request: ProduceRequest, *, channel: str = ...) -> ProduceReply: ...
    @overload
    async def send(self, broker: BrokerId, request: Payload, *, channel: str = ...) -> Payload: ...

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        await self._pass()
        late_s = self._process.late_s(self._cluster.name, request)
        sending = asyncio.get_running_loop().create_task(
            self._send(broker, request, channel, late_s), name=f"{self._channels} {channel}", context=self._outside
        )
        reply = await sending
        await self._pass()
        return reply

    def round_trip_s(self, broker: BrokerId) -> float | None:
        return self._cluster.round_trip_s(broker)

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        self._cluster.close_channel(broker, f"{self._channels} {channel}")

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
        if self._process.incarnation.dead:
            await asyncio.get_running_loop().create_future()  # a killed worker waits until its cancellation is complete
        if self._cluster.name in self._process.cut_off_from:
            await asyncio.sleep(self._timeout_s)
            raise BrokerUnreachable(self._cluster.name, "no way there")


class LogStream(io.StringIO):
    """Turns JSON log lines into the text that an operator reads."""

    def __init__(self, text: TextIO) -> None:
        super().__init__()
        self._as_text = text

    def write(self, line: str) -> int:
        if line.strip():
            self._as_text.write(_text_line(None, "", _one_line(None, "", json.loads(line))) + "\n")
        return super().write(line)


class Process:
    """One worker: a process with its own clock, connections and log."""

    def __init__(
        self,
        world: World,
        number: int,
        file: SettingsFile,
        clusters: Mapping[str, ClusterModel],
        *,
        apply: bool = False,
        through: Callable[[Wire], Brokers] = lambda wire: wire,
        clock: Clock | None = None,
    ) -> None:
        """Args:
        through: what stands between this worker and a cluster.
        clock: its own clock, instead of the world's.
        """
        self.number = number
        self.name = f"w{number}"
        self.incarnation = Incarnation(number)
        self.clock = MachineClock(world.clock)
        self.cut_off_from: set[str] = set()
        self.late_s: Callable[[str, Request], float] = lambda *_: 0.0
        """Delay of a request, by the cluster's name. The request arrives even if the worker is gone by then."""
        self.slow_s: Callable[[str, Request], float] = lambda *_: 0.0
        """Delay until a request arrives which is then answered at once."""
        self.under_way: list[asyncio.Task[None]] = []
        self.budget = MemoryBudget(world.memory_max_bytes)
        self._world = world
        self.file = file
        self.clusters = clusters
        self._through = through
        self._text = LogStream(world.log_text)
        self._frozen_at_s: float | None = None
        self._suspended = False
        self._wires = 0
        context = WorkerContext(
            self._connect,
            clock or self.clock,
            random.Random(world.rng.random()),
            self.budget,
            make_logger("info", "json", self._text),
            name=self.name,
            metrics=world.metrics,
        )
        self.herder = make_herder(file, world.recopies, context, apply=apply)
        group = self.herder.groups.get(ClusterAlias("B"))
        assert group is None or isinstance(group, Group)
        self.group = group
        self.incarnation.begin(asyncio.get_running_loop(), self.herder.run())

    def _connect(self, flow: Flow, cluster: ClusterSettings, timeout_s: float) -> Side:
        self._wires += 1
        wire = Wire(self, self.clusters[cluster.alias], f"{self.number} {self._wires}", timeout_s)
        brokers = self._through(wire)

        async def identify() -> str | None:
            return (await fetch_metadata(brokers, [])).cluster_id

        return Side(ClusterAlias(cluster.alias), brokers, identify)

    # What the worker is

    @property
    def is_up(self) -> bool:
        return not (self.incarnation.dead or self.incarnation.over)

    @property
    def member(self) -> Member | None:
        """This worker as its group knows it, or None."""
        member = None if self.group is None else self.group.member
        return member if member is not None and member.takes_part else None

    @property
    def member_id(self) -> str:
        """The member id in its transactional ids: that of its membership now, or of the last one."""
        assert self.group is not None and self.group.member is not None
        return self.group.member.id

    def owns(self, flow: Flow) -> set[TopicPartition]:
        member = self.member
        if not self.is_up or member is None:
            return set()
        return set(member.ownership(flow).mine())

    def is_coordinator(self, flow: Flow) -> bool:
        member = self.member
        return self.is_up and member is not None and member.view.may_run(TaskName(flow, Kind.SOURCE), member.id)

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

    # What a test does to the worker

    def kill(self) -> None:
        """End the worker as kill -9 does: what it has sent may still arrive."""
        if self.is_up:
            self.incarnation.die(asyncio.get_running_loop())
            for cluster in self.clusters.values():
                cluster.hang_up(f"{self.number} ")

    @property
    def connector(self) -> SourceConnector | None:
        """The source connector that runs now, or ran last."""
        connector = self.herder.connectors[0].connector
        assert connector is None or isinstance(connector, SourceConnector)
        return connector

    @property
    def task(self) -> SourceTask | None:
        return None if self.connector is None else self.connector.task

    def freeze(self, *, suspended: bool = False) -> None:
        """Stop the process, or suspend its machine; a suspended machine also stops one of its clocks."""
        if self.is_up and self._frozen_at_s is None:
            self._frozen_at_s, self._suspended = self._world.clock.monotonic(), suspended
            self.incarnation.pause()

    def thaw(self) -> None:
        if self._frozen_at_s is not None:
            if self._suspended:
                self.clock.slept_s += self._world.clock.monotonic() - self._frozen_at_s
            self._frozen_at_s = None
            self.incarnation.go_on(asyncio.get_running_loop())

    async def stop(self) -> int:
        """Stop the worker as SIGTERM does, and return its exit code."""
        self.herder.stop()
        assert self.incarnation.task is not None
        await asyncio.wait({self.incarnation.task}, timeout=120)
        assert self.incarnation.over, f"{self.name} does not stop"
        return int(self.incarnation.task.result())
