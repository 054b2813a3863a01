"""From which source offset copying goes on behind a MirrorMaker 2 that was killed. Pure.

The story: MirrorMaker 2 stores positions once a minute, copies on, and is killed. When it starts again it goes on from
the position and copies the rest again. Its positions name no producer and no target offset, and the sequences of its
batches tell nothing. So the records themselves must tell: MirrorMaker 2 copies in order, hence everything up to its
*last* record is there. ``LastRecords`` keeps what the last records of the remote partition look like. ``SourceSearch``
walks the source from the position's own record on, looks for them, and copying goes on behind them.

If records look the same, the last records may fit at several places. Then the first place is taken: a record that comes
twice does less harm than one that is left out. The last record is a copy of the position's record or of a later one, as
long as the source still has what was copied. If it does not, copying goes on at the position, as in MirrorMaker 2.
Restarts of MirrorMaker 2, batches that its producer sent twice and records of other writers leave repeated or strange
stretches in the remote partition. They can hide the place at which the last records fit, but never move it further on.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mm2py.records.batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    CorruptBatch,
    Record,
    crc_is_right,
    read_header,
    read_records,
    split,
)
from mm2py.replication.planning.steps import Outgoing, Step
from mm2py.replication.recovery import offset_of

LAST_RECORDS: Final = 100
"""How many of a remote partition's last records are looked for: the more, the fewer places they fit at."""
LOOK_AHEAD: Final = 1_000
"""How many source records behind the place that was found are looked at, to tell whether it is the only one."""
LOOK_FURTHER: Final = 10_000
"""If only the very last record fits: its place is taken after so many further source records."""
_DIGEST_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">q")
_NULL: Final = _LENGTH.pack(-1)


def fingerprint(record: Record, *, timed: bool) -> bytes:
    """Return what is the same on both sides for a record and its copy; without its timestamp unless ``timed``."""
    parts = [_LENGTH.pack(record.timestamp_ms if timed else 0), _sized(record.key), _sized(record.value)]
    for name, value in record.headers:
        parts += [_sized(name.encode(errors="surrogateescape")), _sized(value)]
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else _LENGTH.pack(len(data)) + data


class LastRecords:
    """The last records of a remote partition, taken in read by read. Aborted ones do not count."""

    def __init__(self) -> None:
        self.is_timed = True
        """False where the target sets its own timestamps."""
        self._timed: deque[bytes] = deque(maxlen=LAST_RECORDS)
        self._untimed: deque[bytes] = deque(maxlen=LAST_RECORDS)

    def take(self, records: memoryview, steps: Iterable[Step]) -> None:
        """Take in what one read brought, and what ``plan`` made of it.

        Raises:
            CorruptBatch: a batch cannot be read.
        """
        self.is_timed = self.is_timed and not _is_stamped(records)
        for step in steps:
            if isinstance(step, Outgoing):
                made = read_records(bytes(step.data))[-LAST_RECORDS:]
                self._timed.extend(fingerprint(record, timed=True) for record in made)
                self._untimed.extend(fingerprint(record, timed=False) for record in made)

    @property
    def fingerprints(self) -> tuple[bytes, ...]:
        """Of the last records, the very last one at the end; none where no record is left."""
        return tuple(self._timed if self.is_timed else self._untimed)


def _is_stamped(records: memoryview) -> bool:
    """Whether a broker has stamped one of these batches. Damaged ones do not count: they are read again."""
    with suppress(CorruptBatch):
        for batch in split(records):
            is_sound = len(batch) >= HEADER_BYTES and batch[MAGIC_AT] == MAGIC and crc_is_right(batch)
            if is_sound and read_header(batch).is_log_append_time:
                return True
    return False


@dataclass(frozen=True, slots=True)
class _Place:
    """Behind a source record."""

    records: int
    """So many come from the position up to here; 0 is the position itself."""
    next_offset: int
    leader_epoch: int
    is_dense: bool
    """No source offset on the way is without a record or marker, so none can have been removed since."""


class SourceSearch:
    """Walks the source until the last records fit. Steps come from ``plan``, so what is not copied does not count."""

    def __init__(self, last_records: LastRecords, from_offset: int, leader_epoch: int, *, records_most: int) -> None:
        """Begin at a position.

        Args:
            from_offset: the next source offset by the position, > 0; reading begins one before it.
            leader_epoch: of the record before it, -1 where nobody knows.
            records_most: the remote partition has no more offsets than that.
        """
        self.read_offset = from_offset - 1
        """Where to read first: the position's own record must be there to tell where it ends."""
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
        """Where each of the last records was met first."""
        self._met: Counter[bytes] = Counter()
        self._fit: _Place | None = None
        self._fits_again = False
        self._is_over = not self._last

    @property
    def has_found(self) -> bool:
        """The last records fit somewhere; the rest of the walk only tells whether it is the only place."""
        return self._fit is not None

    @property
    def is_proven(self) -> bool:
        """Whether what was copied tells where to go on; if not, that is at the position."""
        return self._found() is not None

    @property
    def is_ambiguous(self) -> bool:
        """Records look the same, so that copying may have to go on further behind."""
        if self._fit is not None:
            return self._fits_again
        last = next((one for one in self._backwards if one in self._first), None)
        return self.is_proven and last is not None and self._met[last] > 1

    @property
    def resume_offset(self) -> int:
        return (self._found() or self._at_position).next_offset

    @property
    def leader_epoch(self) -> int:
        """Of the record before ``resume_offset``; -1 where that was not seen."""
        return (self._found() or self._at_position).leader_epoch

    @property
    def records(self) -> int:
        """So many records stand in the remote partition behind the position."""
        return (self._found() or self._at_position).records

    def take(self, steps: Iterable[Step]) -> bool:
        """Look for the last records in what these steps would copy; returns whether the search is over.

        Raises:
            CorruptBatch: a batch cannot be read.
        """
        for step in steps:
            if self._is_over:
                break
            if self._seen < 0 and step.next_offset <= self.read_offset:
                continue
            if self._seen < 0 and not (isinstance(step, Outgoing) and step.first_offset == self.read_offset):
                self._is_over = True  # the position's own record is gone: older copies could be taken for later ones
                break
            self._is_dense &= step.next_offset - self._next_offset == step.record_count
            self._next_offset = step.next_offset
            if isinstance(step, Outgoing):
                for index, record in enumerate(read_records(bytes(step.data))):
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
        """Whether the last records end with what was seen last, from the position on."""
        return all(one == other for one, other in zip(self._backwards, reversed(self._recent), strict=False))

    def _found(self) -> _Place | None:
        """Where the last records fit; or the last of them that the source has, if surely none was removed there.

        The story of the latter: MM2's producer sent a batch twice, or others wrote between its records.
        """
        if self._fit is not None:
            return self._fit
        place = next((self._first[one] for one in self._backwards if one in self._first), None)
        return place if place is not None and (place.is_dense or not place.records) else None
