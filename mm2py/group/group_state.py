"""What the control log has said so far of a group: members, leader, owners, fences; and all of it as JSON. Pure.

``membership.py`` has the rules by which records change it. Here is also which workers cannot be in one group.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from mm2py import __version__
from mm2py.config.settings import GroupSettings
from mm2py.connector import Flow, Kind, parse_flow
from mm2py.errors import Mm2Error
from mm2py.group.claims import Owned, Revocations, TopicClaims
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
from mm2py.records.control_record import UNDIVIDED, Assigned, Joined, MemberId, TaskName, Writer, pack, unpack


class GroupRefused(Mm2Error):
    """This worker and the members of the group contradict each other: it takes no part."""


def refusal(ours: Joined, other: Joined, group: GroupSettings) -> GroupRefused | None:
    """Return why a worker may not take part beside another one; None if it may. An unknown cluster id fits all."""
    target = group.target
    if None not in {ours.cluster_id, other.cluster_id} and ours.cluster_id != other.cluster_id:
        return GroupRefused(
            f"{target} is cluster {ours.cluster_id} here, and cluster {other.cluster_id} for worker {other.name}"
            f" of group {group.name}.",
            remedy=f"Let {target}.bootstrap.servers name the same cluster for all workers of a group, or give"
            f" this worker a group of its own ({target}.mm2py.group).",
        )
    if ours.election != other.election:
        return GroupRefused(
            f"leader.election is {ours.election} here, and {other.election} for worker {other.name} of group"
            f" {group.name}: there might be two leaders.",
            remedy="Set the same for all workers of a group; to change it, stop all of them first.",
        )
    return None


@dataclass(slots=True)
class Member:
    """One that joined, and was neither evicted nor left."""

    joined: Joined
    last_offset: int
    last_time_ms: int
    """Of its last record of any kind, in log time."""
    applied: dict[Flow, int] = field(default_factory=dict)
    writers: dict[int, Writer] = field(default_factory=dict)
    """By producer id."""
    heard: dict[MemberId, int] = field(default_factory=dict)
    """When each other member wrote its first record after this one's last."""
    expired: bool = False
    outages: int = 0
    """How many times since its last record the log accepted nothing at all for half of its session time-out."""


class GroupState:
    """See ``membership.View``, which changes it. Look at it, but keep no part of it: it changes in place."""

    def __init__(self) -> None:
        self.log_time_ms = 0
        """The clock by which all is judged: it advances with append times, and never steps back."""
        self.append_time_ms = 0
        """Of the last record, by the clock of the log's leader then. Only this compares with other clocks."""
        self.next_offset = 0
        self.members: dict[MemberId, Member] = {}
        self.leader: MemberId | None = None
        self.leader_epoch = 0
        self.claim_id = ""
        """Of the claim that won: after a truncation of the log an epoch might be given twice."""
        self.generation = 0
        self.revocations = Revocations()
        self.topics: dict[Flow, dict[str, int]] = {}
        """How many partitions of which source topic are copied, as the flows' coordinators listed them."""
        self.sources: dict[Flow, str] = {}
        """The id of each flow's source cluster, as its first coordinator said, while a live member runs the flow."""
        self.topic_claims = TopicClaims()
        """Where these topics are copied to."""
        self.widths: dict[Flow, dict[str, int]] = {}
        """How many partitions each of these topics had when its flow first copied it, as coordinators said."""
        self.loads: dict[TaskName, int] = {}
        """Bytes/s, as owners measured them last: outlives them, so that a failover is planned with it."""
        self.to_fence: dict[MemberId, dict[int, Writer]] = {}
        """Members that were evicted or left in doubt, with their producers, until all of these are fenced."""
        self.gone: dict[MemberId, int] = {}
        """Members that were fenced whole or left drained, and since when; oldest first."""
        self.drained: dict[MemberId, None] = {}
        """Those of ``gone`` that left drained: all that they sent was answered."""
        self.retired: dict[int, tuple[Writer, int]] = {}
        """By producer id, the producers of former members, and since when; oldest first."""
        self.fences: dict[int, tuple[int, int]] = {}
        """The highest fence epoch of a producer id, and since when; oldest first."""
        self.unfenced: dict[int, str] = {}
        """Producer ids that could not be fenced, and why; the last ones."""
        self.snapshot_ms: int | None = None
        """When this leader wrote its last whole snapshot; None if it has not yet."""
        self.member_changes = 0
        """Grows whenever ``members``' data, ``out``, ``gone``, ``fences`` or the leader changed; not with beats."""
        self.parts: dict[int, Assigned] = {}
        """Of the next generation, until all have been read."""
        self.joins = 0
        """Grows when a member joins, ends, or says something else of itself."""
        self.listings = 0
        """Grows when ``topics`` change."""
        self.other_changes = 0
        self._wanted: dict[TaskName, None] | None = None
        self.flows: frozenset[Flow] = frozenset()
        """Those that a live member may copy."""
        self.undivided: Mapping[Kind, frozenset[Flow]] = {}
        """By kind, those of which a live member may run the undivided task."""

    @property
    def owners(self) -> Mapping[TaskName, Owned]:
        return self.revocations.owners

    @property
    def changes(self) -> int:
        """Grows with each record that changed anything but times and loads."""
        return self.other_changes + self.listings + self.member_changes + self.revocations.changes

    @property
    def plan_changes(self) -> int:
        """Grows when anything changed on which an assignment rests, except loads and owners."""
        return self.listings + self.joins

    def is_expired(self, member: MemberId) -> bool:
        """Whether its session has expired: another member wrote two records at least this one's session time-out apart,
        and this one wrote none since before the first. So the log could be written to all that time; an outage of the
        log expires no session, see ``View``.
        """
        found = self.members.get(member)
        return found is not None and found.expired

    def can_be_claimed(self) -> bool:
        return self.leader is None or self.is_expired(self.leader)

    def can_be_fenced(self, member: MemberId) -> bool:
        """Whether other members can fence this one, as far as is known: by transactional ids, which worked so far."""
        writers = self.members[member].writers.values()
        return not self.unfenced and all(writer.transactional_id is not None for writer in writers)

    def owner(self, task: TaskName) -> MemberId | None:
        owned = self.owners.get(task)
        return None if owned is None else owned.member

    def may_run(self, task: TaskName, member: MemberId) -> bool:
        owned = self.owners.get(task)
        return owned is not None and owned.member == member and owned.waits_for is None

    def owned_by(self, member: MemberId) -> Collection[TaskName]:
        """See ``Revocations``."""
        return self.revocations.owned_by(member)

    def awaited_of(self, member: MemberId) -> Collection[TaskName]:
        """See ``Revocations``."""
        return self.revocations.awaited_of(member)

    def tasks(self) -> Collection[TaskName]:
        """All tasks that the live members may run: each should have an owner."""
        if self._wanted is None:
            self._wanted = dict.fromkeys(TaskName(flow, Kind.SOURCE) for flow in sorted(self.flows))
            for kind, flows in self.undivided.items():
                self._wanted.update(dict.fromkeys(TaskName(flow, kind) for flow in sorted(flows)))
            for flow, topics in self.topics.items():
                for topic, partitions in topics.items():
                    for partition in range(partitions):
                        self._wanted[TaskName(flow, Kind.SOURCE, topic, partition)] = None
        return self._wanted.keys()

    def is_wanted(self, task: TaskName) -> bool:
        """Whether it is one of ``tasks``."""
        flow, kind, topic, partition = task
        if task.is_partition:
            return kind is Kind.SOURCE and 0 <= partition < self.topics.get(flow, {}).get(topic, 0)
        return not topic and flow in (self.flows if kind is Kind.SOURCE else self.undivided.get(kind, ()))

    def index_flows(self) -> None:
        """After ``members`` changed."""
        joined = [member.joined for member in self.members.values()]
        self.flows = frozenset(flow for each in joined for flow in each.flows)
        self.undivided = {
            kind: frozenset(flow for each in joined for flow in each.undivided[kind]) for kind in UNDIVIDED
        }
        self._wanted = None

    def note_listing(self) -> None:
        """After ``topics`` changed."""
        self.listings += 1
        self._wanted = None

    def to_json(self) -> str:
        """Return all of it: a reader of this that takes the records from ``next_offset`` on judges as all others."""
        places = {name: place for place, name in enumerate(self.members)}
        fields: dict[str, Any] = {
            "format": FORMAT_VERSION,
            "version": __version__,
            "members": [[name, *self._member_fields(member, places)] for name, member in self.members.items()],
            "owners": self.revocations.to_json(),
            "topic_claims": {
                str(flow): topic_claim_fields(claims, self.topics.get(flow, ()))
                for flow, claims in self.topic_claims.by_flow.items()
            },
            "parts": [[part.member, fields_of(part)] for _, part in sorted(self.parts.items())],
        }
        fields |= {name: write(getattr(self, name)) for name, (write, _) in _LAYOUT.items()}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, where: str = "a snapshot") -> Self:
        """Return the state that was written. The counters of changes restart.

        Raises:
            NewerFormat: a younger mm2py wrote it.
            MalformedControlRecord: no ``to_json`` wrote it.
        """
        found = cls()
        try:
            fields = json.loads(text)
            if fields["format"] > FORMAT_VERSION:
                raise NewerFormat("Snapshot", fields["version"])
            found._read(fields)
        except UNREADABLE as error:
            raise MalformedControlRecord(where, f"{type(error).__name__}: {error}"[:200]) from error
        return found

    def _member_fields(self, member: Member, places: dict[MemberId, int]) -> list[Any]:
        heard = sorted((places[name], self.log_time_ms - first_ms) for name, first_ms in member.heard.items())
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

    def _read(self, fields: dict[str, Any]) -> None:
        for name, (_, read) in _LAYOUT.items():
            setattr(self, name, read(fields[name]))
        names = [MemberId(each[0]) for each in fields["members"]]
        for name, joined, offset, time_ms, applied, writers, heard, silent, outages in fields["members"]:
            heard_ms = {names[at]: self.log_time_ms - ago for at, ago in zip(heard[::2], heard[1::2], strict=True)}
            known = read_fields(Joined, name, joined), offset, time_ms, read_by_flow(applied), _writers(writers)
            self.members[name] = Member(*known, heard_ms, silent, outages)
        self.index_flows()
        self.revocations = Revocations.from_json(fields["owners"])
        claims = {parse_flow(flow): kinds for flow, kinds in fields["topic_claims"].items()}
        self.topic_claims = TopicClaims.of(
            {flow: read_topic_claims(kinds, self.topics.get(flow, ())) for flow, kinds in claims.items()}
        )
        parts = [read_fields(Assigned, member, part) for member, part in fields["parts"]]
        self.parts = {part.part: part for part in parts}


def _writers(fields: Any) -> dict[int, Writer]:
    writers = [read_writer(each) for each in fields]
    return {writer.producer_id: writer for writer in writers}


def _same(value: Any) -> Any:
    return value


def _pairs(items: Mapping[Any, Any]) -> list[Any]:
    return list(items.items())


_PLAIN: Final[Codec] = _same, _same
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
"""How each attribute of ``GroupState`` is written to a snapshot, and read; those that need others are not here."""
