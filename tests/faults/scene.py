"""The scene of a fault: a flow between two clusters of three nodes, under load, and what must hold at its end.

    with Scene(pair, "killed") as scene:
        scene.copy_more(1_000)
        pair.source.brokers[0].kill()
        scene.copy_more(1_000)
        scene.conclude()

Two topics are under load, with records of today and of a month ago (brokers forget the producers of those at once).
They have three replicas, of which two must be in sync. ``conclude`` ends the load and judges: every record is there
once and in order (I1 to I5), readers of committed records see all of it (I4, I13), no gap was found that the test does
not name (I9), and if nothing was lost on either side the ledger knows the place of each copy.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition

from deploy.local.kafka import Broker, KafkaCluster
from tests.checker.committed import judge_transactions
from tests.cluster.copies import COPY_DEADLINE_S
from tests.cluster.kafka_client import admin, new_name
from tests.cluster.loads import PARTITIONS, Loads
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, Value, one_way_properties, wait_until

OWN_TOPICS: Final = ("mm2-offsets.A.internal", "mm2-status.A.internal")
NODES: Final = int(os.environ.get("MM2PY_FAULTS_NODES", "3"))
"""Nodes of each cluster. One node is for trying out a test on a small or busy machine; it proves less."""
REPLICAS: Final = NODES
BEGIN_S: Final = 120.0 * PATIENCE
"""How long a process may take from its start until it copies, beside disturbed brokers and other work."""


def rounds(usual: int) -> int:
    """Return how often a test repeats its fault: ``MM2PY_FAULTS_ROUNDS`` if set."""
    return int(os.environ.get("MM2PY_FAULTS_ROUNDS", usual))


@dataclass(frozen=True, slots=True)
class Pair:
    """The two clusters of a test."""

    source: KafkaCluster
    target: KafkaCluster


def three_node_properties(source: KafkaCluster | str, target: KafkaCluster | str, **extra: Value) -> dict[str, Value]:
    """Return a file as ``one_way_properties`` does, with three replicas of everything."""
    replicas = {
        "replication.factor": REPLICAS,
        "offset.storage.replication.factor": REPLICAS,
        "status.storage.replication.factor": REPLICAS,
        "offset-syncs.topic.replication.factor": REPLICAS,
    }
    return one_way_properties(source, target, **{**replicas, **extra})


class Scene:
    """A flow ``A->B`` and its load; ends both with its ``with`` block.

    Args:
        stem: begins the names of its topics.
        source, target: what to connect to instead of the clusters themselves, such as a proxy.
        per_second: records of each of the two topics.
        properties: further ones of the file.
    """

    def __init__(
        self,
        pair: Pair,
        stem: str,
        *,
        source: str | None = None,
        target: str | None = None,
        per_second: int = 1_000,
        properties: dict[str, Value] | None = None,
    ) -> None:
        self.pair = pair
        self.loads = Loads(pair.source, new_name(stem), per_second=per_second, replicas=REPLICAS)
        topics = {"A->B.topics": ",".join(self.loads.topics)}
        self.properties = three_node_properties(
            source or pair.source, target or pair.target, **{**topics, **(properties or {})}
        )
        self.run = Mm2py(self.properties)
        """The process that is to copy; see ``begin_another``."""
        self.runs = [self.run]
        """All processes so far."""
        self._is_loading = False

    @property
    def topics(self) -> Sequence[str]:
        return self.loads.topics

    @property
    def remotes(self) -> Sequence[str]:
        return [f"A.{topic}" for topic in self.loads.topics]

    def __enter__(self) -> Self:
        self.run.__enter__()
        try:
            self.loads.__enter__()
            self._is_loading = True
            self.run.wait_for_event("topics.copying", deadline_s=BEGIN_S)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(Exception):  # a load that failed after its test hides nothing
            self._end_loads()
        for run in reversed(self.runs):  # they share the file of the first process
            run.__exit__(kind, error, traceback)

    def begin_another(self) -> Mm2py:
        """Start a second process with the same file, which is ``run`` from now on, and return it."""
        self.run = Mm2py(self.runs[0].file)
        self.runs.append(self.run)
        self.run.start()
        return self.run

    def copy_more(self, records: int = 1_000) -> None:
        """Wait until so many more records are copied."""
        self.loads.wait_for_copies(self.pair.target, self.run, records)

    def conclude(
        self,
        *,
        gaps: Collection[str] = (),
        target_starts: Mapping[tuple[str, int], int] | None = None,
        ends_well: bool = True,
    ) -> None:
        """End the load and judge. All brokers run again by then.

        Args:
            gaps: the kinds of gaps that the test expects; any other is a finding.
            target_starts: as ``Loads.assert_copied``.
            ends_well: the process is asked to stop, and must log that it drained.
        """
        self._end_loads()
        self.loads.assert_copied(self.pair.target, self.run, max_rewinds=0, target_starts=target_starts)
        if not gaps and target_starts is None:
            self.loads.assert_ledgers(self.pair.target, self.run)
        found = judge_transactions(
            self.pair.target.internal_bootstrap, [*self.remotes, *OWN_TOPICS], wait_s=COPY_DEADLINE_S
        )
        assert not found, "\n".join(str(finding) for finding in found)
        kinds = {gap["kind"] for gap in self.gaps()}
        assert kinds == set(gaps), f"gaps of other kinds than expected: {self.gaps()}"
        if ends_well:
            assert self.run.terminate() == 0
        for run in self.runs:
            assert not run.events("flow.crashed"), run.tail()

    def gaps(self) -> list[dict[str, Any]]:
        """Return all gaps of this scene's topics in the status topic."""
        _, found = self.run.gaps("--all")
        return [gap for gap in found if gap["topic"] in self.loads.topics]

    def _end_loads(self) -> None:
        if self._is_loading:
            self._is_loading = False
            self.loads.__exit__(None, None, None)


# Brokers


def await_in_sync(cluster: KafkaCluster, topics: Sequence[str] = ()) -> None:
    """Wait until every replica of some topics, by default of all, has caught up: then the next broker may stop."""
    client = admin(cluster)

    def all_in_sync() -> bool:
        with suppress(KafkaException):
            found = client.list_topics(timeout=10 * PATIENCE).topics
            wanted = [found[topic] for topic in topics] if topics else found.values()
            parts = [part for topic in wanted for part in topic.partitions.values()]
            return all(part.leader >= 0 and len(part.isrs) == len(part.replicas) for part in parts)
        return False

    wait_until(all_in_sync, "all replicas are in sync", deadline_s=COPY_DEADLINE_S)


def give_leaders_back(cluster: KafkaCluster, topics: Sequence[str]) -> None:
    """Let each partition of some topics be led by its preferred replica again."""
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
    client = admin(cluster)  # its answer is lost with it
    with suppress(KafkaException):  # refused where no leader has to move
        client.elect_leaders(ElectionType.PREFERRED, partitions).result(ANSWER_S)


def leader_of(cluster: KafkaCluster, topic: str, partition: int = 0) -> Broker:
    """Return the present leader of a partition."""

    def leader() -> Broker | None:
        part = admin(cluster).list_topics(topic, timeout=ANSWER_S).topics[topic].partitions[partition]
        return None if part.leader < 0 or part.error == KafkaError.LEADER_NOT_AVAILABLE else cluster.broker(part.leader)

    return wait_until(leader, f"{topic}-{partition} has a leader")


def heal(cluster: KafkaCluster) -> None:
    """Let all brokers run again, and all replicas catch up."""
    for broker in cluster.brokers:
        if broker.alive:
            broker.thaw()
        else:
            broker.start(wait=False)
    for broker in cluster.brokers:
        broker.await_ready(brokers=len(cluster.brokers))
    await_in_sync(cluster)
