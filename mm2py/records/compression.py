"""The five compression codecs of record batches, in Java's framings, decompressed under a limit.

A batch does not say reliably how large its content is, and any writer to the source topic may have made it. So each
codec first finds an upper bound in the block headers of the compressed bytes, or gets an output buffer that ends at the
limit.

Counterpart: Kafka's ``CompressionType``.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import cramjam

from mm2py.errors import Mm2Error

Bytes = bytes | bytearray | memoryview

DECOMPRESSED_MAX_BYTES: Final = 64 * 1024 * 1024
"""The default limit of one batch: 64 times Kafka's default for a whole compressed batch."""
RECORD_WORK_BYTES: Final = 32
"""Reading a record takes as long as decompressing this many bytes."""
LIGHT_WORK_BYTES: Final = 1 << 20
"""How much one step of the event loop decodes at most. This takes about 10 ms, or 50 without the compiled core."""
RECORDS_MAX: Final = 1 << 20
"""Limit of one batch: 10 MB of records of 10 bytes. Brokers accept batches of 10 million records in a few kilobytes."""


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class UnknownCodec(Mm2Error):
    """The batch names a codec that mm2py does not know."""

    def __init__(self, codec: int) -> None:
        super().__init__(
            f"Compression codec {codec} is unknown; known are 0 none, 1 gzip, 2 snappy, 3 lz4 and 4 zstd.",
            remedy="Upgrade mm2py, or find out which producer writes such batches.",
        )
        self.codec = codec


class CompressedDataCorrupt(Mm2Error):
    """The codec cannot read the data, although the batch's checksum is right: its producer wrote it so."""

    def __init__(self, codec: Codec, detail: str) -> None:
        super().__init__(
            f"Data compressed with {codec.name.lower()} cannot be decompressed: {detail}.",
            remedy="Read the batch with Kafka's own tools; if they fail too, its producer wrote it so.",
        )


class BatchOverBudget(Mm2Error):
    """Decoding the batch would exceed its budget. It was not decoded."""


class DecompressionBomb(BatchOverBudget):
    """Decompressed, the data would exceed the limit. Nothing beyond the limit was allocated."""

    def __init__(self, codec: Codec, *, compressed_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{compressed_bytes} bytes compressed with {codec.name.lower()} hold more than {limit_bytes} bytes.",
            remedy=_OVER_BUDGET_REMEDY,
        )


_OVER_BUDGET_REMEDY: Final = "Look for the producer of this batch, and let it send smaller batches."


@dataclass(frozen=True, slots=True)
class DecodeBudget:
    """Limits for decoding one batch. They also limit time and memory, which grow at most in proportion to these four.

    A batch that need not be decoded passes, whatever its content. A batch that exceeds its budget is treated like a
    damaged one: its partition waits for an operator, and other partitions continue.
    """

    input_bytes: int = DECOMPRESSED_MAX_BYTES
    """Size of the batch as it was fetched."""
    output_bytes: int = DECOMPRESSED_MAX_BYTES
    """Size of its records, decompressed."""
    records: int = RECORDS_MAX
    headers: int = RECORDS_MAX
    """Headers of all its records together; reading a header takes as long as reading a record."""

    def check(self, input_bytes: int, records: int) -> None:
        """Check size and record count of a batch before it is decompressed.

        Raises:
            BatchOverBudget: one of them exceeds the budget.
        """
        if input_bytes > self.input_bytes:
            what = f"A batch of {input_bytes} bytes is larger than the {self.input_bytes} that are decoded."
        elif records > self.records:
            what = f"A batch of {records} records has more than the {self.records} that are decoded."
        else:
            return
        raise BatchOverBudget(what, remedy=_OVER_BUDGET_REMEDY)

    def within(self, work_bytes: int) -> DecodeBudget:
        """Return the budget cut so that decoding a batch takes no more work than decompressing this many bytes."""
        return DecodeBudget(
            min(self.input_bytes, work_bytes),
            min(self.output_bytes, work_bytes),
            min(self.records, work_bytes // RECORD_WORK_BYTES),
            min(self.headers, work_bytes // RECORD_WORK_BYTES),
        )

    def too_many_headers(self) -> BatchOverBudget:
        """Return the error for a batch whose records have too many headers; reading the records finds that."""
        what = f"A batch has more than the {self.headers} headers that are read."
        return BatchOverBudget(what, remedy=_OVER_BUDGET_REMEDY)

    def decompress(self, codec: int, data: Bytes, *, records: int) -> bytes | bytearray:
        """Return ``data`` decompressed; by its header it has this many records.

        Raises:
            BatchOverBudget: it exceeds the budget.
            UnknownCodec, CompressedDataCorrupt: as ``decompress`` does.
        """
        self.check(len(data), records)
        return decompress(codec, data, max_bytes=self.output_bytes)


WHOLE_BUDGET: Final = DecodeBudget()
OWN_BUDGET: Final = DecodeBudget(headers=20_000)
"""For a batch of an internal topic: the event loop makes its records. mm2py and MM2 write few headers."""
LIGHT_BUDGET: Final = WHOLE_BUDGET.within(LIGHT_WORK_BYTES)
"""For a batch that is decoded on the event loop."""


def decompress(codec: int, data: Bytes, *, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> bytes | bytearray:
    """Return ``data`` decompressed.

    Args:
        codec: 0 to 4, from the batch's attributes.
        data: the bytes after the batch header. Snappy may be raw or in xerial's blocks, as Java writes it; lz4 and zstd
            are frames, gzip members, of which there may be several.
        max_bytes: limit of the result.
    Raises:
        UnknownCodec: ``codec`` is 5 or more.
        DecompressionBomb: the result would have more than ``max_bytes``.
        CompressedDataCorrupt: the codec cannot read the data.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return _gunzip(data, max_bytes)
    if codec == Codec.SNAPPY:
        return _unsnappy(data, max_bytes)
    if codec == Codec.LZ4:
        return _unlz4(data, max_bytes)
    if codec == Codec.ZSTD:
        return _unzstd(data, max_bytes)
    raise UnknownCodec(codec)


def compress(codec: int, data: Bytes) -> Bytes:
    """Return ``data`` compressed as Kafka's Java clients do, at their default levels.

    Raises:
        UnknownCodec: ``codec`` is 5 or more.
    """
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        squeezer = zlib.compressobj(wbits=_GZIP_WBITS)
        return squeezer.compress(data) + squeezer.flush()
    if codec == Codec.SNAPPY:
        return _snappy(data)
    if codec == Codec.LZ4:
        return _lz4(data)
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    raise UnknownCodec(codec)


# gzip

_GZIP_WBITS: Final = 31


_MEMBER_BYTES: Final = 1 << 10
"""How many bytes each member after the first one is given at first."""


def _gunzip(data: Bytes, max_bytes: int) -> bytes:
    """Decompress members one after another, in time proportional to their bytes.

    The story: zlib copies the bytes that it was given beyond the end of a member. Each of 50,000 members of one byte
    was given all following bytes, so a batch of 1 MB blocked the event loop for a second, and one of 8 MB for a minute.
    """
    view = memoryview(data)
    plain: list[bytes] = []
    room = max_bytes
    position = 0
    while position < len(view) or not position:
        member = zlib.decompressobj(wbits=_GZIP_WBITS)
        taken = len(view) if not position else _MEMBER_BYTES
        while not member.eof:
            piece = view[position : position + taken]
            try:
                part = member.decompress(piece, room + 1)
            except zlib.error as error:
                raise CompressedDataCorrupt(Codec.GZIP, str(error)) from error
            room -= len(part)
            if room < 0:
                raise DecompressionBomb(Codec.GZIP, compressed_bytes=len(data), limit_bytes=max_bytes)
            plain.append(part)
            position += len(piece)
            if position >= len(view) and not member.eof:
                raise CompressedDataCorrupt(Codec.GZIP, "it ends before its last block")
            taken *= 2
        position -= len(member.unused_data)
    return plain[0] if len(plain) == 1 else b"".join(plain)


# snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that can read it
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_SIZE: Final = struct.Struct(">i")


def _unsnappy(data: Bytes, max_bytes: int) -> bytes | bytearray:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(memoryview(data), len(data), max_bytes, max_bytes)
    view = memoryview(data)
    plain = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + 4 > len(view):
            raise CompressedDataCorrupt(Codec.SNAPPY, "a block's size is cut off")
        size: int = _SIZE.unpack_from(view, position)[0]
        position += 4
        if size < 0 or position + size > len(view):
            raise CompressedDataCorrupt(Codec.SNAPPY, f"a block of {size} bytes does not fit into its data")
        plain += _unsnappy_block(view[position : position + size], len(data), max_bytes - len(plain), max_bytes)
        position += size
    return plain


def _unsnappy_block(block: memoryview, compressed_bytes: int, room: int, max_bytes: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > room:
            raise DecompressionBomb(Codec.SNAPPY, compressed_bytes=compressed_bytes, limit_bytes=max_bytes)
        # Snappy's densest element makes 64 bytes of 3: the result cannot be larger, whatever the block claims.
        if size > len(block) * 22:
            raise CompressedDataCorrupt(Codec.SNAPPY, f"a block of {len(block)} bytes claims to hold {size}")
        plain = bytearray(size)
        if size and cramjam.snappy.decompress_raw_into(block, plain) != size:
            raise CompressedDataCorrupt(Codec.SNAPPY, "a block holds less than it claims")
    except cramjam.DecompressionError as error:
        raise CompressedDataCorrupt(Codec.SNAPPY, str(error)) from error
    return plain


def _snappy(data: Bytes) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_SIZE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


# lz4

_LZ4_MAGIC: Final = 0x184D2204
_LITTLE_SIZE: Final = struct.Struct("<I")
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
# Most libraries write blocks that depend on earlier ones by default, and Java's reader refuses these: so we write the
# frame ourselves. Version 1, independent blocks of 64 KB, no checksums as the batch has one; 0x82 checks this header.
_LZ4_HEADER: Final = _LITTLE_SIZE.pack(_LZ4_MAGIC) + b"\x60\x40\x82"


def _unlz4(data: Bytes, max_bytes: int) -> bytearray:
    return _decompress_into(Codec.LZ4, data, _lz4_bound(memoryview(data)), max_bytes)


def _lz4_bound(view: memoryview) -> int:
    """Return how many bytes the frames can have at most when decompressed, by their block headers."""
    bound = position = 0
    try:
        while position < len(view):
            magic = _LITTLE_SIZE.unpack_from(view, position)[0]
            if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
                position += 8 + _LITTLE_SIZE.unpack_from(view, position + 4)[0]
                continue
            if magic != _LZ4_MAGIC:
                raise CompressedDataCorrupt(Codec.LZ4, "it does not start as a frame does")
            flags = view[position + 4]
            block_bytes = 1 << (8 + 2 * (view[position + 5] >> 4 & 7))
            position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
            while (size := _LITTLE_SIZE.unpack_from(view, position)[0]) != 0:
                stored = size & _LZ4_STORED
                size &= _LZ4_STORED - 1
                # Lz4's densest sequence adds 255 bytes of output for one of input.
                bound += size if stored else min(block_bytes, size * 255)
                position += 4 + size + (4 if flags & 0x10 else 0)
            position += 4 + (4 if flags & 0x04 else 0)
    except (struct.error, IndexError) as error:
        raise CompressedDataCorrupt(Codec.LZ4, "it ends before its end mark") from error
    if position > len(view):
        raise CompressedDataCorrupt(Codec.LZ4, "its last frame is cut")
    return bound


def _lz4(data: Bytes) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts.append(_LITTLE_SIZE.pack(len(block)))
            parts.append(block)
        else:
            parts.append(_LITTLE_SIZE.pack(len(plain) | _LZ4_STORED))
            parts.append(bytes(plain))
    parts.append(bytes(4))
    return b"".join(parts)


def repair_lz4_header_checksum(data: Bytes) -> bytes:
    """Return an lz4 frame with the header checksum that the format asks for.

    Producers of magic 0 computed it over the frame's magic too. Because all of them did, brokers stored it unchanged.

    Raises:
        CompressedDataCorrupt: the frame ends inside its header.
    """
    repaired = bytearray(data)
    if len(repaired) < 7:
        raise CompressedDataCorrupt(Codec.LZ4, "it ends inside its header")
    flags = repaired[4]
    checksum_at = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(repaired) <= checksum_at:
        raise CompressedDataCorrupt(Codec.LZ4, "it ends inside its header")
    repaired[checksum_at] = _xxh32_short(repaired[4:checksum_at]) >> 8 & 0xFF
    return bytes(repaired)


def _xxh32_short(data: bytes | bytearray) -> int:
    """Return xxHash32 with seed 0 of fewer than 16 bytes; a frame's header has 2 to 14."""
    prime_1, prime_2, prime_3, prime_4, prime_5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF
    digest = prime_5 + len(data) & mask
    position = 0
    while position + 4 <= len(data):
        digest = digest + int.from_bytes(data[position : position + 4], "little") * prime_3 & mask
        digest = (digest << 17 | digest >> 15) * prime_4 & mask
        position += 4
    for byte in data[position:]:
        digest = digest + byte * prime_5 & mask
        digest = (digest << 11 | digest >> 21) * prime_1 & mask
    digest = (digest ^ digest >> 15) * prime_2 & mask
    digest = (digest ^ digest >> 13) * prime_3 & mask
    return digest ^ digest >> 16


# zstd

_ZSTD_LEVEL: Final = 3
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_CONTENT_SIZES: Final = (struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q"))


def _unzstd(data: Bytes, max_bytes: int) -> bytearray:
    return _decompress_into(Codec.ZSTD, data, _zstd_bound(memoryview(data)), max_bytes)


def _zstd_bound(view: memoryview) -> int:
    """Return how many bytes the frames can have at most when decompressed: the declared size, or less if their blocks
    cannot have as many."""
    bound = position = 0
    try:
        while position < len(view):
            magic = _LITTLE_SIZE.unpack_from(view, position)[0]
            if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
                position += 8 + _LITTLE_SIZE.unpack_from(view, position + 4)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise CompressedDataCorrupt(Codec.ZSTD, "it does not start as a frame does")
            descriptor = view[position + 4]
            single_segment = descriptor & 0x20
            position += (5 if single_segment else 6) + (0, 1, 2, 4)[descriptor & 3]
            declared: int | None = None
            if descriptor >> 6 or single_segment:
                field = _CONTENT_SIZES[descriptor >> 6]
                declared = int(field.unpack_from(view, position)[0]) + (256 if field.size == 2 else 0)
                position += field.size
            in_blocks, position = _zstd_blocks(view, position)
            position += 4 if descriptor & 4 else 0
            bound += in_blocks if declared is None else min(declared, in_blocks)
    except (struct.error, IndexError) as error:
        raise CompressedDataCorrupt(Codec.ZSTD, "it ends before its last block") from error
    if position > len(view):
        raise CompressedDataCorrupt(Codec.ZSTD, "its last frame is cut")
    return bound


def _zstd_blocks(view: memoryview, position: int) -> tuple[int, int]:
    """Return how many bytes the blocks from ``position`` on can have at most when decompressed, and where they end."""
    bound = 0
    last = 0
    while not last:
        header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        last = header & 1
        kind = header >> 1 & 3
        size = header >> 3
        if kind == 2:
            bound += _ZSTD_BLOCK_BYTES
        elif kind == 3:
            raise CompressedDataCorrupt(Codec.ZSTD, "it has a block of a reserved type")
        else:
            bound += size
        position += 3 + (1 if kind == 1 else size)
    return bound, position


def _decompress_into(codec: Codec, data: Bytes, bound: int, max_bytes: int) -> bytearray:
    """Decompress into a buffer that cannot grow, so that a codec stops at the end of the buffer if data is a bomb."""
    if bound == 0:
        return bytearray()
    plain = bytearray(min(bound, max_bytes))
    into = cramjam.lz4.decompress_into if codec is Codec.LZ4 else cramjam.zstd.decompress_into
    try:
        size = into(data, plain)
    except cramjam.DecompressionError as error:
        if bound > max_bytes:
            raise DecompressionBomb(codec, compressed_bytes=len(data), limit_bytes=max_bytes) from error
        raise CompressedDataCorrupt(codec, str(error)) from error
    del plain[size:]
    return plain
