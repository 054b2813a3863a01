"""Whole partitions as a consumer sees them, read with a client that is not mm2py's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from deploy.local.errors import StarterError
from tests.checker.dumped import Dumped, Headers

ANSWER_S: Final = 30.0
AT_ONCE: Final = 5_000
AT_ONCE_S: Final = 0.05
"""How long to wait for so many; the end of a log does not cut it short."""


@dataclass(slots=True)
class Log:
    """What stood in a partition from ``start`` to ``end``, committed records only."""

    start: int
    end: int
    records: list[Dumped] = field(default_factory=list)


def read_logs(bootstrap: str, topic: str, partitions: Sequence[int]) -> dict[int, Log]:
    """Return each partition up to its end as it stands now.

    Raises:
        StarterError: the cluster stops answering.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        logs = {}
        for number in partitions:
            start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_S)
            logs[number] = Log(start, end)
        consumer.assign([TopicPartition(topic, number, log.start) for number, log in logs.items()])
        _fill(consumer, topic, logs)
        return logs
    finally:
        consumer.close()


def _fill(consumer: Consumer, topic: str, logs: dict[int, Log]) -> None:
    unread = set(logs)
    answered_s = time.monotonic()
    while unread:
        messages = consumer.consume(AT_ONCE, timeout=AT_ONCE_S)
        if messages:
            answered_s = time.monotonic()
        elif time.monotonic() - answered_s > ANSWER_S:
            raise StarterError(f"{topic} cannot be read to its end.", remedy="Look at the broker's log.")
        for message in messages:
            error = message.error()
            if error is None:
                logs[message.partition() or 0].records.append(_dumped(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition() or 0)
            else:
                raise StarterError(f"{topic} cannot be read: {error}.", remedy="Look at the broker's log.")


def _dumped(message: Message) -> Dumped:
    kind, timestamp_ms = message.timestamp()
    headers = cast("Headers", tuple(message.headers() or ()))
    return Dumped(message.offset() or 0, kind, timestamp_ms, message.key(), message.value(), headers)
