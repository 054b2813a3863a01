"""mm2py's own records in ``mm2-status.A.internal``, Kafka Connect's topic: gaps, commands, answers, standstills. Pure.

Connect's keys begin with ``status-connector-`` and ``status-task-``, ours with ``mm2py-``. Connect skips ours with a
line in its log. A value is a JSON object: a format version, and the fields of the dataclass. The last value of a key
counts; a null value deletes it. Unknown fields are ignored, so an older mm2py reads what a newer one wrote. A record
of a newer *format* is reported.
Source: KafkaStatusBackingStore, Apache Kafka, connect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Literal, get_args, get_type_hints

from mm2py.records import standstill
from mm2py.records.standstill import Standstill, fields_of, read_standstill

FORMAT_VERSION: Final = 1
OWN_PREFIX: Final = "mm2py-"
_GAP: Final = "mm2py-gap-"
_COMMAND: Final = "mm2py-command-"
_ANSWER: Final = "mm2py-answer-"


class MalformedGapRecord(ValueError):
    """A record under one of our keys is not what mm2py writes."""


class GapKind(StrEnum):
    """What happened to source records, or to their copies."""

    EXPIRED = "expired"
    """The source deleted records before they were copied: by retention, or by DeleteRecords."""
    TRUNCATED = "truncated"
    """The source log was truncated below records that had been copied, for example by an unclean election."""
    RECREATED = "recreated"
    """The source topic was deleted and recreated, or the position belongs to another cluster."""
    DELETED = "deleted"
    """The source topic is gone, or no longer visible to mm2py."""
    TARGET_DELETED = "target-deleted"
    """The remote topic is gone, or was deleted and recreated."""
    TARGET_TRUNCATED = "target-truncated"
    """The remote partition ends before records that were stored in it, for example after an unclean election."""
    FOREIGN = "foreign-records"
    """A foreign writer has written to the remote partition."""
    REPEATED = "repeated-records"
    """The remote partition has unknown copies of our own: records may be there twice."""
    TRANSFORMS = "transforms-changed"
    """The previous owner copied behind its position with other transforms, so what it copied cannot be counted."""

    @property
    def is_of_target(self) -> bool:
        """Whether ``on.target.loss`` decides what happens, instead of ``on.source.gap``."""
        return self in {GapKind.TARGET_DELETED, GapKind.TARGET_TRUNCATED}

    @property
    def is_unexpected(self) -> bool:
        """Whether the remote partition has unexpected records, which stop a partition that must be exactly-once."""
        return self in {GapKind.FOREIGN, GapKind.REPEATED}

    @property
    def event(self) -> str:
        """The name of its log event."""
        if self is GapKind.FOREIGN:
            return "foreign.writer"
        if self is GapKind.REPEATED:
            return "copy.repeated"
        if self is GapKind.TRANSFORMS:
            return "transforms.changed"
        return f"target.{self.removeprefix('target-')}" if self.is_of_target else f"source.{self}"


SourcePolicy = Literal["stop", "continue", "restart"]
"""The values of ``on.source.gap``."""
TargetPolicy = Literal["stop", "recopy"]
"""The values of ``on.target.loss``."""


class Done(StrEnum):
    """What was done about a gap."""

    CONTINUED = "continued"
    RESTARTED = "restarted"
    STOPPED = "stopped"
    """The partition waits for an operator."""
    ACCEPTED = "accepted"
    """An operator let the partition continue."""
    KEPT = "kept"
    """There is nothing more to copy. The copy is kept unchanged."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of one partition that are not in the copy, or no longer in it. Offsets are those of the source."""

    kind: GapKind
    topic: str
    """As the source names it."""
    partition: int
    """Of the topic."""
    first_offset: int | None
    """None if unknown."""
    last_offset: int | None
    """None if unknown."""
    done: Done
    position: int
    """The next source offset when the gap was found. A command must name it."""
    text: str
    """What has happened, in words."""
    at_ms: int
    """When it was found, by the worker's clock."""
    topic_id: str | None = None
    """The id of the topic that was copied, if a whole topic was deleted or recreated."""

    def is_of_another_topic(self, other: Gap) -> bool:
        """Whether the lost topic differs from that of another gap with the same key. Then this gap is new."""
        return None not in {self.topic_id, other.topic_id} and self.topic_id != other.topic_id

    @property
    def is_open(self) -> bool:
        """It waits for an operator."""
        return self.done is Done.STOPPED

    @property
    def key(self) -> bytes:
        # One key for each gap. The topic comes last: it may hold any of the other parts.
        return f"{_GAP}{self.kind}-{self.partition}-{self.position}-{self.topic}".encode()


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's command that a stopped partition may continue if its position is still ``expected_position``."""

    command_id: str
    topic: str
    partition: int
    expected_position: int
    at_ms: int
    action: str = "accept"
    """What to do. The owner refuses an unknown action."""

    @property
    def key(self) -> bytes:
        return f"{_COMMAND}{self.command_id}".encode()


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The result of a command, in words."""

    command_id: str
    carried_out: bool
    text: str
    at_ms: int

    @property
    def key(self) -> bytes:
        return f"{_ANSWER}{self.command_id}".encode()


GapLogRecord = Gap | Command | CommandAnswer | Standstill


def encode_value(record: GapLogRecord) -> bytes:
    """Return the value; the key is the record's ``key``."""
    fields = {"mm2py": FORMAT_VERSION, **(fields_of(record) if isinstance(record, Standstill) else asdict(record))}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def is_own_key(key: bytes | None) -> bool:
    """Return whether a record is one of mm2py's. All other records are ignored."""
    return key is not None and key.startswith(OWN_PREFIX.encode())


def decode(key: bytes, value: bytes) -> GapLogRecord | None:
    """Return the record under one of our keys; None for a kind that only newer versions know.

    Raises:
        MalformedGapRecord: mm2py does not write such a record, or its key belongs to another one.
    """
    try:
        name = key.decode()
        kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), None)
        if kind is None:
            return None
        fields = json.loads(value)
        if not isinstance(fields, dict):
            raise TypeError("no object")
        if fields["mm2py"] > FORMAT_VERSION:
            raise ValueError(f"format {fields['mm2py']}; this mm2py knows {FORMAT_VERSION}")
        record = _read(kind, fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedGapRecord(f"key {key[:200]!r}, value {value[:200]!r}: {error}") from error
    if record.key != key:
        raise MalformedGapRecord(f"key {key[:200]!r} holds the record of {record.key[:200]!r}")
    return record


def _read(kind: type[GapLogRecord], fields: Mapping[str, Any]) -> GapLogRecord:
    if kind is Standstill:
        return read_standstill(fields)
    return kind(**{name: _typed(name, expected, fields.get(name)) for name, expected in get_type_hints(kind).items()})


def _typed(name: str, expected: Any, value: Any) -> Any:
    if isinstance(expected, type) and issubclass(expected, StrEnum):
        return expected(value)
    if type(value) not in (get_args(expected) or (expected,)):
        raise TypeError(f"{name} is {value!r}")
    return value


_KINDS: Final[dict[str, type[GapLogRecord]]] = {
    _GAP: Gap,
    _COMMAND: Command,
    _ANSWER: CommandAnswer,
    standstill.KEY: Standstill,
}
