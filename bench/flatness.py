"""Whether a long run stays flat: memory by its trend, descriptors, threads and tasks by their median counts. Pure.

The first tenth of a run is warm-up and is left out. Memory varies without growing, so its slope is judged with its
uncertainty: the run fails if the slope is above the limit by more than twice its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

WARM_UP_SHARE: Final = 0.1
FEWEST_SAMPLES: Final = 10
COUNT_SLACK: Final = 1.02
CERTAINTY: Final = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The process at one moment; ``tasks`` are those of its event loop."""

    at_s: float
    resident_mb: float
    open_files: int
    threads: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through samples, in units per hour, with the standard error of its slope."""

    per_hour: float
    error_per_hour: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One judgement, in words."""

    flat: bool
    text: str


def trend(samples: Sequence[tuple[float, float]]) -> Trend:
    """Return the least-squares line through (time in s, value).

    Raises:
        ValueError: there are fewer than three samples, or all are of one moment.
    """
    count = len(samples)
    if count < 3:
        raise ValueError("a trend needs three samples")
    mean_at = sum(at for at, _ in samples) / count
    mean_value = sum(value for _, value in samples) / count
    spread = sum((at - mean_at) ** 2 for at, _ in samples)
    if not spread:
        raise ValueError("all samples are of one moment")
    slope = sum((at - mean_at) * (value - mean_value) for at, value in samples) / spread
    residuals = sum((value - mean_value - slope * (at - mean_at)) ** 2 for at, value in samples)
    return Trend(slope * 3_600, math.sqrt(residuals / (count - 2) / spread) * 3_600)


def judge(samples: Sequence[Sample], *, most_mb_per_hour: float) -> list[Finding]:
    """Judge a run. If there are too few samples, the finding is not flat."""
    kept = after_warm_up(samples)
    if len(kept) < FEWEST_SAMPLES:
        return [Finding(flat=False, text=f"{len(kept)} samples after the warm-up are too few to judge")]
    memory = trend([(sample.at_s, sample.resident_mb) for sample in kept])
    lowest = memory.per_hour - CERTAINTY * memory.error_per_hour
    findings = [
        Finding(
            flat=lowest <= most_mb_per_hour,
            text=f"memory {kept[0].resident_mb:.1f} to {kept[-1].resident_mb:.1f} MB, highest "
            f"{max(sample.resident_mb for sample in kept):.1f}, trend {memory.per_hour:+.2f} MB an hour "
            f"(standard error {memory.error_per_hour:.2f}, limit {most_mb_per_hour:g})",
        )
    ]
    counts: dict[str, Callable[[Sample], int]] = {
        "open files": lambda sample: sample.open_files,
        "threads": lambda sample: sample.threads,
        "tasks": lambda sample: sample.tasks,
    }
    return findings + [_judge_count(name, [count(sample) for sample in kept]) for name, count in counts.items()]


def after_warm_up(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples after the first tenth of the time."""
    if not samples:
        return []
    begun_s, ended_s = samples[0].at_s, samples[-1].at_s
    return [sample for sample in samples if sample.at_s >= begun_s + WARM_UP_SHARE * (ended_s - begun_s)]


def _judge_count(name: str, values: Sequence[int]) -> Finding:
    """Compare the halves of a run: the second may not be higher than the first, except by one or by two percent.

    Medians are compared, and the highest values shown. The number of pending requests varies by chance, and with it the
    highest of a hundred samples. A leak raises the median.
    """
    half = len(values) // 2
    first, second = sorted(values[:half])[half // 2], sorted(values[half:])[(len(values) - half) // 2]
    allowed = max(first + 1, math.floor(first * COUNT_SLACK))
    most = f"at most {max(values[:half])}, then {max(values[half:])}"
    return Finding(second <= allowed, f"{name}: mostly {first} in the first half, {second} in the second ({most})")
