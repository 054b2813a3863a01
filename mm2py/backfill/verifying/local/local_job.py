"""The job of a verification in the process of the command, on its event loop.

One process is enough: with the compiled core a core compares several hundred MB in a second, and by default 100 MB a
second are read of both clusters together. With processes beside it there would be more memory, and more to stop. A few
ranges are read at the same time, each over connections of its own, so that one is compared while others are on their
way. Compacted ranges are read one after another, because all keys of a range are in memory at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

from mm2py.backfill.verifying.latest import DifferingKeys, LatestRecords
from mm2py.backfill.verifying.local.forecast import LocalProgress, expected_bytes, long_run
from mm2py.backfill.verifying.local.key_table import KeyTable
from mm2py.backfill.verifying.planning import PartitionPlan
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.backfill.verifying.reading import CHANNEL, ComparedRangeReader, Sides
from mm2py.backfill.verifying.results import RangeResult
from mm2py.clock import Clock
from mm2py.copying.reading.limits import RateLimit
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.port import TopicPartition

RANGES_AT_ONCE: Final = 4


class LocalJob:
    """Compares ranges in this process."""

    def __init__(
        self,
        sides: Sides,
        *,
        bytes_per_second: int | None,
        clock: Clock,
        rng: random.Random,
        tell: Callable[[str], object],
        shown: Callable[[LocalProgress], str],
    ) -> None:
        """Make a job.

        Args:
            bytes_per_second: of both clusters together.
            tell: gets one line if the verification will take longer than an hour.
            shown: says how progress is shown.
        """
        rate = RateLimit(bytes_per_second)
        self._readers = [
            ComparedRangeReader(sides, clock=clock, rng=rng, rate=rate, channel=f"{CHANNEL} {number}")
            for number in range(RANGES_AT_ONCE)
        ]
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._tell = tell
        self._shown = shown
        self.plans: Sequence[PartitionPlan] = ()
        self.results: dict[int, RangeResult] = {}
        """Of the ranges that were read until now, by number."""
        self._expected: dict[int, float] = {}
        self._expected_total = 0.0
        self._expected_done = 0.0
        """Of the ranges that were read."""
        self._records = 0
        self._reading: dict[int, tuple[ComparedRangeReader, int]] = {}
        """By the number of a range that is being read: its reader, and what that had read before."""
        self._started_s = clock.monotonic()
        self._has_told = False

    def prepare(self, plans: Sequence[PartitionPlan]) -> None:
        """See ``CompareJob``."""
        self.plans = plans
        self._expected = expected_bytes(plans)
        self._expected_total = sum(self._expected.values())
        self._started_s = self._clock.monotonic()
        self._warn()

    @property
    def progress(self) -> LocalProgress:
        expected = self._expected_done
        for number, (reader, before) in self._reading.items():
            expected += min(reader.fetched_bytes - before, self._expected[number])
        return LocalProgress(
            len(self._expected),
            len(self.results),
            self._records,
            sum(reader.fetched_bytes for reader in self._readers),
            self._expected_total,
            expected,
            self._clock.monotonic() - self._started_s,
        )

    def doing(self) -> str:
        """See ``CompareJob``. Warns once if the rest will take too long."""
        self._warn()
        return self._shown(self.progress)

    async def compare(self, ranges: Sequence[ComparedRange]) -> list[RangeResult]:
        """See ``CompareJob``. Cancelling is safe: nothing is written."""
        waiting = iter(ranges)

        async def read_with(reader: ComparedRangeReader) -> None:
            for one in waiting:
                await self._read(reader, one)

        async with FirstErrorGroup() as tasks:
            for number, reader in enumerate(self._readers):
                tasks.create_task(read_with(reader), name=f"{CHANNEL} {number}")
        return [self.results[one.number] for one in ranges]

    async def compare_keys(
        self, ranges: Sequence[ComparedRange]
    ) -> tuple[list[RangeResult], dict[TopicPartition, DifferingKeys]]:
        """See ``CompareJob``. Cancelling is safe.

        Raises:
            NoRoomForKeys: the disk is full.
        """
        if not ranges:
            return [], {}
        with closing(KeyTable()) as table:
            for one in ranges:
                found = await self._read(self._readers[0], one)
                if isinstance(found, LatestRecords):
                    await table.add(found)
            return [self.results[one.number] for one in ranges], await table.differing()

    async def _read(self, reader: ComparedRangeReader, one: ComparedRange) -> Any:
        self._reading[one.number] = (reader, reader.fetched_bytes)
        try:
            result, found = await reader.result(one)
        finally:
            del self._reading[one.number]
        self.results[one.number] = result
        self._expected_done += self._expected[one.number]
        self._records += result.records
        return found

    def _warn(self) -> None:
        if not self._has_told and (line := long_run(self.progress, self._bytes_per_second)) is not None:
            self._has_told = True
            self._tell(line)
