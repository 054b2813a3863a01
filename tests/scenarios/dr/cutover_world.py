"""Two cluster models, a worker of both flows, clients that can be fenced and sent elsewhere, and cutovers of it all.

The fence is a hook, as on clusters without an authorizer: the clients of the model obey it. The switch sends them to
the other cluster. Everything else is real: journal, fence's record, positions, groups, turns.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mm2py.dr.cutover.actions import CutoverActions
from mm2py.dr.cutover.pair import CutoverOptions, RecoveryPair
from mm2py.dr.fence.record import FenceRecord, FenceWay
from mm2py.dr.journal import JournalEntry
from mm2py.dr.journal_topic import JournalTopics
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.runner import RecoveryGoal, RecoveryRunner
from mm2py.dr.states import RecoveryState
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import Author
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.scenarios.standby_world import TurnWorld

A, B = ClusterAlias("A"), ClusterAlias("B")
GROUP = "pay"
OWN = frozenset({"User:mirror"})


class ProcessKilled(Exception):
    """The process of the command ended here."""


class ScenarioActions(CutoverActions):
    """The real actions, with a hook that sends the clients of the model elsewhere."""

    world: CutoverWorld

    async def run_hook(self, entry: JournalEntry) -> None:
        self.world.hooks.append(f"switch to {entry.flow.target}")
        if self.world.failing_hooks:
            self.world.failing_hooks -= 1
            raise self.world.hook_error
        self.world.clients_on = entry.flow.target


class CutoverWorld(TurnWorld):
    """Producers write to ``orders``, and a group reads it, on the cluster to which they are sent."""

    def __init__(self, *, keeps_names: bool, seed: int = 1) -> None:
        policy = "IdentityReplicationPolicy" if keeps_names else "DefaultReplicationPolicy"
        super().__init__(
            seed, **{"replication.policy.class": policy, "B->A.standby": "true" if keeps_names else "false"}
        )
        self.keeps_names = keeps_names
        self.clients_on = A
        self.fenced: set[str] = set()
        self.hooks: list[str] = []
        self.failing_hooks = 0
        self.hook_error: Exception = ProcessKilled()
        self.sent: Counter[bytes] = Counter()
        self.read: Counter[bytes] = Counter()
        self.told: list[str] = []
        self.calls = 0
        if not keeps_names:
            self.target.create_topic("orders", 2)

    # Clients

    def produce(self, count: int = 3) -> None:
        """Let the producers write where they are, unless they are fenced there."""
        if self.clients_on in self.fenced:
            return
        cluster = self.both[self.clients_on]
        for partition in cluster.topics["orders"].partitions:
            for _ in range(count):
                self.number += 1
                value = f"{self.number}".encode()
                cluster.append("orders", partition.index, [Record(value=value)])
                self.sent[value] += 1

    def consume(self) -> None:
        """Let the group read everything that is there, where it is, and commit it."""
        cluster = self.both[self.clients_on]
        at = dict(cluster.groups.commits_of(GROUP)) if GROUP in cluster.groups.known else {}
        for topic in self.read_topics(cluster):
            for partition in cluster.topics[topic].partitions:
                begin = at.get((topic, partition.index), (0, ""))[0]
                new = [one for one in cluster.records(topic, partition.index) if one.offset >= begin]
                self.read.update(one.value or b"" for one in new)
                if new:
                    at[topic, partition.index] = (new[-1].offset + 1, "")
        cluster.groups.commit(GROUP, at)

    def read_topics(self, cluster: ClusterModel) -> list[str]:
        """Return what the group reads on a cluster: what is written there, and the copies."""
        other = "B" if cluster is self.source else "A"
        names = ["orders"] if self.keeps_names else ["orders", f"{other}.orders"]
        return [name for name in names if name in cluster.topics]

    def copies(self) -> bool:
        """Whether all that was sent is on both clusters, each record once."""
        found = [Counter[bytes](), Counter[bytes]()]
        for number, cluster in enumerate(self.both.values()):
            for topic in self.read_topics(cluster):
                found[number] += self.values(cluster, topic)
        return all(one == self.sent for one in found)

    # Calls

    def options(self, **changes: object) -> CutoverOptions:
        async def fence(verb: str, record: FenceRecord) -> None:
            source = record.flow.partition("->")[0]
            self.hooks.append(f"{verb} {source}")
            (self.fenced.add if verb == "fence" else self.fenced.discard)(source)

        return replace(
            CutoverOptions(way=FenceWay.HOOK, fence_hook=fence, fence_hook_name="stop-it"),
            **changes,  # type: ignore[arg-type]
        )

    def pair(self, verb: str) -> RecoveryPair:
        configuration = self.settings_file.configuration()
        settings = {one.flow: one for one in configuration.flows}
        return RecoveryPair(
            file=self.settings_file,
            by_file=settings,
            settings=settings,
            brokers={A: self.source, B: self.target},
            own_principals={A: OWN, B: OWN},
            author=Author("ann", "ops1"),
            command=f"mm2py dr {verb}",
            clock=self.clock,
            rng=random.Random(self.rng.random()),
        )

    async def call(
        self,
        goal: RecoveryGoal,
        flow: Flow,
        *,
        killed_after: int | None = None,
        obstacles: Sequence[str] = (),
        **changes: object,
    ) -> RecoveryState:
        """Call a verb. ``killed_after``: its process ends after so many entries."""

        async def asked(_: Flow) -> Sequence[str]:
            return obstacles

        self.calls += 1
        actions = ScenarioActions(self.pair(str(goal)), self.options(**changes), obstacles=asked, say=self.told.append)
        actions.world = self
        rng = random.Random(self.rng.random())
        store = JournalTopics(flow, {A: self.source, B: self.target}, clock=self.clock, rng=rng)
        journal = await JournalWriter.open(store, author=Author("ann", "ops1"), clock=self.clock, rng=rng)
        actions.journal = journal
        count = 0

        def told(_: JournalEntry) -> None:
            nonlocal count
            count += 1
            if count == killed_after:
                raise ProcessKilled

        journal.tell = told
        return await RecoveryRunner(journal, actions).run(goal, flow)
