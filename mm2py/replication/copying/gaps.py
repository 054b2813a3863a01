"""What is done about a gap: the policies ``on.source.gap`` and ``on.target.loss``. Pure.

Answers to what MirrorMaker 2 leaves to ``auto.offset.reset``: it begins at the earliest record and says nothing.

The gaps that a copier finds: what is missing where, in words for the operator, and where copying can go on. Pure.

Answers to nothing in MM2: its consumer goes on at the earliest record, or in the middle, and says nothing. If ``done``
says STOPPED the partition stalls, and ``gaps`` decides what becomes of it.

The search for records that the target refuses: a batch is read again in smaller pieces until one stands alone. Pure.

MirrorMaker 2 has nothing like it: its task fails. A record that stands alone is *poison*: the partition waits at it, or
the quarantine keeps it (docs/quarantine.md) and copying goes on behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from mm2py.config.settings import SourcePolicy, TargetPolicy
from mm2py.records.status_record import Done, GapKind
from mm2py.replication.copying.events import (
    Diverged,
    Effect,
    GapFound,
    Need,
    Poison,
    Report,
    SourceRewritten,
    TargetLost,
    UnexpectedMet,
)
from mm2py.replication.planning.steps import Fault, Outgoing
from mm2py.replication.position import Position

_DONE: Final[dict[SourcePolicy, Done]] = {
    "stop": Done.STOPPED,
    "continue": Done.CONTINUED,
    "restart": Done.RESTARTED,
}


def decide(kind: GapKind, *, on_source_gap: SourcePolicy | None, on_target_loss: TargetPolicy) -> Done:
    """Return what is to be done about a gap.

    Args:
        on_source_gap: None where nobody has set it. Expired records are then passed over, as stopping would let
            retention eat more of them; what may have been replaced by something else waits for an operator.
    """
    if kind.is_of_target:
        return Done.RESTARTED if on_target_loss == "recopy" else Done.STOPPED
    if kind is GapKind.DELETED:
        return Done.KEPT
    if kind.is_unexpected:
        return Done.STOPPED
    if on_source_gap is not None:
        return _DONE[on_source_gap]
    return Done.CONTINUED if kind is GapKind.EXPIRED else Done.STOPPED


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


REPORT_QUARANTINED: Final = 1000
"""Of records in quarantine that follow each other the first is reported, and of a partition one in so many."""
_WAYS_OUT: Final = {
    "too large": " Raise max.message.bytes of the remote topic; it is tried again every 30 seconds.",
    "null key on compacted target": " Let the remote topic have cleanup.policy=delete; it is tried again.",
}
_POISONS: Final = {"too large": 10, "null key on compacted target": 87}
"""What the target's settings refuse, seen before it is sent, and the code that it would answer."""


class PoisonSearch:
    """What one partition's copier remembers of refused records: how the source is to be read, and what was found."""

    __slots__ = ("cut_until", "found", "is_kept", "pass_until", "quarantines")

    def __init__(self, *, quarantines: bool) -> None:
        self.quarantines = quarantines
        """A record that is found is kept in quarantine, and not waited for."""
        self.pass_until = -1
        """Below this source offset nothing is to be merged: the target refused a batch that was. Those before the
        record that it does not take are stored so, and it is named."""
        self.cut_until = -1
        """Batches that begin below this source offset are to be cut, down to single records: the target refused one."""
        self.found: Poison | None = None
        """The record that is to be kept in quarantine, as long as nothing was read again."""
        self.is_kept = False
        """It is there: as soon as nothing is in flight, copying goes on behind it."""

    def narrow(self, batch: Outgoing, code: int, what: str) -> tuple[Poison | None, str]:
        """Take in that the target refuses a record of this batch: what was merged is parted, any other batch is cut.

        Args:
            what: the code by its name, and what the target said of it.
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
        return poison, f"the target refuses the record of source offset {first} with {what}"

    def keep(self, poison: Poison) -> None:
        """Remember what the quarantine is asked to keep."""
        self.found, self.is_kept = poison, False

    def kept(self, offset: int) -> bool:
        """Take in that the quarantine has the record of this offset. False where nothing waits for that any more: it
        was tried again meanwhile, and may be stored by now."""
        if self.found is None or offset != self.found.offset:
            return False
        self.is_kept = True
        return True


def fault_text(fault: Fault) -> str:
    """Say what cannot be copied, and what an operator can do where there is something."""
    return f"source offset {fault.offset} cannot be copied: {fault.text}{_WAYS_OUT.get(fault.kind, '')}"


def poison_of(fault: Fault) -> Poison | None:
    """Return the record that the target would refuse; None where something else is at fault."""
    code = _POISONS.get(fault.kind)
    if code is None or fault.next_offset is None:
        return None
    return Poison(fault.offset, fault.next_offset, fault.leader_epoch, code, fault.text, was_sent=False)


def came_whole(offset: int, damaged_reads: int) -> Report:
    """Return what to report of a batch that came damaged before."""
    often = "once" if damaged_reads == 1 else f"{damaged_reads} times"
    text = f"the batch of source offset {offset} came damaged {often}, and whole when it was read again"
    return Report("source.damaged", text, severe=False)


def left_out(poison: Poison) -> Report:
    """Return what to report of a record behind which copying goes on."""
    text = f"source offset {poison.offset} was refused ({poison.text}) and is in quarantine; it goes on behind it"
    return Report("record.quarantined", text, severe=False)
