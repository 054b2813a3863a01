"""Who is let in: the users' file, passwords, tokens, certificates, and those who guess."""

from __future__ import annotations

import base64
import contextlib
import io
import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from starlette.requests import Request
from starlette.responses import Response

from deploy.local.certificates import Authority, write_private
from mm2py.config.rest import Exposure
from mm2py.logs import make_logger
from mm2py.secret import Secret
from mm2py_rest.access.authentication import user_of_certificate
from mm2py_rest.access.callers import Caller, Role, User
from mm2py_rest.access.failures import ADDRESSES_MOST, Failures
from mm2py_rest.access.hashes import BadHash, hash_password, hash_token, parse_password_hash, parse_token_hash
from mm2py_rest.access.roles import READS, Requires
from mm2py_rest.access.users import UsersUnusable, parse_users, refuse_writable
from mm2py_rest.errors import RestError
from mm2py_rest.server import users_of
from tests.fakes.rest_services import Guarded, guarded

PASSWORD = hash_password(Secret("päss:word"))
TOKEN = "t" * 40


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(
        f"# who may ask\n\nalice:{PASSWORD}:admin\nci:{hash_token(Secret(TOKEN))}:operator:A->B B->A\n"
        "prometheus:$subject$CN=prometheus:reader\nmesh:$san$mesh.example.org:reader:A->B\n"
    )
    path.chmod(0o600)
    return path


@pytest.fixture
def worker(tmp_path: Path, users: Path) -> Guarded:
    return guarded(Exposure.USERS, users=users)


def test_the_file_names_users_their_roles_and_their_flows(users: Path) -> None:
    found = parse_users(users.read_text(), "users")
    assert found.passwords["alice"][1].role is Role.ADMIN
    assert found.tokens[0][1].flows == {"A->B", "B->A"}
    assert found.subjects["CN=prometheus"].flows is None
    assert found.names["DNS:mesh.example.org"].flows == {"A->B"}


@pytest.mark.parametrize(
    "line",
    [
        "alice",
        "alice:canary:admin",
        "alice:HASH",
        "alice:HASH:root",
        "alice:HASH:admin:",
        "alice:HASH:admin:orders",
        ":HASH:admin",
        "alice:$2y$05$canary:admin",
        "alice:$scrypt$canary:admin",
        "alice:$scrypt$ln=20,r=32,p=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdHNhbHQ:admin",
        "alice:$sha256$abc:admin",
        "alice:$san$spiffe://canary/mirror:admin",
        "alice:$san$canary@example.org:admin",
        "alice:$san$192.0.2.7:admin",
        "alice:$san$IP:canary:admin",
        "alice:$san$URI:canary:admin",
        "alice:$san$DNS::admin",
        "alice:$san$:admin",
        "alice:HASH:admin\nalice:HASH:reader",
        "",
        "# nobody",
    ],
)
def test_a_wrong_file_is_told_by_its_line_and_nothing_of_it_is_shown(line: str) -> None:
    with pytest.raises(UsersUnusable) as raised:
        parse_users(line.replace("HASH", PASSWORD), "users")
    assert "canary" not in str(raised.value) and PASSWORD not in str(raised.value)


def test_a_user_gets_in_by_password_by_token_and_by_certificate(worker: Guarded) -> None:
    authority = Authority()
    prometheus = authority.issue("prometheus").certificate.public_bytes(Encoding.DER)
    mesh = authority.issue("pod-7", ["mesh.example.org"]).certificate.public_bytes(Encoding.DER)
    stranger = authority.issue("stranger").certificate.public_bytes(Encoding.DER)
    assert worker.client().get("/connectors", headers=basic("alice", "päss:word")).status_code == 200
    assert worker.client().get("/connectors", headers=bearer(TOKEN)).status_code == 200
    assert len(worker.client(certificate=prometheus).get("/connectors").json()) == 6
    assert len(worker.client(certificate=mesh).get("/connectors").json()) == 3
    assert worker.client(certificate=stranger).get("/connectors").status_code == 401
    assert worker.client(certificate=b"junk").get("/connectors").status_code == 401


def certificate_for(*names: x509.GeneralName) -> bytes:
    """Return a certificate that is made out for names of any kind, in DER. Who signed it is not asked here."""
    key, named = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    begins = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(named, named, key.public_key(), 1, begins, begins + timedelta(days=9))
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


NAMES = {
    "DNS:mesh.example.org": x509.DNSName("Mesh.Example.org"),
    "URI:spiffe://example.org/mirror": x509.UniformResourceIdentifier("spiffe://example.org/mirror"),
    "EMAIL:ops@example.org": x509.RFC822Name("ops@example.org"),
    "IP:2001:db8::7": x509.IPAddress(ip_address("2001:db8:0::7")),
}


@pytest.mark.parametrize("proof", NAMES)
def test_a_name_proves_its_user_in_a_certificate_that_has_it_as_this_kind(proof: str) -> None:
    users = parse_users(f"mesh:$san${proof}:reader:A->B\n", "users")
    found = {other: user_of_certificate(users, certificate_for(name)) for other, name in NAMES.items()}
    assert [other for other, user in found.items() if user is not None] == [proof]


@pytest.mark.parametrize(
    "name",
    [
        x509.UniformResourceIdentifier("mesh.example.org"),
        x509.RFC822Name("mesh.example.org"),
        x509.UniformResourceIdentifier("DNS:mesh.example.org"),
        x509.DNSName("DNS:mesh.example.org"),
    ],
)
@pytest.mark.parametrize("proof", ["mesh.example.org", "DNS:mesh.example.org", "dns:MESH.example.org"])
def test_a_uri_or_an_address_never_passes_for_the_dns_name_that_it_is_spelled_like(
    name: x509.GeneralName, proof: str
) -> None:
    users = parse_users(f"mesh:$san${proof}:reader\n", "users")
    assert user_of_certificate(users, certificate_for(name)) is None
    assert user_of_certificate(users, certificate_for(name, x509.DNSName("mesh.example.org"))) is not None


def test_a_users_file_that_others_may_write_is_refused_and_the_users_of_before_stay(
    worker: Guarded, users: Path
) -> None:
    client = worker.client()
    assert client.get("/connectors", headers=bearer(TOKEN)).status_code == 200
    for mode in (0o620, 0o602, 0o666):
        users.write_text(f"eve:{hash_token(Secret('e' * 40))}:admin\n")
        users.chmod(mode)
        assert client.get("/connectors", headers=bearer("e" * 40)).status_code == 401
        assert client.get("/connectors", headers=bearer(TOKEN)).status_code == 200
    assert f"Run chmod go-w {users}" in worker.log and worker.log.count("security.stale") == 1
    users.chmod(0o640)
    assert client.get("/connectors", headers=bearer("e" * 40)).status_code == 200
    users.chmod(0o660)
    assert client.get("/connectors", headers=bearer("e" * 40)).status_code == 200
    assert worker.log.count("security.stale") == 2, "rights are looked at again without a change of the content"


def test_a_users_file_that_others_may_write_lets_nobody_in_from_the_start(users: Path) -> None:
    users.chmod(0o646)
    text = io.StringIO()
    users_of(users, make_logger("info", "json", text))
    assert "rest.users_refused" in text.getvalue() and f"chmod go-w {users}" in text.getvalue()
    answer = guarded(Exposure.USERS, users=users).client().get("/connectors", headers=bearer(TOKEN))
    assert answer.status_code == 503 and "chmod go-w" in answer.json()["message"]


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_folder_in_which_others_may_replace_the_file_is_refused_unless_it_is_sticky(
    tmp_path: Path, users: Path, is_linked: bool
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    named = folder / "users"
    if is_linked:
        named.symlink_to(users)
    else:
        write_private(named, users.read_bytes())
    for mode, status in ((0o777, 503), (0o775, 503), (0o1777, 200), (0o755, 200)):
        folder.chmod(mode)
        client = guarded(Exposure.USERS, users=named).client()
        assert client.get("/connectors", headers=bearer(TOKEN)).status_code == status


@pytest.mark.parametrize(("owner", "is_taken"), [(0, True), (1000, True), (1001, False)])
def test_a_file_of_another_user_is_refused_and_one_of_root_is_taken(owner: int, is_taken: bool) -> None:
    rights = os.stat_result((0o100600, 0, 0, 1, owner, 0, 0, 0, 0, 0))
    with contextlib.nullcontext() if is_taken else pytest.raises(UsersUnusable, match="belongs to user id 1001"):
        refuse_writable(Path("users"), rights, 1000)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("alice", "wrong"),
        basic("alice", ""),
        basic("nobody", "päss:word"),
        basic("ci", TOKEN),
        bearer("x" * 40),
        bearer(""),
        bearer(PASSWORD),
        {"Authorization": "Basic !!!"},
        {"Authorization": b"Basic \xe9"},
        {"Authorization": "Basic " + base64.b64encode(b"alice").decode()},
        {"Authorization": "Basic " + base64.b64encode(b"\xff:\xff").decode()},
        {"Authorization": "Digest x"},
        {"Authorization": ""},
        {"Authorization": "Bearer " + "x" * 5000},
    ],
)
def test_anybody_else_is_asked_who_they_are(worker: Guarded, headers: dict[str, str]) -> None:
    answer = worker.client().get("/connectors", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
    assert "Bearer" in answer.headers["WWW-Authenticate"]


def test_two_authorizations_in_one_request_are_refused(worker: Guarded) -> None:
    headers = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
    assert worker.client().get("/connectors", headers=headers).status_code == 400


def test_the_file_is_read_again_when_it_changes(worker: Guarded, users: Path) -> None:
    client = worker.client()
    assert client.get("/connectors", headers=basic("alice", "päss:word")).status_code == 200
    users.write_text(f"bob:{hash_token(Secret('b' * 40))}:reader\n")
    assert client.get("/connectors", headers=basic("alice", "päss:word")).status_code == 401
    assert client.get("/connectors", headers=bearer("b" * 40)).status_code == 200
    users.write_text("not a user\n")
    assert client.get("/connectors", headers=bearer("b" * 40)).status_code == 200
    assert worker.log.count("security.stale") == 1
    users.unlink()
    assert client.get("/connectors", headers=bearer("b" * 40)).status_code == 200


def test_without_a_usable_file_nobody_is_let_in_and_the_health_is_told(tmp_path: Path) -> None:
    path = tmp_path / "users"
    client = guarded(Exposure.USERS, users=path).client()
    answer = client.get("/connectors", headers=bearer(TOKEN))
    assert answer.status_code == 503
    assert "cannot be read" in answer.json()["message"]
    assert client.get("/health").status_code == 200
    write_private(path, f"ci:{hash_token(Secret(TOKEN))}:reader\n".encode())
    assert client.get("/connectors", headers=bearer(TOKEN)).status_code == 200


def test_failures_of_many_addresses_take_no_memory() -> None:
    failures = Failures()
    for number in range(3 * ADDRESSES_MOST):
        failures.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(failures._counts) == ADDRESSES_MOST


def test_passwords_and_tokens_are_compared_in_a_time_that_tells_nothing(
    worker: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S33."""
    compared: list[int] = []

    def counted(ours: bytes, theirs: bytes) -> bool:
        compared.append(len(ours))
        return ours == theirs

    monkeypatch.setattr("hmac.compare_digest", counted)
    assert worker.client().get("/connectors", headers=bearer(TOKEN)).status_code == 200
    assert worker.client().get("/connectors", headers=basic("nobody", "x")).status_code == 401
    assert compared == [32, 32], "of a user that there is not, a password is checked as well"


def test_a_hash_is_new_each_time_and_tells_its_password_from_others() -> None:
    assert hash_password(Secret("päss:word")) != PASSWORD
    assert parse_password_hash(PASSWORD).matches(Secret("päss:word"))
    assert not parse_password_hash(PASSWORD).matches(Secret("pass:word"))
    assert len(parse_token_hash(hash_token(Secret(TOKEN)))) == 32
    with pytest.raises(BadHash):
        parse_password_hash(PASSWORD + "$")


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        (f"eve:{hash_token(Secret('e' * 40))}:reader", False),
        (f"eve:{hash_token(Secret('e' * 40))}:admin", False),
        ("", True),
        (f"eve:{hash_token(Secret('n' * 40))}:reader", True),
        (f"eve:{hash_token(Secret('e' * 40))}:reader:A->B", True),
        ("not a user", False),
    ],
    ids=["the same", "another role that reads", "removed", "another token", "only some flows", "unreadable file"],
)
def test_a_stream_ends_when_its_user_is_removed_or_may_no_longer_read(
    tmp_path: Path, users: Path, line: str, ends: bool
) -> None:
    """``READS.still_holds`` is what a stream asks while it goes on."""
    base = users.read_text()
    users.write_text(f"{base}eve:{hash_token(Secret('e' * 40))}:reader\n")
    answers: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        still = READS.still_holds(Request(scope))
        answers.append(await still())
        users.write_text(f"{base}{line}\n")
        answers.append(await still())
        await Response()(scope, receive, send)

    asked = Guarded(app, Exposure.USERS, users)
    assert asked.client().get("/v1/events", headers=bearer("e" * 40)).status_code == 200
    assert answers == [True, not ends]


@pytest.mark.parametrize(
    ("role", "article"),
    [(Role.NONE, "a user without a role"), (Role.READER, "a reader"), (Role.OPERATOR, "an operator")],
)
def test_who_may_not_do_something_reads_what_they_are_and_what_it_takes(role: Role, article: str) -> None:
    with pytest.raises(RestError, match=f"bob is {article}; this takes an admin"):
        Requires(Role.ADMIN).check(Caller(User("bob", role), "127.0.0.1", "password"), {})
