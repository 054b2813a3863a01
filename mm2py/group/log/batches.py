"""What a fetch of the control log brought: records in order and without a gap, or what is wrong with it. Pure.

The log is never compacted, so each batch begins where the one before ended, in the same leader epoch or a later one.
What stands outside of a batch's checksum (base offset, leader epoch) is known to be right by that alone.
"""

from __future__ import annotations

from typing import NamedTuple

from mm2py.errors import Mm2Error
from mm2py.records.batch import MAGIC, BatchHeader, CorruptBatch, Record, crc_is_right, read_header, read_records, split


class Place(NamedTuple):
    """Up to where a log was read."""

    offset: int
    """Of the next record."""
    leader_epoch: int
    """Of the record before it; -1 if nobody knows."""


class Read(NamedTuple):
    """One record of the log; ``record`` is None if it cannot be decompressed, ``why`` tells."""

    offset: int
    leader_epoch: int
    time_ms: int | None
    """When it was appended; None if its time is not that of the append."""
    record: Record | None
    why: str = ""


class Stretch(NamedTuple):
    """What one fetch brought: ``fault`` tells what is wrong with what comes at ``place``."""

    reads: list[Read]
    place: Place
    fault: str


def unpack(data: memoryview, place: Place, highest_epoch: int) -> Stretch:
    """Return the records from ``place`` on, as far as the batches are whole and fit together.

    A batch that nobody can decompress is there as one record without content: its checksum is right, so every reader
    sees the same.

    Args:
        highest_epoch: the leader epoch under which this was read; no batch has a higher one.
    """
    reads: list[Read] = []
    is_first = True
    try:
        for batch in split(data):
            header = read_header(batch)
            fault = _fault(header, place, is_first, highest_epoch)
            if header.magic != MAGIC or not crc_is_right(batch):
                fault = "its checksum is wrong"
            if fault:
                return Stretch(reads, place, fault)
            if not header.is_control:
                reads += _records_of(batch, header, place.offset)
            place = Place(header.next_offset, header.partition_leader_epoch)
            is_first = False
    except CorruptBatch as error:
        return Stretch(reads, place, error.what)
    return Stretch(reads, place, "")


def _fault(header: BatchHeader, place: Place, is_first: bool, highest_epoch: int) -> str:
    is_guess = is_first and place.leader_epoch < 0  # only what was not read before may begin within a batch
    holds_it = is_guess and header.base_offset < place.offset < header.next_offset
    if header.base_offset != place.offset and not holds_it:
        return f"the batch there begins at {header.base_offset}"
    if not place.leader_epoch <= header.partition_leader_epoch <= highest_epoch:
        return f"its leader epoch is {header.partition_leader_epoch}, that before it {place.leader_epoch}"
    return ""


def _records_of(batch: memoryview, header: BatchHeader, offset: int) -> list[Read]:
    epoch = header.partition_leader_epoch
    time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    try:
        found = read_records(batch)
    except Mm2Error as error:
        return [Read(offset, epoch, time_ms, None, error.what)]
    return [Read(record.offset, epoch, time_ms, record) for record in found if record.offset >= offset]
