"""How runs and holes are written as bytes, in memory and in the ledger topic: each relative to the previous one. Pure.

Each entry begins where the one before it ended, plus a gap on either side. All numbers are unsigned LEB128 (7 bits a
byte, the lowest first)::

    run    head = record count * 4 + code, then what the code says
             code 0    the gaps are 1 on the source and 0 on the target: a transaction's marker, which is not copied
             code 1    source gap; the target gap is 0
             code 2    target gap; the source gap is 0
             code 3    source gap, target gap
    hole   0, cause, source gap, target gap, source count, target count

So a run of up to 31 records is one byte after a marker, and two bytes after records that were compacted away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mm2py.offsets.runs import Entry, Hole, HoleCause, Run

OFFSET_MOST: Final = (1 << 63) - 1
SOURCE: Final = 0
TARGET: Final = 1
_SHIFT_MOST: Final = 63


class CorruptRuns(ValueError):
    """The bytes are no entries, or their offsets are higher than a log can have."""


def write_number(out: bytearray, number: int) -> None:
    """Append a number of at least 0."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def read_number(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the number at ``at``, and where it ends.

    Raises:
        CorruptRuns: the data ends within it, or it has more than 70 bits.
    """
    number = shift = 0
    while True:
        if at >= len(data) or shift > _SHIFT_MOST:
            raise CorruptRuns(f"no number ends at byte {at}")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def write_entry(out: bytearray, entry: Entry, source_end: int, target_end: int) -> None:
    """Append an entry.

    Args:
        source_end: where the entry before it ends, at most where this one begins; as ``target_end``.
    """
    source_gap, target_gap = entry.source_offset - source_end, entry.target_offset - target_end
    if isinstance(entry, Hole):
        out.append(0)
        for number in (entry.cause, source_gap, target_gap, entry.source_count, entry.target_count):
            write_number(out, number)
        return
    head = entry.record_count << 2
    if not target_gap:
        write_number(out, head | (source_gap != 1))
        if source_gap != 1:
            write_number(out, source_gap)
    elif not source_gap:
        write_number(out, head | 2)
        write_number(out, target_gap)
    else:
        write_number(out, head | 3)
        write_number(out, source_gap)
        write_number(out, target_gap)


def encode_entries(entries: Iterable[Entry], source_end: int, target_end: int) -> bytearray:
    """Return entries as bytes.

    Args:
        source_end: the offset that the first entry's gap counts from, as ``target_end``.
    """
    out = bytearray()
    for entry in entries:
        if type(entry) is Run:
            source, target, count = entry
            if count < 32 and target == target_end and source == source_end + 1:
                out.append(count << 2)  # as ``write_entry``, in half the time; most runs of a transactional topic
                source_end, target_end = source + count, target + count
                continue
        write_entry(out, entry, source_end, target_end)
        source_end, target_end = entry.source_end, entry.target_end
    return out


def read_entry(data: bytes | bytearray, at: int, source_end: int, target_end: int) -> tuple[Entry, int]:
    """Return the entry at ``at``, and where it ends.

    Args:
        source_end: where the entry before it ends, as ``target_end``.
    Raises:
        CorruptRuns: there is no entry.
    """
    entry: Entry
    head, at = read_number(data, at)
    if head == 0:
        cause, at = read_number(data, at)
        source_gap, at = read_number(data, at)
        target_gap, at = read_number(data, at)
        source_count, at = read_number(data, at)
        target_count, at = read_number(data, at)
        entry = Hole(source_end + source_gap, target_end + target_gap, source_count, target_count, _cause(cause))
    else:
        count, code = head >> 2, head & 3
        source_gap, target_gap = int(code == 0), 0
        if code & 1:
            source_gap, at = read_number(data, at)
        if code & 2:
            target_gap, at = read_number(data, at)
        entry = Run(source_end + source_gap, target_end + target_gap, count)
    if (fault := fault_of(entry)) is not None:
        raise CorruptRuns(fault)
    return entry, at


def entries_behind(
    data: bytes | bytearray, source_end: int, target_end: int, *, side: int = SOURCE, offset: int = -1
) -> Iterator[Entry]:
    """Yield the entries that end after an offset; by default all.

    Args:
        source_end: the offset that the first entry's gap counts from; likewise ``target_end``.
        side: ``SOURCE`` or ``TARGET``, the side of ``offset``.
    Raises:
        CorruptRuns: when it comes to data that is no entry.
    """
    at, size = 0, len(data)
    source, target = source_end, target_end
    while at < size:
        # The short runs are read right here: a look-up skips some 60 of them, and calls would triple its time.
        head, behind = data[at], at + 1
        if head > 0x7F and behind < size and data[behind] < 0x80:
            head += (data[behind] - 1) << 7
            behind += 1
        elif head > 0x7F:
            head = 0
        gap = 1
        if head & 3 == 1:
            gap = data[behind] if behind < size else 0x80
            behind += 1
        if head >= 4 and head & 2 == 0 and gap < 0x80:
            at = behind
            count = head >> 2
            source += gap
            if (target if side else source) + count > offset:
                if max(source, target) > OFFSET_MOST - count:
                    raise CorruptRuns(f"a run begins at {source} and {target}")
                yield Run(source, target, count)
            source += count
            target += count
            continue
        entry, at = read_entry(data, at, source, target)
        source, target = entry.source_end, entry.target_end
        if (target if side else source) > offset:
            yield entry


class Block(NamedTuple):
    """Neighbouring entries as bytes."""

    source_start: int
    """The offset that the first entry's gap counts from, as ``target_start``."""
    target_start: int
    data: bytes


def divide(data: bytes, source_end: int, target_end: int, *, entries_most: int) -> tuple[list[Block], Entry]:
    """Return blocks of this many entries, at most, and the last entry, which is in no block.

    Blocks are slices of the data. So this takes a tenth of the time of ``entries_behind``, which makes each entry.

    Args:
        data: at least one entry.
        source_end: the offset that the first entry's gap counts from, as ``target_end``.
    Raises:
        CorruptRuns: somewhere the data is no entry.
    """
    blocks: list[Block] = []
    at, size, count = 0, len(data), 0
    source, target = source_end, target_end
    first, first_source, first_target = at, source, target
    while True:
        last, last_source, last_target = at, source, target
        head = data[at]
        gap = data[at + 1] if head & 1 and at + 1 < size else 1
        if 4 <= head < 0x80 and not head & 2 and gap < 0x80 and at + (head & 1) < size:
            at += 1 + (head & 1)
            source += gap + (head >> 2)
            target += head >> 2
        else:
            entry, at = read_entry(data, at, source, target)
            source, target = entry.source_end, entry.target_end
        if at >= size:
            break
        count += 1
        if count == entries_most:
            blocks.append(Block(first_source, first_target, data[first:at]))
            first, first_source, first_target, count = at, source, target, 0
    if first < last:
        blocks.append(Block(first_source, first_target, data[first:last]))
    return blocks, read_entry(data, last, last_source, last_target)[0]


def fault_of(entry: Entry) -> str | None:
    """Return why no ledger can contain this entry; None if one can."""
    if min(entry[:2]) < 0 or max(entry.source_end, entry.target_end) > OFFSET_MOST:
        return f"{entry} has offsets that no log has"
    if isinstance(entry, Run):
        return None if entry.record_count > 0 else f"{entry} has no records"
    if entry.source_count <= 0 or entry.target_count < 0:
        return f"{entry} has no offsets"
    if (entry.target_count > 0) is not entry.cause.is_copied:
        return f"{entry} has copies if its cause says so, and only then"
    return None


def _cause(number: int) -> HoleCause:
    try:
        return HoleCause(number)
    except ValueError:
        raise CorruptRuns(f"a hole of unknown cause {number}") from None
