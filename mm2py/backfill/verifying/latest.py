"""Compacted topics: the latest record of each key on both sides. Pure.

Compaction removes records on one side and not on the other, but never the latest record of a key. So only that record
is compared. A key without a record, and a key whose latest record is a tombstone, are the same: tombstones are removed
after a while.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from mm2py.backfill.verifying.merkle import DIGEST_BYTES, digest
from mm2py.backfill.verifying.places import SOURCE, TARGET
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.backfill.verifying.records import ComparedRecord, placed
from mm2py.copying.planning.steps import Outgoing, Step

LATER: Final = b"later"
"""Instead of the digest of a key that also occurs after the compared ranges: such a key is not compared."""
LATER_PLACE: Final = 1 << 62


class LatestRecord(NamedTuple):
    """The latest record of a key, on one side."""

    place: int
    digest: bytes | None
    """None: a tombstone."""


class DifferingKeys(NamedTuple):
    """Keys of a compacted partition whose latest record is not the same on both sides."""

    key_count: int
    source_place: int | None
    """Place of the latest record of the first such key; None if there is none. ``target_place`` likewise."""
    target_place: int | None


class LatestRecords:
    """Collects the latest records of one range on both sides while they are read."""

    def __init__(self, compared: ComparedRange) -> None:
        self.range = compared
        self.sides: tuple[dict[bytes, LatestRecord], dict[bytes, LatestRecord]] = ({}, {})
        """By the digest of the key."""
        self.records = [0, 0]
        self.bytes = 0
        """Of the source."""
        self.foreign = 0
        """Target records that no run covers."""
        self.first_foreign: int | None = None
        """Place of the first of them."""
        self._next = [compared.source[0], compared.target[0]]

    def next_offset(self, side: int) -> int:
        """Return the next offset to read of a side."""
        return self._next[side]

    def is_read(self, side: int) -> bool:
        return self._next[side] >= (self.range.source, self.range.target)[side][1]

    def wanted(self) -> list[int]:
        """Return the sides to read further. One side may be read faster than the other."""
        return [side for side in (SOURCE, TARGET) if not self.is_read(side)]

    def take(self, side: int, steps: Iterable[Step], next_offset: int) -> None:
        """Add the records that were read of a side.

        Raises:
            Mm2Error: a batch cannot be decoded.
        """
        for step in steps:
            if isinstance(step, Outgoing):
                records = placed(self.range, side, step)
                self.records[side] += len(records)
                if side == SOURCE:
                    self.bytes += len(step.data)
                self._note(side, records)
        self._next[side] = max(self._next[side], next_offset)

    def _note(self, side: int, records: Iterable[ComparedRecord]) -> None:
        latest = self.sides[side]
        for _, place, (key, value, timestamp_ms, headers) in records:
            if place % 2 and not self.range.is_later:
                self.foreign += 1
                if self.first_foreign is None:
                    self.first_foreign = place
                continue
            if key is None:
                continue  # from a time when the topic was not compacted: the cleaner removes it
            content: bytes | None = None
            if value is not None:
                timestamp = timestamp_ms if self.range.own_timestamps else 0
                content = digest(repr((timestamp, value, headers)).encode("ascii", "backslashreplace"))
            found = LatestRecord(LATER_PLACE, LATER) if self.range.is_later else LatestRecord(place, content)
            latest[hashlib.sha256(key).digest()[:DIGEST_BYTES]] = found
