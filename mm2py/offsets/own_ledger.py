"""The end of a partition's ledger, as the owner of the partition writes it: what to write next, in which chunk. Pure.

The owner knows neither the beginning of the ledger nor what it wrote long ago: the stored position names the ledger,
and the chunk to write begins there. The chunk that was written last is written again as it grows. From
``CHUNK_ENTRIES`` on the next write begins another one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.flow import TopicName
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.records.ledger_record import ChunkKey, LedgerChunk

CHUNK_ENTRIES: Final = 256
"""A chunk that has this many grows no more: else each write would repeat more than it adds."""
ENTRIES_AT_ONCE: Final = 4096
"""At most this many go into one record, some 6 KB."""
WAITING_MOST: Final = 200_000
"""How many entries wait at most for a topic that cannot be written to. Then another ledger begins: offset syncs
answer for what was copied before."""


@dataclass(frozen=True, slots=True)
class LedgerOf:
    """The partition to which a ledger belongs, and the ids of its two topics."""

    topic: TopicName
    """As the source cluster names it; likewise ``partition``."""
    partition: int
    source_topic_id: uuid.UUID | None = None
    target_topic_id: uuid.UUID | None = None


class OwnLedger:
    """What was copied since the last full chunk of one partition's ledger."""

    __slots__ = (
        *("_copied_to", "_entries", "_full", "_is_whole", "_of", "_source", "_source_end", "_target", "_target_end"),
        *("_written", "number"),
    )
    _copied_to: int
    _source_end: int
    _target_end: int

    def __init__(
        self,
        of: LedgerOf,
        number: int,
        start: tuple[int, int | None],
        *,
        is_whole: bool = False,
        continues: bool = False,
        run: tuple[int, int, bool] | None = None,
        skipped: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Begin at a position.

        Args:
            number: that of the ledger which the position names; a new ledger's is when it began, in epoch milliseconds.
            start: source and target offset of the position. The target offset may not be known yet.
            is_whole: the ledger is new, and nothing was copied before.
            continues: the ledger was written up to the position.
            run: of the position, see ``StoredPosition.ledger_run``.
            skipped: ranges (first, last) of source offsets up to the position that were skipped since the last copied
                record. They are noted once more, because an operator may have set the position to a place after them.
        """
        self.number = number
        self._of = of
        self._full: list[LedgerChunk] = []
        """Chunks that are not written yet, and grow no more."""
        self._written: int | None = None
        """The source offset up to which the ledger was complete at the last write; None: nothing was written."""
        source_offset, target_offset = start
        ranges = list(skipped) if continues and target_offset is not None else []
        self._begin(ranges[0][0] if ranges else source_offset, target_offset, is_whole=is_whole)
        for first, last in ranges:
            self._take(Hole(first, target_offset or 0, last + 1 - first, 0, HoleCause.GAP))
        self.advance(source_offset, target_offset)
        if continues and not ranges:
            self._written = source_offset
            if run is not None and run[0] < source_offset:
                self._begin(run[0], run[1], is_whole=run[2])
                self._take(Run(run[0], run[1], source_offset - run[0]))

    def add(self, entries: Iterable[Entry], now_ms: int) -> None:
        """Add the entries that were stored next. Those that are known already are skipped.

        The story of an entry before the end: an unclean leader of the target lacks the last records. Those that follow
        get target offsets that the ledger has given to others before. A new ledger begins with them.

        Args:
            now_ms: for the number of a new ledger, in epoch milliseconds.
        """
        for entry in entries:
            if type(entry) is Run and self._target is not None and len(self._entries) < WAITING_MOST:
                source, target, count = entry
                if source > self._source_end and target >= self._target_end:
                    # As below, in under half the time. In a transactional topic nearly all runs are like this.
                    self._entries.append(entry)
                    self._source_end, self._target_end = source + count, target + count
                    self._copied_to = max(self._copied_to, self._source_end)
                    continue
            if self._target is None:
                self._begin(entry.source_offset, entry.target_offset, is_whole=self._is_whole)
            if entry.source_end <= self._source_end:
                continue  # found once more after an outcome was unknown
            if entry.source_offset < self._source_end:
                known = self._source_end - entry.source_offset
                if isinstance(entry, Run) and entry.target_offset + known == self._target_end:
                    entry = Run(self._source_end, self._target_end, entry.record_count - known)  # noqa: PLW2901
                else:
                    self._begin_anew(entry.source_offset, entry.target_offset, now_ms)
            elif entry.target_offset < self._target_end or len(self._entries) >= WAITING_MOST:
                self._begin_anew(entry.source_offset, entry.target_offset, now_ms)
            self._take(entry)

    def advance(self, source_offset: int, target_offset: int | None) -> None:
        """Note the position: no record before it will be copied any more."""
        if self._target is None and target_offset is not None:
            self._begin(source_offset, target_offset, is_whole=self._is_whole)
        self._copied_to = max(self._copied_to, source_offset)

    def chunks(self) -> Sequence[LedgerChunk]:
        """Return what is to be written before the position is; see ``written``."""
        if len(self._entries) >= CHUNK_ENTRIES:
            self._fill()
        if self._target is None or (self._written is not None and self._written >= self._copied_to):
            return tuple(self._full)
        return (*self._full, self._chunk(self._entries, self._copied_to))

    @property
    def run(self) -> tuple[int, int, bool] | None:
        """See ``StoredPosition.ledger_run``."""
        entries = self._entries
        if len(entries) != 1 or type(entries[0]) is not Run or self._source_end != self._copied_to:
            return None
        source_offset, target_offset, _ = entries[0]
        is_all = (source_offset, target_offset) == (self._source, self._target)
        return (source_offset, target_offset, self._is_whole) if is_all else None

    def written(self, chunks: Sequence[LedgerChunk]) -> None:
        """Note that the topic has these chunks."""
        self._full = [chunk for chunk in self._full if chunk not in chunks]
        if chunks and chunks[-1].key.number == self.number:
            self._written = max(self._written or 0, chunks[-1].copied_to)

    def write_again(self) -> None:
        """Note that the topic was recreated, without what was written."""
        self._written = None

    def _begin(self, source: int, target: int | None, *, is_whole: bool) -> None:
        self._source = self._source_end = self._copied_to = source
        self._target = target
        self._target_end = target or 0
        self._is_whole = is_whole
        self._entries: list[Entry] = []

    def _begin_anew(self, source: int, target: int, now_ms: int) -> None:
        self._full.clear()
        self._written = None
        self.number = max(now_ms, self.number + 1)
        self._begin(source, target, is_whole=False)

    def _take(self, entry: Entry) -> None:
        last = self._entries[-1] if self._entries else None
        continues = (self._source_end, self._target_end) == entry[:2]
        if continues and type(entry) is Run and type(last) is Run:
            self._entries[-1] = Run(last[0], last[1], last[2] + entry[2])
        elif continues and type(entry) is Hole and type(last) is Hole and not entry.target_count:
            if last.cause is entry.cause:
                self._entries[-1] = last._replace(source_count=last.source_count + entry.source_count)
            else:
                self._entries.append(entry)
        else:
            self._entries.append(entry)
        self._source_end, self._target_end = entry.source_end, entry.target_end
        self._copied_to = max(self._copied_to, self._source_end)

    def _fill(self) -> None:
        """Divide the entries into chunks that grow no more; the next chunk begins after them."""
        entries, self._entries = self._entries, []
        for at in range(0, len(entries), ENTRIES_AT_ONCE):
            piece = entries[at : at + ENTRIES_AT_ONCE]
            is_last = at + ENTRIES_AT_ONCE >= len(entries)
            end = self._copied_to if is_last else piece[-1].source_end
            self._full.append(self._chunk(piece, end))
            self._source, self._target, self._is_whole = end, piece[-1].target_end, False
        self._source_end = self._copied_to
        self._written = self._copied_to

    def _chunk(self, entries: Sequence[Entry], copied_to: int) -> LedgerChunk:
        of = self._of
        return LedgerChunk(
            ChunkKey(of.topic, of.partition, self.number, self._source),
            self._target or 0,
            tuple(entries),
            copied_to,
            self._is_whole,
            of.source_topic_id,
            of.target_topic_id,
        )
