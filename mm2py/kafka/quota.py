"""What a broker's quotas ask of one connection: after a reply that says so, the broker reads nothing for a while.

Answers to NetworkClient.maybeThrottle and InFlightRequests.incrementThrottleTime of Apache Kafka's
clients (KIP-219). What is sent meanwhile lies unread at the broker; its time-out must not count that while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Quota:
    """The pauses of one connection."""

    def __init__(self, closed: asyncio.Future[None]) -> None:
        """``closed`` is done when the connection is; nobody waits any longer then."""
        self._closed = closed
        self._until_s = 0.0
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._deadlines: set[asyncio.Timeout] = set()

    async def wait(self) -> None:
        """Return when the broker reads again. Callers return in the order in which they came: requests keep theirs.

        The story: five batches of one partition wait for the same moment. Timers that are due together fire in any
        order, and the broker would refuse the second batch because the first is missing.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting and self._until_s <= loop.time():
            return
        self._waiting += 1
        try:
            async with self._turn:
                while not self._closed.done() and (left_s := self._until_s - loop.time()) > 0:
                    await asyncio.wait([self._closed], timeout=left_s)
        finally:
            self._waiting -= 1

    @contextmanager
    def counted(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Let the deadline of a request that was sent move with every pause, until the block ends."""
        self._deadlines.add(deadline)
        try:
            yield
        finally:
            self._deadlines.discard(deadline)

    def told(self, pause_s: float) -> None:
        """A reply names a pause, 0 if there is none."""
        if pause_s <= 0:
            return
        self._until_s = max(self._until_s, asyncio.get_running_loop().time() + pause_s)
        for deadline in self._deadlines:
            at_s = deadline.when()
            if at_s is not None and not deadline.expired():
                deadline.reschedule(at_s + pause_s)
