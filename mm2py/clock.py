"""Time, passed in: real in a worker, virtual in tests."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """``monotonic`` for intervals, in seconds; ``wall_ms`` for timestamps that others read, in epoch milliseconds."""

    def monotonic(self) -> float: ...
    def wall_ms(self) -> int: ...


class SystemClock:
    """The machine's clock; the event loop's own time is the monotonic one, so that sleeps and intervals agree."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
