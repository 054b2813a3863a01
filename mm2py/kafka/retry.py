"""When to try again, and what an error code asks for: the one place for both. Pure.

``KafkaError.retriable`` and ``BrokerRefused.reaction`` (``errors.py``) say it of errors.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from mm2py.kafka import error_codes

if TYPE_CHECKING:
    import random


class Reaction(enum.Enum):
    """What a caller does about an error code."""

    RETRY = enum.auto()
    """The same request may succeed in a moment."""
    REFRESH = enum.auto()
    """Another broker leads or coordinates now: fetch metadata, then retry."""
    DENIED = enum.auto()
    """A right is missing; it may be granted while we run: retry seldom, say which."""
    FAIL = enum.auto()
    """Asking again changes nothing."""


_REFRESH: Final = frozenset(
    {
        error_codes.UNKNOWN_TOPIC_OR_PARTITION,
        error_codes.LEADER_NOT_AVAILABLE,
        error_codes.NOT_LEADER_OR_FOLLOWER,
        error_codes.BROKER_NOT_AVAILABLE,
        error_codes.REPLICA_NOT_AVAILABLE,
        error_codes.NOT_COORDINATOR,
        error_codes.COORDINATOR_NOT_AVAILABLE,
        error_codes.FENCED_LEADER_EPOCH,
        error_codes.UNKNOWN_LEADER_EPOCH,
        error_codes.UNKNOWN_TOPIC_ID,
        error_codes.INCONSISTENT_TOPIC_ID,
        error_codes.KAFKA_STORAGE_ERROR,
        error_codes.LISTENER_NOT_FOUND,
        error_codes.NOT_CONTROLLER,
    }
)
_DENIED: Final = frozenset(
    {
        error_codes.TOPIC_AUTHORIZATION_FAILED,
        error_codes.GROUP_AUTHORIZATION_FAILED,
        error_codes.CLUSTER_AUTHORIZATION_FAILED,
        error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def reaction_to(code: int) -> Reaction:
    """Return what an error code asks for. A code that is not known is not retried."""
    if code in _REFRESH:
        return Reaction.REFRESH
    if code in _DENIED:
        return Reaction.DENIED
    try:
        return Reaction.RETRY if ErrorCode(code).retriable else Reaction.FAIL
    except ValueError:
        return Reaction.FAIL


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
