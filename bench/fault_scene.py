"""The scene of one case: two clusters, two topics under load, one mirror, a consumer of the copies.

A case (``bench.fault_cases``) defines what happens and when; this module does it. Each wait has a deadline: a mirror
that stops copying is restarted by hand, which is recorded, and the case continues.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.fault_mirrors import Plan, Worker
from bench.fault_outcome import Recovery
from bench.fault_watch import Marks, Tail, recovery
from deploy.local.kafka import Broker, KafkaCluster
from deploy.local.ports import lease_ports
from tests.checker.check import Report, check_copy
from tests.checker.dump import Bounds, Reader
from tests.checker.load import Load
from tests.checker.traffic import Traffic

PARTITIONS: Final = 4
AGES_MS: Final[Mapping[str, int]] = {"young": 0, "old": 30 * 86_400_000}
"""Ages of the records by topic. Brokers forget the producers of old records at once, those of new ones after a day."""
KEEP: Final = {"retention.ms": "-1"}
WARM_RECORDS: Final = 2_000
START_S: Final = 90.0
RECOVER_S: Final = 90.0
ANSWER_S: Final = 60.0
LOOK_S: Final = 0.02
FIRST, SECOND = 0, 1


class NotSeen(Exception):
    """Something that a case needs did not happen in time."""


def wait_for(condition: Callable[[], bool], what: str, *, deadline_s: float) -> None:
    """Check repeatedly until the condition is true.

    Raises:
        NotSeen: it did not become true in time.
    """
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise NotSeen(f"not within {deadline_s:g} s: {what}")
        time.sleep(LOOK_S)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of a case; brokers are shared by cases, topics are not."""

    source: KafkaCluster
    target: KafkaCluster


class Scene:
    """Everything that a case acts on. All its processes and threads end with its ``with`` block."""

    def __init__(
        self,
        clusters: Clusters,
        mirror: str,
        directory: Path,
        *,
        serial: str,
        seed: int,
        per_second: float,
        kills: int = 10,
        mm2_settings: Mapping[str, str] | None = None,
    ) -> None:
        self.clusters = clusters
        self.kills = kills
        self.chance = random.Random(seed)
        self.course: list[tuple[float, str]] = []
        self.recoveries: list[Recovery] = []
        self.restarts_by_hand = 0
        self.seconds_to_start = 0.0
        self.topics = [f"{age}-{serial}" for age in AGES_MS]
        nodes = len(clusters.source.brokers), len(clusters.target.brokers)
        self.plan = Plan(
            *(mirror, serial, clusters.source.bootstrap, clusters.target.bootstrap, self.topics),
            source_replicas=nodes[0],
            target_replicas=nodes[1],
            mm2_settings=mm2_settings or {},
        )
        self.remotes = {topic: self.plan.remote(topic) for topic in self.topics}
        self.tail = Tail(clusters.target.bootstrap, self.remotes, PARTITIONS)
        self.loads: list[Load] = []
        self._seed = seed
        self._per_second = per_second / len(AGES_MS)
        self._leases = lease_ports(2)
        self.workers = [
            Worker(self.plan, directory, rest_port=lease.port, name=name)
            for lease, name in zip(self._leases, ("worker", "replacement"), strict=True)
        ]
        self._begun_s = time.monotonic()

    @property
    def worker(self) -> Worker:
        return self.workers[FIRST]

    def __enter__(self) -> Self:
        self.make_topics()
        self.new_loads(producer=0)
        self.tail.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.kill()
        self.tail.__exit__(kind, error, traceback)
        for lease in self._leases:
            lease.release()

    def note(self, what: str) -> None:
        self.course.append((round(time.monotonic() - self._begun_s, 2), what))

    # Topics and loads

    def make_topics(self) -> None:
        """Make the source topics, and wait until their partitions have leaders."""
        admin = admin_of(self.clusters.source)
        replicas = len(self.clusters.source.brokers)
        new = [NewTopic(topic, PARTITIONS, replicas, config=dict(KEEP)) for topic in self.topics]
        for made in admin.create_topics(new).values():
            made.result(ANSWER_S)
        wait_for(lambda: len(leaders(admin, self.topics)) == PARTITIONS * len(self.topics), "leaders", deadline_s=30)

    def delete_topics(self) -> None:
        """Delete the source topics, and wait until the cluster no longer names them."""
        admin = admin_of(self.clusters.source)
        for gone in admin.delete_topics(self.topics).values():
            gone.result(ANSWER_S)
        wait_for(
            lambda: not set(self.topics) & admin.list_topics(timeout=ANSWER_S).topics.keys(), "gone", deadline_s=30
        )

    def new_loads(self, *, producer: int) -> None:
        """Start new traffic, as another producer."""
        self.loads = [
            Load(
                self.clusters.source.bootstrap,
                topic,
                Traffic(
                    seed=self._seed + producer,
                    partitions=PARTITIONS,
                    producer=producer,
                    first_timestamp_ms=int(time.time() * 1000) - age_ms,
                    plain=True,
                ),
                codecs=["lz4"],
                per_second=self._per_second,
                settings={"reconnect.backoff.max.ms": 500},
            )
            for topic, age_ms in zip(self.topics, AGES_MS.values(), strict=True)
        ]

    @contextmanager
    def under_load(self) -> Iterator[None]:
        """Write to both topics until the block ends."""
        with ExitStack() as running:
            for load in self.loads:
                running.enter_context(load.in_background())
            self.note("load begins")
            yield
        self.note(f"load ends after {sum(load.acknowledged for load in self.loads)} records")

    def write(self, records: int) -> None:
        """Write this many records to each topic, at the usual rate."""
        for load in self.loads:
            load.run(records=records)

    def marks(self) -> Marks:
        return {load.topic: load.produced for load in self.loads}

    # The mirror

    def start_and_warm_up(self) -> None:
        """Start the worker, and wait until every partition is copied.

        Raises:
            NotSeen: the worker does not copy.
        """
        self.worker.start()
        self.note("worker starts")
        wait_for(lambda: self.tail.distinct() > 0, "a first copy", deadline_s=START_S)
        self.seconds_to_start = time.monotonic() - self.worker.started_s
        self.note(f"first copy seen, {self.seconds_to_start:.1f} s after the start")
        goal = self.tail.distinct() + WARM_RECORDS
        wait_for(lambda: self.tail.distinct() >= goal, f"{WARM_RECORDS} copies", deadline_s=START_S)
        self.await_recovery("the start", self.marks(), time.monotonic(), counts=False)

    def await_recovery(
        self,
        fault: str,
        marks: Marks,
        fault_s: float,
        *,
        counts: bool = True,
        by_hand: bool = True,
        deadline_s: float = RECOVER_S,
    ) -> None:
        """Wait until each partition has a copy of a record written after the marks.

        Args:
            counts: whether the recovery counts in the table.
            by_hand: whether the mirror is restarted by hand if it does not recover.
        """
        end_s = time.monotonic() + deadline_s
        while (felt := recovery(fault, fault_s, self.tail.firsts_s(marks))).all_s is None:
            if time.monotonic() > end_s:
                break
            time.sleep(LOOK_S)
        if counts:
            self.recoveries.append(felt)
        self.note(f"after {fault}: first copy {felt.first_s} s, all partitions {felt.all_s} s")
        if felt.all_s is None and by_hand:
            self.restart_by_hand()

    def restart_by_hand(self) -> None:
        """Restart the mirror, as an operator does who sees that nothing is copied."""
        self.restarts_by_hand += 1
        ended = [worker.exit_code for worker in self.workers if worker.exit_code is not None]
        self.note(f"started again by hand; ended by themselves: {ended}")
        for worker in self.workers:
            worker.thaw()
            worker.stop()
        self.worker.start()
        goal = self.tail.distinct() + 1
        with suppress(NotSeen):
            wait_for(lambda: self.tail.distinct() >= goal, "a copy", deadline_s=RECOVER_S)

    def pause(self, least_s: float, most_s: float) -> None:
        """Let time pass; the seed decides how much."""
        time.sleep(self.chance.uniform(least_s, most_s))

    def await_all(self, *, deadline_s: float = RECOVER_S) -> bool:
        """Wait until the copy has every record. Returns False if it does not in time."""
        goal = sum(load.acknowledged for load in self.loads)
        with suppress(NotSeen):
            wait_for(lambda: self.tail.distinct() >= goal, "all copied", deadline_s=deadline_s)
        self.note(f"{self.tail.distinct()} of {goal} records seen")
        return self.tail.distinct() >= goal

    def finish(self) -> None:
        """Wait for the rest of the copy, with one restart by hand if needed, and stop the mirror with SIGTERM."""
        if not self.await_all():
            self.restart_by_hand()
            self.await_all()
        self.stop_all()

    def stop_all(self) -> None:
        for worker in self.workers:
            if worker.alive:
                self.note(f"stopped, exit code {worker.stop()}")

    # Observation

    def check(
        self,
        starts: Mapping[tuple[str, int], int] | None = None,
        target_starts: Mapping[tuple[str, int], int] | None = None,
    ) -> Report:
        """Let the checker judge both topics; any rewind is allowed, and counted."""
        return check_copy(
            self.clusters.source.bootstrap,
            self.clusters.target.bootstrap,
            self.remotes,
            max_rewinds=None,
            starts=starts,
            target_starts=target_starts,
        )

    def source_bounds(self) -> dict[tuple[str, int], Bounds]:
        return bounds(self.clusters.source, self.topics)

    def target_ends(self) -> dict[tuple[str, int], int]:
        """Return the ends of the copies, by source topic."""
        found = bounds(self.clusters.target, list(self.remotes.values()))
        return {
            (topic, number): found[remote, number].end
            for topic, remote in self.remotes.items()
            for number in range(PARTITIONS)
        }


# Brokers


def admin_of(cluster: KafkaCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def bounds(cluster: KafkaCluster, topics: Sequence[str]) -> dict[tuple[str, int], Bounds]:
    """Return the starts and ends of the topics' logs."""
    with Reader(cluster.bootstrap, read_committed=False) as reader:
        return {
            (topic, number): bound
            for topic in topics
            for number, bound in reader.bounds(topic, range(PARTITIONS)).items()
        }


def leaders(admin: AdminClient, topics: Sequence[str]) -> list[int]:
    """Return the node ids of the leaders of all partitions that have one."""
    known = admin.list_topics(timeout=ANSWER_S).topics
    parts = [part for topic in topics if topic in known for part in known[topic].partitions.values()]
    return [part.leader for part in parts if part.leader > 0]


def busiest(cluster: KafkaCluster, topics: Sequence[str]) -> Broker:
    """Return the broker that leads the most partitions of the topics; of several, the one with the lowest id."""
    led = leaders(admin_of(cluster), topics)
    return cluster.broker(max(sorted(set(led)), key=led.count))


def await_in_sync(cluster: KafkaCluster, topics: Sequence[str]) -> None:
    """Wait until every replica of the topics has caught up: then the next broker may stop.

    Raises:
        NotSeen: a replica does not.
    """
    admin = admin_of(cluster)

    def all_in_sync() -> bool:
        with suppress(KafkaException):
            known = admin.list_topics(timeout=ANSWER_S).topics
            parts = [part for topic in topics for part in known[topic].partitions.values()]
            return all(len(part.isrs) == len(part.replicas) for part in parts)
        return False

    wait_for(all_in_sync, "all replicas are in sync", deadline_s=ANSWER_S)


def delete_below(cluster: KafkaCluster, offsets: Mapping[tuple[str, int], int]) -> None:
    """Delete the records below these offsets (DeleteRecords)."""
    places = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
    admin = admin_of(cluster)  # its answers come only while it is referenced
    for deleted in admin.delete_records(places).values():
        deleted.result(ANSWER_S)
