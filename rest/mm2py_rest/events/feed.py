"""Follows all topics that events come from, once for all streams, and keeps the last events.

A stream is a place in the kept events, so a slow client costs no memory. If it is too slow, it gets an event which says
that some were missed. Reading stops a while after the last client has left.
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
"""Pause after a topic could not be read."""
LISTEN_S: Final = 600.0
"""Reading continues for this long after the last stream has ended: its client may come back."""
OPEN_MOST_S: Final = 5.0
"""A stream waits this long for all topics to be read once."""
ALIVE_S: Final = 15.0
"""After this long without an event a stream sends a sign of life."""
RETRY_MS: Final = 2000
"""How long a client waits before it comes back."""
ENDED: Final = ": ended, as this user may not listen any more\n\n"


MayGoOn = Callable[[], Awaitable[bool]]
"""Returns whether a caller may still listen."""


class TooManyStreams(Exception):
    """This process serves ``STREAMS_MOST`` streams already."""


class Source(Protocol):
    """A topic that events come from."""

    name: str

    @property
    def positions(self) -> Mapping[str, int]:
        """The next offset to read of each partition, by ``key_of``."""
        ...

    @property
    def begins(self) -> Mapping[str, int]:
        """The offset at which reading each partition began; earlier events are not known."""
        ...

    async def poll(self) -> Sequence[Happened]:
        """Return the new events. Raises: Mm2Error. Cancelling, or an error, loses none."""
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
        """The offset after the last event that was dropped, by partition."""
        self._dropped_ms = -1
        """The latest time of a dropped event."""
        self._unread: dict[str, str] = {source.name: "it was not read yet" for source in sources}
        self._opened: set[str] = set()
        self._listening = asyncio.Event()
        self._left_s = float("-inf")
        self._news = asyncio.Condition()
        self._is_closed = False

    async def run(self) -> None:
        """Read until cancelled. A source that does not answer delays no other."""
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                tasks.create_task(self._follow(source), name=f"events of {source.name}")
            await asyncio.Event().wait()  # needed where there is no flow, and so no source

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
            if happened or source.name not in self._opened:  # else there is no reason to wake all streams
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
        """The next offset to read of all partitions. All events before it are kept, or were dropped."""
        return {key: offset for source in self._sources for key, offset in source.positions.items()}

    def _misses(self, since: Cursor) -> bool:
        """Whether there may have been events after a cursor that are not kept."""
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
            since: the place after the last event that the caller has seen; None: only what happens from now on.
            flow: only events of this flow, of groups, and of calls that name no flow.
            may_go_on: called before each part that is sent, at least every ``ALIVE_S``; False ends the stream.
            from_ms: without ``since``: begin with the events of this time and later that the topics still have. Older
                events that are there already are left out.
        Raises:
            TooManyStreams: raised by this call, and not when the stream is read.
        """
        if self.streams >= STREAMS_MOST:
            raise TooManyStreams
        return _Stream(self, self._told(since, flow, may_go_on, from_ms))

    def _cursor_at(self, from_ms: int) -> dict[str, int]:
        """Return the place before the first kept event of each partition at ``from_ms`` or later."""
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
        if self._unread:  # a client that gets no event now must not take that for none
            yield self._alive(cursor)
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
        """Wait for an event, or for the end of the feed. Returns False if neither comes within ``alive_s``."""
        try:
            async with asyncio.timeout(self._alive_s), self._news:
                await self._news.wait_for(lambda: self._is_closed or self._first + len(self._kept) > number)
        except TimeoutError:
            return self._first + len(self._kept) > number
        return True

    def _from(self, number: int) -> Iterator[Happened]:
        """Return the kept events from this number on; at most 100, so that other streams get their turn."""
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
    """A stream of the feed, counted until it is closed."""

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
    """Return the text of a server-sent event."""
    return f"id: {written(cursor)}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n"
