"""A record as a consumer sees it. The checker knows nothing else of a topic.

Two records are equal if a consumer cannot tell them apart: timestamp, key, value and the header list (order, repeated
keys, null values) are compared; null differs from empty. The offset is not compared. Neither is the timestamp type: it
belongs to the topic, so MirrorMaker 2 does not copy it.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
Content = tuple[int, bytes | None, bytes | None, Headers]


class Dumped(NamedTuple):
    """One record of a dump. ``timestamp_type`` is the client's number: 0 none, 1 create time, 2 log-append time."""

    offset: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @property
    def content(self) -> Content:
        return self[2:]


class Sent(NamedTuple):
    """One acknowledged send in the ledger of the load generator."""

    offset: int
    digest: bytes
    key: bytes | None
    is_tombstone: bool
    is_aborted: bool = False


def digest(record: Dumped) -> bytes:
    """Return 16 bytes that two records share only if they are equal: a hash of all lengths, then of all bytes."""
    return _digest(*record[2:])


@lru_cache(maxsize=8192)  # a copy has the bytes of its source, and a judge looks at each record two or three times
def _digest(timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    parts = [key, value]
    for name, header_value in headers:
        parts += (name.encode("utf-8", "surrogatepass"), header_value)
    lengths = [-1 if part is None else len(part) for part in parts]
    shape = f"{timestamp_ms},{lengths}".encode()
    return blake2b(shape + b"".join([part for part in parts if part]), digest_size=16).digest()


def sent(record: Dumped, *, is_aborted: bool = False) -> Sent:
    """Return the ledger's entry for a record that was acknowledged at ``record.offset``."""
    return Sent(record.offset, digest(record), record.key, record.value is None, is_aborted)


def is_like(one: Dumped, other: Dumped) -> bool:
    """Return whether one may be a changed version of the other: half of the content is equal, and not just empty."""
    same = [a for a, b in zip(one.content, other.content, strict=True) if a == b]
    return len(same) >= 2 and any(same)


def difference(source: Dumped, target: Dumped) -> str:
    """Return in one line how the target's record differs from the source's, or "nothing differs"."""
    found = []
    if source.timestamp_ms != target.timestamp_ms:
        found.append(f"timestamp {source.timestamp_ms} became {target.timestamp_ms}")
    found += _bytes_difference("key", source.key, target.key)
    found += _bytes_difference("value", source.value, target.value)
    found += _headers_difference(source.headers, target.headers)
    return "; ".join(found) or "nothing differs"


def _headers_difference(source: Headers, target: Headers) -> list[str]:
    if source == target:
        return []
    if len(source) != len(target):
        return [f"{len(source)} headers became {len(target)}"]
    if sorted(map(repr, source)) == sorted(map(repr, target)):
        return ["headers are in another order"]
    found = []
    for index, ((name, value), (target_name, target_value)) in enumerate(zip(source, target, strict=True)):
        if name != target_name:
            found.append(f"key of header {index} {name!r} became {target_name!r}")
        found += _bytes_difference(f"value of header {index} ({name!r})", value, target_value)
    return found


def _bytes_difference(what: str, source: bytes | None, target: bytes | None) -> list[str]:
    if source == target:
        return []
    if source is None or target is None:
        return [f"{what} {_size(source)} became {_size(target)}"]
    same = next((i for i, (a, b) in enumerate(zip(source, target, strict=False)) if a != b), None)
    if same is None:
        return [f"{what} {_size(source)} became {_size(target)}"]
    return [f"{what} differs from byte {same} on ({_size(source)}, {_size(target)})"]


def _size(part: bytes | None) -> str:
    return "null" if part is None else "empty" if not part else f"of {len(part)} bytes"
