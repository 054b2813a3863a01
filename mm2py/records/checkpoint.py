"""A checkpoint: a group's committed offset with its translation, kept in ``A.checkpoints.internal``. Pure.

Java's layout, for writing and for reading::

    key    STRING group, STRING topic, i32 partition    as the target cluster names them
    value  i16 version, always 0; i64 upstream offset, i64 downstream offset, STRING metadata

Like Java's reader, ours ignores the version.

Counterpart: Checkpoint of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from mm2py.flow import TopicName
from mm2py.records.batch import NewRecord
from mm2py.records.java_struct import PARTITION, FieldReader, encode_text

VERSION: Final = 0
_VALUE: Final = struct.Struct(">hqq")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The committed offset of a group in a source partition, and where it may resume in the remote partition.

    Both are the offset of the record to read next. ``metadata`` is the text that the group committed with its offset,
    empty if there was none.
    """

    group: str
    topic: TopicName
    """The remote topic."""
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str


def encode(checkpoint: Checkpoint, timestamp_ms: int) -> NewRecord:
    """Return the record of a checkpoint.

    Args:
        timestamp_ms: when the group's offsets were looked up, in epoch milliseconds.
    Raises:
        ValueError: group, topic or metadata is longer than 32767 bytes.
    """
    key = encode_text(checkpoint.group) + encode_text(checkpoint.topic) + PARTITION.pack(checkpoint.partition)
    offsets = _VALUE.pack(VERSION, checkpoint.upstream_offset, checkpoint.downstream_offset)
    return NewRecord(key, offsets + encode_text(checkpoint.metadata), timestamp_ms)


def decode(key: bytes | None, value: bytes | None) -> Checkpoint:
    """Return the checkpoint that a record holds.

    Raises:
        MalformedRecord: key or value is missing or too short, a text is not UTF-8, the partition is negative.
    """
    names = FieldReader("checkpoint", "key", key)
    fields = FieldReader("checkpoint", "value", value)
    group, topic, partition = names.text("the group"), TopicName(names.text("the topic")), names.partition()
    _, upstream_offset, downstream_offset = fields.numbers(_VALUE)
    return Checkpoint(group, topic, partition, upstream_offset, downstream_offset, fields.text("the metadata"))
