"""Follows the history of one flow, and writes it while this process's worker coordinates the flow.

Every ten seconds it reads what was written. The REST process of the coordinator then looks at both clusters, as for any
request, and writes a point, the minutes that are over, and the events of the last seconds. The worker itself, which
copies, only says that it is the coordinator; it is asked again just before the write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.flow_history.changes import changes_of
from mm2py.flow_history.rings import DAY_MS, HOUR_MS, FreshEvent
from mm2py.flow_history.sampling import SampledLook, values_of
from mm2py.logs import Trouble
from mm2py.records.flow_history_record import FINE_S, HistoryPoint, HistoryRecord
from mm2py_rest.clusters.live import View
from mm2py_rest.events.event import EventKind, Happened
from mm2py_rest.events.feed import Source
from mm2py_rest.history.log import HistoryLog
from mm2py_rest.worker_link import WorkerSilent

WITHIN_STEP_S: Final = 2.0
"""How long after the beginning of a step its point is made: a clock that is corrected a little leaves none out."""
OVERLAP_MS: Final = 60_000
"""A new coordinator reads events from this long before the last point on."""
POLL_MOST_S: Final = 5.0
WAITING_MOST: Final = 5_000
"""How many events wait at most while the history cannot be written."""
KINDS: Final = frozenset(EventKind) - {
    EventKind.AUDIT,
    EventKind.LOG_LEVEL,
    EventKind.ASSIGNMENT_CHANGED,
    EventKind.EVENTS_MISSED,
}
"""What happens to a flow. Calls over REST that change something are told by what they change."""

Coordinated = Callable[[], Awaitable[frozenset[Flow]]]
"""Asks the worker which flows it coordinates. Raises: WorkerSilent."""
Glance = Callable[[], Awaitable[View | None]]
"""See ``LiveReport.glance``."""
MakeSources = Callable[[int], Sequence[Source]]
"""Makes the topics that a flow's events come from; the number is the time, in ms, from which on events are wanted."""


class HistoryDefect(Mm2Error):
    """What must not happen has happened."""

    def __init__(self, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        super().__init__(f"The history failed with {why}.", remedy="This is a defect in mm2py; please report it.")


class _NewEvents:
    """The events that this coordinator has read and not written yet."""

    def __init__(self, sources: Sequence[Source], since_ms: int) -> None:
        self.waiting: deque[FreshEvent] = deque(maxlen=WAITING_MOST)
        self.unread: Mm2Error | None = None
        """Why a topic could not be read the last time."""
        self._sources = sources
        self._since_ms = since_ms

    async def poll(self) -> None:
        """Read all topics. One that cannot be read keeps nothing else from being told."""
        self.unread = None
        for found in await asyncio.gather(*map(self._polled, self._sources)):
            self.waiting += found

    async def _polled(self, source: Source) -> list[FreshEvent]:
        try:
            async with asyncio.timeout(POLL_MOST_S):
                happened = await source.poll()
        except Mm2Error as error:
            self.unread = error
            return []
        except TimeoutError:
            return []  # what was read so far is told the next time
        return [
            FreshEvent(one.event.at_ms, str(one.event.kind), one.event.text, _place_of(one))
            for one in happened
            if one.event.kind in KINDS and one.event.at_ms >= self._since_ms
        ]


def _place_of(one: Happened) -> str:
    """Return where an event stands; with its time, as a topic that is made anew has the same offsets again."""
    return f"{one.key}:{one.offset}:{one.event.at_ms}"


class HistoryKeeper:
    """Keeps the history of one flow. ``run`` it."""

    def __init__(
        self,
        history: HistoryLog,
        coordinated: Coordinated,
        glance: Glance,
        sources: MakeSources,
        *,
        worker: str,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        """``worker``: the name of this process's worker."""
        self._log = history
        self._flow = history.settings.flow
        self._coordinated = coordinated
        self._glance = glance
        self._make_sources = sources
        self._worker = worker
        self._clock = clock
        self._events: _NewEvents | None = None
        self._before: SampledLook | None = None
        log = log.bind(flow=str(self._flow))
        effect = "REST shows a gap in the history of the flow; its topic needs CREATE, READ and WRITE"
        self._trouble = Trouble("history", clock=clock, log=log, effect=effect)
        effect = "the history of the flow lacks events; its user needs READ on the topic"
        self._events_trouble = Trouble("history_events", clock=clock, log=log, effect=effect)

    async def run(self) -> None:
        """Follow and write until cancelled. Cancelling may lose one point."""
        while True:
            await asyncio.sleep(self._until_next_s())
            try:
                await self._step(self._clock.wall_ms())
            except WorkerSilent:
                continue  # its health says so
            except Mm2Error as error:
                self._trouble.note(error)
            except Exception as error:  # whatever it is, REST has more to serve than this
                self._trouble.note(HistoryDefect(error), at_once=True)
            else:
                self._trouble.over()

    def _until_next_s(self) -> float:
        step_ms = FINE_S * 1000
        return (step_ms - (self._clock.wall_ms() - WITHIN_STEP_S * 1000) % step_ms) / 1000

    async def _step(self, now_ms: int) -> None:
        """Read what was written; if the worker coordinates the flow, write what is new.

        Raises: Mm2Error, WorkerSilent.
        """
        await self._log.read()
        if self._flow not in await self._coordinated():
            self._events = self._before = None
            self._log.unwritten = ""
            return
        view = await self._glance()
        facts = None if view is None else view.flow(self._flow)
        report = None if view is None else next((one for one in view.report.flows if one.flow == self._flow), None)
        if view is None or facts is None or report is None:
            return
        look, before = SampledLook(view.facts.at_ms, facts, report), self._before
        self._before = look
        if self._events is None:
            since_ms = self._events_since_ms(now_ms)
            self._events = _NewEvents(self._make_sources(since_ms), since_ms)
        await self._events.poll()
        if self._events.unread is None:
            self._events_trouble.over()
        else:
            self._events_trouble.note(self._events.unread)
        history = self._log.history
        values = await asyncio.to_thread(values_of, look, before)  # 10,000 partitions take 20 ms
        records: list[HistoryRecord] = [HistoryPoint(now_ms, FINE_S, self._worker, values)]
        records += history.minutes_due(now_ms, self._worker)
        records += history.events_due([*self._events.waiting, *changes_of(history, before, look)], now_ms)
        if self._flow in await self._coordinated():
            await self._log.write(records, now_ms)
            self._events.waiting.clear()

    def _events_since_ms(self, now_ms: int) -> int:
        """Return from when on events may be missing: from shortly before the last point that a coordinator wrote."""
        newest_ms = self._log.history.newest_ms
        if newest_ms is None:
            return now_ms - HOUR_MS
        return max(min(newest_ms, now_ms) - OVERLAP_MS, now_ms - DAY_MS)
