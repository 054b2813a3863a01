"""Drives a recovery through the table of states: one loop for every verb, every start and every restart.

It stores an entry, does what the row says, and stores what came of it. What is done to clusters is behind
``RecoveryActions``; time is, too. So tests run this loop over a model of two clusters, and stop it after any step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Protocol

from mm2py.dr.journal import JournalEntry, RunRefused, stored_facts
from mm2py.dr.journal_writer import ClusterNeeded, JournalWriter
from mm2py.dr.states import (
    ENDED,
    NO_FACTS,
    ONLY_LOOK,
    PromiseBroken,
    RecoveryEffect,
    RecoveryEvent,
    RecoveryFacts,
    RecoveryRow,
    RecoveryState,
    RecoveryVerb,
    moved_since,
)
from mm2py.errors import Mm2Error
from mm2py.flow import Flow

S, E, F = RecoveryState, RecoveryEvent, RecoveryEffect


class RecoveryGoal(StrEnum):
    """What an operator asks for."""

    CUTOVER = "cutover"
    ROLLBACK = "rollback"
    COMPLETE = "complete"
    FAILOVER = "failover"
    REINSTATE = "reinstate"
    UNFENCE = "unfence"


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """What is known when every precondition of a run holds."""

    topics: Sequence[str] = ()
    """Those that move, by their names on the source."""
    kept: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What has to be restored when the fence is removed: it is stored before the fence is set."""
    window_s: int | None = None
    """For how long the run may be undone once it is reversed; None: until it is completed."""


class RecoveryActions(Protocol):
    """What is done to the clusters. Each may be repeated, and raises Mm2Error if it is not done, or not known to be.

    None sends a request that changes something later than ``ACTS_WITHIN_S`` after it was called.
    """

    async def prepare(self, goal: RecoveryGoal, flow: Flow, last: JournalEntry | None) -> PreparedRun:
        """Look at every precondition, and change nothing.

        A run that begins anew (``last`` is None or has ended) needs the flow to run in its direction: else producers
        are on the other side.

        Args:
            last: how the pair of clusters stands.
        Raises:
            Mm2Error: one does not hold.
        """

    async def set_fence(self, entry: JournalEntry) -> None: ...
    async def verify_fence(self, entry: JournalEntry) -> RecoveryFacts:
        """Return the ends at which the source's partitions stand still."""

    async def drain(self, entry: JournalEntry, ends: RecoveryFacts) -> RecoveryFacts: ...
    async def finish_groups(self, entry: JournalEntry) -> RecoveryFacts: ...
    async def confirm_switch(self, entry: JournalEntry) -> RecoveryFacts:
        """Return the source's ends now. Raises: Mm2Error, a part of the fence, or of the cut, is missing."""

    async def run_hook(self, entry: JournalEntry) -> None: ...
    async def turn_flow_round(self, entry: JournalEntry) -> None: ...
    async def free_producers(self, entry: JournalEntry) -> None: ...
    async def take_back(self, entry: JournalEntry, kept: Sequence[Mapping[str, Any]]) -> None: ...
    async def cut_off_writers(self, entry: JournalEntry) -> RecoveryFacts:
        """Return up to where the target has the source's records, and where the copies end."""

    async def place_groups(self, entry: JournalEntry) -> RecoveryFacts: ...
    async def hold_flow_back(self, entry: JournalEntry) -> None: ...
    async def settle_extras(self, entry: JournalEntry) -> RecoveryFacts: ...
    async def sleep(self, seconds: float) -> None: ...


class RecoveryStopped(Mm2Error):
    """A recovery goes no further by itself."""


class StepTooLate(Mm2Error):
    """So much time has passed since the last entry that another process may have begun."""

    def __init__(self) -> None:
        super().__init__("The step came too late after its entry.", remedy="Call the same verb again.")


_FIRST: Final[Mapping[RecoveryGoal, RecoveryEvent]] = MappingProxyType(
    {
        RecoveryGoal.CUTOVER: E.CUTOVER_ASKED,
        RecoveryGoal.ROLLBACK: E.UNDO_ASKED,
        RecoveryGoal.COMPLETE: E.COMPLETE_ASKED,
        RecoveryGoal.FAILOVER: E.FAILOVER_ASKED,
        RecoveryGoal.REINSTATE: E.REINSTATE_ASKED,
        RecoveryGoal.UNFENCE: E.TAKE_BACK_ASKED,
    }
)


@dataclass(slots=True)
class RecoveryRunner:
    """One process, from its start to a state in which nothing is left to do."""

    journal: JournalWriter
    actions: RecoveryActions

    async def run(self, goal: RecoveryGoal, flow: Flow) -> RecoveryState:
        """Bring a pair of clusters to what the operator asks for, and return how it stands.

        Args:
            flow: from where producers are to where they go; for a rollback, the flow of the run that it undoes.
        Raises:
            RecoveryStopped: a step failed; the text says what stands.
            RunRefused, NoSuchTransition: it cannot be asked for now.
            JournalTakenOver, JournalNotStored, ClusterNeeded, JournalsDisagree: see ``JournalWriter``.
        Cancelling leaves the last entry: the next call goes on there.
        """
        await self.actions.sleep(self.journal.waits_s)
        last = self.journal.standing
        event = first_event(goal, flow, last)
        if event is None:
            assert last is not None  # noqa: S101
            return last.state
        prepared = PreparedRun()
        if event in (E.CUTOVER_ASKED, E.UNDO_ASKED, E.FAILOVER_ASKED, E.REINSTATE_ASKED):
            prepared = await self.actions.prepare(goal, flow, last)
        of = flow if last is None or last.state in ENDED else last.flow
        row = first = await self.journal.append(
            event, of, topics=prepared.topics, window_s=prepared.window_s, kept=prepared.kept
        )
        while row.effects and row.effects != (F.ALARM,):
            row = await self._go_on(row)
        last = self.journal.standing
        assert last is not None  # noqa: S101
        if (first.state, event, last.state) == (S.SWITCHING, E.UNDO_ASKED, S.REVERSED):
            return await self.run(goal, flow)  # its flow was turned round first: now it is rolled back
        return last.state

    async def _go_on(self, row: RecoveryRow) -> RecoveryRow:
        """Do what a row says, and return the row that follows."""
        entry = self.journal.entries[-1]
        try:
            event, seen = await self._do(row, entry)
            return await self.journal.append(event, entry.flow, seen=seen)
        except PromiseBroken as error:
            failure: Mm2Error = error
        except ActionFailed as error:
            failure = error.cause
        try:
            after = await self.journal.append(E.FAILED, entry.flow, text=str(failure))
        except ClusterNeeded as error:  # a failover is taken back only when its source is there
            raise RecoveryStopped(
                f"The {entry.verb} of {entry.flow} stays {entry.state}: {failure}",
                remedy="Call the same verb again: it goes on.",
            ) from error
        if after.effects == (F.ALARM,):
            raise RecoveryStopped(
                f"The {entry.verb} of {entry.flow} stays {entry.state}: {failure}",
                remedy=f"mm2py dr check FILE '{entry.flow}' says what can be done.",
            ) from failure
        return after

    async def _do(self, row: RecoveryRow, entry: JournalEntry) -> tuple[RecoveryEvent, RecoveryFacts]:
        """Do all effects of a row. Returns: the event of the last one, and what was seen."""
        found: tuple[RecoveryEvent, RecoveryFacts] | None = None
        for at, effect in enumerate(row.effects):
            if at and effect not in ONLY_LOOK and not self.journal.may_act:
                raise ActionFailed(StepTooLate())
            try:
                event, seen = await self._act(effect, entry)
            except Mm2Error as error:
                raise ActionFailed(error) from error
            if effect is F.RUN_HOOK and entry.verb is RecoveryVerb.FAILOVER:
                seen = _all_known(self.journal.entries, NO_FACTS if found is None else found[1])
            found = event, seen
            if effect is F.CONFIRM_SWITCH and at + 1 < len(row.effects):
                self._check_unmoved(found[1])
        assert found is not None  # noqa: S101
        return found

    def _check_unmoved(self, seen: RecoveryFacts) -> None:
        if why := moved_since(stored_facts(self.journal.entries), seen):
            raise PromiseBroken(E.HOOK_DONE, why)

    async def _act(self, effect: RecoveryEffect, entry: JournalEntry) -> tuple[RecoveryEvent, RecoveryFacts]:
        does, seen = self.actions, NO_FACTS
        match effect:
            case F.SET_FENCE:
                await does.set_fence(entry)
                event = E.FENCE_SET
            case F.HOLD_FLOW_BACK:
                await does.hold_flow_back(entry)
                event = E.FENCE_SET  # it is never the last effect of a row
            case F.VERIFY_FENCE:
                event, seen = E.FENCE_HOLDS, await does.verify_fence(entry)
            case F.DRAIN:
                event, seen = E.ALL_COPIED, await does.drain(entry, stored_facts(self.journal.entries))
            case F.FINISH_GROUPS:
                event, seen = E.GROUPS_EXACT, await does.finish_groups(entry)
            case F.CONFIRM_SWITCH:
                event, seen = E.SWITCH_CONFIRMED, await does.confirm_switch(entry)
            case F.RUN_HOOK:
                await does.run_hook(entry)
                event = E.HOOK_DONE
            case F.TURN_FLOW_ROUND:
                await does.turn_flow_round(entry)
                event = E.FLOW_REVERSED
            case F.FREE_PRODUCERS:
                await does.free_producers(entry)
                event = E.PRODUCERS_FREE
            case F.TAKE_BACK:
                await does.take_back(entry, kept_of(self.journal.entries))
                event = E.ALL_REMOVED
            case F.CUT_OFF_WRITERS:
                event, seen = E.WRITERS_CUT_OFF, await does.cut_off_writers(entry)
            case F.PLACE_GROUPS:
                event, seen = E.GROUPS_AT_CHOSEN, await does.place_groups(entry)
            case F.LIST_EXTRAS:
                event, seen = E.EXTRAS_SETTLED, await does.settle_extras(entry)
            case F.ALARM:
                raise AssertionError("an alarm is not done, but told")
        return event, seen


def _all_known(entries: Sequence[JournalEntry], seen: RecoveryFacts) -> RecoveryFacts:
    """Return what a failover has stored, in one: when the source is back, its last entry tells all that is needed.

    Args:
        seen: what this process has seen since.
    """
    stored = stored_facts(entries)
    return RecoveryFacts(
        source_ends=stored.source_ends,
        copied_to=seen.copied_to or stored.copied_to,
        target_ends=seen.target_ends or stored.target_ends,
        groups=stored.groups,
        source_epochs=seen.source_epochs or stored.source_epochs,
    )


class ActionFailed(Exception):
    """Carries the error of an action apart from those of the journal."""

    def __init__(self, cause: Mm2Error) -> None:
        super().__init__(str(cause))
        self.cause = cause


def kept_of(entries: Sequence[JournalEntry]) -> list[Mapping[str, Any]]:
    """Return what the last run has kept to restore, the oldest first."""
    return [one.kept for one in entries if one.run == entries[-1].run and one.kept]


def first_event(goal: RecoveryGoal, flow: Flow, last: JournalEntry | None) -> RecoveryEvent | None:
    """Return with which event a process begins that is asked for a goal; None: it is reached.

    Raises:
        RunRefused: it has nothing to begin with.
    """
    if last is None or last.state in ENDED:
        if _is_reached(goal, flow, last):
            return None
        if goal in (RecoveryGoal.CUTOVER, RecoveryGoal.FAILOVER):
            return _FIRST[goal]
        raise RunRefused(f"There is no run of {flow} to {goal}.", remedy=f"See mm2py dr check FILE '{flow}'.")
    if _goes_on(goal, flow, last):
        return E.RESTARTED
    if _is_reached(goal, flow, last):
        return E.RESTARTED if last.event is not E.PRODUCERS_FREE else None  # the last step may have been cut short
    if goal is not RecoveryGoal.UNFENCE and flow != _named_by(goal, last):
        remedy = f"Name '{_named_by(goal, last)}' to {goal}."
        if goal is RecoveryGoal.CUTOVER and last.state is S.REVERSED:
            remedy = f"Undo it (mm2py dr rollback FILE '{last.flow}'), or complete it first (mm2py dr complete)."
        raise RunRefused(f"The {last.verb} of {last.flow} is {last.state}.", remedy=remedy)
    return _FIRST[goal]


def _named_by(goal: RecoveryGoal, last: JournalEntry) -> Flow:
    """Return the flow by which an operator means the run that has not ended."""
    turned = Flow(last.flow.target, last.flow.source)
    if goal is RecoveryGoal.FAILOVER and last.state is S.REVERSED:
        return turned  # producers are on the target: it is the one that can be lost
    is_begun_rollback = last.verb is RecoveryVerb.ROLLBACK and last.state is not S.REVERSED
    return turned if goal is RecoveryGoal.ROLLBACK and is_begun_rollback else last.flow


def _is_reached(goal: RecoveryGoal, flow: Flow, last: JournalEntry | None) -> bool:
    if last is None:
        return False
    match goal:
        case RecoveryGoal.CUTOVER:
            return last.state is S.REVERSED and last.flow == flow
        case RecoveryGoal.ROLLBACK:
            is_undone = last.state is S.REVERSED and last.verb is RecoveryVerb.ROLLBACK
            return is_undone and last.flow == Flow(flow.target, flow.source)
        case RecoveryGoal.FAILOVER:
            return last.state is S.FAILED_OVER and last.flow == flow
        case RecoveryGoal.COMPLETE:
            return last.state is S.COMPLETE and last.flow == flow
        case RecoveryGoal.REINSTATE:
            return last.state is S.COMPLETE and last.flow == flow and last.verb is RecoveryVerb.FAILOVER
        case RecoveryGoal.UNFENCE:
            return last.state is S.TAKEN_BACK


def _goes_on(goal: RecoveryGoal, flow: Flow, last: JournalEntry) -> bool:
    """Return whether the run that has not ended is the one that is asked for."""
    if last.state is S.TAKING_BACK:
        return goal is not RecoveryGoal.FAILOVER
    is_named = flow == _named_by(goal, last)
    match goal:
        case RecoveryGoal.CUTOVER:
            return is_named and last.verb is RecoveryVerb.CUTOVER and last.state is not S.REVERSED
        case RecoveryGoal.ROLLBACK:
            return is_named and last.verb is RecoveryVerb.ROLLBACK and last.state is not S.REVERSED
        case RecoveryGoal.FAILOVER:
            of_failover = {S.CUTTING_OFF, S.CUT_OFF, S.GROUPS_PLACED, S.FAILING_OVER}
            return is_named and last.state in of_failover
        case RecoveryGoal.REINSTATE:
            return is_named and last.state in {S.REINSTATING, S.REINSTATED, S.EXTRAS_SETTLED}
        case RecoveryGoal.COMPLETE | RecoveryGoal.UNFENCE:
            return False
