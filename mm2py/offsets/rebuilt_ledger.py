"""A ledger of records that were copied before a ledger was kept, rebuilt from both logs. Pure.

It becomes records chunk by chunk, so that a long one takes little memory. ``PartitionLedger`` says how the chunks are
used.
"""

from __future__ import annotations

from typing import Final

from mm2py.offsets.own_ledger import LedgerOf
from mm2py.offsets.runs import NewRuns
from mm2py.records.batch import NewRecord
from mm2py.records.ledger_record import ChunkKey, LedgerChunk, encode

CHUNK_ENTRIES: Final = 2000


class RebuiltLedger:
    """The ledger of one partition from the start of both logs on."""

    def __init__(self, of: LedgerOf, number: int, *, chunk_entries: int = CHUNK_ENTRIES) -> None:
        """Begin one.

        Args:
            number: higher than those of earlier rebuilt ledgers of this partition, in epoch milliseconds.
        """
        self.of = of
        self.record_count = 0
        self.run_count = 0
        self._number = number
        self._chunk_entries = chunk_entries
        self._runs = NewRuns()
        self._runs_left = chunk_entries
        """How many more go into the present chunk."""
        self._next = (-1, -1)
        """Where a record continues the last run, on both sides."""
        self._start = (0, 0)
        """Where the present chunk begins."""
        self._records: list[NewRecord] = []

    def add(self, source_offset: int, target_offset: int) -> None:
        """Note the next record, and its copy."""
        if self._next != (source_offset, target_offset):
            if not self._runs_left:
                self._fill(self._next[0])
                self._runs_left = self._chunk_entries
            self._runs_left -= 1
            self.run_count += 1
        self._runs.add(source_offset, target_offset, 1)
        self._next = (source_offset + 1, target_offset + 1)
        self.record_count += 1

    def finish(self, copied_to: int) -> list[NewRecord]:
        """Return all records of the ledger, in the order in which they are to be written.

        Args:
            copied_to: the source offset at which the kept ledgers begin.
        """
        self._fill(copied_to)
        return self._records

    def _fill(self, copied_to: int) -> None:
        entries = self._runs.take()
        key = ChunkKey(self.of.topic, self.of.partition, self._number, self._start[0])
        chunk = LedgerChunk(
            key,
            self._start[1],
            tuple(entries),
            copied_to,
            is_whole=not self._records,
            source_topic_id=self.of.source_topic_id,
            target_topic_id=self.of.target_topic_id,
            is_rebuilt=True,
        )
        self._records.append(encode(chunk, self._number))
        self._start = (copied_to, entries[-1].target_end if entries else self._start[1])
