"""The gaps that a copier finds: what is missing where, in words for the operator, and where copying can go on. Pure.

Answers to nothing in MM2: its consumer goes on at the earliest record, or in the middle, and says nothing. If ``done``
says STOPPED the partition stalls, and ``gaps`` decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from mm2py.records.status_record import Done, GapKind
from mm2py.replication.copying.events import (
    Diverged,
    Effect,
    GapFound,
    Need,
    SourceRewritten,
    TargetLost,
    UnexpectedMet,
)
from mm2py.replication.positions.position import Position


def source_cut_back(event: Diverged, position: Position, *, fetch_offset: int) -> GapFound:
    """Return the gap where the source log ends, in the epoch that was read last, before ``fetch_offset``."""
    text = (
        f"the source log was cut back to offset {event.end_offset} (leader epoch {event.epoch}), "
        f"and {fetch_offset} had been read; what replaced it cannot be told apart"
    )
    go_on_at = min(event.end_offset, position.source_offset)
    last = max(event.end_offset, fetch_offset - 1)
    return GapFound(GapKind.TRUNCATED, event.end_offset, last, Done.STOPPED, text, go_on_at)


def source_rewritten(event: SourceRewritten) -> GapFound:
    """Return the gap where other records stand in the source than were copied."""
    text = (
        f"records of the source offsets {event.first} to {event.last} were copied, and others stand there "
        "now: the source log was cut back"
    )
    return GapFound(GapKind.TRUNCATED, event.first, event.last, Done.STOPPED, text, event.first)


def source_ends_before(position: Position, log_end: int) -> GapFound:
    """Return the gap where the whole source log ends before the position."""
    at = position.source_offset
    text = f"the position is source offset {at} and the log ends at {log_end}: it was cut back or made anew"
    return GapFound(GapKind.TRUNCATED, log_end, at - 1, Done.STOPPED, text, log_end)


def source_expired(position: Position, log_start: int, *, stops: bool) -> GapFound:
    """Return the gap where the source log begins behind the position."""
    first, last = position.source_offset, log_start - 1
    text = expired_text(first, last)
    if stops:
        return GapFound(GapKind.EXPIRED, first, last, Done.STOPPED, text, log_start)
    return GapFound(GapKind.EXPIRED, first, last, Done.CONTINUED, f"{text}; it goes on at {log_start}", log_start)


def expired_text(first: int, last: int) -> str:
    return f"source offsets {first} to {last} were deleted before they were copied"


def target_lost(event: TargetLost, position: Position) -> GapFound:
    """Return the gap where the remote partition was looked at, and does not hold what was stored in it."""
    where = "ends" if event.end < event.expected else "reads differently"
    text = event.known or (
        f"the remote partition {where} at offset {event.end}, and all up to {event.expected} had been "
        "stored: it was cut back"
    )
    return _target_truncated(position, text)


def target_stored_before(position: Position, stored_at: int) -> GapFound:
    """Return the gap where a new batch was stored before the end of what had been stored."""
    text = f"the target stored a batch at offset {stored_at}, and all up to {position.target_offset} had been stored"
    return _target_truncated(position, text)


def unexpected_met(event: UnexpectedMet, position: Position) -> GapFound:
    """Return the gap where records stand that this life has not written: some may be missing, or there twice."""
    return GapFound(event.kind, None, None, Done.STOPPED, event.text, position.source_offset)


def _target_truncated(position: Position, text: str) -> GapFound:
    at = position.source_offset
    return GapFound(GapKind.TARGET_TRUNCATED, None, at - 1, Done.STOPPED, text, at)


def out_of_order(refused_offset: int) -> str:
    """Return why a partition stops whose batch of this source offset was refused, and a later one stored."""
    return (
        f"the target stored a batch behind the one of source offset {refused_offset}, which it had refused; it has lost"
        " what it knew about this producer"
    )


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps that stop a partition, from when they are met until all that was sent before is settled.

    The story: a cut of the source shows while two batches are in flight. They are stored and acknowledged, and a gap
    that was told before names a position that the partition has left: what an operator accepts would copy them again.

    The target offset of a position is always as if the target had lost nothing: a new owner that reads it finds the
    remote partition short once more. How much is lost is kept here until all is settled.
    """

    met: tuple[GapFound, ...] = ()
    """Those that are not told yet."""
    is_looked_up: bool = False
    """The target was read already, and that is how the gap came to light: it tells no more."""
    _met_at: Position | None = None
    _go_on_at: int | None = None
    """Where the source makes it go on; None where only the copy is not what it should be."""
    _lost: int = 0

    def add(self, gap: GapFound, position: Position, *, lost: int, is_looked_up: bool) -> Gaps:
        """Return these gaps with one more.

        Args:
            position: where the partition stands, as if nothing were lost.
            lost: how many more offsets the remote partition is short of it.
            is_looked_up: the gap was found by looking up what was sent and not acknowledged.
        """
        return replace(
            self,
            met=(*self.met, gap),
            is_looked_up=self.is_looked_up or is_looked_up,
            _met_at=self._met_at if self.met else position,
            _lost=self._lost + lost,
        )

    def as_it_is(self, position: Position) -> Position:
        """Return the position with the target offset of the remote partition as it really is."""
        return position.cut_back(self._lost) if self._lost else position

    def as_if_whole(self, position: Position) -> Position:
        """Return a position, read from the remote partition as it really is, as if nothing were lost."""
        return position.cut_back(-self._lost) if self._lost else position

    def behind_a_hole(self) -> Gaps:
        """Return what is left to tell if a batch is missing from the copy: nobody can go on behind a gap of the source.

        What the target has lost is told all the same: the new owner may not see it by where the log ends.
        """
        met = tuple(gap for gap in self.met if gap.kind is GapKind.TARGET_TRUNCATED)
        return replace(self, met=met, _go_on_at=None, is_looked_up=bool(met))

    def tell(self, position: Position) -> tuple[Gaps, Sequence[Effect]]:
        """Return what is to be told, each with where the partition can go on, and what is left: it is known by now
        that the partition stands at ``position``."""
        go_on_at = self._go_on_at
        for gap in self.met:
            if gap.first_offset is not None:
                at = max(gap.go_on_at, min(gap.first_offset, position.source_offset))
                go_on_at = at if go_on_at is None else min(at, go_on_at)
        at = position.source_offset if go_on_at is None else go_on_at
        effects: list[Effect] = [replace(gap, go_on_at=at) for gap in self.met]
        if position != self._met_at:
            effects.append(Need.STORE_POSITION)
        return replace(self, met=(), _go_on_at=go_on_at, _lost=0), effects


NO_GAPS: Final = Gaps()
