"""The code in the address that ``mm2py open`` prints: it begins one session of the web page, once. Pure.

A user who has the token of REST can make a code, and only the worker checks it: the command sends no code. The
story: no worker runs, and another user of the machine listens at its port. A command that asked there for an address
would give that user the token. Of a code this user learns nothing, and the worker that comes later refuses it.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import Final

from mm2py.secret import Secret

VALID_MS: Final = 10 * 60 * 1000
AHEAD_MS: Final = 5_000
"""A code may be this much younger than the clock says now: clocks are set."""
NONCE_BYTES: Final = 16
_CODE: Final = re.compile(r"([0-9a-f]{1,14})\.([0-9a-f]{32})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class OnceCode:
    """A code that the token's holder has made."""

    made_at_ms: int
    nonce: str

    def is_valid(self, now_ms: int) -> bool:
        """Whether its time is not over."""
        return -AHEAD_MS <= now_ms - self.made_at_ms <= VALID_MS


def make_code(token: Secret, port: int, now_ms: int, nonce: bytes) -> str:
    """Return a code for the worker that listens at a port.

    Args:
        nonce: ``NONCE_BYTES`` random bytes.
    """
    text = f"{now_ms:x}.{nonce.hex()}"
    return f"{text}.{_proof(token, port, text)}"


def read_code(code: str, token: Secret, port: int) -> OnceCode | None:
    """Return what a code says; None: it is not of this token and this port."""
    match = _CODE.fullmatch(code)
    if match is None:
        return None
    made_at, nonce, proof = match.groups()
    if not hmac.compare_digest(proof, _proof(token, port, f"{made_at}.{nonce}")):
        return None
    return OnceCode(int(made_at, 16), nonce)


def _proof(token: Secret, port: int, text: str) -> str:
    return hmac.digest(token.reveal().encode(), f"mm2py open {port} {text}".encode(), "sha256").hex()
