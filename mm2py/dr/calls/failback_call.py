"""One call of ``dr failback``: the cutover that leads back behind a failover, once its source is reinstated."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mm2py.config.configuration import flow_of
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked, RecoveryPlan, RecoveryRefused
from mm2py.dr.calls.run_call import RunCall
from mm2py.dr.credentials import as_recovery
from mm2py.dr.cutover.pair import CutoverOptions, turned
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_topic import read_agreed
from mm2py.dr.runner import RecoveryGoal
from mm2py.dr.states import RecoveryState, RecoveryVerb
from mm2py.flow import Flow, parse_flow
from mm2py.flow_sides import require, sides_of


@dataclass(frozen=True, slots=True)
class FailbackCall:
    """One call. ``asked`` names the flow of the failover."""

    asked: RecoveryAsked
    options: CutoverOptions
    own: tuple[str, ...] = ()

    async def run(self, decide: Decide) -> CallOutcome:
        """Do it, if that is decided. Raises: RecoveryRefused, the source is not reinstated; as ``RunCall.run``."""
        flow = parse_flow(self.asked.flow)
        refuse_failback(await self._standing(flow), flow)
        back = str(turned(flow))

        async def told(plan: RecoveryPlan) -> int | None:
            line = f"The failback behind {flow} is the cutover of {back}."
            return await decide(replace(plan, lines=[line, *plan.lines]))

        return await RunCall(RecoveryGoal.CUTOVER, replace(self.asked, flow=back), self.options, self.own).run(told)

    async def _standing(self, flow: Flow) -> JournalEntry | None:
        file = self.asked.file
        async with sides_of("dr", as_recovery(file, flow_of(file, str(flow)))) as sides:
            require(sides)
            clusters = {side.alias: side.brokers for side in sides}
            return standing_entry((await read_agreed(flow, clusters)).entries)


def refuse_failback(last: JournalEntry | None, flow: Flow) -> None:
    """Raises: RecoveryRefused, the failover's source is not reinstated. A failback that has begun goes on."""
    back = turned(flow)
    if last is not None and last.verb is RecoveryVerb.CUTOVER and last.flow == back:
        return
    if last is None or last.verb is not RecoveryVerb.FAILOVER or last.flow != flow:
        told = "There is no run" if last is None else f"The last run is the {last.verb} of {last.flow}, {last.state}"
        raise RecoveryRefused(
            f"{told}: no failover of {flow} stands.",
            remedy=f"A planned way back is mm2py dr rollback FILE '{flow}', or mm2py dr cutover FILE '{back}'.",
        )
    if last.state is not RecoveryState.COMPLETE:
        raise RecoveryRefused(
            f"The failover of {flow} is {last.state}: {flow.source} is not reinstated.",
            remedy=f"Let it return first: mm2py dr reinstate FILE '{flow}'.",
        )
