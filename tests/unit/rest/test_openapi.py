"""Requests made out of the description of our own routes: nothing that is sent makes an error of ours."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import schemathesis
from httpx2 import InvalidURL
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis.errors import Unsatisfiable
from starlette.testclient import TestClient

from tests.fakes.rest_services import guarded


@pytest.fixture(scope="module")
def client() -> TestClient:
    return guarded().client()


KNOWN = {
    "name": "A->B.MirrorSourceConnector",
    "flow": "A->B",
    "topic": "orders",
    "plugin": "MirrorSourceConnector",
    "logger": "root",
}
"""What a path has to name so that a request gets further than to a 404."""


def as_sent(case: Any) -> dict[str, Any]:
    """Return what a made-up request is for our client."""
    found = case.as_transport_kwargs(base_url="http://localhost")
    found.pop("cookies", None)
    if isinstance(found.get("data"), bytes):
        found["content"] = found.pop("data")
    headers = {name: value for name, value in (found.get("headers") or {}).items() if name.lower() != "host"}
    return {**{name: value for name, value in found.items() if value is not None}, "headers": headers}


def statuses_of(client: TestClient, operation: Any, mode: Any, examples: int) -> set[int]:
    """Ask by what is made out of the description of a route; return how it was answered."""
    statuses: set[int] = set()

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        for known in ({}, KNOWN):
            case.path_parameters = {
                **case.path_parameters,
                **{k: v for k, v in known.items() if k in case.path_parameters},
            }
            try:
                answer = client.request(**as_sent(case))
            except InvalidURL:  # nothing was sent: an address that this client cannot write
                reject()
            statuses.add(answer.status_code)
            assert answer.status_code < 500, f"{case.method} {case.formatted_path}: {answer.text}"

    with contextlib.suppress(Unsatisfiable):  # a route without parameters cannot be asked wrongly
        ask()
    return statuses


@pytest.mark.one_python
@pytest.mark.parametrize("examples", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_no_request_that_the_description_allows_or_forbids_is_answered_by_an_error_of_ours(
    client: TestClient, examples: int
) -> None:
    """S18."""
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    for found in schema.get_all_operations():
        operation = found.ok()
        answered = set().union(
            *(statuses_of(client, operation, mode, examples) for mode in schemathesis.GenerationMode)
        )
        name = f"{operation.method.upper()} {operation.path}"
        assert answered - {404, 405}, f"{name} was only ever answered {answered}"
