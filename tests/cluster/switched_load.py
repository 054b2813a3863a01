"""Clients that obey the hooks of ``mm2py dr cutover``: producers of three kinds and many groups, and what they saw.

The fence is a file for each cluster, and so is the name of the cluster where clients belong. Each acknowledged record
has a number of its own. So what was lost, and what a group has read again, is counted, not guessed.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from deploy.local.client_hooks import ClientHooks
from deploy.local.kafka import KafkaCluster
from tests.checker.check import check_copy
from tests.cluster.copies import make_topic, producer
from tests.cluster.group_offsets import member
from tests.cluster.kafka_client import new_name, read
from tests.cluster.running import ANSWER_S, OWN_PATH, PATIENCE, Mm2py, two_way_properties, wait_until

PREFIXED, IDENTITY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
RUN_S: Final = 240.0 * PATIENCE
"""How long one call of a verb may take."""
CALLS_MOST: Final = 5
PARTITIONS: Final = 2
BATCH: Final = 6
EVERY_S: Final = 0.1
KEYS: Final = 25
ABORTED: Final = 5
"""Every so many-th transaction is aborted."""
CLEANED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "20000",
}


class SwitchedLoad:
    """Both flows of a pair, three producers, and groups of both protocols that read all topics."""

    def __init__(
        self, clusters: tuple[KafkaCluster, KafkaCluster], folder: Path, policy: str, *, groups: int, replicas: int = 1
    ) -> None:
        self.a, self.b = new_name("A").replace("-", ""), new_name("B").replace("-", "")
        self.clusters = dict(zip((self.a, self.b), clusters, strict=True))
        self.flow, self.back = f"{self.a}->{self.b}", f"{self.b}->{self.a}"
        self.keeps_names = policy == IDENTITY
        self.files = ClientHooks(folder, self.a)
        self.plain, self.paid, self.state = (new_name(stem) for stem in ("orders", "paid", "state"))
        self.topics = (self.plain, self.paid, self.state)
        for alias, cluster in self.clusters.items():
            for topic in self.topics if alias == self.a or not self.keeps_names else ():
                configs = CLEANED if topic == self.state else {}
                make_topic(cluster, topic, PARTITIONS, configs, replicas=replicas)
        standby = {f"{self.back}.standby": True} if self.keeps_names else {}
        names = dict.fromkeys(("replication.factor", "config.storage.replication.factor"), replicas)
        properties: Mapping[str, Any] = {
            "topics": ",".join(self.topics),
            "replication.policy.class": policy,
            **{f"{alias}.consumer.isolation.level": "read_committed" for alias in self.clusters},
            **names,
            **standby,
        }
        self.run = Mm2py(two_way_properties(*clusters, names=(self.a, self.b), **properties))
        stem = new_name("group")
        self.groups = {f"{stem}-{at:02}": ("classic", "consumer")[at % 2] for at in range(groups)}
        self.acked: dict[str, list[tuple[bytes, bytes]]] = {topic: [] for topic in self.topics}
        """Committed records by topic: key and value, in the order of their acknowledgement."""
        self.read: dict[str, Counter[bytes]] = {group: Counter() for group in self.groups}
        self.acks: dict[str, list[tuple[str, float]]] = {topic: [] for topic in self.topics}
        """When each producer was answered last, and by which cluster."""
        self.failures: list[str] = []
        self.refused: list[str] = []
        """What calls printed that changed nothing, or took all back."""
        self._reads_at: dict[str, str] = {}
        """Where each group is."""
        self._over = threading.Event()
        self._no_load = threading.Event()
        self._quiet: dict[str, threading.Event] = {topic: threading.Event() for topic in self.topics}

    # The producers

    def _produce(self, topic: str) -> None:
        is_transactional = topic == self.paid
        clients: dict[str, Producer] = {}
        number = 0
        while not self._over.wait(EVERY_S):
            alias = self.files.at
            if self._no_load.is_set():
                self._quiet[topic].set()  # all that was sent is answered
                continue
            self._quiet[topic].clear()
            # A group that is still on the old cluster would read there what comes back, and once more on the new one.
            if self.files.is_fenced(alias) or any(self._reads_at.get(group) != alias for group in self.groups):
                continue
            if alias not in clients:
                own = {"transactional_id": f"{topic}-{alias}"} if is_transactional else {}
                clients[alias] = producer(self.clusters[alias], enable_idempotence=True, **own)
                if is_transactional:
                    clients[alias].init_transactions(ANSWER_S)
            sent = [(f"{at % KEYS}".encode(), f"{topic} {at}".encode()) for at in range(number, number + BATCH)]
            is_aborted = is_transactional and number // BATCH % ABORTED == ABORTED - 1
            self._send(clients[alias], topic, sent, is_transactional=is_transactional, is_aborted=is_aborted)
            if not is_aborted:
                self.acked[topic] += sent
                self.acks[topic].append((alias, time.monotonic()))
            number += BATCH

    def _send(
        self,
        client: Producer,
        topic: str,
        records: list[tuple[bytes, bytes]],
        *,
        is_transactional: bool,
        is_aborted: bool,
    ) -> None:
        def settled(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.failures.append(f"a record of {topic} was refused: {error}")

        if is_transactional:
            client.begin_transaction()
        for key, value in records:
            client.produce(topic, value, key, partition=int(key) % PARTITIONS, on_delivery=settled)
        assert client.flush(ANSWER_S) == 0
        if is_aborted:
            client.abort_transaction(ANSWER_S)
        elif is_transactional:
            client.commit_transaction(ANSWER_S)

    # The groups

    def read_topics(self, alias: str, topics: tuple[str, ...] | None = None) -> list[str]:
        """Return what a group reads on a cluster: what is written there, and the copies."""
        names = list(self.topics if topics is None else topics)
        other = self.b if alias == self.a else self.a
        return names if self.keeps_names else [*names, *(f"{other}.{topic}" for topic in names)]

    def _consume(self, group: str) -> None:
        while not self._over.is_set():
            alias = self.files.at
            client = member(self.clusters[alias], group, protocol=self.groups[group])
            client.subscribe(self.read_topics(alias))
            self._reads_at[group] = alias
            try:
                while self.files.at == alias and not self._over.is_set():
                    self._read_some(client, group)
            finally:
                client.close()

    def _read_some(self, client: Consumer, group: str) -> None:
        behind: dict[tuple[str, int], int] = {}
        for message in client.consume(10 * BATCH, 0.2):
            if message.error() is None:
                self.read[group][message.value() or b""] += 1
                behind[str(message.topic()), message.partition() or 0] = (message.offset() or 0) + 1
        if behind:
            at = [TopicPartition(topic, number, offset) for (topic, number), offset in behind.items()]
            client.commit(offsets=at, asynchronous=False)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all clients until the block ends. Raises: AssertionError, one of them failed."""
        works: list[Callable[[], None]] = [lambda topic=topic: self._produce(topic) for topic in self.topics]  # type: ignore[misc]
        works += [lambda group=group: self._consume(group) for group in self.groups]  # type: ignore[misc]
        threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(ANSWER_S)
        assert not self.failures, self.failures

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.failures.append(repr(error))

    def wait_for_more(self) -> None:
        """Wait until each producer has written, and each group has read, on where clients are now."""
        alias, before = self.files.at, {group: read.total() for group, read in self.read.items()}

        def go_on() -> bool:
            assert not self.failures, self.failures
            is_written = all(acks and acks[-1][0] == alias for acks in self.acks.values())
            return is_written and all(self.read[group].total() > before[group] + 5 * BATCH for group in self.groups)

        wait_until(go_on, "clients work", deadline_s=2 * ANSWER_S)

    # What is judged

    def counted(self) -> dict[str, int]:
        """Stop the producers for a moment, and count what was lost, read again and differs, over all groups.

        A record of the compacted topic may be missing if a later one of its key was read.
        """
        for quiet in self._quiet.values():
            quiet.clear()
        self._no_load.set()
        wait_until(lambda: all(one.is_set() for one in self._quiet.values()), "producers stop", deadline_s=ANSWER_S)
        must = Counter(value for topic in (self.plain, self.paid) for _, value in self.acked[topic])
        must.update(dict(self.acked[self.state]).values())  # the last of each key
        may = must | Counter(value for _, value in self.acked[self.state])

        def all_read() -> bool:
            assert not self.failures, self.failures
            return all(not must - read for read in self.read.values())

        lost = 0
        try:
            wait_until(all_read, "the groups read everything", deadline_s=2 * ANSWER_S)
        except AssertionError:
            lost = sum((must - read).total() for read in self.read.values())
        again = sum((read - may).total() for read in self.read.values())
        differs = self._differing()
        self._no_load.clear()
        return {"lost": lost, "again": again, "differs": differs, "records": may.total()}

    def _differing(self) -> int:
        """Return the breaches that the checker finds, and the keys whose last value differs."""
        here, there = self.clusters[self.a], self.clusters[self.b]
        names = (self.plain, self.paid)
        pairs = [(here, there, {topic: topic for topic in names})]
        if not self.keeps_names:
            pairs = [
                (here, there, {topic: f"{self.a}.{topic}" for topic in names}),
                (there, here, {topic: f"{self.b}.{topic}" for topic in names}),
            ]
        breaches = 0
        for source, target, topics in pairs:
            report = check_copy(
                source.internal_bootstrap, target.internal_bootstrap, topics, read_committed=True, wait_s=ANSWER_S
            )
            if not report.ok:
                print(report, flush=True)
            breaches += sum(sum(verdict.breaches.values()) for verdict in report.verdicts)
        wanted = dict(self.acked[self.state])

        def last_values(alias: str) -> dict[bytes, bytes]:
            found: dict[bytes, tuple[int, bytes]] = {}
            for topic in self.read_topics(alias, (self.state,)):
                for message in read(self.clusters[alias], topic, range(PARTITIONS)):
                    value = message.value() or b""
                    at = int(value.split()[-1])
                    if at >= found.get(message.key() or b"", (-1, b""))[0]:
                        found[message.key() or b""] = at, value
            return {key: value for key, (_, value) in found.items()}

        for alias in self.clusters:
            try:
                wait_until(
                    lambda alias=alias: last_values(alias) == wanted,  # type: ignore[misc]
                    f"{alias} has the last value of each key",
                    deadline_s=ANSWER_S,
                )
            except AssertionError:
                found = last_values(alias)
                breaches += sum(found.get(key) != value for key, value in wanted.items())
        return breaches

    def pauses_s(self) -> list[tuple[str, float]]:
        """Return how long each producer was not answered at each switch, with its topic."""
        return [
            (topic, after - before)
            for topic, acks in self.acks.items()
            for (left, before), (went, after) in itertools.pairwise(acks)
            if left != went
        ]

    # The commands

    def call(self, verb: str, flow: str, *more: str) -> tuple[int, str]:
        """Call a verb of ``mm2py dr``, and return its exit code and what it printed."""
        of_hooks = ["--hook-fence", self.files.command, "--hook-switch", self.files.command]
        options = [*of_hooks, "--timeout", f"{int(180 * PATIENCE)}"] if verb in ("cutover", "rollback") else []
        words = ["dr", verb, str(self.run.file), flow, "--yes", *options, *more]
        done = subprocess.run(
            [sys.executable, "-m", "mm2py", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_S,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
            check=False,
        )
        return done.returncode, done.stdout

    def done(self, verb: str, flow: str, *more: str) -> float:
        """Call a verb that must succeed, and return how many seconds the call took that did.

        On a busy machine a cluster may not answer in time, and nothing is begun, or all is taken back: it is called
        again, and that is counted.
        """
        for _ in range(CALLS_MOST):
            begun_s = time.monotonic()
            code, text = self.call(verb, flow, *more)
            if code == 0:
                return time.monotonic() - begun_s
            if not (text.rstrip().endswith("Nothing was changed.") or "was taken back: nothing was switched" in text):
                break
            self.refused.append(text)
        raise AssertionError(f"dr {verb} {flow} ended with {code}:\n{text}")

    def round(self, tell: Callable[[str], None] = lambda _: None) -> dict[str, float]:
        """Cut over and roll back; then cut over, keep it, cut over back, and keep that. Return what was measured."""
        before, refused = len(self.pauses_s()), len(self.refused)
        measures: dict[str, float] = {}
        steps = (
            ("cutover", self.flow, self.b),
            ("rollback", self.flow, self.a),
            ("complete", self.back, self.a),
            ("cutover", self.flow, self.b),
            ("complete", self.flow, self.b),
            ("cutover", self.back, self.a),
            ("complete", self.back, self.a),
        )
        for at, (verb, flow, goes_to) in enumerate(steps):
            took_s = self.done(verb, flow)
            assert self.files.at == goes_to
            measures[f"{verb}_{at}_s"] = took_s
            tell(f"{verb} {flow}: {took_s:.1f} s")
            if verb != "complete":
                self.wait_for_more()
        counted = self.counted()
        measures |= {name: float(count) for name, count in counted.items()}
        for at, (topic, pause_s) in enumerate(self.pauses_s()[before:]):
            measures[f"pause_{at}_{topic.split('-')[0]}_s"] = pause_s
        measures["refused"] = float(len(self.refused) - refused)
        tell(", ".join(f"{name} {count}" for name, count in counted.items()))
        return measures


@contextmanager
def switched_load(
    clusters: tuple[KafkaCluster, KafkaCluster], folder: Path, policy: str, *, groups: int, replicas: int = 1
) -> Iterator[SwitchedLoad]:
    """Run both flows and all clients."""
    load = SwitchedLoad(clusters, folder, policy, groups=groups, replicas=replicas)
    with load.run:
        load.run.wait_for_event("topics.copying", flow=load.flow)
        with load.running():
            load.wait_for_more()
            yield load
        assert load.run.terminate() == 0
