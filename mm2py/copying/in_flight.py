"""The batches of one partition that were read and are not stored yet, oldest first. Pure.

    take --> ready --next_batch--> in flight --settle--> leave
                                       |
                                       +--fail--> outcome unknown, until it is sent again unchanged, or is stored

This module decides which batches may be in flight together, and knows which may be stored although the target has not
acknowledged them (docs/broker-facts.md#c1 and #h2). The copier decides what follows from an answer.

Counterpart: RecordAccumulator and TransactionManager of Kafka's Java producer, for one partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mm2py.copying.events import Lease
from mm2py.copying.partition_errors import Stored
from mm2py.copying.planning.steps import Dropped, Outgoing, Plan, Step
from mm2py.kafka.port import ProducerIdentity
from mm2py.records.batch import next_sequence

MAX_IN_FLIGHT = 5
"""Batches of one partition in flight: as many as a broker remembers in order to recognise a repeat."""

MAX_QUEUED = 5
"""At the end of its log a partition is not read while this many batches wait to be sent."""

MAX_CUT_READS = 20
"""How often a merged batch of unknown outcome is read again, if its parts no longer come in one read."""

_Shape = tuple[int, int, int, int]
"""First and next source offset, record count, leader epoch. All must be the same when a batch is sent again.

The story: a batch is stored, the answer is lost, and the source's cleaner removes it before it is read again. The next
batch would get its sequence. The target would mistake that batch for the stored one, acknowledge it, and drop it."""


class _OutcomeUnknown(NamedTuple):
    """A batch that was sent, and may be stored or not."""

    shape: _Shape
    max_timestamp_ms: int


class Sending(NamedTuple):
    """A batch to be stamped and sent now."""

    batch: Outgoing
    identity: ProducerIdentity
    sequence: int
    token: int
    """Identifies this attempt in the event that answers it."""
    read_at_s: float
    """When it was fetched."""


@dataclass(slots=True)
class InFlightEntry:
    """A planned step; ``token`` and ``sequence`` are valid only for batches that were sent."""

    step: Step
    lease: Lease
    rebuilt_bytes: int = 0
    """The memory that a rebuilt batch takes, besides the frame in which it was read."""
    token: int = -1
    sequence: int = -1
    settled: bool = False
    stored: Stored | None = None
    """What the target's refusal says about it; None without a refusal."""
    repeated: bool = False
    """It may have been sent before."""
    not_stored: bool = False
    """It was refused and not sent before, so another batch may use its sequence."""
    retained: bool = True
    """When it was sent, it was within producer-state retention (docs/broker-facts.md#c1)."""

    @property
    def batch(self) -> Outgoing:
        """The step of an entry that was sent, which is always a batch."""
        assert isinstance(self.step, Outgoing)  # noqa: S101  (only batches get a token)
        return self.step

    def refuse(self, stored: Stored) -> None:
        """Note that the target has refused it."""
        self.stored = stored
        self.not_stored = stored is Stored.NO and not self.repeated


class InFlightBatches:
    """The batches of one partition between its source and its target, oldest first.

    They wait to be sent, then for an answer. After a failure the outcome of the batches that were sent is unknown, and
    they must be sent again unchanged. Dropped steps keep their place among them, so that the position passes all steps
    in order. Each step holds its lease from ``take`` until it has left or was released.
    """

    def __init__(self, name: str, *, ready_max_bytes: int) -> None:
        self.ready_bytes = 0
        """Size of the batches that wait to be sent."""
        self.unanswered = 0
        """How many batches were sent and not answered yet."""
        self.maybe_sent_until = -1
        """Batches that begin below this source offset may have been sent before. Each of them is sent alone."""
        self._name = name
        self._ready: deque[InFlightEntry] = deque()
        self.ready_max_bytes = ready_max_bytes
        self._in_flight: deque[InFlightEntry] = deque()
        self._unretained_in_flight = False
        self._sent_to: int | None = None
        self._token = 0
        self._sequence = 0
        self._alone = True
        """True until a batch is acknowledged: before that the broker may not know this producer."""
        self._stored_timestamp_ms = -1
        """Newest timestamp of the batch acknowledged last. The broker's producer state expires by it."""
        self._unknown: list[_OutcomeUnknown] = []
        self._cut_reads = 0
        self._left_behind = -1
        """First source offset of a batch whose refusal left open whether it is stored, while a later batch was stored.
        If the target does not recognise it when it is sent again, it is missing from the copy."""

    # Read and waiting

    @property
    def has_batches(self) -> bool:
        """Batches wait to be sent."""
        return bool(self._ready)

    @property
    def is_idle(self) -> bool:
        """No batch waits to be sent, or for its answer."""
        return self.unanswered == 0 and not self._ready

    def wants_more(self, *, is_at_end: bool) -> bool:
        """Whether more may be read.

        At the end of the log nothing is read while batches queue. Records that arrive while the target is slow then
        come in one read and go in one batch.
        """
        return self.ready_bytes < self.ready_max_bytes and not (is_at_end and len(self._ready) >= MAX_QUEUED)

    @property
    def target_is_behind(self) -> bool:
        """A limit is reached: that of batches in flight, or that of batches that wait to be sent."""
        waits = self.unanswered >= MAX_IN_FLIGHT or len(self._ready) >= MAX_QUEUED
        return waits or self.ready_bytes >= self.ready_max_bytes

    def take(self, steps: Sequence[Step], lease: Lease) -> None:
        """Append what was read. Dropped steps at the front may ``leave``."""
        rebuilt_bytes = 0
        for step in steps:
            entry = InFlightEntry(step, lease)
            if isinstance(step, Outgoing):
                self.ready_bytes += len(step.data)
                if step.reason is not None:
                    entry.rebuilt_bytes = len(step.data)
            rebuilt_bytes += entry.rebuilt_bytes
            self._ready.append(entry)
        lease.hold(rebuilt_bytes, len(steps))
        self._skip_dropped()

    def forget(self) -> None:
        """Release what was read and not sent."""
        while self._ready:
            entry = self._ready.pop()
            entry.lease.release(entry.rebuilt_bytes)
        self.ready_bytes = 0

    def unread(self) -> Step | None:
        """Release what was read and not sent, because it will be read again. Return the last step that was sent, or
        that the position passes with it, and is not settled; None if there is none.

        Batches that may have been sent before are of unknown outcome again.
        """
        again = [entry.step for entry in self._ready if entry.step.next_offset <= self.maybe_sent_until]
        self._unknown = [*(_unknown_outcome(step) for step in again if isinstance(step, Outgoing)), *self._unknown]
        self.forget()
        return self._in_flight[-1].step if self._in_flight else None

    def _skip_dropped(self) -> None:
        """Move dropped steps from the front to those in flight: the position passes them with the batch before them."""
        while self._ready and isinstance(self._ready[0].step, Dropped):
            entry = self._ready.popleft()
            entry.settled = True
            self._in_flight.append(entry)

    # Sent and unanswered

    def next_batch(self, broker: int, retained_after_ms: int, identity: ProducerIdentity) -> Sending | None:
        """Return the next batch if one may be sent now to ``broker``; it is in flight from then on.

        Args:
            broker: the leader of the remote partition. Batches in flight to the previous leader must be answered first.
            retained_after_ms: a batch whose newest record is older is outside producer-state retention: the broker may
                forget that it stored it (docs/broker-facts.md#c1). It is in flight alone, and is not sent again: see
                ``is_too_old_to_resend``.
            identity: the producer that sends it.
        """
        if not self._ready:
            return None
        entry = self._ready[0]
        batch = entry.step
        if isinstance(batch, Dropped):  # settled as soon as it is the oldest, see _skip_dropped
            raise AssertionError(f"{self._name}: a dropped step waits at the front")
        retained = batch.max_timestamp_ms > retained_after_ms
        if self._stored_timestamp_ms <= retained_after_ms:
            self._alone = True  # its producer state may have expired: as for the first batch (docs/broker-facts.md#h2)
        if self.unanswered and (
            self.unanswered >= MAX_IN_FLIGHT
            or self._alone
            or not retained
            or self._unretained_in_flight
            or self._sent_to != broker
            or batch.first_offset < self.maybe_sent_until
        ):
            return None
        if batch.first_offset < self.maybe_sent_until and self.is_too_old_to_resend(retained_after_ms):
            return None
        self._ready.popleft()
        self.ready_bytes -= len(batch.data)
        self._token += 1
        entry.token, entry.sequence = self._token, self._sequence
        entry.repeated = batch.first_offset < self.maybe_sent_until
        entry.retained = retained
        self._sequence = next_sequence(self._sequence, batch.record_count)
        self._unretained_in_flight = not retained
        self._sent_to = broker
        self._in_flight.append(entry)
        self.unanswered += 1
        self._skip_dropped()
        return Sending(batch, identity, entry.sequence, entry.token, entry.lease.read_at_s)

    def answered(self, token: int) -> InFlightEntry | None:
        """Count an answer, or one that will not come. Return its entry; None if the batch was given up meanwhile."""
        for entry in self._in_flight:
            if entry.token == token:
                self.unanswered -= 1
                return entry
        return None

    @property
    def oldest(self) -> InFlightEntry:
        """The oldest batch that was sent and is not settled. There must be one."""
        return self._in_flight[0]

    def overtake(self) -> None:
        """Note that a batch after the oldest is stored; see ``is_left_behind``."""
        if self.oldest.stored is Stored.PERHAPS:
            self._left_behind = self.oldest.batch.first_offset

    def is_left_behind(self, entry: InFlightEntry) -> bool:
        """Whether a refusal left open if this batch is stored, and a later batch was stored after it."""
        return entry.batch.first_offset == self._left_behind

    def settle(self) -> None:
        """Note that the oldest batch is stored. It may ``leave``, and later ones need not be sent alone."""
        entry = self.oldest
        batch = entry.batch
        entry.settled = True
        self._stored_timestamp_ms = batch.max_timestamp_ms
        if self._unknown and self._unknown[0].shape == _shape(batch):  # answered after a failure, not sent again
            del self._unknown[0]
        self._alone = False

    def leave(self) -> Dropped | None:
        """Remove settled steps from the front, up to the first dropped step, and return this step.

        The position passes it. Call this after ``take`` and ``settle`` until it returns None.
        """
        while self._in_flight and self._in_flight[0].settled:
            entry = self._in_flight.popleft()
            step = entry.step
            entry.lease.release(entry.rebuilt_bytes)
            if isinstance(step, Dropped):
                return step
        return None

    @property
    def has_failed(self) -> bool:
        """A batch that was sent is not settled, and no answer is missing."""
        return bool(self._in_flight) and not self.unanswered

    def release(self) -> None:
        """Release the batches that were sent and are not settled."""
        for entry in self._in_flight:
            entry.lease.release(entry.rebuilt_bytes)
        self._in_flight.clear()

    def rewind(self, sequence: int) -> None:
        """Release everything. What is read next is sent from this sequence on. Unknown outcomes stay unknown."""
        self.release()
        self.unanswered = 0
        self.forget()
        self._sequence = sequence

    # Outcome unknown

    @property
    def has_unknown_outcomes(self) -> bool:
        """Batches were sent, may be stored or not, and were not read again yet."""
        return bool(self._unknown)

    @property
    def sent_before(self) -> Sequence[tuple[int, int]]:
        """(first, next) source offset of each batch of unknown outcome. Planning must cut it in the same way again."""
        return [one.shape[:2] for one in self._unknown]

    def fail(self) -> None:
        """Note a failure: the outcome of every unsettled batch that was sent, now or before, is unknown.

        Batches that wait are released. Those in flight stay until they are answered.
        """
        sent = [entry.step.next_offset for entry in self._in_flight]
        self.maybe_sent_until = max([self.maybe_sent_until, *sent])
        entries = [
            *self._in_flight,
            *(entry for entry in self._ready if entry.step.next_offset <= self.maybe_sent_until),
        ]
        self._unknown = [
            *(
                _unknown_outcome(entry.step)
                for entry in entries
                if isinstance(entry.step, Outgoing) and not entry.settled
            ),
            *self._unknown,
        ]
        self.forget()

    def reads_otherwise(self, plan: Plan) -> str | None:
        """Compare what was read with the batches of unknown outcome.

        A batch that reads as it was sent is sent again, and the answer shows the outcome. Otherwise return why no
        resend can show it, in words for the operator. A batch that was sent and is dropped now differs, too. The story:
        the source's cleaner empties a batch of unknown outcome, and a read brings only its header. The position must
        not pass this batch, as it may be stored.
        """
        again = 0
        for step in plan.steps:
            if again == len(self._unknown):
                break
            shape = self._unknown[again].shape
            if isinstance(step, Dropped):
                comes_otherwise = step.next_offset > shape[0]
            else:
                comes_otherwise = _shape(step) != shape
                again += 1
            if comes_otherwise:
                return "the source reads differently from what was sent and not acknowledged"
        del self._unknown[:again]
        if plan.steps:
            self._cut_reads = 0
        elif plan.cut_batch_bytes:
            self._cut_reads += 1
        if self._cut_reads >= MAX_CUT_READS:
            return "what was sent as one batch cannot be read as a whole again"
        return None

    def is_too_old_to_resend(self, retained_after_ms: int) -> bool:
        """Whether a batch that waits to be sent again, or one sent after it, is outside producer-state retention now.

        It may be stored, and the target may have forgotten that (docs/broker-facts.md#c1). The story: a batch is
        stored, its answer is lost, and the source's broker is away for a day. Sent again, it would be stored twice.
        """
        if not self._ready or self.unanswered:
            return False
        times = []
        for entry in self._ready:
            step = entry.step
            if isinstance(step, Outgoing):
                if step.first_offset >= self.maybe_sent_until:
                    break
                times.append(step.max_timestamp_ms)
        return bool(times) and min([*times, *(one.max_timestamp_ms for one in self._unknown)]) <= retained_after_ms

    @property
    def may_be_forgotten(self) -> bool:
        """A batch may be stored that the target would not recognise again (docs/broker-facts.md#c1)."""
        return any(not (entry.settled or entry.retained or entry.not_stored) for entry in self._in_flight)

    def trust_refusals(self) -> None:
        """Forget the unknown outcomes if no batch that was sent can be stored. Batches may then be cut in another way.

        The story: a merged batch is too large for the target, so the batches after it are out of order. If they had to
        be sent again unchanged, only another producer epoch could solve it.
        """
        sent = [entry for entry in self._in_flight if not entry.settled]
        if sent and all(entry.not_stored for entry in sent) and len(self._unknown) == len(sent):
            self._unknown.clear()
            self.maybe_sent_until = -1

    def restart(self) -> None:
        """Start again under another producer id: what was sent before is fenced."""
        self._unknown.clear()
        self.maybe_sent_until = self._left_behind = -1
        self._cut_reads = 0
        self._alone = True


def _unknown_outcome(batch: Outgoing) -> _OutcomeUnknown:
    return _OutcomeUnknown(_shape(batch), batch.max_timestamp_ms)


def _shape(batch: Outgoing) -> _Shape:
    return batch.first_offset, batch.next_offset, batch.record_count, batch.leader_epoch
