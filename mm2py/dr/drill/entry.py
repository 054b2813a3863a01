"""What is kept of a drill: a record of ``mm2-drills.A.B.internal`` on both clusters, for ``mm2py dr history``. Pure.

It is not part of the recovery journal: nobody acts on it, and a drill must not shut out a process that works on a real
recovery.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mm2py.dr.drill.printout import recovery_point, verdict_line
from mm2py.dr.drill.report import DrillReport, places_told, verification_word
from mm2py.moments import duration_text, time_text
from mm2py.records.author import UNKNOWN, Author, author_of, plain, with_reason
from mm2py.secret import printable

FORMAT: Final = 1
TEXT_MOST: Final = 2_000
NAME_MOST: Final = 300


@dataclass(frozen=True, slots=True)
class DrillEntry:
    """One drill, in short."""

    run: str
    flow: str
    verdict: str
    """``proven`` or ``not-proven``."""
    begun_ms: int
    ended_ms: int
    text: str
    """What the drill said, in a line."""
    recovery_s: float
    recovery_point: str
    """In words."""
    compared: str
    """What the comparison said, in a word."""
    source_root: str = ""
    target_root: str = ""
    author: Author = UNKNOWN
    summary: Mapping[str, Any] | None = None
    """The record as it was written, for programs."""


def encode_drill(report: DrillReport, written_by: str) -> bytes:
    """Return the value of the record. ``written_by``: the version of mm2py."""
    readiness, roots = report.readiness, report.roots
    found: dict[str, Any] = {
        "format": FORMAT,
        "mm2py": written_by,
        "run": report.run,
        "flow": report.flow,
        "verdict": str(report.verdict),
        "begun_ms": report.begun_ms,
        "ended_ms": report.ended_ms,
        "to": report.to,
        "text": verdict_line(report)[:TEXT_MOST],
        "groups": len(report.groups),
        "partitions": {str(kind): count for kind, count in report.counts.items()},
        "not_proven": places_told(report),
        "reasons": [one[:NAME_MOST] for one in report.reasons[:20]],
        "recovery_s": round(report.recovery_s, 3),
        "recovery_point": recovery_point(report),
        "safe_at_ms": readiness.safe_at_ms,
        "lost_s": readiness.lost_s,
        "lost_records": readiness.lost_records,
        "compared": verification_word(report.verification),
        "records": report.compared,
        "source_root": roots[0],
        "target_root": roots[1],
        **report.author.fields,
    }
    return json.dumps(found, separators=(",", ":")).encode()


def decode_drill(value: bytes | None) -> DrillEntry | None:
    """Return the entry of a record; None: it is none that this mm2py can read. Nothing depends on it but a list."""
    try:
        found: Any = json.loads(value or b"")
        return DrillEntry(
            run=_text(found["run"]),
            flow=_text(found["flow"]),
            verdict=_text(found["verdict"]),
            begun_ms=int(found["begun_ms"]),
            ended_ms=int(found["ended_ms"]),
            text=plain(found["text"], TEXT_MOST),
            recovery_s=float(found["recovery_s"]),
            recovery_point=plain(found["recovery_point"], NAME_MOST),
            compared=plain(found["compared"], NAME_MOST),
            source_root=plain(found["source_root"], NAME_MOST),
            target_root=plain(found["target_root"], NAME_MOST),
            author=author_of(found),
            summary=found,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return plain(value, NAME_MOST)


def merged(kept: Iterable[Sequence[DrillEntry]]) -> list[DrillEntry]:
    """Return the drills that clusters have, each once, in the order in which they began."""
    found = {entry.run: entry for entries in kept for entry in entries}
    return sorted(found.values(), key=lambda one: (one.begun_ms, one.run))


def drill_text(entry: DrillEntry) -> str:
    """Return a drill as ``mm2py dr history`` shows it."""
    who = with_reason(f"{entry.author.user or '?'}@{entry.author.host or '?'}", entry.author.reason)
    took = duration_text(max(0, entry.ended_ms - entry.begun_ms) / 1000)
    digest = f", digest {entry.target_root}" if entry.target_root else ""
    lines = [
        f"drill of {entry.flow}: {entry.verdict}, begun {time_text(entry.begun_ms)}, {took}, by {who} ({entry.run})",
        f"  {entry.text}",
        f"  recovery time {entry.recovery_s:,.2f} s measured; recovery point {entry.recovery_point.rstrip('.')};"
        f" copies {entry.compared}{digest}",
    ]
    return "\n".join(printable(line) for line in lines)
