"""Compares the two sides of a range, and makes a digest of each leaf and side. Pure.

Where both sides have the same batch, its bytes are compared by their checksum: a batch that was passed is never taken
apart. Else both sides are decoded and compared record by record, whatever their batches and codecs are. A side whose
leaf has another digest than the other side's has other records in it, fewer, or more.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c

from mm2py.backfill.verifying.merkle import DIGEST_BYTES, digest
from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange, holds
from mm2py.compiled_core import CORE, Core
from mm2py.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, assemble, read_header, read_records
from mm2py.records.compression import Codec, decompress
from mm2py.replication.planning.steps import NOT_TAKEN_APART, Outgoing, Step

SOURCE: Final = 0
TARGET: Final = 1
CHUNK_BYTES: Final = 8 << 20
"""So much of each side is kept at most before it is compared as far as both sides have it."""
_TIMES_AND_COUNT: Final = struct.Struct(">qq18xi")
"""From byte 27 of a batch: base and largest timestamp, record count."""
_UNIT: Final = struct.Struct(">qiiqIB")


class Columns(NamedTuple):
    """Records of one side, a list for each of their parts."""

    places: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Sequence[tuple[str, bytes | None]]]

    @classmethod
    def empty(cls) -> Columns:
        return cls([], [], [], [], [])

    def extend(self, others: Columns) -> None:
        self.places.extend(others.places)
        self.timestamps.extend(others.timestamps)
        self.keys.extend(others.keys)
        self.values.extend(others.values)
        self.headers.extend(others.headers)

    def part(self, start: int, end: int) -> Columns:
        """Return some of the records."""
        return Columns(
            self.places[start:end],
            self.timestamps[start:end],
            self.keys[start:end],
            self.values[start:end],
            self.headers[start:end],
        )

    def only(self, wanted: Sequence[int]) -> Columns:
        """Return the records of these numbers, without places."""
        return Columns(
            [],
            [self.timestamps[at] for at in wanted],
            [self.keys[at] for at in wanted],
            [self.values[at] for at in wanted],
            [self.headers[at] for at in wanted],
        )

    def take_first(self, count: int) -> Columns:
        """Return the first records, and forget them."""
        taken = self.part(0, count)
        del self.places[:count], self.timestamps[:count], self.keys[:count], self.values[:count], self.headers[:count]
        return taken

    def digest(self) -> bytes:
        """Return a digest of all content; keys and values are part of it by their lengths and CRC-32C."""
        sha = hashlib.sha256()
        sha.update(array("q", self.places).tobytes())
        sha.update(array("q", self.timestamps).tobytes())
        for column in (self.keys, self.values):
            sha.update(array("i", [-1 if one is None else len(one) for one in column]).tobytes())
            sha.update(crc32c(b"".join(filter(None, column))).to_bytes(4, "big"))
        if any(self.headers):
            sha.update(repr([list(map(tuple, one)) for one in self.headers]).encode("ascii", "backslashreplace"))
        return sha.digest()[:DIGEST_BYTES]


class Leaf(NamedTuple):
    """The digests of a leaf on both sides."""

    number: int
    source: bytes
    target: bytes


class _Side:
    """One log of the range, as far as it was read."""

    def __init__(self, start: int, end: int) -> None:
        self.next_offset = start
        self.end = end
        self.steps: deque[Outgoing] = deque()
        self.pending = Columns.empty()
        self.pending_bytes = 0
        self.parts: list[bytes] = []
        """Of the present leaf."""

    @property
    def is_read(self) -> bool:
        """Nothing is left to be read."""
        return self.next_offset >= self.end


class RangeComparison:
    """Compares what is read of both sides of one range, as it comes."""

    def __init__(self, compared: ComparedRange) -> None:
        self.range = compared
        self.leaves: list[Leaf] = []
        self.passed_records = 0
        """Records in batches with the same bytes on both sides; as ``passed_bytes``, of one side."""
        self.passed_bytes = 0
        self.decoded_records = 0
        """Source records that were compared one by one."""
        self.decoded_bytes = 0
        self._sides = (_Side(*compared.source), _Side(*compared.target))
        self._leaf = -1
        self._ignores_timestamps: set[int] = set()
        """Places whose timestamp the target's broker has set."""

    def next_offset(self, side: int) -> int:
        """Return where a side is to be read next."""
        return self._sides[side].next_offset

    def is_read(self, side: int) -> bool:
        return self._sides[side].is_read

    def take(self, side: int, steps: Iterable[Step], next_offset: int) -> None:
        """Take what was read of a side.

        Args:
            next_offset: behind what was read.
        """
        one = self._sides[side]
        one.steps.extend(step for step in steps if isinstance(step, Outgoing) and step.first_offset < one.end)
        one.next_offset = max(one.next_offset, next_offset)

    def wanted(self) -> list[int]:
        """Compare what is here, and return the sides of which more has to be read; none if all was compared.

        Raises:
            Mm2Error: a batch cannot be decoded.
        """
        source, target = self._sides
        while True:
            if source.steps and target.steps:
                if not source.pending.places and not target.pending.places and self._pass(source, target):
                    continue
            elif not (source.steps or source.is_read) or not (target.steps or target.is_read):
                lacking = [at for at, one in enumerate(self._sides) if not one.steps and not one.is_read]
                if self._has_much():
                    self._compare(self._limit())
                return lacking
            elif not source.steps and not target.steps:
                break
            self._decode_next()
        self._compare(None)
        self._close_leaf()
        return []

    def _pass(self, source: _Side, target: _Side) -> bool:
        """Compare the next batch of both sides by its bytes. Return False if they have to be decoded."""
        one, other = source.steps[0], target.steps[0]
        count = one.record_count
        if one.reason is not None or other.reason is not None or other.record_count != count:
            return False
        first, data, copy = one.first_offset, one.data, other.data
        run = self.range.run_at_source(first)
        if (
            run is None
            or first + count > run.source_end
            or one.next_offset != first + count
            or other.first_offset - run.target_offset != first - run.source_offset
            or len(data) != len(copy)
            or (data[ATTRIBUTES_AT] ^ copy[ATTRIBUTES_AT]) & CODEC_MASK
        ):
            return False
        times = _TIMES_AND_COUNT.unpack_from(data, 27)
        checksum = crc32c(data[HEADER_BYTES:])
        if times != _TIMES_AND_COUNT.unpack_from(copy, 27) or checksum != crc32c(copy[HEADER_BYTES:]):
            return False
        source.steps.popleft()
        target.steps.popleft()
        self._open_leaf(2 * first)
        unit = _UNIT.pack(first, count, len(data), times[0], checksum, data[ATTRIBUTES_AT] & CODEC_MASK)
        source.parts.append(unit)
        target.parts.append(unit)
        self.passed_records += count
        self.passed_bytes += len(data)
        return True

    def _decode_next(self) -> None:
        """Decode the side that is behind up to where the other's next batch begins, and compare what both have."""
        source, target = self._sides
        place_of_target = self.range.place_of_target
        side, stop = SOURCE, 0
        if source.steps and target.steps:
            stop = place_of_target(target.steps[0].first_offset)
            if 2 * source.steps[0].first_offset > stop:
                side, stop = TARGET, 2 * source.steps[0].first_offset
        elif target.steps:
            side = TARGET
        one = self._sides[side]
        steps, size = [], 0
        while True:
            step = one.steps.popleft()
            steps.append(step)
            size += len(step.data)
            if not one.steps or one.pending_bytes + size > CHUNK_BYTES:
                break
            following = one.steps[0].first_offset
            if (2 * following if side == SOURCE else place_of_target(following)) >= stop:
                break
        self._decode(side, steps, size)
        limit = self._limit()
        if limit is not None and (self._has_much() or self._is_level(limit)):
            self._compare(limit)

    def _decode(self, side: int, steps: Sequence[Outgoing], size_bytes: int) -> None:
        """Take batches apart: at once where that can be, as small ones cost as much each as their records do."""
        one = self._sides[side]
        before = len(one.pending.places)
        together = _adjacent_columns(self.range, side, steps)
        if together is not None:
            one.pending.extend(together)
        for step in steps if together is None else ():
            found = columns_of(self.range, side, step)
            if side == TARGET and step.reason == "log append time":
                self._ignores_timestamps.update(found.places)
            one.pending.extend(found)
        one.pending_bytes += size_bytes
        if side == SOURCE:
            self.decoded_records += len(one.pending.places) - before
            self.decoded_bytes += size_bytes

    def _limit(self) -> int | None:
        """Return the place before which both sides are decoded; None: all of both."""
        source, target = self._sides
        ahead = []
        if source.steps:
            ahead.append(2 * source.steps[0].first_offset)
        elif not source.is_read:
            ahead.append(2 * source.next_offset)
        if target.steps:
            ahead.append(self.range.place_of_target(target.steps[0].first_offset))
        elif not target.is_read:
            ahead.append(self.range.place_of_target(target.next_offset))
        return min(ahead, default=None)

    def _has_much(self) -> bool:
        return any(one.pending_bytes > CHUNK_BYTES for one in self._sides)

    def _is_level(self, limit: int) -> bool:
        """Tell whether all that was decoded can be compared, so that batches can be passed again."""
        return all(not one.pending.places or one.pending.places[-1] < limit for one in self._sides)

    def _compare(self, limit: int | None) -> None:
        """Compare the decoded records before a place, leaf by leaf."""
        source, target = self._sides
        before = [len(one.pending.places) for one in self._sides]
        while True:
            heads = [one.pending.places[0] for one in self._sides if one.pending.places]
            if not heads or (limit is not None and min(heads) >= limit):
                break
            leaf = self.range.leaf_of(min(heads))
            end = 2 * LEAF_OFFSETS * (leaf + 1)
            end = end if limit is None else min(end, limit)
            taken = [one.pending.take_first(bisect_left(one.pending.places, end)) for one in self._sides]
            self._open_leaf(min(heads))
            if self._ignores_timestamps:
                self._blank_timestamps(taken)
            first = taken[SOURCE].digest()
            source.parts.append(first)
            target.parts.append(first if taken[SOURCE] == taken[TARGET] else b"differs" + taken[TARGET].digest())
        for one, count in zip(self._sides, before, strict=True):
            one.pending_bytes = one.pending_bytes * len(one.pending.places) // max(count, 1)

    def _blank_timestamps(self, taken: Sequence[Columns]) -> None:
        """Do not compare the timestamps that the target's broker has set."""
        ignored = self._ignores_timestamps
        for one in taken:
            one.timestamps[:] = [
                0 if place in ignored else time for place, time in zip(one.places, one.timestamps, strict=True)
            ]
        ignored.difference_update(taken[TARGET].places)

    def _open_leaf(self, place: int) -> None:
        leaf = self.range.leaf_of(place)
        if leaf > self._leaf:
            self._close_leaf()
            self._leaf = leaf

    def _close_leaf(self) -> None:
        source, target = self._sides
        if source.parts:
            first = digest(b"".join(source.parts))
            same = source.parts == target.parts
            self.leaves.append(Leaf(self._leaf, first, first if same else digest(b"".join(target.parts))))
        source.parts, target.parts = [], []


def columns_of(compared: ComparedRange, side: int, step: Outgoing) -> Columns:
    """Return the records of a batch that belong to a range and are to be compared.

    Raises:
        Mm2Error: the batch cannot be decoded.
    """
    found = _decoded([step])
    offsets = offsets_of(step)
    places = found.places
    count = step.record_count
    first, last = offsets[0], offsets[-1]
    run = compared.run_at_source(first) if side == SOURCE else compared.run_at_target(first)
    if run is not None and last - first + 1 == count:
        if side == SOURCE and last < min(run.source_end, compared.source[1]):
            places.extend(range(2 * first, 2 * last + 1, 2))
            return found
        if side == TARGET and last < min(run.target_end, compared.target[1]):
            start = 2 * (run.source_offset + first - run.target_offset)
            places.extend(range(start, start + 2 * count, 2))
            return found
    kept = []
    for at, offset in enumerate(offsets):
        place = source_place(compared, offset) if side == SOURCE else target_place(compared, offset)
        if place is not None:
            kept.append(at)
            places.append(place)
    if len(kept) < count:
        found = found.only(kept)
        found.places.extend(places)
    return found


def _adjacent_columns(compared: ComparedRange, side: int, steps: Sequence[Outgoing]) -> Columns | None:
    """Return the records of batches at once, which is cheaper; None if one is rebuilt, or not all are of one run."""
    first, end = steps[0].first_offset, steps[-1].next_offset
    if sum([step.record_count for step in steps if step.reason is None]) != end - first:
        return None
    start = first
    if side == SOURCE:
        run = compared.run_at_source(first)
        if run is None or end > min(run.source_end, compared.source[1]):
            return None
    else:
        run = compared.run_at_target(first)
        if run is None or end > min(run.target_end, compared.target[1]):
            return None
        start += run.source_offset - run.target_offset
    found = _decoded(steps)
    found.places.extend(range(2 * start, 2 * (start + end - first), 2))
    return found


def source_place(compared: ComparedRange, offset: int) -> int | None:
    """Return the place of a source record; None if it is not to be compared."""
    if not compared.source[0] <= offset < compared.source[1]:
        return None
    if compared.run_at_source(offset) is None and holds(compared.source_left_out, offset):
        return None
    return 2 * offset


def target_place(compared: ComparedRange, offset: int) -> int | None:
    """Return the place of a target record; None if it is not to be compared."""
    if not compared.target[0] <= offset < compared.target[1]:
        return None
    if compared.run_at_target(offset) is None and (compared.is_shared or holds(compared.target_left_out, offset)):
        return None
    return compared.place_of_target(offset)


def offsets_of(step: Outgoing) -> Sequence[int]:
    """Return the offset of each record of a batch."""
    count = step.record_count
    if not step.jumps:
        return range(step.first_offset, step.first_offset + count)
    starts = [*step.runs(), (count, 0)]
    return [
        *chain.from_iterable(
            range(offset, offset + following[0] - index) for (index, offset), following in pairwise(starts)
        )
    ]


def _decoded(steps: Sequence[Outgoing], core: Core | None = CORE) -> Columns:
    """Return the records of batches, without places.

    The compiled core takes them apart. Without it, aiokafka's compiled reader takes a fifth of our own's time.
    """
    plain = [_plain(step.data) if step.data[ATTRIBUTES_AT] & CODEC_MASK else step.data for step in steps]
    if core is not None and (found := core.columns(plain)) is not None:
        return Columns([], *found)
    try:
        records = [*chain.from_iterable(map(DefaultRecordBatch, plain))]
    except NOT_TAKEN_APART:
        ours = [one for data in plain for one in read_records(data)]
        return Columns(
            [],
            [one.timestamp_ms for one in ours],
            [one.key for one in ours],
            [one.value for one in ours],
            [tuple(one.headers) for one in ours],
        )
    return Columns(
        [],
        [one.timestamp for one in records],
        [one.key for one in records],
        [one.value for one in records],
        [tuple(headers) if (headers := one.headers) else () for one in records],
    )


def _plain(data: memoryview | bytearray) -> bytearray:
    """Return a compressed batch as one that is not."""
    header = read_header(data)
    return assemble(
        decompress(header.codec, memoryview(data)[HEADER_BYTES:]),
        codec=Codec.NONE,
        record_count=header.record_count,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
    )
