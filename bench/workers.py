"""How much more several workers of one machine copy than one: ``python -m bench.workers``; see docs/benchmarks.md.

The same backlog is copied by ``mm2py --workers`` 1, 2 and 4, alternately, round after round. All start cold, so each
run begins with an election, and partitions move to the workers that start later. The steady state begins when the
control log assigns partitions to every worker and none waits for a release.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bench.campaign import add_arguments, carry_out
from bench.filling import fill, read_through, warm_up
from bench.measure import Reading, RunFailed, check_copy, copy_measures, read, wait_for_copies
from bench.mirrors import MM2PY, Launch, Options, running
from bench.owners import assigned_since
from bench.pages import Facts, first_lines, table
from bench.processes import each_peak_mb
from bench.rounds import said
from bench.runs import Run, RunLog
from bench.sides import Side, Sides
from bench.workloads import UNCOMPRESSED, Workload
from deploy.local.kafka import KafkaCluster
from tests.cluster.groups import Group

WORKERS: Final = (1, 2, 4)
ROUNDS: Final = 5
PARTITIONS: Final = 24
RECORDS: Final = 6_000_000
QUICK_RECORDS: Final = 600_000
WARM_RECORDS: Final = 100_000
DEADLINE_S: Final = 900.0
READ_EVERY_S: Final = 0.1
GROUP: Final = "mm2py"
"""The group of workers whose file names none."""
SHARED: Final = "shared_s"
"""From the start until all partitions are assigned to all workers."""
COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "records_per_s": ("records/s", ",.0f"),
    "mb_per_s": ("MB/s", ",.0f"),
    "cpu_s_per_million_steady": ("CPU s per million, all workers", ".2f"),
    "source_cpu_steady": ("source broker", ".2f"),
    "target_cpu_steady": ("target broker", ".2f"),
    "cores": ("cores in use, workers and brokers", ".2f"),
    "peak_mb_per_worker": ("peak memory of the largest worker, MB", ",.0f"),
}
FROM_START: Final[Mapping[str, tuple[str, str]]] = {
    SHARED: ("until all are assigned, s", ".2f"),
    "records_per_s_from_start": ("records/s", ",.0f"),
    "mb_per_s_from_start": ("MB/s", ",.0f"),
    "cpu_s_per_million": ("CPU s per million, all workers", ".2f"),
    "peak_mb": ("peak memory of all, MB", ",.0f"),
    "moves": ("partitions moved after that", ".0f"),
}


def order_of(number: int, counts: Sequence[int]) -> list[int]:
    """Return the order of the numbers of workers in a round: each round starts with another. Pure."""
    first = number % len(counts)
    return [*counts[first:], *counts[:first]]


def steady_measures(workload: Workload, readings: Sequence[Reading], from_s: float, last: Reading) -> dict[str, float]:
    """Return the measures from ``from_s`` on; empty if the copy was complete before. Pure.

    Args:
        readings: in order; ``from_s`` and their ``at_s`` are of the same clock.
    """
    first = next((each for each in readings if each.at_s >= from_s and each.copied > 0), last)
    copied, took_s = last.copied - first.copied, last.at_s - first.at_s
    if copied <= 0 or took_s <= 0:
        return {}
    mirror_s = last.mirror_cpu_s - first.mirror_cpu_s
    source_s, target_s = last.source_cpu_s - first.source_cpu_s, last.target_cpu_s - first.target_cpu_s
    return {
        "records_per_s": copied / took_s,
        "mb_per_s": copied * workload.record_bytes / took_s / 1e6,
        "cpu_s_per_million_steady": mirror_s / copied * 1e6,
        "source_cpu_steady": source_s / copied * 1e6,
        "target_cpu_steady": target_s / copied * 1e6,
        "cores": (mirror_s + source_s + target_s) / took_s,
        "steady_share": copied / last.copied,
    }


def name_of(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def report(runs: Sequence[Run], workload: Workload, counts: Sequence[int], facts: Facts) -> str:
    """Return the page of results. Pure."""
    good = {count: [run.measures for run in runs if run.mirror == name_of(count) and run.measures] for count in counts}
    lines = first_lines("How much more several workers copy", facts)
    lines += [
        f"{workload.records:,} records of 1 KB, {workload.shape.records_per_batch} a batch, in {workload.partitions}"
        " partitions, copied by `mm2py --workers N`, which is N processes that share them. One broker a cluster, on the"
        " same cores as the workers: where all cores are in use, more workers cannot copy more, and CPU per record"
        " tells what another worker costs. Medians of the rounds, lowest and highest in brackets.",
        "",
        "## While all of them copy: from when all are assigned until the last record",
        "",
        *_rows(good, COLUMNS, ratio_of="mb_per_s"),
        "",
        "CPU of the brokers is in seconds per million records as well.",
        "",
        "## From process start",
        "",
        *_rows(good, FROM_START, ratio_of="mb_per_s_from_start"),
        "",
    ]
    if late := sum("mb_per_s" not in measures for each in good.values() for measures in each):
        lines += [f"{late} runs were over before all were assigned: take more records.", ""]
    lines += [f"Round {run.round + 1}, {run.mirror}, failed: {run.failed}" for run in runs if run.failed]
    others = [measures["other_cpu_percent"] for each in good.values() for measures in each]
    if others:
        lines += [f"Everything else on the machine took {max(others):.0f} % of a core at most.", ""]
    return "\n".join(lines)


def _rows(
    good: Mapping[int, Sequence[Mapping[str, float]]], columns: Mapping[str, tuple[str, str]], *, ratio_of: str
) -> list[str]:
    ones = [measures[ratio_of] for measures in good.get(1, ()) if ratio_of in measures]
    rows = []
    for count, found in good.items():
        mine = [measures[ratio_of] for measures in found if ratio_of in measures]
        ratio = f"{statistics.median(mine) / statistics.median(ones):.2f}x" if mine and ones else "-"
        cells = [_cell([each[name] for each in found if name in each], form) for name, (_, form) in columns.items()]
        rows.append([str(count), str(len(found)), *cells, ratio])
    return table(["workers", "rounds", *(title for title, _ in columns.values()), "MB/s beside one"], rows)


def _cell(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    spread = f" ({low:{form}}–{high:{form}})" if len(values) > 1 else ""
    return f"{statistics.median(values):{form}}{spread}"


async def measure_workers(
    sides: Sides, cluster: KafkaCluster, workload: Workload, count: int, *, number: int, deadline_s: float
) -> Run:
    """Let ``count`` workers copy the topic from a cold start, and return the measures."""
    options = Options(module=("mm2py", "--workers", str(count)), settings={"tasks.max": str(count)})
    launch = Launch(MM2PY, workload, f"{number}x{count}", options)
    readings: list[Reading] = []
    try:
        with running(launch, sides, {}) as mirror:
            try:
                before = replace(read(sides, None, 0), at_s=mirror.started_s)
                wall_minus_ours_s = time.time() - time.monotonic()

                def note(copied: int) -> None:
                    if not readings or time.monotonic() - readings[-1].at_s >= READ_EVERY_S:
                        readings.append(read(sides, mirror.pid, copied))

                first, last = await wait_for_copies(
                    sides, launch, mirror, workload.records, deadline_s=deadline_s, note=note
                )
                peaks_mb = each_peak_mb(mirror.pid)
                # Its "steady" measures would start with the first record, when most workers have not started yet.
                measures = copy_measures(workload, before, first, last, sum(peaks_mb))
                measures = {
                    name: value
                    for name, value in measures.items()
                    if name not in COLUMNS and not name.endswith("_steady")
                }
                measures["peak_mb_per_worker"] = max(peaks_mb)
                log = await asyncio.to_thread(Group(cluster, {"mm2py.group": GROUP}, workers=0).entries)
                at_ms, moves = assigned_since(log, workload.topic, partitions=workload.partitions, workers=count)
                if at_ms is not None:
                    from_s = at_ms / 1000 - wall_minus_ours_s
                    measures |= {SHARED: from_s - before.at_s, "moves": float(moves)}
                    measures |= steady_measures(workload, readings, from_s, last)
                await check_copy(sides, launch, mirror)
            finally:
                await asyncio.to_thread(mirror.stop)  # a killed parent would leave workers that still drain
    except RunFailed as error:
        return Run(workload.name, name_of(count), number, workload.records, failed=str(error))
    return Run(workload.name, name_of(count), number, workload.records, measures)


async def _run_rounds(
    sides: Sides, cluster: KafkaCluster, workload: Workload, options: argparse.Namespace, log: RunLog
) -> None:
    begun_s = time.monotonic()
    await fill(sides.source, workload)
    await read_through(sides.source, workload)
    await warm_up(sides.target, workload.with_records(min(workload.records, WARM_RECORDS)))
    print(f"{workload.records:,} records written in {time.monotonic() - begun_s:.0f} s", flush=True)
    for number in range(options.rounds):
        for count in order_of(number, options.workers):
            if log.has((workload.name, name_of(count), number), workload.records):
                continue
            sides.wait_until_quiet()
            run = await measure_workers(sides, cluster, workload, count, number=number, deadline_s=DEADLINE_S)
            log.add(run)
            print(said(run), flush=True)
            sides.target.delete_all_but([])
            sides.source.delete_all_but([workload.topic])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds and print the tables. The exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description="How much more several workers copy.")
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS), metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--records", type=int, help=f"by default {RECORDS:,}")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--quick", action="store_true", help="one round over few records, to see that it works")
    add_arguments(parser, "workers")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds = 1
    shape = replace(UNCOMPRESSED, name="workers", topic="workers", partitions=options.partitions)
    workload = shape.with_records(options.records or (QUICK_RECORDS if options.quick else RECORDS))

    async def measure(source: Side, target: Side, log: RunLog) -> None:
        sides = Sides(source, target)
        try:
            await _run_rounds(sides, target.cluster, workload, options, log)
        finally:
            await sides.close()

    return carry_out(
        "workers",
        options,
        lambda source, target, log: asyncio.run(measure(Side(source), Side(target), log)),
        lambda runs, facts: report(runs, workload, options.workers, facts),
        shape={"records": str(workload.records), "partitions": str(workload.partitions)},
    )


if __name__ == "__main__":
    sys.exit(main())
