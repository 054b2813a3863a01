"""``mm2py dr failover FILE A->B``: A is lost, and producers and groups go on on B.

It says what is lost, ends A->B on B so that nothing of it writes there any more, commits the groups on B, and calls the
switch hook. Nothing is asked of A. MirrorMaker 2 has no such command; its users follow a runbook by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from mm2py.cli.command import CommandFailed, CommandParser
from mm2py.cli.dr_check import ask_flow_readiness
from mm2py.cli.dr_fence import may_change
from mm2py.cli.dr_run import RecoveryCall, RunArguments, common_arguments, options_of, run_arguments
from mm2py.cli.flow_sides import FlowSides, settings_of_workers, sides_of
from mm2py.clock import SystemClock
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.dr.cutover.pair import RecoveryPair, turned
from mm2py.dr.failover.actions import FailoverActions, FailoverOptions, was_drained
from mm2py.dr.failover.placing import point_of
from mm2py.dr.fence.choosing import settings_of_flow
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_topic import read_agreed
from mm2py.dr.runner import RecoveryGoal, first_event
from mm2py.dr.states import RecoveryEvent, RecoveryState
from mm2py.errors import ConfigError
from mm2py.flow import parse_flow
from mm2py.login import author_here
from mm2py.moments import time_text
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_FAILED


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
        help="the command that sends clients to the other cluster: it gets the word switch; run without a shell, "
        f"{HOOK_TIMEOUT_S:g} s at most. Without it you do that by hand",
    )
    parser.add_argument("--hook-fence", metavar="CMD", help="the command by which producers of B were fenced")
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; B does not answer, or nothing was begun.
    """
    found = parse_arguments(arguments)
    point = point_of(found.to, SystemClock().wall_ms())
    if point is None:
        raise ConfigError(f"--to {found.to} is no point.", remedy="Write latest, safe, or a time that is over.")
    file = read_settings_file(found.file, None)
    call = FailoverCall(RecoveryGoal.FAILOVER, found, options_of(found), file)
    call.asked = FailoverOptions(point, found.accept_loss)
    return asyncio.run(call.run())


@dataclass(slots=True)
class FailoverCall(RecoveryCall):
    """One call of the verb."""

    asked: FailoverOptions = field(default_factory=FailoverOptions)

    async def run(self) -> int:
        """Do it. Raises: as ``run``."""
        flow = parse_flow(self.arguments.flow)
        settings = flow_of(self.file, str(flow))
        async with sides_of("dr", settings) as sides:
            if sides.target.away:
                raise CommandFailed(sides.target.away, remedy=f"A failover to {flow.target} needs it.")
            clusters = {sides.target.alias: sides.target.brokers}
            last = standing_entry((await read_agreed(flow, clusters)).entries)
            event = first_event(self.goal, flow, last)
            if event is None:
                assert last is not None  # noqa: S101  (a goal that is reached has a run)
                self._say([f"The {last.verb} of {last.flow} is {last.state} already."])
                self._tell(EXIT_DONE, flow, [last], "")
                return EXIT_DONE
            self._refuse_answer(sides, last)
            used, _ = await settings_of_workers(self.file, settings, sides.target)
            back = turned(flow)
            of_back = settings_of_flow(self.file, str(back))
            pair = RecoveryPair(
                file=self.file,
                by_file={flow: settings, back: of_back},
                settings={flow: used, back: of_back},
                brokers=clusters,
                own_principals={},
                author=author_here(self.arguments.reason),
                command=f"mm2py dr {self.goal}",
                clock=self._clock,
                rng=self._rng,
            )
            actions = FailoverActions(
                pair,
                self.options,
                source=sides.source.brokers,
                say=self._say_one,
                asked=self.asked,
                readiness=lambda: ask_flow_readiness(self.file, settings),
            )
            code = await self._may_fail_over(actions, event, last)
            if code is not None:
                self._tell(code, flow, [] if last is None else [last], "")
                return code
            return await self._go(actions, flow, clusters)

    def _refuse_answer(self, sides: FlowSides, last: JournalEntry | None) -> None:
        """Raises: CommandFailed, if the source answers and nobody has said that it is lost all the same.

        Behind the switch it must go on: clients may be on the target.
        """
        source, target = sides.source.alias, sides.target.alias
        is_begun = last is not None and last.state is RecoveryState.FAILING_OVER
        if sides.source.away or self.arguments.source_is_lost or is_begun:
            return
        raise CommandFailed(
            f"{source} answers.",
            remedy=f"mm2py dr cutover FILE '{source}->{target}' loses nothing. If {source} is lost all the same, such"
            " as with a part of its brokers: --source-is-lost.",
        )

    async def _may_fail_over(
        self, actions: FailoverActions, event: RecoveryEvent, last: JournalEntry | None
    ) -> int | None:
        """Show what would be done and lost, and ask. Return the exit code if nothing is to be done."""
        if event is RecoveryEvent.FAILOVER_ASKED:
            flow = parse_flow(self.arguments.flow)
            found = self._preview = await actions.failover_preview(flow, last)
            self._say(found.lines)
            if found.refused:
                self._say(["Nothing was changed."])
                return EXIT_FAILED
            if not (self.asked.accepts_loss or self.arguments.plan or was_drained(last)):
                self._say(["Nothing was changed: accept what is lost, with --accept-loss."])
                return EXIT_FAILED
        elif last is not None:
            since = time_text(last.at_ms)
            self._say([f"The {last.verb} of {last.flow} is {last.state} since {since}: it goes on from there."])
        if self.arguments.plan:
            return EXIT_CHANGES
        return may_change(self._say, "Fail over?", yes=self.arguments.yes)
