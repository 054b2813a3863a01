"""A source far away from its worker: a backlog there, the worker beside the target, and how it reads meanwhile."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from bench.processes import peak_mb
from bench.wan.link import Link
from bench.wan.rig import Rig
from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Traffic
from tests.cluster.copies import COPY_DEADLINE_S, assert_copied, new_topic, send
from tests.cluster.kafka_client import record_count
from tests.cluster.running import PATIENCE, Mm2py, Value, one_way_properties

LINK: Final = Link(round_trip_ms=100, megabits_per_s=40)
"""Five million bytes a second: a backlog lasts for some seconds, and one connection carries less than half of it."""
PARTITIONS: Final = 4
BATCH_BYTES: Final = 16_384
"""A producer's default."""
STRIPED: Final = 4
"""So many connections carry much while a backlog is read in stripes; otherwise one does."""
MUCH_BYTES: Final = 100_000
LATE_S: Final = 10 * COPY_DEADLINE_S
"""For copies over links that carry little."""
BEGIN_S: Final = 120.0 * PATIENCE
MEMORY_MB: Final = 200
_RECEIVED: Final = re.compile(r"bytes_received:(\d+)")


@dataclass
class Far:
    """A rig with a cluster of one node at each end. Tests share it, and change the link."""

    rig: Rig
    source: KafkaCluster
    target: KafkaCluster
    _seed: int = field(default=0)

    def backlog(
        self, records: int, *, partitions: int = PARTITIONS, value_bytes: int = 2_000, stem: str = "backlog"
    ) -> Backlog:
        """Make a topic with so many records, of ``value_bytes`` or less. Half of that is about the mean."""
        topic = new_topic(self.source, stem, partitions)
        self._seed += 1
        traffic = Traffic(seed=self._seed, partitions=partitions, value_bytes=value_bytes)
        send(self.source, topic, islice(traffic.records(), records), batch_size=BATCH_BYTES)
        return Backlog(self, topic, partitions, records)


@dataclass
class Backlog:
    """A topic full of records, and the file of a flow that copies it."""

    far: Far
    topic: str
    partitions: int
    records: int

    @property
    def remote(self) -> str:
        return f"A.{self.topic}"

    def properties(self, **extra: Value) -> dict[str, Value]:
        return one_way_properties(self.far.source, self.far.target, **{"A->B.topics": self.topic, **extra})

    def copied(self) -> int:
        return record_count(self.far.target, self.remote, range(self.partitions))

    @contextmanager
    def continued(self, properties: Mapping[str, Value]) -> Iterator[FarWorker]:
        """Start a worker beside the target."""
        rig = self.far.rig
        with rig.target.entered(), Mm2py(properties) as run, rig.near.entered():
            yield FarWorker(self, run)

    @contextmanager
    def read_in_stripes(self, properties: Mapping[str, Value] | None = None) -> Iterator[FarWorker]:
        """Start a worker beside the target, and go on when it reads the backlog in stripes."""
        with self.continued(self.properties() if properties is None else properties) as worker:
            worker.wait_until_striped()
            yield worker


@dataclass
class FarWorker:
    """A worker that reads a backlog over the link."""

    backlog: Backlog
    run: Mm2py

    def connections(self) -> list[int]:
        """Return what each open connection to the source has received, in bytes."""
        rig = self.backlog.far.rig
        with rig.target.entered():
            command = ["ss", "-Htin", "state", "established", "dst", rig.source.address]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = [line for line in said.splitlines() if line.startswith((" ", "\t"))]
        return [int(found[1]) if (found := _RECEIVED.search(line)) else 0 for line in lines]

    def wait_until_striped(self) -> None:
        """Wait until several connections have carried much, while there is still a backlog."""

        def is_striped() -> bool:
            return sum(received >= MUCH_BYTES for received in self.connections()) >= STRIPED

        self.run.wait_until(is_striped, "it reads over several connections", deadline_s=BEGIN_S)
        copied = self.backlog.copied()
        print(f"{len(self.connections())} connections to the source, {copied} of {self.backlog.records} are copied")
        assert copied < self.backlog.records, "the backlog was gone before it was read in stripes"

    def wait_for(self, more: int) -> None:
        """Wait until so many more records are copied."""
        goal = min(self.backlog.records, self.backlog.copied() + more)
        self.run.wait_until(lambda: self.backlog.copied() >= goal, f"{more} more are copied", deadline_s=LATE_S)

    def conclude(self, *, ends: bool = True, **checks: Any) -> None:
        """Let the checker judge the copy, and end the worker."""
        begun_s = time.monotonic()
        backlog = self.backlog
        report = assert_copied(
            backlog.far.source, backlog.far.target, backlog.topic, backlog.remote, run=self.run,
            **{"deadline_s": LATE_S, **checks},
        )  # fmt: skip
        peak = peak_mb(self.run.pid)
        print(f"{report}\nall is there after {time.monotonic() - begun_s:.1f} s; {peak:.0f} MB at most")
        assert peak < MEMORY_MB
        assert not self.run.events("flow.crashed"), self.run.tail()
        assert not self.run.events("partition.gap"), self.run.tail()
        if ends:
            assert self.run.terminate() == 0
