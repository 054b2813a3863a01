"""The report of recoveries: what the journal says, step by step, for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.states import MEANING, RecoveryEvent, RecoveryState
from mm2py.moments import duration_text, time_text
from mm2py.records.author import with_reason
from mm2py.text_table import text_table

PARTITIONS_MOST: Final = 20
TOPICS_MOST: Final = 5


def runs_of(entries: Sequence[JournalEntry]) -> list[list[JournalEntry]]:
    """Return the entries of each run, in the order in which the runs began."""
    found: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        found.setdefault(entry.run, []).append(entry)
    return list(found.values())


def report_text(entries: Sequence[JournalEntry], now_ms: int) -> str:
    """Return all runs as people read them, the last one at the end."""
    stands = standing_entry(entries)
    blocks = ["\n".join(_run_lines(run, stands, now_ms)) for run in runs_of(entries)]
    return "\n\n".join(blocks) + "\n" if blocks else "No recovery has run.\n"


def undo_text(stands: JournalEntry, now_ms: int) -> str:
    """Return for how long the run that stands can be undone, in words; empty: it is none that could be."""
    if stands.state is not RecoveryState.REVERSED:
        return ""
    over_ms = stands.undo_ends_ms
    if over_ms is None:
        return "it can be undone by mm2py dr rollback until mm2py dr complete"
    if now_ms >= over_ms:
        return f"it can be undone no more since {time_text(over_ms)}"
    return f"it can be undone by mm2py dr rollback until {time_text(over_ms)}"


def _run_lines(run: Sequence[JournalEntry], stands: JournalEntry | None, now_ms: int) -> Iterator[str]:
    first, last = run[0], run[-1]
    topics = ", ".join(first.topics[:TOPICS_MOST])
    more = f" and {len(first.topics) - TOPICS_MOST} more" if len(first.topics) > TOPICS_MOST else ""
    took = duration_text(max(0, last.at_ms - first.at_ms) / 1000)
    begun = f"begun {time_text(first.at_ms)}, {took}"
    undo = undo_text(stands, now_ms) if stands is not None and stands.run == last.run else ""
    yield f"{last.verb} of {last.flow}: {last.state}, {begun}, {topics or 'no topic'}{more}{undo and f'; {undo}'}"
    yield from text_table(
        ("AT", "STATE", "BY", "AFTER", "WHO", "WHAT"),
        [
            (
                time_text(entry.at_ms),
                str(entry.state),
                str(entry.event),
                "-" if entry.took_ms is None else f"{entry.took_ms / 1000:,.1f} s",
                with_reason(f"{entry.author.user or '?'}@{entry.author.host or '?'}", entry.author.reason),
                entry.text or _what(entry),
            )
            for entry in run
        ],
        right=(3,),
    )


def step_text(entry: JournalEntry) -> str:
    """Return one step as it is told while a run goes on."""
    took = "" if entry.took_ms is None else f", after {entry.took_ms / 1000:,.1f} s"
    text = entry.text or _what(entry) or MEANING[entry.state]
    return f"{time_text(entry.at_ms)}  {entry.state}{took}: {text}"


def _what(entry: JournalEntry) -> str:
    """Return the positions of an entry in words."""
    facts, told = entry.facts, list[str]()
    if entry.event is RecoveryEvent.FENCE_HOLDS:
        told.append(f"ends {_offsets(facts.source_ends)}")
    if entry.event is RecoveryEvent.HOOK_DONE:
        return ""  # what is known of the run in one entry: the steps before have told it
    if facts.copied_to:
        told.append(f"copied to {_offsets(facts.copied_to)}")
    told += [f"group {group} at {_offsets(offsets)}" for group, offsets in sorted(facts.groups.items())]
    return "; ".join(told)


def _offsets(offsets: Any) -> str:
    named = [f"{partition}: {offset:,}" for partition, offset in sorted(offsets.items())[:PARTITIONS_MOST]]
    more = f" and {len(offsets) - PARTITIONS_MOST} more" if len(offsets) > PARTITIONS_MOST else ""
    return ", ".join(named) + more


def report_plain(entries: Sequence[JournalEntry]) -> list[dict[str, Any]]:
    """Return all runs as JSON types, with every position."""
    return [
        {
            "run": run[0].run,
            "verb": str(run[-1].verb),
            "flow": str(run[-1].flow),
            "state": str(run[-1].state),
            "begun_ms": run[0].at_ms,
            "topics": list(run[0].topics),
            "window_s": run[0].window_s,
            "undo_ends_ms": run[-1].undo_ends_ms,
            "steps": [_plain_step(entry) for entry in run],
        }
        for run in runs_of(entries)
    ]


def _plain_step(entry: JournalEntry) -> dict[str, Any]:
    facts = entry.facts
    return {
        "number": entry.number,
        "at_ms": entry.at_ms,
        "state": str(entry.state),
        "event": str(entry.event),
        "took_ms": entry.took_ms,
        "user": entry.author.user,
        "host": entry.author.host,
        "reason": entry.author.reason,
        "text": entry.text,
        "source_ends": dict(facts.source_ends),
        "copied_to": dict(facts.copied_to),
        "target_ends": dict(facts.target_ends),
        "groups": {group: dict(offsets) for group, offsets in facts.groups.items()},
        "source_epochs": dict(facts.source_epochs),
    }
