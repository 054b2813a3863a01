"""The line of contenders in ZooKeeper: who stands first, and how long that may be believed. Pure.

Every contender has one ephemeral, sequential znode whose name begins with the id of its session, so a node that an
earlier session left behind is never taken for ours. The lowest sequence may claim. ZooKeeper deletes a session's nodes
when it has not heard of it for the session's time-out, so what it confirmed may be believed for as long, counted from
the moment of asking. We stop acting after two thirds of that: w1 is cut off and w2 is elected a third later at the
earliest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from mm2py.worker.candidacy import Standing

_NAME: Final = re.compile(r"([0-9a-f]{16})-(\d{10})")
SUSPENDED_AFTER: Final = 2 / 3
"""Of the session's time-out."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One contender's node: ZooKeeper numbers them in the order of their coming."""

    sequence: int
    session: int

    @property
    def name(self) -> str:
        return f"{place_prefix(self.session)}{self.sequence:010d}"


def place_prefix(session: int) -> str:
    """Return how the names of a session's nodes begin; ZooKeeper puts the sequence behind it."""
    return f"{session & (2**64 - 1):016x}-"


def places(names: Iterable[str]) -> tuple[Place, ...]:
    """Return the contenders among the children of the election's node, in their order; strangers are passed over."""
    found = (_NAME.fullmatch(name) for name in names)
    return tuple(sorted(Place(int(match[2]), int(match[1], 16)) for match in found if match is not None))


@dataclass(frozen=True, slots=True)
class Connected:
    """The server took our session, new or known. ``session`` is not negative."""

    session: int
    timeout_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Disconnected:
    at_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """The line as it stood at some time after ``asked_at_s``; if we are first in it, a write of ours confirmed it."""

    line: tuple[Place, ...]
    asked_at_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The session expired, or we are about to close it."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    at_s: float


Event = Connected | Disconnected | Seen | Ended | Tick


@dataclass(frozen=True, slots=True)
class Line:
    """What one session knows of the line. A session that is over never comes back; the next begins with a new one."""

    timeout_s: float
    """As asked for, then as granted."""
    session: int | None = None
    is_connected: bool = False
    place: Place | None = None
    is_first: bool = False
    asked_at_s: float = 0.0
    """When the newest confirmed look was asked for; counts while we are first."""
    is_fresh: bool = False
    """A look was answered over the connection that stands."""
    is_over: bool = False
    """It stays so; of such a session only whether its server could be told matters still."""

    @property
    def evidence(self) -> str:
        if self.place is None or not self.is_first or self.is_over:
            return ""
        return f"zookeeper session 0x{self.place.session:016x} sequence {self.place.sequence:010d}"

    def standing(self, at_s: float) -> Standing:
        """Return what the worker may do at this time."""
        age_s = at_s - self.asked_at_s
        if self.is_over or not self.is_first or age_s >= self.timeout_s:
            return Standing.LOST
        if not self.is_fresh or age_s >= self.timeout_s * SUSPENDED_AFTER:
            return Standing.SUSPENDED
        return Standing.LEAD

    def next_change_s(self, at_s: float) -> float | None:
        """Return when the standing falls unless something happens before; None if it can fall no lower."""
        match self.standing(at_s):
            case Standing.LEAD:
                return self.asked_at_s + self.timeout_s * SUSPENDED_AFTER
            case Standing.SUSPENDED:
                return self.asked_at_s + self.timeout_s
            case Standing.LOST:
                return None
            case other:
                assert_never(other)


def step(line: Line, event: Event) -> Line:
    """Return what is known after an event; events come in the order in which they happened here."""
    if line.is_first and event.at_s - line.asked_at_s >= line.timeout_s:
        # w1 stalls for longer than its session, w2 is elected; w1 wakes and finds the answer to its last look waiting.
        line = _over(line)
    match event:
        case Connected(session, timeout_s):
            if line.session not in (None, session):  # what is known belongs to another
                return replace(_over(line), is_connected=True)
            # A shorter time-out counts from the last look as well: the server already goes by it.
            return replace(line, session=session, timeout_s=timeout_s, is_connected=True)
        case Disconnected():
            return replace(line, is_connected=False, is_fresh=False)
        case Seen(others, asked_at_s):
            return _seen(line, others, asked_at_s)
        case Ended():
            return replace(_over(line), is_connected=False)
        case Tick():
            return line
        case _:
            assert_never(event)


def own_place(line: Line, others: tuple[Place, ...]) -> Place | None:
    """Return our node among the others: the lowest of this session."""
    return next((place for place in others if place.session == line.session), None)


def ahead_of(place: Place, others: tuple[Place, ...]) -> Place | None:
    """Return the node whose end makes the one at ``place`` move up; None for the first."""
    return max((other for other in others if other < place), default=None)


def _seen(line: Line, others: tuple[Place, ...], asked_at_s: float) -> Line:
    place = own_place(line, others)
    if line.place is not None and place != line.place:  # somebody deleted it: do not make another in its stead
        return _over(line)
    is_first = place is not None and place == others[0]
    return replace(line, place=place, is_first=is_first, asked_at_s=asked_at_s, is_fresh=line.is_connected)


def _over(line: Line) -> Line:
    return replace(line, is_over=True, is_fresh=False)
