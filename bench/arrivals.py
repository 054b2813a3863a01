"""When records reach a consumer of the target, by partition, and how long a partition had none."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from deploy.local.kafka import KafkaCluster

ANSWER_S: Final = 60.0
Place = tuple[str, int]
"""Topic and partition."""


class Arrivals:
    """Reads partitions, and notes when each got a record that is newer than all earlier ones."""

    def __init__(self, cluster: KafkaCluster, places: Sequence[Place]) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "bench-arrivals",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(*place) for place in places])
        self._lock = threading.Lock()
        self._times_s: dict[Place, list[float]] = {place: [] for place in places}
        self._newest_ms = dict.fromkeys(places, -1)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
        self._thread.start()

    def times_s(self) -> dict[Place, list[float]]:
        """Return by partition when (``time.monotonic``) newer records came."""
        with self._lock:
            return {place: list(times) for place, times in self._times_s.items()}

    def wait_for_all(self) -> None:
        """Return when each partition had a record. Raises: AssertionError after ``ANSWER_S``."""
        end_s = time.monotonic() + ANSWER_S
        while missing := [place for place, times in self.times_s().items() if not times]:
            assert time.monotonic() < end_s, f"nothing is copied in {len(missing)} partitions, such as {missing[0]}"
            time.sleep(0.1)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            now_s, place = time.monotonic(), (message.topic() or "", int(message.partition() or 0))
            written_ms = message.timestamp()[1]
            with self._lock:
                if written_ms > self._newest_ms[place]:
                    self._newest_ms[place] = written_ms
                    self._times_s[place].append(now_s)


def longest_gap_s(times_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """Return the longest time between two arrivals that overlaps a window. Pure.

    A gap that ended in the window counts whole. A gap that had not ended counts to the window's end. A gap that ended
    before the window does not count. Before the first arrival nothing is known, so the time until then is no gap. If
    nothing arrived before the window's end, the whole window is the gap.
    """
    first, last = bisect_left(times_s, begin_s), bisect_left(times_s, end_s)
    points = [*times_s[max(0, first - 1) : last], end_s]
    if first == 0 and last == 0:
        return end_s - begin_s
    return max(later - earlier for earlier, later in pairwise(points))
