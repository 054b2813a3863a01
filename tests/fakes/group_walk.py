"""Workers that share one control log, in random order: late appends, duplicates, pauses, deaths. No clock, no broker.

The model records what each worker runs apart from the log, to check the invariant: when a worker starts a task, no
other worker runs it. A paused worker runs its tasks until its producers are fenced, like a sleeping process.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field, replace

from mm2py.group.decisions import Append, FenceMember, Planned, Situation, decide
from mm2py.group.election.backend import CandidateState
from mm2py.group.membership import GroupState
from mm2py.group.state_snapshot import read_snapshot, snapshot_text
from mm2py.records.control_codec import decode, encode
from mm2py.records.control_record import (
    UNASSIGNED,
    Assigned,
    Beat,
    ControlRecord,
    Entry,
    Evicted,
    Fenced,
    Joined,
    Left,
    Listed,
    Loads,
    MemberId,
    Released,
    Snapshot,
    TaskName,
    Writes,
)
from tests.fakes.group_log import A_B, BEAT_MS, C_B, HEAD, joined, writer

STEP_MS = 50


@dataclass
class Worker:
    """One member: what it has read, what it runs, and what it is about to append."""

    name: MemberId
    says: Joined
    producer_id: int
    view: GroupState = field(default_factory=GroupState)
    running: set[TaskName] = field(default_factory=set)
    """The tasks that it runs: their requests may still append to a remote topic."""
    fenced: bool = False
    """Whether its producers are fenced: then none of its requests can append."""
    paused: bool = False
    dead: bool = False
    left: bool = False
    plan: Planned | None = None
    fencing: set[MemberId] = field(default_factory=set)
    in_flight: int = 0
    """The number of its unanswered appends."""
    wrote_at: int = -1
    """The offset of its last append: it decides again once it has read that entry."""
    beat_ms: int = 0

    @property
    def is_at_it(self) -> bool:
        return not self.fenced

    @property
    def acts(self) -> bool:
        return not (self.paused or self.dead or self.left)


class Walk:
    """A group and its random events."""

    def __init__(self, seed: int, *, workers: int, topics: dict[str, int]) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        self.skew_ms = 0
        self.entries: list[Entry] = []
        self.truth = GroupState()
        self.states: list[str] = [snapshot_text(self.truth)]
        """The state after each number of entries."""
        self.workers: dict[MemberId, Worker] = {}
        self.leaders: dict[int, tuple[MemberId | None, str]] = {}
        self.topics = topics
        self.faults = True
        self.counts: dict[str, int] = dict.fromkeys(
            ("begun", "fenced", "evicted", "claims", "rejoined", "snapshots"), 0
        )
        self._ids = itertools.count()
        self._order = itertools.count()
        self._underway: list[tuple[int, int, Worker | None, list[ControlRecord]]] = []
        for _ in range(workers):
            self.join()

    def join(self) -> Worker:
        number = next(self._ids)
        name = MemberId(f"w{number}")
        flows = self.rng.choice([(A_B,), (A_B,), (A_B, C_B)])
        worker = Worker(name, joined(name, *flows), producer_id=1000 + number)
        self._read_snapshot(worker)
        self.workers[name] = worker
        self._append(worker, [worker.says, Writes(name, writer(worker.producer_id))])
        return worker

    def step(self) -> None:
        self.now_ms += self.rng.randrange(2 * STEP_MS)
        if self.faults:
            self._befall()
        while self._underway and self._underway[0][0] <= self.now_ms:
            _, _, writer_or_none, records = heapq.heappop(self._underway)
            self._land(records)
            if writer_or_none is not None:
                writer_or_none.in_flight -= 1
                writer_or_none.wrote_at = len(self.entries) - 1
        for worker in self.rng.sample(list(self.workers.values()), len(self.workers)):
            if worker.acts:
                self._act(worker)

    def heal(self) -> None:
        self.faults = False
        self.skew_ms = 0
        for worker in self.workers.values():
            worker.paused = False
        self.join()

    def check_all_is_owned(self) -> None:
        view = self.truth
        assert view.leader in view.members
        assert not view.to_fence
        for share in view.tasks():
            owner = view.owner(share)
            assert owner in view.members, share
            assert view.may_run(share, owner), share
            assert share in self.workers[owner].running, share
        assert set(view.owners) == set(view.tasks())
        alive = {name for name, worker in self.workers.items() if not (worker.dead or worker.left or worker.fenced)}
        assert set(view.members) == alive

    def _befall(self) -> None:
        alive = [worker for worker in self.workers.values() if not (worker.dead or worker.left)]
        chance = self.rng.random()
        if chance < 0.004 and len(alive) > 1:
            self.rng.choice(alive).dead = True
        elif chance < 0.012 and len(alive) < 6:
            self.join()
        elif chance < 0.022 and alive:
            worker = self.rng.choice(alive)
            worker.paused = not worker.paused
        elif chance < 0.026 and alive:
            worker = self.rng.choice(alive)
            if worker.acts and worker.name in worker.view.members:
                self._leave(worker)
        elif chance < 0.04:
            self.topics[self.rng.choice("abc")] = self.rng.randrange(5)
        elif chance < 0.042:
            self.now_ms += self.rng.randrange(10_000)  # an outage of the log: no worker could append
        elif chance < 0.044:
            self.skew_ms = self.rng.randrange(-5000, 5000)
        elif chance < 0.05 and alive:
            worker = self.rng.choice(alive)
            worker.says = replace(worker.says, flows=self.rng.choice([(A_B,), (C_B,), (A_B, C_B)]))

    def _leave(self, worker: Worker) -> None:
        worker.left = True
        outcome_unknown = bool(worker.running or worker.in_flight) or self.rng.random() < 0.3
        if not outcome_unknown:
            worker.fenced = True  # all its requests were answered
        self._append(worker, [Left(worker.name, outcome_unknown)])

    def _act(self, worker: Worker) -> None:
        view, me = worker.view, worker.name
        for entry in self.entries[view.next_offset :][: self.rng.choice((0, 1, 5, 1000))]:
            view.take(entry)
            self._compare(view)
        if me in view.to_fence or me in view.gone:
            worker.left = True
            self.counts["rejoined"] += 1
            if self.faults or self.rng.random() < 0.9:
                self.join()
            return
        if me not in view.members or worker.producer_id not in view.members[me].writers:
            return
        self._run_shares(worker)
        if self.now_ms - worker.beat_ms >= BEAT_MS:
            worker.beat_ms = self.now_ms
            self._append(worker, [Beat(me)], waits=False)
        if worker.in_flight or worker.wrote_at >= view.next_offset:
            return
        self._decide(worker)
        free = set(view.awaited_of(me)) - worker.running
        if free and not worker.in_flight:
            self._append(worker, [Released(me, view.generation, frozenset(free))])
        if HEAD in worker.running and view.topics.get(A_B, {}) != (want := _some(self.topics)):
            before = view.topics.get(A_B, {})
            changed = {topic: want.get(topic, 0) for topic in want | before if want.get(topic) != before.get(topic)}
            self._append(worker, [Listed(me, A_B, changed)])

    def _run_shares(self, worker: Worker) -> None:
        view, me = worker.view, worker.name
        for share in list(view.owned_by(me)):
            if view.may_run(share, me) and share not in worker.running:
                others = [other.name for other in self.workers.values() if other.is_at_it and share in other.running]
                assert worker.fenced or not others, f"{me} begins {share} while {others} may still be at it"
                worker.running.add(share)
                self.counts["begun"] += 1
        for share in list(worker.running):
            if not view.may_run(share, me) and self.rng.random() < 0.3:
                worker.running.discard(share)  # drained
        if worker.running and self.rng.random() < 0.02:
            loads = {share: float(self.rng.randrange(10**6)) for share in worker.running}
            self._append(worker, [Loads(me, loads)], waits=False)

    def _candidate(self, worker: Worker) -> CandidateState:
        may_claim = self.rng.random() < 0.5
        if self.faults and self.rng.random() < 0.001:
            return CandidateState.LOST
        leads = worker.view.leader == worker.name
        return CandidateState.MAY_LEAD if may_claim or leads else CandidateState.SUSPENDED

    def _decide(self, worker: Worker) -> None:
        situation = Situation(
            worker.says,
            f"{worker.name}-{next(self._order)}",
            candidate=self._candidate(worker),
            fencing=frozenset(worker.fencing),
            plan=worker.plan,
        )
        records: list[ControlRecord] = []
        for action in decide(worker.view, worker.name, situation):
            match action:
                case Append(record):
                    records.append(record)
                case Planned():
                    worker.plan = action
                case FenceMember(dead, writers):
                    if self.rng.random() < 0.2:  # else it is retried
                        assert self.workers[dead].producer_id in writers
                        self.workers[dead].fenced = True
                        epochs = dict.fromkeys(writers, 9)
                        records.append(Fenced(worker.name, worker.view.leader_epoch, dead, epochs))
                        self.counts["fenced"] += 1
        if self.faults and worker.view.leader == worker.name and self.rng.random() < 0.2:
            records = [self._whim(worker)]
        if records:
            self._append(worker, records)

    def _whim(self, worker: Worker) -> Assigned:
        """Return a random assignment: even a bad one must be safe."""
        members = [*self.workers, UNASSIGNED]
        shares = [share for share in worker.view.owners if self.rng.random() < 0.4]
        owners = {share: self.rng.choice(members) for share in shares}
        part, parts = self.rng.choice([(0, 1), (0, 1), (0, 2), (1, 2)])
        return Assigned(worker.name, worker.view.leader_epoch, worker.view.generation + 1, owners, part, parts)

    def _append(self, worker: Worker, records: list[ControlRecord], *, waits: bool = True) -> None:
        worker.in_flight += waits
        at = self.now_ms + self.rng.choice((0, 20, 20, 200, 2000 if self.faults else 0))
        heapq.heappush(self._underway, (at, next(self._order), worker if waits else None, records))
        if self.faults and self.rng.random() < 0.1:
            heapq.heappush(self._underway, (at + self.rng.randrange(6000), next(self._order), None, records))

    def _land(self, records: list[ControlRecord]) -> None:
        for record in records:
            read = decode(encode(record), where="the walk")
            entry = Entry(len(self.entries), self.now_ms + self.skew_ms, read)
            self.entries.append(entry)
            self.counts["evicted"] += isinstance(read, Evicted)
            epoch = self.truth.leader_epoch
            self.truth.take(entry)
            self.counts["claims"] += self.truth.leader_epoch != epoch
            self.states.append(snapshot_text(self.truth))
            if self.truth.leader is not None:
                term = self.truth.leader, self.truth.claim_id
                assert self.leaders.setdefault(self.truth.leader_epoch, term) == term

    def _compare(self, view: GroupState) -> None:
        if self.rng.random() < 0.05:
            assert snapshot_text(view) == self.states[view.next_offset]

    def _read_snapshot(self, worker: Worker) -> None:
        whole = [entry.record for entry in self.entries if isinstance(entry.record, Snapshot)]
        if whole and self.rng.random() < 0.8:
            snapshot = self.rng.choice(whole)
            assert snapshot.parts == 1
            worker.view = read_snapshot(snapshot.state)
            assert worker.view.next_offset == snapshot.covers
            self.counts["snapshots"] += 1


def _some(topics: dict[str, int]) -> dict[str, int]:
    return {topic: partitions for topic, partitions in topics.items() if partitions}
