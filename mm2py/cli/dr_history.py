"""``mm2py dr history FILE A->B``: all recoveries and drills of a pair of clusters, from what both clusters keep.

It asks both clusters, and one alone if the other one is away. Groups that a drill has left behind are deleted.
MirrorMaker 2 keeps no such record.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from mm2py.cli.command import CommandFailed, CommandParser, within_deadline
from mm2py.clock import SystemClock
from mm2py.config.configuration import read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.dr.drill.drill_log import read_drills
from mm2py.dr.drill.entry import DrillEntry, drill_text
from mm2py.dr.drill.shadow_groups import OLD_AFTER_S, delete_left
from mm2py.dr.fence.choosing import settings_of_flow
from mm2py.dr.journal import JournalEntry
from mm2py.dr.journal_report import report_plain, report_text, runs_of
from mm2py.dr.journal_topic import read_agreed
from mm2py.flow import ClusterAlias, Flow
from mm2py.flow_sides import sides_of
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import Brokers
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
        "Prints all recoveries of a pair of clusters and all drills, the last one at the end: of recoveries each step "
        "with its time, duration, positions, and who asked. It reads what both clusters keep, or the one that answers. "
        "It deletes groups that a drill has left behind when it was killed. Exit codes: 0 printed; 1 no cluster "
        "answered, or the journals do not agree; 2 wrong file or arguments.",
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
        drills, unread = await within_deadline(flow.target, read_drills(flow, there), "reading drills")
        for alias, why in unread.items():
            say(f"The drills that {alias} keeps are not known: {why}")
        await _delete_old_shadows(flow, there)
    if options.json:
        body = {
            "format": 1,
            "exit_code": EXIT_DONE,
            "flow": str(flow),
            "read_from": sorted(there),
            "runs": report_plain(found.entries),
            "drills": [entry.summary for entry in drills],
        }
        write_out(json.dumps(body, indent=2) + "\n")
    else:
        text = history_text(found.entries, drills, SystemClock().wall_ms())
        write_out("".join(f"{printable(line)}\n" for line in text.splitlines()))
    return EXIT_DONE


def history_text(entries: Sequence[JournalEntry], drills: Sequence[DrillEntry], now_ms: int) -> str:
    """Return all recoveries and drills as people read them, in the order in which they began."""
    if not drills:
        return report_text(entries, now_ms)
    blocks = [(run[0].at_ms, report_text(run, now_ms).rstrip("\n")) for run in runs_of(entries)]
    blocks += [(entry.begun_ms, drill_text(entry)) for entry in drills]
    return "\n\n".join(text for _, text in sorted(blocks, key=lambda one: one[0])) + "\n"


async def _delete_old_shadows(flow: Flow, clusters: Mapping[ClusterAlias, Brokers]) -> None:
    """Delete the groups of drills that were killed, on both clusters: either may have been the target."""
    before_ms = SystemClock().wall_ms() - OLD_AFTER_S * 1000
    for alias, brokers in clusters.items():
        source = flow.source if alias == flow.target else flow.target
        try:
            gone, _ = await within_deadline(
                alias, delete_left(brokers, source, begun_before_ms=before_ms), "looking for groups of drills"
            )
        except (CommandFailed, KafkaError) as error:
            say(f"Groups of drills on {alias} are not looked for: {error}")
            continue
        if gone:
            say(f"{len(gone):,} groups on {alias} were left by a drill that was killed, and are deleted.")
