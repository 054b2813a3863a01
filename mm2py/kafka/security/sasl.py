"""SASL as a conversation: PLAIN, OAUTHBEARER and SCRAM. Pure: bytes in, bytes out; the nonce is an argument.

docs/decisions/0004-sasl-of-our-own.md says why we wrote these ourselves. SCRAM proves that both sides know the
password, and does not send it. A server that only pretends to be a broker must learn nothing that helps to guess the
password cheaply: a server that asks for few iterations is refused, like one whose signature or nonce is wrong. A server
that asks for very many would only keep us busy, and is refused too.

Counterpart: PlainSaslClient, OAuthBearerSaslClient and ScramSaslClient of Apache Kafka (RFC 4616, RFC 7628, RFC 5802,
RFC 7677).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from mm2py.secret import Secret, without

REASON_MAX_CHARS: Final = 200
ERROR_MAX_BYTES: Final = 4096
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class SaslRefused(Exception):
    """The conversation cannot continue. The message says why in half a sentence, without secrets; ``remedy`` is for the
    operator."""

    def __init__(self, why: str, *, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


class Conversation(Protocol):
    """One authentication, from our first message to the broker's last."""

    @property
    def slow(self) -> bool:
        """Whether ``answer`` computes for so long that it must run in a thread."""
        ...

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Secrets to be hidden in every message of the broker that is logged."""
        ...

    def first(self) -> bytes:
        """Return our first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Return our answer to a message of the broker; None when the conversation has ended with success.

        Raises:
            SaslRefused: the broker refused us, or did not prove that it knows the password.
        """
        ...


class Plain:
    """Name and password in plain text, to be sent over TLS only."""

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
    """A token that an OAuth server or a file gave us."""

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
    """Return a broker's message in a form that fits into one log line; secrets are hidden before the text is cut."""
    text = without(text, secrets)[:REASON_MAX_CHARS]
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text[:REASON_MAX_CHARS].rstrip(". ")


def _error_status(challenge: bytes, secrets: tuple[Secret, ...]) -> str:
    try:
        answer = json.loads(challenge[:ERROR_MAX_BYTES])
        return shown_reason(str(answer.get("status", "without a status")), secrets)
    except (ValueError, AttributeError, RecursionError):
        return "without a reason"


ITERATIONS_LEAST: Final = 4_096
"""As in Kafka's brokers, which store no credential with fewer."""
ITERATIONS_MOST: Final = 1_000_000
"""About half a second of a core; Kafka's brokers store no more than 16,384."""
MESSAGE_MAX_BYTES: Final = 4_096
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_FIRST: Final = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/]+={0,2}),i=([1-9][0-9]{0,18})(?:,.*)?", re.DOTALL
)
_FINAL: Final = re.compile(r"v=([A-Za-z0-9+/]+={0,2})(?:,.*)?", re.DOTALL)
_IMPOSTOR: Final = (
    "The server there may not be your broker: check bootstrap.servers, and which server answers at that address."
)


class Scram:
    """One conversation of the client's side."""

    slow = True

    def __init__(self, mechanism: str, username: str, password: Secret, *, nonce: str) -> None:
        """``nonce`` has to be random and new: printable ASCII without a comma."""
        self.secrets = (password,)
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._expected: bytes | None = None
        self._over = False

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if len(challenge) > MESSAGE_MAX_BYTES or self._over:
            raise SaslRefused("its message is not one of SCRAM", remedy=_IMPOSTOR)
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise SaslRefused("its message is not text", remedy=_IMPOSTOR) from None
        if self._expected is None:
            return self._prove(_server_first(text, self._nonce, self.secrets), text)
        self._check_signature(text, self._expected)
        self._over = True
        return None

    def _prove(self, server: _ServerFirst, text: str) -> bytes:
        without_proof = f"c=biws,r={server.nonce}"
        everything = f"{self._first_bare},{text},{without_proof}".encode()
        password = self._password.reveal().encode()  # not normalised (SASLprep): Kafka does not either
        salted = hashlib.pbkdf2_hmac(self._hash, password, server.salt, server.iterations)
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), everything)
        proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
        self._expected = self._hmac(self._hmac(salted, b"Server Key"), everything)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_signature(self, text: str, expected: bytes) -> None:
        if text.startswith("e="):
            reason = shown_reason(text[2:], self.secrets).partition(",")[0]
            raise SaslRefused(f"it refuses the proof ({reason})", remedy="Check user name and password.")
        match = _FINAL.fullmatch(text)
        signature = _decoded(match[1]) if match is not None else None
        if signature is None or not hmac.compare_digest(signature, expected):
            raise SaslRefused("it could not prove that it knows the password", remedy=_IMPOSTOR)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


@dataclass(frozen=True, slots=True)
class _ServerFirst:
    nonce: str
    salt: bytes
    iterations: int


def _server_first(text: str, our_nonce: str, secrets: tuple[Secret, ...]) -> _ServerFirst:
    """Read the broker's first message and check what can be checked before the password is touched."""
    if text.startswith("e="):
        reason = shown_reason(text[2:], secrets).partition(",")[0]
        raise SaslRefused(f"it refuses the user ({reason})", remedy="Check user name and password.")
    match = _FIRST.fullmatch(text)
    salt = _decoded(match[2]) if match is not None else None
    if match is None or not salt:
        raise SaslRefused("its first message is not one of SCRAM", remedy=_IMPOSTOR)
    nonce, iterations = match[1], int(match[3])
    if not nonce.startswith(our_nonce) or nonce == our_nonce:
        raise SaslRefused("its nonce does not continue ours", remedy=_IMPOSTOR)
    if iterations < ITERATIONS_LEAST:
        raise SaslRefused(
            f"it asks for {iterations:,} iterations, less than {ITERATIONS_LEAST:,}: a listener could guess the"
            " password",
            remedy="Store the user's credential again with at least 4096 iterations, or check bootstrap.servers.",
        )
    if iterations > ITERATIONS_MOST:
        raise SaslRefused(f"it asks for {iterations:,} iterations, more than {ITERATIONS_MOST:,}", remedy=_IMPOSTOR)
    return _ServerFirst(nonce, salt, iterations)


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
