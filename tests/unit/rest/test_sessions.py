"""The session of the web page: how it begins, what ends it, and what a browser that was tricked gets."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from deploy.local.certificates import write_private
from mm2py.config.rest import Exposure
from mm2py.once_code import NONCE_BYTES, VALID_MS, make_code
from mm2py.rest_token import token_at
from mm2py.secret import Secret
from mm2py_rest.access.authentication import Authentication
from mm2py_rest.access.callers import Caller, Role, User
from mm2py_rest.access.hashes import hash_password, hash_token
from mm2py_rest.access.sessions import (
    IDLE_S,
    LONGEST_S,
    SESSIONS_MOST,
    SESSIONS_MOST_OF_ONE,
    Sessions,
    names_of,
)
from tests.fakes.rest_services import FixedClock, Guarded, guarded

pytestmark = pytest.mark.real_time

PAGE = {"Mm2py-Page": "1"}
PAUSE = "/connectors/A->B.MirrorSourceConnector/pause"
SECRET = "a-token-of-forty-characters-and-no-fewer"  # noqa: S105
PASSWORD = "correct horse"  # noqa: S105


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def users_text() -> bytes:
    token = hash_token(Secret(SECRET))
    return f"ann:{hash_password(Secret(PASSWORD))}:operator\nci:{token}:reader:A->B\n".encode()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    write_private(tmp_path / "users", users_text())
    return tmp_path / "users"


@pytest.fixture
def worker(users: Path) -> Guarded:
    return guarded(Exposure.USERS, users=users)


@pytest.fixture
def local(tmp_path: Path) -> Guarded:
    """A worker without a users' file."""
    return guarded(Exposure.READERS, token=tmp_path / "rest.token")


@pytest.fixture
def token(tmp_path: Path) -> Secret:
    return token_at(tmp_path / "rest.token")


def fresh(worker: Guarded) -> TestClient:
    """Return a client that keeps no cookie of its own accord: each test says what a browser sends."""
    client = worker.client()
    client.cookies.clear()
    return client


def log_in(worker: Guarded, proof: Mapping[str, str]) -> str:
    """Log in and return the cookie as a browser sends it."""
    answer = fresh(worker).post("/session", headers={**PAGE, **proof})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["set-cookie"].partition(";")[0])


def ask(worker: Guarded, method: str, path: str, cookie: str = "", **headers: str) -> Any:
    sent = {**PAGE, **({"Cookie": cookie} if cookie else {}), **headers}
    return fresh(worker).request(method, path, headers={name.replace("_", "-"): sent[name] for name in sent})


def user_of(worker: Guarded, cookie: str) -> tuple[str, str]:
    answer = ask(worker, "GET", "/session", cookie)
    return (answer.json()["user"], answer.json()["role"]) if answer.status_code == 200 else ("", "")


# Login and logout


def test_a_user_logs_in_with_a_password_and_has_the_rights_of_the_users_file(worker: Guarded) -> None:
    cookie = log_in(worker, basic("ann", PASSWORD))
    found = ask(worker, "GET", "/session", cookie).json()
    assert (found["user"], found["role"], found["flows"], found["login"]) == ("ann", "operator", None, "users")
    assert found["is_session"] and found["ends_in_s"] == LONGEST_S
    assert ask(worker, "PUT", PAUSE, cookie).status_code == 202
    refused = ask(worker, "DELETE", "/connectors/A->B.MirrorSourceConnector", cookie)
    assert (refused.status_code, "ann is an operator" in refused.text) == (403, True)
    assert [(told.user, told.proof, told.method) for told in worker.told] == [
        ("ann", "password", "POST"),
        ("ann", "session", "PUT"),
        ("ann", "session", "DELETE"),
    ]


def test_a_user_of_a_token_and_one_flow_sees_that_flow(worker: Guarded) -> None:
    cookie = log_in(worker, {"Authorization": f"Bearer {SECRET}"})
    assert ask(worker, "GET", "/session", cookie).json()["flows"] == ["A->B"]
    assert ask(worker, "GET", "/v1/flows/A->B", cookie).status_code == 200
    assert ask(worker, "GET", "/v1/workers", cookie).status_code == 403


def test_no_script_can_read_the_cookie_and_no_other_site_sends_it(worker: Guarded) -> None:
    answer = fresh(worker).post("/session", headers={**PAGE, **basic("ann", PASSWORD)})
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Strict"]  # no Max-Age: it goes when the browser closes
    assert name.startswith("mm2py-8083=")
    assert answer.content == b""
    assert PASSWORD not in worker.log and name.partition("=")[2] not in worker.log


def test_with_tls_the_cookie_is_never_sent_without(worker: Guarded) -> None:
    client = TestClient(worker.gate, base_url="https://localhost:8083")
    answer = client.post("/session", headers={**PAGE, **basic("ann", PASSWORD)})
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name.startswith("__Host-mm2py-8083=")  # browsers take such a name only with TLS, for / and this host alone
    assert "Secure" in attributes
    assert client.get("/session", headers={**PAGE, "Cookie": name}).json()["user"] == "ann"


def test_logging_out_ends_the_session_at_the_server_and_takes_the_cookie_back(worker: Guarded) -> None:
    cookie = log_in(worker, basic("ann", PASSWORD))
    answer = ask(worker, "DELETE", "/session", cookie)
    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert ask(worker, "GET", "/session", cookie).status_code == 401  # also for one who has copied the cookie


def test_a_wrong_password_begins_nothing_and_no_browser_asks_for_another(worker: Guarded) -> None:
    answer = fresh(worker).post("/session", headers={**PAGE, **basic("ann", "wrong")})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert answer.headers["www-authenticate"] == 'Session realm="mm2py"'  # Basic would open the browser's own window
    assert "Basic" in fresh(worker).get("/connectors").headers["www-authenticate"]
    typed, of_a_page = ({"Sec-Fetch-Mode": mode} for mode in ("navigate", "no-cors"))
    assert "Basic" in fresh(worker).get("/connectors", headers=typed).headers["www-authenticate"]
    answer = fresh(worker).get("/connectors", headers=of_a_page)  # such as an image in a page at another port
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Session realm="mm2py"')


def test_a_session_begins_no_other_session_and_so_outlives_no_limit(worker: Guarded) -> None:
    cookie = log_in(worker, basic("ann", PASSWORD))
    answer = ask(worker, "POST", "/session", cookie)
    assert (answer.status_code, "set-cookie" in answer.headers) == (409, False)


def test_where_no_user_is_asked_for_there_is_no_session() -> None:
    worker = guarded(Exposure.EVERYONE)
    assert ask(worker, "POST", "/session").status_code == 409
    found = ask(worker, "GET", "/session").json()
    assert (found["user"], found["role"], found["login"], found["is_session"]) == ("anonymous", "admin", "none", False)


# What ends a session


def test_a_session_that_is_not_used_ends_and_one_that_is_used_ends_all_the_same(worker: Guarded) -> None:
    idle, used = log_in(worker, basic("ann", PASSWORD)), log_in(worker, basic("ann", PASSWORD))
    steps = int(LONGEST_S // (IDLE_S / 2))
    for step in range(1, steps):
        worker.clock.now_s += IDLE_S / 2
        assert user_of(worker, used) == ("ann", "operator"), step
    assert user_of(worker, idle) == ("", "")
    worker.clock.now_s += IDLE_S / 2
    assert user_of(worker, used) == ("", "")


def test_a_session_has_the_rights_that_its_user_has_now(worker: Guarded, users: Path) -> None:
    cookie = log_in(worker, basic("ann", PASSWORD))
    write_private(users, users.read_bytes().replace(b":operator", b":reader"))
    assert user_of(worker, cookie) == ("ann", "reader")
    assert ask(worker, "PUT", PAUSE, cookie).status_code == 403


def test_a_session_ends_with_its_user_and_with_the_password_that_began_it(worker: Guarded, users: Path) -> None:
    cookie = log_in(worker, basic("ann", PASSWORD))
    before = users.read_bytes()
    write_private(users, before.splitlines()[1])
    assert user_of(worker, cookie) == ("", "")
    write_private(users, before)
    assert user_of(worker, cookie) == ("", "")  # it does not come back with the line
    again = log_in(worker, basic("ann", PASSWORD))
    write_private(users, users_text())  # the same password, with another salt
    assert user_of(worker, again) == ("", "")


async def test_a_stream_that_a_session_opened_ends_with_it(worker: Guarded) -> None:
    sessions = worker.gate._sessions
    assert sessions is not None
    cookie = log_in(worker, basic("ann", PASSWORD))
    session = sessions.used([cookie.partition("=")[2]])
    assert session is not None
    listening = Caller(session.caller.user, "192.0.2.7", "session", session)
    assert worker.gate.still(listening).user.name == "ann"
    sessions.end(session)
    with pytest.raises(Exception, match="session has ended"):
        worker.gate.still(listening)


# What a browser that was tricked gets


@pytest.mark.parametrize(
    "headers",
    [
        {},  # a form, an image or a link of another site: no page but ours can add the header
        {**PAGE, "Sec-Fetch-Site": "cross-site"},
        {**PAGE, "Sec-Fetch-Site": "same-site"},  # another port of the same host
        {**PAGE, "Sec-Fetch-Site": "none"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/flows"), ("PUT", PAUSE), ("DELETE", "/session")])
def test_a_cookie_without_our_own_page_opens_nothing(
    worker: Guarded, headers: dict[str, str], method: str, path: str
) -> None:
    cookie = log_in(worker, basic("ann", PASSWORD))
    assert fresh(worker).request(method, path, headers={**headers, "Cookie": cookie}).status_code == 401
    assert user_of(worker, cookie) == ("ann", "operator")
    assert [told.path for told in worker.told] == ["/session"]


def test_a_page_of_another_site_is_refused_even_with_the_cookie_and_the_header(worker: Guarded) -> None:
    cookie = log_in(worker, basic("ann", PASSWORD))
    for origin in ("http://evil.example", "http://localhost:9999", "null"):
        assert ask(worker, "PUT", PAUSE, cookie, Origin=origin).status_code == 403
        assert ask(worker, "OPTIONS", PAUSE, cookie, Origin=origin).status_code == 403  # the question before
    assert ask(worker, "PUT", PAUSE, cookie, Origin="http://localhost:8083").status_code == 202


def test_two_workers_behind_forwarded_ports_of_one_host_keep_their_own_sessions(worker: Guarded) -> None:
    """Both listen at 8083: the second login took the cookie of the first."""
    proof = {**PAGE, **basic("ann", PASSWORD)}
    first = fresh(worker).post("/session", headers={**proof, "Host": "localhost:9001"}).headers["set-cookie"]
    second = fresh(worker).post("/session", headers={**proof, "Host": "localhost:9002"}).headers["set-cookie"]
    plain = fresh(worker).post("/session", headers={**proof, "Host": "[::1]"}).headers["set-cookie"]
    assert [one.partition("=")[0] for one in (first, second, plain)] == ["mm2py-9001", "mm2py-9002", "mm2py-80"]
    cookie = first.partition(";")[0]
    assert ask(worker, "GET", "/session", cookie, Host="localhost:9001").json()["user"] == "ann"
    assert ask(worker, "GET", "/session", cookie, Host="localhost:9002").status_code == 401


def test_a_cookie_of_another_port_or_a_made_up_one_is_nobody(worker: Guarded) -> None:
    name, _, value = log_in(worker, basic("ann", PASSWORD)).partition("=")
    for cookie in (
        f"mm2py-8084={value}",
        f"__Host-{name}={value}",
        f"{name}=",
        f"{name}={value}x",
        f"{name}={value[:-1]}",
    ):
        assert user_of(worker, cookie) == ("", ""), cookie
    # another program of the host may put a cookie of the same name before ours: ours is found all the same
    assert user_of(worker, f"{name}=planted; other=1; {name}={value}") == ("ann", "operator")


def test_proof_in_the_header_goes_before_the_session(worker: Guarded) -> None:
    """A browser whose user logs in as another one must not go on as the first."""
    cookie = log_in(worker, basic("ann", PASSWORD))
    assert ask(worker, "GET", "/session", cookie, Authorization=f"Bearer {SECRET}").json()["user"] == "ci"
    assert ask(worker, "GET", "/session", cookie, **basic("ann", "wrong")).status_code == 401


def test_one_user_cannot_end_the_sessions_of_others_by_logging_in_often() -> None:
    sessions = Sessions(FixedClock())
    ann, bob = (Caller(User(name, Role.READER), "", "password") for name in ("ann", "bob"))
    of_ann = sessions.begin(ann)
    of_bob = [sessions.begin(bob) for _ in range(SESSIONS_MOST + 1)]
    assert sessions.used([of_ann]) is not None
    assert [sessions.used([name]) is not None for name in of_bob].count(True) == SESSIONS_MOST_OF_ONE
    for number in range(SESSIONS_MOST):
        sessions.begin(Caller(User(str(number), Role.READER), "", "password"))
    assert sessions.used([of_ann]) is None  # memory is bounded


def test_the_names_of_sessions_are_long_and_never_the_same() -> None:
    sessions = Sessions(FixedClock())
    names = {sessions.begin(Caller(User(str(number), Role.READER), "", "password")) for number in range(100)}
    assert len(names) == 100
    assert min(map(len, names)) >= 43  # 256 bits
    assert names_of({b"mm2py-page": b"1", b"cookie": b"a=b; x"}, "mm2py-1") == []


# Without a users' file: the token, and an address that works once


def test_the_token_begins_a_session_that_may_change_and_reading_takes_none(local: Guarded, token: Secret) -> None:
    assert user_of(local, "") == ("anonymous", "reader")
    cookie = log_in(local, basic("mm2py", token.reveal()))
    assert user_of(local, cookie) == ("mm2py", "admin")
    assert ask(local, "PUT", PAUSE, cookie).status_code == 202
    assert ask(local, "PUT", PAUSE).status_code == 401
    assert fresh(local).put(PAUSE, headers={"Cookie": cookie}).status_code == 401
    assert ask(local, "DELETE", "/session", cookie).status_code == 204
    assert user_of(local, cookie) == ("anonymous", "reader")


def test_a_token_that_is_replaced_ends_its_sessions(local: Guarded, token: Secret, tmp_path: Path) -> None:
    cookie = log_in(local, basic("mm2py", token.reveal()))
    (tmp_path / "rest.token").unlink()
    assert ask(local, "PUT", PAUSE, cookie).status_code == 401
    assert user_of(local, cookie) == ("anonymous", "reader")


def code(local: Guarded, token: Secret, *, port: int = 8083, at_s: float = 1.0, nonce: int = 7) -> dict[str, str]:
    """Return the header of a code that was made so many seconds after the worker's start."""
    made_at_ms = int((local.clock.now_s + at_s) * 1000)
    return {"Authorization": f"Once {make_code(token, port, made_at_ms, bytes([nonce] * NONCE_BYTES))}"}


def test_an_address_of_mm2py_open_works_once(local: Guarded, token: Secret) -> None:
    address = code(local, token)
    local.clock.now_s += 2
    cookie = log_in(local, address)
    assert user_of(local, cookie) == ("mm2py", "admin")
    again = fresh(local).post("/session", headers={**PAGE, **address})
    assert (again.status_code, "works once" in again.text) == (401, True)
    assert [(told.user, told.proof) for told in local.told] == [("mm2py", "once")]


def test_an_address_works_for_some_minutes_and_not_before_it_was_made(local: Guarded, token: Secret) -> None:
    late, early = code(local, token, nonce=1), code(local, token, at_s=3600, nonce=2)
    local.clock.now_s += 2 + VALID_MS / 1000
    assert fresh(local).post("/session", headers={**PAGE, **late}).status_code == 401
    assert fresh(local).post("/session", headers={**PAGE, **early}).status_code == 401


def test_an_address_that_a_process_before_may_have_taken_is_refused(local: Guarded, token: Secret) -> None:
    """It works once: a process that has just begun knows nothing of what was used."""
    assert fresh(local).post("/session", headers={**PAGE, **code(local, token, at_s=-1)}).status_code == 401
    assert fresh(local).post("/session", headers={**PAGE, **code(local, token, at_s=0)}).status_code == 401


def test_an_address_of_another_worker_or_another_token_is_refused(local: Guarded, token: Secret) -> None:
    local.clock.now_s += 2
    for wrong in (code(local, token, port=8084), code(local, Secret("f" * 64))):
        assert fresh(local).post("/session", headers={**PAGE, **wrong}).status_code == 401
    right = code(local, token, at_s=-1)["Authorization"]
    for changed in (right[:-1], right + "0", right.upper(), right.replace(".", "", 1), "Once ", "Once x.y.z"):
        assert fresh(local).post("/session", headers={**PAGE, "Authorization": changed}).status_code == 401
    assert "login_failed" in local.log and token.reveal() not in local.log


def test_a_code_begins_a_session_and_proves_nothing_else(local: Guarded, token: Secret) -> None:
    local.clock.now_s += 2
    address = code(local, token, at_s=-1)
    assert fresh(local).put(PAUSE, headers=address).status_code == 401
    assert fresh(local).delete("/session", headers=address).status_code == 401
    assert log_in(local, address)  # and is not used up by these


def test_where_there_are_users_a_code_of_the_token_proves_nothing(worker: Guarded, tmp_path: Path) -> None:
    worker.clock.now_s += 2
    answer = fresh(worker).post("/session", headers={**PAGE, **code(worker, token_at(tmp_path / "t"), at_s=-1)})
    assert answer.status_code == 401
    assert isinstance(worker.gate._authentication, Authentication)
