"""Loading a source, waiting until a flow has copied it, and holding the copy against it.

The records are ``tests.checker``'s traffic, the judge is ``tests.checker``'s: nothing here decides what is right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from deploy.local.kafka import KafkaCluster
from tests.checker.dumped import Dumped, Sent, sent
from tests.checker.judge import judge_partition
from tests.checker.traffic import Planned, Traffic
from tests.checker.verdict import Verdict
from tests.cluster.running import wait_until

READ_S: Final = 60.0
Logs = dict[int, list[Dumped]]
Ledger = dict[int, list[Sent]]


# Sending


def now_ms() -> int:
    return int(time.time() * 1000)


def producer(cluster: KafkaCluster, **settings: Any) -> Producer:
    """Return a producer that keeps the order and does not give up while a broker is away."""
    return Producer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.timeout.ms": 180_000,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


@dataclass(slots=True)
class Sender:
    """Sends planned records with one producer and keeps the ledger of what was acknowledged."""

    client: Producer
    topic: str
    ledger: Ledger = field(default_factory=dict)
    failed: list[KafkaError] = field(default_factory=list)

    def send(self, records: Iterable[Planned], *, aborted: bool = False) -> None:
        """Hand records over; ``settle`` waits for their acknowledgements."""
        for record in records:

            def settled(error: KafkaError | None, message: Message, record: Planned = record) -> None:
                if error is not None:
                    self.failed.append(error)
                    return
                entry = Dumped(message.offset(), 1, record.timestamp_ms, record.key, record.value, record.headers)
                self.ledger.setdefault(record.partition, []).append(sent(entry, is_aborted=aborted))

            while True:
                try:
                    self.client.produce(
                        self.topic,
                        value=record.value,
                        key=record.key,
                        partition=record.partition,
                        timestamp=record.timestamp_ms,
                        headers=list(record.headers),
                        on_delivery=settled,
                    )
                    break
                except BufferError:
                    self.client.poll(0.1)
            self.client.poll(0)

    def settle(self) -> None:
        """Wait until all that was sent is acknowledged; sort the ledger."""
        left = self.client.flush(READ_S)
        assert not left, f"{left} records of {self.topic} were not acknowledged"
        assert not self.failed, f"{self.topic}: {self.failed[0]}"
        for entries in self.ledger.values():
            entries.sort(key=lambda entry: entry.offset)


def send(cluster: KafkaCluster, topic: str, records: Iterable[Planned], **settings: Any) -> Ledger:
    """Send records, wait until they are acknowledged, and return the ledger. ``settings`` as for ``producer``."""
    sender = Sender(producer(cluster, **settings), topic)
    sender.send(records)
    sender.settle()
    return sender.ledger


def send_traffic(cluster: KafkaCluster, topic: str, traffic: Traffic, count: int, **settings: Any) -> Ledger:
    """Send the first ``count`` records of some traffic; see ``send``."""
    return send(cluster, topic, islice(traffic.records(), count), **settings)


class Load:
    """Records that keep coming, at a rate, from a thread, until the ``with`` block ends; ``ledger`` is whole then."""

    def __init__(self, cluster: KafkaCluster, topic: str, traffic: Traffic, *, per_second: int = 2_000, **settings: Any) -> None:
        self._sender = Sender(producer(cluster, **settings), topic)
        self._records = traffic.records()
        self._per_second = per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None
        self.sent = 0

    @property
    def ledger(self) -> Ledger:
        return self._sender.ledger

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(READ_S)
        if self._failure is not None:
            raise self._failure
        self._sender.settle()

    def wait_for(self, more: int, *, deadline_s: float = READ_S) -> None:
        """Wait until that many more records were sent: time in the life of a load."""
        goal = self.sent + more
        wait_until(lambda: self.sent >= goal or self._failure is not None, f"{more} more records", deadline_s=deadline_s)

    def _run(self) -> None:
        begun_s = time.monotonic()
        try:
            while not self._stop.wait(0.01):
                due = int((time.monotonic() - begun_s) * self._per_second) - self.sent
                self._sender.send(islice(self._records, due))
                self.sent += due
        except BaseException as error:
            self._failure = error


# Reading


def _consumer(cluster: KafkaCluster, *, read_committed: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "group.id": "tests-dump",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "fetch.message.max.bytes": 16_000_000,
            "fetch.max.bytes": 64_000_000,
            "queued.max.messages.kbytes": 262_144,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )


def partitions_of(cluster: KafkaCluster, topic: str) -> list[int]:
    """Return the partition numbers of a topic; none if there is no such topic."""
    consumer = _consumer(cluster, read_committed=False)
    try:
        return sorted(consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions)
    finally:
        consumer.close()


def dump(cluster: KafkaCluster, topic: str, partitions: Sequence[int], *, read_committed: bool = True) -> Logs:
    """Return all records of the partitions, up to the ends as they are now."""
    consumer = _consumer(cluster, read_committed=read_committed)
    logs: Logs = {number: [] for number in partitions}
    open_ones = set(partitions)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        end_s = time.monotonic() + READ_S
        while open_ones:
            assert time.monotonic() < end_s, f"{topic} was not read within {READ_S:g} s"
            for message in consumer.consume(10_000, timeout=0.5):
                error = message.error()
                if error is None:
                    kind, timestamp_ms = message.timestamp()
                    logs[message.partition()].append(
                        Dumped(
                            message.offset(), kind, timestamp_ms, message.key(), message.value(),
                            tuple(message.headers() or ()),
                        )
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(message.partition())
                else:
                    raise AssertionError(f"{topic}-{message.partition()}: {error}")
    finally:
        consumer.close()
    return logs


def ends_of(cluster: KafkaCluster, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return (log start, log end) of the partitions."""
    consumer = _consumer(cluster, read_committed=False)
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=READ_S)
            for number in partitions
        }
    finally:
        consumer.close()


# Judging


def judge(
    source: KafkaCluster,
    target: KafkaCluster,
    topic: str,
    remote: str,
    *,
    read_committed: bool = True,
    compacted: bool = False,
    timestamps: bool = True,
    ledger: Mapping[int, Sequence[Sent]] | None = None,
    max_rewinds: int | None = 0,
    max_rewound_records: int | None = None,
) -> list[Verdict]:
    """Dump both sides and judge every partition."""
    partitions = partitions_of(source, topic)
    assert partitions_of(target, remote) == partitions, "I12: the partition counts differ"
    before = dump(source, topic, partitions, read_committed=read_committed)
    after = dump(target, remote, partitions)
    starts = ends_of(source, topic, partitions)
    ends = ends_of(target, remote, partitions)
    return [
        judge_partition(
            before[number],
            after[number],
            topic=topic,
            partition=number,
            source_start=starts[number][0],
            source_end=starts[number][1],
            target_end=ends[number][1],
            max_rewinds=max_rewinds,
            max_rewound_records=max_rewound_records,
            compacted=compacted,
            ledger=None if ledger is None else ledger.get(number, ()),
            timestamps=timestamps,
        )
        for number in partitions
    ]


def assert_copied(source: KafkaCluster, target: KafkaCluster, topic: str, remote: str, **how: Any) -> list[Verdict]:
    """Judge, and fail with the findings; see ``judge``."""
    verdicts = judge(source, target, topic, remote, **how)
    findings = [str(finding) for verdict in verdicts for finding in verdict.findings]
    assert not findings, f"{topic} is not copied right:\n" + "\n".join(findings[:40])
    return verdicts
