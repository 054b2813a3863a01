"""``mm2py dr extras FILE A->B``: what A has and B never got, by partition, and what was decided about it.

Without a decision it only looks. With one (``--replay``, ``--export``, ``--leave``) it does that with topics that are
open, once ``mm2py dr reinstate`` has fenced A, and the journal remembers it. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.cli.command import CommandParser
from mm2py.cli.dr_reinstate import choice_of, extras_arguments
from mm2py.cli.dr_run import RunArguments, common_arguments, run_arguments, run_call
from mm2py.dr.calls.extras_call import ExtrasCall
from mm2py.dr.runner import RecoveryGoal


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr extras`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr extras",
        "After a failover of A->B, when A answers again: prints what A has and B never got, partition by partition, "
        "and where A was cut back. It only looks. With --replay, --export, --export-topic or --leave it does that with "
        "what is open, once mm2py dr reinstate has fenced A. Exit codes: 0 nothing waits for a decision; 1 a cluster "
        "did not answer, or it is refused; 2 wrong file or arguments, or neither a terminal to ask on nor --yes; 3 "
        "records wait for a decision, or with --plan: it would be settled.",
    )
    common_arguments(parser)
    extras_arguments(parser)
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        RecoveryRefused: no failover of the flow stands, or A is not fenced yet.
        Mm2Error: a cluster does not answer, or a step failed.
    """
    found = parse_arguments(arguments)
    choice = choice_of(found)
    return run_call(
        "extras",
        found,
        lambda asked, options, own, decide: ExtrasCall(RecoveryGoal.REINSTATE, asked, options, own, choice=choice).run(
            decide
        ),
    )
