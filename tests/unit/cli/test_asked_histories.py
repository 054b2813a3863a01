"""Asking a worker's REST for the last hour: what it says, or why there is no history."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from mm2py.cli.asked_histories import ask_histories
from mm2py.config.rest import Listener, RestSettings
from mm2py.flow import parse_flow

pytestmark = pytest.mark.real_time
A_TO_B = parse_flow("A->B")
GOOD = json.dumps({"series": {"lag_records": [1, 2], "copied_records_per_s": [3]}, "events": [], "problem": ""})


class _Answers(http.server.BaseHTTPRequestHandler):
    status = 200
    body = GOOD
    asked: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        self.asked.append((self.path, dict(self.headers)))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body.encode())

    def log_message(self, *_: object) -> None:
        pass


class Rest:
    """An HTTP server that answers as the test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.handler = type("Handler", (_Answers,), {"asked": self.asked})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        self.settings = RestSettings((Listener("127.0.0.1", self.server.server_address[1]),))

    def answers(self, status: int, body: str = GOOD) -> None:
        self.handler.status, self.handler.body = status, body  # type: ignore[attr-defined]


@pytest.fixture
def rest() -> Iterator[Rest]:
    found = Rest()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


async def test_the_history_of_each_flow_is_asked_for_without_any_credentials(rest: Rest) -> None:
    other = parse_flow("C->B")
    told = await ask_histories(rest.settings, None, [A_TO_B, other])
    assert told.why == "" and set(told.charts) == {A_TO_B, other}
    assert told.charts[A_TO_B].lag == [1.0, 2.0]
    paths = sorted(path for path, _ in rest.asked)
    assert paths[0] == "/v1/flows/A-%3EB/history?from=1h&step=120"
    assert not any(name.lower() in {"authorization", "cookie"} for _, headers in rest.asked for name in headers)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (401, GOOD, "answers 401: it asks for a user (rest.users.file)"),
        (403, GOOD, "answers 403"),
        (404, "{}", "answers 404 for A->B: it may be the worker of another file."),
        (200, "<html>", "answers something else"),
    ],
)
async def test_an_answer_that_is_no_history_says_why_there_is_none(
    rest: Rest, status: int, body: str, why: str
) -> None:
    rest.answers(status, body)
    told = await ask_histories(rest.settings, None, [A_TO_B])
    assert told.charts == {} and f"http://127.0.0.1:{rest.server.server_address[1]} {why}" in told.why


async def test_a_port_that_nobody_listens_at_and_a_file_without_one_say_so(rest: Rest) -> None:
    rest.server.socket.close()
    told = await ask_histories(rest.settings, None, [A_TO_B])
    assert told.charts == {} and "does not answer" in told.why
    told = await ask_histories(RestSettings(()), None, [A_TO_B])
    assert told.charts == {} and "listeners is empty" in told.why
    told = await ask_histories(RestSettings((Listener("127.0.0.1", 0),)), None, [A_TO_B])
    assert told.charts == {} and "Name it with --port" in told.why
