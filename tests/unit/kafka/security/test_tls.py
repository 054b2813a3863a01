"""TLS against servers of the test's own: what connects, what a failure says, and files that change (S13, S14)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.local.certificates import Authority, Certified, self_signed, write_private
from mm2py.kafka.errors import KafkaError, KeyMaterialUnusable, TlsFailed
from mm2py.kafka.security import tls as tls_module
from mm2py.kafka.security.access import Access
from mm2py.kafka.security.settings import KeyStore, Security, TlsSettings, TrustStore
from mm2py.kafka.security.tls import Tls, make_context
from mm2py.kafka.transport.opening import connect
from mm2py.secret import Secret

pytestmark = pytest.mark.both_loops

AUTHORITY, OTHER = Authority("ours"), Authority("theirs")
SERVER, CLIENT = AUTHORITY.issue("server"), AUTHORITY.issue("client")
TRUST = TrustStore("PEM", certificates=Secret(AUTHORITY.pem().decode()))


def keys_of(certified: Certified) -> KeyStore:
    return KeyStore(
        "PEM",
        certificate_chain=Secret(certified.certificate_pem().decode()),
        key=Secret(certified.key_pem().decode()),
    )


Run = Callable[[Coroutine[Any, Any, None]], None]


@contextmanager
def tls_server(
    tmp_path: Path,
    certified: Certified = SERVER,
    *,
    asks_for_certificate: bool = False,
    newest: ssl.TLSVersion | None = None,
    greeting: bytes = b"",
) -> Iterator[int]:
    """Shakes hands on threads, since asyncio's own server hangs up without telling its peer what was wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_private(tmp_path / "server.pem", certified.pem()))
    if newest is not None:
        with warnings.catch_warnings(action="ignore"):
            context.minimum_version, context.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, newest
        context.set_ciphers("ALL:@SECLEVEL=0")
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=AUTHORITY.pem().decode())

    def serve(accepted: socket.socket) -> None:
        with accepted, contextlib.suppress(OSError):
            accepted.settimeout(5)
            try:
                with context.wrap_socket(accepted.dup(), server_side=True) as secured:
                    secured.recv(1000)
                    secured.sendall(greeting)
                    secured.recv(1000)
            except ssl.SSLError:
                accepted.shutdown(socket.SHUT_WR)
                accepted.recv(1000)  # closed with something unread, the connection would be reset and the alert lost

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


async def failure(port: int, settings: TlsSettings, host: str = "127.0.0.1") -> KafkaError:
    access = Access("A", Security("SSL", tls=settings))
    with pytest.raises(KafkaError) as caught:
        await connect(host, port, client_id="test", timeout_s=10, access=access)
    return caught.value


FAILURES: dict[str, tuple[dict[str, Any], TlsSettings, str, str]] = {
    "wrong authority": ({"certified": OTHER.issue("server")}, TlsSettings(TRUST), "127.0.0.1", "authority that is not"),
    "self-signed": ({"certified": self_signed("server")}, TlsSettings(TRUST), "127.0.0.1", "is self-signed and not"),
    "expired": (
        {"certified": AUTHORITY.issue("server", valid_days=(-9, -1))}, TlsSettings(TRUST), "127.0.0.1", "has expired",
    ),
    "not yet valid": (
        {"certified": AUTHORITY.issue("server", valid_days=(1, 9))}, TlsSettings(TRUST), "127.0.0.1", "not valid yet",
    ),
    "wrong host": (
        {"certified": AUTHORITY.issue("server", ["kafka.example"])}, TlsSettings(TRUST), "localhost",
        "its certificate is not for localhost",
    ),
    "wrong address": (
        {"certified": AUTHORITY.issue("server", ["10.0.0.1"])}, TlsSettings(TRUST), "127.0.0.1",
        "its certificate is not for 127.0.0.1",
    ),
    "old TLS": (
        {"newest": ssl.TLSVersion.TLSv1_1}, TlsSettings(TRUST), "127.0.0.1",
        "it shares no TLS version with mm2py, which speaks TLSv1.2 and TLSv1.3",
    ),
    "no client certificate": (
        {"asks_for_certificate": True}, TlsSettings(TRUST), "127.0.0.1",
        "it asks for a client certificate, and none is set",
    ),
    "no client certificate, TLS 1.2": (
        {"asks_for_certificate": True}, TlsSettings(TRUST, versions=("TLSv1.2",)), "127.0.0.1",
        "it asks for a client certificate, and none is set",
    ),
    "a client certificate it does not trust": (
        {"asks_for_certificate": True}, TlsSettings(TRUST, keys_of(OTHER.issue("client"))), "127.0.0.1",
        "it does not trust the authority of our certificate",
    ),
    "an authority the system does not know": ({}, TlsSettings(), "127.0.0.1", "authority that is not trusted"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
async def test_each_failure_says_what_is_wrong(tmp_path: Path, name: str) -> None:
    arguments, settings, host, why = FAILURES[name]
    with tls_server(tmp_path, **arguments) as port:
        error = await failure(port, settings, host)
        assert isinstance(error, TlsFailed), error
        assert str(error).startswith(f"No TLS connection to {host}:{port} of A: ")
        assert why in str(error)
        assert error.retriable


@pytest.mark.parametrize(
    "settings",
    [
        TlsSettings(TRUST),
        TlsSettings(TRUST, keys_of(CLIENT)),
        TlsSettings(TRUST, versions=("TLSv1.2",), ciphers=("ECDHE-ECDSA-AES256-GCM-SHA384",)),
        TlsSettings(TRUST, versions=("TLSv1.3",)),
        TlsSettings(TrustStore("PEM", certificates=Secret(SERVER.certificate_pem().decode()))),
    ],
    ids=["trusts", "has a certificate", "TLS 1.2 with one suite", "TLS 1.3", "trusts the certificate itself"],
)
async def test_a_handshake_that_should_succeed_gets_to_kafkas_protocol(tmp_path: Path, settings: TlsSettings) -> None:
    with tls_server(tmp_path, asks_for_certificate=settings.keys is not None, greeting=b"HTTP/1.1 ") as port:
        assert "it begins with the text 'HTTP'" in str(await failure(port, settings))


async def test_host_names_are_passed_over_only_when_that_is_set(tmp_path: Path) -> None:
    with tls_server(tmp_path, AUTHORITY.issue("server", ["else.example"]), greeting=b"HTTP/1.1 ") as port:
        open_minded = TlsSettings(TRUST, check_host_names=False)
        assert "'HTTP'" in str(await failure(port, open_minded))
        stranger = TlsSettings(TrustStore("PEM", certificates=Secret(OTHER.pem().decode())), check_host_names=False)
        assert isinstance(await failure(port, stranger), TlsFailed)


async def test_a_listener_without_tls_is_told() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answers.pop())
        writer.close()

    answers = [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"]
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert "what listens there does not speak TLS" in str(await failure(port, TlsSettings(TRUST)))
    assert "a listener that speaks plain text does that" in str(await failure(port, TlsSettings(TRUST)))
    server.close()
    assert "Connection refused" in str(await failure(port, TlsSettings(TRUST)))


def test_a_connection_that_breaks_later_is_not_blamed_on_tls() -> None:
    access = Access("A", Security("SSL", tls=TlsSettings(TRUST)))
    for error in (ConnectionResetError(104, "reset"), ssl.SSLEOFError(8, "EOF"), OSError(110, "timed out")):
        assert access.tls_failure("b:1", "b", error, shaking_hands=False) is None
    alert = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]")
    assert access.tls_failure("b:1", "b", alert, shaking_hands=False) is not None
    assert Access("A").tls_failure("b:1", "b", alert, shaking_hands=True) is None


def test_certificates_are_always_checked_and_old_versions_never_spoken() -> None:
    for check in (True, False):
        context = make_context(TlsSettings(check_host_names=check), None, None)
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.check_hostname is check


async def test_changed_files_count_and_unusable_ones_leave_the_old_content_in_force(tmp_path: Path) -> None:
    trust, keys = tmp_path / "ca.pem", tmp_path / "client.p12"
    said: list[str] = []
    settings = TlsSettings(TrustStore("PEM", trust), KeyStore("PKCS12", keys, Secret("canary-password")))
    tls = Tls(settings, said.append)
    with pytest.raises(KeyMaterialUnusable, match="there is no such file"):
        await tls.context()
    write_private(trust, AUTHORITY.pem())
    write_private(keys, CLIENT.pkcs12("canary-password"))
    first = await tls.context()
    assert await tls.context() is first
    write_private(trust, OTHER.pem())
    second = await tls.context()
    assert second is not first
    assert second.get_ca_certs()[0]["subject"] == ((("commonName", "theirs"),),)
    for broken in (CLIENT.pkcs12("canary-other"), b"", None):
        keys.unlink() if broken is None else write_private(keys, broken)
        assert await tls.context() is second
        assert await tls.context() is second
    assert len(said) == 3, "each is told once"
    assert all("stays in use" in text and "canary" not in text for text in said)
    write_private(keys, AUTHORITY.issue("client").pkcs12("canary-password"))
    assert await tls.context() is not second


async def test_repaired_rights_count_although_the_file_itself_has_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An authority was rotated in that mm2py may not read; its rights are repaired, and nothing else."""
    trust = tmp_path / "ca.pem"
    said: list[str] = []
    forbidden = False

    def may_read(path: Path | None) -> bytes | None:
        if forbidden:  # the tests may run as root, who may read everything
            raise KeyMaterialUnusable(str(path), "Permission denied", remedy="Let mm2py read it.")
        return read(path)

    read = tls_module.content_of
    monkeypatch.setattr(tls_module, "content_of", may_read)
    write_private(trust, AUTHORITY.pem())
    tls = Tls(TlsSettings(TrustStore("PEM", trust)), said.append)
    first = await tls.context()
    write_private(trust, OTHER.pem())
    forbidden = True
    assert await tls.context() is first
    assert await tls.context() is first
    assert len(said) == 1, "told once"
    forbidden = False
    renewed = await tls.context()
    assert renewed.get_ca_certs()[0]["subject"] == ((("commonName", "theirs"),),)
    forbidden = True
    assert await tls.context() is renewed, "nothing has changed, so nothing is read"


async def test_a_file_name_that_no_file_can_have_is_a_missing_file() -> None:
    with pytest.raises(KeyMaterialUnusable, match="there is no such file"):
        await Tls(TlsSettings(TrustStore("PEM", Path("/a\0b"))), lambda _: None).context()
