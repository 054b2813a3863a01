"""Record batches of format v2, built and read without any of mm2py's code.

The broker model checks what mm2py produces, and the tests check what arrived. With a shared codec one mistake could
hide another. This codec is plain and slow on purpose.
Source: DefaultRecordBatch, DefaultRecord, EndTransactionMarker, Apache Kafka 4.3, clients/.../common/record.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import cramjam
from crc32c import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LOG_OVERHEAD: Final = 12
"""Size of base offset and length, which the length does not include."""

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ATTRIBUTES_AT: Final = 22
"""Offset of the lower of the two bytes, which has all bits in use."""
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
NO_TIMESTAMP: Final = -1
SEQUENCES: Final = 1 << 31
"""Number of sequence numbers: 0 follows the largest, 2^31 - 1."""

_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_LZ4_FLAGS_AT: Final = 4
_LZ4_INDEPENDENT: Final = 0x20


class BadBatch(ValueError):
    """The bytes are not a readable record batch."""


class Undecodable(BadBatch):
    """Compressed data, or a number in them, cannot be decoded: brokers answer code -1."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as an application sends it. Times in milliseconds; ``None`` means the moment of sending."""

    value: bytes | None = b""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as a log contains it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    partition_leader_epoch: int = -1
    control: bool = False
    transactional: bool = False

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]:
        """What a copy must keep: key, value, headers and timestamp."""
        return self.key, self.value, self.headers, self.timestamp_ms


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch with its header parsed. ``raw`` is the whole batch, in bytes that cannot change."""

    raw: bytes = field(repr=False)
    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES

    @property
    def codec(self) -> str:
        number = self.attributes & CODEC_MASK
        return CODECS[number] if number < len(CODECS) else f"codec {number}"

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def parse_batch(data: bytes | bytearray | memoryview, at: int = 0) -> Batch:
    """Return the batch that starts at ``at``.

    Raises:
        BadBatch: the batch is cut short, or its length is impossible.
    """
    view = memoryview(data)
    if len(view) - at < HEADER_BYTES:
        raise BadBatch(f"{len(view) - at} bytes are left at {at}, a batch header has {HEADER_BYTES}")
    base_offset, length, *rest = HEADER.unpack_from(view, at)
    if length < HEADER_BYTES - LOG_OVERHEAD or at + LOG_OVERHEAD + length > len(view):
        raise BadBatch(f"a batch at {at} announces {length} bytes, {len(view) - at - LOG_OVERHEAD} are there")
    return Batch(bytes(view[at : at + LOG_OVERHEAD + length]), base_offset, *rest)


def parse_batches(data: bytes | bytearray | memoryview, *, allow_cut: bool = False) -> list[Batch]:
    """Return the batches in ``data``, which follow each other; a fetch reply may end in the middle of one."""
    batches: list[Batch] = []
    at = 0
    while at < len(data):
        try:
            batch = parse_batch(data, at)
        except BadBatch:
            if allow_cut and batches:
                break
            raise
        batches.append(batch)
        at += len(batch.raw)
    return batches


def has_valid_crc(batch: Batch) -> bool:
    return crc32c(batch.raw[_CRC_FROM:]) == batch.crc


def rewrite(
    batch: Batch,
    *,
    base_offset: int | None = None,
    partition_leader_epoch: int | None = None,
    attributes: int | None = None,
    max_timestamp: int | None = None,
) -> Batch:
    """Return the batch with other header fields, and a new CRC if it covers one of them."""
    raw = bytearray(batch.raw)
    if base_offset is not None:
        struct.pack_into(">q", raw, 0, base_offset)
    if partition_leader_epoch is not None:
        struct.pack_into(">i", raw, 12, partition_leader_epoch)
    if attributes is not None or max_timestamp is not None:
        struct.pack_into(">h", raw, 21, batch.attributes if attributes is None else attributes)
        struct.pack_into(">q", raw, 35, batch.max_timestamp if max_timestamp is None else max_timestamp)
        struct.pack_into(">I", raw, _CRC_AT, crc32c(raw[_CRC_FROM:]))
    return parse_batch(raw)


def encode_records(
    records: Sequence[tuple[int, int, bytes | None, bytes | None, Iterable[tuple[str, bytes | None]]]],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    codec: str = "none",
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """Return one batch of (offset delta, timestamp, key, value, headers) tuples.

    Args:
        last_offset_delta: where the batch ends, if not at its last record (a compacted batch).
        attributes: all bits except the codec's.
        base_timestamp: the header's, if not the first record's (a delete horizon).
        max_timestamp: the header's, if not the largest of the records.
    """
    first_timestamp = records[0][1] if records else NO_TIMESTAMP
    base = first_timestamp if base_timestamp is None else base_timestamp
    body = bytearray()
    for delta, timestamp, key, value, headers in records:
        one = bytearray(b"\x00")
        one += _varint(timestamp - base) + _varint(delta) + _nullable(key) + _nullable(value)
        pairs = list(headers)
        one += _varint(len(pairs))
        for name, header_value in pairs:
            raw_name = name.encode("utf-8", "surrogateescape")
            one += _varint(len(raw_name)) + raw_name + _nullable(header_value)
        body += _varint(len(one)) + one
    largest = max((timestamp for _, timestamp, *_ in records), default=NO_TIMESTAMP)
    ends_at = max((delta for delta, *_ in records), default=0) if last_offset_delta is None else last_offset_delta
    payload = compress(codec, bytes(body))
    raw = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        raw,
        0,
        base_offset,
        HEADER_BYTES - LOG_OVERHEAD + len(payload),
        partition_leader_epoch,
        2,
        0,
        attributes | CODECS.index(codec),
        ends_at,
        base,
        largest if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    raw += payload
    struct.pack_into(">I", raw, _CRC_AT, crc32c(raw[_CRC_FROM:]))
    return bytes(raw)


def build_batch(
    records: Sequence[Record],
    *,
    now_ms: int = 0,
    codec: str = "none",
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return the batch that a producer would send: base offset 0, no leader epoch."""
    rows = [
        (
            delta,
            now_ms if record.timestamp_ms is None else record.timestamp_ms,
            record.key,
            record.value,
            record.headers,
        )
        for delta, record in enumerate(records)
    ]
    return encode_records(
        rows,
        codec=codec,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def build_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, timestamp_ms: int, coordinator_epoch: int = 0
) -> bytes:
    """Return the control batch that ends a transaction."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return encode_records(
        [(0, timestamp_ms, key, value, ())],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def read_marker(batch: Batch) -> tuple[bool, int] | None:
    """Return (whether it aborts, coordinator epoch) of a transaction's marker, None for a batch without records."""
    records = read_records(batch)
    if not records:
        return None
    _, kind = struct.unpack_from(">hh", records[0].key or b"\x00\x00\xff\xff")
    _, coordinator_epoch = struct.unpack_from(">hi", records[0].value or bytes(6))
    return kind == 0, coordinator_epoch


def read_records(batch: Batch) -> list[StoredRecord]:
    """Return the records of a batch.

    Raises:
        BadBatch: the records do not fill the batch exactly, or cannot be decompressed.
    """
    return list(_decoded(batch))


@lru_cache(maxsize=8192)
def _decoded(batch: Batch) -> tuple[StoredRecord, ...]:
    """Decode a batch. The cache helps tests that read a log repeatedly until it is complete."""
    body = decompress(batch.codec, batch.raw[HEADER_BYTES:])
    reader = _Reader(body)
    records = []
    for _ in range(batch.count):
        length = reader.varint()
        end = reader.at + length
        if length < 0 or end > len(body):
            raise BadBatch(f"a record announces {length} bytes at {reader.at} of {len(body)}")
        reader.at += 1
        timestamp = reader.varint() + batch.base_timestamp
        delta = reader.varint()
        key = reader.nullable()
        value = reader.nullable()
        headers = tuple(
            ((reader.nullable() or b"").decode("utf-8", "surrogateescape"), reader.nullable())
            for _ in range(reader.varint())
        )
        if reader.at != end:
            raise BadBatch(f"a record ends at {reader.at}, announced was {end}")
        records.append(
            StoredRecord(
                offset=batch.base_offset + delta,
                timestamp_ms=batch.max_timestamp if batch.log_append_time else timestamp,
                key=key,
                value=value,
                headers=headers,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                sequence=-1 if batch.base_sequence < 0 else (batch.base_sequence + delta) % SEQUENCES,
                partition_leader_epoch=batch.partition_leader_epoch,
                control=batch.control,
                transactional=batch.transactional,
            )
        )
    if reader.at != len(body):
        raise BadBatch(f"{len(body) - reader.at} bytes are left behind the last of {batch.count} records")
    return tuple(records)


def reencode(
    batch: Batch,
    records: Sequence[StoredRecord],
    *,
    codec: str | None = None,
    delete_horizon_ms: int | None = None,
) -> Batch:
    """Return the batch with only these records (or another codec), as a broker rewrites it: its offset range stays."""
    attributes = batch.attributes & ~CODEC_MASK
    base_timestamp = delete_horizon_ms
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
    elif batch.delete_horizon_ms is not None:
        base_timestamp = batch.base_timestamp
    if not records:
        codec, base_timestamp = "none", NO_TIMESTAMP
        attributes &= ~DELETE_HORIZON
    rows = [
        (record.offset - batch.base_offset, record.timestamp_ms, record.key, record.value, record.headers)
        for record in records
    ]
    raw = encode_records(
        rows,
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset_delta,
        codec=batch.codec if codec is None else codec,
        attributes=attributes,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        base_timestamp=base_timestamp,
        max_timestamp=batch.max_timestamp if batch.log_append_time or not records else None,
    )
    return parse_batch(raw)


def compress(codec: str, data: bytes) -> bytes:
    match codec:
        case "none":
            return data
        case "gzip":
            return gzip.compress(data, mtime=0)
        case "snappy":
            packed = bytes(cramjam.snappy.compress_raw(data))
            return _XERIAL_MAGIC + struct.pack(">iii", 1, 1, len(packed)) + packed
        case "lz4":
            compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
            compressor.compress(data)
            return bytes(compressor.finish())
        case "zstd":
            return bytes(cramjam.zstd.compress(data))
    raise BadBatch(f"unknown codec {codec}")


def decompress(codec: str, data: bytes) -> bytes:
    """Return the decompressed data. As in Java, lz4 frames whose blocks depend on each other are refused.

    Raises:
        Undecodable: the codec is unknown, or did not write these data.
    """
    try:
        match codec:
            case "none":
                return data
            case "gzip":
                return gzip.GzipFile(fileobj=io.BytesIO(data)).read()  # gzip.decompress is quadratic
            case "snappy":
                return _read_snappy(data)
            case "lz4":
                if len(data) > _LZ4_FLAGS_AT and not data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT:
                    raise Undecodable("lz4 frame with dependent blocks, which Java does not read")
                return bytes(cramjam.lz4.decompress(data))
            case "zstd":
                return bytes(cramjam.zstd.decompress(data))
    except (OSError, EOFError, cramjam.DecompressionError, struct.error, zlib.error) as cause:
        raise Undecodable(f"not {codec}: {cause}") from cause
    raise Undecodable(f"unknown {codec}")


def _read_snappy(data: bytes) -> bytes:
    """Return decompressed snappy. Java adds xerial's frames, librdkafka does not."""
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    out = bytearray()
    at = len(_XERIAL_MAGIC) + 8
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out += cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])
        at += 4 + size
    return bytes(out)


def _varint(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else ((-value) << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


class _Reader:
    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            if self.at >= len(self.data):
                raise BadBatch(f"cut at {self.at}")
            if shift > 63:
                raise Undecodable(f"bad varint at {self.at}")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def nullable(self) -> bytes | None:
        length = self.varint()
        if length < 0:
            return None
        if self.at + length > len(self.data):
            raise BadBatch(f"{length} bytes announced at {self.at} of {len(self.data)}")
        self.at += length
        return self.data[self.at - length : self.at]
