"""One uvicorn server for each listener, with limits for clients that send nothing or do not read.

uvicorn ends a connection that is idle after an answer. It waits without end for a client that never sends a request,
sends it one letter at a time, or does not read its answer. It counts connections only after TLS. So this module accepts
them itself, and ``crowd.py`` decides which of them stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from structlog.typing import FilteringBoundLogger
from uvicorn.protocols.http.h11_impl import H11Protocol

from mm2py.config.rest import ClientAuth, ServerTls
from mm2py.inherited_sockets import BACKLOG
from mm2py.kafka.errors import KeyMaterialUnusable
from mm2py.kafka.security.key_material import Identity
from mm2py.kafka.security.settings import TlsSettings
from mm2py.kafka.security.tls import Tls, make_server_context
from mm2py_rest.access.admission import CERTIFICATE_KEY, HEAD_MAX_BYTES, App
from mm2py_rest.access.callers import network_of
from mm2py_rest.access.crowd import Crowd, Limits
from mm2py_rest.access.roles import HEALTH_PATHS
from mm2py_rest.errors import error_body
from mm2py_rest.uniform import Send

FIRST_BYTE_MOST_S: Final = 10.0
"""Limit for the first byte of a connection with TLS."""
HANDSHAKE_MOST_S: Final = 10.0
GOODBYE_MOST_S: Final = 5.0
"""Limit for the client to end its TLS."""
HEAD_MOST_S: Final = 10.0
"""From the first byte of a request, or from its connection, to the end of its headers."""
IDLE_MOST_S: Final = 15
UNREAD_MOST_S: Final = 30.0
"""Limit for a client to leave an answer unread."""
AGAIN_S: Final = 5.0
ACCEPT_AGAIN_S: Final = 0.1
"""Pause after the process had no descriptor left."""
CLOSING_MOST_S: Final = 3
"""How long requests may continue after the worker has ended. Closing everything takes less than ``ENDS_MOST_S``."""

_VERIFY: Final[dict[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """A socket that was accepted, and the address to which ``Crowd`` counts it."""

    socket: socket.socket
    network: str

    def end(self) -> None:
        """End the connection in any state: each reader of the socket sees its end."""
        with contextlib.suppress(OSError):  # it has ended
            self.socket.shutdown(socket.SHUT_RDWR)


class Server(uvicorn.Server):
    """Accepts connections itself. Ignores signals: at a signal the worker drains, and this process ends after it."""

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self.crowd: Crowd[Accepted] = Crowd(limits)
        self.tls: ListenerTls | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def connection(accepted: Accepted) -> ServedConnection:
            return ServedConnection(
                self.config, self.server_state, self.lifespan.state, crowd=self.crowd, accepted=accepted
            )

        doors = [_Door(opened, self.crowd, self.tls, connection) for opened in sockets or []]
        for door in doors:
            door.open()
        self.servers = doors  # type: ignore[assignment]  # uvicorn closes them and waits until they have closed
        self.started = True


class _Door:
    """Accepts the connections of one socket."""

    def __init__(
        self,
        opened: socket.socket,
        crowd: Crowd[Accepted],
        tls: ListenerTls | None,
        connection: Callable[[Accepted], ServedConnection],
    ) -> None:
        self._opened = opened
        self._crowd = crowd
        self._tls = tls
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._entering: dict[asyncio.Task[None], Accepted] = {}
        """Connections whose TLS handshake has not ended."""

    def open(self) -> None:
        self._opened.setblocking(False)
        self._loop.add_reader(self._opened, self._accept)

    def close(self) -> None:
        """Accept no more connections. uvicorn ends those that have entered."""
        self._loop.remove_reader(self._opened)
        if self._again is not None:
            self._again.cancel()
        for accepted in self._entering.values():
            accepted.end()

    async def wait_closed(self) -> None:
        if self._entering:
            await asyncio.wait(self._entering)

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, address = self._opened.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left, or no memory
                self._loop.remove_reader(self._opened)
                self._again = self._loop.call_later(ACCEPT_AGAIN_S, self.open)
                _end(self._crowd.shed())
                return
            accepted = Accepted(connection, network_of(str(address[0])))
            _end(self._crowd.enter(accepted, accepted.network))
            task = self._loop.create_task(self._enter(accepted), name="connection enters")
            self._entering[task] = accepted
            task.add_done_callback(self._entering.pop)

    async def _enter(self, accepted: Accepted) -> None:
        made = functools.partial(self._connection, accepted)
        tls: dict[str, Any] = {}
        has_entered = False
        try:
            accepted.socket.setblocking(False)
            if self._tls is not None:
                await self._first_byte(accepted.socket)  # a silent client costs a socket and nothing else
                tls = {
                    "ssl": self._tls.context(),
                    "ssl_handshake_timeout": HANDSHAKE_MOST_S,
                    "ssl_shutdown_timeout": GOODBYE_MOST_S,
                }
            await self._loop.connect_accepted_socket(made, accepted.socket, **tls)
            has_entered = True  # from here on ``connection_lost`` makes it leave
        except OSError:  # so are SSLError and TimeoutError: the client has gone, or sent nothing
            pass
        finally:
            if not has_entered:
                self._crowd.leave(accepted)

    async def _first_byte(self, connection: socket.socket) -> None:
        """Wait for the first byte. Raises: OSError, none arrived in time; the connection is closed."""
        readable = asyncio.Event()
        try:
            self._loop.add_reader(connection, readable.set)
            try:
                async with asyncio.timeout(FIRST_BYTE_MOST_S):
                    await readable.wait()
            finally:
                self._loop.remove_reader(connection)
            if not connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError
        except BaseException:
            connection.close()
            raise


def _end(accepted: Accepted | None) -> None:
    if accepted is not None:
        accepted.end()


def make_server(app: App, limits: Limits | None = None) -> Server:
    """Return the server of one listener."""
    config = uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a client could forge them
        lifespan="off",
        h11_max_incomplete_event_size=HEAD_MAX_BYTES,
        timeout_keep_alive=IDLE_MOST_S,
        timeout_graceful_shutdown=CLOSING_MOST_S,
    )
    config.load()
    return Server(config, limits or Limits())


async def serve(server: Server, opened: socket.socket, tls: ServerTls | None, log: FilteringBoundLogger) -> None:
    """Serve one listener. While its certificate cannot be used, it waits; other listeners are served."""
    told = ""
    while tls is not None:
        try:
            server.tls = ListenerTls(tls, lambda why: log.warning("security.stale", why=why))
            break
        except KeyMaterialUnusable as error:
            if str(error) != told:
                told = str(error)
                log.error("rest.listener_not_served", at=opened.getsockname(), why=told, again_every_s=AGAIN_S)
            await asyncio.sleep(AGAIN_S)
    await server.serve([opened])


class ListenerTls:
    """The TLS of a listener. Changed files apply from the next connection, and no session is resumed in another one."""

    def __init__(self, settings: ServerTls, report: Callable[[str], None]) -> None:
        """``report`` gets a sentence when a changed file cannot be used; the old content stays in use.

        Raises:
            KeyMaterialUnusable: a file cannot be used.
        """
        self._settings = settings.settings
        self._verify = verify = _VERIFY[settings.client_auth]

        def make(tls: TlsSettings, trusted: Any, identity: Identity | None) -> ssl.SSLContext:
            return make_server_context(tls, trusted if verify is not ssl.CERT_NONE else None, identity, verify)

        self._files = Tls(settings.settings, report, make=make)
        self._files.current()

    def context(self) -> ssl.SSLContext:
        """Return the context of one connection; each needs its own.

        The story: the authority of a client is removed. The client resumes its session of TLS 1.2, and is not asked for
        its certificate again. OpenSSL keeps such sessions in the context with which a connection begins, with or
        without tickets, and Python cannot forbid it. So each connection begins with an empty context that is used once.
        """
        current = self._files.current()
        first = make_server_context(self._settings, None, None, self._verify)
        first.verify_flags = current.verify_flags

        def take_current(connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
            connection.context = current

        first.sni_callback = take_current  # called in each handshake, with or without a name
        return first


class ServedConnection(H11Protocol):
    """One connection, with deadlines."""

    def __init__(self, *args: Any, crowd: Crowd[Accepted], accepted: Accepted) -> None:
        super().__init__(*args)
        self._crowd = crowd
        self._accepted = accepted
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        secured = transport.get_extra_info("ssl_object")
        certificate = secured.getpeercert(True) if secured is not None else None
        app = self.app

        async def run(scope: Any, receive: Any, send: Any) -> None:
            self._head_is_there()
            scope["state"][CERTIFICATE_KEY] = certificate
            if scope["path"].removesuffix("/") in HEALTH_PATHS and scope["method"] in ("GET", "HEAD"):
                await app(scope, receive, send)
            elif self._crowd.begins(self._accepted):
                try:
                    await app(scope, receive, send)
                finally:
                    _end(self._crowd.ends(self._accepted))
            else:
                await _come_later(send)

        self.app = run
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_head()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.leave(self._accepted)
        self._head_is_there()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(UNREAD_MOST_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_MOST_S, self.transport.abort)

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


async def _come_later(send: Send) -> None:
    body = json.dumps(error_body(503, "Too many requests at once, in all or from your address. Ask again.")).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"2"),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
