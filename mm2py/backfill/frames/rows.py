"""Makes records of Arrow columns, by partition and in order. Rows that cannot be records are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mm2py.errors import Mm2Error
from mm2py.records.batch import (
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    NewRecord,
    assemble,
    build_batch,
    read_header,
)
from mm2py.records.compression import Codec

BATCH_BYTES: Final = 500_000
"""The largest size of a batch of several records: below what brokers accept by default, also without compression."""
RECORD_BYTES: Final = 40
"""The bytes that are counted for the numbers of a record (lengths, timestamp, offset)."""
Headers = list[tuple[str, bytes | None]]


class BadRow(Mm2Error):
    """A row cannot be a record."""


def records_of(batch: pa.RecordBatch, *, now_ms: int) -> dict[int, list[NewRecord]]:
    """Return the records of each partition, in the order of the rows.

    A record whose timestamp is null has no timestamp. Without the column all records have ``now_ms``.

    Raises:
        BadRow: a row has no partition, or a header no key.
    """
    partitions = batch["partition"]
    if partitions.null_count:
        raise BadRow(
            f"{partitions.null_count} of {len(batch)} rows have no partition.",
            remedy="Give each row a partition; mm2py chooses none.",
        )
    found: dict[int, list[NewRecord]] = {}
    for partition, record in zip(partitions.to_pylist(), contents_of(batch, now_ms=now_ms), strict=True):
        found.setdefault(partition, []).append(record)
    return found


def contents_of(batch: pa.RecordBatch, *, now_ms: int) -> Iterator[NewRecord]:
    """Yield a record for each row. ``now_ms`` and errors: see ``records_of``."""
    names, count = batch.schema.names, len(batch)
    values = _bytes(batch["value"])
    keys = _bytes(batch["key"]) if "key" in names else [None] * count
    timestamps = _timestamps(batch["timestamp"]) if "timestamp" in names else [now_ms] * count
    headers = _headers(batch["headers"]) if "headers" in names else [list[tuple[str, bytes | None]]()] * count
    return map(NewRecord, keys, values, timestamps, headers)


def _bytes(column: pa.Array) -> list[bytes | None]:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _timestamps(column: pa.Array) -> list[int]:
    return [NO_TIMESTAMP if us is None else us // 1000 for us in column.cast(pa.int64()).to_pylist()]


def _headers(column: pa.Array) -> list[Headers]:
    structs = column.flatten()
    keys, values = (_bytes(part) for part in (structs.field("key"), structs.field("value")))
    if structs.null_count or None in keys:
        raise BadRow("A header has no key.", remedy="Leave such headers out; a header's value may be null.")
    texts = [(key or b"").decode("utf-8", "surrogateescape") for key in keys]
    pairs = [*zip(texts, values, strict=True)]
    found: list[Headers] = []
    at = 0
    for size in column.value_lengths().to_pylist():
        found.append(pairs[at : at + (size or 0)])
        at += size or 0
    return found


def batches_of(records: list[NewRecord], codec: int) -> list[tuple[bytearray, int]]:
    """Return batches of these records, not yet stamped, each with its number of records."""
    found: list[tuple[bytearray, int]] = []
    part: list[NewRecord] = []
    size = 0
    for record in records:
        own = size_of(record)
        if part and size + own > BATCH_BYTES:
            found.append((batch_of(part, codec), len(part)))
            part, size = [], 0
        part.append(record)
        size += own
    if part:
        found.append((batch_of(part, codec), len(part)))
    return found


def size_of(record: NewRecord) -> int:
    """Return about how many bytes a record takes in a batch."""
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(RECORD_BYTES + len(key) + len(value or b"") for key, value in record.headers)


def batch_of(records: list[NewRecord], codec: int, deltas: Sequence[int] | None = None) -> bytearray:
    """Return one batch, built by aiokafka's compiled builder where that loses nothing.

    Args:
        deltas: see ``build_batch``.
    """
    if min(record.timestamp_ms for record in records) < 0:  # aiokafka's builder would treat it as no timestamp
        return build_batch(records, codec=codec, deltas=deltas)
    builder: Any = DefaultRecordBatchBuilder(MAGIC, 0, 0, -1, -1, -1, 2**31 - 1)
    try:
        for delta, record in zip(range(len(records)) if deltas is None else deltas, records, strict=True):
            builder.append(delta, record.timestamp_ms, record.key, record.value, record.headers)
    except UnicodeEncodeError:  # in a header's key
        return build_batch(records, codec=codec, deltas=deltas)
    plain = builder.build()
    if codec == Codec.NONE:
        return plain if isinstance(plain, bytearray) else bytearray(plain)
    header = read_header(plain)
    return assemble(
        memoryview(plain)[HEADER_BYTES:],
        codec=codec,
        record_count=len(records),
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
    )
