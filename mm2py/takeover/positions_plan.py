"""Which positions of another mirror are taken over, and which are not. Pure.

A position is judged by the two logs: the source has to have it, and the copy has to be where mm2py will write. Kafka
Connect keeps the positions of deleted topics for ever, so these are left out and named.

MirrorMaker 2 has no counterpart: it takes every position that it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.flow import Flow
from mm2py.text_table import text_table

SHOWN_MOST: Final = 200


class PositionOutcome(StrEnum):
    """What becomes of a position."""

    TAKEN = "taken over"
    STORED = "stored already"
    LEFT = "left out"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """The position of one partition where the mirror ran, and what the two clusters say of it."""

    topic: str
    partition: int
    next_source: int
    """The source offset at which the mirror goes on."""
    remote_topic: str
    is_selected: bool
    """The flow of mm2py copies the topic."""
    source: tuple[int, int] | None
    """Where the source partition begins and ends; None: there is none."""
    target_end: int | None
    """Where the remote partition ends; None: there is none."""
    stored: int | None
    """The position that is stored for mm2py; None: none is."""


@dataclass(frozen=True, slots=True)
class JudgedPosition:
    """A position, and what becomes of it."""

    found: FoundPosition
    outcome: PositionOutcome
    why: str = ""
    """A clause; empty where nothing is special."""

    @property
    def waiting(self) -> int:
        """How many source offsets are not copied yet."""
        end = self.found.next_source if self.found.source is None else self.found.source[1]
        return max(0, end - self.found.next_source)


def judge_position(found: FoundPosition) -> JudgedPosition:
    """Return what becomes of one position."""
    if found.source is None:
        return JudgedPosition(found, PositionOutcome.LEFT, "the source has no such partition any more")
    if not found.is_selected:
        return JudgedPosition(found, PositionOutcome.LEFT, "the flow does not copy this topic")
    begin, end = found.source
    if found.next_source > end:
        return JudgedPosition(
            found,
            PositionOutcome.REFUSED,
            f"the source ends at {end}: the topic was deleted and made again. Delete this position where the mirror"
            " ran, and decide about the remote topic",
        )
    if not found.target_end:
        return JudgedPosition(
            found,
            PositionOutcome.REFUSED,
            f"{found.remote_topic}-{found.partition} is empty or missing on the target: the mirror writes elsewhere."
            " Its records go where the producer of the Connect worker writes; name that cluster as the target",
        )
    if found.stored is not None and found.stored > found.next_source:
        return JudgedPosition(
            found,
            PositionOutcome.REFUSED,
            f"position {found.stored} is stored for mm2py already, which is further: records would come twice",
        )
    outcome = PositionOutcome.STORED if found.stored == found.next_source else PositionOutcome.TAKEN
    gone = f"the source begins at {begin}: what was there before is lost" if begin > found.next_source else ""
    return JudgedPosition(found, outcome, gone)


def lines_of_positions(flow: Flow, judged: Sequence[JudgedPosition]) -> list[str]:
    """Return the positions of a flow as a table, with the sums."""
    rows = [
        [
            one.found.topic,
            str(one.found.partition),
            f"{one.found.next_source:,}",
            f"{one.waiting:,}",
            "-" if one.found.target_end is None else f"{one.found.target_end:,}",
            str(one.outcome),
            one.why,
        ]
        for one in sorted(judged, key=_order)
    ]
    head = ["topic", "partition", "goes on at", "wait", "copy ends at", "is", ""]
    lines = text_table(head, rows[:SHOWN_MOST], right=(1, 2, 3, 4))
    counts = Counter(one.outcome for one in judged)
    sums = ", ".join(f"{counts[outcome]} {outcome}" for outcome in PositionOutcome if counts[outcome])
    more = [f"  ... and {len(rows) - SHOWN_MOST} more"] if len(rows) > SHOWN_MOST else []
    return [str(flow), *(f"  {line}" for line in lines), *more, f"  {len(judged)} positions: {sums or 'none'}."]


def refusals_of(judged: Iterable[JudgedPosition]) -> list[JudgedPosition]:
    """Return those that are refused."""
    return [one for one in judged if one.outcome is PositionOutcome.REFUSED]


def _order(one: JudgedPosition) -> tuple[bool, bool, str, int]:
    """Show first what an operator has to see."""
    is_plain = one.outcome in {PositionOutcome.TAKEN, PositionOutcome.STORED} and not one.why
    return one.outcome is not PositionOutcome.REFUSED, is_plain, one.found.topic, one.found.partition
