"""``mm2py dr drill FILE A->B``: what a failover at this instant would do, proven by the records, and nothing is moved.

It reads both clusters. On the target it commits for groups of its own, and deletes them again; on both clusters it
keeps a record of the drill. Real groups, producers, settings and flows are not touched. MirrorMaker 2 has no such
command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.backfill.verifying.results import Verification
from mm2py.cli.command import CommandFailed, CommandParser, number_up_to, teller
from mm2py.cli.dr_calls import may_change, say_lines
from mm2py.cli.flow_sides import settings_of_workers
from mm2py.clock import SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.dr.credentials import as_recovery
from mm2py.dr.drill.comparison import compare_copies
from mm2py.dr.drill.drill_log import keep_drill
from mm2py.dr.drill.group_drill import GroupDriller
from mm2py.dr.drill.page import report_page
from mm2py.dr.drill.positions import DrillPlan, DrillPositions
from mm2py.dr.drill.printout import heading, plan_lines, report_lines
from mm2py.dr.drill.report import DrillReport, report_body
from mm2py.dr.drill.shadow_groups import delete_left, new_run
from mm2py.dr.flow_readiness import ask_flow_readiness
from mm2py.dr.readiness import RecoveryReadiness
from mm2py.errors import ConfigError
from mm2py.flow_sides import FlowSides, require, sides_of
from mm2py.kafka.cluster import until_answered
from mm2py.login import author_here
from mm2py.logs import make_logger
from mm2py.moments import age_or_iso_ms
from mm2py.output import say, write_out
from mm2py.records.author import REASON_MOST, checked_reason
from mm2py.status.exit_codes import EXIT_CHANGES

VERIFY_RECORDS: Final = 100_000
LATEST, SAFE = "latest", "safe"


class DrillArguments(argparse.Namespace):
    """What follows ``dr drill`` on the command line."""

    file: Path
    flow: str
    topics: list[str]
    groups: list[str]
    to: str
    verify_records: int
    verify_all: bool
    report: Path | None
    reason: str
    all: bool
    plan: bool
    yes: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> DrillArguments:
    """Read what follows ``dr drill`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr drill",
        "A failover that moves nothing: finds where each consumer group would go on on B now, commits that for groups "
        "of its own there, reads from these places, and compares with what the group would read next on A. It also "
        "compares the last records of all copies, and measures how long the steps take. Its groups are deleted at the "
        "end, and a record of the drill is kept on both clusters (mm2py dr history). Exit codes: 0 proven: every group "
        "would go on at the exact record, and nothing stands in the way; 1 a cluster did not answer, or refused; 2 "
        "wrong file or arguments, or neither a terminal to ask on nor --yes; 3 not proven, or with --plan.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow from where producers are to where they would go")
    parser.add_argument(
        "--topics", nargs="+", action="extend", default=[], metavar="T", help="only these, as the source names them"
    )
    parser.add_argument("--groups", nargs="+", action="extend", default=[], metavar="G", help="only these groups")
    parser.add_argument(
        "--to",
        default=LATEST,
        metavar="WHEN",
        help="latest: to all that is copied; safe: to the safe time of mm2py status; or to a time, as 10m or "
        "2026-11-29T07:30 (UTC). Groups go on there, or earlier (default: %(default)s)",
    )
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "--verify-records",
        type=number_up_to(10**12),
        default=VERIFY_RECORDS,
        metavar="N",
        help="compare the last N offsets of each partition with their copies; 0: none (default: %(default)s)",
    )
    how_much.add_argument("--verify-all", action="store_true", help="compare all records")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write the report there, as JSON and as HTML")
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help=f"why: one line of at most {REASON_MOST} characters"
    )
    parser.add_argument("--all", action="store_true", help="also list each partition in which all is well")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print which positions it would look at")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object, with every position")
    found = parser.parse_args(arguments, namespace=DrillArguments())
    found.reason = checked_reason(found.reason)
    if found.json and not (found.plan or found.yes):
        parser.error("--json asks nothing: it takes --plan or --yes")
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; a cluster does not answer, or refuses.
    """
    options = parse_arguments(arguments)
    if options.report is not None and not options.report.is_dir():
        raise ConfigError(f"--report: there is no folder {options.report}.", remedy="Make it, or name another one.")
    file = read_settings_file(options.file, None)
    return asyncio.run(DrillCall(options, file).run(flow_of(file, options.flow)))


@dataclass(slots=True)
class DrillCall:
    """One call of the command."""

    options: DrillArguments
    file: SettingsFile
    _clock: SystemClock = field(default_factory=SystemClock)
    _rng: random.Random = field(default_factory=random.Random)

    async def run(self, by_file: FlowSettings) -> int:
        """Do it. Raises: as ``run`` of the module."""
        options, log = self.options, make_logger("warning", "text")
        async with sides_of("dr", as_recovery(self.file, by_file)) as sides:
            require(sides)
            settings, _ = await settings_of_workers(self.file, by_file, sides.target)
            begun_ms = self._clock.wall_ms()
            drill_run = new_run(begun_ms, self._rng)
            say("asking both clusters whether the flow is ready")
            readiness = await ask_flow_readiness(self.file, by_file, teller(self.file))
            to_ms = self._to_ms(readiness, begun_ms)
            source, target = sides.source.brokers, sides.target.brokers
            driller = GroupDriller(settings, source, target, drill_run, self._clock, log)
            positions = DrillPositions(settings, source, target, log, to_ms=to_ms)
            with driller.timed("positions"):
                plan = await until_answered(lambda: positions.plan(options.groups, options.topics), rng=self._rng)
            code = self._may_begin(plan, settings)
            if code is not None:
                return code
            removed, kept = await delete_left(target, settings.flow.source)
            driller.left_behind |= {name: str(why) for name, why in kept.items()}
            await driller.drill(plan, say)
            verification = await self._compare(settings, log)
            report = DrillReport(
                run=drill_run,
                flow=str(settings.flow),
                source=str(settings.flow.source),
                target=str(settings.flow.target),
                begun_ms=begun_ms,
                ended_ms=self._clock.wall_ms(),
                author=author_here(options.reason),
                to=options.to,
                to_ms=to_ms,
                readiness=readiness,
                groups=driller.groups,
                steps=driller.steps,
                verification=verification,
                left_behind=driller.left_behind,
                removed=removed,
            )
            return await self._report(report, settings, sides)

    def _to_ms(self, readiness: RecoveryReadiness, now_ms: int) -> int | None:
        """Return the time to which the failover would lead; None: to the latest.

        Raises:
            ConfigError: it is no time.
            CommandFailed: the safe time is not known.
        """
        to = self.options.to
        if to == LATEST:
            return None
        if to == SAFE:
            if readiness.safe_at_ms is None:
                raise CommandFailed(
                    f"The safe time of {readiness.flow} is not known.",
                    remedy=f"See mm2py dr check FILE '{readiness.flow}', or use --to latest.",
                )
            return readiness.safe_at_ms
        found = age_or_iso_ms(to, now_ms)
        if found is None:
            raise ConfigError(f"--to {to!r} is no time.", remedy="Write latest, safe, 10m, or 2026-11-29T07:30.")
        return found

    def _may_begin(self, plan: DrillPlan, settings: FlowSettings) -> int | None:
        """Show the plan if it is wanted or must be agreed to. Return the exit code if nothing is to be done."""
        options = self.options
        if options.plan and options.json:
            places = [
                {
                    "group": group.group,
                    "topic": place.key[0],
                    "partition": place.key[1],
                    "other_topic": place.other[0],
                    "committed": place.committed,
                    "position": place.position,
                    "why": place.why,
                }
                for group in plan.groups
                for place in group.places
            ]
            self._write({"format": 1, "exit_code": EXIT_CHANGES, "flow": str(settings.flow), "partitions": places})
            return EXIT_CHANGES
        if options.plan or not options.yes:
            say_lines([with_file(line, self.file.argument) for line in plan_lines(plan, str(settings.flow))])
        if options.plan:
            return EXIT_CHANGES
        return may_change(lambda line: say_lines([line]), "Drill?", yes=options.yes)

    async def _compare(self, settings: FlowSettings, log: FilteringBoundLogger) -> Verification | None:
        options = self.options
        if not options.verify_all and not options.verify_records:
            return None
        say("comparing copies with their source")
        last = None if options.verify_all else options.verify_records
        return await compare_copies(settings, options.topics, last, clock=self._clock, rng=self._rng, log=log, say=say)

    async def _report(self, report: DrillReport, settings: FlowSettings, sides: FlowSides) -> int:
        """Store the drill on both clusters, write the files, print it, and return the exit code."""
        options = self.options
        clusters = {side.alias: side.brokers for side in sides}
        for alias, why in (await keep_drill(report, settings.flow, clusters, self._rng)).items():
            say(f"The drill is not kept on {alias}: {why}")
        if options.report is not None:
            for name, text in (
                (f"drill-{report.run}.json", json.dumps(report_body(report), indent=2) + "\n"),
                (f"drill-{report.run}.html", report_page(report)),
            ):
                (options.report / name).write_text(text)
                say(f"{options.report / name} is written")
        if options.json:
            self._write(report_body(report))
        else:
            lines = [heading(report), "", *report_lines(report, everything=options.all)]
            say_lines([with_file(line, self.file.argument) for line in lines])
        return report.exit_code

    @staticmethod
    def _write(found: dict[str, Any]) -> None:
        write_out(json.dumps(found, indent=2) + "\n")
