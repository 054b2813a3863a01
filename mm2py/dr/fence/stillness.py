"""Whether a fence holds: nothing was written for a while, and no transaction is open. Pure.

What is judged is what the leaders say, not what the fence has set: whoever writes in spite of it, moves an end offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from mm2py.kafka.port import TopicPartition
from mm2py.kafka.producer.transactions import ActiveProducer

STILL_S: Final = 10.0
"""For how long nothing may have been written."""
MOVED_KEPT: Final = 20
"""How many movements are kept for the report, the latest."""


@dataclass(frozen=True, slots=True)
class FenceSample:
    """What the leaders of all fenced partitions say at one time, between ``at_s`` and ``answered_s``."""

    at_s: float
    """When they were asked."""
    ends: Mapping[TopicPartition, int]
    """Where each leader's log ends, replicated or not."""
    stable: Mapping[TopicPartition, int]
    """Up to where each may be read under ``read_committed``."""
    producers: Mapping[TopicPartition, Sequence[ActiveProducer]]
    unread: Sequence[str] = ()
    """What was not answered, each a sentence."""
    answered_s: float = -inf
    """When the last of them had answered; if it is not given, at once."""


@dataclass(frozen=True, slots=True, order=True)
class BegunTransaction:
    """A transaction that is open in one partition."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} has an open transaction of producer id {self.producer_id} from offset"
            f" {self.start_offset}"
        )


@dataclass(frozen=True, slots=True)
class Stillness:
    """What the samples say so far."""

    since_s: float
    """Since when nothing has moved. Each look at which a partition did not answer begins anew. It begins with the last
    answer of a look: a look that takes 30 s, because a broker is slow, is no proof of 30 s."""
    last: FenceSample
    moved: tuple[str, ...] = ()
    """What has moved, the latest last."""

    @property
    def still_s(self) -> float:
        """For how long nothing has moved."""
        return max(0.0, self.last.at_s - self.since_s)

    @property
    def open(self) -> list[BegunTransaction]:
        """The transactions that are open."""
        return sorted(
            BegunTransaction(
                topic,
                partition,
                one.producer_id,
                one.epoch,
                one.coordinator_epoch,
                one.txn_start_offset,
            )
            for (topic, partition), producers in self.last.producers.items()
            for one in producers
            if one.txn_start_offset >= 0
        )

    @property
    def unstable(self) -> list[str]:
        """The partitions whose end may not be read yet, in words."""
        return [
            f"{topic}-{partition} ends at {end}, and may be read up to {self.last.stable.get((topic, partition), 0)}"
            for (topic, partition), end in sorted(self.last.ends.items())
            if self.last.stable.get((topic, partition)) != end
        ]

    @property
    def is_proven(self) -> bool:
        """Whether the fence is verified by these samples."""
        return bool(self.last.ends) and self.still_s >= STILL_S and not self.open and not self.unstable

    def reasons(self) -> list[str]:
        """Return why it is not proven, each a sentence; nothing if it is."""
        if self.is_proven:
            return []
        found = [f"{one}." for one in (*self.last.unread, *map(str, self.open), *self.unstable)]
        if not self.last.ends:
            found.append("No partition was looked at.")
        if self.still_s < STILL_S:
            found += [f"{one}." for one in self.moved[-MOVED_KEPT:]]
            found.append(f"Nothing has moved for {self.still_s:.1f} s only; {STILL_S:g} s are needed.")
        return found


def look_again(before: Stillness | None, sample: FenceSample) -> Stillness:
    """Return what is known after one more sample."""
    answered_s = max(sample.at_s, sample.answered_s)
    if before is None:
        return Stillness(answered_s, sample)
    moved = list(_movements(before.last, sample))
    if not moved and not sample.unread and not before.last.unread:
        return replace(before, last=sample)
    return Stillness(answered_s, sample, (*before.moved, *moved)[-MOVED_KEPT:])


def _movements(before: FenceSample, now: FenceSample) -> Iterable[str]:
    for key, end in sorted(now.ends.items()):
        topic, partition = key
        earlier = before.ends.get(key)
        if earlier is None:
            if not before.unread:
                yield f"{topic}-{partition} is new"
            continue
        writers = list(_writers(before.producers.get(key, ()), now.producers.get(key, ())))
        if end != earlier:
            by = ", ".join(f"producer id {one}" for one in writers) or "a producer that brokers do not name"
            yield f"{topic}-{partition} went from offset {earlier} to {end}, by {by}"
        elif writers:
            by = ", ".join(f"producer id {one}" for one in writers)
            yield f"{topic}-{partition} has heard of {by}"


def _writers(before: Iterable[ActiveProducer], now: Iterable[ActiveProducer]) -> Iterable[int]:
    """Return the producer ids whose last sequence, time or epoch is another one."""
    known = {one.producer_id: one for one in before}
    for one in now:
        earlier = known.get(one.producer_id)
        if earlier is None or (earlier.epoch, earlier.last_sequence, earlier.last_timestamp_ms) != (
            one.epoch,
            one.last_sequence,
            one.last_timestamp_ms,
        ):
            yield one.producer_id
