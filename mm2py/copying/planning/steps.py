"""The steps of a plan: what is done with fetched batches, what the target asks of them, how batches are merged. Pure.

A small batch costs a broker, and us, nearly as much as a large one. So several small batches of one read are merged
into one (*repacking*); none waits for others. ``copy.mode``, the codec, the number of records and the speed of the
target decide which batches are small enough. Keys, values, headers and timestamps stay as they are; offsets follow from
the order. ``record_merge`` merges where the compiled core is not installed, or declines.

Counterpart: the batching of MM2's producer; for the tally, record-count and byte-count of MirrorSourceMetrics.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from crc32c import crc32c

from mm2py.records.batch import (
    DELTA_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    OFFSET_AND_LENGTH,
    assemble,
    read_header,
)
from mm2py.records.compression import (
    WHOLE_BUDGET,
    Codec,
    DecodeBudget,
    decompress,
)
from mm2py.topics.filters import CopyMode

MERGED_MAX_BYTES: Final = 1_000_000
"""A merged batch is no larger, so that it fits into the ``max.message.bytes`` that brokers have by default."""
MERGED_PLAIN_MAX_BYTES: Final = 8 << 20
"""A compressed merged batch holds no more than this, as consumers decompress it as a whole."""
GROWTH_BYTES: Final = 14
"""The most by which the encoding of a record may grow: three varints, of its length, timestamp and offset delta."""
SMALL_BYTES: Final = 4 << 10
"""Uncompressed batches up to this size are merged whenever several come in one read."""
MIDDLE_BYTES: Final = 64 << 10
"""Uncompressed batches up to this size are merged if a read brings more of them than may be in flight."""
TINY_COMPRESSED_BYTES: Final = 1 << 10
"""Compressed batches up to this size are merged. Decompressing larger ones would cost more than merging saves."""
MERGED_RATIO_MAX: Final = 64
"""A compressed batch that holds more than this times its size, and more than 64 KB, is not merged. A damaged batch may
claim to hold that much, and each attempt to merge it takes the time to decompress that much."""
SMALL_RECORDS: Final = 40
"""Batches of more records are not small: merging costs 0.3 us a record, passing 22 us a batch."""
MIDDLE_RECORDS: Final = 400
"""The same if the target is the bottleneck: a batch costs its broker some 100 us."""
BACKLOG_BATCHES: Final = 5
"""How many batches of a partition may be in flight. More of them in one read are a backlog."""


class MergeRule(NamedTuple):
    """The largest size of batches that are merged, in bytes; 0 merges none."""

    plain_max_bytes: int
    compressed_max_bytes: int
    why: str
    """A few words for status."""
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
    """Return which batches of one read of a partition are merged.

    Args:
        read_bytes: the size of the read.
        target_is_behind: as much is in flight to the target as may be, or batches wait for that.
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
                "auto: more batches wait than may be in flight, plain ones up to 64 KB are repacked",
                MIDDLE_RECORDS,
            )


def bytes_of_one(rules: TargetRules, bytes_per_offset: float, first_bytes: int = 0) -> int:
    """Return how many bytes of plain batches become one merged batch, if they take ``bytes_per_offset``.

    Args:
        first_bytes: how many bytes became the first merged batch of a read, if that had further batches. It counts if
            the merged batch was full: then one more batch of the source would not have fitted in.
    """
    most = int(min(rules.merged_max_bytes, rules.max_message_bytes) / (1 + GROWTH_BYTES / bytes_per_offset))
    return first_bytes if max(0, most - MIDDLE_BYTES) < first_bytes < most else most


class Merged(NamedTuple):
    """The result of merging batches."""

    data: bytearray | None
    """The batch, not yet stamped; None if the first two batches cannot be made one."""
    batch_count: int
    """How many of the batches are in it."""
    plain_bytes: int
    """How much was decoded for it."""


def are_alike(one: memoryview, other: memoryview) -> bool:
    """Return whether two batches may become one: they have the same codec and the same leader epoch."""
    first, second = read_header(one), read_header(other)
    return (first.codec, first.partition_leader_epoch) == (second.codec, second.partition_leader_epoch)


def jumps_of(batches: Sequence[memoryview]) -> Sequence[int]:
    """Return where source offsets are missing between these batches, see ``Outgoing.jumps``."""
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


def most_merged_bytes(batch: memoryview | bytearray, room: int) -> int:
    """Return how many bytes a compressed batch may hold to be merged where ``room`` bytes are left."""
    return min(room, max(MIDDLE_BYTES, MERGED_RATIO_MAX * len(batch)))


def decompressed(batch: memoryview | bytearray, codec: int, max_bytes: int) -> bytearray:
    """Return the batch as it is without compression, if its records take no more than ``max_bytes`` when merged."""
    header = read_header(batch)
    room = max(0, most_merged_bytes(batch, max_bytes) - GROWTH_BYTES * header.record_count)
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
    "transform",
]
DropReason = Literal["control", "aborted", "empty", "below start", "filtered"]
"""Reconciling counts source records under the same rules: what is dropped here must be dropped by ``log_reader.py``."""
FaultKind = Literal[
    "crc mismatch",
    "unknown codec",
    "unknown magic",
    "too large",
    "decompression bomb",
    "over budget",
    "corrupt records",
    "null key on compacted target",
    "transform failed",
]


DAMAGED_READS_MAX: Final = 3
"""How often a damaged batch is read again before it counts as damaged on the source's disk."""
_DAMAGE: Final = frozenset({"crc mismatch", "corrupt records", "unknown magic"})


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What the remote topic and the flow's producer settings ask of a batch."""

    max_message_bytes: int
    """The remote topic's ``max.message.bytes``. It limits a whole batch, including its first 12 bytes."""
    compression: int | None = None
    """The codec every batch must have, or None to leave each as it is."""
    is_compacted: bool = False
    """The remote topic is compacted: records and batches of it may vanish."""
    refuses_null_keys: bool = False
    """The remote topic refuses null keys, so every batch is decoded to look for them. False if the source topic is
    compacted, too: its brokers have refused them already."""
    budget: DecodeBudget = WHOLE_BUDGET
    """What decoding one batch may take."""
    merged_max_bytes: int = MERGED_MAX_BYTES
    """A merged batch is no larger. This shrinks when the target has refused one for its size."""
    decode_budget_bytes: int = 8 * 1024 * 1024
    """Planning ends after this many decoded bytes. The next read continues at the plan's ``next_offset``. This bounds
    the time of one call (2 to 3 us a record) and the memory of its result."""


class Outgoing(NamedTuple):
    """One batch for the target. Steps are tuples, because one is made for every batch that passes."""

    first_offset: int
    """Source offset of its first record."""
    next_offset: int
    """Source offset where copying continues after this batch."""
    record_count: int
    max_timestamp_ms: int
    leader_epoch: int
    """The source partition's leader epoch when the batch was written; -1 for old formats."""
    data: memoryview | bytearray
    """The batch, not yet stamped. A memoryview is a view into what was fetched."""
    reason: RebuildReason | None = None
    """Why it was rebuilt; None if it is passed."""
    jumps: Sequence[int] = ()
    """Flat pairs (record index, source offset), one for each record after a hole in the source offsets."""
    filtered: int = 0
    """How many records of the source batch that ends with it the flow's transforms have left out."""

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
    """One batch with nothing for the target. The position moves past it."""

    next_offset: int
    record_count: int
    reason: DropReason
    leader_epoch: int = -1
    """See ``Outgoing.leader_epoch``. A read after this batch must send it, or the source seems to be cut back."""


Step = Outgoing | Dropped


class Fault(NamedTuple):
    """Why planning stopped. The steps before it are valid."""

    kind: FaultKind
    offset: int
    """The first source offset that could not be planned: a record's, or the first of a batch."""
    next_offset: int | None
    """Where copying could continue if an operator gives up the records from ``offset`` on; None if unknown."""
    text: str
    """One sentence for the operator, without the partition."""
    leader_epoch: int = -1
    """See ``Outgoing.leader_epoch``; -1 if not a single record is at fault."""

    @property
    def is_damage(self) -> bool:
        """The batch may have been damaged in transit, so it is read again."""
        return self.kind in _DAMAGE


@dataclass(slots=True)
class Plan:
    """What to do with one fetched stretch of a partition."""

    steps: list[Step] = field(default_factory=list)
    """In the order of the source, without holes."""
    next_offset: int = 0
    """Where fetching continues: the end of the last step, or the wanted offset if there is none."""
    fault: Fault | None = None
    is_heavy: bool = False
    """It takes more decoding than one step of the event loop may do. A light plan is empty then."""
    transactional: bool = False
    """A transactional batch of data was seen. Under ``read_uncommitted`` its copy may be of an aborted transaction."""
    cut_batch_bytes: int = 0
    """Size of the first batch if it did not come whole: a fetch must allow at least this much. Else 0."""


@dataclass(slots=True)
class Tally:
    """Counts of what was copied and dropped. Bytes are those of batches as sent."""

    records: int = 0
    bytes: int = 0
    passed: int = 0
    rebuilt: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    last_timestamp_ms: int = -1
    last_mode: str = ""
    """How the last batch travelled: ``pass``, or why it was made anew; empty: there was none yet."""

    def begin(self, source_offset: int, target_offset: int | None) -> None:
        """Note that copying begins or continues here."""

    def count(self, batch: Outgoing) -> None:
        """Count a batch that is stored."""
        self.records += batch.record_count
        self.bytes += len(batch.data)
        self.last_timestamp_ms = batch.max_timestamp_ms
        if batch.filtered:
            self.dropped["filtered"] += batch.filtered
        if batch.reason is None:
            self.passed += 1
            self.last_mode = "pass"
        else:
            self.rebuilt[batch.reason] += 1
            self.last_mode = batch.reason

    def count_dropped(self, step: Dropped) -> None:
        """Count a step with nothing for the target."""
        self.dropped[step.reason] += step.record_count

    def count_quarantined(self) -> int:
        """Count a record that is kept in quarantine. Return how many there are now."""
        self.dropped["quarantined"] += 1
        return self.dropped["quarantined"]


@dataclass(slots=True)
class DigestTally(Tally):
    """The tally of a backfill, with a digest of what was stored."""

    digest: int = 0
    """CRC-32C over the records as they were sent, without the headers of their batches."""
    begun: tuple[int, int | None] | None = None
    """Source and target offset where copying began."""

    def begin(self, source_offset: int, target_offset: int | None) -> None:
        self.begun = self.begun or (source_offset, target_offset)

    def count(self, batch: Outgoing) -> None:
        Tally.count(self, batch)
        self.digest = crc32c(memoryview(batch.data)[HEADER_BYTES:], self.digest)


def before_seam(records: memoryview, seam: int, fetch_offset: int) -> tuple[memoryview, int | None]:
    """Return the batches that lie before a seam, and where copying ends if a later one follows them.

    A batch that reaches beyond the seam is left as a whole to the owner that continues there: it may be compressed.

    Args:
        records: one partition's part of a fetch reply.
        fetch_offset: the source offset that was asked for.
    Returns:
        The part of ``records``, and the source offset after its last batch; None: ``records`` do not reach the seam.
    """
    position, end, behind = 0, len(records), fetch_offset
    while position + HEADER_BYTES <= end:
        offset, length = OFFSET_AND_LENGTH.unpack_from(records, position)
        last_delta = LAST_OFFSET_DELTA.unpack_from(records, position + DELTA_AT)[0]
        next_offset = offset + 1 + (last_delta if records[position + MAGIC_AT] == MAGIC else 0)
        if next_offset > seam:
            return records[:position], behind
        if length <= 0:
            break  # it is damaged: planning reports it
        behind = max(behind, next_offset)
        position += length + LOG_OVERHEAD_BYTES
    return records, None
