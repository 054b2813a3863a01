"""Load for tests in which something dies: records of today and of a month ago, and how their copies are judged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from typing import Self

from confluent_kafka import KafkaException, TopicPartition

from deploy.local.kafka import KafkaCluster
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import COPY_DEADLINE_S, assert_copied, new_topic, now_ms
from tests.cluster.group_offsets import member
from tests.cluster.judged_offsets import Flow
from tests.cluster.kafka_client import offsets, record_count
from tests.cluster.running import Mm2py, wait_until

PARTITIONS = 4
PATIENT: Mapping[str, str | int] = {
    "reconnect.backoff.max.ms": 500,
    "message.timeout.ms": 0,
    "request.timeout.ms": 5_000,
    "socket.timeout.ms": 6_000,
}
"""Brokers may be away; of one that says nothing others lead what it led after ten seconds."""
AGES_MS = {"young": 0, "old": 30 * 86_400_000}
"""Brokers forget at once who wrote old records; of young ones they remember it for a day."""
IN_ORDER: Mapping[str, Mapping[str, str | int]] = {
    "young": {},
    "old": {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1},
}
"""How the load's own client keeps the order. A source that starts again has forgotten the producer of old records, and
librdkafka, asked for idempotence, may then wait for ever with all its records."""


class Loads:
    """Two topics under load while the ``with`` block lasts: one of records of today, one of a month ago."""

    def __init__(self, cluster: KafkaCluster, stem: str, *, per_second: int = 1_500, replicas: int = 1) -> None:
        self._cluster = cluster
        self._per_second = per_second
        self._loads = [
            Load(
                cluster.internal_bootstrap,
                new_topic(cluster, f"{stem}-{age}", PARTITIONS, replicas=replicas),
                Traffic(seed=len(stem), partitions=PARTITIONS, first_timestamp_ms=now_ms() - age_ms),
                codecs=["lz4"],
                per_second=per_second,
                settings={**PATIENT, **IN_ORDER[age]},
            )
            for age, age_ms in AGES_MS.items()
        ]
        self.topics = [load.topic for load in self._loads]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        for load in self._loads:
            self._running.enter_context(load.in_background())
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def wait_for(self, more: int) -> None:
        """Wait until so many more records of each are in the source."""
        goals = [load.acknowledged + more for load in self._loads]
        wait_until(
            lambda: all(load.acknowledged >= goal for load, goal in zip(self._loads, goals, strict=True)),
            f"{more} more records are sent",
        )

    def assert_copied(
        self,
        target: KafkaCluster,
        run: Mm2py,
        *,
        max_rewinds: int,
        target_starts: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Judge both topics; each partition may have gone back so often, and not far.

        Args:
            target_starts: where the copy begins of what the source still has, by source topic and partition.
        """
        for topic in self.topics:
            report = assert_copied(
                self._cluster,
                target,
                topic,
                f"A.{topic}",
                run=run,
                max_rewinds=max_rewinds,
                target_starts=target_starts,
                max_rewound_records=max_rewinds * 10 * self._per_second,
            )
            print(report)

    def assert_ledgers(self, target: KafkaCluster, run: Mm2py, *, groups: Collection[str] = ()) -> None:
        """Judge what the ledgers answer for every offset of both sides (L), and the offset syncs (I7).

        The copy is complete, and neither side has lost records.

        Args:
            groups: have committed on the source; their checkpoints (I6) and commits on the target (I12) are judged too.
        """
        Flow(self._cluster, target, "A", "B", self.topics, Ledger(), groups=groups).assert_exact(run)

    def commit(self, group: str, part: float) -> None:
        """Let a group commit, in each partition of both topics, an offset at this part of the log."""
        client = member(self._cluster, group)
        try:
            ends = {
                (topic, number): offsets(self._cluster, topic, number)[1]
                for topic in self.topics
                for number in range(PARTITIONS)
            }
            at = [TopicPartition(*place, int(end * part)) for place, end in ends.items()]
            client.commit(offsets=at, asynchronous=False)
        finally:
            client.close()

    def wait_for_copies(self, target: KafkaCluster, run: Mm2py, more: int) -> None:
        """Wait until the remote topics have grown by so many records."""
        found: list[int] = []

        def grown() -> bool:
            with suppress(KafkaException):  # the target may be coming back
                found.append(sum(record_count(target, f"A.{topic}", range(PARTITIONS)) for topic in self.topics))
            return bool(found) and found[-1] >= found[0] + more

        run.wait_until(grown, f"{more} more records are copied", deadline_s=COPY_DEADLINE_S)
