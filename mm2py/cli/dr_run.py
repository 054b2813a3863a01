"""What ``mm2py dr cutover``, ``dr rollback`` and ``dr complete`` share: their options, one call of them, its report.

A call reads the journals of both clusters, shows what it would do, asks, and lets the runner go from where the last
process has ended. There is no local state: after a kill the same command goes on, also at the other site.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.dr_at import begin_at, moment_to_begin
from mm2py.cli.dr_check import ask_flow_readiness
from mm2py.cli.dr_fence import hook_of, may_change, require, say_lines
from mm2py.cli.flow_sides import FlowSides, settings_of_workers, sides_of
from mm2py.clock import SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file
from mm2py.dr.cutover.actions import CutoverActions
from mm2py.dr.cutover.pair import MAX_LAG, TIMEOUT_S, CutoverOptions, RecoveryPair, turned
from mm2py.dr.cutover.preview import RunPreview
from mm2py.dr.extras.preview import ReinstatePreview
from mm2py.dr.failover.preview import FailoverPreview
from mm2py.dr.fence.choosing import named_principals, own_principals
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S, hook_words
from mm2py.dr.fence.record import FenceWay
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_report import report_plain, report_text, step_text
from mm2py.dr.journal_topic import JournalTopics, read_agreed
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.readiness import ObstacleKind
from mm2py.dr.runner import RecoveryGoal, RecoveryRunner, first_event
from mm2py.dr.states import RecoveryEvent, RecoveryState
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.kafka.port import Brokers
from mm2py.login import author_here
from mm2py.moments import span_s, time_text
from mm2py.output import write_out
from mm2py.records.author import REASON_MOST, checked_reason
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_FAILED, EXIT_WAITS

FORMAT: Final = 1
"""The version of the object for programs. Within one version fields may be added; none changes its meaning."""
BEFORE_A_RUN: Final = frozenset(
    {
        ObstacleKind.SOURCE_AWAY,
        ObstacleKind.TARGET_AWAY,
        ObstacleKind.NOT_RUNNING,
        ObstacleKind.NOT_COPIED,
        ObstacleKind.NO_WAY_BACK,
        ObstacleKind.WAY_BACK_CHECKS,
        ObstacleKind.NO_WORKER_AT_SOURCE,
        ObstacleKind.JOURNAL,
    }
)
"""What of ``mm2py dr check`` forbids a run. The lag is looked at in records (``--max-lag``); groups are waited for."""
_ENDS_OF: Final = {
    RecoveryGoal.CUTOVER: {RecoveryState.REVERSED},
    RecoveryGoal.ROLLBACK: {RecoveryState.REVERSED},
    RecoveryGoal.COMPLETE: {RecoveryState.COMPLETE},
    RecoveryGoal.FAILOVER: {RecoveryState.FAILED_OVER},
    RecoveryGoal.REINSTATE: {RecoveryState.COMPLETE},
}


class RunArguments(argparse.Namespace):
    """What follows the verb on the command line."""

    file: Path
    flow: str
    topics: list[str]
    groups: list[str]
    leave_group: list[str]
    leave_topic: list[str]
    leave_extras: bool
    timeout: int
    max_lag: int
    postpone: Path | None
    hook_switch: str | None
    hook_fence: str | None
    by_size: bool
    reverse_window: str | None
    accept_unproven_fence: bool
    accept_coupled: bool
    end_hanging: bool
    principal: list[str]
    own_principal: list[str]
    unverified: bool
    max_mb_per_second: int
    to: str
    accept_loss: bool
    source_is_lost: bool
    export: Path | None
    export_topic: str
    replay: bool
    leave: list[str]
    leave_all: bool
    at: str | None
    at_ms: int | None
    reason: str
    plan: bool
    yes: bool
    json: bool


def common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what all of the verbs take."""
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flows run")
    parser.add_argument("flow", metavar="A->B", help="the flow of the cutover")
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help=f"why: one line of at most {REASON_MOST} characters"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print what would be done, with positions")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def moving_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what cutover and rollback take."""
    parser.add_argument("--groups", nargs="+", action="extend", default=[], metavar="G", help="only these groups move")
    parser.add_argument(
        "--leave-group", action="append", default=[], metavar="G", help="this group stays; may be repeated"
    )
    parser.add_argument(
        "--leave-topic", action="append", default=[], metavar="T", help="groups stay in this topic; may be repeated"
    )
    parser.add_argument(
        "--timeout",
        type=number_up_to(86_400, least=1),
        default=TIMEOUT_S,
        metavar="S",
        help="from the fence to the switch; then all is taken back (default: %(default)s)",
    )
    parser.add_argument(
        "--max-lag",
        type=number_up_to(10**12),
        default=MAX_LAG,
        metavar="N",
        help="do not begin while more records than that are not copied (default: %(default)s)",
    )
    parser.add_argument(
        "--postpone",
        metavar="PATH",
        type=Path,
        help="when all is ready, wait while this file is there, --timeout at most",
    )
    parser.add_argument(
        "--hook-switch",
        metavar="CMD",
        help="the command that sends clients to the other cluster: it gets the word switch; run without a shell, "
        f"{HOOK_TIMEOUT_S:g} s at most. Without it you do that by hand",
    )
    fence_arguments(parser)
    parser.add_argument(
        "--accept-coupled", action="store_true", help="move topics although transactions write to others with them"
    )
    parser.add_argument(
        "--at", metavar="TIME", help="begin at that time, as 2026-11-30T02:00 (UTC); until then nothing is done"
    )


def fence_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says how producers are stopped."""
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--hook-fence", metavar="CMD", help="as for mm2py dr fence, where there is no authorizer")
    way.add_argument("--by-size", action="store_true", help="as for mm2py dr fence")
    parser.add_argument(
        "--accept-unproven-fence", action="store_true", help="fence although --plan names what it cannot prove"
    )
    parser.add_argument(
        "--end-hanging", action="store_true", help="abort the transactions that are open on the fenced topics"
    )
    parser.add_argument(
        "--principal", action="append", default=[], metavar="P", help="also deny this principal; may be repeated"
    )
    parser.add_argument(
        "--own-principal", action="append", default=[], metavar="P", help="a name of mm2py itself: it stays free"
    )


def run_arguments(parser: CommandParser, arguments: Sequence[str]) -> RunArguments:
    """Read the command line. Raises: ConfigError, it cannot be understood."""
    found = parser.parse_args(arguments, namespace=_defaults())
    found.at_ms = None if found.at is None else moment_to_begin(found.at, SystemClock().wall_ms())
    if found.reverse_window is not None and span_s(found.reverse_window) is None:
        parser.error("--reverse-window takes a span as 30m, 2h or 7d")
    found.reason = checked_reason(found.reason)
    return found


def _defaults() -> RunArguments:
    """Return what a verb does not take."""
    return RunArguments(
        topics=[],
        groups=[],
        leave_group=[],
        leave_topic=[],
        leave_extras=False,
        timeout=TIMEOUT_S,
        max_lag=MAX_LAG,
        postpone=None,
        hook_switch=None,
        hook_fence=None,
        by_size=False,
        reverse_window=None,
        accept_unproven_fence=False,
        accept_coupled=False,
        end_hanging=False,
        principal=[],
        own_principal=[],
        unverified=False,
        to="latest",
        accept_loss=False,
        source_is_lost=False,
        export=None,
        export_topic="",
        replay=False,
        leave=[],
        leave_all=False,
        at=None,
    )


def options_of(found: RunArguments) -> CutoverOptions:
    """Return what the command line asks for. Raises: ConfigError."""
    fence_words = None if found.hook_fence is None else hook_words(found.hook_fence)
    way = FenceWay.SIZE if found.by_size else FenceWay.ACLS if fence_words is None else FenceWay.HOOK
    return CutoverOptions(
        topics=tuple(found.topics),
        groups=tuple(found.groups),
        left_groups=tuple(found.leave_group),
        left_topics=tuple(found.leave_topic),
        timeout_s=float(found.timeout),
        max_lag=found.max_lag,
        postponed_by="" if found.postpone is None else str(found.postpone.absolute()),
        switch_words=() if found.hook_switch is None else hook_words(found.hook_switch, "--hook-switch"),
        window_s=None if found.reverse_window is None else span_s(found.reverse_window),
        way=way,
        fence_hook=None if fence_words is None else hook_of(fence_words),
        fence_hook_name="" if fence_words is None else fence_words[0],
        principals=named_principals(found.principal),
        accepts_unproven=found.accept_unproven_fence,
        accepts_coupled=found.accept_coupled,
        ends_hanging=found.end_hanging,
        leaves_extras=found.leave_extras,
    )


def run_goal(goal: RecoveryGoal, arguments: RunArguments) -> int:
    """Bring a pair of clusters to a goal, and return the exit code.

    Raises:
        Mm2Error: a cluster does not answer, or nothing was begun.
    """
    options = options_of(arguments)
    file = read_settings_file(arguments.file, None)
    return asyncio.run(RecoveryCall(goal, arguments, options, file).run())


@dataclass(slots=True)
class RecoveryCall:
    """One call of a verb."""

    goal: RecoveryGoal
    arguments: RunArguments
    options: CutoverOptions
    file: SettingsFile
    _clock: SystemClock = field(default_factory=SystemClock)
    _rng: random.Random = field(default_factory=random.Random)
    _preview: RunPreview | FailoverPreview | ReinstatePreview | None = None
    _entries: Sequence[JournalEntry] = ()

    async def run(self) -> int:
        """Do it. Raises: as ``run_goal``."""
        flow = parse_flow(self.arguments.flow)
        async with sides_of("dr", flow_of(self.file, str(flow))) as sides:
            require(sides)
            clusters = {side.alias: side.brokers for side in sides}
            self._entries = (await read_agreed(flow, clusters)).entries
            last = standing_entry(self._entries)
            event = first_event(self.goal, flow, last)
            if event is None:
                assert last is not None  # noqa: S101  (a goal that is reached has a run)
                self._say([f"The {last.verb} of {last.flow} is {last.state} already."])
                self._tell(EXIT_DONE, flow, [last], "")
                return EXIT_DONE
            actions = self._actions(await self._pair(flow, sides, clusters))
            code = await self._may_begin(actions, flow, event, last)
            if code is not None:
                self._tell(code, flow, [] if last is None else [last], "")
                return code
            return await self._go(actions, flow, clusters)

    def _actions(self, pair: RecoveryPair) -> CutoverActions:
        """Return what the runner does to the clusters."""
        return CutoverActions(pair, self.options, obstacles=self._obstacles, say=self._say_one)

    async def _pair(self, flow: Flow, sides: FlowSides, clusters: dict[ClusterAlias, Brokers]) -> RecoveryPair:
        back, named = turned(flow), named_principals(self.arguments.own_principal)
        by_file = {one: flow_of(self.file, str(one)) for one in (flow, back)}
        there, _ = await settings_of_workers(self.file, by_file[flow], sides.target)
        here, _ = await settings_of_workers(self.file, by_file[back], sides.source)
        return RecoveryPair(
            file=self.file,
            by_file=by_file,
            settings={flow: there, back: here},
            brokers=clusters,
            own_principals={alias: own_principals(self.file, alias, named) for alias in clusters},
            author=author_here(self.arguments.reason),
            command=f"mm2py dr {self.goal}",
            clock=self._clock,
            rng=self._rng,
        )

    async def _obstacles(self, flow: Flow) -> Sequence[str]:
        found = await ask_flow_readiness(self.file, flow_of(self.file, str(flow)))
        return [
            f"{one.text.rstrip('.')}. {one.way_out}"
            for one in found.obstacles
            if one.of_cutover and one.kind in BEFORE_A_RUN
        ]

    async def _may_begin(
        self, actions: CutoverActions, flow: Flow, event: RecoveryEvent, last: JournalEntry | None
    ) -> int | None:
        """Show what would be done, and ask. Return the exit code if nothing is to be done."""
        is_new = event in (RecoveryEvent.CUTOVER_ASKED, RecoveryEvent.UNDO_ASKED)
        if is_new and (last is None or last.state is not RecoveryState.SWITCHING):
            if last is not None and self.goal is RecoveryGoal.ROLLBACK and last.state is not RecoveryState.REVERSED:
                await actions.prepare(self.goal, flow, last)  # it says why not
            self._preview = await actions.preview(self.goal, flow, last)
            self._say(self._preview.lines)
            if self._preview.refused:
                self._say(["Nothing was changed."])
                return EXIT_FAILED
        elif last is not None:
            then = "then it can be undone no more" if self.goal is RecoveryGoal.COMPLETE else "it goes on from there"
            self._say([f"The {last.verb} of {last.flow} is {last.state} since {time_text(last.at_ms)}: {then}."])
        if self.arguments.plan:
            return EXIT_CHANGES
        return may_change(self._say, f"{str(self.goal).title()}?", yes=self.arguments.yes)

    async def _go(self, actions: CutoverActions, flow: Flow, clusters: dict[ClusterAlias, Brokers]) -> int:
        if self.arguments.at_ms is not None:
            await begin_at(self.arguments.at_ms, self._clock, self._say_one)
        store = JournalTopics(flow, clusters, clock=self._clock, rng=self._rng)
        author = author_here(self.arguments.reason)
        journal = await JournalWriter.open(store, author=author, clock=self._clock, rng=self._rng)
        journal.tell = lambda entry: self._say_one(step_text(entry))
        actions.journal = journal
        error: Mm2Error | None = None
        try:
            await RecoveryRunner(journal, actions).run(self.goal, flow)
        except Mm2Error as stopped:
            error = stopped
        except asyncio.CancelledError:
            self._say(["", f"Interrupted: what stands stays. mm2py dr check FILE '{flow}' says how to go on."])
            raise
        run = [one for one in journal.entries if journal.entries and one.run == journal.entries[-1].run]
        code = self._code_of(run, error)
        self._say(["", *report_text(run, self._clock.wall_ms()).rstrip("\n").split("\n")])
        if code == EXIT_WAITS and error is None:
            self._say(["", f"The {self.goal} was taken back: nothing was switched."])
        if error is not None:
            self._say(["", str(error)])
        self._tell(code, flow, run, "" if error is None else str(error))
        return code

    def _code_of(self, run: Sequence[JournalEntry], error: Mm2Error | None) -> int:
        """Return the exit code of a run that was driven as far as it goes."""
        if error is not None:
            return EXIT_FAILED
        return EXIT_DONE if run and run[-1].state in _ENDS_OF[self.goal] else EXIT_WAITS

    def _say_one(self, line: str) -> None:
        self._say([line])

    def _say(self, lines: Sequence[str]) -> None:
        if not self.arguments.json:
            say_lines([with_file(line, self.file.argument) for line in lines])

    def _tell(self, code: int, flow: Flow, run: Sequence[JournalEntry], error: str) -> None:
        if not self.arguments.json:
            return
        report = report_plain(run)
        body: dict[str, Any] = {
            "format": FORMAT,
            "exit_code": code,
            "goal": str(self.goal),
            "flow": str(flow),
            "plan": None if self._preview is None else self._preview.body,
            "run": report[-1] if report else None,
            "error": error,
        }
        write_out(json.dumps(body, indent=2) + "\n")
