"""How much memory fetched records may take, in one worker over all flows.

``memory.max.bytes`` counts frames from the moment they are asked for until the last batch in them is acknowledged, and
batches that were rebuilt beside them. Whoever asks for more than is free waits: reading stops, and so the source's disk
is the buffer. A frame may come out larger than was reserved (Kafka sends a first batch whole, whatever its size); the
others then wait until that is made good.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

TAIL_READS: Final = 3
"""Reads of one lane that may wait at the same time: who reaches the end of its log need not wait for the others."""
TAIL_BYTES_MOST: Final = 1 << 20
TAIL_BYTES_LEAST: Final = 64 << 10
BACKLOG_BYTES_MOST: Final = 8 << 20


class MemoryBudget:
    """Bytes that may be held; waiters are served in the order they came."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.peak_bytes = 0
        self.lanes = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def tail_bytes(self) -> int:
        """How much one read that waits at the end of a log may ask for: all of them together a quarter of the limit."""
        fair = self.limit_bytes // (4 * TAIL_READS * max(1, self.lanes))
        return max(TAIL_BYTES_LEAST, min(TAIL_BYTES_MOST, fair))

    def backlog_bytes(self) -> int:
        """How much one read of a backlog may ask for."""
        return max(TAIL_BYTES_LEAST, min(BACKLOG_BYTES_MOST, self.limit_bytes // 8))

    async def reserve(self, size: int) -> None:
        """Wait until ``size`` bytes are free, and take them. Cancelling takes nothing."""
        if not self._waiters and self._fits(size):
            self.take(size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (size, turn)
        self._waiters.append(waiter)
        try:
            await turn
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if turn.done() and not turn.cancelled():  # served in the same moment
                self.give_back(size)
            self._serve()
            raise

    def take(self, size: int) -> None:
        """Take bytes that are there already; the limit may be passed by them."""
        self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def give_back(self, size: int) -> None:
        self.held_bytes -= size
        if self.held_bytes < 0:
            raise AssertionError("more memory was given back than taken")
        self._serve()

    def _fits(self, size: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size <= self.limit_bytes

    def _serve(self) -> None:
        while self._waiters and self._fits(self._waiters[0][0]):
            size, turn = self._waiters.popleft()
            if not turn.done():
                self.take(size)
                turn.set_result(None)


class FrameLease:
    """One received frame. It counts until everybody who holds a part of it has let go."""

    __slots__ = ("_budget", "_holders", "_size")

    def __init__(self, budget: MemoryBudget, *, reserved_bytes: int, size_bytes: int) -> None:
        """Take over a reservation and correct it to the frame's size; whoever makes the lease is its first holder."""
        self._budget = budget
        self._size = size_bytes
        self._holders = 1
        if size_bytes > reserved_bytes:
            budget.take(size_bytes - reserved_bytes)
        elif size_bytes < reserved_bytes:
            budget.give_back(reserved_bytes - size_bytes)

    def hold(self, extra_bytes: int) -> None:
        """Hold the frame, and ``extra_bytes`` that a rebuilt batch takes beside it."""
        self._holders += 1
        if extra_bytes:
            self._budget.take(extra_bytes)

    def release(self, extra_bytes: int) -> None:
        """Undo one ``hold``."""
        self._holders -= 1
        freed = extra_bytes + (self._size if self._holders == 0 else 0)
        if self._holders < 0:
            raise AssertionError("a frame was released more often than held")
        if freed:
            self._budget.give_back(freed)
