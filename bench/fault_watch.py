"""A consumer of the copies while they are made: it notes when and how often each record came.

It recognises committed records by their payloads (``tests.checker.traffic``) and does not use offsets. So it counts
duplicates and missing records in another way than the checker does.
"""

from __future__ import annotations

import threading
import time
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from bench.fault_outcome import Recovery
from tests.checker.traffic import origin

AT_ONCE: Final = 2_000
POLL_S: Final = 0.05
LOOK_S: Final = 0.2
ANSWER_S: Final = 5.0

Marks = Mapping[str, int]
"""For each source topic the sequence of the next record; later records have this sequence or a higher one."""


class Course:
    """When each new highest sequence came, in one partition of a copy."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._sequences: list[int] = []

    def note(self, at_s: float, sequence: int) -> None:
        """Record an arrival; times must not fall."""
        if not self._sequences or sequence > self._sequences[-1]:
            self._times_s.append(at_s)
            self._sequences.append(sequence)

    def reached(self, sequence: int) -> float | None:
        """Return when the first record of this sequence or a higher one came; None if none came."""
        at = bisect_left(self._sequences, sequence)
        return self._times_s[at] if at < len(self._times_s) else None


def recovery(fault: str, fault_s: float, firsts_s: list[float | None]) -> Recovery:
    """Return the recovery times after a fault.

    Args:
        firsts_s: for each partition, when the first record that was written after the fault came.
    """
    came = [each - fault_s for each in firsts_s if each is not None]
    return Recovery(
        fault,
        round(min(came), 2) if came else None,
        round(max(came), 2) if came and len(came) == len(firsts_s) else None,
    )


class Tail:
    """Reads remote topics from their start, as soon as they exist, until the ``with`` block ends.

    Args:
        topics: source topic to remote topic.
        producer: the number in the payloads that are counted; others are skipped.
    """

    def __init__(self, bootstrap: str, topics: Mapping[str, str], partitions: int, *, producer: int = 0) -> None:
        self.producer = producer
        self._origins = {remote: topic for topic, remote in topics.items()}
        self._partitions = partitions
        self._lock = threading.Lock()
        self._courses = {(topic, number): Course() for topic in topics for number in range(partitions)}
        self._seen: dict[str, Counter[int]] = {topic: Counter() for topic in topics}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"tail-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        self._consumer.close()

    def follow(self, producer: int) -> None:
        """Count the records of another producer from now on, and forget all others."""
        with self._lock:
            self.producer = producer
            self._courses = {place: Course() for place in self._courses}
            self._seen = {topic: Counter() for topic in self._seen}

    def distinct(self) -> int:
        """Return the number of different records."""
        with self._lock:
            return sum(len(seen) for seen in self._seen.values())

    def repeated(self) -> int:
        """Return the number of duplicates."""
        with self._lock:
            return sum(seen.total() - len(seen) for seen in self._seen.values())

    def firsts_s(self, marks: Marks) -> list[float | None]:
        """Return for each partition when the first record that was written after these marks came."""
        with self._lock:
            return [course.reached(marks[topic]) for (topic, _), course in self._courses.items()]

    def _run(self) -> None:
        missing = set(self._origins)
        looked_s = 0.0
        while not self._end.is_set():
            if missing and time.monotonic() - looked_s > LOOK_S:
                looked_s = time.monotonic()
                with suppress(KafkaException):  # the broker may be about to come back
                    self._look_for(missing)
            if len(missing) == len(self._origins):
                self._end.wait(POLL_S)
                continue
            messages = self._consumer.consume(AT_ONCE, timeout=POLL_S)
            now_s = time.monotonic()
            with self._lock:
                for message in messages:
                    if message.error() is None:
                        self._note(now_s, message)

    def _look_for(self, missing: set[str]) -> None:
        known = self._consumer.list_topics(timeout=ANSWER_S).topics
        for remote in sorted(missing):
            if remote in known and len(known[remote].partitions) == self._partitions:
                missing.discard(remote)
                self._consumer.incremental_assign(
                    [TopicPartition(remote, number, 0) for number in range(self._partitions)]
                )

    def _note(self, now_s: float, message: Message) -> None:
        found, remote, number = origin(message.value()), message.topic(), message.partition()
        if found is None or remote is None or number is None or found[0] != self.producer:
            return
        topic = self._origins[remote]
        self._seen[topic][found[2]] += 1
        self._courses[topic, number].note(now_s, found[2])
