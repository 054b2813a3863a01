"""What the control log has said so far of a group: members, leader, tasks, claims on remote topics. Pure.

``membership.py`` has the rules by which records change it. All of it can be written as JSON, for snapshots.

Connect revokes tasks in one rebalance and assigns them in the next. Here a task is assigned at once, and its new owner
waits until the previous one has drained it (``Released``) or can append nothing more (``Fenced``).
Invariant: at most one member may run a task. It is the owner, or the previous owner until it has released the task.

MirrorMaker 2 lets several flows write to one remote topic: under the identity policy a topic that two sources have
becomes one. Here the flow that was listed first has the remote topic, unless all its flows want to be mixed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from mm2py import __version__
from mm2py.config.settings import GroupSettings
from mm2py.connector import Flow, Kind, parse_flow
from mm2py.errors import Mm2Error
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
from mm2py.records.control_record import (
    UNDIVIDED,
    Assigned,
    Beat,
    Joined,
    MemberId,
    NotStarted,
    TaskName,
    TopicClaim,
    Writer,
    pack,
    unpack,
)
from mm2py.records.link_use import LinkUse


class TopicClaims:
    """The claims of a group's flows on remote topics, as their coordinators have listed them."""

    def __init__(self) -> None:
        self.by_flow: dict[Flow, dict[str, TopicClaim]] = {}
        """By source topic."""
        self._into: dict[str, tuple[tuple[Flow, bool], ...]] = {}
        """By remote topic: the flows that copy into it, and whether they may be mixed."""

    def conflicting_flows(self, flow: Flow, topic: str, claim: TopicClaim) -> frozenset[Flow]:
        """Return the flows because of which ``flow`` must not copy a topic there."""
        known = self._into.get(claim.prefix + topic, ())
        return frozenset(other for other, mixes in known if other != flow and not (mixes and claim.mixes))

    def take(self, flow: Flow, topic: str, claim: TopicClaim) -> bool:
        """Claim a remote topic for a flow's topic; its earlier claim ends. Returns False if another flow's claim
        conflicts."""
        if self.by_flow.get(flow, {}).get(topic) == claim:
            return True
        self.drop(flow, topic)
        if self.conflicting_flows(flow, topic, claim):
            return False
        self.by_flow.setdefault(flow, {})[topic] = claim
        remote = claim.prefix + topic
        self._into[remote] = (*self._into.get(remote, ()), (flow, claim.mixes))
        return True

    def drop(self, flow: Flow, topic: str) -> None:
        """A flow copies a topic no more."""
        claim = self.by_flow.get(flow, {}).pop(topic, None)
        if claim is None:
            return
        remote = claim.prefix + topic
        left = list(self._into[remote])
        left.remove((flow, claim.mixes))
        if left:
            self._into[remote] = tuple(left)
        else:
            del self._into[remote]

    def keep(self, flows: Collection[Flow]) -> None:
        """Drop the claims of all other flows."""
        for flow in self.by_flow.keys() - flows:
            for topic in list(self.by_flow[flow]):
                self.drop(flow, topic)
            del self.by_flow[flow]

    @classmethod
    def of(cls, by_flow: Mapping[Flow, Mapping[str, TopicClaim]]) -> TopicClaims:
        """Return the claims of these flows."""
        found = cls()
        for flow, claims in by_flow.items():
            for topic, claim in claims.items():
                found.take(flow, topic, claim)
        return found


class Owned(NamedTuple):
    """The owner of one task. A task with neither an owner nor a previous owner is not kept."""

    member: MemberId | None
    waits_for: MemberId | None
    generation: int
    """In which it was revoked; if it waits for no previous owner, in which it got this owner."""


class Revocations:
    """The owners of all tasks of a group, and previous owners that have not released them. There may be 50,000 tasks,
    so they are found by member as well."""

    def __init__(self) -> None:
        self.owners: dict[TaskName, Owned] = {}
        self.changes = 0
        """Grows with every task that changes."""
        self.flow_changes: dict[Flow, int] = {}
        """As ``changes``, for each flow."""
        self._owned: dict[MemberId, dict[TaskName, None]] = {}
        self._awaited: dict[MemberId, dict[TaskName, None]] = {}

    def owned_by(self, member: MemberId) -> Collection[TaskName]:
        """What a member is to run, whether it must still wait or not. Not to be kept: it changes."""
        return self._owned.get(member, {}).keys()

    def awaited_of(self, member: MemberId) -> Collection[TaskName]:
        """What a member must drain and release. Not to be kept: it changes."""
        return self._awaited.get(member, {}).keys()

    def give(self, task: TaskName, to: MemberId | None, generation: int) -> None:
        """Move a task. Its new owner waits for the member that may run it; owners in between have not started.

        The story of the task that came back: a task of w1 goes to w2, and back to w1 before w1 has drained it. w1 waits
        for itself: it may have stopped copying already, and has to release the task before it starts again.
        """
        old = self.owners.get(task)
        if old is None:
            if to is not None:
                self._set(task, _NOBODY, Owned(to, None, generation))
        elif old.member != to:
            since = generation if old.waits_for is None else old.generation
            self._set(task, old, Owned(to, old.waits_for or old.member, since))

    def release(self, member: MemberId, tasks: Iterable[TaskName], generation: int) -> None:
        """A member has drained tasks, as of a generation.

        The story of the late duplicate: w1 releases a task in generation 2 and gets it back in 3; in 4 it goes to w2
        again. Now the release of 2 is appended once more, by a retry that hung on the way. It says nothing about 4.
        """
        for task in tasks:
            old = self.owners.get(task)
            if old is not None and old.waits_for == member and old.generation <= generation:
                self._set(task, old, old._replace(waits_for=None))

    def evict(self, dead: MemberId, generation: int) -> None:
        """A member was evicted: it may still run what it owns, and will not say when it has stopped."""
        for task in list(self.owned_by(dead)):
            self.give(task, None, generation)

    def forget(self, ended: MemberId) -> None:
        """A member runs nothing any more: all its producers were fenced, or it left drained."""
        for task in list(self.owned_by(ended)):
            old = self.owners[task]
            self._set(task, old, old._replace(member=None))
        for task in list(self.awaited_of(ended)):
            old = self.owners[task]
            self._set(task, old, old._replace(waits_for=None))
        self._owned.pop(ended, None)
        self._awaited.pop(ended, None)

    def to_json(self) -> Any:
        kinds = {owned: number for number, owned in enumerate(sorted(set(self.owners.values()), key=repr))}
        return {"kinds": list(kinds), "tasks": pack({task: kinds[owned] for task, owned in self.owners.items()})}

    @classmethod
    def from_json(cls, fields: Any) -> Revocations:
        found = cls()
        kinds = [Owned(*kind) for kind in fields["kinds"]]
        for task, number in unpack(fields["tasks"]).items():
            found._set(task, _NOBODY, kinds[number])
        return found

    def _set(self, task: TaskName, old: Owned, new: Owned) -> None:
        # Each look into a dict hashes the task, and an assignment of 50,000 must not delay the heartbeats.
        if new.member != old.member:
            if old.member is not None:
                del self._owned[old.member][task]
            if new.member is not None:
                self._owned.setdefault(new.member, {})[task] = None
        if new.waits_for != old.waits_for:
            if old.waits_for is not None:
                del self._awaited[old.waits_for][task]
            if new.waits_for is not None:
                self._awaited.setdefault(new.waits_for, {})[task] = None
        if new.member is None and new.waits_for is None:
            del self.owners[task]
        else:
            self.owners[task] = new
        self.changes += 1
        self.flow_changes[task.flow] = self.flow_changes.get(task.flow, 0) + 1


_NOBODY = Owned(None, None, 0)


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
    """A member that has joined, and has neither left nor been evicted."""

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
    held: Mapping[Flow, int] = field(default_factory=dict)
    """As of its last heartbeat, see ``Beat``; no snapshot has it."""
    links: Mapping[Flow, LinkUse] = field(default_factory=dict)
    """Likewise."""
    troubles: Mapping[Flow, str] = field(default_factory=dict)
    """As of its last heartbeat, and likewise the next one. Snapshots have both: a status that is read just behind one
    would else be green."""
    not_started: Mapping[Flow, NotStarted] = field(default_factory=dict)


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
        """Id of the accepted claim. After the log was truncated, two claims may have the same epoch."""
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
        """Members that were evicted, or left with an unknown outcome: their producers, until all of them are fenced."""
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
        """Whether its session has expired: another member wrote two records, at least one session time-out apart, and
        this member wrote nothing between them. So the log could be written to all that time; an outage of the log
        expires no session, see ``View``.
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
        """Return all of it. A reader that loads this, and then reads the log from ``next_offset``, comes to the same
        state as every other reader."""
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
            "problems": [
                [name, fields_of(Beat(name, troubles=member.troubles, not_started=member.not_started))]
                for name, member in self.members.items()
                if member.troubles or member.not_started
            ],
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
        for name, told in fields.get("problems", ()):  # earlier versions have none
            beat = read_fields(Beat, name, told)
            self.members[name].troubles, self.members[name].not_started = beat.troubles, beat.not_started
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
