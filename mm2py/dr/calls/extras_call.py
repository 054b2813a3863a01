"""One call of ``dr extras``: what only the source of a failover has, and what was decided about it.

Without a decision it only looks. With one it settles what is open, once a reinstatement has fenced the source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mm2py.config.configuration import flow_of
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryPlan, RecoveryRefused, decided_on
from mm2py.dr.calls.reinstate_call import ReinstateCall
from mm2py.dr.calls.run_call import standing_of
from mm2py.dr.credentials import as_recovery, recovery_users, users_plain
from mm2py.dr.extras.found import FORMAT, ExtrasFound
from mm2py.dr.extras.reinstating import SETTLE_REMEDY, ReinstateActions
from mm2py.dr.extras.settlement import ExtrasMemory, open_text, remembered
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_report import step_text
from mm2py.dr.journal_topic import JournalTopics, read_agreed
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.states import RecoveryState, RecoveryVerb
from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.flow_sides import require, sides_of
from mm2py.kafka.port import Brokers
from mm2py.status.exit_codes import EXIT_DONE, EXIT_WAITS

LISTS_IN = frozenset(
    {RecoveryState.FAILING_OVER, RecoveryState.FAILED_OVER, RecoveryState.REINSTATING, RecoveryState.REINSTATED}
)
"""Later both flows may run, and what the source has more is what they have not copied yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasCall(ReinstateCall):
    """One call of the verb."""

    async def run(self, decide: Decide) -> CallOutcome:
        """Look, and settle what is open if that is decided.

        Raises:
            RecoveryRefused: no failover of the flow stands, or its source is not fenced yet.
            Mm2Error: a cluster does not answer, or a step failed. What was settled counts.
        """
        asked, flow = self.asked, parse_flow(self.asked.flow)
        async with sides_of("dr", as_recovery(asked.file, flow_of(asked.file, str(flow)))) as sides:
            require(sides)
            clusters = {side.alias: side.brokers for side in sides}
            entries = (await read_agreed(flow, clusters)).entries
            last = standing_entry(entries)
            if last is None or last.verb is not RecoveryVerb.FAILOVER or last.flow != flow:
                raise RecoveryRefused(
                    f"No failover of {flow} stands: what {flow.source} has more is what is not copied yet.",
                    remedy="See mm2py status FILE.",
                )
            memory = remembered(entries)
            if last.state not in LISTS_IN:
                told = f"The failover of {flow} is {last.state}: nothing waits for a decision."
                lines, body = [told, *_settled_lines(memory)], _body(EXIT_DONE, last, None, memory)
                await decide(RecoveryPlan(lines, body, standing_of(last), "", EXIT_DONE))
                return CallOutcome(EXIT_DONE, body, told)
            actions = self._actions(await self._pair(flow, sides, clusters))
            assert isinstance(actions, ReinstateActions)  # noqa: S101
            found = await actions.look(last)
            plan = await self._shown(last, found, memory)
            if self.choice.settles and last.state is not RecoveryState.REINSTATED:
                for line in plan.lines:
                    asked.say(line)
                _refuse_unfenced(flow, last)
            code = await decided_on(plan, decide)
            if code is not None:
                return CallOutcome(code, {**plan.body, "exit_code": code})
            memory = await self._settle(actions, flow, clusters, found)
            for line in _open_lines(memory, found):
                asked.say(line)
            code = EXIT_WAITS if memory.open_topics(found) else EXIT_DONE
            return CallOutcome(code, _body(code, last, found, memory))

    async def _shown(self, last: JournalEntry, found: ExtrasFound, memory: ExtrasMemory) -> RecoveryPlan:
        """Return what there is, and what would become of it."""
        asked, choice = self.asked, self.choice
        lines, topics = [*found.lines, *_settled_lines(memory)], memory.open_topics(found)
        code = None
        if not choice.settles:
            lines += _open_lines(memory, found)
            code = EXIT_WAITS if topics else EXIT_DONE
        users = await asyncio.to_thread(recovery_users, asked.file, flow_of(asked.file, str(last.flow)))
        lines += [one.text for one in users]
        body = {**_body(code or EXIT_DONE, last, found, memory), "connects_as": users_plain(users)}
        decided = {
            **standing_of(last),
            "open": {topic: found.ends(topic) for topic in topics},  # the source is fenced: they do not move
            "choice": [
                choice.topics,
                choice.where,
                choice.replays,
                choice.leaves,
                choice.leaves_all,
            ],
        }
        return RecoveryPlan(lines, body, decided, "Settle?", code)

    async def _settle(
        self, actions: ReinstateActions, flow: Flow, clusters: dict[ClusterAlias, Brokers], found: ExtrasFound
    ) -> ExtrasMemory:
        asked = self.asked
        store = JournalTopics(flow, clusters, clock=asked.clock, rng=asked.rng)
        journal = await JournalWriter.open(store, author=asked.author, clock=asked.clock, rng=asked.rng)
        journal.tell = lambda entry: asked.say(step_text(entry))
        actions.journal = journal
        await actions.sleep(journal.waits_s)
        entry = journal.standing
        assert entry is not None  # noqa: S101  (it was read a moment ago)
        _refuse_unfenced(flow, entry)
        await actions.still_fenced(entry)
        await actions.settle(entry, found)
        return remembered(journal.entries)


def _body(code: int, last: JournalEntry, found: ExtrasFound | None, memory: ExtrasMemory) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "exit_code": code,
        "flow": str(last.flow),
        "state": str(last.state),
        "records": None if found is None else found.records,
        "partitions": [] if found is None else found.body,
        "open": [] if found is None else memory.open_topics(found),
        "settled": {name: one.text for name, one in sorted(memory.settled.items())},
    }


def _refuse_unfenced(flow: Flow, last: JournalEntry) -> None:
    if last.state is not RecoveryState.REINSTATED:
        raise RecoveryRefused(
            f"The failover of {flow} is {last.state}: {flow.source} may get more records.",
            remedy=f"Fence it first: mm2py dr reinstate FILE '{flow}', with the same options if you like.",
        )


def _settled_lines(memory: ExtrasMemory) -> list[str]:
    return [f"{name}: {one.text}" for name, one in sorted(memory.settled.items())]


def _open_lines(memory: ExtrasMemory, found: ExtrasFound) -> Sequence[str]:
    topics = memory.open_topics(found)
    return [open_text(found, topics), SETTLE_REMEDY] if topics else []
