"""Opening a connection: name look-up, the first address that answers, TLS, versions, authentication.

Names are looked up in threads of our own: an event loop does it in a few threads that the whole process shares, and a
look-up without an answer blocks one of them for many seconds.

Counterpart: ClientUtils.resolve, ClusterConnectionStates and the API version exchange of NetworkClient in Apache
Kafka's clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiohappyeyeballs import start_connection

from mm2py import __version__
from mm2py.kafka import messages
from mm2py.kafka.errors import (
    BrokerUnreachable,
    KafkaError,
    NotKafka,
    RequestTimedOut,
    UnsupportedVersion,
)
from mm2py.kafka.security.access import Access
from mm2py.kafka.transport.connection import MAX_FRAME_BYTES, Connection, FrameStream, VersionRanges, encode
from mm2py.kafka.transport.entities import read_entity, value_or_error
from mm2py.kafka.transport.wire import FrameMemory

PATIENCE_S: Final = 0.5
"""How long to wait for a look-up of a name whose last addresses are known."""
NO_SUCH_NAME: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})

LookUp = Callable[[str], Sequence[str]]
"""Blocks. Returns a name's addresses, the one to try first in front; raises OSError."""


def look_up(host: str) -> list[str]:
    """Ask the system, as an event loop does."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_text(address) for _, _, _, _, address in found))


class NameLookup:
    """The look-ups of one cluster's names, and their last results. Belongs to one event loop."""

    def __init__(self, ask: LookUp = look_up, *, patience_s: float = PATIENCE_S) -> None:
        self._ask = ask
        self._patience_s = patience_s
        self._known: dict[str, Sequence[str]] = {}
        self._asked: dict[str, asyncio.Future[Sequence[str]]] = {}

    async def addresses(self, host: str) -> Sequence[str]:
        """Return the addresses of a name, at least one.

        If a name server is silent, or cannot be asked, the last known addresses are used. Its answer is used as soon as
        it comes, even the answer that the name no longer exists: the old address may be another cluster's by now.
        Cancelling leaves the look-up running; the next caller gets its answer.

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
        loop = asyncio.get_running_loop()
        answer = self._asked[host] = loop.create_future()
        # Not asyncio.to_thread: its few threads are shared, and the end of the process waits for them.
        thread = threading.Thread(target=self._work, args=(host, loop), name=f"look-up of {host}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the container's limit of threads is reached: there would be no answer
            self._take(host, OSError(f"its name cannot be looked up: {error}"))
        return answer

    def _work(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in a thread, for as long as the system takes."""
        found: Sequence[str] | Exception
        try:
            found = self._ask(host)
        except Exception as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the event loop may have ended meanwhile
            loop.call_soon_threadsafe(self._take, host, found)

    def _take(self, host: str, found: Sequence[str] | Exception) -> None:
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
    """Return an address in the form that connecting takes: a link-local address names its link, too."""
    host, *rest = address
    return f"{host}%{rest[2]}" if len(rest) == 3 and rest[2] else str(host)


NEXT_ADDRESS_S: Final = 0.25
"""If an address has not answered for this long, the next one is tried in parallel."""
_API_VERSIONS_KEY: Final = 18


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What all connections to one cluster share, and tests change."""

    frames: FrameMemory | None = None
    """Where large frames are received; None: memory of its own."""
    report_no_session: Callable[[str], None] = lambda _: None
    """Gets the broker's address with every read for which it grants no fetch session."""
    version_caps: Mapping[int, int] = field(default_factory=dict)
    """Highest version to use per API key, below what the broker offers; for tests against old versions."""
    report_step: Callable[[], None] = lambda: None
    """Called after each step of connecting that the broker has answered: TLS, its versions, authentication."""


def peer_name(host: str, port: int) -> str:
    """Return an address as errors and logs name it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect(
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_s: float,
    step_timeout_s: float = float("inf"),
    access: Access | None = None,
    names: NameLookup | None = None,
    options: ConnectionOptions = ConnectionOptions(),
) -> Connection:
    """Open a connection, learn which versions the broker speaks, and authenticate.

    Args:
        timeout_s: for all of it, name look-up included; getting a token has time-outs of its own.
        step_timeout_s: for each step: the connection (with TLS), and each answer. A host that is gone costs this long,
            while a distant host that answers has more time.
        access: TLS and authentication; None: plain text, without either.
        names: looks ``host`` up; None: no addresses are known from before.
    Raises:
        BrokerUnreachable, NotKafka, UnsupportedVersion: as ``Brokers.send``.
        TlsFailed, AuthenticationFailed, KeyMaterialUnusable, TokenUnavailable, TicketUnavailable: TLS or authentication
            failed.
    """
    peer = peer_name(host, port)
    access = access or Access(peer)
    admission = await access.prepare(host)
    stream: FrameStream | None = None
    connection: Connection | None = None
    addresses: Sequence[str] = ()
    step_s = min(step_timeout_s, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            async with asyncio.timeout(step_s):
                addresses = await (names or NameLookup()).addresses(host)
                stream = await _open(
                    addresses,
                    port,
                    admission.tls,
                    host,
                    lambda: FrameStream(
                        peer,
                        client_id,
                        access.protocol,
                        options.frames,
                        explain=lambda error: access.tls_failure(peer, host, error, shaking_hands=False),
                    ),
                    step_s=step_s,
                )
            if admission.tls is not None:
                options.report_step()  # without TLS the operating system of a frozen broker accepts the connection, too
            async with asyncio.timeout(step_s):
                asked_s = asyncio.get_running_loop().time()
                ranges = await _learn_versions(stream)
                round_trip_s = asyncio.get_running_loop().time() - asked_s
            options.report_step()
            caps = options.version_caps
            usable = {key: (low, min(high, caps.get(key, high))) for key, (low, high) in ranges.items()}
            connection = Connection(stream, usable, options.report_no_session)
            connection.round_trip_s = round_trip_s
            if admission.conversation is not None:
                await connection.authenticate(access, host, admission.conversation, step_s)
                options.report_step()
    except TimeoutError:
        if stream is None:
            what = "connection" if admission.tls is None else "connection with TLS"
            what = what if addresses else "answer of a name server"
            raise BrokerUnreachable(peer, f"no {what} within {step_s:g} s") from None
        error: KafkaError = NotKafka(
            peer, f"it accepts connections but says nothing within {step_s:g} s", access.protocol
        )
        if connection is not None:
            error = RequestTimedOut(peer, "SaslAuthenticate", timeout_s)
        stream.abort(error)
        raise error from None
    except OSError as error:
        failure = access.tls_failure(peer, host, error, shaking_hands=True)
        raise failure or BrokerUnreachable(peer, _reason(error)) from error
    except BaseException as error:
        if stream is not None:
            stream.abort(error if isinstance(error, KafkaError) else BrokerUnreachable(peer, "connecting was given up"))
        raise
    stream.max_frame_bytes = MAX_FRAME_BYTES
    return connection


async def _open(
    addresses: Sequence[str],
    port: int,
    tls: ssl.SSLContext | None,
    host: str,
    make: Callable[[], FrameStream],
    *,
    step_s: float,
) -> FrameStream:
    """Connect to the first of a broker's addresses that answers; ``host`` is the name in its certificate.

    The story: a name has two addresses, and the network drops everything that is sent to the first. Waiting for the
    first one until the deadline would never reach the broker. So the next one is tried in parallel, as in RFC 8305.
    """
    families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
    sock = await start_connection(
        [
            (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
            for family, address in zip(families, addresses, strict=True)
        ],
        happy_eyeballs_delay=min(NEXT_ADDRESS_S, step_s / 2 / len(addresses)),
    )
    server_hostname = host if tls is not None else None
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(make, sock=sock, ssl=tls, server_hostname=server_hostname)
    return stream


async def _learn_versions(stream: FrameStream) -> VersionRanges:
    request = messages.ApiVersionsRequest(client_software_name="mm2py", client_software_version=__version__)
    frame = bytes(await stream.send(_API_VERSIONS_KEY, 3, [encode(request)], flexible=True))
    if int.from_bytes(frame[4:6], "big", signed=True) != 0:
        raise UnsupportedVersion(stream.peer, "ApiVersions", wanted="3", offered="older ones only")
    found = value_or_error(_versions_in, frame)
    del frame
    if isinstance(found, Exception):
        why = f"its first reply cannot be read: {str(found) or type(found).__name__}"
        raise NotKafka(stream.peer, why, stream.protocol) from found
    return found


def _versions_in(frame: bytes) -> VersionRanges:
    answer = read_entity(messages.ApiVersionsResponse, frame, 4)  # this one reply keeps the old header
    return {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}


def _reason(error: OSError) -> str:
    """Return the system's text for an error, the same on every event loop. Errors of name look-ups have numbers < 0."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
