"""Which consumer groups can move to the other cluster now, and where each would go on. Pure.

A group leaves one cluster, called *here*, and goes on on the other one, *there*: from the source of a flow to its
target, or back. Only an exact place counts. There the group skips no record and reads none again; where the ledgers
do not know it, the group is not moved, and the answer says what is missing.

No leader epoch is moved: those of one cluster mean nothing on the other (``mm2py/kafka/consumer_groups.py``).

Counterpart: MirrorCheckpointTask of Apache Kafka's Connect, mirror, which moves groups to places that are not exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from mm2py.kafka.consumer_groups import Commit
from mm2py.kafka.group_members import GroupMember
from mm2py.kafka.port import TopicPartition
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.offsets.group_sync import CONSUMERS, IDLE
from mm2py.offsets.partition_ledger import PartitionLedger

MEMBERS_NAMED_MOST: Final = 5
SHARE: Final = "share"
"""The protocol type of share groups."""
_SHARE_REMEDY: Final = "Start it anew on the other cluster; share groups begin there by share.auto.offset.reset."
_UNKNOWN: Final = frozenset({AnswerKind.BEFORE_LEDGER, AnswerKind.EXPIRED})
_NO_ANSWER: Final = frozenset({AnswerKind.BEFORE_LEDGER, AnswerKind.NOT_YET})
_AMONG_COPIES: Final = frozenset({AnswerKind.COPIED, AnswerKind.END})


class MoveState(StrEnum):
    """Whether a group, or one partition of it, can move."""

    READY = "ready"
    """Its exact place is known and there."""
    WAITS = "waits"
    """It will be ready by itself: the copy goes on, or its consumers read on."""
    REFUSED = "refused"
    """It cannot be moved until somebody does something."""
    LEFT = "left"
    """It stays where it is: an operator has said so, or it is a group that is never moved."""


@dataclass(frozen=True, slots=True)
class PartitionToMove:
    """What both clusters say of one partition of a group. Offsets are the next ones to read."""

    topic: str
    """Its name here."""
    partition: int
    other_topic: str
    """The topic there in which the group goes on."""
    committed: Commit
    """What the group has committed here."""
    log_start: int = 0
    """Where the log begins here."""
    log_end: int = 0
    """Where it ends here: the high watermark, or the end at which producers are fenced."""
    stable_end: int = 0
    """Where the first open transaction begins here; ``log_end`` if none is open."""
    start_there: int = 0
    end_there: int = 0
    committed_there: int | None = None
    """What is committed for the group there; None: nothing."""
    place: Answer | None = None
    """Where the group goes on there, by the ledgers; None: see ``unknown``."""
    unknown: str = ""
    """Why no ledger can be asked, such as a topic that is not mirrored."""
    next_record: int | None = None
    """The first data record here that the group has not read, before ``log_end``. None: there is none, only markers,
    aborted records and what compaction has removed; or the group has no members, and nobody has looked."""
    only_here: int | None = None
    """The first data record before the commit that follows the last copy: it is on this cluster alone."""
    read_there: int | None = None
    """The first data record there that the group would read again: it lies between its place and what it has committed
    there. None: at most markers do."""

    @property
    def key(self) -> TopicPartition:
        """The partition here."""
        return self.topic, self.partition

    @property
    def name(self) -> str:
        """The partition here, in words."""
        return f"{self.topic}-{self.partition}"

    @property
    def goes_on_from(self) -> int:
        """Where a consumer here would go on: records before the log's start are gone."""
        return max(self.committed.offset, self.log_start)


@dataclass(frozen=True, slots=True)
class GroupToMove:
    """What both clusters say of one group."""

    group: str
    here: str
    """The alias of the cluster that the group leaves."""
    there: str
    """The alias of the other cluster."""
    protocol_type: str = ""
    """As the cluster here lists it."""
    state: str = IDLE
    """Kafka's word for its state here."""
    members: Sequence[GroupMember] = ()
    """Its members here, as far as the cluster tells them."""
    protocol_type_there: str = ""
    state_there: str = ""
    """Empty text: there is no such group there."""
    members_there: Sequence[GroupMember] = ()
    partitions: Sequence[PartitionToMove] = ()
    uncommitted: Sequence[TopicPartition] = ()
    """Partitions of the same topics that hold records here, and in which the group has committed nothing."""
    refused: str = ""
    """Which right to commit there is missing; empty if none is."""

    @property
    def is_idle(self) -> bool:
        """It has no members here."""
        return self.state == IDLE


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """Where a group goes on in one partition. Offsets are the next ones to read."""

    topic: str
    """Its name on the cluster that the group leaves."""
    partition: int
    """Its number on both."""
    committed: int
    """What the group has committed there."""
    other_topic: str
    """Its name on the cluster where the group goes on."""
    goes_on_at: int | None
    """What is, or would be, committed there; null: not known."""
    is_exact: bool
    """At that offset the group skips no record and reads none again."""
    state: MoveState
    """Whether this partition can be moved."""
    text: str
    """The same in words; empty if it is ready."""

    @property
    def line(self) -> str:
        """What people read."""
        begin = f"{self.topic}-{self.partition}  {self.committed:,} -> {self.other_topic}-{self.partition}"
        if self.state is MoveState.READY:
            return f"{begin}  {self.goes_on_at:,}, exact"
        return f"{begin}  {self.state}: {self.text}"


@dataclass(frozen=True, slots=True)
class GroupMove:
    """Whether a group can move, and where it goes on."""

    group: str
    """Its id."""
    here: str
    """The alias of the cluster that it leaves."""
    there: str
    """The alias of the cluster where it goes on."""
    state: MoveState
    """Whether it can be moved."""
    why: str
    """Why it is not ready; empty if it is."""
    remedy: str
    """What an operator can do about that; empty if nothing has to be done."""
    is_there: bool
    """All its offsets are committed there already."""
    partitions: tuple[PartitionMove, ...]
    """Each partition in which it has committed something."""


def place_in_other_log(offset: int, outward: PartitionLedger, homeward: PartitionLedger) -> Answer:
    """Return where a group goes on there that has committed ``offset`` here.

    Under the identity policy both ledgers may know the partition. The story: B took over from A at 500, so the flow
    back has a ledger from 500 on. A group that lags at 300 on B is among the copies of A's records, which only the
    ledger of A->B knows; and one on A that has read what came back is behind all that A->B has ever copied.

    Args:
        outward: the ledger of the flow that copies from here to there; empty if none does.
        homeward: the ledger of the flow that copies from there to here; empty if none does.
    """
    if not outward.ledgers:
        return homeward.reverse(offset)
    found, back = outward.forward(offset), homeward.reverse(offset)
    if found.kind in _UNKNOWN and back.kind not in _NO_ANSWER:
        return back
    if found.kind is AnswerKind.NOT_YET and back.kind in _AMONG_COPIES:
        return back
    return found


def judge_idle(group: GroupToMove) -> GroupMove:
    """Return whether one group can move now. A group with members is refused."""
    if not group.is_idle and group.protocol_type in CONSUMERS:
        return _refused(
            group,
            f"it has members on {group.here} ({group.state}): {_named(group.members)}",
            f"Stop these consumers, and move it then. A running group could commit on {group.here} meanwhile.",
        )
    return _judged(group)


def judge_at_ends(group: GroupToMove, *, is_left: bool = False) -> GroupMove:
    """Return whether a group is final: it can move while no producer writes here any more.

    It is final if it has no members, or if its members have read all data records up to the ends: what it has committed
    does not change any more, although its consumers are still connected.

    Args:
        group: with ``log_end`` of each partition as the end at which producers are fenced.
        is_left: an operator leaves it out.
    """
    if is_left:
        return replace(_judged(group), state=MoveState.LEFT, why="an operator leaves it out", remedy="")
    found = _judged(group)
    if group.is_idle or found.state in {MoveState.REFUSED, MoveState.LEFT}:
        return found
    unread = [reason for part in group.partitions if (reason := _unread(part))]
    unread += [
        f"it has committed nothing in {topic}-{number}, which holds records" for topic, number in group.uncommitted
    ]
    if not unread:
        return found
    more = f", and {len(unread) - 1} more" if len(unread) > 1 else ""
    return replace(
        found,
        state=MoveState.WAITS,
        why=f"it has members on {group.here}, and {unread[0]}{more}",
        remedy=f"Let its consumers read to the end and commit, or stop them: {_named(group.members)}.",
    )


def commits_of(group: GroupToMove, move: GroupMove) -> dict[TopicPartition, Commit]:
    """Return what to commit there for a group that is ready, with the metadata that it has here."""
    if move.state is not MoveState.READY:
        raise AssertionError(f"group {group.group} is not ready to move")
    return {
        (one.other_topic, one.partition): Commit(one.goes_on_at, part.committed.metadata)
        for part, one in zip(group.partitions, move.partitions, strict=True)
        if one.goes_on_at is not None
    }


def _judged(group: GroupToMove) -> GroupMove:
    """Judge what does not depend on the members of the group here."""
    if group.protocol_type not in CONSUMERS:
        why = f"it is a {group.protocol_type} group, and keeps its positions in another way: it is not moved"
        remedy = _SHARE_REMEDY if group.protocol_type == SHARE else ""
        return replace(_refused(group, why, remedy), state=MoveState.LEFT)
    if group.state_there and group.protocol_type_there not in CONSUMERS:
        why = f"on {group.there} it is a {group.protocol_type_there} group"
        return _refused(group, why, "Give one of the two another name.")
    if group.state_there not in {"", IDLE}:
        why = f"it has members on {group.there} ({group.state_there}): {_named(group.members_there)}"
        return _refused(group, why, "Brokers take no commit for a group with members. Stop these consumers first.")
    if group.refused:
        return _refused(group, group.refused, "")
    if not group.partitions:
        why = f"it has committed nothing on {group.here} that could be moved"
        return _refused(group, why, "Look at its offsets with kafka-consumer-groups.sh --describe.")
    found = [_partition(part, group) for part in group.partitions]
    moves = tuple(move for move, _ in found)
    for state in (MoveState.REFUSED, MoveState.WAITS):
        reasons = [(move, remedy) for move, remedy in found if move.state is state]
        if reasons:
            first, remedy = reasons[0]
            more = f", and {len(reasons) - 1} more partition(s)" if len(reasons) > 1 else ""
            why = f"{first.topic}-{first.partition}: {first.text}{more}"
            return GroupMove(group.group, group.here, group.there, state, why, remedy, False, moves)
    is_there = all(part.committed_there == move.goes_on_at for part, move in zip(group.partitions, moves, strict=True))
    return GroupMove(group.group, group.here, group.there, MoveState.READY, "", "", is_there, moves)


def _refused(group: GroupToMove, why: str, remedy: str) -> GroupMove:
    moves = tuple(move for move, _ in (_partition(part, group) for part in group.partitions))
    return GroupMove(group.group, group.here, group.there, MoveState.REFUSED, why, remedy, False, moves)


def _partition(part: PartitionToMove, group: GroupToMove) -> tuple[PartitionMove, str]:
    """Return what becomes of a partition, and what an operator can do about it."""
    state, text, remedy = _why_not(part, group)
    place = part.place
    at = None if place is None or place.offset is None else _within_log(place.offset, part)
    move = PartitionMove(
        part.topic,
        part.partition,
        part.committed.offset,
        part.other_topic,
        at,
        state is MoveState.READY,
        state,
        text,
    )
    return move, remedy


def _within_log(offset: int, part: PartitionToMove) -> int:
    """Return where to commit: an offset that the log there has, else consumers would reset by their own policy.

    A commit that is there already and only has markers before it stays: no offset goes back without need.
    """
    wanted = max(part.start_there, min(offset, part.end_there))
    if part.committed_there is not None and part.read_there is None:
        return max(wanted, min(part.committed_there, part.end_there))
    return wanted


def _why_not(part: PartitionToMove, group: GroupToMove) -> tuple[MoveState, str, str]:
    """Return the state of a partition, why it is not ready, and what an operator can do."""
    here, there, place = group.here, group.there, part.place
    other = f"{part.other_topic}-{part.partition}"
    if part.unknown or place is None:
        return MoveState.REFUSED, part.unknown, "Leave the topic out with --leave-topic, or mirror it first."
    if part.committed.offset > part.log_end:
        text = f"its commit is beyond the end of {part.name} on {here}, which is {part.log_end:,}"
        return MoveState.REFUSED, text, "Records were lost, or the topic was recreated: set its offset, and move it."
    if part.only_here is not None:
        text = f"it has read records from {part.only_here:,} on in {part.name} on {here} that {there} does not have"
        return MoveState.REFUSED, text, f"Only a flow {here}->{there} brings them. Start it, and move the group by it."
    if place.kind is AnswerKind.NOT_YET:
        open_at = f": an open transaction begins at {part.stable_end:,}" if part.stable_end < part.log_end else ""
        return MoveState.WAITS, f"what it has read is not copied yet, or not in the ledger{open_at}", ""
    if place.offset is None:
        text = "it has committed an offset before the ledger"
        return MoveState.REFUSED, text, "mm2py rebuild-ledger FILE writes what the ledger lacks."
    if place.offset < part.start_there and place.kind is not AnswerKind.END:
        text = f"{there} has deleted the records before {part.start_there:,} of {other}, which it has not read"
        return MoveState.REFUSED, text, f"Let it read on on {here}, or set its offset there."
    if place.offset > part.end_there:
        text = f"its place is {place.offset:,}; {other} ends at {part.end_there:,} on {there}: records were lost there"
        return MoveState.REFUSED, text, "See mm2py gaps FILE. If they are copied again, move the group then."
    if not place.is_exact:
        text = f"its exact place is not known ({place.kind.value}); it would read records again"
        return MoveState.REFUSED, text, f"Let it read on on {here}. mm2py rebuild-ledger FILE may find the place."
    if part.read_there is not None:
        text = f"on {there} it has committed {part.committed_there:,}, and would be set back to {part.read_there:,}"
        return MoveState.REFUSED, text, f"It has read on {there} already, or it was set back on {here}: decide by hand."
    return MoveState.READY, "", ""


def _unread(part: PartitionToMove) -> str:
    """Return what the members of a group have not read of a partition; empty: nothing."""
    if part.next_record is not None:
        return f"has not read {part.name} from {part.next_record:,} on"
    if part.stable_end < part.log_end and part.committed.offset < part.log_end:
        return f"an open transaction in {part.name} begins at {part.stable_end:,}"
    return ""


def _named(members: Iterable[GroupMember]) -> str:
    """Return members with their hosts, the first ones by name."""
    names = [str(one) for one in members]
    if not names:
        return "the cluster does not tell which"
    more = f" and {len(names) - MEMBERS_NAMED_MOST} more" if len(names) > MEMBERS_NAMED_MOST else ""
    return ", ".join(names[:MEMBERS_NAMED_MOST]) + more
