"""Gaps: source records that cannot be copied, or copies that are missing, and what is done about them. Pure.

A copier describes a gap in words for the operator, with the offset where copying can continue. ``decide`` applies the
policies ``on.source.gap`` and ``on.target.loss``. ``PoisonSearch`` finds single records that the target refuses: it
reads a batch again in smaller pieces until the refused record is alone. That is *poison*: the partition waits at it, or
the quarantine keeps it (docs/quarantine.md) and copying continues after it.

MirrorMaker 2 has none of this. Its consumer continues at the earliest record (``auto.offset.reset``) without a report,
and its task fails at a refused record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from mm2py.copying.events import (
    Diverged,
    Effect,
    GapFound,
    Need,
    OperatorNotice,
    Poison,
    SourceRewritten,
    TargetLost,
    UnexpectedMet,
)
from mm2py.copying.planning.steps import Fault, Outgoing
from mm2py.copying.positions import Position
from mm2py.kafka.error_codes import INVALID_TIMESTAMP
from mm2py.moments import time_text
from mm2py.records.gap_record import Done, GapKind, SourcePolicy, TargetPolicy

_DONE: Final[dict[SourcePolicy, Done]] = {
    "stop": Done.STOPPED,
    "continue": Done.CONTINUED,
    "restart": Done.RESTARTED,
}


def decide(kind: GapKind, *, on_source_gap: SourcePolicy | None, on_target_loss: TargetPolicy) -> Done:
    """Return what is to be done about a gap.

    Args:
        on_source_gap: None if it is not set. Then expired records are skipped, as retention would delete more of them
            during a stop. Gaps where other records may have replaced the missing ones wait for an operator.
    """
    if kind.is_of_target:
        return Done.RESTARTED if on_target_loss == "recopy" else Done.STOPPED
    if kind is GapKind.DELETED:
        return Done.KEPT
    if kind.is_unexpected or kind is GapKind.TRANSFORMS:
        return Done.STOPPED
    if on_source_gap is not None:
        return _DONE[on_source_gap]
    return Done.CONTINUED if kind is GapKind.EXPIRED else Done.STOPPED


def source_cut_back(event: Diverged, position: Position, *, fetch_offset: int) -> GapFound:
    """Return the gap of a source log that ends, in the epoch read last, before ``fetch_offset``."""
    text = (
        f"the source log was cut back to offset {event.end_offset} (leader epoch {event.epoch}), "
        f"and {fetch_offset} had been read; what replaced it cannot be told apart"
    )
    go_on_at = min(event.end_offset, position.source_offset)
    last = max(event.end_offset, fetch_offset - 1)
    return GapFound(GapKind.TRUNCATED, event.end_offset, last, Done.STOPPED, text, go_on_at)


def source_rewritten(event: SourceRewritten) -> GapFound:
    """Return the gap of a source that now has other records in the place of copied ones."""
    text = (
        f"records of the source offsets {event.first} to {event.last} were copied, and others stand there "
        "now: the source log was cut back"
    )
    return GapFound(GapKind.TRUNCATED, event.first, event.last, Done.STOPPED, text, event.first)


def source_ends_before(position: Position, log_end: int) -> GapFound:
    """Return the gap of a source log that ends before the position."""
    at = position.source_offset
    text = f"the position is source offset {at} and the log ends at {log_end}: it was cut back or recreated"
    return GapFound(GapKind.TRUNCATED, log_end, at - 1, Done.STOPPED, text, log_end)


def source_expired(position: Position, log_start: int, *, stops: bool) -> GapFound:
    """Return the gap of a source log that begins after the position."""
    first, last = position.source_offset, log_start - 1
    text = expired_text(first, last)
    if stops:
        return GapFound(GapKind.EXPIRED, first, last, Done.STOPPED, text, log_start)
    return GapFound(GapKind.EXPIRED, first, last, Done.CONTINUED, f"{text}; it goes on at {log_start}", log_start)


def expired_text(first: int, last: int) -> str:
    return f"source offsets {first} to {last} were deleted before they were copied"


def target_lost(event: TargetLost, position: Position) -> GapFound:
    """Return the gap of a remote partition that does not hold what was stored in it."""
    where = "ends" if event.end < event.expected else "reads differently"
    text = event.known or (
        f"the remote partition {where} at offset {event.end}, and all up to {event.expected} had been "
        "stored: it was cut back"
    )
    return _target_truncated(position, text)


def target_stored_before(position: Position, stored_at: int) -> GapFound:
    """Return the gap of a remote partition that stored a new batch at an offset that was taken."""
    text = f"the target stored a batch at offset {stored_at}, and all up to {position.target_offset} had been stored"
    return _target_truncated(position, text)


def unexpected_met(event: UnexpectedMet, position: Position) -> GapFound:
    """Return the gap of records that this incarnation did not write: some may be missing, or stored twice."""
    return GapFound(event.kind, None, None, Done.STOPPED, event.text, position.source_offset)


def _target_truncated(position: Position, text: str) -> GapFound:
    at = position.source_offset
    return GapFound(GapKind.TARGET_TRUNCATED, None, at - 1, Done.STOPPED, text, at)


def out_of_order(refused_offset: int) -> str:
    """Say why a partition stops: its batch of this source offset was refused, and a later one stored."""
    return (
        f"the target stored a batch behind the one of source offset {refused_offset}, which it had refused; it has lost"
        " what it knew about this producer"
    )


@dataclass(frozen=True, slots=True)
class Gaps:
    """The gaps that stop a partition, from when they are found until all that was sent before is settled.

    The story: the source is cut back while two batches are in flight. If the gap were reported at once, it would name
    a position that the partition leaves when they are acknowledged. An operator who accepts the gap would have both
    batches copied again.

    A position always has the target offset as if the target had lost nothing, so that a new owner notices the loss,
    too. How much is lost is kept here until every batch that was sent is settled.
    """

    met: tuple[GapFound, ...] = ()
    """Those that are not reported yet."""
    is_looked_up: bool = False
    """The gap was found by reading the target. Another lookup would find nothing more."""
    _met_at: Position | None = None
    _go_on_at: int | None = None
    """The source offset where copying can continue; None if only the copy is wrong."""
    _lost: int = 0

    def add(self, gap: GapFound, position: Position, *, lost: int, is_looked_up: bool) -> Gaps:
        """Return these gaps with one more.

        Args:
            position: the partition's position, as if nothing were lost.
            lost: how many more offsets the remote partition has lost.
            is_looked_up: see the attribute.
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
        """Return the gaps that must still be reported if a batch is missing from the copy: losses of the target.

        The end of the log may not show these losses to a new owner. Copying cannot continue after a gap of the source.
        """
        met = tuple(gap for gap in self.met if gap.kind is GapKind.TARGET_TRUNCATED)
        return replace(self, met=met, _go_on_at=None, is_looked_up=bool(met))

    def tell(self, position: Position) -> tuple[Gaps, Sequence[Effect]]:
        """Return the gaps that remain, and the reports, each with the offset where the partition can continue.

        Every batch that was sent is settled, and the partition is at ``position``.
        """
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


REPORT_QUARANTINED: Final = 1000
"""The first of adjacent records in quarantine is reported, and of each partition one record in this many."""
_LEAVE_OUT: Final = (
    " Find the producer that wrote it. To leave the batch out, stop the source connector, alter the offset of the"
    " partition to {last_offset}, and resume it. Until then it is tried again every 30 seconds."
)
_WAYS_OUT: Final = {
    "decompression bomb": _LEAVE_OUT,
    "over budget": _LEAVE_OUT,
    "transform failed": (
        " Correct the transform, and restart the workers. To leave the record out, stop the source connector, alter the"
        " offset of the partition to {last_offset}, and resume it. Until then it is tried again every 30 seconds."
    ),
}
_POISONS: Final = {"too large": 10, "null key on compacted target": 87}
"""Faults found before sending, because the target's settings would refuse the record, and the code of that refusal."""


class PoisonSearch:
    """What a copier remembers of refused records: how to read the source, and which record was found."""

    __slots__ = ("cut_until", "found", "is_kept", "pass_until", "quarantines")

    def __init__(self, *, quarantines: bool) -> None:
        self.quarantines = quarantines
        """A record that is found goes into quarantine, and copying continues."""
        self.pass_until = -1
        """Below this source offset no batches are merged: the target refused a merged batch."""
        self.cut_until = -1
        """Batches that begin below this source offset are cut into single records: the target refused one."""
        self.found: Poison | None = None
        """The record to be kept in quarantine, until the source is read again."""
        self.is_kept = False
        """The quarantine has stored it. Copying continues after it when nothing is in flight."""

    def narrow(self, batch: Outgoing, code: int, what: str) -> tuple[Poison | None, str]:
        """Decide how to find the refused record of this batch: a merged batch is not merged again, any other is cut.

        Args:
            what: the name of the code, and the target's message.
        Returns:
            The record if the batch has no other, else None; and what the target refuses, in words.
        """
        first = batch.first_offset
        if batch.reason == "repack":
            self.pass_until = batch.next_offset
            return None, f"the target refuses a batch made of several, of source offset {first}, with {what}"
        if batch.record_count > 1:
            self.cut_until = max(self.cut_until, batch.next_offset)
            many = f"a batch of {batch.record_count} records, of source offset {first}"
            return None, f"the target refuses {many}, with {what}"
        poison = Poison(first, batch.next_offset, batch.leader_epoch, code, what, was_sent=True)
        when = f" ({time_text(batch.max_timestamp_ms)})" if code == INVALID_TIMESTAMP else ""
        return poison, f"the target refuses the record of source offset {first}{when} with {what}"

    def keep(self, poison: Poison) -> None:
        """Remember the record that the quarantine is asked to keep."""
        self.found, self.is_kept = poison, False

    def kept(self, offset: int) -> bool:
        """Note that the quarantine has stored the record of this offset.

        Returns False if the copier does not wait for it any more: it was sent again meanwhile, and may be stored.
        """
        if self.found is None or offset != self.found.offset:
            return False
        self.is_kept = True
        return True


def fault_text(fault: Fault) -> str:
    """Say what cannot be copied, and what an operator can do about it."""
    way_out = _WAYS_OUT.get(fault.kind, "")
    if fault.next_offset is not None:
        way_out = way_out.format(last_offset=fault.next_offset - 1)
    return f"source offset {fault.offset} cannot be copied: {fault.text}{way_out}"


def poison_of(fault: Fault) -> Poison | None:
    """Return the record that the target would refuse; None for any other fault."""
    code = _POISONS.get(fault.kind)
    if code is None or fault.next_offset is None:
        return None
    return Poison(fault.offset, fault.next_offset, fault.leader_epoch, code, fault.text, was_sent=False)


def came_whole(offset: int, damaged_reads: int) -> OperatorNotice:
    """Report a batch that came damaged before and is whole now."""
    often = "once" if damaged_reads == 1 else f"{damaged_reads} times"
    text = f"the batch of source offset {offset} came damaged {often}, and whole when it was read again"
    return OperatorNotice("source.damaged", text, severe=False)


def left_out(poison: Poison) -> OperatorNotice:
    """Report a record in quarantine, after which copying continues."""
    text = f"source offset {poison.offset} was refused ({poison.text}) and is in quarantine; copying continues after it"
    return OperatorNotice("record.quarantined", text, severe=False)
