"""Writes and reads control records: one JSON object each, in a layout that later versions can read. Pure.

Every kind keeps these fields for ever: ``format`` (the version of the layout), ``kind``, ``member``, ``version`` (of
the mm2py that wrote it) and ``skippable``: whether a reader that does not know this kind in this format may skip it. A
skipped record still shows that its member is alive. Unknown fields are ignored, so a new field that every reader may
ignore needs no new format. A worker that reads a record it may not skip has to stop, because the other workers act on
it.

All versions read older formats: while workers are updated one by one, and for days after, the log has both.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from mm2py import __version__
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import Flow, parse_flow
from mm2py.records.control_record import (
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Evicted,
    Fenced,
    Joined,
    Left,
    Listed,
    Loads,
    MemberId,
    NotStarted,
    Released,
    Resigned,
    Skipped,
    Snapshot,
    TaskName,
    TopicClaim,
    Writer,
    Writes,
    pack,
    unpack,
)
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse
from mm2py.records.safe_point import SafePoint

FORMAT_VERSION: Final = 1
"""The format that is written. If a later one changes the layout of a kind, readers distinguish them by ``format``."""
_FIRST_FORMAT: Final = 1
_SKIPPABLE: Final = (Beat, Loads, Snapshot)
"""A reader reaches the same decisions without these. A snapshot's state itself says which version can read it."""

Fields = dict[str, Any]
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ConfigError)
"""The errors of reading fields that mm2py did not write."""
RecordT = TypeVar("RecordT")


class MalformedControlRecord(Mm2Error):
    """A record of the control log that no version of mm2py writes."""

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(
            f"At {where} is no control record: {detail}.",
            remedy="It is passed over. Only mm2py writes there: find out who else does, and withdraw the right.",
        )


class NewerFormat(Mm2Error):
    """A record that must not be skipped, in a layout that this version does not know."""

    def __init__(self, kind: str, needs_version: str) -> None:
        super().__init__(
            f"The workers' control log holds a record {kind!r} that this version of mm2py ({__version__}) does not know"
            " and may not ignore.",
            remedy=f"Update this worker to mm2py {needs_version} or later.",
        )
        self.kind = kind
        self.needs_version = needs_version


def encode(record: ControlRecord) -> bytes:
    kind = type(record)
    if isinstance(record, Skipped):
        raise TypeError("what was passed over cannot be written")
    fields = {
        "format": FORMAT_VERSION,
        "kind": kind.__name__,
        "skippable": kind in _SKIPPABLE,
        "version": __version__,
        "member": record.member,
        **fields_of(record),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes | None, *, where: str) -> ControlRecord:
    """Return the record; ``Skipped`` for an unknown one that may be skipped.

    Args:
        where: topic and offset, for errors.
    Raises:
        MalformedControlRecord: a foreign writer's record; every reader skips it.
        NewerFormat: this worker must stop.
    """
    try:
        fields = json.loads(data or b"")
        layout, kind, member = _count(fields["format"]), _text(fields["kind"]), MemberId(_name(fields["member"]))
        if layout < _FIRST_FORMAT:
            raise ValueError(f"its format is {layout}")
        if layout > FORMAT_VERSION or kind not in _KINDS:
            needs = _text(fields["version"])
            if fields["skippable"] is True:
                return Skipped(member, kind, needs)
            raise NewerFormat(kind, needs)
        return read_fields(_KINDS[kind], member, fields)
    except UNREADABLE as error:
        raise MalformedControlRecord(where, f"{type(error).__name__}: {error}"[:200]) from error


def fields_of(record: ControlRecord) -> Fields:
    """Return the fields of a record without its member. Optional fields that are empty are left out."""
    values = {name: getattr(record, name) for name in _LAYOUT[type(record)]}
    optional = _OPTIONAL[type(record)]
    fields = {
        name: write(values[name])
        for name, (write, _) in _LAYOUT[type(record)].items()
        if values[name] or name not in optional
    }
    if isinstance(record, Listed) and record.claims:
        fields["claims"] = topic_claim_fields(record.claims, record.partitions)
    return fields


def read_fields(kind: type[RecordT], member: MemberId, fields: Fields) -> RecordT:
    """Return the record that has these fields. Raises: one of ``UNREADABLE``."""
    values: dict[str, Any] = {}
    for name, (_, read) in _LAYOUT[kind].items():
        if name in fields or name not in _OPTIONAL[kind]:
            values[name] = read(fields[name])
    if kind is Listed:
        values["claims"] = read_topic_claims(fields.get("claims", []), values["partitions"])
    if values.get("part", 0) >= values.get("parts", 1):
        raise ValueError(f"it is part {values.get('part')} of {values.get('parts')}")
    make: Callable[..., RecordT] = kind
    return make(member, **values)


def topic_claim_fields(claims: Mapping[str, TopicClaim], listed: Collection[str]) -> list[Any]:
    """Return each distinct claim with its topics. If all of ``listed`` have a claim, the most frequent one comes last,
    without topics."""
    topics: dict[TopicClaim, list[str]] = {}
    for topic, claim in sorted(claims.items()):
        topics.setdefault(claim, []).append(topic)
    kinds = sorted(topics, key=lambda claim: (len(topics[claim]), claim))
    rest = kinds[-1] if kinds and claims.keys() == set(listed) else None
    return [[*claim, None if claim == rest else topics[claim]] for claim in kinds]


def read_topic_claims(fields: Any, listed: Iterable[str]) -> dict[str, TopicClaim]:
    """Return claims by topic; topics of ``listed`` without a claim of their own have the one without topics."""
    claims: dict[str, TopicClaim] = {}
    rest: TopicClaim | None = None
    for prefix, mixes, topics in fields:
        claim = TopicClaim(_text(prefix), _flag(mixes))
        if topics is None:
            rest = claim
        else:
            claims.update(dict.fromkeys(topics, claim))
    return claims if rest is None else {**dict.fromkeys(listed, rest), **claims}


def writer_fields(writer: Writer) -> list[Any]:
    return [str(writer.flow), writer.transactional_id, writer.producer_id, writer.epoch]


def read_writer(fields: Any) -> Writer:
    flow, transactional_id, producer_id, epoch = fields
    if not isinstance(transactional_id, str | None):
        raise TypeError("a transactional id is no text")
    return Writer(parse_flow(flow), transactional_id, _whole(producer_id), _whole(epoch))


def by_flow(numbers: Mapping[Flow, int]) -> dict[str, int]:
    return {str(flow): number for flow, number in numbers.items()}


def read_by_flow(fields: Any) -> dict[Flow, int]:
    return {parse_flow(flow): _whole(number) for flow, number in fields.items()}


def _owner_fields(owners: Mapping[TaskName, MemberId]) -> Fields:
    members = sorted(set(owners.values()))
    numbers = {member: number for number, member in enumerate(members)}
    return {"members": members, "tasks": pack({task: numbers[member] for task, member in owners.items()})}


def _read_owners(fields: Any) -> dict[TaskName, MemberId]:
    members = [MemberId(_text(name)) for name in fields["members"]]
    return {task: members[number] for task, number in unpack(fields["tasks"]).items()}


def _waits_fields(waits: FlowWaits) -> Fields:
    """Return the fields that are not 0 or empty, by name: a reader ignores those that it does not know."""
    values = {one.name: getattr(waits, one.name) for one in dataclasses.fields(FlowWaits)}
    return {name: dict(value) if name == "waits" else value for name, value in values.items() if value}


def _read_waits(fields: Any) -> FlowWaits:
    read: dict[str, Callable[[Any], Any]] = {
        "waits": lambda waits: {_text(word): _count(percent) for word, percent in waits.items()},
        "rebuilds": _text,
    }
    names = [one.name for one in dataclasses.fields(FlowWaits) if one.name in fields]
    return FlowWaits(**{name: read.get(name, _count)(fields[name]) for name in names})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _name(value: object) -> str:
    if not _text(value):
        raise ValueError("a name is empty")
    return str(value)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no whole number")
    return value


def _count(value: object) -> int:
    if (number := _whole(value)) < 0:
        raise ValueError(f"{number} is below 0")
    return number


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def _same(value: Any) -> Any:
    return value


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _by_number(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda fields: {int(number): read(value) for number, value in fields.items()}


Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""Two functions, which write and read a field."""
_TEXT: Final[Codec] = _same, _text
_NAME: Final[Codec] = _same, _name
_COUNT: Final[Codec] = _same, _count
_TEXT_OR_NONE: Final[Codec] = _same, _or_none(_text)
_FLOW: Final[Codec] = str, lambda value: parse_flow(_text(value))
_FLOWS: Final[Codec] = lambda flows: [str(flow) for flow in flows], lambda fields: tuple(map(parse_flow, fields))
_BY_FLOW: Final[Codec] = by_flow, read_by_flow
_COUNTS: Final[Codec] = dict, lambda fields: {_text(topic): _count(number) for topic, number in fields.items()}
_TEXTS: Final[Codec] = dict, lambda fields: {_text(name): _text(text) for name, text in fields.items()}
_RATES: Final[Codec] = (
    lambda rates: pack({task: round(rate) for task, rate in rates.items()}),
    lambda fields: {task: float(rate) for task, rate in unpack(fields).items()},
)
_LINKS: Final[Codec] = (
    lambda links: {
        str(flow): [one.connections, one.bytes_per_s, one.percent, one.limit] for flow, one in links.items()
    },
    lambda fields: {
        parse_flow(flow): LinkUse(_count(connections), _count(rate), _count(percent), _text(limit))
        for flow, (connections, rate, percent, limit) in fields.items()
    },
)
_TEXT_BY_FLOW: Final[Codec] = by_flow, lambda fields: {parse_flow(name): _text(why) for name, why in fields.items()}
_NOT_STARTED: Final[Codec] = (
    lambda flows: {str(flow): [one.since_ms, one.reason, one.why] for flow, one in flows.items()},
    lambda fields: {
        parse_flow(flow): NotStarted(_count(since_ms), _text(reason), _text(why))
        for flow, (since_ms, reason, why) in fields.items()
    },
)
_SAFE: Final[Codec] = (
    lambda flows: {str(flow): [one.at_ms, one.oldest, one.left_out, one.seen] for flow, one in flows.items()},
    lambda fields: {
        parse_flow(flow): SafePoint(_or_none(_count)(at_ms), _text(oldest), _count(left_out), _count(seen))
        for flow, (at_ms, oldest, left_out, seen) in fields.items()
    },
)
_WAITS: Final[Codec] = (
    lambda flows: {str(flow): _waits_fields(one) for flow, one in flows.items()},
    lambda fields: {parse_flow(flow): _read_waits(one) for flow, one in fields.items()},
)
_PART: Final[dict[str, Codec]] = {"part": _COUNT, "parts": _COUNT}
_LAYOUT: Final[dict[type, dict[str, Codec]]] = {
    Joined: {
        "name": _TEXT,
        "runs": _TEXT,
        "url": _TEXT,
        "flows": _FLOWS,
        "heartbeats": _FLOWS,
        "tasks_max": _BY_FLOW,
        "cluster_id": _TEXT_OR_NONE,
        "election": _TEXT,
        "session_timeout_ms": _COUNT,
        "checkpoints": _FLOWS,
        "refused": _TEXTS,
        "core": _TEXT,
    },
    Beat: {
        "applied": _BY_FLOW,
        "held": _BY_FLOW,
        "links": _LINKS,
        "troubles": _TEXT_BY_FLOW,
        "not_started": _NOT_STARTED,
        "safe": _SAFE,
        "waits": _WAITS,
    },
    Loads: {"bytes_per_s": _RATES},
    Writes: {"writer": (writer_fields, read_writer)},
    Listed: {"flow": _FLOW, "partitions": _COUNTS, "widths": _COUNTS, "source_cluster": _TEXT_OR_NONE},
    Claim: {"leader_epoch": _COUNT, "claim_id": _TEXT, "evidence": _TEXT},
    Resigned: {"leader_epoch": _COUNT},
    Assigned: {"leader_epoch": _COUNT, "generation": _COUNT, "owners": (_owner_fields, _read_owners), **_PART},
    Released: {
        "generation": _COUNT,
        "tasks": (lambda tasks: pack(dict.fromkeys(tasks, 0)), lambda fields: frozenset(unpack(fields))),
    },
    Evicted: {"leader_epoch": _COUNT, "dead": _NAME},
    Fenced: {
        "leader_epoch": _COUNT,
        "of": (_same, _or_none(_name)),
        "epochs": (dict, _by_number(_whole)),
        "unfenced": (dict, _by_number(_text)),
    },
    Left: {"outcome_unknown": (_same, _flag)},
    Snapshot: {"leader_epoch": _COUNT, "covers": _COUNT, "snapshot_id": _TEXT, "state": _TEXT, **_PART},
}
"""By kind and field. ``Listed.claims`` are not here: reading them needs the listed topics."""
_KINDS: Final = {kind.__name__: kind for kind in _LAYOUT}
_OPTIONAL: Final = {
    kind: frozenset(one.name for one in dataclasses.fields(kind) if one.default is not one.default_factory)
    for kind in _LAYOUT
}
"""The fields that have a default. For fields without one, both attributes are ``MISSING``."""
