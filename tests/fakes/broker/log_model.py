"""The log of one partition: batches, leader epochs and transactions, with retention, compaction and truncation.

The model keeps the start offsets of segments, because clients can see the borders: a fetch never crosses one, a search
by time reads one segment only, and retention removes whole segments. A mirrored log has more segments than expected,
because a broker also starts a new one when the *records'* times are further apart than ``segment.ms``.
Source: UnifiedLog, LeaderEpochFileCache, TransactionIndex, Cleaner, MemoryRecords.filterTo, Apache Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tests.fakes.broker.record_batch import Batch, StoredRecord, read_marker, read_records, reencode

_INDEX_INTERVAL_BYTES = 4096
"""Bytes between index entries. Within this distance a broker also lists aborted transactions that lie further on."""

_MOST_ENDED = 200
"""The number of ended transactions that are remembered in case their markers are not replicated yet."""


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """The last stable offset of the log after this transaction had ended."""


class PartitionLog:
    """One log. Offsets are in records; ``end_offset`` is the offset of the next record."""

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
        self.segments: list[int] = [0]
        """The start offset of each segment, ascending; the last one is active."""
        self.segment_bytes = 1 << 30
        self.segment_ms = 7 * 24 * 3_600_000
        self._active_bytes = 0
        self._active_since_ms = -1

    def append(self, batch: Batch) -> None:
        """Add a batch that already has its offsets and leader epoch."""
        assert batch.base_offset >= self.end_offset, "a log only grows at its end"
        self.roll_for(batch)
        if not self._active_bytes:
            self._active_since_ms = batch.max_timestamp
        self._active_bytes += len(batch.raw)
        self.batches.append(batch)
        self._last_offsets.append(batch.last_offset)
        self.end_offset = batch.last_offset + 1
        self.assign_epoch(batch.partition_leader_epoch, batch.base_offset)
        self._learn_transaction(batch)

    def roll_for(self, batch: Batch) -> None:
        """Start a new segment if this batch does not fit the active one."""
        too_long = self._active_since_ms >= 0 and batch.max_timestamp - self._active_since_ms > self.segment_ms
        too_far = self.end_offset + batch.last_offset_delta - self.segments[-1] >= 1 << 31
        if too_long or too_far or self._active_bytes + len(batch.raw) > self.segment_bytes:
            self.roll()

    def roll(self) -> None:
        """Start a new segment, unless the active one is empty."""
        if self._active_bytes:
            self.segments.append(self.end_offset)
            self._active_bytes = 0

    def segment_end(self, offset: int) -> int:
        """Return the end of the segment that contains ``offset``: the start of the next one, or the log's end."""
        index = bisect_right(self.segments, offset)
        return self.segments[index] if index < len(self.segments) else self.end_offset

    def _in_segment(self, base_offset: int) -> list[Batch]:
        return list(self.from_offset(base_offset, self.segment_end(base_offset)))

    def _learn_transaction(self, batch: Batch) -> None:
        if not batch.transactional:
            return
        if not batch.control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        marker = read_marker(batch)
        first_offset = self._open.pop(batch.producer_id, None)
        if marker is None or first_offset is None:
            return
        self._ended = [*self._ended[-_MOST_ENDED:], (first_offset, batch.base_offset)]
        if marker[0]:
            stable = min(self._open.values(), default=batch.base_offset + 1)
            self.aborted.append(AbortedTransaction(batch.producer_id, first_offset, batch.base_offset, stable))

    def skip_to(self, offset: int) -> None:
        """Leave a hole, as compaction does; an empty log starts after it."""
        assert offset >= self.end_offset
        self.end_offset = offset
        if not self.batches:
            self.log_start_offset = offset
            self.segments = [offset]
            self.epochs = [(epoch, offset) for epoch, _ in self.epochs[-1:]]

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record where an epoch starts; entries that contradict it are removed."""
        if epoch < 0 or (self.epochs and self.epochs[-1][0] == epoch and self.epochs[-1][1] <= start_offset):
            return
        while self.epochs and (self.epochs[-1][0] >= epoch or self.epochs[-1][1] >= start_offset):
            self.epochs.pop()
        self.epochs.append((epoch, start_offset))

    def end_of_epoch(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return (the largest epoch up to ``epoch``, the offset where it ended), or (-1, -1) if the log does not know.

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
        """Return the offset below which every transaction is decided."""
        undecided = [*self._open.values(), *(first for first, marker in self._ended if marker >= high_watermark)]
        return min([high_watermark, *undecided])

    @property
    def open_transactions(self) -> dict[int, int]:
        """Producer id to first offset."""
        return dict(self._open)

    def index_of(self, offset: int) -> int:
        """Return the index of the first batch that ends at or after ``offset``."""
        return bisect_left(self._last_offsets, offset)

    def from_offset(self, offset: int, limit_offset: int) -> Iterator[Batch]:
        """Yield the batches that begin below ``limit_offset``, from the batch that contains ``offset`` on."""
        for index in range(self.index_of(offset), len(self.batches)):
            batch = self.batches[index]
            if batch.base_offset >= limit_offset:
                return
            yield batch

    def aborted_within(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions that overlap the range that was read.

        A broker finds the end of the range through its sparse index, so later transactions may be among them.
        """
        upper = self.segment_end(end_offset - 1)
        passed = 0
        for batch in self.from_offset(end_offset, upper):
            passed += len(batch.raw)
            if passed >= _INDEX_INTERVAL_BYTES:
                upper = batch.last_offset + 1
                break
        found = []
        for transaction in self.aborted:
            if transaction.last_offset >= start_offset and transaction.first_offset < upper:
                found.append((transaction.producer_id, transaction.first_offset))
            if transaction.last_stable_offset >= upper:
                break
        return found

    def find_timestamp(self, timestamp_ms: int) -> StoredRecord | None:
        """Return the first record that is at least as new, from the first segment that has such a record.

        Aborted and control records count. If all such records of that segment are before the log start, because the
        segment is not removed yet, the result is None.
        """
        for segment in self.segments:
            batches = self._in_segment(segment)
            if max((batch.max_timestamp for batch in batches), default=-1) < timestamp_ms:
                continue
            for batch in batches:
                if batch.max_timestamp < timestamp_ms:
                    continue
                for record in read_records(batch):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.log_start_offset:
                        return record
            return None
        return None

    def find_newest(self) -> StoredRecord | None:
        """Return the record with the largest timestamp, even if it is before the log start and its segment exists."""
        newest: Batch | None = None
        for batch in self.batches:
            if batch.count and (newest is None or batch.max_timestamp > newest.max_timestamp):
                newest = batch
        if newest is None:
            return None
        return next((record for record in read_records(newest) if record.timestamp_ms == newest.max_timestamp), None)

    def delete_before(self, offset: int) -> None:
        """Move the log start, as DeleteRecords does; the bytes stay until ``remove_old_segments``."""
        assert offset <= self.end_offset
        self.log_start_offset = max(self.log_start_offset, offset)
        before = [entry for entry in self.epochs if entry[1] <= self.log_start_offset]
        if before:
            self.epochs = [(before[-1][0], self.log_start_offset), *self.epochs[len(before) :]]
        self.aborted = [entry for entry in self.aborted if entry.last_offset >= self.log_start_offset]

    def remove_old_segments(self, *, high_watermark: int, retention_ms: int | None, now_ms: int) -> None:
        """Remove segments from the oldest on, as long as all of their records are too old or before the log start.

        Even the active one is removed, and a new one started, if all of its records are too old: old records that were
        just mirrored vanish at the next check.
        """
        while True:
            first = self.segments[0]
            batches = self._in_segment(first)
            newest_ms = max((batch.max_timestamp for batch in batches), default=-1)
            expired = retention_ms is not None and bool(batches) and now_ms - newest_ms > retention_ms
            before_start = len(self.segments) > 1 and self.segments[1] <= self.log_start_offset
            if not before_start and not (expired and self.segment_end(first) <= high_watermark):
                return
            if len(self.segments) == 1:
                self.roll()
            self.delete_before(max(self.log_start_offset, self.segments[1]))
            keep = self.index_of(self.segments[1])
            del self.batches[:keep], self._last_offsets[:keep], self.segments[0]

    def truncate_to(self, offset: int) -> None:
        """Truncate the log at ``offset``, or at the start of the batch that contains it."""
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
        self.segments = [base for base in self.segments if base <= offset] or [offset]
        active = self._in_segment(self.segments[-1])
        self._active_bytes = sum(len(batch.raw) for batch in active)
        self._active_since_ms = active[0].max_timestamp if active else -1
        if any(batch.transactional for batch in removed):
            self.aborted, self._open, self._ended = [], {}, []
            for batch in self.batches:
                self._learn_transaction(batch)

    def compact(self, limit_offset: int, *, delete_retention_ms: int, now_ms: int) -> None:
        """Compact the log up to ``limit_offset``: each key's last record stays, and each producer's last batch.

        A tombstone stays for ``delete_retention_ms`` after the first compaction that meets it, unless its batch already
        has a delete horizon from another source (docs/broker-facts.md#h6). Markers stay for ever; a broker keeps them
        only for a while. The cleaner skips the active segment, so a new one is started.
        """
        self.roll()
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
            if batch.control or not self.log_start_offset <= batch.base_offset < limit_offset:
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

    def newest(self, limit_offset: int, *, committed: bool, count: int) -> list[StoredRecord]:
        """Return the last of ``records`` without reading all: a test that waits for a long log calls it often."""
        found: list[StoredRecord] = []
        for index in range(len(self.batches) - 1, -1, -1):
            batch = self.batches[index]
            if len(found) >= count or batch.last_offset < self.log_start_offset:
                break
            if batch.control or batch.base_offset >= limit_offset or (committed and self._is_aborted(batch)):
                continue
            inside = [one for one in read_records(batch) if self.log_start_offset <= one.offset < limit_offset]
            found = inside + found
        return found[-count:]

    def _is_aborted(self, batch: Batch) -> bool:
        return batch.transactional and any(
            one.producer_id == batch.producer_id and one.first_offset <= batch.base_offset < one.last_offset
            for one in self.aborted
        )

    def records(self, limit_offset: int, *, committed: bool, with_control: bool = False) -> list[StoredRecord]:
        """Return the records from the log start to ``limit_offset`` that a consumer of this isolation would see."""
        aborted = self._aborted_records() if committed else set()
        return [
            record
            for batch in self.from_offset(self.log_start_offset, limit_offset)
            if with_control or not batch.control
            for record in read_records(batch)
            if self.log_start_offset <= record.offset < limit_offset and record.offset not in aborted
        ]
