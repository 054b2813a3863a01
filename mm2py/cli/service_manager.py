"""What systemd hears of a service of ``Type=notify``: that a worker serves, lives and stops.

While a worker starts, it asks for more time as long as its event loop lives: a cluster that is away for an hour is no
reason to end it, and one that hangs is ended. With ``--workers N`` each worker may say that it serves (the unit has
``NotifyAccess=all``), and their parent says the rest.

Counterpart: sd_notify(3). MirrorMaker 2 says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mm2py.worker.facts import WorkerFacts

LOOK_EVERY_S: Final = 1.0
STARTING_MORE_S: Final = 60
"""How much longer a start may take, counted from each look. It is more than a busy machine delays a look."""
SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"


@dataclass(slots=True)
class ServiceNotices:
    """Decides what to tell. Pure.

    Args:
        is_main: this is the process that systemd has started, and not a worker of its.
    """

    is_main: bool
    has_watchdog: bool = False
    _is_ready: bool = field(default=False, init=False)
    _is_stopping: bool = field(default=False, init=False)
    _status: str = field(default="", init=False)

    def next(self, facts: WorkerFacts | None, *, stops: bool) -> list[str]:
        """Return the assignments to send now.

        Args:
            facts: of the worker of this process; None: it has none, because it is the parent of workers.
        """
        told = []
        if stops:
            if self.is_main and not self._is_stopping:
                told.append("STOPPING=1")
            self._is_stopping = True
        elif facts is not None and not self._is_ready:
            self._is_ready = not facts.unready
            told.append("READY=1" if self._is_ready else f"EXTEND_TIMEOUT_USEC={STARTING_MORE_S * 1_000_000}")
        if self.is_main and self.has_watchdog:
            told.append("WATCHDOG=1")
        status = "" if facts is None else " ".join((facts.unready or facts.message).split())
        if self.is_main and status != self._status:
            self._status = status
            told.append(f"STATUS={status}")
        return told

    def forget(self) -> None:
        """What was returned last did not arrive: say it again."""
        self._is_ready = self._is_stopping = False
        self._status = ""


class ServiceManager:
    """Tells systemd. ``run`` it beside the worker, or the parent."""

    def __init__(self, address: str, notices: ServiceNotices, *, every_s: float = LOOK_EVERY_S) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._notices = notices
        self._every_s = every_s
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    async def run(self, facts: Callable[[], WorkerFacts] | None, is_stopping: Callable[[], bool]) -> None:
        """Tell what changes, until cancelled. The last look is at the end: a stop may take less than a second."""
        try:
            while True:
                self.look(facts, is_stopping)
                await asyncio.sleep(self._every_s)
        finally:
            self.look(facts, is_stopping)
            self._socket.close()

    def look(self, facts: Callable[[], WorkerFacts] | None, is_stopping: Callable[[], bool]) -> None:
        """Tell what is to be told now. If systemd does not take it, the next look tells it again."""
        told = self._notices.next(None if facts is None else facts(), stops=is_stopping())
        if told:
            try:
                self._socket.sendto("\n".join(told).encode(), self._address)
            except OSError:
                self._notices.forget()


def service_manager(environment: Mapping[str, str], *, is_worker_of_parent: bool = False) -> ServiceManager | None:
    """Return whom to tell; None: no service manager waits for it."""
    address = environment.get(SOCKET, "")
    if not address.startswith(("/", "@")):
        return None
    is_ours = environment.get(WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
    watchdog_s = 0.0
    with contextlib.suppress(ValueError):
        watchdog_s = int(environment.get(WATCHDOG, "0")) / 1e6
    notices = ServiceNotices(is_main=not is_worker_of_parent, has_watchdog=is_ours and watchdog_s > 0)
    every_s = min(LOOK_EVERY_S, watchdog_s / 3) if notices.has_watchdog else LOOK_EVERY_S
    return ServiceManager(address, notices, every_s=every_s)
