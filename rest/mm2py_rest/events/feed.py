"""Reads on in all topics that events come from, once for all streams, and keeps the last events.

A stream is a place in the kept events, so a slow caller costs no memory: if it falls too far behind, it is told that it
has missed some. Nothing is read while no client listens, and for a while after that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from mm2py.clock import Clock, SystemClock
from mm2py.errors import Mm2Error
from mm2py_rest.events.event import Cursor, Event, EventKind, Happened, written

STREAMS_MOST: Final = 30
KEPT_MOST: Final = 5000
"""Events, about 1 KB each."""
POLL_S: Final = 1.0
POLL_MOST_S: Final = 20.0
AGAIN_S: Final = 5.0
"""After a topic could not be read."""
LISTEN_S: Final = 600.0
"""Reading goes on for so long after the last stream has ended: it may come back."""
OPEN_MOST_S: Final = 5.0
"""A stream waits so long for all topics to be read once."""
ALIVE_S: Final = 15.0
"""After so long without an event a stream says that it is alive."""
RETRY_MS: Final = 2000
"""How long a client waits before it comes back."""
ENDED: Final = ": ended, as this user may not listen any more\n\n"


MayGoOn = Callable[[], Awaitable[bool]]
"""Tells whether a caller may still listen."""


class TooManyStreams(Exception):
    """There are as many streams as this process serves."""


class Source(Protocol):
    """A topic that events come from."""

    name: str

    @property
    def positions(self) -> Mapping[str, int]:
        """How far its partitions were read."""
        ...

    @property
    def begins(self) -> Mapping[str, int]:
        """Where reading them began; earlier events are not known."""
        ...

    async def poll(self) -> Sequence[Happened]:
        """Return what is new. Raises: Mm2Error. Cancelling, or an error, loses nothing."""
        ...


class EventFeed:
    """The last events of all sources. ``run`` it."""

    def __init__(self, sources: Sequence[Source] = (), clock: Clock | None = None, *, alive_s: float = ALIVE_S) -> None:
        self.streams = 0
        self._sources = sources
        self._clock = clock or SystemClock()
        self._alive_s = alive_s
        self._kept: deque[Happened] = deque()
        self._first = 0
        """The number of the first event in ``_kept``."""
        self._dropped: dict[str, int] = {}
        """Behind the last event that is not kept any more, by partition."""
        self._dropped_ms = -1
        """The latest time of those."""
        self._unread: dict[str, str] = {source.name: "it was not read yet" for source in sources}
        self._opened: set[str] = set()
        self._listening = asyncio.Event()
        self._left_s = float("-inf")
        self._news = asyncio.Condition()
        self._is_closed = False

    async def run(self) -> None:
        """Read until cancelled. A source that does not answer holds no other up."""
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                tasks.create_task(self._follow(source), name=f"events of {source.name}")
            await asyncio.Event().wait()  # also where there is no flow, and so no source

    async def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        async with self._news:
            self._news.notify_all()

    async def _follow(self, source: Source) -> None:
        while True:
            if not self.streams and self._clock.monotonic() - self._left_s > LISTEN_S:
                self._listening.clear()
            await self._listening.wait()
            try:
                async with asyncio.timeout(POLL_MOST_S):
                    happened = await source.poll()
            except (Mm2Error, TimeoutError) as error:
                self._unread[source.name] = str(error) or f"it was not read within {POLL_MOST_S:g} s"
                await asyncio.sleep(AGAIN_S)
                continue
            self._unread.pop(source.name, None)
            if happened or source.name not in self._opened:  # else there is nothing to wake all streams for
                self._opened.add(source.name)
                async with self._news:
                    for one in happened:
                        self._keep(one)
                    self._news.notify_all()
            await asyncio.sleep(POLL_S)

    def _keep(self, one: Happened) -> None:
        self._kept.append(one)
        if len(self._kept) > KEPT_MOST:
            gone = self._kept.popleft()
            self._dropped[gone.key] = gone.offset + 1
            self._dropped_ms = max(self._dropped_ms, gone.event.at_ms)
            self._first += 1

    @property
    def positions(self) -> dict[str, int]:
        """How far all partitions were read; all their events are kept, or were."""
        return {key: offset for source in self._sources for key, offset in source.positions.items()}

    def _misses(self, since: Cursor) -> bool:
        """Whether there may have been events behind a cursor that are not kept."""
        begins = {key: offset for source in self._sources for key, offset in source.begins.items()}
        return any(max(begins.get(key, 0), self._dropped.get(key, 0)) > offset for key, offset in since.items())

    def stream(
        self,
        since: Cursor | None,
        flow: str | None = None,
        may_go_on: MayGoOn | None = None,
        *,
        from_ms: int | None = None,
    ) -> AsyncIterator[str]:
        """Return a stream of server-sent events.

        Args:
            since: the place behind the last event that the caller has seen; None: only what happens from now on.
            flow: only events of this flow, of groups, and of calls that name no flow.
            may_go_on: asked before each part that is sent, at least every ``ALIVE_S``; if not, the stream ends.
            from_ms: without ``since``: begin with what the topics still have of that time and later. Of what is there
                already, nothing older is told.
        Raises:
            TooManyStreams: now, and not when the stream is read.
        """
        if self.streams >= STREAMS_MOST:
            raise TooManyStreams
        return _Stream(self, self._told(since, flow, may_go_on, from_ms))

    def _cursor_at(self, from_ms: int) -> dict[str, int]:
        """Return the place before the first event of each partition that is as late as that."""
        cursor = self.positions
        for one in self._kept:
            if one.event.at_ms >= from_ms:
                cursor[one.key] = min(cursor.get(one.key, one.offset), one.offset)
        return cursor

    async def _told(
        self, since: Cursor | None, flow: str | None, may_go_on: MayGoOn | None, from_ms: int | None
    ) -> AsyncIterator[str]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPEN_MOST_S), self._news:
                await self._news.wait_for(lambda: len(self._opened) == len(self._sources))
        end = self._first + len(self._kept)
        is_missing = since is not None and self._misses(since)
        if since is None and from_ms is not None:
            since = self._cursor_at(from_ms)
            is_missing = self._dropped_ms >= from_ms
        cursor = {**self.positions, **(since or {})}
        number = end if since is None else self._first
        yield f"retry: {RETRY_MS}\nid: {written(cursor)}\n\n"
        if is_missing:
            yield self._missed(cursor)
        while not self._is_closed:
            if may_go_on is not None and not await may_go_on():
                yield ENDED
                return
            if number < self._first:
                number = self._first
                yield self._missed(cursor)
            for one in self._from(number):
                number += 1
                is_known = one.is_old or number <= end
                if is_known and one.offset < cursor.get(one.key, 1 << 63):
                    continue
                cursor[one.key] = one.offset + 1
                if is_known and from_ms is not None and one.event.at_ms < from_ms:
                    continue
                if flow is None or one.event.flow in (None, flow):
                    yield told(one.event, cursor)
            if not await self._has(number):
                cursor.update(self.positions)
                yield self._alive(cursor)

    async def _has(self, number: int) -> bool:
        """Wait for an event, or for the end of the feed. Returns False if there is none for a while."""
        try:
            async with asyncio.timeout(self._alive_s), self._news:
                await self._news.wait_for(lambda: self._is_closed or self._first + len(self._kept) > number)
        except TimeoutError:
            return self._first + len(self._kept) > number
        return True

    def _from(self, number: int) -> Iterator[Happened]:
        """Return the events from one on that are kept now; at most so many that others get their turn."""
        begin = max(0, number - self._first)
        return iter([self._kept[at] for at in range(begin, min(begin + 100, len(self._kept)))])

    def _alive(self, cursor: Cursor) -> str:
        unread = "".join(f"; {name} cannot be read: {why}" for name, why in self._unread.items())
        return f": alive{' '.join(unread.splitlines())}\nid: {written(cursor)}\n\n"

    def _missed(self, cursor: Cursor) -> str:
        text = "Events may be missing here. Ask /v1/status for how things stand."
        return told(Event(kind=EventKind.EVENTS_MISSED, at_ms=self._clock.wall_ms(), text=text, data={}), cursor)

    def enter(self) -> None:
        self.streams += 1
        self._listening.set()

    def leave(self) -> None:
        self.streams -= 1
        self._left_s = self._clock.monotonic()


class _Stream(AsyncIterator[str]):
    """Counts as long as it is read."""

    def __init__(self, feed: EventFeed, told: AsyncIterator[str]) -> None:
        self._feed = feed
        self._told = told
        feed.enter()
        self._is_open = True

    async def __anext__(self) -> str:
        try:
            return await anext(self._told)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._feed.leave()

    def __del__(self) -> None:
        self.close()


def told(event: Event, cursor: Cursor) -> str:
    """Return an event as it is sent."""
    return f"id: {written(cursor)}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
