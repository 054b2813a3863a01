"""``mm2py dr failover FILE A->B``: A is lost, and producers and groups go on on B.

It says what is lost, ends A->B on B so that nothing of it writes there any more, commits the groups on B, and calls the
switch hook. Nothing is asked of A. MirrorMaker 2 has no such command; its users follow a runbook by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.cli.command import CommandParser
from mm2py.cli.dr_run import RunArguments, common_arguments, run_arguments, run_call
from mm2py.clock import SystemClock
from mm2py.dr.calls.failover_call import FailoverCall, failover_point
from mm2py.dr.failover.actions import FailoverOptions
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S
from mm2py.dr.runner import RecoveryGoal


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr failover`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr failover",
        "A is lost: lets producers and groups go on on B, as far as B has their records. It says what is lost, ends "
        "A->B on B, so that nothing of it writes there any more, also when A and its workers return, commits the "
        "groups on B, calls your command that sends clients to B, and frees the producers of B. Called again after a "
        "kill, it goes on. Exit codes: 0 failed over; 1 B did not answer, it is refused, or a step failed: call it "
        "again; 2 wrong file or arguments, or neither a terminal to ask on nor --yes; 3 with --plan: it would begin.",
    )
    common_arguments(parser)
    parser.add_argument(
        "--to",
        default="latest",
        metavar="POINT",
        help="where groups go on: latest, each at its last known commit (default); safe, all at the first record at "
        "or after the safe time; or a time, as 2026-11-29T14:02:07Z or 10m",
    )
    parser.add_argument("--accept-loss", action="store_true", help="what --plan names as lost is accepted")
    parser.add_argument(
        "--source-is-lost", action="store_true", help="fail over although A answers: it is asked nothing all the same"
    )
    parser.add_argument(
        "--topics", nargs="+", action="extend", default=[], metavar="T", help="only groups in these topics go on on B"
    )
    parser.add_argument("--groups", nargs="+", action="extend", default=[], metavar="G", help="only these groups")
    parser.add_argument(
        "--leave-group", action="append", default=[], metavar="G", help="this group is not placed; may be repeated"
    )
    parser.add_argument(
        "--hook-switch",
        metavar="CMD",
        help="the command that sends clients to the other cluster, or its name in the file (dr.hook.NAME): it gets "
        f"the word switch; run without a shell, {HOOK_TIMEOUT_S:g} s at most. Without it you do that by hand",
    )
    parser.add_argument("--hook-fence", metavar="CMD", help="the command by which producers of B were fenced")
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; B does not answer, or nothing was begun.
    """
    found = parse_arguments(arguments)
    wanted = FailoverOptions(failover_point(found.to, SystemClock().wall_ms()), found.accept_loss)
    return run_call(
        "failover",
        found,
        lambda asked, options, own, decide: FailoverCall(
            RecoveryGoal.FAILOVER, asked, options, own, wanted=wanted, is_source_lost=found.source_is_lost
        ).run(decide),
    )
