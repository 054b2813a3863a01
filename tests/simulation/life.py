"""One life of a worker, held in one hand: it can be paused, killed and cancelled from outside at any step.

Everything that belongs to a life carries it in its context, so the loop knows whose callback, timer or task it has
before it. The clusters do not belong to any life: what was sent goes on without its sender.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from tests.fakes.virtual_time import VirtualLoop

_LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class Life:
    """What the loop has to know about one life."""

    def __init__(self, number: int, *, cancel_at: int | None = None) -> None:
        """``cancel_at``: the resumption of one of its coroutines at which it is cancelled."""
        self.number = number
        self.resumptions = 0
        self.dead = False
        """Nothing it sends leaves any more, and it hears nothing."""
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
        """Run ``work``, and all that comes of it, as this life's."""
        context = contextvars.copy_context()
        context.run(_LIFE.set, self)
        self.task = loop.create_task(work, name=f"life {self.number}", context=context)
        return self.task

    def pause(self) -> None:
        if self._held is None and not self.over:
            self._held = []

    def go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """End a pause: what came meanwhile comes now, in its order."""
        held, self._held = self._held, None
        for handle in held or ():
            assert isinstance(loop, SimulationLoop)
            loop.append_ready(handle)

    def die(self, loop: asyncio.AbstractEventLoop) -> None:
        """Be gone at once."""
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
    """A coroutine that tells its life each time it is resumed."""

    def __init__(self, coro: Any, life: Life) -> None:
        self._coro = coro
        self._life = life

    def send(self, value: Any) -> Any:
        self._life.resumed()
        return self._coro.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coro.throw(*error)

    def close(self) -> None:
        self._coro.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        awaited: Generator[Any, Any, Any] = self._coro.__await__()
        return awaited

    def __getattr__(self, name: str) -> Any:  # cr_frame and cr_await, for the report of who waits where
        return getattr(self._coro, name)


class SimulationLoop(VirtualLoop):
    """A loop on which lives can be paused. While one is, its callbacks wait, whatever would have called them."""

    def append_ready(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)  # type: ignore[attr-defined]  # as BaseEventLoop.call_soon does

    def call_soon(  # type: ignore[override]  # as in VirtualLoop.call_at
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        life = _LIFE.get() if context is None else context.get(_LIFE)
        if life is None or not life.paused:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        life.hold(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        life = _LIFE.get() if context is None else context.get(_LIFE)
        if life is None:
            return super().call_at(when, callback, *args, context=context)

        def due() -> None:
            if life.paused:
                life.hold(timer)
            else:
                callback(*args)

        timer = super().call_at(when, due, context=context)
        return timer

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        life = _LIFE.get() if context is None else context.get(_LIFE)
        if life is not None and life.cancel_at is not None:
            coro = _Counted(coro, life)
        task = super()._make_task(loop, coro, context)
        if life is not None:
            life.tasks.append(task)
        return task


def tasks_left(life: Life) -> list[str]:
    """Return the names of tasks that outlived their life."""
    return [task.get_name() for task in life.tasks if not task.done()]


def current_life() -> Life | None:
    """Return whose step this is; None: that of nobody's life."""
    return _LIFE.get()
