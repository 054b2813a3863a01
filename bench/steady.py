"""The cost of a part of mm2py while no fault happens: ``python -m bench.steady [PART]``; see docs/benchmarks.md.

The same records are copied by mm2py and by mm2py without the part (``PARTS``), in pairs with alternating order. CPU
seconds per million records are compared within each pair; a slow drift of the machine affects both runs of a pair.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.filling import fill, read_through, warm_up
from bench.machine import commit, hardware, versions
from bench.measure import measure_copy
from bench.mirrors import MM2PY, ROOT, Launch, Options
from bench.rounds import said
from bench.runs import Run, RunLog, as_json
from bench.sides import Side, Sides, bench_clusters
from bench.workloads import WORKLOADS, Workload
from deploy.local.errors import StarterError

BARE: Final = "without"
PAIRS: Final = 20
RECORDS: Final = 3_000_000
STEADY: Final = "cpu_s_per_million_steady"
MEASURES: Final[Mapping[str, str]] = {
    STEADY: "first to last record",
    "cpu_s_per_million": "from process start",
}
WARM_RECORDS: Final = 100_000
RESULTS: Final = ROOT / "docs" / "results"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of mm2py that can be left out, to measure what it costs."""

    title: str
    module: str
    """A module that runs mm2py without it."""
    left_out: str
    """What this mm2py is like."""
    goal_percent: float
    results: str
    """The first words of the names of its result files."""


PARTS: Final[Mapping[str, Part]] = {
    "fence": Part(
        "fence and position keeping",
        "bench.without_fence",
        "with a plain producer id and without stored positions",
        2.0,
        "steady-cost",
    ),
    "verdict": Part(
        "the verdict and the flight recorder",
        "bench.without_verdict",
        "without safe times, lags, bottlenecks and flight recorder",
        1.0,
        "verdict-cost",
    ),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost in one measure, in percent of the value without the part."""

    median: float
    low: float
    high: float
    """``low`` to ``high`` contains the median of all possible pairs with a probability of about 95 %."""
    quartiles: tuple[float, float]
    whole: tuple[float, float]
    """Medians of both sides, in seconds: with, without."""


def cost(pairs: Sequence[tuple[float, float]]) -> Cost:
    """Return the cost, from pairs of (with, without). Pure.

    The interval comes from the order statistics of the pairs, which assume no shape of the noise.
    """
    percents = sorted((mine / bare - 1) * 100 for mine, bare in pairs)
    count = len(percents)
    away = math.ceil(1.96 * math.sqrt(count) / 2)
    low, high = max(0, count // 2 - away), min(count - 1, (count - 1) // 2 + away)
    first, _, third = statistics.quantiles(percents, n=4)
    return Cost(
        statistics.median(percents),
        percents[low],
        percents[high],
        (first, third),
        (statistics.median(mine for mine, _ in pairs), statistics.median(bare for _, bare in pairs)),
    )


def pairs_of(runs: Sequence[Run], measure: str) -> list[tuple[float, float]]:
    """Return (with, without) of each round that has both. Pure."""
    found = {(run.round, run.mirror): run.measures[measure] for run in runs if measure in run.measures}
    rounds = sorted({number for number, _ in found})
    return [
        (found[number, MM2PY], found[number, BARE])
        for number in rounds
        if {(number, MM2PY), (number, BARE)} <= found.keys()
    ]


def report(part: Part, runs: Sequence[Run], workload: Workload, facts: Mapping[str, object]) -> str:
    """Return the page of results."""
    lines = [f"# What {part.title} cost", ""]
    lines += [f"**{name}**: {_said(value)}  " for name, value in facts.items()]
    lines += [
        "",
        f"{workload.records:,} records of workload `{workload.name}`, copied by mm2py and by `{part.module}`,",
        f"which is mm2py {part.left_out}, in pairs that take turns to be first.",
        f"CPU is user and system time of the process. Goal: under {part.goal_percent:g} %, first to last record.",
        "",
        "| CPU s per million records | with | without | cost, median of the pairs | 95 % of the median "
        "| middle half of the pairs | pairs | goal |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for measure, title in MEASURES.items():
        pairs = pairs_of(runs, measure)
        if len(pairs) < 2:
            continue
        found = cost(pairs)
        verdict = "" if measure != STEADY else "held" if found.median < part.goal_percent else "**missed**"
        lines.append(
            f"| {title} | {found.whole[0]:.3f} s | {found.whole[1]:.3f} s | {found.median:+.2f} % "
            f"| {found.low:+.2f} to {found.high:+.2f} % | {found.quartiles[0]:+.2f} to {found.quartiles[1]:+.2f} % "
            f"| {len(pairs)} | {verdict} |"
        )
    if failed := [run for run in runs if run.failed]:
        lines += ["", *(f"Round {run.round + 1}, {run.mirror}, failed: {run.failed}" for run in failed)]
    others = [run.measures["other_cpu_percent"] for run in runs if run.measures]
    lines += ["", f"Everything else on the machine took {max(others):.0f} % of a core at most.", ""]
    return "\n".join(lines)


def _said(value: object) -> str:
    return " · ".join(f"{name} {each}" for name, each in value.items()) if isinstance(value, Mapping) else str(value)


async def _run_pairs(part: Part, sides: Sides, workload: Workload, pairs: int, log: RunLog) -> None:
    modules = {MM2PY: "mm2py", BARE: part.module}
    await fill(sides.source, workload)
    await read_through(sides.source, workload)
    await warm_up(sides.target, workload.with_records(min(workload.records, WARM_RECORDS)))
    for number in range(pairs):
        order = [MM2PY, BARE] if number % 2 == 0 else [BARE, MM2PY]
        for at, name in enumerate(order):
            if log.has((workload.name, name, number), workload.records):
                continue
            sides.wait_until_quiet()
            launch = Launch(MM2PY, workload, f"{number}x{at}", Options(module=(modules[name],)))
            run = replace(await measure_copy(sides, launch, {}, number=number), mirror=name)
            log.add(run)
            print(said(run), flush=True)
            sides.target.delete_all_but([])
            sides.source.delete_all_but([workload.topic])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pairs and print the cost. The exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.steady", description="What a part of mm2py costs.")
    parser.add_argument("part", nargs="?", choices=list(PARTS), default="fence")
    parser.add_argument(
        "--workload", choices=[name for name, each in WORKLOADS.items() if each.pace is None], default="uncompressed"
    )
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--runs", type=Path, metavar="DIR", default=ROOT / "run", help="where runs are kept: run/")
    parser.add_argument("--resume", action="store_true", help="go on with the last one, which was interrupted")
    parser.add_argument("--save", action="store_true", help="write docs/results/*-cost-DATE.md and .json")
    options = parser.parse_args(arguments)
    part = PARTS[options.part]
    workload = WORKLOADS[options.workload].with_records(options.records)
    machine = hardware()
    conditions = {"commit": commit(), "workload": workload.name, "records": str(workload.records)}
    log = RunLog(options.runs / f"{part.results}.jsonl", conditions, resume=options.resume)

    async def measure(source: Side, target: Side) -> None:
        sides = Sides(source, target)
        try:
            await _run_pairs(part, sides, workload, options.pairs, log)
        finally:
            await sides.close()

    try:
        with bench_clusters() as (source, target):
            asyncio.run(measure(Side(source), Side(target)))
    except StarterError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; --resume continues.", file=sys.stderr)
        return 130
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    facts = {"date": today, "commit": conditions["commit"], "machine": machine, "versions": versions()}
    page = report(part, log.runs, workload, facts)
    print(page)
    if options.save:
        path = RESULTS / f"{part.results}-{today}"
        path.with_suffix(".json").write_text(json.dumps({**facts, "runs": as_json(log.runs)}, indent=1) + "\n")
        path.with_suffix(".md").write_text(page)
        print(f"Written: {path}.json and .md")
    return 1 if any(run.failed for run in log.runs) else 0


if __name__ == "__main__":
    sys.exit(main())
