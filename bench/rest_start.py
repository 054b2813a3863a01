"""What REST costs at the start: ``python -m bench.rest_start``; see docs/benchmarks.md.

mm2py starts cold on a small topic, with and without its REST process, in pairs that take turns to be first. Measured is
the time from the start of the process until the first record is on the target, and the CPU time until then, which other
programs on the machine affect less.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bench.campaign import add_arguments, carry_out
from bench.filling import fill, read_through, warm_up
from bench.measure import DEADLINE_S, RunFailed, copy_measures, read, wait_for_copies
from bench.mirrors import MM2PY, Launch, Options, running
from bench.pages import Facts, first_lines, table
from bench.processes import cpu_s, peak_mb
from bench.rest_load import rest_cpu_s
from bench.runs import Run, RunLog
from bench.sides import Side, Sides
from bench.workloads import WORKLOADS, Workload
from deploy.local.kafka import KafkaCluster

WITH, WITHOUT = "with REST", "without REST"
LISTENERS: Final[Mapping[str, str]] = {WITH: "http://127.0.0.1:0", WITHOUT: ""}
PAIRS: Final = 10
RECORDS: Final = 20_000
WARM_RECORDS: Final = 100_000
GOAL_S: Final = 1.5
ROWS: Final[Mapping[str, str]] = {
    "first_record_s": "start to first record",
    "last_record_s": "start to last record",
    "first_cpu_s": "CPU of the worker until the first record",
    "first_rest_cpu_s": "CPU of its REST process until then",
    "other_cpu_percent": "CPU of other programs meanwhile",
}


def report(runs: Sequence[Run], workload: Workload, facts: Facts) -> str:
    """Return the page of results. Pure."""
    lines = first_lines("What REST costs at the start", facts)
    lines += [
        f"mm2py starts cold on {workload.records:,} records in {workload.partitions} partitions, with its REST process"
        " and without, in pairs that take turns to be first. The target is asked every 25 ms. Both brokers share the"
        " cores of this machine with the worker. Where other programs used much of these cores, only the CPU times and"
        " the difference within the pairs tell something.",
        "",
    ]
    rows = []
    for name in (WITH, WITHOUT):
        of_kind = [run.measures for run in runs if run.mirror == name and run.measures]
        for measure, title in ROWS.items():
            if found := [measures[measure] for measures in of_kind if measure in measures]:
                unit = "%" if measure.endswith("percent") else "s"
                shown = [f"{value:.2f} {unit}" for value in (statistics.median(found), min(found), max(found))]
                rows.append([f"{name}: {title}", str(len(found)), *shown])
    lines += table(["", "starts", "median", "shortest", "longest"], rows)
    first = {(run.mirror, run.round): run.measures["first_record_s"] for run in runs if run.measures}
    if served := [seconds for (name, _), seconds in first.items() if name == WITH]:
        median = statistics.median(served)
        held = "held" if median <= GOAL_S else "**missed**"
        lines += ["", f"Goal: at most {GOAL_S:g} s to the first record with REST (median): {median:.2f} s, {held}."]
    more = [first[WITH, at] - first[WITHOUT, at] for name, at in first if name == WITH and (WITHOUT, at) in first]
    if more:
        lines += [f"With REST beside without, in each pair: {statistics.median(more):+.2f} s (median)."]
    failed = [f"Pair {run.round + 1}, {run.mirror}, failed: {run.failed}" for run in runs if run.failed]
    return "\n".join([*lines, *(["", *failed] if failed else []), ""])


def order_of(number: int) -> Sequence[str]:
    """Return which of a pair starts first. Pure."""
    return (WITH, WITHOUT) if number % 2 == 0 else (WITHOUT, WITH)


async def run_all(sides: Sides, workload: Workload, pairs: int, log: RunLog) -> None:
    """Start until the log has all results; each is stored as soon as it is known. Closes ``sides``."""
    try:
        await fill(sides.source, workload)
        await read_through(sides.source, workload)
        await warm_up(sides.target, workload.with_records(WARM_RECORDS))
        await _start(sides, workload, WITHOUT, -1)  # not counted: files are read for the first time
        for number in range(pairs):
            for name in order_of(number):
                if not log.has((workload.name, name, number), workload.records):
                    run = await _start(sides, workload, name, number)
                    log.add(run)
                    said = run.failed or f"{run.measures['first_record_s']:.2f} s to the first record"
                    print(f"pair {number + 1}, {name}: {said}", flush=True)
    finally:
        await sides.close()


async def _start(sides: Sides, workload: Workload, name: str, number: int) -> Run:
    sides.wait_until_quiet()
    serial = f"{number % 100}x{list(LISTENERS).index(name)}"
    launch = Launch(MM2PY, workload, serial, Options(settings={"listeners": LISTENERS[name]}))
    measures: dict[str, float] = {}
    failed = None
    try:
        with running(launch, sides, {}) as mirror:
            before = replace(read(sides, None, 0), at_s=mirror.started_s)

            def note(copied: int) -> None:
                if copied and "first_cpu_s" not in measures:
                    measures["first_cpu_s"] = cpu_s(mirror.pid) - rest_cpu_s(mirror)
                    measures["first_rest_cpu_s"] = rest_cpu_s(mirror)

            first, last = await wait_for_copies(
                sides, launch, mirror, workload.records, deadline_s=DEADLINE_S, note=note
            )
            measures |= copy_measures(workload, before, first, last, peak_mb(mirror.pid))
    except RunFailed as error:
        measures, failed = {}, str(error)
    sides.target.delete_all_but([])
    sides.source.delete_all_but([workload.topic])
    return Run(workload.name, name, number, workload.records, measures, failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pairs and print the result. The exit code is 1 if a run failed; the goal may be missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.rest_start", description="What REST costs at the start.")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    add_arguments(parser, "rest-start")
    options = parser.parse_args(arguments)
    workload = WORKLOADS["uncompressed"].with_records(RECORDS)

    def measure(source: KafkaCluster, target: KafkaCluster, log: RunLog) -> None:
        asyncio.run(run_all(Sides(Side(source), Side(target)), workload, options.pairs, log))

    return carry_out("rest-start", options, measure, lambda runs, facts: report(runs, workload, facts))


if __name__ == "__main__":
    sys.exit(main())
