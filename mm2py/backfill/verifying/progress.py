"""Reports from time to time what a long job is doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from mm2py.clock import Clock

PROGRESS_EVERY_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class ProgressSink:
    """Where a long job says what it is doing."""

    tell: Callable[[str], object]
    """Gets lines that stay."""
    show: Callable[[str], object]
    """Gets what is being done just now, every ``every_s``. What it got before is out of date then."""
    every_s: float = PROGRESS_EVERY_S


@asynccontextmanager
async def told_of(doing: Callable[[], str], sink: ProgressSink, clock: Clock) -> AsyncIterator[None]:
    """While the block runs, pass ``sink.show`` from time to time ``doing()``, and how long it has run."""
    started_s = clock.monotonic()

    async def tell_on() -> None:
        while True:
            await asyncio.sleep(sink.every_s)
            sink.show(f"{doing()}, after {clock.monotonic() - started_s:,.0f} s")

    telling = asyncio.create_task(tell_on(), name="progress")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
