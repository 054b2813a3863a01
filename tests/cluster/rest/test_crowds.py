"""B43, S17: a crowd at REST keeps nobody out, and copying goes on. `make test-slow` has a larger crowd."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import httpx2
import pytest

from deploy.local.kafka import KafkaCluster
from mm2py_rest.access.crowd import WAITING_MOST
from tests.cluster.kafka_client import create_topic, new_name, record_count, write
from tests.cluster.rest.serving import LISTENERS, asked, peak_mib
from tests.cluster.rest.test_rest_process import rest_processes
from tests.cluster.running import (
    DEADLINE_S,
    PATIENCE,
    Mm2py,
    during,
    one_way_properties,
    paused,
    wait_until,
    within,
)

MEMORY_MOST_MIB = 64
"""By so much the REST process may grow."""
SENT_AWAY = {"503", "429", "closed"}
REQUEST = b"GET /v1/flows HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass
class Written:
    """How many records are in the source."""

    records: int = 0


@contextmanager
def load(cluster: KafkaCluster, topic: str) -> Iterator[Written]:
    """Write a few hundred records a second meanwhile."""
    ended, written = threading.Event(), Written()

    def produce() -> None:
        while not ended.wait(0.1):
            write(cluster, topic, [b"x" * 100] * 50)
            written.records += 50

    writer = threading.Thread(target=produce)
    writer.start()
    try:
        yield written
    finally:
        ended.set()
        writer.join(DEADLINE_S)
        assert not writer.is_alive(), "what was written is not counted"


@contextmanager
def idle(port: int, count: int) -> Iterator[int]:
    """Hold connections that say nothing; yields how many there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened: list[socket.socket] = []
    try:
        for _ in range(min(count, hard - 500)):
            connection = socket.socket()
            connection.settimeout(5 * PATIENCE)
            opened.append(connection)
            with suppress(OSError):  # the backlog is full: it was sent away as well
                connection.connect(("127.0.0.1", port))
        yield len(opened)
    finally:
        for connection in opened:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def crowd(port: int, per_second: int, seconds: float) -> Counter[str]:
    """Ask so often, each time over a new connection, whatever becomes of the requests before; count the answers."""
    answers: Counter[str] = Counter()

    async def ask() -> None:
        try:
            async with within(DEADLINE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(REQUEST)
                    line = await reader.readline()
                    await reader.read()
                finally:
                    writer.close()
                answers[line.split()[1].decode() if line else "closed"] += 1
        except TimeoutError:
            answers["no answer"] += 1
        except (OSError, asyncio.IncompleteReadError):
            answers["closed"] += 1

    async with asyncio.TaskGroup() as tasks:
        sent = 0
        for passed_s in during(seconds, "as long as the crowd stays"):
            due = int(passed_s * per_second)
            for _ in range(due - sent):
                tasks.create_task(ask())
            sent = due
            await paused(0.01, "until the next are due")
    return answers


@pytest.mark.parametrize(
    ("connections", "per_second", "seconds"),
    [(1_000, 300, 2.0), pytest.param(10_000, 1_000, 10.0, marks=pytest.mark.slow)],
)
def test_a_crowd_keeps_nobody_out_and_copying_goes_on(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, connections: int, per_second: int, seconds: float
) -> None:
    """B43: ten thousand connections that say nothing, and a thousand requests a second; here a tenth of it."""
    a, b, topic = new_name("A"), new_name("B"), new_name("orders")
    create_topic(source_cluster, topic)
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        names=(a, b),
        **{"listeners": LISTENERS, "admin.listeners": LISTENERS, f"{a}->{b}.topics": topic},
        **{"config.storage.replication.factor": 1},
    )
    with Mm2py(properties) as run, load(source_cluster, topic) as written:
        client = asked(run, f"{a}->{b}")
        wait_until(lambda: len(run.events("rest.listening")) == 2, "it says where it listens")
        port, probes = (int(event["at"].rpartition(":")[2]) for event in run.events("rest.listening"))

        def copied() -> int:
            return record_count(target_cluster, f"{a}.{topic}")

        def health() -> int:
            return httpx2.get(f"http://127.0.0.1:{probes}/health", timeout=DEADLINE_S).status_code

        wait_until(copied, "it copies")
        (process,) = rest_processes(run.pid)
        client.told("GET", "/v1/flows", 200)
        memory, before = peak_mib(process), copied()
        begun_s = time.monotonic()
        with idle(port, connections) as there:
            took_s = time.monotonic() - begun_s
            assert there > 2 * WAITING_MOST
            assert health() == 200, "probes have a listener of their own"
            assert client.get("/health").status_code == 200, "and those that stay silent make room"
            among = asyncio.run(crowd(port, 100, 1.0))
        assert set(among) <= {"200", *SENT_AWAY} and among["200"]
        during, written_before = copied(), written.records
        answers = asyncio.run(crowd(port, per_second, seconds))
        written_after, after = written.records, copied()
        print(
            f"{there} idle in {took_s:.0f} s: {dict(among)}; then {dict(answers)};"
            f" {peak_mib(process) - memory:.0f} MiB more; copied {during - before}, then {after - during}"
            f" of {written_after - written_before}"
        )
        assert before < during < after, "copying goes on"
        if seconds >= 10:  # in less, what is on its way counts for too much
            assert after - during >= 0.9 * (written_after - written_before), "S17: the rate falls by 10 % at most"
        assert set(answers) <= {"200", *SENT_AWAY} and answers["200"]
        assert peak_mib(process) - memory < MEMORY_MOST_MIB
        assert rest_processes(run.pid) == [process] and run.events("rest.ended") == []
        assert run.terminate() == 0
