"""Where a worker listens: before it starts, so that a port that is taken is told at once.

With real processes: tests/cluster/rest/test_rest_process.py.
"""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from mm2py.cli.rest_process import Bound, adopt, bind, open_sockets
from mm2py.config.rest import Listener, RestSettings
from mm2py.errors import ConfigError
from mm2py.logs import make_logger

FREE = Listener("127.0.0.1", 0)


class Bind:
    """Listens, and closes in the end."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.log = make_logger("info", "json", self.out)
        self.bound: list[Bound] = []

    def __call__(self, *listeners: Listener, is_explicit: bool = True, number: int = 1) -> list[Bound]:
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


def test_port_0_takes_a_free_port_and_tells_which(listen: Bind) -> None:
    first, second = listen(FREE, FREE)
    assert first.address != second.address
    assert not first.address.endswith(":0")
    assert reaches(first.address), "callers wait until the REST process runs"


def test_an_explicit_port_that_is_taken_is_an_error_and_nothing_stays_open(listen: Bind, taken: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(ConfigError, match=f"Cannot listen at http://127.0.0.1:{taken}: Address already in use"):
        listen(Listener("127.0.0.1", free), Listener("127.0.0.1", taken))
    with socket.create_server(("127.0.0.1", free)):
        pass


def test_the_default_port_that_is_taken_is_a_warning_with_its_effect(listen: Bind, taken: int) -> None:
    assert listen(Listener("127.0.0.1", taken), is_explicit=False) == []
    (event,) = listen.events
    assert (event["event"], event["effect"]) == ("rest.not_served", "this worker copies, without REST and metrics")


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


def test_a_worker_adopts_what_its_parent_has_opened_and_leaves_out_what_could_not_be(taken: int) -> None:
    out = io.StringIO()
    log = make_logger("info", "json", out)
    settings = RestSettings((FREE, Listener("127.0.0.1", taken)), is_explicit=False)
    descriptors = open_sockets(settings, log, number=1)
    assert descriptors[1] == -1
    adopted = adopt(settings, descriptors, number=1)
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
