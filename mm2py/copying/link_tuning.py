"""How many connections to one broker are worth their cost. Pure.

A broker's default ``socket.send.buffer.bytes`` (100 KB) ends the kernel's tuning, so one connection carries about
180 KB a round trip: 1.8 MB/s at 100 ms, whatever the link carries. Several connections carry a multiple of that. The
right number is found by trying: it grows in large steps while the rate grows with it, and is then reduced to what the
rate needs. Near brokers (round trips under ``NEAR_S``) are read over one connection, which does not limit the rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NEAR_S: Final = 0.005
"""Over a shorter round trip one connection carries 36 MB/s or more, and more of them only cost."""
LOOK_S: Final = 0.25
"""How often a fetch lane calls ``LinkTuner.look``. A produce lane does so every ``MEASURED_S``."""
MEASURED_S: Final = 0.5
"""How long the rate is measured, at least."""
MEASURED_ROUND_TRIPS: Final = 4
SETTLE_ROUND_TRIPS: Final = 6
"""How long new connections take until they carry what they can: they are opened, and the kernel's windows grow."""
FIRST: Final = 4
"""How many connections it takes to see what one of them carries."""
GROWTH: Final = 16
TRY_GROWTH: Final = 1.5
"""The factor by which a number that was found is exceeded, to see whether more connections are worth it now."""
FOLLOWS: Final = 0.5
"""More connections are worth it if the rate grew by at least this part of what they should have added."""
SPARE: Final = 1.25
"""The factor by which more connections are kept than the best rate needs."""
IDLE_S: Final = 10.0
"""How long connections are kept when there is nothing to catch up."""
TRY_AGAIN_S: Final = 60.0
"""How long a number that was found is kept. The link may carry more later; each try without gain doubles the pause."""
TRY_AGAIN_MOST_S: Final = 600.0
ASKED_FOR_S: Final = 10.0
"""No more is asked for at once than arrives within this time.

The story: over 1 Mbit/s 64 connections were opened, to see whether they bring more. What they had asked for would have
taken four minutes, so each request timed out, and next to nothing was copied."""


class Limit(StrEnum):
    """What bounds the rate at which a backlog is read."""

    NOTHING_TO_DO = "no backlog"
    NEAR = "the source is near, one connection carries all"
    GROWING = "still growing"
    LINK = "the link"
    CONNECTIONS = "connections.per.broker.max"
    MEMORY = "memory.max.bytes"
    TARGET = "the target"
    RATE = "bytes.per.second.max"
    QUOTA = "the source's quota"


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen in one stretch of time."""

    at_s: float
    round_trip_s: float | None
    received_bytes: int
    """Since the start."""
    backlog: bool
    """There was something to catch up."""
    asked_bytes: int = 0
    """What was asked for and is under way now, or waits at the broker."""
    held_up_by: Limit | None = None
    """What kept most reads from being sent, other than the number of connections."""


class LinkTuner:
    """Decides how many connections to one broker read backlogs."""

    def __init__(self) -> None:
        self.connections = 1
        self.limit = Limit.NOTHING_TO_DO
        self.bytes_per_s = 0.0
        """The rate in the last stretch of time that was measured."""
        self.best_bytes_per_s = 0.0
        """The most that was measured since connections were opened."""
        self._before: Look | None = None
        """Where the present measurement began."""
        self._settled_at_s = 0.0
        self._busy_at_s = -math.inf
        self._smaller: tuple[int, float] | None = None
        """The number before the last growth, and its rate."""
        self._is_found = False
        """More connections did not pay: this number stays until ``_try_again_at_s``."""
        self._try_again_at_s = math.inf
        self._pause_s = TRY_AGAIN_S

    @property
    def part_of_best(self) -> float:
        """The present rate as a part of the best one; at most 1."""
        return min(1.0, self.bytes_per_s / self.best_bytes_per_s) if self.best_bytes_per_s else 1.0

    def look(self, look: Look, most: int) -> None:
        """Decide again, by what was seen; ``most`` is ``connections.per.broker.max``."""
        if look.backlog:
            self._busy_at_s = look.at_s
        elif look.at_s - self._busy_at_s > IDLE_S:
            self._change(1, look, Limit.NOTHING_TO_DO)
            self._smaller, self._is_found, self._pause_s = None, False, TRY_AGAIN_S
            self.bytes_per_s = self.best_bytes_per_s = 0.0
            return
        if not look.backlog:
            self._before = None  # less was wanted than the link could bring, which says nothing about the link
            self.limit = Limit.NOTHING_TO_DO
            return
        round_trip_s = look.round_trip_s
        if round_trip_s is None or round_trip_s < NEAR_S:
            self._change(1, look, Limit.NEAR)
            return
        if self.connections > most:
            self._change(most, look, Limit.CONNECTIONS)
        if self.connections == 1 and most > 1:  # the first read shows only how far away the broker is
            self._smaller = None
            self._is_found = False
            self._change(min(FIRST, most), look, Limit.GROWING)
            return
        self._measure(look, round_trip_s, most)

    def timed_out(self) -> None:
        """Start again with few connections, because answers did not come in time: few time out least."""
        if self.connections > FIRST:
            self.connections, self._before = FIRST, None
        self.limit, self._smaller, self._is_found = Limit.GROWING, None, False

    def _measure(self, look: Look, round_trip_s: float, most: int) -> None:
        if look.at_s < self._settled_at_s + SETTLE_ROUND_TRIPS * round_trip_s:
            return
        is_held_up = look.held_up_by is not None
        if look.held_up_by is not None:
            self.limit = look.held_up_by
        if self._before is None or is_held_up != (self._before.held_up_by is not None):
            self._before = look  # a rate that was held up for a part of the time says nothing about the link
            return
        if look.at_s - self._before.at_s < max(MEASURED_S, MEASURED_ROUND_TRIPS * round_trip_s):
            return
        if is_held_up:
            self._note_rate(look)
            self._before = look
            return
        if look.received_bytes - self._before.received_bytes < look.asked_bytes / 2:
            return  # most connections have not answered yet, so the rate says nothing
        self._note_rate(look)
        self._before = look
        smaller = self._smaller
        if smaller is not None:
            number, rate = smaller
            due = (self.connections / number - 1) * FOLLOWS
            if rate and self.bytes_per_s / rate - 1 < due:
                was_tried = self.connections <= math.ceil(number * TRY_GROWTH)
                needed = number if was_tried else math.ceil(SPARE * number * self.bytes_per_s / rate)
                self._smaller, self._is_found = None, True
                self._try_again_at_s = look.at_s + self._pause_s
                self._pause_s = min(2 * self._pause_s, TRY_AGAIN_MOST_S)
                self._change(max(number, min(needed, self.connections)), look, Limit.LINK)
                return
            self._smaller = None  # growing was worth it
            self._is_found = False
        if self._is_found and look.at_s < self._try_again_at_s:
            self.limit = Limit.LINK
            return
        if self.connections >= most:
            self.limit = Limit.CONNECTIONS
            return
        if not self.bytes_per_s:
            return  # nothing is read over them: there are only small backlogs
        growth = TRY_GROWTH if self._is_found else GROWTH
        more = min(most, math.ceil(self.connections * growth))
        if look.asked_bytes:
            more = min(more, int(self.connections * self.bytes_per_s * ASKED_FOR_S / look.asked_bytes))
        if more <= self.connections:
            self.limit, self._is_found = Limit.LINK, True
            self._try_again_at_s = look.at_s + TRY_AGAIN_S
            return
        self._smaller = (self.connections, self.bytes_per_s)
        self._change(more, look, Limit.GROWING)

    def _note_rate(self, look: Look) -> None:
        before = self._before
        if before is not None and look.at_s > before.at_s:
            self.bytes_per_s = (look.received_bytes - before.received_bytes) / (look.at_s - before.at_s)
            self.best_bytes_per_s = max(self.best_bytes_per_s, self.bytes_per_s)

    def _change(self, connections: int, look: Look, limit: Limit) -> None:
        self.limit = limit
        if connections != self.connections:
            self.connections = connections
            self._before, self._settled_at_s = None, look.at_s
