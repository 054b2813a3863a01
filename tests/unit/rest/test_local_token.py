"""Where there is no users' file all may read, and only the token changes anything: over every route there is."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from mm2py.config.rest import Exposure
from mm2py.login import host_name
from mm2py.records.author import Author
from mm2py.rest_token import token_at
from mm2py_rest.app import make_app
from mm2py_rest.settings.changes import Changed
from tests.fakes.rest_services import FakeChanges, Guarded, guarded, make_services

ROUTES = [
    (method, str(route.path))
    for route in iter_route_contexts(make_app(make_services()).routes)
    for method in sorted(route.methods or ())
]
IDS = [f"{method} {path}" for method, path in ROUTES]
PATHS = sorted({path for _, path in ROUTES})
CONFIG = "/connectors/A->B.MirrorSourceConnector/config"
WAY = "the user mm2py with the token of "


def address_of(path: str) -> str:
    known = {"flow": "A->B", "name": "A->B.MirrorSourceConnector"}
    return re.sub(r"\{([^}:]+)[^}]*\}", lambda match: known.get(match[1], "0"), path)


@pytest.fixture
def worker(tmp_path: Path) -> Guarded:
    return guarded(Exposure.READERS, token=tmp_path / "rest.token")


@pytest.fixture
def token(tmp_path: Path) -> str:
    return token_at(tmp_path / "rest.token").reveal()


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_every_route_of_the_application_is_walked() -> None:
    assert {method for method, _ in ROUTES} == {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
    assert len(PATHS) > 30
    assert {"/admin/loggers/{logger}", "/connectors/{name}/offsets", "/v1/flows/{flow}/topics/{topic}/restart"} <= {
        *PATHS
    }


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=IDS)
def test_what_changes_anything_takes_the_token_and_what_reads_does_not(
    worker: Guarded, token: str, method: str, path: str
) -> None:
    client, body = worker.client(), {} if method in ("PUT", "PATCH") else None
    anonymous = client.request(method, address_of(path), json=body)
    proven = client.request(method, address_of(path), json=body, headers=basic("mm2py", token))
    if method in ("GET", "OPTIONS"):
        assert anonymous.status_code not in (401, 403)
        assert worker.told == []
    else:
        assert anonymous.status_code == 401
        assert WAY in anonymous.json()["message"]
        assert "Basic" in anonymous.headers["www-authenticate"] and "Bearer" in anonymous.headers["www-authenticate"]
        assert [(told.user, told.proof, told.method) for told in worker.told] == [("mm2py", "token", method)]
    of_route = proven.status_code == 403 and "topics/reset" in path
    assert proven.status_code not in (401, 403) or of_route
    assert token not in proven.text + anonymous.text + worker.log


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "X"])
def test_a_method_that_no_route_has_takes_the_token_as_well(worker: Guarded, method: str) -> None:
    assert worker.client().request(method, "/health").status_code == 401


@pytest.mark.parametrize("path", PATHS)
def test_a_slash_at_the_end_changes_nothing(worker: Guarded, token: str, path: str) -> None:
    """Connect serves both; a redirect would lose the body, or the credentials."""
    client = worker.client()
    for method in [method for method, of_path in ROUTES if of_path == path]:
        for headers in ({}, bearer(token)):
            body = {} if method in ("PUT", "PATCH") else None
            asked = [
                client.request(method, address, json=body, headers=headers, follow_redirects=False)
                for address in (address_of(path), address_of(path).rstrip("/") + "/")
            ]
            assert asked[0].status_code == asked[1].status_code
            assert asked[0].status_code not in (404, 405) or (path, method) in MAY_MISS


MAY_MISS = {
    ("/connectors/{name}/tasks/{task}/status", "GET"),
    ("/connectors/{name}/tasks/{task}/restart", "POST"),
    ("/connector-plugins/{plugin}/config", "GET"),
    ("/connector-plugins/{plugin}/config/validate", "PUT"),
    ("/admin/loggers/{logger}", "GET"),
    ("/admin/loggers/{logger}", "PUT"),
    ("/page", "GET"),
    ("/page/{file}", "GET"),
    ("/v1/flows/{flow}/topics/{topic}", "GET"),
    ("/v1/flows/{flow}/topics/{topic}/partitions", "GET"),
    ("/v1/flows/{flow}/topics/{topic}/restart", "POST"),
    ("/v1/flows/{flow}/topics/{topic}/pause", "PUT"),
    ("/v1/flows/{flow}/topics/{topic}/resume", "PUT"),
    ("/v1/flows/{flow}/topics/{topic}/partitions/{partition}/pause", "PUT"),
    ("/v1/flows/{flow}/topics/{topic}/partitions/{partition}/resume", "PUT"),
}
"""There is no plug-in, logger, topic or task called 0, and the page may not be built."""


@pytest.mark.parametrize("path", PATHS)
def test_head_is_get_without_a_body_and_options_tells_the_methods(worker: Guarded, path: str) -> None:
    client, methods = worker.client(), {method for method, of_path in ROUTES if of_path == path}
    head = client.head(address_of(path))
    assert head.content == b""
    if "GET" in methods:
        got = client.get(address_of(path))
        assert head.status_code == got.status_code
        assert head.headers.get("content-type") == got.headers.get("content-type")
        if "content-length" in got.headers and path != "/metrics":
            assert head.headers["content-length"] == got.headers["content-length"]
    else:
        assert head.status_code == 405
    options = client.options(address_of(path))
    allowed = methods | ({"HEAD"} if "GET" in methods else set())
    assert options.status_code == 200
    assert set(options.headers["allow"].split(",")) == set(options.text.split(", ")) == allowed
    assert not [name for name in options.headers if name.startswith("access-control")]
    assert worker.told == []


def test_the_page_of_another_site_gets_no_permission_by_asking_first(worker: Guarded) -> None:
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "PUT"}
    answer = worker.client().options(CONFIG, headers=headers)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_probes_may_ask_with_head_and_options_and_still_get_nothing_else() -> None:
    client = guarded(Exposure.PROBES).client()
    for method in ("HEAD", "OPTIONS"):
        assert client.request(method, "/health").status_code == 200
        assert client.request(method, "/metrics/").status_code == 200
        assert client.request(method, "/connectors").status_code == 403
    client = guarded(Exposure.HEALTH).client()
    for method in ("HEAD", "OPTIONS"):
        assert client.request(method, "/health/").status_code == 200
        assert client.request(method, "/metrics").status_code == 403


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_with_a_users_file_head_and_options_take_a_reader(tmp_path: Path, method: str) -> None:
    users = tmp_path / "users"
    users.write_text(f"x:$sha256${'0' * 64}:reader\n")
    client = guarded(Exposure.USERS, users=users).client()
    assert client.request(method, CONFIG).status_code == 401
    assert client.request(method, "/health").status_code == 200


@pytest.mark.parametrize("scheme", ["Basic", "basic", "Bearer", "bearer"])
def test_the_token_is_a_password_or_a_bearer_token(worker: Guarded, token: str, scheme: str) -> None:
    headers = basic("mm2py", token) if scheme.lower() == "basic" else bearer(token)
    headers = {"Authorization": f"{scheme} {headers['Authorization'].partition(' ')[2]}"}
    assert worker.client().patch(CONFIG, json={"tasks.max": "2"}, headers=headers).status_code == 200


def test_what_is_nearly_the_token_is_refused_and_told_without_it_but_does_not_keep_from_reading(
    worker: Guarded, token: str, tmp_path: Path
) -> None:
    wrong = [
        basic("mm2py", token[:-1]),
        basic("root", token),
        basic("", token),
        basic("mm2py", token + " "),
        bearer(token[:-1] + "é"),
        bearer("mm2py:" + token),
        {"Authorization": token},
        {"Authorization": f"Basic {token}"},
        {"Authorization": "Basic w6"},
        {"Authorization": "Basic é"},
        {"Authorization": "Digest " + token},
        {"Authorization": "Bearer"},
    ]
    client = worker.client()
    for headers in wrong:
        raw = {name: value.encode("latin-1") for name, value in headers.items()}
        assert client.patch(CONFIG, json={}, headers=raw).status_code == 401, headers
        assert client.get(CONFIG, headers=raw).status_code == 200, headers
    assert worker.told == []
    assert worker.log.count("rest.login_failed") == 6
    assert str(tmp_path / "rest.token") in worker.log
    assert token not in worker.log


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, "Changes take a proven user."),
        (bearer(""), "the request brings no token"),
        (basic("mm2py", ""), "the request brings no token"),
        (basic("admin", "x" * 64), "the request brings no token"),
        ({"Authorization": "Digest x"}, "the request brings no token"),
        (bearer("x" * 64), "the token of the request is wrong"),
        (basic("mm2py", "x" * 64), "the token of the request is wrong"),
    ],
)
def test_a_wrong_token_is_not_called_a_missing_one_and_the_file_that_counts_is_named(
    worker: Guarded, token: str, tmp_path: Path, headers: dict[str, str], says: str
) -> None:
    """An operator whose file is of another worker, or was read before it was deleted, looks at the file and not at
    the way in which it is sent."""
    message = worker.client().patch(CONFIG, json={}, headers=headers).json()["message"]
    assert says in message
    assert ("is wrong" in message) == ("is wrong" in says)
    assert ("no token" in message) == ("no token" in says)
    assert str(tmp_path / "rest.token") in message and WAY in message
    assert token not in message


def test_the_history_says_mm2py_of_who_had_the_token(
    worker: Guarded, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, authors = FakeChanges.change, []

    async def kept(self: FakeChanges, wanted: Any, *, version: int | None, author: Author) -> Changed:
        authors.append(author)
        return await change(self, wanted, version=version, author=author)

    monkeypatch.setattr(FakeChanges, "change", kept)
    assert worker.client().patch(CONFIG, json={"tasks.max": "2"}, headers=bearer(token)).status_code == 200
    assert authors == [Author("mm2py", host_name(), "")]


def test_a_deleted_token_is_no_proof_any_more_and_its_successor_is(worker: Guarded, token: str, tmp_path: Path) -> None:
    (tmp_path / "rest.token").unlink()
    client = worker.client()
    assert client.patch(CONFIG, json={}, headers=bearer(token)).status_code == 401
    assert client.patch(CONFIG, json={}, headers=bearer(token_at(tmp_path / "rest.token").reveal())).status_code == 200


def test_where_no_token_can_be_made_changes_are_refused_with_the_way_and_reading_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client = guarded(Exposure.READERS, token=tmp_path / "file" / "rest.token").client()
    for headers in ({}, basic("mm2py", ""), bearer("")):
        assert client.get(CONFIG, headers=headers).status_code == 200
        refused = client.patch(CONFIG, json={}, headers=headers)
        assert refused.status_code == 401
        message = refused.json()["message"]
        assert "Not a directory" in message and "Set rest.token.file" in message and "rest.users.file" in message


def test_a_token_that_others_may_read_is_none(worker: Guarded, token: str, tmp_path: Path) -> None:
    (tmp_path / "rest.token").chmod(0o644)
    refused = worker.client().patch(CONFIG, json={}, headers=bearer(token))
    assert refused.status_code == 401
    assert "Other users may read or write" in refused.json()["message"]


def test_anonymous_may_change_is_as_open_as_connect(tmp_path: Path) -> None:
    path = tmp_path / "rest.token"
    worker = guarded(Exposure.EVERYONE, token=path)
    assert worker.client().patch(CONFIG, json={"tasks.max": "2"}).status_code == 200
    assert worker.told[-1].user == "anonymous"
    assert not path.exists()


def test_nothing_of_a_body_is_read_before_the_token_is_there(worker: Guarded) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert worker.client().post("/connectors", content=b"x" * (2 << 20), headers=form).status_code == 401
