"""A heartbeat: a timestamped record in the topic ``heartbeats``, whose copies prove a path. Pure.

Java's layout, for writing and for reading::

    key    STRING source alias, STRING target alias     STRING: i16 length in bytes, UTF-8
    value  i16 version, always 0; i64 timestamp in epoch milliseconds

Like Java's reader, ours ignores the version and bytes after the last field.

Counterpart: Heartbeat of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from mm2py.flow import ClusterAlias, Flow
from mm2py.records.batch import NewRecord
from mm2py.records.java_struct import FieldReader, encode_text

VERSION: Final = 0
_VALUE: Final = struct.Struct(">hq")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The flow that emitted the heartbeat, and when, by the clock of the emitter."""

    flow: Flow
    timestamp_ms: int


def encode(heartbeat: Heartbeat) -> NewRecord:
    """Return the record of a heartbeat. Its timestamp is that of the value.

    Raises:
        ValueError: an alias is longer than 32767 bytes, which settings refuse.
    """
    key = encode_text(heartbeat.flow.source) + encode_text(heartbeat.flow.target)
    return NewRecord(key, _VALUE.pack(VERSION, heartbeat.timestamp_ms), heartbeat.timestamp_ms)


def decode(key: bytes | None, value: bytes | None) -> Heartbeat:
    """Return the heartbeat that a record holds.

    Raises:
        MalformedRecord: key or value is missing, too short, or names no two clusters.
    """
    aliases = FieldReader("heartbeat", "key", key)
    fields = FieldReader("heartbeat", "value", value)
    source, target = (ClusterAlias(aliases.text("an alias")) for _ in range(2))
    _, timestamp_ms = fields.numbers(_VALUE)
    return Heartbeat(Flow(source, target), timestamp_ms)
