"""The two clusters of a bench, and what a bench needs of them: topics, ends of partitions, CPU of the brokers.

Brokers have Kafka's defaults, with the JVM flags of its start script. Exceptions are the starter's own small defaults
(few partitions of internal topics, no delay before a group's first rebalance), and that the files of a deleted topic
are removed after a second, not a minute. These are the same for every mirror, or save MirrorMaker 2 a wait.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.encryption import Encryption
from bench.processes import cpu_s
from deploy.local.broker_settings import Setting
from deploy.local.kafka import KafkaCluster, start_clusters
from deploy.local.network import Namespace
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import BrokerId

BROKER_HEAP: Final = "1g"
JVM_OPTIONS: Final = (
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The flags that Kafka's own scripts give every JVM: brokers and MirrorMaker 2 alike."""
BROKER_SETTINGS: Final = {"log.segment.delete.delay.ms": 1_000}
ANSWER_S: Final = 60.0
QUIET_S: Final = 0.5
QUIET_SHARE: Final = 0.10
QUIET_DEADLINE_S: Final = 20.0


class Side:
    """One cluster of one broker."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        host, _, port = cluster.bootstrap.partition(":")
        self.brokers = Cluster(cluster.name, [(host, int(port))], rng=random.Random(1), client_id="bench")
        self.broker = BrokerId(cluster.brokers[0].node_id)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def cpu_s(self) -> float:
        """Return the CPU seconds of the broker so far."""
        return cpu_s(self.cluster.brokers[0].pid)

    async def create(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Create a topic, and wait until the broker leads all of its partitions; KafkaException if it exists."""
        self._admin.create_topics([NewTopic(topic, partitions, 1, config=configs or {})])[topic].result(ANSWER_S)
        places = {(topic, number): self.broker for number in range(partitions)}
        async with asyncio.timeout(ANSWER_S):
            while any(  # noqa: ASYNC110  (only asking tells)
                answer.error_code for answer in (await list_offsets(self.brokers, places, LATEST)).values()
            ):
                await asyncio.sleep(0.05)

    def topics(self) -> list[str]:
        """Return all topics except Kafka's own."""
        return [name for name in self._admin.list_topics(timeout=ANSWER_S).topics if not name.startswith("__")]

    def delete_all_but(self, kept: Sequence[str]) -> None:
        """Delete the topics that a mirror left, and wait until the broker no longer lists them."""
        left = [name for name in self.topics() if name not in kept]
        if left:
            for deleted in self._admin.delete_topics(left, operation_timeout=ANSWER_S).values():
                deleted.result(ANSWER_S)
        deadline_s = time.monotonic() + ANSWER_S
        while set(self.topics()) - set(kept):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self.cluster.name} still has topics that were deleted {ANSWER_S:g} s ago")
            time.sleep(0.1)

    async def ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return the next offset of each partition; 0 while the topic does not exist."""
        answers = await list_offsets(self.brokers, {(topic, number): self.broker for number in partitions}, LATEST)
        return {number: 0 if answer.error_code else answer.offset for (_, number), answer in answers.items()}


@dataclass(frozen=True, slots=True)
class Sides:
    source: Side
    target: Side
    network: Namespace | None = None
    """Where mirrors run; None: on this machine."""

    def wait_until_quiet(self) -> None:
        """Wait until both brokers have finished with the previous run, for at most ``QUIET_DEADLINE_S``."""
        deadline_s = time.monotonic() + QUIET_DEADLINE_S
        while time.monotonic() < deadline_s:
            before_s = self.source.cpu_s() + self.target.cpu_s()
            time.sleep(QUIET_S)
            if self.source.cpu_s() + self.target.cpu_s() - before_s < QUIET_SHARE * QUIET_S:
                return

    async def close(self) -> None:
        await self.source.brokers.close()
        await self.target.brokers.close()


@contextmanager
def bench_clusters(
    encryption: Encryption | None = None,
    settings: Mapping[str, Setting] | None = None,
    networks: tuple[Namespace | None, Namespace | None] = (None, None),
) -> Iterator[list[KafkaCluster]]:
    """Start a source and a target cluster of one broker each.

    Args:
        settings: further settings of the brokers.
        networks: where the source and the target run; None: on this machine.
    """
    encryption = encryption or Encryption.none()
    clusters = [
        KafkaCluster(
            name,
            heap=BROKER_HEAP,
            jvm_options=(f"-Xms{BROKER_HEAP}", *JVM_OPTIONS),
            listeners=encryption.listeners,
            settings={**BROKER_SETTINGS, **encryption.broker, **(settings or {})},
            network=network,
        )
        for name, network in zip(("source", "target"), networks, strict=True)
    ]
    with start_clusters(clusters) as started:
        yield started
