"""The demo of recoveries: two real clusters under traffic, a cutover and its rollback, a failover and the way back.

``python -m deploy.local.demo_dr`` takes a few minutes, prints each command with what it says and how long it took, and
ends by itself. Half of the time is that of the fences: for ten seconds each it is watched that nobody writes. Producers
and a consumer group obey two hooks, as those of an operator would: a file says on which cluster clients belong, another
one stops the producers. In the end each acknowledged record must have been read, once.
It exits with 1 if not, or if a command fails. MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from deploy.local.boot_image import boot_image
from deploy.local.client_hooks import ClientHooks
from deploy.local.demo import DONE, FAILED, INTERRUPTED, install_handlers, run_directory
from deploy.local.errors import StarterError, tail
from deploy.local.jars import jar_directory
from deploy.local.kafka import KafkaCluster, start_clusters
from mm2py.errors import Mm2Error
from mm2py.status.exit_codes import EXIT_WAITS

TOPIC: Final = "orders"
GROUP: Final = "billing"
IDLE_GROUP: Final = "reports"
"""It has read a part, and stopped: for the drill."""
PARTITIONS: Final = 2
BATCH: Final = 20
WORKS_S: Final = 3.0
"""How long clients work between two commands."""
PATIENCE_S: Final = 120.0
COMMAND_S: Final = 300.0
LOG_BYTES_SHOWN: Final = 4_000
ANSWER_S: Final = 30.0
TRIES: Final = 3
"""How often a command is given that ends with 1, as when a cluster is too slow to answer on a busy machine."""
EXTRAS: Final = 200
"""Records that A takes just before it is lost, and B never gets."""

PROPERTIES: Final = """\
clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}
A->B.enabled = true
B->A.enabled = true

# topics have the same name on both clusters; only one of the two flows is on
replication.policy.class = IdentityReplicationPolicy
B->A.standby = true
topics = orders
groups = billing, reports

emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1

# each cluster has one broker
replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
"""


class DemoFailed(StarterError):
    """A command did not do what it should, or a record was lost or read again."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="This is a fault of mm2py: its log tells more.")


class DemoClients:
    """A producer and a consumer group that work on the cluster to which the hook sends them."""

    def __init__(self, bootstraps: dict[str, str], hooks: ClientHooks) -> None:
        self._bootstraps = bootstraps
        self._hooks = hooks
        self._over = threading.Event()
        self._no_load = threading.Event()
        self._is_quiet = threading.Event()
        self._no_reading = threading.Event()
        self._reads_at = ""
        self.acked: list[bytes] = []
        self.read: Counter[bytes] = Counter()
        self.failures: list[str] = []

    @property
    def at(self) -> str:
        """The cluster where clients belong."""
        return self._hooks.at

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let both work while the block runs."""
        threads = [threading.Thread(target=self._guarded, args=(one,)) for one in (self._produce, self._consume)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(ANSWER_S)

    def rest(self) -> None:
        """Let neither work. What was sent is answered and read, and what was read is committed."""
        self._is_quiet.clear()
        self._no_load.set()
        self._wait(self._is_quiet.is_set, "the producer to stop")
        self._wait(lambda: sum(self.read.values()) >= len(self.acked), "the group to read everything")
        self._no_reading.set()
        self._wait(lambda: not self._reads_at, "the consumer to stop")

    def go_on(self) -> None:
        """Let both work again."""
        self._no_reading.clear()
        self._no_load.clear()

    def send(self, alias: str, count: int) -> None:
        """Write records to a cluster, and wait until it has acknowledged them. Raises: DemoFailed."""
        client = _producer(self._bootstraps[alias])
        for number in range(count):
            client.produce(TOPIC, b"extra %d" % number, partition=number % PARTITIONS, on_delivery=self._settled)
        if client.flush(ANSWER_S) or self.failures:
            raise DemoFailed(f"{alias} did not take the records.")

    def settle(self) -> str:
        """Stop the producer, wait until the group has read everything, and return what became of the records.

        Raises:
            DemoFailed: one was lost, or read again.
        """
        self._is_quiet.clear()
        self._no_load.set()
        self._wait(self._is_quiet.is_set, "the producer to stop")
        self._wait(lambda: sum(self.read.values()) >= len(self.acked), "the group to read everything")
        sent = Counter(self.acked)
        lost, again = (sent - self.read).total(), (self.read - sent).total()
        self._no_load.clear()
        if lost or again:
            raise DemoFailed(f"Of {sent.total():,} records {lost:,} were lost and {again:,} read again.")
        return f"{sent.total():,} records acknowledged, all read by group {GROUP}, none lost, none read again."

    def compare(self) -> str:
        """Wait until both clusters hold each acknowledged record once; neither client works. Raises: DemoFailed."""
        sent = Counter(self.acked)
        for alias, bootstrap in self._bootstraps.items():
            self._wait(lambda at=bootstrap: _held(at) == sent, f"{alias} to hold each record once")  # type: ignore[misc]
        lost, again = (sent - self.read).total(), (self.read - sent).total()
        if lost or again:
            raise DemoFailed(f"Of {sent.total():,} records {lost:,} were lost and {again:,} read again.")
        return f"{sent.total():,} records acknowledged: A and B hold each once, and group {GROUP} has read each once."

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        late_s = time.monotonic() + PATIENCE_S
        while not condition():
            if self.failures:
                raise DemoFailed(self.failures[0])
            if time.monotonic() > late_s:
                raise DemoFailed(f"Waited {PATIENCE_S:g} s for {what}.")
            self._over.wait(0.1)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (KafkaException, OSError) as error:
            self.failures.append(f"A client failed: {error}")

    def _produce(self) -> None:
        clients = {alias: _producer(at) for alias, at in self._bootstraps.items()}
        number = 0
        while not self._over.wait(0.02):
            alias = self.at
            if self._no_load.is_set():
                self._is_quiet.set()
                continue
            self._is_quiet.clear()
            if self._hooks.is_fenced(alias) or self._reads_at != alias:
                continue  # consumers move first: else they would read here what comes back from there
            for at in range(BATCH):
                value = f"{number + at}".encode()
                clients[alias].produce(TOPIC, value, partition=at % PARTITIONS, on_delivery=self._settled)
            number += BATCH
            clients[alias].flush(ANSWER_S)

    def _settled(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(f"A record was refused: {error}")
        self.acked.append(message.value() or b"")

    def _consume(self) -> None:
        while not self._over.wait(0.02):
            if self._no_reading.is_set():
                continue
            alias = self._reads_at = self.at
            client = _consumer(self._bootstraps[alias], GROUP)
            client.subscribe([TOPIC])
            try:
                while self.at == alias and not (self._over.is_set() or self._no_reading.is_set()):
                    self._read_some(client)
            finally:
                client.close()
                self._reads_at = ""

    def _read_some(self, client: Consumer) -> None:
        behind: dict[int, int] = {}
        for message in client.consume(BATCH, 0.1):
            if message.error() is None:
                self.read[message.value() or b""] += 1
                behind[message.partition() or 0] = (message.offset() or 0) + 1
        if behind:
            offsets = [TopicPartition(TOPIC, number, offset) for number, offset in behind.items()]
            client.commit(offsets=offsets, asynchronous=False)


class RecoveryDemo:
    """One run on running clusters."""

    def __init__(self, clusters: Sequence[KafkaCluster], folder: Path) -> None:
        self._a, self._b = clusters
        self._folder = folder
        self._file = folder / "mm2.properties"
        self._hooks = ClientHooks(folder, "A")
        self._clients = DemoClients({"A": self._a.bootstrap, "B": self._b.bootstrap}, self._hooks)

    def run(self) -> int:
        """Run it. Raises: DemoFailed."""
        self._prepare()
        with self._clients.working():
            with self._worker():
                self._until_ready()
                self._show("dr", "check", may_be=(DONE, EXIT_WAITS))
                self._show("dr", "drill", "--groups", IDLE_GROUP, "--verify-records", "1000", "--yes")
                self._move("cutover")
                time.sleep(WORKS_S)
                self._move("rollback")
                self._show("dr", "complete", "--yes", flow="B->A")
                self._clients.rest()
                time.sleep(WORKS_S)  # the last commits get their checkpoints
            self._lose_a()
            with self._worker():
                self._fail_over()
                self._clients.go_on()
                time.sleep(WORKS_S)
                self._bring_a_back()
                self._move("failback")
                self._show("dr", "history")
                self._clients.rest()
                _say(self._clients.compare())
        return DONE

    def _prepare(self) -> None:
        self._file.write_text(PROPERTIES.format(a=self._a.bootstrap, b=self._b.bootstrap))
        admin = AdminClient({"bootstrap.servers": self._a.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(ANSWER_S)

    @contextmanager
    def _worker(self) -> Iterator[None]:
        """Run mm2py while the block runs."""
        path = self._folder / "mm2py.log"
        with path.open("w") as log:
            process = subprocess.Popen([sys.executable, "-m", "mm2py", str(self._file)], stdout=log, stderr=log)
            try:
                yield
            except DemoFailed:
                _say(f"The log of mm2py ends with:\n{tail(path, max_bytes=LOG_BYTES_SHOWN)}")
                raise
            finally:
                process.terminate()
                process.wait(PATIENCE_S)

    def _until_ready(self) -> None:
        """Wait until all is copied, and a group that has stopped has its checkpoint.

        A group that reads all the time is never quite ready: what it has just committed has no checkpoint yet.
        """
        client = _consumer(self._a.bootstrap, IDLE_GROUP)
        client.subscribe([TOPIC])
        seen: set[int | None] = set()
        late_s = time.monotonic() + PATIENCE_S
        while len(seen) < PARTITIONS and time.monotonic() < late_s:
            seen |= {message.partition() for message in client.consume(1, 1.0) if message.error() is None}
        client.commit(asynchronous=False)
        client.close()
        while True:
            words = ("dr", "drill", "--groups", IDLE_GROUP, "--verify-records", "0", "--yes")
            code, text = self._call(*words)
            if code == DONE:
                return
            if time.monotonic() > late_s:
                raise DemoFailed(f"The flow was not ready within {PATIENCE_S:g} s:\n{text}")

    def _move(self, verb: str) -> None:
        """Move clients to the other cluster, and say what became of the records until then."""
        hook = self._hooks.command
        self._show("dr", verb, "--yes", "--hook-fence", hook, "--hook-switch", hook)
        _say(f"Clients are on {self._clients.at}. {self._clients.settle()}")

    def _lose_a(self) -> None:
        """Let A take records that B does not get, and be lost."""
        _say(f"The worker is stopped. A takes {EXTRAS} more records, and is killed.")
        self._clients.send("A", EXTRAS)
        for broker in self._a.brokers:
            broker.kill()

    def _fail_over(self) -> None:
        hook = self._hooks.command
        words = ("--accept-loss", "--yes", "--hook-fence", hook, "--hook-switch", hook)
        self._show("dr", "failover", *words)
        _say(f"Clients are on {self._clients.at}.")

    def _bring_a_back(self) -> None:
        for broker in self._a.brokers:
            broker.start()
        _say("A is back.")
        hook = self._hooks.command
        self._show("dr", "extras", may_be=(DONE, EXIT_WAITS))
        self._show("dr", "reinstate", "--replay", "--yes", "--hook-fence", hook)
        _say(self._clients.settle())

    def _call(self, *words: str, flow: str = "A->B") -> tuple[int, str]:
        """Run a command of mm2py; return its exit code, and what it says."""
        verb = [one for one in words[:2] if not one.startswith("-")]
        command = [sys.executable, "-m", "mm2py", *verb, str(self._file), flow, *words[len(verb) :]]
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return ended.returncode, ended.stdout

    def _show(self, *words: str, may_be: Sequence[int] = (DONE,), flow: str = "A->B") -> None:
        """Run a command, and print it with what it says. Raises: DemoFailed, it has failed."""
        told = shlex.join(words[2:]).replace(str(self._folder), "DIR")
        _say(f"$ mm2py {' '.join(words[:2])} mm2.properties '{flow}' {told}".rstrip())
        begun_s = time.monotonic()
        code, text = self._call(*words, flow=flow)
        for _ in range(TRIES - 1):
            if code != FAILED:
                break
            _say(f"{text.replace(str(self._folder), 'DIR').rstrip()}\n(ended with 1: the same command goes on)")
            code, text = self._call(*words, flow=flow)
        _say(f"{text.replace(str(self._folder), 'DIR').rstrip()}\n({time.monotonic() - begun_s:.1f} s)")
        if code not in may_be:
            raise DemoFailed(f"mm2py {' '.join(words[:2])} ended with {code}.")


def _producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})


def _consumer(bootstrap: str, group: str) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    return Consumer(settings)


def _held(bootstrap: str) -> Counter[bytes]:
    """Return how often each record is in the topic of a cluster."""
    client, found = _consumer(bootstrap, "demo-dr"), Counter[bytes]()
    try:
        client.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while got := client.consume(1_000, 3.0):
            found.update(message.value() or b"" for message in got if message.error() is None)
    finally:
        client.close()
    return found


def _say(text: str) -> None:
    print(f"{text}\n", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``python -m deploy.local.demo_dr``."""
    argparse.ArgumentParser(prog="make demo-dr", description=__doc__).parse_args(arguments)
    install_handlers()
    try:
        boot_image(jar_directory())
        _say("Starting two Kafka clusters, A and B.")
        settings: dict[str, Any] = {"offsets.topic.num.partitions": 1}
        both = [KafkaCluster(name, settings=settings) for name in "AB"]
        with start_clusters(both) as clusters, run_directory() as folder:
            return RecoveryDemo(clusters, folder).run()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except (StarterError, KafkaException, Mm2Error, subprocess.TimeoutExpired) as error:
        print(f"demo: {error}", file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
