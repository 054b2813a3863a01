"""A worker's REST process. The worker opens its sockets, answers its questions, and starts it again if it ends.

It is a process of its own, so that requests never delay copying, however large or many they are. It ends with the
worker, because its channel to the worker closes then. It reads and changes flows through the topics on the target, and
asks the worker only about the worker itself.

Counterpart: the REST server inside a Connect worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import itertools
import json
import os
import pickle
import random
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.rest import Listener, RestSettings
from mm2py.errors import ConfigError
from mm2py.inherited_sockets import BACKLOG, sockets_text
from mm2py.kafka.errors import Backoff
from mm2py.rest_token import PROVEN_USER, TokenUnusable, token_at, token_path
from mm2py.worker.facts import HEAD, Frame

START_AFTER_S: Final = 1.0
"""The process starts this long after the worker, to delay no first records. Callers wait in the backlog."""
HEALTHY_AFTER_S: Final = 60.0
ENDS_MOST_S: Final = 5.0
"""A REST process that still runs this long after its channel was closed is killed."""
SOCKETS_OPTION: Final = "--rest-sockets"
"""Given to a worker with a parent: sockets that already listen, as ``sockets_text`` writes them."""

Answer = Callable[[str], Iterable[object]]
"""Yields the answer to a named question, in parts. Each must be quick: the event loop that copies makes it."""


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A socket that listens, and its listener. A listener has one socket for each address of its host."""

    listener: Listener
    number: int
    """Of the listener among those of the settings, from 0."""
    socket: socket.socket

    @property
    def address(self) -> str:
        """Where it listens, with the real port."""
        port = self.socket.getsockname()[1]
        return str(replace(self.listener, port=port))


def bind(settings: RestSettings, log: FilteringBoundLogger, *, number: int = 1) -> list[BoundSocket]:
    """Listen wherever the settings say. No request is answered before the REST process runs.

    Args:
        number: of the worker on this machine; each has ports of its own.
    Raises:
        ConfigError: listening at an address of the file fails. If the default address fails, this only warns.
    """
    found: list[BoundSocket] = []
    for place, listener in enumerate(settings.listeners):
        at = listener.of_worker(number)
        try:
            found += [BoundSocket(at, place, opened) for opened in _listen(at)]
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


def addresses(bound: Sequence[BoundSocket]) -> list[str]:
    """Return where the sockets listen, each place once."""
    return list(dict.fromkeys(one.address for one in bound))


def refuse_shared_ports(settings: RestSettings, workers: int) -> None:
    """Raises: ConfigError, two workers of this machine would listen at one port. The default port counts, too."""
    each = [(number, one.of_worker(number)) for number in range(1, workers + 1) for one in settings.listeners]
    for (first, one), (second, other) in itertools.combinations(each, 2):
        if one.port and one.port == other.port and first != second and one.host_overlaps(other):
            raise ConfigError(
                f"With --workers {workers} each worker listens at the next port, so {one} of worker {first} and"
                f" {other} of worker {second} are one.",
                remedy=f"Let the ports of listeners and admin.listeners be at least {workers} apart, or 0.",
            )


def open_sockets(settings: RestSettings, log: FilteringBoundLogger, *, number: int) -> list[tuple[int, int]]:
    """In a parent: open the sockets of a worker, which inherits them, and gets the same ones when it is started again.

    Returns for each socket the number of its listener, from 0, and its descriptor.
    Raises: as ``bind``.
    """
    bound = bind(settings, log, number=number)
    for address in addresses(bound):
        log.info("parent.listening", worker=number, at=address)
    return [(one.number, one.socket.detach()) for one in bound]


def adopt(settings: RestSettings, sockets: Sequence[tuple[int, int]], *, number: int) -> list[BoundSocket]:
    """Return the sockets that the parent has opened for a worker, from the result of ``open_sockets``.

    Raises:
        ConfigError: the file had more listeners when the parent read it.
    """
    if any(place >= len(settings.listeners) for place, _ in sockets):
        raise ConfigError("The file has fewer listeners by now.", remedy="Restart all workers with their parent.")
    return [
        BoundSocket(settings.listeners[place].of_worker(number), place, socket.socket(fileno=descriptor))
        for place, descriptor in sockets
    ]


def make_token(settings: RestSettings, log: FilteringBoundLogger) -> None:
    """Make the token that changes take, if a listener asks for it, and log where it is, before REST answers."""
    if not settings.takes_token:
        return
    try:
        path = token_path(settings.token_file, os.environ)
        token_at(path)
    except TokenUnusable as error:
        log.warning("rest.changes_refused", why=str(error), effect="REST shows everything and changes nothing")
    else:
        log.info("rest.token", file=str(path), use=f"changes take the user {PROVEN_USER} with it as password")


def _listen(at: Listener) -> list[socket.socket]:
    """Listen at the addresses of a host that this machine has, all at one port. Raises: OSError, at none of them."""
    if at.port > 65535:
        raise OSError("there is no such port")  # the resolver would take it modulo 65536
    everywhere = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104  (what the file asks for)
    resolved = socket.getaddrinfo(at.host or everywhere, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found = dict.fromkeys((family, address) for family, _, _, _, address in resolved)
    if at.is_loopback:  # without users all may read there, whatever a hosts file calls localhost
        found = dict.fromkeys((family, address) for family, address in found if _is_loopback(str(address[0])))
    if not found:
        raise OSError(f"{at.host} is no address of this machine")
    opened: list[socket.socket] = []
    away: OSError | None = None
    for family, address in found:
        port = opened[0].getsockname()[1] if opened else at.port
        try:
            opened.append(_listen_at(family, (address[0], port, *address[2:]), is_everywhere=not at.host))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                for one in opened:
                    one.close()
                raise
            away = error  # for example ::1 where the machine has no IPv6
    if not opened and away is not None:
        raise away
    return opened


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _listen_at(family: int, address: tuple[str | int, ...], *, is_everywhere: bool) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if is_everywhere else 1)
        opened.bind(address)
        opened.listen(BACKLOG)
        opened.setblocking(False)
    except OSError:
        opened.close()
        raise
    return opened


def python() -> list[str]:
    """Return the command of the interpreter that looks for modules where this process does.

    The story: the script ``mm2py`` is started in a directory that holds another module ``json``. The script does
    not look there, and neither may the process that it starts.
    """
    looks_here = not {"", os.getcwd()}.isdisjoint(sys.path)
    return [sys.executable] if looks_here else [sys.executable, "-P"]


class RestProcess:
    """Keeps the REST process of one worker running."""

    def __init__(
        self,
        arguments: Sequence[str],
        bound: Sequence[BoundSocket],
        answer: Answer,
        *,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``arguments`` follow ``python -m mm2py_rest``; those for the sockets and the channel are added."""
        self._arguments = arguments
        self._bound = bound
        self._answer = answer
        self._rng = rng
        self._log = log

    async def run(self) -> None:
        """Run until cancelled; the process then ends, because its channel closes."""
        for address in addresses(self._bound):
            self._log.info("rest.listening", at=address)
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
                *("-m", "mm2py_rest"),
                *("--channel", str(theirs.fileno())),
                *("--sockets", sockets_text([(bound.number, bound.socket.fileno()) for bound in self._bound])),
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
            serving = asyncio.create_task(self.serve_answers(ours), name="REST channel")
            try:
                return await process.wait()
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError, ProcessLookupError):
                async with asyncio.timeout(ENDS_MOST_S):
                    await process.wait()  # the channel is closed: it ends by itself
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    process.kill()
            raise

    async def serve_answers(self, channel: socket.socket) -> None:
        """Answer questions, one JSON object a line, each with pickled parts, until the process is gone."""
        reader, writer = await asyncio.open_connection(sock=channel)
        try:
            while line := await reader.readline():
                question = json.loads(line)
                await self._send_answer(writer, question["id"], question["what"])
        except (OSError, ValueError, KeyError):
            pass  # it is gone; the process is started again
        finally:
            writer.close()

    async def _send_answer(self, writer: asyncio.StreamWriter, number: int, what: str) -> None:
        """Send an answer part by part; between the parts the event loop continues to copy.

        If the answer cannot be made, the worker goes on, and the REST process reports that the worker is silent.
        Raises: OSError, the REST process is gone.
        """
        end = Frame.END
        try:
            for part in self._answer(what):
                value = pickle.dumps(part, protocol=5)
                writer.write(HEAD.pack(number, len(value), Frame.PART) + value)
                await writer.drain()
                await asyncio.sleep(0)
        except OSError:
            raise
        except Exception:
            self._log.exception("rest.not_answered", asked=what, remedy="This is a defect in mm2py; please report it.")
            end = Frame.FAILED
        writer.write(HEAD.pack(number, 0, end))
        await writer.drain()
