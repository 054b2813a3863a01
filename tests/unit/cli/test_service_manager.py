"""What systemd hears of a worker and of a parent: never that a worker serves which does not."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2py.cli.service_manager import ServiceNotices, service_manager
from mm2py.worker.facts import Health, WorkerFacts

STARTING = WorkerFacts(Health.STARTING, "It has joined 0 of 1 groups.", "It has joined none of its 1 groups.")
SERVES = WorkerFacts(Health.HEALTHY, "It runs.")
MORE = "EXTEND_TIMEOUT_USEC=60000000"


def test_a_worker_that_starts_asks_for_time_and_says_once_that_it_serves() -> None:
    notices = ServiceNotices(is_main=True)
    assert notices.next(STARTING, stops=False) == [MORE, "STATUS=It has joined none of its 1 groups."]
    assert notices.next(STARTING, stops=False) == [MORE]
    assert notices.next(SERVES, stops=False) == ["READY=1", "STATUS=It runs."]
    assert notices.next(SERVES, stops=False) == []


def test_a_worker_that_served_once_and_has_trouble_says_it_in_its_status_alone() -> None:
    notices = ServiceNotices(is_main=True)
    notices.next(SERVES, stops=False)
    assert notices.next(STARTING, stops=False) == ["STATUS=It has joined none of its 1 groups."]
    assert notices.next(SERVES, stops=False) == ["STATUS=It runs."]


def test_the_watchdog_is_fed_at_each_look_while_it_starts_serves_and_stops() -> None:
    notices = ServiceNotices(is_main=True, has_watchdog=True)
    for facts, stops in ((STARTING, False), (SERVES, False), (SERVES, False), (SERVES, True)):
        assert "WATCHDOG=1" in notices.next(facts, stops=stops)


def test_a_stop_is_told_once_and_a_worker_that_stops_while_it_starts_never_serves() -> None:
    notices = ServiceNotices(is_main=True)
    notices.next(STARTING, stops=False)
    assert notices.next(STARTING, stops=True) == ["STOPPING=1"]
    assert notices.next(SERVES, stops=True) == ["STATUS=It runs."]


def test_of_several_workers_each_may_say_that_it_serves_and_their_parent_says_the_rest() -> None:
    worker, parent = ServiceNotices(is_main=False, has_watchdog=False), ServiceNotices(is_main=True, has_watchdog=True)
    assert worker.next(STARTING, stops=False) == [MORE]
    assert worker.next(SERVES, stops=False) == ["READY=1"]
    assert worker.next(SERVES, stops=True) == []
    assert parent.next(None, stops=False) == ["WATCHDOG=1"]
    assert parent.next(None, stops=True) == ["STOPPING=1", "WATCHDOG=1"]


def test_lines_of_a_status_are_one_line() -> None:
    facts = WorkerFacts(Health.HEALTHY, "", "why:\nREADY=1")
    assert ServiceNotices(is_main=True).next(facts, stops=False)[1] == "STATUS=why: READY=1"


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        yield systemd


@pytest.mark.real_time
async def test_what_happens_is_told_to_the_socket_that_the_environment_names(heard: socket.socket) -> None:
    manager = service_manager({"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "300000"})
    assert manager is not None
    facts, stops = STARTING, False
    telling = asyncio.create_task(manager.run(lambda: facts, lambda: stops))
    assert "EXTEND_TIMEOUT_USEC" in await said(heard)
    facts = SERVES
    while "READY=1" not in (told := await said(heard)):
        assert "WATCHDOG=1" in told
    stops = True
    telling.cancel()  # a worker that has drained within the second
    await asyncio.gather(telling, return_exceptions=True)
    while "STOPPING=1" not in await said(heard):
        pass


@pytest.mark.real_time
async def test_what_did_not_arrive_is_told_again(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    manager = service_manager({"NOTIFY_SOCKET": str(address)})
    assert manager is not None
    manager.look(lambda: SERVES, lambda: False)  # nobody listens there yet
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(address))
        systemd.settimeout(30)
        manager.look(lambda: SERVES, lambda: False)
        assert "READY=1" in await said(systemd)


@pytest.mark.real_time
async def test_a_socket_without_a_file_is_told_as_well() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0mm2py-test-{os.getpid()}")
        systemd.settimeout(30)
        manager = service_manager({"NOTIFY_SOCKET": f"@mm2py-test-{os.getpid()}"})
        assert manager is not None
        manager.look(lambda: SERVES, lambda: False)
        assert "READY=1" in await said(systemd)


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1"])
def test_without_a_socket_of_systemd_nothing_is_told(address: str) -> None:
    assert service_manager({"NOTIFY_SOCKET": address} if address else {}) is None


@pytest.mark.real_time
async def test_the_watchdog_of_another_process_is_not_fed(heard: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "300000", "WATCHDOG_PID": "1"}
    manager = service_manager(environment, is_worker_of_parent=True)
    assert manager is not None
    manager.look(lambda: SERVES, lambda: False)
    assert await said(heard) == "READY=1"


async def said(systemd: socket.socket) -> str:
    return (await asyncio.to_thread(systemd.recv, 4096)).decode()
