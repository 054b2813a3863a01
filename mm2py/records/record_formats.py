"""Records as bytes: checks and renumbers records of magic 2, and converts messages of magic 0 and 1.

Records of magic 2 keep their bytes except for the offset deltas. Brokers before 0.11 stored messages of magic 0 and 1:

::

    0  offset i64                     17 attributes i8: bits 0 to 2 codec, 3 log append time
    8  length of all from 12 on i32   18 timestamp i64, in magic 1 only
    12 CRC-32 of all from 16 on u32   .. key: i32 length (-1 for null), bytes
    16 magic i8                       .. value: likewise

A compressed message is a wrapper: its value holds a message set. In magic 1 the wrapper has the offset of its last
inner message, and inner offsets are relative; in magic 0 they are absolute. Later brokers serve such messages as they
are on disk, so a compacted topic of a 3.x cluster may still hold them.

Counterpart: DefaultRecord and AbstractLegacyRecordBatch of Apache Kafka's clients.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mm2py.records.batch import CODEC_MASK, HEADER_BYTES, INT64_MAX, LOG_APPEND_TIME, LOG_OVERHEAD_BYTES, NO_TIMESTAMP
from mm2py.records.compression import WHOLE_BUDGET, Bytes, Codec, DecodeBudget, repair_lz4_header_checksum
from mm2py.records.varints import CorruptBatch, read_raw, read_varint, read_varlong, varint


class RecordBody(NamedTuple):
    """The decompressed records of one source batch, in the encoding of magic 2, with fields of its header."""

    data: bytes | bytearray
    base_offset: int
    next_offset: int
    base_timestamp_ms: int
    record_count: int
    one_timestamp: bool
    """All records have ``base_timestamp_ms``, whatever their own timestamps are."""
    leader_epoch: int
    codec: int


class KeptRecords(NamedTuple):
    """The records of a body that are to be copied."""

    position: int
    """Where the first of them starts."""
    record_count: int
    null_key_delta: int | None
    """Offset delta of the first record that the target would refuse for its null key; those before it are good."""


def survey(body: RecordBody, wanted_delta: int, refuse_null_keys: bool) -> KeptRecords:
    """Check the layout of the records, and find those from ``wanted_delta`` on.

    Raises:
        CorruptBatch: the layout is wrong.
    """
    data = body.data
    size = len(data)
    last_delta = body.next_offset - body.base_offset - 1
    position = kept_from = kept = 0
    previous = -1
    try:
        for _ in range(body.record_count):
            record_at = position
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, record_at)
            end = position + (raw >> 1)
            if raw & 1 or end > size:
                raise CorruptBatch("a record's length does not fit its batch")
            raw = data[position + 1]
            if raw > 127:
                _, position = read_raw(data, position + 1)
            else:
                position += 2
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            delta = raw >> 1
            if raw & 1 or delta <= previous or delta > last_delta:
                raise CorruptBatch("its records' offsets do not rise from its first to its last offset")
            previous = delta
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            if not raw & 1:
                position += raw >> 1
            elif refuse_null_keys and delta >= wanted_delta:
                return KeptRecords(kept_from, kept, delta)
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            if not raw & 1:
                position += raw >> 1
            raw = data[position]
            position += 1
            if raw:
                position = _skip_headers(data, position - 1)
            if position != end:
                raise CorruptBatch("a record is longer or shorter than it says")
            if delta >= wanted_delta:
                if not kept:
                    kept_from = record_at
                kept += 1
    except IndexError as error:
        raise CorruptBatch("its records end too early") from error
    if position != size:
        raise CorruptBatch(f"{size - position} bytes follow its last record")
    return KeptRecords(kept_from, kept, None)


def _skip_headers(data: bytes | bytearray, position: int) -> int:
    count, position = read_raw(data, position)
    if count & 1:
        raise CorruptBatch("a record has less than no headers")
    for _ in range(count >> 1):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, position - 1)
        if raw & 1:
            raise CorruptBatch("a header has no key")
        position += raw >> 1
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, position - 1)
        if not raw & 1:
            position += raw >> 1
    return position


def offsets_of(body: RecordBody, position: int, record_count: int) -> list[int]:
    """Return the source offsets of ``record_count`` surveyed records from ``position`` on."""
    data = body.data
    offsets: list[int] = []
    for _ in range(record_count):
        length, content_at = read_varint(data, position)
        _, delta_at = read_varlong(data, content_at + 1)
        delta, _ = read_varint(data, delta_at)
        offsets.append(body.base_offset + delta)
        position = content_at + length
    return offsets


class Renumbered(NamedTuple):
    """Records with new offset deltas, 0 to n - 1."""

    data: bytearray
    end_position: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    jumps: Sequence[int]


_SHORT_VARINTS: Final = [varint(number) for number in range(1 << 13)]


def renumber(body: RecordBody, position: int, record_count: int) -> Renumbered:
    """Copy ``record_count`` surveyed records from ``position`` on. Only offset deltas change; if all records have one
    timestamp, timestamp deltas change too."""
    data, base_offset, one_timestamp = body.data, body.base_offset, body.one_timestamp
    short_varints, short_count = _SHORT_VARINTS, len(_SHORT_VARINTS)
    out = bytearray()
    jumps = array("q")
    max_timestamp_delta: int | None = None
    first_delta: int | None = None
    expected = 0
    for index in range(record_count):
        record_at = position
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, record_at)
        content_at = position
        end = position + (raw >> 1)
        raw = data[position + 1]
        if raw > 127:
            raw, position = read_raw(data, position + 1)
        else:
            position += 2
        timestamp_delta = (raw >> 1) ^ -(raw & 1)
        if max_timestamp_delta is None or timestamp_delta > max_timestamp_delta:
            max_timestamp_delta = timestamp_delta
        delta_at = position
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, delta_at)
        delta = raw >> 1
        if first_delta is None:
            first_delta = delta
        elif delta != expected:
            jumps.append(index)
            jumps.append(base_offset + delta)
        expected = delta + 1
        number = short_varints[index] if index < short_count else varint(index)
        if one_timestamp:
            length = 2 + len(number) + end - position
            out += short_varints[length] if length < short_count else varint(length)
            out.append(data[content_at])
            out.append(0)
        elif len(number) == position - delta_at:
            out += data[record_at:delta_at]
        else:
            length = delta_at - content_at + len(number) + end - position
            out += short_varints[length] if length < short_count else varint(length)
            out += data[content_at:delta_at]
        out += number
        out += data[position:end]
        position = end
    return Renumbered(
        out,
        position,
        base_offset + (first_delta or 0),
        base_offset + expected - 1,
        newest_timestamp_ms(body, 0 if one_timestamp else max_timestamp_delta or 0),
        jumps,
    )


def newest_timestamp_ms(body: RecordBody, max_timestamp_delta: int) -> int:
    """Return the newest timestamp of records, limited to 64 bits. Java's sums would wrap around; but no producer means
    such timestamps, and the target computes its own maximum.
    """
    return min(max(body.base_timestamp_ms + max_timestamp_delta, NO_TIMESTAMP), INT64_MAX)


_ENTRY: Final = struct.Struct(">qiIbb")
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_INT64_HALF: Final = 1 << 63
_I64: Final = struct.Struct(">q")
_I32: Final = struct.Struct(">i")
_MIN_BYTES: Final = (26, 34)
"""Size of a message with null key and null value, by magic."""


class CorruptMessage(Exception):
    """A message does not have the layout of its magic; ``str`` says where. The planner turns this into a fault."""


class WrongCrc(CorruptMessage):
    """A message's checksum does not fit its bytes."""


class OldMessage(NamedTuple):
    """One message, or one wrapper."""

    offset: int
    magic: int
    codec: int
    timestamp_ms: int
    log_append_time: bool
    key: bytes | None
    value: bytes | None


def read_message(buffer: Bytes, position: int, end: int) -> tuple[OldMessage, int]:
    """Return the message at ``position`` and the position after it; ``end`` is where the buffer's content ends.

    Raises:
        CorruptMessage: the layout is wrong, or the message is cut.
        WrongCrc: its checksum is wrong.
    """
    if position + _MIN_BYTES[0] > end:
        raise CorruptMessage("a message is cut")
    offset, length, crc, magic, attributes = _ENTRY.unpack_from(buffer, position)
    if magic not in (0, 1):
        raise CorruptMessage(f"a message of magic {magic} stands among older ones")
    message_end = position + LOG_OVERHEAD_BYTES + length
    if length < _MIN_BYTES[magic] - LOG_OVERHEAD_BYTES or message_end > end:
        raise CorruptMessage(f"a message has a length of {length}")
    if zlib.crc32(memoryview(buffer)[position + 16 : message_end]) != crc:
        raise WrongCrc(f"a message's checksum is not {crc:#010x}")
    at = position + _ENTRY.size
    timestamp_ms = NO_TIMESTAMP
    if magic == 1:
        timestamp_ms = _I64.unpack_from(buffer, at)[0]
        at += 8
    key, at = _read_sized(buffer, at, message_end)
    value, at = _read_sized(buffer, at, message_end)
    if at != message_end:
        raise CorruptMessage("a message is longer than its key and value")
    log_append_time = magic == 1 and attributes & LOG_APPEND_TIME != 0
    return OldMessage(offset, magic, attributes & CODEC_MASK, timestamp_ms, log_append_time, key, value), message_end


def unwrap(wrapper: OldMessage, budget: DecodeBudget = WHOLE_BUDGET) -> Iterator[OldMessage]:
    """Yield the messages inside a compressed one, with absolute offsets and the timestamps that consumers see.

    Raises:
        CorruptMessage: the inner message set cannot be read.
        BatchOverBudget, UnknownCodec, CompressedDataCorrupt: as ``DecodeBudget.decompress`` does.
    """
    if wrapper.value is None:
        raise CorruptMessage("a compressed message has no value")
    compressed: Bytes = wrapper.value
    if wrapper.codec == Codec.LZ4 and wrapper.magic == 0:
        compressed = repair_lz4_header_checksum(compressed)
    content = bytes(budget.decompress(wrapper.codec, compressed, records=0))  # no field says how many there are
    if not content:
        raise CorruptMessage("a compressed message holds no message")
    base_offset = wrapper.offset - _last_offset(content) if wrapper.magic == 1 else 0
    position = count = 0
    while position < len(content):
        count += 1
        budget.check(0, count)
        message, position = read_message(content, position, len(content))
        if message.codec != Codec.NONE or message.magic != wrapper.magic:
            raise CorruptMessage("a compressed message holds one that is compressed again or of another magic")
        yield message._replace(
            offset=base_offset + message.offset,
            timestamp_ms=wrapper.timestamp_ms if wrapper.log_append_time else message.timestamp_ms,
        )


def _last_offset(content: bytes) -> int:
    position = offset = 0
    while position + LOG_OVERHEAD_BYTES <= len(content):
        offset, length = _OFFSET_AND_LENGTH.unpack_from(content, position)
        if length < 0:
            raise CorruptMessage(f"a message has a length of {length}")
        position += LOG_OVERHEAD_BYTES + length
    return int(offset)


def append_record(body: bytearray, message: OldMessage, *, base_offset: int, base_timestamp_ms: int) -> None:
    """Append ``message`` to the records of a batch of magic 2 that begins at ``base_offset``; it gets no headers."""
    content = bytearray(1)
    delta_ms = message.timestamp_ms - base_timestamp_ms
    content += varint((delta_ms + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF)  # wraps around, as in Java
    content += varint(message.offset - base_offset)
    for data in (message.key, message.value):
        content += b"\x01" if data is None else varint(len(data)) + data
    content += b"\x00"
    body += varint(len(content))
    body += content


def _read_sized(buffer: Bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position + 4 > end:
        raise CorruptMessage("a message ends inside a length")
    size = _I32.unpack_from(buffer, position)[0]
    position += 4
    if size < 0:
        return None, position
    if position + size > end:
        raise CorruptMessage(f"a message ends before its {size} bytes of key or value")
    return bytes(buffer[position : position + size]), position + size


_RECORD_OVERHEAD_MAX_BYTES: Final = 32
_OFFSET_DELTA_END: Final = 1 << 31


class MessageGroup:
    """Old messages on their way into one batch."""

    __slots__ = ("base_offset", "base_timestamp_ms", "body", "codec", "next_offset", "record_count")

    def __init__(self, first: OldMessage) -> None:
        self.base_offset = self.next_offset = first.offset
        self.base_timestamp_ms = first.timestamp_ms
        self.body = bytearray()
        self.record_count = 0
        self.codec: int = Codec.NONE

    def has_room(self, message: OldMessage, max_bytes: int) -> bool:
        size = len(self.body) + len(message.key or b"") + len(message.value or b"") + _RECORD_OVERHEAD_MAX_BYTES
        return size + HEADER_BYTES <= max_bytes and message.offset - self.base_offset < _OFFSET_DELTA_END

    def add(self, message: OldMessage) -> None:
        """Append a message.

        Raises:
            CorruptMessage: its offset is not above the last one's, or too far from the first one's.
        """
        if not self.next_offset <= message.offset < self.base_offset + _OFFSET_DELTA_END:
            raise CorruptMessage(f"a message has offset {message.offset} where at least {self.next_offset} was due")
        append_record(self.body, message, base_offset=self.base_offset, base_timestamp_ms=self.base_timestamp_ms)
        self.next_offset = message.offset + 1
        self.record_count += 1
