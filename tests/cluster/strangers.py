"""Servers on loopback that are no Kafka brokers, each wrong in its own way; and a door to a real one.

with strangers() as ports:
    properties["H.bootstrap.servers"] = f"127.0.0.1:{ports['http']}"
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

HOST: Final = "127.0.0.1"
API_VERSIONS: Final = 18


def _answers(text: bytes) -> Callable[[socket.socket], None]:
    def serve(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(text)
        client.recv(4096)  # until the client hangs up

    return serve


def _speaks_first(text: bytes) -> Callable[[socket.socket], None]:
    def serve(client: socket.socket) -> None:
        client.sendall(text)
        client.recv(4096)

    return serve


def _says_nothing(client: socket.socket) -> None:
    while client.recv(4096):
        pass


def _broker(content: Callable[[int], bytes]) -> Callable[[socket.socket], None]:
    """Answer each request with what ``content`` returns for its API, behind the correlation id."""

    def serve(client: socket.socket) -> None:
        stream = client.makefile("rb")
        while head := stream.read(4):
            request = stream.read(int.from_bytes(head))
            answer = request[4:8] + content(int.from_bytes(request[:2]))
            client.sendall(struct.pack(">i", len(answer)) + answer)

    return serve


def _endless(_: int) -> bytes:
    """35 bytes that announce an array of 2^32 - 1 elements."""
    return b"\0\0" + b"\xff\xff\xff\xff\x0f" + bytes(20)


def _metadata_of(partitions: int) -> Callable[[int], bytes]:
    """A broker whose metadata have one topic with so many partitions."""
    ranges = b"".join(struct.pack(">hhhB", api, 0, 20, 0) for api in range(70))

    @functools.cache
    def content(api: int) -> bytes:
        if api == API_VERSIONS:
            return b"\0\0\x47" + ranges + bytes(4) + b"\0"
        rows = b"".join(struct.pack(">hiiiI", 0, number, -1, 0, 0x01010100) for number in range(partitions))
        topic = b"\0\0\5vast" + bytes(15) + b"\1\0" + _uvarint(partitions + 1) + rows + bytes(5)
        return b"\0" + bytes(4) + b"\1\2H" + bytes(4) + b"\2" + topic + b"\0"

    return content


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _answers_another_request(client: socket.socket) -> None:
    request = client.recv(4096)
    (correlation_id,) = struct.unpack(">i", request[8:12])
    client.sendall(struct.pack(">ii", 30, correlation_id + 1) + b"\0" * 26)
    client.recv(4096)


KINDS: Final[Mapping[str, Callable[[socket.socket], None]]] = {
    "http": _answers(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
    "tls": _answers(b"\x15\x03\x03\x00\x02\x02\x46"),
    "ssh": _speaks_first(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "silent": _says_nothing,
    "huge": _answers(struct.pack(">i", 2**31 - 1) + b"x" * 1000),
    "confused": _answers_another_request,
    "endless": _broker(_endless),
    "crowded": _broker(_metadata_of(660_000)),
}


@contextlib.contextmanager
def strangers() -> Iterator[Mapping[str, int]]:
    """Start one server of each kind; the result maps kind to port."""
    with contextlib.ExitStack() as stack:
        yield {kind: stack.enter_context(_listening(serve)) for kind, serve in KINDS.items()}


@contextlib.contextmanager
def _listening(serve: Callable[[socket.socket], None], port: int = 0) -> Iterator[int]:
    listener = socket.create_server((HOST, port))
    clients: list[socket.socket] = []

    def serve_quietly(client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            serve(client)

    def accept() -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client, _ = listener.accept()
                clients.append(client)
                threading.Thread(target=serve_quietly, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        for open_socket in [listener, *clients]:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()


def closed_port() -> int:
    """Return a port at which nobody listens."""
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def door(port: int, to: str) -> Iterator[None]:
    """A broker that comes up late: listen at ``port`` and pass everything on to the one at ``to`` (``host:port``)."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve(client: socket.socket) -> None:
        host, _, number = to.rpartition(":")
        with socket.create_connection((host, int(number))) as broker:
            back = threading.Thread(target=pump, args=(broker, client), daemon=True)
            back.start()
            pump(client, broker)
            back.join()

    with _listening(serve, port):
        yield
