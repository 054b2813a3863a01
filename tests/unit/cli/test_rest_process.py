"""Where a worker listens: before it starts, so that a port that is taken is told at once.

With real processes: tests/cluster/rest/test_rest_process.py.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mm2py.cli.rest_process import (
    ENDS_MOST_S,
    BoundSocket,
    RestProcess,
    addresses,
    adopt,
    bind,
    make_token,
    open_sockets,
    refuse_shared_ports,
)
from mm2py.config.rest import Listener, RestSettings
from mm2py.errors import ConfigError
from mm2py.inherited_sockets import read_sockets, sockets_text
from mm2py.logs import make_logger
from mm2py_rest.access.listening import CLOSING_MOST_S
from mm2py_rest.server import AUDIT_CLOSING_MOST_S, CONNECTIONS_CLOSING_MOST_S
from mm2py_rest.worker_link import WorkerLink, WorkerSilent

pytestmark = pytest.mark.real_time

FREE = Listener("127.0.0.1", 0)


class Bind:
    """Listens, and closes in the end."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.log = make_logger("info", "json", self.out)
        self.bound: list[BoundSocket] = []

    def __call__(self, *listeners: Listener, is_explicit: bool = True, number: int = 1) -> list[BoundSocket]:
        self.bound += bind(RestSettings(listeners, is_explicit), self.log, number=number)
        return self.bound

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


@pytest.fixture
def listen() -> Iterator[Bind]:
    found = Bind()
    yield found
    for one in found.bound:
        one.socket.close()


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def reaches(address: str) -> bool:
    host, _, port = address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), 5):
        return True


def test_the_token_is_there_before_anybody_can_ask_and_its_place_is_logged_without_it(
    listen: Bind, tmp_path: Path
) -> None:
    path = tmp_path / "mm2py" / "rest.token"
    make_token(RestSettings((FREE,), token_file=path), listen.log)
    token = path.read_text().strip()
    (told,) = listen.events
    assert (told["event"], told["file"]) == ("rest.token", str(path))
    assert token not in listen.out.getvalue()
    make_token(RestSettings((FREE,), token_file=path), listen.log)
    assert path.read_text().strip() == token


def test_a_token_that_cannot_be_made_is_warned_of_with_the_way(listen: Bind, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    make_token(RestSettings((FREE,), token_file=tmp_path / "file" / "token"), listen.log)
    (told,) = listen.events
    assert (told["event"], told["level"]) == ("rest.changes_refused", "warning")
    assert "Set rest.token.file" in told["why"]


@pytest.mark.parametrize("more", [{"users_file": Path("/users")}, {"anonymous_may_change": True}])
def test_no_token_is_made_where_no_listener_asks_for_it(listen: Bind, tmp_path: Path, more: dict[str, Any]) -> None:
    make_token(RestSettings((FREE,), token_file=tmp_path / "token", **more), listen.log)
    assert listen.events == []
    assert list(tmp_path.iterdir()) == []


def test_an_explicit_port_that_is_taken_is_an_error_and_nothing_stays_open(listen: Bind, taken: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(ConfigError, match=f"Cannot listen at http://127.0.0.1:{taken}: Address already in use"):
        listen(Listener("127.0.0.1", free), Listener("127.0.0.1", taken))
    with socket.create_server(("127.0.0.1", free)):
        pass


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 65_535), ("no-such-host.invalid", 1), ("203.0.113.9", 1)])
def test_an_address_that_is_none_of_this_machine_is_an_error_of_the_file(listen: Bind, host: str, port: int) -> None:
    """Worker 2 of a file with port 65535 has no port."""
    with pytest.raises(ConfigError, match="Cannot listen at"):
        listen(Listener(host, port), number=2)


@pytest.mark.parametrize("host", ["", "::1"])
def test_all_interfaces_and_ipv6_work(listen: Bind, host: str) -> None:
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6 here")
    (bound,) = listen(Listener(host, 0))
    port = bound.address.rpartition(":")[2]
    assert reaches(f"http://[::1]:{port}")
    assert host or reaches(f"http://127.0.0.1:{port}"), "all interfaces are those of IPv4 as well"


def resolves_to(*found: str) -> Any:
    """A resolver to which every name is these addresses."""
    families = {True: socket.AF_INET6, False: socket.AF_INET}

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [
            (families[":" in one], socket.SOCK_STREAM, 6, "", (one, port, 0, 0) if ":" in one else (one, port))
            for one in found
        ]

    return resolve


@pytest.mark.parametrize("port", [0, 1], ids=["any port", "a fixed port"])
def test_localhost_is_both_its_addresses_at_one_port(listen: Bind, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """curl asks ::1 first, and other clients only 127.0.0.1."""
    if port:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
    monkeypatch.setattr(socket, "getaddrinfo", resolves_to("::1", "127.0.0.1", "192.0.2.1"))
    bound = listen(Listener("localhost", port))
    monkeypatch.undo()
    (address,) = addresses(bound)
    assert [one.number for one in bound] == [0, 0], "what is not loopback is never served so"
    assert all(reaches(f"{host}:{address.rpartition(':')[2]}") for host in ("[::1]", "127.0.0.1"))


def test_an_address_that_the_machine_does_not_have_leaves_the_others(
    listen: Bind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolves_to("203.0.113.9", "127.0.0.1"))
    (bound,) = listen(Listener("mirror.example.org", 0))
    assert bound.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", ""])  # noqa: S104
def test_ports_that_two_workers_would_share_are_refused_for_both_kinds_of_listeners(host: str) -> None:
    """By default the second worker would be without REST, as its port is the first one's for probes."""
    probes = Listener(host, 8084, for_probes=True)
    for listener in (Listener("127.0.0.1", 8083), Listener("127.0.0.1", 8085)):
        with pytest.raises(ConfigError, match="at least 2 apart"):
            refuse_shared_ports(RestSettings((listener, probes)), 2)
        refuse_shared_ports(RestSettings((listener, probes)), 1)
    refuse_shared_ports(RestSettings((Listener("127.0.0.1", 8083), Listener(host, 8085, for_probes=True))), 2)
    refuse_shared_ports(RestSettings((Listener("127.0.0.1", 0), Listener(host, 0, for_probes=True))), 9)


def test_a_worker_adopts_what_its_parent_has_opened_and_leaves_out_what_could_not_be(taken: int) -> None:
    out = io.StringIO()
    log = make_logger("info", "json", out)
    settings = RestSettings((FREE, Listener("127.0.0.1", taken)), is_explicit=False)
    sockets = open_sockets(settings, log, number=1)
    assert [place for place, _ in sockets] == [0]
    assert read_sockets(sockets_text(sockets)) == sockets
    adopted = adopt(settings, sockets, number=1)
    try:
        (told,) = [json.loads(line) for line in out.getvalue().splitlines() if "parent.listening" in line]
        assert [told["at"]] == [one.address for one in adopted]
        assert reaches(told["at"])
    finally:
        for one in adopted:
            one.socket.close()


def test_an_empty_list_listens_nowhere(listen: Bind) -> None:
    assert listen() == []
    assert open_sockets(RestSettings((), is_explicit=True), listen.log, number=1) == []


class Turns:
    """Counts how often other work of the event loop has its turn."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


async def asked(*answers: Callable[[], Iterable[object]], turns: Turns) -> list[object]:
    """Return what a REST process is told by a worker with these answers, or the error that it meets."""
    out = io.StringIO()
    numbered = {f"answer {number}": answer for number, answer in enumerate(answers)}
    worker = RestProcess(
        [], [], lambda what: numbered[what](), rng=random.Random(1), log=make_logger("info", "json", out)
    )
    ours, theirs = socket.socketpair()
    link = WorkerLink(theirs)
    tasks = [asyncio.create_task(work) for work in (worker.serve_answers(ours), link.run(), turns.run())]
    await asyncio.sleep(0.01)
    try:
        found = await asyncio.gather(*(link.ask(what) for what in numbered), return_exceptions=True)
        assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["rest.not_answered"] * sum(
            isinstance(one, WorkerSilent) for one in found
        )
        return list(found)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_between_two_parts_of_an_answer_the_event_loop_copies_on() -> None:
    turns = Turns()

    def parts() -> Iterator[object]:
        for _ in range(40):
            yield turns.count

    (seen,) = await asked(parts, turns=turns)
    assert isinstance(seen, list)
    assert len(seen) == len(set(seen)) == 40


async def test_an_answer_that_breaks_off_is_none_and_the_next_question_is_answered() -> None:
    def broken() -> Iterator[object]:
        yield 1
        raise ValueError("a defect")

    first, second = await asked(broken, lambda: ["all is well"], turns=Turns())
    assert isinstance(first, WorkerSilent)
    assert second == ["all is well"]


def test_a_rest_process_that_still_starts_ends_at_once_with_its_worker() -> None:
    """Else it would keep the port of a worker that was killed and is started again."""
    slow = (
        "import sys, time\nfrom mm2py_rest.__main__ import ending_with_worker\n"
        "with ending_with_worker(sys.argv):\n    print('importing', flush=True)\n    time.sleep(60)"
    )
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", slow, "--channel", str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE) as process:
        theirs.close()
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        assert process.poll() is None
        ours.close()
        assert process.wait(20) == 0


def test_a_rest_process_has_closed_before_its_worker_loses_patience() -> None:
    assert CLOSING_MOST_S + AUDIT_CLOSING_MOST_S + CONNECTIONS_CLOSING_MOST_S < ENDS_MOST_S
