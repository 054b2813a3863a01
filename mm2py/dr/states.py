"""The machine of states of a recovery: one table. Pure.

A run moves the producers and groups of some topics from its source to its target. ``cutover`` and ``rollback`` are the
same run in opposite directions; ``failover`` is the run that does without its source. Each state is an entry of the
journal (``journal.py``) that was stored before anything was done in it. So a process that finds the entry knows what
may have been done, and what cannot have been done.

Before ``Switching`` is stored nothing has been switched: a failure takes everything back. Behind it the hook may have
run: then the way back is another run, the other way round.

``docs/internals/dr-states.md`` shows this table; a test holds the page to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from mm2py.errors import Mm2Error

PartitionOffsets = Mapping[str, int]
"""By partition, as ``orders-3`` of the source's name, an offset."""
NO_OFFSETS: Final[PartitionOffsets] = MappingProxyType({})


class RecoveryVerb(StrEnum):
    """What a run is for."""

    CUTOVER = "cutover"
    """Both clusters answer. Nothing is lost, nothing is read again."""
    ROLLBACK = "rollback"
    """A cutover that undoes the last one: it goes the other way round."""
    FAILOVER = "failover"
    """The source does not answer. What it has and the target has not is lost until it comes back."""


class RecoveryState(StrEnum):
    """How far a run has come."""

    READY = "Ready"
    FENCING = "Fencing"
    FENCED = "Fenced"
    FENCE_VERIFIED = "FenceVerified"
    DRAINED = "Drained"
    GROUPS_FINAL = "GroupsFinal"
    SWITCHING = "Switching"
    SWITCHED = "Switched"
    REVERSED = "Reversed"
    COMPLETE = "Complete"
    TAKING_BACK = "TakingBack"
    TAKEN_BACK = "TakenBack"
    CUTTING_OFF = "CuttingOff"
    CUT_OFF = "CutOff"
    GROUPS_PLACED = "GroupsPlaced"
    FAILING_OVER = "FailingOver"
    FAILED_OVER = "FailedOver"
    REINSTATING = "Reinstating"
    REINSTATED = "Reinstated"
    EXTRAS_SETTLED = "ExtrasSettled"


MEANING: Final[Mapping[RecoveryState, str]] = MappingProxyType(
    {
        RecoveryState.READY: "Nothing was done. The preconditions are looked at as a whole.",
        RecoveryState.FENCING: "Earlier values are stored. Any part of the source's fence may stand.",
        RecoveryState.FENCED: "The whole fence was set on the source.",
        RecoveryState.FENCE_VERIFIED: "The source takes no records any more; its ends are stored.",
        RecoveryState.DRAINED: "The target has every record up to these ends.",
        RecoveryState.GROUPS_FINAL: "Each group that moves goes on on the target at the exact record.",
        RecoveryState.SWITCHING: "The hook may have run. The source's fence stands.",
        RecoveryState.SWITCHED: "The hook has run: producers and groups are sent to the target.",
        RecoveryState.REVERSED: "The flow leads back, and the target takes records. The source stays fenced.",
        RecoveryState.COMPLETE: "As Reversed, and the run can be undone no more.",
        RecoveryState.TAKING_BACK: "What was set is being removed. Any part of it may still stand.",
        RecoveryState.TAKEN_BACK: "Everything is as it was before the run.",
        RecoveryState.CUTTING_OFF: "The target is told that the flow ends; its workers may still write.",
        RecoveryState.CUT_OFF: "Nothing of the flow can write into the target any more.",
        RecoveryState.GROUPS_PLACED: "Each group goes on on the target at the chosen record.",
        RecoveryState.FAILING_OVER: "The hook may have run.",
        RecoveryState.FAILED_OVER: "Producers and groups are on the target. The source may take records unseen.",
        RecoveryState.REINSTATING: "The source is back, and its fence is being set and verified.",
        RecoveryState.REINSTATED: "The source is fenced. Records that only it has are listed.",
        RecoveryState.EXTRAS_SETTLED: "They were exported, replayed, or left by name.",
    }
)


class RecoveryEvent(StrEnum):
    """What happens to a run: an operator's word, a fact, or a failure."""

    CUTOVER_ASKED = "CutoverAsked"
    FAILOVER_ASKED = "FailoverAsked"
    FENCE_SET = "FenceSet"
    FENCE_HOLDS = "FenceHolds"
    ALL_COPIED = "AllCopied"
    GROUPS_EXACT = "GroupsExact"
    SWITCH_CONFIRMED = "SwitchConfirmed"
    HOOK_DONE = "HookDone"
    FLOW_REVERSED = "FlowReversed"
    PRODUCERS_FREE = "ProducersFree"
    COMPLETE_ASKED = "CompleteAsked"
    UNDO_ASKED = "UndoAsked"
    FAILED = "Failed"
    TAKE_BACK_ASKED = "TakeBackAsked"
    ALL_REMOVED = "AllRemoved"
    RESTARTED = "Restarted"
    WRITERS_CUT_OFF = "WritersCutOff"
    GROUPS_AT_CHOSEN = "GroupsAtChosen"
    REINSTATE_ASKED = "ReinstateAsked"
    EXTRAS_NOTED = "ExtrasNoted"
    EXTRAS_SETTLED = "ExtrasSettled"


class RecoveryEffect(StrEnum):
    """What the process does next. Each may be repeated: what is there already stays as it is."""

    SET_FENCE = "set the fence on the source"
    VERIFY_FENCE = "verify the source's fence, and store its ends"
    DRAIN = "wait until the target has everything up to these ends, and each group is final"
    FINISH_GROUPS = "commit each group on the target at the exact record"
    CONFIRM_SWITCH = "look once more whether the source's ends and fence are as stored"
    RUN_HOOK = "run the switch hook"
    TURN_FLOW_ROUND = "stop the flow, and start the one that leads back"
    FREE_PRODUCERS = "remove the target's fence, if it has one"
    TAKE_BACK = "remove the source's fence and the flow's mark, and restore earlier values"
    CUT_OFF_WRITERS = "mark the flow as ended on the target, and fence its producers"
    PLACE_GROUPS = "commit each group at the chosen record"
    HOLD_FLOW_BACK = "stop the flow back, if it runs already"
    LIST_EXTRAS = "list what only the source has"
    ALARM = "say what stands, and what to do"


ONLY_LOOK: Final = frozenset(
    {
        RecoveryEffect.VERIFY_FENCE,
        RecoveryEffect.DRAIN,
        RecoveryEffect.CONFIRM_SWITCH,
        RecoveryEffect.ALARM,
    }
)
"""They change nothing, so they may come late."""

S, E, F = RecoveryState, RecoveryEvent, RecoveryEffect


@dataclass(frozen=True, slots=True)
class RecoveryRow:
    """One transition."""

    state: RecoveryState
    event: RecoveryEvent
    following: RecoveryState
    effects: tuple[RecoveryEffect, ...]
    when: str
    turns: bool = False
    """The following state is that of another run, from the target to the source."""


def _taken_back(state: RecoveryState) -> Iterator[RecoveryRow]:
    """Yield the ways back of a state in which nothing was switched."""
    yield RecoveryRow(state, E.FAILED, S.TAKING_BACK, (F.TAKE_BACK,), "A step failed, or the time is over.")
    yield RecoveryRow(state, E.TAKE_BACK_ASKED, S.TAKING_BACK, (F.TAKE_BACK,), "An operator says `dr unfence`.")


def _fails_over(state: RecoveryState) -> RecoveryRow:
    text = "The source is lost before anything was switched, and the operator accepts what this loses."
    return RecoveryRow(state, E.FAILOVER_ASKED, S.CUTTING_OFF, (F.CUT_OFF_WRITERS,), text)


def _rows() -> Iterator[RecoveryRow]:
    row = RecoveryRow
    yield row(S.READY, E.CUTOVER_ASKED, S.FENCING, (F.SET_FENCE,), "Every precondition holds.")
    yield _fails_over(S.READY)
    yield row(S.FENCING, E.FENCE_SET, S.FENCED, (F.VERIFY_FENCE,), "All that it is made of is there.")
    yield row(S.FENCING, E.RESTARTED, S.FENCING, (F.SET_FENCE,), "The rest of the fence is set.")
    yield row(S.FENCED, E.FENCE_HOLDS, S.FENCE_VERIFIED, (F.DRAIN,), "Its ends did not move, nobody writes.")
    yield row(S.FENCED, E.RESTARTED, S.FENCED, (F.VERIFY_FENCE,), "The process begins to verify.")
    yield row(S.FENCE_VERIFIED, E.ALL_COPIED, S.DRAINED, (F.FINISH_GROUPS,), "Positions are at the stored ends.")
    yield row(S.DRAINED, E.GROUPS_EXACT, S.GROUPS_FINAL, (F.CONFIRM_SWITCH,), "All are, or were left by name.")
    for verified in (S.FENCE_VERIFIED, S.DRAINED, S.GROUPS_FINAL):
        text = "What was verified ended with the process that saw it."
        yield row(verified, E.RESTARTED, S.FENCED, (F.VERIFY_FENCE,), text)
    for state in (S.FENCING, S.FENCED, S.FENCE_VERIFIED, S.DRAINED, S.GROUPS_FINAL):
        yield from _taken_back(state)
        yield _fails_over(state)
    text = "The source's ends are as stored. From here on the way back is another run."
    yield row(S.GROUPS_FINAL, E.SWITCH_CONFIRMED, S.SWITCHING, (F.RUN_HOOK,), text)
    yield row(S.SWITCHING, E.HOOK_DONE, S.SWITCHED, (F.TURN_FLOW_ROUND,), "The hook says that it has switched.")
    yield row(S.SWITCHING, E.FAILED, S.SWITCHING, (F.ALARM,), "The hook failed, and may have switched a part.")
    text = "The hook runs again, if the source's ends are as stored."
    yield row(S.SWITCHING, E.RESTARTED, S.SWITCHING, (F.CONFIRM_SWITCH, F.RUN_HOOK), text)
    text = "The hook is left as it is. The flow is turned round first: a rollback needs it."
    yield row(S.SWITCHING, E.UNDO_ASKED, S.SWITCHED, (F.TURN_FLOW_ROUND,), text)
    yield row(S.SWITCHED, E.FLOW_REVERSED, S.REVERSED, (F.FREE_PRODUCERS,), "The flow back runs.")
    yield row(S.SWITCHED, E.FAILED, S.SWITCHED, (F.ALARM,), "The flow could not be turned round.")
    yield row(S.SWITCHED, E.RESTARTED, S.SWITCHED, (F.TURN_FLOW_ROUND,), "It is turned round.")
    for state in (S.SWITCHING, S.SWITCHED):
        text = "The source is lost. All was drained before: nothing is lost with it."
        yield row(state, E.FAILOVER_ASKED, S.FAILING_OVER, (F.CUT_OFF_WRITERS, F.RUN_HOOK), text)
    yield row(S.REVERSED, E.PRODUCERS_FREE, S.REVERSED, (), "The target's fence is gone. The window is open.")
    yield row(S.REVERSED, E.FAILED, S.REVERSED, (F.ALARM,), "The target's fence could not be removed.")
    yield row(S.REVERSED, E.RESTARTED, S.REVERSED, (F.FREE_PRODUCERS,), "The target's fence is looked for.")
    yield row(S.REVERSED, E.COMPLETE_ASKED, S.COMPLETE, (), "The window ended, or an operator says `dr complete`.")
    text = "An operator says `dr rollback`, and every precondition holds: another run, the other way round."
    yield row(S.REVERSED, E.UNDO_ASKED, S.FENCING, (F.SET_FENCE,), text, turns=True)
    text = "The target is lost, and the operator accepts what this loses: another run, the other way round."
    yield row(S.REVERSED, E.FAILOVER_ASKED, S.CUTTING_OFF, (F.CUT_OFF_WRITERS,), text, turns=True)
    yield row(S.TAKING_BACK, E.ALL_REMOVED, S.TAKEN_BACK, (), "Fence and mark are gone, earlier values are back.")
    yield row(S.TAKING_BACK, E.FAILED, S.TAKING_BACK, (F.ALARM,), "Something could not be removed.")
    yield row(S.TAKING_BACK, E.RESTARTED, S.TAKING_BACK, (F.TAKE_BACK,), "The rest is removed.")
    yield _fails_over(S.TAKING_BACK)
    yield row(S.CUTTING_OFF, E.WRITERS_CUT_OFF, S.CUT_OFF, (F.PLACE_GROUPS,), "No producer of the flow may write.")
    yield row(S.CUT_OFF, E.GROUPS_AT_CHOSEN, S.GROUPS_PLACED, (F.CONFIRM_SWITCH,), "All are, or were left by name.")
    text = "The flow is still cut off. From here on the way back is another run."
    yield row(S.GROUPS_PLACED, E.SWITCH_CONFIRMED, S.FAILING_OVER, (F.RUN_HOOK,), text)
    for state in (S.CUTTING_OFF, S.CUT_OFF, S.GROUPS_PLACED):
        yield row(state, E.RESTARTED, S.CUTTING_OFF, (F.CUT_OFF_WRITERS,), "The writers are cut off again.")
        yield from _taken_back(state)
    yield row(S.FAILING_OVER, E.HOOK_DONE, S.FAILED_OVER, (F.FREE_PRODUCERS,), "The hook says that it has switched.")
    yield row(S.FAILING_OVER, E.FAILED, S.FAILING_OVER, (F.ALARM,), "The hook failed, and may have switched a part.")
    yield row(S.FAILING_OVER, E.RESTARTED, S.FAILING_OVER, (F.CUT_OFF_WRITERS, F.RUN_HOOK), "The hook runs again.")
    yield row(S.FAILED_OVER, E.PRODUCERS_FREE, S.FAILED_OVER, (), "The target's fence is gone.")
    yield row(S.FAILED_OVER, E.FAILED, S.FAILED_OVER, (F.ALARM,), "The target's fence could not be removed.")
    yield row(S.FAILED_OVER, E.RESTARTED, S.FAILED_OVER, (F.FREE_PRODUCERS,), "The target's fence is looked for.")
    text = "The source answers again, and both journals agree."
    yield row(S.FAILED_OVER, E.REINSTATE_ASKED, S.REINSTATING, (F.HOLD_FLOW_BACK, F.SET_FENCE, F.VERIFY_FENCE), text)
    yield row(S.REINSTATING, E.FENCE_HOLDS, S.REINSTATED, (F.LIST_EXTRAS,), "Its ends did not move, nobody writes.")
    yield row(S.REINSTATING, E.FAILED, S.REINSTATING, (F.ALARM,), "The source's fence could not be set or verified.")
    text = "The fence is set and verified again."
    for state in (S.REINSTATING, S.REINSTATED):
        yield row(state, E.RESTARTED, S.REINSTATING, (F.HOLD_FLOW_BACK, F.SET_FENCE, F.VERIFY_FENCE), text)
    text = "Some were exported or left by name, or are about to be replayed: the entry says which."
    yield row(S.REINSTATED, E.EXTRAS_NOTED, S.REINSTATED, (F.LIST_EXTRAS,), text)
    text = "Each was exported, replayed, or left by name."
    yield row(S.REINSTATED, E.EXTRAS_SETTLED, S.EXTRAS_SETTLED, (F.TURN_FLOW_ROUND,), text)
    yield row(S.REINSTATED, E.FAILED, S.REINSTATED, (F.ALARM,), "The records could not be listed or settled.")
    text = "The flow back runs. `dr failback` is a cutover from here."
    yield row(S.EXTRAS_SETTLED, E.FLOW_REVERSED, S.COMPLETE, (), text)
    yield row(S.EXTRAS_SETTLED, E.FAILED, S.EXTRAS_SETTLED, (F.ALARM,), "The flow back could not be started.")
    yield row(S.EXTRAS_SETTLED, E.RESTARTED, S.EXTRAS_SETTLED, (F.TURN_FLOW_ROUND,), "It is started.")


TABLE: Final = tuple(_rows())
_BY_KEY: Final = MappingProxyType({(row.state, row.event): row for row in TABLE})

ENDED: Final = frozenset({S.TAKEN_BACK, S.COMPLETE})
"""Nothing is left to do."""
MAY_HAVE_SWITCHED: Final = frozenset(
    {S.SWITCHING, S.SWITCHED, S.REVERSED, S.COMPLETE, S.FAILING_OVER, S.FAILED_OVER}
    | {S.REINSTATING, S.REINSTATED, S.EXTRAS_SETTLED}
)
"""The hook may have run: nothing is taken back."""
LATE_S: Final = 30.0
"""A request of a process that has ended may arrive this much later; see ``is_at_rest``."""
ACTS_WITHIN_S: Final = 10.0
"""So long after the last entry that counts a process may begin to change something. Then it stores another one."""
WITHOUT_SOURCE: Final = frozenset({S.CUTTING_OFF, S.CUT_OFF, S.GROUPS_PLACED, S.FAILING_OVER, S.FAILED_OVER})
"""An entry of these states counts as soon as the target has it."""
WITHOUT_TARGET: Final = frozenset({S.TAKING_BACK, S.TAKEN_BACK})
"""An entry of these states counts as soon as the source has it."""


def is_at_rest(state: RecoveryState, event: RecoveryEvent) -> bool:
    """Return whether nothing of the process that stored such an entry can be under way.

    Else the next process waits for ``LATE_S`` before it changes anything. The story: one removes a fence, and is
    killed. The next one finds the fence gone, and sets it for another cutover. Then the first one's request arrives.
    """
    return any(not row.effects for row in TABLE if row.following is state and row.event is event)


class NoSuchTransition(Mm2Error):
    """An event came that the table does not have in this state."""

    def __init__(self, state: RecoveryState, event: RecoveryEvent) -> None:
        possible = ", ".join(row.event for row in TABLE if row.state is state)
        super().__init__(
            f"The recovery is {state}: {event} cannot happen now.",
            remedy=f"What can: {possible}. See mm2py dr check FILE 'A->B'.",
        )


class PromiseBroken(Mm2Error):
    """A fact contradicts what the run promises. It goes no further."""

    def __init__(self, event: RecoveryEvent, why: str) -> None:
        super().__init__(f"The recovery stops before {event}: {why}.", remedy="Nothing was switched by this step.")


@dataclass(frozen=True, slots=True)
class RecoveryFacts:
    """What was seen. An event that claims something is held to it."""

    source_ends: PartitionOffsets = field(default_factory=lambda: NO_OFFSETS)
    """The ends of the source's partitions."""
    copied_to: PartitionOffsets = field(default_factory=lambda: NO_OFFSETS)
    """Up to which source offset each partition is in the target."""
    target_ends: PartitionOffsets = field(default_factory=lambda: NO_OFFSETS)
    """The ends of the copies, by the same names."""
    groups: Mapping[str, PartitionOffsets] = field(default_factory=lambda: MappingProxyType({}))
    """By group, where it goes on on the target."""
    source_epochs: PartitionOffsets = field(default_factory=lambda: NO_OFFSETS)
    """The source's leader epoch of the record before ``copied_to``, where it is known."""


NO_FACTS: Final = RecoveryFacts()


def transition(
    state: RecoveryState, event: RecoveryEvent, seen: RecoveryFacts = NO_FACTS, stored: RecoveryFacts = NO_FACTS
) -> RecoveryRow:
    """Return the row of an event.

    Args:
        seen: what this process has seen just now.
        stored: what the run has stored so far.
    Raises:
        NoSuchTransition: the table has no such row.
        PromiseBroken: the event claims what the facts deny.
    """
    row = _BY_KEY.get((state, event))
    if row is None:
        raise NoSuchTransition(state, event)
    if why := _denied(row, seen, stored):
        raise PromiseBroken(event, why)
    return row


def _denied(row: RecoveryRow, seen: RecoveryFacts, stored: RecoveryFacts) -> str:
    """Return why an event cannot be true; empty: it may be."""
    match row.event:
        case E.FENCE_HOLDS if not seen.source_ends:
            return "no end of the source was seen"
        case E.ALL_COPIED:
            return _first_difference(stored.source_ends, seen.copied_to, "is copied to")
        case E.GROUPS_EXACT | E.GROUPS_AT_CHOSEN:
            return _first_ahead(seen.groups, seen.target_ends)
        case E.SWITCH_CONFIRMED if row.state is S.GROUPS_FINAL:
            return moved_since(stored, seen)
        case _:
            return ""


def moved_since(stored: RecoveryFacts, seen: RecoveryFacts) -> str:
    """Return which end of the source is not as it was verified; empty: none has moved."""
    return _first_difference(stored.source_ends, seen.source_ends, "ends now at")


def _first_difference(wanted: PartitionOffsets, found: PartitionOffsets, what: str) -> str:
    for partition, end in wanted.items():
        if found.get(partition) != end:
            return f"{partition} {what} {found.get(partition, '?')}, and the verified end is {end}"
    if extra := next((partition for partition in found if partition not in wanted), ""):
        return f"{extra} was not there when the fence was verified"
    return "" if wanted else "no verified end is stored"


def _first_ahead(groups: Mapping[str, PartitionOffsets], ends: PartitionOffsets) -> str:
    """Return which group would go on behind the last record of a copy; empty: none."""
    for group, offsets in groups.items():
        for partition, offset in offsets.items():
            if offset > ends.get(partition, 0):
                return f"group {group} would go on at {offset} of {partition}, which ends at {ends.get(partition, 0)}"
    return ""
