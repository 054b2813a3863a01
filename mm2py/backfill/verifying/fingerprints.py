"""Fingerprints: two numbers for each record, so that two logs are compared without keeping their content. Pure.

The first number is the timestamp. The second represents the content: the length of key, value and headers in its upper
half, their CRC-32C in the lower. Two different contents of the same length have the same fingerprint in one case in
four billion. Kafka itself detects damaged batches by such a checksum.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from crc32c import crc32c

from mm2py.backfill.verifying.merkle import digest
from mm2py.backfill.verifying.records import plain, records_of
from mm2py.compiled_core import CORE, Core
from mm2py.copying.planning.steps import Outgoing

_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)


def fingerprint(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the fingerprint of a record's content.

    It covers key and value, and the name and value of each header; each after its length in 4 bytes, -1 for null.
    """
    size, crc = 8, 0
    names = [(name.encode("utf-8", "surrogateescape"), one) for name, one in headers]
    size += 8 * len(names)
    for part in (key, value, *chain.from_iterable(names)):
        if part is None:
            crc = crc32c(_NULL, crc)
        else:
            crc = crc32c(part, crc32c(_LENGTH.pack(len(part)), crc))
            size += len(part)
    return (size & 0xFFFF_FFFF) << 32 | crc


class Fingerprints(NamedTuple):
    """The fingerprints of records, in order."""

    timestamps: array[int]
    contents: array[int]

    def only(self, wanted: Sequence[int]) -> Fingerprints:
        """Return the fingerprints of the records with these numbers."""
        return Fingerprints(*(array(one.typecode, [one[at] for at in wanted]) for one in self))


def fingerprints_of(steps: Sequence[Outgoing], core: Core | None = CORE) -> Fingerprints:
    """Return the fingerprints of the records in some batches.

    Raises:
        Mm2Error: a batch cannot be decoded.
    """
    batches = [plain(step.data) for step in steps]
    found = Fingerprints(array("q"), array("Q"))
    if core is not None and (columns := core.fingerprints(batches)) is not None:
        for numbers, column in zip(found, columns, strict=True):
            numbers.frombytes(column)
        return found
    for one in records_of(batches):
        found.timestamps.append(one.timestamp_ms)
        found.contents.append(fingerprint(one.key, one.value, one.headers))
    return found


@dataclass(slots=True)
class PendingFingerprints:
    """Records of one side that are still to be compared: their places and their fingerprints."""

    places: array[int] = field(default_factory=lambda: array("q"))
    fingerprints: Fingerprints = field(default_factory=lambda: Fingerprints(array("q"), array("Q")))

    def extend(self, places: Sequence[int], fingerprints: Fingerprints) -> None:
        """Add records whose places come after these."""
        self.places.extend(places)
        self.fingerprints.timestamps.extend(fingerprints.timestamps)
        self.fingerprints.contents.extend(fingerprints.contents)

    def take_before(self, place: int) -> PendingFingerprints:
        """Remove the records before a place, and return them."""
        count = bisect_left(self.places, place)
        taken = PendingFingerprints(self.places[:count], Fingerprints(*(one[:count] for one in self.fingerprints)))
        for one in (self.places, *self.fingerprints):
            del one[:count]
        return taken

    def digest(self) -> bytes:
        """Return a digest of all places and fingerprints."""
        return digest(b"".join((self.places, *self.fingerprints)))
