"""Loading a source, waiting until a flow has copied it, and holding the copy against it.

The records are ``tests.checker``'s traffic, the judge is ``tests.checker``'s: nothing here decides what is right.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from deploy.local.kafka import KafkaCluster
from tests.checker.dumped import Dumped, Sent, sent
from tests.checker.judge import judge_partition
from tests.checker.traffic import Planned, Traffic
from tests.checker.verdict import Verdict
from tests.cluster.kafka_client import admin, create_topic, new_name
from tests.cluster.running import Mm2py, wait_until

READ_S: Final = 60.0
COPY_DEADLINE_S: Final = 60.0
TAIL_RECORDS: Final = 5
KEEP: Final = {"retention.ms": "-1"}
Logs = dict[int, list[Dumped]]
Ledger = dict[int, list[Sent]]


# Topics


def new_topic(cluster: KafkaCluster, stem: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
    """Create a topic with a name of its own and return the name; see ``make_topic``."""
    topic = new_name(stem)
    make_topic(cluster, topic, partitions, configs)
    return topic


def make_topic(
    cluster: KafkaCluster, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic in which nothing expires, however old its records are."""
    create_topic(cluster, topic, partitions, {**KEEP, **(configs or {})})


def add_partitions(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    """Let a topic have that many partitions."""
    client = admin(cluster)
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(READ_S)


# Sending


def now_ms() -> int:
    return int(time.time() * 1000)


def producer(cluster: KafkaCluster, **settings: Any) -> Producer:
    """Return a producer; ``settings`` in Kafka's names with underscores, over those here."""
    return Producer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "reconnect.backoff.max.ms": 500,
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
                offset = message.offset()
                assert offset is not None
                entry = Dumped(offset, 1, record.timestamp_ms, record.key, record.value, record.headers)
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
    """Records that keep coming, at a rate, from a thread, until the ``with`` block ends; ``ledger`` is whole then.

    They keep their order and come once each, whatever happens to the brokers meanwhile.
    """

    def __init__(
        self, cluster: KafkaCluster, topic: str, traffic: Traffic, *, per_second: int = 2_000, **settings: Any
    ) -> None:
        steady = {"enable_idempotence": True, "delivery_timeout_ms": 180_000, **settings}
        self._sender = Sender(producer(cluster, **steady), topic)
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
        wait_until(
            lambda: self.sent >= goal or self._failure is not None, f"{more} more records", deadline_s=deadline_s
        )

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
            "auto.offset.reset": "earliest",
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


def dump(
    cluster: KafkaCluster,
    topic: str,
    partitions: Sequence[int],
    *,
    read_committed: bool = True,
    start: Mapping[int, int] | None = None,
) -> Logs:
    """Return the records of the partitions, from an offset or from the start, up to the ends as they are now."""
    consumer = _consumer(cluster, read_committed=read_committed)
    logs: Logs = {number: [] for number in partitions}
    open_ones = set(partitions)
    try:
        consumer.assign([TopicPartition(topic, number, (start or {}).get(number, 0)) for number in partitions])
        end_s = time.monotonic() + READ_S
        while open_ones:
            assert time.monotonic() < end_s, f"{topic} was not read within {READ_S:g} s"
            for message in consumer.consume(10_000, timeout=0.05):
                number, error = message.partition(), message.error()
                assert number is not None
                if error is None:
                    logs[number].append(_dumped(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(number)
                else:
                    raise AssertionError(f"{topic}-{number}: {error}")
    finally:
        consumer.close()
    return logs


def _dumped(message: Message) -> Dumped:
    offset, (kind, timestamp_ms) = message.offset(), message.timestamp()
    headers = message.headers()
    assert offset is not None
    assert headers is None or isinstance(headers, list)
    pairs = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers or ())
    return Dumped(offset, kind, timestamp_ms, message.key(), message.value(), pairs)


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


def assert_copied(
    source: KafkaCluster,
    target: KafkaCluster,
    topic: str,
    remote: str,
    *,
    run: Mm2py | None = None,
    deadline_s: float = COPY_DEADLINE_S,
    read_committed: bool = True,
    compacted: bool = False,
    timestamps: bool = True,
    ledger: Mapping[int, Sequence[Sent]] | None = None,
    max_rewinds: int | None = 0,
    max_rewound_records: int | None = None,
) -> list[Verdict]:
    """Wait until the remote topic has reached the end of the source as it is now, and let the judge decide.

    Args:
        run: the process that copies; without it, nothing is waited for.
        read_committed: how the flow reads the source.
        others: as ``judge_partition``; by default nothing may be there twice.
    """
    partitions = partitions_of(source, topic)
    before = dump(source, topic, partitions, read_committed=read_committed)
    if run is not None:
        run.wait_until(lambda: partitions_of(target, remote) == partitions, f"{remote} has all partitions")
        with suppress(AssertionError):  # the judge says better what is missing
            run.wait_until(lambda: _reached(target, remote, before), f"{remote} is complete", deadline_s=deadline_s)
    assert partitions_of(target, remote) == partitions, "I12: the partition counts differ"
    after = dump(target, remote, partitions)
    starts, ends = ends_of(source, topic, partitions), ends_of(target, remote, partitions)
    verdicts = [
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
    findings = [str(finding) for verdict in verdicts for finding in verdict.findings]
    assert not findings, f"{topic} is not copied right:\n" + "\n".join(findings[:40])
    return verdicts


def _reached(target: KafkaCluster, remote: str, before: Logs) -> bool:
    """Whether the remote topic may be complete: enough records, and of each partition the last one stands there."""
    ends = ends_of(target, remote, list(before))
    if any(ends[number][1] < len(records) for number, records in before.items()):
        return False
    last = {number: records[-1] for number, records in before.items() if records}
    tails = dump(target, remote, list(last), start={number: max(0, ends[number][1] - TAIL_RECORDS) for number in last})
    return all(any(record[3:] == last[number][3:] for record in tails[number]) for number in last)
