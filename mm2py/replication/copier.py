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

The batches stand in a ``Line``, which has the rule of what may be in flight together. ``PoisonSearch``
remembers which records the target refuses. What becomes of the partition is decided here alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, assert_never

from mm2py.kafka.error_codes import name_of
from mm2py.kafka.port import ProducerIdentity
from mm2py.kafka.retry import BLOCKED_PAUSE_S, DENIED_PAUSE_S, RESUME_PAUSES_S
from mm2py.records.batch import next_sequence
from mm2py.replication import gaps_found
from mm2py.replication.events import (
    Acked,
    Displaced,
    Diverged,
    DoubtAged,
    Drain,
    Effect,
    Event,
    Fetched,
    FetchRefused,
    GapFound,
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
    UnexpectedMet,
)
from mm2py.replication.fetch_errors import fetch_error
from mm2py.replication.line import Entry, Line, Sending
from mm2py.replication.phase import Phase
from mm2py.replication.poison import REPORT_QUARANTINED, PoisonSearch, came_whole, fault_text, left_out, poison_of
from mm2py.replication.position import Position
from mm2py.replication.produce_errors import ProduceReaction, Stored, produce_error
from mm2py.replication.steps import DAMAGED_READS_MAX, Fault
from mm2py.replication.tally import Tally

__all__ = ["Copier", "Phase"]

_EARLIER_LIFE: Final = (
    "an earlier life is being shut out, and what it wrote looked up; it takes READ and WRITE on the remote topic"
)
_NUMBERS = re.compile(r"(?<=offset )\d+|\d+(?= bytes)")


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
        self.reason = _EARLIER_LIFE if reconciling else ""
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
        self.search = PoisonSearch(quarantines=quarantines)
        self.stop = gaps_found.Stop()
        self._line = Line(name, ready_max_bytes=ready_max_bytes)
        self._resume_at_s = 0.0
        self._failures = 0
        self._fault: Fault | None = None
        self._damaged_reads = 0
        """How often in a row the batch at the position came damaged."""
        self._failed = False
        self._draining = False
        self._reconciling = False
        self._reconciled: Reconciled | None = None
        self._left_unanswered = False
        """An answer stayed away, or left it open, when nothing was to be sent again any more."""

    # What the shell asks for

    def read_ahead(self, ready_max_bytes: int) -> None:
        """Let so much be read that is not sent yet, from now on."""
        self._line.ready_max_bytes = ready_max_bytes

    def quarantine(self, wanted: bool) -> None:
        """Let records that the target refuses be kept elsewhere, or waited for, from the next one that is found on."""
        self.search.quarantines = wanted

    @property
    def is_unsettled(self) -> bool:
        """Something was sent behind the position that may be stored, or arrive, later: it is to be shut out."""
        behind = self._line.unanswered > 0 or self.position.source_offset < self._line.careful_until
        return self.owns_position and (behind or self._reconciling or self._left_unanswered)

    @property
    def wants_fetch(self) -> bool:
        """A read may bring more, and there is room for it."""
        if self.phase is not Phase.COPYING or self._fault is not None:
            return False
        return self._line.wants_more(is_at_end=self.is_at_end)

    @property
    def is_at_end(self) -> bool:
        """All that was there at the last read has been read: the next read will wait for more."""
        return self.end_offset is not None and self.fetch_offset >= self.end_offset

    @property
    def sent_before(self) -> Sequence[tuple[int, int]]:
        """(first, next) source offset of each batch whose outcome is in doubt: it must be cut in the same way again."""
        return self._line.sent_before

    @property
    def target_is_behind(self) -> bool:
        """As much is on its way to the target as may be, and more waits."""
        return self._line.target_is_behind

    @property
    def has_batches(self) -> bool:
        return self._line.has_batches

    @property
    def ready_bytes(self) -> int:
        """Size of the batches that wait to be sent."""
        return self._line.ready_bytes

    @property
    def is_idle(self) -> bool:
        """Nothing is in flight or waiting to be sent."""
        return self._line.is_idle

    @property
    def resume_at_s(self) -> float | None:
        """When a ``Tick`` ends the pause; None while none is due."""
        due = self.phase is Phase.WAITING and not self._reconciling and self._line.unanswered == 0
        return self._resume_at_s if due else None

    @property
    def vouched_offset(self) -> int | None:
        """Up to where the target must hold the partition; None where that cannot be asked just now, or no more."""
        settled = self.phase in {Phase.STORING, Phase.COPYING, Phase.WAITING} and not self._reconciling
        return self.position.target_offset if settled else None

    @property
    def real_position(self) -> Position:
        """The position with the target offset up to which the remote partition holds it; see ``Stop``."""
        return self.stop.as_it_is(self.position)

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
        """Return the next batch if one may be sent now to ``broker``. Arguments as of ``Line.next_batch``."""
        if self.phase is not Phase.COPYING or self.target_is_in_doubt:
            return None
        return self._line.next_batch(broker, covered_after_ms, self.identity)

    def doubt_has_aged(self, covered_after_ms: int) -> bool:
        """``next_batch`` gives none, as what is to be sent again is too old for that by now: ``DoubtAged`` follows."""
        may_send = self.phase is Phase.COPYING and not self.target_is_in_doubt
        return may_send and self._line.doubt_has_aged(covered_after_ms)

    # What happens to it

    def handle(self, event: Event) -> Sequence[Effect]:
        """Take in one fact and return what is to be done about it."""
        effects = self._take_in(event)
        if self._line.has_failed and self.phase in {Phase.STALLED, Phase.DRAINED}:
            self._line.let_go()  # nothing will be sent again: what was not acknowledged takes no memory any more
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
                if self._line.answered(event.token) is None:
                    return ()
                self._left_unanswered |= self.phase not in {Phase.COPYING, Phase.WAITING}
                text = f"no answer from the target: {event.why}"
                return [*self._doubt_target(), *self._fail(event.now_s, text, Need.METADATA)]
            case DoubtAged():
                return self._lost_track(event.now_s, "the target may have forgotten what it did not acknowledge")
            case FetchRefused():
                return self._fetch_refused(event)
            case OffsetsFound():
                return self._offsets_found(event)
            case Diverged():
                return self._stall_at(gaps_found.source_cut_back(event, self.position, fetch_offset=self.fetch_offset))
            case PositionStored():
                if self.phase is Phase.STORING and event.identity == self.identity:
                    self.phase = Phase.DRAINED if self._draining else Phase.COPYING
                return ()
            case Reconciled():
                return self._go_on(event)
            case UnexpectedMet():
                return self._stall_at(gaps_found.unexpected_met(event, self.position), is_looked_up=event.is_known)
            case SourceRewritten():
                return self._stall_at(gaps_found.source_rewritten(event), is_looked_up=True)
            case TargetLost():
                looked_up = self._reconciling or not self.owns_position
                gap, lost = gaps_found.target_lost(event, self.position), self.real_position.target_beyond(event.end)
                return self._stall_at(gap, lost=lost, is_looked_up=looked_up)
            case TargetLed():
                before, self.target_leader_epoch = self.target_leader_epoch, event.leader_epoch
                return () if before in {None, event.leader_epoch} else self._doubt_target()
            case TargetShort():
                self._doubt_target()
                return ()
            case TargetWhole():
                self.target_is_in_doubt &= event.doubt != self.doubt
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
        plan, line = event.plan, self._line
        if line.is_in_doubt and (why := line.reads_otherwise(plan)) is not None:
            return self._lost_track(event.now_s, why)
        self.end_offset = max(event.end_offset, plan.next_offset)
        effects: list[Effect] = []
        if plan.steps:
            if self._damaged_reads:
                effects.append(came_whole(self.fetch_offset, self._damaged_reads))
                self._damaged_reads = 0
            line.take(plan.steps, event.lease)
            self._advance()
            self.fetched_epoch = plan.steps[-1].leader_epoch
        self.fetch_offset = plan.next_offset
        self._fault = plan.fault
        if not plan.steps and plan.fault is None and not line.unanswered:
            self._failures = 0  # nothing to send, and reading works again
        return [*effects, *self._meet_fault(event.now_s)]

    def _meet_fault(self, now_s: float) -> Sequence[Effect]:
        """A batch that cannot be copied is reported when all before it are stored; reading stops at it meanwhile."""
        fault = self._fault
        if fault is None or not self._line.is_idle:
            return ()
        if fault.is_damage and self._damaged_reads < DAMAGED_READS_MAX:
            self._damaged_reads += 1
            return self._fail(now_s, f"a batch came damaged and is read again: {fault.text}")
        text, report = fault_text(fault), f"source.{fault.kind.replace(' ', '_')}"
        poison = poison_of(fault)
        return self._block(now_s, report, text) if poison is None else self._meet_poison(now_s, poison, report, text)

    def _acked(self, event: Acked) -> Sequence[Effect]:
        line = self._line
        entry = line.answered(event.token)
        if entry is None:
            return ()
        oldest = line.oldest  # what is settled at the head has left the line
        if oldest is not entry:
            if oldest.not_stored and not self._reconciling:
                return self._stall_out_of_order(oldest)
            line.overtake()
            return self._when_settled(event.now_s)  # both are sent again, and recognised
        real, displaced = self.real_position, list[Effect]()
        expected, lost = real.target_offset, real.target_beyond(event.base_offset)
        if event.base_offset < 0 or (lost and entry.repeated):
            where = f"at offset {event.base_offset}" if event.base_offset >= 0 else "nobody knows where"
            return self._lost_track(event.now_s, f"the target stored a batch {where}, it was expected at {expected}")
        if expected is not None and event.base_offset > expected:
            displaced.append(Displaced(expected, event.base_offset, sent_before=entry.repeated))
        cut_back = gaps_found.target_stored_before(real, event.base_offset) if lost else None
        batch = entry.batch
        self.tally.count(batch)
        sequence = next_sequence(entry.sequence, batch.record_count)
        end = event.base_offset + batch.record_count + lost
        at = Position(batch.next_offset, batch.leader_epoch, end, self.target_leader_epoch, sequence)
        self.position = self.stop.as_if_whole(at)
        line.settle()
        self._failures = 0
        if self.phase is Phase.COPYING:
            self.reason = ""
        self._advance()
        if cut_back is not None:
            return self._stall_at(cut_back, lost=lost)
        effects = self._when_settled(event.now_s) or self._meet_fault(event.now_s)
        return [*displaced, *effects] if displaced else effects

    def _produce_refused(self, event: ProduceRefused) -> Sequence[Effect]:
        entry = self._line.answered(event.token)
        if entry is None:
            return ()
        error = produce_error(event.code)
        entry.refuse(error.stored)
        what = f"{name_of(event.code)} ({event.code})"
        if event.message:
            what += f": {event.message}"
        if self._failed or self.phase is not Phase.COPYING:  # what this one says follows from an earlier one's failure
            self._left_unanswered |= error.stored is not Stored.NO and self.phase is not Phase.WAITING
            return self._when_settled(event.now_s)
        first = entry.batch.first_offset
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
                if self._line.is_left_behind(entry) and error.stored is not Stored.YES:
                    return self._stall_out_of_order(entry)
                return self._lost_track(event.now_s, f"the target lost track of this producer ({what})")
            case ProduceReaction.LIMITS:
                self.refused_bytes = len(entry.batch.data)
                text = f"the batch of source offset {first}, {self.refused_bytes} bytes, is too large for the target"
                return self._fail(event.now_s, text, Need.LIMITS)
            case ProduceReaction.FIND_RECORD:
                return self._records_refused(event, entry, what)
            case ProduceReaction.BLOCK:
                text = f"the target refuses the batch of source offset {first} with {what}"
                return self._block(event.now_s, "target.refuses", text)
            case _:
                assert_never(error.reaction)

    def _records_refused(self, event: ProduceRefused, entry: Entry, what: str) -> Sequence[Effect]:
        """Read the batch again in smaller pieces; a record that is refused alone is poison."""
        repeated = entry.repeated
        poison, text = self.search.narrow(entry.batch, event.code, what)
        if poison is not None and not (repeated and self.search.quarantines):
            return self._meet_poison(event.now_s, poison, "target.refuses", text)
        if not repeated:
            return self._fail(event.now_s, text)
        effects = self._lost_track(event.now_s, text)
        self._line.careful_until = -1  # nothing was sent under the epoch to come
        return effects

    def _meet_poison(self, now_s: float, poison: Poison, report: str, text: str) -> Sequence[Effect]:
        """Wait for an operator at a record that the target refuses, or for the quarantine to keep it."""
        if not self.search.quarantines or self.phase is not Phase.COPYING:
            return self._block(now_s, report, text)
        effects = self._fail(now_s, text, pause_s=BLOCKED_PAUSE_S)
        self.is_blocked = True
        self.search.keep(poison)
        return [*effects, poison]

    def _quarantined(self, event: Quarantined) -> Sequence[Effect]:
        if not self.search.kept(event.offset):
            return ()
        self._resume_at_s = event.now_s
        return self._tick(event.now_s)

    def _go_on_behind(self, poison: Poison, now_s: float) -> Sequence[Effect]:
        """Leave a record out that is kept in quarantine. What is in doubt behind it has the sequences that come next:
        then only another producer id may follow."""
        before = self.position.skipped
        self.position = self.position.behind(poison.next_offset, poison.leader_epoch)
        count = self.tally.count_quarantined()
        self._failures = 0
        self._rewind()
        self.phase = Phase.COPYING if self._line.is_in_doubt else Phase.STORING  # the next life must not count the hole
        effects: list[Effect] = [Need.STORE_POSITION]
        if len(self.position.skipped) != len(before) or count % REPORT_QUARANTINED == 0:
            effects.append(left_out(poison))
        if self._line.is_in_doubt:
            effects += self._lost_track(now_s, "records in doubt stand behind one that is in quarantine")
        return effects

    def _fetch_refused(self, event: FetchRefused) -> Sequence[Effect]:
        if self.phase is not Phase.COPYING:
            return ()
        error = fetch_error(event.code, self.fetch_offset)
        effects = self._fail(event.now_s, error.text, error.need, pause_s=error.pause_s, report=error.report)
        self.is_blocked |= error.blocks
        return effects

    def _offsets_found(self, event: OffsetsFound) -> Sequence[Effect]:
        at = self.position.source_offset
        if self.phase is not Phase.WAITING or self._line.unanswered or event.log_start <= at <= event.log_end:
            return ()  # a stale answer of a broker that was not up to date; the read is simply tried again
        if at > event.log_end:
            return self._stall_at(gaps_found.source_ends_before(self.position, event.log_end))
        if self._line.is_in_doubt:  # some of what is gone may be stored
            return self._lost_track(event.now_s, "what was sent and not acknowledged is gone from the source")
        gap = gaps_found.source_expired(self.position, event.log_start, stops=self.stops_when_expired)
        if self.stops_when_expired:
            return self._stall_at(gap)
        self.position = self.position.behind(gap.go_on_at, self.position.source_leader_epoch)
        self._rewind()
        self._failed = self.is_blocked = False
        self.phase = Phase.STORING  # the next life must not count what was left out
        return [Need.STORE_POSITION, gap]

    def _go_on(self, event: Reconciled) -> Sequence[Effect]:
        """Begin anew behind what is stored, as soon as nothing of the old epoch is on its way any more."""
        stalled = self.phase is Phase.STALLED and self.stop.is_pending
        if not stalled and self.phase not in {Phase.RECONCILING, Phase.WAITING, Phase.STORING}:
            self._reconciling = False  # a drain settles by the old answers
            return ()
        if self._line.unanswered:
            self._reconciled = event
            return ()
        self.identity = event.identity
        self.position = self.stop.as_if_whole(event.position)._replace(sequence=0)
        self.owns_position = True
        self._line.begin_anew()
        self._left_unanswered = False
        self._rewind()
        self._reconciling = self._failed = False
        if stalled:
            return [Need.STORE_POSITION, *self._say_gaps()]
        self.phase = Phase.STORING
        return [Need.STORE_POSITION, Need.TARGET_END] if self.target_is_in_doubt else [Need.STORE_POSITION]

    def _drain(self) -> Sequence[Effect]:
        """Come to an end. What is in doubt now stays so: an answer that comes later changes nothing here any more, and
        whoever goes on with this partition has to look."""
        self._draining = True
        self._left_unanswered |= self._reconciling
        self._line.forget()
        self.phase = Phase.DRAINING if self._line.unanswered else Phase.DRAINED
        return self._say_gaps()

    def _tick(self, now_s: float) -> Sequence[Effect]:
        if self.resume_at_s is not None and now_s >= self.resume_at_s:
            self.is_blocked = False
            if self._line.may_be_forgotten:
                self._reconciling = True  # the target would not know it again (C1), and might store it twice
                return [Need.RECONCILE]
            self._failed = False
            self._line.trust_refusals()
            if self.search.found is not None and self.search.is_kept:
                return self._go_on_behind(self.search.found, now_s)
            self._rewind()
            self.phase = Phase.COPYING
        return ()

    # Moving on, and falling back

    def _advance(self) -> None:
        """Let the position follow the oldest steps that are settled."""
        while (step := self._line.leave()) is not None:
            self.position = self.position._replace(
                source_offset=step.next_offset, source_leader_epoch=step.leader_epoch
            )
            self.tally.count_dropped(step)

    def _doubt_target(self) -> Sequence[Effect]:
        """Send nothing until the target was seen to hold what it acknowledged; there may be nothing yet."""
        self.doubt += 1
        self.target_is_in_doubt = self.position.target_offset is not None
        return [Need.TARGET_END] if self.target_is_in_doubt else ()

    def _when_settled(self, now_s: float) -> Sequence[Effect]:
        if self.phase is Phase.DRAINING and self._line.unanswered == 0:
            self.phase = Phase.DRAINED
            return self._say_gaps()
        if self._line.unanswered == 0 and self._reconciled is not None:
            reconciled, self._reconciled = self._reconciled, None
            return self._go_on(reconciled)
        if self.phase is Phase.STALLED:
            return self._say_gaps()
        if self._failed and self._line.unanswered == 0:
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
        self._line.doubt()
        if pause_s is None:
            pause_s = RESUME_PAUSES_S[min(self._failures, len(RESUME_PAUSES_S) - 1)]
        self._failures += 1
        self._resume_at_s = now_s + pause_s
        self._failed = True
        self.phase = Phase.WAITING
        self.reason = reason
        return effects

    def _lost_track(self, now_s: float, reason: str) -> Sequence[Effect]:
        """Sequences mean nothing any more: only another producer id may follow, behind what is stored (H1)."""
        self._reconciling |= self.phase is not Phase.STALLED  # see _say_gaps
        return self._fail(now_s, reason, Need.RECONCILE)

    def _block(self, now_s: float, event: str, text: str) -> Sequence[Effect]:
        """What only an operator can mend: tried again now and then, reported when it begins."""
        effects = self._fail(now_s, text, pause_s=BLOCKED_PAUSE_S, report=event)
        self.is_blocked = True
        return effects

    def _stall_at(self, gap: GapFound, *, lost: int = 0, is_looked_up: bool = False) -> Sequence[Effect]:
        """Stop at a gap. ``lost``, ``is_looked_up``: see ``Stop.meet``."""
        self.stop.meet(gap, self.position, lost=lost, is_looked_up=is_looked_up)
        self._stall(gap.text)
        return self._say_gaps()

    def _say_gaps(self) -> Sequence[Effect]:
        """Say what gaps were met once all that was sent is settled. What is in doubt then is looked up before."""
        stop, line = self.stop, self._line
        if not stop.is_pending or line.unanswered:
            return ()
        if self.phase is Phase.STALLED and not stop.is_looked_up:
            if self._reconciling or not self.owns_position:
                return ()  # ``Reconciled`` is to come
            line.trust_refusals()
            if self.position.source_offset < line.careful_until:
                self._reconciling = True
                return [Need.RECONCILE]
        return stop.settle(self.position)

    def _stall_out_of_order(self, refused: Entry) -> Sequence[Effect]:
        """Stop where a batch is stored and the one before it is not: sequences would count that one as stored."""
        self.stop.outdo()
        self._stall(gaps_found.out_of_order(refused.batch.first_offset))
        return [Report("target.out_of_order", self.reason), *self._say_gaps()]

    def _stall(self, text: str) -> None:
        if self.phase is Phase.COPYING:
            self._line.doubt()
        self._line.forget()
        self.phase = Phase.STALLED
        if self._draining:
            self.phase = Phase.DRAINING if self._line.unanswered else Phase.DRAINED
        self.reason = text

    def _rewind(self) -> None:
        """Read again from the position, with the sequence that belongs to it."""
        self._line.rewind(self.position.sequence)
        self._fault = self.search.found = None
        self.fetch_offset = self.position.source_offset
        self.fetched_epoch = self.position.source_leader_epoch
