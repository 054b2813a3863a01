"""The gaps that a copier finds: what is missing where, in words for the operator, and where copying can go on. Pure.

Answers to nothing in MM2: its consumer goes on at the earliest record, or in the middle, and says nothing. Where
``done`` says STOPPED the partition stalls, and ``gaps`` decides what becomes of it.
"""

from __future__ import annotations

from mm2py.records.status_record import Done, GapKind
from mm2py.replication.events import Diverged, ForeignerMet, GapFound, SourceRewritten, TargetLost
from mm2py.replication.position import Position


def source_cut_back(event: Diverged, position: Position, *, fetch_offset: int) -> GapFound:
    """Return the gap where the source log ends, in the epoch that was read last, before ``fetch_offset``."""
    text = (
        f"the source log was cut back to offset {event.end_offset} (leader epoch {event.epoch}), "
        f"and {fetch_offset} had been read; what replaced it cannot be told apart"
    )
    go_on_at = min(event.end_offset, position.source_offset)
    last = max(event.end_offset, fetch_offset - 1)
    return GapFound(GapKind.TRUNCATED, event.end_offset, last, Done.STOPPED, text, go_on_at)


def source_rewritten(event: SourceRewritten) -> GapFound:
    """Return the gap where other records stand in the source than were copied."""
    text = (
        f"records of the source offsets {event.first} to {event.last} were copied, and others stand there "
        "now: the source log was cut back"
    )
    return GapFound(GapKind.TRUNCATED, event.first, event.last, Done.STOPPED, text, event.first)


def source_ends_before(position: Position, log_end: int) -> GapFound:
    """Return the gap where the whole source log ends before the position."""
    at = position.source_offset
    text = f"the position is source offset {at} and the log ends at {log_end}: it was cut back or made anew"
    return GapFound(GapKind.TRUNCATED, log_end, at - 1, Done.STOPPED, text, log_end)


def source_expired(position: Position, log_start: int, *, stops: bool) -> GapFound:
    """Return the gap where the source log begins behind the position."""
    first, last = position.source_offset, log_start - 1
    text = f"source offsets {first} to {last} were deleted before they were copied"
    if stops:
        return GapFound(GapKind.EXPIRED, first, last, Done.STOPPED, text, log_start)
    return GapFound(GapKind.EXPIRED, first, last, Done.CONTINUED, f"{text}; it goes on at {log_start}", log_start)


def target_lost(event: TargetLost, position: Position) -> GapFound:
    """Return the gap where the remote partition was looked at, and does not hold what was stored in it."""
    where = "ends" if event.end < event.expected else "reads differently"
    text = event.known or (
        f"the remote partition {where} at offset {event.end}, and all up to {event.expected} had been "
        "stored: it was cut back"
    )
    return _target_truncated(position, text)


def target_stored_before(position: Position, stored_at: int) -> GapFound:
    """Return the gap where a new batch was stored before the end of what had been stored."""
    text = f"the target stored a batch at offset {stored_at}, and all up to {position.target_offset} had been stored"
    return _target_truncated(position, text)


def foreigner_met(event: ForeignerMet, position: Position) -> GapFound:
    """Return the gap where somebody else writes to the remote partition: nobody knows what is missing."""
    return GapFound(GapKind.FOREIGN, None, None, Done.STOPPED, event.text, position.source_offset)


def _target_truncated(position: Position, text: str) -> GapFound:
    at = position.source_offset
    return GapFound(GapKind.TARGET_TRUNCATED, None, at - 1, Done.STOPPED, text, at)
