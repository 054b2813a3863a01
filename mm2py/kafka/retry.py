"""When to try again, and what an error code asks for: the one place for both. Pure.

Source of the codes: Errors.java, Apache Kafka 4.3.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

if TYPE_CHECKING:
    import random


class Reaction(enum.Enum):
    """What a caller does about an error code."""

    RETRY = enum.auto()
    """The same request may succeed in a moment."""
    REFRESH = enum.auto()
    """Somebody else leads or coordinates now: fetch metadata, then retry."""
    DENIED = enum.auto()
    """A right is missing; it may be granted while we run: retry seldom, say which."""
    FAIL = enum.auto()
    """Asking again changes nothing."""


_REFRESH: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.broker_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.listener_not_found,
        ErrorCode.not_controller,
    }
)
_DENIED: Final = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)


def reaction_to(code: int) -> Reaction:
    """Return what an error code asks for. A code nobody knows is not retried."""
    if code in _REFRESH:
        return Reaction.REFRESH
    if code in _DENIED:
        return Reaction.DENIED
    try:
        return Reaction.RETRY if ErrorCode(code).retriable else Reaction.FAIL
    except ValueError:
        return Reaction.FAIL


def name_of(code: int) -> str:
    """Return a code's name as Kafka's documentation spells it."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return "an error code unknown to mm2py"


RESUME_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""How long a partition pauses after its first, second, ... failure in a row before it is read again."""
DENIED_PAUSE_S: Final = 10.0
"""The same while a right is missing."""
BLOCKED_PAUSE_S: Final = 30.0
"""The same while only an operator can help."""


@dataclass(slots=True)
class Backoff:
    """Growing pauses between attempts, with jitter so that many clients do not come back at once."""

    rng: random.Random
    first_s: float = 0.1
    most_s: float = 5.0
    factor: float = 2.0
    attempts: int = 0

    def next_s(self) -> float:
        """Return the pause before the next attempt: doubled each time, then spread by a fifth either way."""
        pause_s = min(self.most_s, self.first_s * self.factor ** min(self.attempts, 32))
        self.attempts += 1
        return pause_s * self.rng.uniform(0.8, 1.2)

    def reset(self) -> None:
        self.attempts = 0
