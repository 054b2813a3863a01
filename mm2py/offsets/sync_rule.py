"""When an offset sync is due, for one source partition. Pure.

Source: MirrorSourceTask, OffsetSyncWriter, Apache Kafka, connect/mirror.

Counterpart: MM2's PartitionState and OffsetSyncWriter, which decide this for every record: a sync is due for the
very first record, after a jump or a step back in source offsets, after a step back in target offsets, and when the
target offset is ``offset.lag.max`` past the one that follows the last sync. mm2py copies batches, so it decides for a
run of records at once; inside a run only the last reason can apply.
"""

from __future__ import annotations

from mm2py.offsets.sync_store import SLOTS


class SyncRule:
    """What the rule remembers of a partition: the last stored record, and which one the last due sync named."""

    __slots__ = ("_last_synced_target", "_latest_is_named", "_previous_source", "_previous_target")

    def __init__(self) -> None:
        self._previous_source = -1
        self._previous_target = -1
        self._last_synced_target = -1
        self._latest_is_named = True

    def stored(self, source_offset: int, target_offset: int, count: int, *, lag_max: int) -> list[tuple[int, int]]:
        """Note a run of records that the target has stored, and return for which of them a sync is due.

        Args:
            source_offset: of the first record; the others follow it without gaps.
            target_offset: of its copy; likewise.
            count: of records, at least 1.
            lag_max: ``offset.lag.max``, in records; 0 asks for a sync of every record.
        Returns:
            Source and target offset of each such record, ascending; the newest 64 if there are more, because no store
            keeps more.
        Raises:
            ValueError: the run is empty.
        """
        if count < 1:
            raise ValueError(f"a run of {count} records was stored")
        first_is_due = (
            self._last_synced_target == -1
            or source_offset != self._previous_source + 1
            or target_offset < self._previous_target
        )
        step = lag_max + 1
        first = 0 if first_is_due else max(0, self._last_synced_target + step - target_offset)
        self._previous_source = source_offset + count - 1
        self._previous_target = target_offset + count - 1
        if first >= count:
            self._latest_is_named = False
            return []
        last = first + (count - 1 - first) // step * step
        self._last_synced_target = target_offset + last
        self._latest_is_named = last == count - 1
        newest = range(max(first, last - (SLOTS - 1) * step), last + 1, step)
        return [(source_offset + index, target_offset + index) for index in newest]

    @property
    def latest(self) -> tuple[int, int] | None:
        """Source and target offset of the last stored record, None if a sync has named it.

        MM2 calls its sync *delayed*. The caller sends it from time to time, so that an idle partition is known to its
        last record.
        """
        return None if self._latest_is_named else (self._previous_source, self._previous_target)

    def named(self, source_offset: int, target_offset: int) -> None:
        """Note that a sync was sent for what was ``latest``. Nothing changes if more records were stored since.

        Like MM2's, this sync does not count for ``offset.lag.max``.
        """
        if (source_offset, target_offset) == (self._previous_source, self._previous_target):
            self._latest_is_named = True
