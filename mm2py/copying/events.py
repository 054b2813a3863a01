"""What can happen to a copier, and what it asks for in return. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mm2py.copying.planning.steps import Plan
from mm2py.copying.positions import Position
from mm2py.kafka.port import ProducerIdentity
from mm2py.offsets.runs import Entry
from mm2py.records.gap_record import Done, GapKind


class Lease(Protocol):
    """A hold on a received frame: as long as it has holders, the frame counts against the memory limit."""

    @property
    def read_at_s(self) -> float:
        """When it was received."""
        ...

    def hold(self, extra_bytes: int, holders: int = 1) -> None: ...
    def release(self, extra_bytes: int) -> None: ...


class Fetched(NamedTuple):
    """A planned part of the source log. ``end_offset``: how far the log can be read now."""

    plan: Plan
    lease: Lease
    fetch_offset: int
    end_offset: int
    now_s: float


@dataclass(frozen=True, slots=True)
class FetchRefused:
    code: int
    now_s: float


@dataclass(frozen=True, slots=True)
class OffsetsFound:
    """Answer to ``Need.OFFSETS``: where the source log begins and ends."""

    log_start: int
    log_end: int
    now_s: float


@dataclass(frozen=True, slots=True)
class Diverged:
    """The source log was cut back below what had been read from it."""

    epoch: int
    end_offset: int


class Acked(NamedTuple):
    """The target stored a batch. ``base_offset`` is -1 for a repeat whose offset the broker no longer knew."""

    token: int
    base_offset: int
    now_s: float


@dataclass(frozen=True, slots=True)
class ProduceRefused:
    token: int
    code: int
    message: str | None
    now_s: float


@dataclass(frozen=True, slots=True)
class ProduceLost:
    """No answer will come; the batch may or may not be stored."""

    token: int
    why: str
    now_s: float


@dataclass(frozen=True, slots=True)
class TooOldToResend:
    """A batch that may be stored is too old to be sent again (docs/broker-facts.md#c1)."""

    now_s: float


@dataclass(frozen=True, slots=True)
class PositionStored:
    """The target acknowledged the position written under the current identity."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Answer to ``Need.RECONCILE``: previous producers are fenced, and all they stored lies before ``position``.

    Copying continues there under ``identity``, whose sequences start at 0.
    """

    identity: ProducerIdentity
    position: Position
    entries: tuple[Entry, ...] = ()
    """What is stored between the old position and the new one."""


@dataclass(frozen=True, slots=True)
class LookupWaits:
    """Looking up what a previous producer stored takes long; ``cause`` says why."""

    cause: str


@dataclass(frozen=True, slots=True)
class TargetLost:
    """The remote partition ends before what was stored in it."""

    expected: int
    end: int
    known: str | None = None
    """What a previous incarnation reported about this loss, if no operator has accepted it since."""


class TargetLed(NamedTuple):
    """The remote partition's leader epoch, from the target's latest metadata."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TargetShort:
    """The remote partition seemed to end before what was stored in it. A second look must confirm that.

    Nothing is sent until ``TargetWhole`` or ``TargetLost`` follows.
    """


class TargetWhole(NamedTuple):
    """Answer to ``Need.TARGET_END``: the remote partition has every acknowledged batch.

    ``check``: the value of ``Copier.end_checks`` when the shell asked. Later checks are still open.
    """

    check: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Answer to ``Poison``: the record at this source offset is kept in the quarantine topic."""

    offset: int
    now_s: float


@dataclass(frozen=True, slots=True)
class SourceRewritten:
    """The source was cut back: records of these source offsets were copied, and it now holds others there."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class UnexpectedMet:
    """The remote partition holds records that this incarnation did not write, and its policy forbids that."""

    text: str
    kind: GapKind = GapKind.FOREIGN
    is_known: bool = False
    """A previous incarnation reported them, its position is after them, and no operator has accepted them since."""


@dataclass(frozen=True, slots=True)
class LimitsFound:
    """Answer to ``Need.LIMITS``: the largest batch size was looked up. Reads obey it from now on."""


@dataclass(frozen=True, slots=True)
class CopySettings:
    """Settings that an operator may change while a partition is copied."""

    ready_max_bytes: int
    """Reading stops while batches of this many bytes wait to be sent."""
    quarantines: bool = False
    """Records that the target refuses go into quarantine, and copying continues."""
    stops_when_expired: bool = False
    """Stop at records that were deleted before they were copied, instead of continuing after them."""


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    settings: CopySettings


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """An operator wants the partition to be read again from its position, without a pause."""

    now_s: float


@dataclass(frozen=True, slots=True)
class PauseChanged:
    """An operator has paused the partition, or lets it go on."""

    is_paused: bool
    """Nothing more is read or sent. What was sent is still answered, and the position moves on behind it."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop reading, and wait for what is in flight."""


@dataclass(frozen=True, slots=True)
class DrainGivenUp:
    """The shell no longer waits for answers. Gaps are reported as far as they are known."""


@dataclass(frozen=True, slots=True)
class Tick:
    now_s: float


Event = (
    Fetched
    | FetchRefused
    | OffsetsFound
    | Diverged
    | Acked
    | ProduceRefused
    | ProduceLost
    | TooOldToResend
    | PositionStored
    | Reconciled
    | LookupWaits
    | TargetLost
    | TargetLed
    | TargetShort
    | TargetWhole
    | SourceRewritten
    | UnexpectedMet
    | Quarantined
    | LimitsFound
    | SettingsChanged
    | RestartAsked
    | PauseChanged
    | Drain
    | DrainGivenUp
    | Tick
)

# -- effects -----------------------------------------------------------------------------------------------------------


class Need(enum.Enum):
    """What the copier asks its shell for; the answer comes back as an event (or as fresh metadata)."""

    STORE_POSITION = enum.auto()
    METADATA = enum.auto()
    OFFSETS = enum.auto()
    TARGET_END = enum.auto()
    """Look up whether the remote partition still has every acknowledged batch. Nothing is sent until then."""
    LIMITS = enum.auto()
    TIMESTAMP_LIMITS = enum.auto()
    """Let the remote topic take the timestamps that its upstream topic takes. No event answers it: the copier tries
    again after its pause, or at a ``Tick``."""
    RECONCILE = enum.auto()
    """Fence this producer and look up what it has stored, because no resend can show that."""
    NEW_INCARNATION = enum.auto()


@dataclass(frozen=True, slots=True)
class OperatorNotice:
    """Something an operator should see. ``event`` is a stable name, ``text`` a sentence with offsets."""

    event: str
    text: str
    severe: bool = True
    refused_with: int = 0
    """The error code with which the target refuses the batch, or would refuse it; 0: no refusal."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """A batch was stored at a higher offset than expected: records of a foreign writer, or of our own, lie between."""

    expected: int
    stored_at: int
    sent_before: bool = False
    """The batch may have been sent before. Then its first copy may be what lies between."""


@dataclass(frozen=True, slots=True)
class Poison:
    """A single record that the target refuses. The shell puts it into quarantine and answers ``Quarantined``.

    Copying then continues after it. Until then the partition waits, and tries again from time to time.
    """

    offset: int
    next_offset: int
    """The source offset where copying continues after it."""
    leader_epoch: int
    code: int
    """The Kafka error code that the target answered, or would have answered."""
    text: str
    was_sent: bool
    """The target has refused it. False: the target's settings would refuse it, so it was not sent."""


@dataclass(frozen=True, slots=True)
class GapFound:
    """Source records that are not in the copy, or no longer in the source.

    Unless ``done`` says that copying continued, the partition is stalled with nothing in flight until it is restarted.
    A restart at ``go_on_at`` copies nothing twice.
    """

    kind: GapKind
    first_offset: int | None
    last_offset: int | None
    """Source offsets; None if unknown."""
    done: Done
    text: str
    go_on_at: int


Effect = Need | OperatorNotice | Displaced | GapFound | Poison
