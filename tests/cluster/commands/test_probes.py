"""What probes and systemd hear of real workers: when they serve, that they live, and that they stop."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import new_name
from tests.cluster.running import COMMAND_S, DEADLINE_S, OWN_PATH, Mm2py, Value, one_way_properties, wait_until


def listen(opened: socket.socket, heard: list[str]) -> None:
    """Read until the socket is shut down, and at once, as systemd does: such a socket holds ten messages."""
    while found := opened.recv(65_536):
        heard += found.decode().split("\n")


@contextmanager
def service_manager(folder: Path) -> Iterator[tuple[list[str], dict[str, str | None]]]:
    """What a socket like that of systemd hears, and the variables that a service of it gets."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(folder / "notify"))
        heard: list[str] = []
        reader = threading.Thread(target=listen, args=(opened, heard), daemon=True)
        reader.start()
        try:
            yield heard, {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "3000000"}
        finally:
            opened.shutdown(socket.SHUT_RD)
            reader.join(DEADLINE_S)


def properties(source: KafkaCluster | str, target: KafkaCluster | str) -> dict[str, Value]:
    return one_way_properties(source, target, names=(new_name("A"), new_name("B")), listeners="http://127.0.0.1:0")


def health(run: Mm2py, *options: str) -> tuple[int, str]:
    """Call ``mm2py health`` for a worker that has logged where it listens."""
    port = run.wait_for_event("rest.listening")["at"].rpartition(":")[2]
    command = [sys.executable, "-m", "mm2py", "health", str(run.file), "--port", port, *options]
    done = subprocess.run(
        command, env={"PYTHONPATH": OWN_PATH}, capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_a_worker_is_ready_once_its_flow_runs_and_systemd_hears_that_and_of_its_stop(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    with service_manager(tmp_path) as (heard, environment):
        file = properties(source_cluster, target_cluster)
        with Mm2py(file, arguments=workers, environment=environment) as run:
            run.wait_for_event("flow.ready")
            wait_until(lambda: "READY=1" in heard, "systemd hears that it serves", deadline_s=DEADLINE_S)
            wait_until(lambda: "WATCHDOG=1" in heard, "its watchdog is fed")
            assert "STOPPING=1" not in heard
            wait_until(lambda: health(run)[0] == 0, "it is ready", deadline_s=DEADLINE_S)
            assert health(run)[1].startswith("ready: ")
            assert health(run, "--live")[1].startswith("alive: ")
            assert run.terminate() == 0
            wait_until(lambda: "STOPPING=1" in heard, "systemd has heard of the stop")
            assert heard.index("READY=1") < heard.index("STOPPING=1")
            assert health(run)[0] == 1, "it is gone"


def test_a_worker_whose_clusters_never_answered_lives_and_is_not_ready(tmp_path: Path) -> None:
    file = properties("127.0.0.1:1", "127.0.0.1:2")
    with service_manager(tmp_path) as (heard, environment), Mm2py(file, environment=environment) as run:
        wait_until(lambda: health(run, "--live")[0] == 0, "it lives", deadline_s=DEADLINE_S)
        assert health(run) == (1, "not ready: It has joined none of its 1 groups.\n")
        assert "EXTEND_TIMEOUT_USEC=60000000" in heard
        assert "READY=1" not in heard
