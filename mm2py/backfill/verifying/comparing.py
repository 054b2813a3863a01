"""Compares the two sides of a range, and makes a digest of each leaf and side. Pure.

Where both sides have the same batch, its bytes are compared by their checksum: a batch that was passed is never
decoded. Otherwise the sides are compared record by record, by fingerprints, whatever their batches and codecs are. If
the two digests of a leaf differ, then its records differ, or one side has more of them.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from mm2py.backfill.verifying.fingerprints import PendingFingerprints, fingerprints_of
from mm2py.backfill.verifying.merkle import digest
from mm2py.backfill.verifying.places import SOURCE, TARGET, kept_places
from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange
from mm2py.copying.planning.steps import Outgoing, Step
from mm2py.records.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES

PENDING_RECORDS: Final = 1 << 17
"""When a side has more fingerprints than this (3 MB), those that both sides have are compared."""
_TIMES_AND_COUNT: Final = struct.Struct(">qq18xi")
"""From byte 27 of a batch: base and largest timestamp, record count."""
_UNIT: Final = struct.Struct(">qiiqIB")


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
        self.pending = PendingFingerprints()
        self.parts: list[bytes] = []
        """Of the present leaf."""

    @property
    def is_read(self) -> bool:
        """True when the whole range was read."""
        return self.next_offset >= self.end


class RangeComparison:
    """Compares both sides of one range while they are read."""

    def __init__(self, compared: ComparedRange) -> None:
        self.range = compared
        self.leaves: list[Leaf] = []
        self.passed_records = 0
        """Records in batches with the same bytes on both sides. This and ``passed_bytes`` count one side."""
        self.passed_bytes = 0
        self.decoded_records = 0
        """Source records that were compared one by one."""
        self.decoded_bytes = 0
        self._sides = (_Side(*compared.source), _Side(*compared.target))
        self._leaf = -1
        self._ignores_timestamps: set[int] = set()
        """Places whose timestamp the target's broker has set."""

    def next_offset(self, side: int) -> int:
        """Return the next offset to read of a side."""
        return self._sides[side].next_offset

    def is_read(self, side: int) -> bool:
        return self._sides[side].is_read

    def take(self, side: int, steps: Iterable[Step], next_offset: int) -> None:
        """Add the steps that were read of a side.

        Args:
            next_offset: the offset after them.
        """
        one = self._sides[side]
        one.steps.extend(step for step in steps if isinstance(step, Outgoing) and step.first_offset < one.end)
        one.next_offset = max(one.next_offset, next_offset)

    def wanted(self) -> list[int]:
        """Compare what was read so far, and return the sides to read further; none if all was compared.

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
        """Decode the side that lags up to the start of the other's next batch, and compare what both have decoded."""
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
        steps = [one.steps.popleft()]
        while one.steps and one.steps[0].reason is steps[-1].reason is None:
            following = one.steps[0].first_offset
            if (2 * following if side == SOURCE else place_of_target(following)) >= stop:
                break
            steps.append(one.steps.popleft())
        self._decode(side, steps)
        limit = self._limit()
        if limit is not None and (self._has_much() or self._is_level(limit)):
            self._compare(limit)

    def _decode(self, side: int, steps: Sequence[Outgoing]) -> None:
        """Add the fingerprints of some batches. Fewer calls are cheaper: a call costs as much as a record."""
        fingerprints = fingerprints_of(steps)
        kept, places = kept_places(self.range, side, steps)
        if len(kept) < len(fingerprints.contents):
            fingerprints = fingerprints.only(kept)
        self._sides[side].pending.extend(places, fingerprints)
        if side == TARGET and steps[0].reason == "log append time":
            self._ignores_timestamps.update(places)
        if side == SOURCE:
            self.decoded_records += len(places)
            self.decoded_bytes += sum([len(step.data) for step in steps])

    def _limit(self) -> int | None:
        """Return the place before which both sides are decoded; None: both are decoded to their ends."""
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
        return any(len(one.pending.places) > PENDING_RECORDS for one in self._sides)

    def _is_level(self, limit: int) -> bool:
        """Whether all decoded records can be compared. Then the next batches can be compared by their bytes again."""
        return all(not one.pending.places or one.pending.places[-1] < limit for one in self._sides)

    def _compare(self, limit: int | None) -> None:
        """Compare the decoded records before a place, leaf by leaf."""
        source, target = self._sides
        while True:
            heads = [one.pending.places[0] for one in self._sides if one.pending.places]
            if not heads or (limit is not None and min(heads) >= limit):
                break
            leaf = self.range.leaf_of(min(heads))
            end = 2 * LEAF_OFFSETS * (leaf + 1)
            end = end if limit is None else min(end, limit)
            taken = [one.pending.take_before(end) for one in self._sides]
            self._open_leaf(min(heads))
            if self._ignores_timestamps:
                self._blank_timestamps(taken)
            first = taken[SOURCE].digest()
            source.parts.append(first)
            target.parts.append(first if taken[SOURCE] == taken[TARGET] else b"differs" + taken[TARGET].digest())

    def _blank_timestamps(self, taken: Sequence[PendingFingerprints]) -> None:
        """Zero on both sides the timestamps that the target's broker has set, so that they are not compared."""
        ignored = self._ignores_timestamps
        for one in taken:
            for at, place in enumerate(one.places):
                if place in ignored:
                    one.fingerprints.timestamps[at] = 0
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
