"""Opening a connection: name look-up, the first address that answers, TLS, versions, authentication.

Answers to ClusterConnectionStates and the API version exchange of NetworkClient in Apache Kafka's clients.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kio.serial import entity_reader

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
from mm2py.kafka.transport.connection import Connection, VersionRanges, encode
from mm2py.kafka.transport.frames import FrameMemory
from mm2py.kafka.transport.name_lookup import NameLookup
from mm2py.kafka.transport.stream import MAX_FRAME_BYTES, FrameStream

NEXT_ADDRESS_S: Final = 0.25
"""An address that has not answered for so long gets the next one beside it."""
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
        step_timeout_s: for each step: the connection (with TLS), and each answer. A host that is gone costs so long, a
            long way to one that answers has more.
        access: TLS and authentication; None: plain text, without either.
        names: looks ``host`` up; None: nothing is known of it from before.
    Raises:
        BrokerUnreachable, NotKafka, UnsupportedVersion: as ``Brokers.send``.
        TlsFailed, AuthenticationFailed, KeyMaterialUnusable, TokenUnavailable: no way in.
    """
    peer = peer_name(host, port)
    access = access or Access(peer)
    admission = await access.prepare()
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
                    lambda: FrameStream(peer, client_id, access.protocol, options.frames),
                    step_s=step_s,
                )
            stream.explain = lambda error: access.tls_failure(peer, host, error, shaking_hands=False)
            async with asyncio.timeout(step_s):
                ranges = await _learn_versions(stream)
            caps = options.version_caps
            usable = {key: (low, min(high, caps.get(key, high))) for key, (low, high) in ranges.items()}
            connection = Connection(stream, usable, options.report_no_session)
            if admission.conversation is not None:
                await connection.authenticate(access, admission.conversation, step_s)
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
    """Connect to the first of a broker's addresses that answers; ``host`` is the name in its certificate."""
    left = list(addresses)
    failure: OSError | None = None
    while left:
        sock, address = await _reach(left, port, step_s)
        left.remove(address)
        try:
            _, stream = await asyncio.get_running_loop().create_connection(
                make, sock=sock, ssl=tls, server_hostname=host if tls is not None else None
            )
            return stream
        except ssl.SSLError:
            raise
        except OSError as error:
            failure = error
    raise failure or OSError("it has no address")


async def _reach(addresses: Sequence[str], port: int, step_s: float) -> tuple[socket.socket, str]:
    """Return a socket that is connected to one of the addresses, and that address.

    The story: a name has two addresses, the network drops what is sent to the first, and the name server gives both in
    the same order each time. Waiting for the first address until the deadline would never reach the broker. So the next
    one is tried beside it after a moment, as in RFC 8305, or at once where nothing listens.

    Raises: OSError, the last address's.
    """
    waiting = deque(addresses)
    tries: dict[asyncio.Task[socket.socket], str] = {}
    apart_s = min(NEXT_ADDRESS_S, step_s / 2 / len(addresses))
    failure: OSError | None = None
    try:
        while waiting or tries:
            if waiting:
                address = waiting.popleft()
                tries[asyncio.create_task(_reach_one(address, port), name=f"connect to {address}")] = address
            done, _ = await asyncio.wait(
                tries, timeout=apart_s if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                address = tries.pop(one)
                try:
                    return one.result(), address
                except OSError as error:
                    failure = error
        assert failure is not None  # noqa: S101  there is an address
        raise failure
    finally:
        for one in tries:
            one.cancel()
        for late in await asyncio.gather(*tries, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()


async def _reach_one(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _learn_versions(stream: FrameStream) -> VersionRanges:
    request = messages.ApiVersionsRequest(client_software_name="mm2py", client_software_version=__version__)
    frame = bytes(await stream.send(_API_VERSIONS_KEY, 3, [encode(request)], flexible=True))
    if int.from_bytes(frame[4:6], "big", signed=True) != 0:
        raise UnsupportedVersion(stream.peer, "ApiVersions", wanted="3", offered="older ones only")
    try:
        answer, _ = entity_reader(messages.ApiVersionsResponse)(frame, 4)  # this one reply keeps the old header
        return {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}
    except Exception as error:
        why = f"its first reply cannot be read ({type(error).__name__})"
        raise NotKafka(stream.peer, why, stream.protocol) from error


def _reason(error: OSError) -> str:
    """Say it as the system does, on every event loop; a failed name look-up has a number of its own, below zero."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
