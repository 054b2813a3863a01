"""The batches of one partition that were read and are not stored yet, oldest first. Pure.

    take --> ready --next_batch--> in flight --settle--> leave
                                       |
                                       +--fail--> outcome unknown, until it is sent again as it was, or is stored

Answers to RecordAccumulator and TransactionManager of Kafka's Java producer, for one partition. This module has
the rule of what may be in flight together, and knows what was sent and may be stored although the target has not
acknowledged it (C1, H2 of docs/broker-facts.md). The copier decides what follows from an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mm2py.kafka.port import ProducerIdentity
from mm2py.records.batch import next_sequence
from mm2py.replication.copying.events import Lease
from mm2py.replication.errors import Stored
from mm2py.replication.planning.steps import Dropped, Outgoing, Plan, Step

MAX_IN_FLIGHT = 5
"""Batches of one partition on their way; as many as a broker remembers to recognise a repeat."""

MAX_QUEUED = 5
"""At the end of its log a partition is not read while so many batches wait behind those under way."""

MAX_CUT_READS = 20
"""How often a batch of unknown outcome is read again, if it was made of several that no longer come in one read."""

_Shape = tuple[int, int, int, int]
"""First and next source offset, record count, leader epoch: what must be the same when a batch is sent again.

The story: a batch is stored, the answer is lost, and the source's cleaner removes it before it is read again. The next
batch would take its sequence; the target would take it for the one it has, acknowledge it, and drop it."""


class _OutcomeUnknown(NamedTuple):
    """A batch that was sent, and of which nobody knows whether it is stored."""

    shape: _Shape
    max_timestamp_ms: int


class Sending(NamedTuple):
    """A batch to be stamped and sent now."""

    batch: Outgoing
    identity: ProducerIdentity
    sequence: int
    token: int
    """Names this attempt in the event that answers it."""


@dataclass(slots=True)
class Entry:
    """A planned step on its way; ``token`` and ``sequence`` count only for batches that were sent."""

    step: Step
    lease: Lease
    token: int = -1
    sequence: int = -1
    settled: bool = False
    stored: Stored | None = None
    """What the target's answer told of it; None while there is none, or none came."""
    repeated: bool = False
    """It may have been sent before."""
    not_stored: bool = False
    """It was not sent before, and refused: its sequence is free for another batch."""
    retained: bool = True
    """The target would have known it again when it was sent (C1)."""

    @property
    def batch(self) -> Outgoing:
        """The batch, where one was sent."""
        assert isinstance(self.step, Outgoing)  # noqa: S101  (only batches get a token)
        return self.step

    def refuse(self, stored: Stored) -> None:
        """Take in what a refusal tells of it."""
        self.stored = stored
        self.not_stored = stored is Stored.NO and not self.repeated


class InFlightBatches:
    """The batches of one partition on their way from its source to its target, oldest first.

    They are read and waiting, then sent and unanswered. After a failure the outcome of those that were sent is unknown,
    and they must be sent again as they were. Dropped steps stand among them, so that the position passes them in their
    order. The lease is held for each step from ``take`` until it has left or was let go.
    """

    def __init__(self, name: str, *, ready_max_bytes: int) -> None:
        self.ready_bytes = 0
        """Size of the batches that wait to be sent."""
        self.unanswered = 0
        """Batches that were sent, and whose answer is still to come."""
        self.maybe_sent_until = -1
        """Batches that begin below this source offset may have been sent before: each of them goes alone."""
        self._name = name
        self._ready: deque[Entry] = deque()
        self.ready_max_bytes = ready_max_bytes
        self._in_flight: deque[Entry] = deque()
        self._unretained_in_flight = False
        self._sent_to: int | None = None
        self._token = 0
        self._sequence = 0
        self._alone = True
        """Nothing is known to be stored that the broker would remember us by."""
        self._stored_timestamp_ms = -1
        """Newest timestamp of the batch that was acknowledged last: by it the broker remembers what it stored."""
        self._unknown: list[_OutcomeUnknown] = []
        self._cut_reads = 0
        self._left_behind = -1
        """First source offset of a batch of which the target left open whether it stored it, and then stored another
        behind it: if it does not know it when it comes again, it is missing."""

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
        """Whether more may be read. At the end of the log not while batches queue up behind those under way: what
        arrives there while the target is slow comes in one read and goes in one batch, instead of as many as there are
        records."""
        return self.ready_bytes < self.ready_max_bytes and not (is_at_end and len(self._ready) >= MAX_QUEUED)

    @property
    def target_is_behind(self) -> bool:
        """As much is on its way to the target as may be, and more waits."""
        waits = self.unanswered >= MAX_IN_FLIGHT or len(self._ready) >= MAX_QUEUED
        return waits or self.ready_bytes >= self.ready_max_bytes

    def take(self, steps: Sequence[Step], lease: Lease) -> None:
        """Put what was read behind the others. Dropped steps at the head of it may ``leave``."""
        add = self._ready.append
        lease.hold(sum(_rebuilt_bytes(step) for step in steps), len(steps))
        for step in steps:
            if isinstance(step, Outgoing):
                self.ready_bytes += len(step.data)
            add(Entry(step, lease))
        self._skip_dropped()

    def forget(self) -> None:
        """Let go of what was read and not sent."""
        while self._ready:
            entry = self._ready.pop()
            entry.lease.release(_rebuilt_bytes(entry.step))
        self.ready_bytes = 0

    def _skip_dropped(self) -> None:
        """Take dropped steps out of those that wait; the position passes them with the batch before them."""
        while self._ready and isinstance(self._ready[0].step, Dropped):
            entry = self._ready.popleft()
            entry.settled = True
            self._in_flight.append(entry)

    # Sent and unanswered

    def next_batch(self, broker: int, retained_after_ms: int, identity: ProducerIdentity) -> Sending | None:
        """Return the next batch if one may be sent now to ``broker``; it is in flight from then on.

        Args:
            broker: who leads the remote partition. What is in flight to an earlier leader must be answered first.
            retained_after_ms: a batch whose newest record is older is *unretained*: the broker may forget that it
                stored it (C1). So nothing else is in flight beside it, and it is not sent again: see
                ``is_too_old_to_resend``.
            identity: under which it is sent.
        """
        if not self._ready:
            return None
        entry = self._ready[0]
        batch = entry.step
        if isinstance(batch, Dropped):  # settled as soon as it is the oldest, see _skip_dropped
            raise AssertionError(f"{self._name}: a dropped step waits at the head")
        retained = batch.max_timestamp_ms > retained_after_ms
        if self._stored_timestamp_ms <= retained_after_ms:
            self._alone = True  # the broker may have forgotten us meanwhile: as for the first batch of all (H2, C1)
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
        return Sending(batch, identity, entry.sequence, entry.token)

    def answered(self, token: int) -> Entry | None:
        """Return the batch an answer belongs to, which is not waited for any more; None if it was given up meanwhile.
        That no answer will come is an answer, too."""
        for entry in self._in_flight:
            if entry.token == token:
                self.unanswered -= 1
                return entry
        return None

    @property
    def oldest(self) -> Entry:
        """The oldest batch that was sent and is not settled; there must be one."""
        return self._in_flight[0]

    def overtake(self) -> None:
        """Note that a batch behind the oldest is stored: see ``is_left_behind``."""
        if self.oldest.stored is Stored.PERHAPS:
            self._left_behind = self.oldest.batch.first_offset

    def is_left_behind(self, entry: Entry) -> bool:
        """Whether the target left open whether it stored this batch, and then stored another behind it."""
        return entry.batch.first_offset == self._left_behind

    def settle(self) -> None:
        """Take in that the oldest batch is stored. It may ``leave``, and those behind it need not go alone."""
        entry = self.oldest
        batch = entry.batch
        entry.settled = True
        self._stored_timestamp_ms = batch.max_timestamp_ms
        if self._unknown and self._unknown[0].shape == _shape(batch):  # answered after a failure, not sent again
            del self._unknown[0]
        self._alone = False

    def leave(self) -> Dropped | None:
        """Let the oldest steps leave that are settled, up to the first dropped one, which is returned: the position
        passes it. To be called until it returns None, after ``take`` and ``settle``."""
        while self._in_flight and self._in_flight[0].settled:
            entry = self._in_flight.popleft()
            step = entry.step
            entry.lease.release(_rebuilt_bytes(step))
            if isinstance(step, Dropped):
                return step
        return None

    @property
    def has_failed(self) -> bool:
        """Something was sent that is not settled, and all of it is answered."""
        return bool(self._in_flight) and not self.unanswered

    def let_go(self) -> None:
        """Let go of what was sent and is not settled."""
        for entry in self._in_flight:
            entry.lease.release(_rebuilt_bytes(entry.step))
        self._in_flight.clear()

    def rewind(self, sequence: int) -> None:
        """Let go of everything; what is read next is sent from this sequence on. Unknown outcomes stay so."""
        self.let_go()
        self.unanswered = 0
        self.forget()
        self._sequence = sequence

    # Outcome unknown

    @property
    def has_unknown_outcomes(self) -> bool:
        """Of something that was sent, and has not come again, nobody knows whether it is stored."""
        return bool(self._unknown)

    @property
    def sent_before(self) -> Sequence[tuple[int, int]]:
        """(first, next) source offset of each batch whose outcome is unknown: it must be cut in the same way again."""
        return [one.shape[:2] for one in self._unknown]

    def fail(self) -> None:
        """Take in a failure: the outcome of what was sent and is not settled is unknown. So is that of what waits and
        was sent before. What waits is let go; what was sent stays, for its answers."""
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
        """Compare what was read with what was sent and has an unknown outcome.

        If a batch comes again as it was sent, its answer will tell. Otherwise returns why no resend can tell, in words
        for the operator. What is dropped by now, and was sent, comes in another way, too. The story: the outcome of a
        batch is unknown, the source's cleaner empties it, and a read brings its header alone. The position must not
        pass it: it may be stored.
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
        """Whether what waits to be sent again is unretained by now, or something is that was sent behind it: it may be
        stored, and the target may have forgotten that (C1).

        The story: a batch is stored, its answer is lost, and the source's broker is away for a day. Sent again, as it
        was young when it was sent, it would be there twice.
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
        """Something was sent that may be stored, and that the target would not know again (C1)."""
        return any(not (entry.settled or entry.retained or entry.not_stored) for entry in self._in_flight)

    def trust_refusals(self) -> None:
        """If nothing of what was sent can be stored, no outcome is unknown: it may be cut in another way.

        The story: a batch made of several is too large for the target; those sent behind it are out of order. They
        would come back as they were, which no longer fits, and a new epoch would have to be asked for.
        """
        sent = [entry for entry in self._in_flight if not entry.settled]
        if sent and all(entry.not_stored for entry in sent) and len(self._unknown) == len(sent):
            self._unknown.clear()
            self.maybe_sent_until = -1

    def restart(self) -> None:
        """Take in that what was sent is shut out: under the producer id and epoch to come nothing was sent yet."""
        self._unknown.clear()
        self.maybe_sent_until = self._left_behind = -1
        self._cut_reads = 0
        self._alone = True


def _rebuilt_bytes(step: Step) -> int:
    """Memory a step holds beyond the frame it came in."""
    return len(step.data) if isinstance(step, Outgoing) and step.reason is not None else 0


def _unknown_outcome(batch: Outgoing) -> _OutcomeUnknown:
    return _OutcomeUnknown(_shape(batch), batch.max_timestamp_ms)


def _shape(batch: Outgoing) -> _Shape:
    return batch.first_offset, batch.next_offset, batch.record_count, batch.leader_epoch
