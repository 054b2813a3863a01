"""One session with ZooKeeper: kazoo behind a door, its threads and its errors kept on the other side.

kazoo runs threads of its own; what they tell arrives in the event loop, in their order. A session that ends does not
come back under another id: kazoo would go on with a new one by itself, and is stopped instead.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import create_tcp_connection
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from mm2py.config.settings import ZooKeeperSettings
from mm2py.errors import Mm2Error
from mm2py.kafka.tls import Tls, explain
from mm2py.worker.zookeeper_errors import ZooKeeperDenied, ZooKeeperRefused, shown

_MUTE: Final = logging.Logger("kazoo of mm2py", level=logging.CRITICAL + 1)
"""kazoo's log holds what it sends, passwords among it, and every attempt in a long outage."""


@dataclass(frozen=True, slots=True)
class Up:
    """A server took the session. ``session`` is not negative."""

    session: int
    timeout_s: float


class Down:
    """No server is connected; the session may live on."""


class Gone:
    """The session is over."""


_TLS_REMEDY: Final = (
    "Compare zookeeper.ssl of this file with the servers' settings; zookeeper.connect has to name their"
    " secureClientPort."
)

State = Up | Down | Gone


class Interrupted(Exception):
    """The connection broke, or the session ended, before an answer came: what was asked may have been done."""


class NodeMissing(Exception):
    """There is no such node, or nothing it could stand under."""


class Session:
    """A session from ``start`` to ``close``; its methods are for the event loop that made it."""

    def __init__(
        self, settings: ZooKeeperSettings, *, timeout_s: float, tls: Tls | None, on_state: Callable[[State], None]
    ) -> None:
        """``timeout_s`` is what is asked for; what is granted comes with ``Up``."""
        self.trouble = "no attempt has ended yet"
        """Why the last attempt to connect failed, in half a sentence."""
        self.remedy = ""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self._acl = CREATOR_ALL_ACL if settings.digest is not None and settings.set_acl else OPEN_ACL_UNSAFE
        digest = settings.digest.reveal() if settings.digest is not None else None
        self._client = KazooClient(
            hosts=shown(settings.servers),
            timeout=timeout_s,
            handler=_Handler(self, len(settings.servers), tls, self._loop),
            auth_data=[("digest", digest)] if digest is not None else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=timeout_s / 60, backoff=2, max_jitter=0.4, max_delay=timeout_s / 6
            ),
            logger=_MUTE,
        )
        self._connection = _Connection(self._client, self)
        self._client._connection = self._connection
        self._client.add_listener(self._heard)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._client.start_async()

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children.

        Raises:
            Interrupted: there is no answer.
            NodeMissing: there is no such node.
            ElectionTroubled: we may not, or it is refused.
        """
        return list(await self._answer("list", path, self._client.get_children_async(path)))

    async def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False, numbered: bool = False) -> None:
        """Create a node; one that is there already stays as it is. Raises as ``children`` does."""
        try:
            await self._answer(
                "create",
                path,
                self._client.create_async(path, value, self._acl, ephemeral=ephemeral, sequence=numbered),
            )
        except exceptions.NodeExistsError:
            return

    async def write(self, path: str, value: bytes) -> None:
        """Set a node's value, which takes a majority of the servers. Raises as ``children`` does."""
        await self._answer("write", path, self._client.set_async(path, value))

    async def call_when_deleted(self, path: str, call: Callable[[], None]) -> None:
        """Have ``call`` called once when a node without children is deleted, or when we no longer hear of it.

        Raises as ``children`` does.
        """

        def deleted(event: object) -> None:
            self._post(call)

        # A watch on its children: one on the node would also tell of each sign of life its owner writes into it.
        await self._answer("watch", path, self._client.get_children_async(path, watch=deleted))

    async def close(self, *, timeout_s: float) -> None:
        """End the session, so that its nodes go at once; after ``timeout_s`` they go when the session expires."""
        self._client.remove_listener(self._heard)
        closed = asyncio.Event()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            except Exception as error:
                self.trouble = type(error).__name__
            self._post(closed.set)

        # Not asyncio.to_thread: a server that hangs would then hold up the end of the process.
        threading.Thread(target=stop, name="zookeeper close", daemon=True).start()
        try:
            async with asyncio.timeout(timeout_s):
                await closed.wait()
        except TimeoutError:
            return

    def _heard(self, state: str) -> None:
        """Called in kazoo's thread."""
        match state:
            case KazooState.CONNECTED:
                session, _ = self._client.client_id or (0, b"")
                told: State = Up(session & (2**64 - 1), self._connection.granted_ms / 1000)
            case KazooState.SUSPENDED:
                told = Down()
            case _:
                told = Gone()
        self._post(lambda: self._on_state(told))

    def _post(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: nobody is left to hear it
            return

    async def _answer(self, what: str, path: str, pending: Any) -> Any:
        answered: asyncio.Future[Any] = self._loop.create_future()

        def settle() -> None:
            if answered.done():
                return
            if pending.exception is not None:
                answered.set_exception(pending.exception)
            else:
                answered.set_result(pending.value)

        pending.rawlink(lambda _: self._post(settle))
        has_digest = self._settings.digest is not None
        try:
            return await answered
        except (exceptions.ConnectionLoss, exceptions.SessionExpiredError, exceptions.SessionMovedError):
            raise Interrupted from None
        except exceptions.NoNodeError:
            raise NodeMissing from None
        except (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError):
            raise ZooKeeperDenied(what, path, has_digest=has_digest) from None
        except exceptions.NodeExistsError:
            raise
        except exceptions.KazooException as error:
            raise ZooKeeperRefused(what, path, type(error).__name__) from None


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Keeps what kazoo throws away: how long the server lets a session be silent, which names have no address."""

    def __init__(self, client: KazooClient, session: Session) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=_MUTE)
        self.granted_ms = 0
        self._session = session

    def _expand_client_hosts(self) -> Any:
        found = super()._expand_client_hosts()
        if not found:
            self._session.trouble, self._session.remedy = "none of these names has an address", ""
        return found

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.granted_ms = answer[0].time_out
        return answer


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Makes connections with mm2py's own TLS, so kazoo's (``others``) stays unused, and keeps why one failed.

    Called in kazoo's thread.
    """

    def __init__(self, session: Session, servers: int, tls: Tls | None, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._session = session
        self._servers = servers
        self._tls = tls
        self._loop = loop

    def create_connection(
        self, address: tuple[str, int], hostname: str = "", timeout: float = 10.0, **others: Any
    ) -> socket.socket:
        where = shown([(hostname, address[1])])
        timeout /= self._servers  # one that does not answer must not cost the session that another would take
        try:
            made: socket.socket = create_tcp_connection(socket, address, timeout=timeout)
        except OSError as error:
            self._note(f"{where}: {error.strerror or type(error).__name__}")
            raise
        if self._tls is None:
            self._note(f"{where} took the connection, and is no ZooKeeper or has no quorum")
            return made
        try:
            return self._secured(made, self._tls, hostname, timeout)
        except Exception as error:
            made.close()
            why, _ = explain(self._tls.settings, hostname, error) or (type(error).__name__, "")
            if isinstance(error, Mm2Error):
                why = error.what.rstrip(".")
            self._note(f"{where}: {why}", _TLS_REMEDY)
            raise ConnectionError(why) from error  # anything else would end kazoo's thread

    def _secured(self, made: socket.socket, tls: Tls, hostname: str, timeout: float) -> ssl.SSLSocket:
        context = asyncio.run_coroutine_threadsafe(tls.context(), self._loop).result(timeout)
        made.settimeout(timeout)
        secured = context.wrap_socket(made, server_hostname=hostname)
        self._note("the connection is secured, and there is no quorum, or no ZooKeeper behind it")
        return secured

    def _note(self, why: str, remedy: str = "") -> None:
        self._session.trouble, self._session.remedy = why, remedy
