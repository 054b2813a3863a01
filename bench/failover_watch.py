"""When each partition of a remote topic gets its first record that was written after a kill."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from deploy.local.kafka import KafkaCluster

PARTITIONS: Final = 24
DEADLINE_S: Final = 60.0


class Watch:
    """Reads a remote topic, and notes when a partition got its first record that was written after a given moment."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "bench-failover",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        self._lock = threading.Lock()
        self._since_ms = 0
        self._seen: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {topic}", daemon=True)
        self._thread.start()

    def begin(self, since_ms: int) -> None:
        with self._lock:
            self._since_ms, self._seen = since_ms, {}

    def seen(self, partitions: Collection[int]) -> dict[int, float]:
        """Return when (``time.time``) each of these partitions had such a record, without partitions that have none."""
        with self._lock:
            return {number: self._seen[number] for number in partitions if number in self._seen}

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            now_s = time.time()
            with self._lock:
                if message.timestamp()[1] >= self._since_ms:
                    self._seen.setdefault(int(message.partition() or 0), now_s)


def wait_for(watch: Watch, partitions: Collection[int], deadline_s: float = DEADLINE_S) -> dict[int, float]:
    """Wait until all these partitions had such a record, and return when (``time.time``).

    Raises:
        AssertionError: it took longer than ``deadline_s``.
    """
    end_s = time.monotonic() + deadline_s
    while len(seen := watch.seen(partitions)) < len(partitions):
        missing = sorted(set(partitions) - seen.keys())
        assert time.monotonic() < end_s, f"no record within {deadline_s:g} s in {missing}"
        time.sleep(0.01)
    return seen
