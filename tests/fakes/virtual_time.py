"""An asyncio event loop with virtual time: when no task can run, it jumps to the next timer.

Whole workers with their timeouts, backoffs and long polls run in milliseconds, and the same seed gives the same
interleaving: callbacks run first in first out, timers in order of time, and tasks and futures hash by order of
creation, so that even iterating over a set of them is repeatable. Values that should vary with the seed (the latency of
a reply, which broker fails) come from ``VirtualLoop.rng`` or from a generator of the test.

Threads are not supported: the loop cannot know whether one will call back. Work for an executor is done at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import random
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

ResultT = TypeVar("ResultT")
_Coroutine = Generator[Any, Any, Any] | Coroutine[Any, Any, Any]

EPOCH_MS: Final = 1_760_000_000_000
"""The wall clock when virtual time starts: 2025-10-09, far from any limit of a timestamp."""

_SPINS_PER_INSTANT: Final = 200_000
"""Limit of loop cycles without progress of time. Only tasks that wake each other for ever reach it."""


class VirtualTimeStopped(AssertionError):
    """Base of the reasons why a virtual run cannot continue; the message lists what each task waits for."""


class Deadlock(VirtualTimeStopped):
    """Every task waits, and neither a callback nor a timer is left that could wake one."""


class TimeLimit(VirtualTimeStopped):
    """The run had not ended at its limit of virtual time."""


class Livelock(VirtualTimeStopped):
    """Tasks keep waking each other while time makes no progress."""


class _Task(asyncio.Task[Any]):
    """A task that hashes by order of creation: asyncio keeps sets of tasks, whose order would be by address."""

    def __init__(
        self, coro: Generator[Any, Any, Any] | Coroutine[Any, Any, Any], *, number: int, **kwargs: Any
    ) -> None:
        self._number = number
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    """A future that hashes by order of creation."""

    def __init__(self, *, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _NoSelector(selectors.SelectSelector):
    """A selector for the base of the loop, which registers a pipe here. The loop never waits for it."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. ``time()`` is virtual and starts at 0; ``rng`` is seeded."""

    _ready: deque[asyncio.Handle]
    _stopping: bool
    _clock_resolution: float
    _timer_cancelled_count: int  # counted by BaseEventLoop, for timers with _scheduled

    def __init__(self, *, seed: int = 0, limit_s: float = 3600.0) -> None:
        self._now_s = 0.0
        self._spins = 0
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap. Timers of the same moment keep their order, which asyncio's own heap does not guarantee."""
        super().__init__(_NoSelector())
        self.rng = random.Random(seed)
        self.limit_s = limit_s
        self._ends_s = limit_s
        self.beside = 0
        """Number of calls for an executor."""
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._now_s

    def call_at(  # type: ignore[override]  # the base types arguments by the callback's; not needed here
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        timer._scheduled = True  # type: ignore[attr-defined]  # as BaseEventLoop.call_at does
        return timer

    def run_until_complete(self, future: Awaitable[ResultT]) -> ResultT:
        """Run as the base does, for at most ``limit_s`` from now, also after a run that had to stop.

        It collects no garbage meanwhile, which would take a quarter of the time of a short run.
        """
        self._ends_s = self._now_s + self.limit_s
        self._spins = 0
        collects = gc.isenabled()
        gc.disable()
        try:
            return super().run_until_complete(future)
        finally:
            if collects:
                gc.enable()

    def _run_once(self) -> None:
        """Run all ready callbacks. If there are none, first jump to the next timer.

        It does what ``BaseEventLoop._run_once`` does, without a selector, and with a heap that C code compares.
        Together this saves a sixth of the time of a long scenario.
        """
        timers, ready = self._timers, self._ready
        if self._timer_cancelled_count > 100 and self._timer_cancelled_count * 2 > len(timers):
            self._timers = timers = [entry for entry in timers if not entry[2]._cancelled]  # type: ignore[attr-defined]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)
            self._timer_cancelled_count -= 1
        if ready or self._stopping:
            self.jump(0.0)
        else:
            self.jump(max(0.0, timers[0][0] - self._now_s) if timers else None)
        due_s = self._now_s + self._clock_resolution
        while timers and timers[0][0] < due_s:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:  # type: ignore[attr-defined]
                handle._run()  # type: ignore[attr-defined]

    def run_in_executor(  # type: ignore[override]  # the base gives types to arguments
        self, executor: object, func: Callable[..., ResultT], *args: Any
    ) -> asyncio.Future[ResultT]:
        """Call ``func`` in the loop in place of a thread. Other tasks run before its caller gets the result."""
        self.beside += 1
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(number=next(self._numbers), loop=self)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: _Coroutine,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        return _Task(coro, number=next(self._numbers), loop=loop, context=context)

    def jump(self, timeout_s: float | None) -> None:
        """Advance time by the duration that the loop would have slept.

        Raises:
            Deadlock: nothing is scheduled any more.
            Livelock: too many cycles without progress of time.
            TimeLimit: the next timer is after the limit.
        """
        if timeout_s is None:
            raise Deadlock(self._waiting_tasks("Nothing is scheduled any more"))
        if timeout_s <= 0:
            self._spins += 1
            if self._spins > _SPINS_PER_INSTANT:
                raise Livelock(self._waiting_tasks(f"{self._spins} turns of the loop without time moving on"))
            return
        self._spins = 0
        if self._now_s + timeout_s > self._ends_s:
            raise TimeLimit(self._waiting_tasks(f"The limit of {self.limit_s:g} s virtual time is reached"))
        self._now_s += timeout_s

    def _waiting_tasks(self, what: str) -> str:
        lines = [f"{what} at {self._now_s:.6f} s."]
        for task in sorted(asyncio.all_tasks(self), key=hash):
            frames = task.get_stack()
            where = "".join(f" < {frame.f_code.co_qualname}:{frame.f_lineno}" for frame in reversed(_inner(task)))
            lines.append(f"  {task.get_name()}{where if frames else ''}")
        return "\n".join(lines)


def _inner(task: asyncio.Task[Any]) -> list[Any]:
    """Return the frames of a suspended task, from its outermost coroutine to the innermost awaited one."""
    frames = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is None:
            break
        frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return frames


class VirtualClock:
    """The clock of the code under test. Outside a run it shows the time at which the last run stopped."""

    def __init__(self, *, epoch_ms: int = EPOCH_MS) -> None:
        self._epoch_ms = epoch_ms
        self._last_s = 0.0

    def monotonic(self) -> float:
        """Return seconds since the run started."""
        with contextlib.suppress(RuntimeError):
            self._last_s = asyncio.get_running_loop().time()
        return self._last_s

    def boottime(self) -> float:
        """Return the same as ``monotonic``: this machine never sleeps."""
        return self.monotonic()

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, as record timestamps count them."""
        return self._epoch_ms + int(self.monotonic() * 1000)


class DozingClock:
    """The clock of one worker that sleeps while the others run: a suspended machine, or a stopped process.

    The test stops the worker meanwhile (``Gate``).
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._stopped_s = 0.0
        self._suspended_s = 0.0
        self.wall_ahead_ms = 0
        """By how much the worker's wall clock is wrong."""

    def doze(self, seconds: float, *, suspended: bool) -> None:
        """Add a sleep. The monotonic clock of a suspended machine stops meanwhile; for a stopped process it runs.

        The worker's wall clock follows the clocks of others when it wakes, and does not jump.
        """
        if suspended:
            self._suspended_s += seconds
        else:
            self._stopped_s += seconds

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._stopped_s

    def boottime(self) -> float:
        return self.monotonic() + self._suspended_s

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.wall_ahead_ms


def run_virtual(
    coro: Coroutine[Any, Any, ResultT],
    *,
    seed: int = 0,
    limit_s: float = 3600.0,
    make_loop: Callable[..., VirtualLoop] = VirtualLoop,
) -> ResultT:
    """Run ``coro`` to its end under virtual time and return its result.

    For code that is not an async test (``tests/event_loops.py``): a random walk that collects findings, a property of
    many examples, a comparison of several runs.

    Args:
        make_loop: makes the virtual loop.
        seed: for ``VirtualLoop.rng``; the same seed gives the same run.
        limit_s: virtual seconds after which the run is given up.
    Raises:
        Deadlock, Livelock, TimeLimit: the run cannot continue; the message says where each task waits.
        All errors of the coroutine.
    """
    loop = make_loop(seed=seed, limit_s=limit_s)
    try:
        return loop.run_until_complete(coro)
    finally:
        _cancel_rest(loop)
        loop.close()


def _cancel_rest(loop: VirtualLoop) -> None:
    """Cancel all tasks that still run, and let them clean up; a task that refuses to end is abandoned."""
    rest = sorted(asyncio.all_tasks(loop), key=hash)
    if not rest:
        return
    for task in rest:
        task.cancel()
    loop.limit_s = 3600.0
    try:
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    except VirtualTimeStopped:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # the run's own error is the one to read
