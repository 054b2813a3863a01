"""``mm2py check FILE``: does each cluster give what the file needs? It asks the clusters, and writes nothing.

MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from mm2py.checks.body import ChecksBody
from mm2py.checks.printout import signs_for, text_of_checks
from mm2py.checks.results import exit_of_checks
from mm2py.checks.run import run_checks
from mm2py.cli.command import CommandParser
from mm2py.clock import SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import as_argument, read_settings_file
from mm2py.output import write_out
from mm2py.status.bodies import json_of


class CheckArguments(argparse.Namespace):
    """What follows ``check`` on the command line."""

    file: Path
    clusters: list[str] | None
    pre: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> CheckArguments:
    """Read what follows ``check`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "check",
        "Asks all clusters of the file whether they give what its flows need: addresses, logins, versions, rights, "
        "internal topics, free names, sizes, clocks, the link. Nothing is changed, and no worker has to run. Exit "
        "codes: 0 nothing failed (warnings do not count); 1 something did, or a cluster did not answer; 2 wrong file "
        "or arguments. A line that begins with ? could not be checked. Each code has a page in docs/checks.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flows will run")
    parser.add_argument("--clusters", nargs="+", metavar="A", help="only flows into these clusters")
    parser.add_argument("--pre", action="store_true", help="mm2py has never run: its topics need not exist")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(arguments, namespace=CheckArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``.
    """
    options = parse_arguments(arguments)
    configuration = read_settings_file(options.file, options.clusters).configuration()
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    results = asyncio.run(run_checks(configuration, before_first_start=options.pre, clock=SystemClock(), rng=rng))
    if options.json:
        write_out(json_of(ChecksBody.of([str(one.flow) for one in configuration.flows], results)))
    else:
        signs = signs_for(sys.stdout.encoding or "ascii")
        write_out(with_file(text_of_checks(results, signs), as_argument(options.file)))
    return exit_of_checks(results)
