"""The states of a copier, and all transitions between them. Pure.

Each state is a value that carries its own data. ``next_state`` is the only place where one follows another: each entry
of its ``match`` is one transition, and anything else raises. docs/internals/copier-states.md shows them as a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeVar

from mm2py.replication.copying.events import GapFound, LookupWaits, PositionStored, Reconciled
from mm2py.replication.copying.gaps import NO_GAPS, Gaps
from mm2py.replication.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What each state tells."""

    label: ClassVar[str]
    cause: str = ""
    """Why the partition waits or has stopped, or why it waited last; empty once a batch was stored again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciling(State):
    """Batches may stand behind the position: their producer is shut out, and what it stored is looked up."""

    label: ClassVar[str] = "finding out what is stored"
    owns_position: bool = True
    """See ``Copier.owns_position``."""
    answer: Reconciled | None = None
    """What was found, as long as batches of our own are in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storing(State):
    """The position is on its way to the target. Nothing is read or sent before it is there."""

    label: ClassVar[str] = "storing its position"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying(State):
    """Reads and sends."""

    label: ClassVar[str] = "copying"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(State):
    """Something failed. When nothing is in flight and the pause is over, the position is read from again."""

    label: ClassVar[str] = "waiting"
    resume_at_s: float
    is_blocked: bool = False
    """Only an operator can help. The target's limits are looked up before it tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(State):
    """Nothing is read or sent any more; answers may still come."""

    gaps: Gaps = NO_GAPS
    """Why it has stopped, if it has."""
    owns_position: bool = True
    awaits_lookup: bool = False
    """What is stored is being looked up: ``Reconciled`` may come."""
    outcome_unknown: bool = False
    """An answer did not come, or told nothing, when nothing was to be sent again any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Ending):
    """Stopped where no retry helps. Its gaps are told as soon as it is known where the partition stands."""

    label: ClassVar[str] = "stalled"
    answer: Reconciled | None = None
    """As of ``Reconciling``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining(Ending):
    """Told to stop; waits for the answers to what it has sent."""

    label: ClassVar[str] = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained(Ending):
    """Nothing is in flight, and the position is final."""

    label: ClassVar[str] = "drained"


COPYING: Final = Copying()
"""The state in which nothing is wrong. It is one value, because each batch meets it."""

# What leads from one state to another, besides the events ``PositionStored``, ``Reconciled`` and ``LookupWaits``


@dataclass(frozen=True, slots=True)
class Failed:
    """Something went wrong that another attempt may mend."""

    resume_at_s: float
    cause: str
    is_blocked: bool = False


@dataclass(frozen=True, slots=True)
class LostTrack:
    """No resend can tell whether what was sent is stored."""

    cause: str


@dataclass(frozen=True, slots=True)
class PauseEnded:
    """Nothing is in flight, and the pause is over."""


@dataclass(frozen=True, slots=True)
class RecordKept:
    """The quarantine has the record at which the partition waits: the pause need not last any longer."""

    now_s: float


@dataclass(frozen=True, slots=True)
class RecordsLeftOut:
    """Copying goes on behind records that expired or are in quarantine. The position that tells of it comes first."""


@dataclass(frozen=True, slots=True)
class BatchStored:
    """A batch was stored again after a failure."""


@dataclass(frozen=True, slots=True)
class AnswerKept:
    """``Reconciled`` came while batches were in flight; it counts when they are answered."""

    answer: Reconciled


@dataclass(frozen=True, slots=True)
class GapMet:
    """A gap stops the partition. Arguments as of ``Gaps.add``."""

    gap: GapFound
    position: Position
    lost: int = 0
    is_looked_up: bool = False


@dataclass(frozen=True, slots=True)
class HoleMet:
    """A batch is stored, and the one before it is not."""

    cause: str


@dataclass(frozen=True, slots=True)
class LookupBegun:
    """Before a gap is told, what is stored is looked up."""


@dataclass(frozen=True, slots=True)
class GapsTold:
    """All gaps were told."""

    gaps: Gaps


@dataclass(frozen=True, slots=True)
class AnswerLost:
    """See ``Ending.outcome_unknown``."""


@dataclass(frozen=True, slots=True)
class DrainBegun:
    """The partition is to be stopped."""

    is_idle: bool
    """Nothing is in flight."""


@dataclass(frozen=True, slots=True)
class AllAnswered:
    """The last answer came."""


Change = (
    PositionStored
    | Reconciled
    | LookupWaits
    | Failed
    | LostTrack
    | PauseEnded
    | RecordKept
    | RecordsLeftOut
    | BatchStored
    | AnswerKept
    | GapMet
    | HoleMet
    | LookupBegun
    | GapsTold
    | AnswerLost
    | DrainBegun
    | AllAnswered
)


_E = TypeVar("_E", bound=Ending)


class UndeclaredTransition(AssertionError):
    """A copier was to change its state in a way that is not declared: a defect."""


def next_state(state: State, change: Change) -> State:
    """Return the state that follows.

    Raises:
        UndeclaredTransition: ``change`` cannot happen in this state.
    """
    match state, change:
        # It begins
        case Storing(), PositionStored():
            return Copying(cause=state.cause) if state.cause else COPYING
        case Copying(), BatchStored():
            return COPYING

        # It fails, and tries again
        case Copying(), Failed():
            return Waiting(cause=change.cause, resume_at_s=change.resume_at_s, is_blocked=change.is_blocked)
        case Waiting(), RecordKept():
            return replace(state, resume_at_s=change.now_s)
        case Waiting(), PauseEnded():
            return Copying(cause=state.cause)
        case Waiting(), RecordsLeftOut():
            return Storing(cause=state.cause)

        # What is stored has to be looked up
        case ((Copying() | Waiting()), LostTrack()):
            return Reconciling(cause=change.cause)
        case Reconciling(), LostTrack():
            return replace(state, cause=change.cause)
        case Reconciling(), LookupWaits():
            return replace(state, cause=change.cause)
        case Reconciling(), AnswerKept():
            return replace(state, answer=change.answer)
        case ((Reconciling() | Storing()), Reconciled()):
            return Storing(cause=state.cause)

        # It stops at a gap
        case ((Storing() | Copying() | Waiting() | Reconciling() | Stalled()), GapMet()):
            gaps = gaps_of(state).add(change.gap, change.position, lost=change.lost, is_looked_up=change.is_looked_up)
            return replace(_stalled(state), gaps=gaps, cause=change.gap.text)
        case ((Copying() | Waiting() | Stalled()), HoleMet()):
            return replace(_stalled(state), gaps=gaps_of(state).behind_a_hole(), cause=change.cause)
        case Stalled(), LookupBegun():
            return replace(state, awaits_lookup=True)
        case Stalled(), AnswerKept():
            return replace(state, answer=change.answer)
        case Stalled(), Reconciled():
            return replace(state, owns_position=True, awaits_lookup=False, outcome_unknown=False, answer=None)
        case ((Stalled() | Draining()), AnswerLost()):
            return replace(state, outcome_unknown=True)
        case ((Stalled() | Draining() | Drained()), GapsTold()):
            return replace(state, gaps=change.gaps)

        # It is told to stop
        case ((Copying() | Waiting() | Reconciling() | Stalled() | Draining()), DrainBegun(is_idle=False)):
            return _ending(state, Draining)
        case ((Storing() | Copying() | Waiting() | Reconciling() | Stalled() | Drained()), DrainBegun(is_idle=True)):
            return _ending(state, Drained)
        case Draining(), AllAnswered():
            return _ending(state, Drained)
        case Draining(), LostTrack():
            return replace(state, awaits_lookup=True)
        case ((Draining() | Drained()), GapMet()):
            gaps = state.gaps.add(change.gap, change.position, lost=change.lost, is_looked_up=change.is_looked_up)
            return replace(state, gaps=gaps, cause=change.gap.text)
        case Draining(), HoleMet():
            return replace(state, gaps=state.gaps.behind_a_hole(), cause=change.cause)

        case _:
            raise UndeclaredTransition(f"{state} does not allow {change}")


def gaps_of(state: State) -> Gaps:
    """Return the gaps that a state knows of."""
    return state.gaps if isinstance(state, Ending) else NO_GAPS


def _stalled(state: State) -> Stalled:
    return state if isinstance(state, Stalled) else _ending(state, Stalled)


def _ending(state: State, kind: type[_E]) -> _E:
    """Return an ending state that knows what ``state`` knows."""
    if isinstance(state, Ending):
        return kind(
            cause=state.cause,
            gaps=state.gaps,
            owns_position=state.owns_position,
            awaits_lookup=state.awaits_lookup,
            outcome_unknown=state.outcome_unknown,
        )
    owns_position = state.owns_position if isinstance(state, Reconciling) else True
    return kind(cause=state.cause, owns_position=owns_position, awaits_lookup=isinstance(state, Reconciling))
