"""What mm2py raises on purpose, and task groups that raise it as it is.

Each error says what to do; there is one class for each reaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator
from contextvars import Context
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Mm2Error(Exception):
    """Base of all that mm2py raises on purpose. ``remedy`` addresses the operator."""

    retriable: bool = False
    is_mended_over_rest: bool = False
    """The remedy needs REST: a worker whose flows are all refused keeps running, so that REST answers."""

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(f"{what} {remedy}".strip())
        self.what = what
        self.remedy = remedy


class ConfigError(Mm2Error):
    """The file or the command line is wrong: the process ends with exit code 2 before it touches a cluster."""


class FirstErrorGroup(asyncio.TaskGroup):
    """A task group that raises the first error of its tasks as it is; one error is enough to react to.

    If the group is cancelled and one of its tasks fails at the same moment, it raises CancelledError, unless the error
    is a defect (no ``Mm2Error``). asyncio's own group would raise the error: a loop that catches errors and tries again
    would then never end.
    """

    def __init__(self) -> None:
        super().__init__()
        self._not_done: set[asyncio.Task[Any]] = set()
        self._cancelled_before = 0

    async def __aenter__(self) -> Self:
        self._cancelled_before = _times_cancelled()
        return await super().__aenter__()

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task of the group."""
        task = super().create_task(coro, name=name, context=context)
        self._not_done.add(task)
        task.add_done_callback(self._not_done.discard)
        return task

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            # Before Python 3.13 a group whose task fails while __aexit__ waits leaves its own cancellation in the
            # count of the task. So the wait is here: then __aexit__ takes its cancellation back.
            try:
                while self._not_done:
                    await asyncio.wait(self._not_done)
            except asyncio.CancelledError as cancelled:
                kind, error, trace = type(cancelled), cancelled, cancelled.__traceback__
        try:
            await super().__aexit__(kind, error, trace)
        except ExceptionGroup as group:
            first = group.exceptions[0]
            if isinstance(first, Mm2Error) and _times_cancelled() > self._cancelled_before:
                raise asyncio.CancelledError from first
            raise first from None


def _times_cancelled() -> int:
    """Return how many cancellations of this task are not taken back."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def for_each(items: Collection[T], work: Callable[[T], Awaitable[None]], *, at_once: int, name: str) -> None:
    """Do ``work`` for each item, for a few of them at a time. The first error ends all of it, and is raised.

    Args:
        name: of the tasks, for a trace.
    """
    waiting = iter(items)

    async def take() -> None:
        for item in waiting:
            await work(item)

    async with FirstErrorGroup() as tasks:
        for number in range(min(at_once, len(items))):
            tasks.create_task(take(), name=f"{name} {number}")
