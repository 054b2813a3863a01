"""``mm2py dr drill FILE A->B``: what a failover at this instant would do, proven by the records, and nothing is moved.

It reads both clusters. On the target it commits for groups of its own, and deletes them again; on both clusters it
keeps a record of the drill. Real groups, producers, settings and flows are not touched. MirrorMaker 2 has no such
command.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.dr_calls import call_verb
from mm2py.config.configuration import read_settings_file
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked, RecoveryPlan
from mm2py.dr.calls.drill_call import RECORDS_MOST, VERIFY_RECORDS, DrillCall, DrillOptions
from mm2py.dr.drill.page import report_page
from mm2py.dr.drill.printout import heading, report_lines
from mm2py.dr.drill.report import DrillReport, report_body
from mm2py.dr.failover.placing import LATEST
from mm2py.errors import ConfigError
from mm2py.output import say
from mm2py.records.author import REASON_MOST, checked_reason


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
        type=number_up_to(RECORDS_MOST),
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
    found = parse_arguments(arguments)
    if found.report is not None and not found.report.is_dir():
        raise ConfigError(f"--report: there is no folder {found.report}.", remedy="Make it, or name another one.")
    file = read_settings_file(found.file, None)
    compared = None if found.verify_all else found.verify_records
    options = DrillOptions(tuple(found.topics), tuple(found.groups), found.to, compared)

    def shown(report: DrillReport) -> Sequence[str]:
        if found.report is not None:
            write_report(report, found.report)
        return [heading(report), "", *report_lines(report, everything=found.all)]

    async def drill(asked: RecoveryAsked, decide: Decide) -> CallOutcome:
        async def briefly(plan: RecoveryPlan) -> int | None:
            # Nobody is asked with --yes, and the report has all of it.
            return await decide(replace(plan, lines=()) if found.yes else plan)

        return await DrillCall(asked, options, shown).run(briefly)

    return call_verb("drill", found, file, drill)


def write_report(report: DrillReport, folder: Path) -> None:
    """Write the report into a folder, as JSON and as HTML."""
    for name, text in (
        (f"drill-{report.run}.json", json.dumps(report_body(report), indent=2) + "\n"),
        (f"drill-{report.run}.html", report_page(report)),
    ):
        (folder / name).write_text(text)
        say(f"{folder / name} is written")
