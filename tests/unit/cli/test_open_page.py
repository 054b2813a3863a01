"""``mm2py open``: an address of the page, with a code that only the worker of this token and port takes, once."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2py.cli import main as cli
from mm2py.cli.command import CommandFailed
from mm2py.cli.open_page import listener_of
from mm2py.clock import SystemClock
from mm2py.config.rest import Listener, RestSettings
from mm2py.errors import ConfigError
from mm2py.once_code import read_code
from mm2py.rest_token import TokenUnusable, token_at
from mm2py.secret import Secret

pytestmark = pytest.mark.real_time
FILE = "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"


class _Health(http.server.BaseHTTPRequestHandler):
    asked: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        self.asked.append((self.path, dict(self.headers)))
        self.send_response(503)  # it is starting
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def asked() -> list[tuple[str, dict[str, str]]]:
    return []


@pytest.fixture
def port(asked: list[tuple[str, dict[str, str]]]) -> Iterator[int]:
    """What listens on loopback: a worker, or another user who waits for a token."""
    server = http.server.HTTPServer(("127.0.0.1", 0), type("Of", (_Health,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def file_in(folder: Path, lines: str) -> str:
    (folder / "mm2.properties").write_text(f"{FILE}rest.token.file = {folder / 'rest.token'}\n{lines}\n")
    return str(folder / "mm2.properties")


def test_without_users_the_address_has_a_code_of_the_token_for_this_port(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str], asked: list[tuple[str, dict[str, str]]]
) -> None:
    token = token_at(tmp_path / "rest.token")
    assert cli.run(["open", file_in(tmp_path, f"listeners = http://127.0.0.1:{port}")]) == 0
    printed = capsys.readouterr()
    address, _, code = printed.out.strip().partition("#once=")
    assert address == f"http://127.0.0.1:{port}/"
    found = read_code(code, token, port)
    assert found is not None and found.is_valid(SystemClock().wall_ms())
    assert read_code(code, token, port + 1) is None
    assert read_code(code, Secret("f" * 64), port) is None
    assert [path for path, _ in asked] == ["/health"]
    assert token.reveal() not in f"{printed}{asked}" and code not in str(asked)  # whoever listens there learns nothing


def test_each_address_is_another_one(tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    token_at(tmp_path / "rest.token")
    file = file_in(tmp_path, "listeners = http://127.0.0.1:0")
    addresses = [(cli.run(["open", file, "--port", str(port)]), capsys.readouterr().out)[1] for _ in range(2)]
    assert len({*addresses}) == 2
    assert all(f":{port}/#once=" in one for one in addresses)


def test_with_users_the_address_is_plain(tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = f"listeners = http://127.0.0.1:{port}\nrest.users.file = {tmp_path / 'users'}"
    assert cli.run(["open", file_in(tmp_path, lines)]) == 0
    assert capsys.readouterr().out == f"http://127.0.0.1:{port}/\n"


def test_where_no_worker_answers_that_is_said(tmp_path: Path) -> None:
    token_at(tmp_path / "rest.token")
    with pytest.raises(CommandFailed, match=r"No worker answers at http://127\.0\.0\.1:1/"):
        cli.run(["open", file_in(tmp_path, "listeners = http://127.0.0.1:1")])


def test_where_the_token_is_elsewhere_the_way_is_named_and_none_is_made(tmp_path: Path, port: int) -> None:
    with pytest.raises(TokenUnusable, match="as the user that runs the worker"):
        cli.run(["open", file_in(tmp_path, f"listeners = http://127.0.0.1:{port}")])
    assert not (tmp_path / "rest.token").exists()


def test_the_first_listener_that_serves_the_page_is_taken() -> None:
    probes, outside = Listener("127.0.0.1", 8084, for_probes=True), Listener("192.0.2.7", 8085)
    inside = Listener("127.0.0.1", 8083)
    assert listener_of(RestSettings((probes, outside, inside)), None) is inside
    assert listener_of(RestSettings((inside,)), 8090).port == 8090
    with pytest.raises(ConfigError, match="listeners is empty"):
        listener_of(RestSettings((probes,)), None)
    with pytest.raises(ConfigError, match=r"Only /health, /live and /ready are served.*rest\.users\.file"):
        listener_of(RestSettings((outside,)), None)
    with pytest.raises(ConfigError, match="Name it with --port"):
        listener_of(RestSettings((Listener("127.0.0.1", 0),)), None)
