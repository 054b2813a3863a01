"""All ledgers of one source partition: the newest, and those from before its position was set back. Pure.

An operator, or ``--allow-recopy``, can set a position back. The remote partition then has records twice, and a ledger
knows only one target offset for a record. So a new ledger begins, with the next number. One begins also when the topic
was recreated on either side. MirrorMaker 2 forgets all syncs of a partition when a sync goes back.

Records that were copied before the first ledger was kept may be in a rebuilt ledger (``rebuilt_ledger.py``). It comes
before all others, whenever it was written, and never becomes the newest.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from mm2py.offsets.answers import BEFORE_LEDGER, NOT_YET, Answer, AnswerKind
from mm2py.offsets.ledger import EntryOutOfOrder, Ledger
from mm2py.offsets.run_codec import OFFSET_MOST, SOURCE, TARGET, CorruptRuns
from mm2py.offsets.runs import Hole
from mm2py.records.ledger_record import EncodedChunk, LedgerChunk

TopicId = uuid.UUID | None
_BEHIND: Final = {AnswerKind.END, AnswerKind.NOT_YET}
_BEFORE: Final = {AnswerKind.BEFORE_LEDGER, AnswerKind.EXPIRED}


@dataclass(frozen=True, slots=True)
class NumberedLedger:
    """A ledger with what distinguishes it from the others of its partition."""

    number: int
    ledger: Ledger
    source_topic_id: TopicId = None
    """None if the brokers have no topic ids. Then the topic counts as the same."""
    target_topic_id: TopicId = None
    is_rebuilt: bool = False

    def is_of(self, source_topic_id: TopicId, target_topic_id: TopicId) -> bool:
        """Whether its offsets belong to these topics."""
        return _same(self.source_topic_id, source_topic_id) and _same(self.target_topic_id, target_topic_id)


@dataclass(slots=True)
class PartitionLedger:
    """The ledgers of one partition."""

    ledgers: list[NumberedLedger] = field(default_factory=list)
    """The rebuilt one, if there is one; then the others, in the order in which they were begun."""

    @property
    def newest(self) -> Ledger | None:
        return self.ledgers[-1].ledger if self.ledgers else None

    @property
    def rebuilt(self) -> NumberedLedger | None:
        """The ledger of what was copied before the first of ``kept``."""
        return self.ledgers[0] if self.ledgers and self.ledgers[0].is_rebuilt else None

    @property
    def kept(self) -> list[NumberedLedger]:
        """The ledgers that owners of the partition have written, the newest last."""
        return self.ledgers[1:] if self.rebuilt is not None else self.ledgers

    def is_of(self, source_topic_id: TopicId, target_topic_id: TopicId) -> bool:
        """Whether the newest ledger belongs to these topics, not to others that had their names before."""
        return not self.ledgers or self.ledgers[-1].is_of(source_topic_id, target_topic_id)

    def start(
        self, number: int, ledger: Ledger, *, source_topic_id: TopicId = None, target_topic_id: TopicId = None
    ) -> None:
        """Make ``ledger`` the newest.

        Ledgers of other topics are forgotten: no offset of theirs exists any more.

        Raises:
            EntryOutOfOrder: there is one with this number.
        """
        if any(one.number == number for one in self.kept):
            raise EntryOutOfOrder(f"ledger {number} was begun before")
        kept = [one for one in self.ledgers if one.is_of(source_topic_id, target_topic_id)]
        self.ledgers = [*kept, NumberedLedger(number, ledger, source_topic_id, target_topic_id)]

    def take(self, chunk: LedgerChunk) -> None:
        """Add a chunk of the ledger topic. Chunks come in the order of the topic, and may come again.

        A chunk of an older ledger than the newest is skipped. So is a chunk of a rebuilt ledger that has a lower number
        than the known one, or belongs to other topics than the newest ledger. If a chunk begins after all that is
        known, the chunks before it were deleted or lost, and the ledger begins with it.

        Raises:
            EntryOutOfOrder: it contradicts an earlier one. The ledger now begins with it.
        """
        if chunk.is_rebuilt:
            self._take_rebuilt(chunk)
            return
        number, kept = chunk.key.number, self.kept
        if kept and number == kept[-1].number:
            self._continue(len(self.ledgers) - 1, chunk)
        elif all(number != one.number for one in kept):
            ids = {"source_topic_id": chunk.source_topic_id, "target_topic_id": chunk.target_topic_id}
            self.start(number, _ledger_from(chunk), **ids)

    def take_encoded(self, chunk: EncodedChunk) -> None:
        """As ``take``. Most chunks of a long ledger begin where the one before them was complete: their entries stay
        bytes.

        Raises:
            EntryOutOfOrder: as ``take``.
            MalformedRecord: a part of its data is no entry. It is not added.
        """
        last, begin = self.ledgers[-1] if self.ledgers else None, (chunk.key.source_offset, chunk.target_offset)
        if last is not None and last.number == chunk.key.number and chunk.data and not chunk.is_rebuilt:
            ledger = last.ledger
            if begin[0] == ledger.copied_to and begin[1] >= ledger.target_end:
                with suppress(CorruptRuns):  # then ``decoded`` says what is wrong
                    ledger.append_encoded(*begin, chunk.data, chunk.copied_to)
                    return
        self.take(chunk.decoded())

    def forward(self, source_offset: int) -> Answer:
        """Return where to continue in the remote partition: see ``Ledger.forward``.

        The newest ledger answers; for offsets before it, the previous one. The story: a position is set back from 100
        to 50 while a group lags at 30. The new ledger begins at 50 and does not know 30, the previous one does. The
        group continues where that one says, and reads 50 to 99 again later, as every reader of this remote partition
        does.
        """
        return self._answer(source_offset, is_forward=True)

    def reverse(self, target_offset: int) -> Answer:
        """Return where to continue in the source partition: see ``Ledger.reverse``. All ledgers answer, the newest
        first."""
        answer = self._answer(target_offset, is_forward=False)
        if answer == NOT_YET and self.newest is not None:  # a fence's marker, or a foreign record, is after the copies
            return Answer(AnswerKind.NOT_YET, self.newest.source_end, False)
        return answer

    def without_copy(self) -> Iterator[tuple[int, int]]:
        """Yield the stretches (first, end) of target offsets before the last copy that have no copies, ascending.

        There are markers, or records of foreign writers. Where only the number of copies is known, the offsets without
        a copy count as the first ones.
        """
        end, copied_to = -1, -1
        for one in self.ledgers:
            ledger = one.ledger
            if ledger.source_start > copied_to:  # other copies may be before it
                end = ledger.target_start
            for entry in ledger.entries():
                if entry.target_offset > end:
                    yield end, entry.target_offset
                if type(entry) is Hole and entry.target_count > entry.source_count:
                    yield entry.target_offset, entry.target_end - entry.source_count
                end = max(end, entry.target_end)
            copied_to = ledger.copied_to

    def trim(self, source_log_start: int, target_log_start: int) -> None:
        """Forget what both logs have deleted: see ``Ledger.trim``. An older ledger without entries is forgotten."""
        for one in self.ledgers:
            one.ledger.trim(source_log_start, target_log_start)
        newest = self.ledgers[-1:]
        self.ledgers = [one for one in self.ledgers[:-1] if any(True for _ in one.ledger.entries())] + newest

    def forget_before(self, number: int, source_offset: int) -> None:
        """Forget the ledgers before a number, and in that one entries before an offset: ``Ledger.forget_before``."""
        at = next((at for at, one in enumerate(self.ledgers) if one.number == number), 0)
        del self.ledgers[:at]
        if self.ledgers and self.ledgers[0].number == number:
            self.ledgers[0].ledger.forget_before(source_offset)

    def __sizeof__(self) -> int:
        """Return the bytes in memory of everything that belongs to it."""
        ledgers = sum(sys.getsizeof(one) + sys.getsizeof(one.ledger) for one in self.ledgers)
        return object.__sizeof__(self) + sys.getsizeof(self.ledgers) + ledgers

    def _take_rebuilt(self, chunk: LedgerChunk) -> None:
        number, known, kept = chunk.key.number, self.rebuilt, self.kept
        ids = (chunk.source_topic_id, chunk.target_topic_id)
        if kept and not kept[-1].is_of(*ids):
            return
        if known is None or number > known.number:
            self.ledgers = [NumberedLedger(number, _ledger_from(chunk), *ids, is_rebuilt=True), *kept]
        elif number == known.number:
            self._continue(0, chunk)

    def _continue(self, at: int, chunk: LedgerChunk) -> None:
        """Add a chunk to the ledger at an index of ``ledgers``. Raises: EntryOutOfOrder."""
        one = self.ledgers[at]
        if chunk.key.source_offset > one.ledger.copied_to:
            self.ledgers[at] = replace(one, ledger=_ledger_from(chunk))
            return
        try:
            one.ledger.catch_up(chunk.entries)
        except EntryOutOfOrder:
            self.ledgers[at] = replace(one, ledger=_ledger_from(chunk))
            raise
        one.ledger.advance(chunk.copied_to)

    def _answer(self, offset: int, *, is_forward: bool) -> Answer:
        newer: Ledger | None = None
        unknown, lowest = BEFORE_LEDGER, OFFSET_MOST
        for one in reversed(self.ledgers):
            ledger = one.ledger
            answer = ledger.forward(offset) if is_forward else ledger.reverse(offset)
            if newer is not None and answer.kind in _BEHIND:
                if newer.source_start <= ledger.copied_to:  # no other copy is between the two
                    return _first_of(newer, answer, is_forward=is_forward)
                return unknown if answer.offset is None else answer
            if one.is_rebuilt and answer.kind is AnswerKind.NOT_YET:
                return unknown  # it does not grow, and its end may still be missing
            if answer.kind not in _BEFORE:
                if is_forward and answer.offset is not None and answer.offset > lowest:
                    return Answer(AnswerKind.GAP, lowest, False)  # the target lost its copies, and newer ones are there
                return answer
            newer, unknown, lowest = ledger, answer, min(lowest, ledger.target_start)
        return unknown


def _first_of(newer: Ledger, answer: Answer, *, is_forward: bool) -> Answer:
    """Answer for an offset after all copies of an older ledger, before those of the next one."""
    if not is_forward:
        return newer.first_copied(AnswerKind.NOT_OURS, SOURCE)
    if newer.source_end == newer.source_start:
        return answer  # nothing was copied since: the end of both
    return newer.first_copied(AnswerKind.DROPPED, TARGET)


def _ledger_from(chunk: LedgerChunk) -> Ledger:
    ledger = Ledger(chunk.key.source_offset, chunk.target_offset, is_whole=chunk.is_whole)
    ledger.catch_up(chunk.entries)
    ledger.advance(chunk.copied_to)
    return ledger


def _same(one: TopicId, other: TopicId) -> bool:
    return None in {one, other} or one == other
