"""The records of a batch of magic 2, laid open: checked one by one, and copied with other offset deltas.

Answers to DefaultRecord of Apache Kafka's clients. Records stay the bytes they are but for the deltas.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from mm2py.records.batch import INT64_MAX, NO_TIMESTAMP, CorruptBatch, read_raw, read_varint, read_varlong, varint


class RecordBody(NamedTuple):
    """The decompressed records of one source batch, in the encoding of magic 2, and what its header said of them."""

    data: bytes | bytearray
    base_offset: int
    next_offset: int
    base_timestamp_ms: int
    record_count: int
    one_timestamp: bool
    """All records have ``base_timestamp_ms``, whatever stands in them."""
    leader_epoch: int
    codec: int


class Kept(NamedTuple):
    """Which records of a body are to be copied."""

    position: int
    """Where the first of them starts."""
    record_count: int
    null_key_delta: int | None
    """Offset delta of the first record that the target refuses; those before it are fine."""


def survey(body: RecordBody, wanted_delta: int, refuse_null_keys: bool) -> Kept:
    """Check that the records are laid out as records are, and find those from ``wanted_delta`` on.

    Raises:
        CorruptBatch: they are not.
    """
    data = body.data
    size = len(data)
    last_delta = body.next_offset - body.base_offset - 1
    position = kept_from = kept = 0
    previous = -1
    try:
        for _ in range(body.record_count):
            record_at = position
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, record_at)
            end = position + (raw >> 1)
            if raw & 1 or end > size:
                raise CorruptBatch("a record's length does not fit its batch")
            raw = data[position + 1]
            if raw > 127:
                _, position = read_raw(data, position + 1)
            else:
                position += 2
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            delta = raw >> 1
            if raw & 1 or delta <= previous or delta > last_delta:
                raise CorruptBatch("its records' offsets do not rise from its first to its last offset")
            previous = delta
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            if not raw & 1:
                position += raw >> 1
            elif refuse_null_keys and delta >= wanted_delta:
                return Kept(kept_from, kept, delta)
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_raw(data, position - 1)
            if not raw & 1:
                position += raw >> 1
            raw = data[position]
            position += 1
            if raw:
                position = _skip_headers(data, position - 1)
            if position != end:
                raise CorruptBatch("a record is longer or shorter than it says")
            if delta >= wanted_delta:
                if not kept:
                    kept_from = record_at
                kept += 1
    except IndexError as error:
        raise CorruptBatch("its records end too early") from error
    if position != size:
        raise CorruptBatch(f"{size - position} bytes follow its last record")
    return Kept(kept_from, kept, None)


def _skip_headers(data: bytes | bytearray, position: int) -> int:
    count, position = read_raw(data, position)
    if count & 1:
        raise CorruptBatch("a record has less than no headers")
    for _ in range(count >> 1):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, position - 1)
        if raw & 1:
            raise CorruptBatch("a header has no key")
        position += raw >> 1
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, position - 1)
        if not raw & 1:
            position += raw >> 1
    return position


def offsets_of(body: RecordBody, position: int, record_count: int) -> list[int]:
    """Return the source offsets of ``record_count`` surveyed records from ``position`` on."""
    data = body.data
    offsets: list[int] = []
    for _ in range(record_count):
        length, content_at = read_varint(data, position)
        _, delta_at = read_varlong(data, content_at + 1)
        delta, _ = read_varint(data, delta_at)
        offsets.append(body.base_offset + delta)
        position = content_at + length
    return offsets


class Renumbered(NamedTuple):
    """Records with new offset deltas, 0 to n - 1."""

    data: bytearray
    end_position: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    jumps: Sequence[int]


_SHORT_VARINTS: Final = [varint(number) for number in range(1 << 13)]


def renumber(body: RecordBody, position: int, record_count: int) -> Renumbered:
    """Copy ``record_count`` surveyed records from ``position`` on: only offset deltas change, and, where all records
    have one timestamp, timestamp deltas."""
    data, base_offset, one_timestamp = body.data, body.base_offset, body.one_timestamp
    short_varints, short_count = _SHORT_VARINTS, len(_SHORT_VARINTS)
    out = bytearray()
    jumps = array("q")
    max_timestamp_delta: int | None = None
    first_delta: int | None = None
    expected = 0
    for index in range(record_count):
        record_at = position
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, record_at)
        content_at = position
        end = position + (raw >> 1)
        raw = data[position + 1]
        if raw > 127:
            raw, position = read_raw(data, position + 1)
        else:
            position += 2
        timestamp_delta = (raw >> 1) ^ -(raw & 1)
        if max_timestamp_delta is None or timestamp_delta > max_timestamp_delta:
            max_timestamp_delta = timestamp_delta
        delta_at = position
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_raw(data, delta_at)
        delta = raw >> 1
        if first_delta is None:
            first_delta = delta
        elif delta != expected:
            jumps.append(index)
            jumps.append(base_offset + delta)
        expected = delta + 1
        number = short_varints[index] if index < short_count else varint(index)
        if one_timestamp:
            length = 2 + len(number) + end - position
            out += short_varints[length] if length < short_count else varint(length)
            out.append(data[content_at])
            out.append(0)
        elif len(number) == position - delta_at:
            out += data[record_at:delta_at]
        else:
            length = delta_at - content_at + len(number) + end - position
            out += short_varints[length] if length < short_count else varint(length)
            out += data[content_at:delta_at]
        out += number
        out += data[position:end]
        position = end
    newest_ms = body.base_timestamp_ms + (0 if one_timestamp else max_timestamp_delta or 0)
    return Renumbered(
        out,
        position,
        base_offset + (first_delta or 0),
        base_offset + expected - 1,
        # Java's sums wrap around beyond 64 bits. Nobody means such timestamps, and the target computes its own maximum.
        min(max(newest_ms, NO_TIMESTAMP), INT64_MAX),
        jumps,
    )
