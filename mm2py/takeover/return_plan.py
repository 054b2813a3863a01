"""Which positions of mm2py are handed back to another mirror, and what stands against it. Pure.

Only what a worker left behind in order can be handed back: its position then is where the copy ends. Of a worker that
was killed, records may be behind its position, and MirrorMaker 2 would copy them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mm2py.flow import Flow
from mm2py.kafka.port import TopicPartition
from mm2py.records.pause_record import Pauses
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition


@dataclass(frozen=True, slots=True)
class ReturnPlan:
    """What is handed back."""

    positions: Mapping[TopicPartition, int]
    """By source topic and partition: the source offset at which the mirror goes on."""
    refusals: tuple[str, ...] = ()
    """Sentences, with the way out."""
    notes: tuple[str, ...] = ()


def plan_return(
    flow: Flow,
    positions: Mapping[TopicPartition, StoredPosition],
    *,
    malformed: Iterable[str],
    held: str,
    pauses: Pauses,
) -> ReturnPlan:
    """Return what is handed back.

    Args:
        malformed: stored records that cannot be understood.
        held: the state in which the connectors are held; empty: they are started.
        pauses: what is paused of the flow.
    """
    refusals = [f"{one} is no position: correct or delete that record." for one in malformed]
    if held:
        refusals.append(
            f"{flow} is {held}: MirrorMaker 2 would read that. Let it go on first: mm2py resume FILE '{flow}'."
        )
    refusals += [
        f"{one.topic}{'' if one.partition is None else f'-{one.partition}'} is paused, and MirrorMaker 2 would copy it:"
        f" mm2py resume FILE '{flow}' first, or take it out of topics."
        for one in pauses.all()
    ]
    found: dict[TopicPartition, int] = {}
    for (topic, number), at in sorted(positions.items()):
        if at.by == BY_OPERATOR:
            refusals.append(
                f"{topic}-{number} has a position that an operator has set: start mm2py, and stop it in order."
            )
        elif not at.is_of_mm2 and not at.drained:
            refusals.append(
                f"{topic}-{number}: its worker did not stop in order, so more may be copied than its position says:"
                " start mm2py, and stop it in order (SIGTERM)."
            )
        elif at.next_source > 0:
            found[topic, number] = at.next_source
    if not found and not refusals:
        refusals.append(f"{flow} has no positions: there is nothing to hand back.")
    return ReturnPlan(found, tuple(refusals), tuple(_notes(positions)))


def _notes(positions: Mapping[TopicPartition, StoredPosition]) -> Iterable[str]:
    empty = sum(at.next_source == 0 for at in positions.values())
    if empty:
        yield f"{empty} partition(s) are at their start: MirrorMaker 2 begins there without a position."
