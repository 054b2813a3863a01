"""How far a previous producer got in a remote partition, and from which source offset copying continues.

The story: w1 stores a position each second and dies. The target has an unknown number of records that w1 wrote after
its last stored position. MM2 copies all of them again. Here the *tail* of the remote partition, from the position on,
is read up to the marker that fences w1. The sequences of w1's batches in it show how many records they are. The *walk*
over the source counts as many records from the position on, and copying continues where it ends. Sequences survive what
changes the bytes: recompression, repacking, cleaning, retention (docs/broker-facts.md#c4).

Counting is right as long as the source reads as it did when it was copied. The evidence is the last record of the tail:
it must also be the last one of the walk. If not, the cleaner has removed records meanwhile, or the isolation level was
changed. A walk with the other level is tried first. ``Comparison`` comes after it, because it looks up the records
themselves and would mistake aborted records for records that replaced the copied ones. Where the target has kept too
little to compare, the offsets of the walk must be without holes: counting over a hole could count too far and leave
records out.

``fence_and_prove`` fences a producer in our own topics before their contents are trusted. It reads the markers back,
because only they prove a fence (docs/broker-facts.md#c3). MirrorMaker 2 trusts the coordinator's answer.
"""

from __future__ import annotations

import random
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from mm2py.clock import Clock
from mm2py.copying.planning.rebuild import UNREADABLE
from mm2py.copying.planning.steps import Outgoing, Step
from mm2py.copying.reading.log_reader import LogReader, LogStretch
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import Brokers, FetchedPartition, TopicPartition
from mm2py.kafka.producer.fencing import PreviousProducer
from mm2py.offsets.runs import NewRuns
from mm2py.records.batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    SEQUENCE_MODULUS,
    BatchHeader,
    Record,
    crc_is_right,
    each_record,
    next_sequence,
    read_header,
    split,
)
from mm2py.records.varints import CorruptBatch

MISSES_MOST: Final = 10_000
"""After this many source records that a cleaned target lacks, the search for a later copied record ends."""
REPEATED_FENCES_MOST: Final = 16
"""How many deleted offsets may be markers of repeated fences, without a record among them."""
_HALF: Final = SEQUENCE_MODULUS // 2


class LastWriter(NamedTuple):
    """The last producer of a remote partition, and the sequence after what the position covers."""

    producer_id: int
    epoch: int
    next_sequence: int


class Content(NamedTuple):
    """What makes a record the same on both sides."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    """None if the target sets its own."""


@dataclass(slots=True)
class ForeignRecords:
    """What one other producer wrote to a remote partition. Offsets are the target's, the last one inclusive."""

    first_offset: int
    last_offset: int
    records: int


class Tail:
    """The end of a remote partition, from an offset on, filled read by read.

    Once the tail ``is_whole``, ``stored`` says how many records of the writer follow the position.
    """

    def __init__(
        self,
        from_offset: int,
        writer: LastWriter,
        *,
        fence_epoch: int | None,
        end: int | None = None,
        known_ids: frozenset[int] = frozenset(),
        keep_records: bool = False,
    ) -> None:
        """Begin at the target offset of a position.

        Args:
            writer: the producer whose batches are counted.
            fence_epoch: a marker of the writer's id with at least this epoch ends the tail. None: the writer could not
                be fenced. The tail then ends where the partition ended at the first read, which proves nothing.
            end: without a fence epoch, the tail ends at this offset instead.
            known_ids: producer ids that are not foreign.
            keep_records: keep the contents of all of the writer's records, for ``Comparison``.
        """
        self.next_offset = from_offset
        self.is_whole = False
        self.cut_at: int | None = None
        """The offset of a batch of the writer that is too near to the position: records before it are lost."""
        self.has_holes = False
        """A sequence is missing: a batch was refused and the next one stored (docs/broker-facts.md#h2), or the cleaner
        or retention has removed it."""
        self.stored = 0
        self.last_batch: bytes | None = None
        """The writer's last batch, if it still has records."""
        self.places = NewRuns()
        """Runs from the number of a record, which begins at 0, to its target offset."""
        self.record_end = from_offset
        """The target offset after the writer's last record."""
        self.is_log_append_time = False
        self.records: list[Content] = []
        self.copies: list[int] = []
        """The target offset of each of these records."""
        self.foreign: dict[int, ForeignRecords] = {}
        """By producer id; -1 for records without one."""
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
        """Its start was deleted before it was read."""
        return self._trimmed_to is not None

    def begin_at(self, log_start: int) -> None:
        """Note where the log begins now. Sequences, or offsets alone, show how many records were before that."""
        if log_start > self.next_offset:
            self.next_offset = self._trimmed_to = self.record_end = log_start

    def last_record(self) -> Record | None:
        """Return the writer's last record, if it is still there and can be decoded."""
        if self.last_batch is None:
            return None
        with suppress(*UNREADABLE):
            return next(iter(deque(each_record(self.last_batch), maxlen=1)), None)
        return None

    def take(self, records: memoryview, *, high_watermark: int) -> bool:
        """Add one read from ``next_offset``, up to the first damaged batch. Return whether the tail is whole."""
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
                self.is_whole = self._fences(header)
            elif header.producer_id == self._writer.producer_id:
                self._take_own(header, batch)
            elif header.producer_id not in self._known_ids:
                self._take_foreign(header)
            self.is_whole = self.is_whole or self._is_at_end()
        if self.is_whole and self._trimmed_to is not None and not self._saw_writer:
            self.stored = self._told_by_offsets(self._trimmed_to)
        return self.is_whole

    def _undamaged(self, records: memoryview) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Yield batches up to the first damaged one, which is read again."""
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
        """Whether an offset is at the end or after it, as the cleaner may have removed the offsets before."""
        return self._fence_epoch is None and self._end is not None and offset >= self._end

    def _told_by_offsets(self, log_start: int) -> int:
        """Return how many records the deleted offsets held, if no batch of the writer is left to show it.

        Each epoch between the writer's and the fence's was another fence, whose marker may be among the deleted
        offsets. Counting a marker as a record could leave a record out, so it is subtracted. Then a record may be
        copied twice.

        A marker that was not read back is written again in the same epoch, so the epochs do not show it. Therefore a
        few offsets may all be markers, and count as no records. More offsets are records: a target whose retention is
        shorter than the age of the records deletes them at once, and they must not be copied again.
        """
        fences = 0 if self._fence_epoch is None else self._fence_epoch - self._writer.epoch - 1
        told = log_start - self._from_offset - max(0, fences)
        return told if told > REPEATED_FENCES_MOST else 0

    def _fences(self, header: BatchHeader) -> bool:
        return (
            header.producer_id == self._writer.producer_id
            and self._fence_epoch is not None
            and header.producer_epoch >= self._fence_epoch
        )

    def _take_own(self, header: BatchHeader, batch: memoryview) -> None:
        if header.producer_epoch != self._writer.epoch:
            return  # from before its epoch was raised: the position covers this batch
        self._saw_writer = True
        if self.cut_at is None and self._is_too_near(header):
            self.cut_at = header.base_offset
        self.has_holes |= header.base_sequence != self._next_sequence
        after = self._next_sequence = next_sequence(header.base_sequence, header.last_offset_delta + 1)
        ahead = (after - self._writer.next_sequence) % SEQUENCE_MODULUS
        if self.stored < ahead < _HALF:
            self.stored = ahead
            count = header.last_offset_delta + 1
            self.places.add(ahead - count, header.base_offset, count)
            self.record_end = header.base_offset + count
        self.last_batch = bytes(batch) if header.record_count else None
        self.is_log_append_time = header.is_log_append_time
        if self._keep_records and header.record_count:
            timed = not header.is_log_append_time
            with suppress(*UNREADABLE):  # then it counts as cleaned
                for record in each_record(batch):
                    self.records.append(_content(record, timed=timed))
                    self.copies.append(record.offset)

    def _is_too_near(self, header: BatchHeader) -> bool:
        """Whether the log has fewer offsets than the writer wrote records up to this batch: then it was cut back.

        The story: an unclean leader lacks the batches that were stored last, and accepts those in flight as if nothing
        were missing. The log soon reaches beyond the position again, so its end does not show the loss.
        """
        written = (header.base_sequence - self._writer.next_sequence) % SEQUENCE_MODULUS
        return written < _HALF and header.base_offset - self._from_offset < written

    def _take_foreign(self, header: BatchHeader) -> None:
        last = header.next_offset - 1
        met = self.foreign.setdefault(header.producer_id, ForeignRecords(header.base_offset, last, 0))
        met.last_offset = last
        met.records += header.record_count


class SourceWalk:
    """Counts source records from a position on, until it has seen as many as the target has.

    Steps come from ``plan``, so the same batches are dropped as in copying.
    """

    def __init__(self, from_offset: int, leader_epoch: int, records: int) -> None:
        self.resume_offset = from_offset
        self.leader_epoch = leader_epoch
        self.last: Record | None = None
        """The last record counted, with its source offset."""
        self.counted = NewRuns()
        """Runs from the source offset of a record to its number, which begins at 0."""
        self._left = self._records = records
        self._from_offset = from_offset
        self._seen = 0
        """Source offsets that held a counted record, a marker, or a record that the transforms have left out."""
        self._aborted = 0
        """Source offsets that held a record of an aborted transaction."""

    @property
    def is_over(self) -> bool:
        """All records were counted. Copying continues at ``resume_offset``."""
        return self._left == 0

    @property
    def is_dense(self) -> bool:
        """Each offset held a counted record, a marker or a filtered record, so none was removed since."""
        return self.resume_offset - self._from_offset == self._seen

    @property
    def has_holes(self) -> bool:
        """Offsets are missing: they hold not even a marker or an aborted record."""
        return self.resume_offset - self._from_offset > self._seen + self._aborted

    def take(self, steps: Iterable[Step]) -> bool:
        """Count what these steps would copy. Return ``is_over``."""
        for step in steps:
            if not self._left:
                break
            self.leader_epoch = step.leader_epoch
            if not isinstance(step, Outgoing):
                self.resume_offset = step.next_offset
                self._seen += step.record_count if step.reason in {"control", "filtered"} else 0
                self._aborted += step.record_count if step.reason == "aborted" else 0
                continue
            counted = min(self._left, step.record_count)
            starts = [start for start in step.runs() if start[0] < counted]
            self.counted.add_batch(starts, self._records - self._left, counted)
            self._left -= counted
            self._seen += counted + (step.filtered if counted == step.record_count else 0)
            self.resume_offset = offset_of(step, counted)
            if not self._left:
                with suppress(*UNREADABLE):
                    self.last = next(islice(each_record(step.data), counted - 1, None), None)
        return self.is_over

    def is_proven_by(self, tail: Tail) -> bool:
        """Whether the count is certain: the last record is that of the tail, or no offset is missing."""
        last = tail.last_record()
        if last is None or self.last is None:
            return self.is_dense
        timed = not tail.is_log_append_time
        same = _content(self.last, timed=timed) == _content(last, timed=timed)
        return same and (timed or self.is_dense)  # without timestamps many records look the same

    def shows_another_isolation(self, tail: Tail) -> bool:
        """Whether the tail was copied by this walk, which has another isolation level than the current one.

        This is stricter than ``is_proven_by``, as the level is a guess: no offset may be missing, with those of aborted
        transactions counted, and the last record must be that of the tail, including its timestamp.
        """
        last = tail.last_record()
        if last is None or self.last is None or tail.is_log_append_time:
            return False
        same = _content(self.last, timed=True) == _content(last, timed=True)
        return same and not self.has_holes


class Comparison:
    """Looks up source records in a tail, in order. Copying continues with the first record that is not there.

    It is for sources that read differently than when they were copied. Cleaning only removes records, so those left
    are in the tail in the same order. Copied records took at least as many offsets as there were records, so no record
    below ``position + stored`` needs copying. In uncertain cases records are copied again, and none is left out.
    """

    def __init__(self, from_offset: int, leader_epoch: int, tail: Tail, *, log_start: int = 0) -> None:
        """``log_start``: where the source begins now."""
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
        self._records = deque(zip(tail.records, tail.copies, strict=True))
        self.matches = NewRuns()
        """Runs from source to target offsets of records that were found and are unlike all others in the tail."""
        self._where: dict[Content, int] = {}
        for record in tail.records:
            self._where[record] = self._where.get(record, 0) + 1
        self._unique = {record for record, times in self._where.items() if times == 1}

    @property
    def rewritten(self) -> tuple[int, int] | None:
        """Source offsets (first, last) of copied records that the source has replaced by others."""
        return (self._certain_to, self._copied_to - 1) if self._rewritten else None

    @property
    def resume_offset(self) -> int:
        return self._certain_to if self._rewritten else max(self._certain_to, self._copied_to)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the record before ``resume_offset``; -1 if this record was not seen."""
        return self._epoch if self.resume_offset == self._certain_to else -1

    def take(self, steps: Iterable[Step]) -> bool:
        """Look up what these steps would copy. Return whether copying continues within or before them."""
        for step in steps:
            if isinstance(step, Outgoing):
                try:
                    for index, record in enumerate(each_record(step.data)):
                        after = offset_of(step, index + 1)
                        if not self._look_up(record, offset_of(step, index), after, step.leader_epoch):
                            return True
                except UNREADABLE:
                    return True  # none of it can be found
            elif self._certain_to == step.next_offset - step.record_count:
                self._certain_to, self._epoch = step.next_offset, step.leader_epoch
        return not self._records and self._certain_to >= self._copied_to

    def _look_up(self, record: Record, offset: int, next_offset: int, epoch: int) -> bool:
        """Look up one record. Return False if copying continues with it."""
        content = _content(record, timed=self._timed)
        copy = self._find(content)
        found, is_below = copy is not None, offset < self._copied_to
        if copy is not None:
            self._may_be_deleted = False
            if self._timed and content in self._unique:
                self.matches.add(offset, copy, 1)
        elif is_below and not self._is_explained(record):
            self._rewritten = True  # another record replaces a copied one: the source was cut back
            self._certain_to, self._epoch = offset, -1
        if self._rewritten:
            return False
        if not found and not is_below:  # not copied; or copied and cleaned, then a later one may be there
            self._misses += 1
            return self._is_cleaned and self._is_explained(record) and self._misses <= MISSES_MOST
        if is_below or content in self._unique:
            self._certain_to, self._epoch, self._misses = next_offset, epoch, 0
        return True

    def _is_explained(self, record: Record) -> bool:
        """Whether the target may have removed a copy: a later one of its key, an old tombstone, or retention."""
        if not self._is_cleaned:
            return False  # the target still has all that was copied
        return record.key in self._keys or (record.key is not None and record.value is None) or self._may_be_deleted

    def _find(self, wanted: Content) -> int | None:
        """Remove records up to the wanted one, and return its target offset; None if it is not there."""
        if not self._where.get(wanted):
            return None
        while True:
            found, copy = self._records.popleft()
            self._where[found] -= 1
            if found == wanted:
                return copy


def _content(record: Record, *, timed: bool) -> Content:
    return Content(record.key, record.value, tuple(record.headers), record.timestamp_ms if timed else None)


def offset_of(step: Outgoing, index: int) -> int:
    """Return the source offset of a record of a batch. After the last record it is where copying continues."""
    if index == step.record_count:
        return step.next_offset
    at, offset = max(run for run in step.runs() if run[0] <= index)
    return offset + index - at


MARKER_PATIENCE_S: Final = 1.0
"""How long a marker may take while its partition has a leader. Then it is written again (docs/broker-facts.md#c3)."""


class TailStretch(LogStretch):
    """Fills a ``Tail``. If the tail is not whole at the end, its marker is missing or the topic was recreated."""

    def __init__(self, topic: str, topic_id: uuid.UUID | None, partition: int, tail: Tail, clock: Clock) -> None:
        super().__init__(topic, topic_id, partition, clock)
        self.tail = tail
        self._before = tail.next_offset

    @property
    def offset(self) -> int:
        return self.tail.next_offset

    def decode(self, fetched: FetchedPartition) -> None:
        self._before = self.offset
        self.tail.take(fetched.records, high_watermark=fetched.high_watermark)

    def take(self, fetched: FetchedPartition) -> bool:
        if self.tail.is_whole or fetched.error_code == OFFSET_OUT_OF_RANGE:
            return True
        if self.offset > self._before:
            self._give_up_at_s = float("inf")
        return not self._is_patient(MARKER_PATIENCE_S)


async def fence_and_prove(
    brokers: Brokers,
    producer: PreviousProducer,
    topics: Sequence[TopicMetadata],
    *,
    clock: Clock,
    rng: random.Random,
) -> int:
    """Fence a producer in all partitions of topics, and return when markers that were read back prove the fence.

    Args:
        topics: fresh metadata; partitions without a leader are left out.
    Returns:
        The epoch of the fence, for fences of the same producer in other topics.
    Raises:
        NotFenceable: it cannot be fenced.
        KafkaError: a retriable error; call it again.
    Cancelling loses nothing: markers that were not read back do no harm.
    """
    metadata = {topic.name: topic for topic in topics}
    left = ends = await _ends(brokers, topics)
    writer = LastWriter(producer.producer_id, producer.epoch, 0)
    while True:  # again if a leader was away and its marker was left out (docs/broker-facts.md#c3)
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
