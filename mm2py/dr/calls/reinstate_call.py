"""One call of ``dr reinstate``: the source of a failover is back, and what only it has is settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mm2py.dr.calls.asking import RecoveryPlan
from mm2py.dr.calls.run_call import Preview, RunCall, standing_of
from mm2py.dr.cutover.actions import CutoverActions
from mm2py.dr.cutover.pair import CutoverOptions, RecoveryPair
from mm2py.dr.extras.preview import ReinstatePreview
from mm2py.dr.extras.reinstating import ExtrasOpen, ReinstateActions
from mm2py.dr.extras.settlement import ExtrasChoice
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.states import RecoveryEvent, RecoveryState
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.moments import time_text
from mm2py.status.exit_codes import EXIT_WAITS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinstateCall(RunCall):
    """One call of the verb."""

    choice: ExtrasChoice = field(default_factory=ExtrasChoice)

    def _actions(self, pair: RecoveryPair) -> CutoverActions:
        return ReinstateActions(pair, self.options, self.choice, say=self.asked.say)

    async def _plan(
        self, actions: CutoverActions, flow: Flow, event: RecoveryEvent, entries: Sequence[JournalEntry]
    ) -> tuple[RecoveryPlan, Preview | None]:
        last = standing_entry(entries)
        assert isinstance(actions, ReinstateActions) and last is not None  # noqa: S101  (a return has a failover)
        preview: ReinstatePreview | None = None
        lines: Sequence[str] = ()
        decided = standing_of(last)
        is_settled = last.state is RecoveryState.EXTRAS_SETTLED
        if is_settled:
            lines = [f"The return of {flow.source} is settled since {time_text(last.at_ms)}: it goes on from there."]
        else:
            preview = await actions.reinstate_preview(flow, last, entries)
            decided["run"] = decided_of_return(preview, self.options)
        plan = await self._planned(flow, last, lines, preview, decided, "Reinstate?", goes_on=is_settled)
        return plan, preview

    def _code_of(self, run: Sequence[JournalEntry], error: Mm2Error | None) -> int:
        if error is not None and isinstance(error.__cause__, ExtrasOpen):
            return EXIT_WAITS
        return RunCall._code_of(self, run, error)


def decided_of_return(preview: ReinstatePreview, options: CutoverOptions) -> Mapping[str, Any]:
    """Return what an operator agrees to who confirms a reinstatement: whom it fences, and what becomes of records."""
    return {
        "topics": preview.topics,
        "way": preview.fence.wanted.way,
        "adds": [str(one) for one in preview.fence.added],
        "unproven": [str(one) for one in preview.fence.unproven],
        "decisions": preview.decisions,
        "where": preview.choice.where,
        "turns": preview.turns,
        "refused": bool(preview.refused),
        "options": [options.timeout_s, options.fence_hook_name, options.accepts_unproven, options.ends_hanging],
    }
