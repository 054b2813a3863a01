"""Connections that say nothing, too much, or what is no HTTP. On real sockets of this process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from deploy.local.certificates import Authority, write_private
from mm2py.config.rest import ServerTls
from mm2py.kafka.security.settings import KeyStore, TlsSettings, TrustStore
from mm2py.logs import make_logger
from rest.access import listening
from rest.access.gate import HEAD_MAX_BYTES
from rest.access.listening import make_server
from tests.fakes.rest_services import guarded

GET = b"GET /connectors HTTP/1.1\r\nHost: localhost\r\n\r\n"
Story = Callable[[int], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """Serve a worker's REST; yields the port."""
    opened = socket.create_server(("127.0.0.1", 0))
    server = make_server(guarded().gate)
    running = asyncio.create_task(server.serve([opened]))
    try:
        while not server.started:
            await asyncio.sleep(0)
        yield opened.getsockname()[1]
    finally:
        server.should_exit = True
        await running


async def answers(port: int, *parts: bytes) -> bytes:
    """Send parts and return all that comes until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def tell(story: Story) -> None:
    async def run() -> None:
        async with serving() as port:
            await story(port)
            assert (await answers(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).startswith(
                b"HTTP/1.1 200"
            ), "it still serves"

    asyncio.run(run())


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /connectors\r\n\r\n",
        b"GET /connectors HTTP/0.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60 + b"\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: nine\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (HEAD_MAX_BYTES + 1) + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_that_we_speak_is_refused_and_the_connection_ends(sent: bytes) -> None:
    """B31, B45."""

    async def story(port: int) -> None:
        answer = await answers(port, sent)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431", b"HTTP/1.1 501", b"HTTP/1.1 505"))

    tell(story)


@pytest.mark.parametrize("path", [b"//connectors", b"/..", b"/connectors/../connectors", b"/%2e%2e/%2e%2e/etc/passwd"])
def test_a_path_as_it_was_sent_leads_nowhere_else(path: bytes) -> None:
    """B33."""

    async def story(port: int) -> None:
        sent = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert (await answers(port, sent)).startswith(b"HTTP/1.1 404")

    tell(story)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET + b"GET / HT"])
def test_a_connection_that_does_not_ask_in_time_ends(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """B31, S17, slowloris: also behind a request that was answered, where uvicorn itself waits without end."""
    monkeypatch.setattr(listening, "HEAD_MOST_S", 0.2)
    monkeypatch.setattr(listening, "IDLE_MOST_S", 1)

    async def story(port: int) -> None:
        answer = await answers(port, sent)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 200"), "only the whole request is answered"

    tell(story)


def test_a_request_that_is_refused_before_its_body_does_not_get_the_body_read() -> None:
    async def story(port: int) -> None:
        head = b"POST /A/B/connectors/MirrorSourceConnector/tasks HTTP/1.1\r\nHost: localhost\r\n"
        answer = await answers(port, head + b"Content-Length: 1000000000\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 410")
        assert b"connection: close" in answer.lower()

    tell(story)


def test_beyond_so_many_connections_new_ones_are_told_to_come_later_and_those_that_ended_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B43, S17."""
    monkeypatch.setattr(listening, "CONNECTIONS_MOST", 4)

    async def story(port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        last_reader, last_writer = await asyncio.open_connection("127.0.0.1", port)
        last_writer.write(GET)
        assert (await last_reader.readline()).startswith(b"HTTP/1.1 503")
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                assert await crowd[-1][0].read() == b"", "closed at once"
        for _, writer in [*idle, *crowd]:
            writer.close()
        last_writer.close()
        for _, writer in [*idle, *crowd, (last_reader, last_writer)]:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    tell(story)


def test_a_listener_whose_certificate_is_missing_waits_for_it_and_is_then_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it took the whole REST process with it, and with that the health that probes ask for."""
    monkeypatch.setattr(listening, "AGAIN_S", 0.01)
    authority, keys, text = Authority(), tmp_path / "rest.pem", io.StringIO()
    write_private(tmp_path / "ca.pem", authority.pem())

    async def run() -> None:
        opened = socket.create_server(("127.0.0.1", 0))
        server = make_server(guarded().gate)
        tls = ServerTls(TlsSettings(keys=KeyStore("PEM", keys)))
        running = asyncio.create_task(listening.serve(server, opened, tls, make_logger("info", "json", text)))
        while "rest.listener_not_served" not in text.getvalue():
            await asyncio.sleep(0)
        write_private(keys, authority.issue("rest").pem())
        while not server.started:
            await asyncio.sleep(0)
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        reader, writer = await asyncio.open_connection("localhost", opened.getsockname()[1], ssl=context)
        writer.write(GET)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        server.should_exit = True
        await running
        assert text.getvalue().count("rest.listener_not_served") == 1

    asyncio.run(run())


def test_the_authority_of_clients_is_renewed_under_load_without_a_request_lost(tmp_path: Path) -> None:
    """S14: the new authority is trusted beside the old one, then alone. No listener is opened again."""
    server_ca, old, new = Authority("server"), Authority("old"), Authority("new")
    trust, keys, ca = tmp_path / "clients.pem", tmp_path / "rest.pem", tmp_path / "ca.pem"
    write_private(ca, server_ca.pem())
    write_private(keys, server_ca.issue("rest").pem())
    write_private(trust, old.pem())
    for name, authority in (("old", old), ("new", new)):
        write_private(tmp_path / f"{name}.pem", authority.issue("client").pem())

    async def run() -> None:
        opened = socket.create_server(("127.0.0.1", 0))
        server = make_server(guarded().gate)
        settings = TlsSettings(TrustStore("PEM", trust), KeyStore("PEM", keys))
        log = make_logger("info", "json", io.StringIO())
        running = asyncio.create_task(listening.serve(server, opened, ServerTls(settings, "required"), log))

        async def asked(client: str) -> bytes:
            context = ssl.create_default_context(cafile=ca)
            context.load_cert_chain(tmp_path / f"{client}.pem")
            try:
                reader, writer = await asyncio.open_connection("localhost", opened.getsockname()[1], ssl=context)
                writer.write(GET)
                line = await reader.readline()
                writer.transport.abort()
            except OSError:  # SSLError is an OSError
                return b""
            return line

        while not server.started:
            await asyncio.sleep(0)
        counted, certificate = 0, "old"

        async def load() -> None:
            nonlocal counted
            while True:
                assert await asked(certificate) == b"HTTP/1.1 200 OK\r\n"
                counted += 1

        clients = [asyncio.create_task(load()) for _ in range(4)]
        for trusted, now, refused in (
            ([old], "old", "new"),
            ([old, new], "old", ""),
            ([old, new], "new", ""),
            ([new], "new", "old"),
        ):
            write_private(trust, b"".join(one.pem() for one in trusted))
            certificate, before = now, counted
            while counted < before + 20 and not any(client.done() for client in clients):
                await asyncio.sleep(0)
            assert not refused or await asked(refused) == b""
        for client in clients:
            assert not client.done(), client.exception()
            client.cancel()
        server.should_exit = True
        await running

    asyncio.run(run())


def test_answers_do_not_name_the_server() -> None:
    """S19."""

    async def story(port: int) -> None:
        answer = await answers(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert b"\r\nserver:" not in answer.lower()

    tell(story)
