"""From which source offset copying continues after a MirrorMaker 2 that was killed. Pure.

The story: MirrorMaker 2 stores positions once a minute, copies on, and is killed. Its positions name no producer and no
target offset, and the sequences of its batches do not help. But it copies in order: everything up to the *last* record
of the remote partition is copied. ``LastRecords`` keeps fingerprints of the last records. ``SourceSearch`` looks for
them in the source, from the position's own record on, and copying continues after them.

If records look the same, the last records may fit at several places. Then the first place is taken: a record that comes
twice does less harm than one that is left out. If the source no longer has what was copied, copying continues at the
position, as in MirrorMaker 2. Restarts of MirrorMaker 2, batches that its producer sent twice, and records of other
writers can hide the place where the last records fit, but never move it further on.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mm2py.copying.planning.steps import Outgoing, Step
from mm2py.copying.recovery import offset_of
from mm2py.records.batch import HEADER_BYTES, MAGIC, MAGIC_AT, Record, crc_is_right, each_record, read_header, split
from mm2py.records.varints import CorruptBatch

LAST_RECORDS: Final = 100
"""How many of a remote partition's last records are looked for: the more, the fewer places they fit at."""
LOOK_AHEAD: Final = 1_000
"""How many source records after the first place are searched for a second one."""
LOOK_FURTHER: Final = 10_000
"""If only the very last record fits, its place is taken after this many further source records."""
_DIGEST_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">q")
_NULL: Final = _LENGTH.pack(-1)


def fingerprint(record: Record, *, timed: bool) -> bytes:
    """Return a digest that a record and its copy have in common; without the timestamp unless ``timed``."""
    parts = [_LENGTH.pack(record.timestamp_ms if timed else 0), _sized(record.key), _sized(record.value)]
    for name, value in record.headers:
        parts += [_sized(name.encode(errors="surrogateescape")), _sized(value)]
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else _LENGTH.pack(len(data)) + data


class LastRecords:
    """The last records of a remote partition, collected read by read. Aborted ones do not count."""

    def __init__(self) -> None:
        self.is_timed = True
        """False where the target sets its own timestamps."""
        self._timed: deque[bytes] = deque(maxlen=LAST_RECORDS)
        self._untimed: deque[bytes] = deque(maxlen=LAST_RECORDS)

    def take(self, records: memoryview, steps: Iterable[Step]) -> None:
        """Add the records of one read, and the steps that ``plan`` made of them.

        Raises:
            Mm2Error: a batch cannot be read, see ``UNREADABLE``.
        """
        self.is_timed = self.is_timed and not _is_stamped(records)
        for step in steps:
            if isinstance(step, Outgoing):
                made = deque(each_record(step.data), maxlen=LAST_RECORDS)
                self._timed.extend(fingerprint(record, timed=True) for record in made)
                self._untimed.extend(fingerprint(record, timed=False) for record in made)

    @property
    def fingerprints(self) -> tuple[bytes, ...]:
        """Return those of the last records, in order; none if no record is left."""
        return tuple(self._timed if self.is_timed else self._untimed)


def _is_stamped(records: memoryview) -> bool:
    """Return whether a broker set the times of one of these batches. Damaged ones do not count: they are read again."""
    with suppress(CorruptBatch):
        for batch in split(records):
            is_sound = len(batch) >= HEADER_BYTES and batch[MAGIC_AT] == MAGIC and crc_is_right(batch)
            if is_sound and read_header(batch).is_log_append_time:
                return True
    return False


@dataclass(frozen=True, slots=True)
class _Place:
    """The place after a source record."""

    records: int
    """How many records lie between the position and this place."""
    next_offset: int
    leader_epoch: int
    is_dense: bool
    """Every source offset on the way has a record or marker, so none was removed."""


class SourceSearch:
    """Walks the source until the last records fit. Steps come from ``plan``, so uncopied records do not count."""

    def __init__(self, last_records: LastRecords, from_offset: int, leader_epoch: int, *, records_most: int) -> None:
        """Start at a position.

        Args:
            from_offset: the next source offset by the position, > 0; reading starts one before it.
            leader_epoch: of the record before it, -1 if not known.
            records_most: the remote partition has no more offsets than this.
        """
        self.read_offset = from_offset - 1
        """Where to read first: the position's own record."""
        self._at_position = _Place(0, from_offset, leader_epoch, is_dense=True)
        self._timed = last_records.is_timed
        self._last = last_records.fingerprints
        self._wanted = frozenset(self._last)
        self._backwards = self._last[::-1]
        self._records_most = records_most
        self._seen = -1
        self._next_offset = self.read_offset
        self._is_dense = True
        self._recent: deque[bytes] = deque(maxlen=LAST_RECORDS)
        self._first: dict[bytes, _Place] = {}
        """Where each of the last records was first seen."""
        self._met: Counter[bytes] = Counter()
        self._fit: _Place | None = None
        self._fits_again = False
        self._is_over = not self._last

    @property
    def has_found(self) -> bool:
        """Whether the last records fit somewhere; the rest of the walk only shows whether that is the only place."""
        return self._fit is not None

    @property
    def is_proven(self) -> bool:
        """Whether a place was found; if not, copying continues at the position."""
        return self._found() is not None

    @property
    def is_ambiguous(self) -> bool:
        """Whether the last records, or the last one that was seen, fit at a second place."""
        if self._fit is not None:
            return self._fits_again
        last = next((one for one in self._backwards if one in self._first), None)
        return self.is_proven and last is not None and self._met[last] > 1

    @property
    def resume_offset(self) -> int:
        return (self._found() or self._at_position).next_offset

    @property
    def leader_epoch(self) -> int:
        """Of the record before ``resume_offset``; -1 if it was not seen."""
        return (self._found() or self._at_position).leader_epoch

    @property
    def records(self) -> int:
        """How many records were copied after the position."""
        return (self._found() or self._at_position).records

    def take(self, steps: Iterable[Step]) -> bool:
        """Look for the last records in what these steps would copy; returns whether the search is over.

        Raises:
            Mm2Error: a batch cannot be read, see ``UNREADABLE``.
        """
        for step in steps:
            if self._is_over:
                break
            if self._seen < 0 and step.next_offset <= self.read_offset:
                continue
            if self._seen < 0 and not (isinstance(step, Outgoing) and step.first_offset == self.read_offset):
                self._is_over = True  # the position's own record is gone: an older copy may look like a later one
                break
            self._is_dense &= step.next_offset - self._next_offset == step.record_count
            self._next_offset = step.next_offset
            if isinstance(step, Outgoing):
                for index, record in enumerate(each_record(step.data)):
                    self._meet(record, step, index)
                    if self._is_over:
                        break
        return self._is_over

    def _meet(self, record: Record, step: Outgoing, index: int) -> None:
        self._seen += 1
        seen = self._seen
        found = fingerprint(record, timed=self._timed)
        if seen:
            self._recent.append(found)
        if found in self._wanted:
            self._met[found] += 1
            place = _Place(seen, offset_of(step, index + 1), step.leader_epoch, self._is_dense)
            self._first.setdefault(found, place)
            if found == self._last[-1] and self._fits():
                self._fits_again = self._fit is not None
                self._fit = self._fit or place
        last = self._first.get(self._last[-1])
        if self._fit is not None:
            self._is_over = self._fits_again or seen - self._fit.records >= LOOK_AHEAD
        elif last is not None and self._timed:
            self._is_over = seen - last.records >= LOOK_FURTHER
        self._is_over |= seen >= self._records_most

    def _fits(self) -> bool:
        """Return whether the records seen last, from the position on, equal the end of the last records."""
        return all(one == other for one, other in zip(self._backwards, reversed(self._recent), strict=False))

    def _found(self) -> _Place | None:
        """Return where the last records fit, or else the place of the last one that the source has.

        The latter happens if MirrorMaker 2's producer sent a batch twice, or another writer wrote between its records.
        It counts only if no source record before it was removed.
        """
        if self._fit is not None:
            return self._fit
        place = next((self._first[one] for one in self._backwards if one in self._first), None)
        return place if place is not None and (place.is_dense or not place.records) else None
