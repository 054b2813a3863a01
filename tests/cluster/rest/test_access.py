"""A real worker with listeners of every kind: who gets in, what other machines see, what is left of a change.

One worker serves the module: TLS with users, the same without TLS beyond loopback, loopback, and probes.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deploy.local.certificates import Authority, write_private
from deploy.local.kafka import KafkaCluster
from mm2py.secret import Secret
from mm2py_rest.access.crowd import WAITING_MOST
from mm2py_rest.access.hashes import hash_password, hash_token
from tests.cluster.kafka_client import read
from tests.cluster.rest.serving import peak_mib
from tests.cluster.rest.test_crowds import idle
from tests.cluster.rest.test_rest_process import rest_processes
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, one_way_properties, wait_until

FLOW = "Access->B"
SOURCE = f"{FLOW}.MirrorSourceConnector"
CONFIG = f"/connectors/{SOURCE}/config"
PASSWORD, TOKEN = "canary-password-7f3a", "canary-token-" + "9" * 40
STORE_PASSWORD = "canary-store-51c0"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Served:
    """The worker of this module and where it listens."""

    worker: Mm2py
    directory: Path
    target: KafkaCluster
    ports: dict[str, int]

    def context(self, client: str | None = None, authority: str = "ca.pem") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.directory / authority)
        if client is not None:
            context.load_cert_chain(self.directory / client)
        return context

    def ask(self, listener: str, path: str, method: str = "GET", client: str | None = None, **more: Any) -> Any:
        scheme = "https" if listener == "tls" else "http"
        verify = self.context(client) if scheme == "https" else True
        with httpx2.Client(verify=verify, base_url=f"{scheme}://127.0.0.1:{self.ports[listener]}") as http:
            return http.request(method, path, timeout=ANSWER_S, **more)

    def raw(self, sent: bytes, listener: str = "loopback") -> bytes:
        """Send bytes, and return what comes until the connection ends."""
        with socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=ANSWER_S) as connection:
            connection.sendall(sent)
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except ConnectionError:
                pass
            return answer


@pytest.fixture(scope="module")
def served(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("access")
    authority = Authority()
    write_private(directory / "ca.pem", authority.pem())
    write_private(directory / "clients.pem", authority.pem())
    write_private(directory / "rest.p12", authority.issue("rest").pkcs12(STORE_PASSWORD))
    for name in ("prometheus", "stranger"):
        write_private(directory / f"{name}.pem", authority.issue(name).pem())
    lines = (
        f"alice:{hash_password(Secret(PASSWORD))}:admin\nci:{hash_token(Secret(TOKEN))}:operator\n"
        "prometheus:$subject$CN=prometheus:reader\n"
    )
    write_private(directory / "users", lines.encode())
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=("Access", "B"),  # clusters are shared, and so would the settings be that are stored there
        **{
            "config.storage.replication.factor": 1,
            "listeners": "https://0.0.0.0:0, http://0.0.0.0:0, http://127.0.0.1:0",
            "admin.listeners": "http://0.0.0.0:0",
            "dedicated.mode.enable.internal.rest": True,
            "listeners.https.ssl.keystore.type": "PKCS12",
            "listeners.https.ssl.keystore.location": directory / "rest.p12",
            "listeners.https.ssl.keystore.password": STORE_PASSWORD,
            "listeners.https.ssl.truststore.type": "PEM",
            "listeners.https.ssl.truststore.location": directory / "clients.pem",
            "listeners.https.ssl.client.auth": "requested",
            "rest.users.file": directory / "users",
        },
    )
    with Mm2py(properties) as worker:
        worker.wait_for_event("flow.ready")
        listening = worker.events("rest.listening")
        names = ("tls", "exposed", "loopback", "probes")
        ports = {name: int(event["at"].rpartition(":")[2]) for name, event in zip(names, listening, strict=True)}
        found = Served(worker, directory, target_cluster, ports)
        wait_until(lambda: found.ask("probes", "/health").status_code == 200, "it is healthy")
        yield found


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_users_get_in_by_password_token_and_certificate_and_nobody_else_does(served: Served) -> None:
    alice = ("alice", PASSWORD)
    assert SOURCE in served.ask("tls", "/connectors", auth=alice).json()
    assert SOURCE in served.ask("loopback", "/connectors", auth=alice).json()
    assert SOURCE in served.ask("tls", "/connectors", headers=bearer()).json()
    assert SOURCE in served.ask("tls", "/connectors", client="prometheus.pem").json()
    for more in ({}, {"auth": ("alice", "wrong")}, {"headers": bearer("x" * 40)}, {"client": "stranger.pem"}):
        answer = served.ask("tls", "/connectors", **more)  # type: ignore[arg-type]
        assert answer.status_code == 401 and "Basic" in answer.headers["WWW-Authenticate"]
    assert served.ask("tls", "/health").status_code == 200


def test_a_reader_reads_an_operator_changes_no_settings_and_an_admin_does(served: Served) -> None:
    change = {"method": "PATCH", "json": {"tasks.max": "2"}}
    assert served.ask("tls", CONFIG, client="prometheus.pem").status_code == 200
    assert served.ask("tls", CONFIG, client="prometheus.pem", **change).status_code == 403
    assert served.ask("tls", CONFIG, headers=bearer(), **change).status_code == 403
    assert served.ask("tls", CONFIG, auth=("alice", PASSWORD), **change).status_code in (200, 201)


def test_a_certificate_of_a_strange_authority_does_not_even_get_a_connection(served: Served) -> None:
    write_private(served.directory / "foreign.pem", Authority("another").issue("prometheus").pem())
    with pytest.raises((httpx2.TransportError, ssl.SSLError, OSError)):
        served.ask("tls", "/connectors", client="foreign.pem")


def test_what_other_machines_reach_without_tls_serves_health_and_says_how_to_open_the_rest(served: Served) -> None:
    assert served.ask("exposed", "/health").json()["status"] == "healthy"
    refused = served.ask("exposed", "/connectors", headers=bearer())
    assert refused.status_code == 403
    assert "listeners.https.ssl.keystore.location" in refused.json()["message"]
    told = [event["why"] for event in served.worker.events("config")]
    assert any("so only /health, /live and /ready are served there" in why for why in told)
    for method, path in (
        ("POST", "/A/B/connectors/MirrorSourceConnector/tasks"),
        ("PUT", f"/connectors/{SOURCE}/fence"),
    ):
        assert served.ask("exposed", path, method, content=b"[]").status_code == 410


def test_probes_get_health_and_metrics_and_nothing_else(served: Served) -> None:
    assert served.ask("probes", "/health").status_code == 200
    assert served.ask("probes", "/metrics").status_code == 200
    assert served.ask("probes", "/connectors", headers=bearer()).status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": socket.gethostname()}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"X-Forwarded-Host": "evil.example", "X-Forwarded-For": "10.0.0.1"}, 200),
    ],
)
def test_hosts_and_pages_of_others_are_turned_away(served: Served, headers: dict[str, str], status: int) -> None:
    """B42, S16."""
    assert served.ask("loopback", "/connectors", headers={**bearer(), **headers}).status_code == status


def test_bodies_that_are_no_json_or_too_large_are_refused(served: Served) -> None:
    """B30, B31, B32."""
    admin = {"method": "PUT", "auth": ("alice", PASSWORD)}
    form = {"Content-Type": "text/plain"}
    assert served.ask("loopback", CONFIG, content=b"{}", headers=form, **admin).status_code == 415
    assert (
        served.ask("loopback", CONFIG, content=b"[", headers={"Content-Type": "application/json"}, **admin).status_code
        == 400
    )
    head = f"PUT {CONFIG} HTTP/1.1\r\nHost: localhost\r\n{_line(bearer())}Content-Type: application/json\r\n"
    assert served.raw(f"{head}Content-Length: 1073741824\r\n\r\n".encode()).startswith(b"HTTP/1.1 413")


def test_a_body_without_an_end_is_refused_and_kept_nowhere(served: Served) -> None:
    """B31: at a megabyte, whatever more is sent."""
    (process,) = rest_processes(served.worker.pid)
    before, sent = peak_mib(process), 0
    chunk = b"100000\r\n" + b"a" * 0x100000 + b"\r\n"
    head = f"PUT {CONFIG} HTTP/1.1\r\nHost: localhost\r\n{_line(bearer())}Content-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", served.ports["loopback"]), timeout=ANSWER_S) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(chunk)
                sent += 1
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100).startswith(b"HTTP/1.1 413")
    assert sent < 200, "the connection was ended"
    assert peak_mib(process) - before < 16


def _line(headers: dict[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/0.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x00\x05\x01\r\n\r\n", b"\x00" * 9],
)
def test_what_is_no_http_ends_cleanly(served: Served, sent: bytes) -> None:
    """B45."""
    assert not served.raw(sent).startswith(b"HTTP/1.1 2")
    assert served.ask("probes", "/health").status_code == 200


def test_plain_http_at_a_tls_listener_ends_cleanly(served: Served) -> None:
    """B45."""
    assert not served.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", "tls").startswith(b"HTTP")
    assert served.ask("tls", "/health").status_code == 200


def test_a_change_leaves_an_event_in_the_log_and_on_the_target(served: Served) -> None:
    """S32."""
    answer = served.ask("tls", CONFIG, "PATCH", auth=("alice", PASSWORD), json={"tasks.max": "5"})
    assert answer.status_code in (200, 201)
    event = served.worker.wait_for_event("rest.audit", user="alice", version=str(answer.json()["version"]))
    assert (event["method"], event["status"], event["flow"]) == ("PATCH", answer.status_code, FLOW)
    stored = wait_until(lambda: audit_records(served.target), "it is stored")
    assert {"user": "alice", "proof": "password", "path": CONFIG} in [
        {name: record[name] for name in ("user", "proof", "path")} for record in stored
    ]


def audit_records(cluster: KafkaCluster) -> list[dict[str, Any]]:
    """Read what is kept of changes from the configs topic."""
    return [
        json.loads(value)
        for message in read(cluster, "mm2-configs.Access.internal")
        if (message.key() or b"").startswith(b"mm2py-audit-") and (value := message.value())
    ]


def test_a_new_certificate_and_new_users_count_from_the_next_request_on(served: Served) -> None:
    """S14."""
    users = served.directory / "users"
    before, store = users.read_text(), (served.directory / "rest.p12").read_bytes()
    second = Authority("second")
    try:
        write_private(served.directory / "ca2.pem", second.pem())
        write_private(served.directory / "rest.p12", second.issue("rest").pkcs12(STORE_PASSWORD))
        users.write_text(f"{before}bob:{hash_token(Secret('b' * 40))}:reader\n")
        with httpx2.Client(verify=served.context(authority="ca2.pem")) as http:
            url = f"https://localhost:{served.ports['tls']}/connectors"
            assert http.get(url, headers=bearer("b" * 40), timeout=ANSWER_S).status_code == 200
    finally:
        users.write_text(before)
        write_private(served.directory / "rest.p12", store)


def test_a_removed_authority_of_clients_counts_at_the_next_connection_though_a_client_resumes(served: Served) -> None:
    """S14: a session of TLS 1.2 went on, and its client was not asked for its certificate again."""
    trusted, context = served.directory / "clients.pem", served.context("prometheus.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    before = trusted.read_bytes()

    def asked(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", served.ports["tls"]), timeout=ANSWER_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
        ):
            connection.sendall(b"GET /connectors HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert not connection.session_reused
            return connection.recv(15), connection.session

    status, session = asked(None)
    assert status == b"HTTP/1.1 200 OK" and session is not None
    assert asked(session)[0] == b"HTTP/1.1 200 OK"
    try:
        write_private(trusted, Authority("another").pem())
        with pytest.raises(OSError):
            asked(session)
    finally:
        write_private(trusted, before)


def test_the_health_and_users_are_answered_among_thousands_of_silent_connections(served: Served) -> None:
    """B43, S17: 3,000 connections that do not begin their TLS, and 420 without TLS, all of one address."""
    with contextlib.ExitStack() as silent:
        for listener, count in (("tls", 3_000), ("loopback", 420)):
            there = silent.enter_context(idle(served.ports[listener], count))
            assert there > WAITING_MOST
            assert served.ask(listener, "/health").status_code == 200
            assert served.ask(listener, "/connectors", headers=bearer()).status_code == 200
        assert served.ask("tls", "/health").status_code == 200
        assert served.ask("probes", "/health").status_code == 200


def test_nothing_asked_over_rest_makes_a_worker_connect_anywhere(served: Served) -> None:
    """B40, S11."""
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.settimeout(3 * PATIENCE)
        address = f"127.0.0.1:{canary.getsockname()[1]}"
        for name in ("bootstrap.servers", "source.cluster.bootstrap.servers", "target.admin.bootstrap.servers"):
            body = {name: address, "connector.class": "MirrorSourceConnector"}
            for method, path in (
                ("PUT", CONFIG),
                ("PATCH", CONFIG),
                ("PUT", "/connector-plugins/MirrorSourceConnector/config/validate"),
            ):
                served.ask("tls", path, method, auth=("alice", PASSWORD), json=body)
            assert address not in served.ask("tls", CONFIG, headers=bearer()).text
        with pytest.raises(TimeoutError):
            canary.accept()
