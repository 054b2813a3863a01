"""What can go wrong between mm2py and a broker, one class per reaction."""

from __future__ import annotations

from mm2py.errors import Mm2Error
from mm2py.kafka.error_codes import name_of
from mm2py.kafka.retry import Reaction, reaction_to


class KafkaError(Mm2Error):
    """Base of the wire layer's errors. ``retriable``: the same request may succeed soon, without an operator."""

    @property
    def worth_asking_again(self) -> bool:
        """Whether what runs should go on and ask again later; else only a new beginning may help."""
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
    """The server there does not speak Kafka's protocol. That may be corrected while mm2py runs: retriable."""

    retriable = True

    def __init__(self, broker: str, why: str, protocol: str = "PLAINTEXT") -> None:
        super().__init__(
            f"{broker} does not answer as a Kafka broker: {why}.",
            remedy=f"Check bootstrap.servers: the port must be a {protocol} listener of a broker.",
        )


class CorruptReply(KafkaError):
    """A reply that cannot be what was asked for. The connection is closed; the request may have been carried out."""

    retriable = True

    def __init__(self, broker: str, why: str) -> None:
        super().__init__(
            f"{broker} sent a reply that cannot be read: {why}.", remedy="mm2py reconnects and asks again."
        )


class UnsupportedVersion(KafkaError):
    """The broker and mm2py share no version of an API."""

    def __init__(self, broker: str, api: str, *, wanted: str, offered: str) -> None:
        super().__init__(
            f"{broker} speaks {api} in versions {offered}, mm2py in {wanted}.",
            remedy="mm2py works with brokers from 3.3 to 4.3.",
        )


class ForeignCluster(KafkaError):
    """Two addresses of one alias lead to different clusters."""

    def __init__(self, alias: str, *, first: str, other: str) -> None:
        super().__init__(
            f"The addresses of {alias} lead to two clusters, {first} and {other}.",
            remedy=f"Let {alias}.bootstrap.servers name brokers of one cluster only.",
        )


class BrokerRefused(KafkaError):
    """A broker answered a request with an error code."""

    worth_asking_again = True
    """An operator may mend what no repetition does: grant a right, change a setting."""

    def __init__(self, what: str, code: int, *, remedy: str = "", message: str | None = None) -> None:
        detail = f": {message.rstrip('. ')}" if message else ""
        super().__init__(f"{what} was refused with {name_of(code)} ({code}){detail}.", remedy=remedy)
        self.code = code
        self.reaction = reaction_to(code)
        self.retriable = self.reaction in {Reaction.RETRY, Reaction.REFRESH}
