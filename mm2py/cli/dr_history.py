"""``mm2py dr history FILE A->B``: all recoveries of a pair of clusters, step by step, from the journals on both.

It asks both clusters, and one alone if the other one is away. MirrorMaker 2 keeps no such record.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandFailed, CommandParser, within_deadline
from mm2py.cli.flow_sides import sides_of
from mm2py.clock import SystemClock
from mm2py.config.configuration import read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.dr.fence.choosing import settings_of_flow
from mm2py.dr.journal_report import report_plain, report_text
from mm2py.dr.journal_topic import read_agreed
from mm2py.output import say, write_out
from mm2py.secret import printable
from mm2py.status.exit_codes import EXIT_DONE


class DrHistoryArguments(argparse.Namespace):
    """What follows ``dr history`` on the command line."""

    file: Path
    flow: str
    json: bool


def parse_arguments(arguments: Sequence[str]) -> DrHistoryArguments:
    """Read what follows ``dr history`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr history",
        "Prints all recoveries of a pair of clusters, the last one at the end: each step with its time, duration, "
        "positions, and who asked. It reads the journals of both clusters, or of the one that answers. Exit codes: 0 "
        "printed; 1 no cluster answered, or the journals do not agree; 2 wrong file or arguments.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="one of the two flows of the pair")
    parser.add_argument("--json", action="store_true", help="one JSON object, with every position")
    return parser.parse_args(arguments, namespace=DrHistoryArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; no cluster answers, or the journals do not agree.
    """
    options = parse_arguments(arguments)
    settings = settings_of_flow(read_settings_file(options.file, None), options.flow)
    return asyncio.run(_print(options, settings))


async def _print(options: DrHistoryArguments, settings: FlowSettings) -> int:
    flow = settings.flow
    async with sides_of("dr", settings) as sides:
        there = {side.alias: side.brokers for side in sides if not side.away}
        away = [side for side in sides if side.away]
        if not there:
            raise CommandFailed(away[0].away, remedy="")
        for side in away:
            say(f"{side.away} What is printed is what the other cluster has.")
        found = await within_deadline(flow.target, read_agreed(flow, there), "reading the journals")
    if options.json:
        body = {
            "format": 1,
            "exit_code": EXIT_DONE,
            "flow": str(flow),
            "read_from": sorted(there),
            "runs": report_plain(found.entries),
        }
        write_out(json.dumps(body, indent=2) + "\n")
    else:
        write_out(
            "".join(f"{printable(line)}\n" for line in report_text(found.entries, SystemClock().wall_ms()).splitlines())
        )
    return EXIT_DONE
