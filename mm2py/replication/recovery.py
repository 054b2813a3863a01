"""How far an earlier writer got in a remote partition, and from which source offset copying goes on. Pure.

The story: w1 stores a position each second and dies. What it wrote since stands in the target, and nobody knows how
much that is. MM2 copies all of it again. Here the *tail* of the remote partition, from the position on, is read up to
the marker that shuts w1 out; w1's batches in it tell by their sequences how many records they are. The *walk* over the
source counts so many records from the position on, and ends where copying goes on. Sequences survive what changes the
bytes: recompression, repacking, cleaning, retention (C4 of docs/broker-facts.md).

Counting is right as long as the source reads as it did when it was copied. The last record of the tail is the evidence:
where it is not also the last one of the walk, records were cleaned away meanwhile, or the isolation level was changed,
and ``Comparison`` goes by the records themselves. It would take what was left out as aborted, and is read now, for
other records than those that were copied: so a walk by the other level is tried before. Where the target has kept too
little to tell, the walk's offsets must: counting over a hole could count too far, and leave records out.

A remote partition read up to the marker that proves a fence.

Shuts an earlier producer out of topics, and reads its markers back: only they prove it (C3 of docs/broker-facts.md).

For topics of our own, before what stands there is believed; remote partitions are proven one by one as their tails are
read. MirrorMaker 2 trusts in the coordinator's answer.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from mm2py.clock import Clock
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import Brokers, FetchedPartition, TopicPartition
from mm2py.kafka.producer.fencing import PreviousProducer
from mm2py.records.batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    SEQUENCE_MODULUS,
    BatchHeader,
    CorruptBatch,
    Record,
    crc_is_right,
    next_sequence,
    read_header,
    read_records,
    split,
)
from mm2py.replication.planning.steps import Outgoing, Step
from mm2py.replication.reading.log_reader import LogReader, Stretch

MISSES_MOST: Final = 10_000
"""So many source records may be missing in a target that was cleaned until no later one is looked for any more."""
_HALF: Final = SEQUENCE_MODULUS // 2


class Writer(NamedTuple):
    """Who may have written to a remote partition last, and the sequence after what the position tells of."""

    producer_id: int
    epoch: int
    next_sequence: int


class Content(NamedTuple):
    """What makes a record the same on both sides."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    """None where the target sets its own."""


@dataclass(slots=True)
class ForeignRecords:
    """What one other producer wrote into a remote partition. Offsets are the target's; the last one is inclusive."""

    first_offset: int
    last_offset: int
    records: int


class Tail:
    """What stands in a remote partition from an offset on, taken in read by read.

    ``stored`` says how many records of the writer follow the position, once the tail ``is_whole``.
    """

    def __init__(
        self,
        from_offset: int,
        writer: Writer,
        *,
        fence_epoch: int | None,
        end: int | None = None,
        known_ids: frozenset[int] = frozenset(),
        keep_records: bool = False,
    ) -> None:
        """Begin at the target offset of a position.

        Args:
            writer: whose batches are counted.
            fence_epoch: a marker of the writer's id with at least this epoch ends the tail. None: nobody could fence
                it; the tail ends where the partition ended when it was first read, which proves nothing.
            end: without a fence epoch, ends the tail at this offset instead.
            known_ids: producer ids that are not foreign.
            keep_records: keep the contents of all of the writer's records, for ``Comparison``.
        """
        self.next_offset = from_offset
        self.is_whole = False
        self.cut_at: int | None = None
        """Where a batch of the writer stands too near to the position: something before it is gone."""
        self.has_holes = False
        """A sequence is missing between two: the batch was refused and the next one stored (H2), or it was cleaned
        away, or stands before where the log begins by now."""
        self.stored = 0
        self.last_batch: bytes | None = None
        """The writer's last batch, if that still has records."""
        self.is_log_append_time = False
        self.records: list[Content] = []
        self.foreign: dict[int, ForeignRecords] = {}
        """By producer id; -1 for those who have none."""
        self._from_offset = from_offset
        self._writer = writer
        self._fence_epoch = fence_epoch
        self._known_ids = known_ids | {writer.producer_id}
        self._keep_records = keep_records
        self._end = end
        self._trimmed_to: int | None = None
        self._saw_writer = False
        self._next_sequence = writer.next_sequence

    @property
    def is_trimmed(self) -> bool:
        """Its begin was deleted before it was read."""
        return self._trimmed_to is not None

    def begin_at(self, log_start: int) -> None:
        """Learn where the log begins by now; what stood before that is told by sequences, or by offsets alone."""
        if log_start > self.next_offset:
            self.next_offset = self._trimmed_to = log_start

    def take(self, records: memoryview, *, high_watermark: int) -> bool:
        """Take in what one read from ``next_offset`` brought, up to a batch that came damaged; returns whether the tail
        is whole."""
        if self._end is None:
            self._end = high_watermark
        self.is_whole = self._is_at_end()
        for batch, header in self._undamaged(records):
            self.is_whole = self.is_whole or self._is_behind_end(header.base_offset)
            if self.is_whole:
                break
            if header.next_offset <= self.next_offset:
                continue
            self.next_offset = header.next_offset
            if header.is_control:
                self.is_whole = self._shuts_out(header)
            elif header.producer_id == self._writer.producer_id:
                self._take_own(header, batch)
            elif header.producer_id not in self._known_ids:
                self._take_foreign(header)
            self.is_whole = self.is_whole or self._is_at_end()
        if self.is_whole and self._trimmed_to is not None and not self._saw_writer:
            self.stored = self._told_by_offsets(self._trimmed_to)
        return self.is_whole

    def _undamaged(self, records: memoryview) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Yield batches up to the first that came damaged: it is read again."""
        log_offset = 0
        with suppress(CorruptBatch):
            for batch in split(records):
                if len(batch) < HEADER_BYTES or batch[MAGIC_AT] != MAGIC or not crc_is_right(batch):
                    return
                header = read_header(batch)
                if not log_offset <= header.base_offset < header.next_offset:
                    return
                log_offset = header.next_offset
                yield batch, header

    def _is_at_end(self) -> bool:
        return self._is_behind_end(self.next_offset)

    def _is_behind_end(self, offset: int) -> bool:
        """Offsets before the end may be missing: they were cleaned away."""
        return self._fence_epoch is None and self._end is not None and offset >= self._end

    def _told_by_offsets(self, log_start: int) -> int:
        """No batch is left to tell how many records there were. Each epoch between the writer's and the fence's was
        somebody's fence, whose marker may be among what was deleted: rather a record twice than one left out."""
        fences = 0 if self._fence_epoch is None else self._fence_epoch - self._writer.epoch - 1
        return max(0, log_start - self._from_offset - max(0, fences))

    def _shuts_out(self, header: BatchHeader) -> bool:
        return (
            header.producer_id == self._writer.producer_id
            and self._fence_epoch is not None
            and header.producer_epoch >= self._fence_epoch
        )

    def _take_own(self, header: BatchHeader, batch: memoryview) -> None:
        if header.producer_epoch != self._writer.epoch:
            return  # before its epoch was raised: the position tells of those
        self._saw_writer = True
        if self.cut_at is None and self._is_too_near(header):
            self.cut_at = header.base_offset
        self.has_holes |= header.base_sequence != self._next_sequence
        after = self._next_sequence = next_sequence(header.base_sequence, header.last_offset_delta + 1)
        ahead = (after - self._writer.next_sequence) % SEQUENCE_MODULUS
        if self.stored < ahead < _HALF:
            self.stored = ahead
        self.last_batch = bytes(batch) if header.record_count else None
        self.is_log_append_time = header.is_log_append_time
        if self._keep_records and header.record_count:
            timed = not header.is_log_append_time
            self.records += [_content(record, timed=timed) for record in read_records(bytes(batch))]

    def _is_too_near(self, header: BatchHeader) -> bool:
        """Whether the log has fewer offsets than records were written up to this batch: then it was cut back.

        The story: an unclean leader lacks what was stored last, and takes what was on its way as if nothing were
        missing. The log soon reaches beyond the position again, and its end tells nothing.
        """
        written = (header.base_sequence - self._writer.next_sequence) % SEQUENCE_MODULUS
        return written < _HALF and header.base_offset - self._from_offset < written

    def _take_foreign(self, header: BatchHeader) -> None:
        last = header.next_offset - 1
        met = self.foreign.setdefault(header.producer_id, ForeignRecords(header.base_offset, last, 0))
        met.last_offset = last
        met.records += header.record_count


class Walk:
    """Counts source records from a position on until as many were seen as the target has.

    Steps come from ``plan``, so that the same batches are dropped here that are dropped when copying.
    """

    def __init__(self, from_offset: int, leader_epoch: int, records: int) -> None:
        self.resume_offset = from_offset
        self.leader_epoch = leader_epoch
        self.last: Record | None = None
        """The last record counted, with its source offset."""
        self._left = records
        self._from_offset = from_offset
        self._seen = 0
        """Source offsets that held a counted record or a marker."""
        self._aborted = 0
        """Source offsets that held a record of an aborted transaction."""

    @property
    def is_over(self) -> bool:
        """All records were counted; ``resume_offset`` is where copying goes on."""
        return self._left == 0

    @property
    def is_dense(self) -> bool:
        """Each offset held a counted record or a marker, so none can have been removed since."""
        return self.resume_offset - self._from_offset == self._seen

    @property
    def has_holes(self) -> bool:
        """Offsets are missing on the way: not even a marker or an aborted record is there."""
        return self.resume_offset - self._from_offset > self._seen + self._aborted

    def take(self, steps: Iterable[Step]) -> bool:
        """Count what these steps would copy; returns ``is_over``."""
        for step in steps:
            if not self._left:
                break
            self.leader_epoch = step.leader_epoch
            if not isinstance(step, Outgoing):
                self.resume_offset = step.next_offset
                self._seen += step.record_count if step.reason == "control" else 0
                self._aborted += step.record_count if step.reason == "aborted" else 0
                continue
            counted = min(self._left, step.record_count)
            self._left -= counted
            self._seen += counted
            self.resume_offset = offset_of(step, counted)
            if not self._left:
                self.last = read_records(bytes(step.data))[counted - 1]
        return self.is_over

    def is_proven_by(self, tail: Tail) -> bool:
        """Whether the count can be believed: the last record is that of the tail, or nothing is missing on the way."""
        if tail.last_batch is None or self.last is None:
            return self.is_dense
        timed = not tail.is_log_append_time
        same = _content(self.last, timed=timed) == _content(read_records(tail.last_batch)[-1], timed=timed)
        return same and (timed or self.is_dense)  # without timestamps many records look the same

    def shows_another_isolation(self, tail: Tail) -> bool:
        """Whether this walk, by another isolation level than that of today, is how the tail was copied.

        Stricter than ``is_proven_by``, as the level is a guess: no offset may be missing, those of aborted transactions
        counted, and the last record must be that of the tail, its timestamp too.
        """
        if tail.last_batch is None or self.last is None or tail.is_log_append_time:
            return False
        same = _content(self.last, timed=True) == _content(read_records(tail.last_batch)[-1], timed=True)
        return same and not self.has_holes


class Comparison:
    """Looks up source records in a tail, in order, until one comes that is not there: copying goes on with it.

    For sources that read differently than when they were copied. Cleaning only takes records away, so what is left of
    those that were copied stands in the tail in the same order, with others between them. And so many records as were
    copied took at least so many offsets: below ``position + stored`` nothing is to be copied, whatever the target has
    kept. Where it cannot be told, records are copied again, and none is left out.
    """

    def __init__(self, from_offset: int, leader_epoch: int, tail: Tail, *, log_start: int = 0) -> None:
        """``log_start``: where the source begins by now."""
        self.read_offset = max(from_offset, log_start)
        """Where to read first."""
        self._copied_to = from_offset + tail.stored
        self._certain_to, self._epoch = from_offset, leader_epoch
        self._rewritten = False
        self._is_cleaned = len(tail.records) < tail.stored
        self._misses = 0
        self._timed = not tail.is_log_append_time
        self._keys = {record.key for record in tail.records if record.key is not None}
        self._may_be_deleted = tail.is_trimmed
        self._records = deque(tail.records)
        self._where: dict[Content, int] = {}
        for record in tail.records:
            self._where[record] = self._where.get(record, 0) + 1
        self._unique = {record for record, times in self._where.items() if times == 1}

    @property
    def rewritten(self) -> tuple[int, int] | None:
        """Source offsets (first, last) from which records were copied that are not there any more: others are."""
        return (self._certain_to, self._copied_to - 1) if self._rewritten else None

    @property
    def resume_offset(self) -> int:
        return self._certain_to if self._rewritten else max(self._certain_to, self._copied_to)

    @property
    def leader_epoch(self) -> int:
        """Of the record before ``resume_offset``; -1 where that was not seen."""
        return self._epoch if self.resume_offset == self._certain_to else -1

    def take(self, steps: Iterable[Step]) -> bool:
        """Look up what these steps would copy; returns whether copying goes on within or before them."""
        for step in steps:
            if isinstance(step, Outgoing):
                for index, record in enumerate(read_records(bytes(step.data))):
                    if not self._look_up(record, offset_of(step, index), offset_of(step, index + 1), step.leader_epoch):
                        return True
            elif self._certain_to == step.next_offset - step.record_count:
                self._certain_to, self._epoch = step.next_offset, step.leader_epoch
        return not self._records and self._certain_to >= self._copied_to

    def _look_up(self, record: Record, offset: int, next_offset: int, epoch: int) -> bool:
        """Return False if this record is to be copied."""
        content = _content(record, timed=self._timed)
        found, is_below = self._find(content), offset < self._copied_to
        if found:
            self._may_be_deleted = False
        elif is_below and not self._is_explained(record):
            self._rewritten = True  # another record stands where one was copied: the source was cut back since
            self._certain_to, self._epoch = offset, -1
        if self._rewritten:
            return False
        if not found and not is_below:  # not copied, or copied and cleaned away: then a later one may be there
            self._misses += 1
            return self._is_cleaned and self._is_explained(record) and self._misses <= MISSES_MOST
        if is_below or content in self._unique:
            self._certain_to, self._epoch, self._misses = next_offset, epoch, 0
        return True

    def _is_explained(self, record: Record) -> bool:
        """A copy may be gone from the target: cleaned away by a later one of its key, as an old tombstone, expired."""
        if not self._is_cleaned:
            return False  # all that was copied is there
        return record.key in self._keys or (record.key is not None and record.value is None) or self._may_be_deleted

    def _find(self, wanted: Content) -> bool:
        """Take records out up to the wanted one, if it is there."""
        if not self._where.get(wanted):
            return False
        while True:
            found = self._records.popleft()
            self._where[found] -= 1
            if found == wanted:
                return True


def _content(record: Record, *, timed: bool) -> Content:
    return Content(record.key, record.value, tuple(record.headers), record.timestamp_ms if timed else None)


def offset_of(step: Outgoing, index: int) -> int:
    """Return the source offset of a batch's record, or where copying goes on behind its last one."""
    if index == step.record_count:
        return step.next_offset
    at, offset = max(run for run in step.runs() if run[0] <= index)
    return offset + index - at


MARKER_PATIENCE_S: Final = 1.0
"""How long a marker may take while its partition has a leader; then it is to be written once more (C3)."""


class TailStretch(Stretch):
    """Fills a ``Tail``. One that is not whole in the end was given up: its marker is missing, or the log is another."""

    def __init__(self, topic: str, topic_id: uuid.UUID | None, partition: int, tail: Tail, clock: Clock) -> None:
        super().__init__(topic, topic_id, partition)
        self.tail = tail
        self._clock = clock
        self._give_up_at_s = float("inf")

    @property
    def offset(self) -> int:
        return self.tail.next_offset

    def refused(self, error: BrokerRefused) -> bool:
        return True

    def take(self, fetched: FetchedPartition) -> bool:
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        before = self.offset
        if self.tail.take(fetched.records, high_watermark=fetched.high_watermark):
            return True
        now_s = self._clock.monotonic()
        if self.offset > before or self._give_up_at_s == float("inf"):
            self._give_up_at_s = now_s + MARKER_PATIENCE_S
        return now_s >= self._give_up_at_s


async def fence_and_prove(
    brokers: Brokers,
    producer: PreviousProducer,
    topics: Sequence[TopicMetadata],
    *,
    clock: Clock,
    rng: random.Random,
) -> int:
    """Shut a producer out of all partitions of topics; returns the epoch of the fence when that is proven.

    Args:
        topics: fresh metadata; partitions without a leader are left out.
    Returns:
        The highest epoch that markers were asked for with: whoever fences the producer elsewhere goes on with it.
    Raises:
        NotFenceable: it cannot be shut out.
        KafkaError: retriable ones; ask again.
    Cancelling loses nothing: markers may have been written that nobody has read.
    """
    metadata = {topic.name: topic for topic in topics}
    left = ends = await _ends(brokers, topics)
    writer = Writer(producer.producer_id, producer.epoch, 0)
    while True:  # once more if a partition's leader was away, and its marker was left out (C3)
        epoch = await producer.fence(list(left))
        stretches = [
            TailStretch(name, metadata[name].topic_id, number, Tail(end, writer, fence_epoch=epoch), clock)
            for (name, number), end in left.items()
        ]
        await LogReader(brokers, read_committed=False, rng=rng, channel="reconcile").read(stretches, lambda _: None)
        left = {part.key: ends[part.key] for part in stretches if not part.tail.is_whole}
        if not left:
            return epoch


async def _ends(brokers: Brokers, topics: Sequence[TopicMetadata]) -> dict[TopicPartition, int]:
    leaders = {(topic.name, number): part.leader for topic in topics for number, part in topic.partitions.items()}
    answers = await list_offsets(brokers, leaders, LATEST)
    for (name, number), answer in answers.items():
        if answer.error_code:
            raise BrokerRefused(f"Finding the end of {name}-{number}", answer.error_code)
    return {key: answer.offset for key, answer in answers.items()}
