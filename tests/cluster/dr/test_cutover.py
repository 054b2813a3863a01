"""``mm2py dr cutover`` and ``dr rollback`` on real brokers, under load: nothing is lost, and nothing is read again.

Producers and a consumer group work all the time on the cluster to which they are sent. They obey two hooks: the fence
is a file, and so is the name of the cluster where they belong. Consumers move first: one that is still on the old
cluster would read there what comes back from the new one, and read it again when it has moved. What was acknowledged,
what the group has read and what both clusters hold in the end must be the same records, each once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from deploy.local.client_hooks import ClientHooks
from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import make_topic, producer
from tests.cluster.group_offsets import member
from tests.cluster.kafka_client import new_name, values
from tests.cluster.running import ANSWER_S, OWN_PATH, PATIENCE, Mm2py, two_way_properties, wait_until

pytestmark = pytest.mark.timeout(600 * PATIENCE)

PARTITIONS: Final = 2
BATCH: Final = 20
S = TypeVar("S", bound="CutoverScene")
PREFIXED, IDENTITY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"
RUN_S: Final = 240.0 * PATIENCE
"""How long one call of a verb may take."""


class CutoverScene:
    """A pair of clusters with aliases of its own, a worker of both flows, and clients that obey the hooks."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, folder: Path, policy: str) -> None:
        self.a, self.b = new_name("A").replace("-", ""), new_name("B").replace("-", "")
        self.clusters = {self.a: source, self.b: target}
        self.flow, self.back = f"{self.a}->{self.b}", f"{self.b}->{self.a}"
        self.topic, self.group = new_name("orders"), new_name("billing")
        self.keeps_names = policy == IDENTITY
        self.folder = folder
        self.hooks = ClientHooks(folder, self.a)
        self.hook, self.send_to = self.hooks.hook, self.hooks.send_to
        make_topic(source, self.topic, PARTITIONS)
        if not self.keeps_names:
            make_topic(target, self.topic, PARTITIONS)
        standby = {f"{self.back}.standby": True} if self.keeps_names else {}
        self.run = Mm2py(
            two_way_properties(
                source,
                target,
                names=(self.a, self.b),
                **{
                    "topics": self.topic,
                    "replication.policy.class": policy,
                    "config.storage.replication.factor": 1,
                    f"{self.a}.consumer.isolation.level": "read_committed",
                    **standby,
                    **self.more_properties(),
                },
            )
        )
        self.acked: list[bytes] = []
        self.read: Counter[bytes] = Counter()
        self.places: dict[bytes, list[str]] = {}
        """Where each record was read, for a failure to name it."""
        self.failures: list[str] = []
        self._consumers_at = ""
        self._over = threading.Event()
        self._no_load = threading.Event()
        self._is_quiet = threading.Event()

    def more_properties(self) -> dict[str, Any]:
        """What else the file says."""
        return {}

    # The clients

    @property
    def at(self) -> str:
        return self.hooks.at

    def is_fenced(self, alias: str) -> bool:
        return self.hooks.is_fenced(alias)

    def read_topics(self, alias: str) -> list[str]:
        """Return what the group reads on a cluster: what is written there, and the copies."""
        other = self.b if alias == self.a else self.a
        return [self.topic] if self.keeps_names else [self.topic, f"{other}.{self.topic}"]

    def _produce(self) -> None:
        clients = {alias: producer(cluster) for alias, cluster in self.clusters.items()}
        number = 0
        while not self._over.wait(0.02):
            alias = self.at
            if self._no_load.is_set():
                self._is_quiet.set()  # all that was sent is answered
                continue
            self._is_quiet.clear()
            if self.is_fenced(alias) or self._consumers_at != alias:
                continue
            self._send(clients[alias], [f"{number + at}".encode() for at in range(BATCH)])
            number += BATCH

    def _send(self, client: Producer, records: list[bytes]) -> None:
        def settled(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"a record was refused: {error}")
            self.acked.append(message.value() or b"")

        for at, value in enumerate(records):
            client.produce(self.topic, value, partition=at % PARTITIONS, on_delivery=settled)
        client.flush(ANSWER_S)

    def _consume(self) -> None:
        while not self._over.is_set():
            alias = self.at
            client = member(self.clusters[alias], self.group)
            client.subscribe(self.read_topics(alias))
            self._consumers_at = alias
            try:
                while self.at == alias and not self._over.is_set():
                    self._read_some(client, alias)
            finally:
                client.close()

    def _read_some(self, client: Consumer, alias: str) -> None:
        behind: dict[tuple[str, int], int] = {}
        for message in client.consume(BATCH, 0.1):
            if message.error() is None:
                self.read[message.value() or b""] += 1
                place = f"{alias} {message.topic()}-{message.partition()}@{message.offset()}"
                self.places.setdefault(message.value() or b"", []).append(place)
                behind[str(message.topic()), message.partition() or 0] = (message.offset() or 0) + 1
        if behind:
            at = [TopicPartition(topic, number, offset) for (topic, number), offset in behind.items()]
            client.commit(offsets=at, asynchronous=False)

    @contextmanager
    def load(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._guarded, args=(one,)) for one in (self._produce, self._consume)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(ANSWER_S)
        assert not self.failures, self.failures

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            self.failures.append(repr(error))

    def wait_for_more(self) -> None:
        """Wait until clients have written and read on where they are."""
        before = sum(self.read.values())

        def go_on() -> bool:
            assert not self.failures, self.failures
            return sum(self.read.values()) >= before + 10 * BATCH

        wait_until(go_on, "clients work", deadline_s=ANSWER_S)

    def judge(self) -> None:
        """Stop the producers, and compare what was acknowledged, read, and is on each cluster."""
        self._is_quiet.clear()
        self._no_load.set()
        wait_until(self._is_quiet.is_set, "the producers stop", deadline_s=ANSWER_S)

        def is_all_read() -> bool:
            return sum(self.read.values()) >= len(self.acked)

        wait_until(is_all_read, "the group reads everything", deadline_s=ANSWER_S)
        sent = Counter(self.acked)
        assert set(sent.values()) == {1}
        assert not sent - self.read, f"lost for the group: {(sent - self.read).total()}"
        again = {value.decode(): self.places[value] for value in self.read - sent}
        assert not again, f"read again: {again}\n{self.run.dr('history', self.flow)[1]}"
        for alias, cluster in self.clusters.items():

            def is_whole(alias: str = alias, cluster: KafkaCluster = cluster) -> bool:
                return self.held(alias, cluster).total() >= sent.total()

            self.run.wait_until(is_whole, f"{alias} has everything", deadline_s=ANSWER_S)
            assert self.held(alias, cluster) == sent
        self._no_load.clear()

    def held(self, alias: str, cluster: KafkaCluster) -> Counter[bytes]:
        topics = self.read_topics(alias)
        return Counter(value for topic in topics for value in values(cluster, topic, range(PARTITIONS)))

    # The commands

    def options(self) -> list[str]:
        hook = self.hooks.command
        return ["--yes", "--hook-fence", hook, "--hook-switch", hook, "--timeout", f"{int(120 * PATIENCE)}"]

    def started(self, verb: str, *more: str, file: Path | None = None) -> subprocess.Popen[str]:
        """Start a verb; ``file``: that of another site."""
        words = ["dr", verb, str(file or self.run.file), self.flow, *self.options(), *more]
        return subprocess.Popen(
            [sys.executable, "-m", "mm2py", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )

    def call(self, verb: str, *more: str) -> tuple[int, str]:
        process = self.started(verb, *more)
        text, _ = process.communicate(timeout=RUN_S)
        return process.returncode, text

    def killed_at(self, verb: str, state: str, *, file: Path | None = None) -> str:
        """Call a verb, and kill it as soon as it has stored that it is in a state."""
        process = self.started(verb, file=file)
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if f"Z  {state}" in line and process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
        process.wait(ANSWER_S)
        text = "".join(lines)
        assert process.returncode == -signal.SIGKILL, text
        return text


@contextmanager
def scene_of(source: KafkaCluster, target: KafkaCluster, folder: Path, policy: str) -> Iterator[CutoverScene]:
    with running_scene(CutoverScene(source, target, folder, policy)) as scene:
        yield scene


@contextmanager
def running_scene(scene: S) -> Iterator[S]:
    """Run a scene: clients work all the time, and in the end everything is where it has to be, once."""
    with scene.run:
        scene.run.wait_for_event("topics.copying", flow=scene.flow)
        with scene.load():
            scene.wait_for_more()
            yield scene
            scene.judge()
        assert scene.run.terminate() == 0


@pytest.mark.parametrize("policy", [IDENTITY, PREFIXED])
def test_a_cutover_and_its_rollback_under_load_lose_nothing_and_repeat_nothing(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, policy: str
) -> None:
    with scene_of(source_cluster, target_cluster, tmp_path, policy) as scene:
        code, text = scene.call("cutover")
        assert code == 0, text
        assert (scene.at, scene.is_fenced(scene.a), scene.is_fenced(scene.b)) == (scene.b, True, False)
        scene.wait_for_more()
        scene.judge()
        code, text = scene.call("rollback")
        assert code == 0, text
        assert (scene.at, scene.is_fenced(scene.a), scene.is_fenced(scene.b)) == (scene.a, False, True)
        scene.wait_for_more()
        scene.judge()
        history = json.loads(scene.run.dr("history", scene.flow, "--json")[1])
        assert [(one["verb"], one["flow"], one["state"]) for one in history["runs"]] == [
            ("cutover", scene.flow, "Reversed"),
            ("rollback", scene.back, "Reversed"),
        ]
        (groups,) = [step["groups"] for step in history["runs"][0]["steps"] if step["event"] == "GroupsExact"]
        assert list(groups) == [scene.group]


@pytest.mark.parametrize("policy", [IDENTITY, PREFIXED])
def test_killed_in_the_middle_and_behind_the_switch_the_same_command_ends_it(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, policy: str
) -> None:
    with scene_of(source_cluster, target_cluster, tmp_path, policy) as scene:
        for state in ("FenceVerified", "Switching"):
            scene.killed_at("cutover", state)
        code, text = scene.call("cutover")
        assert code == 0, text
        assert scene.at == scene.b
        scene.wait_for_more()
        scene.killed_at("rollback", "Fenced")
        code, text = scene.run.dr("unfence", scene.back, "--yes", "--hook-fence", f"{scene.hook} {scene.folder}")
        assert code == 0 and "all of it is taken back" in text, text
        assert (scene.at, scene.is_fenced(scene.b)) == (scene.b, False)
        scene.wait_for_more()
