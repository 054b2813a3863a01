"""Several workers on one machine: a parent that starts them as processes, starts dead ones again, and stops them all.

A Python process uses one core. Each worker is a full member of its group. It runs as long as its standard input stays
open, and only the parent has the other end. So a worker drains when the parent stops, and also when the parent dies for
any reason. The parent does not forward signals: systemd signals every process of a unit, and a worker would take a
forwarded signal for the second one, which ends it undrained. Workers have sessions of their own, so Ctrl-C reaches the
parent alone.

No counterpart in MirrorMaker 2, whose threads share one process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from structlog.typing import FilteringBoundLogger

from mm2py.cli.rest_process import SOCKETS_OPTION, open_sockets, refuse_shared_ports
from mm2py.cli.service_manager import service_manager
from mm2py.cli.supervision import (
    DRAINED,
    REFUSED,
    DrainOverdue,
    DrainWorkers,
    Effect,
    Event,
    Finish,
    Kill,
    Pause,
    PauseOver,
    Signalled,
    Start,
    Supervision,
    WorkerEnded,
)
from mm2py.config.rest import RestSettings
from mm2py.errors import ConfigError
from mm2py.inherited_sockets import sockets_text
from mm2py.kafka.errors import Backoff

WORKERS_MOST: Final = 256
WORKER_DRAIN_S: Final = 60.0
"""A worker gives up draining on its own after 40 seconds; one that still runs after this time hangs, and is killed."""
UNDRAINED: Final = "the next start looks up what they have copied, and continues after it"
APPLY_OPTION: Final = "--apply"
OPTION: Final = "--workers"
NUMBER_OPTION: Final = "--worker-number"
"""Given to a worker with a parent. It is an argument, no variable, so that ``ps`` shows it and no child inherits it."""
STDIN: Final = 0
_OF_REFUSED: Final = {
    "why": "it was refused its file or its arguments, with which it ran before",
    "effect": "this worker is missing until it can read its file; the others go on",
    "remedy": "Correct the file: its line before this one says what is wrong.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--workers``, and the hidden argument by which a worker knows that it has a parent, and its number."""
    parser.add_argument(
        OPTION,
        type=worker_count,
        default=1,
        metavar="N",
        help="run N worker processes, to use several cores; memory.max.bytes counts for each of them",
    )
    parser.add_argument(NUMBER_OPTION, type=int, help=argparse.SUPPRESS)
    parser.add_argument(SOCKETS_OPTION, help=argparse.SUPPRESS)


def worker_count(text: str) -> int:
    """Read the value of ``--workers``."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= WORKERS_MOST):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {WORKERS_MOST}")
    return int(text)


def worker_arguments(
    arguments: Sequence[str], number: int, *, again: bool = False, sockets: Sequence[tuple[int, int]] | None = None
) -> list[str]:
    """Return the arguments of one worker: those of the parent, without ``--workers N``, and with the number.

    A worker that is started ``again`` gets no ``--apply``: it would undo what an operator has changed since.
    """
    kept = [NUMBER_OPTION, str(number)]
    if sockets is not None:
        kept.append(f"{SOCKETS_OPTION}={sockets_text(sockets)}")
    given = iter(arguments)
    for argument in given:
        if argument == "--":
            return [*kept, argument, *given]
        if argument == OPTION:
            next(given, None)
        elif not (argument.startswith(f"{OPTION}=") or (again and argument == APPLY_OPTION)):
            kept.append(argument)
    return kept


def own_command(original: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return how this process was started, up to its arguments: interpreter, its options, script or module.

    Args:
        original: ``sys.orig_argv``.
        arguments: those that end it; if they do not, the command was called as a function.
    """
    before = len(original) - len(arguments)
    if before < 2 or list(original[before:]) != list(arguments):
        return [sys.executable, "-m", "mm2py"]
    return [sys.executable, *original[1:before]]


def run_workers(arguments: Sequence[str], count: int, rest: RestSettings, log: FilteringBoundLogger) -> int:
    """Run this many workers with these arguments until a signal stops them. Returns the exit code.

    0: all drained. 1: one of them did not, or none had a flow left to run. 2: at its first start, a worker found the
    file or the arguments wrong. 130: a second signal came.
    """
    rng = random.Random()  # noqa: S311  (spreads restarts; nothing secret)
    command = own_command(sys.orig_argv, arguments)
    begun: set[int] = set()
    refuse_shared_ports(rest, count)
    sockets = {number: open_sockets(rest, log, number=number) for number in range(1, count + 1)}

    def command_of(number: int) -> list[str]:
        again = number in begun
        begun.add(number)
        return [*command, *worker_arguments(arguments, number, again=again, sockets=sockets[number])]

    parent = Parent(
        command_of,
        Supervision(count, lambda: Backoff(rng, first_s=1.0, most_s=30.0)),
        log=log,
        inherited={number: [descriptor for _, descriptor in opened] for number, opened in sockets.items()},
    )

    async def run() -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, parent.on_signal)
        manager = service_manager(os.environ)
        if manager is None:
            return await parent.run()
        telling = asyncio.create_task(manager.run(None, lambda: parent.is_stopping), name="service manager")
        try:
            return await parent.run()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    log.info("parent.starting", workers=count, pid=os.getpid())
    return asyncio.run(run())


def watch_parent(stop: Callable[[], None], log: FilteringBoundLogger, *, descriptor: int = STDIN) -> None:
    """In a worker: call ``stop`` once when the parent has closed its end of our standard input, or is gone.

    Raises:
        ConfigError: no parent has started this process.
    """
    kind = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        raise ConfigError(f"{NUMBER_OPTION} is for the workers that {OPTION} starts.", remedy=f"Use {OPTION} N.")
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        try:
            is_open = bool(os.read(descriptor, 1024))
        except BlockingIOError:
            return
        except OSError:
            is_open = False
        if not is_open:
            loop.remove_reader(descriptor)
            log.info("worker.stopping", why="its parent stops it, or is gone")
            stop()

    os.set_blocking(descriptor, False)
    loop.add_reader(descriptor, on_readable)


@dataclass(slots=True)
class _Process:
    process: subprocess.Popen[bytes]
    begun_s: float
    is_told: bool = False
    """It was asked to drain, so its end is expected."""

    def drain(self) -> None:
        self.is_told = True
        if self.process.stdin is not None:
            self.process.stdin.close()


class Parent:
    """Starts and stops workers as ``Supervision`` decides, and logs it."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        supervision: Supervision,
        *,
        log: FilteringBoundLogger,
        drain_most_s: float = WORKER_DRAIN_S,
        inherited: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """``command`` gives the program and arguments of a worker by its number, ``inherited`` its descriptors."""
        self._inherited = inherited or {}
        self._command = command
        self._supervision = supervision
        self._log = log
        self._drain_most_s = drain_most_s
        self._events: asyncio.Queue[Event] = asyncio.Queue()  # at most two for each worker, and one for each signal
        self._timers: list[asyncio.TimerHandle] = []
        self._running: dict[int, _Process] = {}
        self._starts: Counter[int] = Counter()
        self._result: int | None = None

    async def run(self) -> int:
        """Run until all workers have ended and none will start again. Returns the exit code.

        Cancelling closes the standard input of all workers, and waits for none: they drain on their own.
        """
        try:
            self._carry_out(self._supervision.begin())
            while self._result is None:
                event = await self._events.get()
                effects = self._supervision.step(event)
                self._report(event, effects)
                self._carry_out(effects)
        finally:
            for timer in self._timers:
                timer.cancel()
            for worker in self._running.values():
                worker.drain()
        self._log.info("parent.ended", exit_code=self._result)
        return self._result

    @property
    def is_stopping(self) -> bool:
        """Whether all workers are to end."""
        return self._supervision.is_stopping

    def on_signal(self) -> None:
        """Let all workers drain; at the second call, end them at once."""
        self._events.put_nowait(Signalled())

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(number):
                    self._start(number)
                case Pause(number, pause_s):
                    self._after(pause_s, PauseOver(number))
                case DrainWorkers(numbers, why):
                    self._log.info("parent.stopping", workers=len(numbers), why=why)
                    self._after(self._drain_most_s, DrainOverdue())
                    for number in numbers:
                        if number in self._running:
                            self._running[number].drain()
                case Kill(numbers, why):
                    self._log.error("parent.killing", workers=len(numbers), why=why, effect=UNDRAINED)
                    for number in numbers:
                        if number in self._running:
                            self._running[number].process.kill()
                case Finish(code):
                    self._result = code
                case _:
                    assert_never(effect)

    def _after(self, delay_s: float, event: Event) -> None:
        loop = asyncio.get_running_loop()
        self._timers = [timer for timer in self._timers if timer.when() > loop.time()]
        self._timers.append(loop.call_later(delay_s, self._events.put_nowait, event))

    def _start(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            process = subprocess.Popen(  # noqa: S603
                self._command(number),
                stdin=subprocess.PIPE,
                start_new_session=True,
                pass_fds=list(self._inherited.get(number, ())),
            )
        except OSError as error:
            self._events.put_nowait(WorkerEnded(number, None, 0.0, str(error)))
            return
        self._starts[number] += 1
        self._running[number] = _Process(process, loop.time())
        self._log.info("process.started", worker=number, pid=process.pid, start=self._starts[number])

        def wait() -> None:
            code = process.wait()
            with contextlib.suppress(RuntimeError):  # the loop is closed: the parent has ended
                loop.call_soon_threadsafe(self._on_end, number, code)

        threading.Thread(target=wait, name=f"waits for worker {number}", daemon=True).start()

    def _on_end(self, number: int, code: int) -> None:
        lived_s = asyncio.get_running_loop().time() - self._running[number].begun_s
        self._events.put_nowait(WorkerEnded(number, code, lived_s))

    def _report(self, event: Event, effects: Sequence[Effect]) -> None:
        """Log how a worker ended, and when it is started again."""
        if not isinstance(event, WorkerEnded):
            return
        pauses_s = [effect.pause_s for effect in effects if isinstance(effect, Pause)]
        again = {"again_in_s": round(pauses_s[0], 1)} if pauses_s else {}
        worker = self._running.pop(event.worker, None)
        if worker is None or event.code is None:
            self._log.error("process.not_started", worker=event.worker, why=event.why, **again)
            return
        (self._log.info if event.code == DRAINED and worker.is_told else self._log.error)(
            "process.ended",
            worker=event.worker,
            pid=worker.process.pid,
            **({"exit_code": event.code} if event.code >= 0 else {"signal": name_of_signal(-event.code)}),
            ran_s=round(event.lived_s, 1),
            **again,
            **(_OF_REFUSED if event.code == REFUSED and pauses_s else {}),
        )
        worker.drain()  # its standard input has no reader any more


def name_of_signal(number: int) -> str:
    """Return a signal's name; most real-time signals have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
