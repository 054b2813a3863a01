"""``mm2py dr failback FILE A->B``: producers and groups go back to A, behind a failover to B and A's reinstatement.

It is the cutover of B->A, with the same steps, options and journal: this verb only checks first that A is reinstated.
MirrorMaker 2 has no such command: its users copy the topics whole once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mm2py.cli.command import CommandFailed, CommandParser
from mm2py.cli.dr_fence import require
from mm2py.cli.dr_run import RunArguments, common_arguments, moving_arguments, run_arguments, run_goal
from mm2py.cli.flow_sides import sides_of
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.dr.cutover.pair import turned
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_topic import read_agreed
from mm2py.dr.runner import RecoveryGoal
from mm2py.dr.states import RecoveryState, RecoveryVerb
from mm2py.flow import Flow, parse_flow
from mm2py.output import say


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
        CommandFailed: A is not reinstated.
        Mm2Error: see ``run_goal``.
    """
    options = parse_arguments(arguments)
    flow = parse_flow(options.flow)
    refuse_failback(asyncio.run(_standing(options, flow)), flow)
    options.flow = str(turned(flow))
    if not options.json:
        say(f"The failback behind {flow} is the cutover of {options.flow}.")
    return run_goal(RecoveryGoal.CUTOVER, options)


async def _standing(options: RunArguments, flow: Flow) -> JournalEntry | None:
    async with sides_of("dr", flow_of(read_settings_file(options.file, None), str(flow))) as sides:
        require(sides)
        clusters = {side.alias: side.brokers for side in sides}
        return standing_entry((await read_agreed(flow, clusters)).entries)


def refuse_failback(last: JournalEntry | None, flow: Flow) -> None:
    """Raises: CommandFailed, the failover's source is not reinstated. A failback that has begun goes on."""
    back = turned(flow)
    if last is not None and last.verb is RecoveryVerb.CUTOVER and last.flow == back:
        return
    if last is None or last.verb is not RecoveryVerb.FAILOVER or last.flow != flow:
        told = "There is no run" if last is None else f"The last run is the {last.verb} of {last.flow}, {last.state}"
        raise CommandFailed(
            f"{told}: no failover of {flow} stands.",
            remedy=f"A planned way back is mm2py dr rollback FILE '{flow}', or mm2py dr cutover FILE '{back}'.",
        )
    if last.state is not RecoveryState.COMPLETE:
        raise CommandFailed(
            f"The failover of {flow} is {last.state}: {flow.source} is not reinstated.",
            remedy=f"Let it return first: mm2py dr reinstate FILE '{flow}'.",
        )
