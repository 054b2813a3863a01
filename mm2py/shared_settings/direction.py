"""When a flow may copy and when it is standby, and where it begins once it is turned on. Pure.

Under the identity policy a flow and the flow back would copy the same records to and fro without end. So at most one of
the two is on. Each has a record of its own on its own target (``records/direction_record.py``), and no request changes
both. Three rules keep them apart:

* A turn first stores that the flow is being turned on, and then reads the other flow's record. Two turns at the same
  time each store first, so at least one of them sees the other and gives way.
* The other flow must be off, and its workers must have said that nothing of it runs and that all it sent was answered.
* A worker that sees both on stops its flow. The workers of the other flow see the same, and stop theirs.

MirrorMaker 2 refuses nothing, and copies such a ring without end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.port import TopicPartition
from mm2py.records.direction_record import BY_FILE, Direction, DirectionState
from mm2py.records.operator_request import Target, TargetState
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition

NAMED_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a flow's direction."""

    stored: Direction | None
    """None: nothing is stored yet."""
    standby: bool
    """What its file says, which is the first value."""
    offset: int = -1
    """Where the record is in the configs topic."""

    @property
    def is_on(self) -> bool:
        """Whether the flow copies, as far as this decides it."""
        return not self.standby if self.stored is None else self.stored.is_on

    @property
    def claims(self) -> bool:
        """Whether it copies, or is about to: the flow back must not be turned on."""
        return self.is_on or (self.stored is not None and self.stored.state is DirectionState.TURNING_ON)

    @property
    def text(self) -> str:
        """What counts, in words."""
        if self.stored is not None:
            return self.stored.text
        return f"{'standby' if self.standby else 'on'} by {BY_FILE}"


def both_on(own: Seen, other: Seen | None) -> bool:
    """Whether both directions are on, which no turn lets happen: a record was deleted or written by other means.

    Args:
        other: the flow back, if the two must not be on at the same time; else None.
    """
    return other is not None and other.stored is not None and other.is_on and own.is_on


def hold_of(own: Seen, flow_back: Flow | None = None, other: Seen | None = None) -> Target | None:
    """Return why a flow is standby; None: it may copy.

    Args:
        flow_back: see ``other`` of ``both_on``; likewise ``other``.
    """
    if both_on(own, other):
        assert other is not None  # noqa: S101
        by = f"{flow_back} is {other.text} as well"
        return Target(TargetState.BOTH_ON, by, None if own.stored is None else own.stored.at_ms, own.offset)
    if own.is_on:
        return None
    return Target(TargetState.STANDBY, BY_FILE) if own.stored is None else own.stored.hold(own.offset)


def first_direction(*, standby: bool, other: Seen | None) -> Direction:
    """Return what a flow's first worker stores: what its file says, unless the flow back is on already.

    The story: B has taken over from A, and B->A is on. The configs topic of A->B was lost with a broker. The file still
    says that A->B is not standby; a worker that starts must not copy what came from B.

    Args:
        other: see ``both_on``. Without a record it has not decided anything yet.
    """
    is_taken = other is not None and other.stored is not None and other.claims
    state = DirectionState.OFF if standby or is_taken else DirectionState.ON
    by = "mm2py, because the flow back is on" if is_taken and not standby else BY_FILE
    return Direction(state, 1, by, 0)


class TurnRefused(Mm2Error):
    """A flow cannot be turned on now; nothing was changed."""


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What decides whether a flow may be turned on."""

    flow: Flow
    flow_back: Flow
    """The flow that must not be on at the same time."""
    other: Seen
    """Its direction."""
    runs: str
    """Why it may still write; empty: all its workers have drained."""
    extras: Mapping[TopicPartition, int]
    """What ``flow_back`` has not copied, in records, by partition: with ``flow`` on it stays where it is."""


def refuse_turn(facts: TurnFacts, *, force: bool) -> None:
    """Raises: TurnRefused, if a flow must not be turned on.

    Args:
        force: the caller accepts ``extras``, because the cluster that has them was away or lost.
    """
    flow, back = facts.flow, facts.flow_back
    what = f"{flow} cannot be turned on: "
    if facts.other.claims:
        raise TurnRefused(
            f"{what}{back} is {facts.other.text}.", remedy=f"Turn {back} off first: mm2py dr turn FILE '{back}' --off."
        )
    if facts.runs:
        raise TurnRefused(
            f"{what}{back} may still write: {facts.runs}.",
            remedy="Ask again. If that worker is dead, start one: it evicts and fences the other, and stays standby.",
        )
    if facts.extras and not force:
        named = [f"{topic}-{number} ({count:,})" for (topic, number), count in sorted(facts.extras.items())]
        more = f" and {len(named) - NAMED_MOST} more" if len(named) > NAMED_MOST else ""
        raise TurnRefused(
            f"{what}{flow.target} has records that {back} has not copied to {flow.source}:"
            f" {', '.join(named[:NAMED_MOST])}{more}.",
            remedy=f"Turn {back} on again until it has copied them, or repeat this with --force: then they stay on"
            f" {flow.target} only.",
        )


Positions = Mapping[TopicPartition, StoredPosition]
"""Of one flow, by topic and partition; under the identity policy these names are the same on both clusters."""


def starts_behind(brought: Positions, own: Positions, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return where a flow begins in each partition so that nothing that the flow back brought is copied back.

    It begins where the copy of the flow back ends. What clients have written behind that, even before the turn, is
    copied. A partition is not here if the flow goes on at its own position, because nothing was brought behind that; or
    if the flow back has never copied it: then it begins at its start.

    Args:
        brought: the positions of the flow back.
        own: those of the flow that is turned on.
        ends: the ends of the same partitions on its source.
    """
    found: dict[TopicPartition, int] = {}
    for key, end in ends.items():
        theirs, mine = brought.get(key), own.get(key)
        if theirs is None:
            continue
        if theirs.next_target is not None:
            start = min(theirs.next_target, end)
        elif theirs.by == BY_OPERATOR and mine is not None:
            continue  # it was turned on and off again before it copied a record
        else:
            start = end
        if mine is None or mine.recopy or mine.next_source < start:
            found[key] = start
    return found


def extras(
    brought: Positions, own: Positions, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how many records of each partition the flow back has not copied, in offsets; only those that have some.

    What the flow that is turned on has brought there itself is none of them: the flow back does not take it back.

    Args:
        brought, own: see ``starts_behind``.
        starts: where the logs of partitions begin that have no position in ``brought``.
        ends: where all partitions of the flow back end, on the target of the flow that is turned on.
    """
    missing: dict[TopicPartition, int] = {}
    for key, end in ends.items():
        copied = brought[key].next_source if key in brought else starts.get(key, end)
        arrived = own[key].next_target if key in own else None
        missing[key] = end - max(copied, 0 if arrived is None else arrived)
    return {key: count for key, count in missing.items() if count > 0}
