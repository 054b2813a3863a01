"""The copier: how one source partition becomes its remote partition. Pure.

``handle`` takes an event and returns effects: what the shell must do. The shell calls ``next_batch`` whenever there is
room to send. Nothing else changes a copier. ``states`` declares its states and transitions
(docs/internals/copier-states.md).

One rule makes failures simple: *whatever goes wrong, forget everything that was not acknowledged, wait until nothing is
in flight, and read again from the position*. The same source batches then have the same sequences, so the broker drops
what it has already stored. Where that does not hold (docs/broker-facts.md#c1, #h1, #h2), the copier asks for
``Need.RECONCILE``: the shell fences its producer, and looks up what this producer has stored.

Counterpart: WorkerSourceTask and MirrorSourceTask of Apache Kafka's Connect, for one partition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, assert_never

from mm2py.copying import events, states
from mm2py.copying import gaps as gaps_found
from mm2py.copying.events import CopySettings, Displaced, Effect, Event, GapFound, Need, OperatorNotice, Poison
from mm2py.copying.gaps import REPORT_QUARANTINED, PoisonSearch, came_whole, fault_text, left_out, poison_of
from mm2py.copying.in_flight import InFlightBatches, InFlightEntry, Sending
from mm2py.copying.partition_errors import (
    BLOCKED_PAUSE_S,
    DENIED_PAUSE_S,
    LIMITS_PAUSE_S,
    RESUME_PAUSES_S,
    ProduceReaction,
    Stored,
    fetch_error,
    produce_error,
)
from mm2py.copying.planning.steps import DAMAGED_READS_MAX, Fault, Tally
from mm2py.copying.positions import Position
from mm2py.copying.states import (
    Copying,
    Drained,
    Draining,
    Ending,
    Reconciling,
    State,
    Stopped,
    Storing,
    Waiting,
    gaps_of,
    next_state,
)
from mm2py.kafka.error_codes import name_of
from mm2py.kafka.errors import plain_message
from mm2py.kafka.port import ProducerIdentity
from mm2py.offsets.runs import Hole, HoleCause, NewRuns
from mm2py.records.batch import next_sequence

_NUMBERS: Final = re.compile(r"(?<=offset )\d+|\d+(?= bytes)")
FENCING: Final = (
    "previous producers are being fenced, and what they wrote looked up; it takes READ and WRITE on the remote topic"
)


class Copier:
    """The copying of one partition."""

    def __init__(
        self,
        name: str,
        position: Position,
        identity: ProducerIdentity,
        settings: CopySettings,
        *,
        lookup: str | None = None,
    ) -> None:
        """Make a copier that waits for its position to be stored.

        Args:
            lookup: why the shell must look up what other producers have written after ``position`` (see
                ``Reconciled``), in words for the operator. None: nothing was written after it.
        """
        self.name = name
        self.position = position._replace(sequence=0)
        self.identity = identity
        self.settings = settings
        self.state: State = Storing() if lookup is None else Reconciling(cause=lookup, owns_position=False)
        self.fetch_offset = position.source_offset
        self.fetched_epoch = position.source_leader_epoch
        self.is_paused = False
        """An operator has paused it: nothing is read, whatever its state is. So nothing waits to be sent either."""
        self.end_offset: int | None = None
        self.target_leader_epoch: int | None = None
        self.end_checks = 0
        """How often there was a reason to check that the target still has every batch that it acknowledged: a new
        leader epoch (docs/broker-facts.md#m4), a missing answer, or an answer from a broker that may no longer lead."""
        self.tally = Tally()
        self.new_runs = NewRuns()
        """Runs of the records that the target has acknowledged since the shell last took this field."""
        self.refused_bytes = 0
        """Size of the batch that the target last refused as too large, until ``LimitsFound``."""
        self.search = PoisonSearch(quarantines=settings.quarantines)
        self.in_flight = InFlightBatches(name, ready_max_bytes=settings.ready_max_bytes)
        self._end_checked = 0
        """The highest value of ``end_checks`` for which the target had every acknowledged batch."""
        self._failures = 0
        self._fault: Fault | None = None
        self._damaged_reads = 0
        """How many reads in a row brought a damaged batch at the position."""

    def next_batch(self, broker: int, retained_after_ms: int) -> Sending | None:
        """Return the next batch if one may be sent now to ``broker``. Arguments: see ``InFlightBatches``."""
        if type(self.state) is not Copying or self.end_checks != self._end_checked:
            return None
        return self.in_flight.next_batch(broker, retained_after_ms, self.identity)

    def handle(self, event: Event) -> Sequence[Effect]:
        """Apply one event, and return the effects that the shell must carry out."""
        effects = self._take_in(event)
        if isinstance(self.state, (Stopped, Drained)) and self.in_flight.has_failed:
            self.in_flight.release()  # nothing will be sent again
        return effects

    def _take_in(self, event: Event) -> Sequence[Effect]:
        match event:
            case events.Fetched():
                return self._fetched(event)
            case events.Acked():
                return self._acked(event)
            case events.ProduceRefused():
                return self._produce_refused(event)
            case events.ProduceLost():
                return self._produce_lost(event)
            case events.TooOldToResend():
                return self._lost_track(event.now_s, "the target may have forgotten what it did not acknowledge")
            case events.FetchRefused():
                return self._fetch_refused(event)
            case events.OffsetsFound():
                return self._offsets_found(event)
            case events.Diverged():
                if self.is_paused:
                    return ()  # a read that was under way; the next one finds the same
                return self._stall_at(gaps_found.source_cut_back(event, self.position, fetch_offset=self.fetch_offset))
            case events.PositionStored():
                if isinstance(self.state, Storing) and event.identity == self.identity:
                    self._change(event)
                    self.tally.begin(self.position.source_offset, self.position.target_offset)
                return ()
            case events.Reconciled():
                return self._reconciled(event)
            case events.LookupWaits():
                if isinstance(self.state, Reconciling):
                    self._change(event)
                return ()
            case events.UnexpectedMet():
                return self._stall_at(gaps_found.unexpected_met(event, self.position), is_looked_up=event.is_known)
            case events.SourceRewritten():
                return self._stall_at(gaps_found.source_rewritten(event), is_looked_up=True)
            case events.TargetLost():
                gap, lost = gaps_found.target_lost(event, self.position), self.real_position.target_beyond(event.end)
                return self._stall_at(gap, lost=lost, is_looked_up=self.awaits_lookup)
            case events.TargetLed():
                before, self.target_leader_epoch = self.target_leader_epoch, event.leader_epoch
                return () if before in {None, event.leader_epoch} else self._check_end()
            case events.TargetShort():
                self._check_end()
                return ()
            case events.TargetWhole():
                self._end_checked = max(self._end_checked, event.check)
                return ()
            case events.Quarantined():
                return self._quarantined(event)
            case events.LimitsFound():
                self.refused_bytes = 0
                return ()
            case events.SettingsChanged():
                self.settings = event.settings
                self.search.quarantines = event.settings.quarantines
                self.in_flight.ready_max_bytes = event.settings.ready_max_bytes
                return ()
            case events.PauseChanged():
                self._heed_pause(event.is_paused)
                return ()
            case events.Drain():
                self.in_flight.forget()
                self._change(states.DrainStarted(is_idle=not self.in_flight.unanswered))
                return self._report_gaps()
            case events.DrainGivenUp():
                return self._report_now() if self.has_untold_gaps else ()
            case events.RestartAsked():
                return self._restart(event.now_s)
            case events.Tick():
                return self._tick(event.now_s)
            case _:
                assert_never(event)

    def _change(self, change: states.Change) -> None:
        self.state = next_state(self.state, change)

    def _fetched(self, event: events.Fetched) -> Sequence[Effect]:
        if type(self.state) is not Copying or self.is_paused or event.fetch_offset != self.fetch_offset:
            return ()  # a rewind, or a pause, has overtaken this read: its offsets are read again
        plan, in_flight = event.plan, self.in_flight
        if in_flight.has_unknown_outcomes and (why := in_flight.reads_otherwise(plan)) is not None:
            return self._lost_track(event.now_s, why)
        self.end_offset = max(event.end_offset, plan.next_offset)
        damaged_reads = self._damaged_reads
        if plan.steps:
            in_flight.take(plan.steps, event.lease)
            self._advance()
            self.fetched_epoch = plan.steps[-1].leader_epoch
            self._damaged_reads = 0
        elif plan.fault is None and not in_flight.unanswered:
            self._failures = 0  # nothing to send, and reading works again
        self.fetch_offset = plan.next_offset
        self._fault = plan.fault
        effects = () if plan.fault is None else self._meet_fault(event.now_s)
        if damaged_reads and plan.steps:
            return [came_whole(event.fetch_offset, damaged_reads), *effects]
        return effects

    def _meet_fault(self, now_s: float) -> Sequence[Effect]:
        """Report a batch that cannot be copied, once all batches before it are stored. Reading stops at this batch."""
        fault = self._fault
        if fault is None or type(self.state) is not Copying or not self.in_flight.is_idle:
            return ()
        if fault.is_damage and self._damaged_reads < DAMAGED_READS_MAX:
            self._damaged_reads += 1
            return self._fail(now_s, f"a batch came damaged and is read again: {fault.text}")
        text, report = fault_text(fault), f"source.{fault.kind.replace(' ', '_')}"
        poison = poison_of(fault)
        return self._block(now_s, report, text) if poison is None else self._meet_poison(now_s, poison, report, text)

    def _acked(self, event: events.Acked) -> Sequence[Effect]:
        in_flight = self.in_flight
        entry = in_flight.answered(event.token)
        if entry is None:
            return ()
        oldest = in_flight.oldest  # settled steps before it have left already
        if oldest is not entry:
            if oldest.not_stored and not self.awaits_lookup:
                return self._stall_at_hole(oldest)
            in_flight.overtake()
            return self._when_settled(event.now_s)  # both are sent again, and the target recognises them
        gaps = gaps_of(self.state)
        real, displaced = gaps.as_it_is(self.position), list[Effect]()
        expected, lost = real.target_offset, real.target_beyond(event.base_offset)
        if event.base_offset < 0 or (lost and entry.repeated):
            where = f"at offset {event.base_offset}" if event.base_offset >= 0 else "at an unknown offset"
            return self._lost_track(event.now_s, f"the target stored a batch {where}, it was expected at {expected}")
        if expected is not None and event.base_offset > expected:
            displaced.append(Displaced(expected, event.base_offset, sent_before=entry.repeated))
        cut_back = gaps_found.target_stored_before(real, event.base_offset) if lost else None
        batch = entry.batch
        self.tally.count(batch)
        sequence = next_sequence(entry.sequence, batch.record_count)
        end = event.base_offset + batch.record_count + lost
        at = Position(batch.next_offset, batch.leader_epoch, end, self.target_leader_epoch, sequence)
        self.position = gaps.as_if_whole(at)
        in_flight.settle()
        if batch.jumps:
            self.new_runs.add_batch(batch.runs(), event.base_offset, batch.record_count)
        else:
            self.new_runs.add(batch.first_offset, event.base_offset, batch.record_count)
        self._failures = 0
        if type(self.state) is Copying and self.state.cause:
            self._change(states.BatchStored())
        self._advance()
        if cut_back is not None:
            return self._stall_at(cut_back, lost=lost)
        if type(self.state) is Copying and self._fault is None:  # nearly always
            return displaced
        effects = self._when_settled(event.now_s) or self._meet_fault(event.now_s)
        return [*displaced, *effects] if displaced else effects

    def _produce_lost(self, event: events.ProduceLost) -> Sequence[Effect]:
        if self.in_flight.answered(event.token) is None:
            return ()
        self._lose_answer()
        text = f"no answer from the target: {event.why}"
        return [*self._check_end(), *self._fail(event.now_s, text, Need.METADATA)]

    def _produce_refused(self, event: events.ProduceRefused) -> Sequence[Effect]:
        entry = self.in_flight.answered(event.token)
        if entry is None:
            return ()
        error = produce_error(event.code)
        entry.refuse(error.stored)
        what = f"{name_of(event.code)} ({event.code})"
        if event.message:
            what += f": {plain_message(event.message)}"
        if type(self.state) is not Copying:  # this refusal follows from the failure of an earlier batch
            if error.stored is not Stored.NO:
                self._lose_answer()
            return self._when_settled(event.now_s)
        first = entry.batch.first_offset
        match error.reaction:
            case ProduceReaction.RESEND:
                return self._fail(event.now_s, f"the target answered {what}")
            case ProduceReaction.REFRESH:
                text = f"the target answered {what}"
                return [*self._check_end(), *self._fail(event.now_s, text, Need.METADATA)]
            case ProduceReaction.DENIED:
                text = f"mm2py may not write to the remote topic ({what})"
                report, pause_s = "target.denied", DENIED_PAUSE_S
                return self._fail(event.now_s, text, pause_s=pause_s, report=report, refused_with=event.code)
            case ProduceReaction.NEW_INCARNATION:
                return self._lost_track(
                    event.now_s, f"another producer has fenced this one ({what})", Need.NEW_INCARNATION
                )
            case ProduceReaction.RECONCILE:
                if self.in_flight.is_left_behind(entry) and error.stored is not Stored.YES:
                    return self._stall_at_hole(entry)
                return self._lost_track(event.now_s, f"the target lost track of this producer ({what})")
            case ProduceReaction.LIMITS:
                self.refused_bytes = len(entry.batch.data)
                text = f"the batch of source offset {first}, {self.refused_bytes} bytes, is too large for the target"
                return self._fail(event.now_s, text, Need.LIMITS)
            case ProduceReaction.FIND_RECORD:
                return self._records_refused(event, entry, what)
            case ProduceReaction.TIMESTAMP_LIMITS:
                return self._timestamp_refused(event, entry, what)
            case ProduceReaction.BLOCK:
                text = f"the target refuses the batch of source offset {first} with {what}"
                return self._block(event.now_s, "target.refuses", text, event.code)
            case _:
                assert_never(error.reaction)

    def _lose_answer(self) -> None:
        """Note that the outcome of a batch stays unknown. In an ending state no resend will show it."""
        if isinstance(self.state, (Stopped, Draining)):
            self._change(states.AnswerLost())

    def _timestamp_refused(self, event: events.ProduceRefused, entry: InFlightEntry, what: str) -> Sequence[Effect]:
        """Ask that the remote topic gets the limits of its upstream topic, and send the batch once more.

        If the batch is refused again, find the record, and ask for the limits after each further refusal. With
        quarantine the shell sets the limits itself before it keeps a record.
        """
        if self.search.quarantines:
            return self._records_refused(event, entry, what)
        if not (entry.repeated or self.is_failing):
            text = f"the target refuses a batch of source offset {entry.batch.first_offset} with {what}"
            return self._fail(event.now_s, text, Need.TIMESTAMP_LIMITS, pause_s=LIMITS_PAUSE_S)
        effects = self._records_refused(event, entry, what)
        return [*effects, Need.TIMESTAMP_LIMITS] if self.is_blocked else effects

    def _records_refused(self, event: events.ProduceRefused, entry: InFlightEntry, what: str) -> Sequence[Effect]:
        """Read the batch again in smaller pieces; a record that is refused alone is poison."""
        repeated = entry.repeated
        poison, text = self.search.narrow(entry.batch, event.code, what)
        if poison is not None and not (repeated and self.search.quarantines):
            return self._meet_poison(event.now_s, poison, "target.refuses", text)
        if not repeated:
            return self._fail(event.now_s, text)
        effects = self._lost_track(event.now_s, text)
        self.in_flight.maybe_sent_until = -1  # nothing was sent yet under the next epoch
        return effects

    def _meet_poison(self, now_s: float, poison: Poison, report: str, text: str) -> Sequence[Effect]:
        """Wait at a record that the target refuses, for an operator or until the quarantine has stored it."""
        if not self.search.quarantines:
            return self._block(now_s, report, text, poison.code)
        effects = self._fail(now_s, text, pause_s=BLOCKED_PAUSE_S, is_blocked=True)
        self.search.keep(poison)
        return [*effects, poison]

    def _quarantined(self, event: events.Quarantined) -> Sequence[Effect]:
        if not self.search.kept(event.offset) or not isinstance(self.state, Waiting):
            return ()
        self._change(states.RecordKept(event.now_s))
        return self._tick(event.now_s)

    def _go_on_behind(self, poison: Poison, now_s: float) -> Sequence[Effect]:
        """Continue after a record that is in quarantine.

        If batches of unknown outcome follow it, they have used the next sequences. Then copying can continue only under
        another producer id.
        """
        before = self.position.skipped
        self._note_skipped(poison.next_offset, HoleCause.QUARANTINED)
        self.position = self.position.behind(poison.next_offset, poison.leader_epoch)
        count = self.tally.count_quarantined()
        self._failures = 0
        self._rewind()
        effects: list[Effect] = [Need.STORE_POSITION]
        if len(self.position.skipped) != len(before) or count % REPORT_QUARANTINED == 0:
            effects.append(left_out(poison))
        if self.in_flight.has_unknown_outcomes:
            return [*effects, *self._lost_track(now_s, "batches that may be stored stand behind one in quarantine")]
        self._change(states.RecordsLeftOut())
        return effects

    def _heed_pause(self, is_paused: bool) -> None:
        """Pause, or go on. What was read and not sent is read again then, so that it takes no memory meanwhile."""
        self.is_paused = is_paused
        if is_paused and type(self.state) is Copying:
            last = self.in_flight.unread()
            self._fault = None
            self.fetch_offset = self.position.source_offset if last is None else last.next_offset
            self.fetched_epoch = self.position.source_leader_epoch if last is None else last.leader_epoch

    def _fetch_refused(self, event: events.FetchRefused) -> Sequence[Effect]:
        if type(self.state) is not Copying or self.is_paused:
            return ()
        error = fetch_error(event.code, self.fetch_offset)
        return self._fail(
            event.now_s, error.text, error.need, pause_s=error.pause_s, report=error.report, is_blocked=error.blocks
        )

    def _offsets_found(self, event: events.OffsetsFound) -> Sequence[Effect]:
        at = self.position.source_offset
        is_due = isinstance(self.state, Waiting) and not self.in_flight.unanswered
        if not is_due or event.log_start <= at <= event.log_end:
            return ()  # a stale answer, from a broker that was not up to date: the read is tried again
        if at > event.log_end:
            return self._stall_at(gaps_found.source_ends_before(self.position, event.log_end))
        if self.in_flight.has_unknown_outcomes:  # some of what is gone may be stored
            return self._lost_track(event.now_s, "what was sent and not acknowledged is gone from the source")
        gap = gaps_found.source_expired(self.position, event.log_start, stops=self.settings.stops_when_expired)
        if self.settings.stops_when_expired:
            return self._stall_at(gap)
        self._note_skipped(gap.go_on_at, HoleCause.GAP)
        self.position = self.position.behind(gap.go_on_at, self.position.source_leader_epoch)
        self._rewind()
        self._change(states.RecordsLeftOut())
        return [Need.STORE_POSITION, gap]

    def _reconciled(self, event: events.Reconciled) -> Sequence[Effect]:
        """Continue after the last stored record, once nothing is in flight under the old identity."""
        if not isinstance(self.state, (Reconciling, Storing)) and not (
            isinstance(self.state, Stopped) and self.has_untold_gaps
        ):
            return ()  # a draining partition only waits for the remaining answers, and ends
        if self.in_flight.unanswered:
            self._change(states.ResultKept(event))
            return ()
        self.identity = event.identity
        self.position = gaps_of(self.state).as_if_whole(event.position)._replace(sequence=0)
        self.new_runs.add_entries(event.entries)
        self.in_flight.restart()
        self._rewind()
        self._change(event)
        if isinstance(self.state, Stopped):
            return [Need.STORE_POSITION, *self._report_gaps()]
        return [Need.STORE_POSITION, Need.TARGET_END] if self.is_end_unverified else [Need.STORE_POSITION]

    def _tick(self, now_s: float) -> Sequence[Effect]:
        if self.resume_at_s is None or now_s < self.resume_at_s:
            return ()
        if self.in_flight.may_be_forgotten:  # the target might store it twice (docs/broker-facts.md#c1)
            return self._lost_track(now_s, self.reason)
        self.in_flight.trust_refusals()
        if self.search.found is not None and self.search.is_kept:
            return self._go_on_behind(self.search.found, now_s)
        self._rewind()
        self._change(states.PauseEnded())
        return ()

    # Moving on, and falling back

    def _advance(self) -> None:
        """Move the position past the oldest settled steps."""
        while (step := self.in_flight.leave()) is not None:
            self.position = self.position._replace(
                source_offset=step.next_offset, source_leader_epoch=step.leader_epoch
            )
            self.tally.count_dropped(step)

    def _note_skipped(self, next_offset: int, cause: HoleCause) -> None:
        at, target = self.position.source_offset, self.position.target_offset
        if target is not None:
            self.new_runs.add_entries([Hole(at, target, next_offset - at, 0, cause)])

    def _check_end(self) -> Sequence[Effect]:
        """Send nothing until the target has shown that it has every acknowledged batch. If there is none, continue."""
        self.end_checks += 1
        if self.position.target_offset is None:
            self._end_checked = self.end_checks
            return ()
        return [Need.TARGET_END]

    def _when_settled(self, now_s: float) -> Sequence[Effect]:
        """Do what waits for the last answer. Called after each answer, and for each answer that will not come."""
        state = self.state
        if type(state) is Copying or self.in_flight.unanswered:
            return ()
        if isinstance(state, Draining):
            self._change(states.AllAnswered())
        elif isinstance(state, (Reconciling, Stopped)) and state.answer is not None:
            return self._reconciled(state.answer)
        elif isinstance(state, Waiting):
            return self._tick(now_s)
        return self._report_gaps()

    def _fail(
        self,
        now_s: float,
        reason: str,
        need: Need | None = None,
        *,
        pause_s: float | None = None,
        report: str | None = None,
        is_blocked: bool = False,
        refused_with: int = 0,
    ) -> Sequence[Effect]:
        """Pause, then read again from the position. Batches that were sent are sent again, each alone, with the same
        sequences."""
        if type(self.state) is not Copying:
            return self._fail_once_more(now_s, need)
        effects: list[Effect] = [] if need is None else [need]
        if report and self.reason != reason:
            effects.append(OperatorNotice(report, reason, refused_with=refused_with))
        if pause_s is None:
            pause_s = RESUME_PAUSES_S[min(self._failures, len(RESUME_PAUSES_S) - 1)]
        self._failures += 1
        self.in_flight.fail()
        self._change(states.Failed(now_s + pause_s, reason, is_blocked, report or "", refused_with))
        return effects

    def _fail_once_more(self, now_s: float, need: Need | None) -> Sequence[Effect]:
        effects = [*self._when_settled(now_s)]
        if need is not None and isinstance(self.state, (Waiting, Reconciling)):
            effects.append(need)
        return effects

    def _restart(self, now_s: float) -> Sequence[Effect]:
        effects = self._fail(now_s, "an operator restarts it", pause_s=0.0)
        if isinstance(self.state, Waiting):
            self._change(states.PauseCut(now_s))
        return effects

    def _lost_track(self, now_s: float, reason: str, need: Need = Need.RECONCILE) -> Sequence[Effect]:
        """Give up on resending: no sequence can show what is stored, so another producer id must follow
        (docs/broker-facts.md#h1)."""
        if type(self.state) is Copying:
            self._failures += 1
            self.in_flight.fail()
        if isinstance(self.state, (Copying, Waiting, Reconciling, Draining)):  # for Stopped see _report_gaps
            self._change(states.LostTrack(reason))
        return self._fail_once_more(now_s, need)

    def _block(self, now_s: float, event: str, text: str, refused_with: int = 0) -> Sequence[Effect]:
        """Wait for an operator. Report the reason once, and try again from time to time."""
        pause_s = BLOCKED_PAUSE_S
        return self._fail(now_s, text, pause_s=pause_s, report=event, is_blocked=True, refused_with=refused_with)

    def _stall_at(self, gap: GapFound, *, lost: int = 0, is_looked_up: bool = False) -> Sequence[Effect]:
        """Stop at a gap. ``lost``, ``is_looked_up``: see ``Gaps.add``."""
        return self._stall(states.GapMet(gap, self.position, lost, is_looked_up))

    def _stall_at_hole(self, refused: InFlightEntry) -> Sequence[Effect]:
        """Stop: a batch is stored and the one before it is not. Sequences would count the missing one as stored."""
        text = gaps_found.out_of_order(refused.batch.first_offset)
        return [OperatorNotice("target.out_of_order", text), *self._stall(states.HoleMet(text))]

    def _stall(self, change: states.GapMet | states.HoleMet) -> Sequence[Effect]:
        if type(self.state) is Copying:
            self.in_flight.fail()
        self.in_flight.forget()
        self._change(change)
        if isinstance(self.state, Draining) and not self.in_flight.unanswered:
            self._change(states.AllAnswered())
        return self._report_gaps()

    def _report_gaps(self) -> Sequence[Effect]:
        """Report the gaps once every batch that was sent is settled. Ask for a lookup first if outcomes are unknown."""
        state, in_flight = self.state, self.in_flight
        if not self.has_untold_gaps or in_flight.unanswered:
            return ()
        if isinstance(state, Stopped) and not state.gaps.is_looked_up:
            if state.awaits_lookup:
                return ()  # ``Reconciled`` will come
            in_flight.trust_refusals()
            if self.position.source_offset < in_flight.maybe_sent_until:
                self._change(states.LookupStarted())
                return [Need.RECONCILE]
        return self._report_now()

    def _report_now(self) -> Sequence[Effect]:
        gaps, effects = gaps_of(self.state).tell(self.position)
        self._change(states.GapsReported(gaps))
        return effects

    def _rewind(self) -> None:
        """Read again from the position, with the sequence that belongs to it."""
        self.in_flight.rewind(self.position.sequence)
        self._fault = self.search.found = None
        self.fetch_offset = self.position.source_offset
        self.fetched_epoch = self.position.source_leader_epoch

    # -- what others read of a copier: nothing below changes it --------------------------------------------------

    @property
    def reason(self) -> str:
        """Why it waits or has stopped, or why it waited last; empty once a batch was stored again."""
        return self.state.cause

    @property
    def owns_position(self) -> bool:
        """Its stored position may be replaced. Before it is reconciled, the stored one names the previous producer."""
        state = self.state
        return state.owns_position if isinstance(state, (Reconciling, Ending)) else True

    @property
    def has_untold_gaps(self) -> bool:
        """It has stopped at a gap, and its position is not final yet. The stored position is not replaced."""
        return bool(gaps_of(self.state).met)

    @property
    def may_store_position(self) -> bool:
        """Its position may be stored."""
        return type(self.state) is Copying or (self.owns_position and not self.has_untold_gaps)

    @property
    def is_end_unverified(self) -> bool:
        """The target may have lost what it acknowledged, so nothing is sent. See ``Need.TARGET_END``."""
        return self.end_checks != self._end_checked

    @property
    def is_unsettled(self) -> bool:
        """A batch after the position may be stored, or may still arrive. The next owner must fence this producer."""
        state, in_flight = self.state, self.in_flight
        unknown = isinstance(state, Reconciling)
        if isinstance(state, Ending):
            unknown = state.awaits_lookup or state.outcome_unknown
        behind = in_flight.unanswered > 0 or self.position.source_offset < in_flight.maybe_sent_until
        return self.owns_position and (behind or unknown)

    @property
    def awaits_lookup(self) -> bool:
        """What is stored is being looked up."""
        state = self.state
        return state.awaits_lookup if isinstance(state, Ending) else isinstance(state, Reconciling)

    @property
    def wants_fetch(self) -> bool:
        """A read may bring more, and there is room for it."""
        if type(self.state) is not Copying or self.is_paused or self._fault is not None:
            return False
        return self.in_flight.wants_more(is_at_end=self.is_at_end)

    @property
    def is_at_end(self) -> bool:
        """All records that the log had at the last read were read, so the next read waits for new ones."""
        return self.end_offset is not None and self.fetch_offset >= self.end_offset

    @property
    def is_blocked(self) -> bool:
        """It waits for an operator. The target's limits are looked up before it tries again."""
        return isinstance(self.state, Waiting) and self.state.is_blocked

    @property
    def resume_at_s(self) -> float | None:
        """When a ``Tick`` ends the pause; None without a pause, or while answers are missing."""
        state = self.state
        return state.resume_at_s if isinstance(state, Waiting) and not self.in_flight.unanswered else None

    @property
    def vouched_offset(self) -> int | None:
        """The target offset up to which the target must hold the copy; None while that is unknown or irrelevant."""
        return self.position.target_offset if isinstance(self.state, (Storing, Copying, Waiting)) else None

    @property
    def real_position(self) -> Position:
        """The position with the real target offset, which is lower by what the target has lost; see ``Gaps``."""
        return gaps_of(self.state).as_it_is(self.position)

    @property
    def kind_of_reason(self) -> str:
        """The reason without numbers, so that partitions with the same problem are reported together."""
        return _NUMBERS.sub("...", self.reason)

    @property
    def is_failing(self) -> bool:
        """It has failed, and nothing has succeeded since."""
        return self._failures > 0

    def lag(self) -> int | None:
        """Source offsets between the position and the readable end; None before the first read."""
        return None if self.end_offset is None else max(0, self.end_offset - self.position.source_offset)

    def is_too_old_to_resend(self, retained_after_ms: int) -> bool:
        """Whether ``next_batch`` returns None because the batch is too old to be sent again: see ``TooOldToResend``."""
        may_send = type(self.state) is Copying and not self.is_end_unverified
        return may_send and self.in_flight.is_too_old_to_resend(retained_after_ms)
