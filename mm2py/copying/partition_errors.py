"""The errors that a source answers to a read, and a target to a batch, and the copier's reaction to each. Pure.

The meaning of the codes was read in ``ReplicaManager``, ``UnifiedLog`` and ``ProducerAppendInfo`` of Apache Kafka 4.3.
The reactions rest on docs/broker-facts.md#c1, #h1 and #h2. docs/internals/target-answers.md shows the table of produce
errors to operators.

Counterpart: ``FetchCollector.handleInitializeErrors`` of Kafka's Java consumer and ``Sender.completeBatch`` and
``TransactionManager.canRetry`` of its producer; MM2 leaves these errors to both.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from mm2py.copying.events import Need
from mm2py.flow import Flow
from mm2py.kafka import error_codes
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE, TOPIC_CHANGED, name_of
from mm2py.kafka.errors import Reaction, reaction_to

RESUME_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""How long a partition pauses after its first, second, ... failure in a row before it is read again."""
DENIED_PAUSE_S: Final = 10.0
"""The same while a right is missing."""
BLOCKED_PAUSE_S: Final = 30.0
"""The same while only an operator can help."""
LIMITS_PAUSE_S: Final = 2.0
"""The same while the remote topic's limits of timestamps are raised to those of its upstream topic."""


class FetchError(NamedTuple):
    """Why a partition pauses, and what is looked up meanwhile."""

    text: str
    need: Need | None = None
    pause_s: float | None = None
    """None: as long as after any failure."""
    report: str | None = None
    """The log event for operators."""
    blocks: bool = False
    """Only an operator can help."""


def fetch_error(code: int, fetch_offset: int) -> FetchError:
    """Return the reaction to an error code that answers a read from ``fetch_offset`` on."""
    what = f"{name_of(code)} ({code})"
    if code == OFFSET_OUT_OF_RANGE:
        return FetchError(f"source offset {fetch_offset} is out of range", Need.OFFSETS)
    if code in TOPIC_CHANGED:
        return FetchError(f"the source topic is gone or was recreated ({what})", Need.METADATA)
    match reaction_to(code):
        case Reaction.RETRY:
            return FetchError(f"the source answered {what}")
        case Reaction.REFRESH:
            return FetchError(f"the source answered {what}", Need.METADATA)
        case Reaction.DENIED:
            text = f"mm2py may not read the source topic ({what})"
            return FetchError(text, pause_s=DENIED_PAUSE_S, report="source.denied")
        case Reaction.FAIL:
            text = f"the source answers {what}"
            return FetchError(text, pause_s=BLOCKED_PAUSE_S, report="source.refuses", blocks=True)


class ProduceReaction(enum.Enum):
    """What the copier does about a batch that was not acknowledged."""

    RESEND = "pause, then send it again under the same sequence"
    REFRESH = "pause, then send it to the new leader of the remote partition under the same sequence"
    DENIED = "wait for a right, and try again from time to time"
    NEW_INCARNATION = "end this incarnation of the flow: another producer has fenced it"
    RECONCILE = "fence the partition under a higher epoch and find out how far it got"
    LIMITS = "look up the topic's limits, then cut the batch, or keep its record in quarantine"
    FIND_RECORD = "cut the batch until the refused record is alone, then stop at it or keep it in quarantine"
    TIMESTAMP_LIMITS = "let the remote topic take the timestamps of its upstream topic, then find the record"
    BLOCK = "wait for an operator, and try again from time to time"


class Stored(enum.Enum):
    """Whether a batch is stored, by its error code. After a repeat it is unknown: the first attempt may be stored."""

    NO = "no"
    """It was refused before anything was appended."""
    PERHAPS = "perhaps"
    """It was refused; or it was appended, and the leader changed or failed before the replicas had it."""
    YES = "yes"
    """It was appended. It is not certain that all replicas keep it."""


class ProduceError(NamedTuple):
    """One row of the table."""

    reaction: ProduceReaction
    stored: Stored


_R, _S = ProduceReaction, Stored
PRODUCE_ERRORS: Final[dict[int, ProduceError]] = {
    error_codes.CORRUPT_MESSAGE: ProduceError(_R.RESEND, _S.NO),  # damaged on the way to the target
    error_codes.UNKNOWN_TOPIC_OR_PARTITION: ProduceError(_R.REFRESH, _S.PERHAPS),  # also when it is deleted meanwhile
    error_codes.NOT_LEADER_OR_FOLLOWER: ProduceError(_R.REFRESH, _S.PERHAPS),  # also if it was the leader until now
    error_codes.REQUEST_TIMED_OUT: ProduceError(_R.RESEND, _S.YES),  # the other replicas were too slow
    error_codes.MESSAGE_TOO_LARGE: ProduceError(_R.LIMITS, _S.NO),
    error_codes.INVALID_TOPIC_EXCEPTION: ProduceError(_R.BLOCK, _S.NO),
    error_codes.RECORD_LIST_TOO_LARGE: ProduceError(_R.LIMITS, _S.NO),
    error_codes.NOT_ENOUGH_REPLICAS: ProduceError(_R.RESEND, _S.NO),
    error_codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ProduceError(_R.RESEND, _S.YES),
    error_codes.INVALID_REQUIRED_ACKS: ProduceError(_R.BLOCK, _S.NO),
    error_codes.TOPIC_AUTHORIZATION_FAILED: ProduceError(_R.DENIED, _S.NO),
    error_codes.CLUSTER_AUTHORIZATION_FAILED: ProduceError(_R.DENIED, _S.NO),  # IDEMPOTENT_WRITE, of old brokers
    error_codes.INVALID_TIMESTAMP: ProduceError(_R.TIMESTAMP_LIMITS, _S.NO),
    error_codes.UNSUPPORTED_VERSION: ProduceError(_R.BLOCK, _S.NO),
    error_codes.INVALID_REQUEST: ProduceError(_R.BLOCK, _S.NO),
    error_codes.UNSUPPORTED_FOR_MESSAGE_FORMAT: ProduceError(_R.BLOCK, _S.NO),
    error_codes.POLICY_VIOLATION: ProduceError(_R.FIND_RECORD, _S.NO),
    error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceError(_R.RECONCILE, _S.NO),
    error_codes.DUPLICATE_SEQUENCE_NUMBER: ProduceError(_R.RECONCILE, _S.YES),
    error_codes.INVALID_PRODUCER_EPOCH: ProduceError(_R.NEW_INCARNATION, _S.NO),
    error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ProduceError(_R.DENIED, _S.NO),
    error_codes.KAFKA_STORAGE_ERROR: ProduceError(_R.REFRESH, _S.PERHAPS),  # a disk is full or broken
    error_codes.UNKNOWN_PRODUCER_ID: ProduceError(_R.RECONCILE, _S.PERHAPS),
    error_codes.UNSUPPORTED_COMPRESSION_TYPE: ProduceError(_R.BLOCK, _S.NO),
    error_codes.INVALID_RECORD: ProduceError(_R.FIND_RECORD, _S.NO),
    error_codes.THROTTLING_QUOTA_EXCEEDED: ProduceError(_R.RESEND, _S.NO),
    error_codes.PRODUCER_FENCED: ProduceError(_R.NEW_INCARNATION, _S.NO),
    error_codes.UNKNOWN_TOPIC_ID: ProduceError(_R.REFRESH, _S.NO),
}
"""For any other code see ``produce_error``."""

_REMEDIES: Final[dict[int, str]] = {
    error_codes.MESSAGE_TOO_LARGE: "Raise max.message.bytes of {remote} on {target}.",
    error_codes.INVALID_TOPIC_EXCEPTION: "Do not copy {topic}, or copy it to a topic of another name: clients may not"
    " write to {remote} on {target}.",
    error_codes.TOPIC_AUTHORIZATION_FAILED: "Grant WRITE on {remote} on {target}.",
    error_codes.CLUSTER_AUTHORIZATION_FAILED: "Grant IDEMPOTENT_WRITE on the cluster {target}.",
    error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant WRITE on the transactional id of the flow on {target}.",
    error_codes.INVALID_TIMESTAMP: "Raise message.timestamp.after.max.ms (it refuses records of the future) or"
    " message.timestamp.before.max.ms (it refuses old ones) of {remote} on {target} by hand; before Kafka 3.6 both are"
    " message.timestamp.difference.max.ms. Or grant mm2py ALTER_CONFIGS on {remote}, with"
    " sync.topic.configs.enabled=true: it then sets what {topic} on {source} takes.",
    error_codes.UNSUPPORTED_FOR_MESSAGE_FORMAT: "Raise message.format.version of {remote} on {target}.",
    error_codes.POLICY_VIOLATION: "Let the policy of {target} allow the record in {remote}.",
    error_codes.UNSUPPORTED_COMPRESSION_TYPE: "Set compression.type of {remote} to a codec that {target} knows, or"
    " upgrade {target}.",
    error_codes.INVALID_RECORD: "Let {remote} on {target} take it: with cleanup.policy=compact it takes none without a"
    " key; otherwise the log of its leader says what it refuses.",
}
"""What an operator does about a code for which the copier waits; for others the brokers' log says what is wrong."""
_REMEDIES[error_codes.RECORD_LIST_TOO_LARGE] = _REMEDIES[error_codes.MESSAGE_TOO_LARGE]
_OF_ONE_RECORD: Final = frozenset({_R.LIMITS, _R.FIND_RECORD, _R.TIMESTAMP_LIMITS})


def refusal_remedy(code: int, flow: Flow, topic: str, remote: str) -> str:
    """Return what an operator does about a target that refuses a record, or a batch, with this code.

    Args:
        topic: the upstream topic.
        remote: the remote topic.
    """
    text = _REMEDIES.get(code, "Look at the log of the brokers of {target}.")
    text = text.format(topic=topic, remote=remote, source=flow.source, target=flow.target)
    if produce_error(code).reaction in _OF_ONE_RECORD:
        text += " Or let quarantine keep such records (on.poison.record=quarantine)."
    return text


_DEFAULTS: Final = {
    Reaction.RETRY: _R.RESEND,
    Reaction.REFRESH: _R.REFRESH,
    Reaction.DENIED: _R.DENIED,
    Reaction.FAIL: _R.BLOCK,
}


def produce_error(code: int) -> ProduceError:
    """Return the row of a code. For a code without one, ``reaction_to`` decides, and the outcome is unknown."""
    found = PRODUCE_ERRORS.get(code)
    return ProduceError(_DEFAULTS[reaction_to(code)], Stored.PERHAPS) if found is None else found
