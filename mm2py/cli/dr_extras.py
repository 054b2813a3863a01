"""``mm2py dr extras FILE A->B``: what A has and B never got, by partition, and what was decided about it.

Without a decision it only looks. With one (``--replay``, ``--export``, ``--leave``) it does that with topics that are
open, once ``mm2py dr reinstate`` has fenced A, and the journal remembers it. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mm2py.cli.command import CommandFailed, CommandParser
from mm2py.cli.dr_fence import may_change, require
from mm2py.cli.dr_reinstate import ReinstateCall, choice_of, extras_arguments
from mm2py.cli.dr_run import RunArguments, common_arguments, options_of, run_arguments
from mm2py.cli.flow_sides import sides_of
from mm2py.config.configuration import flow_of, read_settings_file
from mm2py.dr.extras.found import FORMAT, ExtrasFound
from mm2py.dr.extras.reinstating import SETTLE_REMEDY, ReinstateActions
from mm2py.dr.extras.settlement import ExtrasMemory, open_text, remembered
from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.journal_report import step_text
from mm2py.dr.journal_topic import JournalTopics, read_agreed
from mm2py.dr.journal_writer import JournalWriter
from mm2py.dr.runner import RecoveryGoal
from mm2py.dr.states import RecoveryState, RecoveryVerb
from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.kafka.port import Brokers
from mm2py.login import author_here
from mm2py.output import write_out
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_WAITS

LISTS_IN = frozenset(
    {RecoveryState.FAILING_OVER, RecoveryState.FAILED_OVER, RecoveryState.REINSTATING, RecoveryState.REINSTATED}
)
"""Later both flows may run, and what A has more is what they have not copied yet."""


def parse_arguments(arguments: Sequence[str]) -> RunArguments:
    """Read what follows ``dr extras`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr extras",
        "After a failover of A->B, when A answers again: prints what A has and B never got, partition by partition, "
        "and where A was cut back. It only looks. With --replay, --export, --export-topic or --leave it does that with "
        "what is open, once mm2py dr reinstate has fenced A. Exit codes: 0 nothing waits for a decision; 1 a cluster "
        "did not answer, or it is refused; 2 wrong file or arguments, or neither a terminal to ask on nor --yes; 3 "
        "records wait for a decision, or with --plan: it would be settled.",
    )
    common_arguments(parser)
    extras_arguments(parser)
    return run_arguments(parser, arguments)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        CommandFailed: no failover of the flow stands, or A is not fenced yet.
        Mm2Error: a cluster does not answer, or a step failed.
    """
    found = parse_arguments(arguments)
    file = read_settings_file(found.file, None)
    call = ExtrasCall(RecoveryGoal.REINSTATE, found, options_of(found), file, choice=choice_of(found))
    return asyncio.run(call.run())


@dataclass(slots=True, kw_only=True)
class ExtrasCall(ReinstateCall):
    """One call of the verb."""

    async def run(self) -> int:
        flow = parse_flow(self.arguments.flow)
        async with sides_of("dr", flow_of(self.file, str(flow))) as sides:
            require(sides)
            clusters = {side.alias: side.brokers for side in sides}
            entries = (await read_agreed(flow, clusters)).entries
            last = standing_entry(entries)
            if last is None or last.verb is not RecoveryVerb.FAILOVER or last.flow != flow:
                raise CommandFailed(
                    f"No failover of {flow} stands: what {flow.source} has more is what is not copied yet.",
                    remedy="See mm2py status FILE.",
                )
            memory = remembered(entries)
            if last.state not in LISTS_IN:
                self._say([f"The failover of {flow} is {last.state}: nothing waits for a decision."])
                self._say(_settled_lines(memory))
                return self._end(EXIT_DONE, last, None, memory)
            actions = self._actions(await self._pair(flow, sides, clusters))
            assert isinstance(actions, ReinstateActions)  # noqa: S101
            found = await actions.look(last)
            self._say(found.lines)
            self._say(_settled_lines(memory))
            if self.choice.settles:
                _refuse_unfenced(flow, last)
                code = EXIT_CHANGES if self.arguments.plan else None
                code = may_change(self._say, "Settle?", yes=self.arguments.yes) if code is None else code
                if code is not None:
                    return self._end(code, last, found, memory)
                memory = await self._settle(actions, flow, clusters, found)
            if topics := memory.open_topics(found):
                self._say([open_text(found, topics), SETTLE_REMEDY])
            return self._end(EXIT_WAITS if topics else EXIT_DONE, last, found, memory)

    async def _settle(
        self, actions: ReinstateActions, flow: Flow, clusters: dict[ClusterAlias, Brokers], found: ExtrasFound
    ) -> ExtrasMemory:
        store = JournalTopics(flow, clusters, clock=self._clock, rng=self._rng)
        author = author_here(self.arguments.reason)
        journal = await JournalWriter.open(store, author=author, clock=self._clock, rng=self._rng)
        journal.tell = lambda entry: self._say_one(step_text(entry))
        actions.journal = journal
        await actions.sleep(journal.waits_s)
        entry = journal.standing
        assert entry is not None  # noqa: S101  (it was read a moment ago)
        _refuse_unfenced(flow, entry)
        await actions.still_fenced(entry)
        await actions.settle(entry, found)
        return remembered(journal.entries)

    def _end(self, code: int, last: JournalEntry, found: ExtrasFound | None, memory: ExtrasMemory) -> int:
        if self.arguments.json:
            body: dict[str, Any] = {
                "format": FORMAT,
                "exit_code": code,
                "flow": str(last.flow),
                "state": str(last.state),
                "records": None if found is None else found.records,
                "partitions": [] if found is None else found.body,
                "open": [] if found is None else memory.open_topics(found),
                "settled": {name: one.text for name, one in sorted(memory.settled.items())},
            }
            write_out(json.dumps(body, indent=2) + "\n")
        return code


def _refuse_unfenced(flow: Flow, last: JournalEntry) -> None:
    if last.state is not RecoveryState.REINSTATED:
        raise CommandFailed(
            f"The failover of {flow} is {last.state}: {flow.source} may get more records.",
            remedy=f"Fence it first: mm2py dr reinstate FILE '{flow}', with the same options if you like.",
        )


def _settled_lines(memory: ExtrasMemory) -> list[str]:
    return [f"{name}: {one.text}" for name, one in sorted(memory.settled.items())]
