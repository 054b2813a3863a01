"""A consumer group that stops on one cluster of the demo and continues in the copy on the other.

The group reads a topic with transactions, some of them aborted, so offsets differ on both sides. It commits once and
closes. mm2py then commits for the group on the other cluster. There the group continues, and its first record of each
partition is compared with the record that follows its commit on the first cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from deploy.local.errors import StarterError

GROUP: Final = "bookkeeping"
READS_S: Final = 2.0
PATIENCE_S: Final = 90.0
"""How long each step may take before the demo fails. On an idle machine a step takes a few seconds."""

Records = Mapping[int, tuple[bytes | None, bytes | None, int]]
"""Key, value and timestamp of a record, by partition."""


@dataclass(frozen=True, slots=True)
class Place:
    """A topic on a cluster of the demo."""

    cluster: str
    bootstrap: str
    topic: str


class FailoverFailed(StarterError):
    """The group did not continue, or not where it had stopped."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="This is a fault of mm2py: its log tells more.")


class Failover:
    """One move of the group; ``run`` it in a thread while there is traffic."""

    def __init__(self, source: Place, target: Place) -> None:
        self._source = source
        self._target = target
        self._halt = threading.Event()

    def stop(self) -> None:
        """Make ``run`` end soon."""
        self._halt.set()

    def run(self) -> str:
        """Move the group, and return a line with the result; empty if it was stopped.

        Raises:
            FailoverFailed, KafkaException: see there.
        """
        read, commits = self._read_and_commit()
        there = self._commits_on_target(set(commits))
        if self._halt.is_set():
            return ""
        expected = self._first(self._source, commits, None)
        found = self._first(self._target, there, GROUP)
        if self._halt.is_set():
            return ""
        wrong = [number for number in expected if found.get(number) != expected[number]]
        if wrong:
            raise FailoverFailed(
                f"Group {GROUP} went on at another record of {self._target.topic}, partition(s) {wrong}."
            )
        return (
            f"Group {GROUP} stopped on {self._source.cluster} after {read:,} records of {self._source.topic}, and"
            f" continued on {self._target.cluster} at the exact record in all {len(expected)} partitions: none skipped,"
            " none read again."
        )

    def _read_and_commit(self) -> tuple[int, dict[int, int]]:
        """Read for a while, commit, and leave the group. Returns the number of records, and the commits."""
        client = _client(self._source, GROUP)
        try:
            client.subscribe([self._source.topic])
            read, ends_s = 0, time.monotonic() + PATIENCE_S
            while not self._halt.is_set() and time.monotonic() < ends_s:
                messages = client.consume(500, 0.2)
                if messages and not read:
                    ends_s = time.monotonic() + READS_S
                read += len(messages)
            if not read:
                return 0, {}
            return read, {at.partition: at.offset for at in client.commit(asynchronous=False) or ()}
        finally:
            client.close()

    def _commits_on_target(self, numbers: set[int]) -> dict[int, int]:
        """Wait until mm2py has committed for the group in these partitions, and return where."""
        asked = [TopicPartition(self._target.topic, number) for number in sorted(numbers)]
        client = _client(self._target, GROUP)
        try:
            found: dict[int, int] = {}

            def is_there() -> bool:
                answers = client.committed(asked, timeout=5.0)
                found.update({at.partition: at.offset for at in answers if at.offset >= 0})
                return found.keys() == numbers

            self._wait(is_there, f"mm2py did not commit for group {GROUP} on {self._target.cluster}")
            return found
        finally:
            client.close()

    def _first(self, place: Place, offsets: Mapping[int, int], group: str | None) -> Records:
        """Return the record at which a reader continues in each partition; a group continues at its commits."""
        client = _client(place, group or f"{GROUP}-check")
        try:
            if group is None:
                client.assign([TopicPartition(place.topic, number, offset) for number, offset in offsets.items()])
            else:
                client.subscribe([place.topic])
            found: dict[int, Message] = {}

            def is_there() -> bool:
                for message in client.consume(500, 0.2):
                    found.setdefault(message.partition() or 0, message)
                return found.keys() >= offsets.keys()

            self._wait(is_there, f"no record followed in {place.topic} on {place.cluster}")
            return {number: (one.key(), one.value(), one.timestamp()[1]) for number, one in found.items()}
        finally:
            client.close()

    def _wait(self, is_there: Callable[[], bool], failure: str) -> None:
        late_s = time.monotonic() + PATIENCE_S
        while not self._halt.is_set() and not is_there():
            if time.monotonic() > late_s:
                raise FailoverFailed(f"{failure} within {PATIENCE_S:g} s.")
            self._halt.wait(0.2)


def _client(place: Place, group: str) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": place.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    return Consumer(settings)
