"""The ledger of one source partition: the target offset of each record, and the source offset of each copy. Pure.

A ledger contains every run, so it is exact for a group that lags, and for compacted and transactional topics. Between
two runs the source has nothing to copy: markers, records of aborted transactions, records that were compacted away. The
target has our own markers there, and records of foreign writers.

In memory entries are bytes (``run_codec.py``) in blocks of ``BLOCK_ENTRIES``; an index has the offsets where each block
begins. Only the last entry is an object, because the next run may continue it. A plain topic has no other entry.

Counterpart: what MM2 estimates from 64 offset syncs a partition (``sync_store.py``).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.offsets.answers import BEFORE_LEDGER, NOT_YET, Answer, AnswerKind
from mm2py.offsets.run_codec import (
    OFFSET_MOST,
    SOURCE,
    TARGET,
    CorruptRuns,
    divide,
    encode_entries,
    entries_behind,
    fault_of,
    write_entry,
)
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run

BLOCK_ENTRIES: Final = 128
"""A look-up reads one block, and each block costs about 60 bytes more than its entries."""


_KINDS: Final = {
    HoleCause.COUNTED: AnswerKind.COUNTED,
    HoleCause.TRIMMED: AnswerKind.TRIMMED,
    HoleCause.GAP: AnswerKind.GAP,
    HoleCause.QUARANTINED: AnswerKind.QUARANTINED,
}


class EntryOutOfOrder(Mm2Error):
    """An entry contradicts the ledger. It is not added, and the ledger does not change."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"The ledger cannot take an entry: {what}.",
            remedy="If the target has lost acknowledged records, nothing is to be done; else report this as a fault of "
            "mm2py.",
        )


class Ledger:
    """Runs and holes of one source partition, ascending on both sides.

    A position that is set back, or another topic id on either side, needs a new ledger: see ``PartitionLedger``.
    """

    __slots__ = (
        *("_blocks", "_coded_source", "_coded_target", "_last", "_open", "_open_entries", "_source_starts"),
        *("_target_starts", "copied_to", "is_whole", "source_end", "source_start", "target_end", "target_start"),
    )

    def __init__(self, source_start: int, target_start: int, *, is_whole: bool) -> None:
        """Make an empty ledger.

        Args:
            source_start: the source offset that copying had reached when the ledger began; likewise ``target_start``.
            is_whole: copying began there too, so there is no copied record before it.
        """
        self.source_start = source_start
        self.target_start = target_start
        self.is_whole = is_whole
        self.source_end = source_start
        """The source offset after the last entry; likewise ``target_end``."""
        self.target_end = target_start
        self.copied_to = source_start
        """The source offset up to which the ledger is complete: no record before it will be copied any more."""
        self._blocks: list[bytes] = []
        self._open = bytearray()
        self._open_entries = 0
        self._source_starts = array("q")
        """Where each block begins, the open one included; likewise ``_target_starts``."""
        self._target_starts = array("q")
        self._last: Entry | None = None
        self._coded_source = source_start
        """The source offset after the entry before ``_last``; likewise ``_coded_target``."""
        self._coded_target = target_start

    def append(self, entry: Entry) -> None:
        """Add the entry that was stored next. It becomes part of the last entry if it continues that entry.

        Raises:
            EntryOutOfOrder: it begins before ``copied_to`` or ``target_end``, or is empty.
        """
        source, target = entry[0], entry[1]
        last = self._last
        if type(entry) is Run and type(last) is Run and source == self.source_end == self.copied_to:
            count = entry[2]
            if target == self.target_end and 0 < count <= OFFSET_MOST - max(source, target):
                self._last = Run(last[0], last[1], last[2] + count)
                self.source_end = self.copied_to = source + count
                self.target_end = target + count
                return
        if source < self.copied_to or target < self.target_end:
            at = f"the ledger reaches to source offset {self.copied_to} and target offset {self.target_end}"
            raise EntryOutOfOrder(f"{entry} begins before it ends, {at}")
        if (fault := fault_of(entry)) is not None:
            raise EntryOutOfOrder(fault)
        if last is not None:
            if type(last) is Hole and type(entry) is Hole and _continues(last, entry):
                entry = last._replace(source_count=last.source_count + entry.source_count)
            else:
                self._encode(last)
        self._last = entry
        self.source_end = self.copied_to = entry.source_end
        self.target_end = entry.target_end

    def append_encoded(self, source_offset: int, target_offset: int, data: bytes, copied_to: int) -> None:
        """Add encoded entries, then ``advance``. They are not joined with the last entry.

        The chunks of a long ledger are added like this, in a tenth of the time that ``append`` would take.

        Args:
            source_offset: the offset that the first entry's gap counts from; likewise ``target_offset``.
            data: at least one entry.
        Raises:
            EntryOutOfOrder: it begins before ``copied_to`` or ``target_end``.
            CorruptRuns: a part of the data is no entry, or it ends after ``copied_to``.
        """
        if source_offset < self.copied_to or target_offset < self.target_end:
            raise EntryOutOfOrder(f"entries from {source_offset} and {target_offset} on begin before it ends")
        blocks, last = divide(data, source_offset, target_offset, entries_most=BLOCK_ENTRIES)
        if not last.source_end <= copied_to <= OFFSET_MOST:
            raise CorruptRuns(f"the entries end at {last.source_end}, and it is complete up to {copied_to}")
        if self._last is not None:
            self._encode(self._last)
        if self._open_entries:
            self._close_block()
        for block in blocks:
            self._source_starts.append(block.source_start)
            self._target_starts.append(block.target_start)
            self._blocks.append(block.data)
        self._last = last
        self.source_end, self.target_end, self.copied_to = last.source_end, last.target_end, copied_to

    def catch_up(self, entries: Iterable[Entry]) -> None:
        """Add what is new among entries that may repeat the end of the ledger.

        A chunk of the ledger topic is written again when it has grown, and after a crash the tail of the target is read
        again. Of the entries that are known already only the last run is compared.

        The story: a target loses the last records that it has acknowledged. The next owner copies them again, after
        the marker of its fence, and writes the same source offsets again, each with a target offset one higher.

        Another story: the target refuses a record, which is noted as quarantined. Its owner dies before it stores the
        position. The next owner may copy the record, because the limit was raised: the run counts, not the hole.

        Raises:
            EntryOutOfOrder: as ``append``; or an entry begins in the known part, ends after it, and does not continue
                the last entry; or the last known run has other target offsets.
        """
        known: Run | None = None
        for entry in entries:
            new: Entry | None = entry
            if isinstance(entry, Run):
                self._take_back_hole(entry)
            if entry.source_offset < self.source_end:
                new = self._new_part(entry)
                if new is None and isinstance(entry, Run):
                    known = entry
            if new is not None:
                if known is not None:
                    self._compare(known)
                    known = None
                self.append(new)
        if known is not None:
            self._compare(known)

    def advance(self, copied_to: int) -> None:
        """Note that no record before a source offset will be copied any more. A lower one than before has no effect."""
        self.copied_to = max(self.copied_to, copied_to)

    def forward(self, source_offset: int) -> Answer:
        """Return where a group with the committed offset ``source_offset`` continues in the remote partition."""
        if source_offset > self.copied_to:
            return NOT_YET
        if source_offset < self.source_start:
            return self._before(TARGET)
        if source_offset >= self.source_end:
            return Answer(AnswerKind.END, self.target_end, True)
        entries = self.entries(SOURCE, source_offset)
        entry = next(entries)
        kind = AnswerKind.DROPPED
        if source_offset >= entry.source_offset:
            if isinstance(entry, Run):
                return Answer(AnswerKind.COPIED, entry[1] + source_offset - entry[0], True)
            kind = _KINDS[entry.cause]
        return self._first_copy(kind, entry, entries, TARGET)

    def reverse(self, target_offset: int) -> Answer:
        """Return where a group with the committed offset ``target_offset`` continues in the source partition."""
        if target_offset > self.target_end:
            return NOT_YET
        if target_offset < self.target_start:
            return self._before(SOURCE)
        if target_offset == self.target_end:
            return Answer(AnswerKind.END, self.source_end, True)
        entries = self.entries(TARGET, target_offset)
        entry = next(entries)
        kind = AnswerKind.NOT_OURS
        if target_offset >= entry.target_offset:
            if isinstance(entry, Run):
                return Answer(AnswerKind.COPIED, entry[0] + target_offset - entry[1], True)
            kind = _KINDS[entry.cause]
        return self._first_copy(kind, entry, entries, SOURCE)

    def entries(self, side: int = SOURCE, behind: int = -1) -> Iterator[Entry]:
        """Yield the entries that end after an offset, by default all, ascending.

        Args:
            side: ``SOURCE`` or ``TARGET``, the side of the offset ``behind``.
        """
        last = self._last
        if last is None:
            return
        if last[side] > behind:
            starts = self._target_starts if side else self._source_starts
            for block in range(max(bisect_right(starts, behind) - 1, 0), len(starts)):
                yield from self._entries_of(block, side, behind)
        if (last.target_end if side else last.source_end) > behind:
            yield last

    def first_copied(self, kind: AnswerKind, side: int) -> Answer:
        """Answer with the first copied record that the ledger knows, or with its end. ``side`` is where the answer
        is."""
        entries = self.entries()
        return self._first_copy(kind, next(entries, None), entries, side)

    def trim(self, source_log_start: int, target_log_start: int) -> None:
        """Forget the records that both logs have deleted. A hole is forgotten as a whole.

        Args:
            source_log_start: the first offset that the source partition still has; likewise ``target_log_start``.
        """
        if source_log_start < self.source_start or target_log_start < self.target_start:
            return
        self.is_whole = True  # if something was copied before the ledger was kept, it is gone
        full = min(
            bisect_right(self._source_starts, source_log_start), bisect_right(self._target_starts, target_log_start)
        )
        if full > 1:  # everything before a block that begins below both log starts
            self._drop(full - 1)
        while self._source_starts:
            kept = _kept(self._entries_of(0), source_log_start, target_log_start)
            if kept:
                self._replace_first(kept)
                break
            self._drop(1)
        if not self._source_starts and self._last is not None:
            left = _kept([self._last], source_log_start, target_log_start)
            self._last = left[0] if left else None
        first = next(self.entries(), None)
        source_most, target_most = (self.source_end, self.target_end) if first is None else first[:2]
        self.source_start = max(self.source_start, min(source_log_start, source_most))
        self.target_start = max(self.target_start, min(target_log_start, target_most))

    def forget_before(self, source_offset: int) -> None:
        """Forget whole blocks of entries before an offset, whether the logs have deleted their records or not.

        For these offsets the ledger then answers ``BEFORE_LEDGER``.
        """
        blocks = bisect_right(self._source_starts, source_offset) - 1
        if blocks > 0:
            self._drop(blocks)
            self.source_start, self.target_start = self._source_starts[0], self._target_starts[0]
            self.is_whole = False

    def __sizeof__(self) -> int:
        """Return the bytes in memory of everything that belongs to it."""
        kept = (self._blocks, self._open, self._source_starts, self._target_starts, *self._blocks)
        return object.__sizeof__(self) + sum(map(sys.getsizeof, kept))

    def _encode(self, entry: Entry) -> None:
        if not self._open_entries:
            self._source_starts.append(entry.source_offset)
            self._target_starts.append(entry.target_offset)
            self._coded_source, self._coded_target = entry.source_offset, entry.target_offset
        count = entry[2]
        if type(entry) is Run and count < 32 and entry[1] == self._coded_target and entry[0] == self._coded_source + 1:
            self._open.append(count << 2)  # as ``write_entry``, in half the time; most runs of a transactional topic
        else:
            write_entry(self._open, entry, self._coded_source, self._coded_target)
        self._coded_source, self._coded_target = entry.source_end, entry.target_end
        self._open_entries += 1
        if self._open_entries == BLOCK_ENTRIES:
            self._close_block()

    def _close_block(self) -> None:
        self._blocks.append(bytes(self._open))
        self._open = bytearray()
        self._open_entries = 0

    def _entries_of(self, block: int, side: int = SOURCE, behind: int = -1) -> Iterator[Entry]:
        data = self._blocks[block] if block < len(self._blocks) else self._open
        source, target = self._source_starts[block], self._target_starts[block]
        return entries_behind(data, source, target, side=side, offset=behind)

    def _drop(self, blocks: int) -> None:
        if blocks > len(self._blocks):
            self._open = bytearray()
            self._open_entries = 0
        del self._blocks[:blocks]
        del self._source_starts[:blocks]
        del self._target_starts[:blocks]

    def _replace_first(self, kept: list[Entry]) -> None:
        """Encode the first block again, with these entries."""
        source, target = kept[0][:2]
        self._source_starts[0], self._target_starts[0] = source, target
        data = encode_entries(kept, source, target)
        if self._blocks:
            self._blocks[0] = bytes(data)
        else:
            self._open = data
            self._open_entries = len(kept)

    def _take_back_hole(self, run: Run) -> None:
        """Cut the hole at the end of the ledger where a run has copies of its records."""
        last = self._last
        if not isinstance(last, Hole) or last.cause.is_copied or run.target_offset < last.target_offset:
            return
        kept = run.source_offset - last.source_offset
        if not 0 <= kept < last.source_count:
            return
        self._last = last._replace(source_count=kept) if kept else run
        self.source_end = self.copied_to = self._last.source_end
        self.target_end = self._last.target_end

    def _new_part(self, entry: Entry) -> Entry | None:
        """Return the part of an entry that is after the last one; None if nothing is."""
        known, last = self.source_end - entry.source_offset, self._last
        if entry.source_end <= self.source_end:
            return None
        if isinstance(entry, Run):
            if not isinstance(last, Hole) and entry.target_offset + known == self.target_end:
                return Run(self.source_end, self.target_end, entry.record_count - known)
        elif entry.cause.is_copied:  # counted after a crash, and a part was noted before it
            noted = self.target_end - entry.target_offset
            if noted < entry.target_count:
                rest = (entry.source_count - known, entry.target_count - max(noted, 0))
                return Hole(self.source_end, max(self.target_end, entry.target_offset), *rest, entry.cause)
        elif entry.target_offset >= self.target_end:  # the hole says nothing about what is known to be copied
            return entry._replace(source_offset=self.source_end, source_count=entry.source_count - known)
        raise EntryOutOfOrder(f"{entry} does not continue {last}")

    def _compare(self, known: Run) -> None:
        """Check that the last record of a run has the target offset that the ledger knows."""
        if (known.source_end, known.target_end) == (self.source_end, self.target_end):
            return
        source_offset = known.source_end - 1
        answer = self.forward(source_offset)
        if answer.kind is AnswerKind.COPIED and answer.offset != known.target_end - 1:
            raise EntryOutOfOrder(f"{known} does not place source offset {source_offset} at {answer.offset} as before")

    def _before(self, side: int) -> Answer:
        """Answer for an offset before the ledger's start. ``side`` is where the answer is."""
        return self.first_copied(AnswerKind.EXPIRED, side) if self.is_whole else BEFORE_LEDGER

    def _first_copy(self, kind: AnswerKind, entry: Entry | None, rest: Iterator[Entry], side: int) -> Answer:
        """Answer with the first copied record from ``entry`` on."""
        while isinstance(entry, Hole) and not entry.cause.is_copied:
            entry = next(rest, None)
        if entry is None:
            return Answer(kind, self.target_end if side else self.source_end, True)
        return Answer(kind, entry[side], type(entry) is Run)


def _continues(last: Hole, entry: Hole) -> bool:
    """Whether two holes can be one. Those that were copied stay apart: the smaller a hole, the nearer the answer."""
    return entry.cause is last.cause and not entry.cause.is_copied and entry[:2] == (last.source_end, last.target_end)


def _kept(entries: Iterable[Entry], source_log_start: int, target_log_start: int) -> list[Entry]:
    """Return the parts of entries that are not before both log starts."""
    kept: list[Entry] = []
    for entry in entries:
        cut = min(source_log_start - entry.source_offset, target_log_start - entry.target_offset)
        if kept or cut <= 0:
            kept.append(entry)
        elif isinstance(entry, Run):
            if cut < entry.record_count:
                kept.append(Run(entry[0] + cut, entry[1] + cut, entry[2] - cut))
        elif entry.source_end > source_log_start or entry.target_end > target_log_start:
            kept.append(entry)
    return kept
