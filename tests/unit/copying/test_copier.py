"""The copier's decisions: what it sends, when it waits, and that nothing is lost or reordered whatever happens."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.copier import Copier
from mm2py.copying.events import (
    Acked,
    CopySettings,
    Displaced,
    Diverged,
    Drain,
    Effect,
    Event,
    Fetched,
    FetchRefused,
    GapFound,
    Need,
    OffsetsFound,
    OperatorNotice,
    PauseChanged,
    PositionStored,
    ProduceLost,
    ProduceRefused,
    Reconciled,
    RestartAsked,
    SettingsChanged,
    TargetWhole,
    Tick,
)
from mm2py.copying.in_flight import MAX_IN_FLIGHT, MAX_QUEUED, Sending
from mm2py.copying.planning.steps import DAMAGED_READS_MAX, Dropped, Fault, Outgoing, Plan
from mm2py.copying.positions import Position
from mm2py.copying.states import Copying, Drained, Draining, Reconciling, Stopped, Waiting
from mm2py.kafka.port import ProducerIdentity

BROKER = 1
IDENTITY = ProducerIdentity(7, 0, "mm2py-test")
ALL_COVERED = -1
NONE_COVERED = 1 << 60


@dataclass
class CountingLease:
    """Counts holders, so that a test sees what a copier still holds on to."""

    holders: int = 0
    extra: int = 0
    read_at_s: float = 0.0

    def hold(self, extra_bytes: int, holders: int = 1) -> None:
        self.holders += holders
        self.extra += extra_bytes

    def release(self, extra_bytes: int) -> None:
        self.holders -= 1
        self.extra -= extra_bytes


def batch(first: int, count: int, *, reason: str | None = None) -> Outgoing:
    return Outgoing(first, first + count, count, 1_000, 0, bytearray(10 * count), reason)  # type: ignore[arg-type]


def batches(first: int, count: int, size: int = 10) -> list[Outgoing | Dropped]:
    return [batch(first + at * size, size) for at in range(count)]


def fetched(copier: Copier, steps: Sequence[Outgoing | Dropped], **changes: object) -> Fetched:
    next_offset = steps[-1].next_offset if steps else copier.fetch_offset
    plan = Plan(list(steps), next_offset, changes.get("fault"))  # type: ignore[arg-type]
    lease = changes.get("lease") or CountingLease()
    return Fetched(plan, lease, copier.fetch_offset, int(str(changes.get("end", next_offset))), 0.0)  # type: ignore[arg-type]


def copying(start: int = 0, **arguments: int) -> Copier:
    copier = Copier("t-0", Position(start), IDENTITY, CopySettings(arguments.get("ready_max_bytes", 1 << 20)))
    copier.handle(PositionStored(IDENTITY))
    assert type(copier.state) is Copying
    return copier


def send_all(copier: Copier, retained_after_ms: int = ALL_COVERED) -> list[Sending]:
    sent = []
    while sending := copier.next_batch(BROKER, retained_after_ms):
        sent.append(sending)
    return sent


def seen_whole(copier: Copier) -> None:
    """Let the target be looked at, and hold what it acknowledged."""
    assert copier.is_end_unverified
    copier.handle(TargetWhole(copier.end_checks))


def test_nothing_is_read_or_sent_before_the_position_is_stored() -> None:
    copier = Copier("t-0", Position(5), IDENTITY, CopySettings(100))
    assert not copier.wants_fetch
    copier.handle(PositionStored(ProducerIdentity(7, 1, None)))
    assert not copier.wants_fetch, "the position of another epoch says nothing"
    copier.handle(PositionStored(IDENTITY))
    assert copier.wants_fetch
    assert copier.fetch_offset == 5


def test_the_first_batch_of_an_epoch_travels_alone() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 8)))
    first = send_all(copier)
    assert [sending.sequence for sending in first] == [0]
    copier.handle(Acked(first[0].token, 100, 0.0))
    assert [sending.sequence for sending in send_all(copier)] == [10, 20, 30, 40, 50]


def test_an_old_batch_among_young_ones_waits_for_those_before_it_and_holds_back_those_behind_it() -> None:
    """C1: the target forgets us by the old one's time as soon as that is stored, and takes any sequence after it."""
    young, old = 9_000, 1_000
    copier = copying()
    steps = [batch(at * 10, 10)._replace(max_timestamp_ms=time) for at, time in enumerate([young, young, old, young])]
    copier.handle(fetched(copier, steps))
    for first_offset in (0, 10, 20, 30):
        (alone,) = send_all(copier, retained_after_ms=5_000)
        assert alone.batch.first_offset == first_offset
        copier.handle(Acked(alone.token, first_offset, 0.0))


def test_the_position_follows_the_oldest_unacknowledged_batch() -> None:
    copier = copying()
    copier.handle(fetched(copier, [*batches(0, 2), Dropped(25, 1, "control"), *batches(25, 1)]))
    copier.handle(Acked(send_all(copier)[0].token, 100, 0.0))
    assert copier.position == Position(10, 0, 110, None, 10)
    second, third = send_all(copier)
    copier.handle(Acked(second.token, 110, 0.0))
    assert copier.position.source_offset == 25, "what is dropped behind an acknowledged batch is behind us too"
    copier.handle(Acked(third.token, 120, 0.0))
    assert copier.position.source_offset == 35
    assert copier.position.sequence == 30
    assert copier.tally.dropped["control"] == 1


def test_dropped_batches_alone_move_the_position() -> None:
    copier = copying()
    copier.handle(fetched(copier, [Dropped(7, 7, "aborted"), Dropped(8, 1, "control")]))
    assert copier.position.source_offset == 8
    assert copier.in_flight.is_idle


def test_a_full_queue_stops_reading() -> None:
    copier = copying(ready_max_bytes=150)
    copier.handle(fetched(copier, batches(0, 1), end=1_000))
    assert copier.wants_fetch
    copier.handle(fetched(copier, batches(10, 1), end=1_000))
    assert not copier.wants_fetch
    send_all(copier)
    assert copier.wants_fetch


def test_at_the_end_of_the_log_nothing_is_read_while_batches_queue_up() -> None:
    """A cold target took 5 requests in 200 ms; 1,000 records a second were read one by one and waited one by one."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 1)))
    first = send_all(copier)[0]
    copier.handle(Acked(first.token, 0, 0.0))
    copier.handle(fetched(copier, batches(10, MAX_IN_FLIGHT + MAX_QUEUED - 1)))
    oldest = send_all(copier)[0]
    assert copier.wants_fetch, "five are under way and four wait"
    copier.handle(fetched(copier, batches(copier.fetch_offset, 1)))
    assert not copier.wants_fetch
    copier.handle(Acked(oldest.token, 10, 0.0))
    send_all(copier)
    assert copier.wants_fetch


LOSSES = {
    "lost, then drained": (ProduceLost(1, "gone", 0.0), Drain()),
    "drained, then lost": (Drain(), ProduceLost(1, "gone", 0.0)),
    "drained, then refused": (Drain(), ProduceRefused(1, 3, None, 0.0)),
    "lost, then the source was cut back": (ProduceLost(1, "gone", 0.0), OffsetsFound(-5, -1, 0.0)),
    "the source was cut back, then lost": (Diverged(0, 0), ProduceLost(1, "gone", 0.0)),
    "the source was cut back, then acknowledged": (Diverged(0, 0), Acked(1, 0, 0.0)),
}


@pytest.mark.parametrize("events", LOSSES.values(), ids=LOSSES.keys())
def test_a_partition_that_is_done_holds_no_memory(events: tuple[Event, Event]) -> None:
    """Twelve topics went away upstream while their last batches had no answer: nothing could be read any more."""
    copier, lease = copying(), CountingLease()
    copier.handle(fetched(copier, batches(0, 3), lease=lease))
    assert copier.next_batch(BROKER, ALL_COVERED) is not None
    for event in events:
        copier.handle(event)
    assert type(copier.state) in {Drained, Stopped}
    assert (lease.holders, lease.extra) == (0, 0)


def test_after_a_pause_in_which_the_target_may_have_forgotten_us_one_batch_goes_alone() -> None:
    """Three batches came after an idle week, the first was refused, and the broker, which had forgotten our sequences,
    took the second for a beginning."""
    copier = copying()
    copier.handle(fetched(copier, [batch(0, 10)]))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    later = [step._replace(max_timestamp_ms=9_000) for step in batches(10, 3) if isinstance(step, Outgoing)]
    copier.handle(fetched(copier, later))
    alone = send_all(copier, retained_after_ms=5_000)
    assert len(alone) == 1
    copier.handle(Acked(alone[0].token, 10, 0.0))
    assert len(send_all(copier, retained_after_ms=5_000)) == 2


def test_a_retriable_refusal_sends_the_same_batches_under_the_same_sequences() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 6)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second, third, *_ = send_all(copier)
    assert copier.handle(ProduceRefused(second.token, 6, None, 1.0)) == [Need.TARGET_END, Need.METADATA]
    assert type(copier.state) is Waiting
    assert copier.resume_at_s is None, "others are still in flight"
    for token in range(third.token, third.token + 4):
        copier.handle(ProduceRefused(token, 45, None, 1.0))
    assert copier.resume_at_s is not None
    copier.handle(Tick(copier.resume_at_s))
    assert copier.fetch_offset == 10
    copier.handle(fetched(copier, batches(10, 5)))
    seen_whole(copier)
    again = send_all(copier)
    assert [(sending.batch.first_offset, sending.sequence) for sending in again] == [(10, 10)], "one at a time"
    copier.handle(Acked(again[0].token, 10, 2.0))
    assert [sending.sequence for sending in send_all(copier)] == [20]


def test_a_lost_answer_holds_back_what_follows() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second, third = send_all(copier)
    copier.handle(ProduceLost(second.token, "connection reset", 0.0))
    assert send_all(copier) == []
    copier.handle(Acked(third.token, 20, 0.0))
    assert copier.position.source_offset == 10, "the third is stored, but the second's fate is unknown: both go again"
    assert type(copier.state) is Waiting


def test_an_acknowledgement_that_leaves_a_hole_stops_the_partition() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second, third = send_all(copier)
    copier.handle(ProduceRefused(second.token, 19, None, 0.0))
    effects = copier.handle(Acked(third.token, 10, 0.0))
    assert type(copier.state) is Stopped
    assert [effect.event for effect in effects if isinstance(effect, OperatorNotice)] == ["target.out_of_order"]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_batch_that_may_be_stored_before_one_that_is_comes_again_and_is_recognised_or_missing(is_known: bool) -> None:
    """A leader lost its office while the batch waited for the replicas, came back, and stored the next one."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second, third = send_all(copier)
    copier.handle(ProduceRefused(second.token, 6, None, 0.0))
    copier.handle(Acked(third.token, 20, 0.0))
    assert type(copier.state) is Waiting
    copier.handle(Tick(1e6))
    copier.handle(fetched(copier, batches(10, 2)))
    seen_whole(copier)
    (again,) = send_all(copier)
    assert again.sequence == second.sequence
    if is_known:
        copier.handle(Acked(again.token, 10, 1e6))
        assert (type(copier.state), copier.position.source_offset) == (Copying, 20)
    else:
        effects = copier.handle(ProduceRefused(again.token, 45, None, 1e6))
        assert type(copier.state) is Stopped, "a reconciliation by sequences would take it for stored"
        assert [effect.event for effect in effects if isinstance(effect, OperatorNotice)] == ["target.out_of_order"]


def test_a_repeat_that_is_refused_while_the_next_one_is_stored_leaves_no_hole() -> None:
    """It was stored the first time, and its answer lost; the broker took nothing for a moment, then what follows."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second, third = send_all(copier)
    for lost in (second, third):
        copier.handle(ProduceLost(lost.token, "reset", 0.0))
    copier.handle(Tick(1e6))
    copier.handle(fetched(copier, batches(10, 4)))
    seen_whole(copier)
    copier.handle(Acked(send_all(copier)[0].token, 10, 1e6))
    third, *behind = send_all(copier)
    copier.handle(ProduceRefused(third.token, 19, None, 1e6))
    assert copier.handle(Acked(behind[0].token, 30, 1e6)) == ()
    assert type(copier.state) is Waiting
    assert copier.position.source_offset == 20, "both are sent again, and recognised"


@pytest.mark.parametrize("code", [45, 46, 59])
def test_lost_producer_state_is_reconciled_and_starts_at_sequence_0(code: int) -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 2)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    (second,) = send_all(copier)
    assert Need.RECONCILE in copier.handle(ProduceRefused(second.token, code, None, 0.0))
    copier.handle(Tick(1e9))
    assert type(copier.state) is Reconciling, "no pause ends before the epoch is there"
    newer = ProducerIdentity(7, 1, "mm2py-test")
    assert copier.handle(Reconciled(newer, Position(10, target_offset=11))) == [Need.STORE_POSITION]
    assert not copier.wants_fetch, "the position under the new epoch comes first"
    copier.handle(PositionStored(newer))
    copier.handle(fetched(copier, batches(10, 2)))
    (again,) = send_all(copier)
    assert (again.sequence, again.identity, again.batch.first_offset) == (0, newer, 10)


@pytest.mark.parametrize("code", [47, 90])
def test_a_fenced_copier_asks_for_a_new_incarnation_and_sends_nothing_more(code: int) -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 2)))
    (first,) = send_all(copier)
    assert Need.NEW_INCARNATION in copier.handle(ProduceRefused(first.token, code, None, 0.0))
    copier.handle(Tick(1e9))
    assert send_all(copier) == []
    assert type(copier.state) is Reconciling


def test_a_batch_that_is_stored_before_where_it_belongs_shows_that_the_copy_was_cut_back() -> None:
    """Of old records the target checks no sequence: it stores what comes, wherever its log ends by now (C1, M4)."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 2)))
    copier.handle(Acked(send_all(copier)[0].token, 100, 0.0))
    (second,) = send_all(copier)
    (gap,) = copier.handle(Acked(second.token, 104, 0.0))
    assert isinstance(gap, GapFound)
    assert (gap.kind, gap.last_offset, gap.go_on_at) == ("target-truncated", 9, 20), "that one is stored"
    assert copier.position.target_offset == 120, "as if nothing were lost: the next life finds it short"
    assert type(copier.state) is Stopped


def test_a_batch_stored_at_a_higher_offset_shows_a_foreign_writer_and_copying_continues() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 2)))
    copier.handle(Acked(send_all(copier)[0].token, 100, 0.0))
    (second,) = send_all(copier)
    assert copier.handle(Acked(second.token, 113, 0.0)) == [Displaced(110, 113)]
    assert (type(copier.state), copier.position.target_offset) == (Copying, 123)


def test_an_old_batch_whose_answer_was_lost_is_not_sent_again() -> None:
    """The target may have stored it and forgotten that: sent once more it would be there twice (C1)."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 2)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    (second,) = send_all(copier, NONE_COVERED)
    copier.handle(ProduceLost(second.token, "reset", 0.0))
    assert Need.RECONCILE in copier.handle(Tick(1e6))
    assert not copier.wants_fetch


def test_a_new_epoch_waits_for_what_is_on_its_way_under_the_old_one() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second, third = send_all(copier)
    copier.handle(ProduceRefused(second.token, 45, None, 0.0))
    newer = ProducerIdentity(7, 1, None)
    assert copier.handle(Reconciled(newer, Position(10, target_offset=11))) == ()
    assert type(copier.state) is Reconciling
    assert copier.handle(Acked(third.token, 10, 0.0)) == [Need.STORE_POSITION]
    assert (copier.identity, copier.position.source_offset) == (newer, 10)


def test_batches_of_unknown_outcome_that_expire_are_reconciled_before_anything_follows() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 2)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    (second,) = send_all(copier)
    copier.handle(ProduceLost(second.token, "reset", 0.0))
    copier.handle(Tick(1e6))
    copier.handle(FetchRefused(1, 1e6))
    assert Need.RECONCILE in copier.handle(OffsetsFound(20, 40, 1e6)), "some of what is gone may be stored"
    copier.handle(Tick(2e6))
    assert not copier.wants_fetch
    newer = ProducerIdentity(7, 1, None)
    copier.handle(Reconciled(newer, Position(15, target_offset=15)))
    copier.handle(PositionStored(newer))
    copier.handle(FetchRefused(1, 2e6))
    effects = copier.handle(OffsetsFound(20, 40, 2e6))
    gaps = [effect for effect in effects if isinstance(effect, GapFound)]
    assert [(gap.first_offset, gap.last_offset) for gap in gaps] == [(15, 19)]
    assert (copier.position.source_offset, copier.position.skipped) == (20, ((15, 19),))
    assert not copier.wants_fetch, "the position that tells of the gap comes first"
    copier.handle(PositionStored(newer))
    assert copier.fetch_offset == 20
    assert copier.wants_fetch
    copier.handle(fetched(copier, batches(20, 1)))
    seen_whole(copier)
    (sending,) = send_all(copier)
    copier.handle(ProduceRefused(sending.token, 19, None, 3e6))
    assert type(copier.state) is Waiting, "what fails from now on is a failure of its own"


def test_dropped_batches_carry_the_epoch_to_read_on_from() -> None:
    """A marker of a new leader epoch behind data of an old one: naming the old epoch looks like a truncation."""
    copier = copying()
    copier.handle(fetched(copier, [*batches(0, 1), Dropped(11, 1, "control", 3)]))
    assert copier.fetched_epoch == 3
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    assert copier.position.source_leader_epoch == 3


@pytest.mark.parametrize("event", [Reconciled(ProducerIdentity(7, 1, None), Position(0)), Diverged(1, 5)])
def test_draining_ends_whatever_is_learned_meanwhile(event: Reconciled | Diverged) -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 1)))
    (first,) = send_all(copier)
    copier.handle(Drain())
    copier.handle(event)
    copier.handle(Acked(first.token, 0, 0.0))
    assert type(copier.state) is Drained


def test_a_missing_right_is_reported_once_and_tried_again() -> None:
    copier = copying()
    assert [type(effect) for effect in copier.handle(FetchRefused(29, 0.0))] == [OperatorNotice]
    assert copier.resume_at_s == 10.0
    copier.handle(Tick(10.0))
    assert copier.handle(FetchRefused(29, 10.0)) == [], "the operator knows"


def test_a_right_that_is_missing_once_more_is_reported_once_more() -> None:
    copier = copying()
    copier.handle(FetchRefused(29, 0.0))
    copier.handle(Tick(1e6))
    copier.handle(fetched(copier, [batch(0, 10)]))
    (sending,) = send_all(copier)
    copier.handle(Acked(sending.token, 0, 0.0))
    assert [type(effect) for effect in copier.handle(FetchRefused(29, 2e6))] == [OperatorNotice]


def test_expired_offsets_are_reported_with_their_range_and_copying_goes_on() -> None:
    copier = copying(100)
    assert Need.OFFSETS in copier.handle(FetchRefused(1, 0.0))
    effects = copier.handle(OffsetsFound(150, 300, 0.0))
    (gap,) = [effect for effect in effects if isinstance(effect, GapFound)]
    assert (gap.kind, gap.first_offset, gap.last_offset, gap.done) == ("expired", 100, 149, "continued")
    assert "100 to 149" in gap.text
    assert copier.position == Position(150, -1, None, None, 0, ((100, 149),))
    copier.handle(Tick(100.0))
    assert copier.fetch_offset == 150


def test_where_expired_data_is_to_stop_a_partition_the_position_stays_and_nothing_is_read() -> None:
    copier = copying(100)
    copier.handle(SettingsChanged(replace(copier.settings, stops_when_expired=True)))
    copier.handle(FetchRefused(1, 0.0))
    (gap,) = copier.handle(OffsetsFound(150, 300, 0.0))
    assert isinstance(gap, GapFound)
    assert (gap.first_offset, gap.last_offset, gap.done, gap.go_on_at) == (100, 149, "stopped", 150)
    assert type(copier.state) is Stopped
    assert copier.position.source_offset == 100
    copier.handle(Tick(1e6))
    assert not copier.wants_fetch


def test_a_log_that_ends_below_the_position_stalls() -> None:
    copier = copying(100)
    copier.handle(FetchRefused(1, 0.0))
    (gap,) = copier.handle(OffsetsFound(0, 60, 0.0))
    assert type(copier.state) is Stopped
    assert isinstance(gap, GapFound)
    assert (gap.kind, gap.first_offset, gap.last_offset, gap.go_on_at) == ("truncated", 60, 99, 60)
    assert "60" in gap.text


def test_an_out_of_range_answer_that_proves_stale_is_simply_read_again() -> None:
    copier = copying(100)
    copier.handle(FetchRefused(1, 0.0))
    assert copier.handle(OffsetsFound(0, 100, 0.0)) == ()
    copier.handle(Tick(100.0))
    assert copier.wants_fetch
    assert copier.fetch_offset == 100


def test_behind_a_cut_that_took_only_what_was_read_and_not_copied_the_position_counts() -> None:
    """Going on at the cut would leave out what was read, not acknowledged, and is still there."""
    copier = copying(100)
    copier.handle(fetched(copier, batches(100, 3)))
    (gap,) = copier.handle(Diverged(3, 120))
    assert isinstance(gap, GapFound)
    assert (gap.first_offset, gap.last_offset, gap.go_on_at) == (120, 129, 100)


def test_a_fault_is_met_when_all_before_it_is_stored() -> None:
    copier = copying()
    fault = Fault("too large", 10, None, "a record of 2000000 bytes, the target allows 1048588")
    copier.handle(fetched(copier, batches(0, 1), fault=fault))
    assert not copier.wants_fetch
    (first,) = send_all(copier)
    effects = copier.handle(Acked(first.token, 0, 0.0))
    assert [effect.event for effect in effects if isinstance(effect, OperatorNotice)] == ["source.too_large"]
    assert "source offset 10" in copier.reason
    assert type(copier.state) is Waiting
    copier.handle(Tick(1e6))
    assert copier.wants_fetch, "the operator may have raised the limit"


@pytest.mark.parametrize("kind", ["crc mismatch", "corrupt records", "unknown magic"])
def test_a_damaged_batch_is_read_again_before_the_source_is_blamed(kind: str) -> None:
    copier = copying()
    fault = Fault(kind, 0, None, "it is damaged")  # type: ignore[arg-type]
    for _ in range(DAMAGED_READS_MAX):
        assert copier.handle(fetched(copier, [], fault=fault)) == []
        copier.handle(Tick(copier.resume_at_s or 0.0))
        assert copier.wants_fetch
    effects = copier.handle(fetched(copier, [], fault=fault))
    assert [effect.event for effect in effects if isinstance(effect, OperatorNotice)] == [
        f"source.{kind.replace(' ', '_')}"
    ]


def test_a_damaged_batch_that_came_whole_is_reported_once() -> None:
    copier = copying()
    copier.handle(fetched(copier, [], fault=Fault("crc mismatch", 0, None, "it is damaged")))
    copier.handle(Tick(1e6))
    (report,) = copier.handle(fetched(copier, batches(0, 1), end=30))
    assert isinstance(report, OperatorNotice)
    assert report.event == "source.damaged"
    assert not copier.handle(fetched(copier, batches(10, 2)))


def test_an_operators_restart_ends_a_pause_at_once() -> None:
    copier = copying()
    copier.handle(FetchRefused(29, 0.0))
    assert (copier.resume_at_s or 0.0) > 5.0
    copier.handle(RestartAsked(1.0))
    copier.handle(Tick(1.0))
    assert isinstance(copier.state, Copying)


def test_a_restart_forgets_what_is_not_acknowledged_and_sends_it_again_with_its_sequences() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    (first,) = send_all(copier)
    copier.handle(RestartAsked(1.0))
    assert send_all(copier) == []
    copier.handle(Acked(first.token, 0, 2.0))  # nothing is read again before the answer
    copier.handle(Tick(2.0))
    assert (copier.fetch_offset, copier.position.source_offset) == (10, 10)
    copier.handle(fetched(copier, batches(10, 2)))
    assert [sending.sequence for sending in send_all(copier)] == [10, 20]


def test_draining_waits_for_what_is_in_flight_and_forgets_the_rest() -> None:
    lease = CountingLease()
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3), lease=lease))
    (first,) = send_all(copier)
    copier.handle(Drain())
    assert type(copier.state) is Draining
    assert send_all(copier) == []
    copier.handle(Acked(first.token, 0, 0.0))
    assert type(copier.state) is Drained
    assert copier.position.source_offset == 10
    assert lease.holders == 0


def test_a_read_overtaken_by_a_rewind_is_ignored() -> None:
    lease = CountingLease()
    copier = copying()
    late = fetched(copier, batches(0, 1), lease=lease)
    copier.handle(fetched(copier, batches(0, 1)))
    assert copier.handle(late) == ()
    assert lease.holders == 0


def test_a_moved_leader_gets_nothing_before_the_old_one_has_answered() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    second = copier.next_batch(BROKER, ALL_COVERED)
    assert second is not None
    assert copier.next_batch(2, ALL_COVERED) is None
    copier.handle(Acked(second.token, 10, 0.0))
    assert copier.next_batch(2, ALL_COVERED) is not None


# -- a random walk against a target that loses answers, refuses, and forgets ------------------------------------------


@dataclass
class Target:
    """Stores batches by the broker's rules: sequences, five remembered batches, epochs."""

    log: list[int] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int | None = None
    recent: list[tuple[int, int, int]] = field(default_factory=list)
    records: int = 0
    stored_at: int = 0
    """Base offset of the batch stored or recognised last."""

    def store(self, sending: Sending) -> int:
        """Return the error code."""
        if sending.identity.epoch < self.epoch:
            return 47
        if sending.identity.epoch > self.epoch:
            if sending.sequence != 0 and self.epoch >= 0:
                return 45  # without any state, a broker takes whatever sequence comes first (H2)
            self.epoch, self.next_sequence, self.recent = sending.identity.epoch, None, []
        last = sending.sequence + sending.batch.record_count
        for first_known, last_known, base_offset in self.recent:
            if (first_known, last_known) == (sending.sequence, last):
                self.stored_at = base_offset
                return 0
        if self.next_sequence is not None and sending.sequence != self.next_sequence:
            return 45
        self.stored_at = self.records
        self.records += sending.batch.record_count
        self.log += range(sending.batch.first_offset, sending.batch.next_offset)
        self.next_sequence = last
        self.recent = [*self.recent, (sending.sequence, last, self.stored_at)][-5:]
        return 0

    def reconciled(self, identity: ProducerIdentity) -> Reconciled:
        """What reading the log tells: where copying goes on, in the source and here."""
        return Reconciled(identity, Position(max(self.log, default=-1) + 1, target_offset=self.records))


@given(seed=st.integers(0, 1 << 32), pauses=st.booleans())
def test_whatever_happens_each_record_is_stored_once_and_in_order(seed: int, pauses: bool) -> None:
    """``pauses``: an operator pauses the partition and resumes it, again and again."""
    rng = random.Random(seed)
    end = 400
    target, now_s = Target(), 0.0
    copier = copying()
    identity = IDENTITY
    lease = CountingLease()
    open_requests: list[Sending] = []

    def carry_out(effects: Sequence[Effect]) -> None:
        nonlocal identity
        for effect in effects:
            if effect is Need.RECONCILE:
                identity = ProducerIdentity(7, identity.epoch + 1, None)
                carry_out(copier.handle(target.reconciled(identity)))
            elif effect is Need.STORE_POSITION:
                carry_out(copier.handle(PositionStored(identity)))
            elif effect is Need.TARGET_END:
                carry_out(copier.handle(TargetWhole(copier.end_checks)))
            assert not isinstance(effect, OperatorNotice), f"seed {seed}: {effect}"

    for _ in range(5_000):
        now_s += 0.05
        carry_out(copier.handle(Tick(now_s)))
        if pauses and rng.random() < 0.05:
            carry_out(copier.handle(PauseChanged(not copier.is_paused)))
        if copier.wants_fetch and copier.fetch_offset < end:
            sizes, at, steps = rng.randint(1, 6), copier.fetch_offset, list[Outgoing | Dropped]()
            for _ in range(sizes):
                upto = min(end, at // 7 * 7 + 7)  # batches are cut where the source cut them
                if at < upto:
                    steps.append(batch(at, upto - at))
                    at = upto
            carry_out(copier.handle(fetched(copier, steps, lease=lease, end=end)))
        while (sending := copier.next_batch(BROKER, ALL_COVERED)) is not None:
            assert not copier.is_paused
            open_requests.append(sending)
            if pauses and rng.random() < 0.3:
                break  # else nothing that was read ever waits when a pause begins
        if open_requests and rng.random() < 0.9:
            sending = open_requests.pop(0)
            dice = rng.random()
            if dice < 0.05:
                carry_out(copier.handle(ProduceRefused(sending.token, 19, None, now_s)))
            elif dice < 0.10:
                target.store(sending)
                for lost in [sending, *open_requests]:  # the connection breaks with all that is on it
                    carry_out(copier.handle(ProduceLost(lost.token, "reset", now_s)))
                open_requests.clear()
            else:
                if dice < 0.12:
                    target.recent = target.recent[-1:]  # a restart leaves one batch remembered
                code = target.store(sending)
                event = (
                    Acked(sending.token, target.stored_at, now_s)
                    if code == 0
                    else ProduceRefused(sending.token, code, None, now_s)
                )
                carry_out(copier.handle(event))
        if copier.position.source_offset == end:
            break
    assert copier.position.source_offset == end, f"seed {seed}: stuck, {type(copier.state)} {copier.reason}"
    assert target.log == list(range(end)), f"seed {seed}"
    assert (lease.holders, lease.extra) == (0, 0)


# -- paused by an operator ---------------------------------------------------------------------------------------------


def test_a_paused_partition_reads_and_sends_nothing_until_it_is_resumed() -> None:
    lease = CountingLease()
    copier = copying()
    copier.handle(fetched(copier, batches(0, 3), lease=lease, end=100))
    (first,) = send_all(copier)
    copier.handle(PauseChanged(is_paused=True))
    assert not copier.wants_fetch
    assert send_all(copier) == []
    assert lease.holders == 1, "what was read and not sent takes no memory"
    copier.handle(Acked(first.token, 100, 0.0))
    assert (copier.position.source_offset, copier.position.target_offset) == (10, 110), "what was sent is settled"
    assert send_all(copier) == []
    assert not copier.is_unsettled
    assert lease.holders == 0
    copier.handle(PauseChanged(is_paused=False))
    assert copier.wants_fetch
    assert copier.fetch_offset == 10
    copier.handle(fetched(copier, batches(10, 2)))
    assert [sending.sequence for sending in send_all(copier)] == [10, 20]


def test_a_pause_that_ends_before_the_answer_reads_behind_what_is_in_flight() -> None:
    copier = copying()
    copier.handle(fetched(copier, batches(0, 1)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    copier.handle(fetched(copier, batches(10, 4)))
    sent = [copier.next_batch(BROKER, ALL_COVERED), copier.next_batch(BROKER, ALL_COVERED)]
    copier.handle(PauseChanged(is_paused=True))
    copier.handle(PauseChanged(is_paused=False))
    assert copier.fetch_offset == 30
    copier.handle(fetched(copier, batches(30, 2)))
    assert [sending.sequence for sending in send_all(copier)] == [30, 40]
    assert [sending.sequence for sending in sent if sending] == [10, 20]


def test_what_a_read_brings_after_the_pause_is_ignored() -> None:
    copier = copying()
    late = fetched(copier, batches(0, 2))
    copier.handle(PauseChanged(is_paused=True))
    assert copier.handle(late) == ()
    assert copier.handle(FetchRefused(1, 0.0)) == ()
    assert copier.handle(Diverged(3, 0)) == ()
    assert type(copier.state) is Copying
    assert copier.fetch_offset == 0


def test_a_partition_paused_before_it_has_begun_or_while_it_waits_stays_paused() -> None:
    new = Copier("t-0", Position(5), IDENTITY, CopySettings(100))
    new.handle(PauseChanged(is_paused=True))
    new.handle(PositionStored(IDENTITY))
    assert type(new.state) is Copying
    assert not new.wants_fetch
    waiting = copying()
    waiting.handle(FetchRefused(29, 0.0))
    waiting.handle(PauseChanged(is_paused=True))
    waiting.handle(Tick(1e6))
    assert type(waiting.state) is Copying
    assert not waiting.wants_fetch
    waiting.handle(PauseChanged(is_paused=False))
    assert waiting.wants_fetch


def test_a_batch_of_unknown_outcome_that_was_read_again_and_not_sent_stays_so_over_a_pause() -> None:
    """Else the same records could be sent in another shape, and be stored twice."""
    copier = copying()
    copier.handle(fetched(copier, batches(0, 1)))
    (first,) = send_all(copier)
    copier.handle(ProduceLost(first.token, "gone", 0.0))
    copier.handle(Tick(1e6))
    copier.handle(fetched(copier, batches(0, 1)))  # not sent: the target was not looked at yet
    copier.handle(PauseChanged(is_paused=True))
    assert copier.in_flight.has_unknown_outcomes
    copier.handle(PauseChanged(is_paused=False))
    assert Need.RECONCILE in copier.handle(fetched(copier, batches(0, 2, 5)))
