"""From which source offset copying goes on behind a MirrorMaker 2 that was killed. Pure.

The story: MirrorMaker 2 stores positions once a minute, copies on, and is killed. It goes on from the position and
copies the rest again. Its positions name no producer and no target offset, its batches tell nothing by their sequences,
so the records themselves must: it copies in order, hence everything up to its *last* record is there. The ``Ending`` is
what the last records of the remote partition look like. The ``Continuation`` walks the source from the position's own
record on, looks for that ending, and goes on behind it.

Where records look the same, the ending may fit at several places: then the first one is taken, for a record that comes
twice does less harm than one that is left out. The last record is a copy of the position's or of a later one, as long
as the source still has what was copied; where it does not, copying goes on at the position, as in MirrorMaker 2.
Earlier restarts of MirrorMaker 2, batches that its producer sent twice and records of others leave repeated or strange
stretches in the remote partition. They can hide the place at which the ending fits, never move it further on.
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
from mm2py.replication.reconcile import offset_of
from mm2py.replication.steps import Outgoing, Step

ENDING_MOST: Final = 100
"""So many of a remote partition's last records are looked for: the more, the fewer places they fit at."""
LOOK_AHEAD: Final = 1_000
"""So many source records behind the place that was found are looked at, to tell whether it is the only one."""
LOOK_FURTHER: Final = 10_000
"""So many behind the last record, where those before it do not fit, until its place is taken all the same."""
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


class Ending:
    """The last records of a remote partition, taken in read by read. Aborted ones do not count."""

    def __init__(self) -> None:
        self.is_timed = True
        """False where the target sets its own timestamps."""
        self._timed: deque[bytes] = deque(maxlen=ENDING_MOST)
        self._untimed: deque[bytes] = deque(maxlen=ENDING_MOST)

    def take(self, records: memoryview, steps: Iterable[Step]) -> None:
        """Take in what one read brought, and what ``plan`` made of it.

        Raises:
            CorruptBatch: a batch cannot be read.
        """
        self.is_timed = self.is_timed and not _is_stamped(records)
        for step in steps:
            if isinstance(step, Outgoing):
                made = read_records(bytes(step.data))[-ENDING_MOST:]
                self._timed.extend(fingerprint(record, timed=True) for record in made)
                self._untimed.extend(fingerprint(record, timed=False) for record in made)

    @property
    def fingerprints(self) -> tuple[bytes, ...]:
        """Of the last records, the very last one at the end; none where no record is left."""
        return tuple(self._timed if self.is_timed else self._untimed)


def _is_stamped(records: memoryview) -> bool:
    """Whether a broker has stamped one of these batches. Damaged ones are left out: they are read again."""
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


class Continuation:
    """Walks the source until the ending fits. Steps come from ``plan``, so what is not copied does not count."""

    def __init__(self, ending: Ending, from_offset: int, leader_epoch: int, *, records_most: int) -> None:
        """Begin at a position.

        Args:
            from_offset: the next source offset by the position, > 0; reading begins one before it.
            leader_epoch: of the record before it, -1 where nobody knows.
            records_most: the remote partition has no more offsets than that.
        """
        self.read_offset = from_offset - 1
        """Where to read first: the position's own record must be there to tell where it ends."""
        self._at_position = _Place(0, from_offset, leader_epoch, is_dense=True)
        self._timed = ending.is_timed
        self._ending = ending.fingerprints
        self._wanted = frozenset(self._ending)
        self._backwards = self._ending[::-1]
        self._records_most = records_most
        self._seen = -1
        self._next_offset = self.read_offset
        self._is_dense = True
        self._recent: deque[bytes] = deque(maxlen=ENDING_MOST)
        self._first: dict[bytes, _Place] = {}
        """Where each record of the ending was met first."""
        self._met: Counter[bytes] = Counter()
        self._fit: _Place | None = None
        self._fits_again = False
        self._is_over = not self._ending

    @property
    def has_found(self) -> bool:
        """The ending fits somewhere; the rest of the walk only tells whether it is the only place."""
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
        """Look for the ending in what these steps would copy; returns whether that is over.

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
            if found == self._ending[-1] and self._fits():
                self._fits_again = self._fit is not None
                self._fit = self._fit or place
        last = self._first.get(self._ending[-1])
        if self._fit is not None:
            self._is_over = self._fits_again or seen - self._fit.records >= LOOK_AHEAD
        elif last is not None and self._timed:
            self._is_over = seen - last.records >= LOOK_FURTHER
        self._is_over |= seen >= self._records_most

    def _fits(self) -> bool:
        """Whether the ending ends with what was seen last, from the position on."""
        return all(one == other for one, other in zip(self._backwards, reversed(self._recent), strict=False))

    def _found(self) -> _Place | None:
        """Where the ending fits; or its last record that the source has, if it is sure that none was removed there.

        The story of the latter: MM2's producer sent a batch twice, or others wrote between its records.
        """
        if self._fit is not None:
            return self._fit
        place = next((self._first[one] for one in self._backwards if one in self._first), None)
        return place if place is not None and (place.is_dense or not place.records) else None
