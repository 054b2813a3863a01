"""What becomes of each fetched batch: passed as bytes, repacked with others, rebuilt record by record, or dropped.

Answers to the copying in MM2's ``MirrorSourceTask``.

MM2 decodes every record and encodes it again. Here a batch is passed as it is wherever the target's broker takes it so,
and decoded only where it must be: offsets are missing in it (brokers refuse a batch whose last offset delta does not
fit its record count), its timestamps are the source's log append times, the copy starts inside it, it is too large for
the target, of an old format, or compressed with another codec than is wanted.

Keys, values and headers are copied as the bytes they are; nothing here knows what they mean.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from crc32c import crc32c

from mm2py.errors import Mm2Error
from mm2py.records.batch import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    INT64_MAX,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    assemble,
    read_header,
    read_raw,
    varint,
)
from mm2py.records.compression import (
    DECOMPRESSED_MAX_BYTES,
    Codec,
    CompressedDataCorrupt,
    DecompressionBomb,
    UnknownCodec,
    decompress,
)
from mm2py.records.message_set import CorruptMessage, Message, WrongCrc, append_record, read_message, unwrap
from mm2py.records.transactions import AbortedTransactions
from mm2py.replication.repack import (
    GROWTH_BYTES,
    MERGED_MAX_BYTES,
    MERGED_PLAIN_MAX_BYTES,
    PASS_ALL,
    MergeRule,
    merge,
)

RebuildReason = Literal[
    "offset gaps", "log append time", "straddles start", "too large", "old format", "compression", "null key", "repack"
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


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What the target's topic, and the flow's producer settings, ask of a batch."""

    max_message_bytes: int
    """The remote topic's ``max.message.bytes``: compared with a whole batch, its first 12 bytes included."""
    compression: int | None = None
    """The codec every batch must have, or None to leave each as it is."""
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


def plan(
    records: memoryview,
    *,
    wanted_offset: int,
    read_committed: bool,
    aborted: Sequence[tuple[int, int]],
    rules: TargetRules,
    merging: MergeRule = PASS_ALL,
    sent_before: Sequence[tuple[int, int]] = (),
) -> Plan:
    """Decide what becomes of each batch in ``records``.

    Args:
        records: one partition's part of a fetch reply, batches in the order of the log. A cut last batch is ignored.
        wanted_offset: the source offset to copy from; records below it are left out.
        read_committed: leave out records of aborted transactions.
        aborted: (producer id, first offset) of each aborted transaction, as the fetch reply names them, in any order.
        rules: what the target asks for.
        merging: which batches are made one with their neighbours.
        sent_before: (first, next) source offset of each batch that was sent and not acknowledged, in order. They are
            cut in the same way again, whatever ``merging`` says: only then does the target recognise a repeat. One that
            is not here whole is left for a larger read.
    Returns:
        The steps, in order and without holes: the first begins at ``wanted_offset``, each where the last one ended.
        Nothing in ``records`` makes it raise; whatever is wrong there is the plan's ``fault``.
    """
    return _Planner(
        records, wanted_offset, read_committed, aborted, rules, merging=merging, sent_before=sent_before
    ).run()


class _Stop(Exception):
    """Planning ends here, with this fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class _Body(NamedTuple):
    """The decompressed records of one source batch, in the encoding of magic 2, and what its header said of them."""

    data: bytes | bytearray
    base_offset: int
    next_offset: int
    base_timestamp_ms: int
    record_count: int
    one_timestamp: bool
    """All records have ``base_timestamp_ms``, whatever stands in them."""
    leader_epoch: int
    codec: int


class _Planner:
    """One call of ``plan``: what it has decided so far."""

    __slots__ = (
        "aborted",
        "decoded_bytes",
        "log_offset",
        "merging",
        "plan",
        "read_committed",
        "records",
        "rules",
        "sent_before",
        "together",
        "waits",
        "wanted_offset",
    )

    def __init__(
        self,
        records: memoryview,
        wanted_offset: int,
        read_committed: bool,
        aborted: Sequence[tuple[int, int]],
        rules: TargetRules,
        *,
        merging: MergeRule,
        sent_before: Sequence[tuple[int, int]],
    ) -> None:
        self.records = records
        self.merging = merging
        self.sent_before = deque(sent_before)
        self.together: list[memoryview] = []
        """Batches that may become one with those that follow; all of one codec and one leader epoch."""
        self.waits = False
        """Messages of an old format that were sent as one batch are not all here."""
        self.wanted_offset = wanted_offset
        self.read_committed = read_committed
        self.aborted = AbortedTransactions(aborted if read_committed else ())
        self.rules = rules
        self.plan = Plan(next_offset=wanted_offset)
        self.decoded_bytes = 0
        self.log_offset = 0
        """Where the last batch seen ended: offsets never fall within a log."""

    def run(self) -> Plan:
        plan = self.plan
        try:
            self._walk()
        except _Stop as stop:
            if not self.together:  # else what stands before it comes first
                plan.fault = stop.fault
        if plan.steps:
            plan.next_offset = plan.steps[-1].next_offset
        elif self.together or self.waits:  # not all of what was sent as one batch is here
            plan.cut_batch_bytes = 2 * len(self.records)
        return plan

    def _walk(self) -> None:
        """Go through the batches. What passes is decided in this one loop, without a call per batch: the hot path."""
        records, end = self.records, len(self.records)
        rules, wanted_offset, read_committed = self.rules, self.wanted_offset, self.read_committed
        max_message_bytes, wanted_codec = rules.max_message_bytes, rules.compression
        takes = [codec in _KNOWN_CODECS and not rules.compacted for codec in range(8)]
        append = self.plan.steps.append
        unpack_header = HEADER.unpack_from
        merging, together, sent_before = self.merging, self.together, self.sent_before
        mergeable = [merging.plain_max_bytes, *[merging.compressed_max_bytes] * 7]
        if wanted_codec is not None:  # those of other codecs are taken apart anyhow
            mergeable = [
                max(size, merging.plain_max_bytes * (codec != wanted_codec)) for codec, size in enumerate(mergeable)
            ]
        merged_max_bytes = min(max_message_bytes, rules.merged_max_bytes)
        room = before_codec = before_epoch = 0
        position = 0
        while position + MAGIC_AT < end:
            magic = records[position + MAGIC_AT]
            if magic != MAGIC:
                if together and not self._make_one():
                    return
                begin, position = position, self._old_formats(position, magic)
                if self.waits:
                    return
                if position == begin or self.decoded_bytes >= rules.decode_budget_bytes:
                    break
                continue
            if position + HEADER_BYTES > end:
                break
            (
                base_offset,
                length,
                leader_epoch,
                _,
                crc,
                attributes,
                last_offset_delta,
                base_timestamp_ms,
                max_timestamp_ms,
                producer_id,
                _,
                _,
                record_count,
            ) = unpack_header(records, position)
            size = length + LOG_OVERHEAD_BYTES
            batch_end = position + size
            if size < HEADER_BYTES:
                raise self._stop("corrupt records", base_offset, None, f"A batch has a length of {length}.")
            if batch_end > end:
                break
            if crc32c(records[position + CHECKED_FROM : batch_end]) != crc:
                raise self._stop("crc mismatch", base_offset, None, "A batch's checksum does not fit its bytes.")
            next_offset = base_offset + last_offset_delta + 1
            if base_offset < self.log_offset or last_offset_delta < 0 or record_count < 0 or next_offset > INT64_MAX:
                text = (
                    f"A batch of {record_count} records claims the offsets {base_offset} to {next_offset - 1}, "
                    f"the one before it ended at {self.log_offset}."
                )
                raise self._stop("corrupt records", base_offset, None, text)
            self.log_offset = next_offset
            batch = records[position:batch_end]
            position = batch_end
            if attributes & (CONTROL | TRANSACTIONAL):
                if attributes & CONTROL:
                    if together and not self._make_one():
                        return
                    if read_committed:
                        self._pass_marker(base_offset, next_offset, producer_id, batch)
                    append(Dropped(max(next_offset, wanted_offset), record_count, "control", leader_epoch))
                    continue
                self.plan.transactional = True
                if read_committed and self.aborted.covers(next_offset - 1, producer_id):
                    if together and not self._make_one():
                        return
                    append(Dropped(max(next_offset, wanted_offset), record_count, "aborted", leader_epoch))
                    continue
            if (
                base_offset >= wanted_offset
                and last_offset_delta + 1 == record_count
                and size <= max_message_bytes
                and takes[attributes & CODEC_MASK]
                and not attributes & LOG_APPEND_TIME
            ):
                codec = attributes & CODEC_MASK
                if sent_before and self._is_as_before(batch, base_offset, next_offset):
                    if self.decoded_bytes >= rules.decode_budget_bytes:
                        return
                    continue
                if size <= mergeable[codec] and base_timestamp_ms >= 0:
                    grown = size + GROWTH_BYTES * record_count
                    if (
                        together
                        and (codec != before_codec or leader_epoch != before_epoch or grown > room)
                        and not self._make_one()
                    ):
                        return
                    if not together:
                        room, before_codec, before_epoch = merged_max_bytes, codec, leader_epoch
                    together.append(batch)
                    room -= grown
                    continue
                if wanted_codec is None or codec == wanted_codec:
                    if together and not self._make_one():
                        return
                    append(Outgoing(base_offset, next_offset, record_count, max_timestamp_ms, leader_epoch, batch))
                    continue
            if together and not self._make_one():
                return
            if next_offset <= wanted_offset:
                append(Dropped(wanted_offset, record_count, "below start", leader_epoch))
            elif record_count == 0:
                append(Dropped(next_offset, 0, "empty", leader_epoch))
            else:
                self._decode(BatchHeader._make(unpack_header(batch)), batch)
                if self.decoded_bytes >= rules.decode_budget_bytes:
                    return
        if together and not sent_before:
            self._make_one()
        if position == 0 and end > 0:
            self._note_cut()

    def _is_as_before(self, batch: memoryview, base_offset: int, next_offset: int) -> bool:
        """Plan a batch that may be part of one that was sent before: that one ends where it ended then.

        Returns:
            False if none that was sent reaches so far: nothing is planned then.
        """
        sent_before, together = self.sent_before, self.together
        while sent_before and sent_before[0][1] <= base_offset:  # that one was rebuilt, or its end is gone
            sent_before.popleft()
            self._make_one(self.rules.max_message_bytes)
        if not sent_before:
            return False
        if together and not _are_alike(together[0], batch):
            self._make_one(self.rules.max_message_bytes)
        together.append(batch)
        first_sent, next_sent = sent_before[0]
        if base_offset < first_sent or next_offset >= next_sent:
            if next_offset >= next_sent:
                sent_before.popleft()
            self._make_one(self.rules.max_message_bytes)
        return True

    def _make_one(self, max_bytes: int | None = None) -> bool:
        """Plan the batches that stand together: as one, or as few as can be made of them.

        Args:
            max_bytes: another limit of a merged batch than that of the rules.
        Returns:
            Whether planning may go on. If not, those that are not planned yet still stand together.
        """
        rules, together = self.rules, self.together
        waiting = deque(together)
        together.clear()  # planning a batch that stands alone may end in a fault, behind which nothing comes
        while waiting:
            if not self._make_one_of(waiting, min(max_bytes or rules.merged_max_bytes, rules.max_message_bytes)):
                self._plan_alone(waiting.popleft())
            if self.decoded_bytes >= rules.decode_budget_bytes:
                together += waiting
                return False
        return True

    def _make_one_of(self, waiting: deque[memoryview], max_bytes: int) -> bool:
        """Take the first of these batches out and plan them as one, if that can be done."""
        if len(waiting) < 2:
            return False
        rules = self.rules
        codec = waiting[0][ATTRIBUTES_AT] & CODEC_MASK
        as_codec = codec if rules.compression is None else rules.compression
        plain_max_bytes = max_bytes if as_codec == Codec.NONE else MERGED_PLAIN_MAX_BYTES
        merged = merge(waiting, codec, as_codec=as_codec, max_bytes=min(plain_max_bytes, rules.decompressed_max_bytes))
        self.decoded_bytes += merged.plain_bytes
        if merged.data is None:
            return False
        parts = [waiting.popleft() for _ in range(merged.batch_count)]
        if len(merged.data) > max_bytes:
            for part in parts:
                self._plan_alone(part)
            return True
        one, first, last = read_header(merged.data), read_header(parts[0]), read_header(parts[-1])
        jumps = () if last.next_offset - first.base_offset == one.record_count else _jumps(parts)
        self.plan.steps.append(
            Outgoing(
                first.base_offset,
                last.next_offset,
                one.record_count,
                one.max_timestamp_ms,
                last.partition_leader_epoch,
                merged.data,
                "repack",
                jumps,
            )
        )
        return True

    def _plan_alone(self, batch: memoryview) -> None:
        """Plan a batch that might have been merged: passed, unless another codec is wanted."""
        header = read_header(batch)
        if self.rules.compression in (None, header.codec):
            self.plan.steps.append(_passed(batch))
        else:
            self._decode(header, batch)

    def _note_cut(self) -> None:
        """Note how large the first batch is, which is cut."""
        size = HEADER_BYTES
        if len(self.records) >= LOG_OVERHEAD_BYTES:
            offset, length = _OFFSET_AND_LENGTH.unpack_from(self.records)
            size = length + LOG_OVERHEAD_BYTES
            if size <= len(self.records):
                raise self._stop("corrupt records", offset, None, f"A batch has a length of {length}.")
        self.plan.cut_batch_bytes = size

    def _pass_marker(self, base_offset: int, next_offset: int, producer_id: int, batch: memoryview) -> None:
        try:
            self.aborted.pass_marker(next_offset - 1, producer_id, batch)
        except _UNREADABLE as error:
            raise self._stop(_kind(error), base_offset, next_offset, f"A control batch: {error.what}") from error

    def _decode(self, header: BatchHeader, batch: memoryview) -> None:
        """Plan a batch that cannot pass by its header alone."""
        rules, codec = self.rules, header.codec
        try:
            data = decompress(codec, batch[HEADER_BYTES:], max_bytes=rules.decompressed_max_bytes)
        except _UNREADABLE as error:
            raise self._stop(_kind(error), header.base_offset, header.next_offset, error.what) from error
        self.decoded_bytes += len(data)
        one_timestamp = header.is_log_append_time
        body = _Body(
            data,
            header.base_offset,
            header.next_offset,
            header.max_timestamp_ms if one_timestamp else header.base_timestamp_ms,
            header.record_count,
            one_timestamp,
            header.partition_leader_epoch,
            codec if rules.compression is None else rules.compression,
        )
        reason: RebuildReason | None = None
        if header.base_offset < self.wanted_offset:
            reason = "straddles start"
        elif one_timestamp:
            reason = "log append time"
        elif header.last_offset_delta + 1 != header.record_count:
            reason = "offset gaps"
        elif body.codec != codec:
            reason = "compression"
            if not rules.compacted and self._recompress(body, header.max_timestamp_ms):
                return
        elif header.size_bytes > rules.max_message_bytes:
            reason = "too large"
        self._rebuild(body, reason, batch, header.max_timestamp_ms)

    def _recompress(self, body: _Body, max_timestamp_ms: int) -> bool:
        """Plan a batch whose records stay as they are, if it still fits."""
        batch = assemble(
            body.data,
            codec=body.codec,
            record_count=body.record_count,
            base_timestamp_ms=body.base_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
        )
        if len(batch) > self.rules.max_message_bytes:
            return False
        self.plan.steps.append(
            Outgoing(
                body.base_offset,
                body.next_offset,
                body.record_count,
                max_timestamp_ms,
                body.leader_epoch,
                batch,
                "compression",
            )
        )
        return True

    def _rebuild(
        self, body: _Body, reason: RebuildReason | None, batch: memoryview | None, max_timestamp_ms: int
    ) -> None:
        """Plan the records of ``body`` from the wanted offset on; without a reason ``batch`` passes if all are fine."""
        steps = self.plan.steps
        try:
            kept = _survey(body, self.wanted_offset - body.base_offset, self.rules.compacted)
        except CorruptBatch as error:
            raise self._stop("corrupt records", body.base_offset, body.next_offset, error.what) from error
        if kept.null_key_delta is None and reason is None and batch is not None:
            steps.append(
                Outgoing(
                    body.base_offset,
                    body.next_offset,
                    body.record_count,
                    max_timestamp_ms,
                    body.leader_epoch,
                    batch,
                )
            )
            return
        refused_offset = None if kept.null_key_delta is None else body.base_offset + kept.null_key_delta
        if kept.record_count:
            end_offset = body.next_offset if refused_offset is None else refused_offset
            self._emit(body, kept.position, kept.record_count, end_offset, reason or "null key")
        elif refused_offset is None:
            steps.append(
                Dropped(max(body.next_offset, self.wanted_offset), body.record_count, "below start", body.leader_epoch)
            )
        if refused_offset is not None:
            text = f"The record at offset {refused_offset} has no key, which a compacted topic does not take."
            raise self._stop("null key on compacted target", refused_offset, refused_offset + 1, text)

    def _emit(
        self, body: _Body, position: int, record_count: int, next_offset: int | None, reason: RebuildReason
    ) -> int:
        """Plan ``record_count`` records from ``position`` on, in as many batches as it takes.

        Args:
            next_offset: the source offset after them, or None for the one after the last.
        Returns:
            The position after them.
        """
        copied = _renumber(body, position, record_count)
        end_position, first_offset = copied.end_position, copied.first_offset
        batch = assemble(
            copied.data,
            codec=body.codec,
            record_count=record_count,
            base_timestamp_ms=body.base_timestamp_ms,
            max_timestamp_ms=copied.max_timestamp_ms,
        )
        if len(batch) <= self.rules.max_message_bytes:
            self.plan.steps.append(
                Outgoing(
                    first_offset,
                    copied.last_offset + 1 if next_offset is None else next_offset,
                    record_count,
                    copied.max_timestamp_ms,
                    body.leader_epoch,
                    batch,
                    reason,
                    copied.jumps,
                )
            )
            return end_position
        if record_count == 1:
            text = (
                f"The record at offset {first_offset} makes a batch of {len(batch)} bytes, "
                f"the target takes {self.rules.max_message_bytes}."
            )
            raise self._stop("too large", first_offset, first_offset + 1, text)
        del copied, batch  # each may be as large as the limit for decompressed data
        half = record_count // 2
        middle = self._emit(body, position, half, None, reason)
        return self._emit(body, middle, record_count - half, next_offset, reason)

    def _old_formats(self, position: int, magic: int) -> int:
        """Plan what stands at ``position``, of another magic than 2, and return the position after it.

        A cut message is left where it stands. Messages that are not compressed stand one by one in the log; neighbours
        become one batch, which ends where it ended if it was sent before.
        """
        records, end = self.records, len(self.records)
        offset, length = _OFFSET_AND_LENGTH.unpack_from(records, position)
        if magic not in _OLD_MAGICS:
            raise self._stop("unknown magic", offset, None, f"A batch has magic {magic}; known are 0, 1 and 2.")
        group: _Group | None = None
        trouble: _Stop | None = None
        group_end, was_sent, is_cut = INT64_MAX, False, True
        while position + MAGIC_AT < end and records[position + MAGIC_AT] in _OLD_MAGICS:
            offset, length = _OFFSET_AND_LENGTH.unpack_from(records, position)
            if position + LOG_OVERHEAD_BYTES + length > end:
                break
            try:
                message, message_end = read_message(records, position, end)
                if message.codec != Codec.NONE:
                    is_cut = False
                    if group is None:
                        group = self._unwrap(message)
                        position = message_end
                    break
                if group is None:
                    group = _Group(message)
                    group_end, was_sent = self._end_as_before(message.offset)
                elif message.offset >= group_end or not group.has_room(message, self.rules.max_message_bytes):
                    is_cut = False
                    break
                group.add(message)
                position = message_end
            except (CorruptMessage, *_UNREADABLE) as error:
                kind = _kind(error)
                text = error.what if isinstance(error, Mm2Error) else f"In an old message format, {error}."
                trouble = self._stop(kind, offset, None if kind == "crc mismatch" else offset + 1, text)
                break
        is_cut = (
            is_cut and trouble is None and not (position + MAGIC_AT < end and records[position + MAGIC_AT] == MAGIC)
        )
        if group is not None and was_sent and is_cut and group.next_offset < group_end:
            self.waits = True
        elif group is not None:
            self._rebuild_old(group)
        if trouble is not None:
            raise trouble
        return position

    def _end_as_before(self, offset: int) -> tuple[int, bool]:
        """Return before which offset a batch that begins at ``offset`` ends, and whether it was sent before."""
        sent_before = self.sent_before
        while sent_before and sent_before[0][1] <= offset:
            sent_before.popleft()
        if not sent_before:
            return INT64_MAX, False
        first_sent, next_sent = sent_before[0]
        return (next_sent, True) if offset >= first_sent else (first_sent, False)

    def _unwrap(self, wrapper: Message) -> _Group:
        group: _Group | None = None
        for message in unwrap(wrapper, max_bytes=self.rules.decompressed_max_bytes):
            if group is None:
                group = _Group(message)
            group.add(message)
        if group is None:
            raise CorruptMessage("a compressed message holds no message")
        group.codec = wrapper.codec
        group.next_offset = max(group.next_offset, wrapper.offset + 1)
        return group

    def _rebuild_old(self, group: _Group) -> None:
        if group.base_offset < self.log_offset or group.next_offset > INT64_MAX:
            text = f"A message claims offset {group.base_offset}, the batch before it ended at {self.log_offset}."
            raise self._stop("corrupt records", group.base_offset, None, text)
        self.log_offset = group.next_offset
        self.decoded_bytes += len(group.body)
        if group.next_offset <= self.wanted_offset:
            self.plan.steps.append(Dropped(self.wanted_offset, group.record_count, "below start"))
            return
        body = _Body(
            group.body,
            group.base_offset,
            group.next_offset,
            group.base_timestamp_ms,
            group.record_count,
            False,
            -1,
            group.codec if self.rules.compression is None else self.rules.compression,
        )
        self._rebuild(body, "old format", None, NO_TIMESTAMP)

    def _stop(self, kind: FaultKind, offset: int, next_offset: int | None, text: str) -> _Stop:
        """Return a fault to be raised. ``offset`` may be part of the damage: what is planned is not at fault."""
        if self.together and not self.sent_before:
            self._make_one()
        steps = self.plan.steps
        offset = max(offset, steps[-1].next_offset if steps else self.wanted_offset)
        if next_offset is not None and not offset < next_offset <= INT64_MAX:
            next_offset = None
        return _Stop(Fault(kind, offset, next_offset, text))


def _are_alike(one: memoryview, other: memoryview) -> bool:
    """Tell whether two batches may become one: of one codec and one leader epoch."""
    first, second = read_header(one), read_header(other)
    return (first.codec, first.partition_leader_epoch) == (second.codec, second.partition_leader_epoch)


def _jumps(batches: Sequence[memoryview]) -> Sequence[int]:
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


def _passed(batch: memoryview) -> Outgoing:
    header = read_header(batch)
    return Outgoing(
        header.base_offset,
        header.next_offset,
        header.record_count,
        header.max_timestamp_ms,
        header.partition_leader_epoch,
        batch,
    )


_KNOWN_CODECS: Final = frozenset(codec.value for codec in Codec)
_OLD_MAGICS: Final = (0, 1)
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
_UNREADABLE: Final = (CorruptBatch, UnknownCodec, CompressedDataCorrupt, DecompressionBomb)


def _kind(error: Exception) -> FaultKind:
    match error:
        case WrongCrc():
            return "crc mismatch"
        case UnknownCodec():
            return "unknown codec"
        case DecompressionBomb():
            return "decompression bomb"
        case _:
            return "corrupt records"


class _Group:
    """Old messages on their way into one batch."""

    __slots__ = ("base_offset", "base_timestamp_ms", "body", "codec", "next_offset", "record_count")

    def __init__(self, first: Message) -> None:
        self.base_offset = self.next_offset = first.offset
        self.base_timestamp_ms = first.timestamp_ms
        self.body = bytearray()
        self.record_count = 0
        self.codec: int = Codec.NONE

    def has_room(self, message: Message, max_bytes: int) -> bool:
        size = len(self.body) + len(message.key or b"") + len(message.value or b"") + _RECORD_OVERHEAD_MAX_BYTES
        return size + HEADER_BYTES <= max_bytes and message.offset - self.base_offset < _OFFSET_DELTA_END

    def add(self, message: Message) -> None:
        """Append a message.

        Raises:
            CorruptMessage: its offset does not come after the last one's.
        """
        if not self.next_offset <= message.offset < self.base_offset + _OFFSET_DELTA_END:
            raise CorruptMessage(f"a message has offset {message.offset} where at least {self.next_offset} was due")
        append_record(self.body, message, base_offset=self.base_offset, base_timestamp_ms=self.base_timestamp_ms)
        self.next_offset = message.offset + 1
        self.record_count += 1


_RECORD_OVERHEAD_MAX_BYTES: Final = 32
_OFFSET_DELTA_END: Final = 1 << 31


class _Kept(NamedTuple):
    """Which records of a body are to be copied."""

    position: int
    """Where the first of them starts."""
    record_count: int
    null_key_delta: int | None
    """Offset delta of the first record that the target refuses; those before it are fine."""


def _survey(body: _Body, wanted_delta: int, refuse_null_keys: bool) -> _Kept:
    """Check that the records are laid out as records are, and find those from ``wanted_delta`` on.

    Raises:
        CorruptBatch: they are not.
    """
    data = body.data
    size = len(data)
    last_delta = body.next_offset - body.base_offset - 1
    position = kept_from = kept = 0
    previous = -1
    try:
        for _ in range(body.record_count):
            record_at = position
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, record_at)
            end = position + (raw >> 1)
            if raw & 1 or end > size:
                raise CorruptBatch("a record's length does not fit its batch")
            raw = data[position + 1]
            if raw > 127:
                _, position = read_raw(data, position + 1)
            else:
                position += 2
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            delta = raw >> 1
            if raw & 1 or delta <= previous or delta > last_delta:
                raise CorruptBatch("its records' offsets do not rise from its first to its last offset")
            previous = delta
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            if not raw & 1:
                position += raw >> 1
            elif refuse_null_keys and delta >= wanted_delta:
                return _Kept(kept_from, kept, delta)
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            if not raw & 1:
                position += raw >> 1
            raw = data[position]
            position += 1
            if raw:
                position = _skip_headers(data, position - 1)
            if position != end:
                raise CorruptBatch("a record is longer or shorter than it says")
            if delta >= wanted_delta:
                if not kept:
                    kept_from = record_at
                kept += 1
    except IndexError as error:
        raise CorruptBatch("its records end too early") from error
    if position != size:
        raise CorruptBatch(f"{size - position} bytes follow its last record")
    return _Kept(kept_from, kept, None)


def _skip_headers(data: bytes | bytearray, position: int) -> int:
    count, position = read_raw(data, position)
    if count & 1:
        raise CorruptBatch("a record has less than no headers")
    for _ in range(count >> 1):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, position - 1)
        if raw & 1:
            raise CorruptBatch("a header has no key")
        position += raw >> 1
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, position - 1)
        if not raw & 1:
            position += raw >> 1
    return position


class _Copied(NamedTuple):
    """Records with new offset deltas, 0 to n - 1."""

    data: bytearray
    end_position: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    jumps: Sequence[int]


_SHORT_VARINTS: Final = [varint(number) for number in range(1 << 13)]


def _renumber(body: _Body, position: int, record_count: int) -> _Copied:
    """Copy ``record_count`` surveyed records from ``position`` on: only offset deltas change, and, where all records
    have one timestamp, timestamp deltas."""
    data, base_offset, one_timestamp = body.data, body.base_offset, body.one_timestamp
    short_varints, short_count = _SHORT_VARINTS, len(_SHORT_VARINTS)
    out = bytearray()
    jumps = array("q")
    max_timestamp_delta: int | None = None
    first_delta: int | None = None
    expected = 0
    for index in range(record_count):
        record_at = position
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, record_at)
        content_at = position
        end = position + (raw >> 1)
        raw = data[position + 1]
        if raw > 127:
            raw, position = read_raw(data, position + 1)
        else:
            position += 2
        timestamp_delta = (raw >> 1) ^ -(raw & 1)
        if max_timestamp_delta is None or timestamp_delta > max_timestamp_delta:
            max_timestamp_delta = timestamp_delta
        delta_at = position
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, delta_at)
        delta = raw >> 1
        if first_delta is None:
            first_delta = delta
        elif delta != expected:
            jumps.append(index)
            jumps.append(base_offset + delta)
        expected = delta + 1
        number = short_varints[index] if index < short_count else varint(index)
        if one_timestamp:
            length = 2 + len(number) + end - position
            out += short_varints[length] if length < short_count else varint(length)
            out.append(data[content_at])
            out.append(0)
        elif len(number) == position - delta_at:
            out += data[record_at:delta_at]
        else:
            length = delta_at - content_at + len(number) + end - position
            out += short_varints[length] if length < short_count else varint(length)
            out += data[content_at:delta_at]
        out += number
        out += data[position:end]
        position = end
    newest_ms = body.base_timestamp_ms + (0 if one_timestamp else max_timestamp_delta or 0)
    return _Copied(
        out,
        position,
        base_offset + (first_delta or 0),
        base_offset + expected - 1,
        # Java's sums wrap around beyond 64 bits. Nobody means such timestamps, and the target computes its own maximum.
        min(max(newest_ms, NO_TIMESTAMP), INT64_MAX),
        jumps,
    )
