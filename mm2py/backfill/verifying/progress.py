"""Reports every few seconds what a long job is doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from mm2py.clock import Clock

PROGRESS_EVERY_S: Final = 3.0


@asynccontextmanager
async def told_of(doing: Callable[[], str], tell: Callable[[str], object], clock: Clock) -> AsyncIterator[None]:
    """While the block runs, pass ``tell`` every ``PROGRESS_EVERY_S`` a line: ``doing()``, and how long it has run."""
    started_s = clock.monotonic()

    async def tell_on() -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            tell(f"{doing()}, after {clock.monotonic() - started_s:,.0f} s")

    telling = asyncio.create_task(tell_on(), name="progress")
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
