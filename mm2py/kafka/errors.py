"""What can go wrong between mm2py and a broker, and when to try again. Pure.

There is one error class per reaction. ``reaction_to`` returns what to do about an error code, and
``KafkaError.retriable`` says whether to try again. An operator may repair TLS and authentication while mm2py runs.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from mm2py.errors import Mm2Error
from mm2py.kafka import error_codes
from mm2py.kafka.error_codes import name_of

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
    """Return what to do about an error code. A code that mm2py does not know is not retried."""
    if code in _REFRESH:
        return Reaction.REFRESH
    if code in _DENIED:
        return Reaction.DENIED
    try:
        return Reaction.RETRY if ErrorCode(code).retriable else Reaction.FAIL
    except ValueError:
        return Reaction.FAIL


@dataclass(slots=True)
class Backoff:
    """Growing pauses between attempts, with jitter so that many clients do not try again at the same time."""

    rng: random.Random
    first_s: float = 0.1
    most_s: float = 5.0
    factor: float = 2.0
    attempts: int = 0

    def next_s(self) -> float:
        """Return the pause before the next attempt: ``factor`` times the last one, up to ``most_s``, plus or minus a
        fifth."""
        pause_s = min(self.most_s, self.first_s * self.factor ** min(self.attempts, 32))
        self.attempts += 1
        return pause_s * self.rng.uniform(0.8, 1.2)

    def reset(self) -> None:
        self.attempts = 0


class KafkaError(Mm2Error):
    """Base of the wire layer's errors. ``retriable``: the same request may succeed soon, without an operator."""

    @property
    def may_be_mended(self) -> bool:
        """True: keep running and ask again later. False: only a restart can help."""
        return self.retriable


class BrokerUnreachable(KafkaError):
    """No connection, or it broke before the reply came. Whether a sent request was carried out is unknown."""

    retriable = True

    def __init__(self, broker: str, why: str) -> None:
        super().__init__(
            f"{broker} cannot be reached: {why}.", remedy="Check address, port and network; mm2py keeps trying."
        )


class RequestTimedOut(KafkaError):
    """The reply did not come in time; the connection was closed. Whether the request was carried out is unknown."""

    retriable = True

    def __init__(self, broker: str, api: str, after_s: float) -> None:
        super().__init__(
            f"{broker} did not answer {api} within {after_s:g} s.",
            remedy="Check the broker's load and the network, or raise request.timeout.ms; mm2py keeps trying.",
        )


class NotKafka(KafkaError):
    """The server at the address does not speak Kafka's protocol. Retriable: it may be corrected while mm2py runs."""

    retriable = True

    def __init__(self, broker: str, why: str, protocol: str = "PLAINTEXT") -> None:
        super().__init__(
            f"{broker} does not answer as a Kafka broker: {why}.",
            remedy=f"Check bootstrap.servers: the port must belong to a listener of a broker for {protocol}.",
        )


class CorruptReply(KafkaError):
    """A reply that does not fit the request. The connection is closed; the request may have been carried out."""

    retriable = True

    def __init__(self, broker: str, why: str) -> None:
        super().__init__(
            f"{broker} sent a reply that cannot be read: {why}.", remedy="mm2py reconnects and asks again."
        )


class ReplyTooLarge(KafkaError):
    """A reply has more values than a worker accepts. The connection is closed."""

    retriable = True

    def __init__(self, broker: str, api: str, how_large: str) -> None:
        super().__init__(
            f"{broker} answered {api} with {how_large}.",
            remedy="Check that this is a broker of yours. If it is, withdraw DESCRIBE on what mm2py does not copy: a"
            " broker names only what mm2py may see. mm2py asks again.",
        )


class UnsupportedVersion(KafkaError):
    """The broker and mm2py share no version of an API."""

    def __init__(self, broker: str, api: str, *, wanted: str, offered: str) -> None:
        super().__init__(
            f"{broker} speaks {api} in versions {offered}, mm2py in {wanted}.",
            remedy="mm2py works with brokers from 3.3 to 4.4.",
        )


class ForeignCluster(KafkaError):
    """Two addresses of one alias lead to different clusters."""

    def __init__(self, alias: str, *, first: str, other: str) -> None:
        super().__init__(
            f"The addresses of {alias} lead to two clusters, {first} and {other}.",
            remedy=f"Let {alias}.bootstrap.servers name brokers of one cluster only.",
        )


MESSAGE_SHOWN: Final = 500
"""How many characters of a broker's message an error keeps, and a log line shows."""
_DUMP: Final = "Request Request("
_DUMPED_USER: Final = re.compile(r"session=Session\((.+?),[^,/]*/")


def plain_message(message: str) -> str:
    """Return a broker's message without the dump of a request, which brokers put into "Request ... is not authorized.".

    The dump has about 400 characters: processor, connection, session, buffer. The user who sent the request is kept if
    the dump names the user, as in brokers before 4.0. The rest, such as the right that the request needs, is kept.
    """
    begin = message.find(_DUMP)
    if begin < 0:
        return message
    end, depth = begin + len(_DUMP), 1
    while end < len(message) and depth:
        depth += {"(": 1, ")": -1}.get(message[end], 0)
        end += 1
    user = _DUMPED_USER.search(message, begin, end)
    the_request = f"{'the' if begin else 'The'} request{f' of {user[1]}' if user else ''}"
    return f"{message[:begin]}{the_request}{message[end:]}"


class BrokerRefused(KafkaError):
    """A broker answered a request with an error code."""

    may_be_mended = True
    """An operator may mend what repeating does not: grant a right, change a setting."""

    def __init__(self, what: str, code: int, *, remedy: str = "", message: str | None = None) -> None:
        detail = f": {plain_message(message)[:MESSAGE_SHOWN].rstrip('. ')}" if message else ""
        super().__init__(f"{what} was refused with {name_of(code)} ({code}){detail}.", remedy=remedy)
        self.code = code
        self.reaction = reaction_to(code)
        self.retriable = self.reaction in {Reaction.RETRY, Reaction.REFRESH}


class TlsFailed(KafkaError):
    """No TLS connection could be made, or the broker ended it because of a certificate."""

    retriable = True

    def __init__(self, cluster: str, broker: str, why: str, *, remedy: str) -> None:
        super().__init__(f"No TLS connection to {broker} of {cluster}: {why}.", remedy=f"{remedy} mm2py keeps trying.")


class KeyMaterialUnusable(KafkaError):
    """A certificate or key cannot be read. The message repeats nothing of the content."""

    retriable = True

    def __init__(self, where: str, why: str, *, remedy: str) -> None:
        super().__init__(f"{where} cannot be used: {why}.", remedy=remedy)


class AuthenticationFailed(KafkaError):
    """The broker does not accept our credentials, or could not prove its own. Tried again after growing pauses."""

    retriable = True

    def __init__(self, cluster: str, broker: str, mechanism: str, why: str, *, remedy: str) -> None:
        super().__init__(
            f"{broker} of {cluster} did not authenticate mm2py by {mechanism}: {why}.",
            remedy=f"{remedy} mm2py tries again after a pause that grows to half a minute.",
        )


class TokenUnavailable(KafkaError):
    """No token for OAUTHBEARER could be obtained."""

    retriable = True

    def __init__(self, where: str, why: str, *, remedy: str) -> None:
        super().__init__(f"No token from {where}: {why}.", remedy=remedy)


class TicketUnavailable(KafkaError):
    """No Kerberos ticket for GSSAPI could be obtained."""

    retriable = True

    def __init__(self, where: str, why: str, *, remedy: str) -> None:
        super().__init__(f"No Kerberos ticket with {where}: {why}.", remedy=f"{remedy} mm2py keeps trying.")
