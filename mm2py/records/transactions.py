"""Which batches of a fetched stretch belong to aborted transactions: Kafka's consumer's rule for ``read_committed``.

A broker sends, beside the batches, the (producer id, first offset) of every aborted transaction in reach. A transaction
is open from its first offset to the abort marker of its producer; what its producer wrote in between is not to be read.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from mm2py.records.batch import CorruptBatch, read_records

ABORT = 0
"""Type of the control record that ends an aborted transaction; 1 commits, others (leader changes, ...) end nothing."""


class AbortedTransactions:
    """The aborted transactions of one fetch reply; it is shown every transactional batch and every
    marker once, in the order of the log."""

    __slots__ = ("_ahead", "_open")

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        """Take (producer id, first offset) of each aborted transaction, in any order."""
        self._ahead = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapq.heapify(self._ahead)
        self._open: set[int] = set()

    def covers(self, last_offset: int, producer_id: int) -> bool:
        """Tell whether a transactional batch of data belongs to an aborted transaction.

        Source: CompletedFetch.consumeAbortedTransactionsUpTo and isBatchAborted, Apache Kafka clients.
        """
        self._advance(last_offset)
        return producer_id in self._open

    def pass_marker(self, last_offset: int, producer_id: int, batch: memoryview) -> None:
        """Note a control batch: an abort marker closes its producer's transaction.

        Raises:
            CorruptBatch: it cannot be told what the marker says, and a transaction of its producer is open.
            UnknownCodec, DecompressionBomb, CompressedDataCorrupt: likewise.
        """
        self._advance(last_offset)
        if producer_id in self._open and control_type(batch) == ABORT:
            self._open.discard(producer_id)

    def _advance(self, last_offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= last_offset:
            self._open.add(heapq.heappop(self._ahead)[1])


def control_type(batch: memoryview) -> int | None:
    """Return the type of a control batch: 0 abort, 1 commit, others as Kafka adds them; None if it has no records.

    Raises:
        CorruptBatch: its first record's key is not a control record's.
        UnknownCodec, DecompressionBomb, CompressedDataCorrupt: its record cannot be decompressed.
    """
    records = read_records(batch)
    if not records:
        return None
    key = records[0].key
    if key is None or len(key) < 4 or key[0] & 0x80:
        raise CorruptBatch("a control record has no version and type in its key")
    return int.from_bytes(key[2:4], "big", signed=True)
