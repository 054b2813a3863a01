"""``mm2py rebuild-ledger FILE A->B``: makes the ledger of records that were copied before one was kept, from both logs.

It is for records that MirrorMaker 2 has copied, and for a ledger that was lost. Workers may run meanwhile.
MirrorMaker 2 has no ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandParser, as_workers_run, number_up_to, within_deadline
from mm2py.clock import Clock, SystemClock
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file, with_flow
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.flow import PARTITION_MOST
from mm2py.flow_clusters import both_of
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.port import Brokers
from mm2py.logs import make_logger
from mm2py.output import TerminalLine, Write, write_out
from mm2py.rebuilding.ledger_rebuild import LedgerRebuild
from mm2py.rebuilding.pairing import NotRebuildable
from mm2py.rebuilding.short_ledgers import LedgerSurvey, MissingPart, PartitionSelection, RebuildOutcome, RebuildReport
from mm2py.secret import printable
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS
from mm2py.transforms.comparing import refuse_transformed

FORMAT: Final = 1
"""The version of the object for programs. Within one version fields may be added; none changes its meaning."""
MB: Final = 1_000_000
MB_PER_SECOND: Final = 20
PROGRESS_EVERY_S: Final = 0.5
LEADERS_S: Final = 10.0
AGAIN_S: Final = 0.5


class RebuildArguments(argparse.Namespace):
    """What follows ``rebuild-ledger`` on the command line."""

    file: Path
    flow: str
    topic: list[str]
    partition: int | None
    max_mb_per_second: int
    dry_run: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> RebuildArguments:
    """Read what follows ``rebuild-ledger`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "rebuild-ledger",
        "Makes the ledger of what was copied before one was kept, so that groups that lag behind go on "
        "exactly. It reads both logs from their start, compares every record, and writes only where all agree. Workers "
        "may run meanwhile. Exit codes: 0 rebuilt, or nothing was missing; 1 a cluster did not answer; 2 wrong file or "
        "arguments; 3 at least one partition cannot be rebuilt.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument(
        "--topic", nargs="+", action="extend", default=[], metavar="T", help="only these, as the source names them"
    )
    parser.add_argument(
        "--partition", metavar="N", type=number_up_to(PARTITION_MOST), help="only this partition of each topic"
    )
    parser.add_argument(
        "--max-mb-per-second",
        metavar="N",
        type=number_up_to(1_000_000, least=1),
        default=MB_PER_SECOND,
        help="read at most so much of both clusters together (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only tell what would be compared")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(arguments, namespace=RebuildArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``flow_of``; or a cluster does not answer.
    """
    options = parse_arguments(arguments)
    file = with_flow(read_settings_file(options.file, None), options.flow)
    settings = flow_of(file, options.flow)
    tell: Write = write_out
    if options.json:
        tell = _nothing
    reports = asyncio.run(_work(file, settings, options, tell))
    code = exit_code_of(reports)
    if options.json:
        found = {
            "format": FORMAT,
            "exit_code": code,
            "flow": str(settings.flow),
            "is_dry_run": options.dry_run,
            "partitions": [*map(asdict, reports)],
        }
        write_out(json.dumps(found, indent=2) + "\n")
    else:
        counts = Counter(one.outcome for one in reports)
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in RebuildOutcome if counts[outcome])
        write_out(f"{len(reports)} partition(s): {told or 'nothing to do'}\n")
    return code


def exit_code_of(reports: Sequence[RebuildReport]) -> int:
    outcomes = {one.outcome for one in reports}
    if RebuildOutcome.FAILED in outcomes:
        return EXIT_FAILED
    return EXIT_WAITS if RebuildOutcome.REFUSED in outcomes else EXIT_DONE


def line_of(report: RebuildReport) -> str:
    """Return what people read of one partition."""
    return f"{report.topic}-{report.partition}: {report.outcome}" + (f", {report.text}" if report.text else "")


@dataclass(frozen=True, slots=True)
class RebuildJob:
    """What the command line asks for, between two clusters."""

    settings: FlowSettings
    source: Brokers
    target: Brokers
    selection: PartitionSelection
    bytes_per_second: int | None
    is_dry_run: bool = False

    async def do(
        self, tell: Callable[[RebuildReport], object], progress: Callable[[MissingPart, int], object], clock: Clock
    ) -> list[RebuildReport]:
        """Rebuild what is missing, one partition after another.

        After a cluster has not answered, the other partitions are not tried.

        Args:
            tell: gets the report of each partition as soon as there is one, except of those without a missing part.
            progress: gets the source offset up to which a partition was compared.
        Raises:
            ConfigError: the selection names a topic or a partition that does not exist.
            CommandFailed: a cluster does not answer what is missing.
        Cancelling loses the work on the present partition.
        """
        rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        alias = self.settings.flow.target
        survey = await within_deadline(alias, until_answered(lambda: self._survey(clock), rng=rng), "reading ledgers")
        reports = survey.reports
        for report in reports:
            if report.outcome is not RebuildOutcome.WHOLE:
                tell(report)
        rebuild = LedgerRebuild(
            self.settings,
            self.source,
            self.target,
            clock=clock,
            rng=rng,
            bytes_per_second=self.bytes_per_second,
            within=within_deadline,
        )
        is_over = False
        for part in survey.missing:
            if is_over:
                report = part.report(RebuildOutcome.FAILED, "not tried")
            else:
                report = await self._one(rebuild, part, progress)
            is_over = report.outcome is RebuildOutcome.FAILED
            reports.append(report)
            tell(report)
        return reports

    async def _survey(self, clock: Clock) -> LedgerSurvey:
        """Return what is missing. A leader that moves is back within ``LEADERS_S``."""
        log, until_s = make_logger("warning", "text"), clock.monotonic() + LEADERS_S
        while True:
            survey = LedgerSurvey(self.settings, self.source, self.target, clock)
            await survey.look(self.selection, log)
            if clock.monotonic() >= until_s or all(one.outcome is not RebuildOutcome.FAILED for one in survey.reports):
                return survey
            await asyncio.sleep(AGAIN_S)

    async def _one(
        self, rebuild: LedgerRebuild, part: MissingPart, progress: Callable[[MissingPart, int], object]
    ) -> RebuildReport:
        if self.is_dry_run:
            end = "the end" if part.target_end is None else f"offset {part.target_end}"
            text = f"would be compared up to source offset {part.source_end}, and {part.remote_topic} up to {end}"
            return part.report(RebuildOutcome.MISSING, text)
        try:
            ledger = await rebuild.rebuild(part, lambda offset: progress(part, offset))
        except NotRebuildable as error:
            return part.report(RebuildOutcome.REFUSED, error.why)
        except Mm2Error as error:
            return part.report(RebuildOutcome.FAILED, str(error))
        text = f"{ledger.record_count:,} records up to source offset {part.source_end}"
        return part.report(RebuildOutcome.REBUILT, text, ledger.record_count)


async def _work(
    file: SettingsFile, settings: FlowSettings, options: RebuildArguments, write: Write
) -> list[RebuildReport]:
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    shown = _Progress()

    def tell(report: RebuildReport) -> None:
        shown.clear()
        write(f"{printable(line_of(report))}\n")

    async with both_of("rebuild-ledger", settings, rng) as (source, target):
        alias = settings.flow.target
        settings = await within_deadline(alias, as_workers_run(file, settings, target), "reading settings")
        refuse_transformed(
            settings.flow,
            settings.transforms,
            "mm2py rebuild-ledger",
            "copies are found by their content",
            remedy="Groups go on by what is left of the ledger.",
        )
        topics = [settings.source_topic(topic) for topic in options.topic]
        selection = PartitionSelection(topics, options.partition)
        rate = options.max_mb_per_second * MB
        job = RebuildJob(settings, source, target, selection, rate, is_dry_run=options.dry_run)
        try:
            return await job.do(tell, shown.show, SystemClock())
        finally:
            shown.clear()


class _Progress:
    """Shows from time to time, on a terminal, how far the reading is."""

    def __init__(self) -> None:
        self._line = TerminalLine()
        self.clear = self._line.clear
        self._clock = SystemClock()
        self._again_at_s = 0.0

    def show(self, part: MissingPart, offset: int) -> None:
        now_s = self._clock.monotonic()
        if now_s >= self._again_at_s:
            self._again_at_s = now_s + PROGRESS_EVERY_S
            self._line.write(f"{part.of.topic}-{part.of.partition}: source offset {offset:,} of {part.source_end:,}")


def _nothing(_: str) -> None:
    """Say nothing."""
