"""The demo's sample topics, and the traffic on them: what a mirror meets in real clusters, at a steady rate.

Keys, headers, tombstones and odd bytes come from the tests' ``Traffic``; each topic has a codec of its own. One is
written in transactions, every fourth of which is aborted, and one is compacted: its history is there, with the holes
that the cleaner leaves, before the mirror begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.demo_logs import read_logs
from tests.checker.dumped import Dumped, Sent, sent
from tests.checker.traffic import Planned, Traffic

ANSWER_S: Final = 30.0
TICK_S: Final = 0.05
TRANSACTION_S: Final = 0.5
ABORT_EVERY: Final = 4
HISTORY_RECORDS: Final = 3_000
HISTORY_KEYS: Final = 60
CLEANED_S: Final = 15.0
KEPT_BYTES: Final = 64 << 20
SEGMENT_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A topic of the demo and how it is written."""

    topic: str
    partitions: int
    per_second: int
    compression: str
    transactional: bool = False
    compacted: bool = False
    plain: bool = False
    """Ordinary records only, no odd shapes."""

    def configs(self, *, endless: bool) -> dict[str, str]:
        """Return the topic's configuration; an ``endless`` demo keeps little, so that it does not fill the disk."""
        if self.compacted:
            return {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
        if endless:
            return {"retention.bytes": str(KEPT_BYTES), "segment.bytes": str(SEGMENT_BYTES)}
        return {}


SAMPLES: Mapping[str, Sequence[Sample]] = {
    "west-1": (
        Sample("accounts", 2, 200, "snappy", compacted=True),
        Sample("clicks", 6, 2_000, "lz4", plain=True),
        Sample("orders", 3, 500, "none"),
        Sample("payments", 2, 300, "zstd", transactional=True),
    ),
    "west-2": (
        Sample("invoices", 3, 500, "gzip"),
        Sample("prices", 2, 200, "none", compacted=True),
        Sample("refunds", 2, 200, "lz4", transactional=True),
    ),
}


class TrafficFailed(Exception):
    """The sample traffic came to a halt: a cluster does not take records any more."""


class Writer:
    """Writes one sample topic, and keeps the ledger of what the cluster acknowledged."""

    def __init__(self, bootstrap: str, sample: Sample, seed: int, *, endless: bool) -> None:
        """An ``endless`` writer keeps no ledger: nothing is compared in the end."""
        self.sample = sample
        self.ledger: dict[int, list[Sent]] = {number: [] for number in range(sample.partitions)}
        self._bootstrap = bootstrap
        self._endless = endless
        self._failure: KafkaError | None = None
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "compression.type": sample.compression,
            "enable.idempotence": True,
            "linger.ms": 20,
            "log_level": 0,
        }
        if sample.transactional:
            settings["transactional.id"] = f"demo-{sample.topic}"
        self._producer = Producer(settings)
        self._records = _now(
            Traffic(
                seed,
                sample.partitions,
                producer=seed,
                compacted=sample.compacted,
                keys=HISTORY_KEYS if sample.compacted else 1_000,
                plain=sample.plain,
            ).records()
        )

    def prepare(self, halt: threading.Event) -> None:
        """Make the topic; a compacted one gets its history, and has been cleaned when this returns.

        Raises:
            TrafficFailed, KafkaException: the cluster does not take the records, or its cleaner does not come.
        """
        new = NewTopic(self.sample.topic, self.sample.partitions, 1, config=self.sample.configs(endless=self._endless))
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        admin.create_topics([new])[self.sample.topic].result(ANSWER_S)
        if self.sample.transactional:
            self._producer.init_transactions(ANSWER_S)
        if self.sample.compacted:
            self._send(HISTORY_RECORDS)
            self._flush()
            self._await_cleaning(halt)

    def run(self, halt: threading.Event) -> None:
        """Write at the sample's rate until ``halt``; all of it is acknowledged when this returns.

        Raises:
            TrafficFailed, KafkaException: the cluster does not take the records.
        """
        begun_s = time.monotonic()
        count, transactions = 0, 0
        while not halt.wait(TRANSACTION_S if self.sample.transactional else TICK_S):
            due = int((time.monotonic() - begun_s) * self.sample.per_second) - count
            count += due
            if self.sample.transactional:
                transactions += 1
                self._transaction(due, aborted=transactions % ABORT_EVERY == 0)
            else:
                self._send(due)
        self._flush()
        for entries in self.ledger.values():
            entries.sort(key=lambda entry: entry.offset)

    @property
    def committed(self) -> int:
        """How many records a consumer of committed records was given to read."""
        return sum(not entry.is_aborted for entries in self.ledger.values() for entry in entries)

    def _transaction(self, count: int, *, aborted: bool) -> None:
        self._producer.begin_transaction()
        self._send(count, aborted=aborted)
        self._flush()
        if aborted:
            self._producer.abort_transaction(ANSWER_S)
        else:
            self._producer.commit_transaction(ANSWER_S)

    def _send(self, count: int, *, aborted: bool = False) -> None:
        for record in islice(self._records, count):
            self._produce(record, aborted=aborted)
            self._producer.poll(0)
        if self._failure is not None:
            raise TrafficFailed(f"Sample traffic to {self.sample.topic} failed: {self._failure}.")

    def _produce(self, record: Planned, *, aborted: bool) -> None:
        def settled(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failure = error
            if error is not None or self._endless:
                return
            entry = Dumped(message.offset() or 0, 1, *record[1:])
            self.ledger[record.partition].append(sent(entry, is_aborted=aborted))

        while True:
            try:
                self._producer.produce(
                    self.sample.topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                    on_delivery=settled,
                )
                return
            except BufferError:
                self._producer.poll(TICK_S)

    def _flush(self) -> None:
        left = self._producer.flush(ANSWER_S)
        if left or self._failure is not None:
            why = self._failure or f"{left} records are not acknowledged after {ANSWER_S:g} s"
            raise TrafficFailed(f"Sample traffic to {self.sample.topic} failed: {why}.")

    def _await_cleaning(self, halt: threading.Event) -> None:
        """Wait until the cleaner has worked on every partition. Only a new record lets it at the ones before."""
        deadline_s = time.monotonic() + CLEANED_S
        uncleaned = set(self.ledger)
        while uncleaned and not halt.wait(0.25):  # nothing announces what a cleaner does
            if time.monotonic() > deadline_s:
                raise TrafficFailed(f"{self.sample.topic} was not cleaned within {CLEANED_S:g} s.")
            self._send(4 * self.sample.partitions)
            self._flush()
            uncleaned -= {number for number in uncleaned if self._was_cleaned(number)}

    def _was_cleaned(self, number: int) -> bool:
        (log,) = read_logs(self._bootstrap, self.sample.topic, [number]).values()
        return len(log.records) < log.end - log.start


def _now(records: Iterable[Planned]) -> Iterator[Planned]:
    """Yield the records with the time at which they are asked for: lag in seconds then means something."""
    for record in records:
        yield record._replace(timestamp_ms=int(time.time() * 1000))
