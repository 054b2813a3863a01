"""The hooks of ``deploy/hooks``: what they call when clients are switched, beside a made-up program and server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from mm2py.dr.fence.hook import HookFailed, run_command

HOOKS: Final = Path(__file__).parents[3] / "deploy" / "hooks"
TOLD: Final = {"verb": "switch", "run": "r1", "flow": "A->B", "from": "A", "to": "B", "topics": ["orders"], "by": "ann"}
FAKE: Final = """#!/bin/sh
printf '%s\\n' "$@" > "$0.arguments"
cat > "$0.input"
exit $(cat "$0.code" 2>/dev/null || echo 0)
"""


class FakeProgram:
    """A program that keeps how it was called."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "program"
        self.path.write_text(FAKE)
        self.path.chmod(0o755)

    @property
    def arguments(self) -> list[str]:
        return Path(f"{self.path}.arguments").read_text().splitlines()

    @property
    def input(self) -> str:
        return Path(f"{self.path}.input").read_text()

    def fails(self) -> None:
        Path(f"{self.path}.code").write_text("7")


@pytest.fixture
def program(tmp_path: Path) -> FakeProgram:
    return FakeProgram(tmp_path)


def call(hook: str, *words: str, verb: str = "switch", told: dict[str, Any] = TOLD) -> None:
    asyncio.run(run_command([str(HOOKS / hook), *words], verb, told, remedy="Mend it."))


DNS: Final = ("--zone", "example.org", "--name", "kafka.example.org", "A=a.example.org.", "B=b.example.org.")


def test_a_record_is_replaced_by_that_of_the_cluster_to_which_clients_go(program: FakeProgram) -> None:
    words = ("--nsupdate", str(program.path), "--server", "ns1", "--key", "/etc/key", *DNS)
    for _ in range(2):  # called again it asks for the same
        call("dns-record", *words)
        assert program.arguments == ["-k", "/etc/key"]
        assert program.input.splitlines() == [
            "server ns1",
            "zone example.org",
            "update delete kafka.example.org. CNAME",
            "update add kafka.example.org. 30 CNAME b.example.org.",
            "send",
        ]
    call("dns-record", *words, told={**TOLD, "to": "A"})
    assert "CNAME a.example.org." in program.input


def test_a_name_server_that_refuses_fails_the_switch(program: FakeProgram) -> None:
    program.fails()
    with pytest.raises(HookFailed, match="ended with exit code 7"):
        call("dns-record", "--nsupdate", str(program.path), *DNS)


@pytest.mark.parametrize("hook", ["dns-record", "kubernetes-service"])
def test_a_cluster_without_a_value_and_another_verb_are_refused(hook: str, program: FakeProgram) -> None:
    words = DNS[:4] if hook == "dns-record" else ("--service", "kafka")
    with pytest.raises(HookFailed, match="no value for cluster B: write B=VALUE"):
        call(hook, *words, "A=a")
    with pytest.raises(HookFailed, match="it can switch, and not fence"):
        call(hook, *words, "A=a", verb="fence")


def test_a_service_is_patched_to_the_name_or_the_label_of_the_cluster(program: FakeProgram) -> None:
    words = ("--kubectl", str(program.path), "--service", "bootstrap", "A=a.example.org", "B=b.example.org")
    call("kubernetes-service", "--namespace", "kafka", *words)
    *before, patch = program.arguments
    assert before == ["--namespace", "kafka", "patch", "service", "bootstrap", "--type", "merge", "--patch"]
    assert json.loads(patch) == {"spec": {"externalName": "b.example.org"}}
    call("kubernetes-service", "--label", "cluster", *words)
    assert json.loads(program.arguments[-1]) == {"spec": {"selector": {"cluster": "b.example.org"}}}


class ToldServer(ThreadingHTTPServer):
    """Keeps what it is asked for, and answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Keep)
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.status = 200

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Keep(BaseHTTPRequestHandler):
    server: ToldServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.command, self.path, dict(self.headers), json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("Location", f"{self.server.address}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST  # noqa: N815  (names of http.server)
    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ToldServer]:
    with ToldServer() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_a_proxy_is_told_by_one_request_and_told_the_same_again(server: ToldServer, tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer canary\n")
    for _ in range(2):
        call("http-call", "--method", "PUT", "--header-file", str(headers), f"{server.address}/kafka/{{to}}")
    first, second = server.asked
    assert first == second
    method, path, sent, body = first
    assert (method, path, body) == ("PUT", "/kafka/B", TOLD)
    assert (sent["Authorization"], sent["Idempotency-Key"]) == ("Bearer canary", "r1-switch")


@pytest.mark.parametrize("status", [302, 404, 500])
def test_whatever_is_not_done_fails_the_switch(server: ToldServer, status: int) -> None:
    server.status = status
    with pytest.raises(HookFailed, match=f"answers with HTTP {status}"):
        call("http-call", server.address)
    assert len(server.asked) == 1, "a redirect is not followed"


def test_a_fence_is_told_without_a_run(server: ToldServer) -> None:
    told = {"verb": "fence", "flow": "A->B", "topics": ["orders"], "by": "ann"}
    call("http-call", server.address, verb="fence", told=told)
    assert server.asked[0][2]["Idempotency-Key"] == "A-B-fence"


def test_a_proxy_that_is_not_there_fails_the_switch(server: ToldServer) -> None:
    server.server_close()
    with pytest.raises(HookFailed, match="cannot be asked: "):
        call("http-call", server.address)
