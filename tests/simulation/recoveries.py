"""Recoveries of a model of two clusters: the real table, journal and runner; clusters, copies and hooks are models.

Processes run at either site, are killed after any step, and begin again there or on the other site, two at once at
times. Links break, answers get lost, and requests arrive up to 20 s late, also after their process has died. What must
hold is checked after every step, and at the end, when everything answers again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mm2py.dr.journal import (
    JournalEntry,
    JournalOpening,
    JournalRecord,
    JournalsDisagree,
    agreed,
    decode_journal,
    encode_journal,
    folded,
    has_switched,
    standing_entry,
)
from mm2py.dr.journal_writer import JournalNotStored, JournalTakenOver, JournalWriter, KeptJournal
from mm2py.dr.runner import PreparedRun, RecoveryGoal, RecoveryRunner
from mm2py.dr.states import ENDED, RecoveryFacts, RecoveryState, RecoveryVerb
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import Author

A, B = ClusterAlias("A"), ClusterAlias("B")
SITES: Final = (A, B)
FORTH: Final = Flow(A, B)
PART: Final = "orders-0"
LATE_MOST_S: Final = 20
"""Requests arrive at most this late; with the 10 s in which a process acts this is ``LATE_S``."""
STEPS: Final = 600
WAITS_MOST_S: Final = 60
"""How long a step of a run waits before it gives up."""


def other(alias: ClusterAlias) -> ClusterAlias:
    return B if alias == A else A


def back(flow: Flow) -> Flow:
    return Flow(flow.target, flow.source)


class Unanswered(Mm2Error):
    """A request had no answer."""

    def __init__(self) -> None:
        super().__init__("No answer.", remedy="")


class Waiting(Awaitable[Any]):
    """What a process waits for: the scheduler gives it the value, or an error."""

    def __init__(self, cluster: ClusterAlias | None, act: Callable[[], Any], seconds: float = 0.0) -> None:
        self.cluster = cluster
        self.act = act
        self.seconds = seconds

    def __await__(self) -> Generator[Waiting, Any, Any]:
        found = yield self
        return found


@dataclass
class ModelCluster:
    """One cluster: the records of one partition, one group, and the journal."""

    alias: ClusterAlias
    is_up: bool = True
    is_fenced: bool = False
    records: list[int] = field(default_factory=list)
    committed: int = 0
    """Where the group goes on."""
    ended: set[Flow] = field(default_factory=set)
    """Flows that may not write here any more."""
    journal: list[bytes] = field(default_factory=list)
    epoch: int = 0
    """The newest epoch that was given out, and the newest that has written."""
    written: int = 0


@dataclass
class RecoveryOutcome:
    seed: int
    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


FENCE_MAY_FALL: Final = frozenset({RecoveryState.FENCED, RecoveryState.FENCE_VERIFIED, RecoveryState.DRAINED})
"""Where a run has to notice it. Later it is on its own: docs/decisions/0030 says so."""


class ModelTime:
    """The time of the model."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def boottime(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)


@dataclass
class ModelProcess:
    site: ClusterAlias
    goal: RecoveryGoal
    work: Coroutine[Any, Any, Any]
    wakes_s: float = 0.0
    waiting: Waiting | None = None
    reached: frozenset[ClusterAlias] = frozenset()


class ModelStore:
    """Journals in lists of bytes, by the rules of producer epochs."""

    def __init__(self, world: RecoveryWorld, clusters: Sequence[ClusterAlias]) -> None:
        self.clusters = tuple(clusters)
        self._world = world
        self._epochs: dict[ClusterAlias, int] = {}

    async def begin(self, alias: ClusterAlias) -> None:
        cluster = self._world.clusters[alias]

        def act() -> int:
            cluster.epoch += 1
            return cluster.epoch

        self._epochs[alias] = await self._ask(alias, act)

    async def read(self, alias: ClusterAlias) -> KeptJournal:
        values = await self._ask(alias, lambda: list(self._world.clusters[alias].journal))
        records = tuple(decode_journal(value, where=f"{alias} {at}") for at, value in enumerate(values))
        return KeptJournal(records, f"id-{alias}", str(alias))

    async def write(self, alias: ClusterAlias, records: Sequence[JournalRecord], *, is_optional: bool = False) -> None:
        cluster, epoch = self._world.clusters[alias], self._epochs[alias]
        values = [encode_journal(one, "1") for one in records]

        def act() -> bool:
            if epoch < cluster.written:
                return False
            cluster.written = epoch
            cluster.journal += values
            return True

        if not await self._ask(alias, act):
            raise JournalTakenOver

    async def _ask(self, alias: ClusterAlias, act: Callable[[], Any]) -> Any:
        try:
            return await Waiting(alias, act)
        except Unanswered as error:
            raise JournalNotStored(str(error), remedy="") from error


class ModelActions:
    """What a process does to the clusters of the model, request by request."""

    def __init__(self, world: RecoveryWorld) -> None:
        self.world = world

    async def sleep(self, seconds: float) -> None:
        await Waiting(None, lambda: None, seconds)

    async def _ask(self, alias: ClusterAlias, act: Callable[[], Any]) -> Any:
        return await Waiting(alias, act)

    async def _until(self, alias: ClusterAlias, is_true: Callable[[], bool]) -> None:
        for _ in range(WAITS_MOST_S):
            if await self._ask(alias, is_true):
                return
            await self.sleep(1)
        raise Unanswered

    async def prepare(self, goal: RecoveryGoal, flow: Flow, last: JournalEntry | None) -> PreparedRun:
        if goal is not RecoveryGoal.FAILOVER:
            for alias in SITES:
                await self._ask(alias, lambda: None)
        if (
            last is None or last.state in ENDED
        ) and self.world.flow != flow:  # producers are on the other side, as its flow shows
            raise Unanswered
        return PreparedRun(("orders",), {"fence": "none"})

    def _fence(self, alias: ClusterAlias, *, is_set: bool) -> Callable[[], None]:
        def act() -> None:
            self.world.clusters[alias].is_fenced = is_set

        return act

    async def set_fence(self, entry: JournalEntry) -> None:
        await self._ask(entry.flow.source, self._fence(entry.flow.source, is_set=True))

    async def _ends(self, alias: ClusterAlias) -> tuple[int, bool]:
        cluster = self.world.clusters[alias]
        found: tuple[int, bool] = await self._ask(alias, lambda: (len(cluster.records), cluster.is_fenced))
        return found

    async def verify_fence(self, entry: JournalEntry) -> RecoveryFacts:
        first = await self._ends(entry.flow.source)
        await self.sleep(10)
        second = await self._ends(entry.flow.source)
        if first != second or not second[1]:
            raise Unanswered
        return RecoveryFacts(source_ends={PART: second[0]})

    async def drain(self, entry: JournalEntry, ends: RecoveryFacts) -> RecoveryFacts:
        world, flow = self.world, entry.flow
        await self._until(flow.target, lambda: world.position(flow) >= ends.source_ends[PART])
        copied, end = await self._ask(
            flow.target, lambda: (world.position(flow), len(world.clusters[flow.target].records))
        )
        return RecoveryFacts(copied_to={PART: copied}, target_ends={PART: end})

    async def finish_groups(self, entry: JournalEntry) -> RecoveryFacts:
        world, source, target = self.world, entry.flow.source, entry.flow.target
        there = world.clusters[source]
        if world.sent_to["group"] == target:  # a hook that did only a part has left it there: it has no members here
            end = await self._ask(target, lambda: len(world.clusters[target].records))
            return RecoveryFacts(target_ends={PART: end})
        await self._until(source, lambda: there.committed == len(there.records))
        return await self._commit(entry, target, lambda: world.translate(source, there.committed))

    async def _commit(self, entry: JournalEntry, target: ClusterAlias, where: Callable[[], int]) -> RecoveryFacts:
        cluster = self.world.clusters[target]

        def act() -> tuple[int, int]:
            cluster.committed = where()
            return cluster.committed, len(cluster.records)

        committed, end = await self._ask(target, act)
        return RecoveryFacts(target_ends={PART: end}, groups={"billing": {PART: committed}})

    async def confirm_switch(self, entry: JournalEntry) -> RecoveryFacts:
        if entry.verb is RecoveryVerb.FAILOVER:
            ended = self.world.clusters[entry.flow.target].ended
            if not await self._ask(entry.flow.target, lambda: entry.flow in ended):
                raise Unanswered
            return RecoveryFacts()
        end, is_fenced = await self._ends(entry.flow.source)
        if not is_fenced:
            raise Unanswered
        return RecoveryFacts(source_ends={PART: end})

    async def run_hook(self, entry: JournalEntry) -> None:
        world = self.world
        for who in ("producer", "other producer", "group"):

            def act(who: str = who) -> None:
                world.sent_to[who] = entry.flow.target

            await self._ask(None, act)  # type: ignore[arg-type]  # a DNS server, say: it may lose requests, too

    async def turn_flow_round(self, entry: JournalEntry) -> None:
        world, flow = self.world, entry.flow

        def act() -> None:
            if world.flow != back(flow):
                world.positions[back(flow)] = world.begins_at(flow)
                world.flow = back(flow)
            world.clusters[flow.source].ended.discard(back(flow))

        for alias in SITES:
            await self._ask(alias, lambda: None)
        await self._ask(flow.target, act)

    async def free_producers(self, entry: JournalEntry) -> None:
        await self._ask(entry.flow.target, self._fence(entry.flow.target, is_set=False))

    async def take_back(self, entry: JournalEntry, kept: Sequence[Mapping[str, Any]]) -> None:
        flow = entry.flow
        ended = self.world.clusters[flow.target].ended
        if entry.verb is RecoveryVerb.FAILOVER:
            await self._ask(flow.target, lambda: ended.discard(flow))
        await self._ask(flow.source, self._fence(flow.source, is_set=False))

    async def cut_off_writers(self, entry: JournalEntry) -> RecoveryFacts:
        world, flow = self.world, entry.flow
        target = world.clusters[flow.target]

        def act() -> None:
            target.ended.add(flow)
            world.cut_at.setdefault(entry.run, len(target.records))

        await self._ask(flow.target, act)
        return RecoveryFacts()

    async def place_groups(self, entry: JournalEntry) -> RecoveryFacts:
        world, source = self.world, entry.flow.source
        # The last checkpoint: what the group had committed on the source, as far as it was copied.
        return await self._commit(
            entry, entry.flow.target, lambda: world.translate(source, world.clusters[source].committed)
        )

    async def hold_flow_back(self, entry: JournalEntry) -> None:
        world, flow = self.world, entry.flow

        def act() -> None:
            if world.flow == back(flow):
                world.flow = flow  # which the target has as ended

        await self._ask(flow.source, act)

    async def settle_extras(self, entry: JournalEntry) -> RecoveryFacts:
        world, flow = self.world, entry.flow
        there = await self._ask(flow.source, lambda: list(world.clusters[flow.source].records))
        here = set(await self._ask(flow.target, lambda: list(world.clusters[flow.target].records)))
        world.listed |= {one for one in there if one not in here}
        return RecoveryFacts()


class RecoveryWorld:
    """Both clusters, what is around them, and the processes that work on them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.time = ModelTime()
        self.outcome = RecoveryOutcome(seed)
        self.clusters = {alias: ModelCluster(alias) for alias in SITES}
        self.flow: Flow = FORTH
        """The one that runs."""
        self.positions: dict[Flow, int] = {FORTH: 0}
        self.sent_to: dict[str, ClusterAlias] = {"producer": A, "other producer": A, "group": A}
        self.links = dict.fromkeys([(site, alias) for site in SITES for alias in SITES], True)
        self.processes: list[ModelProcess] = []
        self.late: list[tuple[float, Callable[[], Any]]] = []
        self.acked: list[int] = []
        self.listed: set[int] = set()
        self.cut_at: dict[str, int] = {}
        self.read_by_group: Counter[int] = Counter()
        self.has_failed_over = False
        self.is_split = False
        self.has_switched = False
        """The hook of the last run has succeeded, by the journals."""
        self._last: tuple[tuple[int, ...], JournalEntry | None] | None = None

    # The clusters

    def position(self, flow: Flow) -> int:
        return self.positions.get(flow, 0)

    def translate(self, source: ClusterAlias, offset: int) -> int:
        """Return the offset on the other cluster behind the last record before ``offset`` that is there, too."""
        there = {one: at for at, one in enumerate(self.clusters[other(source)].records)}
        for at in range(offset - 1, -1, -1):
            found = there.get(self.clusters[source].records[at])
            if found is not None:
                return found + 1
        return 0

    def begins_at(self, flow: Flow) -> int:
        """Return where the flow back begins on the target: behind the last record that both have."""
        source = set(self.clusters[flow.source].records)
        records = self.clusters[flow.target].records
        return next((at + 1 for at in range(len(records) - 1, -1, -1) if records[at] in source), 0)

    def copy(self) -> None:
        source, target = self.clusters[self.flow.source], self.clusters[self.flow.target]
        at = self.position(self.flow)
        if not (source.is_up and target.is_up) or self.flow in target.ended or at >= len(source.records):
            return
        if not (self.links[A, B] and self.links[B, A]):
            return
        if source.records[at] not in target.records:  # what was replayed is passed over
            target.records.append(source.records[at])
        self.positions[self.flow] = at + 1

    def produce(self) -> None:
        who = self.rng.choice(["producer", "other producer"])
        cluster = self.clusters[self.sent_to[who]]
        if cluster.is_up and not cluster.is_fenced:
            cluster.records.append(len(self.acked))
            self.acked.append(len(self.acked))

    def consume(self) -> None:
        cluster = self.clusters[self.sent_to["group"]]
        if cluster.is_up and cluster.committed < len(cluster.records):
            self.read_by_group[cluster.records[cluster.committed]] += 1
            cluster.committed += 1

    # The processes

    def begin(self, goal: RecoveryGoal, flow: Flow, site: ClusterAlias) -> None:
        reached = [alias for alias in SITES if self._answers(site, alias)]
        if goal is RecoveryGoal.FAILOVER:  # the operator says that the source is lost
            reached = [alias for alias in reached if alias != flow.source]
        if not reached:
            return

        async def work() -> None:
            store = ModelStore(self, reached)
            journal = await JournalWriter.open(store, author=Author("ann"), clock=self.time, rng=self.rng)
            await RecoveryRunner(journal, ModelActions(self)).run(goal, flow)

        self.processes.append(ModelProcess(site, goal, work(), self.time.now_s))
        self.outcome.counts[f"begun: {goal}"] += 1

    def _answers(self, site: ClusterAlias, alias: ClusterAlias) -> bool:
        return self.clusters[alias].is_up and self.links[site, alias]

    def advance(self, process: ModelProcess) -> None:
        """Let a process go on to its next request."""
        value: Any = None
        error: Exception | None = None
        if process.waiting is not None:
            try:
                value = self._carry_out(process, process.waiting)
            except Unanswered as raised:
                error = raised
        try:
            process.waiting = process.work.throw(error) if error is not None else process.work.send(value)
            process.wakes_s = self.time.now_s + process.waiting.seconds
        except StopIteration:
            self.processes.remove(process)
            self.outcome.counts[f"done: {process.goal}"] += 1
        except Mm2Error as raised:
            self.processes.remove(process)
            self.outcome.counts[f"stopped: {type(raised).__name__}"] += 1

    def _carry_out(self, process: ModelProcess, waiting: Waiting) -> Any:
        if waiting.seconds or (waiting.cluster is not None and not self._answers(process.site, waiting.cluster)):
            if waiting.seconds:
                return None
            raise Unanswered
        chance = self.rng.random() if self.is_faulty else 1.0
        if chance < 0.01:  # it is lost
            raise Unanswered
        if chance < 0.02:  # it arrives, and its answer does not
            waiting.act()
            raise Unanswered
        if chance < 0.04:  # it arrives late
            self.outcome.counts["late requests"] += 1
            self.late.append((self.time.now_s + self.rng.uniform(1, LATE_MOST_S), waiting.act))
            raise Unanswered
        return waiting.act()

    def kill(self, process: ModelProcess) -> None:
        if process.waiting is not None and not process.waiting.seconds and self.rng.random() < 0.5:
            self.late.append((self.time.now_s + self.rng.uniform(0, LATE_MOST_S), process.waiting.act))
        process.work.close()
        self.processes.remove(process)
        self.outcome.counts["killed"] += 1

    # What happens

    is_faulty = True

    def step(self) -> None:
        rng = self.rng
        self.time.now_s += rng.choice([0.1, 0.5, 1.0])
        for due in [one for one in self.late if one[0] <= self.time.now_s]:
            self.late.remove(due)
            due[1]()
        if rng.random() < 0.5:
            self.produce()
        for _ in range(2):
            self.copy()
            self.consume()
        ready = [one for one in self.processes if one.wakes_s <= self.time.now_s]
        if ready:
            self.advance(rng.choice(ready))
        if self.is_faulty:
            self._fault()
        self.check()

    def _fault(self) -> None:
        rng = self.rng
        last = self.last()
        state = None if last is None else last.state
        if self.processes and rng.random() < (0.1 if state is RecoveryState.SWITCHING else 0.01):
            self.kill(rng.choice(self.processes))
        if state in FENCE_MAY_FALL and rng.random() < 0.005:  # somebody removes it by hand
            assert last is not None
            self.clusters[last.flow.source].is_fenced = False
            self.outcome.counts["fences removed by hand"] += 1
        if rng.random() < 0.01:
            link = rng.choice(list(self.links))
            self.links[link] = not self.links[link]
            self.outcome.counts["links changed"] += 1
        if rng.random() < 0.005:
            cluster = self.clusters[rng.choice(SITES)]
            cluster.is_up = not cluster.is_up
            self.outcome.counts["clusters changed"] += 1
        for link, works in self.links.items():
            if not works and rng.random() < 0.03:
                self.links[link] = True
        for cluster in self.clusters.values():
            if not cluster.is_up and rng.random() < 0.02:
                cluster.is_up = True
        if len(self.processes) < 2 and rng.random() < (0.1 if not self.processes else 0.01):
            goals = (
                [*RecoveryGoal]
                if self.fails_over
                else [RecoveryGoal.CUTOVER, RecoveryGoal.ROLLBACK, RecoveryGoal.UNFENCE, RecoveryGoal.COMPLETE]
            )
            weights = [4 if goal in (RecoveryGoal.CUTOVER, RecoveryGoal.ROLLBACK) else 1 for goal in goals]
            self.begin(rng.choices(goals, weights)[0], rng.choice([FORTH, back(FORTH)]), rng.choice(SITES))

    fails_over = False

    # What must hold

    def find(self, what: str) -> None:
        if what not in self.outcome.findings:
            self.outcome.findings.append(f"{self.time.now_s:.1f} s: {what}")

    def check(self) -> None:
        for cluster in self.clusters.values():
            if cluster.committed > len(cluster.records):
                self.find(f"the group is ahead of its records on {cluster.alias}")
        if self.has_failed_over or any(
            RecoveryState.FAILING_OVER.value.encode() in one
            for cluster in self.clusters.values()
            for one in cluster.journal[-3:]
        ):
            self.has_failed_over = True
            return
        writable = {
            alias for who, alias in self.sent_to.items() if who != "group" and not self.clusters[alias].is_fenced
        }
        if len(writable) > 1:
            self.find("producers may write on both clusters")

    def settle(self) -> None:
        """Let everything answer again, and end what was begun."""
        self.is_faulty = False
        self.links = dict.fromkeys(self.links, True)
        for cluster in self.clusters.values():
            cluster.is_up = True
        for _ in range(2_000):
            if not self.processes and not self.late:
                break
            self.step()
        else:
            self.find("processes do not end although everything answers")
            return
        for _ in range(6):
            last = self.last()
            if last is None or last.state in (RecoveryState.TAKEN_BACK, RecoveryState.COMPLETE):
                break
            self._end(last)
        else:
            self.find(f"it never ends: {last and last.state} of {last and last.verb}")
        self._judge()

    def last(self) -> JournalEntry | None:
        """Return the entry that says how the clusters stand, by both journals."""
        lengths = tuple(len(cluster.journal) for cluster in self.clusters.values())
        if self._last is None or self._last[0] != lengths:
            self._last = lengths, self._read_last()
        return self._last[1]

    def _read_last(self) -> JournalEntry | None:
        journals = {
            alias: folded([decode_journal(one, where="") for one in cluster.journal], where=str(alias))
            for alias, cluster in self.clusters.items()
        }
        try:
            entries = agreed(journals, {alias: f"id-{alias}" for alias in SITES}).entries
            self.has_switched = has_switched(entries)
            return standing_entry(entries)
        except JournalsDisagree as error:
            self.is_split = "were switched" in str(error) and self.fails_over
            if not self.is_split:
                self.find(str(error))
            return None

    def _end(self, last: JournalEntry) -> None:
        goal = {
            RecoveryState.REVERSED: RecoveryGoal.COMPLETE,
            RecoveryState.FAILED_OVER: RecoveryGoal.REINSTATE,
            RecoveryState.REINSTATING: RecoveryGoal.REINSTATE,
            RecoveryState.REINSTATED: RecoveryGoal.REINSTATE,
            RecoveryState.EXTRAS_SETTLED: RecoveryGoal.REINSTATE,
        }.get(last.state, RecoveryGoal(last.verb.value))
        flow = last.flow
        if goal is RecoveryGoal.ROLLBACK:
            flow = back(flow)
        if goal is RecoveryGoal.COMPLETE and not self.has_switched:
            goal = RecoveryGoal.ROLLBACK
        self.begin(goal, flow, self.rng.choice(SITES))
        if goal is RecoveryGoal.FAILOVER and last.state is RecoveryState.TAKING_BACK:
            self.processes.pop().work.close()
            self.begin(RecoveryGoal.UNFENCE, flow, self.rng.choice(SITES))
        for _ in range(3_000):
            if not self.processes:
                return
            self.step()
        self.find(f"{goal} does not end although everything answers")

    def _judge(self) -> None:
        if self.is_split:
            self.outcome.counts["split, and stopped"] += 1
            return
        for _ in range(len(self.acked) * 2):
            self.copy()
            self.consume()
        active = self.clusters[self.sent_to["producer"]]
        if len(set(self.sent_to.values())) != 1:
            self.find(f"the hook has left {self.sent_to}")
        missing = set(self.acked) - set(active.records)
        if lost := missing - self.listed:
            self.find(f"lost, and not listed: {sorted(lost)[:5]} of {len(self.acked)}")
        if invented := self.listed - set(self.acked):
            self.find(f"listed, and never written: {sorted(invented)[:5]}")
        for cluster in self.clusters.values():
            if len(set(cluster.records)) < len(cluster.records):
                self.find(f"{cluster.alias} has records twice")
        if not self.has_failed_over:
            again = [one for one, times in self.read_by_group.items() if times > 1]
            if again:
                self.find(f"read again: {again[:5]}")
            if unread := set(self.acked) - set(self.read_by_group):
                self.find(f"never read: {sorted(unread)[:5]}")
            if self.clusters[A].records != self.clusters[B].records:
                self.find("the clusters have different records, or in another order")


def run_recoveries(seed: int, *, fails_over: bool | None = None) -> RecoveryOutcome:
    """Run one seed. ``fails_over``: None: every other seed does."""
    world = RecoveryWorld(seed)
    world.fails_over = bool(seed % 2) if fails_over is None else fails_over
    for _ in range(STEPS):
        world.step()
    world.settle()
    for cluster in world.clusters.values():
        records = [decode_journal(one, where="") for one in cluster.journal]
        world.outcome.counts["entries"] += sum(isinstance(one, JournalEntry) for one in records)
        world.outcome.counts["openings"] += sum(isinstance(one, JournalOpening) for one in records)
        for one in records:
            if isinstance(one, JournalEntry):
                world.outcome.counts[f"state {one.state}"] += 1
    return world.outcome
