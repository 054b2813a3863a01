"""Checks a copy: compares the last records of each partition with those of its source, field by field."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from bench.sides import Side

LAST_RECORDS: Final = 50
DEADLINE_S: Final = 120.0

Records = dict[int, list[tuple[Any, ...]]]


def differing_partitions(source: Side, topic: str, target: Side, remote_topic: str, partitions: int) -> Sequence[int]:
    """Return the partitions whose ends or last records differ."""
    ours, theirs = last_records(source, topic, partitions), last_records(target, remote_topic, partitions)
    return [number for number in range(partitions) if ours[number] != theirs[number]]


def last_records(side: Side, topic: str, partitions: int) -> Records:
    """Return offset, timestamp, key, value and headers of each partition's last records that arrive in time."""
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "compare", "log_level": 0})
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        ends: dict[int, int] = {}
        for place in places:
            first, ends[place.partition] = consumer.get_watermark_offsets(place, timeout=DEADLINE_S)
            place.offset = max(first, ends[place.partition] - LAST_RECORDS)
        consumer.assign(places)
        found: Records = {place.partition: [] for place in places}
        left = {place.partition for place in places if place.offset < ends[place.partition]}
        end_s = time.monotonic() + DEADLINE_S
        while left and time.monotonic() < end_s:
            for message in consumer.consume(1_000, timeout=1.0):
                number, offset = message.partition(), message.offset()
                if message.error() is not None or number is None or offset is None:
                    continue
                found[number].append((offset, message.timestamp(), message.key(), message.value(), message.headers()))
                if offset >= ends[number] - 1:
                    left.discard(number)
        return found
    finally:
        consumer.close()
