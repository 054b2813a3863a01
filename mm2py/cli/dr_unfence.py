"""``mm2py dr unfence FILE A->B``: gives back what a fence of producers on A has changed, and nothing else.

It finds the fence by its record on either cluster, wherever the process that raised it has ended. MirrorMaker 2 has no
such command.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser
from mm2py.cli.dr_calls import call_verb, command_of
from mm2py.config.configuration import read_settings_file
from mm2py.dr.calls.unfence_call import UnfenceCall
from mm2py.records.author import REASON_MOST, checked_reason


class UnfenceArguments(argparse.Namespace):
    """What follows ``dr unfence`` on the command line."""

    file: Path
    flow: str
    hook_fence: str | None
    reason: str
    plan: bool
    yes: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> UnfenceArguments:
    """Read what follows ``dr unfence`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr unfence",
        "Gives back what mm2py dr fence has changed on A, and nothing else, also if that command was killed. A must "
        "answer; B need not. Exit codes: 0 lifted, or there is no fence; 1 A did not answer, or refused; begin again; "
        "2 wrong file or arguments, or neither a terminal to ask on nor --yes; 3 with --plan: a fence would be lifted.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument("--hook-fence", metavar="CMD", help="the command that the fence was raised by")
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help=f"why: one line of at most {REASON_MOST} characters"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print what would be given back")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = parser.parse_args(arguments, namespace=UnfenceArguments())
    found.reason = checked_reason(found.reason)
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; the source does not answer, or refuses.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    words = command_of(file, options.hook_fence, "--hook-fence")
    return call_verb("unfence", options, file, lambda asked, decide: UnfenceCall(asked, words).run(decide))
