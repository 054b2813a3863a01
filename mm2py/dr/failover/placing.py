"""Where each group goes on on the target when its source is lost. Pure.

``latest``: at the exact translation of the last commit that the target knows of. ``safe``, or a time: at the first
record at or after one instant, the same for all groups and topics, so that what belongs together is read from one
point. A group that had not read so far goes on at its own record all the same: no group skips a record that is there.

Counterpart: RemoteClusterUtils of MirrorMaker 2, by which each application asks for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mm2py.dr.groups.judgement import MoveState
from mm2py.dr.states import PartitionOffsets
from mm2py.kafka.consumer_groups import Commit
from mm2py.kafka.port import TopicPartition
from mm2py.moments import moment_ms, time_text
from mm2py.offsets.answers import Answer
from mm2py.offsets.group_sync import CONSUMERS, IDLE

LATEST: Final = "latest"
SAFE: Final = "safe"
PARTITIONS_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class FailoverPoint:
    """Where groups are to go on: ``--to``."""

    word: str = LATEST
    """``latest``, ``safe``, or a time as the operator wrote it."""
    at_ms: int | None = None
    """The instant; None: ``latest``, or the safe time is not known yet."""

    @property
    def text(self) -> str:
        """The point in words."""
        if self.at_ms is None:
            return self.word
        told = f"{time_text(self.at_ms)[:-1]}.{self.at_ms % 1000:03}Z"
        return f"safe, the first record at or after {told}" if self.word == SAFE else f"the first record after {told}"


def point_of(text: str, now_ms: int) -> FailoverPoint | None:
    """Return what ``--to`` says; None: it is no point, or a time to come."""
    if text in (LATEST, SAFE):
        return FailoverPoint(text)
    at_ms = moment_ms(text, now_ms)
    return None if at_ms is None or at_ms > now_ms else FailoverPoint(text, at_ms)


@dataclass(frozen=True, slots=True)
class KnownCommit:
    """What the target knows of one group in one partition. Offsets are the next ones to read."""

    topic: str
    """Its name on the source."""
    partition: int
    other_topic: str
    """The topic on the target in which the group goes on."""
    committed: int
    """The last commit on the source that the target knows of: by the checkpoint."""
    checkpoint: int
    """Where that checkpoint says the group may go on on the target."""
    metadata: str = ""
    place: Answer | None = None
    """Where the ledger says that the group goes on; None: there is no ledger of these topics."""
    start_there: int = 0
    end_there: int = 0
    committed_there: int | None = None
    """What is committed for it on the target; None: nothing."""
    at_instant: int | None = None
    """The first record there at or after the instant; None: all are older, or no instant was asked for."""
    unknown: str = ""
    """Why it cannot go on in this partition; empty: it can."""

    @property
    def name(self) -> str:
        """The partition on the source, in words."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class LostGroup:
    """What the target knows of a group whose source is lost."""

    group: str
    state_there: str = ""
    """Kafka's word; empty: the target has no such group."""
    protocol_there: str = ""
    members_there: Sequence[str] = ()
    commits: Sequence[KnownCommit] = ()
    refused: str = ""
    """Which right to commit there is missing; empty: none is."""


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """Where a group goes on in one partition. Offsets are the next ones to read."""

    commit: KnownCommit
    goes_on_at: int
    read_again: int
    """How many offsets of that it had committed already, as far as the target knows."""
    read_again_most: int
    """How many it may read again: on the source it may have read all that was copied."""
    is_exact: bool
    """It goes on at the record that follows its last known commit, or at the instant's."""
    note: str = ""

    @property
    def line(self) -> str:
        """What people read."""
        one = self.commit
        found = f"{one.name}  {one.committed:,} -> {one.other_topic}-{one.partition}  {self.goes_on_at:,}"
        found += ", exact" if self.is_exact else ", not exact: the ledger does not reach it"
        again = f"reads again {self.read_again:,}, at most {self.read_again_most:,}"
        return f"{found}, {again}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """Whether a group can be placed, and where."""

    group: str
    state: MoveState
    """Never ``waits``."""
    why: str
    """Why it is not placed; empty: it is."""
    remedy: str
    partitions: tuple[PlacedPartition, ...]

    @property
    def read_again(self) -> int:
        return sum(one.read_again for one in self.partitions)

    @property
    def read_again_most(self) -> int:
        return sum(one.read_again_most for one in self.partitions)

    @property
    def is_there(self) -> bool:
        """All of it is committed there already."""
        return all(one.commit.committed_there == one.goes_on_at for one in self.partitions)

    @property
    def offsets(self) -> PartitionOffsets:
        """Where it goes on, by partition as the source names it."""
        return {one.commit.name: one.goes_on_at for one in self.partitions}

    @property
    def commits(self) -> dict[TopicPartition, Commit]:
        """What to commit there."""
        return {
            (one.commit.other_topic, one.commit.partition): Commit(one.goes_on_at, one.commit.metadata)
            for one in self.partitions
        }

    @property
    def lines(self) -> list[str]:
        """What people read."""
        if self.state is not MoveState.READY:
            return [f"group {self.group}: {self.state}, {self.why}"]
        lines = [f"  {one.line}" for one in self.partitions]
        more = [f"  and {len(lines) - PARTITIONS_MOST} more"] if len(lines) > PARTITIONS_MOST else []
        again = f"reads again {self.read_again:,} record(s), at most {self.read_again_most:,}"
        return [f"group {self.group}: {again}", *lines[:PARTITIONS_MOST], *more]

    @property
    def body(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {
            "group": self.group,
            "state": str(self.state),
            "why": self.why,
            "reads_again": self.read_again,
            "reads_again_at_most": self.read_again_most,
            "partitions": {
                one.commit.name: {
                    "committed": one.commit.committed,
                    "goes_on_in": f"{one.commit.other_topic}-{one.commit.partition}",
                    "goes_on_at": one.goes_on_at,
                    "is_exact": one.is_exact,
                    "reads_again": one.read_again,
                    "reads_again_at_most": one.read_again_most,
                }
                for one in self.partitions
            },
        }


def placed(group: LostGroup, point: FailoverPoint, *, is_left: bool = False) -> PlacedGroup:
    """Return where a group goes on, or why it is not placed.

    Args:
        point: with its instant.
        is_left: an operator leaves it out.
    """
    found = PlacedGroup(
        group.group,
        MoveState.READY,
        "",
        "",
        tuple(_in_partition(one, point) for one in group.commits if not one.unknown),
    )
    if is_left:
        return replace(found, state=MoveState.LEFT, why="an operator leaves it out")
    why, remedy = _why_not(group)
    return replace(found, state=MoveState.REFUSED, why=why, remedy=remedy) if why else found


def _why_not(group: LostGroup) -> tuple[str, str]:
    """Return why a group cannot be placed, and what an operator can do; empty: it can."""
    leave = f"Or leave it: --leave-group {group.group}."
    if group.state_there and group.protocol_there not in CONSUMERS:
        return f"on the target it is a {group.protocol_there} group", leave
    if group.state_there not in {"", IDLE}:
        named = ", ".join(group.members_there[:5]) or "the cluster does not tell which"
        why = f"it has members on the target already ({group.state_there}): {named}"
        return why, f"Brokers take no commit for a group with members. Stop these consumers. {leave}"
    if group.refused:
        return group.refused.rstrip("."), leave
    if bad := next((one for one in group.commits if one.unknown), None):
        return f"{bad.name}: {bad.unknown}", leave
    return "", ""


def _in_partition(one: KnownCommit, point: FailoverPoint) -> PlacedPartition:
    """Return where a group goes on in one partition.

    The story of ``committed_there``: a cutover has committed the group at the exact record, and then the source was
    lost. The last checkpoint is older. Or the group has read on the target already. It does not go back without need.
    """
    is_exact = one.place is not None and one.place.is_exact and one.place.offset is not None
    own = one.place.offset if is_exact and one.place is not None and one.place.offset is not None else one.checkpoint
    own, note = _within(own, one), ""
    there = -1 if one.committed_there is None else _within(one.committed_there, one)
    if there > own:
        own, is_exact, note = there, True, "it has committed that on the target, further than its last checkpoint"
    at = own
    if point.at_ms is not None:
        instant = one.end_there if one.at_instant is None else _within(one.at_instant, one)
        if instant < own:
            at, is_exact = instant, True
    return PlacedPartition(one, at, own - at, one.end_there - at, is_exact, note)


def _within(offset: int, one: KnownCommit) -> int:
    """Return an offset that the log has: behind its end consumers would reset by their own policy."""
    return max(one.start_there, min(offset, one.end_there))


def chosen(groups: Iterable[PlacedGroup], wanted: Sequence[str]) -> list[PlacedGroup]:
    """Return the groups that take part, sorted by name.

    Args:
        wanted: only these; none: all.
    """
    return sorted((one for one in groups if not wanted or one.group in wanted), key=lambda one: one.group)
