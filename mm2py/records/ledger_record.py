"""A chunk of a ledger, for the compacted topic ``mm2-ledger.A.internal`` on the target cluster. Pure.

MirrorMaker 2 has no such record. A chunk is many entries of one ledger, one after another::

    key    ["runs",topic,partition,ledger number,first source offset]      JSON, names as on the source cluster
    value  u8 format, u8 oldest format whose readers may read it
           u8 flags: 1 copying began here, 2 a source topic id follows, 4 a target topic id follows, 8 rebuilt
           16 bytes of each topic id that follows
           copied to; first target offset
           size of the entries in bytes, then the entries as mm2py/offsets/run_codec.py lays them out

Numbers of the last two lines are LEB128. The first source offset is part of the key: a chunk that has grown replaces
its earlier version, and compaction keeps the chunks before it. Each chunk begins where the previous one was complete,
or before that, when another worker has found out again what was stored last. A null value deletes a chunk, after both
logs have deleted its records.

The owner of a partition writes its ledgers; the newest is the one that appears last in the topic. ``mm2py
rebuild-ledger`` writes a ledger of what those lack, with flag 8, which precedes all of them. If there are several of
these, the one with the highest number counts.

A newer format may append fields, which we ignore if it says that our format may read it. A newer format may also have
keys of other kinds than "runs"; their values begin with the same two bytes.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Final, NamedTuple

from mm2py.errors import Mm2Error
from mm2py.flow import PARTITION_MOST, TopicName
from mm2py.offsets.run_codec import (
    OFFSET_MOST,
    CorruptRuns,
    encode_entries,
    entries_behind,
    fault_of,
    read_number,
    write_number,
)
from mm2py.offsets.runs import Entry, Run
from mm2py.records.batch import NewRecord
from mm2py.records.java_struct import MalformedRecord

FORMAT_VERSION: Final = 1
_KIND: Final = "ledger record"
_RUNS: Final = "runs"
_WHOLE: Final = 1
_SOURCE_ID: Final = 2
_TARGET_ID: Final = 4
_REBUILT: Final = 8
_FLAGS: Final = _WHOLE | _SOURCE_ID | _TARGET_ID | _REBUILT
_FLAGS_AT: Final = 2
_ID_BYTES: Final = 16


class NewerLedgerFormat(Mm2Error):
    """A record of the ledger topic that must not be skipped, in a layout that this version does not know."""

    def __init__(self, needs_format: int) -> None:
        super().__init__(
            f"The ledger topic holds a record of format {needs_format}. This version of mm2py knows {FORMAT_VERSION}.",
            remedy="Update mm2py here to the version that wrote it, or to a later one.",
        )
        self.needs_format = needs_format


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """The identity of a chunk."""

    topic: TopicName
    """As the source cluster names it; likewise ``partition``."""
    partition: int
    number: int
    """Number of the ledger: when it was begun, in epoch milliseconds. It distinguishes the ledgers of a partition. Only
    rebuilt ledgers are ordered by it."""
    source_offset: int
    """Source offset where the chunk begins: that of its first entry, or a lower one."""


@dataclass(frozen=True, slots=True)
class LedgerChunk:
    """Entries of one ledger, ascending, none overlapping.

    Raises:
        CorruptRuns: when it is made: offsets go back or are none that a log has.
    """

    key: ChunkKey
    target_offset: int
    """Target offset where the chunk begins: that of its first entry, or a lower one."""
    entries: tuple[Entry, ...]
    copied_to: int
    """The source offset up to which the ledger was complete: the end of the last entry, or a higher one."""
    is_whole: bool = False
    """Copying began where this chunk begins: nothing was copied before."""
    source_topic_id: uuid.UUID | None = None
    target_topic_id: uuid.UUID | None = None
    is_rebuilt: bool = False
    """It is part of a rebuilt ledger, which precedes those that the owners of the partition have written."""

    def __post_init__(self) -> None:
        source, target = self.key.source_offset, self.target_offset
        if min(source, target) < 0:
            raise CorruptRuns(f"a chunk begins at {source} and {target}")
        for entry in self.entries:
            if entry[0] < source or entry[1] < target:
                raise CorruptRuns(f"{entry} begins before {source} or {target}")
            if type(entry) is Run and (count := entry[2]) > 0:  # the last one shows whether offsets are too high
                source, target = entry[0] + count, entry[1] + count
                continue
            if (fault := fault_of(entry)) is not None:
                raise CorruptRuns(fault)
            source, target = entry.source_end, entry.target_end
        if not source <= self.copied_to <= OFFSET_MOST or target > OFFSET_MOST:
            raise CorruptRuns(f"the entries end at {source} and {target}, and it is complete up to {self.copied_to}")


class EncodedChunk(NamedTuple):
    """A chunk whose entries are still bytes and not checked. The other fields are those of ``LedgerChunk``."""

    key: ChunkKey
    target_offset: int
    data: bytes
    copied_to: int
    is_whole: bool
    source_topic_id: uuid.UUID | None
    target_topic_id: uuid.UUID | None
    is_rebuilt: bool

    def decoded(self) -> LedgerChunk:
        """Decode the entries. Raises: MalformedRecord."""
        try:
            entries = tuple(entries_behind(self.data, self.key.source_offset, self.target_offset))
            return LedgerChunk(self.key, self.target_offset, entries, *self[3:])
        except CorruptRuns as error:
            raise MalformedRecord(_KIND, f"{error}"[:400]) from error


def encode(chunk: LedgerChunk, timestamp_ms: int) -> NewRecord:
    """Return the record of a chunk.

    Args:
        timestamp_ms: when it is written, in epoch milliseconds.
    """
    source_id, target_id = chunk.source_topic_id, chunk.target_topic_id
    flags = chunk.is_whole * _WHOLE | (source_id is not None) * _SOURCE_ID | (target_id is not None) * _TARGET_ID
    flags |= chunk.is_rebuilt * _REBUILT
    value = bytearray((FORMAT_VERSION, FORMAT_VERSION, flags))
    for topic_id in (source_id, target_id):
        value += b"" if topic_id is None else topic_id.bytes
    for number in (chunk.copied_to, chunk.target_offset):
        write_number(value, number)
    entries = encode_entries(chunk.entries, chunk.key.source_offset, chunk.target_offset)
    write_number(value, len(entries))
    return NewRecord(encode_key(chunk.key), bytes(value + entries), timestamp_ms)


def encode_deletion(key: ChunkKey, timestamp_ms: int) -> NewRecord:
    """Return the record that deletes a chunk."""
    return NewRecord(encode_key(key), None, timestamp_ms)


def encode_key(key: ChunkKey) -> bytes:
    """Return the key, always the same bytes for a chunk, because compaction compares bytes."""
    fields = [_RUNS, key.topic, key.partition, key.number, key.source_offset]
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode_key(key: bytes | None) -> ChunkKey | None:
    """Return the key of the chunk that a record holds; None for a kind of record that only newer versions know.

    Raises:
        MalformedRecord: it is no key of a ledger topic.
    """
    try:
        kind, *fields = json.loads(key or b"")
        if not isinstance(kind, str):
            raise TypeError("no kind")
        if kind != _RUNS:
            return None
        topic, partition, number, source_offset = fields
        found = ChunkKey(topic, partition, number, source_offset)
        if not isinstance(topic, str) or encode_key(found) != key:
            raise TypeError("not as mm2py writes it")
        limits = ((partition, PARTITION_MOST), (number, OFFSET_MOST), (source_offset, OFFSET_MOST))
        if not all(type(value) is int and 0 <= value <= most for value, most in limits):
            raise TypeError("numbers that no partition has")
    except (ValueError, TypeError, RecursionError) as error:
        raise MalformedRecord(_KIND, f"key {(key or b'')[:200]!r} ({error})"[:400]) from error
    return found


def decode(key: bytes | None, value: bytes | None) -> LedgerChunk | None:
    """Return the chunk; None if the record deletes one (see ``decode_key``), or is of a kind that may be skipped.

    Raises:
        MalformedRecord: mm2py does not write such a record; every reader skips it.
        NewerLedgerFormat: a newer mm2py wrote it, and a reader that ignores it would answer wrongly.
    """
    chunk_key = decode_start(key, value)
    return None if chunk_key is None or value is None else decode_value(chunk_key, value)


def decode_start(key: bytes | None, value: bytes | None) -> ChunkKey | None:
    """Return the key of the chunk that a record holds or deletes, without decoding entries; None: it may be skipped.

    Raises: as ``decode``. Malformed entries are not detected.
    """
    chunk_key = decode_key(key)
    if value is None:
        return chunk_key
    if len(value) < 2 or not 1 <= value[1] <= value[0]:
        raise MalformedRecord(_KIND, f"its value begins with {value[:2]!r}")
    if value[1] > FORMAT_VERSION:
        raise NewerLedgerFormat(value[1])
    return chunk_key


def decode_value(key: ChunkKey, value: bytes) -> LedgerChunk:
    """Return the chunk of a record whose key ``decode_start`` has returned. Raises: MalformedRecord."""
    return encoded_chunk(key, value).decoded()


def encoded_chunk(key: ChunkKey, value: bytes) -> EncodedChunk:
    """Return the chunk as ``decode_value`` does, but with its entries as bytes. Raises: MalformedRecord."""
    try:
        return _read(key, value)
    except CorruptRuns as error:
        raise MalformedRecord(_KIND, f"{error}"[:400]) from error


def is_rebuilt(value: bytes) -> bool:
    """Return whether a chunk is part of a rebuilt ledger; False for a malformed one."""
    return len(value) > _FLAGS_AT and bool(value[_FLAGS_AT] & _REBUILT)


def bounds_of(value: bytes) -> tuple[int, int]:
    """Return ``copied_to`` and ``target_offset`` of a chunk, without reading its entries.

    Raises:
        MalformedRecord: the value ends before them.
    """
    try:
        head = _read_head(value)
    except CorruptRuns as error:
        raise MalformedRecord(_KIND, f"{error}"[:400]) from error
    return head.copied_to, head.target_offset


class _Head(NamedTuple):
    """The fields before the entries, and where the entries begin."""

    flags: int
    source_topic_id: uuid.UUID | None
    target_topic_id: uuid.UUID | None
    copied_to: int
    target_offset: int
    at: int


def _read_head(value: bytes) -> _Head:
    if len(value) <= _FLAGS_AT:
        raise CorruptRuns("it ends before its flags")
    flags, at = value[_FLAGS_AT], _FLAGS_AT + 1
    if value[0] == FORMAT_VERSION and flags & ~_FLAGS:
        raise CorruptRuns(f"its flags are {flags}")
    source_id, at = _topic_id(value, at, flags & _SOURCE_ID)
    target_id, at = _topic_id(value, at, flags & _TARGET_ID)
    copied_to, at = read_number(value, at)
    target_offset, at = read_number(value, at)
    return _Head(flags, source_id, target_id, copied_to, target_offset, at)


def _read(key: ChunkKey, value: bytes) -> EncodedChunk:
    head = _read_head(value)
    size, at = read_number(value, head.at)
    end = at + size
    if end > len(value) or (value[0] == FORMAT_VERSION and end < len(value)):
        raise CorruptRuns(f"{size} bytes of entries begin at byte {at} of {len(value)}")
    return EncodedChunk(
        key,
        head.target_offset,
        value[at:end],
        head.copied_to,
        bool(head.flags & _WHOLE),
        head.source_topic_id,
        head.target_topic_id,
        bool(head.flags & _REBUILT),
    )


def _topic_id(value: bytes, at: int, is_there: int) -> tuple[uuid.UUID | None, int]:
    if not is_there:
        return None, at
    if at + _ID_BYTES > len(value):
        raise CorruptRuns("it ends within a topic id")
    return uuid.UUID(bytes=value[at : at + _ID_BYTES]), at + _ID_BYTES
