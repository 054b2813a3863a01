"""The flight recorder's records in ``mm2-flight.A.internal``: what workers decided and met, as it changed. Pure.

Each worker appends what changes: which topics it does not copy and why, and what it logs of the flow. Once an hour it
writes all that it does not copy anew, and every ten seconds that nothing waits to be written. ``mm2py why --at`` reads
them, also those of a worker that has died. Records are kept for a day. MirrorMaker 2 leaves only the logs of its
workers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mm2py.records.standstill import CAUSES_MOST, Cause, cause_of_fields, fields_of_cause

FORMAT_VERSION: Final = 1
TEXT_MOST: Final = 1000
"""How many characters of a log line are kept."""


@dataclass(frozen=True, slots=True)
class RecordedAnew:
    """From here on a worker writes all that it does not copy anew: what it had recorded of that is void."""

    at_ms: int
    """By the worker's clock; so are the times of the other records."""
    member: str
    """Its id in its group."""
    is_start: bool
    """It has just started the flow; else an hour has passed."""


@dataclass(frozen=True, slots=True)
class CausesChanged:
    """Why a worker did not copy a topic, or parts of it, from now on."""

    at_ms: int
    member: str
    topic: str
    """As the source names it; empty: the whole flow."""
    causes: tuple[Cause, ...]
    """Empty: it copied all its partitions of the topic again."""


@dataclass(frozen=True, slots=True)
class LineLogged:
    """What a worker logged of the flow."""

    at_ms: int
    member: str
    level: str
    event: str
    """Its name, as ``target.denied``."""
    topic: str
    """Empty: it names no single topic."""
    partition: int | None
    text: str
    """The other fields in a line."""


@dataclass(frozen=True, slots=True)
class ChangesLost:
    """A worker had more to write than it may, or could write nothing, so something is missing."""

    at_ms: int
    """When it could write again."""
    member: str
    changes: int
    """How many changes of what it does not copy are missing."""
    lines: int
    """How many lines of its log are missing."""
    since_ms: int
    """When the first of them happened."""


@dataclass(frozen=True, slots=True)
class AllWritten:
    """Nothing waited to be written at this moment: what is missing before it has been told."""

    at_ms: int
    member: str


FlightEvent = RecordedAnew | CausesChanged | LineLogged | ChangesLost | AllWritten
_KINDS: Final = {
    RecordedAnew: "anew",
    CausesChanged: "causes",
    LineLogged: "log",
    ChangesLost: "lost",
    AllWritten: "written",
}


class MalformedFlightRecord(ValueError):
    """mm2py writes no such record."""


def encode_flight(event: FlightEvent) -> bytes:
    """Return the value of a record."""
    fields: dict[str, Any] = {"format": FORMAT_VERSION, "kind": _KINDS[type(event)], "at_ms": event.at_ms}
    fields["member"] = event.member
    match event:
        case RecordedAnew():
            fields |= {"is_start": event.is_start}
        case CausesChanged():
            fields |= {"topic": event.topic, "causes": list(map(fields_of_cause, event.causes[:CAUSES_MOST]))}
        case LineLogged():
            fields |= {"level": event.level, "event": event.event, "text": event.text[:TEXT_MOST]}
            fields |= {"topic": event.topic} if event.topic else {}
            fields |= {} if event.partition is None else {"partition": event.partition}
        case ChangesLost():
            fields |= {"changes": event.changes, "lines": event.lines, "since_ms": event.since_ms}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def decode_flight(value: bytes | None) -> FlightEvent | None:
    """Return the event of a record; None: a later mm2py has added its kind, and it may be skipped.

    Raises:
        MalformedFlightRecord: mm2py writes no such record.
    """
    try:
        fields = json.loads(value or b"")
        if not isinstance(fields, dict) or fields.get("format") != FORMAT_VERSION:
            raise MalformedFlightRecord("it is of another format")
        return _event_of(fields)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MalformedFlightRecord(f"not a record of the flight recorder: {str(error)[:100]}") from error


def _event_of(fields: Mapping[str, Any]) -> FlightEvent | None:
    at_ms, member = _count(fields["at_ms"]), _text(fields["member"])
    match fields["kind"]:
        case "anew":
            return RecordedAnew(at_ms, member, fields["is_start"] is True)
        case "causes":
            causes = fields["causes"]
            if not isinstance(causes, list):
                raise TypeError("causes is no list")
            return CausesChanged(
                at_ms, member, _text(fields["topic"]), tuple(map(cause_of_fields, causes[:CAUSES_MOST]))
            )
        case "log":
            partition = fields.get("partition")
            return LineLogged(
                at_ms,
                member,
                _text(fields["level"]),
                _text(fields["event"]),
                _text(fields.get("topic", "")),
                None if partition is None else _count(partition),
                _text(fields["text"]),
            )
        case "lost":
            changes, lines = _count(fields["changes"]), _count(fields["lines"])
            return ChangesLost(at_ms, member, changes, lines, _count(fields["since_ms"]))
        case "written":
            return AllWritten(at_ms, member)
        case _:
            return None


def _count(given: object) -> int:
    if type(given) is not int or given < 0:
        raise TypeError("a number is missing")
    return given


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError("a text is missing")
    return given
