"""``mm2py verify FILE A->B``: compares the copies of a flow with their source, range by range.

A Spark job does it, or with ``--local`` this process, which then needs no Spark. Both give the same result. The command
asks both clusters and no worker, and writes nothing to them. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mm2py.backfill.job_failure import answer_of
from mm2py.backfill.session import SparkMissing, open_session, running_session
from mm2py.backfill.verifying import job
from mm2py.backfill.verifying.job import RangeTask
from mm2py.backfill.verifying.latest import DifferingKeys
from mm2py.backfill.verifying.local.display import LocalDisplay
from mm2py.backfill.verifying.local.local_job import LocalJob
from mm2py.backfill.verifying.local.so_far import lines_so_far
from mm2py.backfill.verifying.planning import PartitionPlan
from mm2py.backfill.verifying.progress import ProgressSink
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.backfill.verifying.reading import Sides
from mm2py.backfill.verifying.results import RangeResult, Verification, body, certificate, rows, table
from mm2py.backfill.verifying.verification import CompareJob, WantedRanges
from mm2py.backfill.verifying.verify_flow import MB, MB_PER_SECOND, verify_flow
from mm2py.cli.command import CommandParser, number_up_to, teller
from mm2py.clock import Clock, SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, as_argument, flow_of, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.event_loop import loop_factory
from mm2py.kafka.port import TopicPartition
from mm2py.moments import age_or_iso_ms
from mm2py.output import say, write_out
from mm2py.secret import printable
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET: Final = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
SEEDS: Final = 1 << 31
EVERYWHERE: Final = "local[*]"
"""The default of ``--master``."""


class VerifyArguments(argparse.Namespace):
    """What follows ``verify`` on the command line."""

    file: Path
    flow: str
    topics: list[str]
    sample: float | None
    full: bool
    seed: int | None
    since: str | None
    local: bool
    master: str | None
    max_mb_per_second: int
    parquet: str | None
    certificate: Path | None
    json: bool


def parse_arguments(arguments: Sequence[str]) -> VerifyArguments:
    """Read what follows ``verify`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "verify",
        "Compares the copies of a flow with their source, range by range, as a Spark job or in this process (--local), "
        "and names the first difference of each partition. It only reads; workers may run meanwhile. Exit codes: 0 no "
        "difference; 1 a difference, or something could not be read; 2 wrong file or arguments; 130 interrupted.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument(
        "--topics", nargs="+", action="extend", default=[], metavar="T", help="only these, as the source names them"
    )
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "--sample", type=percent, metavar="P", help="compare P percent of the ranges, chosen at random"
    )
    how_much.add_argument("--full", action="store_true", help="compare everything, which is the default")
    parser.add_argument("--seed", type=number_up_to(SEEDS), metavar="N", help="choose the sample of an earlier run")
    parser.add_argument(
        "--since", metavar="WHEN", help="only records since then: an age as 24h or 7d, or a time as 2026-11-23T14:00"
    )
    parser.add_argument(
        "--local", action="store_true", help="without Spark, in this process: for what can be read in an hour"
    )
    parser.add_argument("--master", metavar="M", help=f"where Spark runs (default: {EVERYWHERE})")
    parser.add_argument(
        "--max-mb-per-second",
        metavar="N",
        type=number_up_to(1_000_000, least=1),
        default=MB_PER_SECOND,
        help="read at most so much of both clusters together (default: %(default)s)",
    )
    parser.add_argument("--parquet", metavar="DIR", help="write the result of each range there")
    parser.add_argument("--certificate", metavar="FILE", type=Path, help="write what was compared there, with its date")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = parser.parse_args(arguments, namespace=VerifyArguments())
    if found.seed is not None and found.sample is None:
        parser.error("--seed needs --sample")
    of_spark = [name for name, value in (("--master", found.master), ("--parquet", found.parquet)) if value is not None]
    if found.local and of_spark:
        parser.error(f"--local works without Spark, so it takes no {' and no '.join(of_spark)}")
    return found


def percent(text: str) -> float:
    """Read a part of the whole, in percent."""
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0 and up to 100")
    return found


def since_ms(text: str, now_ms: int) -> int:
    """Return the time that ``--since`` means, in epoch milliseconds.

    Raises:
        ConfigError: it is no time.
    """
    found = age_or_iso_ms(text, now_ms)
    if found is None:
        raise ConfigError(f"--since {text!r} is no time.", remedy="Write 24h, 7d, or 2026-11-23T14:00.")
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``flow_of``, ``Verifier.verify``; a cluster does not answer at the beginning;
            or Spark is not installed.
    """
    options = parse_arguments(arguments)
    clock = SystemClock()
    file = read_settings_file(options.file, None)
    settings = flow_of(file, options.flow)
    wanted = wanted_of(options, clock)
    check_places(options)
    if options.local:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            found = runner.run(verify_here(file, settings, wanted))
    else:
        found = _verify_with_spark(file, settings, options, wanted)
    return EXIT_INTERRUPTED if found is None else show(found, options)


def wanted_of(options: VerifyArguments, clock: Clock) -> WantedRanges:
    """Return what the command line asks for. Raises: as ``since_ms``."""
    seed = 0
    asked: dict[str, Any] = {}
    if options.sample is not None:
        seed = secrets.randbelow(SEEDS) if options.seed is None else options.seed
        asked |= {"sample": options.sample, "seed": seed}
    since = None
    if options.since is not None:
        since = since_ms(options.since, clock.wall_ms())
        asked["since_ms"] = since
    return WantedRanges(options.topics, since, options.sample, seed, options.max_mb_per_second * MB, asked)


def check_places(options: VerifyArguments) -> None:
    """Refuse places to which the result could not be written, before an hour of reading.

    Raises:
        ConfigError: there is no such folder, or the Parquet folder exists.
    """
    if options.certificate is not None and not options.certificate.absolute().parent.is_dir():
        raise ConfigError(f"{options.certificate} is in no folder that exists.", remedy="Name another one.")
    if options.parquet is not None and "://" not in options.parquet and Path(options.parquet).exists():
        raise ConfigError(f"{options.parquet} exists.", remedy="Name a folder that does not.")


def show(found: Verification, options: VerifyArguments) -> int:
    """Print what was found, write the certificate, and return the exit code."""
    code = EXIT_FAILED if found.is_different or found.has_problems else EXIT_DONE
    if options.certificate is not None:
        options.certificate.write_text(_lines(certificate(found)))
    if options.json:
        write_out(json.dumps(body(found, code), indent=2) + "\n")
    else:
        write_out(with_file(_lines(table(found)), as_argument(options.file)))
    return code


def write_parquet(session: SparkSession, found: Verification, folder: str) -> None:
    """Write the result of each range, a row each. Raises: JobFailed."""
    some = rows(found)
    if some:
        answer_of(lambda: session.createDataFrame(some).coalesce(1).write.parquet(folder))


@dataclass(slots=True)
class SparkJob:
    """Compares ranges in one Spark session."""

    session: SparkSession
    task: RangeTask
    done: Any
    """An accumulator of the session."""
    count: int = 0
    """How many ranges will be compared."""

    def prepare(self, plans: Sequence[PartitionPlan]) -> None:
        """See ``CompareJob``."""
        self.count = sum(len(plan.ranges) for plan in plans)

    def doing(self) -> str:
        """See ``CompareJob``. Only tasks that have ended have told how many ranges they have compared."""
        return f"compared {min(int(self.done.value), self.count):,} of {self.count:,} ranges"

    async def compare(self, ranges: Sequence[ComparedRange]) -> list[RangeResult]:
        """See ``job.compare``."""
        return await asyncio.to_thread(job.compare, self.session, ranges, self.task, self.done)

    async def compare_keys(
        self, ranges: Sequence[ComparedRange]
    ) -> tuple[list[RangeResult], dict[TopicPartition, DifferingKeys]]:
        """See ``job.compare_keys``."""
        return await asyncio.to_thread(job.compare_keys, self.session, ranges, self.task, self.done)


def _verify_with_spark(
    file: SettingsFile, settings: FlowSettings, options: VerifyArguments, wanted: WantedRanges
) -> Verification:
    is_shared = running_session() is not None
    say("starting Spark")
    try:
        session = open_session(f"mm2py verify {settings.flow}", master=options.master or EVERYWHERE, settings=QUIET)
    except SparkMissing as error:
        remedy = f"{error.remedy} Or use --local, which needs no Spark, for what can be read in an hour."
        raise SparkMissing(error.what, remedy=remedy) from error
    task = RangeTask(str(options.file.absolute()), str(settings.flow), wanted.bytes_per_second)
    try:
        context = session.sparkContext
        context.setLogLevel("ERROR")
        sink = ProgressSink(say, say)
        found = asyncio.run(
            _verify(file, settings, wanted, lambda _: SparkJob(session, task, context.accumulator(0)), sink)
        )
        if options.parquet is not None:
            write_parquet(session, found, options.parquet)
    finally:
        if not is_shared:
            session.stop()
    return found


async def verify_here(file: SettingsFile, settings: FlowSettings, wanted: WantedRanges) -> Verification | None:
    """Verify in this process. If a signal stops it, say what was compared until then, and return None."""
    clock, display = SystemClock(), LocalDisplay()
    started_s = clock.monotonic()
    jobs: list[LocalJob] = []

    def job_of(sides: Sides) -> LocalJob:
        rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        limit = wanted.bytes_per_second
        jobs.append(
            LocalJob(sides, bytes_per_second=limit, clock=clock, rng=rng, tell=display.tell, shown=display.shown)
        )
        return jobs[-1]

    try:
        found = await _unless_stopped(_verify(file, settings, wanted, job_of, display.sink))
    finally:
        display.clear()
    if found is None:
        flow = (str(settings.flow.source), str(settings.flow.target))
        plans, results = (jobs[0].plans, jobs[0].results) if jobs else ((), {})
        for line in lines_so_far(flow, plans, results, clock.monotonic() - started_s):
            say(line)
    return found


async def _unless_stopped(work: Coroutine[Any, Any, Verification]) -> Verification | None:
    """Return the result; None: SIGINT or SIGTERM has cancelled the work. A second signal ends the process at once."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    signals_seen = 0

    def on_signal() -> None:
        nonlocal signals_seen
        signals_seen += 1
        if signals_seen > 1:
            os._exit(EXIT_INTERRUPTED)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        return await task
    except asyncio.CancelledError:
        if not signals_seen:
            raise
        return None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _verify(
    file: SettingsFile,
    settings: FlowSettings,
    wanted: WantedRanges,
    job_of: Callable[[Sides], CompareJob],
    sink: ProgressSink,
) -> Verification:
    def job_told(sides: Sides) -> CompareJob:
        if wanted.sample_percent is not None:
            say(f"--sample {wanted.sample_percent:g} --seed {wanted.seed}")
        return job_of(sides)

    return await verify_flow(file, settings, wanted, job_told, sink, teller(file))


def _lines(text: str) -> str:
    return "".join(f"{printable(line)}\n" for line in text.splitlines())
