"""The safe time that ``mm2py status`` shows, beside the test's own clock: is everything there that was acknowledged?"""

from __future__ import annotations

import random
import signal
import threading
from typing import Final

from confluent_kafka import Producer

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic, now_ms, producer
from tests.cluster.kafka_client import new_name, values
from tests.cluster.running import ANSWER_S, Mm2py, one_way_properties, pause

LOOKS: Final = 8
MOST_RECORDS: Final = 100_000
BURSTS, TRANSACTIONS, IDLE = 0, 1, 2
HOUR_MS: Final = 3_600_000


class AcknowledgedLoad:
    """Bursts with timestamps out of order, and transactions that stay open for a while. It notes when each record was
    acknowledged, or its transaction was committed."""

    def __init__(self, cluster: KafkaCluster, topic: str, seed: int) -> None:
        self._topic = topic
        self._rng = random.Random(seed)
        self._plain = producer(cluster, linger_ms=1)
        self._transactional = producer(cluster, transactional_id=new_name("load"))
        self._acknowledged: dict[bytes, int] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._send_bursts, self._send_transactions)]

    def __enter__(self) -> AcknowledgedLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def acknowledged_by(self, at_ms: int) -> set[bytes]:
        """Return the records that were acknowledged at this moment, by this machine's clock."""
        with self._lock:
            return {value for value, acknowledged_ms in self._acknowledged.items() if acknowledged_ms <= at_ms}

    def _send_bursts(self) -> None:
        number = 0
        while not self._stop.is_set() and number < MOST_RECORDS:
            for _ in range(self._rng.choice([1, 1, 10, 2000])):
                number += 1
                timestamp = now_ms() + self._rng.randrange(-HOUR_MS, HOUR_MS)
                self._send(self._plain, b"plain %d" % number, BURSTS, timestamp)
            self._plain.flush(ANSWER_S)
            self._stop.wait(self._rng.choice([0.0, 0.05, 0.5]))

    def _send(self, client: Producer, value: bytes, partition: int, timestamp: int) -> None:
        def settled(error: object, _: object) -> None:
            assert error is None
            with self._lock:
                self._acknowledged[value] = now_ms()

        client.produce(self._topic, value, partition=partition, timestamp=timestamp, on_delivery=settled)
        client.poll(0)

    def _send_transactions(self) -> None:
        client, rng = self._transactional, random.Random(self._rng.random())
        client.init_transactions(ANSWER_S)
        number = 0
        while not self._stop.is_set():
            client.begin_transaction()
            sent = [b"transactional %d" % (number + one) for one in range(20)]
            number += len(sent)
            for value in sent:
                client.produce(self._topic, value, partition=TRANSACTIONS)
            client.flush(ANSWER_S)
            self._stop.wait(rng.choice([0.0, 0.3, 2.0]))
            client.commit_transaction(ANSWER_S)
            with self._lock:
                self._acknowledged.update(dict.fromkeys(sent, now_ms()))
            self._stop.wait(rng.choice([0.0, 0.2]))


def test_the_safe_time_is_never_too_new_and_moves_on(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """The worker is frozen at any moment. What it has told then must be true of what is there."""
    topic = new_topic(source_cluster, "safe", partitions=3)
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        **{
            "A->B.topics": topic,
            "A.consumer.isolation.level": "read_committed",
            "B.session.timeout.ms": 60_000,  # a frozen worker counts as alive
        },
    )
    rng = random.Random(11)
    known: list[int] = []
    with Mm2py(properties) as run, AcknowledgedLoad(source_cluster, topic, seed=11) as load:
        run.wait_until(lambda: run.status()[1]["flows"][0]["verdict"]["safe_at_ms"], "a safe time is known")
        for _ in range(LOOKS):
            pause(rng.uniform(0.2, 1.5), "the worker is frozen at any moment")
            run.signal(signal.SIGSTOP)
            try:
                verdict = run.status()[1]["flows"][0]["verdict"]
                there = set(values(target_cluster, f"A.{topic}", (BURSTS, TRANSACTIONS, IDLE)))
            finally:
                run.signal(signal.SIGCONT)
            if (safe_ms := verdict["safe_at_ms"]) is not None:
                missing = load.acknowledged_by(safe_ms) - there
                assert not missing, f"told safe to {safe_ms}, and {len(missing)} records were not there"
                known.append(safe_ms)
        before = known[-1]
        run.wait_until(
            lambda: (run.status()[1]["flows"][0]["verdict"]["safe_at_ms"] or 0) > before, "the safe time moves on"
        )
    assert len(known) > LOOKS // 2, "it is known most of the time"
    assert known == sorted(known)
