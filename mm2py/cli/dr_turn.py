"""``mm2py dr turn FILE A->B``: of two flows that lead back and forth, this one copies from now on, and not the other.

It turns the other flow off, waits until its workers have drained it, and turns this one on behind what the other has
brought. If this flow cannot be turned on, the other one is turned on again. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

from mm2py.cli.command import CommandFailed, CommandParser, number_up_to
from mm2py.cli.dr_calls import may_change, say_lines
from mm2py.clock import Clock, SystemClock
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.connector_offsets.altering import StillRunning
from mm2py.connector_offsets.turning import Turned, TurnedFlow, TurnedMeanwhile, turn_off, turn_on, turned_flow
from mm2py.dr.credentials import as_recovery, recovery_users
from mm2py.dr.failover.mark import refuse_turn_on
from mm2py.dr.journal import standing_entry
from mm2py.dr.journal_topic import read_agreed
from mm2py.dr.open_run import refuse_turn_beside
from mm2py.dr.readiness_inquiry import serves
from mm2py.dr.standing_run import standing_run
from mm2py.errors import Mm2Error
from mm2py.flow_sides import DEADLINE_S, FlowSides, sides_of
from mm2py.login import author_here
from mm2py.output import write_out
from mm2py.records.author import REASON_MOST, checked_reason
from mm2py.records.direction_record import is_by_failover
from mm2py.shared_settings.direction import Seen, TurnRefused
from mm2py.status.cluster_inquiry import InquirySide
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_WAITS

COMMAND: Final = "mm2py dr turn"
ASK_AGAIN_S: Final = 1.0
T = TypeVar("T")


class TurnArguments(argparse.Namespace):
    """What follows ``dr turn`` on the command line."""

    file: Path
    flow: str
    off: bool
    force: bool
    timeout: int
    reason: str
    plan: bool
    yes: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> TurnArguments:
    """Read what follows ``dr turn`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr turn",
        "Turns a flow on that is standby. Where the flow back must not be on at the same time (identity policy), that "
        "one is turned off first, its workers drain it, and this flow begins behind what it has brought. Both clusters "
        "must answer; with --off only the one that the flow writes to. Exit codes: 0 turned, or it was so before; 1 a "
        "cluster did not answer, or workers had not drained in time: ask again; 2 wrong file or arguments, or neither "
        "a terminal to ask on nor --yes; 3 refused, or with --plan: something would change.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow that is turned on")
    parser.add_argument(
        "--off", action="store_true", help="turn this flow off instead, and leave the flow back as it is"
    )
    parser.add_argument(
        "--force", action="store_true", help="although the flow back has not copied all: the rest stays where it is"
    )
    parser.add_argument(
        "--timeout", type=number_up_to(3600, least=1), default=60, metavar="S", help="how long workers may drain; 60 s"
    )
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help=f"why: one line of at most {REASON_MOST} characters"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print what would be turned")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = parser.parse_args(arguments, namespace=TurnArguments())
    if found.off and found.force:
        parser.error("--force is for turning on")
    found.reason = checked_reason(found.reason)
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; a cluster does not answer, or refuses.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    return asyncio.run(TurnCommand(options, file, clock=SystemClock()).run(flow_of(file, options.flow)))


class TurnCommand:
    """One call of the command."""

    def __init__(
        self,
        options: TurnArguments,
        file: SettingsFile,
        *,
        clock: Clock,
        connect: Callable[[str, FlowSettings], AbstractAsyncContextManager[FlowSides]] = sides_of,
    ) -> None:
        self._options = options
        self._file = file
        self._author = author_here(options.reason)
        self._by = self._author.by_command(COMMAND)
        self._clock = clock
        self._connect = connect
        self._rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        self._said: list[str] = []
        self._needed: list[InquirySide] = []
        """The clusters that must answer, once for each flow."""

    async def run(self, by_file: FlowSettings) -> int:
        async with AsyncExitStack() as opened:
            flow = await self._read(by_file, opened)
            flow_back = None if self._options.off else flow.settings.flow_back
            back = None if flow_back is None else await self._read(flow_of(self._file, str(flow_back.flow)), opened)
            own, other = flow.known, None if back is None else back.known
            steps = self._steps(flow, own, back, other)
            if not self._options.off and own.stored is not None and is_by_failover(own.stored.by):
                clusters = {one.alias: one.brokers for one in self._needed}
                journal = await self._in_time(read_agreed(flow.settings.flow, clusters), DEADLINE_S)
                refuse_turn_on(own.stored, standing_entry(journal.entries), flow.settings.flow)
            self._say([f"{flow.settings.flow} is {own.text}."])
            if back is not None and other is not None:
                self._say([f"{back.settings.flow} is {other.text}."])
            self._say(steps or ["Nothing is to be changed."])
            if steps:
                self._say(one.text for one in recovery_users(self._file, by_file) if one.is_own)
            code: int | None = EXIT_DONE
            if steps:
                code = EXIT_CHANGES if self._options.plan else may_change(self._say_one, "Turn?", yes=self._options.yes)
            elif self._options.off and own.stored is not None and not self._options.plan:
                code = None  # it is off; whether its workers have drained is asked again
            turned = None
            if code is None:
                code, turned = await self._turn(flow, back, other)
            if self._options.json:
                starts = {} if turned is None else turned.starts
                left = {} if turned is None else turned.extras
                body = {
                    "format": 1,
                    "exit_code": code,
                    "flow": str(flow.settings.flow),
                    "before": own.text,
                    "steps": steps,
                    "now": None if turned is None else turned.direction.text,
                    "starts": {f"{name}-{number}": offset for (name, number), offset in sorted(starts.items())},
                    "left": {f"{name}-{number}": count for (name, number), count in sorted(left.items())},
                    "said": self._said,
                }
                write_out(json.dumps(body, indent=2) + "\n")
            return code

    async def _read(self, by_file: FlowSettings, opened: AsyncExitStack) -> TurnedFlow:
        sides = await opened.enter_async_context(self._connect("dr", as_recovery(self._file, by_file)))
        # A flow is turned off while its source is lost, so that it writes nothing when the source returns.
        needed = (sides.target,) if self._options.off else sides
        for side in needed:
            if side.away:
                raise CommandFailed(side.away, remedy="")
        if not self._needed:
            run = await standing_run(by_file.flow, sides, self._say_one)
            refuse_turn_beside(run, by_file.flow, self._clock.wall_ms())
        self._needed += needed
        reading = turned_flow(
            self._file,
            by_file,
            self._file.configuration().groups[by_file.flow.target],
            source=sides.source.brokers,
            target=sides.target.brokers,
            clock=self._clock,
            rng=self._rng,
        )
        return await self._in_time(reading, DEADLINE_S)

    def _steps(self, flow: TurnedFlow, own: Seen, back: TurnedFlow | None, other: Seen | None) -> list[str]:
        """Say what would be done, in order; nothing if the flow is as it shall be."""
        name = flow.settings.flow
        if self._options.off:
            return [f"{name} is turned off, and its workers drain it."] if own.claims else []
        if own.is_on and (other is None or not other.claims):
            return []
        first = []
        if back is not None and other is not None and other.claims:
            first = [f"{back.settings.flow} is turned off, and its workers drain it."]
        behind = f", and begins behind what {back.settings.flow} has brought" if back is not None else ""
        return [*first, f"{name} is turned on{behind}."]

    async def _turn(self, flow: TurnedFlow, back: TurnedFlow | None, other: Seen | None) -> tuple[int, Turned | None]:
        try:
            if self._options.off:
                turned = await self._off(flow)
                self._say([f"{flow.settings.flow} is {turned.direction.text}."])
                return EXIT_DONE, turned
            turned_off = back if other is not None and other.claims else None
            if turned_off is not None:
                await self._off(turned_off)
                self._say([f"{turned_off.settings.flow} is standby, and drained."])
            return await self._on(flow, back, turned_off)
        except Mm2Error as error:
            told = self._standing(flow, back)
            raise CommandFailed(f"{error.what} {told}".strip(), remedy=error.remedy) from error

    async def _off(self, flow: TurnedFlow) -> Turned:
        return await self._until_drained(lambda: turn_off(flow, by=self._by, author=self._author))

    async def _on(
        self, flow: TurnedFlow, back: TurnedFlow | None, turned_off: TurnedFlow | None
    ) -> tuple[int, Turned | None]:
        """Turn the flow on. If that is refused, turn the one on again that was turned off for it."""
        try:
            turned = await self._until_drained(
                lambda: turn_on(flow, back, by=self._by, author=self._author, force=self._options.force)
            )
        except TurnRefused as refused:
            self._say([str(refused)])
            if turned_off is not None:
                await self._undo(flow, turned_off)
            self._say(filter(None, [self._standing(flow, back)]))
            return EXIT_WAITS, None
        self._say([f"{flow.settings.flow} is {turned.direction.text}."])
        if turned.extras:
            count = sum(turned.extras.values())
            self._say([f"{count:,} records were left on {flow.settings.flow.target} alone."])
        await self._say_who_runs(flow)
        return EXIT_DONE, turned

    async def _say_who_runs(self, flow: TurnedFlow) -> None:
        """Say if no worker runs the flow: it is on, and copies nothing."""
        name = flow.settings.flow
        runs, why = serves(await flow.clusters.group.look(), name, self._clock.wall_ms())
        if not runs:
            start = f"mm2py {self._file.argument} --clusters {name.target}"
            self._say([f"note: no live worker is known to run {name}: {why.rstrip('.')}. Start one: {start}"])

    async def _undo(self, flow: TurnedFlow, back: TurnedFlow) -> None:
        """Turn the flow back on again, which this command has turned off.

        It was on a moment ago, and nothing has been copied since: so what ``flow`` has not copied is no reason to
        leave it off. The story: B has a topic of its own that B->A would copy too, if it were ever on.
        """
        try:
            again = await self._until_drained(lambda: turn_on(back, flow, by=self._by, author=self._author, force=True))
            self._say([f"{back.settings.flow} is {again.direction.text}, as before."])
        except Mm2Error as error:
            self._say([f"{back.settings.flow} stays standby: {error}"])

    def _standing(self, flow: TurnedFlow, back: TurnedFlow | None) -> str:
        """Return what is off by now and how to go on, by what was read last; empty if one of the flows is on."""
        pair = [one for one in (flow, back) if one is not None]
        if any(one.known.is_on for one in pair):
            return ""
        if self._options.off:
            return f"By now {flow.settings.flow} is {flow.known.text}: each worker stops it when it reads that."
        told = " and ".join(f"{one.settings.flow} is {one.known.text}" for one in pair)
        ways = " or ".join(f"mm2py dr turn {self._file.argument} '{one.settings.flow}'" for one in pair)
        return f"By now {told}: none is on. To turn one on: {ways}."

    async def _until_drained(self, turn: Callable[[], Awaitable[T]]) -> T:
        """Ask again while workers have not drained, until the time is over. Raises: as ``turn``, ``_in_time``."""
        until_s = self._clock.monotonic() + self._options.timeout

        async def ask() -> T:
            while True:
                try:
                    return await turn()
                except (StillRunning, TurnedMeanwhile):
                    if self._clock.monotonic() >= until_s:
                        raise
                await asyncio.sleep(ASK_AGAIN_S)

        return await self._in_time(ask(), self._options.timeout + DEADLINE_S)

    async def _in_time(self, work: Coroutine[Any, Any, T], most_s: float) -> T:
        """Return what ``work`` returns. It waits for clusters without end.

        Raises: CommandFailed, if it takes too long; it names the cluster that is silent. What was stored counts.
        """
        try:
            async with asyncio.timeout(most_s):
                return await work
        except TimeoutError as error:
            await asyncio.gather(*(side.probe() for side in self._needed))
            silent = dict.fromkeys(side.away for side in self._needed if side.away)
            why = " ".join(silent) or f"The clusters took more than {most_s:g} s to answer."
            raise CommandFailed(why, remedy="Ask again.") from error

    def _say_one(self, line: str) -> None:
        self._say([line])

    def _say(self, lines: Iterable[str]) -> None:
        told = [*lines]
        self._said += told
        if not self._options.json:
            say_lines(told)
