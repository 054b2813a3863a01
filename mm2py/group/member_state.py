"""The states of one member of a group, and every way from one to the next. Pure.

Three facts are not states here, because they are kept elsewhere: which member leads (``GroupState.leader``), whether
this one may claim leadership (``CandidateState``), and whether it may write just now (``Gate``).
docs/internals/group-member.md has the diagram.

Counterpart: the states of Connect's WorkerGroupMember (AbstractCoordinator.MemberState).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from mm2py.errors import Mm2Error
from mm2py.flow import Flow


@dataclass(frozen=True, slots=True)
class Preparing:
    """It reads what the control log has said so far. No other member knows it."""


@dataclass(frozen=True, slots=True)
class Joining:
    """It has asked to join, and has not read back its own record yet."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What this member has sent, or still may."""

    flows: frozenset[Flow] = frozenset()
    """Flows of which something may be sent in its name."""
    outcome_unknown: bool = False
    """Something that was sent in its name has no answer."""

    def without(self, ended: FlowEnded) -> Sent:
        return Sent(self.flows - {ended.flow}, self.outcome_unknown or ended.outcome_unknown)


@dataclass(frozen=True, slots=True)
class Active:
    """The other members know it, and the leader assigns tasks to it."""

    sent: Sent = Sent()


@dataclass(frozen=True, slots=True)
class Suspended:
    """Like ``Active``, but a request waits: no heartbeat was acknowledged for a session time-out."""

    sent: Sent


@dataclass(frozen=True, slots=True)
class MemberDraining:
    """It cannot read the control log any more, and sends heartbeats until its partitions are drained."""

    sent: Sent
    cause: Mm2Error


@dataclass(frozen=True, slots=True)
class Leaving:
    """It tells the others that it leaves, and does nothing else any more."""

    outcome_unknown: bool
    """The others have to fence it first: something that was sent in its name may be stored later."""
    cause: Exception | None = None
    """None: it was asked to."""


@dataclass(frozen=True, slots=True)
class MemberEnded:
    """Nothing is done in its name any more."""

    cause: Exception | None
    """None: it has left, or was cancelled."""


State = Preparing | Joining | Active | Suspended | MemberDraining | Leaving | MemberEnded


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """All that the control log has said so far is known, and no live member contradicts this one."""


@dataclass(frozen=True, slots=True)
class JoinRead:
    """The record with which this member joined was read back."""


@dataclass(frozen=True, slots=True)
class FlowsBegin:
    """Something will be sent in this member's name."""

    flows: frozenset[Flow]


@dataclass(frozen=True, slots=True)
class FlowEnded:
    """Nothing more is sent of a flow."""

    flow: Flow
    outcome_unknown: bool


@dataclass(frozen=True, slots=True)
class RequestWaits:
    """A request waits at the gate."""


@dataclass(frozen=True, slots=True)
class HeartbeatAcknowledged:
    """The gate is open."""


@dataclass(frozen=True, slots=True)
class RecordTooNew:
    """The next record of the control log must not be skipped, and this version does not know it."""

    error: Mm2Error


@dataclass(frozen=True, slots=True)
class DrainExpired:
    """Draining has taken too long."""


@dataclass(frozen=True, slots=True)
class EvictionRead:
    """The group has evicted this member, or may have."""

    error: Mm2Error


@dataclass(frozen=True, slots=True)
class LeaveAsked:
    """This member is to leave; with a cause it comes back under another id."""

    outcome_unknown: bool
    cause: Mm2Error | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """This worker may not, or cannot, take part; the control log still accepts records."""

    error: Exception


@dataclass(frozen=True, slots=True)
class MemberFailed:
    """This member cannot continue, and cannot write to the control log."""

    error: Exception


@dataclass(frozen=True, slots=True)
class MemberStopped:
    """Everything that was done in this member's name has ended."""


Event = (
    HistoryRead
    | JoinRead
    | FlowsBegin
    | FlowEnded
    | RequestWaits
    | HeartbeatAcknowledged
    | RecordTooNew
    | DrainExpired
    | EvictionRead
    | LeaveAsked
    | Refused
    | MemberFailed
    | MemberStopped
)


class Effect(Enum):
    """What the shell does when a transition is made."""

    ASK_TO_JOIN = "append that it joins"
    TAKE_PART = "send heartbeats, act as leader or candidate"
    LOG_SUSPENDED = "log that it waits"
    LOG_RESUMED = "log that it goes on"
    EXPIRE_DRAIN = "give its flows time to drain, but not for ever"
    CLOSE_GATE = "send nothing more"


def step(state: State, event: Event) -> tuple[State, Sequence[Effect]]:
    """Return the next state, and what to do. An event without a case here changes nothing."""
    match state, event:
        case Preparing(), HistoryRead():
            return Joining(), [Effect.ASK_TO_JOIN]
        case Joining(), JoinRead():
            return Active(), [Effect.TAKE_PART]
        case Active(sent) | Suspended(sent), FlowsBegin(flows):
            return replace(state, sent=replace(sent, flows=sent.flows | flows)), []
        case Active(sent) | Suspended(sent), FlowEnded():
            return replace(state, sent=sent.without(event)), []
        case Active(sent), RequestWaits():
            return Suspended(sent), [Effect.LOG_SUSPENDED]
        case Suspended(sent), HeartbeatAcknowledged():
            return Active(sent), [Effect.LOG_RESUMED]
        case Active(sent) | Suspended(sent), RecordTooNew(error) if sent.flows:
            return MemberDraining(sent, error), [Effect.EXPIRE_DRAIN]
        case Active(sent) | Suspended(sent), RecordTooNew(error):
            return Leaving(sent.outcome_unknown, error), []
        case Joining(), RecordTooNew(error):
            return Leaving(outcome_unknown=False, cause=error), []
        case MemberDraining(sent, error), FlowEnded(flow) if sent.flows - {flow}:
            return MemberDraining(sent.without(event), error), []
        case MemberDraining(sent, error), FlowEnded(_, outcome_unknown):
            return Leaving(sent.outcome_unknown or outcome_unknown, error), []
        case MemberDraining(_, error), DrainExpired():
            return Leaving(outcome_unknown=True, cause=error), []
        case MemberDraining(sent, error), LeaveAsked(outcome_unknown):
            return Leaving(sent.outcome_unknown or outcome_unknown, error), []
        case Joining() | Active() | Suspended(), LeaveAsked(outcome_unknown, cause):
            return Leaving(outcome_unknown, cause), []
        case Joining() | Active() | Suspended() | MemberDraining(), Refused(error):
            return Leaving(outcome_unknown=True, cause=error), []
        case Active() | Suspended() | MemberDraining(), EvictionRead(error):
            return MemberEnded(error), [Effect.CLOSE_GATE]
        case Joining() | Active() | Suspended() | MemberDraining(), MemberFailed(error):
            return MemberEnded(error), [Effect.CLOSE_GATE]
        case Preparing(), LeaveAsked(cause=error) | Refused(error) | MemberFailed(error):
            return MemberEnded(error), [Effect.CLOSE_GATE]
        case Leaving(cause=cause), MemberStopped():
            return MemberEnded(cause), [Effect.CLOSE_GATE]
        case Preparing() | Joining() | Active() | Suspended() | MemberDraining(), MemberStopped():
            return MemberEnded(None), [Effect.CLOSE_GATE]
        case _:  # a member may be asked to stop in any state, and answers to earlier requests come later
            return state, []
