"""What ``mm2py groups --move`` prints, for people and for programs. Pure."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from mm2py.dr.groups.judgement import GroupMove, MoveState, PartitionMove
from mm2py.records.history_record import SettingChange
from mm2py.status.bodies import FormatBody


class MoveOutcome(StrEnum):
    """What came of it."""

    MOVED = "moved"
    THERE = "there"
    """All of it was committed there before; nothing was written."""
    READY = "ready"
    """It would be moved: only the plan was asked for, or the answer was no."""
    WAITS = "waits"
    REFUSED = "refused"


class GroupMoveBody(FormatBody):
    """One group that moves to the other cluster: ``mm2py groups --move --json``."""

    flow: str = Field(examples=["A->B"])
    """The flow."""
    group: str = Field(examples=["billing"])
    """The group."""
    leaves: str = Field(examples=["A"])
    """The cluster that it leaves."""
    goes_to: str = Field(examples=["B"])
    """The cluster where it goes on."""
    outcome: MoveOutcome
    """What came of it."""
    why: str
    """Why it was not moved; empty if it was, or would be."""
    remedy: str
    """What an operator can do about that; empty if nothing has to be done."""
    by: str
    """Who asked, in words."""
    partitions: tuple[PartitionMove, ...]
    """Each partition in which it has committed something."""


def outcome_of(move: GroupMove, *, is_moved: bool) -> MoveOutcome:
    """Return what came of a move."""
    match move.state:
        case MoveState.READY if move.is_there:
            return MoveOutcome.THERE
        case MoveState.READY:
            return MoveOutcome.MOVED if is_moved else MoveOutcome.READY
        case MoveState.WAITS:
            return MoveOutcome.WAITS
        case MoveState.REFUSED | MoveState.LEFT:
            return MoveOutcome.REFUSED


def plan_text(move: GroupMove) -> str:
    """Return what people read before anything is done, partition by partition."""
    lines = [f"Group {move.group} moves from {move.here} to {move.there}:"]
    if move.state is not MoveState.READY:
        lines = [f"Group {move.group} cannot move from {move.here} to {move.there} now: {move.why}."]
        lines += [move.remedy] if move.remedy else []
    elif move.is_there:
        lines = [f"Group {move.group} is on {move.there} already, and nothing is to be done:"]
    return "".join(f"{line}\n" for line in [*lines, *(f"  {one.line}" for one in move.partitions)])


def moved_text(move: GroupMove) -> str:
    """Return what people read after a group was moved."""
    offsets = f"{len(move.partitions)} offset{'' if len(move.partitions) == 1 else 's'}"
    return (
        f"Group {move.group} is moved: {offsets} committed on {move.there}, read back and equal. Start its consumers on"
        f" {move.there} only.\n"
    )


def changes_of(move: GroupMove) -> list[SettingChange]:
    """Return the offsets of a move for the history of the flow."""
    return [SettingChange(f"{one.topic}-{one.partition}", one.line) for one in move.partitions]
