"""Repacking: several small batches of a partition become one large batch. Pure.

Answers to the batching of MM2's producer. Small batches cost a broker nearly as much each as large ones, and us as
well. Where a read brings several of them at once, they are made one; none waits for others to come. Whether a batch is
small enough for that depends on ``copy.mode``, on its codec, its number of records, and on whether the target keeps up.

Keys, values, headers and timestamps stay as they are; offsets follow from the order. The compiled classes of aiokafka
do the work, at about a microsecond a record.

What is to be done with fetched batches: the steps of a plan, what the target asks of them, and why planning ended.

Answers to what MM2 leaves implicit: there every record is sent, or the task fails.

The tally: what was done for one partition, for status and metrics. Pure.

Answers to record-count and byte-count of MirrorSourceMetrics in Apache Kafka, connect/mirror.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from mm2py.records.batch import HEADER_BYTES, MAGIC, assemble, read_header
from mm2py.records.compression import (
    DECOMPRESSED_MAX_BYTES,
    Codec,
    CompressedDataCorrupt,
    DecompressionBomb,
    decompress,
)
from mm2py.topics.filters import CopyMode

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


RebuildReason = Literal[
    "offset gaps",
    "log append time",
    "straddles start",
    "too large",
    "old format",
    "compression",
    "null key",
    "repack",
    "refused",
]
DropReason = Literal["control", "aborted", "empty", "below start"]
FaultKind = Literal[
    "crc mismatch",
    "unknown codec",
    "unknown magic",
    "too large",
    "decompression bomb",
    "corrupt records",
    "null key on compacted target",
]


DAMAGED_READS_MAX: Final = 3
"""How often a batch that came damaged is read again before the source's disk is blamed."""
_DAMAGE: Final = frozenset({"crc mismatch", "corrupt records", "unknown magic"})


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What the target's topic, and the flow's producer settings, ask of a batch."""

    max_message_bytes: int
    """The remote topic's ``max.message.bytes``: compared with a whole batch, its first 12 bytes included."""
    compression: int | None = None
    """The codec every batch must have, or None to leave each as it is."""
    cleaned: bool = False
    """The remote topic is compacted: records and batches of it may vanish."""
    compacted: bool = False
    """The remote topic refuses null keys. Every batch is then decoded to look: leave it False where the source topic is
    compacted too, whose brokers have looked already."""
    decompressed_max_bytes: int = DECOMPRESSED_MAX_BYTES
    """The most that one batch may hold once decompressed."""
    merged_max_bytes: int = MERGED_MAX_BYTES
    """A merged batch is no larger. Less than a batch may be, once the target has refused one for its size."""
    decode_budget_bytes: int = 8 * 1024 * 1024
    """Planning ends after the batch with which so many decompressed bytes were decoded; the plan's ``next_offset``
    tells where to go on. It bounds how long one call takes (2 to 3 us a record) and how much memory its result has."""


class Outgoing(NamedTuple):
    """One batch for the target. A tuple, as all steps are: one is made for every batch that passes."""

    first_offset: int
    """Source offset of its first record."""
    next_offset: int
    """Source offset from which copying goes on once this batch is stored."""
    record_count: int
    max_timestamp_ms: int
    leader_epoch: int
    """The source partition's leader epoch when the batch was written; -1 for old formats."""
    data: memoryview | bytearray
    """The batch, not yet stamped. A memoryview is a view into what was fetched."""
    reason: RebuildReason | None = None
    """Why it was rebuilt; None if it is passed."""
    jumps: Sequence[int] = ()
    """Flat pairs (record index, source offset), one for each record whose source offset leaves some out."""

    @classmethod
    def passed(cls, batch: memoryview) -> Outgoing:
        """Return the step that sends a batch as it is."""
        header = read_header(batch)
        return cls(
            header.base_offset,
            header.next_offset,
            header.record_count,
            header.max_timestamp_ms,
            header.partition_leader_epoch,
            batch,
        )

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (record index, source offset) for the start of each stretch of records with adjacent source offsets."""
        yield 0, self.first_offset
        for at in range(0, len(self.jumps), 2):
            yield self.jumps[at], self.jumps[at + 1]


class Dropped(NamedTuple):
    """One batch that has nothing for the target; the position moves past it."""

    next_offset: int
    record_count: int
    reason: DropReason
    leader_epoch: int = -1
    """As of ``Outgoing``: a read that goes on behind this batch must name it, or the source seems to be cut back."""


Step = Outgoing | Dropped


class Fault(NamedTuple):
    """Why planning stopped. The steps before it are good and to be delivered."""

    kind: FaultKind
    offset: int
    """The first source offset that could not be planned: a record's, or a batch's first one."""
    next_offset: int | None
    """Where copying could go on if an operator gives ``offset`` and what follows up; None if that cannot be known."""
    text: str
    """One sentence for the operator, without the partition."""
    leader_epoch: int = -1
    """As of ``Outgoing``, where one record is at fault; else -1."""

    @property
    def is_damage(self) -> bool:
        """The batch may have been damaged on the way: reading it again may bring it whole."""
        return self.kind in _DAMAGE


@dataclass(slots=True)
class Plan:
    """What to do with one fetched stretch of a partition."""

    steps: list[Step] = field(default_factory=list)
    """In the order of the source; each begins where the one before it ended."""
    next_offset: int = 0
    """Where fetching goes on: the end of the last step, or the wanted offset if there is none."""
    fault: Fault | None = None
    transactional: bool = False
    """A transactional batch of data was seen. Under ``read_uncommitted`` its copy may be of an aborted transaction."""
    cut_batch_bytes: int = 0
    """Size of the first batch if not even that one is there whole: a fetch must allow at least so much. Else 0."""


@dataclass(slots=True)
class Tally:
    """What was done. Bytes are those of batches as sent."""

    records: int = 0
    bytes: int = 0
    passed: int = 0
    rebuilt: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    last_timestamp_ms: int = -1

    def count(self, batch: Outgoing) -> None:
        """Count a batch that is stored."""
        self.records += batch.record_count
        self.bytes += len(batch.data)
        self.last_timestamp_ms = batch.max_timestamp_ms
        if batch.reason is None:
            self.passed += 1
        else:
            self.rebuilt[batch.reason] += 1

    def count_dropped(self, step: Dropped) -> None:
        """Count what had nothing for the target."""
        self.dropped[step.reason] += step.record_count

    def count_quarantined(self) -> int:
        """Count a record that is left out and kept in quarantine; returns how many there are by now."""
        self.dropped["quarantined"] += 1
        return self.dropped["quarantined"]
