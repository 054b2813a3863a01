"""SASL with Kerberos as a conversation (RFC 4752). Pure: the security context is an argument.

Both sides prove who they are. Then they agree on no layer of SASL: TLS protects what follows, as with all mechanisms
of Kafka.

Counterpart: the JDK's GssKrb5Client, as Apache Kafka's SaslClientAuthenticator uses it.
"""

from __future__ import annotations

from typing import Final, Protocol

from mm2py.kafka.security.sasl import SaslRefused
from mm2py.secret import Secret

BROKER_REMEDY: Final = (
    "See the broker's log. Its keytab must hold the current keys of its service, and its clock and ours may differ by"
    " five minutes at most."
)
TICKET_EXPIRED: Final = -1765328352
"""Kerberos' own number (krb5.h)."""
_NO_LAYER: Final = 1
_LAYERS_MESSAGE_BYTES: Final = 4
"""The layers that a broker offers, and the largest message that it takes in one of them."""


class GssapiFailed(Exception):
    """A call of the Kerberos library failed. ``code`` is Kerberos' own number; the text is the library's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class GssapiContext(Protocol):
    """What both sides of one connection know of each other. All methods raise GssapiFailed."""

    @property
    def complete(self) -> bool:
        """Whether both sides have proved who they are."""
        ...

    def step(self, token: bytes | None) -> bytes | None:
        """Return the answer to the broker's token; without a token, our first one."""
        ...

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...


class GssapiConversation:
    """One conversation of the client's side. The library has asked the Kerberos server before it begins."""

    slow = False
    secrets: tuple[Secret, ...] = ()

    def __init__(self, context: GssapiContext, first: bytes) -> None:
        self._context = context
        self._first = first
        self._over = False

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        if self._over:
            if challenge:
                raise SaslRefused("it goes on after the end of GSSAPI", remedy=BROKER_REMEDY)
            return None
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            offered = self._context.unwrap(challenge)
            if len(offered) != _LAYERS_MESSAGE_BYTES or not offered[0] & _NO_LAYER:
                raise SaslRefused("it demands a layer of SASL, which Kafka's brokers do not", remedy=BROKER_REMEDY)
            self._over = True
            return self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]))
        except GssapiFailed as failed:
            raise SaslRefused(f"it did not prove who it is ({failed})", remedy=BROKER_REMEDY) from None
