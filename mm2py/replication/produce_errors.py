"""What a target may answer to a batch, and what follows from it: one table. Pure.

Answers to ``Sender.completeBatch`` and ``TransactionManager.canRetry`` of Kafka's Java producer, which MM2 leaves it
to. What the codes mean was read in ``ReplicaManager``, ``UnifiedLog`` and ``ProducerAppendInfo`` of Apache Kafka 4.3;
what follows rests on C1, H1 and H2 of docs/broker-facts.md. docs/architecture.md shows the table to operators.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from mm2py.kafka.retry import Reaction, reaction_to


class ProduceReaction(enum.Enum):
    """What the copier does about a batch that was not acknowledged."""

    RESEND = "pause, then send it again under the same sequence"
    REFRESH = "the same, to whoever leads the remote partition by then"
    DENIED = "wait for a right, and try again now and then"
    NEW_LIFE = "end this life of the flow: somebody else has fenced it"
    RECONCILE = "fence the partition under a higher epoch and find out how far it got"
    LIMITS = "look up what the topic takes, then cut the batch, or keep its record in quarantine"
    FIND_RECORD = "cut the batch until the record at fault stands alone, then stop at it or keep it in quarantine"
    BLOCK = "wait for an operator, and try again now and then"


class Stored(enum.Enum):
    """What an answer tells of the batch itself. Of a repeat it says nothing: its first may be stored."""

    NO = "no"
    """It was refused before anything was appended."""
    PERHAPS = "perhaps"
    """It was refused, or it was appended and its leader changed or broke before the other replicas had it."""
    YES = "yes"
    """It was appended; that all replicas will keep it is not certain."""


class ProduceError(NamedTuple):
    """One row of the table."""

    reaction: ProduceReaction
    stored: Stored


_R, _S = ProduceReaction, Stored
PRODUCE_ERRORS: Final[dict[int, ProduceError]] = {
    2: ProduceError(_R.RESEND, _S.NO),  # CORRUPT_MESSAGE: damaged on the way to the target
    3: ProduceError(_R.REFRESH, _S.PERHAPS),  # UNKNOWN_TOPIC_OR_PARTITION: also when it is deleted meanwhile
    6: ProduceError(_R.REFRESH, _S.PERHAPS),  # NOT_LEADER_OR_FOLLOWER: also of a leader that lost its office waiting
    7: ProduceError(_R.RESEND, _S.YES),  # REQUEST_TIMED_OUT: the other replicas were too slow
    10: ProduceError(_R.LIMITS, _S.NO),  # MESSAGE_TOO_LARGE
    17: ProduceError(_R.BLOCK, _S.NO),  # INVALID_TOPIC_EXCEPTION
    18: ProduceError(_R.LIMITS, _S.NO),  # RECORD_LIST_TOO_LARGE
    19: ProduceError(_R.RESEND, _S.NO),  # NOT_ENOUGH_REPLICAS
    20: ProduceError(_R.RESEND, _S.YES),  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    21: ProduceError(_R.BLOCK, _S.NO),  # INVALID_REQUIRED_ACKS
    29: ProduceError(_R.DENIED, _S.NO),  # TOPIC_AUTHORIZATION_FAILED
    31: ProduceError(_R.DENIED, _S.NO),  # CLUSTER_AUTHORIZATION_FAILED: IDEMPOTENT_WRITE, of old brokers
    32: ProduceError(_R.FIND_RECORD, _S.NO),  # INVALID_TIMESTAMP
    35: ProduceError(_R.BLOCK, _S.NO),  # UNSUPPORTED_VERSION
    42: ProduceError(_R.BLOCK, _S.NO),  # INVALID_REQUEST
    43: ProduceError(_R.BLOCK, _S.NO),  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44: ProduceError(_R.FIND_RECORD, _S.NO),  # POLICY_VIOLATION
    45: ProduceError(_R.RECONCILE, _S.NO),  # OUT_OF_ORDER_SEQUENCE_NUMBER
    46: ProduceError(_R.RECONCILE, _S.YES),  # DUPLICATE_SEQUENCE_NUMBER
    47: ProduceError(_R.NEW_LIFE, _S.NO),  # INVALID_PRODUCER_EPOCH
    53: ProduceError(_R.DENIED, _S.NO),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    56: ProduceError(_R.REFRESH, _S.PERHAPS),  # KAFKA_STORAGE_ERROR: a disk is full or broken
    59: ProduceError(_R.RECONCILE, _S.PERHAPS),  # UNKNOWN_PRODUCER_ID
    76: ProduceError(_R.BLOCK, _S.NO),  # UNSUPPORTED_COMPRESSION_TYPE
    87: ProduceError(_R.FIND_RECORD, _S.NO),  # INVALID_RECORD
    89: ProduceError(_R.RESEND, _S.NO),  # THROTTLING_QUOTA_EXCEEDED
    90: ProduceError(_R.NEW_LIFE, _S.NO),  # PRODUCER_FENCED
    100: ProduceError(_R.REFRESH, _S.NO),  # UNKNOWN_TOPIC_ID
}
"""By Kafka's numbers. Any other code is taken as ``produce_error`` says."""

_DEFAULTS: Final = {
    Reaction.RETRY: _R.RESEND,
    Reaction.REFRESH: _R.REFRESH,
    Reaction.DENIED: _R.DENIED,
    Reaction.FAIL: _R.BLOCK,
}


def produce_error(code: int) -> ProduceError:
    """Return the row of a code. One that is not in the table is retried as of ``reaction_to``, its batch in doubt."""
    found = PRODUCE_ERRORS.get(code)
    return ProduceError(_DEFAULTS[reaction_to(code)], Stored.PERHAPS) if found is None else found
