"""Batches as Arrow columns, without a broker and without Spark's JVM."""

import struct
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="Run `make venv-spark`.")

from mm2py.backfill.frames.columns import BatchChunk, RecordChunk
from mm2py.backfill.frames.range_reader import DataBatch, UnreadableBatch
from mm2py.backfill.frames.ranges import LogRange
from mm2py.records.batch import HEADER_BYTES, NewRecord, build_batch, read_header
from mm2py.records.compression import Codec

ALL = LogRange("t", None, 3, 0, 1 << 40)


def stored(records: Sequence[NewRecord], *, base_offset: int = 0, codec: int = Codec.NONE) -> DataBatch:
    batch = build_batch(records, codec=codec)
    batch[:8] = base_offset.to_bytes(8, "big")
    return DataBatch(read_header(batch), memoryview(batch))


def rows(*batches: DataBatch, wanted: LogRange = ALL) -> list[dict[str, Any]]:
    chunk = RecordChunk(wanted)
    for batch in batches:
        chunk.add(batch)
    columns = chunk.take()
    assert chunk.take() is None
    return [] if columns is None else columns.to_pylist()


@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_keeps_all_that_it_has(codec: Codec) -> None:
    headers = [("a", b"1"), ("a", None), ("", b"")]
    batch = stored([NewRecord(b"k", b"v", 1_700_000_000_123, headers), NewRecord(None, None, -1)], codec=codec)
    first, second = rows(batch)
    assert (first["topic"], first["partition"], first["offset"], first["timestampType"]) == ("t", 3, 0, 0)
    assert first["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert (first["key"], first["value"]) == (b"k", b"v")
    assert [(one["key"], one["value"]) for one in first["headers"]] == headers
    assert (second["key"], second["value"], second["timestamp"], second["headers"]) == (None, None, None, [])


def test_header_keys_that_are_no_text_keep_their_bytes() -> None:
    import pyarrow as pa

    chunk = RecordChunk(ALL)
    chunk.add(stored([NewRecord(None, b"v", 5, [(b"\xff\xfe".decode("utf-8", "surrogateescape"), b"x")])]))
    columns = chunk.take()
    assert columns is not None
    assert columns["headers"].values.field("key").view(pa.binary()).to_pylist() == [b"\xff\xfe"]


def test_only_records_of_the_range_are_taken() -> None:
    batch = stored([NewRecord(None, b"%d" % number, 5) for number in range(10)], base_offset=100)
    wanted = LogRange("t", None, 3, 104, 106)
    assert [row["offset"] for row in rows(batch, wanted=wanted)] == [104, 105]


def test_a_message_of_an_old_format_is_a_record_too() -> None:
    content = struct.pack(">bbq", 1, 0, 1_700_000_000_000) + struct.pack(">i", -1) + struct.pack(">i", 1) + b"v"
    entry = struct.pack(">qi", 7, len(content) + 4) + struct.pack(">I", zlib.crc32(content)) + content
    (row,) = rows(DataBatch(None, memoryview(entry)))
    assert (row["offset"], row["key"], row["value"], row["headers"]) == (7, None, b"v", [])


def test_a_batch_that_cannot_be_decoded_is_named() -> None:
    batch = stored([NewRecord(None, b"v" * 1000, 5)], base_offset=42, codec=Codec.ZSTD)
    damaged = bytearray(batch.data)
    damaged[HEADER_BYTES + 8] ^= 0xFF
    with pytest.raises(UnreadableBatch, match="t-3 cannot be decoded at offset 42"):
        rows(DataBatch(batch.header, memoryview(damaged)))


def test_raw_batches_belong_to_the_range_in_which_they_begin() -> None:
    chunk = BatchChunk(LogRange("t", None, 3, 5, 20))
    for base in (0, 10, 20):
        chunk.add(stored([NewRecord(None, b"v", 5)] * 10, base_offset=base, codec=Codec.LZ4))
    (row,) = chunk.take().to_pylist()
    assert (row["base_offset"], row["next_offset"], row["record_count"], row["codec"]) == (10, 20, 10, "lz4")
    assert read_header(row["batch"]).base_offset == 10
