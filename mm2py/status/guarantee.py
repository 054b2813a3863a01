"""Whether records may be in the copy twice after crashes, as far as the clusters show it. Pure.

A running worker logs its own guarantee, and may know more reasons.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mm2py.group.view.group_state import GroupState
from mm2py.records.status_record import Done, GapKind
from mm2py.status.facts import FlowFacts

NAMES_MOST = 3


class Level(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How often a record is in the copy after crashes."""

    level: Level
    reasons: tuple[str, ...]
    """Why it is no better. Under exactly-once: what else an operator should know."""


def guarantee_of(facts: FlowFacts, state: GroupState | None) -> Guarantee:
    """Return what can be told of a flow.

    Args:
        state: of the group on its target; None if that cannot be read, or no worker has joined one.
    """
    reasons = list(_why_not_once(facts, state))
    if reasons:
        return Guarantee(Level.AT_LEAST_ONCE, tuple(reasons))
    unread = tuple(filter(None, (facts.positions_unread, facts.status_unread)))
    if unread:
        return Guarantee(Level.UNKNOWN, unread)
    flow = facts.settings.flow
    if not facts.positions and (state is None or flow not in state.flows):
        return Guarantee(Level.UNKNOWN, ("it has not run yet",))
    return Guarantee(Level.EXACTLY_ONCE, tuple(_others(facts)))


def _why_not_once(facts: FlowFacts, state: GroupState | None) -> Iterable[str]:
    flow = facts.settings.flow
    if facts.settings.many_to_one:
        yield "several flows write to one topic"
    own_ids = {position.producer_id for position in facts.positions.values()}
    plain = set()
    if state is not None:
        for member in state.members.values():
            writers = [writer for writer in member.writers.values() if writer.flow == flow]
            own_ids |= {writer.producer_id for writer in writers}
            if any(writer.transactional_id is None for writer in writers):
                plain.add(member.joined.name)
        # A producer whose flow is not known any more may have written for this one.
        others = {
            writer.producer_id
            for member in state.members.values()
            for writer in member.writers.values()
            if writer.flow != flow
        }
        unfenced = {pid: why for pid, why in state.unfenced.items() if pid in own_ids or pid not in others}
        if unfenced:
            whys = sorted(set(unfenced.values()))
            yield f"{len(unfenced)} producer id(s) could not be fenced: {_some(whys)}"
    elif any(position.by is None and position.producer_id is not None for position in facts.positions.values()):
        plain.add("the last writer")
    if plain:
        yield f"{_some(sorted(plain))} writes without a transactional id, and cannot be fenced surely"
    repeated = _topics_with(facts, GapKind.REPEATED)
    if repeated:
        yield f"records of {_some(repeated)} may be there twice"


def _others(facts: FlowFacts) -> Iterable[str]:
    foreign = _topics_with(facts, GapKind.FOREIGN)
    if foreign:
        yield f"others write to the copies of {_some(foreign)} as well"


def _topics_with(facts: FlowFacts, kind: GapKind) -> list[str]:
    """Gaps that an operator has accepted do not count."""
    return sorted({gap.topic for gap in facts.gaps if gap.kind is kind and gap.done is not Done.ACCEPTED})


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_MOST
    return ", ".join(names[:NAMES_MOST]) + (f" and {more} more" if more > 0 else "")
