"""Rebuilding: batches that cannot pass are decoded, and their records are put into new batches. Pure.

A batch is rebuilt only if

* offsets are missing in it (brokers refuse a batch whose last offset delta does not fit its record count),
* its timestamps are the source's log append times, or the copy starts inside it,
* it is too large for the target, of an old format, or compressed with another codec than is wanted,
* the flow has transforms for the records of its topic.

If the target refuses a record of a batch, the batch is cut into batches of 1, 2, 4, ... records. Those before the
refused record are stored, and the next read starts closer to it, so after a few reads it is alone. Keys, values and
headers are copied as bytes. The compiled core walks and copies records that are laid out as every writer does it.

Counterpart: the consumer and the producer inside MM2, which do so with every batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from mm2py.compiled_core import Core
from mm2py.copying.planning.steps import Dropped, Fault, FaultKind, Outgoing, RebuildReason, Step, TargetRules
from mm2py.copying.planning.transforming import PartitionTransforms, transformed
from mm2py.records.batch import INT64_MAX, NO_TIMESTAMP, BatchHeader, assemble, decoded
from mm2py.records.compression import (
    LIGHT_WORK_BYTES,
    RECORD_WORK_BYTES,
    BatchOverBudget,
    CompressedDataCorrupt,
    DecodeBudget,
    DecompressionBomb,
    UnknownCodec,
)
from mm2py.records.record_formats import (
    KeptRecords,
    RecordBody,
    Renumbered,
    WrongCrc,
    newest_timestamp_ms,
    offsets_of,
    renumber,
    survey,
)
from mm2py.records.varints import CorruptBatch

UNREADABLE: Final = (CorruptBatch, UnknownCodec, CompressedDataCorrupt, BatchOverBudget)
"""What decoding raises; ``kind_of`` says which fault it is."""


TRANSFORM_WORK_RECORDS: Final = 4
"""Transforming a record takes as long as decoding this many."""


class Stop(Exception):
    """Planning ends with this fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class Heavy(Exception):
    """More would have to be decoded than a light plan may."""


def stopped(fault: Fault, steps: list[Step], wanted_offset: int) -> Stop:
    """Return a fault to be raised. Its offset may be damaged itself; it is raised to the end of what is planned."""
    offset = max(fault.offset, steps[-1].next_offset if steps else wanted_offset)
    next_offset = fault.next_offset
    if next_offset is not None and not offset < next_offset <= INT64_MAX:
        next_offset = None
    return Stop(fault._replace(offset=offset, next_offset=next_offset))


def kind_of(error: Exception) -> FaultKind:
    """Return the kind of fault of a batch that cannot be read."""
    match error:
        case WrongCrc():
            return "crc mismatch"
        case UnknownCodec():
            return "unknown codec"
        case DecompressionBomb():
            return "decompression bomb"
        case BatchOverBudget():
            return "over budget"
        case _:
            return "corrupt records"


class Rebuilder:
    """Decodes batches, and appends their steps to one plan."""

    __slots__ = (
        "_core",
        "_part_records",
        "_rules",
        "_sent_before",
        "_steps",
        "_wanted_offset",
        "cut_until",
        "decoded_bytes",
        "is_light",
        "left_bytes",
        "transforms",
    )

    def __init__(
        self,
        rules: TargetRules,
        wanted_offset: int,
        steps: list[Step],
        sent_before: Sequence[tuple[int, int]] = (),
        core: Core | None = None,
    ) -> None:
        self._core = core
        self.is_light = False
        self.transforms: PartitionTransforms | None = None
        """What is done to each record; None: nothing."""
        self.left_bytes = LIGHT_WORK_BYTES
        """How much more a light plan may decode."""
        self.decoded_bytes = 0
        """How many bytes were decoded for this plan."""
        self._rules = rules
        self._wanted_offset = wanted_offset
        self._steps = steps
        self.cut_until = -1
        """Batches that begin below this source offset are cut: the target refused a record of one of them."""
        self._sent_before = dict(sent_before)
        self._part_records = 1
        """How many records the next part of a cut batch has."""

    @property
    def is_spent(self) -> bool:
        """The plan has decoded as much as it may."""
        return self.decoded_bytes >= self._rules.decode_budget_bytes

    @property
    def budget(self) -> DecodeBudget:
        """What decoding the next batch may take."""
        return self._rules.budget.within(self.left_bytes) if self.is_light else self._rules.budget

    def room(self, max_bytes: int) -> int:
        """Return how much of ``max_bytes`` may be decoded now."""
        return min(max_bytes, self.left_bytes) if self.is_light else max_bytes

    def spend(self, size_bytes: int, records: int) -> None:
        """Count what is decoded. Raises: Heavy, it is too much for a light plan."""
        self.left_bytes -= size_bytes + RECORD_WORK_BYTES * records
        if self.is_light and self.left_bytes <= 0:
            raise Heavy

    def over_budget(self, error: Exception) -> None:
        """Handle a batch that exceeds ``budget``. Raises: Heavy, in a light plan: a full plan has a larger budget."""
        if self.is_light and isinstance(error, BatchOverBudget):
            raise Heavy from error

    def decode(self, header: BatchHeader, batch: memoryview) -> None:
        """Plan a batch that cannot pass by its header alone.

        Raises:
            Stop: it cannot be copied.
            Heavy: decoding it takes too much for a light plan.
        """
        rules, codec = self._rules, header.codec
        try:
            data = decoded(header, batch, self.budget)
        except UNREADABLE as error:
            self.over_budget(error)
            raise self._stop(kind_of(error), header.base_offset, header.next_offset, error.what) from error
        size = max(len(batch), len(data))
        self.decoded_bytes += size
        self.spend(size, header.record_count)
        one_timestamp = header.is_log_append_time
        body = RecordBody(
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
        if self.transforms is not None:
            self._transform(body, self.transforms)
            return
        if header.base_offset < self.cut_until:
            reason = "refused"
        elif one_timestamp:
            reason = "log append time"
        elif header.base_offset < self._wanted_offset:
            reason = "straddles start"
        elif header.last_offset_delta + 1 != header.record_count:
            reason = "offset gaps"
        elif body.codec != codec:
            reason = "compression"
            if not rules.refuses_null_keys and self._recompress(body, header.max_timestamp_ms):
                return
        elif header.size_bytes > rules.max_message_bytes:
            reason = "too large"
        self.rebuild(body, reason, batch, header.max_timestamp_ms)

    def rebuild_old(self, body: RecordBody) -> None:
        """Plan the messages of an old format, as the records of a batch. Raises: as ``decode``."""
        if self.transforms is not None:
            self._transform(body, self.transforms)
        else:
            self.rebuild(body, "old format", None, NO_TIMESTAMP)

    def _transform(self, body: RecordBody, transforms: PartitionTransforms) -> None:
        """Plan what the transforms make of the records of ``body``. Raises: as ``rebuild``."""
        if self.is_light and transforms.chain.calls_functions:
            raise Heavy
        self.spend(0, TRANSFORM_WORK_RECORDS * body.record_count)
        try:
            self._look_through(body, 0, False)
            found = transformed(body, transforms, wanted_offset=self._wanted_offset, budget=self.budget)
        except UNREADABLE as error:
            self.over_budget(error)
            raise self._stop(kind_of(error), body.base_offset, body.next_offset, error.what) from error
        if found.body.record_count:
            self.rebuild(
                found.body, "refused" if body.base_offset < self.cut_until else "transform", None, NO_TIMESTAMP
            )
            last = self._steps[-1]
            if found.filtered and isinstance(last, Outgoing):
                self._steps[-1] = last._replace(filtered=found.filtered)
        elif found.body.next_offset > self._wanted_offset:
            self._steps.append(Dropped(found.body.next_offset, found.filtered, "filtered", body.leader_epoch))
        if found.failure is not None:
            offset = found.failure.offset
            raise self._stop("transform failed", offset, offset + 1, found.failure.what, body.leader_epoch)

    def _recompress(self, body: RecordBody, max_timestamp_ms: int) -> bool:
        """Plan a batch whose records stay as they are, if it still fits."""
        batch = assemble(
            body.data,
            codec=body.codec,
            record_count=body.record_count,
            base_timestamp_ms=body.base_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
        )
        if len(batch) > self._rules.max_message_bytes:
            return False
        self._steps.append(_whole(body, max_timestamp_ms, batch, "compression"))
        return True

    def rebuild(
        self, body: RecordBody, reason: RebuildReason | None, batch: memoryview | None, max_timestamp_ms: int
    ) -> None:
        """Plan the records of ``body`` from the wanted offset on.

        Without a ``reason``, ``batch`` passes unchanged if the target accepts all of its records.

        Raises:
            Stop: one of them cannot be copied; those before it are planned.
        """
        steps = self._steps
        try:
            kept = self._survey(body)
        except CorruptBatch as error:
            raise self._stop("corrupt records", body.base_offset, body.next_offset, error.what) from error
        if kept.null_key_delta is None and reason is None and batch is not None:
            steps.append(_whole(body, max_timestamp_ms, batch, None))
            return
        refused_offset = None if kept.null_key_delta is None else body.base_offset + kept.null_key_delta
        if kept.record_count:
            end_offset = body.next_offset if refused_offset is None else refused_offset
            if body.base_offset < self.cut_until:
                self._emit_parts(body, kept.position, kept.record_count, end_offset)
            else:
                self._emit(body, kept.position, kept.record_count, end_offset, reason or "null key")
        elif refused_offset is None:
            steps.append(
                Dropped(max(body.next_offset, self._wanted_offset), body.record_count, "below start", body.leader_epoch)
            )
        if refused_offset is not None:
            text = f"The record at offset {refused_offset} has no key, which a compacted topic does not take."
            raise self._stop(
                "null key on compacted target", refused_offset, refused_offset + 1, text, body.leader_epoch
            )

    def _survey(self, body: RecordBody) -> KeptRecords:
        return self._look_through(body, self._wanted_offset - body.base_offset, self._rules.refuses_null_keys)

    def _look_through(self, body: RecordBody, wanted_delta: int, refuse_null_keys: bool) -> KeptRecords:
        if self._core is not None:
            last_delta = body.next_offset - body.base_offset - 1
            found = self._core.survey(body.data, body.record_count, last_delta, wanted_delta, refuse_null_keys)
            if found is not None:
                return KeptRecords._make(found)
        return survey(body, wanted_delta, refuse_null_keys)

    def _renumber(self, body: RecordBody, position: int, record_count: int) -> Renumbered:
        if self._core is not None:
            copied = self._core.renumber(body.data, position, record_count, body.base_offset, body.one_timestamp)
            if copied is not None:
                data, end, first, last, max_timestamp_delta, jumps = copied
                newest_ms = newest_timestamp_ms(body, max_timestamp_delta)
                return Renumbered(data, end, first, last, newest_ms, array("q", jumps))
        return renumber(body, position, record_count)

    def _emit_parts(self, body: RecordBody, position: int, record_count: int, next_offset: int) -> None:
        """Plan records in batches of 1, 2, 4, ... records. A batch that was sent before ends where it ended then."""
        offsets = offsets_of(body, position, record_count)
        at = 0
        while at < record_count:
            sent_to = self._sent_before.get(offsets[at])
            if sent_to is None:
                until = min(at + self._part_records, record_count)
                self._part_records *= 2
            else:
                until = bisect_left(offsets, sent_to, at + 1)
            position = self._emit(body, position, until - at, next_offset if until == record_count else None, "refused")
            at = until

    def _emit(
        self, body: RecordBody, position: int, record_count: int, next_offset: int | None, reason: RebuildReason
    ) -> int:
        """Plan ``record_count`` records from ``position`` on, in as many batches as it takes.

        Args:
            next_offset: the source offset after them, or None for the one after the last.
        Returns:
            The position after them.
        """
        copied = self._renumber(body, position, record_count)
        end_position, first_offset = copied.end_position, copied.first_offset
        batch = assemble(
            copied.data,
            codec=body.codec,
            record_count=record_count,
            base_timestamp_ms=body.base_timestamp_ms,
            max_timestamp_ms=copied.max_timestamp_ms,
        )
        if len(batch) <= self._rules.max_message_bytes:
            self._steps.append(
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
                f"the target takes {self._rules.max_message_bytes}."
            )
            raise self._stop("too large", first_offset, first_offset + 1, text, body.leader_epoch)
        del copied, batch  # each may be as large as the limit for decompressed data
        half = record_count // 2
        middle = self._emit(body, position, half, None, reason)
        return self._emit(body, middle, record_count - half, next_offset, reason)

    def _stop(self, kind: FaultKind, offset: int, next_offset: int | None, text: str, leader_epoch: int = -1) -> Stop:
        return stopped(Fault(kind, offset, next_offset, text, leader_epoch), self._steps, self._wanted_offset)


def _whole(
    body: RecordBody, max_timestamp_ms: int, batch: bytearray | memoryview, reason: RebuildReason | None
) -> Outgoing:
    """Return the step that sends all records of ``body`` as ``batch``."""
    return Outgoing(
        body.base_offset, body.next_offset, body.record_count, max_timestamp_ms, body.leader_epoch, batch, reason
    )
