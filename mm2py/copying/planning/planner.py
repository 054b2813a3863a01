"""What becomes of each fetched batch: passed as bytes, repacked with others, rebuilt record by record, or dropped.

MM2 decodes every record and encodes it again. Here a batch passes unchanged wherever the target's broker accepts it,
is repacked where many small ones wait (``merge``), and is decoded only where it must be (``rebuild``). Pure.

Counterpart: the copying in MM2's ``MirrorSourceTask``.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from mm2py.compiled_core import CORE, Core, WalkedGroup, WalkRules
from mm2py.copying.planning.merge import merge
from mm2py.copying.planning.rebuild import UNREADABLE, Heavy, Rebuilder, Stop, kind_of, stopped
from mm2py.copying.planning.steps import (
    GROWTH_BYTES,
    MERGED_PLAIN_MAX_BYTES,
    PASS_ALL,
    Dropped,
    Fault,
    FaultKind,
    MergeRule,
    Outgoing,
    Plan,
    TargetRules,
    are_alike,
    jumps_of,
)
from mm2py.copying.planning.transforming import PartitionTransforms
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
    OFFSET_AND_LENGTH,
    TRANSACTIONAL,
    AbortedTransactions,
    BatchHeader,
    read_header,
    split,
)
from mm2py.records.compression import Codec
from mm2py.records.record_formats import CorruptMessage, MessageGroup, OldMessage, RecordBody, read_message, unwrap


def plan(  # noqa: PLR0913  (tests alone name the core)
    records: memoryview,
    *,
    wanted_offset: int,
    read_committed: bool,
    aborted: Sequence[tuple[int, int]],
    rules: TargetRules,
    merging: MergeRule = PASS_ALL,
    sent_before: Sequence[tuple[int, int]] = (),
    cut_until: int = -1,
    transforms: PartitionTransforms | None = None,
    light: bool = False,
    core: Core | None = CORE,
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
            cut in the same way again, whatever ``merging`` says: only then does the target recognise a repeat. A batch
            that ``records`` do not have as a whole is left for a larger read.
        cut_until: batches that begin below this source offset are cut into smaller ones, down to single records: the
            target refused one of them.
        transforms: what is done to each record; no batch passes or is merged then.
        light: decode no more than one step of the event loop may. If that is not enough, the plan ``is_heavy``.
        core: plans the batches that it can; None: Python plans all of them. The plan is the same.
    Returns:
        The steps, in order and without holes: the first begins at ``wanted_offset``, each other where one ended.
        It never raises for ``records``: what is wrong there is the plan's ``fault``.
    """
    planner = _Planner(
        records,
        wanted_offset,
        read_committed,
        aborted,
        rules,
        merging=merging,
        sent_before=sent_before,
        core=core,
    )
    planner.rebuilder.transforms = transforms
    planner.walks_by_core = planner.walks_by_core and transforms is None
    planner.rebuilder.cut_until = cut_until
    planner.rebuilder.is_light = light
    return planner.run()


class _Planner:
    """One call of ``plan``, and what it has decided so far."""

    __slots__ = (
        "aborted",
        "core",
        "group",
        "log_offset",
        "merging",
        "plan",
        "read_committed",
        "rebuilder",
        "records",
        "rules",
        "sent_before",
        "together",
        "waits",
        "walks_by_core",
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
        core: Core | None,
    ) -> None:
        self.records = records
        self.merging = merging
        self.sent_before = deque(sent_before)
        self.core = core
        self.walks_by_core = core is not None and not sent_before and not (read_committed and aborted)
        """The core plans first. It cannot leave out aborted transactions, cut batches as they were cut before, or
        transform records."""
        self.together: list[memoryview] = []
        """Batches that may be merged with those that follow, all of one codec and one leader epoch."""
        self.group: WalkedGroup | None = None
        """The same, found by the core: then the only element of ``together`` is the stretch that they take."""
        self.waits = False
        """Not all messages of an old format that were sent as one batch are here."""
        self.wanted_offset = wanted_offset
        self.read_committed = read_committed
        self.aborted = AbortedTransactions(aborted if read_committed else ())
        self.rules = rules
        self.plan = Plan(next_offset=wanted_offset)
        self.rebuilder = Rebuilder(rules, wanted_offset, self.plan.steps, sent_before, core)
        self.log_offset = 0
        """Where the last batch seen ended: within a log, offsets never become smaller."""

    def run(self) -> Plan:
        plan = self.plan
        try:
            self._walk()
        except Stop as stop:
            if not self.together:  # else the batches before it are planned first
                plan.fault = stop.fault
        except Heavy:
            return Plan(next_offset=self.wanted_offset, is_heavy=True)
        plan.is_heavy = self.rebuilder.left_bytes <= 0
        if plan.steps:
            plan.next_offset = plan.steps[-1].next_offset
        elif self.together or self.waits:  # not all of what was sent as one batch is here
            plan.cut_batch_bytes = 2 * len(self.records)
        return plan

    def _walk(self) -> None:
        """Go through the batches. This loop is the hot path: it passes batches without a call for each."""
        records, end = self.records, len(self.records)
        rules, wanted_offset, read_committed = self.rules, self.wanted_offset, self.read_committed
        passed_from = max(wanted_offset, self.rebuilder.cut_until)
        max_message_bytes, wanted_codec = rules.max_message_bytes, rules.compression
        may_pass = not rules.refuses_null_keys and self.rebuilder.transforms is None
        takes = [codec in _KNOWN_CODECS and may_pass for codec in range(8)]
        append = self.plan.steps.append
        unpack_header = HEADER.unpack_from
        merging, together, sent_before = self.merging, self.together, self.sent_before
        mergeable = [merging.plain_max_bytes, *[merging.compressed_max_bytes] * 7]
        if wanted_codec is not None:  # those of other codecs are taken apart anyhow
            mergeable = [
                max(size, merging.plain_max_bytes * (codec != wanted_codec)) for codec, size in enumerate(mergeable)
            ]
        merged_max_bytes = min(max_message_bytes, rules.merged_max_bytes)
        records_max = merging.records_max if wanted_codec is None else INT64_MAX  # taken apart anyhow
        walk_rules = WalkRules(
            passed_from,
            max_message_bytes,
            sum(takes[codec] << codec for codec in range(8)),
            -1 if wanted_codec is None else wanted_codec,
            mergeable,
            records_max,
            merged_max_bytes,
        )
        room = before_codec = before_epoch = 0
        position = 0
        while position + MAGIC_AT < end:
            if self.core is not None and self.walks_by_core and not together:
                position = self._walk_by_core(self.core, position, walk_rules)
                if self.rebuilder.is_spent:
                    return
                if position + MAGIC_AT >= end:
                    break
                before_codec = -1  # no batch joins a group that the core found
            magic = records[position + MAGIC_AT]
            if magic != MAGIC:
                if together and not self._make_one():
                    return
                begin, position = position, self._old_formats(position, magic)
                if self.waits:
                    return
                if position == begin or self.rebuilder.is_spent:
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
                base_offset >= passed_from
                and last_offset_delta + 1 == record_count
                and size <= max_message_bytes
                and takes[attributes & CODEC_MASK]
                and not attributes & LOG_APPEND_TIME
            ):
                codec = attributes & CODEC_MASK
                if sent_before and self._is_as_before(batch, base_offset, next_offset):
                    if self.rebuilder.is_spent:
                        return
                    continue
                if size <= mergeable[codec] and record_count <= records_max and base_timestamp_ms >= 0:
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
                self.rebuilder.decode(BatchHeader._make(unpack_header(batch)), batch)
                if self.rebuilder.is_spent:
                    return
        if together and not sent_before:
            self._make_one()
        if position == 0 and end > 0:
            self._note_cut()

    def _walk_by_core(self, core: Core, position: int, rules: WalkRules) -> int:
        """Plan the batches that the core can from ``position`` on, and return the position of the first other one."""
        records, append, wanted_offset = self.records, self.plan.steps.append, self.wanted_offset
        while True:
            position, self.log_offset, transactional, is_closed, rows, group = core.walk(
                records, position, self.log_offset, rules
            )
            self.plan.transactional |= transactional
            for begin, batch_end, first_offset, next_offset, max_timestamp_ms, count, epoch in _ROWS(rows):
                if batch_end > begin:
                    batch = records[begin:batch_end]
                    append(Outgoing(first_offset, next_offset, count, max_timestamp_ms, epoch, batch))
                else:
                    append(Dropped(max(next_offset, wanted_offset), count, "control", epoch))
            if group is not None:
                self.group = WalkedGroup._make(group)
                self.together.append(records[self.group.begin : position])
            if not is_closed or not self._make_one():
                return position

    def _merge_by_core(self, group: WalkedGroup, stretch: memoryview) -> bool:
        """Plan a group of plain batches as one, if the core can merge them."""
        if self.core is None or group.batch_count < 2 or self.rules.compression not in (None, Codec.NONE):
            return False
        merged = self.core.merge_batches((stretch,))
        if merged is None:
            return False
        self.rebuilder.decoded_bytes += len(stretch)
        one = read_header(merged)
        jumps = array("q", group.jumps) if group.jumps else ()
        self.plan.steps.append(
            Outgoing(
                group.first_offset,
                group.next_offset,
                one.record_count,
                one.max_timestamp_ms,
                group.leader_epoch,
                merged,
                "repack",
                jumps,
            )
        )
        return True

    def _is_as_before(self, batch: memoryview, base_offset: int, next_offset: int) -> bool:
        """Plan a batch that may be part of a batch that was sent before, which must end where it ended then.

        Returns:
            False if no batch that was sent reaches so far. Then nothing is planned.
        """
        sent_before, together = self.sent_before, self.together
        while sent_before and sent_before[0][1] <= base_offset:  # it was rebuilt, or its end is gone
            sent_before.popleft()
            self._make_one(self.rules.max_message_bytes)
        if not sent_before:
            return False
        if together and not are_alike(together[0], batch):
            self._make_one(self.rules.max_message_bytes)
        together.append(batch)
        first_sent, next_sent = sent_before[0]
        if base_offset < first_sent or next_offset >= next_sent:
            if next_offset >= next_sent:
                sent_before.popleft()
            self._make_one(self.rules.max_message_bytes)
        return True

    def _make_one(self, max_bytes: int | None = None) -> bool:
        """Plan the batches in ``together`` as one batch, or as few as possible.

        Args:
            max_bytes: another limit of a merged batch than that of the rules.
        Returns:
            Whether planning may continue. If not, the batches that are not planned yet stay in ``together``.
        """
        rules, together = self.rules, self.together
        group, self.group = self.group, None
        if group is None:
            waiting = deque(together)
        elif self._merge_by_core(group, together[0]):
            together.clear()
            return not self.rebuilder.is_spent
        else:
            waiting = deque(split(together[0]))
        together.clear()  # planning a single batch may end in a fault, after which nothing is planned
        while waiting:
            if not self._make_one_of(waiting, min(max_bytes or rules.merged_max_bytes, rules.max_message_bytes)):
                self._plan_alone(waiting.popleft())
            if self.rebuilder.is_spent:
                together += waiting
                return False
        return True

    def _make_one_of(self, waiting: deque[memoryview], max_bytes: int) -> bool:
        """Plan the first of these batches as one, if possible, and remove them."""
        if len(waiting) < 2:
            return False
        rules = self.rules
        codec = waiting[0][ATTRIBUTES_AT] & CODEC_MASK
        as_codec = codec if rules.compression is None else rules.compression
        plain_max_bytes = max_bytes if as_codec == Codec.NONE else MERGED_PLAIN_MAX_BYTES
        rebuilder = self.rebuilder
        if codec == Codec.NONE and rebuilder.is_light:
            size = 0 if as_codec == Codec.NONE else sum(map(len, waiting))
            rebuilder.spend(size, sum(read_header(batch).record_count for batch in waiting))
        most = min(plain_max_bytes, rules.budget.output_bytes)
        room = rebuilder.room(most)
        merged = merge(waiting, codec, as_codec=as_codec, max_bytes=room, core=self.core)
        rebuilder.decoded_bytes += merged.plain_bytes
        if codec != Codec.NONE:
            rebuilder.spend(merged.plain_bytes, 0)
        if merged.data is None:
            return False
        parts = [waiting.popleft() for _ in range(merged.batch_count)]
        if len(merged.data) > max_bytes:
            for part in parts:
                self._plan_alone(part)
            return True
        one, first, last = read_header(merged.data), read_header(parts[0]), read_header(parts[-1])
        jumps = () if last.next_offset - first.base_offset == one.record_count else jumps_of(parts)
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
            self.plan.steps.append(Outgoing.passed(batch))
        else:
            self.rebuilder.decode(header, batch)

    def _note_cut(self) -> None:
        """Note the size of the first batch, which did not come whole."""
        size = HEADER_BYTES
        if len(self.records) >= LOG_OVERHEAD_BYTES:
            offset, length = OFFSET_AND_LENGTH.unpack_from(self.records)
            size = length + LOG_OVERHEAD_BYTES
            if size <= len(self.records):
                raise self._stop("corrupt records", offset, None, f"A batch has a length of {length}.")
        self.plan.cut_batch_bytes = size

    def _pass_marker(self, base_offset: int, next_offset: int, producer_id: int, batch: memoryview) -> None:
        try:
            self.aborted.pass_marker(next_offset - 1, producer_id, batch)
        except UNREADABLE as error:
            raise self._stop(kind_of(error), base_offset, next_offset, f"A control batch: {error.what}") from error

    def _old_formats(self, position: int, magic: int) -> int:
        """Plan the messages at ``position``, whose magic is not 2, and return the position after them.

        A cut message is left for the next read. Messages that are not compressed are stored one by one in the log.
        Neighbours become one batch; a batch that was sent before ends where it ended then.
        """
        records, end = self.records, len(self.records)
        offset, length = OFFSET_AND_LENGTH.unpack_from(records, position)
        if magic not in _OLD_MAGICS:
            raise self._stop("unknown magic", offset, None, f"A batch has magic {magic}; known are 0, 1 and 2.")
        group: MessageGroup | None = None
        trouble: Stop | None = None
        group_end, was_sent, is_cut = INT64_MAX, False, True
        while position + MAGIC_AT < end and records[position + MAGIC_AT] in _OLD_MAGICS:
            offset, length = OFFSET_AND_LENGTH.unpack_from(records, position)
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
                    group = MessageGroup(message)
                    group_end, was_sent = self._end_as_before(message.offset)
                elif message.offset >= group_end or not group.has_room(message, self.rules.max_message_bytes):
                    is_cut = False
                    break
                group.add(message)
                self.rebuilder.spend(message_end - position, 1)
                position = message_end
            except (CorruptMessage, *UNREADABLE) as error:
                self.rebuilder.over_budget(error)
                kind = kind_of(error)
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
        """Return the offset at which a batch from ``offset`` on must end, and whether it was sent before."""
        sent_before = self.sent_before
        while sent_before and sent_before[0][1] <= offset:
            sent_before.popleft()
        if not sent_before:
            return INT64_MAX, False
        first_sent, next_sent = sent_before[0]
        return (next_sent, True) if offset >= first_sent else (first_sent, False)

    def _unwrap(self, wrapper: OldMessage) -> MessageGroup:
        group: MessageGroup | None = None
        for message in unwrap(wrapper, self.rebuilder.budget):
            if group is None:
                group = MessageGroup(message)
            group.add(message)
        if group is None:
            raise CorruptMessage("a compressed message holds no message")
        group.codec = wrapper.codec
        group.next_offset = max(group.next_offset, wrapper.offset + 1)
        return group

    def _rebuild_old(self, group: MessageGroup) -> None:
        if group.base_offset < self.log_offset or group.next_offset > INT64_MAX:
            text = f"A message claims offset {group.base_offset}, the batch before it ended at {self.log_offset}."
            raise self._stop("corrupt records", group.base_offset, None, text)
        self.log_offset = group.next_offset
        if group.next_offset <= self.wanted_offset:
            self.plan.steps.append(Dropped(self.wanted_offset, group.record_count, "below start"))
            return
        self.rebuilder.decoded_bytes += len(group.body)
        if group.codec != Codec.NONE:
            self.rebuilder.spend(len(group.body), group.record_count)
        body = RecordBody(
            group.body,
            group.base_offset,
            group.next_offset,
            group.base_timestamp_ms,
            group.record_count,
            False,
            -1,
            group.codec if self.rules.compression is None else self.rules.compression,
        )
        self.rebuilder.rebuild_old(body)

    def _stop(self, kind: FaultKind, offset: int, next_offset: int | None, text: str) -> Stop:
        """Return a fault to be raised. ``offset`` may be damaged itself; it is raised to the end of what is planned."""
        if self.together and not self.sent_before:
            self._make_one()
        return stopped(Fault(kind, offset, next_offset, text), self.plan.steps, self.wanted_offset)


_ROWS: Final = struct.Struct("=7q").iter_unpack
_KNOWN_CODECS: Final = frozenset(codec.value for codec in Codec)
_OLD_MAGICS: Final = (0, 1)
