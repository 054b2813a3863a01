"""``mm2py dr complete FILE A->B``: ends the time in which a cutover can be undone by a rollback.

It compares first what was switched, as ``mm2py verify --local`` does. B->A runs on, and A stays fenced until it is
unfenced, or a cutover leads back. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mm2py.backfill.verifying.results import table
from mm2py.backfill.verifying.verify_flow import MB, MB_PER_SECOND
from mm2py.cli.command import CommandParser, number_up_to, within_deadline
from mm2py.cli.dr_calls import say_lines
from mm2py.cli.dr_run import RunArguments, common_arguments, run_arguments, run_goal
from mm2py.cli.verify import verify_here
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.dr.calls.complete_call import compared_as, refuse_unclean, wanted_of
from mm2py.dr.cutover.switched import SwitchedRanges, switched_ranges
from mm2py.dr.journal_topic import read_agreed
from mm2py.dr.runner import RecoveryGoal
from mm2py.event_loop import loop_factory
from mm2py.flow import Flow, parse_flow
from mm2py.flow_sides import require, sides_of
from mm2py.status.exit_codes import EXIT_INTERRUPTED


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr complete`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr complete",
        "Ends a cutover: it can be undone by mm2py dr rollback no more. B->A runs on, and A stays fenced until mm2py "
        "dr unfence, or a cutover of B->A. It compares first, in this process, all that was switched with its source, "
        "as mm2py verify --local does, and refuses if anything differs or could not be compared. Exit codes: 0 "
        "complete; 1 a cluster did not answer, or it is refused; 2 wrong file or arguments, or neither a terminal to "
        "ask on nor --yes; 3 with --plan: it would be; 130 interrupted.",
    )
    common_arguments(parser)
    parser.add_argument("--unverified", action="store_true", help="do not compare")
    parser.add_argument(
        "--max-mb-per-second",
        metavar="N",
        type=number_up_to(1_000_000, least=1),
        default=MB_PER_SECOND,
        help="read at most so much of both clusters together (default: %(default)s)",
    )
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    The operator is asked when the result of the comparison stands there, so it is made before the call of the verb.

    Raises:
        RecoveryRefused: what was switched is not shown to be in the copies.
        Mm2Error: see ``run_goal``, ``Verifier.verify``.
    """
    options = parse_arguments(arguments)
    if not (options.unverified or options.plan):
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            if not runner.run(_verified(options, read_settings_file(options.file, None))):
                return EXIT_INTERRUPTED
    return run_goal(RecoveryGoal.COMPLETE, options)


async def _verified(options: RunArguments, file: SettingsFile) -> bool:
    """Compare what was switched. Return False if a signal has stopped it. Raises: RecoveryRefused, it is not clean."""
    flow = parse_flow(options.flow)
    switched = await _switched(file, flow)
    if switched is None:
        return True  # there is nothing to complete: the run itself says so
    found = await verify_here(file, compared_as(file, flow), wanted_of(switched, options.max_mb_per_second * MB))
    if found is None:
        return False
    if not options.json:
        say_lines(table(found).splitlines())
    refuse_unclean(found, switched, flow)
    return True


async def _switched(file: SettingsFile, flow: Flow) -> SwitchedRanges | None:
    async with sides_of("dr", compared_as(file, flow)) as sides:
        require(sides)
        there = {side.alias: side.brokers for side in sides}
        found = await within_deadline(flow.target, read_agreed(flow, there), "reading the journals")
    return switched_ranges(found.entries, flow)
