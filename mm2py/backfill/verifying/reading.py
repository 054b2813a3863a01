"""Reads both sides of a range from their clusters: in a task of Spark, or in the command. Writes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from mm2py.backfill.verifying.comparing import RangeComparison
from mm2py.backfill.verifying.finding import Difference, PlacedRecords, first_difference, placed_records
from mm2py.backfill.verifying.latest import LatestRecords
from mm2py.backfill.verifying.places import SOURCE, TARGET
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.backfill.verifying.results import RangeResult, failed, result_of
from mm2py.clock import Clock
from mm2py.compiled_core import CORE
from mm2py.config.settings import FlowSettings
from mm2py.copying.planning.steps import DAMAGED_READS_MAX, PASS_ALL, SMALL_BYTES, MergeRule, Step
from mm2py.copying.reading.limits import RateLimit
from mm2py.copying.reading.log_reader import LogReader, PlannedStretch
from mm2py.errors import FirstErrorGroup, Mm2Error
from mm2py.flow_clusters import both_of
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.list_offsets import find_bounds
from mm2py.kafka.port import Brokers, FetchedPartition

CHANNEL: Final = "verify"
READ_BYTES: Final = 4 << 20
MERGE_SINGLES: Final = PASS_ALL if CORE is None else MergeRule(SMALL_BYTES, 0, "small batches of one record", 1)
"""With the compiled core, neighbouring small batches of one record are merged before they are compared: merging costs
less than comparing each."""
EMPTY_READS_MAX: Final = 3
"""After more empty answers than this below the end of a log, its last offsets count as removed by cleaning."""
PATIENCE_S: Final = 10.0
"""How long a log may seem shorter than it must be."""
DEADLINE_S: Final = 60.0
"""How long one read may take."""


class Expired(Exception):
    """A log has deleted records that were to be read. ``log_start`` is where it begins now."""

    def __init__(self, side: int, log_start: int) -> None:
        super().__init__(f"side {side} begins at {log_start}")
        self.side = side
        self.log_start = log_start


class NotReadable(Mm2Error):
    """A part of a log could not be read, so it was not compared."""

    def __init__(self, log: str, offset: int, why: str) -> None:
        super().__init__(
            f"{log} cannot be read at offset {offset}: {why}.",
            remedy="Look at the batch with kafka-dump-log.sh, then verify again.",
        )


class Compared(Protocol):
    """Gets the steps of both sides of a range: ``RangeComparison``, ``LatestRecords``, or ``_Whole``."""

    range: ComparedRange

    def next_offset(self, side: int) -> int: ...
    def take(self, side: int, steps: Iterable[Step], next_offset: int) -> None: ...
    def wanted(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Sides:
    """The two clusters of a flow, with their names."""

    names: tuple[str, str]
    brokers: tuple[Brokers, Brokers]


@asynccontextmanager
async def open_sides(settings: FlowSettings, rng: random.Random) -> AsyncIterator[Sides]:
    """Connect to both clusters of a flow, and close the connections at the end."""
    async with both_of("verify", settings, rng) as both:
        yield Sides((str(settings.flow.source), str(settings.flow.target)), both)


class ComparedRangeReader:
    """Reads one range after another, both sides of a range at the same time."""

    def __init__(
        self, sides: Sides, *, clock: Clock, rng: random.Random, rate: RateLimit, channel: str = CHANNEL
    ) -> None:
        """Make a reader.

        Args:
            rate: limits what is read of both sides together; readers of one process may share it.
            channel: a reader with one of its own has its own connections.
        """
        self._sides = sides
        self._clock = clock
        self._rng = rng
        self._rate = rate
        self._channel = channel
        self.fetched_bytes = 0
        """How much was read of both sides."""

    async def result(self, compared: ComparedRange) -> tuple[RangeResult, RangeComparison | LatestRecords | None]:
        """Compare a range, as ``compare``, and return its result. An error is a result: it says why there is no other.

        Cancelling is safe: nothing is written.
        """
        try:
            found = await self.compare(compared)
        except Mm2Error as error:
            return failed(compared, str(error)), None
        return result_of(compared, found), found

    async def compare(self, compared: ComparedRange) -> RangeComparison | LatestRecords | None:
        """Compare the part of a range that both logs still have; return None if nothing is left.

        Raises:
            NotReadable: a batch is damaged, or a log is shorter than it was.
            Mm2Error: a cluster does not answer, or refuses.
        Cancelling is safe: nothing is written.
        """
        left: ComparedRange | None = compared
        while left is not None:
            found = LatestRecords(left) if left.is_compacted else RangeComparison(left)
            try:
                await self._fill(found)
            except Expired as expired:
                starts = [0, 0]
                starts[expired.side] = expired.log_start
                left = left.without_expired(*starts)
            else:
                return found
        return None

    async def difference(self, compared: ComparedRange) -> Difference | None:
        """Return the first difference of a small range. Raises: as ``compare``."""
        try:
            return first_difference(compared, *await self.records(compared))
        except Expired:
            return None

    async def records(self, compared: ComparedRange) -> tuple[PlacedRecords, PlacedRecords]:
        """Return all records of a small range.

        Raises:
            Expired: a log has deleted its beginning.
            Mm2Error: as ``compare``.
        """
        found = _Whole(compared)
        await self._fill(found)
        source, target = found.steps
        return placed_records(compared, SOURCE, source), placed_records(compared, TARGET, target)

    async def _fill(self, found: Compared) -> None:
        compared = found.range
        stretches = (
            _Stretch(compared.topic, compared, SOURCE, read_committed=compared.read_committed, clock=self._clock),
            _Stretch(compared.remote_topic, compared, TARGET, read_committed=True, clock=self._clock),
        )
        while sides := found.wanted():
            async with FirstErrorGroup() as tasks:
                for side in sides:
                    tasks.create_task(self._read(stretches[side], side))
            for side in sides:
                stretch = stretches[side]
                found.take(side, stretch.steps, stretch.offset)
        await self._keep_to_rate()  # the next range may be read by another task, which knows nothing of these bytes

    async def _read(self, stretch: _Stretch, side: int) -> None:
        await self._keep_to_rate()
        reader = LogReader(
            self._sides.brokers[side], read_committed=stretch.read_committed, rng=self._rng, channel=self._channel
        )
        stretch.steps, stretch.fetched_bytes, stretch.why = [], 0, "its topic is gone, or mm2py has no READ on it"
        log = f"{self._sides.names[side]}/{stretch.topic}/{stretch.partition}"
        try:
            async with asyncio.timeout(DEADLINE_S):
                await reader.read([stretch], lambda _: None)
        except TimeoutError as error:
            raise NotReadable(log, stretch.offset, f"its leader does not answer within {DEADLINE_S:g} s") from error
        self.fetched_bytes += stretch.fetched_bytes
        self._rate.spend(stretch.fetched_bytes, self._clock.monotonic())
        if stretch.is_out_of_range:
            start, end = await self._bounds(side, stretch)
            if start > stretch.offset:
                raise Expired(side, start)
            raise NotReadable(log, stretch.offset, f"it ends at {end}")
        if stretch.why:
            raise NotReadable(log, stretch.offset, stretch.why)

    async def _keep_to_rate(self) -> None:
        """Wait until the bytes read so far fit the rate limit."""
        await asyncio.sleep(self._rate.wait_s(self._clock.monotonic()))

    async def _bounds(self, side: int, stretch: _Stretch) -> tuple[int, int]:
        """Return where a log begins and ends now."""
        brokers, key = self._sides.brokers[side], stretch.key
        leader = (await fetch_metadata(brokers, [stretch.topic])).leader_of(*key)
        return (await find_bounds(brokers, {key: leader})).get(key, (0, -1))


class _Whole:
    """Keeps all steps of both sides of a small range."""

    def __init__(self, compared: ComparedRange) -> None:
        self.range = compared
        self.steps: tuple[list[Step], list[Step]] = ([], [])
        self._next = [compared.source[0], compared.target[0]]

    def next_offset(self, side: int) -> int:
        return self._next[side]

    def take(self, side: int, steps: Iterable[Step], next_offset: int) -> None:
        self.steps[side].extend(steps)
        self._next[side] = next_offset

    def wanted(self) -> list[int]:
        ends = (self.range.source[1], self.range.target[1])
        return [side for side in (SOURCE, TARGET) if self._next[side] < ends[side]]


class _Stretch(PlannedStretch):
    """One side of a range. Each read returns the next part of it."""

    def __init__(self, topic: str, compared: ComparedRange, side: int, *, read_committed: bool, clock: Clock) -> None:
        start, self._end = (compared.source, compared.target)[side]
        super().__init__(
            topic,
            (compared.source_topic_id, compared.target_topic_id)[side],
            compared.partition,
            offset=start,
            read_committed=read_committed,
            clock=clock,
            transforms=None,
            merging=MERGE_SINGLES,
        )
        self.read_bytes = READ_BYTES
        self.steps: list[Step] = []
        """The steps of the last read."""
        self.fetched_bytes = 0
        self.why = ""
        """Why the last read has brought no steps; empty if it has."""
        self.is_out_of_range = False
        self._damaged_reads = 0
        self._empty_reads = 0

    def take(self, fetched: FetchedPartition) -> bool:
        """The read is over with the first steps, or when it is given up."""
        self.fetched_bytes += len(fetched.records)
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            self.is_out_of_range = True
            return True
        planned = self.planned
        self.steps = planned.steps
        if self.steps:
            self._damaged_reads, self._empty_reads, self.why = 0, 0, ""
            return True
        if planned.fault is not None:
            self._damaged_reads += 1
            self.why = planned.fault.text.rstrip(".")
            return self._damaged_reads >= DAMAGED_READS_MAX
        if fetched.high_watermark >= self._end and not len(fetched.records) and not self._waits(fetched):
            self._empty_reads += 1
            if self._empty_reads <= EMPTY_READS_MAX:
                return False
            self._offset, self.why = self._end, ""  # offsets at the end of a cleaned log
            return True
        self.why = "a transaction is open there" if self._waits(fetched) else f"it ends at {fetched.high_watermark}"
        return not self._is_patient(PATIENCE_S)

    def _waits(self, fetched: FetchedPartition) -> bool:
        return self.read_committed and 0 <= fetched.last_stable_offset < self._end
