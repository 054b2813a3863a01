"""What the flight recorder says of one moment: what workers did not copy then, and what changed around it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.flight.pending import ANEW_MS
from mm2py.moments import time_text
from mm2py.records.flight_record import CausesChanged, ChangesLost, FlightEvent, LineLogged, RecordedAnew
from mm2py.records.standstill import Standstill

READ_BEFORE_MS: Final = ANEW_MS + 5 * 60_000
"""How far before a moment reading begins: what was not copied then is written anew within that time."""
AROUND_MS: Final = 10 * 60_000
"""Changes this long before and after a moment are listed."""
AROUND_MOST: Final = 12
"""How many of them are listed: the nearest ones."""


@dataclass(frozen=True, slots=True)
class FlightLine:
    """A change near a moment."""

    at_ms: int
    """By the clock of the worker that recorded it."""
    member: str
    """The worker: in an answer its name, if that is known, else its id."""
    text: str
    """What changed."""


@dataclass(frozen=True, slots=True)
class PastFacts:
    """What the flight recorder says of one moment."""

    standstills: tuple[Standstill, ...]
    """What workers did not copy then, and why."""
    around: tuple[FlightLine, ...]
    """What changed around it, in the order of time."""
    lost: int
    """How many changes around it the recorder had no room for."""
    covered: frozenset[str]
    """The ids of the workers whose records say all that they did not copy then."""


def past_of(events: Iterable[FlightEvent], at_ms: int, topic: str) -> PastFacts:
    """Return what the recorder says of a moment.

    Args:
        events: those of at least ``READ_BEFORE_MS`` before it and of ``AROUND_MS`` after it, in the order of the log.
        at_ms: the moment, by the clocks of the workers.
        topic: the topic whose changes are listed, with those of the whole flow.
    """
    open_then: dict[tuple[str, str], Standstill] = {}
    around: list[FlightLine] = []
    lost = 0
    covered: set[str] = set()
    for event in events:
        is_near = abs(event.at_ms - at_ms) <= AROUND_MS
        if is_near and isinstance(event, ChangesLost):
            lost += event.changes
        if is_near and (text := _text_of(event, topic)):
            around.append(FlightLine(event.at_ms, event.member, text))
        if event.at_ms > at_ms:
            continue
        if isinstance(event, RecordedAnew):
            covered.add(event.member)
            open_then = {at: one for at, one in open_then.items() if one.member != event.member}
        elif isinstance(event, CausesChanged):
            open_then.pop((event.member, event.topic), None)
            if event.causes:
                open_then[event.member, event.topic] = Standstill(event.member, event.topic, event.causes)
    nearest = sorted(around, key=lambda one: abs(one.at_ms - at_ms))[:AROUND_MOST]
    return PastFacts(
        tuple(open_then.values()), tuple(sorted(nearest, key=lambda one: one.at_ms)), lost, frozenset(covered)
    )


def _text_of(event: FlightEvent, topic: str) -> str:
    """Return what people read of a change; empty if it concerns neither the topic nor the whole flow."""
    match event:
        case RecordedAnew(is_start=True):
            return "starts the flow"
        case CausesChanged() if event.topic in {topic, ""}:
            what = event.topic or "the flow"
            if not event.causes:
                return f"{what}: it copies all of its part again"
            return f"{what}: {'; '.join(_in_words(event))}"
        case LineLogged() if event.topic in {topic, ""}:
            where = "" if event.partition is None else f" partition {event.partition}"
            return f"{event.level.upper()} {event.event}{where} {event.text}".strip()
        case _:
            return ""


def _in_words(event: CausesChanged) -> Sequence[str]:
    return [
        f"{one.reason}{f' (partitions {one.partitions})' if one.partitions else ''} since {time_text(one.since_ms)}:"
        f" {one.why}"
        for one in event.causes
    ]
