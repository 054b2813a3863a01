"""Connections that say nothing, too much, or what is no HTTP. On real sockets of this process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.local.certificates import Authority, write_private
from mm2py.config.rest import ServerTls
from mm2py.kafka.security.settings import KeyStore, TlsSettings, TrustStore
from mm2py.logs import make_logger
from mm2py_rest.access import listening
from mm2py_rest.access.admission import HEAD_MAX_BYTES
from mm2py_rest.access.crowd import Limits
from mm2py_rest.access.listening import Server, make_server
from mm2py_rest.server import DESCRIPTORS_MOST, most_descriptors
from tests.fakes.rest_services import guarded

pytestmark = pytest.mark.real_time

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


async def tell(story: Story) -> None:
    async with serving() as port:
        await story(port)
        assert (await answers(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))).startswith(
            b"HTTP/1.1 200"
        ), "it still serves"


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
async def test_what_is_no_http_that_we_speak_is_refused_and_the_connection_ends(sent: bytes) -> None:
    """B31, B45."""

    async def story(port: int) -> None:
        answer = await answers(port, sent)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431", b"HTTP/1.1 501", b"HTTP/1.1 505"))

    await tell(story)


@pytest.mark.parametrize("path", [b"//connectors", b"/..", b"/connectors/../connectors", b"/%2e%2e/%2e%2e/etc/passwd"])
async def test_a_path_as_it_was_sent_leads_nowhere_else(path: bytes) -> None:
    """B33."""

    async def story(port: int) -> None:
        sent = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert (await answers(port, sent)).startswith(b"HTTP/1.1 404")

    await tell(story)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET + b"GET / HT"])
async def test_a_connection_that_does_not_ask_in_time_ends(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """B31, S17, slowloris: also behind a request that was answered, where uvicorn itself waits without end."""
    monkeypatch.setattr(listening, "HEAD_MOST_S", 0.2)
    monkeypatch.setattr(listening, "IDLE_MOST_S", 1)

    async def story(port: int) -> None:
        answer = await answers(port, sent)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 200"), "only the whole request is answered"

    await tell(story)


async def test_a_request_that_is_refused_before_its_body_does_not_get_the_body_read() -> None:
    async def story(port: int) -> None:
        head = b"POST /A/B/connectors/MirrorSourceConnector/tasks HTTP/1.1\r\nHost: localhost\r\n"
        answer = await answers(port, head + b"Content-Length: 1000000000\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 410")
        assert b"connection: close" in answer.lower()

    await tell(story)


@dataclass
class Listening:
    """A listener of this process with TLS, and those who connect to it."""

    directory: Path
    port: int = 0
    server: Server | None = None
    log: io.StringIO = field(default_factory=io.StringIO)

    @contextlib.asynccontextmanager
    async def serving(self, limits: Limits | None = None, *, is_tls: bool = True) -> AsyncIterator[None]:
        """Serve; ``keys.pem`` holds the certificate and ``clients.pem`` the authorities of clients."""
        opened = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = opened.getsockname()[1]
        settings = TlsSettings(
            TrustStore("PEM", self.directory / "clients.pem"), KeyStore("PEM", self.directory / "keys.pem")
        )
        self.server = make_server(guarded().gate, limits)
        tls = ServerTls(settings, "requested") if is_tls else None
        running = asyncio.create_task(listening.serve(self.server, opened, tls, make_logger("info", "json", self.log)))
        try:
            while not self.server.started:
                await asyncio.sleep(0)
            yield
        finally:
            self.server.should_exit = True
            await running

    def context(self, client: str = "client.pem") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.directory / "ca.pem")
        context.load_cert_chain(self.directory / client)
        return context

    def ask(self, context: ssl.SSLContext | None, path: str = "/connectors", session: Any = None) -> tuple[str, Any]:
        """Ask over a new connection. Returns the status or "refused", and the TLS session or whether it went on."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=20) as plain:
                asking: Any = plain
                if context is not None:
                    asking = context.wrap_socket(plain, server_hostname="localhost", session=session)
                asking.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = b""
                while part := asking.recv(65536):
                    answer += part
                status = answer.split(b" ")[1].decode() if answer else "refused"
                return status, getattr(asking, "session", None) if session is None else asking.session_reused
        except OSError:
            return "refused", None


@pytest.fixture
def listener(tmp_path: Path) -> Listening:
    server_ca, clients = Authority("server"), Authority("clients")
    write_private(tmp_path / "ca.pem", server_ca.pem())
    write_private(tmp_path / "keys.pem", server_ca.issue("rest").pem())
    write_private(tmp_path / "clients.pem", clients.pem())
    write_private(tmp_path / "client.pem", clients.issue("client").pem())
    return Listening(tmp_path)


@pytest.mark.both_loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_no_session_of_tls_goes_on_so_a_removed_authority_counts_at_the_next_connection(
    listener: Listening, version: ssl.TLSVersion
) -> None:
    """A client resumed its session of TLS 1.2, and was not asked for its certificate again."""
    context = listener.context()
    context.maximum_version = version
    async with listener.serving():
        status, session = await asyncio.to_thread(listener.ask, context)
        assert status == "200"
        if session is None:
            assert version is ssl.TLSVersion.TLSv1_3, "no ticket: there is nothing to resume"
        else:
            assert await asyncio.to_thread(listener.ask, context, session=session) == ("200", False)
        write_private(listener.directory / "clients.pem", Authority("another").pem())
        assert (await asyncio.to_thread(listener.ask, context, session=session))[0] == "refused"


@pytest.mark.both_loops
@pytest.mark.parametrize("is_tls", [True, False])
async def test_the_health_is_answered_however_many_connections_stay_silent(listener: Listening, is_tls: bool) -> None:
    """B43, S17: 3,000 connections that never began their TLS, or 420 without TLS, made the health fail."""
    limits = Limits(waiting=20, busy=20)
    async with listener.serving(limits, is_tls=is_tls):
        assert listener.server is not None
        silent: list[socket.socket] = []
        context = listener.context() if is_tls else None
        try:
            for _ in range(10):
                for _ in range(15):
                    silent.append(socket.create_connection(("127.0.0.1", listener.port)))
                    await asyncio.sleep(0)
                assert (await asyncio.to_thread(listener.ask, context, "/health"))[0] == "200"
                assert (await asyncio.to_thread(listener.ask, context))[0] == "200", "so is who asks at once"
                assert len(listener.server.crowd) <= 20
        finally:
            for one in silent:
                one.close()


async def test_connections_that_are_all_busy_leave_the_health_and_those_that_end_make_room(listener: Listening) -> None:
    """S17: of one address half of the requests at most. Others are told to come later."""
    head = b"PUT /connectors/A->B.MirrorSourceConnector/config HTTP/1.1\r\nHost: localhost\r\n"
    unfinished = head + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    async with listener.serving(Limits(waiting=20, busy=8), is_tls=False):
        assert listener.server is not None
        busy = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(4)]
        for _, writer in busy:
            writer.write(unfinished)
        while listener.server.crowd.waiting:
            await asyncio.sleep(0)
        assert (await asyncio.to_thread(listener.ask, None))[0] == "503"
        assert (await asyncio.to_thread(listener.ask, None, "/health"))[0] == "200"
        busy[0][1].transport.abort()
        while (await asyncio.to_thread(listener.ask, None))[0] == "503":
            await asyncio.sleep(0)
        for _, writer in busy:
            writer.transport.abort()


async def test_a_connection_that_does_not_begin_its_tls_in_time_ends(
    listener: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "FIRST_BYTE_MOST_S", 0.1)
    monkeypatch.setattr(listening, "HANDSHAKE_MOST_S", 0.1)
    async with listener.serving():
        assert listener.server is not None
        for sent in (b"", b"\x16\x03\x01"):
            assert await answers(listener.port, sent) == b""
        while len(listener.server.crowd):
            await asyncio.sleep(0)
        assert (await asyncio.to_thread(listener.ask, listener.context()))[0] == "200"


def test_the_process_may_open_as_many_files_as_its_hard_limit_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MOST if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MOST)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert most_descriptors() == wanted
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_process_without_a_free_descriptor_closes_who_waits_and_serves_on(
    listener: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "ACCEPT_AGAIN_S", 0.01)
    async with listener.serving(is_tls=False):
        assert listener.server is not None
        waiting = socket.create_connection(("127.0.0.1", listener.port))
        while not listener.server.crowd.waiting:
            await asyncio.sleep(0)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as late:
            late.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
            try:
                late.connect_ex(("127.0.0.1", listener.port))
                assert await asyncio.get_running_loop().run_in_executor(None, waiting.recv, 1) == b"", "closed"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        waiting.close()
        assert (await asyncio.to_thread(listener.ask, None))[0] == "200"


async def test_a_listener_whose_certificate_is_missing_waits_for_it_and_is_then_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it took the whole REST process with it, and with that the health that probes ask for."""
    monkeypatch.setattr(listening, "AGAIN_S", 0.01)
    authority, keys, text = Authority(), tmp_path / "rest.pem", io.StringIO()
    write_private(tmp_path / "ca.pem", authority.pem())
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


async def test_the_authority_of_clients_is_renewed_under_load_without_a_request_lost(tmp_path: Path) -> None:
    """S14: the new authority is trusted beside the old one, then alone. No listener is opened again."""
    server_ca, old, new = Authority("server"), Authority("old"), Authority("new")
    trust, keys, ca = tmp_path / "clients.pem", tmp_path / "rest.pem", tmp_path / "ca.pem"
    write_private(ca, server_ca.pem())
    write_private(keys, server_ca.issue("rest").pem())
    write_private(trust, old.pem())
    for name, authority in (("old", old), ("new", new)):
        write_private(tmp_path / f"{name}.pem", authority.issue("client").pem())
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


async def test_answers_do_not_name_the_server() -> None:
    """S19."""

    async def story(port: int) -> None:
        answer = await answers(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert b"\r\nserver:" not in answer.lower()

    await tell(story)
