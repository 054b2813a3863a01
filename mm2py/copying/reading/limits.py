"""What limits reading: the memory of a worker, over all flows, and the rate of a flow.

``memory.max.bytes`` counts frames from the request until the last batch in them is acknowledged, and rebuilt batches in
addition. A read that needs more than is free waits, so the source's disk is the buffer. A frame may be larger than was
reserved, as Kafka sends a first batch whole. Later reads then wait until enough is free again.

Each target broker of each flow has an account. Half of the memory is divided equally among the accounts, the other half
is common. A target broker that accepts nothing for a while fills at most the common half and its own part, and delays
no other broker.

``bytes.per.second.max`` limits the rate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mm2py.copying.reading.stripes import STRIPE_BYTES_MOST
from mm2py.kafka.port import BrokerId

TAIL_READS: Final = 3
"""Reads of one lane that may wait at the end of logs at the same time."""
IDLE_READS: Final = 2
"""Reads of one lane that may wait for idle partitions."""
TAIL_BYTES_MOST: Final = 1 << 20
READ_BYTES_LEAST: Final = 64 << 10
BACKLOG_BYTES_MOST: Final = 8 << 20


@dataclass(slots=True, eq=False)
class _Waiter:
    account: MemoryAccount
    size: int
    turn: asyncio.Future[None]
    spare: int = 0
    """This many bytes must stay free besides. A waiter with ``spare`` delays only others with ``spare``."""


class MemoryBudget:
    """The bytes that a worker may hold, divided among accounts."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.peak_bytes = 0
        self._accounts: list[MemoryAccount] = []
        self._waiters: deque[_Waiter] = deque()

    def open(self) -> MemoryAccount:
        """Return a new account. The parts of the others shrink."""
        account = MemoryAccount(self)
        self._accounts.append(account)
        return account

    @property
    def share_bytes(self) -> int:
        """The part kept for each account."""
        return self.limit_bytes // (2 * max(1, len(self._accounts)))

    def fits(self, account: MemoryAccount, size: int) -> bool:
        """Whether ``account`` may take ``size`` more bytes now. If it holds nothing, it may always take its part."""
        kept = sum(max(0, self.share_bytes - other.held_bytes) for other in self._accounts if other is not account)
        free = self.limit_bytes - self.held_bytes - kept
        return size <= free or (account.held_bytes == 0 and (size <= self.share_bytes or self.held_bytes == 0))

    def change(self, account: MemoryAccount, size: int) -> None:
        """Count bytes taken, or given back if negative."""
        self.held_bytes += size
        account.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        if account.held_bytes < 0:
            raise AssertionError("more memory was given back than taken")
        if size < 0:
            self.serve()

    def is_waited_for(self, account: MemoryAccount) -> bool:
        return any(waiter.account is account for waiter in self._waiters)

    def close(self, account: MemoryAccount) -> None:
        self._accounts.remove(account)
        for waiter in [waiter for waiter in self._waiters if waiter.account is account]:
            self._waiters.remove(waiter)
            if not waiter.turn.done():
                waiter.turn.set_result(None)  # its flow is over: whatever it still reads is dropped
        self.held_bytes -= account.held_bytes
        account.held_bytes = 0
        self.serve()

    async def wait(self, account: MemoryAccount, size: int, spare: int = 0) -> None:
        """Wait for ``size`` bytes and take them; in order within an account. Cancelling takes nothing.

        Args:
            spare: wait until this many bytes are free besides, and let waiters without ``spare`` pass.
        """
        if self.fits(account, size + spare) and not any(
            waiter.account is account and (spare or not waiter.spare) for waiter in self._waiters
        ):
            self.change(account, size)
            return
        waiter = _Waiter(account, size, asyncio.get_running_loop().create_future(), spare)
        self._waiters.append(waiter)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if waiter.turn.done() and not waiter.turn.cancelled():  # served in the same moment
                account.give_back(size)
            self.serve()
            raise

    def serve(self) -> None:
        """Serve the waiting reads that fit now, oldest first, in order within each account."""
        held_up: set[tuple[MemoryAccount, bool]] = set()
        for waiter in list(self._waiters):
            needs_spare = waiter.spare > 0
            if waiter.turn.done():
                self._waiters.remove(waiter)
            elif (waiter.account, needs_spare) not in held_up and self.fits(waiter.account, waiter.size + waiter.spare):
                self._waiters.remove(waiter)
                self.change(waiter.account, waiter.size)
                waiter.turn.set_result(None)
            else:
                held_up |= {(waiter.account, True), (waiter.account, needs_spare)}


class MemoryAccount:
    """What the frames for one target broker of one flow take."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.held_bytes = 0
        self.lanes = 1
        """How many source brokers' reads share the account."""
        self._budget = budget
        self._closed = False

    def tail_bytes(self, reads: int = TAIL_READS + IDLE_READS) -> int:
        """Most bytes for one of this many reads at the end of logs: a quarter of the account for all of them."""
        fair = self._budget.share_bytes // (4 * reads * max(1, self.lanes))
        return max(READ_BYTES_LEAST, min(TAIL_BYTES_MOST, fair))

    def backlog_bytes(self) -> int:
        """Most bytes for one read of a backlog."""
        return max(READ_BYTES_LEAST, min(BACKLOG_BYTES_MOST, self._budget.share_bytes // 4))

    def stripe_bytes(self, connections: int) -> int:
        """Most bytes for one read, with two reads over each of this many connections.

        Half as much again may wait for its turn. Even then all accounts together stay within the limit.
        """
        return max(READ_BYTES_LEAST, min(STRIPE_BYTES_MOST, 2 * self._budget.share_bytes // (3 * connections)))

    async def reserve(self, size: int, *, spare: int = 0) -> None:
        """Wait until ``size`` bytes are free, and ``spare`` besides, and take ``size``. Cancelling takes nothing."""
        if not self._closed:
            await self._budget.wait(self, size, spare)

    def reserve_now(self, size: int) -> bool:
        """Take ``size`` bytes if they are free. Returns whether they were."""
        if self._closed:
            return True
        if self._budget.fits(self, size):
            self._budget.change(self, size)
            return True
        return False

    @property
    def is_waited_for(self) -> bool:
        """Whether a read waits for memory of this account."""
        return self._budget.is_waited_for(self)

    def take(self, size: int) -> None:
        """Count bytes that have arrived already, even beyond the limit."""
        if not self._closed:
            self._budget.change(self, size)

    def give_back(self, size: int) -> None:
        if not self._closed:
            self._budget.change(self, -size)

    def close(self) -> None:
        """Give everything back: the flow has ended."""
        if not self._closed:
            self._closed = True
            self._budget.close(self)


class FrameLease:
    """One received frame. It counts until all its holders have released it."""

    __slots__ = ("_account", "_holders", "_size", "read_at_s")

    def __init__(self, account: MemoryAccount, *, reserved_bytes: int, size_bytes: int, read_at_s: float = 0.0) -> None:
        """Take over a reservation and correct it to the frame's size. The caller is the first holder."""
        self.read_at_s = read_at_s
        self._account = account
        self._size = size_bytes
        self._holders = 1
        if size_bytes > reserved_bytes:
            account.take(size_bytes - reserved_bytes)
        elif size_bytes < reserved_bytes:
            account.give_back(reserved_bytes - size_bytes)

    def hold(self, extra_bytes: int, holders: int = 1) -> None:
        """Add holders, and ``extra_bytes`` that rebuilt batches take besides the frame."""
        self._holders += holders
        if extra_bytes:
            self._account.take(extra_bytes)

    def release(self, extra_bytes: int) -> None:
        """Undo one ``hold``."""
        self._holders -= 1
        freed = extra_bytes + (self._size if self._holders == 0 else 0)
        if self._holders < 0:
            raise AssertionError("a frame was released more often than held")
        if freed:
            self._account.give_back(freed)


class RateLimit:
    """A token bucket of one second. It may run into debt, as a read's size is known afterwards: then the next read
    waits."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self._rate = bytes_per_second
        self._free: float = bytes_per_second or 0
        self._seen_at_s: float | None = None

    def change(self, bytes_per_second: int | None, now_s: float) -> None:
        """Change the rate. What was saved stays within what the new rate allows."""
        self._refill(now_s)
        if self._rate is None:
            self._free, self._seen_at_s = bytes_per_second or 0, now_s
        self._rate = bytes_per_second
        self._free = min(self._free, bytes_per_second or 0)

    def spend(self, size: int, now_s: float) -> None:
        """Count ``size`` bytes as read."""
        if self._rate is not None:
            self._refill(now_s)
            self._free -= size

    def wait_s(self, now_s: float) -> float:
        """Return how long to wait until something may be read again; 0 if it may be now."""
        if self._rate is None:
            return 0.0
        self._refill(now_s)
        return max(0.0, -self._free / self._rate)

    @property
    def allowance(self) -> int | None:
        """The most that one read should ask for; None without a limit."""
        return self._rate

    def _refill(self, now_s: float) -> None:
        if self._rate is None:
            return
        if self._seen_at_s is not None:
            self._free = min(self._rate, self._free + (now_s - self._seen_at_s) * self._rate)
        self._seen_at_s = now_s


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What limits the reads of a flow."""

    account: Callable[[BrokerId], MemoryAccount]
    """Whose memory a read takes, by the target broker that its partitions go to."""
    rate: RateLimit
