"""Several workers of one group on one broker model. Each has its own connections and its own clock."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

from mm2py.config.settings import GroupSettings
from mm2py.connector import Side
from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.group.control_topic import CHANNEL
from mm2py.group.election.backend import CandidateState
from mm2py.group.group import Group
from mm2py.group.leader_loop import GroupContext
from mm2py.group.member import Member
from mm2py.group.ownership import Ownership
from mm2py.group.refusal import GroupRefused
from mm2py.kafka.errors import BrokerUnreachable
from mm2py.kafka.port import BrokerId, Brokers, ProducerIdentity
from mm2py.kafka.producer.incarnation import OwnProducer
from mm2py.kafka.write_gate import IncarnationEnded
from mm2py.logs import make_logger
from mm2py.records.control_codec import NewerFormat, decode
from mm2py.records.control_record import ControlRecord, Joined, MemberId
from mm2py.topics.names import control_log
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.near_brokers import NearBrokers
from tests.fakes.virtual_time import DozingClock, VirtualClock
from tests.scenarios.gate import Request

FLOW = parse_flow("A->B")
OFFSETS = "mm2-offsets.A.internal"
STATUS = "mm2-status.A.internal"
TOPIC = control_log("g", producer_expiry_ms=86_400_000)
LOG = str(TOPIC.name)
SESSION_S = 3.0
BEAT_S = 0.5
REQUEST_TIMEOUT_S = 3.0


RecordT = TypeVar("RecordT", bound=ControlRecord)


class Wire(NearBrokers):
    """The connections of one worker to the cluster. They can be cut, and they stop while the worker is frozen."""

    def __init__(self, name: str, cluster: ClusterModel) -> None:
        self.runs = asyncio.Event()
        self.runs.set()
        self.is_cut = False
        self.held = ""
        """Requests on channels whose name starts with one of these are not sent."""
        self.holds_appends = False
        """No small batch is appended to the control log; reads still work."""
        self._name = name
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Request, *, channel: str = "control") -> object:
        await self.runs.wait()
        if self.is_cut:
            await asyncio.sleep(REQUEST_TIMEOUT_S)
            raise BrokerUnreachable("broker", "no way there")
        while (self.held and channel.startswith(self.held)) or (self.holds_appends and channel == CHANNEL):
            await asyncio.sleep(0.1)
        reply = await self._cluster.send(broker, request, channel=f"{self._name} {channel}")
        await self.runs.wait()
        if self.is_cut:
            await asyncio.sleep(REQUEST_TIMEOUT_S)
            raise BrokerUnreachable("broker", "no way there")
        return reply


class Election:
    """An election backend whose answers the test sets."""

    def __init__(self) -> None:
        self.state = CandidateState.MAY_LEAD
        self.evidence = ""

    async def changed(self, seen: CandidateState) -> CandidateState:
        while self.state is seen:
            await asyncio.sleep(0.1)
        return self.state

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


class GroupOfOne(Group):
    """A worker's part in the group, whose members have what the test wants."""

    def __init__(self, worker: Worker) -> None:
        target = Side(worker.settings.target, worker.brokers, lambda: asyncio.sleep(0, None))
        parts = {"clock": worker.clock, "rng": worker.rng, "log": worker._log}
        super().__init__(worker.settings, target, (), {}, name=worker.name, **parts)
        self._worker = worker

    async def new_member(self, member_id: MemberId) -> Member:
        return self._worker.new_member(replace(self._joined, member=member_id))


class Worker:
    """One process."""

    def __init__(
        self,
        world: GroupWorld,
        name: str,
        *,
        election: Literal["log", "zookeeper"] = "log",
        session_timeout_s: float = SESSION_S,
        heartbeat_interval_s: float = BEAT_S,
        **joined: object,
    ) -> None:
        self.name = name
        self.world = world
        self.clock = DozingClock(world.clock)
        self.wire = Wire(name, world.cluster)
        self.brokers = cast("Brokers", self.wire)
        self.members: list[Member] = []
        self.election = Election()
        self.rng = random.Random(world.rng.random())
        self._log = make_logger("info", "text", world.log_text)
        self.settings = GroupSettings(ClusterAlias("B"), "g", session_timeout_s, heartbeat_interval_s, election, None)
        self.joined: dict[str, object] = {"flows": (FLOW,), "cluster_id": "B-id", **joined}
        self.group = GroupOfOne(self)
        self.releases = asyncio.Event()
        """Its connector releases revoked partitions at once. While this is not set, releasing takes time."""
        self.releases.set()
        self.task = asyncio.create_task(self.group.run(), name=name)
        self._connector = asyncio.create_task(self._release(), name=f"{name} connector")

    def new_member(self, joined: Joined) -> Member:
        context = GroupContext(
            self.settings,
            self.brokers,
            self.world.producer_expiry_ms,
            internal_topics=lambda _: (OFFSETS, STATUS),
            clock=self.clock,
            rng=self.rng,
            log=self._log,
        )
        self.members.append(Member(replace(joined, **self.joined), self.election, context))  # type: ignore[arg-type]
        return self.members[-1]

    async def _release(self) -> None:
        while self.group.refused is None:
            with contextlib.suppress(IncarnationEnded, GroupRefused):
                member = await self.group.joined()
                ownership = member.ownership(FLOW)
                while not member.is_over:
                    ownership.changed.clear()
                    await self.releases.wait()
                    await ownership.release(ownership.to_release())
                    await ownership.release(())
                    await ownership.changed.wait()

    @property
    def member(self) -> Member:
        return self.members[-1]

    def ownership(self, flow: Flow = FLOW) -> Ownership:
        return self.member.ownership(flow)

    async def kill(self) -> None:
        """End the worker as kill -9 does: it announces nothing."""
        self.wire.runs.clear()
        self.task.cancel()
        self._connector.cancel()
        await asyncio.gather(self.task, self._connector, return_exceptions=True)

    def freeze(self) -> None:
        self.wire.runs.clear()

    def thaw(self, after_s: float = 0.0) -> None:
        self.clock.doze(after_s, suspended=True)
        self.wire.runs.set()


class GroupWorld:
    def __init__(self, seed: int = 1, *, nodes: int = 3, producer_expiry_ms: int = 86_400_000) -> None:
        self.producer_expiry_ms = producer_expiry_ms
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.cluster = ClusterModel("B", self.clock, random.Random(self.rng.random()), nodes=nodes)
        self.cluster.request_timeout_s = REQUEST_TIMEOUT_S
        self.cluster.create_topic(OFFSETS, 5)
        self.cluster.create_topic(STATUS, 2)
        self.log_text = io.StringIO()
        self.workers: list[Worker] = []

    def add(self, name: str, **how: Any) -> Worker:
        worker = Worker(self, name, **how)
        self.workers.append(worker)
        return worker

    @contextlib.asynccontextmanager
    async def running(self, count: int) -> AsyncIterator[list[Worker]]:
        """Run workers until they know each other and have one leader."""
        workers = [self.add(f"w{number}") for number in range(1, count + 1)]
        try:
            await self.until(lambda: all(self.agree(workers)))
            yield workers
        finally:
            await asyncio.gather(*(worker.kill() for worker in self.workers))

    def agree(self, workers: list[Worker]) -> list[bool]:
        """Whether each worker knows all members, and they know the same leader, which is one of them."""
        if not all(worker.members for worker in workers):
            return [False]
        views = [worker.member.view for worker in workers]
        ids = {worker.member.id for worker in workers}
        return [view.members.keys() == ids and view.leader in ids and view.leader == views[0].leader for view in views]

    async def until(self, reached: Callable[[], bool], *, within_s: float = 20.0) -> float:
        """Wait for a condition, and return how long that took."""
        begun_s = self.clock.monotonic()
        while not reached():
            if self.clock.monotonic() - begun_s > within_s:
                raise AssertionError(f"not within {within_s} s\n{self.log_text.getvalue()}")
            await asyncio.sleep(0.01)
        return self.clock.monotonic() - begun_s

    def lines(self, event: str) -> list[str]:
        return [line for line in self.log_text.getvalue().splitlines() if f" {event} " in line]

    def leader(self, workers: list[Worker]) -> Worker:
        return next(worker for worker in workers if worker.member.is_leader)

    def others(self, workers: list[Worker]) -> list[Worker]:
        return [worker for worker in workers if not worker.member.is_leader]

    async def list_topic(self, workers: list[Worker], partitions: int, topic: str = "orders") -> None:
        """Let the flow coordinator list a topic, and wait until each partition has a worker that may copy it."""
        await self.until(lambda: any(worker.ownership().is_coordinator for worker in workers))
        head = next(worker for worker in workers if worker.ownership().is_coordinator)
        await head.ownership().list_partitions({topic: partitions}, {}, {})
        await self.until(lambda: self.copied(workers, topic) == list(range(partitions)))

    def copied(self, workers: list[Worker], topic: str = "orders") -> list[int]:
        """Return the partitions of a topic that workers may copy now; a partition is repeated for each such worker."""
        return sorted(
            number for worker in workers for number in range(30) if worker.ownership().may_copy((topic, number))
        )

    async def writes(self, worker: Worker, transactional_id: str) -> ProducerIdentity:
        """Let a worker announce a producer, and return its record."""
        producer = OwnProducer(worker.brokers, transactional_id, rng=worker.rng)
        identity = await producer.begin()
        await worker.ownership().announce(identity)
        return identity

    def written(self, kind: type[RecordT]) -> list[RecordT]:
        """Return the records of one kind in the control log."""
        found = []
        for record in self.cluster.records(LOG, 0):
            with contextlib.suppress(NewerFormat):
                found.append(decode(record.value, where=LOG))
        return [record for record in found if isinstance(record, kind)]

    def markers(self, producer_id: int, topic: str = OFFSETS) -> list[int]:
        """Return the partitions of a topic that have a marker of this producer."""
        partitions = range(len(self.cluster.topics[topic].partitions))
        return [
            number
            for number in partitions
            if any(batch.control and batch.producer_id == producer_id for batch in self.cluster.batches(topic, number))
        ]
