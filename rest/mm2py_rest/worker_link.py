"""Questions of the REST process to its worker, over the channel that ``mm2py/cli/rest_process.py`` opens."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import socket
from typing import Any, Final

from mm2py.flow import Flow
from mm2py.metrics.worker_numbers import WorkerSnapshot, assembled
from mm2py.worker.facts import COORDINATED, FACTS, HEAD, LOG_LEVEL, SNAPSHOT, Frame, WorkerFacts

ANSWER_MOST_S: Final = 5.0
"""A worker that takes longer has something that blocks its event loop."""


class WorkerSilent(Exception):
    """The worker does not answer."""


class WorkerLink:
    """Asks one worker. ``run`` it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[list[Any]]] = {}
        self._parts: dict[int, list[Any]] = {}
        """The parts of the answer that have come, by question."""
        self._ids = itertools.count()

    async def run(self) -> None:
        """Receive answers until the worker has ended."""
        reader, self._writer = await asyncio.open_connection(sock=self._channel)
        try:
            while True:
                number, size, kind = HEAD.unpack(await reader.readexactly(HEAD.size))
                part = await reader.readexactly(size)
                if number not in self._waiting:
                    continue  # it came too late
                if kind == Frame.PART:
                    self._parts[number].append(pickle.loads(part))  # noqa: S301  (our own parent wrote it)
                elif not self._waiting[number].done():
                    self._waiting[number].set_result(self._parts[number] if kind == Frame.END else [])
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._writer.close()

    async def facts(self) -> WorkerFacts:
        """Return the worker's health. Raises: WorkerSilent."""
        (found,) = await self.ask(FACTS)
        assert isinstance(found, WorkerFacts)  # noqa: S101
        return found

    async def coordinated(self) -> frozenset[Flow]:
        """Return the flows that the worker coordinates now. Raises: WorkerSilent."""
        (found,) = await self.ask(COORDINATED)
        assert isinstance(found, frozenset)  # noqa: S101
        return found

    async def snapshot(self) -> WorkerSnapshot:
        """Return the worker's counters, for its metrics. Raises: WorkerSilent."""
        return assembled(await self.ask(SNAPSHOT))

    async def log_level(self) -> str:
        """Return the worker's log level, one of ``mm2py.logs.LEVELS``. Raises: WorkerSilent."""
        (found,) = await self.ask(LOG_LEVEL)
        assert isinstance(found, str)  # noqa: S101
        return found

    async def set_log_level(self, level: str) -> None:
        """Make the worker log at this level, one of ``mm2py.logs.LEVELS``. Raises: WorkerSilent."""
        await self.ask(f"{LOG_LEVEL} {level}")

    async def ask(self, what: str) -> list[Any]:
        """Return the worker's answer, in one part or more. Raises: WorkerSilent."""
        if self._writer is None or self._writer.is_closing():
            raise WorkerSilent("The worker is gone.")
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._parts[number] = []
        self._writer.write(json.dumps({"id": number, "what": what}).encode() + b"\n")
        try:
            async with asyncio.timeout(ANSWER_MOST_S):
                found: list[Any] = await answer
            if not found:
                raise WorkerSilent("The worker cannot tell. Its log says why: rest.not_answered.")
            return found
        except TimeoutError:
            raise WorkerSilent(f"The worker has not answered for {ANSWER_MOST_S:g} s.") from None
        finally:
            self._waiting.pop(number, None)
            self._parts.pop(number, None)
