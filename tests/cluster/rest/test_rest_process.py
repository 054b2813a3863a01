"""The process that serves REST beside a worker: started, started again, and gone with its worker. No cluster is there.

What decides where a worker listens: tests/unit/cli/test_rest_process.py.
"""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from deploy.local.broker_settings import render_properties
from tests.cluster.running import ANSWER_S, Mm2py, Value, one_way_properties, wait_until

DEFAULT_PORT = 8083


def unreachable(**extra: Value) -> dict[str, Value]:
    """Return a file of two clusters that nobody serves."""
    return one_way_properties("127.0.0.1:1", "127.0.0.1:2", **{"listeners": "http://127.0.0.1:0", **extra})


def addresses(run: Mm2py) -> list[str]:
    return [event["at"] for event in run.events("rest.listening")]


def rest_processes(parent: int) -> list[int]:
    """Return the process ids of what serves REST for a worker."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            stat, command = (process / "stat").read_text(), (process / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        state, its_parent = stat.rpartition(")")[2].split()[:2]
        if b"\0-m\0mm2py_rest\0" in command and int(its_parent) == parent and state != "Z":
            found.append(int(process.name))
    return found


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def health(address: str) -> tuple[int, str]:
    """Return the status code and the word; while the process starts, callers wait in the backlog."""
    answer = httpx2.get(f"{address}/health", timeout=ANSWER_S)
    return answer.status_code, answer.json()["status"]


@pytest.fixture(scope="module")
def worker() -> Iterator[Mm2py]:
    """A worker that cannot reach its clusters."""
    with Mm2py(unreachable()) as run:
        run.wait_for_event("rest.listening")
        yield run


def test_a_worker_that_cannot_reach_its_clusters_tells_so(worker: Mm2py) -> None:
    (address,) = addresses(worker)
    assert health(address) == (503, "starting")
    told = httpx2.get(f"{address}/connectors/none", timeout=ANSWER_S)
    assert told.json() == {"error_code": 404, "message": "Connector none not found"}


def test_a_rest_process_that_was_killed_is_started_again_at_the_same_port(worker: Mm2py) -> None:
    (address,) = addresses(worker)
    health(address)
    (first,) = rest_processes(worker.pid)
    os.kill(first, signal.SIGKILL)
    ended = worker.wait_for_event("rest.ended")
    assert (ended["why"], ended["effect"]) == ("it ended with exit code -9", "no REST, no metrics; copying goes on")
    assert health(address) == (503, "starting")
    assert rest_processes(worker.pid) != [first]
    assert addresses(worker) == [address]


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_the_rest_process_ends_with_its_worker(*, is_killed: bool) -> None:
    with Mm2py(unreachable()) as run:
        address = run.wait_for_event("rest.listening")["at"]
        health(address)
        (pid,) = rest_processes(run.pid)
        if is_killed:
            run.kill()
        else:
            assert run.terminate() == 0
        wait_until(lambda: not is_there(pid), "the REST process has ended")
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(address)


def test_a_rest_process_that_still_starts_ends_with_a_worker_that_was_killed() -> None:
    with Mm2py(unreachable()) as run:
        address = run.wait_for_event("rest.listening")["at"]
        wait_until(lambda: len(rest_processes(run.pid)) == 1, "the REST process starts")
        (pid,) = rest_processes(run.pid)
        run.kill()
        wait_until(lambda: not is_there(pid), "the REST process has ended", deadline_s=1.0)
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(address)


def test_an_explicit_port_that_is_taken_ends_the_worker_with_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with Mm2py(unreachable(listeners=f"http://127.0.0.1:{port}")) as run:
            assert run.wait() == 2
            assert f"Cannot listen at http://127.0.0.1:{port}: Address already in use" in run.text()


def test_the_default_port_that_is_taken_keeps_no_worker_from_copying(tmp_path: Path) -> None:
    properties = unreachable()
    del properties["listeners"]
    file = tmp_path / "mm2.properties"
    file.write_text(render_properties(properties))
    try:
        server = socket.create_server(("127.0.0.1", DEFAULT_PORT))
    except OSError:
        server = socket.socket()  # another process has taken it, which does as well
    with server, Mm2py(file) as run:
        told = run.wait_for_event("rest.not_served")
        assert f"Cannot listen at http://127.0.0.1:{DEFAULT_PORT}" in told["why"]
        run.wait_for_event("cluster.unreachable")
        assert run.alive
        assert not run.events("rest.listening")


def test_an_empty_list_serves_nothing() -> None:
    with Mm2py(unreachable(listeners="")) as run:
        run.wait_for_event("cluster.unreachable")
        assert run.terminate() == 0
        assert not run.events("rest.listening")
        assert not run.events("rest.not_served")


# The token


def set_level(address: str, token: str | None = None) -> int:
    """Change something that needs no cluster; return the status code."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    answer = httpx2.put(f"{address}/admin/loggers/root", json={"level": "INFO"}, headers=headers, timeout=ANSWER_S)
    return answer.status_code


def test_workers_of_one_parent_and_one_started_apart_take_the_same_token(tmp_path: Path) -> None:
    service = {"RUNTIME_DIRECTORY": str(tmp_path / "run")}
    path = tmp_path / "run" / "rest.token"
    with (
        Mm2py(unreachable(), arguments=["--workers", "2"], environment=service) as parent,
        Mm2py(unreachable(), environment=service) as apart,
    ):
        runs = [(apart, 1), (parent, 2)]
        wait_until(lambda: all(len(run.events("rest.token")) == count for run, count in runs), "all have told")
        assert {event["file"] for run, _ in runs for event in run.events("rest.token")} == {str(path)}
        token = path.read_text().strip()
        places = [event["at"] for event in parent.events("parent.listening")] + addresses(apart)
        assert len(places) == 3
        assert [set_level(address) for address in places] == [401] * 3
        assert [set_level(address, token) for address in places] == [200] * 3
        assert [path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777] == [0o600, 0o700]
        assert token not in parent.text() + apart.text()


def test_without_a_place_for_the_token_nothing_is_changed_and_all_is_read() -> None:
    with Mm2py(unreachable(**{"rest.token.file": "/proc/mm2py/rest.token"})) as run:
        told = run.wait_for_event("rest.changes_refused")
        assert "Set rest.token.file" in told["why"]
        (address,) = [run.wait_for_event("rest.listening")["at"]]
        assert httpx2.get(f"{address}/admin/loggers", timeout=ANSWER_S).status_code == 200
        assert set_level(address) == set_level(address, "x" * 64) == 401


def test_anonymous_may_change_opens_changes_and_is_warned_of_at_the_start() -> None:
    with Mm2py(unreachable(**{"rest.anonymous.may": "change"})) as run:
        warned = run.wait_for_event("config", why=re.compile("rest.anonymous.may is change"))
        assert "every user of this machine may delete offsets" in warned["why"]
        assert set_level(run.wait_for_event("rest.listening")["at"]) == 200
        assert not run.events("rest.token")
