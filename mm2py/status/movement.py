"""Which partitions stand still although records wait, as it shows from one look at the clusters to the next. Pure.

No worker is believed here. The story: a worker hangs, or one of an older version runs, so nothing says that a topic is
not copied. Its stored position shows it: records wait behind it, and it does not move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from mm2py.kafka.port import TopicPartition
from mm2py.records.source_offset import StoredPosition

SETTLE_S: Final = 3.0
"""How long a position is watched before it counts as one that does not move: a record may have come just now, and
workers store positions about once a second."""
AHEAD_MS: Final = 2_000
"""A position from so far in the future tells nothing: the clocks differ."""


def late_after_ms(positions: Collection[object], timeout_ms: int) -> int:
    """Return how old a position may be that moves: a worker stores a thousand positions a second at most."""
    return timeout_ms + len(positions)


def waits_since_lately(begin: int, first: int, timestamp_ms: int, *, now_ms: int) -> bool:
    """Return whether all records that wait behind a position have come within the time-out.

    The story: a topic was at rest for an hour. Then a record comes, and its worker stores the next position five
    seconds later: twenty thousand other partitions got a record as well.

    Args:
        begin: the next source offset to be copied.
        first: the first source offset whose timestamp is not older than the time-out, and that timestamp. If it is
            ahead of our clock, timestamps tell nothing.
    """
    return first <= begin and timestamp_ms <= now_ms + AHEAD_MS


def waiting_since_ms(begin: int, first: int, timestamp_ms: int) -> int | None:
    """Return the time of the oldest record that waits behind a position; None: timestamps do not tell it.

    Args:
        begin: the next source offset to be copied.
        first: the first source offset that is younger than the newest record that was copied, and its timestamp. Before
            the position it shows that timestamps are not in order.
    """
    return timestamp_ms if first >= begin else None


class _Seen(NamedTuple):
    position: int | None
    since_s: float


class Movement:
    """Remembers what each look has found of partitions of which records wait."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, _Seen] = {}

    def look(
        self,
        waiting: Mapping[TopicPartition, int | None],
        now_s: float,
        *,
        unknown: Collection[TopicPartition] = (),
    ) -> None:
        """Take in where the partitions stand of which records wait; None: no position is stored.

        Args:
            unknown: those of which this look could not tell whether records wait. They stand as before.
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
        """Return those that would stand still if they are found in the same place once more."""
        late_ms = late_after_ms(positions, timeout_ms)
        for key in self._seen:
            stored = positions.get(key)
            if stored is None or stored.moved_ms is None or now_ms - stored.moved_ms >= late_ms:
                yield key
