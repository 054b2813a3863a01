"""What is to be done with fetched batches: the steps of a plan, what the target asks of them, and why planning ended.

Answers to what MM2 leaves implicit: there every record is sent, or the task fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from mm2py.records.batch import read_header
from mm2py.records.compression import DECOMPRESSED_MAX_BYTES
from mm2py.replication.planning.repack import MERGED_MAX_BYTES

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
