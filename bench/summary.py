"""Medians, spreads and ratios over the rounds of a bench, and whether the goals are reached. Pure.

A ratio says how many times better mm2py is, for every kind of measure: 12 for a twelfth of the CPU. Of the two ways to
run MirrorMaker 2 the better one counts, separately for each measure. Shown values are rounded against mm2py; values are
judged before rounding.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.mirrors import FRANZ_GO, MM2, MM2PY
from bench.runs import MEASURES, Run


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of one measure over the rounds."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times better mm2py is than ``other``: by the medians, and in its worst and best round."""

    other: str
    median: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Goal:
    """Either a ratio to the better MirrorMaker 2 that must be reached, or an amount that must not be exceeded."""

    workload: str
    measure: str
    times_better: float | None = None
    at_most: float | None = None


def _goals(workload: str, *, speed: float, cpu: float) -> tuple[Goal, ...]:
    return (
        Goal(workload, "records_per_s", times_better=speed),
        Goal(workload, "cpu_s_per_million", times_better=cpu),
        Goal(workload, "cpu_s_per_million_steady", times_better=cpu),
        Goal(workload, "peak_mb", times_better=7),
        Goal(workload, "first_record_s", at_most=2.0),
    )


GOALS: Final = (
    *_goals("uncompressed", speed=3, cpu=12),
    *_goals("zstd", speed=4, cpu=18),
    *_goals("single", speed=3, cpu=6),
    *_goals("one_partition", speed=2, cpu=10),
    Goal("latency", "p99_ms", times_better=1),
)
"""CPU per record is judged twice, with and without the start: each of them alone would favour one mirror."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal, the result, and ``held`` (None: not measured)."""

    goal: Goal
    ours: Spread | None
    theirs: Spread | None
    ratio: Ratio | None
    held: bool | None
    why: str = ""


class Summary:
    """All runs of a bench, by workload, mirror and measure."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = list(runs)
        self.workloads = list(dict.fromkeys(run.workload for run in runs))

    def runs_of(self, workload: str, mirror: str) -> list[Run]:
        return [run for run in self.runs if run.workload == workload and run.mirror == mirror]

    def values(self, workload: str, mirror: str, measure: str) -> dict[int, float]:
        """Return the measured values by round, without failed rounds."""
        return {run.round: run.measures[measure] for run in self.runs_of(workload, mirror) if measure in run.measures}

    def spread(self, workload: str, mirror: str, measure: str) -> Spread | None:
        values = list(self.values(workload, mirror, measure).values())
        return Spread(statistics.median(values), min(values), max(values)) if values else None

    def better_mm2(self, workload: str, measure: str) -> str | None:
        """Return the way of running MirrorMaker 2 with the better median; None if none finished."""
        spreads = {mirror: self.spread(workload, mirror, measure) for mirror in MM2}
        medians = {mirror: spread.median for mirror, spread in spreads.items() if spread is not None}
        if not medians:
            return None
        best = max if MEASURES[measure].higher_is_better else min
        return best(medians, key=lambda mirror: medians[mirror])

    def ratio(self, workload: str, measure: str, other: str | None) -> Ratio | None:
        """Return how many times better mm2py is than another mirror; None if one of them has no value."""
        if other is None:
            return None
        ours, theirs = self.values(workload, MM2PY, measure), self.values(workload, other, measure)
        if not ours or not theirs:
            return None
        median = times_better(measure, statistics.median(ours.values()), statistics.median(theirs.values()))
        rounds = [times_better(measure, ours[number], theirs[number]) for number in ours.keys() & theirs.keys()]
        return Ratio(other, median, min(rounds, default=median), max(rounds, default=median))

    def against_mm2(self, workload: str, measure: str) -> Ratio | None:
        return self.ratio(workload, measure, self.better_mm2(workload, measure))

    def against_franz_go(self, workload: str, measure: str) -> Ratio | None:
        return self.ratio(workload, measure, FRANZ_GO)

    def verdict(self, goal: Goal) -> Verdict:
        """Judge one goal. If a run of mm2py failed, the goal is missed, whatever the other results are."""
        other = self.better_mm2(goal.workload, goal.measure)
        ours = self.spread(goal.workload, MM2PY, goal.measure)
        theirs = None if other is None else self.spread(goal.workload, other, goal.measure)
        ratio = self.ratio(goal.workload, goal.measure, other)
        failures = [run for run in self.runs_of(goal.workload, MM2PY) if run.failed is not None]
        if failures:
            return Verdict(goal, ours, theirs, ratio, held=False, why=f"{len(failures)} runs failed")
        if goal.at_most is not None:
            return Verdict(goal, ours, theirs, ratio, held=None if ours is None else ours.median <= goal.at_most)
        assert goal.times_better is not None
        return Verdict(goal, ours, theirs, ratio, held=None if ratio is None else ratio.median >= goal.times_better)

    def verdicts(self) -> list[Verdict]:
        """Judge the goals of all workloads that were run."""
        return [self.verdict(goal) for goal in GOALS if goal.workload in self.workloads]


def times_better(measure: str, ours: float, theirs: float) -> float:
    """Return how many times better ``ours`` is."""
    better, worse = (ours, theirs) if MEASURES[measure].higher_is_better else (theirs, ours)
    return better / worse if worse else math.inf


def shown_ratio(ratio: float) -> str:
    """Return a ratio with one decimal place, or two below 1, never rounded up."""
    if math.isinf(ratio):
        return "∞"
    places = 10 if ratio >= 1 else 100
    return f"{math.floor(ratio * places + 1e-9) / places:g}"


def shown(measure: str, value: float, *, ours: bool) -> str:
    """Return a value with three significant digits: mm2py's is rounded to the worse side, others' to the better."""
    if value <= 0:
        return f"{value:g}"
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    round_up = MEASURES[measure].higher_is_better != ours
    steps = value / step
    whole = math.ceil(steps - 1e-9) if round_up else math.floor(steps + 1e-9)
    places = max(0, -round(math.log10(step)))
    return f"{whole * step:,.{places}f}"


def rounds_of(runs: Sequence[Run]) -> Mapping[str, int]:
    """Return how many rounds each workload has."""
    found: dict[str, set[int]] = {}
    for run in runs:
        found.setdefault(run.workload, set()).add(run.round)
    return {workload: len(numbers) for workload, numbers in found.items()}
