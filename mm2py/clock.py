"""Time, passed in: real in a worker, virtual in tests."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """``monotonic`` for intervals, in seconds; ``wall_ms`` for timestamps that others read, in epoch milliseconds.

    ``boottime`` is for intervals in which the machine may have been suspended: it goes on meanwhile, if the system can.
    """

    def monotonic(self) -> float: ...
    def boottime(self) -> float: ...
    def wall_ms(self) -> int: ...


class SystemClock:
    """The machine's clock; the event loop's own time is the monotonic one, so that sleeps and intervals agree."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def boottime(self) -> float:
        return time.clock_gettime(_BOOTTIME)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
