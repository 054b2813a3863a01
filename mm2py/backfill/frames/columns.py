"""Makes Arrow columns of batches: aiokafka's compiled reader decodes records, then each column is filled.

Timestamps are microseconds in UTC, as in Spark; a record without a timestamp gets null. Header keys that are not UTF-8
keep their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch

from mm2py.backfill.frames.options import ClusterSide, OffsetColumns
from mm2py.backfill.frames.pairing import RangePairing
from mm2py.backfill.frames.range_reader import DataBatch, UnreadableBatch
from mm2py.backfill.frames.ranges import LogRange
from mm2py.copying.planning.record_merge import NOT_TAKEN_APART
from mm2py.errors import Mm2Error
from mm2py.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    decoded,
    read_records,
)
from mm2py.records.compression import Codec
from mm2py.records.record_formats import CorruptMessage, read_message, unwrap

CHUNK_BYTES: Final = 8 << 20
"""A chunk of columns has about this many bytes of records, and one batch more at most."""
RECORD_COLUMNS: Final = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
"""The columns of Spark's own connector. ``timestampType``: 0 create time, 1 log append time."""
_PAIR_COLUMNS: Final = ", source_offset BIGINT, target_offset BIGINT"
BATCH_COLUMNS: Final = (
    "topic STRING, partition INT, base_offset BIGINT, next_offset BIGINT, record_count INT, codec STRING, batch BINARY"
)


_CODECS: Final = {int(codec): codec.name.lower() for codec in Codec}
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_UTC_US: Final = pa.timestamp("us", tz="UTC")
_RECORD_FIELDS: Final = (
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", _UTC_US),
    ("timestampType", pa.int32()),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", _HEADERS),
)
RECORD_SCHEMA: Final = pa.schema(_RECORD_FIELDS)
_PAIR_FIELDS: Final = (pa.field("source_offset", pa.int64()), pa.field("target_offset", pa.int64()))
_BATCH_TYPES: Final = (pa.int64(), pa.int64(), pa.int32(), pa.string(), pa.binary())
BATCH_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *zip(("base_offset", "next_offset", "record_count", "codec", "batch"), _BATCH_TYPES, strict=True),
    ]
)


class Layout(NamedTuple):
    """The columns of a DataFrame."""

    ddl: str
    """As Spark writes a schema."""
    schema: pa.Schema
    """The same for Arrow: Spark checks each batch against it."""


def layout_of(*, batches: bool, offsets: OffsetColumns) -> Layout:
    """Return the columns that a reader with these options has."""
    own = Layout(BATCH_COLUMNS, BATCH_SCHEMA) if batches else Layout(RECORD_COLUMNS, RECORD_SCHEMA)
    return Layout(own.ddl + _PAIR_COLUMNS, _paired(own.schema)) if offsets is OffsetColumns.BOTH else own


def _paired(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *_PAIR_FIELDS])


def _pair(pairing: RangePairing, offsets: Sequence[int]) -> list[pa.Array]:
    """Return the columns ``source_offset`` and ``target_offset`` for offsets of the pairing's side."""
    own, others = pa.array(offsets, pa.int64()), pa.array(pairing.others(offsets), pa.int64())
    return [own, others] if pairing.side is ClusterSide.SOURCE else [others, own]


RECORD_MEMORY_BYTES: Final = 64
"""A record counts for at least this size in a chunk, however small it is."""


class RecordChunk:
    """Collects records of one range, and makes columns of them."""

    def __init__(self, wanted: LogRange, pairing: RangePairing | None = None) -> None:
        """Args: ``pairing`` has the offsets of the other side; None: their columns are not wanted."""
        self._range = wanted
        self._pairing = pairing
        self._clear()

    def _clear(self) -> None:
        self.size_bytes = 0
        """Of the records, decompressed."""
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._types: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Sequence[tuple[str, bytes | None]]] = []

    def add(self, batch: DataBatch) -> None:
        """Add the records of a batch that are in the range.

        Raises:
            UnreadableBatch: its records cannot be decoded.
        """
        header = batch.header
        try:
            records, plain_bytes = _old_records(batch.data) if header is None else _records(header, batch.data)
        except (Mm2Error, CorruptMessage, CorruptRecordException) as error:
            at = int.from_bytes(batch.data[:8], "big") if header is None else header.base_offset
            raise UnreadableBatch(
                f"{self._range.topic}-{self._range.partition} cannot be decoded at offset {at}: {error}",
                remedy="Look at the batch with kafka-dump-log.sh; endingOffsets and startingOffsets go around it.",
            ) from error
        start, end = self._range.start, self._range.end
        if records and (records[0].offset < start or records[-1].offset >= end):
            records = [record for record in records if start <= record.offset < end]
        self._offsets += [record.offset for record in records]
        self._timestamps += [record.timestamp for record in records]
        self._types += [record.timestamp_type for record in records]
        self._keys += [record.key for record in records]
        self._values += [record.value for record in records]
        self._headers += [record.headers for record in records]
        self.size_bytes += max(plain_bytes, RECORD_MEMORY_BYTES * len(records))

    def take(self) -> pa.RecordBatch | None:
        """Return the columns of the records that were added since the last call; None if there are none."""
        count = len(self._offsets)
        if not count:
            return None
        columns = [
            pa.repeat(pa.scalar(self._range.topic, pa.string()), count),
            pa.repeat(pa.scalar(self._range.partition, pa.int32()), count),
            pa.array(self._offsets, pa.int64()),
            _timestamps(self._timestamps),
            pa.array(self._types, pa.int32()),
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            _headers(self._headers),
        ]
        schema = RECORD_SCHEMA
        if self._pairing is not None:
            columns += _pair(self._pairing, self._offsets)
            schema = _paired(schema)
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class BatchChunk:
    """Collects raw batches that begin in one range, and makes columns of them."""

    def __init__(self, wanted: LogRange, pairing: RangePairing | None = None) -> None:
        """Args: ``pairing`` has the offset of a batch's first record on the other side; None: it is not wanted."""
        self._range = wanted
        self._pairing = pairing
        self.size_bytes = 0
        self._rows: list[tuple[int, int, int, str, bytes]] = []

    def add(self, batch: DataBatch) -> None:
        """Add a batch. Raises: UnreadableBatch, it is a message of an old format, which is no batch."""
        header = batch.header
        if header is None:
            raise UnreadableBatch(
                f"{self._range.topic}-{self._range.partition} holds messages of a format before Kafka 0.11.",
                remedy="Read records instead of batches.",
            )
        if self._range.start <= header.base_offset < self._range.end:
            codec = _CODECS.get(header.codec, str(header.codec))
            row = (header.base_offset, header.next_offset, header.record_count, codec, bytes(batch.data))
            self._rows.append(row)
            self.size_bytes += len(batch.data)

    def take(self) -> pa.RecordBatch | None:
        """See ``RecordChunk.take``."""
        if not self._rows:
            return None
        rows, self._rows, self.size_bytes = self._rows, [], 0
        columns = [
            pa.repeat(pa.scalar(self._range.topic, pa.string()), len(rows)),
            pa.repeat(pa.scalar(self._range.partition, pa.int32()), len(rows)),
            *(pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), _BATCH_TYPES, strict=True)),
        ]
        if self._pairing is None:
            return pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA)
        columns += _pair(self._pairing, [row[0] for row in rows])
        return pa.RecordBatch.from_arrays(columns, schema=_paired(BATCH_SCHEMA))


class _Decoded(NamedTuple):
    """A record with the same attributes as aiokafka's records."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def _records(header: BatchHeader, batch: memoryview) -> tuple[Sequence[Any], int]:
    """Return the records of a batch, and their size in bytes."""
    plain = batch
    if header.codec != Codec.NONE:
        data = decoded(header, batch)
        joined = bytearray(batch[:HEADER_BYTES])
        joined[ATTRIBUTES_AT] &= ~CODEC_MASK
        joined += data
        plain = memoryview(joined)
    try:
        return [*DefaultRecordBatch(plain)], len(plain)
    except NOT_TAKEN_APART:
        kind = int(header.is_log_append_time)
        found = [_Decoded(one.offset, one.timestamp_ms, kind, *one[2:]) for one in read_records(batch)]
        return found, len(plain)


def _old_records(data: memoryview) -> tuple[Sequence[_Decoded], int]:
    """Return the records of a message of magic 0 or 1, which may hold others."""
    message, _ = read_message(data, 0, len(data))
    inner = [message] if message.codec == Codec.NONE else [*unwrap(message)]
    kind = int(message.log_append_time)
    found = [_Decoded(one.offset, one.timestamp_ms, kind, one.key, one.value) for one in inner]
    return found, sum(len(one.key or b"") + len(one.value or b"") for one in found)


def _timestamps(values_ms: list[int]) -> pa.Array:
    array = pa.array(values_ms, pa.int64())
    if NO_TIMESTAMP in values_ms:
        array = pc.if_else(pc.equal(array, NO_TIMESTAMP), pa.scalar(None, pa.int64()), array)
    return array.cast(pa.timestamp("ms", tz="UTC")).cast(_UTC_US)


def _headers(of_records: list[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    edges, keys, values = [0], [], []
    for headers in of_records:
        for key, value in headers:
            keys.append(key.encode("utf-8", "surrogateescape"))
            values.append(value)
        edges.append(len(keys))
    texts = pa.array(keys, pa.binary()).view(pa.string())  # not checked: the keys stay as the producer sent them
    structs = pa.StructArray.from_arrays([texts, pa.array(values, pa.binary())], fields=[*_HEADER])
    return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), structs, type=_HEADERS)
