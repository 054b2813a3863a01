"""One call of ``dr failover``: the source is lost, and producers and groups go on on the target.

Nothing is asked of the source. The journal is read and written on the target alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mm2py.config.configuration import flow_of
from mm2py.config.settings import FlowSettings
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryPlan, RecoveryRefused, decided_on
from mm2py.dr.calls.run_call import RunCall, standing_of, stands
from mm2py.dr.credentials import as_recovery
from mm2py.dr.cutover.pair import CutoverOptions, RecoveryPair, turned
from mm2py.dr.failover.actions import FailoverActions, FailoverOptions, was_drained
from mm2py.dr.failover.placing import FailoverPoint, point_of
from mm2py.dr.failover.preview import FailoverPreview
from mm2py.dr.fence.choosing import settings_of_flow
from mm2py.dr.flow_readiness import ask_flow_readiness
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_topic import read_agreed
from mm2py.dr.runner import first_event
from mm2py.dr.states import ENDED, RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.dr.switch_hook import refuse_without_switch
from mm2py.errors import ConfigError
from mm2py.flow import parse_flow
from mm2py.flow_sides import ClusterFailed, FlowSides, settings_of_workers, sides_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverCall(RunCall):
    """One call of the verb."""

    wanted: FailoverOptions = field(default_factory=FailoverOptions)
    is_source_lost: bool = False
    """Although it answers."""

    async def run(self, decide: Decide) -> CallOutcome:
        """See ``RunCall.run``."""
        asked, flow = self.asked, parse_flow(self.asked.flow)
        settings = flow_of(asked.file, str(flow))
        async with sides_of("dr", as_recovery(asked.file, settings)) as sides:
            if sides.target.away:
                raise ClusterFailed(sides.target.away, remedy=f"A failover to {flow.target} needs it.")
            clusters = {sides.target.alias: sides.target.brokers}
            entries = (await read_agreed(flow, clusters)).entries
            last = standing_entry(entries)
            event = first_event(self.goal, flow, last)
            if event is None:
                return await self._reached(flow, last, decide)
            if event is RecoveryEvent.RESTARTED:
                refuse_without_switch(entries, self.options.switch_words)
            self._refuse_answer(sides, last)
            actions = await self._actions_without_source(settings, sides)
            plan, preview = await self._plan_of(actions, settings, event, last)
            code = await decided_on(plan, decide)
            if code is not None:
                return CallOutcome(code, {**plan.body, "exit_code": code})
            return await self._go(actions, flow, clusters, preview)

    async def _actions_without_source(self, settings: FlowSettings, sides: FlowSides) -> FailoverActions:
        asked, flow, back = self.asked, settings.flow, turned(settings.flow)
        used, _ = await settings_of_workers(asked.file, settings, sides.target, asked.say)
        of_back = settings_of_flow(asked.file, str(back))
        pair = RecoveryPair(
            file=asked.file,
            by_file={flow: settings, back: of_back},
            settings={flow: used, back: of_back},
            brokers={sides.target.alias: sides.target.brokers},
            own_principals={},
            author=asked.author,
            command=asked.command,
            clock=asked.clock,
            rng=asked.rng,
        )
        return FailoverActions(
            pair,
            self.options,
            source=sides.source.brokers,
            say=asked.say,
            asked=self.wanted,
            readiness=lambda: ask_flow_readiness(asked.file, settings, asked.say),
        )

    def _refuse_answer(self, sides: FlowSides, last: JournalEntry | None) -> None:
        """Raises: RecoveryRefused, if the source answers and nobody has said that it is lost all the same.

        Behind the switch it must go on: clients may be on the target. Before it a cutover is no way out: the flow has
        ended.
        """
        source, target = sides.source.alias, sides.target.alias
        if sides.source.away or self.is_source_lost or (last is not None and last.state is RecoveryState.FAILING_OVER):
            return
        if last is not None and last.verb is RecoveryVerb.FAILOVER and last.state not in ENDED:
            raise RecoveryRefused(
                f"{source} answers again, and the failover of {last.flow} is {last.state}: clients were not switched.",
                remedy=f"Take it back: mm2py dr unfence FILE '{last.flow}'. If {source} is lost all the same:"
                " --source-is-lost.",
            )
        raise RecoveryRefused(
            f"{source} answers.",
            remedy=f"mm2py dr cutover FILE '{source}->{target}' loses nothing. If {source} is lost all the same, such"
            " as with a part of its brokers: --source-is-lost.",
        )

    async def _plan_of(
        self, actions: FailoverActions, settings: FlowSettings, event: RecoveryEvent, last: JournalEntry | None
    ) -> tuple[RecoveryPlan, FailoverPreview | None]:
        """Return what would be done and lost."""
        preview: FailoverPreview | None = None
        lines: Sequence[str] = ()
        decided, blocked = standing_of(last), ""
        if event is RecoveryEvent.FAILOVER_ASKED:
            preview = await actions.failover_preview(settings.flow, last)
            decided["run"] = decided_of_failover(preview, self.options, self.wanted)
            if not (self.wanted.accepts_loss or was_drained(last)):
                blocked = "Nothing was changed: accept what is lost, with --accept-loss."
        elif last is not None:
            lines = [stands(last, "it goes on from there")]
        plan = await self._planned(
            settings.flow,
            last,
            lines,
            preview,
            decided,
            "Fail over?",
            blocked=blocked,
            goes_on=event is RecoveryEvent.RESTARTED,
        )
        return plan, preview


def failover_point(text: str, now_ms: int) -> FailoverPoint:
    """Return what ``--to`` says. Raises: ConfigError, it is no point, or a time to come."""
    point = point_of(text, now_ms)
    if point is None:
        raise ConfigError(f"--to {text} is no point.", remedy="Write latest, safe, or a time that is over.")
    return point


def decided_of_failover(
    preview: FailoverPreview, options: CutoverOptions, wanted: FailoverOptions
) -> Mapping[str, Any]:
    """Return what an operator agrees to who confirms a failover. No position: a worker may still copy."""
    return {
        "topics": preview.topics,
        "to": preview.point.word,
        "groups": [[one.group, str(one.state)] for one in preview.groups],
        "refused": bool(preview.refused),
        "options": [options.left_groups, options.switch_words, options.fence_hook_name, wanted.accepts_loss],
    }
