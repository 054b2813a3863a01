"""Which members live, which leads, and what each owns: the rules by which all readers of the control log agree. Pure.

Connect revokes tasks in one rebalance and assigns them in the next. Here a task is assigned at once, and its new owner
waits until the previous one has drained it (``Released``) or can append nothing more (``Fenced``), see ``revocations``.

Every reader applies the same rules to the same log, so all readers agree at each offset. A record that its writer was
not allowed to write is void for every reader, so a leader that slept may wake and write without harm. ``decisions.py``
says what a member does about all this.

Counterpart: Connect's group membership and its leader (WorkerCoordinator, IncrementalCooperativeConnectProtocol),
which a broker's coordinator keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from mm2py.flow import Flow, Kind
from mm2py.group.revocations import Owned, Revocations
from mm2py.group.topic_claims import TopicClaims
from mm2py.records.control_record import (
    UNDIVIDED,
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Entry,
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
    Writer,
    Writes,
)
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse
from mm2py.records.safe_point import SafePoint

REMEMBERED_MS: Final = 14 * 24 * 3_600_000
"""How long ids and fences of members that ended are kept, in log time: twice the default life of the log's records."""
STEP_MOST_MS: Final = 3_600_000
"""By how much log time advances at most between two records."""
OUTAGES_MOST: Final = 4
"""How many outages of the log in a row excuse a member that has written nothing."""
UNFENCED_MOST: Final = 1000


@dataclass(slots=True)
class KnownMember:
    """A member that has joined, and has neither left nor been evicted."""

    joined: Joined
    last_offset: int
    last_time_ms: int
    """When it wrote its last record of any kind, in log time."""
    applied: dict[Flow, int] = field(default_factory=dict)
    writers: dict[int, Writer] = field(default_factory=dict)
    """By producer id."""
    heard: dict[MemberId, int] = field(default_factory=dict)
    """When each other member wrote its first record after this one's last."""
    expired: bool = False
    outages: int = 0
    """How many times since its last record the log accepted nothing at all for half of its session time-out."""
    held: Mapping[Flow, int] = field(default_factory=dict)
    """From its last heartbeat, see ``Beat``; snapshots do not contain it."""
    links: Mapping[Flow, LinkUse] = field(default_factory=dict)
    """Likewise."""
    troubles: Mapping[Flow, str] = field(default_factory=dict)
    """From its last heartbeat, like ``not_started``. Snapshots contain both: otherwise a status that is read just after
    a snapshot would be green."""
    not_started: Mapping[Flow, NotStarted] = field(default_factory=dict)
    safe: Mapping[Flow, SafePoint] = field(default_factory=dict)
    """Likewise: snapshots have it."""
    waits: Mapping[Flow, FlowWaits] = field(default_factory=dict)
    """Likewise."""

    def waits_of(self, flow: Flow) -> FlowWaits | None:
        """Return what it waits for in a flow; None: it has not told, or does not tell any more."""
        return None if self.expired else self.waits.get(flow)


class GroupState:
    """The group after all records below ``next_offset``. Only ``take`` changes it, in place: keep no part of it.

    Every rule of ``take`` is part of the protocol: all versions of mm2py in a group must come to the same state.
    """

    def __init__(self) -> None:
        self.log_time_ms = 0
        """The clock that all rules use: it advances with append times, and never steps back."""
        self.append_time_ms = 0
        """Of the last record, by the clock of the broker that led the log then. Compare other clocks only with this."""
        self.next_offset = 0
        self.members: dict[MemberId, KnownMember] = {}
        self.leader: MemberId | None = None
        self.leader_epoch = 0
        self.claim_id = ""
        """Id of the accepted claim. After the log was truncated, two claims may have the same epoch."""
        self.generation = 0
        self.revocations = Revocations()
        self.topics: dict[Flow, dict[str, int]] = {}
        """How many partitions of each source topic are copied, as the flows' coordinators listed them."""
        self.sources: dict[Flow, str] = {}
        """The id of each flow's source cluster, as its first coordinator said, while a live member runs the flow."""
        self.topic_claims = TopicClaims()
        """Where these topics are copied to."""
        self.widths: dict[Flow, dict[str, int]] = {}
        """How many partitions each of these topics had when its flow first copied it, as coordinators said."""
        self.loads: dict[TaskName, int] = {}
        """Bytes/s, as owners measured them last. A load outlives its owner, so that a failover is planned with it."""
        self.to_fence: dict[MemberId, dict[int, Writer]] = {}
        """Members that were evicted, or left with an unknown outcome: their producers, until all of them are fenced."""
        self.gone: dict[MemberId, int] = {}
        """Members whose producers were all fenced, or that left drained, and since when; oldest first."""
        self.drained: dict[MemberId, None] = {}
        """The members among ``gone`` that left drained: all that they sent was answered."""
        self.retired: dict[int, tuple[Writer, int]] = {}
        """By producer id, the producers of former members, and since when; oldest first."""
        self.fences: dict[int, tuple[int, int]] = {}
        """The highest fence epoch of a producer id, and since when; oldest first."""
        self.unfenced: dict[int, str] = {}
        """Producer ids that could not be fenced, and why; the last ones."""
        self.snapshot_ms: int | None = None
        """When this leader wrote its last whole snapshot; None if it has not yet."""
        self.member_changes = 0
        """Grows with changes of ``members``, ``to_fence``, ``gone``, ``fences`` and the leader; not with heartbeats."""
        self.parts: dict[int, Assigned] = {}
        """The parts of the next generation's assignment, until all have been read."""
        self.joins = 0
        """Grows when a member joins, ends, or changes its description."""
        self.listings = 0
        """Grows when ``topics`` change."""
        self.other_changes = 0
        self.moved_at = 0
        """The offset of the last record that changed which partitions there are, or who owns one."""
        self._wanted: dict[TaskName, None] | None = None
        self.flows: frozenset[Flow] = frozenset()
        """The flows that a live member may copy."""
        self.undivided: Mapping[Kind, frozenset[Flow]] = {}
        """By kind, the flows of which a live member may run the undivided task."""

    @property
    def owners(self) -> Mapping[TaskName, Owned]:
        return self.revocations.owners

    @property
    def changes(self) -> int:
        """Grows with each record that changed anything but times and loads."""
        return self.other_changes + self.listings + self.member_changes + self.revocations.changes

    @property
    def plan_changes(self) -> int:
        """Grows when anything changed on which an assignment depends, except loads and owners."""
        return self.listings + self.joins

    def is_expired(self, member: MemberId) -> bool:
        """Whether its session has expired: another member wrote two records, at least one session time-out apart, and
        this member wrote nothing between them. So the log could be written to all that time; an outage of the log
        expires no session, see ``_pass_time``.
        """
        found = self.members.get(member)
        return found is not None and found.expired

    def can_be_claimed(self) -> bool:
        return self.leader is None or self.is_expired(self.leader)

    def can_be_fenced(self, member: MemberId) -> bool:
        """Whether others can fence this member, as far as is known: its producers have transactional ids, and the group
        has fenced every producer that it had to fence so far."""
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
        """Whether this task is one of ``tasks``."""
        flow, kind, topic, partition = task
        if task.is_partition:
            return kind is Kind.SOURCE and 0 <= partition < self.topics.get(flow, {}).get(topic, 0)
        return not topic and flow in (self.flows if kind is Kind.SOURCE else self.undivided.get(kind, ()))

    def index_flows(self) -> None:
        """Update ``flows`` and ``undivided`` after ``members`` changed."""
        joined = [member.joined for member in self.members.values()]
        self.flows = frozenset(flow for each in joined for flow in each.flows)
        self.undivided = {
            kind: frozenset(flow for each in joined for flow in each.undivided[kind]) for kind in UNDIVIDED
        }
        self._wanted = None

    def note_listing(self) -> None:
        """Count a change of ``topics``."""
        self.listings += 1
        self._wanted = None

    # -- the rules by which records change it -----------------------------------------------------------------------

    def take(self, entry: Entry) -> None:
        """Apply the next record. Offsets that were applied before are skipped."""
        if entry.offset < self.next_offset:
            return
        self.next_offset = entry.offset + 1
        self._pass_time(entry.time_ms)
        self._forget_oldest()
        record = entry.record
        if isinstance(record, Joined):
            self._join(record)
        member = self.members.get(record.member)
        if member is None:
            return
        self._hear(member, entry.offset)
        moves = self.revocations.changes + self.listings
        self._apply(record, member)
        if self.revocations.changes + self.listings != moves:
            self.moved_at = entry.offset

    def _apply(self, record: ControlRecord, member: KnownMember) -> None:
        match record:
            case Beat():
                member.held, member.links, member.safe = record.held, record.links, record.safe
                member.troubles, member.not_started, member.waits = record.troubles, record.not_started, record.waits
                if record.applied != member.applied:
                    member.applied = dict(record.applied)
                    self.other_changes += 1
            case Joined() | Skipped():
                pass
            case Loads():
                self._measure(record)
            case Writes(writer=writer):
                self._write(member, writer)
            case Listed():
                self._list(record)
            case Claim():
                self._claim(record)
            case Released():
                self.revocations.release(record.member, record.tasks, record.generation)
            case Left(outcome_unknown=outcome_unknown):
                self._end(record.member, outcome_unknown=outcome_unknown)
            case _ if record.member != self.leader or record.leader_epoch != self.leader_epoch:
                pass  # an old leader that has not read of its successor yet
            case Resigned():
                self._lose_leader()
            case Assigned():
                self._collect(record)
            case Evicted(dead=dead):
                # The member may have woken meanwhile. A leader cannot evict itself: its session has not expired.
                if self.is_expired(dead):
                    self._end(dead, outcome_unknown=True)
            case Fenced():
                self._fence(record)
            case Snapshot(part=part, parts=parts):
                if part == parts - 1:
                    self.snapshot_ms = self.log_time_ms

    def _pass_time(self, time_ms: int) -> None:
        """Advance the clock of the log. Time in which no member could write expires no session.

        The story of the outage: w2 wrote just after w1, then the log had no leader for 20 s. When it has one again, w2
        happens to write first: it has two records 20 s apart, with none of w1 between. Every member sends several
        heartbeats in its session time-out. So after half of w1's session time-out without any record, w1 gets a whole
        one, from the next record on.

        The story of the slow survivor: w1 dies. w2, whose session is longer or whose appends are slow, sends a
        heartbeat every 3 s. For w1, whose session is 3 s, each of these gaps looks like an outage. One gap cannot be
        distinguished from a short outage, but a live w1 would have written between several of them.

        The story of the broker's clock: one append is stamped an hour ahead, the next ones are not. If log time were
        the highest append time, it would not advance for an hour, and a member that died then would stay a member. So
        log time adds up the steps forward. A step of weeks must not make the group forget its fences: no step counts
        for more than an hour.
        """
        if not self.append_time_ms:
            self.log_time_ms = self.append_time_ms = time_ms
        step_ms = time_ms - self.append_time_ms
        self.append_time_ms = time_ms
        if step_ms <= 0:
            return
        self.log_time_ms += min(step_ms, STEP_MOST_MS)
        for member in self.members.values():
            if step_ms > member.joined.session_timeout_ms // 2 and member.outages < OUTAGES_MOST:
                member.outages += 1
                member.heard.clear()

    def _hear(self, member: KnownMember, offset: int) -> None:
        """Apply the rule of ``is_expired``. An expired session stays expired until its member writes again."""
        name, now = member.joined.member, self.log_time_ms
        for other in self.members.values():
            if now - other.heard.setdefault(name, now) >= other.joined.session_timeout_ms:
                other.expired = True
        member.heard.clear()
        member.expired = False
        member.outages = 0
        member.last_offset, member.last_time_ms = offset, now

    def _join(self, joined: Joined) -> None:
        if joined.member in self.to_fence or joined.member in self.gone:
            return  # a late duplicate
        member = self.members.get(joined.member)
        if member is None:
            self.members[joined.member] = KnownMember(joined, 0, 0)
        elif member.joined == joined:
            return
        else:
            member.joined = joined
        self._note_members()

    def _end(self, name: MemberId, *, outcome_unknown: bool) -> None:
        """Remove a member that was evicted or left. One without a producer has written nothing: it needs no fence."""
        writers = self.members.pop(name).writers
        for other in self.members.values():
            other.heard.pop(name, None)
        for producer_id, writer in writers.items():
            self.retired.pop(producer_id, None)
            self.retired[producer_id] = writer, self.log_time_ms
        if outcome_unknown and writers:
            self.to_fence[name] = writers
            self.revocations.evict(name, self.generation)
        else:
            self.gone[name] = self.log_time_ms
            self.drained[name] = None
            self.revocations.forget(name)
        if name == self.leader:
            self._lose_leader()
        self._note_members()

    def _write(self, member: KnownMember, writer: Writer) -> None:
        known = member.writers.get(writer.producer_id)
        if known is None or known.epoch < writer.epoch:
            member.writers[writer.producer_id] = writer
            self.other_changes += 1

    def _measure(self, loads: Loads) -> None:
        """Keep the loads that owners report. A report by a member that does not own the task is late."""
        for task, bytes_per_s in loads.bytes_per_s.items():
            if self.owner(task) == loads.member and self.is_wanted(task):
                self.loads[task] = round(bytes_per_s)

    def _list(self, listed: Listed) -> None:
        """Apply a listing. Partitions that are not copied any more keep their owners until the leader revokes them.

        The story: a late duplicate says that a topic has one partition, then its coordinator lists two again. If the
        second partition had lost its owner in between, it could go to another worker, and its old owner would never
        learn of that.
        """
        if not self.may_run(TaskName(listed.flow, Kind.SOURCE), listed.member) or listed.flow not in self.flows:
            return
        if listed.source_cluster is not None and listed.flow not in self.sources:
            self.sources[listed.flow] = listed.source_cluster
            self.other_changes += 1
        topics = self.topics.setdefault(listed.flow, {})
        widths = self.widths.setdefault(listed.flow, {})
        for topic, number in listed.partitions.items():
            before, partitions = topics.get(topic, 0), self._lead(listed, topic, number)
            if partitions == before:
                continue
            if partitions:
                topics[topic] = partitions
            else:
                del topics[topic]
                widths.pop(topic, None)
            for partition in range(partitions, before):
                self.loads.pop(TaskName(listed.flow, Kind.SOURCE, topic, partition), None)
            self.note_listing()
        for topic, width in listed.widths.items():
            if topic in topics:
                widths.setdefault(topic, width)

    def _lead(self, listed: Listed, topic: str, partitions: int) -> int:
        """Note where a topic is copied to, and return how many of its partitions are copied: 0 if a flow conflicts.

        The story: A->B and C->B keep the names of topics, and both sources have ``orders``. The flows'
        coordinators find it at the same time, on two workers. The log decides which of them was first.
        """
        lead = listed.claims.get(topic)
        if not partitions:
            self.topic_claims.drop(listed.flow, topic)
        elif lead is not None:
            self.other_changes += 1
            if not self.topic_claims.take(listed.flow, topic, lead):
                return 0
        return partitions

    def _claim(self, claim: Claim) -> None:
        if claim.leader_epoch != self.leader_epoch + 1 or not self.can_be_claimed():
            return
        self._lose_leader()
        self.leader, self.leader_epoch, self.claim_id = claim.member, claim.leader_epoch, claim.claim_id

    def _lose_leader(self) -> None:
        self.leader, self.claim_id, self.snapshot_ms = None, "", None
        self.parts = {}
        self.member_changes += 1

    def _collect(self, ownership: Assigned) -> None:
        if ownership.generation != self.generation + 1:
            return
        if any(part.parts != ownership.parts for part in self.parts.values()):
            self.parts = {}  # the leader has decided again
        self.parts[ownership.part] = ownership
        if len(self.parts) < ownership.parts:
            return
        self.generation += 1
        for _, part in sorted(self.parts.items()):
            for task, name in part.owners.items():
                # A member that has just ended gets nothing, and a task that is not listed any more has no owner.
                to = name if name in self.members and self.is_wanted(task) else None
                self.revocations.give(task, to, self.generation)
        self.parts = {}
        self.other_changes += 1

    def _fence(self, fenced: Fenced) -> None:
        for producer_id, epoch in fenced.epochs.items():
            known, _ = self.fences.pop(producer_id, (epoch, 0))
            self.fences[producer_id] = max(epoch, known), self.log_time_ms
            self.unfenced.pop(producer_id, None)
        for producer_id, why in fenced.unfenced.items():
            self.unfenced.pop(producer_id, None)
            self.unfenced[producer_id] = why
            if len(self.unfenced) > UNFENCED_MOST:
                del self.unfenced[next(iter(self.unfenced))]
        if fenced.of is not None and self.to_fence.pop(fenced.of, None) is not None:
            self.gone[fenced.of] = self.log_time_ms
            self.revocations.forget(fenced.of)
        self.member_changes += 1

    def _forget_oldest(self) -> None:
        before = self.log_time_ms - REMEMBERED_MS
        while self.gone and next(iter(self.gone.values())) < before:
            name = next(iter(self.gone))
            del self.gone[name]
            self.drained.pop(name, None)
        while self.retired and next(iter(self.retired.values()))[1] < before:
            del self.retired[next(iter(self.retired))]
        while self.fences and next(iter(self.fences.values()))[1] < before:
            del self.fences[next(iter(self.fences))]

    def _note_members(self) -> None:
        """Forget flows that no live member runs. The next coordinator lists their topics again."""
        self.index_flows()
        self.sources = {flow: cluster for flow, cluster in self.sources.items() if flow in self.flows}
        if not self.topics.keys() <= self.flows:
            self.topics = {flow: topics for flow, topics in self.topics.items() if flow in self.flows}
            self.widths = {flow: widths for flow, widths in self.widths.items() if flow in self.flows}
            self.topic_claims.keep(self.flows)
            self.loads = {task: load for task, load in self.loads.items() if self.is_wanted(task)}
        self.joins += 1
        self.member_changes += 1
