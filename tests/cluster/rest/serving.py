"""Workers that serve REST, and those who ask them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx2

from mm2py.rest_token import read_token, token_path
from tests.cluster.running import ANSWER_S, COMMAND_S, DEADLINE_S, Mm2py, wait_until

PAGE = Path(__file__).parents[3] / "docs" / "start.md"
LISTENERS = "http://127.0.0.1:0"


def token() -> str:
    """Return the token that changes take, as it is in the file of the workers of this run."""
    return read_token(token_path(None, os.environ)).reveal()


def with_token(request: httpx2.Request) -> httpx2.Request:
    """Add the token to a request that brings no proof of its own. Workers with users have made none."""
    if "authorization" not in request.headers:
        with contextlib.suppress(FileNotFoundError):
            request.headers["authorization"] = f"Bearer {token()}"
    return request


class Asked(httpx2.Client):
    """Asks one worker's REST about one flow, with the token."""

    def __init__(self, address: str, flow: str) -> None:
        super().__init__(base_url=address, timeout=ANSWER_S, auth=with_token)
        self.flow = flow
        self.address = address

    def connector(self, kind: str = "Source") -> str:
        return f"/connectors/{self.flow}.Mirror{kind}Connector"

    def told(self, method: str, path: str, code: int, **more: Any) -> Any:
        """Ask, and return the body, None if it is empty; the status code has to be this one."""
        answer = self.request(method, path, **more)
        assert answer.status_code == code, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def state(self, kind: str = "Source") -> str:
        found: str = self.told("GET", f"{self.connector(kind)}/status", 200)["connector"]["state"]
        return found

    def wait_for_state(self, state: str) -> None:
        wait_until(lambda: self.state() == state, f"the connector is {state}")


def asked(run: Mm2py, flow: str) -> Asked:
    """Return who asks a worker, once it is healthy."""
    client = Asked(run.wait_for_event("rest.listening")["at"], flow)
    wait_until(lambda: client.get("/health").status_code == 200, "the worker is healthy", deadline_s=DEADLINE_S)
    return client


def lines_of_page() -> list[str]:
    """Return the lines of docs/start.md that call ``curl``."""
    joined = PAGE.read_text().replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if re.match(r" +(token \| )?curl ", line)]


def run_line(line: str, client: Asked) -> str:
    """Run a line of docs/start.md against a worker, and return what curl prints; curl has to succeed."""
    (define_token,) = re.findall(r"^ +(token\(\) .*)$", PAGE.read_text(), re.MULTILINE)
    assert "http://127.0.0.1:8083" in line
    line = line.replace("http://127.0.0.1:8083", client.address).replace("A->B", client.flow)
    command = ["sh", "-c", f"{define_token}\n{line} --silent --show-error --fail-with-body"]
    ended = subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=False)
    assert ended.returncode == 0, (line, ended.stdout, ended.stderr)
    return ended.stdout.decode()


def peak_mib(pid: int) -> float:
    """Return the most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
