"""A worker's REST process: started with sockets that listen already, told how the worker is, started again if it ends.

Answers to the REST server inside a Connect worker. Here it is a process of its own, so that no request, however large
or many, delays copying. It ends when the worker does: its channel to the worker closes then. It reads and changes flows
by the topics on the target, and asks the worker only how the worker itself is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import random
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.rest import Listener, RestSettings
from mm2py.errors import ConfigError
from mm2py.kafka.errors import Backoff

BACKLOG: Final = 256
START_AFTER_S: Final = 1.0
"""The process starts so long after the worker, so that first records are not delayed. Callers wait in the backlog."""
HEALTHY_AFTER_S: Final = 60.0
SOCKETS_OPTION: Final = "--rest-sockets"
"""Of a worker with a parent: descriptors that listen already, in the order of ``listeners``."""

Answer = Callable[[str], object]
"""Returns what a REST process asks for, by name. Quick: it runs in the event loop that copies."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A socket that listens, and for what it was opened."""

    listener: Listener
    number: int
    """Of the listener among those of the settings, from 0."""
    socket: socket.socket

    @property
    def address(self) -> str:
        """Where it listens, with the real port."""
        port = self.socket.getsockname()[1]
        return str(replace(self.listener, port=port))


def bind(settings: RestSettings, log: FilteringBoundLogger, *, number: int = 1) -> list[Bound]:
    """Listen wherever the settings say. No request is answered before the REST process runs.

    Args:
        number: of the worker on this machine; each has ports of its own.
    Raises:
        ConfigError: an address that the file names cannot be listened at. The default one only warns.
    """
    found: list[Bound] = []
    for place, listener in enumerate(settings.listeners):
        at = listener.of_worker(number)
        try:
            found.append(Bound(at, place, _listen(at)))
        except OSError as error:
            why = f"Cannot listen at {at}: {error.strerror or error}."
            if settings.is_explicit or listener.for_probes:
                for bound in found:
                    bound.socket.close()
                remedy = "Set a free port there (0 takes any), or set listeners to nothing for no REST."
                raise ConfigError(why, remedy=remedy) from error
            log.warning(
                "rest.not_served",
                why=why,
                effect="this worker copies, without REST and metrics",
                remedy="Set listeners to another port, 0 for any free one, or to nothing.",
            )
    return found


def open_sockets(settings: RestSettings, log: FilteringBoundLogger, *, number: int) -> list[int]:
    """In a parent: listen for a worker, which inherits these descriptors; one that is started again gets the same.

    Raises: as ``bind``.
    """
    bound = {one.listener: one for one in bind(settings, log, number=number)}
    for one in bound.values():
        log.info("parent.listening", worker=number, at=one.address)
    wanted = [listener.of_worker(number) for listener in settings.listeners]
    return [bound[listener].socket.detach() if listener in bound else -1 for listener in wanted]


def adopt(settings: RestSettings, descriptors: Sequence[int], *, number: int) -> list[Bound]:
    """Return the sockets that the parent of a worker has opened for it; -1 stands for one that could not be."""
    return [
        Bound(listener.of_worker(number), place, socket.socket(fileno=descriptor))
        for place, (listener, descriptor) in enumerate(zip(settings.listeners, descriptors, strict=True))
        if descriptor >= 0
    ]


def _listen(at: Listener) -> socket.socket:
    if at.port > 65535:
        raise OSError("there is no such port")  # the resolver would take it modulo 65536
    everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104  (what the file asks for)
    host = at.host or everywhere
    found = socket.getaddrinfo(host, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not at.host:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind(address)
        opened.listen(BACKLOG)
        opened.setblocking(False)
    except OSError:
        opened.close()
        raise
    return opened


def python() -> list[str]:
    """Return the interpreter, which looks for modules where this process does.

    The story: the script ``mm2py`` is started in a directory that holds another ``rest.py``. The script does
    not look there, and neither may the process that it starts.
    """
    looks_here = not {"", os.getcwd()}.isdisjoint(sys.path)
    return [sys.executable] if looks_here else [sys.executable, "-P"]


class RestProcess:
    """Keeps the REST process of one worker running."""

    def __init__(
        self,
        arguments: Sequence[str],
        bound: Sequence[Bound],
        answer: Answer,
        *,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``arguments`` follow ``python -m rest``; those for the sockets and the channel are added."""
        self._arguments = arguments
        self._bound = bound
        self._answer = answer
        self._rng = rng
        self._log = log

    async def run(self) -> None:
        """Run until cancelled: the process ends then, as its channel closes."""
        for bound in self._bound:
            self._log.info("rest.listening", at=bound.address)
        backoff = Backoff(self._rng, first_s=1.0, most_s=30.0)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(START_AFTER_S)
        while True:
            begun_s = loop.time()
            try:
                why = f"it ended with exit code {await self._run_once()}"
            except OSError as error:
                why = str(error)
            if loop.time() - begun_s >= HEALTHY_AFTER_S:
                backoff.reset()
            pause_s = backoff.next_s()
            self._log.error("rest.ended", why=why, effect="no REST, no metrics; copying goes on", again_in_s=pause_s)
            await asyncio.sleep(pause_s)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        try:
            handed = [theirs.fileno(), *(bound.socket.fileno() for bound in self._bound)]
            process = await asyncio.create_subprocess_exec(
                *python(),
                *("-m", "rest"),
                *("--channel", str(theirs.fileno())),
                *("--sockets", ",".join(f"{bound.number}:{bound.socket.fileno()}" for bound in self._bound)),
                *("--listeners", ",".join(bound.listener.without_port for bound in self._bound)),
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=handed,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            serving = asyncio.create_task(self._serve(ours), name="REST channel")
            try:
                return await process.wait()
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError, ProcessLookupError):
                async with asyncio.timeout(5.0):
                    await process.wait()  # the channel is closed: it ends by itself
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    process.kill()
            raise

    async def _serve(self, channel: socket.socket) -> None:
        """Answer questions, one JSON object a line, each with one pickled value, until the process is gone."""
        reader, writer = await asyncio.open_connection(sock=channel)
        try:
            while line := await reader.readline():
                question = json.loads(line)
                value = pickle.dumps(self._answered(question["what"]), protocol=5)
                writer.write(struct.pack(">QI", question["id"], len(value)) + value)
                await writer.drain()
        except (OSError, ValueError, KeyError):
            pass  # it is gone; the process is started again
        finally:
            writer.close()

    def _answered(self, what: str) -> object:
        """Return the answer, None if there is none: the worker goes on, and the REST process says that it is silent."""
        try:
            return self._answer(what)
        except Exception:
            self._log.exception("rest.not_answered", asked=what, remedy="This is a defect in mm2py; please report it.")
            return None
