"""The log of one partition: batches, leader epochs and transactions, with what retention, cleaning and truncation do.

There are no segments and no indexes; where a broker's answer depends on them it is said at the place.
Source: UnifiedLog, LeaderEpochFileCache, TransactionIndex, Cleaner, MemoryRecords.filterTo, Apache Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from tests.fakes.record_batch import Batch, StoredRecord, read_marker, read_records, reencode

_INDEX_INTERVAL_BYTES = 4096
"""An index entry comes after so many bytes; up to there a broker lists aborted transactions it need not have listed."""


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    """Where the marker stands."""
    last_stable_offset: int
    """What the log's was once this transaction had ended."""


class PartitionLog:
    """One log. Offsets are in records; ``end_offset`` is where the next record goes."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.log_start_offset = 0
        self.end_offset = 0
        self.epochs: list[tuple[int, int]] = []
        """(leader epoch, offset of its first record), ascending."""
        self.aborted: list[AbortedTransaction] = []
        self._open: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []
        """(first offset, offset of the marker) of transactions whose marker may not be replicated yet."""
        self._last_offsets: list[int] = []

    def append(self, batch: Batch) -> None:
        """Add a batch that already has its offsets and leader epoch."""
        assert batch.base_offset >= self.end_offset, "a log only grows at its end"
        self.batches.append(batch)
        self._last_offsets.append(batch.last_offset)
        self.end_offset = batch.last_offset + 1
        self.assign_epoch(batch.partition_leader_epoch, batch.base_offset)
        if not batch.transactional:
            return
        if not batch.control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        marker = read_marker(batch)
        first_offset = self._open.pop(batch.producer_id, None)
        if marker is None or first_offset is None:
            return
        self._ended.append((first_offset, batch.base_offset))
        if marker[0]:
            stable = min(self._open.values(), default=batch.base_offset + 1)
            self.aborted.append(AbortedTransaction(batch.producer_id, first_offset, batch.base_offset, stable))

    def skip_to(self, offset: int) -> None:
        """Leave a hole, as compaction does; an empty log begins behind it."""
        assert offset >= self.end_offset
        self.end_offset = offset
        if not self.batches:
            self.log_start_offset = offset
            self.epochs = [(epoch, offset) for epoch, _ in self.epochs[-1:]]

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note where an epoch begins; entries that contradict it go."""
        if epoch < 0 or (self.epochs and self.epochs[-1][0] == epoch and self.epochs[-1][1] <= start_offset):
            return
        while self.epochs and (self.epochs[-1][0] >= epoch or self.epochs[-1][1] >= start_offset):
            self.epochs.pop()
        self.epochs.append((epoch, start_offset))

    def end_of_epoch(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return (the largest epoch up to ``epoch``, where it ended), (-1, -1) if the log cannot tell.

        Args:
            end_offset: where the asked replica's copy of the log ends.
        """
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1][0]:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, end_offset
        higher_start = next(start for known, start in self.epochs if known > epoch)
        floor = max((known for known, _ in self.epochs if known <= epoch), default=epoch)
        return floor, higher_start

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return up to where every transaction is decided."""
        self._ended = [(first, marker) for first, marker in self._ended if marker >= high_watermark]
        undecided = [*self._open.values(), *(first for first, _ in self._ended)]
        return min([high_watermark, *undecided])

    @property
    def open_transactions(self) -> dict[int, int]:
        """Producer id to first offset."""
        return dict(self._open)

    def index_of(self, offset: int) -> int:
        """Return the index of the first batch that ends at or behind ``offset``."""
        return bisect_left(self._last_offsets, offset)

    def from_offset(self, offset: int, limit_offset: int) -> Iterator[Batch]:
        """Yield the batches from the one that holds ``offset`` on, as far as they lie below ``limit_offset``."""
        for index in range(self.index_of(offset), len(self.batches)):
            batch = self.batches[index]
            if batch.base_offset >= limit_offset:
                return
            yield batch

    def aborted_within(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions that overlap a stretch that was read.

        A broker finds the end of the stretch through its sparse index, so later ones may be among them.
        """
        upper = end_offset
        passed = 0
        for batch in self.from_offset(end_offset, self.end_offset):
            passed += len(batch.raw)
            upper = batch.last_offset + 1
            if passed >= _INDEX_INTERVAL_BYTES:
                break
        found = []
        for transaction in self.aborted:
            if transaction.last_offset >= start_offset and transaction.first_offset < upper:
                found.append((transaction.producer_id, transaction.first_offset))
            if transaction.last_stable_offset >= upper:
                break
        return found

    def find_timestamp(self, timestamp_ms: int) -> StoredRecord | None:
        """Return the first record that is at least as new; aborted ones and control records count."""
        for batch in self.from_offset(self.log_start_offset, self.end_offset):
            if batch.max_timestamp < timestamp_ms:
                continue
            for record in read_records(batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.log_start_offset:
                    return record
        return None

    def delete_before(self, offset: int) -> None:
        """Move the log start, as DeleteRecords or retention do; a batch goes once all of it lies before the start."""
        assert offset <= self.end_offset
        self.log_start_offset = max(self.log_start_offset, offset)
        keep = self.index_of(self.log_start_offset)
        del self.batches[:keep], self._last_offsets[:keep]
        before = [entry for entry in self.epochs if entry[1] <= self.log_start_offset]
        if before:
            self.epochs = [(before[-1][0], self.log_start_offset), *self.epochs[len(before) :]]
        self.aborted = [entry for entry in self.aborted if entry.last_offset >= self.log_start_offset]

    def truncate_to(self, offset: int) -> None:
        """Cut the log at ``offset``, or at the begin of the batch that holds it."""
        if offset >= self.end_offset:
            return
        keep = self.index_of(offset)
        if keep < len(self.batches):
            offset = min(offset, self.batches[keep].base_offset)
        removed = self.batches[keep:]
        del self.batches[keep:], self._last_offsets[keep:]
        self.end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]
        if any(batch.transactional for batch in removed):
            self._replay_transactions()

    def _replay_transactions(self) -> None:
        kept = self.batches
        self.batches, self._last_offsets, self.aborted, self._open, self._ended = [], [], [], {}, []
        end_offset, self.end_offset = self.end_offset, 0
        epochs = list(self.epochs)
        for batch in kept:
            self.append(batch)
        self.end_offset = end_offset
        self.epochs = epochs

    def compact(self, limit_offset: int, *, delete_retention_ms: int, now_ms: int) -> None:
        """Clean the log up to ``limit_offset``: of each key the last record stays, of each producer the last batch.

        A tombstone stays for ``delete_retention_ms`` after the first cleaning that meets it, unless its batch already
        carries a delete horizon, whoever set it (H6). Markers stay for good, which a broker does only for a while.
        """
        latest: dict[bytes, int] = {}
        aborted = self._aborted_records()
        for batch in self.from_offset(self.log_start_offset, limit_offset):
            if not batch.control:
                for record in read_records(batch):
                    if record.key is not None and record.offset not in aborted:
                        latest[record.key] = record.offset
        last_of_producer = {batch.producer_id: batch.base_offset for batch in self.batches if not batch.control}
        cleaned = []
        for batch in self.batches:
            if batch.control or batch.base_offset >= limit_offset:
                cleaned.append(batch)
                continue
            kept = self._clean(batch, latest, aborted, delete_retention_ms=delete_retention_ms, now_ms=now_ms)
            if kept.count or (kept.producer_id >= 0 and last_of_producer[kept.producer_id] == kept.base_offset):
                cleaned.append(kept)
        self.batches = cleaned
        self._last_offsets = [batch.last_offset for batch in cleaned]

    def _clean(
        self, batch: Batch, latest: dict[bytes, int], aborted: set[int], *, delete_retention_ms: int, now_ms: int
    ) -> Batch:
        records = read_records(batch)
        horizon = batch.delete_horizon_ms
        kept = []
        for record in records:
            if record.key is None or record.offset in aborted or latest.get(record.key, -1) > record.offset:
                continue
            if record.value is None and horizon is not None and horizon < now_ms:
                continue
            kept.append(record)
        new_horizon = None
        if horizon is None and any(record.value is None for record in kept):
            new_horizon = now_ms + delete_retention_ms
        if len(kept) == len(records) and new_horizon is None:
            return batch
        return reencode(batch, kept, delete_horizon_ms=new_horizon)

    def _aborted_records(self) -> set[int]:
        offsets: set[int] = set()
        for transaction in self.aborted:
            for batch in self.from_offset(transaction.first_offset, transaction.last_offset):
                if batch.transactional and batch.producer_id == transaction.producer_id:
                    offsets.update(range(batch.base_offset, batch.last_offset + 1))
        return offsets

    def records(self, limit_offset: int, *, committed: bool, with_control: bool = False) -> list[StoredRecord]:
        """Return the records from the log start on, as a consumer of that isolation would see them at the end."""
        aborted = self._aborted_records() if committed else set()
        return [
            record
            for batch in self.from_offset(self.log_start_offset, limit_offset)
            if with_control or not batch.control
            for record in read_records(batch)
            if self.log_start_offset <= record.offset < limit_offset and record.offset not in aborted
        ]
