"""Which route lets whom through: every route, every role, and users of one flow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter

from deploy.local.certificates import write_private
from mm2py.config.rest import Exposure
from mm2py.secret import Secret
from mm2py_rest.access.callers import Role
from mm2py_rest.access.hashes import hash_token
from mm2py_rest.access.roles import Requires, check_roles, required
from mm2py_rest.app import RESOURCES, make_app
from tests.fakes.rest_services import Guarded, guarded, make_services

SEPARATOR = "."
FLOW = "A->B"
OPEN_PATHS = ("/health", "/live", "/ready", "/page", "/page/{file}")
"""Anyone may ask here: what the page itself is made of says nothing about a worker."""
USERS = {"reader": "reader", "operator": "operator", "admin": "admin", "recoverer": "recover"}


def token(name: str) -> str:
    return f"{name}-{'x' * 40}"


def routes() -> list[tuple[str, str, list[Requires]]]:
    found = []
    for resource in RESOURCES:
        for route in resource.router.routes:
            for method in sorted(getattr(route, "methods", None) or ()):
                found.append((method, getattr(route, "path", ""), required(route)))
    return found


ROUTES = routes()
IDS = [f"{method} {path}" for method, path, _ in ROUTES]


def address_of(path: str, flow: str) -> str:
    """Fill in a path: connectors and flows of ``flow``, and something for the rest."""

    def fill(match: re.Match[str]) -> str:
        name = match[1].partition(":")[0]
        known = {"flow": flow, "name": f"{flow}.MirrorSourceConnector", "connector": f"{flow}.MirrorSourceConnector"}
        return known.get(name, "0")

    return re.sub(r"\{([^}]+)\}", fill, path).replace(">", "%3E")


def write_users(folder: Path) -> Path:
    """Write a users' file: a user of each role, and one of each who has A->B alone."""
    users = folder / "users"
    lines = [f"{name}:{hash_token(Secret(token(name)))}:{role}" for name, role in USERS.items()]
    lines += [f"{name}-AB:{hash_token(Secret(token(f'{name}-AB')))}:{role}:A->B" for name, role in USERS.items()]
    write_private(users, "\n".join(lines).encode())
    return users


@pytest.fixture
def worker(tmp_path: Path) -> Guarded:
    return guarded(Exposure.USERS, users=write_users(tmp_path))


def ask(worker: Guarded, method: str, path: str, user: str | None, flow: str = FLOW) -> int:
    """Ask and return the status; a route's own 403, which is for all users, is a 200 here."""
    headers = {} if user is None else {"Authorization": f"Bearer {token(user)}"}
    body: Any = {} if method in ("PUT", "PATCH") else None
    answer = worker.client().request(method, address_of(path, flow), headers=headers, json=body)
    is_of_route = answer.status_code == 403 and (user is None or f"{user} " not in answer.json()["message"])
    return 200 if is_of_route else answer.status_code


def least(stated: list[Requires]) -> Role:
    return max(one.role for one in stated)


def may(name: str, stated: list[Requires]) -> bool:
    """Whether a user of all flows may use a route."""
    recovers = USERS[name] == "recover"
    role = Role.READER if recovers else Role[USERS[name].upper()]
    return role >= least(stated) and (recovers or not any(one.recovers for one in stated))


@pytest.mark.parametrize(("method", "path", "stated"), ROUTES, ids=IDS)
def test_each_route_lets_exactly_the_roles_through_that_it_states(
    worker: Guarded, method: str, path: str, stated: list[Requires]
) -> None:
    """S01, S02."""
    assert stated, "a route without a role"
    if method != "GET" and path != "/session":  # readers log in and out
        is_for_some = least(stated) >= Role.OPERATOR or any(one.recovers for one in stated)
        assert is_for_some, "a route that changes something is not for readers"
    assert (ask(worker, method, path, None) == 401) == (least(stated) is not Role.NONE)
    assert (least(stated) is Role.NONE) == (path in OPEN_PATHS)
    for name in USERS:
        is_allowed = may(name, stated)
        assert (ask(worker, method, path, name) not in (401, 403)) == is_allowed, name


@pytest.mark.parametrize(("method", "path", "stated"), ROUTES, ids=IDS)
def test_a_user_of_one_flow_gets_at_that_flow_and_no_other(
    worker: Guarded, method: str, path: str, stated: list[Requires]
) -> None:
    """S02."""
    if least(stated) is Role.NONE:
        return
    names_flow = re.search(r"\{(flow|name|connector)\b", path) is not None
    is_open = names_flow or any(one.any_flow for one in stated)
    for name in USERS:
        is_allowed = is_open and may(name, stated) and not any(one.recovers for one in stated)  # it turns both
        assert (ask(worker, method, path, f"{name}-AB", "A->B") != 403) == is_allowed, name
        if names_flow:
            assert ask(worker, method, path, f"{name}-AB", "B->A") == 403
            assert ask(worker, method, path, f"{name}-AB", "A->B" + "x") == 403


@pytest.mark.parametrize(("method", "path", "stated"), ROUTES, ids=IDS)
def test_each_call_of_a_route_that_changes_something_is_told_once(
    worker: Guarded, method: str, path: str, stated: list[Requires]
) -> None:
    """S32: also where it is refused."""
    for name in USERS:
        ask(worker, method, path, name)
    told = [(record.user, record.method) for record in worker.told]
    assert told == ([] if method == "GET" else [(name, method) for name in USERS])


def test_lists_show_a_user_only_their_flows(worker: Guarded) -> None:
    for method, path, stated in ROUTES:
        if path == "/openapi.json":
            continue  # it has examples, and nothing of this worker
        if method == "GET" and "{" not in path and any(one.any_flow for one in stated):
            for query in ("", "?expand=status&expand=info"):
                answer = worker.client().get(path + query, headers={"Authorization": f"Bearer {token('reader-AB')}"})
                assert answer.status_code == 200, path
                assert "B->A" not in answer.text, path


def test_a_route_that_states_no_role_keeps_rest_from_starting() -> None:
    """S34."""
    router = APIRouter()

    @router.get("/forgotten")
    async def forgotten() -> str:
        return "open to all"

    with pytest.raises(RuntimeError, match="/forgotten"):
        check_roles([router])


def test_the_routes_of_the_application_are_those_that_are_checked(tmp_path: Path) -> None:
    described = {
        (method.upper(), path)
        for path, methods in make_app(make_services()).openapi()["paths"].items()
        for method in methods
    }
    assert described <= {(method, path) for method, path, _ in ROUTES}


def test_without_a_gate_before_it_the_application_serves_nobody(tmp_path: Path) -> None:
    """S01."""
    from starlette.testclient import TestClient

    client = TestClient(make_app(make_services()), base_url="http://localhost")
    assert client.get("/connectors").status_code == 401
    assert client.get("/health").status_code == 200
