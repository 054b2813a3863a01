"""What both clusters say of all flows, kept fresh while anybody asks. Any worker's REST process says the same.

Answers to the herder's copy of the status topic in Connect, which only knows what workers have written there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mm2py.clock import Clock
from mm2py.status.facts import Facts
from mm2py.status.report import Report, report_of

FRESH_S: Final = 2.0
"""What is answered was asked of the clusters at most so long ago, if they answer in time."""
PAUSE_S: Final = 0.8
"""Between two looks."""
ASKED_S: Final = 30.0
"""Looks go on for so long after the last request; then the next request starts them again."""
PATIENCE_S: Final = 3.0
"""A request waits so long for a fresh look, then it gets the last one, and longer only for the very first."""
FIRST_S: Final = 15.0


class NothingKnown(Exception):
    """The clusters have not told anything yet."""


@dataclass(frozen=True, slots=True)
class View:
    """What was found by one look."""

    begun_s: float
    """When it began, by the clock of the event loop."""
    facts: Facts
    report: Report


class LiveReport:
    """Looks at the clusters as long as somebody asks. ``run`` it."""

    def __init__(self, look: Callable[[], Awaitable[Facts]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._asked_s = float("-inf")
        self._asked = asyncio.Event()
        self._view: View | None = None
        self._news = asyncio.Condition()
        self._wanted_s = float("-inf")

    async def run(self) -> None:
        """Look again and again, while there are requests."""
        while True:
            if self._clock.monotonic() - self._asked_s > ASKED_S:
                self._asked.clear()
                await self._asked.wait()
            begun_s = self._clock.monotonic()
            facts = await self._look()
            self._view = View(begun_s, facts, await asyncio.to_thread(report_of, facts))  # nothing changes them now
            async with self._news:
                self._news.notify_all()
            if self._wanted_s <= begun_s:  # else a change was made meanwhile, and somebody waits to see it
                self._asked.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        while self._wanted_s <= begun_s:
                            self._asked.clear()
                            await self._asked.wait()

    async def view(self, *, since_s: float | None = None) -> View:
        """Return what is known, at most ``FRESH_S`` old if the clusters answer in time.

        Args:
            since_s: by the clock: what was changed then has to be seen.
        Raises:
            NothingKnown: no look has come back yet.
        """
        now_s = self._clock.monotonic()
        self._asked_s = now_s
        least_s = now_s - FRESH_S if since_s is None else since_s
        if self._view is not None and self._view.begun_s >= least_s:
            return self._view
        self._wanted_s = max(self._wanted_s, least_s if since_s is not None else float("-inf"))
        self._asked.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S if self._view is None else PATIENCE_S), self._news:
                await self._news.wait_for(lambda: self._view is not None and self._view.begun_s >= least_s)
        if self._view is None:
            raise NothingKnown(f"The clusters have not answered within {FIRST_S:g} s.")
        return self._view

    async def report(self) -> Report:
        """Raises: as ``view``."""
        return (await self.view()).report
