"""``mm2py dr check FILE A->B``: is the flow ready for a cutover and a failover, and what would be lost?

It asks both clusters, no worker, and writes nothing. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser, teller
from mm2py.command_lines import with_file
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.dr.body import RecoveryCheckBody
from mm2py.dr.flow_readiness import ask_flow_readiness
from mm2py.dr.readiness import readiness_text
from mm2py.output import write_out
from mm2py.status.bodies import json_of


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
    found = asyncio.run(ask_flow_readiness(file, settings, teller(file)))
    if options.json:
        write_out(json_of(RecoveryCheckBody.of(found)))
    else:
        write_out(with_file(readiness_text(found), file.argument))
    return found.exit_code
