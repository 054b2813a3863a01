"""Decodes what a fetch of the control log returned, and finds the snapshot with which a joiner may start. Pure.

The log is never compacted, so each batch starts at the end of the one before, in the same leader epoch or a later one.
Only this shows that the fields outside a batch's checksum (base offset, leader epoch) are right.

A snapshot is the state after all records below ``covers``. So it is true whichever member wrote it, unless the log was
cut back or recreated. The story: a leader has read to 95, while the log is cut back to 80 and grows again. The snapshot
that the leader appends before it notices this contains records that are gone. So a snapshot carries the topic id, and
the leader epoch of the last record that it covers: after a cut another record is there, under a higher epoch.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from mm2py.errors import Mm2Error
from mm2py.records.batch import MAGIC, BatchHeader, Record, crc_is_right, read_header, read_records, split
from mm2py.records.compression import Codec, DecodeBudget
from mm2py.records.control_record import ControlRecord, Snapshot
from mm2py.records.varints import CorruptBatch
from mm2py.topics.names import CONTROL_LOG_MESSAGE_BYTES


class LogPlace(NamedTuple):
    """The place up to which a log was read."""

    offset: int
    """Of the next record."""
    leader_epoch: int
    """Of the record before it; -1 if unknown."""


class Read(NamedTuple):
    """One record of the log; ``record`` is None if it cannot be decompressed, ``why`` gives the reason."""

    offset: int
    leader_epoch: int
    time_ms: int | None
    """When it was appended; None if its time is not that of the append."""
    record: Record | None
    why: str = ""


class FetchedStretch(NamedTuple):
    """What one fetch returned. ``fault`` says what is wrong with the batch at ``place``; empty if nothing is."""

    reads: list[Read]
    place: LogPlace
    fault: str


def unpack(data: memoryview, place: LogPlace, highest_epoch: int) -> FetchedStretch:
    """Return the records from ``place`` on, as far as the batches are whole and fit together.

    A batch that cannot be decompressed, or exceeds its budget, is returned as one record without content: its checksum
    is right, so every reader sees the same. This runs on the event loop, so it stops after ``_STEP_BYTES``.

    Args:
        highest_epoch: the leader epoch under which this was read; no batch has a higher one.
    """
    reads: list[Read] = []
    is_first, taken = True, 0
    try:
        for batch in split(data):
            header = read_header(batch)
            fault = _fault(header, place, is_first, highest_epoch)
            if header.magic != MAGIC or not crc_is_right(batch):
                fault = "its checksum is wrong"
            if fault:
                return FetchedStretch(reads, place, fault)
            if not header.is_control:
                found = _records_of(batch, header, place.offset)
                reads += found
                taken += _work_bytes(header, found)
            place = LogPlace(header.next_offset, header.partition_leader_epoch)
            is_first = False
            if taken > _STEP_BYTES:
                break
    except CorruptBatch as error:
        return FetchedStretch(reads, place, error.what)
    return FetchedStretch(reads, place, "")


def _fault(header: BatchHeader, place: LogPlace, is_first: bool, highest_epoch: int) -> str:
    is_guess = is_first and place.leader_epoch < 0  # only a place up to which nothing was read may be within a batch
    holds_it = is_guess and header.base_offset < place.offset < header.next_offset
    if header.base_offset != place.offset and not holds_it:
        return f"the batch there begins at {header.base_offset}"
    if not place.leader_epoch <= header.partition_leader_epoch <= highest_epoch:
        return f"its leader epoch is {header.partition_leader_epoch}, that before it {place.leader_epoch}"
    return ""


_BUDGET: Final = DecodeBudget(
    input_bytes=CONTROL_LOG_MESSAGE_BYTES,
    output_bytes=CONTROL_LOG_MESSAGE_BYTES,
    records=20_000,
    headers=20_000,
)
"""Members write 500 records and 600 KB in one batch, uncompressed. Every reader must have the same budget.

The story: it was 16 MB. A gzip batch with one byte in each gzip member, which only a topic with a raised
``max.message.bytes`` accepts, blocked the event loop for a second, and a batch of empty snappy blocks for five.
"""
_STEP_BYTES: Final = 4 << 20
"""If the batches of a read took more, the rest is left to the next read. A fetch has room for 10,000 batches of 99
bytes with 20,000 records each: they blocked the loop for minutes, and took gigabytes of memory."""
_RECORD_BYTES: Final = 400
"""Of memory that a record takes besides its content."""


def _work_bytes(header: BatchHeader, found: Sequence[Read]) -> int:
    """Return about how many bytes of memory the records of a batch take; for an unreadable batch, what was decoded."""
    decoded_bytes = 0 if header.codec == Codec.NONE else header.size_bytes
    if any(read.record is None for read in found):
        return decoded_bytes + _BUDGET.output_bytes
    return decoded_bytes + sum(map(_held_bytes, found))


def _held_bytes(read: Read) -> int:
    if read.record is None:
        return 0
    texts = sum(len(name) + len(value or b"") + 100 for name, value in read.record.headers)
    return _RECORD_BYTES + len(read.record.key or b"") + len(read.record.value or b"") + texts


def _records_of(batch: memoryview, header: BatchHeader, offset: int) -> list[Read]:
    epoch = header.partition_leader_epoch
    time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    try:
        found = read_records(batch, _BUDGET)
    except Mm2Error as error:
        return [Read(offset, epoch, time_ms, None, error.what)]
    return [Read(record.offset, epoch, time_ms, record) for record in found if record.offset >= offset]


HISTORY: Final = "history"
"""The header of a snapshot's records: ``<topic id>:<leader epoch>``."""


class LogItem(NamedTuple):
    """One record of the log as it was read. Junk has neither record nor error."""

    offset: int
    leader_epoch: int
    time_ms: int
    record: ControlRecord | None
    error: Mm2Error | None = None
    """Why no reader may skip it."""
    history: str = ""


class FoundSnapshot(NamedTuple):
    """A snapshot of which all parts were found."""

    snapshot_id: str
    covers: int
    state: str
    offset: int
    """Of its first part."""
    history: str


def history_of(topic_id: uuid.UUID | None, leader_epoch: int) -> str:
    """Return the value of the header. If the epoch is -1, as for a record that the writer has not read, only the id."""
    return f"{topic_id}:{leader_epoch if leader_epoch >= 0 else ''}"


def newest_whole(items: Sequence[LogItem], void: Collection[str]) -> FoundSnapshot | None:
    """Return the newest snapshot of which all parts are there, leaving out those whose id is in ``void``."""
    parts: dict[str, dict[int, LogItem]] = {}
    for item in reversed(items):
        snapshot = item.record
        if not isinstance(snapshot, Snapshot) or snapshot.snapshot_id in void:
            continue
        found = parts.setdefault(snapshot.snapshot_id, {})
        found[snapshot.part] = item
        if all(number in found for number in range(snapshot.parts)):
            texts = [found[number].record for number in range(snapshot.parts)]
            return FoundSnapshot(
                snapshot.snapshot_id,
                snapshot.covers,
                "".join(text.state for text in texts if isinstance(text, Snapshot)),
                min(part.offset for part in found.values()),
                item.history,
            )
    return None


def is_of_this_log(
    found: FoundSnapshot, items: Sequence[LogItem], topic_id: uuid.UUID | None, log_start_offset: int
) -> bool:
    """Return whether the snapshot covers records of this log, and no later record is missing.

    Args:
        items: must begin at the last record that it covers, or at the log start.
    """
    if not log_start_offset <= found.covers <= found.offset:
        return False
    its_id, _, its_epoch = found.history.partition(":")
    if its_id not in {"", str(None), str(topic_id)} and topic_id is not None:
        return False
    last = next((item for item in items if item.offset == found.covers - 1), None)
    return last is None or not its_epoch or its_epoch == str(last.leader_epoch)
