"""The description of a link between two data centres. Pure. MirrorMaker 2 has no counterpart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum


class Way(Enum):
    """A direction of the link, by where its packets come from."""

    FROM_SOURCE = 0
    FROM_TARGET = 1


BOTH_WAYS = frozenset(Way)


@dataclass(frozen=True, slots=True)
class Link:
    """A link, the same in both directions.

    Args:
        round_trip_ms: the time of both directions together, without the queue.
        megabits_per_s: millions of bits a second in each direction; 0 for no limit.
        queue_bytes: how much may wait before each direction; further packets are dropped. Without a rate nothing waits.
        loss: the share of packets that get lost, 0 to 1.
        jitter_ms: the longest random delay of a packet, evenly distributed. Packets keep their order.
        overtaken: the share of packets that come a tenth of a round trip late, so that later ones overtake them.
        twice: the share of packets that arrive twice.
        packet_bytes: the largest packet (MTU).
        seed: chooses what gets lost and what is late.
    """

    round_trip_ms: float = 0.0
    megabits_per_s: float = 0.0
    queue_bytes: int = 12_500_000
    loss: float = 0.0
    jitter_ms: float = 0.0
    overtaken: float = 0.0
    twice: float = 0.0
    packet_bytes: int = 1500
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.round_trip_ms, self.megabits_per_s, self.queue_bytes, self.jitter_ms) < 0 or not all(
            0 <= share <= 1 for share in (self.loss, self.overtaken, self.twice)
        ):
            raise ValueError(f"no link is like this: {self}")

    def __str__(self) -> str:
        parts = [f"{self.round_trip_ms:g} ms"]
        if self.jitter_ms:
            parts.append(f"up to {self.jitter_ms:g} ms more")
        if self.loss:
            parts.append(f"{self.loss * 100:g} % loss")
        if self.overtaken:
            parts.append(f"{self.overtaken * 100:g} % overtaken")
        if self.twice:
            parts.append(f"{self.twice * 100:g} % twice")
        if self.packet_bytes != 1500:
            parts.append(f"packets of {self.packet_bytes:,} bytes")
        if self.megabits_per_s:
            parts.append(f"{self.megabits_per_s:g} Mbit/s, queue of {self.queue_bytes / 1e6:g} MB")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Counts:
    """The packets of one direction so far."""

    passed: int
    bytes_passed: int
    lost: int
    overflowed: int
    cut: int


def relay_line(link: Link, cut: frozenset[Way] = frozenset()) -> str:
    """Return the line of JSON that makes the relay behave like this link, with these directions cut."""
    return json.dumps(
        {
            "bytes_per_s": link.megabits_per_s * 1e6 / 8,
            "queue_bytes": link.queue_bytes,
            "delay_ns": round(link.round_trip_ms * 1e6 / 2),
            "jitter_ns": round(link.jitter_ms * 1e6),
            "loss": link.loss,
            "overtaken": link.overtaken,
            "overtaken_ns": round(link.round_trip_ms * 1e6 / 10),
            "twice": link.twice,
            "cut": [way in cut for way in Way],
        }
    )


def counts_of(answer: str) -> dict[Way, Counts]:
    """Return the counts in an answer of the relay."""
    numbers = [int(one) for one in answer.split()]
    each = len(numbers) // len(Way)
    return {way: Counts(*numbers[way.value * each : (way.value + 1) * each]) for way in Way}
