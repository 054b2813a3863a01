"""What is turned away before it gets to a route, and what is told of the rest."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import pytest

from mm2py.config.rest import Exposure
from mm2py_rest.access import admission
from mm2py_rest.access.admission import BODY_MAX_BYTES
from mm2py_rest.access.hosts import is_own_host, is_own_page
from tests.fakes.rest_services import Guarded, guarded

pytestmark = pytest.mark.real_time

NAMED = {"flow": "A->B", "name": "A->B.MirrorSourceConnector", "connector": "A->B.MirrorSourceConnector"}
CONFIG = "/connectors/A->B.MirrorSourceConnector/config"


@pytest.fixture
def worker() -> Guarded:
    return guarded()


# Hosts and pages


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost:8083", True),
        ("LOCALHOST", True),
        ("127.0.0.1:8083", True),
        ("[::1]:8083", True),
        ("192.0.2.7", True),
        ("mirror.example.org:8083", True),
        ("Mirror.Example.org.", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("mirror.example.org.evil.example:80", False),
        ("127.0.0.1.evil.example", False),
        ("a@localhost", False),
        ("localhost:8083:1", False),
        ("", False),
    ],
)
def test_a_host_that_is_not_ours_is_one_that_somebody_let_point_to_us(host: str, is_own: bool) -> None:
    """B42, S16."""
    assert is_own_host(host, {"mirror.example.org"}) is is_own


@pytest.mark.parametrize(
    ("origin", "is_own"),
    [
        ("http://localhost:8083", True),
        ("https://localhost:8083", True),
        ("http://localhost:3000", False),
        ("http://evil.example", False),
        ("null", False),
        ("file://localhost:8083", False),
        ("http://localhost:8083/", False),
        ("", False),
    ],
)
def test_only_our_own_pages_may_ask(worker: Guarded, origin: str, is_own: bool) -> None:
    """B42, S16."""
    assert is_own_page(origin, "localhost:8083") is is_own
    answer = worker.client().get("/connectors", headers={"Origin": origin})
    assert answer.status_code == (200 if is_own else 403)


def test_a_name_that_somebody_lets_point_to_us_is_refused_and_health_is_not(worker: Guarded) -> None:
    client = worker.client()
    refused = client.get("/connectors", headers={"Host": "evil.example"})
    assert refused.status_code == 403
    assert "rest.hosts" in refused.json()["message"]
    assert client.get("/health", headers={"Host": "10.0.0.9:8083"}).status_code == 200


def test_what_a_proxy_claims_changes_nothing(worker: Guarded) -> None:
    """B42."""
    headers = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "evil.example", "Forwarded": "for=127.0.0.1"}
    assert worker.client().delete(CONFIG, headers=headers).status_code == 405
    assert worker.told[-1].address == "192.0.2.7"


# What a listener serves


def test_a_listener_that_other_machines_reach_without_protection_serves_health_and_says_how_to_open_the_rest() -> None:
    worker = guarded(Exposure.HEALTH, missing="Set rest.users.file")
    client = worker.client()
    for path in ("/health", "/live", "/ready"):
        assert client.get(path).status_code == 200
    for method, path in [("GET", "/connectors"), ("GET", "/metrics"), ("POST", "/health"), ("GET", "/openapi.json")]:
        answer = client.request(method, path)
        assert answer.status_code == 403
        assert "Set rest.users.file" in answer.json()["message"]


def test_a_listener_for_probes_serves_health_and_metrics_and_nothing_else() -> None:
    client = guarded(Exposure.PROBES).client()
    for path in ("/health", "/live", "/ready"):
        assert client.get(path).status_code == 200
    assert client.get("/metrics").status_code in (200, 404)
    assert client.get("/connectors").status_code == 403
    assert client.post("/metrics", json={}).status_code == 403


@pytest.mark.parametrize("exposure", [Exposure.EVERYONE, Exposure.HEALTH, Exposure.PROBES])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/connectors/MirrorSourceConnector/tasks"),
        ("PUT", "/connectors/MirrorSourceConnector/fence"),
        ("POST", "/A/B/connectors/MirrorSourceConnector/tasks?forward=true"),
        ("PUT", "/us%20east/B/connectors/MirrorSourceConnector/fence"),
    ],
)
async def test_what_processes_of_mirrormaker_2_ask_each_other_is_gone_and_its_body_is_not_read(
    exposure: Exposure, method: str, path: str
) -> None:
    read: list[bytes] = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            read.append(b"[")
            yield b"["
            assert len(read) < 10, "the body is read"

    worker = guarded(exposure)
    answer = await raw_request(worker, method, path, endless())
    assert answer[0] == 410
    assert b"topics on the target" in answer[1]
    assert read == []


async def raw_request(worker: Guarded, method: str, path: str, body: AsyncIterator[bytes]) -> tuple[int, bytes]:
    """Send a request whose body is only made when it is asked for."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": await anext(body), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path.partition("?")[0]),
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-length", b"7"), (b"content-type", b"application/json")],
        "client": ("192.0.2.7", 1),
        "scheme": "http",
        "root_path": "",
    }
    await worker.gate(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


# Bodies


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"", 400, ""),
        (b"{", 400, "not JSON"),
        (b"nonsense", 400, "not JSON"),
        (b"[]", 400, "understood"),
        (b'"text"', 400, "understood"),
        (b"{}", 200, ""),
        (b"[" * 100_000, 400, "levels"),
        (b"[" * 200 + b"]" * 200, 400, "levels"),
        (b'{"tasks.max": NaN}', 400, "NaN"),
        (b'{"tasks.max": -Infinity}', 400, "Infinity"),
        (b'{"tasks.max": 1e999}', 400, "too large"),
        (b'{"tasks.max": ' + b"9" * 6000 + b"}", 400, "too long"),
        (b'{"tasks.max": "1", "tasks.max": "2"}', 400, "twice"),
        (b'\xef\xbb\xbf{"tasks.max": "1"}', 400, "byte order mark"),
        (b'{"tasks.max": "\\ud800"}', 400, "half a character"),
        (b'{"tasks.max": "\xc3\x28"}', 400, "UTF-8"),
        (b'{"topics": "\xc0\xaf"}', 400, "UTF-8"),
        (b'{"tasks.max": {"a": 1}}', 400, "understood"),
    ],
)
def test_a_body_is_json_as_it_is_defined_or_refused_in_connects_form(
    worker: Guarded, body: bytes, status: int, why: str
) -> None:
    """B30."""
    answer = worker.client().put(CONFIG, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error_code"] == 400
        assert why in answer.json()["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
def test_what_a_form_of_another_site_can_send_is_no_json(worker: Guarded, kind: str) -> None:
    """B32, S16."""
    answer = worker.client().put(CONFIG, content=b"{}", headers={"Content-Type": kind})
    assert answer.status_code == 415


def test_json_with_a_charset_is_json(worker: Guarded) -> None:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    assert worker.client().put(CONFIG, content=b"{}", headers=kind).status_code == 200


def test_a_body_beyond_a_megabyte_is_refused_whether_its_length_is_told_or_not(worker: Guarded) -> None:
    """B31, S17."""
    kind = {"Content-Type": "application/json"}
    large = b'{"topics": "' + b"a" * BODY_MAX_BYTES + b'"}'

    def chunks() -> Any:
        for _ in range(100):
            yield b"a" * 100_000

    client = worker.client()
    assert client.put(CONFIG, content=large, headers=kind).status_code == 413
    assert client.put(CONFIG, content=chunks(), headers=kind).status_code == 413


@pytest.mark.parametrize("length", ["-1", "x", "99999999999999999999", "1e3"])
def test_a_length_that_cannot_be_is_refused(worker: Guarded, length: str) -> None:
    """B31."""
    headers = {"Content-Type": "application/json", "Content-Length": length}
    assert worker.client().put(CONFIG, content=b"", headers=headers).status_code == 413


def test_a_body_that_tells_its_length_twice_is_refused(worker: Guarded) -> None:
    """B31."""
    headers = {"Content-Type": "application/json", "Content-Length": "2", "Transfer-Encoding": "chunked"}
    assert worker.client().put(CONFIG, content=b"{}", headers=headers).status_code == 400


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """B31."""
    monkeypatch.setattr(admission, "BODY_MOST_S", 0.01)

    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    assert (await raw_request(guarded(), "PUT", CONFIG, never()))[0] == 408


# Paths


@pytest.mark.parametrize(
    "path",
    [
        "/connectors//",
        "/connectors/%2F",
        "/connectors/%2e%2e/%2e%2e/etc/passwd",
        "/connectors/%00/config",
        "/connectors/%c0%af/config",
        "/connectors/A->B.MirrorSourceConnector%2F..%2F..%2Fx/config",
        "/connectors/A->B.MirrorSourceConnector%0aX/config",
        "/connectors/A->B.MirrorSourceConnector%1b[31m/config",
        "/connectors/" + "a" * 10_000,
        "/docs",
        "/redoc",
    ],
)
def test_a_path_that_leads_nowhere_is_a_404_and_stays_in_its_line(worker: Guarded, path: str) -> None:
    """B33, B34, S19."""
    answer = worker.client().get(path)
    assert answer.status_code == 404
    assert answer.json()["error_code"] == 404
    assert "\x1b" not in worker.log
    assert len(worker.log.splitlines()) == 0


def test_a_method_that_a_path_does_not_have_is_a_405(worker: Guarded) -> None:
    """B33."""
    assert worker.client().delete("/").status_code == 405
    assert worker.client().request("TRACE", "/connectors").status_code == 405


# Answers


def test_answers_tell_neither_the_server_nor_what_went_wrong_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """S16, S19: no CORS, no cookies, no name of the server."""
    worker = guarded()

    def broken(_: Any) -> Any:
        raise RuntimeError("canary")

    monkeypatch.setattr("mm2py_rest.services.Services.connectors", broken)
    answer = worker.client().get("/connectors")
    assert answer.status_code == 500
    body = answer.json()
    assert body["error_code"] == 500 and "canary" not in answer.text and "Traceback" not in answer.text
    mark = body["message"].rpartition("mark=")[2].rstrip(".")
    assert len(mark) == 8 and mark in worker.log and "canary" in worker.log
    assert "server" not in answer.headers
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "access-control-allow-origin" not in answer.headers
    assert "set-cookie" not in answer.headers


def test_no_credential_of_the_file_is_in_any_answer(worker: Guarded) -> None:
    """S05, B44."""
    client = worker.client()
    paths = client.get("/openapi.json").json()["paths"]
    asked = [path for path, methods in paths.items() if "get" in methods and not path.endswith("/events")]
    assert len(asked) > 10
    for path in asked:
        filled = re.sub(r"\{(\w+)\}", lambda match: NAMED.get(match[1], "orders"), path)
        assert "canary" not in client.get(filled).text, filled


def test_a_400_does_not_repeat_what_was_sent(worker: Guarded) -> None:
    """B44."""
    for body in ({"tasks.max": {"password": "canary"}}, {"sasl.jaas.config": "canary"}, {"x": "canary"}, ["canary"]):
        answer = worker.client().put(CONFIG, json=body)
        assert answer.status_code == 400
        assert "canary" not in answer.text


KEY = "canary" + "0123456789abcdef" * 2
"""As long as a token."""


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/connectors/{KEY}", None),
        ("PUT", f"/connectors/{KEY}->B.MirrorSourceConnector/pause", None),
        ("GET", f"/v1/flows/{KEY}", None),
        ("GET", f"/v1/flows/A->B/topics/{KEY}/partitions", None),
        ("POST", f"/v1/flows/A->B/topics/{KEY}/restart", None),
        ("PUT", f"/admin/loggers/{KEY}", {"level": "INFO"}),
        ("PUT", f"/connector-plugins/{KEY}/config/validate", {}),
        ("POST", "/connectors", {"name": f"{KEY}->B.MirrorSourceConnector", "config": {}}),
        ("POST", f"/{KEY}", None),
        ("PUT", CONFIG, {KEY: {"a": 1}}),
        ("PUT", CONFIG, {KEY: "1"}),
        ("POST", "/connectors", {"name": "A->B.MirrorSourceConnector", "config": {}, KEY: 1}),
    ],
)
def test_what_is_as_long_as_a_token_is_repeated_neither_to_the_caller_nor_in_the_log(
    worker: Guarded, method: str, path: str, body: Any
) -> None:
    """B44, S05, S32: a script has put a token where a name belongs."""
    answer = worker.client().request(method, path, json=body)
    assert answer.status_code in (400, 404, 409)
    assert "canary" not in answer.text and "canary" not in worker.log
    assert all("canary" not in str(record) for record in worker.told)


@pytest.mark.parametrize(
    "name",
    ["", "/", "a/b", "a%2Fb", "..", "a\nb", "\x1b[2J", "a" * 10_000, "А->B.MirrorSourceConnector", "A->B.x\u202e"],
)
def test_a_name_that_no_connector_can_have_is_refused_and_steers_no_terminal(worker: Guarded, name: str) -> None:
    """B34: the third but last begins with a Cyrillic letter."""
    answer = worker.client().post("/connectors", json={"name": name, "config": {}})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    assert len(answer.text) < 1_000 and len(worker.log.splitlines()) == 1
    assert "\x1b" not in worker.log + answer.text and "\u202e" not in worker.log + answer.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/connectors", {"name": "A->B.MirrorSourceConnector", "config": {}, "role": "admin"}),
        ("PATCH", CONFIG, {"version": "9", "by": "mm2", "write_id": "x", "previous": "{}"}),
        ("PATCH", CONFIG, {"name": "B->A.MirrorSourceConnector"}),
        ("PATCH", CONFIG, {"rest.users.file": "/etc/users", "rest.insecure": "true"}),
    ],
)
def test_a_body_changes_nothing_but_what_its_route_is_for(worker: Guarded, method: str, path: str, body: Any) -> None:
    """S18."""
    before = worker.client().get(CONFIG).json()
    assert worker.client().request(method, path, json=body).status_code == 400
    assert worker.client().get(CONFIG).json() == before


# What is told


def test_each_call_that_changes_something_leaves_an_audit_event_without_credentials(worker: Guarded) -> None:
    """S32."""
    client = worker.client()
    assert client.put(CONFIG, json={"tasks.max": "3", "topics": "orders"}).status_code == 200
    assert client.put(CONFIG, json={"my.password": "canary", "topics": "canary"}).status_code == 400
    assert client.put(CONFIG, content=b"canary", headers={"Content-Type": "application/json"}).status_code == 400
    assert client.get(CONFIG).status_code == 200
    done, refused, broken = worker.told
    assert (done.user, done.proof, done.address, done.method) == ("anonymous", "none", "192.0.2.7", "PUT")
    assert (done.path, done.flow, done.status, done.version) == (CONFIG, "A->B", 200, "1")
    assert json.loads(done.body) == {"tasks.max": "3", "topics": "orders"}
    assert (refused.status, json.loads(refused.body)) == (400, {"my.password": "[hidden]", "topics": "..."})
    assert (broken.status, broken.body) == (400, "")
    assert "canary" not in worker.log
    assert worker.log.count("rest.audit") == 3


def test_a_name_with_a_line_break_stays_one_line_of_the_log(worker: Guarded) -> None:
    """S20, B34."""
    path = "/connectors/A->B.MirrorSourceConnector%0a2026-11-23 INFO rest.audit user=admin%1b[31m%e2%80%ae/config"
    assert worker.client().put(path, json={}).status_code == 404
    assert len(worker.log.splitlines()) == 1 and "\x1b" not in worker.log
