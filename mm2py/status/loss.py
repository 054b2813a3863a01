"""What would be lost of a flow if its source were lost now, in one sentence. Pure.

What is not copied at all and what is only behind are two different losses. A partition counts in one of them, so their
sum is the lag of the flow. Lag is counted in offsets, as everywhere in the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.flow import ClusterAlias
from mm2py.moments import time_text
from mm2py.records.partition_ranges import numbers, ranges
from mm2py.status.facts import FlowFacts
from mm2py.status.not_copied import NotCopied, Reason
from mm2py.status.partition_lags import begin_of, end_of

NAMED_MOST: Final = 3
"""How many topics the sentence names."""
NO_LOSS: Final = frozenset({Reason.GONE, Reason.SOURCE_SILENT})
"""Nothing would be lost of a topic that is gone. A source that is silent concerns all topics, and is told once."""


@dataclass(frozen=True, slots=True)
class UncopiedRecords:
    """The records that wait in what is not copied of a topic."""

    topic: str
    reason: str
    partitions: str
    """As ranges; empty: the whole topic."""
    records: int | None
    """None: not known."""


def uncopied_of(
    facts: FlowFacts, topics: Iterable[tuple[str, int, int | None, Sequence[NotCopied]]]
) -> tuple[UncopiedRecords, ...]:
    """Return what waits in the topics that are not copied, or not all of them, although they are selected.

    Args:
        topics: of each its name, its number of partitions, its lag (None: not known), and why it is not copied.
    """
    found = []
    for topic, count, lag, not_copied in topics:
        causes = [one for one in not_copied if not one.is_left_out and one.reason not in NO_LOSS]
        if not causes:
            continue
        if any(not one.partitions for one in causes):
            found.append(UncopiedRecords(topic, str(causes[0].reason), "", lag))
            continue
        stopped = sorted({number for one in causes for number in numbers(one.partitions)})
        if len(stopped) >= count:
            found.append(UncopiedRecords(topic, str(causes[0].reason), "", lag))
            continue
        waiting = [_waiting(facts, topic, number) for number in stopped]
        known = [one for one in waiting if one is not None]
        records = sum(known) if len(known) == len(waiting) else None
        found.append(UncopiedRecords(topic, str(causes[0].reason), ranges(stopped), records))
    return tuple(found)


def _waiting(facts: FlowFacts, topic: str, partition: int) -> int | None:
    key = (topic, partition)
    position = facts.positions.get(key)
    begin, end = begin_of(facts, key, position), end_of(facts, key, position)
    return None if begin is None or end is None else max(0, end - begin)


def rest_of(lag: int | None, uncopied: Iterable[UncopiedRecords]) -> int | None:
    """Return how many records wait in what is copied; None: not known."""
    return None if lag is None else max(0, lag - sum(one.records or 0 for one in uncopied))


def loss_text(
    source: ClusterAlias,
    uncopied: Sequence[UncopiedRecords],
    rest: int | None,
    *,
    is_partial: bool,
    behind_s: float | None,
    as_of_ms: int | None = None,
) -> str:
    """Return in a sentence what would be lost.

    Args:
        rest: how many records wait in what is copied.
        is_partial: there are partitions of which it is not known how many records wait.
        behind_s: how old the moment is up to which the rest is copied; None: not known.
        as_of_ms: the source does not answer, and this is what was known then.
    """
    waiting = sorted((one for one in uncopied if one.records != 0), key=lambda one: -(one.records or 0))
    parts = [f"{_number(one.records)} of {_named(one)} ({one.reason})" for one in waiting[:NAMED_MOST]]
    if others := waiting[NAMED_MOST:]:
        sizes = [one.records or 0 for one in others]
        is_known = all(one.records is not None for one in others)
        parts.append(f"{'' if is_known else 'at least '}{_number(sum(sizes))} of {len(others)} more topics")
    if (last := _rest(rest, is_partial, behind_s, of_rest=bool(parts))) or not parts:
        parts.append(last or "an unknown number of records")
    lost = " + ".join(parts)
    if as_of_ms is not None:
        return f"If {source} stays lost: {lost}, as known at {time_text(as_of_ms)}, and all that came to it since."
    return f"If {source} were lost now: {lost}."


def _rest(rest: int | None, is_partial: bool, behind_s: float | None, *, of_rest: bool) -> str:
    of_the = " of the rest" if of_rest else ""
    age = "" if behind_s is None else f"{behind_s:,.1f} s" if behind_s < 10 else f"{behind_s:,.0f} s"
    if not rest and not is_partial and rest is not None:
        return f"nothing{of_the} that was there {age} ago" if age else f"nothing{of_the} that is known"
    if not rest:
        return f"an unknown number of records{of_the}"
    number = f"{'at least ' if is_partial else ''}{_number(rest)}{of_the}"
    return f"{number}, the last {age}" if age else number


def _number(records: int | None) -> str:
    return "an unknown number of records" if records is None else f"{records:,} record{'' if records == 1 else 's'}"


def _named(one: UncopiedRecords) -> str:
    return f"{one.topic}/{one.partitions}" if one.partitions else one.topic
