"""The states of a copier, and which state may follow which. Pure.

Each state is a value that carries its own data. ``FOLLOWING`` declares all transitions. docs/internals/copier-states.md
says when each of them happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from mm2py.replication.copying.events import Reconciled
from mm2py.replication.copying.gaps import NO_GAPS, Gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What each state tells."""

    label: ClassVar[str]
    cause: str = ""
    """Why the partition waits or has stopped, or why it waited last. Empty once a batch was stored again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciling(State):
    """Batches may stand behind the position. Their producer is fenced, and what it stored is looked up."""

    label: ClassVar[str] = "finding out what is stored"
    owns_position: bool = True
    """See ``Copier.owns_position``."""
    answer: Reconciled | None = None
    """The result of the lookup, as long as batches of our own are in flight."""


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
class Stalled(Ending):
    """Stopped where no retry helps. Its gaps are reported as soon as it is known where the partition stands."""

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

FOLLOWING: Final[Mapping[type[State], tuple[type[State], ...]]] = {
    Reconciling: (Storing, Stalled, Draining, Drained),
    Storing: (Copying, Stalled, Drained),
    Copying: (Waiting, Reconciling, Stalled, Draining, Drained),
    Waiting: (Copying, Storing, Reconciling, Stalled, Draining, Drained),
    Stalled: (Draining, Drained),
    Draining: (Drained,),
    Drained: (),
}
"""The states that may follow each state. Besides, a state may change its own data."""

_E = TypeVar("_E", bound=Ending)


class UndeclaredTransition(AssertionError):
    """A copier was to change its state in a way that is not declared: a defect."""


def check_follows(state: State, following: State) -> None:
    """Raise UndeclaredTransition if ``following`` may not follow ``state``."""
    if type(following) is not type(state) and type(following) not in FOLLOWING[type(state)]:
        raise UndeclaredTransition(f"{state} does not allow {following}")


def gaps_of(state: State) -> Gaps:
    """Return the gaps that a state knows of."""
    return state.gaps if isinstance(state, Ending) else NO_GAPS


def ending(state: State, kind: type[_E]) -> _E:
    """Return a state of this kind that knows what ``state`` knows."""
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
