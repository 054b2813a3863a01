"""One incarnation of a worker that a test can pause, kill and cancel from outside at any step.

Each task, timer and callback of an incarnation carries it in its context, so the loop knows to which one it belongs.
The clusters belong to none: a request that was sent arrives without its sender.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from tests.fakes.virtual_time import ResultT, VirtualLoop

_INCARNATION: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar("incarnation", default=None)


class Incarnation:
    """What the loop has to know about one incarnation."""

    def __init__(self, number: int, *, cancel_at: int | None = None) -> None:
        """``cancel_at``: the resumption of one of its coroutines at which it is cancelled."""
        self.number = number
        self.resumptions = 0
        self.dead = False
        """No request of it leaves any more, and it hears no answer."""
        self.cancelled = False
        self.task: asyncio.Task[Any] | None = None
        self.tasks: list[asyncio.Task[Any]] = []
        self.cancel_at = cancel_at
        self._held: list[asyncio.Handle] | None = None

    @property
    def paused(self) -> bool:
        return self._held is not None

    @property
    def over(self) -> bool:
        return self.task is not None and self.task.done()

    def begin(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``work``, and all tasks that it creates, as this incarnation."""
        context = contextvars.copy_context()
        context.run(_INCARNATION.set, self)
        if isinstance(loop, SimulationLoop):
            loop.incarnations.append(self)
        self.task = loop.create_task(work, name=f"incarnation {self.number}", context=context)
        return self.task

    def pause(self) -> None:
        if self._held is None and not self.over:
            self._held = []

    def go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a pause: callbacks that were held run now, in order."""
        held, self._held = self._held, None
        for handle in held or ():
            assert isinstance(loop, SimulationLoop)
            loop.append_ready(handle)

    def die(self, loop: asyncio.AbstractEventLoop) -> None:
        """Kill it at once."""
        self.dead = True
        self.go_on(loop)
        if self.task is not None:
            self.task.cancel()

    def resumed(self) -> None:
        self.resumptions += 1
        if self.resumptions == self.cancel_at and self.task is not None:
            self.cancelled = True
            self.task.cancel()

    def hold(self, handle: asyncio.Handle) -> None:
        assert self._held is not None
        self._held.append(handle)


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells its incarnation each time it is resumed."""

    def __init__(self, coro: Any, incarnation: Incarnation) -> None:
        self._coro = coro
        self._incarnation = incarnation

    def send(self, value: Any) -> Any:
        self._incarnation.resumed()
        return self._coro.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coro.throw(*error)

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited: Generator[Any, Any, Any] = self._coro.__await__()
        return awaited

    def __getattr__(self, name: str) -> Any:  # cr_frame and cr_await, for the report of waiting tasks
        return getattr(self._coro, name)


class SimulationLoop(VirtualLoop):
    """A loop that can pause incarnations. While one is paused, its callbacks wait, whatever would have called them."""

    def __init__(self, *, seed: int = 0, limit_s: float = 3600.0) -> None:
        super().__init__(seed=seed, limit_s=limit_s)
        self.incarnations: list[Incarnation] = []

    def run_until_complete(self, future: Awaitable[ResultT]) -> ResultT:
        """Run as the base does. What an earlier run left paused goes on: else nothing could cancel it."""
        for incarnation in self.incarnations:
            incarnation.go_on(self)
        return super().run_until_complete(future)

    def append_ready(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)  # type: ignore[attr-defined]  # as BaseEventLoop.call_soon does

    def call_soon(  # type: ignore[override]  # as in VirtualLoop.call_at
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        incarnation = _INCARNATION.get() if context is None else context.get(_INCARNATION)
        if incarnation is None or not incarnation.paused:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        incarnation.hold(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        incarnation = _INCARNATION.get() if context is None else context.get(_INCARNATION)
        if incarnation is None:
            return super().call_at(when, callback, *args, context=context)

        def due() -> None:
            if incarnation.paused:
                incarnation.hold(timer)
            else:
                callback(*args)

        timer = super().call_at(when, due, context=context)
        return timer

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        incarnation = _INCARNATION.get() if context is None else context.get(_INCARNATION)
        if incarnation is not None and incarnation.cancel_at is not None:
            coro = _Counted(coro, incarnation)
        task = super()._make_task(loop, coro, context)
        if incarnation is not None:
            incarnation.tasks.append(task)
        return task


def tasks_left(incarnation: Incarnation) -> list[str]:
    """Return the names of tasks that outlived their incarnation."""
    return [task.get_name() for task in incarnation.tasks if not task.done()]


def current_incarnation() -> Incarnation | None:
    """Return the incarnation whose step runs now, or None outside of all."""
    return _INCARNATION.get()
