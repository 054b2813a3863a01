"""Damaged reads: which batches are believed only when they came twice, and what is remembered of those that were bad.

Answers to nothing in MM2: its consumer checks the CRC of a batch, as we do, and believes what stands outside of it:
base offset, length, magic and leader epoch. A bit of the base offset that flips makes a batch lie elsewhere, so records
are left out; one of the leader epoch makes the source refuse the next read.

What is copied one behind the other has no need of a rule: a batch begins where the last one ended, in the same leader
epoch. One that does not is *doubtful*. The batch behind it bears it out where the two fit together; else the plan ends
before it, and it is believed once it came twice. So a source with holes, a compacted one, costs one read more only
where a hole stands before the last batch of a read. Pure.

Not seen: what moves a batch within a hole before it. It keeps its place among the records; if it is moved back and the
read ends soon behind it, it may be copied twice. Nor what happens in message formats older than 2.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final, NamedTuple

from mm2py.records.batch import HEADER_BYTES, MAGIC, MAGIC_AT
from mm2py.replication.events import Report
from mm2py.replication.steps import Doubt, Fault, Plan

MAX_CORRUPT_READS: Final = 3
"""A batch that came damaged is read this often again before it is held against the source's disk."""
_DAMAGE: Final = frozenset({"crc mismatch", "corrupt records", "unknown magic"})
"""Faults that a flipped bit may make of a good batch."""
_OFFSET_AND_EPOCH: Final = struct.Struct(">qii")


class Known(NamedTuple):
    """What is known of a log before a stretch of it is planned."""

    leader_epoch: int
    """Of the batch before the wanted offset; -1 if nobody knows."""
    highest_epoch: int
    """The partition's leader epoch: no batch has a higher one; -1 if nobody knows."""
    doubted: Collection[Doubt] = ()
    """What was doubtful before, and is believed now."""


def is_borne_out(records: memoryview, batch_end: int, doubt: Doubt, epoch_before: int) -> bool:
    """Whether the batch that stands at ``batch_end`` shows that the doubtful one before it came as it is.

    One flipped bit is reckoned with. A batch that seems to lie further on then overlaps the next one, if it does more
    than move within a hole. One that begins before what was asked for could have been moved back: it leaves a hole.
    """
    if batch_end + HEADER_BYTES > len(records) or records[batch_end + MAGIC_AT] != MAGIC:
        return False
    base_offset, _, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(records, batch_end)
    if not epoch_before <= doubt.leader_epoch <= leader_epoch:
        return False
    return bool(base_offset >= doubt.next_offset if doubt.base_offset >= doubt.at else base_offset == doubt.next_offset)


class Damage:
    """What one partition's copier remembers of damaged reads, until it is past them."""

    __slots__ = ("_came_again", "_offset", "_text", "beyond_end", "reads")

    def __init__(self) -> None:
        self.reads = 0
        """So often in a row the batch at which copying stands came damaged."""
        self.beyond_end: tuple[int, str] | None = None
        """Where the last read claimed to reach, behind the end of the log that it named, and that in words."""
        self._offset = -1
        self._text = ""
        self._came_again: dict[Doubt, bool] = {}

    @property
    def doubted(self) -> Collection[Doubt]:
        """What was doubtful and is not behind us."""
        return self._came_again.keys()

    def reached_beyond(self, at: int, next_offset: int, log_end: int) -> Plan:
        """Return what to make of a read that reaches beyond the end of the log: nothing, and if it comes again a fault.

        A base offset stands outside every checksum; only the log's end shows that one was moved behind it. But brokers
        note the end before they read, so what is appended in between may come with the read.
        """
        text = f"a batch claims to reach to offset {next_offset}, the log ends at {log_end}"
        fault = None if self.beyond_end is None else Fault("crc mismatch", at, None, text)
        self.beyond_end = next_offset, text
        return Plan(next_offset=at, fault=fault)

    def stayed_within(self, at: int, log_end: int) -> None:
        """This one does not, after one that did: by now the log reaches as far, or that one was damaged."""
        if self.beyond_end is not None:
            (claimed, text), self.beyond_end = self.beyond_end, None
            if claimed > log_end:
                self._count(at, text)

    def met(self, fault: Fault) -> bool:
        """Count a fault if it is damage; returns whether to read again before anybody is bothered with it."""
        if fault.kind not in _DAMAGE:
            return False
        self._count(fault.offset, fault.text)
        return self.reads <= MAX_CORRUPT_READS

    def read(self, plan: Plan) -> Report | None:
        """Take in what a read brought; returns what to report once a damaged batch is behind us."""
        came_again = self._came_again
        if plan.doubt is None and not came_again and not self.reads:
            return None
        came_again.update(dict.fromkeys(plan.believed, True))
        for doubt in [doubt for doubt in came_again if doubt.at < plan.next_offset]:
            if not came_again.pop(doubt):
                self._count(doubt.at, f"it claimed offsets {doubt.base_offset} to {doubt.next_offset - 1}")
        if plan.doubt is not None:
            came_again.setdefault(plan.doubt, False)
        if not self.reads or plan.next_offset <= self._offset:
            return None
        often = "once" if self.reads == 1 else f"{self.reads} times"
        text = f"the batch of source offset {self._offset} came damaged {often}, and whole when it was read again"
        text = f"{text}: {self._text}"
        self.reads, self._offset = 0, -1
        return Report("source.damaged", text, severe=False)

    def _count(self, offset: int, text: str) -> None:
        self.reads += 1
        self._offset, self._text = max(self._offset, offset), text
