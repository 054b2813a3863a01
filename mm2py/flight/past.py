"""What the flight recorder says of one moment: what workers did not copy then, and what changed around it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mm2py.flight.pending import ANEW_MS, MARK_MS
from mm2py.moments import time_text
from mm2py.records.flight_record import (
    AllWritten,
    CausesChanged,
    ChangesLost,
    FlightEvent,
    LineLogged,
    RecordedAnew,
)
from mm2py.records.standstill import Standstill

READ_BEFORE_MS: Final = ANEW_MS + 5 * 60_000
"""How far before a moment reading begins: what was not copied then is written anew within that time."""
AROUND_MS: Final = 10 * 60_000
"""Changes this long before and after a moment are listed."""
WRITTEN_MS: Final = 2 * MARK_MS
"""A worker that wrote nothing for longer before a moment, and nothing after it in the same attempt, may have been
unable to write."""
AROUND_MOST: Final = 12
"""How many of them are listed: those of the topic before those of the whole flow, the nearest ones first."""


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
    unreadable: int = 0
    """How many records around it cannot be read: of another writer, or of a later version."""


def past_of(events: Iterable[FlightEvent], at_ms: int, topic: str) -> PastFacts:
    """Return what the recorder says of a moment.

    Args:
        events: those of at least ``READ_BEFORE_MS`` before it and of ``AROUND_MS`` after it, in the order of the log. A
            record that was written again may come late, so the times in them decide.
        at_ms: the moment, by the clocks of the workers.
        topic: the topic whose changes are listed, with those of the whole flow.
    """
    open_then: dict[tuple[str, str], Standstill] = {}
    around: list[tuple[bool, FlightLine]] = []
    lost = 0
    begun: set[str] = set()
    written: set[str] = set()
    restarted: set[str] = set()
    unknown: set[str] = set()
    for event in sorted(events, key=lambda one: one.at_ms):
        is_near = abs(event.at_ms - at_ms) <= AROUND_MS
        if isinstance(event, ChangesLost):
            lost += event.changes + event.lines if is_near else 0
            if event.changes and event.since_ms <= at_ms <= event.at_ms:
                unknown.add(event.member)
        if event.at_ms > at_ms and isinstance(event, RecordedAnew) and event.is_start:
            restarted.add(event.member)  # what its previous attempt could not write is lost
        if (
            isinstance(event, AllWritten | RecordedAnew)
            and event.at_ms >= at_ms - WRITTEN_MS
            and event.member not in restarted
        ):
            written.add(event.member)
        if is_near and (text := text_of(event, topic)):
            is_of_topic = isinstance(event, CausesChanged | LineLogged) and event.topic == topic
            around.append((not is_of_topic, FlightLine(event.at_ms, event.member, text)))
        if event.at_ms > at_ms:
            if isinstance(event, CausesChanged):
                _add_begun_before(open_then, event, at_ms)
            continue
        if isinstance(event, RecordedAnew):
            begun.add(event.member)
            open_then = {at: one for at, one in open_then.items() if one.member != event.member}
        elif isinstance(event, CausesChanged):
            open_then.pop((event.member, event.topic), None)
            if event.causes:
                open_then[event.member, event.topic] = Standstill(event.member, event.topic, event.causes)
    # A flow that starts writes a dozen lines at once: they must not push out what happened to the topic.
    nearest = [line for _, line in sorted(around, key=lambda one: (one[0], abs(one[1].at_ms - at_ms)))[:AROUND_MOST]]
    return PastFacts(
        tuple(open_then.values()),
        tuple(sorted(nearest, key=lambda one: one.at_ms)),
        lost,
        frozenset((begun & written) - unknown),
    )


def _add_begun_before(open_then: dict[tuple[str, str], Standstill], event: CausesChanged, at_ms: int) -> None:
    """Add the causes that were noticed after the moment and had begun before it."""
    before = open_then.get((event.member, event.topic), Standstill(event.member, event.topic, ()))
    known = {cause.reason for cause in before.causes}
    found = tuple(cause for cause in event.causes if cause.since_ms <= at_ms and cause.reason not in known)
    if found:
        open_then[event.member, event.topic] = replace(before, causes=(*before.causes, *found))


def text_of(event: FlightEvent, topic: str) -> str:
    """Return what people read of a change; empty if it concerns neither the topic nor the whole flow."""
    match event:
        case RecordedAnew(is_start=True):
            return "starts the flow"
        case CausesChanged() if event.topic in {topic, ""}:
            what = event.topic or "the flow"
            if not event.causes:
                return f"{what}: the reason has ended"
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
