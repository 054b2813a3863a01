"""What a parent of several workers does when one ends, when it is signalled, and when a drain takes too long. Pure.

Codes are those of ``subprocess``: negative where a signal ended the worker. ``supervisor.py`` carries events in and
effects out.

No counterpart in MirrorMaker 2, whose threads share one process.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, assert_never

from mm2py.kafka.errors import Backoff

DRAINED: Final = 0
NOTHING_LEFT: Final = 1
"""Exit code of a worker without a flow that it may run, and of a parent whose workers did not all drain."""
REFUSED: Final = 2
"""Exit code of a worker whose file or arguments are wrong. At its first start that is final: another start would read
the same. At a later start the file has changed, and may be half-saved; so the start is tried again."""
INTERRUPTED: Final = 130
HEALTHY_AFTER_S: Final = 120.0
"""A worker that has run this long is started again after a short pause, even if it died often before."""

_NOTHING_TO_DRAIN: Final = frozenset({DRAINED, -signal.SIGTERM, -signal.SIGINT})
"""Nothing is left to drain: the signals kill only a worker that has not started, or has ended. Others drain."""


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker has ended, or could not be started (``code`` is None)."""

    worker: int
    code: int | None
    lived_s: float
    why: str = ""
    """What kept it from being started."""


@dataclass(frozen=True, slots=True)
class PauseOver:
    """The pause before a worker's next start is over."""

    worker: int


@dataclass(frozen=True, slots=True)
class Signalled:
    """SIGTERM or SIGINT arrived."""


@dataclass(frozen=True, slots=True)
class DrainOverdue:
    """Workers were asked to drain so long ago that they should have given up on their own."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker."""

    worker: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Send ``PauseOver`` of this worker after this many seconds."""

    worker: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class DrainWorkers:
    """Let these workers drain, and send ``DrainOverdue`` after the most time that may take."""

    workers: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End these workers at once."""

    workers: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Finish:
    """No worker runs any more, and none will: end with this code."""

    code: int


Event = WorkerEnded | PauseOver | Signalled | DrainOverdue
Effect = Start | Pause | DrainWorkers | Kill | Finish


@dataclass(slots=True)
class _Worker:
    backoff: Backoff
    runs: bool = True
    last_code: int | None = None
    has_run: bool = False
    """It was started once without being refused."""


@dataclass(slots=True)
class Supervision:
    """The state of a parent: which workers run, and whether it is stopping.

    Args:
        count: how many workers there are; they are numbered from 1.
        make_backoff: the pauses before the next start of one worker; called once for each.
    """

    count: int
    make_backoff: Callable[[], Backoff]
    _workers: dict[int, _Worker] = field(init=False)
    _stopping: bool = field(default=False, init=False)
    _signals: int = field(default=0, init=False)
    _result: int | None = field(default=None, init=False)
    """The exit code, if it does not depend on how the workers end."""

    def __post_init__(self) -> None:
        self._workers = {number: _Worker(self.make_backoff()) for number in range(1, self.count + 1)}

    @property
    def running(self) -> tuple[int, ...]:
        """The workers that were started and have not ended."""
        return tuple(number for number, worker in self._workers.items() if worker.runs)

    @property
    def is_stopping(self) -> bool:
        """Whether no worker is started any more."""
        return self._stopping

    def begin(self) -> list[Effect]:
        """Return what to do first: all workers start side by side."""
        return [Start(number) for number in self._workers]

    def step(self, event: Event) -> list[Effect]:
        """Apply what happened, and return what to do about it, in this order."""
        match event:
            case WorkerEnded():
                return self._on_end(event)
            case PauseOver(number):
                if self._stopping:
                    return []
                self._workers[number].runs = True
                return [Start(number)]
            case Signalled():
                return self._on_signal()
            case DrainOverdue():
                return self._kill("they should have given up draining long ago")
            case _:
                assert_never(event)

    def _on_signal(self) -> list[Effect]:
        self._signals += 1
        if self._signals > 1:
            self._result = INTERRUPTED
            return self._kill("a second signal")
        return [] if self._stopping else self._stop("a signal; a second one stops at once")

    def _on_end(self, event: WorkerEnded) -> list[Effect]:
        worker = self._workers[event.worker]
        worker.runs, worker.last_code = False, event.code
        if self._stopping:
            return self._finish_if_none_runs()
        if event.code == REFUSED and not worker.has_run:
            self._result = REFUSED
            return self._stop(f"worker {event.worker} was refused its file or its arguments")
        if all(not each.runs and each.last_code == NOTHING_LEFT for each in self._workers.values()):
            return [Finish(NOTHING_LEFT)]
        worker.has_run = worker.has_run or event.code is not None
        if event.lived_s >= HEALTHY_AFTER_S:
            worker.backoff.reset()
        return [Pause(event.worker, worker.backoff.next_s())]

    def _stop(self, why: str) -> list[Effect]:
        self._stopping = True
        return [DrainWorkers(self.running, why)] if self.running else self._finish_if_none_runs()

    def _kill(self, why: str) -> list[Effect]:
        return [Kill(self.running, why)] if self.running else []

    def _finish_if_none_runs(self) -> list[Effect]:
        """Finish if no worker runs. A worker that died before the stop counts, too: the next start must look up what it
        had not drained."""
        if self.running:
            return []
        if self._result is not None:
            return [Finish(self._result)]
        drained = all(worker.last_code in _NOTHING_TO_DRAIN for worker in self._workers.values())
        return [Finish(DRAINED if drained else NOTHING_LEFT)]
