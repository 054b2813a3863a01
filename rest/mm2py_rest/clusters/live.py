"""What both clusters report of all flows, kept fresh while there are requests. It is the same for all workers.

Counterpart: the herder's copy of the status topic in Connect, which only knows what workers have written there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mm2py.clock import Clock
from mm2py.flow import Flow
from mm2py.status.facts import Facts, FlowFacts
from mm2py.status.report import Report, report_of

FRESH_S: Final = 2.0
"""Largest age of an answer, if the clusters answer in time."""
SPARE_S: Final = 0.6
"""A look begins at least this long before the last one is too old. If it takes no longer, no request waits for it."""
RECENT_LOOKS: Final = 10
"""The next look is expected to take as long as the longest of this many; it begins twice as long before."""
PAUSE_S: Final = 1.4
"""Pause after a failed look."""
ASKED_S: Final = 30.0
"""Looks continue for this long after the last request; then the next request starts them again."""
PATIENCE_S: Final = 2.0
"""A request waits this long for a fresh look, then it gets the last one. It waits ``FIRST_S`` if that is too old."""
OLD_S: Final = 10.0
"""An older look is used only after waiting ``FIRST_S`` for a fresh one."""
PAUSE_MOST_S: Final = 5.0
FIRST_S: Final = 15.0
LOOK_MOST_S: Final = 60.0
"""A look that takes longer is given up. The next one reads the rest."""


class NothingKnown(Exception):
    """The clusters have not answered yet."""


@dataclass(frozen=True, slots=True)
class View:
    """What one look has found."""

    begun_s: float
    """When the look began, by the clock of the event loop."""
    facts: Facts
    report: Report
    before: Facts | None = None
    """What the look before found."""

    def flow(self, flow: Flow) -> FlowFacts | None:
        """Return what was found of one flow; None: it is refused, or no flow of the file."""
        return next((one for one in self.facts.flows if one.settings.flow == flow), None)


async def _in_a_thread(facts: Facts) -> Report:
    """Make the report in a thread: 10,000 partitions take noticeably long. Nothing changes the facts any more."""
    return await asyncio.to_thread(report_of, facts)


class LiveReport:
    """Looks at the clusters as long as there are requests. ``run`` it."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Facts]],
        clock: Clock,
        report_failure: Callable[[str], None],
        *,
        make: Callable[[Facts], Awaitable[Report]] = _in_a_thread,
    ) -> None:
        """``report_failure`` gets the reason of each failed look; another look follows. ``make`` makes the report."""
        self._look = look
        self._clock = clock
        self._report_failure = report_failure
        self._make = make
        self._asked_s = float("-inf")
        self._asked = asyncio.Event()
        self._changed_s = float("-inf")
        self._view: View | None = None
        self._news = asyncio.Condition()
        self._looking = asyncio.Lock()
        """Held during a look: looks do not overlap."""
        self._took_s: deque[float] = deque(maxlen=RECENT_LOOKS)

    async def run(self) -> None:
        """Look again and again, while there are requests. A look that fails or hangs is followed by another one."""
        while True:
            while self._clock.monotonic() - self._asked_s > ASKED_S:
                self._asked.clear()
                await self._asked.wait()
            begun_s = self._clock.monotonic()
            async with self._looking:
                has_looked = await self._look_once(begun_s)
            if has_looked:
                self._took_s.append(self._clock.monotonic() - begun_s)
                await self._pause(begun_s)
            else:
                await asyncio.sleep(PAUSE_S)

    async def _look_once(self, begun_s: float) -> bool:
        """Look at the clusters. Returns False, and reports it, if that fails."""
        try:
            async with asyncio.timeout(LOOK_MOST_S):
                facts = await self._look()
            before = None if self._view is None else self._view.facts
            self._view = View(begun_s, facts, await self._make(facts), before)
        except Exception as error:  # whatever it is, REST has more to serve than this
            hangs = isinstance(error, TimeoutError)
            why = f"no answer within {LOOK_MOST_S:g} s" if hangs else f"{type(error).__name__}: {error}"
            self._report_failure(why)
            return False
        async with self._news:
            self._news.notify_all()
        return True

    async def glance(self) -> View | None:
        """Return a view that is at most ``FRESH_S`` old; None: the look failed. Looks do not go on because of it."""
        async with self._looking:
            begun_s = self._clock.monotonic()
            if self._view is not None and begun_s - self._view.begun_s <= FRESH_S:
                return self._view
            return self._view if await self._look_once(begun_s) else None

    async def within(self, age_s: float, *, patience_s: float) -> View | None:
        """Return a view that is at most ``age_s`` old; None: there was none, and a look takes longer than the patience.

        Looks do not go on because of it.
        """
        if self._view is not None and self._clock.monotonic() - self._view.begun_s <= age_s:
            return self._view
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                return await self.glance()
        return None

    async def _pause(self, begun_s: float) -> None:
        """Wait before the next look, but not if a request asks for a change that was made since the last look.

        Without changes, at most half of the time is spent on looks.
        """
        took_s = self._took_s[-1]
        ahead_s = max(SPARE_S, 2 * max(self._took_s))
        pause_s = max(took_s, FRESH_S - ahead_s - took_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(pause_s, PAUSE_MOST_S)):
                while self._changed_s < begun_s or self._asked_s < self._changed_s:
                    self._asked.clear()
                    await self._asked.wait()

    def changed(self) -> None:
        """Note that something was changed: later requests see it."""
        self._changed_s = self._clock.monotonic()

    async def view(self) -> View:
        """Return the last look. If the clusters answer in time, it is at most ``FRESH_S`` old and has all changes.

        Raises:
            NothingKnown: no look has succeeded yet.
        """
        self._asked_s = self._clock.monotonic()
        least_s = max(self._asked_s - FRESH_S, self._changed_s)
        if self._view is not None and self._view.begun_s >= least_s:
            return self._view
        self._asked.set()
        is_old = self._view is None or self._asked_s - self._view.begun_s > OLD_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S if is_old else PATIENCE_S), self._news:
                await self._news.wait_for(lambda: self._view is not None and self._view.begun_s >= least_s)
        if self._view is None:
            raise NothingKnown(f"The clusters have not answered within {FIRST_S:g} s.")
        return self._view

    async def report(self) -> Report:
        """Return the report of ``view``. Raises: as ``view``."""
        return (await self.view()).report
