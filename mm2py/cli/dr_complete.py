"""``mm2py dr complete FILE A->B``: ends the time in which a cutover can be undone by a rollback.

B->A runs on, and A stays fenced until it is unfenced, or a cutover leads back. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.cli.command import CommandFailed, CommandParser
from mm2py.cli.dr_run import RunArguments, common_arguments, run_arguments, run_goal
from mm2py.dr.runner import RecoveryGoal


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr complete`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr complete",
        "Ends a cutover: it can be undone by mm2py dr rollback no more. B->A runs on, and A stays fenced until mm2py "
        "dr unfence, or a cutover of B->A. Compare first what was switched (mm2py verify), and say --unverified here: "
        "the command does not compare by itself yet. Exit codes: 0 complete; 1 a cluster did not answer, or it is "
        "refused; 2 wrong file or arguments, or neither a terminal to ask on nor --yes; 3 with --plan: it would be.",
    )
    common_arguments(parser)
    parser.add_argument("--unverified", action="store_true", help="without a comparison by this command")
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        CommandFailed: --unverified is missing.
        Mm2Error: see ``run_goal``.
    """
    options = parse_arguments(arguments)
    if not (options.unverified or options.plan):
        raise CommandFailed(
            "A cutover is completed when what was switched is compared, and this command does not compare.",
            remedy=f"Run mm2py verify FILE '{options.flow}', and then this with --unverified.",
        )
    return run_goal(RecoveryGoal.COMPLETE, options)
