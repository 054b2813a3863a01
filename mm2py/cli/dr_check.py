"""``mm2py dr check FILE A->B``: is the flow ready for a cutover and a failover, and what would be lost?

It asks both clusters, no worker, and writes nothing. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser
from mm2py.cli.flow_look import look_at_flow
from mm2py.cli.flow_sides import settings_of_workers, sides_of
from mm2py.clock import SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.dr.body import RecoveryCheckBody
from mm2py.dr.readiness import RecoveryReadiness, readiness_of, readiness_text, target_away
from mm2py.dr.readiness_inquiry import LookedAt, ask_readiness
from mm2py.logs import make_logger
from mm2py.output import write_out
from mm2py.status.bodies import json_of
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.target_alone import GroupsQuestion, TargetUnread


class DrCheckArguments(argparse.Namespace):
    """What follows ``dr check`` on the command line."""

    file: Path
    flow: str
    json: bool


def parse_arguments(arguments: Sequence[str]) -> DrCheckArguments:
    """Read what follows ``dr check`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr check",
        "Says whether a flow is ready for a cutover and for a failover now, what a failover would lose, and what "
        "stands in the way, with its way out. It asks both clusters, and changes nothing. If the source is lost, the "
        "target alone tells about a failover. Exit codes: 0 ready for both; 1 a cluster did not answer; 2 wrong file "
        "or arguments; 3 something stands in the way.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow from where producers are to where they would go")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(arguments, namespace=DrCheckArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    settings = flow_of(file, options.flow)
    found = asyncio.run(ask_flow_readiness(file, settings))
    if options.json:
        write_out(json_of(RecoveryCheckBody.of(found)))
    else:
        write_out(with_file(readiness_text(found), file.argument))
    return found.exit_code


async def ask_flow_readiness(file: SettingsFile, settings: FlowSettings) -> RecoveryReadiness:
    """Ask both clusters of a flow how ready it is, with connections of its own. Raises: ConfigError."""
    clock, rng = SystemClock(), random.Random()  # noqa: S311  (spreads retries; nothing secret)
    async with sides_of("dr", settings) as (source, target):
        if target.away:
            return target_away(settings.flow, clock.wall_ms(), source.away, target.away)
        used, _ = await settings_of_workers(file, settings, target)
        look = await look_at_flow("dr", file.path, settings, settles=True)
        groups: Sequence[ConsumerGroupReport] | None = None
        unread = ""
        if used.checkpoints is not None:
            question = GroupsQuestion(used, source, target, clock, make_logger("error", "text"))
            try:
                _, unread, groups = await question.ask()
            except TargetUnread as error:
                unread = str(error)
        clusters = look.report.clusters
        looked = LookedAt(
            look.report.at_ms,
            clusters.get(settings.flow.source, "") or source.away,
            clusters.get(settings.flow.target, "") or target.away,
            look.flow,
            groups,
            unread,
        )
        return readiness_of(await ask_readiness(file, looked, source, target, clock=clock, rng=rng))
