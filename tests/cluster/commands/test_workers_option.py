"""``--workers N``: several workers under one parent, as an operator and a service manager see them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import new_name
from tests.cluster.running import Mm2py, Value, one_way_properties, wait_until

TWO = ("--workers", "2")


@pytest.fixture
def unreachable() -> dict[str, Value]:
    """A file of two clusters that nobody serves."""
    return one_way_properties("127.0.0.1:1", "127.0.0.1:2")


def is_there(pid: int) -> bool:
    """Whether a process runs. Zombies are not counted: whoever takes in orphans may be slow to bury them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def workers_of(run: Mm2py) -> dict[int, int]:
    """Return the process id of each worker, the newest of its number."""
    return {event["worker"]: event["pid"] for event in run.events("process.started")}


def started(run: Mm2py) -> dict[int, int]:
    """Wait until both workers run and heed signals, and return their process ids."""
    for number in (1, 2):
        run.wait_for_event("cluster.unreachable", worker=number)
    return workers_of(run)


def test_two_workers_one_of_them_killed_and_a_drained_stop(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    a, b = new_name("A"), new_name("B")
    properties = one_way_properties(source_cluster, target_cluster, names=(a, b))
    # Only heartbeats: one worker emits those of a flow, and what becomes of partitions is test_group.py's concern.
    properties |= {f"{a}->{b}.enabled": False, "emit.heartbeats.enabled": True, "memory.max.bytes": 2**24}
    with Mm2py(properties, arguments=TWO) as run:
        for number in (1, 2):
            run.wait_for_event("member.joined", worker=number, target=b)
        emitting = run.wait_for_event("heartbeats.emitting", flow=f"{a}->{b}")
        dead, other = emitting["worker"], 3 - emitting["worker"]
        first = workers_of(run)
        assert sorted(first) == [1, 2]
        assert {event["pid"] for event in run.events("worker.starting")} == set(first.values())
        assert run.events("heartbeats.emitting", flow=f"{a}->{b}") == [emitting], "one worker is enough"
        os.kill(first[dead], signal.SIGKILL)
        ended = run.wait_for_event("process.ended", worker=dead, pid=first[dead], signal="SIGKILL")
        assert 0.8 <= ended["again_in_s"] <= 1.2
        run.wait_for_event("heartbeats.emitting", flow=f"{a}->{b}", after=ended)
        run.wait_for_event("member.joined", worker=dead, target=b, after=ended)
        again = workers_of(run)
        assert again[dead] != first[dead]
        assert again[other] == first[other]
        assert run.terminate() == 0
        assert sorted(event["worker"] for event in run.events("worker.drained")) == [1, 2]
        assert sorted(event["worker"] for event in run.events("process.ended", exit_code=0)) == [1, 2]
        assert not any(is_there(pid) for pid in (*first.values(), *again.values()))
        assert not run.events("connector.failed")


def test_workers_do_not_outlive_a_parent_that_was_killed(unreachable: dict[str, Value]) -> None:
    with Mm2py(unreachable, arguments=TWO) as run:
        pids = started(run)
        run.kill()
        wait_until(lambda: not any(map(is_there, pids.values())), "both workers ended")
        assert sorted(event["worker"] for event in run.events("worker.drained")) == [1, 2]


def test_a_service_manager_that_signals_every_process_of_a_unit_gets_a_drained_stop(
    unreachable: dict[str, Value],
) -> None:
    """systemd does so by default: a parent that sent the signal on would give its workers the second one."""
    with Mm2py(unreachable, arguments=TWO) as run:
        for pid in (*started(run).values(), run.pid):
            os.kill(pid, signal.SIGTERM)
        assert run.wait() == 0
        assert not run.events("process.ended", exit_code=130)


def test_a_second_signal_stops_all_at_once(unreachable: dict[str, Value]) -> None:
    with Mm2py(unreachable, arguments=TWO) as run:
        pids = started(run)
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)  # so that none can drain before the second one comes
        run.signal(signal.SIGINT)
        run.wait_for_event("parent.stopping", workers=2)
        run.signal(signal.SIGINT)
        assert run.wait() == 130
        assert not any(is_there(pid) for pid in pids.values())


def test_one_worker_has_no_parent(unreachable: dict[str, Value]) -> None:
    with Mm2py(unreachable, arguments=["--workers", "1"]) as run:
        run.wait_for_event("cluster.unreachable")
        (start,) = run.events("worker.starting", pid=run.pid)
        assert "worker" not in start
        assert not run.events("process.started")
        assert run.terminate() == 0


def test_what_is_wrong_in_the_file_is_said_once_and_starts_no_worker(unreachable: dict[str, Value]) -> None:
    with Mm2py({**unreachable, "replication.factor": "many"}, arguments=TWO) as run:
        assert run.wait() == 2
        assert len(run.log) == 1
        assert run.log[0]["text"].startswith("mm2py: ")


def test_where_no_worker_may_run_a_flow_the_parent_ends_with_1(unreachable: dict[str, Value]) -> None:
    refused: dict[str, Any] = {**unreachable, "B.security.protocol": "SASL_PLAINTEXT", "B.sasl.mechanism": "GSSAPI"}
    with Mm2py(refused, arguments=TWO) as run:
        assert run.wait() == 1
        assert {event["worker"] for event in run.events("worker.nothing_left")} == {1, 2}
