"""A control log in memory with one reader, for tests about groups of workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.group.member import Member
from mm2py.group.membership import GroupState
from mm2py.group.ownership import Ownership
from mm2py.records.control_record import (
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Entry,
    Evicted,
    Fenced,
    Joined,
    Listed,
    MemberId,
    Released,
    TaskName,
    Writer,
    Writes,
)

A_B = Flow(ClusterAlias("A"), ClusterAlias("B"))
C_B = Flow(ClusterAlias("C"), ClusterAlias("B"))
W1, W2, W3 = MemberId("w1"), MemberId("w2"), MemberId("w3")
SESSION_TIMEOUT_MS = 3000
BEAT_MS = 500
HEAD = TaskName(A_B, Kind.SOURCE)


def share(partition: int, topic: str = "orders", flow: Flow = A_B) -> TaskName:
    return TaskName(flow, Kind.SOURCE, topic, partition)


def joined(member: MemberId, *flows: Flow, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> Joined:
    return Joined(
        member,
        name=f"host-{member}",
        runs="1.2.3",
        url="",
        flows=flows or (A_B,),
        heartbeats=(),
        tasks_max={},
        cluster_id="cluster-b",
        election="log",
        session_timeout_ms=session_timeout_ms,
    )


def writer(producer_id: int, epoch: int = 0, flow: Flow = A_B) -> Writer:
    return Writer(flow, f"mm2py-test-{producer_id}", producer_id, epoch)


class GroupLog:
    """The log, and the state that a reader has after all of it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.view = GroupState()
        self.now_ms = 1_000_000

    def add(self, *records: ControlRecord) -> None:
        for record in records:
            entry = Entry(len(self.entries), self.now_ms, record)
            self.entries.append(entry)
            self.view.take(entry)

    def beat(self, members: Iterable[MemberId], *, for_ms: int) -> None:
        """Let time pass while only these members send heartbeats."""
        names = list(members)
        for _ in range(for_ms // BEAT_MS):
            self.now_ms += BEAT_MS
            self.add(*(Beat(name) for name in names))

    def lead(self, member: MemberId) -> None:
        self.add(Claim(member, self.view.leader_epoch + 1, f"claim of {member}"))
        assert self.view.leader == member

    def own(self, owners: Mapping[TaskName, MemberId]) -> None:
        assert self.view.leader is not None
        self.add(Assigned(self.view.leader, self.view.leader_epoch, self.view.generation + 1, owners))

    def list_topics(self, by: MemberId, topics: Mapping[str, int]) -> None:
        self.add(Listed(by, A_B, topics))

    def release(self, member: MemberId, *shares: TaskName) -> Released:
        released = Released(member, self.view.generation, frozenset(shares))
        self.add(released)
        return released

    def evict(self, dead: MemberId) -> None:
        assert self.view.leader is not None
        self.add(Evicted(self.view.leader, self.view.leader_epoch, dead))

    def fenced(self, of: MemberId | None, epochs: Mapping[int, int] | None = None) -> None:
        assert self.view.leader is not None
        self.add(Fenced(self.view.leader, self.view.leader_epoch, of, epochs or {}))

    def ownership(self, member: MemberId, flow: Flow = A_B) -> Ownership:
        """Return a flow's part of the group, as one of its members sees it."""
        return Ownership(cast("Member", _Seat(member, self)), flow, "mm2py", 86_400_000)

    def read(self, upto: int) -> GroupState:
        """Return the view of a reader that has read up to ``upto``."""
        view = GroupState()
        for entry in self.entries[:upto]:
            view.take(entry)
        return view


@dataclass
class _Seat:
    """A membership that never ends, with only the parts that ``Ownership`` uses."""

    id: MemberId
    log: GroupLog
    is_over: bool = False

    @property
    def view(self) -> GroupState:
        return self.log.view

    async def say(self, records: Sequence[ControlRecord]) -> None:
        self.log.add(*records)


def group_of(*members: MemberId, partitions: int = 4) -> GroupLog:
    """Return a group led by the first worker, its coordinator; all may write, and ``orders`` has no owners."""
    log = GroupLog()
    for number, member in enumerate(members):
        log.add(joined(member), Writes(member, writer(100 + number)))
    log.lead(members[0])
    log.own({HEAD: members[0]})
    log.list_topics(members[0], {"orders": partitions})
    return log
