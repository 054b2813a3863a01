"""What a run has switched, and whether a verification shows that all of it is in the copies. Pure.

``mm2py dr complete`` compares source and target up to the ends at which the run's fence was verified. What is behind
them, clients and the flow back have written since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.backfill.verifying.planning import NotCompared, PartitionPlan, Why
from mm2py.backfill.verifying.results import Verification
from mm2py.backfill.verifying.verification import is_behind
from mm2py.dr.cutover.drained import topic_of
from mm2py.dr.journal import JournalEntry, standing_entry, stored_facts
from mm2py.dr.states import RecoveryState
from mm2py.flow import Flow
from mm2py.kafka.port import TopicPartition

_EXPLAINED: Final = frozenset({Why.EXPIRED, Why.BEFORE_COPYING, Why.GAP, Why.QUARANTINE, Why.RETURNED})
"""Nothing is left to compare there; or what is missing is known, and listed by ``mm2py gaps`` or in quarantine; or an
earlier run has switched it in the other direction."""


@dataclass(frozen=True, slots=True)
class SwitchedRanges:
    """Up to where the run that stands has moved each partition."""

    run: str
    ends: Mapping[TopicPartition, int]
    """By partition of the run's source, the end at which its fence was verified."""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({topic for topic, _ in self.ends}))


def switched_ranges(entries: Sequence[JournalEntry], flow: Flow) -> SwitchedRanges | None:
    """Return what the run that stands has switched; None: there is no run of this flow that could be completed."""
    last = standing_entry(entries)
    if last is None or last.state is not RecoveryState.REVERSED or last.flow != flow:
        return None
    ends = stored_facts([one for one in entries if one.run == last.run]).source_ends
    return SwitchedRanges(last.run, {topic_of(partition): end for partition, end in ends.items()})


def not_clean(found: Verification, ends: Mapping[TopicPartition, int]) -> list[str]:
    """Return why a verification does not show that everything up to these ends is in the copies; empty: it does."""
    return [*_not_clean(found, ends)]


def _not_clean(found: Verification, ends: Mapping[TopicPartition, int]) -> Iterator[str]:
    plans: dict[TopicPartition, PartitionPlan] = {}
    for one in found.partitions:
        key = (one.plan.facts.topic, one.plan.facts.partition)
        plans[key] = one.plan
        if one.is_different:
            yield f"{_name(key)} differs"
        for compared, why in one.problems:
            yield f"{_name(key)} {list(compared.source)} was not compared: {why}"
    for note in found.not_compared:
        key = (note.topic, note.partition)
        if note.why not in _EXPLAINED and not _is_outside(note, ends, plans.get(key)):
            yield f"{note.count:,} offset(s) of {_name(key)} were not compared: {note.why}"
    left_out = {(one.topic, one.partition) for one in found.left_out}
    for key in sorted(ends):
        if key not in plans and key not in left_out:
            yield f"{_name(key)} was not looked at"


def _is_outside(note: NotCompared, ends: Mapping[TopicPartition, int], plan: PartitionPlan | None) -> bool:
    """Return whether what was not compared lies behind what was switched."""
    if note.is_target:
        return note.why is Why.BEHIND_LEDGER and plan is not None and is_behind(plan, ends)
    end = ends.get((note.topic, note.partition))
    return end is not None and note.start >= end


def _name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"
