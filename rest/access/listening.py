"""One uvicorn server for each listener, with limits for connections that say nothing, or never listen.

uvicorn ends a connection that is idle after an answer. It waits without end for one that never asks, asks a letter at a
time, or does not take its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Generator
from typing import Any, Final

import uvicorn
from structlog.typing import FilteringBoundLogger
from uvicorn.protocols.http.h11_impl import H11Protocol

from mm2py.cli.rest_process import BACKLOG
from mm2py.config.rest import ClientAuth, ServerTls
from mm2py.kafka.errors import KeyMaterialUnusable
from mm2py.kafka.security.key_material import Identity
from mm2py.kafka.security.settings import TlsSettings
from mm2py.kafka.security.tls import Tls, make_server_context
from rest.access.gate import CERTIFICATE_KEY, HEAD_MAX_BYTES, App

CONNECTIONS_MOST: Final = 400
"""Of a listener; further ones are answered 503, and closed at once from twice as many on."""
HEAD_MOST_S: Final = 10.0
"""From the first byte of a request, or from its connection, to the end of its headers."""
IDLE_MOST_S: Final = 15
UNREAD_MOST_S: Final = 30.0
"""So long a client may leave an answer unread."""
AGAIN_S: Final = 5.0
CLOSING_MOST_S: Final = 3
"""How long requests may go on when the worker has ended. All that closes then takes less than ``ENDS_MOST_S``."""

_VERIFY: Final[dict[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class Server(uvicorn.Server):
    """Leaves signals alone: the worker drains at them, and this process ends after it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def make_server(app: App) -> Server:
    """Return the server of one listener."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whatever a caller says of itself
        lifespan="off",
        backlog=BACKLOG,
        limit_concurrency=CONNECTIONS_MOST,
        h11_max_incomplete_event_size=HEAD_MAX_BYTES,
        timeout_keep_alive=IDLE_MOST_S,
        timeout_graceful_shutdown=CLOSING_MOST_S,
    )
    config.load()
    return Server(config)


async def serve(server: Server, opened: socket.socket, tls: ServerTls | None, log: FilteringBoundLogger) -> None:
    """Serve at one listener. While its certificate cannot be used, the others are served, and this one waits for it."""
    told = ""
    while tls is not None:
        try:
            server.config.ssl = listener_context(tls, lambda why: log.warning("security.stale", why=why))
            break
        except KeyMaterialUnusable as error:
            if str(error) != told:
                told = str(error)
                log.error("rest.listener_not_served", at=opened.getsockname(), why=told, again_every_s=AGAIN_S)
            await asyncio.sleep(AGAIN_S)
    await server.serve([opened])


def listener_context(settings: ServerTls, report: Callable[[str], None]) -> ssl.SSLContext:
    """Return the TLS of a listener. Changed files count from the next connection on.

    Args:
        report: gets a sentence when a changed file cannot be used, and the old content stays in force.
    Raises:
        KeyMaterialUnusable: a file cannot be used.
    """
    verify = _VERIFY[settings.client_auth]

    def make(tls: TlsSettings, trusted: Any, identity: Identity | None) -> ssl.SSLContext:
        return make_server_context(tls, trusted if verify is not ssl.CERT_NONE else None, identity, verify)

    files = Tls(settings.settings, report, make=make)

    def take_current(connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = files.current()

    context = files.current()
    context.sni_callback = take_current  # called in each handshake, with or without a name
    return context


class Connection(H11Protocol):
    """One connection, with deadlines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > 2 * CONNECTIONS_MOST:
            transport.abort()
            return
        secured = transport.get_extra_info("ssl_object")
        certificate = secured.getpeercert(True) if secured is not None else None
        app = self.app

        async def run(scope: Any, receive: Any, send: Any) -> None:
            self._head_is_there()
            scope["state"][CERTIFICATE_KEY] = certificate
            await app(scope, receive, send)

        self.app = run
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_head()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
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
