"""What mm2py raises on purpose, and task groups that raise it as it is.

Each error says what to do; there is one class for each reaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import TypeVar

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
    """A task group that raises the first error of its tasks as it is; one error is enough to react to."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None


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
