"""The batches that fill a source topic: built once, dated for each use. Pure except for the seed.

Values are JSON texts as an application might write them, cut to size. Zstandard compresses them to about a third; the
bench reports the ratio with its figures. Random bytes would favour a mirror that does not decompress.
"""

from __future__ import annotations

import functools
import json
import random
import struct
from typing import Final

from crc32c import crc32c

from bench.workloads import Shape
from mm2py.records.batch import CHECKED_FROM, CRC_AT, NewRecord, build_batch

TEMPLATES: Final = 24
"""The number of different batches that a topic repeats."""
UNEVEN_QUARTERS: Final = (1, 2, 4, 9)
"""Lengths of the values of uneven batches, in quarters of the length in an even batch."""
_SOME_TEXT: Final = (
    "accepted account address amount basket billing carrier city country courier currency customer delivered "
    "discount email express gift invoice item january label march member note open order paid parcel phone price "
    "priority product quantity rate received refund region return sent shop sku status stock street supplier tax "
    "total"
)
_WORDS: Final = _SOME_TEXT.split()
_TIMESTAMPS: Final = struct.Struct(">qq")
_TIMESTAMPS_AT: Final = 27


def json_text(rng: random.Random, size: int) -> bytes:
    """Return a JSON-like text of exactly ``size`` bytes; the last field is cut where it has to be."""
    fields: dict[str, object] = {"id": f"{rng.getrandbits(128):032x}", "at": rng.randrange(1 << 40)}
    text = json.dumps(fields)
    while len(text) < size:
        name = f"{rng.choice(_WORDS)}_{rng.choice(_WORDS)}"
        fields[name] = rng.choice(
            (
                rng.randrange(1_000_000),
                round(rng.random() * 1_000, 2),
                " ".join(rng.choices(_WORDS, k=5)),
                f"{rng.getrandbits(64):016x}",
            )
        )
        text = json.dumps(fields)
    return text.encode()[:size]


@functools.cache
def templates(shape: Shape, *, seed: int = 1, count: int = TEMPLATES) -> tuple[bytearray, ...]:
    """Return different batches of this shape, all records at time 0; they are shared and must not be changed."""
    rng = random.Random(seed)
    sizes = [shape.value_bytes] * count
    if shape.is_uneven:
        sizes = [shape.value_bytes * quarters // 4 for quarters in UNEVEN_QUARTERS for _ in range(2 * count)]
        rng.shuffle(sizes)
    return tuple(
        build_batch(
            [NewRecord(None, json_text(rng, size), 0) for _ in range(shape.records_per_batch)], codec=shape.codec
        )
        for size in sizes
    )


def dated(template: bytearray, at_ms: int) -> bytearray:
    """Return a copy of the batch whose records all have that timestamp."""
    batch = bytearray(template)
    _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_AT, at_ms, at_ms)
    batch[CRC_AT:CHECKED_FROM] = crc32c(memoryview(batch)[CHECKED_FROM:]).to_bytes(4, "big")
    return batch


def compression_ratio(shape: Shape) -> float:
    """Return how many times smaller the codec makes these batches; 1 without a codec."""
    packed = sum(map(len, templates(shape, count=4)))
    plain = sum(map(len, templates(Shape(shape.value_bytes, shape.records_per_batch), count=4)))
    return plain / packed
