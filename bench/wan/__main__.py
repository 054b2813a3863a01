"""The command: ``python -m bench.wan``, or ``make bench-wan``; see docs/benchmarks.md.

The source's broker is in one network namespace; the target's broker and the mirror are in another, as the documentation
recommends (in one row the mirror is near the source). A link of the rig joins them. The bench itself reaches both
without delay. A copy is watched for a fixed time after its first record, because some mirrors need an hour for a copy
that takes others seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.filling import fill, read_through, warm_up
from bench.machine import commit, hardware, versions
from bench.measure import Reading, RunFailed, copy_measures, read
from bench.mirrors import MM2PY, Launch, Options, Running, running
from bench.paced import measure_paced, rehearse
from bench.processes import peak_mb
from bench.rounds import said
from bench.runs import OtherConditions, Run, RunLog
from bench.sides import Side, Sides, bench_clusters
from bench.wan.catching_up import measure_catching_up
from bench.wan.chart import chart
from bench.wan.rig import Rig
from bench.wan.rows import MIRRORS, ROWS, Row, sized, table
from deploy.local.errors import StarterError

ROOT: Final = Path(__file__).parents[2]
LOOK_EVERY_S: Final = 0.25
FIRST_S: Final = 120.0
WARM_RECORDS: Final = 1_000_000
COMPILE_RUNS: Final = 2
COMPILE_S: Final = 30.0
CATCH_UP_S: Final = 900.0


class Arguments(argparse.Namespace):
    """The arguments of the command line."""

    rows: list[str]
    mirrors: list[str]
    rounds: int
    records: int
    seconds: float
    backlog_minutes: float
    paced_seconds: float
    resume: bool
    save: bool


def parse(arguments: Sequence[str] | None = None) -> Arguments:
    """Read the command line; argparse ends the process if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m bench.wan", description="Mirrors over a long link.")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--mirrors", nargs="+", choices=MIRRORS, default=list(MIRRORS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000, help="of 1 KB in each topic that is copied")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long a copy is watched after its first record")
    parser.add_argument("--paced-seconds", type=float, default=20.0, help="how long latency is measured")
    parser.add_argument("--backlog-minutes", type=float, default=10.0, help="what is caught up with while more arrives")
    parser.add_argument("--resume", action="store_true", help="go on with the last bench, which was interrupted")
    parser.add_argument("--save", action="store_true", help="write the table under docs/results")
    return parser.parse_args(arguments, namespace=Arguments())


async def measure_for(sides: Sides, launch: Launch, *, number: int, seconds: float) -> Run:
    """Watch one mirror for ``seconds`` after its first record, or until all records are copied."""
    workload = launch.workload
    try:
        with running(launch, sides, {}) as mirror:
            before = replace(read(sides, None, 0), at_s=mirror.started_s)
            first = await _until(sides, launch, mirror, 1, FIRST_S)
            if not first.copied:
                raise RunFailed(f"no record within {FIRST_S:g} s; its log ends:\n{mirror.log_tail()}")
            last = await _until(sides, launch, mirror, workload.records, seconds)
            measures = copy_measures(workload, before, first, last, peak_mb(mirror.pid))
    except RunFailed as error:
        return Run(workload.name, launch.mirror, number, workload.records, failed=str(error))
    return Run(workload.name, launch.mirror, number, workload.records, measures)


async def _until(sides: Sides, launch: Launch, mirror: Running, records: int, seconds: float) -> Reading:
    end_s = time.monotonic() + seconds
    while True:
        copied = sum((await sides.target.ends(launch.remote_topic, range(launch.workload.partitions))).values())
        if mirror.exit_code is not None:
            raise RunFailed(f"ended with exit code {mirror.exit_code}; its log ends:\n{mirror.log_tail()}")
        if copied >= records or time.monotonic() > end_s:
            return read(sides, mirror.pid, copied)  # only once, because it reads hundreds of files
        await asyncio.sleep(LOOK_EVERY_S)


async def measure_row(sides: Sides, row: Row, log: RunLog, options: Arguments) -> None:
    """Run all mirrors over one link, round after round."""
    workload = row.workload
    await fill(sides.source, workload)
    await read_through(sides.source, workload)
    await warm_up(sides.target, workload.with_records(min(workload.records, WARM_RECORDS)))
    topics = [workload.topic]
    if row.beside is not None:
        await fill(sides.source, row.beside)
        topics.append(row.beside.topic)
    if workload.pace is not None:
        await rehearse(sides, workload)
    settings = Options(settings={"{flow}.topics": ",".join(topics)})
    if row.link is not None and workload.pace is None:
        await _compile(sides, Launch(MM2PY, workload, "warm", settings), topics)
    for number in range(options.rounds):
        for at, mirror in enumerate(options.mirrors):
            if (row.beside is not None or row.arriving_mb_per_s) and mirror != MM2PY:
                continue
            if row.arriving_mb_per_s and number:
                continue  # the topic has grown
            if log.has((workload.name, mirror, number), workload.records):
                continue
            sides.wait_until_quiet()
            launch = Launch(mirror, workload, f"{number}x{at}", settings)
            if row.arriving_mb_per_s:
                run = await measure_catching_up(
                    sides, launch, number=number, arriving_mb_per_s=row.arriving_mb_per_s, deadline_s=CATCH_UP_S
                )
            elif workload.pace is None:
                run = await measure_for(sides, launch, number=number, seconds=options.seconds)
            else:
                run = await measure_paced(sides, launch, {}, number=number)
            log.add(run)
            print(said(run), flush=True)
            sides.target.delete_all_but([])
            sides.source.delete_all_but(topics)


async def _compile(sides: Sides, launch: Launch, topics: Sequence[str]) -> None:
    """Copy everything without delay and without measuring: the brokers' JVMs compile meanwhile and take half a core."""
    near = Sides(sides.source, sides.target)
    for number in range(COMPILE_RUNS):
        again = replace(launch, serial=f"warm{number}")
        print("warming up:", said(await measure_for(near, again, number=number, seconds=COMPILE_S)), flush=True)
        sides.target.delete_all_but([])
        sides.source.delete_all_but(topics)


def run_row(row: Row, log: RunLog, options: Arguments) -> None:
    """Start a rig and the clusters of a row, and measure it.

    Raises:
        StarterError: this machine cannot have a rig, which needs root, ``ip`` and Go.
    """

    async def on(source: Side, target: Side, rig: Rig | None) -> None:
        network = None if rig is None else rig.source if row.mirror_at_source else rig.target
        sides = Sides(source, target, network)
        try:
            await measure_row(sides, row, log, options)
        finally:
            await sides.close()

    with ExitStack() as stack:
        rig = None if row.link is None else stack.enter_context(Rig(row.link))
        networks = (None, None) if rig is None else (rig.source, rig.target)
        clusters = stack.enter_context(bench_clusters(networks=networks))
        if rig is not None:
            stack.enter_context(rig.near.entered())
            print(f"{row.name}: {row.link}; TCP as the machine has it: {rig.settings()}", flush=True)
        asyncio.run(on(Side(clusters[0]), Side(clusters[1]), rig))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and print its table. The exit code is 1 if a run failed; a goal that is missed is no failure."""
    options = parse(arguments)
    rows = [
        sized(
            ROWS[name],
            records=options.records,
            paced_s=options.paced_seconds,
            backlog_minutes=options.backlog_minutes,
        )
        for name in options.rows
    ]
    conditions = {"commit": commit(), "seconds": f"{options.seconds:g} {options.paced_seconds:g}"}
    older = sorted((ROOT / "run").glob("bench-wan-*.jsonl"))
    now = datetime.datetime.now(datetime.UTC)
    path = older[-1] if options.resume and older else ROOT / "run" / f"bench-wan-{now:%Y%m%d-%H%M%S}.jsonl"
    try:
        log = RunLog(path, conditions, resume=options.resume)
        for row in rows:
            run_row(row, log, options)
    except (StarterError, OtherConditions) as error:
        print(f"bench-wan: {error}", file=sys.stderr)
        return 1
    told = table(rows, log.runs)
    print(told)
    if options.save:
        saved = ROOT / "docs" / "results" / f"wan-{now:%Y-%m-%d}.md"
        rounds = f"{options.rounds} round(s), {options.seconds:g} s a copy"
        machine = ", ".join(f"{name} {value}" for name, value in {**hardware(), **versions()}.items())
        heading = f"# Over a long link, {now:%Y-%m-%d}\n\nCommit {commit()}, {rounds}. {machine}.\n\n"
        told = f"![MB/s and latency beside MirrorMaker 2]({saved.stem}.svg)\n\n{told}"
        saved.write_text(heading + told)
        caption = (
            f"Over a long link, {now:%Y-%m-%d}, commit {commit()[:7]}: medians of {rounds}, two cores for everything"
        )
        saved.with_suffix(".svg").write_text(chart(rows, log.runs, caption))
        print("Written:", saved)
    return 1 if any(run.failed for run in log.runs) else 0


if __name__ == "__main__":
    sys.exit(main())
