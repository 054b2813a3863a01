"""A heartbeat: a timestamped record in the topic ``heartbeats``, whose copies prove a path. Pure.

Answers to Heartbeat of Apache Kafka's Connect, mirror. Written so that Java reads it and reads as Java writes it::

    key    STRING source alias, STRING target alias     STRING: i16 length in bytes, UTF-8
    value  i16 version, always 0; i64 timestamp in epoch milliseconds

Like Java's reader, ours ignores the version and what follows the last field.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from mm2py.connector import ClusterAlias, Flow
from mm2py.errors import Mm2Error
from mm2py.records.batch import NewRecord

VERSION: Final = 0
_LENGTH: Final = struct.Struct(">h")
_VALUE: Final = struct.Struct(">hq")
_STRING_MAX_BYTES: Final = 2**15 - 1


class MalformedHeartbeat(Mm2Error):
    """The bytes are no heartbeat."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"This is no heartbeat: {what}.", remedy="See with kafka-dump-log.sh who else writes to the topic."
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The flow that emitted it, and when, by the clock of the emitter."""

    flow: Flow
    timestamp_ms: int


def encode(heartbeat: Heartbeat) -> NewRecord:
    """Return the record of a heartbeat. Its timestamp is that of the value.

    Raises:
        ValueError: an alias is longer than 32767 bytes, which settings refuse.
    """
    key = _string(heartbeat.flow.source) + _string(heartbeat.flow.target)
    return NewRecord(key, _VALUE.pack(VERSION, heartbeat.timestamp_ms), heartbeat.timestamp_ms)


def decode(key: bytes | None, value: bytes | None) -> Heartbeat:
    """Return the heartbeat that a record holds.

    Raises:
        MalformedHeartbeat: key or value is missing, too short, or names no two clusters.
    """
    if key is None or value is None:
        raise MalformedHeartbeat(f"it has no {'key' if key is None else 'value'}")
    source, at = _read_string(key, 0)
    target, _ = _read_string(key, at)
    try:
        _, timestamp_ms = _VALUE.unpack_from(value)
    except struct.error:
        raise MalformedHeartbeat(f"its value has {len(value)} bytes instead of {_VALUE.size}") from None
    return Heartbeat(Flow(ClusterAlias(source), ClusterAlias(target)), timestamp_ms)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > _STRING_MAX_BYTES:
        raise ValueError(f"an alias of {len(data)} bytes does not fit into a heartbeat")
    return _LENGTH.pack(len(data)) + data


def _read_string(key: bytes, at: int) -> tuple[str, int]:
    begin = at + _LENGTH.size
    size = _LENGTH.unpack_from(key, at)[0] if begin <= len(key) else -1
    if size < 0 or begin + size > len(key):
        raise MalformedHeartbeat(f"its key of {len(key)} bytes ends inside an alias")
    try:
        return key[begin : begin + size].decode(), begin + size
    except UnicodeDecodeError:
        raise MalformedHeartbeat("an alias in its key is not UTF-8") from None
