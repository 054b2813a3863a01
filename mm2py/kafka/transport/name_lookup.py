"""From a broker's host name to its addresses, in threads of our own: a silent name server delays no other broker.

Answers to ClientUtils.resolve and InetAddress in Apache Kafka's clients. An event loop looks names up in a pool of few
threads that the whole process shares, under uvloop in two; a look-up without an answer takes one for many seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

AT_ONCE_MOST: Final = 8
"""So many look-ups of one cluster run at a time. Only if as many names are dead does a live one wait."""
PATIENCE_S: Final = 0.5
"""How long a look-up is waited for where the addresses are known that the name had last."""
NO_SUCH_NAME: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})

LookUp = Callable[[str], Sequence[str]]
"""Blocks. Returns a name's addresses, the one to try first in front; raises OSError."""


def look_up(host: str) -> list[str]:
    """Ask the system, as an event loop does."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_text(address) for _, _, _, _, address in found))


class NameLookup:
    """The look-ups of one cluster's names, and what came of the last ones. Belongs to one event loop."""

    def __init__(self, ask: LookUp = look_up, *, patience_s: float = PATIENCE_S) -> None:
        self._ask = ask
        self._patience_s = patience_s
        self._known: dict[str, Sequence[str]] = {}
        self._asked: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._waiting: deque[str] = deque()
        """Names that wait for a thread to be free."""
        self._threads = 0

    async def addresses(self, host: str) -> Sequence[str]:
        """Return the addresses of a name, at least one.

        Where a name server is silent, or cannot be asked, the last known addresses are used. Its answer counts as soon
        as it comes, also that there is no such name any more: the address may be another cluster's by now. Cancelling
        leaves the look-up under way; the next caller gets its answer.

        Raises: OSError, as ``socket.getaddrinfo``, or because no thread can be started.
        """
        if _is_address(host):
            return [host]
        known = self._known.get(host)
        try:
            async with asyncio.timeout(None if known is None else self._patience_s):
                return await asyncio.shield(self._asked.get(host) or self._begin(host))
        except OSError as error:  # TimeoutError, too
            if known is None or _is_no(error):
                raise
            return known

    def _begin(self, host: str) -> asyncio.Future[Sequence[str]]:
        answer = self._asked[host] = asyncio.get_running_loop().create_future()
        self._waiting.append(host)
        self._start_threads()
        return answer

    def _start_threads(self) -> None:
        while self._waiting and self._threads < AT_ONCE_MOST:
            self._threads += 1
            host, loop = self._waiting.popleft(), asyncio.get_running_loop()
            # Not asyncio.to_thread: its few threads are shared, and the end of the process waits for them.
            thread = threading.Thread(target=self._work, args=(host, loop), name=f"look-up of {host}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the container's limit of threads is reached: there would be no answer
                self._take(host, OSError(f"its name cannot be looked up: {error}"))

    def _work(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in a thread, for as long as the system takes."""
        found: Sequence[str] | Exception
        try:
            found = self._ask(host)
        except Exception as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the event loop may have ended meanwhile
            loop.call_soon_threadsafe(self._end, host, found)

    def _end(self, host: str, found: Sequence[str] | Exception) -> None:
        self._take(host, found)
        self._start_threads()

    def _take(self, host: str, found: Sequence[str] | Exception) -> None:
        self._threads -= 1
        answer = self._asked.pop(host)
        if isinstance(found, Exception):
            if _is_no(found):
                self._known.pop(host, None)
            answer.set_exception(found)
            answer.exception()  # marks it as seen, also when all callers have given up
        else:
            self._known[host] = found
            answer.set_result(found)


def _is_no(error: Exception) -> bool:
    """Whether a name server has answered that there is no such name."""
    return isinstance(error, socket.gaierror) and error.errno in NO_SUCH_NAME


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _text(address: tuple[object, ...]) -> str:
    """Return an address as connecting takes it: one of a link names the link, too."""
    host, *rest = address
    return f"{host}%{rest[2]}" if len(rest) == 3 and rest[2] else str(host)
