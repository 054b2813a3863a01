"""A remote partition read up to the marker that proves a fence."""

from __future__ import annotations

import uuid
from typing import Final

from mm2py.clock import Clock
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import FetchedPartition
from mm2py.replication.reading.log_reader import Stretch
from mm2py.replication.recovery.tail import Tail

MARKER_PATIENCE_S: Final = 1.0
"""How long a marker may take while its partition has a leader; then it is to be written once more (C3)."""


class TailStretch(Stretch):
    """Fills a ``Tail``. One that is not whole in the end was given up: its marker is missing, or the log is another."""

    def __init__(self, topic: str, topic_id: uuid.UUID | None, partition: int, tail: Tail, clock: Clock) -> None:
        super().__init__(topic, topic_id, partition)
        self.tail = tail
        self._clock = clock
        self._give_up_at_s = float("inf")

    @property
    def offset(self) -> int:
        return self.tail.next_offset

    def refused(self, error: BrokerRefused) -> bool:
        return True

    def take(self, fetched: FetchedPartition) -> bool:
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        before = self.offset
        if self.tail.take(fetched.records, high_watermark=fetched.high_watermark):
            return True
        now_s = self._clock.monotonic()
        if self.offset > before or self._give_up_at_s == float("inf"):
            self._give_up_at_s = now_s + MARKER_PATIENCE_S
        return now_s >= self._give_up_at_s
