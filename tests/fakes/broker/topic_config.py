"""Settings of topics and brokers as a broker knows them: names, defaults, and the few that the model applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tests.fakes.broker.record_batch import CODECS

TOPIC_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "follower.replication.throttled.replicas": "",
        "index.interval.bytes": "4096",
        "leader.replication.throttled.replicas": "",
        "local.retention.bytes": "-2",
        "local.retention.ms": "-2",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
)
"""Kafka 4.3's topic settings with their defaults, except a few for tiered storage."""

BROKER_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "fetch.max.bytes": "57671680",
        "message.max.bytes": "1048588",
        "min.insync.replicas": "1",
        "num.partitions": "1",
        "producer.id.expiration.check.interval.ms": "600000",
        "producer.id.expiration.ms": "86400000",
        "replica.selector.class": "",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
        "transaction.max.timeout.ms": "900000",
        "transactional.id.expiration.ms": "604800000",
    }
)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The topic settings that the model applies. Sizes in bytes."""

    max_message_bytes: int
    compacted: bool
    log_append_time: bool
    compression: str
    min_insync_replicas: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    delete_retention_ms: int
    retention_ms: int | None
    """None: for ever."""
    segment_bytes: int
    segment_ms: int


class BadConfig(ValueError):
    """A broker would refuse this setting."""


def parse_topic_config(overrides: Mapping[str, str]) -> TopicConfig:
    """Return the effective settings.

    Raises:
        BadConfig: an unknown name or a value out of range.
    """
    for name in overrides:
        if name not in TOPIC_DEFAULTS:
            raise BadConfig(f"Unknown topic config name: {name}")
    values = {**TOPIC_DEFAULTS, **overrides}
    policies = [policy.strip() for policy in values["cleanup.policy"].split(",") if policy.strip()]
    if not set(policies) <= {"compact", "delete"}:
        raise BadConfig(f"Invalid value {values['cleanup.policy']} for configuration cleanup.policy")
    if values["compression.type"] not in {"producer", "uncompressed", *CODECS[1:]}:
        raise BadConfig(f"Invalid value {values['compression.type']} for configuration compression.type")
    if values["message.timestamp.type"] not in {"CreateTime", "LogAppendTime"}:
        raise BadConfig(f"Invalid value {values['message.timestamp.type']} for configuration message.timestamp.type")
    numbers = {}
    for name, least in _NUMBERS.items():
        try:
            numbers[name] = int(values[name])
        except ValueError as cause:
            raise BadConfig(f"Invalid value {values[name]} for configuration {name}: Not a number") from cause
        if numbers[name] < least:
            raise BadConfig(f"Invalid value {values[name]} for configuration {name}: Value must be at least {least}")
    return TopicConfig(
        max_message_bytes=numbers["max.message.bytes"],
        compacted="compact" in policies,
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        compression=values["compression.type"],
        min_insync_replicas=numbers["min.insync.replicas"],
        timestamp_before_max_ms=numbers["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=numbers["message.timestamp.after.max.ms"],
        delete_retention_ms=numbers["delete.retention.ms"],
        retention_ms=numbers["retention.ms"] if "delete" in policies and numbers["retention.ms"] >= 0 else None,
        segment_bytes=numbers["segment.bytes"],
        segment_ms=numbers["segment.ms"],
    )


_NUMBERS: Final[Mapping[str, int]] = {
    "delete.retention.ms": 0,
    "max.message.bytes": 0,
    "message.timestamp.after.max.ms": 0,
    "message.timestamp.before.max.ms": 0,
    "min.insync.replicas": 1,
    "retention.bytes": -1,
    "retention.ms": -1,
    "segment.bytes": 14,
    "segment.ms": 1,
}
