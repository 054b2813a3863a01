"""SASL as a conversation: PLAIN and OAUTHBEARER here, SCRAM in ``scram.py``. Pure: bytes in, bytes out.

Answers to PlainSaslClient and OAuthBearerSaslClient of Apache Kafka (RFC 4616, RFC 7628). Why these are our own:
docs/decisions/0004-sasl-of-our-own.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, Protocol

from mm2py.secret import Secret, without

REASON_MAX_CHARS: Final = 200
ERROR_MAX_BYTES: Final = 4096
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class SaslRefused(Exception):
    """The conversation cannot go on. The message says why in half a sentence and holds no secret; ``remedy`` is for
    the operator."""

    def __init__(self, why: str, *, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


class Conversation(Protocol):
    """One authentication, from our first message to the broker's last."""

    @property
    def slow(self) -> bool:
        """Whether ``answer`` computes for long, so that it belongs on a thread."""
        ...

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What must not be seen in anything the broker says."""
        ...

    def first(self) -> bytes:
        """Return what we begin with."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Return our answer to what the broker said; None when the conversation is over and all is well.

        Raises:
            SaslRefused: the broker refused us, or what it says proves nothing.
        """
        ...


class Plain:
    """Name and password as they are, to be sent over TLS only."""

    slow = False

    def __init__(self, username: str, password: Secret) -> None:
        self.secrets = (password,)
        self._username = username
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._username}\0{self._password.reveal()}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslRefused("it asks something that PLAIN has no answer to", remedy="Check sasl.mechanism.")
        return None


class OAuthBearer:
    """A token that somebody else gave us."""

    slow = False

    def __init__(self, token: Secret, extensions: Sequence[tuple[str, str]] = ()) -> None:
        self.secrets = (token,)
        self._token = token
        self._extensions = tuple(extensions)
        self._refused = ""

    def first(self) -> bytes:
        extensions = "".join(f"\x01{name}={value}" for name, value in self._extensions)
        return f"n,,\x01auth=Bearer {self._token.reveal()}{extensions}\x01\x01".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._refused:
            raise SaslRefused(self._refused, remedy=TOKEN_REMEDY)
        if not challenge:
            return None
        self._refused = f"it refuses the token ({_error_status(challenge, self.secrets)})"
        return b"\x01"  # the broker then ends the conversation with an error of its own

    @property
    def refused(self) -> str:
        """Why the broker refused the token, if it said so."""
        return self._refused


TOKEN_REMEDY: Final = "Check that the broker trusts the token: its issuer, audience, scope and clock."  # noqa: S105


def extension_problem(name: str, value: str) -> str | None:
    """Return what is wrong with an extension of RFC 7628, or None."""
    if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
        return "is no name of an extension (letters only, and not auth)"
    return None if _EXTENSION_VALUE.fullmatch(value) else "has a value that no extension may have"


def is_token(text: str) -> bool:
    """Whether a text can be sent as a token: printable, without blanks."""
    return _TOKEN.fullmatch(text) is not None


def shown_reason(text: str, secrets: tuple[Secret, ...]) -> str:
    """Return what a broker said as it may stand in one line of a log; secrets are hidden while they are whole."""
    text = without(text, secrets)[:REASON_MAX_CHARS]
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text[:REASON_MAX_CHARS].rstrip(". ")


def _error_status(challenge: bytes, secrets: tuple[Secret, ...]) -> str:
    try:
        answer = json.loads(challenge[:ERROR_MAX_BYTES])
        return shown_reason(str(answer.get("status", "without a status")), secrets)
    except (ValueError, AttributeError, RecursionError):
        return "without a reason"
