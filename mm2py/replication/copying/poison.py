"""The search for records that the target refuses: a batch is read again in smaller pieces until one stands alone. Pure.

MirrorMaker 2 has nothing like it: its task fails. A record that stands alone is *poison*: the partition waits at it, or
the quarantine keeps it (docs/quarantine.md) and copying goes on behind it.
"""

from __future__ import annotations

from typing import Final

from mm2py.replication.copying.events import Poison, Report
from mm2py.replication.planning.steps import Fault, Outgoing

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
