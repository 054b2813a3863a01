"""Merges several batches into one, record by record, where the compiled core does not do it. Pure.

The compiled classes of aiokafka take about a microsecond a record. Importing them imports all of aiokafka, which takes
a while. So a worker imports this module only when there is something to merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from mm2py.copying.planning.steps import GROWTH_BYTES, Merged, decompressed, most_merged_bytes
from mm2py.records.batch import HEADER_BYTES, MAGIC
from mm2py.records.compression import Codec, CompressedDataCorrupt, DecompressionBomb

NOT_TAKEN_APART: Final = (CorruptRecordException, CompressedDataCorrupt, UnicodeError, OverflowError, MemoryError)
"""What reading a batch with aiokafka raises. The last two come if a length in a record is near 2^63: the reader adds to
the length, which wraps around, and asks for this many bytes."""


def merge_records(batches: Sequence[memoryview | bytearray], codec: int, *, max_bytes: int) -> Merged:
    """Make one plain batch; see ``merge.merge``."""
    builder = DefaultRecordBatchBuilder(MAGIC, 0, 0, -1, -1, -1, 2**31 - 1)
    append = builder.append
    room = max_bytes - HEADER_BYTES
    index = batch_count = 0
    is_compressed = codec != Codec.NONE
    plain: memoryview | bytearray
    try:
        for plain in batches:
            if is_compressed:
                plain = decompressed(plain, codec, room)  # noqa: PLW2901
                room -= len(plain) - HEADER_BYTES
            records = [*DefaultRecordBatch(plain)]  # all of them, before the first of them is written
            if is_compressed:
                room -= GROWTH_BYTES * len(records)
            if not index and records[0].timestamp < 0:
                break
            for record in records:
                append(index, record.timestamp, record.key, record.value, record.headers)
                index += 1
            batch_count += 1
    except (DecompressionBomb, CompressedDataCorrupt):
        room -= most_merged_bytes(plain, room)
    except NOT_TAKEN_APART:
        pass
    taken_apart = islice(batches, batch_count + 1)
    plain_bytes = max_bytes - room if is_compressed else sum(map(len, taken_apart))
    if batch_count < 2:
        return Merged(None, 0, plain_bytes)
    built = builder.build()
    data = built if isinstance(built, bytearray) else bytearray(built)
    return Merged(data, batch_count, plain_bytes)
