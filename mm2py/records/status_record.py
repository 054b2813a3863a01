"""What mm2py keeps in ``mm2-status.A.internal`` beside Kafka Connect: gaps, commands, answers. Pure.

Connect's keys begin with ``status-connector-`` and ``status-task-``; ours with ``mm2py-``, which Connect passes over
with a line in its log. Values are JSON objects with a format version. A table: the last value of a key counts, and no
value ends it. Fields that we do not know are passed over, so that an older mm2py reads what a younger one wrote; a
record of a younger *format* is reported, not guessed at.
Source: KafkaStatusBackingStore, Apache Kafka, connect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

FORMAT_VERSION: Final = 1
OWN_PREFIX: Final = "mm2py-"
_GAP: Final = "mm2py-gap-"
_COMMAND: Final = "mm2py-command-"
_ANSWER: Final = "mm2py-answer-"


class MalformedStatus(ValueError):
    """A record under one of our keys is not what mm2py writes."""


class GapKind(StrEnum):
    """What became of records, or of the copy, between the position and what can be read now."""

    EXPIRED = "expired"
    """Deleted on the source before they were copied: by retention, or by DeleteRecords."""
    TRUNCATED = "truncated"
    """The source log was cut back below what had been copied, as an unclean election does."""
    RECREATED = "recreated"
    """The source topic was deleted and made anew, or the position is of another cluster."""
    DELETED = "deleted"
    """The source topic is gone, or mm2py may not see it any more."""
    TARGET_DELETED = "target-deleted"
    """The remote topic is gone, or was deleted and made anew."""
    TARGET_TRUNCATED = "target-truncated"
    """The remote partition ends before what was stored in it, as after an unclean election."""
    FOREIGN = "foreign-records"
    """Somebody else has written to the remote partition."""
    REPEATED = "repeated-records"
    """Copies of our own stand in the remote partition of which nothing was known: they may be there twice."""

    @property
    def is_of_target(self) -> bool:
        """Whether ``on.target.loss`` decides, not ``on.source.gap``."""
        return self in {GapKind.TARGET_DELETED, GapKind.TARGET_TRUNCATED}

    @property
    def is_unexpected(self) -> bool:
        """Whether records stand in the remote partition that should not: that stops one that must be exactly-once."""
        return self in {GapKind.FOREIGN, GapKind.REPEATED}

    @property
    def event(self) -> str:
        """The name of its line in the log."""
        if self is GapKind.FOREIGN:
            return "foreign.writer"
        if self is GapKind.REPEATED:
            return "copy.repeated"
        return f"target.{self.removeprefix('target-')}" if self.is_of_target else f"source.{self}"


class Done(StrEnum):
    """What was done about a gap."""

    CONTINUED = "continued"
    RESTARTED = "restarted"
    STOPPED = "stopped"
    """The partition waits for an operator."""
    ACCEPTED = "accepted"
    """An operator let it go on."""
    KEPT = "kept"
    """There is nothing to copy any more; the copy stays as it is."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of one partition that are not in the copy, or no longer in it. Offsets are those of the source."""

    kind: GapKind
    topic: str
    partition: int
    first_offset: int | None
    last_offset: int | None
    """None where nobody can tell."""
    done: Done
    position: int
    """The next source offset when the gap was met: a command must expect it."""
    text: str
    at_ms: int
    topic_id: str | None = None
    """Of the topic that was copied and is not there any more, where a whole topic is not what it was."""

    def is_of_another_topic(self, other: Gap) -> bool:
        """Whether the topic that is gone is not that of another gap under this key, which then is news."""
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
    """An operator's word that a stopped partition may go on, if it still stands at ``expected_position``."""

    command_id: str
    topic: str
    partition: int
    expected_position: int
    at_ms: int
    action: str = "accept"
    """What to do; an owner refuses what it does not know."""

    @property
    def key(self) -> bytes:
        return f"{_COMMAND}{self.command_id}".encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a command, in words."""

    command_id: str
    carried_out: bool
    text: str
    at_ms: int

    @property
    def key(self) -> bytes:
        return f"{_ANSWER}{self.command_id}".encode()


StatusRecord = Gap | Command | Answer


def encode_value(record: StatusRecord) -> bytes:
    """Return the value; the key is the record's ``key``."""
    match record:
        case Gap():
            fields: dict[str, Any] = {
                "kind": record.kind,
                "topic": record.topic,
                "partition": record.partition,
                "first_offset": record.first_offset,
                "last_offset": record.last_offset,
                "done": record.done,
                "position": record.position,
                "text": record.text,
                "at_ms": record.at_ms,
                "topic_id": record.topic_id,
            }
        case Command():
            fields = {
                "id": record.command_id,
                "action": record.action,
                "topic": record.topic,
                "partition": record.partition,
                "expected_position": record.expected_position,
                "at_ms": record.at_ms,
            }
        case Answer():
            fields = {
                "id": record.command_id,
                "carried_out": record.carried_out,
                "text": record.text,
                "at_ms": record.at_ms,
            }
    return json.dumps({"mm2py": FORMAT_VERSION, **fields}, separators=(",", ":"), ensure_ascii=False).encode()


def is_own_key(key: bytes | None) -> bool:
    """Return whether a record is one of ours; Connect's, and anybody else's, are left alone."""
    return key is not None and key.startswith(OWN_PREFIX.encode())


def decode(key: bytes, value: bytes) -> StatusRecord | None:
    """Return what a record under one of our keys says; None for a kind that only younger versions know.

    Raises:
        MalformedStatus: it is not what mm2py writes, or its key is of another record than its value.
    """
    try:
        name = key.decode()
        read = next((read for prefix, read in _READERS.items() if name.startswith(prefix)), None)
        if read is None:
            return None
        fields = json.loads(value)
        if not isinstance(fields, dict):
            raise TypeError("no object")
        version = _int(fields, "mm2py")
        if version > FORMAT_VERSION:
            raise ValueError(f"format {version}; this mm2py knows {FORMAT_VERSION}")
        record = read(fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedStatus(f"key {key[:200]!r}, value {value[:200]!r}: {error}") from error
    if record.key != key:
        raise MalformedStatus(f"key {key[:200]!r} holds the record of {record.key[:200]!r}")
    return record


def _read_gap(fields: Mapping[str, Any]) -> Gap:
    return Gap(
        kind=GapKind(fields["kind"]),
        topic=_text(fields, "topic"),
        partition=_int(fields, "partition"),
        first_offset=_int_or_none(fields, "first_offset"),
        last_offset=_int_or_none(fields, "last_offset"),
        done=Done(fields["done"]),
        position=_int(fields, "position"),
        text=_text(fields, "text"),
        at_ms=_int(fields, "at_ms"),
        topic_id=None if fields.get("topic_id") is None else _text(fields, "topic_id"),
    )


def _read_command(fields: Mapping[str, Any]) -> Command:
    return Command(
        command_id=_text(fields, "id"),
        topic=_text(fields, "topic"),
        partition=_int(fields, "partition"),
        expected_position=_int(fields, "expected_position"),
        at_ms=_int(fields, "at_ms"),
        action=_text(fields, "action"),
    )


def _read_answer(fields: Mapping[str, Any]) -> Answer:
    if not isinstance(fields["carried_out"], bool):
        raise TypeError("carried_out is neither true nor false")
    return Answer(_text(fields, "id"), fields["carried_out"], _text(fields, "text"), _int(fields, "at_ms"))


_READERS: Final[dict[str, Callable[[Mapping[str, Any]], StatusRecord]]] = {
    _GAP: _read_gap,
    _COMMAND: _read_command,
    _ANSWER: _read_answer,
}


def _int(fields: Mapping[str, Any], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is no integer")
    return value


def _int_or_none(fields: Mapping[str, Any], name: str) -> int | None:
    return None if fields[name] is None else _int(fields, name)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value
