"""``mm2py health``: it is 0 only where a worker answers that it is ready, and it says why it is not."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mm2py.cli import main as cli
from mm2py.cli.command import CommandFailed
from mm2py.cli.health import asked_listener
from mm2py.config.rest import Listener, RestSettings
from mm2py.errors import ConfigError

pytestmark = pytest.mark.real_time
FILE = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
Answers = dict[str, tuple[int, object]]


@pytest.fixture
def answers() -> Answers:
    return {
        "/ready": (200, {"status": "ready", "message": "It runs."}),
        "/live": (200, {"status": "alive", "message": "It runs."}),
    }


@pytest.fixture
def health(tmp_path: Path, answers: Answers) -> Iterator[Callable[..., int]]:
    """Calls the command for a worker that answers so."""

    class Rest(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers[self.path]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Rest)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    file = tmp_path / "mm2.properties"
    file.write_text(f"{FILE}listeners = http://0.0.0.0:{server.server_address[1]}\n")
    yield lambda *options: cli.run(["health", str(file), *options])
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_worker_that_is_ready_is_0(health: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert health() == 0
    assert capsys.readouterr().out == "ready: It runs.\n"
    assert health("--live") == 0
    assert capsys.readouterr().out == "alive: It runs.\n"


def test_a_worker_that_is_not_ready_is_1_and_says_why_and_may_live(
    health: Callable[..., int], answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    answers["/ready"] = (503, {"status": "not ready", "message": "The worker is stopping."})
    assert health() == 1
    assert capsys.readouterr().out == "not ready: The worker is stopping.\n"
    assert health("--live") == 0
    answers["/live"] = (503, {"status": "silent", "message": "The worker has not answered for 5 s."})
    assert health("--live") == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b""])
def test_what_is_no_worker_of_ours_is_not_taken_for_one(
    health: Callable[..., int], answers: Answers, body: bytes
) -> None:
    answers["/ready"] = (200, body)
    with pytest.raises(CommandFailed, match="No worker answers"):
        health()


def test_where_no_worker_listens_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(f"{FILE}listeners = http://127.0.0.1:1\n")
    with pytest.raises(CommandFailed, match=r"No worker answers at http://127\.0\.0\.1:1/ready"):
        cli.run(["health", str(tmp_path / "f")])


def test_a_listener_without_tls_is_asked_first_and_by_an_address_of_this_machine() -> None:
    outside, probes = Listener("", 8083, is_tls=True), Listener("0.0.0.0", 8084, for_probes=True)  # noqa: S104
    assert asked_listener(RestSettings((outside, probes)), None) == replace(probes, host="127.0.0.1")
    assert asked_listener(RestSettings((outside,)), None).port == 8083
    assert asked_listener(RestSettings((Listener("::", 0),)), 8090) == Listener("::1", 8090)
    with pytest.raises(ConfigError, match="serves no REST"):
        asked_listener(RestSettings(()), None)
    with pytest.raises(ConfigError, match="Name it with --port"):
        asked_listener(RestSettings((Listener("127.0.0.1", 0),)), None)
