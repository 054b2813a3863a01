"""One call of a verb that the runner drives, as cutover and rollback: it brings a pair of clusters to a goal.

A call reads the journals of both clusters, shows what it would do, asks, and lets the runner go from where the last
process has ended. There is no local state: after a kill the same call goes on, also at the other site.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mm2py.config.configuration import flow_of
from mm2py.dr.calls.asking import FORMAT, CallOutcome, Decide, RecoveryAsked, RecoveryPlan, decided_on
from mm2py.dr.credentials import as_recovery, recovery_users, users_plain
from mm2py.dr.cutover.actions import CutoverActions
from mm2py.dr.cutover.pair import (
    RENAMES_REMEDY,
    CutoverOptions,
    CutoverRefused,
    RecoveryPair,
    renames_told,
    turned,
)
from mm2py.dr.cutover.preview import RunPreview
from mm2py.dr.extras.preview import ReinstatePreview
from mm2py.dr.failover.preview import FailoverPreview
from mm2py.dr.fence.choosing import own_principals
from mm2py.dr.flow_readiness import ask_flow_readiness
from mm2py.dr.groups.judgement import MoveState
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_report import report_plain, report_text, step_text
from mm2py.dr.journal_topic import JournalTopics, read_agreed
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.readiness import ObstacleKind
from mm2py.dr.runner import RecoveryGoal, RecoveryRunner, first_event
from mm2py.dr.states import RecoveryEvent, RecoveryState
from mm2py.dr.switch_hook import refuse_without_switch
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.flow_sides import FlowSides, require, settings_of_workers, sides_of
from mm2py.kafka.port import Brokers
from mm2py.moments import time_text
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS

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
Preview = RunPreview | FailoverPreview | ReinstatePreview

_ENDS_OF: Final = {
    RecoveryGoal.CUTOVER: {RecoveryState.REVERSED},
    RecoveryGoal.ROLLBACK: {RecoveryState.REVERSED},
    RecoveryGoal.COMPLETE: {RecoveryState.COMPLETE},
    RecoveryGoal.FAILOVER: {RecoveryState.FAILED_OVER},
    RecoveryGoal.REINSTATE: {RecoveryState.COMPLETE},
}
_MOVES: Final = frozenset({MoveState.READY, MoveState.WAITS})
"""A group goes to and fro between these while its consumers work."""


@dataclass(frozen=True, slots=True)
class RunCall:
    """One call. ``own`` names mm2py itself, where the file does not tell it."""

    goal: RecoveryGoal
    asked: RecoveryAsked
    options: CutoverOptions
    own: tuple[str, ...] = ()

    async def run(self, decide: Decide) -> CallOutcome:
        """Do it, if that is decided.

        Raises:
            Mm2Error: a cluster does not answer, or nothing was begun.
        Cancelling leaves the last entry of the journal: the next call goes on there.
        """
        asked, flow = self.asked, parse_flow(self.asked.flow)
        async with sides_of("dr", as_recovery(asked.file, flow_of(asked.file, str(flow)))) as sides:
            require(sides)
            clusters = {side.alias: side.brokers for side in sides}
            entries = (await read_agreed(flow, clusters)).entries
            last = standing_entry(entries)
            event = first_event(self.goal, flow, last)
            if event is None:
                return await self._reached(flow, last, decide)
            if event is RecoveryEvent.RESTARTED:
                refuse_without_switch(entries, self.options.switch_words)
            actions = self._actions(await self._pair(flow, sides, clusters))
            plan, preview = await self._plan(actions, flow, event, entries)
            code = await decided_on(plan, decide)
            if code is not None:
                return CallOutcome(code, {**plan.body, "exit_code": code})
            await self._before_it_goes(flow, entries)
            return await self._go(actions, flow, clusters, preview)

    # What other verbs do in a way of their own

    def _actions(self, pair: RecoveryPair) -> CutoverActions:
        """Return what the runner does to the clusters."""
        return CutoverActions(pair, self.options, obstacles=self._obstacles, say=self.asked.say)

    async def _plan(
        self, actions: CutoverActions, flow: Flow, event: RecoveryEvent, entries: Sequence[JournalEntry]
    ) -> tuple[RecoveryPlan, Preview | None]:
        """Return what would be done; the preview is None if the call goes on with a run."""
        last = standing_entry(entries)
        preview: RunPreview | None = None
        lines: list[str] = []
        decided = standing_of(last)
        is_new = event in (RecoveryEvent.CUTOVER_ASKED, RecoveryEvent.UNDO_ASKED)
        if is_new and (last is None or last.state is not RecoveryState.SWITCHING):
            if last is not None and self.goal is RecoveryGoal.ROLLBACK and last.state is not RecoveryState.REVERSED:
                await actions.prepare(self.goal, flow, last)  # it says why not
            preview = await actions.preview(self.goal, flow, last)
            decided["run"] = decided_of(preview, self.options)
        elif last is not None:
            then = "then it can be undone no more" if self.goal is RecoveryGoal.COMPLETE else "it goes on from there"
            lines.append(stands(last, then))
        goes_on = event is RecoveryEvent.RESTARTED
        question = f"{str(self.goal).title()}?"
        return await self._planned(flow, last, lines, preview, decided, question, goes_on=goes_on), preview

    async def _before_it_goes(self, flow: Flow, entries: Sequence[JournalEntry]) -> None:
        """Is called when it was decided, before anything is done. Raises: Mm2Error, it must not be done."""

    def _code_of(self, run: Sequence[JournalEntry], error: Mm2Error | None) -> int:
        """Return the exit code of a run that was driven as far as it goes."""
        if error is not None:
            return EXIT_FAILED
        return EXIT_DONE if run and run[-1].state in _ENDS_OF[self.goal] else EXIT_WAITS

    # What all of them share

    async def _reached(self, flow: Flow, last: JournalEntry | None, decide: Decide) -> CallOutcome:
        """Say that there is nothing to do."""
        assert last is not None  # noqa: S101  (a goal that is reached has a run)
        line = f"The {last.verb} of {last.flow} is {last.state} already."
        found = self._body(EXIT_DONE, flow, None, [last], "")
        await decide(RecoveryPlan([line], found, {"reached": last.run}, "", EXIT_DONE))
        return CallOutcome(EXIT_DONE, found, line)

    async def _pair(self, flow: Flow, sides: FlowSides, clusters: dict[ClusterAlias, Brokers]) -> RecoveryPair:
        asked, back = self.asked, turned(flow)
        file = asked.file
        by_file = {one: flow_of(file, str(one)) for one in (flow, back)}
        there, _ = await settings_of_workers(file, by_file[flow], sides.target, asked.say)
        here, _ = await settings_of_workers(file, by_file[back], sides.source, asked.say)
        if why := renames_told((there, here)):
            raise CutoverRefused(f"{why}.", remedy=RENAMES_REMEDY)
        own = {alias: await asyncio.to_thread(own_principals, file, alias, self.own) for alias in clusters}
        return RecoveryPair(
            file=file,
            by_file=by_file,
            settings={flow: there, back: here},
            brokers=clusters,
            own_principals=own,
            author=asked.author,
            command=asked.command,
            clock=asked.clock,
            rng=asked.rng,
        )

    async def _obstacles(self, flow: Flow) -> Sequence[str]:
        file = self.asked.file
        found = await ask_flow_readiness(file, flow_of(file, str(flow)), self.asked.say)
        return [
            f"{one.text.rstrip('.')}. {one.way_out}"
            for one in found.obstacles
            if one.of_cutover and one.kind in BEFORE_A_RUN
        ]

    async def _planned(
        self,
        flow: Flow,
        last: JournalEntry | None,
        lines: Sequence[str],
        preview: Preview | None,
        decided: Mapping[str, Any],
        question: str,
        *,
        blocked: str = "",
        goes_on: bool = False,
    ) -> RecoveryPlan:
        """Return the plan of a call: its lines or the preview's, as whom it connects, and whether it is refused."""
        users = await asyncio.to_thread(recovery_users, self.asked.file, flow_of(self.asked.file, str(flow)))
        told, code = [*lines, *(() if preview is None else preview.lines)], None
        if preview is not None and preview.refused:
            told.append("Nothing was changed.")
            code = EXIT_FAILED
        told += [one.text for one in users]
        body = {
            **self._body(code or EXIT_DONE, flow, preview, [] if last is None else [last], ""),
            "connects_as": users_plain(users),
        }
        of_goal = {"goal": str(self.goal), "flow": str(flow), **decided}
        return RecoveryPlan(told, body, of_goal, question, code, blocked, goes_on)

    async def _go(
        self, actions: CutoverActions, flow: Flow, clusters: dict[ClusterAlias, Brokers], preview: Preview | None
    ) -> CallOutcome:
        asked = self.asked
        store = JournalTopics(flow, clusters, clock=asked.clock, rng=asked.rng)
        journal = await JournalWriter.open(store, author=asked.author, clock=asked.clock, rng=asked.rng)
        journal.tell = lambda entry: asked.say(step_text(entry))
        actions.journal = journal
        error: Mm2Error | None = None
        try:
            await RecoveryRunner(journal, actions).run(self.goal, flow)
        except Mm2Error as stopped:
            error = stopped
        except asyncio.CancelledError:
            for line in ("", f"Interrupted: what stands stays. mm2py dr check FILE '{flow}' says how to go on."):
                asked.say(line)
            raise
        run = [one for one in journal.entries if journal.entries and one.run == journal.entries[-1].run]
        code = self._code_of(run, error)
        text = "" if error is None else str(error)
        if code == EXIT_WAITS and error is None:
            text = f"The {self.goal} was taken back: nothing was switched."
        report = report_text(run, asked.clock.wall_ms()).rstrip("\n").split("\n")
        for line in ("", *report, *(("", text) if text else ())):
            asked.say(line)
        return CallOutcome(code, self._body(code, flow, preview, run, "" if error is None else text), text)

    def _body(
        self, code: int, flow: Flow, preview: Preview | None, run: Sequence[JournalEntry], error: str
    ) -> dict[str, Any]:
        report = report_plain(run)
        return {
            "format": FORMAT,
            "exit_code": code,
            "goal": str(self.goal),
            "flow": str(flow),
            "plan": None if preview is None else preview.body,
            "run": report[-1] if report else None,
            "error": error,
        }


def standing_of(last: JournalEntry | None) -> dict[str, Any]:
    """Return how the pair of clusters stands, as far as whoever confirms a plan agrees to it."""
    return {"standing": None if last is None else [last.run, str(last.state)]}


def stands(last: JournalEntry, then: str) -> str:
    """Return how far a run has come, and what a call does about it, in a sentence."""
    return f"The {last.verb} of {last.flow} is {last.state} since {time_text(last.at_ms)}: {then}."


def decided_of(preview: RunPreview, options: CutoverOptions) -> Mapping[str, Any]:
    """Return what an operator agrees to who confirms a run: what is done to whom, and by which commands."""
    return {
        "topics": preview.topics,
        "fenced": preview.fenced,
        "way": preview.fence.wanted.way,
        "adds": [str(one) for one in preview.fence.added],
        "unproven": [str(one) for one in preview.fence.unproven],
        "groups": [[one.move.group, one.move.state in _MOVES] for one in preview.groups],
        "turns": preview.turns,
        "coupled": preview.coupled,
        "refused": bool(preview.refused),
        "options": [
            options.left_groups,
            options.left_topics,
            options.timeout_s,
            options.window_s,
            options.switch_words,
            options.fence_hook_name,
            options.accepts_unproven,
            options.accepts_coupled,
            options.ends_hanging,
            options.leaves_extras,
        ],
    }
