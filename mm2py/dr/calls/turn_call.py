"""One call of ``dr turn``: of two flows that lead back and forth, this one copies from now on, and not the other.

It turns the other flow off, waits until its workers have drained it, and turns this one on behind what the other has
brought. If this flow cannot be turned on, the other one is turned on again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mm2py.config.configuration import flow_of
from mm2py.config.settings import FlowSettings
from mm2py.connector_offsets.altering import StillRunning
from mm2py.connector_offsets.turning import Turned, TurnedFlow, TurnedMeanwhile, turn_off, turn_on, turned_flow
from mm2py.dr.calls.asking import FORMAT, CallOutcome, Decide, RecoveryAsked, RecoveryPlan
from mm2py.dr.credentials import as_recovery, recovery_users
from mm2py.dr.open_run import refuse_turn_beside
from mm2py.dr.readiness_inquiry import serves
from mm2py.dr.standing_run import standing_run
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow_sides import DEADLINE_S, ClusterFailed, FlowSides, sides_of
from mm2py.records.direction_record import is_by_failover
from mm2py.shared_settings.direction import TurnRefused
from mm2py.status.cluster_inquiry import InquirySide
from mm2py.status.exit_codes import EXIT_DONE, EXIT_WAITS

ASK_AGAIN_S: Final = 1.0
TIMEOUT_S: Final = 60
TIMEOUT_MOST_S: Final = 3600
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """What is asked for, beside the flow. Raises: ConfigError."""

    off: bool = False
    """The flow is turned off, and the flow back is left as it is."""
    force: bool = False
    """Although the flow back has not copied all: the rest stays where it is."""
    timeout_s: int = TIMEOUT_S
    """How long workers may take to drain a flow."""

    def __post_init__(self) -> None:
        if self.off and self.force:
            raise ConfigError("--force is for turning on.", remedy="Leave it out, or --off.")


class TurnCall:
    """One call."""

    def __init__(
        self,
        asked: RecoveryAsked,
        options: TurnOptions,
        *,
        connect: Callable[[str, FlowSettings], AbstractAsyncContextManager[FlowSides]] = sides_of,
    ) -> None:
        self._asked = asked
        self._options = options
        self._connect = connect
        self._by = asked.author.by_command(asked.command)
        self._said: list[str] = []
        self._needed: list[InquirySide] = []
        """The clusters that must answer, once for each flow."""

    async def run(self, decide: Decide) -> CallOutcome:
        """Do it, if that is decided.

        Raises:
            RunIsOpen: a run of ``mm2py dr`` turns the flows itself.
            ClusterFailed: a cluster does not answer, or workers have not drained in time. What was stored counts.
            Mm2Error: a cluster refuses.
        Cancelling may leave both flows off: the next call goes on.
        """
        asked, off = self._asked, self._options.off
        async with AsyncExitStack() as opened:
            flow = await self._read(flow_of(asked.file, asked.flow), opened)
            flow_back = None if off else flow.settings.flow_back
            back = None if flow_back is None else await self._read(flow_of(asked.file, str(flow_back.flow)), opened)
            plan = await self._plan(flow, back)
            code, turned = await decide(plan), None
            drains_again = off and flow.known.stored is not None  # it is off; whether its workers have drained is asked
            if code is None and plan.code is not None and not drains_again:
                code = plan.code
            if code is None:
                code, turned = await self._turn(flow, back)
            return CallOutcome(code, self._body(plan, code, turned))

    async def _read(self, by_file: FlowSettings, opened: AsyncExitStack) -> TurnedFlow:
        """Read the direction of a flow. Raises: RunIsOpen, ClusterFailed."""
        asked, off = self._asked, self._options.off
        sides = await opened.enter_async_context(self._connect("dr", as_recovery(asked.file, by_file)))
        # A flow is turned off while its source is lost, so that it writes nothing when the source returns.
        needed = (sides.target,) if off else sides
        for side in needed:
            if side.away:
                raise ClusterFailed(side.away, remedy="")
        is_first = not self._needed
        self._needed += needed
        reading = turned_flow(
            asked.file,
            by_file,
            asked.file.configuration().groups[by_file.flow.target],
            source=sides.source.brokers,
            target=sides.target.brokers,
            clock=asked.clock,
            rng=asked.rng,
        )
        found = await self._in_time(reading, DEADLINE_S)
        if is_first:
            stored = found.known.stored
            is_ended = stored is not None and not stored.is_on and is_by_failover(stored.by)
            run = await standing_run(by_file.flow, sides, self._said.append, must_tell=is_ended and not off)
            refuse_turn_beside(run, by_file.flow, asked.clock.wall_ms(), off=off)
        return found

    async def _plan(self, flow: TurnedFlow, back: TurnedFlow | None) -> RecoveryPlan:
        steps = self._steps(flow, back)
        pair = [one for one in (flow, back) if one is not None]
        told = [f"{one.settings.flow} is {one.known.text}." for one in pair]
        self._said += [*told, *(steps or ["Nothing is to be changed."])]
        if steps:
            settings = flow_of(self._asked.file, self._asked.flow)
            users = await asyncio.to_thread(recovery_users, self._asked.file, settings)
            self._said += [one.text for one in users if one.is_own]
        body = {
            "format": FORMAT,
            "exit_code": EXIT_DONE,
            "flow": str(flow.settings.flow),
            "before": flow.known.text,
            "steps": steps,
        }
        decided = {"told": told, "steps": steps, "options": [self._options.off, self._options.force]}
        code = None if steps else EXIT_DONE
        return RecoveryPlan([*self._said], {**body, **self._ended(None)}, decided, "Turn?", code)

    def _steps(self, flow: TurnedFlow, back: TurnedFlow | None) -> list[str]:
        """Say what would be done, in order; nothing if the flow is as it shall be."""
        name, own = flow.settings.flow, flow.known
        if self._options.off:
            return [f"{name} is turned off, and its workers drain it."] if own.claims else []
        if own.is_on and (back is None or not back.known.claims):
            return []
        if back is None:
            return [f"{name} is turned on."]
        last = f"{name} is turned on, and begins behind what {back.settings.flow} has brought."
        first = [f"{back.settings.flow} is turned off, and its workers drain it."] if back.known.claims else []
        return [*first, last]

    async def _turn(self, flow: TurnedFlow, back: TurnedFlow | None) -> tuple[int, Turned | None]:
        try:
            if self._options.off:
                turned = await self._off(flow)
                self._say(f"{flow.settings.flow} is {turned.direction.text}.")
                return EXIT_DONE, turned
            turned_off = back if back is not None and back.known.claims else None
            if turned_off is not None:
                await self._off(turned_off)
                self._say(f"{turned_off.settings.flow} is standby, and drained.")
            return await self._on(flow, back, turned_off)
        except Mm2Error as error:
            told = self._standing(flow, back)
            raise ClusterFailed(f"{error.what} {told}".strip(), remedy=error.remedy) from error

    async def _off(self, flow: TurnedFlow) -> Turned:
        return await self._until_drained(lambda: turn_off(flow, by=self._by, author=self._asked.author))

    async def _on(
        self, flow: TurnedFlow, back: TurnedFlow | None, turned_off: TurnedFlow | None
    ) -> tuple[int, Turned | None]:
        """Turn the flow on. If that is refused, turn the one on again that was turned off for it."""
        try:
            turned = await self._until_drained(
                lambda: turn_on(flow, back, by=self._by, author=self._asked.author, force=self._options.force)
            )
        except TurnRefused as refused:
            self._say(str(refused))
            if turned_off is not None:
                await self._undo(flow, turned_off)
            if standing := self._standing(flow, back):
                self._say(standing)
            return EXIT_WAITS, None
        self._say(f"{flow.settings.flow} is {turned.direction.text}.")
        if turned.extras:
            count = sum(turned.extras.values())
            self._say(f"{count:,} records were left on {flow.settings.flow.target} alone.")
        await self._say_who_runs(flow)
        return EXIT_DONE, turned

    async def _say_who_runs(self, flow: TurnedFlow) -> None:
        """Say if no worker runs the flow: it is on, and copies nothing."""
        name = flow.settings.flow
        runs, why = serves(await flow.clusters.group.look(), name, self._asked.clock.wall_ms())
        if not runs:
            start = f"mm2py {self._asked.file.argument} --clusters {name.target}"
            self._say(f"note: no live worker is known to run {name}: {why.rstrip('.')}. Start one: {start}")

    async def _undo(self, flow: TurnedFlow, back: TurnedFlow) -> None:
        """Turn the flow back on again, which this call has turned off.

        It was on a moment ago, and nothing has been copied since: so what ``flow`` has not copied is no reason to
        leave it off. The story: B has a topic of its own that B->A would copy too, if it were ever on.
        """
        author = self._asked.author
        try:
            again = await self._until_drained(lambda: turn_on(back, flow, by=self._by, author=author, force=True))
            self._say(f"{back.settings.flow} is {again.direction.text}, as before.")
        except Mm2Error as error:
            self._say(f"{back.settings.flow} stays standby: {error}")

    def _standing(self, flow: TurnedFlow, back: TurnedFlow | None) -> str:
        """Return what is off by now and how to go on, by what was read last; empty if one of the flows is on."""
        pair = [one for one in (flow, back) if one is not None]
        if any(one.known.is_on for one in pair):
            return ""
        if self._options.off:
            return f"By now {flow.settings.flow} is {flow.known.text}: each worker stops it when it reads that."
        told = " and ".join(f"{one.settings.flow} is {one.known.text}" for one in pair)
        ways = " or ".join(f"mm2py dr turn {self._asked.file.argument} '{one.settings.flow}'" for one in pair)
        return f"By now {told}: none is on. To turn one on: {ways}."

    async def _until_drained(self, turn: Callable[[], Awaitable[T]]) -> T:
        """Ask again while workers have not drained, until the time is over. Raises: as ``turn``, ``_in_time``."""
        clock, most_s = self._asked.clock, self._options.timeout_s
        until_s = clock.monotonic() + most_s

        async def ask() -> T:
            while True:
                try:
                    return await turn()
                except (StillRunning, TurnedMeanwhile):
                    if clock.monotonic() >= until_s:
                        raise
                await asyncio.sleep(ASK_AGAIN_S)

        return await self._in_time(ask(), most_s + DEADLINE_S)

    async def _in_time(self, work: Coroutine[Any, Any, T], most_s: float) -> T:
        """Return what ``work`` returns. It waits for clusters without end.

        Raises: ClusterFailed, if it takes too long; it names the cluster that is silent. What was stored counts.
        """
        try:
            async with asyncio.timeout(most_s):
                return await work
        except TimeoutError as error:
            await asyncio.gather(*(side.probe() for side in self._needed))
            silent = dict.fromkeys(side.away for side in self._needed if side.away)
            why = " ".join(silent) or f"The clusters took more than {most_s:g} s to answer."
            raise ClusterFailed(why, remedy="Ask again.") from error

    def _say(self, line: str) -> None:
        self._said.append(line)
        self._asked.say(line)

    def _body(self, plan: RecoveryPlan, code: int, turned: Turned | None) -> dict[str, Any]:
        return {**plan.body, "exit_code": code, **self._ended(turned)}

    def _ended(self, turned: Turned | None) -> dict[str, Any]:
        starts = {} if turned is None else turned.starts
        left = {} if turned is None else turned.extras
        return {
            "now": None if turned is None else turned.direction.text,
            "starts": {f"{name}-{number}": offset for (name, number), offset in sorted(starts.items())},
            "left": {f"{name}-{number}": count for (name, number), count in sorted(left.items())},
            "said": [*self._said],
        }
