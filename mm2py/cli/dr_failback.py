"""``mm2py dr failback FILE A->B``: producers and groups go back to A, behind a failover to B and A's reinstatement.

It is the cutover of B->A, with the same steps, options and journal: this verb only checks first that A is reinstated.
MirrorMaker 2 has no such command: its users copy the topics whole once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.cli.command import CommandParser
from mm2py.cli.dr_run import RunArguments, common_arguments, moving_arguments, run_arguments, run_call
from mm2py.dr.calls.failback_call import FailbackCall


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr failback`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr failback",
        "Behind a failover of A->B and mm2py dr reinstate: moves producers and consumer groups from B back to A. It is "
        "the cutover of B->A, and all that is said of mm2py dr cutover counts; mm2py dr rollback FILE 'B->A' undoes "
        "it. Exit codes: as mm2py dr cutover.",
    )
    common_arguments(parser)
    parser.add_argument(
        "--topics", nargs="+", action="extend", default=[], metavar="T", help="only these, as B names them"
    )
    moving_arguments(parser)
    parser.add_argument(
        "--reverse-window", metavar="SPAN", help="for how long it can be undone (default: until mm2py dr complete)"
    )
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        RecoveryRefused: A is not reinstated.
        Mm2Error: see ``run_goal``.
    """
    return run_call(
        "failback",
        parse_arguments(arguments),
        lambda asked, options, own, decide: FailbackCall(asked, options, own).run(decide),
    )
