"""How far a local verification is, and how long all of it will take. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.backfill.verifying.planning import PartitionPlan
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.moments import duration_text

MB: Final = 1_000_000
HOUR_S: Final = 3600.0
MEASURED_AFTER_S: Final = 10.0
"""From then on the rate so far says how long the rest takes."""
AT_LIMIT: Final = 0.8
"""From this part of the allowed rate on, the limit is why it is not faster."""
BAR_CHARS: Final = 20


@dataclass(frozen=True, slots=True)
class LocalProgress:
    """What was read until now. Bytes are those of both clusters together."""

    ranges: int
    ranges_done: int
    records: int
    """Source records in the ranges that are done."""
    read_bytes: int
    expected_bytes: float
    """Of all ranges, before any was read."""
    expected_done: float
    """The part of ``expected_bytes`` that belongs to what was read."""
    seconds: float
    """Since the first read."""

    @property
    def part(self) -> float:
        """How much of all is done, from 0 to 1."""
        return min(self.expected_done / self.expected_bytes, 1.0) if self.expected_bytes else 1.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the rate until now; None: nothing was read yet."""
        return self.seconds * (1.0 - self.part) / self.part if self.part else None

    @property
    def mb_per_second(self) -> float:
        return self.read_bytes / MB / self.seconds if self.seconds else 0.0


def expected_bytes(plans: Sequence[PartitionPlan]) -> dict[int, float]:
    """Return about how many bytes each range has on both sides, by the number of the range.

    A partition of up to 10,000 offsets counts 1,000 bytes an offset; of larger ones the survey has read a sample.
    """
    return {one.number: _expected(one, plan.facts.bytes_per_offset) for plan in plans for one in plan.ranges}


def progress_line(progress: LocalProgress) -> str:
    """Return the progress as a phrase."""
    left = progress.seconds_left
    return (
        f"compared {progress.ranges_done:,} of {progress.ranges:,} ranges, {progress.records:,} records;"
        f" read {progress.read_bytes / MB:,.0f} MB of both clusters, {progress.mb_per_second:,.0f} MB/s"
        + ("" if left is None else f", about {duration_text(left)} left")
    )


def progress_bar(progress: LocalProgress) -> str:
    """Return the progress as a bar, with numbers behind it."""
    left = progress.seconds_left
    return (
        f"[{'#' * round(progress.part * BAR_CHARS):{BAR_CHARS}}] {progress.part:6.1%}"
        f"  {progress.ranges_done:,}/{progress.ranges:,} ranges  {progress.records:,} records"
        f"  {progress.mb_per_second:,.0f} MB/s" + ("" if left is None else f"  {duration_text(left)} left")
    )


def long_run(progress: LocalProgress, bytes_per_second: int | None) -> str | None:
    """Return a line that says that the whole verification takes more than an hour; None if it does not, or not yet.

    Args:
        bytes_per_second: the most that may be read of both clusters together; None: no limit.
    """
    left = progress.seconds_left
    if progress.seconds >= MEASURED_AFTER_S and left is not None:
        seconds, rate, word = progress.seconds + left, progress.mb_per_second, "about"
    elif bytes_per_second is not None:
        seconds, rate, word = progress.expected_bytes / bytes_per_second, bytes_per_second / MB, "at least"
    else:
        return None
    if seconds <= HOUR_S:
        return None
    text = f"this takes {word} {duration_text(seconds)}, at {rate:,.0f} MB/s of both clusters together."
    if bytes_per_second is not None and rate * MB >= AT_LIMIT * bytes_per_second:
        limit = f"{bytes_per_second / MB:,.0f}"
        return f"{text} --max-mb-per-second {limit} is the limit; with a higher one Spark (without --local) spreads it."
    return f"{text} Spark (without --local) spreads it over cores and machines."


def _expected(one: ComparedRange, bytes_per_offset: float) -> float:
    return max(sum(end - start for start, end in (one.source, one.target)) * bytes_per_offset, 1.0)
