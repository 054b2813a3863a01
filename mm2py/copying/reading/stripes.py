"""One partition with a backlog, read in several ranges at once. Pure.

Over a long link one connection carries a few hundred kilobytes a round trip, whatever the link could carry. So several
reads of one partition are under way at the same time, each a *stripe*: a stretch that begins at a guessed offset. The
answers are put in order here, and the copier gets them as if one read had brought them.

A broker answers with the batch that has the requested offset. So a stripe ends where the first batch of the next one
begins, as its offset shows; sizes show nothing. Where a stripe is too short, the hole is read as soon as both its ends
are known. Where a stripe is too long, planning leaves out what was copied already.

All stripes are asked for under one leader epoch, which the broker checks. Within it a log only grows, so stripes of
one epoch belong to one log. The first stripe is asked for with the epoch of the record before it: that shows whether
the log was truncated. Under another leader epoch all stripes are dropped, and reading starts again in this way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from mm2py.kafka.port import FetchedPartition
from mm2py.records.batch import (
    DELTA_AT,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    OFFSET_AND_LENGTH,
)

STRIPE_BYTES_MOST: Final = 384 << 10
"""A far connection takes more than a round trip for this much. At the edge of two stripes a batch or more is read
twice, so smaller stripes cost more. Larger stripes take more memory while they wait for their turn."""
BATCHES_A_STRIPE: Final = 4
"""A stripe is at least this many batches long: each brings one batch twice, or in part."""


class StripeLease(Protocol):
    """The memory of a frame; see ``FrameLease``."""

    def release(self, extra_bytes: int) -> None: ...


class Extent(NamedTuple):
    """Which whole batches a stretch of a log has."""

    first_offset: int
    next_offset: int
    """The offset after the last batch."""
    whole_bytes: int
    largest_bytes: int


def extent_of(records: memoryview) -> Extent | None:
    """Return what ``records`` hold, by the headers; None if there is no whole batch, or a length is damaged.

    A message of an older format counts as one offset; a compressed one, which has several, as its last offset. So the
    records may begin before ``first_offset``, and planning leaves out what was copied. They never begin after it.
    """
    position, end, first, behind, largest = 0, len(records), -1, 0, 0
    while position + HEADER_BYTES <= end:
        offset, length = OFFSET_AND_LENGTH.unpack_from(records, position)
        size = length + LOG_OVERHEAD_BYTES
        if length <= 0 or position + size > end:
            break
        is_batch = records[position + MAGIC_AT] == MAGIC
        behind = offset + 1 + (LAST_OFFSET_DELTA.unpack_from(records, position + DELTA_AT)[0] if is_batch else 0)
        first = offset if first < 0 else first
        largest = max(largest, size)
        position += size
    return Extent(first, behind, position, largest) if first >= 0 else None


@dataclass(slots=True, eq=False)
class Stripe:
    """One read of a partition: under way, or arrived and waiting for its turn."""

    offset: int
    """The requested offset. The answer may begin before it, always with a whole batch."""
    size_bytes: int
    fills_hole: bool = False
    """Stripes after it have arrived, and wait for it."""
    fetched: FetchedPartition | None = None
    lease: StripeLease | None = None
    extent: Extent | None = None

    def release(self) -> None:
        """Give back the frame."""
        if self.lease is not None:
            self.lease.release(0)
            self.lease = None


class Stripes:
    """The stripes of one partition, in the order of its log."""

    def __init__(self, next_offset: int, leader_epoch: int, *, bytes_per_offset: float) -> None:
        """Make it without stripes.

        Args:
            next_offset: the source offset that the copier wants next.
            leader_epoch: of the source partition, while these stripes are valid.
            bytes_per_offset: as measured in earlier reads; above 0.
        """
        self.next_offset = next_offset
        """What the copier wants next. If it wants another offset, it has rewound, and the stripes are of no use."""
        self.leader_epoch = leader_epoch
        self.is_dropped = False
        self._is_joined = False
        """The stripe at ``next_offset`` has been taken: its answer shows that the log was not truncated."""
        self._bytes_per_offset = bytes_per_offset
        self._batch_bytes = 0
        """The largest batch seen."""
        self._stripes: deque[Stripe] = deque()
        self._is_over = False
        """A guessed offset was beyond what may be read, or was refused. Guesses start again when no stripe is left."""

    def __len__(self) -> int:
        return len(self._stripes)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that have arrived and wait for their turn."""
        return sum(len(stripe.fetched.records) for stripe in self._stripes if stripe.fetched is not None)

    def open(self, size_bytes: int, end_offset: int) -> Stripe | None:
        """Add a stripe after all others, to be read now.

        Args:
            size_bytes: how much one read should bring.
            end_offset: the end of what is known to be readable.
        Returns:
            None if all up to ``end_offset`` is asked for, or a guess has failed.
        """
        size_bytes = max(size_bytes, BATCHES_A_STRIPE * self._batch_bytes)
        if not self._stripes:
            self._is_over = False
            offset = self.next_offset
        else:
            last = self._stripes[-1]
            offset = max(self.next_offset, last.offset) + max(1, int(last.size_bytes / self._bytes_per_offset))
        if self._is_over or offset >= end_offset:
            return None
        stripe = Stripe(offset, size_bytes)
        self._stripes.append(stripe)
        return stripe

    def ask_bytes(self, stripe: Stripe) -> int:
        """Return how much to ask for, so that the stripe reaches the next one if batches are even."""
        return stripe.size_bytes + self._batch_bytes

    def arrived(self, stripe: Stripe, fetched: FetchedPartition, lease: StripeLease) -> None:
        """Store the answer to a stripe, and keep its lease."""
        is_wanted_next = stripe.offset == self.next_offset and self._stripes and self._stripes[0] is stripe
        stripe.extent = extent = extent_of(fetched.records)
        if extent is not None:
            self._batch_bytes = max(self._batch_bytes, extent.largest_bytes)
            offsets = extent.next_offset - extent.first_offset
            if offsets > 0:
                self._bytes_per_offset += (extent.whole_bytes / offsets - self._bytes_per_offset) / 4
        if not is_wanted_next and (fetched.error_code or fetched.diverging_epoch is not None or extent is None):
            lease.release(0)  # of no use after other stripes; when the copier wants it next, the same answer comes
            self.lost(stripe)
            self._is_over = True
            return
        stripe.fetched, stripe.lease = fetched, lease

    def lost(self, stripe: Stripe) -> None:
        """Remove a stripe to which no answer came. Stripes after it stay."""
        if stripe in self._stripes:
            self._stripes.remove(stripe)

    def take(self) -> Stripe | None:
        """Remove and return the stripe that the copier wants next, if it has arrived. Release it after use."""
        while self._stripes:
            first = self._stripes[0]
            if first.fetched is None:
                return None
            if first.offset == self.next_offset:
                self._is_joined = True
                return self._stripes.popleft()
            if self._is_hole_before(first):
                return None
            if first.extent is None or first.extent.next_offset <= self.next_offset:
                self._stripes.popleft().release()  # others have brought all of it
            else:
                return self._stripes.popleft()
        return None

    def hole(self, most_bytes: int = STRIPE_BYTES_MOST) -> Stripe | None:
        """Return a stripe for what is missing before the first one that has arrived; read it at once.

        Args:
            most_bytes: a larger hole is read in pieces. The story: a link was cut under 64 connections, and single
                stripes arrived from far ahead. Everything before them, megabytes of each partition, was requested at
                once over one connection. These requests timed out, again and again.
        """
        first = self._stripes[0] if self._stripes else None
        if first is None or first.extent is None or not self._is_hole_before(first):
            return None
        stripe = self._hole(self.next_offset, first.extent.first_offset, most_bytes)
        self._stripes.appendleft(stripe)
        return stripe

    def holes(self, most: int, most_bytes: int = STRIPE_BYTES_MOST) -> list[Stripe]:
        """Return stripes for what is missing between two that have arrived, ``most`` at most; read them at once.

        The story: batches were of 4 to 36 KB, so every other stripe came too short. Each hole was read only when the
        copier had got that far, a round trip each. Such a partition was copied at 9 MB/s, one with even batches at 58.
        """
        found: list[Stripe] = []
        filled: deque[Stripe] = deque()
        for stripe in self._stripes:
            before = filled[-1].extent if filled else None
            if before is not None and stripe.extent is not None and len(found) < most:
                offset = before.next_offset
                if stripe.offset > offset > filled[-1].offset and stripe.extent.first_offset > offset:
                    found.append(self._hole(offset, stripe.extent.first_offset, most_bytes))
                    filled.append(found[-1])
            filled.append(stripe)
        self._stripes = filled
        return found

    def _hole(self, offset: int, next_offset: int, most_bytes: int) -> Stripe:
        size = max(0, next_offset - offset) * self._bytes_per_offset
        return Stripe(offset, max(self._batch_bytes, int(min(size, most_bytes))), fills_hole=True)

    def drop(self) -> None:
        """Give up all stripes. Answers that still come are ignored."""
        self.is_dropped = True
        while self._stripes:
            self._stripes.popleft().release()

    def _is_hole_before(self, first: Stripe) -> bool:
        """Whether something is missing, or unproven, between the copier and a stripe that has arrived."""
        if first.extent is None or first.offset == self.next_offset:
            return False
        return not self._is_joined or first.extent.first_offset > self.next_offset
