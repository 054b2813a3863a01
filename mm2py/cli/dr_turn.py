"""``mm2py dr turn FILE A->B``: of two flows that lead back and forth, this one copies from now on, and not the other.

It turns the other flow off, waits until its workers have drained it, and turns this one on behind what the other has
brought. If this flow cannot be turned on, the other one is turned on again. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.dr_calls import call_verb
from mm2py.config.configuration import read_settings_file
from mm2py.dr.calls.turn_call import TIMEOUT_MOST_S, TIMEOUT_S, TurnCall, TurnOptions
from mm2py.records.author import REASON_MOST, checked_reason


class TurnArguments(argparse.Namespace):
    """What follows ``dr turn`` on the command line."""

    file: Path
    flow: str
    off: bool
    force: bool
    timeout: int
    reason: str
    plan: bool
    yes: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> TurnArguments:
    """Read what follows ``dr turn`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr turn",
        "Turns a flow on that is standby. Where the flow back must not be on at the same time (identity policy), that "
        "one is turned off first, its workers drain it, and this flow begins behind what it has brought. Both clusters "
        "must answer; with --off only the one that the flow writes to. Exit codes: 0 turned, or it was so before; 1 a "
        "cluster did not answer, or workers had not drained in time: ask again; 2 wrong file or arguments, or neither "
        "a terminal to ask on nor --yes; 3 refused, or with --plan: something would change.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow that is turned on")
    parser.add_argument(
        "--off", action="store_true", help="turn this flow off instead, and leave the flow back as it is"
    )
    parser.add_argument(
        "--force", action="store_true", help="although the flow back has not copied all: the rest stays where it is"
    )
    parser.add_argument(
        "--timeout",
        type=number_up_to(TIMEOUT_MOST_S, least=1),
        default=TIMEOUT_S,
        metavar="S",
        help="how long workers may drain; 60 s",
    )
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help=f"why: one line of at most {REASON_MOST} characters"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print what would be turned")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = parser.parse_args(arguments, namespace=TurnArguments())
    if found.off and found.force:
        parser.error("--force is for turning on")
    found.reason = checked_reason(found.reason)
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; a cluster does not answer, or refuses.
    """
    found = parse_arguments(arguments)
    file = read_settings_file(found.file, None)
    options = TurnOptions(found.off, found.force, found.timeout)
    return call_verb("turn", found, file, lambda asked, decide: TurnCall(asked, options).run(decide))
