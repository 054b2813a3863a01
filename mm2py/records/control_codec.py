"""The bytes of control records: one JSON object each, laid out here for all versions to come. Pure.

Some fields are for ever, in every kind: ``format`` (the layout's version), ``kind``, ``skippable`` (whether a reader
that does not know this kind in this format may pass it over), ``member``, for what is passed over is a sign of life
still, and ``version``, of the mm2py that wrote it. Fields that are not known are ignored, so a new field needs no new
format as long as all may ignore it. Who meets a record that it may not skip must not go on: others act upon it.

Older formats are read for ever: while workers are updated one by one the log holds records of both, and for days after.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from mm2py import __version__
from mm2py.connector import Flow, parse_flow
from mm2py.errors import ConfigError, Mm2Error
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
    Released,
    Resigned,
    Skipped,
    Snapshot,
    TopicClaim,
    Writer,
    Writes,
    pack,
    unpack,
)

FORMAT_VERSION: Final = 1
"""What is written. Where a higher one lays a kind out anew, the reader of that kind tells them apart by ``format``."""
_FIRST_FORMAT: Final = 1
_SKIPPABLE: Final = (Beat, Loads, Snapshot)
"""Without these a reader judges no differently. A snapshot's state says by itself who can read it."""

Fields = dict[str, Any]


class MalformedControlRecord(Mm2Error):
    """What stands there is no record of a control log, in any version."""

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(
            f"At {where} is no control record: {detail}.",
            remedy="It is passed over. Only mm2py writes there: find out who else does, and withdraw the right.",
        )


class NewerFormat(Mm2Error):
    """A record that must not be passed over, in a layout that is not known here."""

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
        **_WRITE[kind](record),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes | None, *, where: str) -> ControlRecord:
    """Return the record; ``Skipped`` for one that is not known and may be passed over.

    Args:
        where: topic and offset, for whoever reads the error.
    Raises:
        MalformedControlRecord: a foreign writer's; every reader passes it over.
        NewerFormat: this worker must not go on.
    """
    try:
        fields = json.loads(data or b"")
        layout, kind, member = _count(fields, "format"), _text(fields, "kind"), MemberId(_name(fields, "member"))
        known = _READ.get(kind)
        if layout < _FIRST_FORMAT:
            raise ValueError(f"its format is {layout}")
        if layout > FORMAT_VERSION or known is None:
            needs = _text(fields, "version")
            if fields["skippable"] is True:
                return Skipped(member, kind, needs)
            raise NewerFormat(kind, needs)
        return known(member, fields)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ConfigError) as error:
        raise MalformedControlRecord(where, f"{type(error).__name__}: {error}"[:200]) from error


def joined_fields(joined: Joined) -> Fields:
    return {
        "name": joined.name,
        "runs": joined.version,
        "url": joined.url,
        "flows": [str(flow) for flow in joined.flows],
        "heartbeats": [str(flow) for flow in joined.heartbeats],
        "checkpoints": [str(flow) for flow in joined.checkpoints],
        "tasks_max": by_flow(joined.tasks_max),
        "cluster_id": joined.cluster_id,
        "election": joined.election,
        "session_timeout_ms": joined.session_timeout_ms,
    }


def read_joined(member: MemberId, fields: Fields) -> Joined:
    return Joined(
        member,
        name=_text(fields, "name"),
        version=_text(fields, "runs"),
        url=_text(fields, "url"),
        flows=tuple(map(parse_flow, fields["flows"])),
        heartbeats=tuple(map(parse_flow, fields["heartbeats"])),
        tasks_max=read_by_flow(fields["tasks_max"]),
        cluster_id=None if fields["cluster_id"] is None else _text(fields, "cluster_id"),
        election=_text(fields, "election"),
        session_timeout_ms=_count(fields, "session_timeout_ms"),
        checkpoints=tuple(map(parse_flow, fields.get("checkpoints", ()))),
    )


def topic_claim_fields(claims: Mapping[str, TopicClaim], listed: Collection[str]) -> list[Any]:
    """Return kinds of claims with their topics. Where all of ``listed`` have one, the kind that most have stands last,
    without them."""
    topics: dict[TopicClaim, list[str]] = {}
    for topic, claim in sorted(claims.items()):
        topics.setdefault(claim, []).append(topic)
    kinds = sorted(topics, key=lambda claim: (len(topics[claim]), claim))
    rest = kinds[-1] if kinds and claims.keys() == set(listed) else None
    return [[*claim, None if claim == rest else topics[claim]] for claim in kinds]


def read_topic_claims(fields: Any, listed: Iterable[str]) -> dict[str, TopicClaim]:
    """Return claims by topic; those of ``listed`` that no kind names have the last one."""
    claims: dict[str, TopicClaim] = {}
    rest: TopicClaim | None = None
    for prefix, mixes, topics in fields:
        claim = TopicClaim(_text({"prefix": prefix}, "prefix"), _flag({"mixes": mixes}, "mixes"))
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


def assigned_fields(ownership: Assigned) -> Fields:
    members = sorted(set(ownership.owners.values()))
    numbers = {member: number for number, member in enumerate(members)}
    return {
        "leader_epoch": ownership.leader_epoch,
        "generation": ownership.generation,
        "members": members,
        "owners": pack({share: numbers[member] for share, member in ownership.owners.items()}),
        "part": ownership.part,
        "parts": ownership.parts,
    }


def read_assigned(member: MemberId, fields: Fields) -> Assigned:
    members = [MemberId(_text({"member": name}, "member")) for name in fields["members"]]
    part, parts = _part(fields)
    owners = {share: members[number] for share, number in unpack(fields["owners"]).items()}
    return Assigned(member, _count(fields, "leader_epoch"), _count(fields, "generation"), owners, part, parts)


def _beat_fields(beat: Beat) -> Fields:
    return {"applied": by_flow(beat.applied)} if beat.applied else {}


def _loads_fields(loads: Loads) -> Fields:
    return {"bytes_per_s": pack({share: round(load) for share, load in loads.bytes_per_s.items()})}


def _listed_fields(listed: Listed) -> Fields:
    fields: Fields = {"flow": str(listed.flow), "partitions": dict(listed.partitions)}
    if listed.widths:
        fields["widths"] = dict(listed.widths)
    if listed.source_cluster is not None:
        fields["source_cluster"] = listed.source_cluster
    if listed.claims:
        fields["claims"] = topic_claim_fields(listed.claims, listed.partitions)
    return fields


def _read_listed(member: MemberId, fields: Fields) -> Listed:
    partitions = {topic: _count(fields["partitions"], topic) for topic in fields["partitions"]}
    widths = fields.get("widths", {})
    return Listed(
        member,
        parse_flow(_text(fields, "flow")),
        partitions,
        {topic: _count(widths, topic) for topic in widths},
        None if fields.get("source_cluster") is None else _text(fields, "source_cluster"),
        read_topic_claims(fields.get("claims", []), partitions),
    )


def _claim_fields(claim: Claim) -> Fields:
    return {"leader_epoch": claim.leader_epoch, "claim_id": claim.claim_id, "evidence": claim.evidence}


def _read_claim(member: MemberId, fields: Fields) -> Claim:
    return Claim(member, _count(fields, "leader_epoch"), _text(fields, "claim_id"), _text(fields, "evidence"))


def _released_fields(released: Released) -> Fields:
    return {"generation": released.generation, "tasks": pack(dict.fromkeys(released.tasks, 0))}


def _read_released(member: MemberId, fields: Fields) -> Released:
    return Released(member, _count(fields, "generation"), frozenset(unpack(fields["tasks"])))


def _evicted_fields(evicted: Evicted) -> Fields:
    return {"leader_epoch": evicted.leader_epoch, "dead": evicted.dead}


def _fenced_fields(fenced: Fenced) -> Fields:
    return {
        "leader_epoch": fenced.leader_epoch,
        "of": fenced.of,
        "epochs": {str(producer_id): epoch for producer_id, epoch in fenced.epochs.items()},
        "unfenced": {str(producer_id): why for producer_id, why in fenced.unfenced.items()},
    }


def _read_fenced(member: MemberId, fields: Fields) -> Fenced:
    of = None if fields["of"] is None else MemberId(_name(fields, "of"))
    epochs = {int(producer_id): _whole(epoch) for producer_id, epoch in fields["epochs"].items()}
    unfenced = {int(producer_id): _text(fields["unfenced"], producer_id) for producer_id in fields["unfenced"]}
    return Fenced(member, _count(fields, "leader_epoch"), of, epochs, unfenced)


def _snapshot_fields(snapshot: Snapshot) -> Fields:
    names = ("leader_epoch", "covers", "snapshot_id", "state", "part", "parts")
    return {name: getattr(snapshot, name) for name in names}


def _read_snapshot(member: MemberId, fields: Fields) -> Snapshot:
    part, parts = _part(fields)
    leader_epoch, covers = _count(fields, "leader_epoch"), _count(fields, "covers")
    return Snapshot(member, leader_epoch, covers, _text(fields, "snapshot_id"), _text(fields, "state"), part, parts)


_WRITE: Final[dict[type, Callable[[Any], Fields]]] = {
    Joined: joined_fields,
    Beat: _beat_fields,
    Loads: _loads_fields,
    Writes: lambda writes: {"writer": writer_fields(writes.writer)},
    Listed: _listed_fields,
    Claim: _claim_fields,
    Resigned: lambda resigned: {"leader_epoch": resigned.leader_epoch},
    Assigned: assigned_fields,
    Released: _released_fields,
    Evicted: _evicted_fields,
    Fenced: _fenced_fields,
    Left: lambda left: {"in_doubt": left.in_doubt},
    Snapshot: _snapshot_fields,
}
_READ: Final[dict[str, Callable[[MemberId, Fields], ControlRecord]]] = {
    "Joined": read_joined,
    "Beat": lambda member, fields: Beat(member, read_by_flow(fields.get("applied", {}))),
    "Loads": lambda member, fields: Loads(member, {s: float(n) for s, n in unpack(fields["bytes_per_s"]).items()}),
    "Writes": lambda member, fields: Writes(member, read_writer(fields["writer"])),
    "Listed": _read_listed,
    "Claim": _read_claim,
    "Resigned": lambda member, fields: Resigned(member, _count(fields, "leader_epoch")),
    "Assigned": read_assigned,
    "Released": _read_released,
    "Evicted": lambda member, fields: Evicted(member, _count(fields, "leader_epoch"), MemberId(_name(fields, "dead"))),
    "Fenced": _read_fenced,
    "Left": lambda member, fields: Left(member, _flag(fields, "in_doubt")),
    "Snapshot": _read_snapshot,
}


def _text(fields: Fields, name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def _name(fields: Fields, name: str) -> str:
    if not (value := _text(fields, name)):
        raise ValueError(f"{name} is empty")
    return value


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no whole number")
    return value


def _count(fields: Fields, name: str) -> int:
    if (value := _whole(fields[name])) < 0:
        raise ValueError(f"{name} is below 0")
    return value


def _part(fields: Fields) -> tuple[int, int]:
    part, parts = _count(fields, "part"), _count(fields, "parts")
    if part >= parts:
        raise ValueError(f"it is part {part} of {parts}")
    return part, parts


def _flag(fields: Fields, name: str) -> bool:
    if not isinstance(value := fields[name], bool):
        raise TypeError(f"{name} is neither true nor false")
    return value
