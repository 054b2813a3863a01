"""Messages of magic 0 and 1, as brokers before 0.11 stored them, turned into the records of a batch of magic 2.

::

    0  offset i64                     17 attributes i8: bits 0 to 2 codec, 3 log append time
    8  length of all from 12 on i32   18 timestamp i64, in magic 1 only
    12 CRC-32 of all from 16 on u32   .. key: i32 length (-1 for null), bytes
    16 magic i8                       .. value: likewise

A compressed message is a wrapper: its value holds a message set. In magic 1 the wrapper has the offset of its last
inner message, and inner offsets are relative; in magic 0 they are absolute. Brokers from 0.11 on write batches of magic
2, but serve what lies on disk as it is: a compacted topic of a 3.x cluster may still hold such messages. Kafka's
``AbstractLegacyRecordBatch``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from mm2py.records.batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME, LOG_OVERHEAD_BYTES, NO_TIMESTAMP, varint
from mm2py.records.compression import Bytes, Codec, decompress, repair_lz4_header_checksum

_ENTRY: Final = struct.Struct(">qiIbb")
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_INT64_HALF: Final = 1 << 63
_I64: Final = struct.Struct(">q")
_I32: Final = struct.Struct(">i")
_MIN_BYTES: Final = (26, 34)
"""Size of a message with null key and null value, by magic."""


class CorruptMessage(Exception):
    """A message is not laid out as its magic says; ``str`` tells where. Turned into a fault by whoever plans."""


class WrongCrc(CorruptMessage):
    """A message's checksum does not fit its bytes."""


class Message(NamedTuple):
    """One message, or one wrapper."""

    offset: int
    magic: int
    codec: int
    timestamp_ms: int
    log_append_time: bool
    key: bytes | None
    value: bytes | None


def read_message(buffer: Bytes, position: int, end: int) -> tuple[Message, int]:
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
    return Message(offset, magic, attributes & CODEC_MASK, timestamp_ms, log_append_time, key, value), message_end


def unwrap(wrapper: Message, *, max_bytes: int) -> Iterator[Message]:
    """Yield the messages inside a compressed one, with absolute offsets and the timestamps that consumers see.

    Raises:
        CorruptMessage: the inner message set cannot be read.
        UnknownCodec, DecompressionBomb, CompressedDataCorrupt: as ``decompress`` does.
    """
    if wrapper.value is None:
        raise CorruptMessage("a compressed message has no value")
    compressed: Bytes = wrapper.value
    if wrapper.codec == Codec.LZ4 and wrapper.magic == 0:
        compressed = repair_lz4_header_checksum(compressed)
    content = bytes(decompress(wrapper.codec, compressed, max_bytes=max_bytes))
    if not content:
        raise CorruptMessage("a compressed message holds no message")
    base_offset = wrapper.offset - _last_offset(content) if wrapper.magic == 1 else 0
    position = 0
    while position < len(content):
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


def append_record(body: bytearray, message: Message, *, base_offset: int, base_timestamp_ms: int) -> None:
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

    def __init__(self, first: Message) -> None:
        self.base_offset = self.next_offset = first.offset
        self.base_timestamp_ms = first.timestamp_ms
        self.body = bytearray()
        self.record_count = 0
        self.codec: int = Codec.NONE

    def has_room(self, message: Message, max_bytes: int) -> bool:
        size = len(self.body) + len(message.key or b"") + len(message.value or b"") + _RECORD_OVERHEAD_MAX_BYTES
        return size + HEADER_BYTES <= max_bytes and message.offset - self.base_offset < _OFFSET_DELTA_END

    def add(self, message: Message) -> None:
        """Append a message.

        Raises:
            CorruptMessage: its offset does not come after the last one's.
        """
        if not self.next_offset <= message.offset < self.base_offset + _OFFSET_DELTA_END:
            raise CorruptMessage(f"a message has offset {message.offset} where at least {self.next_offset} was due")
        append_record(self.body, message, base_offset=self.base_offset, base_timestamp_ms=self.base_timestamp_ms)
        self.next_offset = message.offset + 1
        self.record_count += 1
