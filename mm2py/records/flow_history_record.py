"""The history of a flow in ``mm2-history.A.internal``: its numbers, point by point, and its events. Pure.

One point in ten seconds is kept for an hour, one a minute for a day, and the last 500 events. Each has its place in a
ring, and the place is the key: a new point replaces the one that was there, so compaction bounds the topic. What is
written last counts. The flow's coordinator writes it, every worker's REST process reads it.

Not the history of settings, which is in ``records/history_record.py``. MirrorMaker 2 has neither.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

FORMAT_VERSION: Final = 1
FINE_S: Final = 10
MINUTE_S: Final = 60
SLOTS: Final[Mapping[int, int]] = {FINE_S: 3600 // FINE_S, MINUTE_S: 24 * 60}
"""How many points are kept of each step, in seconds."""
EVENTS_MOST: Final = 500
"""How many events of a flow are kept."""
TEXT_MOST: Final = 300
"""How many characters of an event's text are kept."""
NAME_MOST: Final = 100


class Series(StrEnum):
    """What is measured of a flow."""

    LAG_RECORDS = "lag_records"
    LAG_BYTES = "lag_bytes"
    LAG_S = "lag_s"
    """The age of the oldest record that waits."""
    SAFE_AGE_S = "safe_age_s"
    """How long ago the safe time was: all is copied up to then."""
    TOPICS_NOT_COPIED = "topics_not_copied"
    """Topics that are selected and not copied, or not all of them."""
    IN_RECORDS_PER_S = "in_records_per_s"
    """What came into the source partitions."""
    IN_BYTES_PER_S = "in_bytes_per_s"
    COPIED_RECORDS_PER_S = "copied_records_per_s"
    COPIED_BYTES_PER_S = "copied_bytes_per_s"


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The numbers of a flow at one moment, or the thinned ones of a minute."""

    at_ms: int
    """By the coordinator's clock; of a minute its beginning."""
    step_s: int
    """``FINE_S`` or ``MINUTE_S``."""
    by: str
    """The worker that has written it."""
    values: Mapping[Series, float]
    """What is not there is not known."""

    @property
    def slot(self) -> int:
        """The number of its step since 1970."""
        return self.at_ms // (self.step_s * 1000)


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """Something that has happened to a flow or to its group."""

    number: int
    """Goes up by one with each event of the flow."""
    at_ms: int
    kind: str
    text: str
    place: str
    """Where it stands in the topic that tells it: the same event has the same place, whichever worker reads it."""


HistoryRecord = HistoryPoint | HistoryEvent


class MalformedHistory(ValueError):
    """mm2py writes no such record."""


def encode_history_record(flow: str, record: HistoryRecord) -> tuple[bytes, bytes]:
    """Return key and value of a record."""
    fields: dict[str, Any] = {"format": FORMAT_VERSION, "at_ms": record.at_ms}
    if isinstance(record, HistoryPoint):
        place = f"{record.step_s}s {record.slot % SLOTS[record.step_s]}"
        fields |= {"step_s": record.step_s, "by": record.by[:NAME_MOST]}
        fields |= {str(name): number for name, number in record.values.items()}
    else:
        place = f"event {record.number % EVENTS_MOST}"
        fields |= {"event": record.number, "kind": record.kind, "text": record.text[:TEXT_MOST], "place": record.place}
    return f"{flow} {place}".encode(), json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode(
        errors="replace"
    )


def decode_history_record(flow: str, key: bytes | None, value: bytes | None) -> HistoryRecord | None:
    """Return what a record says of a flow; None: it says nothing of it.

    Raises:
        MalformedHistory: mm2py writes no such record.
    """
    if key is None or value is None or key.rsplit(b" ", 2)[0] != flow.encode():
        return None
    try:
        fields = json.loads(value)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT_VERSION:
            raise MalformedHistory("it is of another format")
        if "event" in fields:
            return HistoryEvent(
                _count(fields["event"]),
                _count(fields["at_ms"]),
                _text(fields["kind"], NAME_MOST),
                _text(fields["text"], TEXT_MOST),
                _text(fields["place"], NAME_MOST),
            )
        if (step_s := _count(fields["step_s"])) not in SLOTS:
            return None  # a later mm2py keeps other steps, too
        values = {name: _number(fields[name]) for name in Series if name in fields}
        return HistoryPoint(_count(fields["at_ms"]), step_s, _text(fields["by"], NAME_MOST), values)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedHistory(f"no record of a history: {str(error)[:100]}") from error


def _count(given: object) -> int:
    if type(given) is not int or not 0 <= given < 1 << 53:
        raise TypeError("a number is missing")
    return given


def _number(given: object) -> float:
    if type(given) not in {int, float}:
        raise TypeError("a number is missing")
    number = float(given)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError("a number is infinite")
    return number


def _text(given: object, most: int) -> str:
    if not isinstance(given, str):
        raise TypeError("a text is missing")
    return given[:most]
