"""An offset sync: a known pair of source and target offset, kept in ``mm2-offset-syncs.B.internal``. Pure.

Java's layout, for writing and for reading::

    key    STRING topic, i32 partition                   as the source cluster names them
    value  i64 upstream offset, i64 downstream offset    no version

Topic and partition are the key, so compaction keeps the newest sync of each partition.

Counterpart: OffsetSync of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from mm2py.flow import TopicName
from mm2py.records.batch import NewRecord
from mm2py.records.java_struct import PARTITION, FieldReader, encode_text

_VALUE: Final = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """The record at ``upstream_offset`` of a source partition was copied to ``downstream_offset`` of the remote one."""

    topic: TopicName
    partition: int
    upstream_offset: int
    downstream_offset: int


def encode(sync: OffsetSync, timestamp_ms: int) -> NewRecord:
    """Return the record of an offset sync.

    Args:
        timestamp_ms: when it is written, in epoch milliseconds; the layout itself holds no time.
    Raises:
        ValueError: the topic is longer than 32767 bytes.
    """
    key = encode_text(sync.topic) + PARTITION.pack(sync.partition)
    return NewRecord(key, _VALUE.pack(sync.upstream_offset, sync.downstream_offset), timestamp_ms)


def decode(key: bytes | None, value: bytes | None) -> OffsetSync:
    """Return the offset sync that a record holds.

    Raises:
        MalformedRecord: key or value is missing or too short, the topic is not UTF-8, the partition is negative.
    """
    names = FieldReader("offset sync", "key", key)
    fields = FieldReader("offset sync", "value", value)
    topic, partition = TopicName(names.text("the topic")), names.partition()
    upstream_offset, downstream_offset = fields.numbers(_VALUE)
    return OffsetSync(topic, partition, upstream_offset, downstream_offset)
