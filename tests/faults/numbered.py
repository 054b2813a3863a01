"""A flow without load whose records are numbered, so that a test can say what each partition must hold.

It has its own alias, and its own topics for positions and gaps: a test may delete them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from tests.checker.check import check_copy
from tests.checker.committed import judge_transactions
from tests.cluster.copies import COPY_DEADLINE_S, KEEP, answered, dump, make_topic
from tests.cluster.kafka_client import admin, new_name, values, write
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, Value, one_way_properties, wait_until
from tests.faults.scene import OWN_TOPICS, REPLICAS, Pair

SLOW_S = 150.0 * PATIENCE
"""How long a test waits for what an election, or many concurrent processes, may delay."""


def numbered(era: str, count: int) -> list[bytes]:
    """Return the values of some records; the era distinguishes logs of one name."""
    return [f"{era} {number}".encode() for number in range(count)]


class Numbered:
    """The test's own flow: alias, topics, file."""

    def __init__(self, pair: Pair, stem: str, **extra: Value) -> None:
        self.pair = pair
        self.stem = new_name(stem)
        self.alias = new_name("N").replace("-", "")
        replicas: dict[str, Value] = {
            "replication.factor": REPLICAS,
            "offset.storage.replication.factor": REPLICAS,
            "status.storage.replication.factor": REPLICAS,
            "offset-syncs.topic.replication.factor": REPLICAS,
        }
        topics: dict[str, Value] = {f"{self.alias}->B.topics": f"{self.stem}.*"}
        self.properties = one_way_properties(
            pair.source, pair.target, names=(self.alias, "B"), **{**topics, **replicas, **extra}
        )
        self.offsets_topic, self.status_topic = (name.replace(".A.", f".{self.alias}.") for name in OWN_TOPICS)

    def topic(self, name: str = "log", partitions: int = 2, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic that the flow copies, and return its name."""
        topic = f"{self.stem}-{name}"
        make_topic(self.pair.source, topic, partitions, configs, replicas=REPLICAS)
        return topic

    def remote(self, topic: str) -> str:
        return f"{self.alias}.{topic}"

    def accept(self, run: Mm2py, *where: str) -> tuple[int, Any]:
        """Accept the gaps of topics, or of TOPIC:PARTITION. Return the exit code and the answers."""
        return run.gaps("accept", *(f"{self.alias}->B:{one}" for one in where))

    # Waiting

    def copied(self, topic: str, partition: int = 0) -> list[bytes]:
        """Return the values of a partition's copy."""
        return values(self.pair.target, self.remote(topic), [partition])

    def wait_for(self, run: Mm2py, topic: str, *expected: Sequence[bytes]) -> None:
        """Wait until the copies of the partitions, from 0 on, are exactly these."""
        for partition, wanted in enumerate(expected):
            self._wait_for_one(run, topic, partition, wanted)

    def _wait_for_one(self, run: Mm2py, topic: str, partition: int, wanted: Sequence[bytes]) -> None:
        found: list[bytes] = []

        def is_there() -> bool:
            found[:] = answered(lambda: self.copied(topic, partition))
            return found == wanted

        try:
            run.wait_until(is_there, f"{topic}-{partition} is copied", deadline_s=SLOW_S)
        except AssertionError as error:
            error.add_note(f"{len(found)} records instead of {len(wanted)}: {_shortened(found)}")
            raise

    def gap(self, run: Mm2py, topic: str, partition: int = 0, **fields: object) -> dict[str, Any]:
        """Wait until ``mm2py gaps`` lists a gap of a partition with these fields, and return it (I9)."""
        return self.gaps(run, {(topic, partition)}, **fields)[0]

    def gaps(self, run: Mm2py, partitions: Collection[tuple[str, int]], **fields: object) -> list[dict[str, Any]]:
        """Like ``gap`` for several partitions: at least one gap of each."""
        listed: list[dict[str, Any]] = []

        def of_all() -> list[dict[str, Any]]:
            listed[:] = run.gaps("--all")[1]
            found = [one for one in listed if fields.items() <= one.items() and _where(one) in partitions]
            return found if {_where(one) for one in found} == set(partitions) else []

        try:
            return run.wait_until(of_all, f"gaps of {sorted(partitions)} with {fields}", deadline_s=SLOW_S)
        except AssertionError as error:
            error.add_note(f"listed: {listed}")
            raise

    # Judging

    def judge(
        self, topic: str, begins: Mapping[int, bytes] | None = None, *, own: bool = True, deadline_s: float = 0.0
    ) -> None:
        """Let the checker judge a copy, and what transactions left behind.

        Args:
            begins: the value with which the judged part of a partition starts, on both sides; records
                before its last occurrence are of another log, and have been compared by ``wait_for``.
            own: judge the topics of positions and gaps as well.
        """
        begins, remote = begins or {}, self.remote(topic)
        starts = {(topic, number): _last(self.pair.source, topic, number, value) for number, value in begins.items()}
        target = {(topic, number): _last(self.pair.target, remote, number, value) for number, value in begins.items()}
        report = answered(
            lambda: check_copy(
                self.pair.source.internal_bootstrap,
                self.pair.target.internal_bootstrap,
                {topic: remote},
                starts=starts,
                target_starts=target,
                wait_s=deadline_s,
            )
        )
        assert report.ok, f"{topic} is not copied right:\n{report}"
        judged = [remote, *((self.offsets_topic, self.status_topic) if own else ())]
        found = judge_transactions(self.pair.target.internal_bootstrap, judged, wait_s=COPY_DEADLINE_S)
        assert not found, "\n".join(str(finding) for finding in found)


def _last(cluster: KafkaCluster, topic: str, partition: int, value: bytes) -> int:
    """Return the offset of the last record with a value."""
    found = [record.offset for record in dump(cluster, topic, [partition])[partition] if record.value == value]
    assert found, f"{value!r} is not in {topic}-{partition}"
    return found[-1]


def _where(gap: Mapping[str, Any]) -> tuple[str, int]:
    return gap["topic"], gap["partition"]


def _shortened(found: Sequence[bytes]) -> str:
    return " ".join(value.decode() for value in [*found[:3], b"...", *found[-3:]])


# Unclean elections


def make_unclean(cluster: KafkaCluster, topic: str) -> None:
    """Create a topic of two partitions that allows unclean elections: 0 on the brokers 1 and 2, 1 on 3 and 1.

    Two replicas, since with two of three brokers down no controller quorum would be left to elect a leader.
    """
    configs = {**KEEP, "unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    client = admin(cluster)
    new = NewTopic(topic, 2, replica_assignment=[[1, 2], [3, 1]], config=configs)
    client.create_topics([new])[topic].result(ANSWER_S)
    wait_until(lambda: leader_and_isr(cluster, topic) == (1, {1, 2}), f"{topic} has its leader and replicas")


def leader_and_isr(cluster: KafkaCluster, topic: str) -> tuple[int, set[int]]:
    part = admin(cluster).list_topics(topic, timeout=ANSWER_S).topics[topic].partitions.get(0)
    return (-1, set()) if part is None else (part.leader, set(part.isrs))


def shrink(cluster: KafkaCluster, topic: str) -> None:
    """Stop the follower of partition 0: from now on only the leader has new records."""
    cluster.broker(2).stop()
    wait_until(lambda: leader_and_isr(cluster, topic) == (1, {1}), "only the leader is in sync", deadline_s=SLOW_S)


def elect_the_stale(cluster: KafkaCluster, topic: str) -> None:
    """Kill the leader of partition 0, and elect the replica that lacks the records written since ``shrink``."""
    cluster.broker(1).kill()
    cluster.broker(2).start(wait=False)
    cluster.broker(2).await_ready(brokers=2)
    wait_until(lambda: leader_and_isr(cluster, topic)[0] == 2, "the stale replica leads", deadline_s=SLOW_S)


# Other changes of topics


def write_era(cluster: KafkaCluster, topic: str, era: str, count: int, partitions: Sequence[int] = (0,)) -> None:
    """Append numbered records of an era to partitions of a topic."""
    for partition in partitions:
        write(cluster, topic, numbered(era, count), partition=partition)


def set_config(cluster: KafkaCluster, topic: str, **settings: str) -> None:
    """Change settings of a topic; underscores stand for dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    client = admin(cluster)
    client.incremental_alter_configs([resource])[resource].result(ANSWER_S)
