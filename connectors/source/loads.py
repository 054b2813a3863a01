"""What each partition of a task carries, in bytes/s: by that the group spreads partitions over its workers.

Answers to nothing in MM2, which spreads partitions by their number.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Final

from mm2py.clock import Clock
from mm2py.replication.lane import CopiedPartition
from mm2py.worker.ownership import Key, Ownership

MEASURE_EVERY_S: Final = 5.0
HALF_LIFE_S: Final = 30.0
"""A burst counts half after so long: partitions are not to follow every wave."""


class Loads:
    """Measures until cancelled."""

    def __init__(self, partitions: Mapping[Key, CopiedPartition], ownership: Ownership, clock: Clock) -> None:
        self._partitions = partitions
        self._ownership = ownership
        self._clock = clock
        self._seen: dict[CopiedPartition, int] = {}
        self._rates: dict[Key, float] = {}

    async def run(self) -> None:
        before_s = self._clock.monotonic()
        while True:
            await asyncio.sleep(MEASURE_EVERY_S)
            now_s = self._clock.monotonic()
            self.measure(now_s - before_s)
            before_s = now_s

    def measure(self, passed_s: float) -> None:
        """Take in what was copied in the last ``passed_s`` seconds, and tell the group."""
        keeps = math.exp2(-passed_s / HALF_LIFE_S)
        rates: dict[Key, float] = {}
        seen: dict[CopiedPartition, int] = {}
        for key, part in self._partitions.items():
            copied = part.copier.tally.bytes
            rate = (copied - self._seen.get(part, copied)) / passed_s
            known = self._rates.get(key)
            rates[key] = rate if known is None else known * keeps + rate * (1 - keeps)
            seen[part] = copied
        self._rates, self._seen = rates, seen
        self._ownership.measure(rates)
