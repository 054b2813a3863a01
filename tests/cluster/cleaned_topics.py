"""Compacted topics that the broker's cleaner has really gone over, and segments that make it go on."""

from __future__ import annotations

from itertools import islice
from typing import Final

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from tests.checker.ledger import Ledger
from tests.checker.traffic import Planned, Traffic
from tests.cluster.copies import COPY_DEADLINE_S, dump, new_topic, now_ms, send
from tests.cluster.kafka_client import admin
from tests.cluster.running import ANSWER_S, wait_until

NEVER_CLEANED: Final = {"segment.ms": str(2**62)}
"""For a remote topic: its only segment stays open, and no cleaner touches that."""


def cleaned_topic(
    cluster: KafkaCluster, ledger: Ledger, *, records: int = 1_000, seed: int = 4, plain: bool = False
) -> str:
    """Make a compacted topic of one partition that the cleaner has gone over. No two records in it are equal.

    Args:
        plain: see ``Traffic``.
    """
    backoff = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[backoff])
    for change in admin(cluster).incremental_alter_configs([broker]).values():
        change.result(ANSWER_S)
    settings = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    topic = new_topic(cluster, "cleaned", 1, settings)
    traffic = Traffic(
        seed=seed,
        partitions=1,
        compacted=True,
        keys=60,
        first_timestamp_ms=now_ms(),
        plain=plain,
        twins=False,  # both logs together do not tell which of two equal records was cleaned
    )
    send(cluster, topic, islice(traffic.records(), records), ledger=ledger)

    def cleaned() -> bool:
        send(cluster, topic, rolls(1), ledger=ledger)  # begins a new segment: the one before may be cleaned
        return len(dump(cluster, topic)[0]) < records // 2

    wait_until(cleaned, "the cleaner went over it", deadline_s=COPY_DEADLINE_S)
    return topic


def rolls(count: int) -> list[Planned]:
    """Return records that begin new segments of a cleaned topic, each of a key of its own."""
    return [Planned(0, now_ms(), b"roll %d" % number, b"%d" % now_ms(), ()) for number in range(count)]
