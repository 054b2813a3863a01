"""Points in time as people write them on a command line and in a URL; times and durations as they read them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EPOCH_MS: Final = re.compile(r"[0-9]{1,15}")
_AGE: Final = re.compile(r"([0-9]{1,9})([smhd])")
_ZONE_OF_URL: Final = re.compile(r"(T[^ ]*) ([0-9]{2}:?[0-9]{2})")
MOMENTS: Final = "24h, 7d, 2026-11-23T14:00Z, or milliseconds since 1970"
"""Examples of all accepted forms."""


def age_or_iso_ms(text: str, now_ms: int) -> int | None:
    """Return the epoch milliseconds of ``24h`` (this long ago), or of an ISO 8601 time; None: it is neither.

    A time without a zone is UTC. In a URL ``+`` is a blank, also that of a zone.
    """
    if (age := _AGE.fullmatch(text)) is not None:
        return max(now_ms - int(age[1]) * _UNIT_S[age[2]] * 1000, 0)
    try:
        when = datetime.fromisoformat(_ZONE_OF_URL.sub(r"\1+\2", text))
        when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        return max(int(when.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        return None


def moment_ms(text: str, now_ms: int) -> int | None:
    """Return the epoch milliseconds that a text means: as ``age_or_iso_ms``, or the number itself; None: no time."""
    return int(text) if _EPOCH_MS.fullmatch(text) else age_or_iso_ms(text, now_ms)


def time_text(at_ms: int) -> str:
    """Return a wall-clock time in UTC, to the second."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return "?"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_text(seconds: float) -> str:
    """Return a duration in the two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def ago(ms: int) -> str:
    """Return a span of time in words."""
    seconds = ms / 1000
    for most, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds / unit:.1f} {name}" if seconds < 10 else f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} days"


def span_s(text: str) -> int | None:
    """Return the seconds that a span as ``30m`` or ``2h`` means; None: it is none."""
    found = _AGE.fullmatch(text)
    return None if found is None else int(found[1]) * _UNIT_S[found[2]]
