"""Steady light traffic: one record to each of some partitions, repeatedly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer

from deploy.local.kafka import KafkaCluster

EVERY_S: Final = 0.05
"""How often each partition gets a record."""
FLUSH_S: Final = 60.0


@contextmanager
def light_load(cluster: KafkaCluster, places: Sequence[tuple[str, int]]) -> Iterator[list[float]]:
    """Write a record to each of these partitions every ``EVERY_S`` while the ``with`` block lasts.

    Yields:
        When (``time.monotonic``) each round of records was written: they show the writer's own pauses.
    """
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1, "log_level": 0})
    ended = threading.Event()
    rounds_s: list[float] = []

    def run() -> None:
        while not ended.wait(EVERY_S):
            for topic, number in places:
                producer.produce(topic, b"x" * 100, partition=number)
            producer.poll(0)
            rounds_s.append(time.monotonic())
        producer.flush(FLUSH_S)

    thread = threading.Thread(target=run, name="light load", daemon=True)
    thread.start()
    try:
        yield rounds_s
    finally:
        ended.set()
        thread.join()
