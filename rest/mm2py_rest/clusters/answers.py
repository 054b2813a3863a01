"""Answers that are made once for each look at the clusters, outside the event loop, for all callers.

To make a list of 10,000 partitions takes longer than other requests should wait.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Generic, TypeVar, cast

from mm2py.clock import Clock
from mm2py_rest.clusters.live import View

KEPT_MOST: Final = 300
"""Answers kept of one look. Callers may ask for any number of pages; those above this number are made each time."""
TIMES_AS_LONG: Final = 4.0
"""An answer is kept this many times as long as the question took, so that callers do not keep the clusters busy."""
LEAST_KEPT_S: Final = 2.0

T = TypeVar("T")


class Answers:
    """The answers made from the newest look."""

    def __init__(self) -> None:
        self._begun_s = float("-inf")
        self._kept: dict[Hashable, asyncio.Future[Any]] = {}

    async def of(self, view: View, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returns; it runs in a thread, once for all callers with the same key.

        ``make`` may look up values of ``view``, but must not iterate over its tables: the next look changes them.
        """
        if view.begun_s > self._begun_s:
            self._begun_s, self._kept = view.begun_s, {}
        if view.begun_s < self._begun_s or (key not in self._kept and len(self._kept) >= KEPT_MOST):
            return await asyncio.to_thread(make)
        if key not in self._kept:
            made = self._kept[key] = asyncio.ensure_future(asyncio.to_thread(make))
            made.add_done_callback(functools.partial(_forget_failed, self._kept, key))
        return cast("T", await asyncio.shield(self._kept[key]))


def _forget_failed(kept: dict[Hashable, asyncio.Future[Any]], key: Hashable, done: asyncio.Future[Any]) -> None:
    if done.cancelled() or done.exception() is not None:
        kept.pop(key, None)


class SharedAnswer(Generic[T]):
    """The answer to one question to the clusters, shared by all callers."""

    def __init__(self, ask: Callable[[], Awaitable[T]], clock: Clock, *, least_s: float = LEAST_KEPT_S) -> None:
        self._least_s = least_s
        self._ask = ask
        self._clock = clock
        self._found: tuple[T] | None = None
        self._fresh_until_s = float("-inf")
        self._asking = asyncio.Lock()

    async def get(self) -> T:
        """Return the answer that is known, or ask. Raises: as ``ask``. Cancelling ends the question under way."""
        if (found := self._fresh()) is not None:
            return found[0]
        async with self._asking:
            if (found := self._fresh()) is not None:
                return found[0]
            begun_s = self._clock.monotonic()
            self._found = (await self._ask(),)
            now_s = self._clock.monotonic()
            self._fresh_until_s = now_s + max(self._least_s, TIMES_AS_LONG * (now_s - begun_s))
            return self._found[0]

    def _fresh(self) -> tuple[T] | None:
        return self._found if self._clock.monotonic() < self._fresh_until_s else None
