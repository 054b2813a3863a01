"""The REST process asks its worker, over the channel that ``mm2py/cli/rest_process.py`` opens."""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import socket
import struct
from typing import Any, Final

from mm2py.metrics.snapshot import WorkerSnapshot
from mm2py.worker.facts import FACTS, LOG_LEVEL, SNAPSHOT, WorkerFacts

ANSWER_MOST_S: Final = 5.0
"""A worker that takes longer is busy with something that it should not be."""
_HEAD: Final = struct.Struct(">QI")


class WorkerSilent(Exception):
    """The worker does not answer."""


class WorkerLink:
    """Asks one worker. ``run`` it."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count()

    async def run(self) -> None:
        """Take answers until the worker is gone."""
        reader, self._writer = await asyncio.open_connection(sock=self._channel)
        try:
            while True:
                number, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                value = pickle.loads(await reader.readexactly(size))  # noqa: S301  (our own parent wrote it)
                waiting = self._waiting.pop(number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(value)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._writer.close()

    async def facts(self) -> WorkerFacts:
        """Return how the worker is now. Raises: WorkerSilent."""
        found = await self.ask(FACTS)
        assert isinstance(found, WorkerFacts)  # noqa: S101
        return found

    async def snapshot(self) -> WorkerSnapshot:
        """Return what the worker counts, for its metrics. Raises: WorkerSilent."""
        found = await self.ask(SNAPSHOT)
        assert isinstance(found, WorkerSnapshot)  # noqa: S101
        return found

    async def log_level(self) -> str:
        """Return how much the worker logs, one of ``mm2py.logs.LEVELS``. Raises: WorkerSilent."""
        found = await self.ask(LOG_LEVEL)
        assert isinstance(found, str)  # noqa: S101
        return found

    async def set_log_level(self, level: str) -> None:
        """Let the worker log at this level, one of ``mm2py.logs.LEVELS``. Raises: WorkerSilent."""
        await self.ask(f"{LOG_LEVEL} {level}")

    async def ask(self, what: str) -> Any:
        """Return what the worker says. Raises: WorkerSilent."""
        if self._writer is None or self._writer.is_closing():
            raise WorkerSilent("The worker is gone.")
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps({"id": number, "what": what}).encode() + b"\n")
        try:
            async with asyncio.timeout(ANSWER_MOST_S):
                found = await answer
            if found is None:
                raise WorkerSilent("The worker cannot tell. Its log says why: rest.not_answered.")
            return found
        except TimeoutError:
            raise WorkerSilent(f"The worker has not answered for {ANSWER_MOST_S:g} s.") from None
        finally:
            self._waiting.pop(number, None)
