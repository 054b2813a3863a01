"""Repacking: several small batches of a partition become one large batch. Pure.

Answers to the batching of MM2's producer. Small batches cost a broker nearly as much each as large ones, and us as
well. Where a read brings several of them at once, they are made one; none waits for others to come. Whether a batch is
small enough for that depends on ``copy.mode``, on its codec, its number of records, and on whether the target keeps up.

Keys, values, headers and timestamps stay as they are; offsets follow from the order. The compiled classes of aiokafka
do the work, at about a microsecond a record.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from mm2py.records.batch import HEADER_BYTES, MAGIC, assemble, read_header
from mm2py.records.compression import (
    Codec,
    CompressedDataCorrupt,
    DecompressionBomb,
    decompress,
)
from mm2py.topics.selection import CopyMode

MERGED_MAX_BYTES: Final = 900_000
"""A merged batch is no larger, so that it fits into the ``max.message.bytes`` that brokers have by default."""
MERGED_PLAIN_MAX_BYTES: Final = 8 << 20
"""Nor does a compressed one hold more than this: consumers decompress it as a whole, as we have to."""
GROWTH_BYTES: Final = 14
"""By how much a record's encoding may grow at most: three varints, of its length, timestamp and offset delta."""
SMALL_BYTES: Final = 4 << 10
"""Uncompressed batches up to this size are merged whenever several come at once: it saves more than it costs."""
MIDDLE_BYTES: Final = 64 << 10
"""Uncompressed batches up to this size are merged when more of them come at once than may be under way."""
TINY_COMPRESSED_BYTES: Final = 1 << 10
"""Compressed batches up to this size are merged: larger ones would cost more in decompressing than they save."""
SMALL_RECORDS: Final = 40
"""Batches of more records are not small: merging costs 0.3 us a record, passing 22 us a batch."""
MIDDLE_RECORDS: Final = 400
"""The same where the target is what limits us: a batch costs its broker some 100 us."""
BACKLOG_BATCHES: Final = 5
"""As many batches of a partition may be under way; more than that in one read is a backlog behind the target."""


class MergeRule(NamedTuple):
    """Up to which size batches of one partition are merged just now, in bytes; 0 merges none."""

    plain_max_bytes: int
    compressed_max_bytes: int
    why: str
    """For status: a few words."""
    records_max: int = 2**31 - 1
    """Batches of more records are not merged."""


PASS_ALL: Final = MergeRule(0, 0, "pass, as copy.mode or its list says")
PASS_REFUSED: Final = MergeRule(0, 0, "pass: the target refused a batch made of several, each is sent by itself")
MERGE_ALL: Final = MergeRule(
    MERGED_MAX_BYTES // 2, MERGED_MAX_BYTES // 2, "repack all that can be passed, as copy.mode or its list says"
)
MERGE_SMALL: Final = MergeRule(
    SMALL_BYTES,
    TINY_COMPRESSED_BYTES,
    "auto: plain batches up to 4 KB, compressed ones up to 1 KB, of up to 40 records, are repacked",
    SMALL_RECORDS,
)


def merge_rule(mode: CopyMode, *, read_bytes: int, target_is_behind: bool) -> MergeRule:
    """Return up to which size batches are merged in what a read brought of a partition.

    Args:
        read_bytes: size of what the read brought.
        target_is_behind: as much is under way to the target as may be, or batches wait for that.
    """
    match mode:
        case CopyMode.PASS:
            return PASS_ALL
        case CopyMode.REPACK:
            return MERGE_ALL
        case CopyMode.AUTO:
            middle = MIDDLE_BYTES if target_is_behind else min(MIDDLE_BYTES, read_bytes // BACKLOG_BATCHES)
            if middle <= SMALL_BYTES:
                return MERGE_SMALL
            return MergeRule(
                middle,
                TINY_COMPRESSED_BYTES,
                "auto: more batches wait than may be under way, plain ones up to 64 KB are repacked",
                MIDDLE_RECORDS,
            )


class Merged(NamedTuple):
    """Several batches made one, or the attempt."""

    data: bytearray | None
    """The batch, not yet stamped; None if the first two batches cannot be made one."""
    batch_count: int
    """How many of the batches are in it."""
    plain_bytes: int
    """How much was decoded for it."""


def merge(batches: Sequence[memoryview | bytearray], codec: int, *, as_codec: int, max_bytes: int) -> Merged:
    """Make one batch of the records of ``batches``, in order: of the first two at least, and of as many as fit.

    It ends before a batch that cannot be taken apart: such a one is better passed as it is, for the target's broker to
    judge. What aiokafka's classes would not give back as it was counts as such: header keys that are not UTF-8, and a
    first timestamp below 0, which its builder takes for none.

    Args:
        batches: whole batches of magic 2, of data, with create times, checked, all compressed with ``codec``.
        as_codec: how the new one is compressed.
        max_bytes: the most that it may hold before that, if they are compressed. The size of others is known before.
    """
    builder = DefaultRecordBatchBuilder(MAGIC, 0, 0, -1, -1, -1, 2**31 - 1)
    append = builder.append
    room = max_bytes - HEADER_BYTES
    index = batch_count = 0
    is_compressed = codec != Codec.NONE
    plain: memoryview | bytearray
    try:
        for plain in batches:
            if is_compressed:
                plain = _decompressed(plain, codec, room)  # noqa: PLW2901
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
    except DecompressionBomb:
        room = 0
    except _NOT_TAKEN_APART:
        pass
    plain_bytes = max_bytes - room if is_compressed else sum(map(len, batches))
    if batch_count < 2:
        return Merged(None, 0, plain_bytes)
    merged = builder.build()
    if as_codec == Codec.NONE:
        return Merged(merged if isinstance(merged, bytearray) else bytearray(merged), batch_count, plain_bytes)
    header = read_header(merged)
    compressed = assemble(
        memoryview(merged)[HEADER_BYTES:],
        codec=as_codec,
        record_count=index,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
    )
    return Merged(compressed, batch_count, plain_bytes)


_NOT_TAKEN_APART: Final = (CorruptRecordException, CompressedDataCorrupt, UnicodeError)


def are_alike(one: memoryview, other: memoryview) -> bool:
    """Tell whether two batches may become one: of one codec and one leader epoch."""
    first, second = read_header(one), read_header(other)
    return (first.codec, first.partition_leader_epoch) == (second.codec, second.partition_leader_epoch)


def jumps_of(batches: Sequence[memoryview]) -> Sequence[int]:
    """Return where a record's source offset leaves some out, as of ``Outgoing``: between whole batches."""
    jumps = array("q")
    index, expected = 0, read_header(batches[0]).base_offset
    for batch in batches:
        header = read_header(batch)
        if header.base_offset != expected:
            jumps.append(index)
            jumps.append(header.base_offset)
        index += header.record_count
        expected = header.next_offset
    return jumps


def _decompressed(batch: memoryview | bytearray, codec: int, max_bytes: int) -> bytearray:
    """Return the batch as it is without compression, if its records take no more than ``max_bytes`` when merged."""
    header = read_header(batch)
    room = max(0, max_bytes - GROWTH_BYTES * header.record_count)
    return assemble(
        decompress(codec, batch[HEADER_BYTES:], max_bytes=room),
        codec=Codec.NONE,
        record_count=header.record_count,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
    )
