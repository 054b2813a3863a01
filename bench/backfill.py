"""The speed of a backfill compared with a live worker: ``python -m bench.backfill``; see docs/benchmarks.md.

The same topic is copied by one worker, and by ``mm2py backfill`` with one, two and four tasks at once, in turns.
The time from the first record on the target to the last is measured. Spark's start, and the five seconds in which
workers notice the backfill, are reported separately. The CPU is that of all processes, including Spark's JVM.
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
from bench.measure import measure_copy
from bench.mirrors import MM2PY, Launch, Options
from bench.pages import first_lines
from bench.rounds import said
from bench.runs import Run, RunLog
from bench.sides import Side, Sides
from bench.workloads import WORKLOADS, Workload
from deploy.local.kafka import KafkaCluster

LIVE: Final = "live worker"
MASTERS: Final = ("local[1]", "local[2]", "local[4]")
ROUNDS: Final = 3
RECORDS: Final = 6_000_000
WARM_RECORDS: Final = 100_000
RATE_LEAST: Final = 0.8
"""Goal: records a second of ``local[2]``, as a part of the live worker's."""
SPARKS_OWN_RECORDS_PER_S: Final = 41_500
"""Spark's own connector from topic to topic, recorded once on a machine of this kind: Spark 4.0, records of 1 KB."""
SPARKS_OWN_TIMES: Final = 3.0


def options_of(kind: str, workload: Workload) -> Options:
    """Return the options with which a kind is started."""
    if kind == LIVE:
        return Options()
    arguments = ("{flow}", "--topics", workload.topic, "--master", kind, "--parquet", "none")
    return Options(module=("mm2py", "backfill"), arguments=arguments)


async def run_all(sides: Sides, workload: Workload, rounds: int, log: RunLog) -> None:
    """Run until the log has all results; each is stored as soon as it is known. Closes ``sides``."""
    try:
        await fill(sides.source, workload)
        await read_through(sides.source, workload)
        await warm_up(sides.target, workload.with_records(WARM_RECORDS))
        kinds = [LIVE, *MASTERS]
        for number in range(rounds):
            for at, kind in enumerate([*kinds[number % len(kinds) :], *kinds[: number % len(kinds)]]):
                if log.has((workload.name, kind, number), workload.records):
                    continue
                sides.wait_until_quiet()
                launch = Launch(MM2PY, workload, f"{number}x{at}", options_of(kind, workload))
                run = replace(await measure_copy(sides, launch, {}, number=number), mirror=kind)
                log.add(run)
                print(said(run), flush=True)
                sides.target.delete_all_but([])
                sides.source.delete_all_but([workload.topic])
    finally:
        await sides.close()


def report(runs: Sequence[Run], workload: Workload, facts: Mapping[str, object]) -> str:
    """Return the page of results."""
    lines = first_lines("What a backfill copies beside a live worker", facts)
    lines += [
        f"{workload.records:,} records of workload `{workload.name}` in {workload.partitions} partitions, both brokers",
        "on the same two cores; medians. Records a second count from the first record on the target to the last.",
        "",
        "| | records/s | beside the live worker | first record after | CPU s per million | rounds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rates = {kind: _median(runs, kind, "records_per_s") for kind in (LIVE, *MASTERS)}
    for kind, rate in rates.items():
        live, count = rates[LIVE], sum(run.mirror == kind and bool(run.measures) for run in runs)
        if rate is None or live is None:
            continue
        first, cpu = _median(runs, kind, "first_record_s"), _median(runs, kind, "cpu_s_per_million")
        lines.append(f"| {kind} | {rate:,.0f} | {rate / live:.2f} | {first:.1f} s | {cpu:.2f} | {count} |")
    two, live = rates["local[2]"], rates[LIVE]
    if two is not None and live is not None:
        times = two / SPARKS_OWN_RECORDS_PER_S
        lines += [
            "",
            f"Goal: `local[2]` at least {RATE_LEAST:g} of the live worker: {_held(two / live >= RATE_LEAST)}. Goal: at"
            f" least {SPARKS_OWN_TIMES:g} times Spark's own Kafka connector, {SPARKS_OWN_RECORDS_PER_S:,} records/s as"
            " recorded once on a machine of this kind (it could not be run here):"
            f" {times:.1f} times, {_held(times >= SPARKS_OWN_TIMES)}.",
        ]
    if failed := [run for run in runs if run.failed]:
        lines += ["", *(f"Round {run.round + 1}, {run.mirror}, failed: {run.failed}" for run in failed)]
    return "\n".join([*lines, ""])


def _held(is_held: bool) -> str:
    return "held" if is_held else "**missed**"


def _median(runs: Sequence[Run], kind: str, measure: str) -> float | None:
    found = [run.measures[measure] for run in runs if run.mirror == kind and measure in run.measures]
    return statistics.median(found) if found else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds and print the result. The exit code is 1 if a run failed; a goal may be missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.backfill", description="What a backfill copies.")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    add_arguments(parser, "backfill")
    options = parser.parse_args(arguments)
    workload = WORKLOADS["uncompressed"].with_records(options.records)

    def measure(source: KafkaCluster, target: KafkaCluster, log: RunLog) -> None:
        asyncio.run(run_all(Sides(Side(source), Side(target)), workload, options.rounds, log))

    shape = {"records": str(workload.records)}
    return carry_out("backfill", options, measure, lambda runs, facts: report(runs, workload, facts), shape=shape)


if __name__ == "__main__":
    sys.exit(main())
