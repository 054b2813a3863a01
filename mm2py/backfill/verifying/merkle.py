"""A tree of digests: two lists are equal if their roots are, and a binary search finds the first difference. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

DIGEST_BYTES: Final = 16
_NOTHING: Final = bytes(DIGEST_BYTES)


def digest(data: bytes) -> bytes:
    """Return the digest of a leaf's content."""
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]


def levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the digests of each level, the leaves first, the root last. A level has half as many as the one below."""
    found = [list(leaves) or [_NOTHING]]
    while len(found[-1]) > 1:
        below = found[-1]
        found.append([digest(b"".join(below[at : at + 2])) for at in range(0, len(below), 2)])
    return found


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the digest of all leaves."""
    return levels(leaves)[-1][0]


def first_difference(one: Sequence[bytes], other: Sequence[bytes]) -> int | None:
    """Return the index of the first leaf that differs; None if there is none.

    Args:
        one: as many digests as ``other`` has.
    """
    if len(one) != len(other):
        raise ValueError(f"{len(one)} leaves cannot be compared with {len(other)}")
    first, second = levels(one), levels(other)
    if first[-1] == second[-1]:
        return None
    at = 0
    for depth in range(len(first) - 2, -1, -1):
        at *= 2
        if first[depth][at] == second[depth][at]:
            at += 1
    return at
