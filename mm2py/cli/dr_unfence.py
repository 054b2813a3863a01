"""``mm2py dr unfence FILE A->B``: gives back what a fence of producers on A has changed, and nothing else.

It finds the fence by its record on either cluster, wherever the process that raised it has ended. MirrorMaker 2 has no
such command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mm2py.cli.command import DEADLINE_S, CommandParser, within_deadline
from mm2py.cli.dr_fence import hook_of, may_change, of_both, require, say_lines, store_of
from mm2py.cli.flow_sides import FlowSides, sides_of
from mm2py.clock import SystemClock
from mm2py.config.configuration import read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.dr.cutover.pair import CutoverOptions, RecoveryPair, turned
from mm2py.dr.cutover.unfencing import takes_back_run
from mm2py.dr.failover.actions import FailoverActions
from mm2py.dr.fence.choosing import settings_of_flow
from mm2py.dr.fence.fenced_cluster import ClusterFence
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S, hook_words
from mm2py.dr.fence.lifting import lift_fence
from mm2py.dr.fence.printout import body_of, record_lines
from mm2py.dr.fence.raising import FenceWrite
from mm2py.dr.fence.record import FenceWay
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_topic import JournalTopics, read_agreed
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.runner import RecoveryGoal, RecoveryRunner
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.port import Brokers
from mm2py.login import author_here
from mm2py.output import write_out
from mm2py.records.author import REASON_MOST, checked_reason
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE

COMMAND: Final = "mm2py dr unfence"


class UnfenceArguments(argparse.Namespace):
    """What follows ``dr unfence`` on the command line."""

    file: Path
    flow: str
    hook_fence: str | None
    reason: str
    plan: bool
    yes: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> UnfenceArguments:
    """Read what follows ``dr unfence`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr unfence",
        "Gives back what mm2py dr fence has changed on A, and nothing else, also if that command was killed. A must "
        "answer; B need not. Exit codes: 0 lifted, or there is no fence; 1 A did not answer, or refused; begin again; "
        "2 wrong file or arguments, or neither a terminal to ask on nor --yes; 3 with --plan: a fence would be lifted.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument("--hook-fence", metavar="CMD", help="the command that the fence was raised by")
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help=f"why: one line of at most {REASON_MOST} characters"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print what would be given back")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = parser.parse_args(arguments, namespace=UnfenceArguments())
    found.reason = checked_reason(found.reason)
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; the source does not answer, or refuses.
    """
    options = parse_arguments(arguments)
    settings = settings_of_flow(read_settings_file(options.file, None), options.flow)
    words = None if options.hook_fence is None else hook_words(options.hook_fence)
    return asyncio.run(_unfence(options, settings, words))


async def _unfence(options: UnfenceArguments, settings: FlowSettings, words: tuple[str, ...] | None) -> int:
    flow = settings.flow
    rng, clock = random.Random(), SystemClock()  # noqa: S311  (spreads retries; nothing secret)

    def say(lines: Sequence[str]) -> None:
        if not options.json:
            say_lines(lines)

    async with sides_of("dr", settings) as sides:
        require(sides, needs_target=False)
        if sides.target.away:
            say([f"note: {sides.target.away} Its copy of the record is set right by the next command."])
        store = store_of(settings, sides, rng)
        standing = await of_both(sides, store.read(), "reading the record of the fence")
        is_up = standing is not None and standing.is_up
        run = await _run_of(flow, sides, say)
        by_run = takes_back_run(run, flow)
        say(record_lines(standing) if is_up and standing is not None else [f"{flow}: no fence stands."])
        if by_run and run is not None:
            say([f"It is part of the {run.verb} of {run.flow}, which is {run.state}: all of it is taken back."])
        code = None
        if is_up or by_run:
            code = EXIT_CHANGES if options.plan else may_change(say, "Lift the fence?", yes=options.yes)
        elif options.plan:
            code = EXIT_DONE
        record, left = standing, tuple[str, ...]()
        if code is None and by_run:
            file, back = read_settings_file(options.file, None), turned(flow)
            both = {flow: settings, back: settings_of_flow(file, str(back))}
            pair = RecoveryPair(
                file=file,
                by_file=both,
                settings=both,
                brokers=_answering(sides),
                own_principals={},
                author=author_here(options.reason),
                command=COMMAND,
                clock=clock,
                rng=rng,
            )
            await _take_run_back(pair, flow, words, sides.source.brokers, say)
            record, code = await store.read(), EXIT_DONE
            if record is not None:
                say(record_lines(record))
        elif code is None:
            write = FenceWrite(author_here(options.reason), COMMAND, clock.wall_ms(), secrets.token_hex(8))
            hook = None if words is None else hook_of(words)
            lifting = lift_fence(store, ClusterFence(flow.source, sides.source.brokers), write, hook=hook)
            lifted = await of_both(sides, lifting, "lifting the fence", deadline_s=DEADLINE_S + HOOK_TIMEOUT_S)
            code = EXIT_DONE
            if lifted is not None:
                record, left = lifted.record, lifted.left
                say(record_lines(record, left))
        if options.json:
            write_out(json.dumps(body_of(code, str(flow), record=record, left=left), indent=2) + "\n")
        return code


def _answering(sides: FlowSides) -> dict[ClusterAlias, Brokers]:
    return {side.alias: side.brokers for side in sides if not side.away}


async def _run_of(flow: Flow, sides: FlowSides, say: Callable[[Sequence[str]], None]) -> JournalEntry | None:
    """Return how the pair of clusters stands by the journals; None: there is no run, or they do not tell."""
    try:
        found = await within_deadline(flow.source, read_agreed(flow, _answering(sides)), "reading the journals")
    except Mm2Error as error:
        say([f"note: {error} The fence is lifted all the same."])
        return None
    return standing_entry(found.entries)


async def _take_run_back(
    pair: RecoveryPair,
    flow: Flow,
    words: tuple[str, ...] | None,
    source: Brokers,
    say: Callable[[Sequence[str]], None],
) -> None:
    """Take back the run that stands: what was done, and that, are entries of the journal."""
    options = CutoverOptions(
        way=FenceWay.ACLS if words is None else FenceWay.HOOK,
        fence_hook=None if words is None else hook_of(words),
        fence_hook_name="" if words is None else words[0],
    )
    store = JournalTopics(flow, pair.brokers, clock=pair.clock, rng=pair.rng)
    journal = await JournalWriter.open(store, author=pair.author, clock=pair.clock, rng=pair.rng)
    actions = FailoverActions(pair, options, source=source, say=lambda line: say([line]))
    actions.journal = journal
    await RecoveryRunner(journal, actions).run(RecoveryGoal.UNFENCE, flow)
