"""The first difference of a leaf: a source record, and the target record in its place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

from mm2py.backfill.verifying.places import offsets_of
from mm2py.backfill.verifying.ranges import ComparedRange
from mm2py.backfill.verifying.records import placed
from mm2py.copying.planning.steps import Outgoing, Step

SHOWN_BYTES: Final = 60
"""Of a longer key or value only a part of this size is shown."""
SHOWN_HEADERS: Final = 5


class DifferenceKind(StrEnum):
    """The kind of a difference."""

    DIFFERENT = "different"
    """The record and its copy differ."""
    MISSING_ON_TARGET = "missing on the target"
    MISSING_ON_SOURCE = "missing on the source"
    """A copy, according to the ledger, of a record that the source does not have."""
    NO_COPY = "not copied"
    """A source record that no run of the ledger covers, with no known reason."""
    FOREIGN = "foreign"
    """A target record that no run covers: another client wrote it, or it was copied twice."""
    LATEST_DIFFERS = "latest value differs"
    """Of a key of a compacted topic."""


class ShownRecord(NamedTuple):
    """A record where a log has it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]

    @property
    def content(self) -> tuple[object, ...]:
        return self.timestamp_ms, self.key, self.value, list(self.headers)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first record of a partition that is not what it should be. The target's names are the remote topic's."""

    kind: DifferenceKind
    topic: str
    partition: int
    remote_topic: str
    source_offset: int
    """Of the record; for a foreign record, the source offset that corresponds to its place among the copies."""
    target_offset: int
    """Of the copy; for a missing copy, the offset where it should be."""
    source: ShownRecord | None
    target: ShownRecord | None

    @property
    def what(self) -> str:
        """One line, without the records."""
        text = str(self.kind)
        if self.source is not None and self.target is not None:
            one, other = self.source, self.target
            parts = {
                "key": one.key == other.key,
                "value": one.value == other.value,
                "headers": list(one.headers) == list(other.headers),
                "timestamp": one.timestamp_ms == other.timestamp_ms,
            }
            text = f"{text}: {', '.join(name for name, is_same in parts.items() if not is_same)}"
        return text


class PlacedRecords(NamedTuple):
    """The records of one side of a leaf, by place; several have the same place if no run covers them."""

    by_place: Mapping[int, list[ShownRecord]]
    own_timestamps: bool
    """True if the broker of this side has set none of the timestamps."""


def placed_records(compared: ComparedRange, side: int, steps: Iterable[Step]) -> PlacedRecords:
    """Return the records of one side.

    Raises:
        Mm2Error: a batch cannot be decoded.
    """
    found: dict[int, list[ShownRecord]] = {}
    own = True
    for step in steps:
        if not isinstance(step, Outgoing):
            continue
        own = own and step.reason != "log append time"
        offsets = offsets_of(step)
        for at, place, (key, value, timestamp_ms, headers) in placed(compared, side, step):
            found.setdefault(place, []).append(ShownRecord(offsets[at], timestamp_ms, key, value, headers))
    return PlacedRecords(found, own)


def first_difference(compared: ComparedRange, source: PlacedRecords, target: PlacedRecords) -> Difference | None:
    """Return the first record that differs; None if all agree."""
    for place in sorted({*source.by_place, *target.by_place}):
        ours, theirs = source.by_place.get(place, []), target.by_place.get(place, [])
        one, other = (ours[0] if ours else None), (theirs[0] if theirs else None)
        offset = (place + 1) // 2
        if place % 2:
            kind = DifferenceKind.FOREIGN
        elif compared.run_at_source(offset) is None:
            kind = DifferenceKind.NO_COPY
        elif one is None:
            kind = DifferenceKind.MISSING_ON_SOURCE
        elif other is None:
            kind = DifferenceKind.MISSING_ON_TARGET
        elif one.content[not target.own_timestamps :] != other.content[not target.own_timestamps :]:
            kind = DifferenceKind.DIFFERENT
        else:
            continue
        there = compared.target_position(offset) if other is None else other.offset
        return Difference(kind, compared.topic, compared.partition, compared.remote_topic, offset, there, one, other)
    return None


def unmatched_copy(
    compared: ComparedRange, source: PlacedRecords, target: PlacedRecords
) -> tuple[int, Difference | None]:
    """Compare target records that the ledger does not have yet with the source records that come next, in order.

    Returns:
        How many of them are copies; and the first record that is no copy.
    """
    left = [records[0] for _, records in sorted(source.by_place.items())]
    at = count = 0
    for _, records in sorted(target.by_place.items()):
        for copy in records:
            content = copy.content[not target.own_timestamps :]
            while at < len(left) and left[at].content[not target.own_timestamps :] != content:
                at += 1
            if at == len(left):
                place = left[-1].offset + 1 if left else compared.source[0]
                of = (compared.topic, compared.partition, compared.remote_topic)
                return count, Difference(DifferenceKind.FOREIGN, *of, place, copy.offset, None, copy)
            at, count = at + 1, count + 1
    return count, None


def side_by_side(found: Difference, names: tuple[str, str]) -> str:
    """Return both records as text, a line for each of their parts; ``!`` marks parts that differ.

    Args:
        names: of the source and the target cluster.
    """
    one, other = found.source, found.target
    rows = [("", f"{names[0]}/{found.topic}/{found.partition}", f"{names[1]}/{found.remote_topic}/{found.partition}")]
    offsets = (_offset(one, found.source_offset), _offset(other, found.target_offset))
    rows.append(("offset", *offsets))
    both = (_parts(one, other), _parts(other, one))
    rows += [(name, first, second) for name, first, second in zip(PARTS, *both, strict=True)]
    is_pair = one is not None and other is not None
    widths = [max(len(row[at]) for row in rows) for at in range(2)]
    lines = []
    for at, row in enumerate(rows):
        mark = "!" if is_pair and at >= 2 and row[1] != row[2] else " "
        lines.append(f"{mark} {row[0].ljust(widths[0])}  {row[1].ljust(widths[1])}  {row[2]}".rstrip())
    return "\n".join(lines)


PARTS: Final = ("timestamp", "key", "value", "headers")


def shown(data: bytes | None, other: bytes | None = None) -> str:
    """Return bytes as text if they are printable, else as hex; of long ones only the part that first differs."""
    if data is None:
        return "null"
    start = 0
    if other is not None and len(data) > SHOWN_BYTES:
        same = next(
            (at for at, (a, b) in enumerate(zip(data, other, strict=False)) if a != b), min(len(data), len(other))
        )
        start = max(0, same - SHOWN_BYTES // 2) if same > SHOWN_BYTES // 2 else 0
    part = data[start : start + SHOWN_BYTES]
    try:
        text = data.decode()
        is_text = text.isprintable()
    except UnicodeDecodeError:
        is_text = False
    told = repr(part.decode(errors="replace")) if is_text else f"0x{part.hex()}"
    if len(part) == len(data):
        return told
    return f"{told} ({len(part)} of {len(data)} bytes, from byte {start} on)"


def time_of(timestamp_ms: int) -> str:
    """Return a timestamp as text."""
    try:
        return f"{timestamp_ms} ({datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    except (OverflowError, OSError, ValueError):
        return str(timestamp_ms)


def _offset(record: ShownRecord | None, expected: int) -> str:
    return f"{expected} (no record)" if record is None else str(record.offset)


def _parts(record: ShownRecord | None, other: ShownRecord | None) -> list[str]:
    if record is None:
        return [""] * len(PARTS)
    key, value = (None, None) if other is None else (other.key, other.value)
    headers = ", ".join(f"{name}={shown(data)}" for name, data in record.headers[:SHOWN_HEADERS])
    more = len(record.headers) - SHOWN_HEADERS
    return [
        time_of(record.timestamp_ms),
        shown(record.key, key),
        shown(record.value, value),
        (headers or "none") + (f" and {more} more" if more > 0 else ""),
    ]
