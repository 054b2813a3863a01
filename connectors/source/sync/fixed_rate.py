"""A schedule as MM2's: at once, then at a fixed rate. An error, or a defect, is told and cancels nothing.

Answers to Scheduler of Apache Kafka's Connect, mirror. Each schedule is an asyncio task of its own, so that one that
waits for a broker delays no other.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import Mm2Error

NEWS_EVERY_S: Final = 5.0


class Defect(Mm2Error):
    """The work ended in an error that nobody raised on purpose."""

    def __init__(self, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        where = " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames[-5:]))
        super().__init__(
            f"{type(error).__name__}: {error} (at {where}).",
            remedy="This is a defect in mm2py; please report it with this line.",
        )


async def repeat(
    work: Callable[[], Awaitable[None]],
    *,
    interval_s: float,
    clock: Clock,
    failed: Callable[[Mm2Error], None],
    worked: Callable[[], None],
    news: Callable[[], bool] | None = None,
) -> None:
    """Do the work now, and again every ``interval_s`` seconds after the first beginning, until cancelled.

    What takes longer than the interval is never done twice at a time; the times that were missed are left out, where
    MM2 would make up for them one right after the other.
    Args:
        failed: gets the error of each piece of work that failed; a ``Defect`` if nobody raised it on purpose.
        worked: is called after each that did not.
        news: is asked every few seconds whether the work is to be done in between as well; the rate stays as it is.
    """

    async def attempt() -> None:
        try:
            await work()
        except Mm2Error as error:
            failed(error)
        except Exception as error:
            # A defect, and to be loud. But what is done on schedule only accompanies the copying. Let through, it would
            # end the flow's life, and, met again at the start of the next one, leave it to copy in bursts of seconds.
            failed(Defect(error))
        else:
            worked()

    begun_s = clock.monotonic()
    times = 0
    while True:
        await attempt()
        times = max(times + 1, int((clock.monotonic() - begun_s) / interval_s) + 1)
        while (left_s := begun_s + times * interval_s - clock.monotonic()) > 0:
            if news is None or left_s <= NEWS_EVERY_S:
                await asyncio.sleep(left_s)
                continue
            await asyncio.sleep(NEWS_EVERY_S)
            if news():
                await attempt()
