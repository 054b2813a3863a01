"""Hashes of passwords and tokens for the users' file.

A password may be guessed, so its hash is slow and salted (scrypt, at OWASP's cost). A token is long and random, so a
plain SHA-256 is as good. The texts have the PHC format, as passlib writes it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

from mm2py.secret import Secret

TOKEN_MIN_CHARS: Final = 32
_SCRYPT: Final = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{8,90})\$([A-Za-z0-9+/]{20,90})"
)
_COST_LOG2, _BLOCK, _PARALLEL = 14, 8, 5
_MEMORY_MAX_BYTES: Final = 64 << 20


class BadHash(ValueError):
    """A text is not a hash that mm2py can check. The message completes "it is"."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A password's hash, and the parameters to compute it again."""

    cost_log2: int
    block: int
    parallel: int
    salt: bytes
    digest: bytes

    def matches(self, password: Secret) -> bool:
        """Return whether this is the hash of a password. Takes a good part of a second: not in an event loop."""
        made = _scrypt(password, self.cost_log2, self.block, self.parallel, self.salt, len(self.digest))
        return hmac.compare_digest(made, self.digest)


def hash_password(password: Secret) -> str:
    """Return a new hash of a password, for the users' file."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, _COST_LOG2, _BLOCK, _PARALLEL, salt, 32)
    return f"$scrypt$ln={_COST_LOG2},r={_BLOCK},p={_PARALLEL}${_base64(salt)}${_base64(digest)}"


def hash_of_nothing() -> PasswordHash:
    """Return a hash that matches no password and takes as long to check as any other."""
    return PasswordHash(_COST_LOG2, _BLOCK, _PARALLEL, secrets.token_bytes(16), secrets.token_bytes(32))


def parse_password_hash(text: str) -> PasswordHash:
    """Read what ``hash_password`` wrote. Raises: BadHash."""
    match = _SCRYPT.fullmatch(text)
    if match is None:
        raise BadHash("not what mm2py hash-password prints")
    cost_log2, block, parallel = (int(match[number]) for number in (1, 2, 3))
    if not 10 <= cost_log2 <= 20 or not 1 <= parallel <= 16 or not 1 <= block << (cost_log2 + 7) <= _MEMORY_MAX_BYTES:
        raise BadHash("made with a cost beyond what mm2py takes; let mm2py hash-password make it")
    try:
        salt, digest = (base64.b64decode(part + "=" * (-len(part) % 4), validate=True) for part in match.group(4, 5))
    except binascii.Error:
        raise BadHash("not what mm2py hash-password prints") from None
    return PasswordHash(cost_log2, block, parallel, salt, digest)


def token_digest(token: Secret) -> bytes:
    """Return the digest by which tokens are compared."""
    return hashlib.sha256(token.reveal().encode("utf-8", "surrogatepass")).digest()


def hash_token(token: Secret) -> str:
    """Return the hash of a token, for the users' file."""
    return f"$sha256${token_digest(token).hex()}"


def parse_token_hash(text: str) -> bytes:
    """Read what ``hash_token`` wrote. Raises: BadHash."""
    match = re.fullmatch(r"\$sha256\$([0-9a-fA-F]{64})", text)
    if match is None:
        raise BadHash("not $sha256$ with 64 hexadecimal digits behind it")
    return bytes.fromhex(match[1])


def _scrypt(password: Secret, cost_log2: int, block: int, parallel: int, salt: bytes, length: int) -> bytes:
    return hashlib.scrypt(
        password.reveal().encode("utf-8", "surrogatepass"),
        salt=salt,
        n=1 << cost_log2,
        r=block,
        p=parallel,
        maxmem=_MEMORY_MAX_BYTES * 2,
        dklen=length,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
