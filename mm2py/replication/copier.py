"""The copier: how one source partition becomes its remote partition. Pure.

    Reconciling --reconciled--> Storing --position stored--> Copying --drain--> Draining --all answered--> Drained
         ^                                                    ^    |
         |                               pause over, refetch |    | an error, a lost connection, a missing right
         +---- an outcome that no resend can tell --------- Waiting          Copying --what no retry mends--> Stalled

Answers to WorkerSourceTask and MirrorSourceTask of Apache Kafka's Connect, for one partition. Facts come in through
``handle``; what to do about them comes back as effects. Batches leave through ``next_batch``, which is asked whenever
there is room to send. One rule makes failures simple: *whatever goes wrong, forget everything that was not
acknowledged, wait until nothing is in flight, and read again from the position*. The same source batches then carry
the same sequences, so the broker drops what it had already stored. Where that does not hold (C1, H1, H2 of
docs/broker-facts.md) the partition is fenced against itself and reconciled: ``reconcile``.
"""

from __future__ import annotations

import enum
import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from mm2py.kafka.port import ProducerIdentity
from mm2py.kafka.retry import (
    BLOCKED_PAUSE_S,
    DENIED_PAUSE_S,
    RESUME_PAUSES_S,
    Reaction,
    name_of,
    reaction_to,
)
from mm2py.records.batch import next_sequence
from mm2py.records.status_record import Done, GapKind
from mm2py.replication.damage import Damage
from mm2py.replication.events import (
    Acked,
    Displaced,
    Diverged,
    Drain,
    Effect,
    Event,
    Fetched,
    FetchRefused,
    ForeignerMet,
    GapFound,
    Lease,
    MarkersLost,
    Need,
    OffsetsFound,
    Poison,
    PositionStored,
    ProduceLost,
    ProduceRefused,
    Quarantined,
    Reconciled,
    Report,
    SourceRewritten,
    TargetLed,
    TargetLost,
    TargetShort,
    TargetWhole,
    Tick,
)
from mm2py.replication.position import Position
from mm2py.replication.produce_errors import ProduceReaction, Stored, produce_error
from mm2py.replication.steps import Dropped, Fault, Outgoing

MAX_IN_FLIGHT = 5
"""Batches of one partition on their way; as many as a broker remembers to recognise a repeat."""

MAX_CUT_READS = 20
"""So often a batch in doubt is read again that was made of several which do not come together in one read any more."""

MAX_QUEUED = 5
"""At the end of its log a partition is not read while so many batches wait behind those under way."""
REPORT_QUARANTINED = 1000
"""Of records in quarantine that follow each other the first is reported, and of a partition one in so many."""

_WAYS_OUT = {
    "too large": " Raise max.message.bytes of the remote topic; it is tried again every 30 seconds.",
    "null key on compacted target": " Let the remote topic have cleanup.policy=delete; it is tried again.",
}
_NUMBERS = re.compile(r"(?<=offset )\d+|\d+(?= bytes)")
_POISONS = {"too large": 10, "null key on compacted target": 87}
"""What the target's settings refuse, seen before it is sent, and the code that it would answer."""
_OFFSET_OUT_OF_RANGE = 1
_TOPIC_CHANGED = frozenset({100, 103})


class Phase(enum.Enum):
    RECONCILING = "finding out how far an earlier writer got"
    STORING = "storing its position"
    COPYING = "copying"
    WAITING = "waiting"
    STALLED = "stalled"
    DRAINING = "draining"
    DRAINED = "drained"


# -- state -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    """A planned step on its way; ``token`` and ``sequence`` count only for batches that were sent."""

    step: Outgoing | Dropped
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
    covered: bool = True
    """The target would know it again (C1)."""


_Shape = tuple[int, int, int, int]
"""First and next source offset, record count, leader epoch: what must be the same when a batch in doubt is sent again.

The story: a batch is stored, the answer is lost, and the source's cleaner removes it before it is read again. The next
batch would take its sequence; the target would take it for the one it has, acknowledge it, and drop it."""


class Sending(NamedTuple):
    """A batch to be stamped and sent now."""

    batch: Outgoing
    identity: ProducerIdentity
    sequence: int
    token: int
    """Names this attempt in the event that answers it."""


@dataclass(slots=True)
class Tally:
    """What was done, for status and metrics. Bytes are those of batches as sent."""

    records: int = 0
    bytes: int = 0
    passed: int = 0
    rebuilt: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    last_timestamp_ms: int = -1


class Copier:
    """One partition's copying. See the module's text for the states."""

    def __init__(
        self,
        name: str,
        position: Position,
        identity: ProducerIdentity,
        *,
        ready_max_bytes: int,
        reconciling: bool = False,
        quarantines: bool = False,
    ) -> None:
        """Make one that waits for its position to be stored.

        Args:
            reconciling: others may have written behind ``position``; the shell finds out, see ``Reconciled``.
            quarantines: a record that the target refuses is kept elsewhere, and not waited for.
        """
        self.name = name
        self.position = position._replace(sequence=0)
        self.identity = identity
        self.phase = Phase.RECONCILING if reconciling else Phase.STORING
        self.owns_position = not reconciling
        """What is stored of it may be replaced. Before it is reconciled, that still tells of whoever wrote before."""
        self.reason = "an earlier life is being shut out, and what it wrote looked up" if reconciling else ""
        self.fetch_offset = position.source_offset
        self.fetched_epoch = position.source_leader_epoch
        self.end_offset: int | None = None
        self.target_leader_epoch: int | None = None
        self.doubt = 0
        """Counts the reasons to doubt that the target still holds what it acknowledged: another leader epoch (M4), no
        answer, a leader that is none any more."""
        self.target_is_in_doubt = False
        """One of them is open: nothing is sent. See ``Need.TARGET_END``."""
        self.tally = Tally()
        self.is_blocked = False
        """It waits for an operator; the target's limits are looked up before it tries again."""
        self.refused_bytes = 0
        """Size of the batch that the target last refused as too large; whoever looks the limit up sets it back to 0."""
        self.stops_when_expired = False
        """Where records were deleted before they were copied it stalls, instead of going on behind them."""
        self.pass_until = -1
        """Below this source offset nothing is to be merged: the target refused a batch that was. Those before the
        record that it does not take are stored so, and it is named."""
        self.cut_until = -1
        """Batches that begin below this source offset are to be cut, down to single records: the target refused one."""
        self._quarantines = quarantines
        self._poison: Poison | None = None
        """The record that is to be kept in quarantine, as long as nothing was read again."""
        self._is_kept = False
        """It is there: as soon as nothing is in flight, copying goes on behind it."""
        self._ready: deque[_Entry] = deque()
        self._ready_bytes = 0
        self._ready_max_bytes = ready_max_bytes
        self._in_flight: deque[_Entry] = deque()
        self._unanswered = 0
        self._sent_to: int | None = None
        self._token = 0
        self._sequence = 0
        self._resume_at_s = 0.0
        self._failures = 0
        self.damage = Damage()
        self._cut_reads = 0
        self._fault: Fault | None = None
        self._failed = False
        self._careful_until = -1
        self._alone = True
        self._stored_timestamp_ms = -1
        """Newest timestamp of the batch that was acknowledged last: by it the broker remembers what it stored."""
        self._draining = False
        self._reconciling = False
        self._uncovered_in_flight = False
        self._in_doubt: list[_Shape] = []
        self._left_behind = -1
        """First source offset of a batch of which the target left open whether it stored it, and then stored another
        behind it: if it does not know it when it comes again, it is missing."""
        self._reconciled: Reconciled | None = None
        self._left_unanswered = False
        """An answer stayed away, or left it open, when nothing was to be sent again any more."""

    # What the shell asks for

    @property
    def is_unsettled(self) -> bool:
        """Something was sent behind the position that may be stored, or arrive, later: it is to be shut out."""
        behind = self.position.source_offset < self._careful_until
        return self.owns_position and (behind or self._reconciling or self._left_unanswered)

    @property
    def wants_fetch(self) -> bool:
        """A read may bring more. At the end of the log not while batches queue up behind those under way: what arrives
        there while the target is slow comes in one read and goes in one batch, instead of as many as there are records.
        """
        if self.phase is not Phase.COPYING or self._fault is not None:
            return False
        return self._ready_bytes < self._ready_max_bytes and not (self.is_at_end and len(self._ready) >= MAX_QUEUED)

    @property
    def is_at_end(self) -> bool:
        """All that was there at the last read has been read: the next read will wait for more."""
        return self.end_offset is not None and self.fetch_offset >= self.end_offset

    @property
    def sent_before(self) -> Sequence[tuple[int, int]]:
        """(first, next) source offset of each batch whose outcome is in doubt: it must be cut in the same way again."""
        return [(first_offset, next_offset) for first_offset, next_offset, _, _ in self._in_doubt]

    @property
    def target_is_behind(self) -> bool:
        """As much is on its way to the target as may be, and more waits."""
        waits = self._unanswered >= MAX_IN_FLIGHT or len(self._ready) >= MAX_QUEUED
        return waits or self._ready_bytes >= self._ready_max_bytes

    @property
    def has_batches(self) -> bool:
        return bool(self._ready)

    @property
    def ready_bytes(self) -> int:
        """Size of the batches that wait to be sent."""
        return self._ready_bytes

    @property
    def is_idle(self) -> bool:
        """Nothing is in flight or waiting to be sent."""
        return self._unanswered == 0 and not self._ready

    @property
    def resume_at_s(self) -> float | None:
        """When a ``Tick`` ends the pause; None while none is due."""
        due = self.phase is Phase.WAITING and not self._reconciling and self._unanswered == 0
        return self._resume_at_s if due else None

    @property
    def vouched_offset(self) -> int | None:
        """Up to where the target must hold the partition; None where that cannot be asked just now, or no more."""
        settled = self.phase in {Phase.STORING, Phase.COPYING, Phase.WAITING} and not self._reconciling
        return self.position.target_offset if settled else None

    @property
    def kind_of_reason(self) -> str:
        """The reason without numbers, so that many partitions with one trouble make one line."""
        return _NUMBERS.sub("...", self.reason)

    @property
    def is_failing(self) -> bool:
        """It has failed, and nothing has succeeded since: a pause between two attempts is no recovery."""
        return self._failures > 0

    def lag(self) -> int | None:
        """Source offsets between the position and the readable end; None before the first read."""
        return None if self.end_offset is None else max(0, self.end_offset - self.position.source_offset)

    def next_batch(self, broker: int, covered_after_ms: int) -> Sending | None:
        """Return the next batch if one may be sent now to ``broker``.

        Args:
            broker: who leads the remote partition. What is in flight to an earlier leader must be answered first.
            covered_after_ms: a batch whose newest record is older is *uncovered*: the broker may forget that it stored
                it (C1), so nothing else is in flight beside it.
        """
        if self.phase is not Phase.COPYING or not self._ready or self.target_is_in_doubt:
            return None
        entry = self._ready[0]
        batch = entry.step
        if isinstance(batch, Dropped):  # settled as soon as it is first in line, see _skip_dropped
            raise AssertionError(f"{self.name}: a dropped step waits at the head")
        covered = batch.max_timestamp_ms > covered_after_ms
        if self._stored_timestamp_ms <= covered_after_ms:
            self._alone = True  # the broker may have forgotten us meanwhile: as for the first batch of all (H2, C1)
        if self._unanswered and (
            self._unanswered >= MAX_IN_FLIGHT
            or self._alone
            or not covered
            or self._uncovered_in_flight
            or self._sent_to != broker
            or batch.first_offset < self._careful_until
        ):
            return None
        self._ready.popleft()
        self._ready_bytes -= len(batch.data)
        self._token += 1
        entry.token, entry.sequence = self._token, self._sequence
        entry.repeated = batch.first_offset < self._careful_until
        entry.covered = covered
        self._sequence = next_sequence(self._sequence, batch.record_count)
        self._uncovered_in_flight = not covered
        self._sent_to = broker
        self._in_flight.append(entry)
        self._unanswered += 1
        self._skip_dropped()
        return Sending(batch, self.identity, entry.sequence, entry.token)

    # What happens to it

    def handle(self, event: Event) -> Sequence[Effect]:
        """Take in one fact and return what is to be done about it."""
        effects = self._take_in(event)
        if self._in_flight and not self._unanswered and self.phase in {Phase.STALLED, Phase.DRAINED}:
            self._let_go()  # nothing will be sent again: what was not acknowledged takes no memory any more
        return effects

    def _take_in(self, event: Event) -> Sequence[Effect]:
        match event:
            case Fetched():
                return self._fetched(event)
            case Acked():
                return self._acked(event)
            case ProduceRefused():
                return self._produce_refused(event)
            case ProduceLost():
                if self._answered(event.token) is None:
                    return ()
                self._left_unanswered |= self.phase not in {Phase.COPYING, Phase.WAITING}
                text = f"no answer from the target: {event.why}"
                return [*self._doubt_target(), *self._fail(event.now_s, text, Need.METADATA)]
            case FetchRefused():
                return self._fetch_refused(event)
            case OffsetsFound():
                return self._offsets_found(event)
            case Diverged():
                return self._stall_at_gap(
                    GapKind.TRUNCATED,
                    event.end_offset,
                    max(event.end_offset, self.fetch_offset - 1),
                    f"the source log was cut back to offset {event.end_offset} (leader epoch {event.epoch}), "
                    f"and {self.fetch_offset} had been read; what replaced it cannot be told apart",
                    go_on_at=min(event.end_offset, self.position.source_offset),
                )
            case PositionStored():
                if self.phase is Phase.STORING and event.identity == self.identity:
                    self.phase = Phase.DRAINED if self._draining else Phase.COPYING
                return ()
            case Reconciled():
                return self._go_on(event)
            case ForeignerMet():
                at = self.position.source_offset
                return self._stall_at_gap(GapKind.FOREIGN, None, None, event.text, go_on_at=at)
            case SourceRewritten():
                return self._stall_at_gap(
                    GapKind.TRUNCATED,
                    event.first,
                    event.last,
                    f"records of the source offsets {event.first} to {event.last} were copied, and others stand there "
                    "now: the source log was cut back",
                    go_on_at=event.first,
                )
            case TargetLost():
                where = "ends" if event.end < event.expected else "reads differently"
                return self._stall_at_gap(
                    GapKind.TARGET_TRUNCATED,
                    None,
                    self.position.source_offset - 1,
                    event.known
                    or f"the remote partition {where} at offset {event.end}, and all up to {event.expected} had been "
                    "stored: it was cut back",
                    go_on_at=self.position.source_offset,
                )
            case TargetLed():
                before, self.target_leader_epoch = self.target_leader_epoch, event.leader_epoch
                return () if before in {None, event.leader_epoch} else self._doubt_target()
            case TargetShort():
                self._doubt_target()
                return ()
            case TargetWhole():
                self.target_is_in_doubt &= event.doubt != self.doubt
                return ()
            case MarkersLost():
                self.position = self.position._replace(target_offset=event.end)
                return ()
            case Quarantined():
                return self._quarantined(event)
            case Drain():
                return self._drain()
            case Tick():
                return self._tick(event.now_s)
            case _:
                assert_never(event)

    def _fetched(self, event: Fetched) -> Sequence[Effect]:
        if self.phase is not Phase.COPYING or event.fetch_offset != self.fetch_offset:
            return ()  # a read that was overtaken by a rewind: those offsets come again
        plan = event.plan
        if self._in_doubt:
            again = [_shape(step) for step in plan.steps if isinstance(step, Outgoing)]
            if any(now != before for now, before in zip(again, self._in_doubt, strict=False)):
                return self._lost_track(
                    event.now_s, "the source reads differently from what was sent and not acknowledged"
                )
            del self._in_doubt[: len(again)]
            if plan.steps:
                self._cut_reads = 0
            elif plan.cut_batch_bytes:
                self._cut_reads += 1
            if self._cut_reads >= MAX_CUT_READS:
                return self._lost_track(event.now_s, "what was sent as one batch cannot be read as a whole again")
        self.end_offset = max(event.end_offset, plan.next_offset)
        if plan.steps:
            lease, add = event.lease, self._ready.append
            lease.hold(sum(_rebuilt_bytes(step) for step in plan.steps), len(plan.steps))
            for step in plan.steps:
                if isinstance(step, Outgoing):
                    self._ready_bytes += len(step.data)
                add(_Entry(step, lease))
            self.fetched_epoch = plan.steps[-1].leader_epoch
        self.fetch_offset = plan.next_offset
        self._fault = plan.fault
        if not plan.steps and plan.fault is None and not self._unanswered:
            self._failures = 0  # nothing to send, and reading works again
        self._skip_dropped()
        damaged, effects = self.damage.read(plan), self._meet_fault(event.now_s)
        return effects if damaged is None else [damaged, *effects]

    def _meet_fault(self, now_s: float) -> Sequence[Effect]:
        """A batch that cannot be copied is reported when all before it are stored; reading stops at it meanwhile."""
        fault = self._fault
        if fault is None or self._ready or self._unanswered:
            return ()
        if self.damage.met(fault):
            return self._fail(now_s, f"a batch was damaged on the way: {fault.text}")
        text = f"source offset {fault.offset} cannot be copied: {fault.text}{_WAYS_OUT.get(fault.kind, '')}"
        report, code = f"source.{fault.kind.replace(' ', '_')}", _POISONS.get(fault.kind)
        if code is None or fault.next_offset is None:
            return self._block(now_s, report, text)
        poison = Poison(fault.offset, fault.next_offset, fault.leader_epoch, code, fault.text, was_sent=False)
        return self._meet_poison(now_s, poison, report, text)

    def _acked(self, event: Acked) -> Sequence[Effect]:
        entry = self._answered(event.token)
        if entry is None:
            return ()
        batch = entry.step
        assert isinstance(batch, Outgoing)  # noqa: S101  (only batches get a token)
        oldest = self._in_flight[0]  # what is settled at the head has left the line
        if oldest is not entry:
            if oldest.not_stored and not self._reconciling:
                return self._stall_out_of_order(oldest)
            if oldest.stored is Stored.PERHAPS:
                self._left_behind = _first(oldest)
            return self._when_settled(event.now_s)  # both are sent again, and recognised
        expected, displaced = self.position.target_offset, list[Effect]()
        if expected is not None and 0 <= event.base_offset < expected and not entry.repeated:
            return self._stall_at_gap(
                GapKind.TARGET_TRUNCATED,
                None,
                self.position.source_offset - 1,
                f"the target stored a batch at offset {event.base_offset}, and all up to {expected} had been stored",
                go_on_at=self.position.source_offset,
            )
        if event.base_offset < 0 or (expected is not None and event.base_offset < expected):
            where = f"at offset {event.base_offset}" if event.base_offset >= 0 else "nobody knows where"
            return self._lost_track(event.now_s, f"the target stored a batch {where}, it was expected at {expected}")
        if expected is not None and event.base_offset > expected:
            displaced.append(Displaced(expected, event.base_offset))
        self._count(batch)
        self.position = Position(
            batch.next_offset,
            batch.leader_epoch,
            event.base_offset + batch.record_count,
            self.target_leader_epoch,
            next_sequence(entry.sequence, batch.record_count),
        )
        entry.settled = True
        self._stored_timestamp_ms = batch.max_timestamp_ms
        if self._in_doubt and self._in_doubt[0] == _shape(batch):  # answered after a failure, not sent again
            del self._in_doubt[0]
        self._alone = False
        self._failures = 0
        self._advance()
        effects = self._when_settled(event.now_s) or self._meet_fault(event.now_s)
        return [*displaced, *effects] if displaced else effects

    def _produce_refused(self, event: ProduceRefused) -> Sequence[Effect]:
        entry = self._answered(event.token)
        if entry is None:
            return ()
        error = produce_error(event.code)
        entry.stored = error.stored
        entry.not_stored = error.stored is Stored.NO and not entry.repeated
        what = f"{name_of(event.code)} ({event.code})"
        if event.message:
            what += f": {event.message}"
        if self._failed or self.phase is not Phase.COPYING:  # what this one says follows from an earlier one's failure
            self._left_unanswered |= error.stored is not Stored.NO and self.phase is not Phase.WAITING
            return self._when_settled(event.now_s)
        match error.reaction:
            case ProduceReaction.RESEND:
                return self._fail(event.now_s, f"the target answered {what}")
            case ProduceReaction.REFRESH:
                text = f"the target answered {what}"
                return [*self._doubt_target(), *self._fail(event.now_s, text, Need.METADATA)]
            case ProduceReaction.DENIED:
                text = f"mm2py may not write to the remote topic ({what})"
                return self._fail(event.now_s, text, pause_s=DENIED_PAUSE_S, report="target.denied")
            case ProduceReaction.NEW_LIFE:
                self._reconciling = True
                text = f"another producer has fenced this one ({what})"
                return [*self._fail(event.now_s, text), Need.NEW_INCARNATION]
            case ProduceReaction.RECONCILE:
                if _first(entry) == self._left_behind and error.stored is not Stored.YES:
                    return self._stall_out_of_order(entry)
                return self._lost_track(event.now_s, f"the target lost track of this producer ({what})")
            case ProduceReaction.LIMITS:
                self.refused_bytes = len(entry.step.data) if isinstance(entry.step, Outgoing) else 0
                text = f"the batch of source offset {_first(entry)}, {self.refused_bytes} bytes, is too large"
                return self._fail(event.now_s, f"{text} for the target", Need.LIMITS)
            case ProduceReaction.FIND_RECORD:
                return self._records_refused(event, entry, what)
            case ProduceReaction.BLOCK:
                text = f"the target refuses the batch of source offset {_first(entry)} with {what}"
                return self._block(event.now_s, "target.refuses", text)
            case _:
                assert_never(error.reaction)

    def _records_refused(self, event: ProduceRefused, entry: _Entry, what: str) -> Sequence[Effect]:
        """Find the record that the target refuses: what was merged is parted, a batch is cut, a record is poison."""
        batch, repeated = entry.step, entry.repeated
        assert isinstance(batch, Outgoing)  # noqa: S101  (only batches get a token)
        first = batch.first_offset
        if batch.reason == "repack":
            self.pass_until = batch.next_offset
            text = f"the target refuses a batch made of several, of source offset {first}, with {what}"
        elif batch.record_count > 1:
            self.cut_until = max(self.cut_until, batch.next_offset)
            text = f"the target refuses a batch of {batch.record_count} records, of source offset {first}, with {what}"
        else:
            text = f"the target refuses the record of source offset {first} with {what}"
            if not repeated or not self._quarantines:
                poison = Poison(first, batch.next_offset, batch.leader_epoch, event.code, what, was_sent=True)
                return self._meet_poison(event.now_s, poison, "target.refuses", text)
        if not repeated:
            return self._fail(event.now_s, text)
        effects = self._lost_track(event.now_s, text)
        self._careful_until = -1  # nothing was sent under the epoch to come
        return effects

    def _meet_poison(self, now_s: float, poison: Poison, report: str, text: str) -> Sequence[Effect]:
        """Wait for an operator at a record that the target refuses, or for the quarantine to keep it."""
        if not self._quarantines or self.phase is not Phase.COPYING:
            return self._block(now_s, report, text)
        effects = self._fail(now_s, text, pause_s=BLOCKED_PAUSE_S)
        self.is_blocked = True
        self._poison, self._is_kept = poison, False
        return [*effects, poison]

    def _quarantined(self, event: Quarantined) -> Sequence[Effect]:
        if self._poison is None or event.offset != self._poison.offset:
            return ()  # it was tried again meanwhile: it may be stored by now
        self._is_kept = True
        self._resume_at_s = event.now_s
        return self._tick(event.now_s)

    def _go_on_behind(self, poison: Poison, now_s: float) -> Sequence[Effect]:
        """Leave a record out that is kept in quarantine. What is in doubt behind it has the sequences that come next:
        then only another producer id may follow."""
        before = self.position.skipped
        self.position = self.position.behind(poison.next_offset, poison.leader_epoch)
        self.tally.dropped["quarantined"] += 1
        self._failures = 0
        self._rewind()
        self.phase = Phase.COPYING if self._in_doubt else Phase.STORING  # the next life must not count the hole
        effects: list[Effect] = [Need.STORE_POSITION]
        if len(self.position.skipped) != len(before) or self.tally.dropped["quarantined"] % REPORT_QUARANTINED == 0:
            text = (
                f"source offset {poison.offset} was refused ({poison.text}) and is in quarantine; it goes on behind it"
            )
            effects.append(Report("record.quarantined", text, severe=False))
        if self._in_doubt:
            effects += self._lost_track(now_s, "records in doubt stand behind one that is in quarantine")
        return effects

    def _fetch_refused(self, event: FetchRefused) -> Sequence[Effect]:
        what = f"{name_of(event.code)} ({event.code})"
        if self.phase is not Phase.COPYING:
            return ()
        if event.code == _OFFSET_OUT_OF_RANGE:
            return [*self._fail(event.now_s, f"source offset {self.fetch_offset} is out of range"), Need.OFFSETS]
        if event.code in _TOPIC_CHANGED:
            return self._fail(event.now_s, f"the source topic is gone or was made anew ({what})", Need.METADATA)
        match reaction_to(event.code):
            case Reaction.RETRY:
                return self._fail(event.now_s, f"the source answered {what}")
            case Reaction.REFRESH:
                return self._fail(event.now_s, f"the source answered {what}", Need.METADATA)
            case Reaction.DENIED:
                return self._fail(
                    event.now_s,
                    f"mm2py may not read the source topic ({what})",
                    pause_s=DENIED_PAUSE_S,
                    report="source.denied",
                )
            case Reaction.FAIL:
                return self._block(event.now_s, "source.refuses", f"the source answers {what}")

    def _offsets_found(self, event: OffsetsFound) -> Sequence[Effect]:
        at = self.position.source_offset
        if self.phase is not Phase.WAITING or self._unanswered or event.log_start <= at <= event.log_end:
            return ()  # a stale answer of a broker that was not up to date; the read is simply tried again
        if at > event.log_end:
            return self._stall_at_gap(
                GapKind.TRUNCATED,
                event.log_end,
                at - 1,
                f"the position is source offset {at} and the log ends at {event.log_end}: it was cut back or made anew",
                go_on_at=event.log_end,
            )
        if self._in_doubt:  # some of what is gone may be stored
            return self._lost_track(event.now_s, "what was sent and not acknowledged is gone from the source")
        effects = self._pass_expired(event.log_start - 1)
        if not self.stops_when_expired:
            self._rewind()
            self._failed = self.is_blocked = False
            self.phase = Phase.STORING  # the next life must not count what was left out
        return effects

    def _pass_expired(self, last: int) -> Sequence[Effect]:
        """Go on behind records that were deleted before they were copied, or stop there if that is wanted."""
        first = self.position.source_offset
        text = f"source offsets {first} to {last} were deleted before they were copied"
        if self.stops_when_expired:
            return self._stall_at_gap(GapKind.EXPIRED, first, last, text, go_on_at=last + 1)
        self.position = self.position.behind(last + 1, self.position.source_leader_epoch)
        text = f"{text}; it goes on at {last + 1}"
        return [Need.STORE_POSITION, GapFound(GapKind.EXPIRED, first, last, Done.CONTINUED, text, last + 1)]

    def _go_on(self, event: Reconciled) -> Sequence[Effect]:
        """Begin anew behind what is stored, as soon as nothing of the old epoch is on its way any more."""
        if self.phase not in {Phase.RECONCILING, Phase.WAITING, Phase.STORING}:  # a drain settles by the old answers
            self._reconciling = False
            return ()
        if self._unanswered:
            self._reconciled = event
            return ()
        self.identity = event.identity
        self.position = event.position._replace(sequence=0)
        self.owns_position = True
        self._in_doubt.clear()
        self._careful_until = self._left_behind = -1
        self._left_unanswered = False
        self._rewind()
        self._reconciling = self._failed = False
        self._alone = True
        self.phase = Phase.STORING
        return [Need.STORE_POSITION, Need.TARGET_END] if self.target_is_in_doubt else [Need.STORE_POSITION]

    def _drain(self) -> Sequence[Effect]:
        self._draining = True
        self._forget()
        self.phase = Phase.DRAINING if self._unanswered else Phase.DRAINED
        return ()

    def _tick(self, now_s: float) -> Sequence[Effect]:
        if self.resume_at_s is not None and now_s >= self.resume_at_s:
            self.is_blocked = False
            if any(not (entry.settled or entry.covered or entry.not_stored) for entry in self._in_flight):
                self._reconciling = True  # the target would not know it again (C1), and might store it twice
                return [Need.RECONCILE]
            self._failed = False
            self._trust_refusals()
            if self._poison is not None and self._is_kept:
                return self._go_on_behind(self._poison, now_s)
            self._rewind()
            self.phase = Phase.COPYING
        return ()

    # Moving on, and falling back

    def _advance(self) -> None:
        """Let the position follow the oldest steps that are settled."""
        while self._in_flight and self._in_flight[0].settled:
            entry = self._in_flight.popleft()
            step = entry.step
            if isinstance(step, Dropped):
                self.position = self.position._replace(
                    source_offset=step.next_offset, source_leader_epoch=step.leader_epoch
                )
                self.tally.dropped[step.reason] += step.record_count
            entry.lease.release(_rebuilt_bytes(step))

    def _count(self, batch: Outgoing) -> None:
        tally = self.tally
        tally.records += batch.record_count
        tally.bytes += len(batch.data)
        tally.last_timestamp_ms = batch.max_timestamp_ms
        if batch.reason is None:
            tally.passed += 1
        else:
            tally.rebuilt[batch.reason] += 1

    def _doubt_target(self) -> Sequence[Effect]:
        """Send nothing until the target was seen to hold what it acknowledged; there may be nothing yet."""
        self.doubt += 1
        self.target_is_in_doubt = self.position.target_offset is not None
        return [Need.TARGET_END] if self.target_is_in_doubt else ()

    def _answered(self, token: int) -> _Entry | None:
        """Find the batch an answer belongs to; None if it was given up meanwhile."""
        for entry in self._in_flight:
            if entry.token == token:
                self._unanswered -= 1
                return entry
        return None

    def _skip_dropped(self) -> None:
        """Take dropped steps out of the line; the position passes them with the batch before them."""
        while self._ready and isinstance(self._ready[0].step, Dropped):
            entry = self._ready.popleft()
            entry.settled = True
            self._in_flight.append(entry)
        self._advance()

    def _when_settled(self, now_s: float) -> Sequence[Effect]:
        if self.phase is Phase.DRAINING and self._unanswered == 0:
            self.phase = Phase.DRAINED
        elif self._unanswered == 0 and self._reconciled is not None:
            reconciled, self._reconciled = self._reconciled, None
            return self._go_on(reconciled)
        elif self._failed and self._unanswered == 0:
            return self._tick(now_s)
        return ()

    def _fail(
        self,
        now_s: float,
        reason: str,
        need: Need | None = None,
        *,
        pause_s: float | None = None,
        report: str | None = None,
    ) -> Sequence[Effect]:
        """Pause, then read again from the position. What was sent keeps its sequences, one batch at a time."""
        effects: list[Effect] = [] if need is None else [need]
        if self.phase is not Phase.COPYING:
            return [*self._when_settled(now_s), *(effects if self.phase is Phase.WAITING else ())]
        if report and self.reason != reason:
            effects.append(Report(report, reason))
        sent = [entry.step.next_offset for entry in self._in_flight]
        self._careful_until = max([self._careful_until, *sent])
        entries = [*self._in_flight, *(entry for entry in self._ready if entry.step.next_offset <= self._careful_until)]
        self._in_doubt = [
            *(_shape(entry.step) for entry in entries if isinstance(entry.step, Outgoing) and not entry.settled),
            *self._in_doubt,
        ]
        self._forget()
        if pause_s is None:
            pause_s = RESUME_PAUSES_S[min(self._failures, len(RESUME_PAUSES_S) - 1)]
        self._failures += 1
        self._resume_at_s = now_s + pause_s
        self._failed = True
        self.phase = Phase.WAITING
        self.reason = reason
        return effects

    def _trust_refusals(self) -> None:
        """Where nothing of what was sent can be stored, nothing is in doubt: it may be cut in another way.

        The story: a batch made of several is too large for the target; those sent behind it are out of order. They
        would come back as they were, which no longer fits, and a new epoch would have to be asked for.
        """
        sent = [entry for entry in self._in_flight if not entry.settled]
        if sent and all(entry.not_stored for entry in sent) and len(self._in_doubt) == len(sent):
            self._in_doubt.clear()
            self._careful_until = -1

    def _lost_track(self, now_s: float, reason: str) -> Sequence[Effect]:
        """Sequences mean nothing any more: only another producer id may follow, behind what is stored (H1)."""
        self._cut_reads = 0
        self._reconciling = True
        return self._fail(now_s, reason, Need.RECONCILE)

    def _block(self, now_s: float, event: str, text: str) -> Sequence[Effect]:
        """What only an operator can mend: tried again now and then, reported when it begins."""
        effects = self._fail(now_s, text, pause_s=BLOCKED_PAUSE_S, report=event)
        self.is_blocked = True
        return effects

    def _stall_at_gap(
        self, kind: GapKind, first: int | None, last: int | None, text: str, *, go_on_at: int
    ) -> Sequence[Effect]:
        self._stall(kind, text)
        return [GapFound(kind, first, last, Done.STOPPED, text, go_on_at)]

    def _stall_out_of_order(self, refused: _Entry) -> Sequence[Effect]:
        """Stop where a batch is stored and the one before it is not: sequences would count that one as stored."""
        return self._stall(
            "target.out_of_order",
            f"the target stored a batch behind the one of source offset {_first(refused)}, which it had refused; "
            "it has lost what it knew about this producer",
        )

    def _stall(self, event: str, text: str) -> Sequence[Effect]:
        self._forget()
        self.phase = Phase.STALLED
        if self._draining:
            self.phase = Phase.DRAINING if self._unanswered else Phase.DRAINED
        self.reason = text
        return [Report(event, text)]

    def _rewind(self) -> None:
        """Read again from the position, with the sequence that belongs to it."""
        self._let_go()
        self._unanswered = 0
        self._fault = self._poison = None
        self._forget()
        self.fetch_offset = self.position.source_offset
        self.fetched_epoch = self.position.source_leader_epoch
        self._sequence = self.position.sequence

    def _let_go(self) -> None:
        """Let go of what was sent and is not settled."""
        for entry in self._in_flight:
            entry.lease.release(_rebuilt_bytes(entry.step))
        self._in_flight.clear()

    def _forget(self) -> None:
        """Let go of what was read and not sent."""
        while self._ready:
            entry = self._ready.pop()
            entry.lease.release(_rebuilt_bytes(entry.step))
        self._ready_bytes = 0


def _rebuilt_bytes(step: Outgoing | Dropped) -> int:
    """Memory a step holds beyond the frame it came in."""
    return len(step.data) if isinstance(step, Outgoing) and step.reason is not None else 0


def _shape(step: Outgoing) -> _Shape:
    return step.first_offset, step.next_offset, step.record_count, step.leader_epoch


def _first(entry: _Entry) -> int:
    return entry.step.first_offset if isinstance(entry.step, Outgoing) else entry.step.next_offset
