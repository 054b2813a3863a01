"""The state of a group as JSON, for the snapshots in the control log. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mm2py import __version__
from mm2py.flow import parse_flow
from mm2py.group.membership import GroupState, KnownMember
from mm2py.group.revocations import Revocations
from mm2py.group.topic_claims import TopicClaims
from mm2py.records.control_codec import (
    FORMAT_VERSION,
    UNREADABLE,
    Codec,
    MalformedControlRecord,
    NewerFormat,
    by_flow,
    fields_of,
    read_by_flow,
    read_fields,
    read_topic_claims,
    read_writer,
    topic_claim_fields,
    writer_fields,
)
from mm2py.records.control_record import Assigned, Beat, Joined, MemberId, Writer, pack, unpack


def snapshot_text(state: GroupState) -> str:
    """Return the whole state as JSON. A reader that loads this, and then reads the log from ``next_offset``, comes to
    the same state as every other reader."""
    places = {name: place for place, name in enumerate(state.members)}
    fields: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "version": __version__,
        "members": [[name, *_member_fields(state, member, places)] for name, member in state.members.items()],
        "owners": state.revocations.to_json(),
        "topic_claims": {
            str(flow): topic_claim_fields(claims, state.topics.get(flow, ()))
            for flow, claims in state.topic_claims.by_flow.items()
        },
        "parts": [[part.member, fields_of(part)] for _, part in sorted(state.parts.items())],
        "problems": [
            [name, told]
            for name, one in state.members.items()
            if (told := fields_of(Beat(name, **{field: getattr(one, field) for field in _TOLD})))
        ],
        "moved_at": state.moved_at,
    }
    fields |= {name: write(getattr(state, name)) for name, (write, _) in _LAYOUT.items()}
    return json.dumps(fields, separators=(",", ":"))


def read_snapshot(text: str, *, where: str = "a snapshot") -> GroupState:
    """Return the state that was written. The counters of changes restart.

    Raises:
        NewerFormat: a newer mm2py wrote it.
        MalformedControlRecord: no ``snapshot_text`` wrote it.
    """
    found = GroupState()
    try:
        fields = json.loads(text)
        if fields["format"] > FORMAT_VERSION:
            raise NewerFormat("Snapshot", fields["version"])
        _read(found, fields)
    except UNREADABLE as error:
        raise MalformedControlRecord(where, f"{type(error).__name__}: {error}"[:200]) from error
    return found


def _member_fields(state: GroupState, member: KnownMember, places: dict[MemberId, int]) -> list[Any]:
    heard = sorted((places[name], state.log_time_ms - first_ms) for name, first_ms in member.heard.items())
    return [
        fields_of(member.joined),
        member.last_offset,
        member.last_time_ms,
        by_flow(member.applied),
        [writer_fields(writer) for writer in member.writers.values()],
        [number for pair in heard for number in pair],
        member.expired,
        member.outages,
    ]


def _read(state: GroupState, fields: dict[str, Any]) -> None:
    for name, (_, read) in _LAYOUT.items():
        setattr(state, name, read(fields[name]))
    names = [MemberId(each[0]) for each in fields["members"]]
    for name, joined, offset, time_ms, applied, writers, heard, silent, outages in fields["members"]:
        heard_ms = {names[at]: state.log_time_ms - ago for at, ago in zip(heard[::2], heard[1::2], strict=True)}
        known = read_fields(Joined, name, joined), offset, time_ms, read_by_flow(applied), _writers(writers)
        state.members[name] = KnownMember(*known, heard_ms, silent, outages)
    for name, told in fields.get("problems", ()):  # earlier versions have none
        beat, member = read_fields(Beat, name, told), state.members[name]
        for field in _TOLD:
            setattr(member, field, getattr(beat, field))
    state.moved_at = fields.get("moved_at", state.next_offset)
    state.index_flows()
    state.revocations = Revocations.from_json(fields["owners"])
    claims = {parse_flow(flow): kinds for flow, kinds in fields["topic_claims"].items()}
    state.topic_claims = TopicClaims.of(
        {flow: read_topic_claims(kinds, state.topics.get(flow, ())) for flow, kinds in claims.items()}
    )
    parts = [read_fields(Assigned, member, part) for member, part in fields["parts"]]
    state.parts = {part.part: part for part in parts}


def _writers(fields: Any) -> dict[int, Writer]:
    writers = [read_writer(each) for each in fields]
    return {writer.producer_id: writer for writer in writers}


def _same(value: Any) -> Any:
    return value


def _pairs(items: Mapping[Any, Any]) -> list[Any]:
    return list(items.items())


_PLAIN: Final[Codec] = _same, _same
_TOLD: Final = ("troubles", "not_started", "safe", "waits")
"""What of a member's last heartbeat a snapshot contains."""


_BY_FLOW: Final[Codec] = (
    lambda values: {str(flow): value for flow, value in values.items()},
    lambda fields: {parse_flow(flow): value for flow, value in fields.items()},
)


_LAYOUT: Final[dict[str, Codec]] = {
    **dict.fromkeys(["log_time_ms", "append_time_ms", "next_offset", "snapshot_ms"], _PLAIN),
    **dict.fromkeys(["leader", "leader_epoch", "claim_id", "generation"], _PLAIN),
    **dict.fromkeys(["topics", "sources", "widths"], _BY_FLOW),
    "loads": (pack, unpack),
    "to_fence": (
        lambda members: [[name, [*map(writer_fields, writers.values())]] for name, writers in members.items()],
        lambda fields: {name: _writers(writers) for name, writers in fields},
    ),
    "gone": (_pairs, dict),
    "drained": (list, dict.fromkeys),
    "retired": (
        lambda retired: [[*writer_fields(writer), since_ms] for writer, since_ms in retired.values()],
        lambda fields: {
            writer.producer_id: (writer, since_ms)
            for writer, since_ms in ((read_writer(writer), since_ms) for *writer, since_ms in fields)
        },
    ),
    "fences": (_pairs, lambda fields: {producer_id: (epoch, since) for producer_id, (epoch, since) in fields}),
    "unfenced": (_pairs, dict),
}
"""How each attribute of ``GroupState`` is written to a snapshot, and read; those that depend on others are not here."""
