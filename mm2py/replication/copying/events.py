"""What can happen to a copier, and what it asks for in return. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mm2py.kafka.port import ProducerIdentity
from mm2py.records.status_record import Done, GapKind
from mm2py.replication.planning.steps import Plan
from mm2py.replication.position import Position


class Lease(Protocol):
    """A share in a received frame: as long as somebody holds it, the frame counts against the memory limit."""

    def hold(self, extra_bytes: int, holders: int = 1) -> None: ...
    def release(self, extra_bytes: int) -> None: ...


class Fetched(NamedTuple):
    """A part of the source log, planned. ``end_offset`` is how far the log could be read just now."""

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
    """The target stored a batch. ``base_offset`` is -1 where the broker recognised a repeat it had half forgotten."""

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
    """A batch that may be stored waits to be sent again, and the target may not recognise it any more (C1)."""

    now_s: float


@dataclass(frozen=True, slots=True)
class PositionStored:
    """The target acknowledged the position written under the current identity."""

    identity: ProducerIdentity


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Answer to ``Need.RECONCILE``: earlier writers are shut out, and all they stored lies before ``position``.

    From there on copying goes on under ``identity``, whose sequences start anew.
    """

    identity: ProducerIdentity
    position: Position


@dataclass(frozen=True, slots=True)
class LookupWaits:
    """What an earlier writer stored is still being looked up, and this is why it takes long."""

    cause: str


@dataclass(frozen=True, slots=True)
class TargetLost:
    """The remote partition ends before what was stored in it."""

    expected: int
    end: int
    known: str | None = None
    """What an earlier life has said of it; nobody has let the partition go on since."""


class TargetLed(NamedTuple):
    """The remote partition's leader epoch as the target's metadata tell it now."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TargetShort:
    """The remote partition seemed to end before what was stored in it; it is looked at again before that is believed.

    Nothing is sent until ``TargetWhole`` or ``TargetLost`` follows.
    """


class TargetWhole(NamedTuple):
    """Answer to ``Need.TARGET_END``: the remote partition holds all that was acknowledged.

    ``check`` is ``Copier.end_checks`` when that was asked: a check that came up since is still open.
    """

    check: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Answer to ``Poison``: the record at this source offset is kept in the quarantine topic."""

    offset: int
    now_s: float


@dataclass(frozen=True, slots=True)
class SourceRewritten:
    """Records of these source offsets were copied, and the source holds others there by now: it was cut back."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class UnexpectedMet:
    """Records stand in the remote partition, where that must not be, that this life has not written."""

    text: str
    kind: GapKind = GapKind.FOREIGN
    is_known: bool = False
    """An earlier life has said so, and its position is behind them; nobody has let the partition go on since."""


@dataclass(frozen=True, slots=True)
class LimitsFound:
    """Answer to ``Need.LIMITS``: how large a batch may be was looked up, and will be obeyed in reading."""


@dataclass(frozen=True, slots=True)
class CopySettings:
    """What an operator may change while a partition is copied."""

    ready_max_bytes: int
    """Size of the batches that may wait to be sent; nothing more is read then."""
    quarantines: bool = False
    """A record that the target refuses is kept elsewhere, and not waited for."""
    stops_when_expired: bool = False
    """If records were deleted before they were copied it stops there, instead of going on behind them."""


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    settings: CopySettings


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop reading; settle what is in flight."""


@dataclass(frozen=True, slots=True)
class DrainGivenUp:
    """No answer is waited for any longer: what is known of gaps is to be told."""


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
    """Whether the remote partition still holds all that was acknowledged. Nothing is sent until it is answered."""
    LIMITS = enum.auto()
    RECONCILE = enum.auto()
    """What was sent and not acknowledged may be stored or not, and no resend can tell."""
    NEW_INCARNATION = enum.auto()


@dataclass(frozen=True, slots=True)
class Report:
    """Something an operator should see. ``event`` is a stable name, ``text`` a sentence with offsets."""

    event: str
    text: str
    severe: bool = True


@dataclass(frozen=True, slots=True)
class Displaced:
    """A batch was stored further on than expected: somebody else has written between these target offsets, or we have
    and do not know of it."""

    expected: int
    stored_at: int
    sent_before: bool = False
    """It may have been sent before: then its first may stand there."""


@dataclass(frozen=True, slots=True)
class Poison:
    """A record that the target refuses, alone, and that is to be kept in quarantine: the copy then goes on behind it.

    ``Quarantined`` answers it; until then the partition waits, and is tried again now and then.
    """

    offset: int
    next_offset: int
    """Where copying goes on behind it."""
    leader_epoch: int
    code: int
    """What the target answered, by Kafka's codes; or would have, where it was not sent."""
    text: str
    was_sent: bool
    """The target itself refused it; else its settings, as they were last looked up, do."""


@dataclass(frozen=True, slots=True)
class GapFound:
    """Source records that are not in the copy, or no longer in the source. Unless ``done`` says that copying went on,
    the partition is stalled, and nothing is on its way any more, until somebody begins it again: at ``go_on_at`` if
    nothing is to be copied twice."""

    kind: GapKind
    first_offset: int | None
    last_offset: int | None
    """Source offsets; None where nobody can tell."""
    done: Done
    text: str
    go_on_at: int


Effect = Need | Report | Displaced | GapFound | Poison
