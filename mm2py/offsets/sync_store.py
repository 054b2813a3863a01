"""The offset syncs that are kept for each source partition, and the translation of a group's offset by them. Pure.

A partition has 64 slots, from the newest sync to the oldest. The older a slot, the wider the gap to its neighbours, so
a group that lags is translated less exactly, and the store stays small. Between two slots i < j that hold different
syncs:

* B: upstream(i) <= upstream(j) + 2^j - 2^i, so the syncs are never too far apart;
* C: upstream(i) >= upstream(j) + 2^max(i-2, 0), so they are never too close together.

Neighbouring slots mostly hold the same sync. In memory a partition is a byte string with one entry for each stretch of
such slots.
Source: OffsetSyncStore, Apache Kafka, connect/mirror.

Counterpart: MM2's OffsetSyncStore, slot for slot: both must give a group the same offset.
"""

from __future__ import annotations

import struct
from typing import Final

from mm2py.kafka.port import TopicPartition

SLOTS: Final = 64
BEFORE_OLDEST: Final = -1

Sync = tuple[int, int]
"""Upstream and downstream offset of one record that was copied."""

_STRETCH: Final = struct.Struct("<Bqq")
"""How many slots in a row hold one sync, then the sync."""


class SyncStore:
    """The syncs of all partitions.

    It is filled in two parts: first with what the offset-syncs topic contained when reading began, up to ``loaded()``,
    then with what is written to the topic later.

    Args:
        keeps_history: older syncs survive while the topic is loaded. True only if the checkpoints of the previous
            incarnation are known: translation may be less exact than before, and only they keep a group from going
            back. If False, each sync that is loaded takes all slots of its partition.
    """

    def __init__(self, *, keeps_history: bool) -> None:
        self._keeps_history = keeps_history
        self._loaded = False
        self._stretches: dict[TopicPartition, bytes] = {}

    def add(self, key: TopicPartition, upstream: int, downstream: int) -> None:
        """Add the sync that was written last for a source partition.

        A sync whose upstream offset is below that of the newest one replaces all: the topic was deleted and created
        again, or the flow copies it from an earlier offset.

        Args:
            key: topic and partition, as the source cluster names them.
            upstream: offset of the record in the source partition, 0 to 2^63 - 1.
            downstream: offset of its copy in the remote partition.
        """
        sync = (upstream, downstream)
        packed = self._stretches.get(key)
        forgets = not self._loaded and not self._keeps_history
        if packed is None or forgets or upstream < _STRETCH.unpack_from(packed)[1]:
            self._stretches[key] = _STRETCH.pack(SLOTS, upstream, downstream)
            return
        slots = _unpack(packed)
        _insert(slots, sync)
        self._stretches[key] = _pack(slots)

    def has_room(self, key: TopicPartition, most: int) -> bool:
        """Whether a sync of this partition may be added, if syncs of ``most`` partitions may be kept."""
        return key in self._stretches or len(self._stretches) < most

    def loaded(self) -> None:
        """Note that the topic was read to the end once. Until then nothing is translated."""
        self._loaded = True

    def translate(self, key: TopicPartition, upstream_offset: int) -> int | None:
        """Return the offset from which a group may read the remote partition.

        Args:
            key: topic and partition, as the source cluster names them.
            upstream_offset: the group's committed offset on the source cluster.
        Returns:
            The downstream offset of the newest sync that the group has reached, or one more if the group is past it:
            it is not known how many records follow the sync on the target. Records may be read twice, none is skipped.
            ``BEFORE_OLDEST`` if no sync is as old as the group; None if the store is not loaded or knows no sync.
        """
        packed = self._stretches.get(key) if self._loaded else None
        if packed is None:
            return None
        for _, upstream, downstream in _STRETCH.iter_unpack(packed):
            if upstream == upstream_offset:
                return int(downstream)
            if upstream < upstream_offset:
                return int(downstream) + 1
        return BEFORE_OLDEST

    def translate_back(self, key: TopicPartition, downstream_offset: int) -> int | None:
        """Return the offset from which a group may read the source partition; None if no sync is old enough.

        Args:
            downstream_offset: the group's committed offset on the target cluster.
        """
        for _, upstream, downstream in _STRETCH.iter_unpack(self._packed(key) if self._loaded else b""):
            if downstream <= downstream_offset:
                return int(upstream) if downstream == downstream_offset else int(upstream) + 1
        return None

    def syncs(self, key: TopicPartition) -> list[Sync]:
        """Return the different syncs of a partition, the newest first; empty if it has none."""
        return [(upstream, downstream) for _, upstream, downstream in _STRETCH.iter_unpack(self._packed(key))]

    def slots(self, key: TopicPartition) -> list[Sync]:
        """Return the syncs in the 64 slots of a partition, the newest first; empty if it has no sync."""
        return _unpack(self._packed(key))

    def _packed(self, key: TopicPartition) -> bytes:
        return self._stretches.get(key, b"")


def _unpack(packed: bytes) -> list[Sync]:
    slots: list[Sync] = []
    for size, upstream, downstream in _STRETCH.iter_unpack(packed):
        slots += [(upstream, downstream)] * size
    return slots


def _pack(slots: list[Sync]) -> bytes:
    packed = bytearray()
    begin = 0
    for end in range(1, SLOTS + 1):
        if end == SLOTS or slots[end] is not slots[begin]:
            packed += _STRETCH.pack(end - begin, *slots[begin])
            begin = end
    return bytes(packed)


def _insert(slots: list[Sync], new: Sync) -> None:
    """Put a sync into slot 0 and move older ones on, so that B and C hold and many different syncs are kept.

    Slots hold the same sync if they hold the same object. A sync that is stored twice is two syncs.
    """
    old = slots.copy()
    slots[0] = replacement = new
    candidate = 0  # the slot of ``old`` that is looked at for the current slot
    for current in range(1, SLOTS):
        previous = current - 1
        while True:
            sync = old[candidate]
            is_recent = _near(slots[previous], sync, previous, current)
            leaves_previous = _apart(slots[previous], sync, previous)
            leaves_next = current + 1 == SLOTS or _apart(sync, slots[current + 1], current)
            fits = is_recent and leaves_previous and leaves_next
            if fits:
                replacement = sync
            is_repeated = candidate + 1 < SLOTS and sync is old[candidate + 1]
            is_done = is_repeated or not leaves_previous  # it will not fit into an older slot either
            if fits or is_done:
                candidate += 1
            if not is_done or candidate >= current:
                break
        if _near(slots[previous], slots[current], previous, current):
            return  # the older slots fit as they are
        slots[current] = replacement


def _near(newer: Sync, older: Sync, newer_slot: int, older_slot: int) -> bool:
    """B. Java's sum may overflow, and counts as True then; ours is larger than any offset then."""
    return newer is older or newer[0] <= older[0] + (1 << older_slot) - (1 << newer_slot)


def _apart(newer: Sync, older: Sync, newer_slot: int) -> bool:
    """C. Java's sum may overflow, and counts as False then; ours is larger than any offset then."""
    return newer is older or newer[0] >= older[0] + (1 << max(newer_slot - 2, 0))
