"""The record batch, version 2: its header, its records, and the changes when a batch is passed as bytes.

::

    0  base offset i64          17  CRC-32C of all from 21 on u32   43  producer id i64
    8  length of all from 12    21  attributes i16                  51  producer epoch i16
       on i32                   23  last offset delta i32           53  base sequence i32
    12 partition leader epoch   27  base timestamp i64              57  record count i32
       i32                      35  max timestamp i64               61  records, compressed as a whole
    16 magic i8

Attributes: bits 0 to 2 codec, 3 log append time, 4 transactional, 5 control, 6 the base timestamp is a delete horizon.
Everything is big-endian; inside the records, numbers are zigzag varints. Kafka's ``DefaultRecordBatch``.

``AbortedTransactions`` has the rule of Kafka's consumer for ``read_committed``. With the batches a broker sends the
(producer id, first offset) of every aborted transaction among them. Batches of that producer from the first offset to
its abort marker must not be read.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from mm2py.errors import Mm2Error
from mm2py.records.compression import WHOLE_BUDGET, Bytes, Codec, DecodeBudget, compress
from mm2py.records.varints import CorruptBatch, read_varint, read_varlong, varint

if TYPE_CHECKING:
    from mm2py.compiled_core import Core

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
"""61: the records begin here."""
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and length: the length field does not count them, but the size that Kafka limits does."""
MAGIC_AT: Final = 16
CRC_AT: Final = 17
CRC_AGAIN_BYTES: Final = 8 << 10
"""Up to this size, computing the whole checksum again is quicker than calling the compiled core."""
CHECKED_FROM: Final = 21
"""The checksum covers everything from here on: not the base offset, the length, the leader epoch and the magic."""
ATTRIBUTES_AT: Final = 22
"""The byte of the attributes that has all bits in use."""
MAGIC: Final = 2
DELTA_AT: Final = 23
OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
LAST_OFFSET_DELTA: Final = struct.Struct(">i")

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MODULUS: Final = 1 << 31
INT64_MAX: Final = (1 << 63) - 1


class NotPassable(Mm2Error):
    """A batch that must not be passed as bytes was to be stamped: a defect in mm2py, stopped before it does harm."""

    def __init__(self, attributes: int) -> None:
        super().__init__(
            f"A batch with attributes {attributes:#x} must be rebuilt or dropped, not passed.",
            remedy="Please report this as a defect; restart the flow from its stored position.",
        )


class BatchHeader(NamedTuple):
    """The first 61 bytes of a batch. A tuple, because one is made for every batch that is read."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, as brokers compare it with ``max.message.bytes``."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Bits 0 to 2; values from 5 on are no ``Codec`` yet."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """All records then have ``max_timestamp_ms``, whatever their own timestamps are."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_control(self) -> bool:
        """The batch has a transaction marker or another control record, never a user's record."""
        return self.attributes & CONTROL != 0


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class NewRecord(NamedTuple):
    """One record to be written."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Return the header of the batch that starts at ``position``. The only check is that there are 61 bytes.

    Raises:
        CorruptBatch: the buffer ends inside the header.
    """
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise CorruptBatch(f"only {len(buffer) - position} bytes of a header are there") from error


def split(records: memoryview) -> Iterator[memoryview]:
    """Yield the complete batches of a fetched ``records`` field, oldest first, as views; a cut last one is left out.

    Batches of magic 0 and 1 have base offset and length at the same place and are yielded too.

    Raises:
        CorruptBatch: a length is too small for any batch, so that the next one cannot be found.
    """
    position, end = 0, len(records)
    while position + LOG_OVERHEAD_BYTES <= end:
        size = int.from_bytes(records[position + 8 : position + 12], "big", signed=True) + LOG_OVERHEAD_BYTES
        if size <= MAGIC_AT:
            raise CorruptBatch(f"its length field says {size - LOG_OVERHEAD_BYTES}")
        if position + size > end:
            return
        yield records[position : position + size]
        position += size


def crc_is_right(batch: Bytes) -> bool:
    """Return whether the batch's checksum is right. ``batch`` is exactly one batch of magic 2."""
    view = memoryview(batch)
    return int(crc32c(view[CHECKED_FROM:])) == int.from_bytes(view[CRC_AT:CHECKED_FROM], "big")


def next_sequence(base_sequence: int, record_count: int) -> int:
    """Return the sequence that follows a batch: sequences wrap to 0 after 2^31 - 1.

    Source: DefaultRecordBatch.incrementSequence.
    """
    return (base_sequence + record_count) % SEQUENCE_MODULUS


_pack_i64 = struct.Struct(">q").pack_into
_pack_i32 = struct.Struct(">i").pack_into
_pack_u32 = struct.Struct(">I").pack_into
_unpack_u32 = struct.Struct(">I").unpack_from
_pack_producer = struct.Struct(">qhi").pack_into


def stamp(
    batch: memoryview | bytearray,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool = False,
    core: Core | None = None,
) -> None:
    """Make ``batch`` ours, in place: base offset 0, no leader epoch, our producer fields, only the codec's attributes.

    The transactional and the delete horizon bit are removed: the first would need a transaction, the second lets the
    target's cleaner remove tombstones at the source's time (docs/broker-facts.md#h6). The base timestamp stays, because
    timestamps in the records are relative to it. Stamping again, for a resend under another sequence, is allowed.

    Args:
        batch: exactly one batch of magic 2, writable. Its checksum has been verified.
        base_sequence: sequence of the first record, 0 to 2^31 - 1; or -1 together with producer id and epoch -1.
        transactional: whether it becomes part of the producer's transaction.
        core: computes the new checksum of a large batch from the old one; None: it is computed from all bytes.
    Raises:
        NotPassable: it is a control batch, or its timestamps are log append times. Brokers would accept the latter, but
            show other timestamps than the source does.
    """
    if batch[22] & (LOG_APPEND_TIME | CONTROL):
        raise NotPassable(batch[22])
    is_large = core is not None and len(batch) > CRC_AGAIN_BYTES
    before = bytes(batch[CHECKED_FROM:HEADER_BYTES]) if is_large else b""
    _pack_i64(batch, 0, 0)
    _pack_i32(batch, 12, -1)
    batch[21] = 0
    batch[22] &= CODEC_MASK
    if transactional:
        batch[22] |= TRANSACTIONAL
    _pack_producer(batch, 43, producer_id, producer_epoch, base_sequence)
    if core is not None and is_large:
        unchanged = len(batch) - HEADER_BYTES
        after = bytes(batch[CHECKED_FROM:HEADER_BYTES])
        checksum = core.changed_checksum(_unpack_u32(batch, CRC_AT)[0], before, after, unchanged)
    else:
        checksum = crc32c(memoryview(batch)[CHECKED_FROM:])
    _pack_u32(batch, CRC_AT, checksum)


def place(batch: bytearray, base_offset: int, next_offset: int) -> None:
    """Give a batch offsets of a log, in place: from ``base_offset`` up to, but without, ``next_offset``.

    The range may be larger than the records need, as in batches from which the cleaner has removed some or all records.
    """
    _pack_i64(batch, 0, base_offset)
    _pack_i32(batch, DELTA_AT, next_offset - base_offset - 1)
    _pack_u32(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))


def assemble(body: Bytes, *, codec: int, record_count: int, base_timestamp_ms: int, max_timestamp_ms: int) -> bytearray:
    """Return a batch around encoded records whose offset deltas are 0 to ``record_count - 1``.

    It starts at offset 0, has create time and no producer: it is valid, and ready for ``stamp``.

    Raises:
        UnknownCodec: ``codec`` is 5 or more.
    """
    compressed = compress(codec, body)
    batch = bytearray(HEADER_BYTES)
    batch += compressed
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD_BYTES,
        -1,
        MAGIC,
        0,
        codec,
        record_count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        record_count,
    )
    _pack_u32(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def build_batch(
    records: Sequence[NewRecord], *, codec: int = Codec.NONE, deltas: Sequence[int] | None = None
) -> bytearray:
    """Return a batch of our own small records, ready to be sent or stamped.

    Args:
        records: at least one. Header keys are written as UTF-8.
        deltas: their offset deltas; None: 0, 1, 2... After other deltas ``place`` must be called.
    Raises:
        ValueError: there are no records; brokers refuse a batch without any.
    """
    if not records:
        raise ValueError("A batch needs at least one record.")
    base_timestamp_ms = records[0].timestamp_ms
    body = bytearray()
    for index, record in enumerate(records):
        content = bytearray(1)  # attributes of a record: none are defined
        content += varint(record.timestamp_ms - base_timestamp_ms)
        content += varint(index if deltas is None else deltas[index])
        content += _sized(record.key)
        content += _sized(record.value)
        content += varint(len(record.headers))
        for key, value in record.headers:
            content += _sized(key.encode("utf-8", "surrogateescape"))
            content += _sized(value)
        body += varint(len(content))
        body += content
    return assemble(
        body,
        codec=codec,
        record_count=len(records),
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
    )


def decoded(header: BatchHeader, batch: Bytes, budget: DecodeBudget = WHOLE_BUDGET) -> bytes | bytearray:
    """Return the records of exactly one batch, decompressed.

    Raises:
        BatchOverBudget, UnknownCodec, CompressedDataCorrupt: as ``DecodeBudget.decompress`` does.
    """
    return budget.decompress(header.codec, memoryview(batch)[HEADER_BYTES:], records=header.record_count)


def read_records(batch: Bytes, budget: DecodeBudget = WHOLE_BUDGET) -> list[Record]:
    """Return the records of exactly one batch of magic 2: see ``each_record``. A record takes about 400 bytes."""
    return list(each_record(batch, budget))


def each_record(batch: Bytes, budget: DecodeBudget = WHOLE_BUDGET) -> Iterator[Record]:
    """Return the records of exactly one batch of magic 2, also control records (``BatchHeader.is_control``).

    The call decompresses the batch. The iterator makes each record when it is asked for, so one at a time is in memory.
    Header keys that are not UTF-8 are returned with surrogate escapes, so that ``build_batch`` writes the same bytes.

    Raises:
        CorruptBatch: checksum or header are wrong; or the records, which the iterator finds.
        BatchOverBudget, UnknownCodec, CompressedDataCorrupt: as ``DecodeBudget.decompress`` does.
    """
    header = read_sound_header(batch)
    return records_in(header, decoded(header, batch, budget), budget)


def read_sound_header(batch: Bytes) -> BatchHeader:
    """Return the header of exactly one batch of magic 2.

    Raises:
        CorruptBatch: checksum or header are wrong.
    """
    header = read_header(batch)
    if header.magic != MAGIC or header.size_bytes != len(batch) or not crc_is_right(batch):
        raise CorruptBatch("magic, length or checksum is wrong")
    return header


def records_in(header: BatchHeader, data: bytes | bytearray, budget: DecodeBudget = WHOLE_BUDGET) -> Iterator[Record]:
    """Yield the records of a batch from its ``decoded`` content.

    Raises:
        CorruptBatch: the records are wrong.
        BatchOverBudget: they have too many headers. An empty header takes two bytes, and compressed almost none.
    """
    body, position, headers_left = bytes(data), 0, budget.headers
    try:
        for _ in range(header.record_count):
            size, position = read_varint(body, position)
            end = position + size
            timestamp_delta, position = read_varlong(body, position + 1)
            offset_delta, position = read_varint(body, position)
            key, position = _read_sized(body, position)
            value, position = _read_sized(body, position)
            header_count, position = read_varint(body, position)
            if header_count < 0:
                raise CorruptBatch(f"a record has {header_count} headers")
            headers_left -= header_count
            if headers_left < 0:
                raise budget.too_many_headers()
            headers: list[tuple[str, bytes | None]] = []
            for _ in range(header_count):
                header_key, position = _read_sized(body, position)
                header_value, position = _read_sized(body, position)
                if header_key is None:
                    raise CorruptBatch("a header has no key")
                headers.append((header_key.decode("utf-8", "surrogateescape"), header_value))
            if position != end:
                raise CorruptBatch("a record is longer or shorter than it says")
            timestamp_ms = (
                header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms + timestamp_delta
            )
            yield Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers)
    except IndexError as error:
        raise CorruptBatch("its records end too early") from error
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes follow its last record")


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else varint(len(data)) + data


def _read_sized(body: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(body, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(body):
        raise CorruptBatch("its records end too early")
    return body[position:end], end


_MARKER_BUDGET: Final = DecodeBudget(input_bytes=64 << 10, output_bytes=64 << 10, headers=100)
ABORT = 0
"""Type of the control record that ends an aborted transaction; 1 is a commit, others (leader changes, ...) end none."""


class AbortedTransactions:
    """The aborted transactions of one fetch reply. Call ``covers`` for every transactional batch and ``pass_marker``
    for every control batch once, in the order of the log."""

    __slots__ = ("_ahead", "_open")

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        """``aborted``: (producer id, first offset) of each aborted transaction, in any order."""
        self._ahead = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapq.heapify(self._ahead)
        self._open: set[int] = set()

    def covers(self, last_offset: int, producer_id: int) -> bool:
        """Return whether a transactional batch of data belongs to an aborted transaction.

        Source: CompletedFetch.consumeAbortedTransactionsUpTo and isBatchAborted, Apache Kafka clients.
        """
        self._advance(last_offset)
        return producer_id in self._open

    def pass_marker(self, last_offset: int, producer_id: int, batch: memoryview) -> None:
        """Note a control batch: an abort marker closes its producer's transaction.

        Raises:
            CorruptBatch: the marker cannot be read, and a transaction of its producer is open.
            BatchOverBudget, UnknownCodec, CompressedDataCorrupt: likewise.
        """
        self._advance(last_offset)
        if producer_id in self._open and control_type(batch) == ABORT:
            self._open.discard(producer_id)

    def _advance(self, last_offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= last_offset:
            self._open.add(heapq.heappop(self._ahead)[1])


def control_type(batch: memoryview) -> int | None:
    """Return the type of a control batch: 0 abort, 1 commit, others as Kafka adds them; None if it has no records.

    Raises:
        CorruptBatch: its first record's key is not a control record's.
        BatchOverBudget, UnknownCodec, CompressedDataCorrupt: its record cannot be decompressed.
    """
    first = next(each_record(batch, _MARKER_BUDGET), None)
    if first is None:
        return None
    key = first.key
    if key is None or len(key) < 4 or key[0] & 0x80:
        raise CorruptBatch("a control record has no version and type in its key")
    return int.from_bytes(key[2:4], "big", signed=True)
