"""``mm2py dr cutover FILE A->B``: producers and groups move from A to B; nothing is lost, nothing is read again.

It fences the producers of A, waits until B has the last record and each group is final, commits the groups on B, calls
the switch hook, lets B->A run, and frees the producers of B. Until the hook is called a failure takes everything back.
MirrorMaker 2 has no such command; its users follow a runbook by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.cli.command import CommandParser
from mm2py.cli.dr_run import RunArguments, common_arguments, moving_arguments, run_arguments, run_goal
from mm2py.dr.runner import RecoveryGoal


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr cutover`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr cutover",
        "Moves producers and consumer groups of a flow from A to B: fences the producers of A, waits until B has "
        "every record and each group is final, commits the groups on B, calls your command that sends clients to B, "
        "and lets B->A keep A exact. Before that command is called a failure or --timeout takes everything back. "
        "Called again after a kill, it goes on. Exit codes: 0 cut over; 1 a cluster did not answer, it is refused, or "
        "it stopped behind the switch: call it again; 2 wrong file or arguments, or neither a terminal to ask on nor "
        "--yes; 3 taken back, or with --plan: it would begin.",
    )
    common_arguments(parser)
    parser.add_argument(
        "--topics", nargs="+", action="extend", default=[], metavar="T", help="only these, as the source names them"
    )
    moving_arguments(parser)
    parser.add_argument(
        "--reverse-window",
        metavar="SPAN",
        help="for how long mm2py dr rollback may undo it, as 30m or 2h (default: until mm2py dr complete)",
    )
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code. Raises: Mm2Error, see ``run_goal``."""
    return run_goal(RecoveryGoal.CUTOVER, parse_arguments(arguments))
