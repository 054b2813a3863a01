"""One run of a group whose leaders die, freeze, are cut off and return. It is judged by which workers led, wrote and
own partitions in the end.

Only the parts that decide which worker may copy are run: the control log on a broker model under virtual time, members,
leases, fences. A connector is reduced to writes into each partition that its worker may copy. So an election costs
milliseconds, and a hundred thousand can be run. Whole workers are simulated in ``run.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from mm2py.errors import Mm2Error
from mm2py.flow import Kind
from mm2py.group.election.backend import CandidateState
from mm2py.group.member import Member
from mm2py.group.membership import GroupState
from mm2py.group.refusal import GroupRefused
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import BrokerId, PartitionProduce, ProduceRequest, ProducerIdentity, TopicProduce
from mm2py.kafka.producer.incarnation import OwnProducer
from mm2py.kafka.write_gate import IncarnationEnded
from mm2py.records.batch import NewRecord, build_batch, stamp
from mm2py.records.control_codec import decode
from mm2py.records.control_record import Assigned, Entry, Evicted, Fenced, MemberId, Snapshot, Writes
from tests.fakes.faults import Faults
from tests.fakes.virtual_time import VirtualTimeStopped, run_virtual
from tests.scenarios.group_world import FLOW, LOG, OFFSETS, SESSION_S, GroupWorld, Worker

STORM_S: Final = 240.0
OWNED_AGAIN_S: Final = 30.0
"""How long after the faults end until each partition has one worker that may copy it."""
PARTITIONS: Final = 6
WRITE_EVERY_S: Final = 0.8
DRAIN_S: Final = 5.0
_TIMEOUT_MS: Final = 1000
_ANSWERS_THAT_END_A_LIFE: Final = frozenset({45, 47, 59, 90})
_FAULTS: Final = frozenset(
    {
        "broker_kill",
        "broker_stop",
        "delay",
        "drop_reply",
        "duplicate_produce",
        "fetch_error",
        "leader_move",
        "produce_error",
        "reset",
        "throttle",
    }
)
_STORMS: Final = (
    Faults(leader_move_every_s=5.0),
    Faults(leader_move_every_s=3.0, broker_stop_every_s=25.0, broker_down_s=(0.5, 12.0)),
    Faults(delay=0.02, delay_s=(0.05, 1.5), drop_reply=0.004, reset=0.01, leader_move_every_s=8.0),
    Faults(produce_error=0.02, fetch_error=0.02, throttle=0.01, duplicate_produce=0.01, leader_move_every_s=4.0),
)


@dataclass(slots=True)
class Elections:
    """The result of a seed."""

    seed: int
    elections: int = 0
    virtual_s: float = 0.0
    owned_s: float = 0.0
    """How long it took after the faults ended until each partition had an owner."""
    writes: int = 0
    refused: int = 0
    """Writes of a fenced worker that the broker refused."""
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def run_elections(seed: int) -> Elections:
    """Run the events of a seed; they are the same each time."""
    outcome = Elections(seed)
    storm = Storm(outcome)
    try:
        run_virtual(storm.run(), seed=seed, limit_s=STORM_S + 3600.0)
    except VirtualTimeStopped as stopped:
        outcome.findings.append(f"{type(stopped).__name__}: {stopped}")
    return outcome


class Copies:
    """Replaces a worker's connector: writes under one producer id an attempt, and releases partitions when told."""

    def __init__(self, storm: Storm, worker: Worker) -> None:
        self._storm = storm
        self._worker = worker
        self._under_way: set[int] = set()
        self._drains = False

    async def drain(self) -> bool:
        """Stop writing, and return whether all writes are answered."""
        self._drains = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                while self._under_way:
                    await asyncio.sleep(0.05)
        return not self._under_way

    async def run(self) -> None:
        while self._worker.group.refused is None:
            try:
                await self._live(await self._worker.group.joined())
            except* (IncarnationEnded, GroupRefused):
                pass

    async def _live(self, member: Member) -> None:
        ownership = member.ownership(FLOW)
        identity = await OwnProducer(self._worker.brokers, f"mm2py-g-{member.id}", rng=self._worker.rng).begin()
        await ownership.announce(identity)
        async with asyncio.TaskGroup() as tasks:
            for partition in range(PARTITIONS):
                tasks.create_task(self._write(member, identity, partition))
            while not member.is_over:
                if ownership.is_coordinator and not ownership.listed:
                    await ownership.list_partitions({"orders": PARTITIONS}, {}, {})
                ownership.changed.clear()
                idle = [key for key in ownership.to_release() if key[1] not in self._under_way]
                await ownership.release(idle)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.3 if ownership.to_release() else None):
                        await ownership.changed.wait()

    async def _write(self, member: Member, identity: ProducerIdentity, partition: int) -> None:
        """Write repeatedly, each batch until it is answered: a batch that was stored twice would be refused."""
        sequence, ownership = 0, member.ownership(FLOW)
        while not member.is_over:
            await asyncio.sleep(WRITE_EVERY_S * self._worker.rng.uniform(0.5, 1.5))
            if self._drains or not ownership.may_copy(("orders", partition)):
                continue
            self._under_way.add(partition)
            try:
                code = await self._send(member, identity, partition, sequence)
                sequence += 1
            except IncarnationEnded:
                return
            finally:
                self._under_way.discard(partition)
            if code:
                self._storm.outcome.refused += 1
                await member.leave(outcome_unknown=True, cause=_Refused(code))
                return
            self._storm.outcome.writes += 1

    async def _send(self, member: Member, identity: ProducerIdentity, partition: int, sequence: int) -> int:
        """Return 0, or the error code by which a broker fences this producer."""
        brokers = member.gated(self._worker.brokers)
        batch = build_batch([NewRecord(None, b"x", self._worker.world.clock.wall_ms())])
        stamp(batch, identity.producer_id, identity.epoch, sequence)
        while True:
            leader = BrokerId(self._storm.world.cluster.partition(OFFSETS, partition).leader)
            request = ProduceRequest([TopicProduce(OFFSETS, None, [PartitionProduce(partition, batch)])], _TIMEOUT_MS)
            try:
                if leader >= 0:
                    code = (await brokers.send(leader, request, channel="copies")).partitions[0].error_code
                    if code == 0 or code in _ANSWERS_THAT_END_A_LIFE:
                        return code
            except IncarnationEnded:
                raise
            except KafkaError:
                pass
            await asyncio.sleep(0.2)


class _Refused(Mm2Error):
    def __init__(self, code: int) -> None:
        super().__init__(f"A broker refused a write with {code}.", remedy="The next incarnation continues.")


class Storm:
    """The run of one seed."""

    def __init__(self, outcome: Elections) -> None:
        self.outcome = outcome
        self.rng = random.Random(outcome.seed)
        self.world = GroupWorld(outcome.seed)
        self.world.cluster.add_partitions(OFFSETS, PARTITIONS)
        self.up: list[Worker] = []
        self._copies: dict[str, tuple[Copies, asyncio.Task[None]]] = {}
        self._actions: list[asyncio.Task[None]] = []
        self._by_backend = self.rng.random() < 0.2
        self._most = self.rng.randint(2, 5)

    async def run(self) -> None:
        for _ in range(self._most):
            self._start()
        backend = asyncio.create_task(self._let_one_stand(), name="backend")
        await self.world.until(lambda: self._owned() == PARTITIONS, within_s=60)
        self.world.cluster.inject(self.rng.choice(_STORMS))
        end_s = self.world.clock.monotonic() + STORM_S
        while self.world.clock.monotonic() < end_s:
            await asyncio.sleep(self.rng.choice([0.3, 1.0, 3.0, 5.0]) * self.rng.uniform(0.5, 1.5))
            self._disturb()
        self._heal()
        healed_s = self.world.clock.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OWNED_AGAIN_S):
                while self._owned() < PARTITIONS or not self._agree():
                    await asyncio.sleep(0.1)
        self.outcome.owned_s = self.world.clock.monotonic() - healed_s
        if self._owned() < PARTITIONS or not self._agree():
            self._find(f"{OWNED_AGAIN_S:.0f} s after the healing {self._owned()} of {PARTITIONS} are owned by one")
        backend.cancel()
        await asyncio.gather(*self._actions, *map(self._kill, list(self.up)), backend, return_exceptions=True)
        faults = self.world.cluster.counts
        self.outcome.counts.update({kind: times for kind, times in faults.items() if kind in _FAULTS})
        self._judge()
        self.outcome.virtual_s = self.world.clock.monotonic()

    # Faults

    def _start(self) -> None:
        worker = self.world.add(f"w{len(self.world.workers) + 1}", election="zookeeper" if self._by_backend else "log")
        worker.releases.clear()  # ``Copies`` releases partitions instead
        if self._by_backend:
            worker.election.state = CandidateState.LOST
        self.up.append(worker)
        copies = Copies(self, worker)
        self._copies[worker.name] = copies, asyncio.create_task(copies.run(), name=f"{worker.name} copies")

    def _disturb(self) -> None:
        if len(self.up) < self._most and self.rng.random() < 0.6:
            self._start()
            self.outcome.counts["worker started"] += 1
            return
        leaders = [one for one in self.up if one.members and one.member.is_leader]
        worker = self.rng.choice(leaders if leaders and self.rng.random() < 0.7 else self.up)
        lasts_s = self.rng.choice([0.3, 1.0, 2.5, SESSION_S + 0.5, SESSION_S + 3, 12.0]) * self.rng.uniform(0.8, 1.2)
        loop = asyncio.get_running_loop()
        match self.rng.choice(["killed", "left", "left in doubt", "paused", "paused", "cut off", "cut off", "clock"]):
            case "killed" if len(self.up) > 1:
                self.outcome.counts["worker killed"] += 1
                self._later(self._kill(worker))
            case "left" | "left in doubt" as how if len(self.up) > 1:
                self.outcome.counts[f"worker {how}"] += 1
                self._later(self._leave(worker, outcome_unknown=how != "left"))
            case "paused":
                suspended = self.rng.random() < 0.5
                self.outcome.counts["machine suspended" if suspended else "worker paused"] += 1
                worker.freeze()
                loop.call_later(lasts_s, worker.thaw, lasts_s if suspended else 0.0)
            case "cut off":
                self.outcome.counts["worker cut off"] += 1
                worker.wire.is_cut = True
                loop.call_later(lasts_s, setattr, worker.wire, "is_cut", False)
            case "clock":
                self.outcome.counts["wall clock jumped"] += 1
                worker.clock.wall_ahead_ms = self.rng.choice([-3_600_000, -600_000, 0, 5_000, 600_000])
            case _:
                pass

    def _later(self, action: Coroutine[Any, Any, None]) -> None:
        self._actions.append(asyncio.create_task(action))

    async def _kill(self, worker: Worker) -> None:
        if worker in self.up:
            self.up.remove(worker)
            await self._end(worker)

    async def _leave(self, worker: Worker, *, outcome_unknown: bool) -> None:
        """Stop as a process does: pending work ends first. Writes without an answer in time have an unknown outcome."""
        self.up.remove(worker)
        if not outcome_unknown:
            outcome_unknown = not await self._copies[worker.name][0].drain()
        await worker.group.leave(outcome_unknown=outcome_unknown)
        await self._end(worker)

    async def _end(self, worker: Worker) -> None:
        _, task = self._copies.pop(worker.name)
        task.cancel()
        await asyncio.gather(task, worker.kill(), return_exceptions=True)

    async def _let_one_stand(self) -> None:
        """Act as ZooKeeper: at most one candidate may lead, is suspended for a while, and is replaced."""
        while self._by_backend:
            stands = self.rng.choice(self.up) if self.up else None
            if stands is not None:
                stands.election.state = CandidateState.MAY_LEAD
                await asyncio.sleep(self.rng.uniform(2.0, 15.0))
                stands.election.state = CandidateState.SUSPENDED
                await asyncio.sleep(self.rng.uniform(0.1, 2.0))
                stands.election.state = CandidateState.LOST
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))

    def _heal(self) -> None:
        self.world.cluster.heal()
        for worker in self.up:
            worker.thaw()
            worker.wire.is_cut = False
        if not self.up:
            self._start()

    # Invariants

    def _owned(self) -> int:
        """Return the number of partitions that exactly one worker may copy now."""
        free = Counter(
            partition
            for worker in self.up
            if worker.members and worker.member.gate.is_open
            for partition in range(PARTITIONS)
            if worker.ownership().may_copy(("orders", partition))
        )
        return sum(times == 1 for times in free.values())

    def _agree(self) -> bool:
        views = [worker.member.view for worker in self.up if worker.members]
        return len({(view.leader, view.leader_epoch) for view in views}) == 1 and views[0].leader is not None

    def _find(self, what: str) -> None:
        self.outcome.findings.append(what)

    def _judge(self) -> None:
        """Check: one leader an epoch; epochs grow; members of older ones have no effect; owners write in order."""
        leaders: dict[int, MemberId] = {}
        authors: defaultdict[int, set[MemberId]] = defaultdict(set)
        writers: dict[int, MemberId] = {}
        owners: defaultdict[int, list[MemberId]] = defaultdict(list)
        view, epoch = GroupState(), 0
        for record in self.world.cluster.records(LOG, 0):
            entry = Entry(record.offset, record.timestamp_ms, decode(record.value, where=f"{LOG} at {record.offset}"))
            what = entry.record
            if isinstance(what, Writes):
                writers[what.writer.producer_id] = what.member
            if isinstance(what, Assigned | Evicted | Fenced | Snapshot):
                authors[what.leader_epoch].add(what.member)
            before = view.revocations.changes
            view.take(entry)
            if view.leader is not None and leaders.setdefault(view.leader_epoch, view.leader) != view.leader:
                self._find(f"epoch {view.leader_epoch} has two leaders: {leaders[view.leader_epoch]}, {view.leader}")
            if view.leader_epoch < epoch:
                self._find(f"leader epoch {view.leader_epoch} comes after {epoch}")
            epoch = view.leader_epoch
            if view.revocations.changes != before:
                for task, owned in view.owners.items():
                    if task.kind is Kind.SOURCE and task.is_partition and owned.member and owned.waits_for is None:
                        turns = owners[task.partition]
                        if not turns or turns[-1] != owned.member:
                            turns.append(owned.member)
        self.outcome.elections = len(leaders)
        for leader_epoch, who in authors.items():
            if not who <= {leaders.get(leader_epoch)}:
                self._find(f"as leader of epoch {leader_epoch} wrote {who}, and {leaders.get(leader_epoch)} was")
        for partition in range(PARTITIONS):
            self._judge_writers(partition, writers, owners[partition])
        self.outcome.findings += [f"the model complains: {error!r}" for error in self.world.cluster.complaints]
        said = self.world.log_text.getvalue()
        self.outcome.findings += [line[:500] for line in said.splitlines() if "please report" in line]

    def _judge_writers(self, partition: int, writers: dict[int, MemberId], owners: list[MemberId]) -> None:
        turn = 0
        for batch in self.world.cluster.batches(OFFSETS, partition):
            if batch.control:
                continue
            member = writers[batch.producer_id]
            while turn < len(owners) and owners[turn] != member:
                turn += 1
            if turn == len(owners):
                self._find(f"{partition}: at {batch.base_offset} wrote {member}, whose turn it was not: {owners}")
                return
