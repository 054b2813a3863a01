"""``mm2py dr rollback FILE A->B``: undoes the cutover of A->B: the same cutover the other way round.

Nothing is lost, nothing is read again. If it fails before its hook, the pair is as it was after the cutover.
MirrorMaker 2 has no such command.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.cli.command import CommandParser
from mm2py.cli.dr_run import RunArguments, common_arguments, moving_arguments, run_arguments, run_goal
from mm2py.dr.runner import RecoveryGoal


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr rollback`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr rollback",
        "Undoes the cutover of A->B that stands, or a rollback that stands: the same steps the other way round, for "
        "the same topics. It fences B, drains B->A, commits the groups on A, calls your command, lets A->B run, and "
        "frees A. If it fails before that command is called, the pair is as it was. Exit codes: 0 rolled back; 1 a "
        "cluster did not answer, it is refused, or it stopped behind the switch: call it again; 2 wrong file or "
        "arguments, or neither a terminal to ask on nor --yes; 3 taken back, or with --plan: it would begin.",
    )
    common_arguments(parser)
    moving_arguments(parser)
    parser.add_argument(
        "--leave-extras", action="store_true", help="go on although A has records that neither flow wrote"
    )
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code. Raises: Mm2Error, see ``run_goal``."""
    return run_goal(RecoveryGoal.ROLLBACK, parse_arguments(arguments))
