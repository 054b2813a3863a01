"""The states of a copier, and all transitions between them. Pure.

Each state is a value that carries its own data; ``next_state`` has every transition. docs/internals/copier-states.md
says when each of them happens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple, TypeVar

from mm2py.copying.events import GapFound, LookupWaits, PositionStored, Reconciled
from mm2py.copying.gaps import NO_GAPS, Gaps
from mm2py.copying.positions import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The fields that all states have."""

    label: ClassVar[str]
    cause: str = ""
    """Why the partition waits or has stopped, or why it waited last. Empty once a batch was stored again."""
    reported: str = ""
    """The log event that reported it to the operator, such as ``source.denied``; empty: none."""
    refused_with: int = 0
    """See ``OperatorNotice.refused_with``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciling(State):
    """Batches may be stored after the position. Their producer is fenced, and what it stored is looked up."""

    label: ClassVar[str] = "finding out what is stored"
    owns_position: bool = True
    """See ``Copier.owns_position``."""
    answer: Reconciled | None = None
    """The result of the lookup, kept while batches of our own are in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storing(State):
    """The position is being stored on the target. Nothing is read or sent until it is stored."""

    label: ClassVar[str] = "storing its position"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying(State):
    """Reads and sends."""

    label: ClassVar[str] = "copying"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(State):
    """Something failed. When nothing is in flight and the pause is over, reading starts again at the position."""

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
    """An answer is missing, or left open whether the batch is stored, and nothing will be sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Ending):
    """Stopped where no retry helps. Its gaps are reported as soon as its position is final."""

    label: ClassVar[str] = "stalled"
    answer: Reconciled | None = None
    """See ``Reconciling.answer``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining(Ending):
    """Asked to stop; waits for the answers to the batches that it has sent."""

    label: ClassVar[str] = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained(Ending):
    """Has stopped: nothing is in flight, and the position is final."""

    label: ClassVar[str] = "drained"


COPYING: Final = Copying()
"""The state in which nothing is wrong. It is one shared value, because every batch uses it."""

# The changes that lead from one state to another, besides the events ``PositionStored``, ``Reconciled`` and
# ``LookupWaits``


class Failed(NamedTuple):
    """Something went wrong; another attempt may succeed."""

    resume_at_s: float
    cause: str
    is_blocked: bool = False
    reported: str = ""
    refused_with: int = 0


class LostTrack(NamedTuple):
    """No resend can show whether the batches that were sent are stored."""

    cause: str


class PauseEnded(NamedTuple):
    """Nothing is in flight, and the pause is over."""


class RecordKept(NamedTuple):
    """The quarantine has stored the record at which the partition waits, so the pause may end."""

    now_s: float


class PauseCut(NamedTuple):
    """An operator has ended the pause."""

    now_s: float


class RecordsLeftOut(NamedTuple):
    """Copying continues after records that expired or are in quarantine. Its position is stored first."""


class BatchStored(NamedTuple):
    """A batch was stored again after a failure."""


class ResultKept(NamedTuple):
    """``Reconciled`` came while batches were in flight. It is applied when they are answered."""

    answer: Reconciled


class GapMet(NamedTuple):
    """A gap stops the partition. Arguments: see ``Gaps.add``."""

    gap: GapFound
    position: Position
    lost: int = 0
    is_looked_up: bool = False


class HoleMet(NamedTuple):
    """A batch is stored, and the one before it is not."""

    cause: str


class LookupStarted(NamedTuple):
    """What is stored is looked up before a gap is reported."""


class GapsReported(NamedTuple):
    """All gaps were reported."""

    gaps: Gaps


class AnswerLost(NamedTuple):
    """See ``Ending.outcome_unknown``."""


class DrainStarted(NamedTuple):
    """The partition is to be stopped."""

    is_idle: bool
    """Nothing is in flight."""


class AllAnswered(NamedTuple):
    """The last answer came."""


Change = (
    PositionStored
    | Reconciled
    | LookupWaits
    | Failed
    | LostTrack
    | PauseEnded
    | RecordKept
    | PauseCut
    | RecordsLeftOut
    | BatchStored
    | ResultKept
    | GapMet
    | HoleMet
    | LookupStarted
    | GapsReported
    | AnswerLost
    | DrainStarted
    | AllAnswered
)


_E = TypeVar("_E", bound=Ending)


class UndeclaredTransition(AssertionError):
    """A change of a copier's state that is not declared: a defect."""


def _copying_again(state: State) -> Copying:
    """Return the state for another attempt. It keeps the cause, which may still exist."""
    return Copying(cause=state.cause, reported=state.reported, refused_with=state.refused_with)


def next_state(state: State, change: Change) -> State:
    """Return the state that follows.

    Raises:
        UndeclaredTransition: ``change`` cannot happen in this state.
    """
    match state, change:
        # It starts
        case Storing(), PositionStored():
            return _copying_again(state) if state.cause else COPYING
        case Copying(), BatchStored():
            return COPYING

        # It fails, and tries again
        case Copying(), Failed():
            return Waiting(
                cause=change.cause,
                resume_at_s=change.resume_at_s,
                is_blocked=change.is_blocked,
                reported=change.reported,
                refused_with=change.refused_with,
            )
        case Waiting(), RecordKept() | PauseCut():
            return replace(state, resume_at_s=change.now_s)
        case Waiting(), PauseEnded():
            return _copying_again(state)
        case Waiting(), RecordsLeftOut():
            return Storing(cause=state.cause)

        # What is stored has to be looked up
        case ((Copying() | Waiting()), LostTrack()):
            return Reconciling(cause=change.cause)
        case Reconciling(), LostTrack():
            return replace(state, cause=change.cause)
        case Reconciling(), LookupWaits():
            return replace(state, cause=change.cause)
        case Reconciling(), ResultKept():
            return replace(state, answer=change.answer)
        case ((Reconciling() | Storing()), Reconciled()):
            return Storing(cause=state.cause)

        # It stops at a gap
        case ((Storing() | Copying() | Waiting() | Reconciling() | Stopped()), GapMet()):
            gaps = gaps_of(state).add(change.gap, change.position, lost=change.lost, is_looked_up=change.is_looked_up)
            return replace(ending(state, Stopped), gaps=gaps, cause=change.gap.text)
        case ((Copying() | Waiting() | Stopped()), HoleMet()):
            return replace(ending(state, Stopped), gaps=gaps_of(state).behind_a_hole(), cause=change.cause)
        case Stopped(), LookupStarted():
            return replace(state, awaits_lookup=True)
        case Stopped(), ResultKept():
            return replace(state, answer=change.answer)
        case Stopped(), Reconciled():
            return replace(state, owns_position=True, awaits_lookup=False, outcome_unknown=False, answer=None)
        case ((Stopped() | Draining()), AnswerLost()):
            return replace(state, outcome_unknown=True)
        case ((Stopped() | Draining() | Drained()), GapsReported()):
            return replace(state, gaps=change.gaps)

        # It is asked to stop
        case ((Copying() | Waiting() | Reconciling() | Stopped() | Draining()), DrainStarted(is_idle=False)):
            return ending(state, Draining)
        case ((Storing() | Copying() | Waiting() | Reconciling() | Stopped() | Drained()), DrainStarted(is_idle=True)):
            return ending(state, Drained)
        case Draining(), AllAnswered():
            return ending(state, Drained)
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


def ending(state: State, kind: type[_E]) -> _E:
    """Return a state of this kind with the data of ``state``."""
    if isinstance(state, kind):
        return state
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
