"""The load generator: sends traffic to a topic and records each acknowledged send in a ledger.

Each codec has its own producer, so batches of all codecs mix in one partition. In transactional mode the producers have
transactions open at the same time and abort some of them; aborted sends are marked in the ledger. The records depend
only on the seed; their offsets do not.

    python -m tests.checker.load --bootstrap HOST:PORT --topic orders --create 3 --rate 500 --seconds 60 --ledger FILE
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.checker.dumped import Dumped, sent
from tests.checker.ledger import Ledger
from tests.checker.traffic import Planned, Traffic
from tests.cluster.patience import PATIENCE

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ANSWER_S = 60.0 * PATIENCE
TICK_S = 0.02
TRANSACTION_S = 0.5
"""The interval of a steady rate in transactional mode, ``TICK_S`` otherwise: each interval is a transaction."""
STRETCH = 50
"""The number of consecutive records for one producer."""


class LoadFailed(Exception):
    """The cluster did not acknowledge a send; the record may be stored or not."""


class Load:
    """Sends one kind of traffic to one topic.

    Args:
        ledger: where acknowledged sends are recorded; None: nowhere.
        codecs: one producer for each.
        per_second: a steady rate in records; None sends as fast as the cluster takes it.
        transactional_id: prefix of the producers' transactional ids; None sends without transactions.
        abort_share: the share of transactions that are aborted.
        settings: further librdkafka properties, such as credentials.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        traffic: Traffic,
        ledger: Ledger | None = None,
        *,
        codecs: Sequence[str] = CODECS,
        per_second: float | None = None,
        transactional_id: str | None = None,
        abort_share: float = 0.3,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self.acknowledged = 0
        self.produced = 0
        """The number of records given to the producers: in plain traffic the sequence of the next record."""
        self._ledger = ledger
        self._records = traffic.records()
        self._per_second = per_second
        self._is_transactional = transactional_id is not None
        self._abort_share = abort_share
        self._random = Random(traffic.seed)
        self._failure: KafkaError | None = None
        self._turn = 0
        common = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
            **(settings or {}),
        }
        self._producers = []
        for codec in codecs:
            own = {"transactional.id": f"{transactional_id}-{codec}"} if self._is_transactional else {}
            self._producers.append(Producer({**common, "compression.type": codec, **own}))
        if self._is_transactional:
            for producer in self._producers:
                producer.init_transactions(ANSWER_S)

    def run(
        self, *, records: int | None = None, seconds: float | None = None, stop: threading.Event | None = None
    ) -> int:
        """Send until one of the three limits is reached; return the number of acknowledged records.

        Raises:
            LoadFailed: a send was not acknowledged. The acknowledged ones are in the ledger.
        """
        stop = stop or threading.Event()
        begun_s = time.monotonic()
        count = 0
        while not stop.is_set() and (seconds is None or time.monotonic() - begun_s < seconds):
            due = STRETCH * len(self._producers)
            if self._per_second is not None:
                stop.wait(TRANSACTION_S if self._is_transactional else TICK_S)
                due = int((time.monotonic() - begun_s) * self._per_second) - count
            if records is not None:
                due = min(due, records - count)
                if count >= records:
                    break
            if due <= 0:
                continue
            if self._is_transactional:
                self._send_in_transactions(due)
            else:
                self._send(due)
            count += due
        self._settle(self._producers)
        return self.acknowledged

    @contextmanager
    def in_background(self) -> Iterator[Load]:
        """Send from a thread until the block ends; then all records are acknowledged.

        Raises:
            LoadFailed: as ``run``, at the end of the block.
        """
        stop = threading.Event()
        failures: list[Exception] = []

        def run() -> None:
            try:
                self.run(stop=stop)
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=run, name=f"load {self.topic}", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]

    def _send(self, count: int) -> None:
        for record in islice(self._records, count):
            self._turn += 1
            producer = self._producers[self._turn // STRETCH % len(self._producers)]
            self._produce(producer, record)
            if self._turn % STRETCH == 0:
                producer.poll(0)

    def _send_in_transactions(self, count: int) -> None:
        fates = [(producer, self._random.random() < self._abort_share) for producer in self._producers]
        for producer, _ in fates:
            producer.begin_transaction()
        for record in islice(self._records, count):
            producer, is_aborted = self._random.choice(fates)
            self._produce(producer, record, is_aborted=is_aborted)
        self._settle(self._producers)  # an abort would drop records that are still queued
        self._random.shuffle(fates)
        for producer, is_aborted in fates:
            if is_aborted:
                producer.abort_transaction(ANSWER_S)
            else:
                producer.commit_transaction(ANSWER_S)

    def _produce(self, producer: Producer, record: Planned, *, is_aborted: bool = False) -> None:
        def settled(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failure = self._failure or error
                return
            self.acknowledged += 1
            if self._ledger is not None:
                self._ledger.add(self.topic, record.partition, sent(_stored(record, message), is_aborted=is_aborted))

        while True:
            try:
                producer.produce(
                    self.topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                    on_delivery=settled,
                )
                self.produced += 1
                break
            except BufferError:
                producer.poll(TICK_S)

    def _settle(self, producers: Sequence[Producer]) -> None:
        left = sum(producer.flush(ANSWER_S) for producer in producers)
        if self._failure is not None or left:
            raise LoadFailed(f"{self.topic}: {self._failure or f'{left} records unacknowledged after {ANSWER_S:g} s'}")


def _stored(record: Planned, message: Message) -> Dumped:
    """Return the acknowledged record as a consumer will see it: the broker may have set its timestamp."""
    offset, (timestamp_type, timestamp_ms) = message.offset(), message.timestamp()
    assert offset is not None
    if timestamp_type != TIMESTAMP_LOG_APPEND_TIME:
        timestamp_ms = record.timestamp_ms
    return Dumped(offset, timestamp_type, timestamp_ms, record.key, record.value, record.headers)


def create_topic(bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Create a topic with one replica. Raises: KafkaException, the topic exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1, config=dict(configs or {}))])[topic].result(ANSWER_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; SIGTERM and Ctrl-C end the load in order. The exit code is 1 if a send was not acknowledged."""
    parser = argparse.ArgumentParser(prog="python -m tests.checker.load", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--create", type=int, metavar="PARTITIONS", help="create the topic first")
    parser.add_argument("--records", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rate", type=float, help="records a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--producer", type=int, default=0, help="number in the payloads, to tell two loads apart")
    parser.add_argument("--codecs", default=",".join(CODECS))
    parser.add_argument("--compacted", action="store_true", help="no null keys, one tombstone in ten")
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--plain", action="store_true", help="no odd shapes")
    parser.add_argument("--transactional-id", help="send in transactions, some of them aborted")
    parser.add_argument("--ledger", type=Path, help="write the acknowledged sends to this file at the end")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if options.create:
        configs = {"cleanup.policy": "compact"} if options.compacted else {}
        create_topic(options.bootstrap, options.topic, options.create, configs)
    admin = AdminClient({"bootstrap.servers": options.bootstrap, "log_level": 0})
    partitions = len(admin.list_topics(options.topic, timeout=ANSWER_S).topics[options.topic].partitions)
    if not partitions:
        print(f"There is no topic {options.topic}: --create PARTITIONS makes it.", file=sys.stderr)
        return 1
    traffic = Traffic(
        seed=options.seed,
        partitions=partitions,
        producer=options.producer,
        first_timestamp_ms=int(time.time() * 1000),
        compacted=options.compacted,
        keys=options.keys,
        plain=options.plain,
    )
    ledger = Ledger() if options.ledger else None
    load = Load(
        options.bootstrap,
        options.topic,
        traffic,
        ledger,
        codecs=options.codecs.split(","),
        per_second=options.rate,
        transactional_id=options.transactional_id,
    )
    try:
        load.run(records=options.records, seconds=options.seconds, stop=stop)
    except LoadFailed as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if ledger is not None:
            ledger.save(options.ledger)
        print(f"{load.acknowledged} records acknowledged")
    return 0


if __name__ == "__main__":
    sys.exit(main())
