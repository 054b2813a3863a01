"""What users changed over REST, as records in ``mm2-configs.A.internal``. Pure.

MirrorMaker 2 keeps nothing of the kind; Connect skips the key. Each record has a key of its own, in the order of time.
The writer deletes the oldest records beyond the last thousand.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

AUDIT_KEY: Final = b"mm2py-audit-"
KEPT_MOST: Final = 1000
_DELETED_AT_ONCE: Final = 100


class MalformedAudit(ValueError):
    """A record is not what mm2py writes."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One REST call that changed something, or would have if it had succeeded."""

    at_ms: int
    user: str
    proof: str
    """How the user is known: password, token, certificate, none."""
    address: str
    method: str
    path: str
    flow: str
    """Empty: the call names no flow."""
    status: int
    """The HTTP status: 2xx if the call was carried out."""
    version: str
    """The version of the flow's settings afterwards; empty: the answer named none."""
    body: str
    """The body of the call, with credentials hidden."""
    worker: str


def audit_key(at_ms: int, mark: int) -> bytes:
    """Return the key of a new record; ``mark`` distinguishes records of one millisecond."""
    return timed_key(AUDIT_KEY, at_ms, mark)


def timed_key(prefix: bytes, at_ms: int, mark: int) -> bytes:
    """Return the key of a new record of a kind that is sorted by time, such as the audit and the history."""
    return prefix + f"{at_ms:015d}-{mark & 0xFFFFFFFF:08x}".encode()


def too_old(keys: Collection[bytes], most: int = KEPT_MOST) -> list[bytes]:
    """Return the keys of the records to delete when one more of this kind is written, the oldest first."""
    return sorted(keys)[: max(0, min(len(keys) + 1 - most, _DELETED_AT_ONCE))]


def encode_audit(record: AuditRecord) -> bytes:
    """Return the value of a record."""
    return json.dumps({"format": 1, **asdict(record)}, separators=(",", ":")).encode()


def decode_audit(value: bytes) -> AuditRecord:
    """Return a record; fields that a later mm2py has added are ignored.

    Raises:
        MalformedAudit: a field is missing, or of another type.
    """
    try:
        found: Any = json.loads(value)
        given = {field.name: found[field.name] for field in fields(AuditRecord)}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MalformedAudit("it is no audit record") from None
    numbers = ("at_ms", "status")
    for name, inner in given.items():
        if not isinstance(inner, int if name in numbers else str) or isinstance(inner, bool):
            raise MalformedAudit(f"{name} is of another type")
    return AuditRecord(**given)
