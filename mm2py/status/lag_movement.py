"""How a lag moves: does it grow, when is it caught up, and will the source delete records before they are copied? Pure.

``mm2py status``, ``/v1`` and the metrics have these numbers from here. What is not known is None, and never 0.

MirrorMaker 2 has none of this; Klag and Burrow watch consumer groups in this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from mm2py.moments import ago, time_text
from mm2py.records.lag_seen import LagSeen
from mm2py.topics.retention import Retention

_Number = TypeVar("_Number", int, float)

STEADY_PER_S: Final = 0.05
"""A lag that moves by fewer records in a second is steady."""


class LagTrendWord(StrEnum):
    """Where a lag goes."""

    KEEPS_UP = "keeps-up"
    """Nothing waits, or only what came within the last ten seconds."""
    SHRINKING = "shrinking"
    STEADY = "steady"
    GROWING = "growing"


class Expiry(StrEnum):
    """Whether the source deletes records before they are copied."""

    KEEPS_UP = "keeps-up"
    NEVER = "never"
    """The topic is compacted only, or has no limit of age and size."""
    NOT_AT_THIS_RATE = "not-at-this-rate"
    AT_THIS_RATE = "at-this-rate"
    """See ``expires_s``."""
    GONE = "gone"
    """The log starts behind the position: the records before are deleted. This is a gap."""
    UNKNOWN = "unknown"


_WORST_FIRST: Final = (
    Expiry.GONE,
    Expiry.AT_THIS_RATE,
    Expiry.UNKNOWN,
    Expiry.NOT_AT_THIS_RATE,
    Expiry.NEVER,
    Expiry.KEEPS_UP,
)


@dataclass(frozen=True, slots=True)
class LagMovement:
    """How the lag of a partition moves, or those of a topic's or flow's partitions together."""

    bytes: int | None
    """About how many bytes wait, by the mean size of the records that were copied. None: not known."""
    per_s: float | None
    """By how many records in a second the lag grows; below 0: it shrinks. Measured over 10 seconds or more; partitions
    that keep up count as 0. None: not known."""
    trend: LagTrendWord | None
    """The same in a word; of several partitions: of those that are behind. None: not known."""
    catch_up_s: float | None
    """In how many seconds nothing waits at this rate; 0: it keeps up. Of several partitions: the last one. None: it
    does not shrink, or this is not known."""
    since_ms: int | None
    """Since when it is behind: what the source held at this moment was copied then. By the clock of the worker; where
    the worker has stored none, the timestamp of the oldest record that waits. None: it keeps up, or not known."""
    retention_share: float | None
    """How much of the time, or of the bytes, for which the source keeps records the oldest waiting one has used up; 1:
    it may be deleted. 0: it keeps up, or is never deleted. Of several partitions: the largest. None: not known."""
    expiry: Expiry
    """Whether the source deletes records before they are copied; of several partitions: the worst."""
    expires_s: float | None
    """In how many seconds it may delete the first one at this rate: brokers delete whole segments, so it may be later.
    None: see ``expiry``."""

    @property
    def is_behind(self) -> bool:
        """Whether it does not keep up."""
        return self.expiry is not Expiry.KEEPS_UP

    @property
    def urgency(self) -> tuple[bool, float]:
        """The lowest needs help first: of what the source deletes before it is copied."""
        return self.expiry is not Expiry.GONE, float("inf") if self.expires_s is None else self.expires_s

    def with_bytes(self, size: int | None) -> LagMovement:
        """Return the same with another number of bytes that wait."""
        return replace(self, bytes=size)


KEEPS_UP: Final = LagMovement(0, 0.0, LagTrendWord.KEEPS_UP, 0.0, None, 0.0, Expiry.KEEPS_UP, None)
NOT_KNOWN: Final = LagMovement(None, None, None, None, None, None, Expiry.UNKNOWN, None)
"""Of a partition whose position or end is not known."""


class BehindFacts(NamedTuple):
    """What is known of a partition that is behind."""

    now: LagSeen
    before: LagSeen | None
    """An observation that is old enough to be compared with ``now``; None: there is none."""
    since_ms: int | None = None
    record_bytes: float | None = None
    """The mean size of its records."""
    waiting_s: float | None = None
    """The age of the oldest record that waits, by its timestamp."""
    retention: Retention | None = None
    """Of the topic on the source; None: not known."""
    log_start: int | None = None
    """The first offset that the source has; None: not known."""


def movement_of(facts: BehindFacts) -> LagMovement:
    """Return how the lag of a partition that is behind moves."""
    now, before = facts.now, facts.before
    size = None if facts.record_bytes is None else round(facts.record_bytes * now.records)
    per_s = age_per_s = None
    if before is not None and before.position <= now.position and before.end <= now.end:  # else it is another log
        passed_s = (now.at_ms - before.at_ms) / 1000
        per_s = (now.records - before.records) / passed_s
        if now.position == before.position:
            age_per_s = 1.0
        elif now.newest_ms is not None and before.newest_ms is not None and now.newest_ms >= before.newest_ms:
            age_per_s = 1 - (now.newest_ms - before.newest_ms) / 1000 / passed_s
    trend = None if per_s is None else _trend(per_s)
    catch_up_s = now.records / -per_s if per_s is not None and trend is LagTrendWord.SHRINKING else None
    share, expiry, expires_s = _expiry(facts, size, per_s, age_per_s)
    if expires_s and catch_up_s is not None and catch_up_s < expires_s:
        expiry, expires_s = Expiry.NOT_AT_THIS_RATE, None  # by then, nothing waits
    return LagMovement(size, per_s, trend, catch_up_s, facts.since_ms, share, expiry, expires_s)


def _trend(per_s: float) -> LagTrendWord:
    if abs(per_s) < STEADY_PER_S:
        return LagTrendWord.STEADY
    return LagTrendWord.GROWING if per_s > 0 else LagTrendWord.SHRINKING


class _Limit(NamedTuple):
    """How far the oldest waiting record is to one limit. None: not known."""

    used: float | None
    most: float
    per_s: float | None
    """By how much ``used`` grows in a second."""

    @property
    def expires_s(self) -> float | None:
        """In how many seconds the limit is reached at this rate; infinite: never. None: not known."""
        if self.used is None:
            return None
        if self.used >= self.most:
            return 0.0
        if self.per_s is None:
            return None
        return (self.most - self.used) / self.per_s if self.per_s > 0 else float("inf")


def _expiry(
    facts: BehindFacts, size: int | None, per_s: float | None, age_per_s: float | None
) -> tuple[float | None, Expiry, float | None]:
    """Return the share of the retention, whether records are deleted before they are copied, and in how many
    seconds."""
    if facts.log_start is not None and facts.log_start > facts.now.position:
        return 1.0, Expiry.GONE, None
    retention = facts.retention
    if retention is None:
        return None, Expiry.UNKNOWN, None
    if retention.is_for_ever:
        return 0.0, Expiry.NEVER, None
    limits = []
    if retention.ms is not None:
        limits.append(_Limit(facts.waiting_s, retention.ms / 1000, age_per_s))
    if retention.bytes is not None:
        grows = None if per_s is None or facts.record_bytes is None else per_s * facts.record_bytes
        limits.append(_Limit(size, float(retention.bytes), grows))
    shares = [1.0 if not one.most else one.used / one.most for one in limits if one.used is not None]
    share = max(shares) if len(shares) == len(limits) else None
    in_s = [one.expires_s for one in limits]
    known = [one for one in in_s if one is not None]
    first_s = min(known, default=float("inf"))
    if first_s < float("inf"):
        return share, Expiry.AT_THIS_RATE, first_s
    return share, Expiry.NOT_AT_THIS_RATE if len(known) == len(in_s) else Expiry.UNKNOWN, None


def together(movements: Iterable[LagMovement]) -> LagMovement:
    """Return how the lags of several partitions move together."""
    found = list(movements)
    behind = [one for one in found if one.is_behind]
    if not behind:
        return KEEPS_UP.with_bytes(_sum([one.bytes for one in found]))
    per_s = _sum([one.per_s for one in behind])
    return LagMovement(
        _sum([one.bytes for one in found]),
        per_s,
        None if per_s is None else _trend(per_s),
        _most([one.catch_up_s for one in behind]),
        min((one.since_ms for one in behind if one.since_ms is not None), default=None),
        _most([one.retention_share for one in behind]),
        min((one.expiry for one in behind), key=_WORST_FIRST.index),
        min((one.expires_s for one in behind if one.expires_s is not None), default=None),
    )


def _sum(numbers: Sequence[_Number | None]) -> _Number | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if len(known) == len(numbers) else None


def _most(numbers: Sequence[float | None]) -> float | None:
    known = [one for one in numbers if one is not None]
    return max(known) if known and len(known) == len(numbers) else None


def movement_text(records: int, movement: LagMovement, now_ms: int) -> str:
    """Return how far behind a partition or a topic is, in a line."""
    return ", ".join([f"{records:,} record{'' if records == 1 else 's'} behind", *_moves(movement, now_ms)])


def _moves(movement: LagMovement, now_ms: int) -> Iterable[str]:
    if movement.bytes is not None:
        yield f"about {bytes_text(movement.bytes)}"
    match movement.trend, movement.per_s:
        case (LagTrendWord.GROWING, float(per_s)):
            yield f"growing by {_rate_text(per_s)}/s"
        case (LagTrendWord.SHRINKING, float(per_s)):
            caught_up = movement.catch_up_s
            in_time = "" if caught_up is None else f", caught up in {ago(round(caught_up * 1000))} at this rate"
            yield f"shrinking by {_rate_text(-per_s)}/s{in_time}"
        case (LagTrendWord.STEADY, _):
            yield "neither growing nor shrinking"
        case _:
            pass
    if movement.since_ms is not None:
        yield f"since {_since_text(movement.since_ms, now_ms)}"
    match movement.expiry:
        case Expiry.GONE:
            yield "and the source has deleted the oldest"
        case Expiry.AT_THIS_RATE if not movement.expires_s:
            yield "the source may delete the oldest at any moment"
        case Expiry.AT_THIS_RATE:
            yield f"the oldest expires in {ago(round((movement.expires_s or 0.0) * 1000))} at this rate"
        case Expiry.NOT_AT_THIS_RATE if movement.retention_share is not None:
            yield f"{movement.retention_share:.0%} of its retention used"
        case Expiry.UNKNOWN:
            yield "not known when the oldest expires"
        case _:
            pass


def _rate_text(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.1f}"


def _since_text(since_ms: int, now_ms: int) -> str:
    """Return a time; without the date, if that is today's."""
    since, now = time_text(since_ms), time_text(now_ms)
    return since.partition("T")[2] if since.partition("T")[0] == now.partition("T")[0] and "T" in since else since


def bytes_text(size: int) -> str:
    """Return a number of bytes in a unit that leaves three digits."""
    for most, unit, name in ((10**3, 1, "B"), (10**6, 10**3, "KB"), (10**9, 10**6, "MB"), (10**12, 10**9, "GB")):
        if size < most:
            return f"{size / unit:.3g} {name}"
    return f"{size / 10**12:,.3g} TB"
