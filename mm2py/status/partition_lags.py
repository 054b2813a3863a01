"""How the lag of each partition moves, by what both clusters say. Pure.

The worker that copies a partition stores beside its position how far it was a while ago, and since when it is behind.
So one look at both clusters is enough to tell how fast a lag moves. Where no worker copies, a look is compared with the
position that was stored last, or with an earlier look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.kafka.port import TopicPartition
from mm2py.metrics.lag_trend import KEEPS_UP_MS, newest_apart
from mm2py.records.lag_seen import LagSeen
from mm2py.records.source_offset import StoredPosition
from mm2py.status.facts import FlowFacts
from mm2py.status.lag_movement import KEEPS_UP, NOT_KNOWN, BehindFacts, LagMovement, movement_of, movement_text

BEHIND_MOST: Final = 10
"""How many partitions of a flow are named. Those that the source deletes first come first."""
TOPICS_ASKED_MOST: Final = 20
"""For how many topics the source is asked how long it keeps their records."""


@dataclass(frozen=True, slots=True)
class PartitionBehind:
    """A partition that is behind."""

    topic: str
    """Its name on the source."""
    partition: int
    """Its number."""
    lag: int
    """How many records wait."""
    lag_s: float | None
    """The age of the oldest one, by its timestamp. None: not known."""
    movement: LagMovement
    """How its lag moves."""
    text: str
    """The same in a line."""


def end_of(facts: FlowFacts, key: TopicPartition, position: StoredPosition | None) -> int | None:
    """Return the end of a partition; if the source does not answer, the last end that the owner has stored."""
    if facts.selected is None and position is not None:
        return position.source_end
    return facts.ends.get(key)


def begin_of(facts: FlowFacts, key: TopicPartition, position: StoredPosition | None) -> int | None:
    """Return the next source offset to copy; None: not known."""
    if position is not None:
        return position.next_source
    return facts.starts.get(key) if facts.settings.auto_offset_reset == "earliest" else facts.ends.get(key)


def partition_movement(facts: FlowFacts, key: TopicPartition, now_ms: int) -> LagMovement:
    """Return how the lag of a partition moves."""
    position = facts.positions.get(key)
    end, begin = end_of(facts, key, position), begin_of(facts, key, position)
    if end is None or begin is None or begin > end:
        return NOT_KNOWN
    if begin == end:
        return KEEPS_UP
    size = None if position is None else position.record_bytes
    is_late, since_ms = _behind_since(facts, key, position, now_ms)
    if not is_late:
        return KEEPS_UP.with_bytes(None if size is None else size * (end - begin))
    newest_ms = None if position is None else position.newest_ms
    now = LagSeen(now_ms, end, begin, newest_ms)
    if facts.selected is None:  # the end is that of another moment
        return movement_of(BehindFacts(now, None, since_ms, size))
    return movement_of(
        BehindFacts(
            now,
            newest_apart((*_stored(position), facts.looked_before.get(key)), now_ms),
            since_ms,
            size,
            _waiting_s(facts, key, now_ms),
            facts.retentions.get(key[0]),
            facts.log_starts.get(key),
        )
    )


def _stored(position: StoredPosition | None) -> Sequence[LagSeen | None]:
    """Return what the owner of a partition has observed."""
    if position is None:
        return ()
    if position.source_end is None or position.moved_ms is None:
        return (position.lag_before,)
    end = max(position.source_end, position.next_source)
    return position.lag_before, LagSeen(position.moved_ms, end, position.next_source, position.newest_ms)


def _behind_since(
    facts: FlowFacts, key: TopicPartition, position: StoredPosition | None, now_ms: int
) -> tuple[bool, int | None]:
    """Return whether a partition of which records wait is behind, and since when, if that is known.

    The story: a topic was at rest for an hour, and a record comes. The position was stored an hour ago; the record
    itself says that nothing has waited for long.
    """
    if position is not None and position.behind_since_ms is not None:
        return True, position.behind_since_ms
    moved_ms = None if position is None else position.moved_ms
    if moved_ms is not None and abs(now_ms - moved_ms) <= KEEPS_UP_MS + len(facts.positions):
        return False, None  # its owner has just stored that it keeps up
    waiting_ms = facts.waiting_since_ms.get(key)
    if waiting_ms is None:
        return True, None
    return now_ms - waiting_ms > KEEPS_UP_MS, waiting_ms


def _waiting_s(facts: FlowFacts, key: TopicPartition, now_ms: int) -> float | None:
    since_ms = facts.waiting_since_ms.get(key)
    return None if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)


def partition_behind(
    facts: FlowFacts, key: TopicPartition, movement: LagMovement, now_ms: int
) -> PartitionBehind | None:
    """Return what is told of a partition that is behind; None if its lag is not known."""
    position = facts.positions.get(key)
    end, begin = end_of(facts, key, position), begin_of(facts, key, position)
    if end is None or begin is None or begin > end:
        return None
    lag = end - begin
    text = movement_text(lag, movement, now_ms)
    return PartitionBehind(*key, lag, _waiting_s(facts, key, now_ms), movement, text)


def worst_first(behind: Iterable[PartitionBehind]) -> list[PartitionBehind]:
    """Return partitions in the order in which they need help: records that are lost first, then the largest lag."""
    return sorted(behind, key=lambda one: (*one.movement.urgency, -one.lag, one.topic, one.partition))


def furthest_behind(facts: FlowFacts, now_ms: int) -> list[TopicPartition]:
    """Return the partitions that are behind, the largest lag first; only of the topics of which the source is asked how
    long it keeps their records."""
    found: list[tuple[int, TopicPartition]] = []
    for key, end in facts.ends.items():
        position = facts.positions.get(key)
        begin = begin_of(facts, key, position)
        if begin is not None and begin < end and _behind_since(facts, key, position, now_ms)[0]:
            found.append((begin - end, key))
    keys = [key for _, key in sorted(found)]
    topics = set(list(dict.fromkeys(topic for topic, _ in keys))[:TOPICS_ASKED_MOST])
    return [key for key in keys if key[0] in topics]
