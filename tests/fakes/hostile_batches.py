"""Batches that a hostile producer may send: to decode them costs much for their size, or gives far more bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import cramjam

from mm2py.records.batch import LOG_APPEND_TIME, assemble
from mm2py.records.compression import Codec
from mm2py.records.varints import varint
from tests.fakes.broker.record_batch import parse_batch, rewrite

_ZSTD_MAGIC: Final = struct.pack("<I", 0xFD2FB528)
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_SKIPPABLE: Final = struct.pack("<II", 0x184D2A50, 0)
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def gzip_member(content: bytes) -> bytes:
    squeezer = zlib.compressobj(9, wbits=31)
    return squeezer.compress(content) + squeezer.flush()


def _members(content: bytes, size: int) -> bytes:
    member = gzip_member(content)
    return member * (size // len(member))


def _empty_gzip_blocks(size: int) -> bytes:
    block = b"\x00\x00\x00\xff\xff"
    return gzip_member(b"")[:10] + block * (size // 5) + b"\x01\x00\x00\xff\xff" + bytes(8)


def _xerial(block: bytes, size: int) -> bytes:
    return _XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * (size // (len(block) + 4))


def _zstd_frame(window: int, blocks: bytes) -> bytes:
    """Return a zstd frame; ``window`` is the exponent of its size, 10 to 41."""
    return _ZSTD_MAGIC + bytes((0, window - 10 << 3)) + blocks


def _zstd_block(kind: int, size: int, content: bytes, *, last: bool) -> bytes:
    return struct.pack("<I", last | kind << 1 | size << 3)[:3] + content


_ONE: Final = _zstd_block(0, 1, b"x", last=True)

HOSTILE: Final[Mapping[str, tuple[Codec, Callable[[int], bytes]]]] = {
    "gzip: a byte a member": (Codec.GZIP, lambda size: _members(b"x", size)),
    "gzip: empty members": (Codec.GZIP, lambda size: _members(b"", size)),
    "gzip: empty blocks": (Codec.GZIP, _empty_gzip_blocks),
    "gzip: much of little": (Codec.GZIP, lambda size: gzip_member(bytes(900 * size))),
    "snappy: empty blocks": (Codec.SNAPPY, lambda size: _xerial(b"\x00", size)),
    "snappy: a byte a block": (Codec.SNAPPY, lambda size: _xerial(b"\x01\x00x", size)),
    "snappy: much of little": (Codec.SNAPPY, lambda size: bytes(cramjam.snappy.compress_raw(bytes(20 * size)))),
    "lz4: empty frames": (Codec.LZ4, lambda size: (_LZ4_HEADER + bytes(4)) * (size // 11)),
    "lz4: a byte a block": (Codec.LZ4, lambda size: _LZ4_HEADER + b"\x01\x00\x00\x80x" * (size // 5) + bytes(4)),
    "lz4: skippable frames": (Codec.LZ4, lambda size: _SKIPPABLE * (size // 8) + _LZ4_HEADER + bytes(4)),
    "lz4: much of little": (Codec.LZ4, lambda size: bytes(cramjam.lz4.compress(bytes(200 * size)))),
    "zstd: a byte a frame, with a window of 128 MB": (
        Codec.ZSTD,
        lambda size: _zstd_frame(27, _ONE) * (size // 10),
    ),
    "zstd: windows of 2 GB": (Codec.ZSTD, lambda size: _zstd_frame(31, _ONE) * (size // 10)),
    "zstd: empty blocks": (
        Codec.ZSTD,
        lambda size: _zstd_frame(27, _zstd_block(0, 0, b"", last=False) * (size // 3) + _ONE),
    ),
    "zstd: skippable frames": (Codec.ZSTD, lambda size: _SKIPPABLE * (size // 8) + _zstd_frame(10, _ONE)),
    "zstd: much of little": (
        Codec.ZSTD,
        lambda size: _zstd_frame(27, _zstd_block(1, 1 << 17, b"x", last=False) * (size // 4) + _ONE),
    ),
}
"""By name: the codec, and a function that makes about this many bytes."""


def log_append_time(batch: bytes | bytearray) -> bytes:
    """Return a batch as a broker stores it when it sets the timestamps itself: mm2py must rebuild the batch."""
    parsed = parse_batch(batch)
    return rewrite(parsed, attributes=parsed.attributes | LOG_APPEND_TIME).raw


def tiny_records(count: int) -> bytes:
    """Return the encoding of records without key and with an empty value."""
    return b"".join(
        bytes((2 * (5 + len(delta)), 0, 0)) + delta + b"\x01\x00\x00" for delta in map(varint, range(count))
    )


def batch_of_tiny_records(count: int, codec: Codec = Codec.ZSTD) -> bytes:
    body = tiny_records(count)
    return bytes(assemble(body, codec=codec, record_count=count, base_timestamp_ms=0, max_timestamp_ms=0))


def batch_of_one_byte_members(body: bytes, record_count: int) -> bytes:
    """Return a batch whose records are compressed by gzip with a member for each byte."""
    members = [gzip_member(bytes((byte,))) for byte in range(256)]
    return batch_around(b"".join(members[byte] for byte in body), Codec.GZIP, record_count=record_count)


def batch_around(compressed: bytes, codec: Codec, *, record_count: int) -> bytes:
    """Return a batch around compressed records. Its checksum is right."""
    batch = assemble(compressed, codec=Codec.NONE, record_count=record_count, base_timestamp_ms=0, max_timestamp_ms=0)
    return rewrite(parse_batch(batch), attributes=int(codec)).raw
