"""Which record of a remote partition is the copy of which source record, found by comparing both logs. Pure.

Both logs are read from their first offset on. The k-th record that the flow copies must be the k-th record of the
remote partition, with the same content. Anything else, such as a foreign record, a record that was copied twice, or one
that was removed, is an error: a ledger that may be wrong is worse than none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mm2py.copying.planning.rebuild import UNREADABLE
from mm2py.copying.planning.steps import Outgoing, Step
from mm2py.errors import Mm2Error
from mm2py.offsets.rebuilt_ledger import RebuiltLedger
from mm2py.records.batch import Record, each_record

RUNS_MOST: Final = 1_000_000
"""The worker that emits checkpoints would cut a larger ledger to half."""


class NotRebuildable(Mm2Error):
    """The ledger of a partition cannot be made exact. Groups are still translated by offset syncs, as before."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}.", remedy="")
        self.why = why


class PlacedRecord(NamedTuple):
    """A record where a log has it."""

    offset: int
    record: Record
    has_own_timestamp: bool
    """False if the broker set the timestamp."""


class ComparedLog:
    """The records of one log from its first offset on, taken from the steps that ``plan`` returns."""

    def __init__(self, name: str, end: int | None) -> None:
        """Start at offset 0.

        Args:
            name: of the partition, for messages.
            end: the offset before which all records are to be compared. None: up to where the other log ends.
        """
        self.name = name
        self.end = end
        self.next_offset = 0
        """The offset after the last record or marker that was passed."""
        self._steps: deque[Step] = deque()
        self._records: Iterator[PlacedRecord] = iter(())
        """The records of the last step that was decoded."""
        self._first: PlacedRecord | None = None

    @property
    def is_over(self) -> bool:
        """True when all offsets before the end were passed."""
        return self.end is not None and self.next_offset >= self.end

    def take(self, steps: Iterable[Step]) -> None:
        """Add the steps of the next read."""
        self._steps.extend(steps)

    def first(self) -> PlacedRecord | None:
        """Return the next record; None if more steps have to be read first, or the log is over.

        Raises:
            NotRebuildable: an offset before it has no record, or a batch cannot be read.
        """
        while (first := self._peeked()) is None and self._steps and not self.is_over:
            step = self._steps.popleft()
            if isinstance(step, Outgoing):
                self._records = self._decoded(step)
            else:
                self._pass_to(step.next_offset - step.record_count)
                self.next_offset = step.next_offset
        if first is None or self.is_over:
            return None
        offset = first.offset
        if self.end is not None and offset >= self.end:
            self._pass_to(self.end)
            return None
        self._pass_to(offset)
        return first

    def remove_first(self) -> None:
        assert self._first is not None  # noqa: S101  (``first`` has returned it)
        self.next_offset = self._first.offset + 1
        self._first = None

    def _peeked(self) -> PlacedRecord | None:
        if self._first is None:
            self._first = next(self._records, None)
        return self._first

    def _pass_to(self, offset: int) -> None:
        if offset > self.next_offset:
            raise NotRebuildable(
                f"offset {self.next_offset} of {self.name} holds no record: compaction may have removed it"
            )

    def _decoded(self, step: Outgoing) -> Iterator[PlacedRecord]:
        own = step.reason != "log append time"
        jumps, offset = dict(step.runs()), step.first_offset
        try:
            for index, record in enumerate(each_record(step.data)):
                offset = jumps.get(index, offset)
                yield PlacedRecord(offset, record, own)
                offset += 1
        except UNREADABLE as error:
            raise NotRebuildable(f"{self.name} cannot be read at offset {step.first_offset}: {error.what}") from error


class Pairing:
    """Compares two logs record by record, and notes the pairs in a ledger."""

    def __init__(
        self, source: ComparedLog, target: ComparedLog, ledger: RebuiltLedger, *, runs_most: int = RUNS_MOST
    ) -> None:
        self.source = source
        self.target = target
        self.ledger = ledger
        self._runs_most = runs_most

    @property
    def is_over(self) -> bool:
        """True when all records of both logs were compared."""
        return self.source.is_over and (self.target.end is None or self.target.is_over)

    def wanted(self) -> ComparedLog | None:
        """Compare the records read so far, and return the log to read next; None if all records were compared.

        Raises:
            NotRebuildable: the logs differ, or the ledger becomes too large.
        """
        source, target = self.source, self.target
        while (record := source.first()) is not None and (copy := target.first()) is not None:
            self._compare(record, copy)
            self.ledger.add(record.offset, copy.offset)
            source.remove_first()
            target.remove_first()
        if self.ledger.run_count > self._runs_most:
            raise NotRebuildable(f"it would have more than {self._runs_most:,} lines")
        if record is not None and target.is_over:
            raise NotRebuildable(
                f"the record at offset {record.offset} of {source.name} has no copy before offset {target.end} of"
                f" {target.name}: it was lost in a gap, or is in quarantine"
            )
        if not source.is_over:
            return source if record is None else target
        if target.end is None:
            return None
        if (copy := target.first()) is not None:
            raise NotRebuildable(
                f"the record at offset {copy.offset} of {target.name} is none that was copied before offset"
                f" {source.end} of {source.name}: another client wrote it, or records were copied twice"
            )
        return None if target.is_over else target

    def _compare(self, record: PlacedRecord, copy: PlacedRecord) -> None:
        one, other = record.record, copy.record
        if one.key != other.key:
            differs = "keys"
        elif one.value != other.value:
            differs = "values"
        elif list(one.headers) != list(other.headers):
            differs = "headers"
        elif copy.has_own_timestamp and one.timestamp_ms != other.timestamp_ms:
            differs = "timestamps"
        else:
            return
        raise NotRebuildable(
            f"the record at offset {record.offset} of {self.source.name} and the one at offset {copy.offset} of"
            f" {self.target.name} have different {differs}: another client wrote to the remote topic, or records were"
            " lost or copied twice"
        )
