"""Servers on loopback that are no Kafka brokers, each wrong in its own way; and a door to a real one.

with strangers() as ports:
    properties["H.bootstrap.servers"] = f"127.0.0.1:{ports['http']}"
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

HOST: Final = "127.0.0.1"


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
