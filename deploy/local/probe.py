"""Asks a broker whether it is ready, in Kafka's own protocol over a bare socket.

A port that accepts connections is not a broker that serves: Kafka binds long before it answers. No client library is
involved, so the client that a test exercises cannot influence the answer.
"""

import socket
import struct
from dataclasses import dataclass

API_VERSIONS, API_VERSIONS_VERSION = 18, 0
METADATA, METADATA_VERSION = 3, 4  # not flexible, and known to every broker from 1.0 to 4.x
MOST_RESPONSE_BYTES = 1 << 20


class NotReady(Exception):
    """The broker did not answer, or answered that it cannot serve yet."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A broker's view of its cluster."""

    broker_ids: frozenset[int]
    controller_id: int


def cluster_view(host: str, port: int, *, timeout_s: float = 2.0) -> ClusterView:
    """Ask a plaintext listener for its API versions, then for its cluster.

    Raises:
        NotReady: no connection, no answer within ``timeout_s`` of silence, or an error code.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            versions = _ask(connection, API_VERSIONS, API_VERSIONS_VERSION, b"")
            if versions[:2] != b"\0\0":
                raise NotReady(f"ApiVersions was answered with error {int.from_bytes(versions[:2], 'big')}")
            no_topics_none_created = struct.pack(">i?", 0, False)
            return parse_metadata(_ask(connection, METADATA, METADATA_VERSION, no_topics_none_created))
    except (OSError, struct.error) as error:
        raise NotReady(str(error)) from error


def accepts_connections(host: str, port: int, *, timeout_s: float = 2.0) -> bool:
    """Return whether the port accepts connections, the only test of a TLS or SASL listener without credentials."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def request(api_key: int, api_version: int, body: bytes) -> bytes:
    """Return a framed request with header version 1, correlation id 1 and client id ``mm2py-starter``."""
    client_id = b"mm2py-starter"
    header = struct.pack(">hhih", api_key, api_version, 1, len(client_id)) + client_id
    return struct.pack(">i", len(header) + len(body)) + header + body


def parse_metadata(body: bytes) -> ClusterView:
    """Return the brokers and the controller in a Metadata response of version 4.

    Raises:
        struct.error: the response is shorter than it claims.
    """
    _throttle_ms, brokers = struct.unpack_from(">ii", body)
    at = 8
    broker_ids = set()
    for _ in range(brokers):
        broker_id, host_bytes = struct.unpack_from(">ih", body, at)
        broker_ids.add(broker_id)
        at += 6 + host_bytes + 4
        at += 2 + max(0, struct.unpack_from(">h", body, at)[0])  # the rack, -1 for none
    at += 2 + max(0, struct.unpack_from(">h", body, at)[0])  # the cluster id
    return ClusterView(frozenset(broker_ids), struct.unpack_from(">i", body, at)[0])


def _ask(connection: socket.socket, api_key: int, api_version: int, body: bytes) -> bytes:
    connection.sendall(request(api_key, api_version, body))
    size = struct.unpack(">i", _read(connection, 4))[0]
    if not 4 <= size <= MOST_RESPONSE_BYTES:
        raise NotReady(f"a response of {size} bytes: this is no Kafka broker's plaintext listener")
    return _read(connection, size)[4:]  # without the correlation id


def _read(connection: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        chunk = connection.recv(count - len(got))
        if not chunk:
            raise NotReady("the broker closed the connection")
        got += chunk
    return bytes(got)
