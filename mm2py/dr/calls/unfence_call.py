"""One call of ``dr unfence``: it gives back what a fence of producers on A has changed, and nothing else.

It finds the fence by its record on either cluster, wherever the process that raised it has ended.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mm2py.config.settings import FlowSettings
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked, RecoveryPlan
from mm2py.dr.calls.fence_call import hook_of, store_of
from mm2py.dr.credentials import as_recovery, recovery_users, users_plain
from mm2py.dr.cutover.pair import CutoverOptions, RecoveryPair, turned
from mm2py.dr.cutover.unfencing import takes_back_run
from mm2py.dr.failover.actions import FailoverActions
from mm2py.dr.fence.choosing import settings_of_flow
from mm2py.dr.fence.fence_log import FenceStore
from mm2py.dr.fence.fenced_cluster import ClusterFence
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S
from mm2py.dr.fence.lifting import lift_fence
from mm2py.dr.fence.printout import body_of, record_lines
from mm2py.dr.fence.raising import FenceWrite
from mm2py.dr.fence.record import FenceRecord, FenceWay
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_topic import JournalTopics, read_agreed
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.runner import RecoveryGoal, RecoveryRunner
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.flow_sides import DEADLINE_S, FlowSides, in_time, of_both, require, sides_of
from mm2py.status.exit_codes import EXIT_DONE


@dataclass(frozen=True, slots=True)
class UnfenceCall:
    """One call."""

    asked: RecoveryAsked
    hook_words: tuple[str, ...] = ()
    """The command that the fence was raised by."""

    async def run(self, decide: Decide) -> CallOutcome:
        """Do it, if that is decided.

        Raises:
            Mm2Error: the source does not answer, or refuses.
        Cancelling leaves any part of the fence; its record knows all of it.
        """
        asked = self.asked
        settings = await asyncio.to_thread(settings_of_flow, asked.file, asked.flow)
        flow = settings.flow
        async with sides_of("dr", as_recovery(asked.file, settings)) as sides:
            require(sides, needs_target=False)
            if sides.target.away:
                asked.say(f"note: {sides.target.away} Its copy of the record is set right by the next command.")
            store = store_of(settings, sides, asked.rng)
            standing = await of_both(sides, store.read(), "reading the record of the fence")
            run = await self._run_of(flow, sides)
            by_run = takes_back_run(run, flow)
            plan = await self._shown(settings, standing, run if by_run else None)
            answer = await decide(plan)
            record, left = standing, tuple[str, ...]()
            if answer is not None:
                return CallOutcome(answer, {**plan.body, "exit_code": answer})
            if plan.code is not None:
                if standing is not None:
                    await of_both(sides, store.heal(standing), "making both records of the fence equal")
                return CallOutcome(plan.code, plan.body)
            if by_run:
                await self._take_run_back(settings, sides)
                record = await store.read()
                if record is not None:
                    self._say(record_lines(record))
            else:
                record, left = await self._lift(flow, sides, store)
            return CallOutcome(EXIT_DONE, body_of(EXIT_DONE, str(flow), record=record, left=left))

    async def _shown(
        self, settings: FlowSettings, standing: FenceRecord | None, run: JournalEntry | None
    ) -> RecoveryPlan:
        flow = str(settings.flow)
        is_up = standing is not None and standing.is_up
        lines = record_lines(standing) if is_up and standing is not None else [f"{flow}: no fence stands."]
        if run is not None:
            lines.append(f"It is part of the {run.verb} of {run.flow}, which is {run.state}: all of it is taken back.")
        users = await asyncio.to_thread(recovery_users, self.asked.file, settings)
        lines += [one.text for one in users]
        decided: dict[str, Any] = {
            "flow": flow,
            "standing": None if standing is None else [standing.mark, standing.state],
            "run": None if run is None else run.run,
            "hook": self.hook_words,
        }
        body = {**body_of(EXIT_DONE, flow, record=standing), "connects_as": users_plain(users)}
        nothing = EXIT_DONE if not is_up and run is None else None
        return RecoveryPlan(lines, body, decided, "Lift the fence?", nothing)

    async def _lift(
        self, flow: Flow, sides: FlowSides, store: FenceStore
    ) -> tuple[FenceRecord | None, tuple[str, ...]]:
        asked = self.asked
        write = FenceWrite(asked.author, asked.command, asked.clock.wall_ms(), secrets.token_hex(8))
        lifting = lift_fence(
            store, ClusterFence(flow.source, sides.source.brokers), write, hook=hook_of(self.hook_words)
        )
        lifted = await of_both(sides, lifting, "lifting the fence", deadline_s=DEADLINE_S + HOOK_TIMEOUT_S)
        if lifted is None:
            return await store.read(), ()
        self._say(record_lines(lifted.record, lifted.left))
        return lifted.record, lifted.left

    async def _run_of(self, flow: Flow, sides: FlowSides) -> JournalEntry | None:
        """Return how the pair of clusters stands by the journals; None: there is no run, or they do not tell."""
        try:
            found = await in_time(flow.source, read_agreed(flow, sides.answering), "reading the journals")
        except Mm2Error as error:
            self.asked.say(f"note: {error} The fence is lifted all the same.")
            return None
        return standing_entry(found.entries)

    async def _take_run_back(self, settings: FlowSettings, sides: FlowSides) -> None:
        """Take back the run that stands: what was done, and that, are entries of the journal."""
        asked, words, flow, back = self.asked, self.hook_words, settings.flow, turned(settings.flow)
        both = {flow: settings, back: settings_of_flow(asked.file, str(back))}
        pair = RecoveryPair(
            file=asked.file,
            by_file=both,
            settings=both,
            brokers=sides.answering,
            own_principals={},
            author=asked.author,
            command=asked.command,
            clock=asked.clock,
            rng=asked.rng,
        )
        options = CutoverOptions(
            way=FenceWay.HOOK if words else FenceWay.ACLS,
            fence_hook=hook_of(words),
            fence_hook_name=words[0] if words else "",
        )
        store = JournalTopics(flow, pair.brokers, clock=pair.clock, rng=pair.rng)
        journal = await JournalWriter.open(store, author=pair.author, clock=pair.clock, rng=pair.rng)
        actions = FailoverActions(pair, options, source=sides.source.brokers, say=asked.say)
        actions.journal = journal
        await RecoveryRunner(journal, actions).run(RecoveryGoal.UNFENCE, flow)

    def _say(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.asked.say(line)
