"""``mm2py dr reinstate FILE A->B``: A is back after a failover to B; what only A has is settled, and B->A begins.

It fences the producers of A, verifies that nobody writes there, lists what A has and B never got, does with it what the
operator says, and lets B->A copy what was written on B since, without what A has already. MirrorMaker 2 has no such
command.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.dr_run import RunArguments, common_arguments, fence_arguments, run_arguments, run_call
from mm2py.dr.calls.reinstate_call import ReinstateCall
from mm2py.dr.cutover.pair import TIMEOUT_S
from mm2py.dr.extras.settlement import ExtrasChoice
from mm2py.dr.runner import RecoveryGoal


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr reinstate`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr reinstate",
        "A answers again after the failover of A->B: fences its producers, verifies that nobody writes there, "
        "lists what A has and B never got, settles it as you say, and lets B->A copy what was written on B "
        "since, without what A has already. Without a decision it stops there, and says what to do. Called "
        "again after a kill, it goes on. Exit codes: 0 reinstated; 1 a cluster did not answer, it is refused, "
        "or a step failed: call it again; 2 wrong file or arguments, or neither a terminal to ask on nor "
        "--yes; 3 records wait for a decision, or with --plan: it would begin.",
    )
    common_arguments(parser)
    extras_arguments(parser)
    fence_arguments(parser)
    parser.add_argument(
        "--timeout",
        type=number_up_to(86_400, least=1),
        default=TIMEOUT_S,
        metavar="S",
        help="how long the fence may take to be verified, and A->B to copy (default: %(default)s)",
    )
    return run_arguments(parser, arguments)


def extras_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says what becomes of records that only the old side has."""
    parser.add_argument(
        "--topics", nargs="+", action="extend", default=[], metavar="T", help="decide about these topics only"
    )
    parser.add_argument("--replay", action="store_true", help="write them to B, in order, each once")
    parser.add_argument("--export", metavar="DIR", type=Path, help="write them to Parquet files here; needs pyarrow")
    parser.add_argument("--export-topic", default="", metavar="NAME", help="write them to this topic of B, with origin")
    parser.add_argument(
        "--leave", action="append", default=[], metavar="T", help="leave those of this topic on A; may be repeated"
    )
    parser.add_argument("--leave-all", action="store_true", help="leave those for which nothing else is said")


def choice_of(arguments: RunArguments) -> ExtrasChoice:
    """Return what a command line decides."""
    return ExtrasChoice(
        topics=tuple(arguments.topics),
        folder="" if arguments.export is None else str(arguments.export.absolute()),
        export_topic=arguments.export_topic,
        replays=arguments.replay,
        leaves=tuple(arguments.leave),
        leaves_all=arguments.leave_all,
    )


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code. Raises: Mm2Error, see ``run_goal``."""
    found = parse_arguments(arguments)
    choice = choice_of(found)
    return run_call(
        "reinstate",
        found,
        lambda asked, options, own, decide: ReinstateCall(
            RecoveryGoal.REINSTATE, asked, options, own, choice=choice
        ).run(decide),
    )
