"""One session with ZooKeeper: kazoo's public client, with its threads and its errors kept on this side.

kazoo runs threads of its own; what they report arrives in the event loop, in their order. A session that has ended does
not come back under another id: kazoo would begin a new one by itself, and is stopped instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from mm2py.config.kinds import HostPort
from mm2py.config.settings import ZooKeeperSettings
from mm2py.errors import Mm2Error
from mm2py.kafka.security.tls import Tls, explain

_MUTE: Final = logging.Logger("kazoo of mm2py", level=logging.CRITICAL + 1)
"""kazoo's log holds what it sends, passwords among it, and every attempt in a long outage."""
_TLS_REMEDY: Final = (
    "Compare zookeeper.ssl of this file with the servers' settings; zookeeper.connect has to name their"
    " secureClientPort."
)
_NO_ANSWER: Final = (exceptions.ConnectionLoss, exceptions.SessionExpiredError, exceptions.SessionMovedError)
_DENIED: Final = (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError)


class ElectionBlocked(Mm2Error):
    """This worker cannot be elected until something outside is repaired. No message holds a password."""

    retriable = True

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(what, remedy=f"{remedy} Nothing is lost meanwhile: this worker follows. mm2py keeps trying.")


class Interrupted(Exception):
    """The connection broke, or the session ended, before an answer came: what was asked may have been done."""


class NodeMissing(Exception):
    """There is no such node, or no parent for it."""


class Connection(Enum):
    """Of a session to any of the servers."""

    UP = KazooState.CONNECTED
    BROKEN = KazooState.SUSPENDED
    """No server is connected; the session may live on."""
    ENDED = KazooState.LOST
    """The session has expired, for good."""


class Session:
    """A session, from its making to ``close``; its methods are for the event loop that made it."""

    def __init__(
        self, settings: ZooKeeperSettings, *, timeout_s: float, tls: Tls | None, on_change: Callable[[Session], None]
    ) -> None:
        """Begin to connect. ``on_change`` is called when ``connection`` or a node's children have changed."""
        self.id = 0
        """Known once ``connection`` is UP; not negative."""
        self.connection = Connection.BROKEN
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._handler = _Handler(len(settings.servers), tls, self._loop)
        self._acl = CREATOR_ALL_ACL if settings.digest is not None and settings.set_acl else OPEN_ACL_UNSAFE
        digest = settings.digest.reveal() if settings.digest is not None else None
        self._client = KazooClient(
            hosts=_shown(settings.servers),
            timeout=timeout_s,
            handler=self._handler,
            auth_data=[("digest", digest)] if digest is not None else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=timeout_s / 60, backoff=2, max_jitter=0.4, max_delay=timeout_s / 6
            ),
            logger=_MUTE,
        )
        self._client.add_listener(self._heard)
        self._client.start_async()

    def unreachable(self) -> ElectionBlocked:
        """Return what to tell when no server has answered for long."""
        why, remedy = self._handler.last_failure
        return ElectionBlocked(
            f"No ZooKeeper of zookeeper.connect ({_shown(self._settings.servers)}) answers: {why}.",
            remedy=remedy or "Start it, correct zookeeper.connect, or let mm2py through to it.",
        )

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children, and have ``on_change`` called when there are others.

        Raises:
            Interrupted: there is no answer.
            NodeMissing: there is no such node.
            ElectionBlocked: it is not allowed, or refused.
        """
        # The same watch each time: kazoo keeps all that are different until one of them is called.
        return list(await self._answer("list", path, self._client.get_children_async(path, watch=self._heard_change)))

    async def exists(self, path: str) -> bool:
        """Return whether there is such a node. Raises as ``children`` does."""
        return await self._answer("look for", path, self._client.exists_async(path)) is not None

    async def ensure_path(self, path: str) -> None:
        """Create a node, and those above it that are missing. Raises as ``children`` does."""
        await self._answer("create", path, self._client.ensure_path_async(path, acl=self._acl))

    async def create(self, path: str, value: bytes) -> None:
        """Create a node that goes with the session and gets a number. Raises as ``children`` does."""
        pending = self._client.create_async(path, value, self._acl, ephemeral=True, sequence=True)
        await self._answer("create", path, pending)

    async def write(self, path: str, value: bytes) -> None:
        """Set a node's value, which takes a majority of the servers. Raises as ``children`` does."""
        await self._answer("write", path, self._client.set_async(path, value))

    async def close(self, *, timeout_s: float) -> None:
        """End the session, so that its nodes go at once; after ``timeout_s`` they go when the session expires."""
        self._client.remove_listener(self._heard)
        self._on_change = lambda _: None
        closed = asyncio.Event()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            finally:
                self._post(closed.set)

        # Not asyncio.to_thread: a server that hangs would then hold up the end of the process.
        threading.Thread(target=stop, name="zookeeper close", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await closed.wait()

    def _heard(self, state: str) -> None:
        """Called in kazoo's thread."""
        session, _ = self._client.client_id or (0, b"")
        self._post(lambda: self._set(Connection(state), session & (2**64 - 1)))

    def _set(self, connection: Connection, session: int) -> None:
        if self.connection is not Connection.ENDED:
            self.connection, self.id = connection, session or self.id
            self._on_change(self)

    def _heard_change(self, _: object) -> None:
        """Called in kazoo's thread."""
        self._post(lambda: self._on_change(self))

    def _post(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            self._loop.call_soon_threadsafe(call)

    async def _answer(self, what: str, path: str, pending: Any) -> Any:
        answered = asyncio.Event()
        pending.rawlink(lambda _: self._post(answered.set))
        await answered.wait()
        try:
            return pending.get(block=False)
        except _NO_ANSWER:
            raise Interrupted from None
        except exceptions.NoNodeError:
            raise NodeMissing from None
        except _DENIED:
            who = "a client without" if self._settings.digest is None else "the user of"
            raise ElectionBlocked(
                f"ZooKeeper does not let {who} zookeeper.auth.digest {what} {path}: wrong user or password,"
                " or another's node.",
                remedy="Check zookeeper.auth.digest, which has to be the same for the whole group, and the node's ACL"
                f" (zkCli.sh getAcl {path}); or give the group a chroot of its own in zookeeper.connect.",
            ) from None
        except exceptions.KazooException as error:
            raise ElectionBlocked(
                f"ZooKeeper does not {what} {path}: {type(error).__name__}.",
                remedy="Check that zookeeper.connect names a ZooKeeper 3.4 or later, and its log.",
            ) from None


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Makes connections with mm2py's own TLS instead of kazoo's (``others``), and keeps why one failed.

    Called in kazoo's thread.
    """

    def __init__(self, servers: int, tls: Tls | None, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.last_failure: tuple[str, str] = "none of these names has an address", ""
        """Why the last attempt to connect failed, and what to do. kazoo does not even ask for names without one."""
        self._servers = servers
        self._tls = tls
        self._loop = loop

    def create_connection(
        self, address: tuple[str, int], hostname: str = "", timeout: float = 10.0, **others: Any
    ) -> socket.socket:
        where = _shown([(hostname, address[1])])
        timeout /= self._servers  # one that does not answer must not cost the session that another would take
        try:
            made: socket.socket = super().create_connection(address, timeout=timeout)
        except OSError as error:
            self.last_failure = f"{where}: {error.strerror or type(error).__name__}", ""
            raise
        if self._tls is None:
            self.last_failure = f"{where} took the connection, and is no ZooKeeper or has no quorum", ""
            return made
        try:
            return self._secured(made, self._tls, hostname, timeout)
        except Exception as error:
            made.close()
            why, _ = explain(self._tls.settings, hostname, error) or (type(error).__name__, "")
            if isinstance(error, Mm2Error):
                why = error.what.rstrip(".")
            self.last_failure = f"{where}: {why}", _TLS_REMEDY
            raise ConnectionError(why) from error  # anything else would end kazoo's thread

    def _secured(self, made: socket.socket, tls: Tls, hostname: str, timeout: float) -> ssl.SSLSocket:
        context = asyncio.run_coroutine_threadsafe(tls.context(), self._loop).result(timeout)
        made.settimeout(timeout)
        secured = context.wrap_socket(made, server_hostname=hostname)
        self.last_failure = "the connection is secured, and there is no quorum, or no ZooKeeper behind it", ""
        return secured


def _shown(servers: Sequence[HostPort]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)
