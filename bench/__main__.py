"""The command: ``python -m bench``; see docs/benchmarks.md."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import pstats
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.encryption import Encryption
from bench.machine import commit, hardware, versions
from bench.measure import DEADLINE_S
from bench.mirrors import MIRRORS, MM2_4, MM2PY, Options
from bench.results import Results
from bench.rounds import Planned, left_of, plan, run_all
from bench.runs import OtherConditions, RunLog
from bench.sides import Side, Sides, bench_clusters
from bench.workloads import WORKLOADS, chosen
from deploy.local.errors import StarterError
from deploy.local.guardian import guard
from deploy.local.kafka import KafkaCluster

RUN_DIRECTORY: Final = Path(__file__).parents[1] / "run"
PROFILE_LINES: Final = 45
ROUNDS: Final = 3


class Arguments(argparse.Namespace):
    """The arguments of the command line."""

    workload: list[str] | None
    mirrors: list[str] | None
    rounds: int | None
    records: int | None
    seconds: float | None
    deadline: float
    quick: bool
    resume: bool
    runs: Path
    save: bool
    settings: list[tuple[str, str]]
    profile: Path | None


def parse(arguments: Sequence[str] | None = None) -> Arguments:
    """Read the command line; argparse ends the process if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="mm2py beside MirrorMaker 2.")
    parser.add_argument("--workload", nargs="+", choices=list(WORKLOADS), help="by default all")
    parser.add_argument("--mirrors", nargs="+", choices=MIRRORS, help="by default all")
    parser.add_argument("--rounds", type=int, help=f"by default {ROUNDS}")
    parser.add_argument("--records", type=int, help="of each copy workload, instead of its own number")
    parser.add_argument("--seconds", type=float, help="how long to measure a paced workload, instead of its own time")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S, metavar="S", help="a longer run has failed")
    parser.add_argument("--quick", action="store_true", help="one round, fewer records, MM2 with tasks.max=4 only")
    parser.add_argument("--resume", action="store_true", help="go on with the last bench, which was interrupted")
    parser.add_argument("--runs", type=Path, metavar="DIR", default=RUN_DIRECTORY, help="where runs are kept: run/")
    parser.add_argument("--save", action="store_true", help="write the results under docs/results")
    parser.add_argument(
        "--set", nargs="+", default=[], type=_pair, metavar="KEY=VALUE", dest="settings", help="for mm2py's file only"
    )
    parser.add_argument("--profile", type=Path, metavar="FILE", help="run mm2py under cProfile, which slows it down")
    parsed = parser.parse_args(arguments, namespace=Arguments())
    if parsed.save and (parsed.settings or parsed.profile or parsed.quick):
        parser.error("--save is for a whole bench with default settings: leave out --set, --profile and --quick")
    return parsed


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def run_log(options: Arguments) -> RunLog:
    """Open a new file for the runs of this bench, or the newest one to resume it.

    Raises:
        OtherConditions: that file was measured under other conditions.
    """
    conditions = {
        "commit": commit(),
        "settings": " ".join("=".join(pair) for pair in sorted(options.settings)),
        "profile": str(options.profile or ""),
        "seconds": f"{options.seconds or ''}",
        "quick": str(options.quick),
    }
    older = sorted(options.runs.glob("bench-*.jsonl"))
    if options.resume and older:
        return RunLog(older[-1], conditions, resume=True)
    path = options.runs / f"bench-{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}.jsonl"
    return RunLog(path, conditions, resume=False)


def measure_all(planned: Sequence[Planned], log: RunLog, options: Arguments) -> None:
    """Start the clusters and carry out the plan on them."""
    mirrors = Options(dict(options.settings), options.profile and options.profile.resolve())
    directory = guard().new_directory("bench-tls")
    with_tls = any(each.workload.tls for each in planned)
    encryption = Encryption.beside_plain_text(directory) if with_tls else Encryption.none()

    async def on(clusters: Sequence[KafkaCluster]) -> None:
        source, target = clusters
        sides = Sides(Side(source), Side(target))
        try:
            await run_all(sides, planned, log, options=mirrors, tls=encryption.client, deadline_s=options.deadline)
        finally:
            await sides.close()

    with bench_clusters(encryption) as clusters:
        asyncio.run(on(clusters))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and print its tables. The exit code is 1 if a run failed; a goal that is missed is no failure."""
    options = parse(arguments)
    begun_s = time.monotonic()
    machine = hardware()
    mirrors = options.mirrors or ([MM2PY, MM2_4] if options.quick else list(MIRRORS))
    workloads = chosen(options.workload, quick=options.quick, records=options.records, seconds=options.seconds)
    try:
        log = run_log(options)
    except OtherConditions as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    planned = plan(workloads, mirrors, options.rounds or (1 if options.quick else ROUNDS))
    print(f"{len(planned)} runs; each is kept in {log.path} as it ends.", flush=True)
    try:
        if left := left_of(planned, log):
            measure_all(left, log, options)
    except StarterError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; --resume continues.", file=sys.stderr)
        return 130
    wanted = {(each.workload.name, each.mirror, each.round) for each in planned}
    runs = [run for run in log.runs if run.key in wanted]
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    results = Results(today, commit(), machine, versions(), workloads, runs)
    print(results.markdown())
    if options.save:
        print("Written:", *results.save())
    if options.profile:
        pstats.Stats(str(options.profile)).sort_stats("tottime").print_stats(PROFILE_LINES)
    print(f"All in all {(time.monotonic() - begun_s) / 60:.1f} minutes.")
    return 1 if any(run.failed for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
