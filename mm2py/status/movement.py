"""Which partitions stand still although records wait, by comparing one look at the clusters with the next. Pure.

This module does not rely on reports of workers. The story: a worker hangs, or a worker of an older version runs, so
nothing reports that a topic is not copied. The stored position shows it: records wait after it, and it does not move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from mm2py.kafka.port import TopicPartition
from mm2py.metrics.lag_trend import LagTrend
from mm2py.records.lag_seen import LagSeen
from mm2py.records.source_offset import StoredPosition

SETTLE_S: Final = 3.0
"""How long a position is watched before it counts as one that does not move: a record may have come just now, and
workers store positions about once a second."""
AHEAD_MS: Final = 2_000
"""If a position is this far in the future, the clocks differ, and its time proves nothing."""


def late_after_ms(positions: Collection[object], timeout_ms: int) -> int:
    """Return how old a moving position may be, in ms: a worker stores at most 1,000 positions a second."""
    return timeout_ms + len(positions)


def waits_since_lately(begin: int, first: int, timestamp_ms: int, *, now_ms: int) -> bool:
    """Return whether all records that wait after a position have come within the time-out.

    The story: a topic was at rest for an hour. Then a record comes, and its worker stores the next position five
    seconds later: twenty thousand other partitions got a record as well.

    Args:
        begin: the next source offset to be copied.
        first: the first source offset whose timestamp is not older than the time-out; ``timestamp_ms`` is that
            timestamp. If it is ahead of our clock, timestamps prove nothing.
    """
    return first <= begin and timestamp_ms <= now_ms + AHEAD_MS


def waiting_since_ms(begin: int, first: int, timestamp_ms: int) -> int | None:
    """Return the time of the oldest record that waits after a position; None: timestamps do not show it.

    Args:
        begin: the next source offset to be copied.
        first: the first source offset that is younger than the newest copied record; ``timestamp_ms`` is its
            timestamp. If it is before ``begin``, timestamps are not in order.
    """
    return timestamp_ms if first >= begin else None


class _Seen(NamedTuple):
    position: int | None
    since_s: float


class Movement:
    """Remembers the positions of partitions with waiting records, from look to look."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, _Seen] = {}

    def look(
        self,
        waiting: Mapping[TopicPartition, int | None],
        now_s: float,
        *,
        unknown: Collection[TopicPartition] = (),
    ) -> None:
        """Note the positions of partitions with waiting records; None: no position is stored.

        Args:
            unknown: partitions of which this look could not find out whether records wait. They keep their entry.
        """
        before = self._seen
        kept = {key: before[key] for key in unknown if key in before}
        self._seen = kept | {
            key: found
            if (found := before.get(key)) is not None and found.position == position
            else _Seen(position, now_s)
            for key, position in waiting.items()
        }

    def standing(
        self, positions: Mapping[TopicPartition, StoredPosition], *, now_s: float, now_ms: int, timeout_ms: int
    ) -> dict[TopicPartition, int | None]:
        """Return the partitions that stand still, with the time in ms at which each moved last, if it is known.

        Args:
            timeout_ms: a position that has moved within this time does not stand still.
        """
        found: dict[TopicPartition, int | None] = {}
        late_ms = late_after_ms(positions, timeout_ms)
        for key, seen in self._seen.items():
            stored = positions.get(key)
            moved_ms = None if stored is None else stored.moved_ms
            watched_s = now_s - seen.since_s
            if moved_ms is not None and moved_ms > now_ms + AHEAD_MS:
                if watched_s * 1000 >= late_ms:
                    found[key] = None
            elif watched_s >= SETTLE_S and (moved_ms is None or now_ms - moved_ms >= late_ms):
                found[key] = moved_ms
        return found

    def suspects(
        self, positions: Mapping[TopicPartition, StoredPosition], *, now_ms: int, timeout_ms: int
    ) -> Iterable[TopicPartition]:
        """Yield the partitions that stand still if the next look finds them at the same position."""
        late_ms = late_after_ms(positions, timeout_ms)
        for key in self._seen:
            stored = positions.get(key)
            if stored is None or stored.moved_ms is None or now_ms - stored.moved_ms >= late_ms:
                yield key


class LagMemory:
    """Remembers how far partitions were behind, from look to look."""

    def __init__(self) -> None:
        self._trends: dict[TopicPartition, LagTrend] = {}

    def look(self, waiting: Mapping[TopicPartition, LagSeen], now_ms: int) -> dict[TopicPartition, LagSeen]:
        """Note partitions with waiting records, and return what was seen of them ten seconds ago or more.

        A partition that is not named is forgotten: nothing waits, or it is not known.
        """
        self._trends = {key: self._trends.get(key) or LagTrend() for key in waiting}
        for key, seen in waiting.items():
            self._trends[key].keep(seen)
        before = {key: trend.before(now_ms) for key, trend in self._trends.items()}
        return {key: seen for key, seen in before.items() if seen is not None}
