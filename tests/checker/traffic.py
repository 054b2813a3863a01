"""Traffic: the records that the load generator sends, as a function of a seed.

Each partition gets every odd shape in turn: null and empty keys and values, tombstones, headers of all kinds, bytes
that are not text, two equal records in a row. All other records are distinct: the value is (producer, partition,
sequence), random bytes and a CRC, and timestamps differ.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple
from zlib import crc32

from tests.checker.dumped import Headers

_PAYLOAD = struct.Struct(">IIQ")
_CRC = struct.Struct(">I")
HOUR_MS = 3_600_000


class Planned(NamedTuple):
    """A record to be sent. ``timestamp_ms`` is never 0, because the client would replace 0 by the present time."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Traffic:
    """The records to send: equal settings make equal records.

    ``keys`` is the number of keys that recur; a compacted topic gets no null keys and one tombstone in ten. Timestamps
    rise by 1 ms a record from ``first_timestamp_ms``, and every seventh goes back up to an hour.
    """

    seed: int
    partitions: int
    producer: int = 0
    first_timestamp_ms: int = 1_760_000_000_000
    compacted: bool = False
    keys: int = 100
    value_bytes: int = 200
    plain: bool = False
    """No odd shapes: a random key, a payload, no header. For tests of rates rather than of bytes."""
    twins: bool = True
    """Some records are equal to the one before them."""

    def records(self) -> Iterator[Planned]:
        """Yield records without end."""
        random = Random(self.seed)
        in_partition = [0] * self.partitions
        last: list[Planned | None] = [None] * self.partitions
        for sequence in count():
            partition = random.randrange(self.partitions)
            shape = in_partition[partition] % SHAPES
            in_partition[partition] += 1
            twin = last[partition]
            if shape == TWIN and twin is not None and self.twins and not self.plain:
                yield twin
                continue
            planned = self._plain(random, partition, sequence)
            if self.compacted:
                planned = _tombstones(planned, random)
            if not self.plain:
                planned = _shaped(planned, shape, random, compacted=self.compacted)
            last[partition] = planned
            yield planned

    def _plain(self, random: Random, partition: int, sequence: int) -> Planned:
        timestamp_ms = self.first_timestamp_ms + sequence
        if sequence % 7 == 6:
            timestamp_ms -= random.randrange(HOUR_MS)
        key = b"key-%d" % random.randrange(self.keys)
        body = random.randbytes(random.randrange(self.value_bytes + 1))
        return Planned(partition, timestamp_ms, key, payload(self.producer, partition, sequence, body), ())


SHAPES = 14
TWIN = 11


def _shaped(planned: Planned, shape: int, random: Random, *, compacted: bool) -> Planned:
    match shape:
        case 1 if not compacted:
            return planned._replace(key=None)
        case 2:
            return planned._replace(key=b"")
        case 3:
            return planned._replace(value=None)
        case 4:
            return planned._replace(value=b"")
        case 5 if not compacted:
            return planned._replace(key=None, value=None)
        case 6:
            return planned._replace(headers=(("h", b"1"), ("other", b"x"), ("h", b"2"), ("h", b"1")))
        case 7:
            return planned._replace(headers=(("", b"no name"), ("null", None), ("empty", b"")))
        case 8:
            return planned._replace(key=b"\xff\xfe" + (planned.key or b""), value=b"\xc3\x28\x00" + random.randbytes(9))
        case 9:
            return planned._replace(value=b'{"schema": null, "payload": "%d"}' % planned.timestamp_ms)
        case 10:
            return planned._replace(value=(planned.value or b"") * 20)
        case 12:
            return planned._replace(headers=tuple((f"n{index % 50}", random.randbytes(5)) for index in range(200)))
        case 13 if not compacted:
            return planned._replace(key=None, value=b"", headers=(("Ünï¢ode", b"\xff"), ("", None)))
        case _:
            return planned


def _tombstones(planned: Planned, random: Random) -> Planned:
    return planned._replace(value=None) if random.random() < 0.1 else planned


def payload(producer: int, partition: int, sequence: int, body: bytes) -> bytes:
    """Return a value that contains its origin, and a CRC that proves that it is complete."""
    head = _PAYLOAD.pack(producer, partition, sequence) + body
    return head + _CRC.pack(crc32(head))


def origin(value: bytes | None) -> tuple[int, int, int] | None:
    """Return (producer, partition, sequence) of a complete payload, None for anything else."""
    if value is None or len(value) < _PAYLOAD.size + _CRC.size:
        return None
    head, crc = value[: -_CRC.size], value[-_CRC.size :]
    if _CRC.pack(crc32(head)) != crc:
        return None
    producer, partition, sequence = _PAYLOAD.unpack_from(head)
    return producer, partition, sequence
