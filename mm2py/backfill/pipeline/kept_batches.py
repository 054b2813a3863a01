"""Makes record batches of rows that Spark has kept, at their source offsets. Pure but for Arrow.

The batches of a partition cover its range without a break. Records that were left out are holes, as in a compacted
log: offsets that are missing within a batch or before it, and batches without records at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from mm2py.backfill.frames.rows import BATCH_BYTES, batch_of, contents_of, size_of
from mm2py.errors import Mm2Error
from mm2py.records.batch import NO_TIMESTAMP, NewRecord, assemble, place
from mm2py.records.compression import Codec

LENGTH_MOST: Final = (1 << 31) - 1
"""A batch covers this many offsets at most."""


class OutOfOrder(Mm2Error):
    """Rows did not come in the order of their offsets, or are of another partition."""

    def __init__(self, what: str) -> None:
        super().__init__(what, remedy="This is a fault of mm2py or of Spark: abandon the backfill, and report it.")


class KeptBatch(NamedTuple):
    """A batch, and the offsets that it covers."""

    base_offset: int
    next_offset: int
    data: bytearray


def batches_of_rows(rows: pa.RecordBatch, topic: str, partition: int, behind: int) -> Iterator[KeptBatch]:
    """Yield the records of rows as batches.

    Args:
        rows: with topic, partition, offset, timestamp, key, value and headers.
        topic: all rows must be of this topic and ``partition``.
        behind: the offset after the last row before these; -1: these are the first rows.
    Raises:
        OutOfOrder: rows are not of this partition, or their offsets do not grow.
        BadRow: a header has no key.
    """
    if not len(rows):
        return
    places = {*zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)}
    if places != {(topic, partition)}:
        raise OutOfOrder(f"Rows of {places} came to the task of {topic}-{partition}.")
    part: list[NewRecord] = []
    offsets: list[int] = []
    size = 0
    for offset, record in zip(rows["offset"].to_pylist(), contents_of(rows, now_ms=NO_TIMESTAMP), strict=True):
        if offset < behind:
            raise OutOfOrder(f"Offset {offset} of {topic}-{partition} came behind offset {behind - 1}.")
        behind = offset + 1
        own = size_of(record)
        if part and (size + own > BATCH_BYTES or offset - offsets[0] >= LENGTH_MOST):
            yield _batch(part, offsets)
            part, offsets, size = [], [], 0
        part.append(record)
        offsets.append(offset)
        size += own
    yield _batch(part, offsets)


def empty_batches(start: int, end: int) -> Iterator[KeptBatch]:
    """Yield batches without records that cover a range of offsets."""
    while start < end:
        stop = min(end, start + LENGTH_MOST)
        data = assemble(b"", codec=Codec.NONE, record_count=0, base_timestamp_ms=0, max_timestamp_ms=NO_TIMESTAMP)
        place(data, start, stop)
        yield KeptBatch(start, stop, data)
        start = stop


def _batch(records: list[NewRecord], offsets: list[int]) -> KeptBatch:
    base, end = offsets[0], offsets[-1] + 1
    data = batch_of(records, Codec.NONE, [offset - base for offset in offsets])
    place(data, base, end)
    return KeptBatch(base, end, data)
