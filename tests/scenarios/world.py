"""Two cluster models and mm2py's own parts between them, under virtual time: the base of all scenarios."""

from __future__ import annotations

import asyncio
import io
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.settings import Configuration, FlowSettings
from mm2py.flow import Flow
from mm2py.kafka.port import Brokers
from mm2py.logs import make_logger
from mm2py.metrics.counters import Metrics
from mm2py.worker.herder import Herder
from tests.checker.dumped import Dumped
from tests.checker.judge import judge_partition
from tests.checker.verdict import Verdict
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock
from tests.scenarios.process import Process, Wire
from tests.scenarios.true_ledger import wrong_answers

CREATE_TIME = 1


def flow_settings(extra: tuple[tuple[str, str], ...] = ()) -> FlowSettings:
    """Return the settings of flow A->B, read from a file as a worker reads them."""
    (settings,) = [one for one in configuration(extra).flows if str(one.flow) == "A->B"]
    return settings


@lru_cache
def configuration(extra: tuple[tuple[str, str], ...] = ()) -> Configuration:
    """Return what a worker of flow A->B has to do, read from a file."""
    return settings_file(extra).configuration()


@lru_cache
def settings_file(extra: tuple[tuple[str, str], ...] = ()) -> SettingsFile:
    """Return the file of a worker of flow A->B."""
    lines = {
        "clusters": "A,B",
        "A.bootstrap.servers": "a:1",
        "B.bootstrap.servers": "b:1",
        "A->B.enabled": "true",
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "offset.storage.partitions": "3",
        "status.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        **dict(extra),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mm2.properties")
        path.write_text("\n".join(f"{key}={value}" for key, value in lines.items()))
        return replace(read_settings_file(path, None), path=Path(path.name))  # the same text in each run


BEATS_SELDOM = {"B.session.timeout.ms": "60000", "B.heartbeat.interval.ms": "10000"}
"""For a long quiet time in which no worker dies: most of what it costs are heartbeats."""


class World:
    """A source and a target model, and a worker between them. All randomness comes from one seed."""

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 1,
        extra: Mapping[str, str] | None = None,
        memory_max_bytes: int = 96 << 20,
        latency_s: tuple[float, float] = (0.0002, 0.002),
        broker_config: Mapping[str, str] | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.source, self.target = (
            ClusterModel(
                name,
                self.clock,
                random.Random(self.rng.random()),
                nodes=nodes,
                latency_s=latency_s,
                broker_config=broker_config,
            )
            for name in ("A", "B")
        )
        self.rewrite_file(extra or {})
        self.memory_max_bytes = memory_max_bytes
        self.recopies: Mapping[Flow, set[str]] = {}
        self.processes: list[Process] = []
        self.log_text = io.StringIO()
        self.log = make_logger("info", "text", self.log_text)
        self.metrics = Metrics()

    def rewrite_file(self, extra: Mapping[str, str]) -> None:
        """Change the file of workers that start from now on."""
        self.extra = {"emit.heartbeats.enabled": "false", "emit.checkpoints.enabled": "false", **extra}
        self.settings = flow_settings(tuple(sorted(self.extra.items())))

    def file(self, extra: Mapping[str, str]) -> SettingsFile:
        """Return the file of a worker, with ``extra`` lines in it."""
        return settings_file(tuple(sorted({**self.extra, **extra}.items())))

    def start(
        self,
        extra: Mapping[str, str] | None = None,
        *,
        apply: bool = False,
        through: Callable[[Wire], Brokers] = lambda wire: wire,
        clock: Clock | None = None,
        **clusters: ClusterModel,
    ) -> Process:
        """Start a worker whose file has ``extra`` lines; ``clusters`` are found at further addresses.

        Args:
            apply: with ``--apply``.
            through: what stands between this worker and a cluster.
            clock: its own clock, instead of the world's.
        """
        all_clusters = {"A": self.source, "B": self.target, **clusters}
        file = self.file(extra or {})
        process = Process(self, len(self.processes) + 1, file, all_clusters, apply=apply, through=through, clock=clock)
        self.processes.append(process)
        return process

    @asynccontextmanager
    async def worker(
        self,
        *,
        allow_recopy: frozenset[str] = frozenset(),
        through: Callable[[Wire], Brokers] = lambda wire: wire,
        clock: Clock | None = None,
    ) -> AsyncIterator[Herder]:
        """Run a worker; leaving the block kills it as kill -9 does. ``herder.stop()`` before that drains it."""
        self.recopies = {self.settings.flow: set(allow_recopy)}
        process = self.start(through=through, clock=clock)
        assert process.incarnation.task is not None
        try:
            yield process.herder
        finally:
            process.kill()
            await asyncio.gather(process.incarnation.task, return_exceptions=True)

    async def stop(self, herder: Herder) -> None:
        """Stop a worker as SIGTERM does and wait until it has drained."""
        herder.stop()
        while "worker.drained" not in self.log_text.getvalue():
            await asyncio.sleep(0.05)
        self.log_text.truncate(0)

    async def copied(self, topics: Mapping[str, str], *, deadline_s: float = 300.0) -> None:
        """Wait until the last record of each source partition is in the remote topics."""
        async with asyncio.timeout(deadline_s):
            while not all(self._is_copied(name, remote) for name, remote in topics.items()):
                await asyncio.sleep(0.2)

    def _is_copied(self, name: str, remote: str) -> bool:
        if remote not in self.target.topics:
            return False
        committed = self.settings.read_committed
        for number in range(len(self.source.topics[name].partitions)):
            if number >= len(self.target.topics[remote].partitions):
                return False
            wanted = self.source.newest(name, number, committed=committed)
            have = self.target.newest(remote, number)
            if wanted and (not have or have[-1].content != wanted[-1].content):
                return False
        return True

    def judge(self, name: str, remote: str, *, exact: bool = False) -> list[Verdict]:
        """Judge every partition of a copied topic, and what its ledger says."""
        committed = self.settings.read_committed
        wrong = wrong_answers(self.source, self.target, name, remote, committed=committed)
        assert not wrong, f"the ledger is wrong: {wrong[:10]}"
        return [
            judge_partition(
                _dump(self.source, name, number, committed=committed),
                _dump(self.target, remote, number, committed=False),
                topic=name,
                partition=number,
                max_rewinds=0 if exact else None,
            )
            for number in range(len(self.source.topics[name].partitions))
        ]


def _dump(cluster: ClusterModel, topic: str, partition: int, *, committed: bool) -> list[Dumped]:
    return [
        Dumped(record.offset, CREATE_TIME, record.timestamp_ms, record.key, record.value, record.headers)
        for record in cluster.records(topic, partition, committed=committed)
    ]
