"""The copier and records that the target refuses: found alone, waited for or left out, and nothing else is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.copier import Copier
from mm2py.copying.events import (
    Acked,
    CopySettings,
    Drain,
    Effect,
    Fetched,
    Need,
    OperatorNotice,
    Poison,
    PositionStored,
    ProduceRefused,
    Quarantined,
    Reconciled,
    Tick,
)
from mm2py.copying.in_flight import Sending
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import DAMAGED_READS_MAX, MERGE_ALL, PASS_ALL, Fault, MergeRule, Plan, TargetRules
from mm2py.copying.positions import RANGES_MAX, Position
from mm2py.copying.states import Drained, Waiting
from mm2py.kafka.port import ProducerIdentity
from tests.unit.copying.test_copier import IDENTITY, Target, batches, fetched, send_all
from tests.unit.copying.test_copier_repacks import Partition, Source, small


@dataclass
class ChoosyTarget(Target):
    """Refuses every batch that holds one of these source offsets, before it looks at sequences, as brokers do."""

    refused: frozenset[int] = frozenset()
    code: int = 32
    refusals: int = 0

    def store(self, sending: Sending) -> int:
        batch = sending.batch
        if self.refused.intersection(range(batch.first_offset, batch.next_offset)):
            self.refusals += 1
            return self.code
        return super().store(sending)


class PoisonedPartition(Partition):
    """One whose shell keeps what the target refuses."""

    def __init__(self, source: Source, target: Target, *, quarantines: bool = True, rules: TargetRules | None = None):
        super().__init__(source, target)
        self.copier = Copier("t-0", Position(0), IDENTITY, CopySettings(1 << 20, quarantines=quarantines))
        self.copier.handle(PositionStored(IDENTITY))
        self.rules = rules or self.rules
        self.quarantine: list[int] = []
        self.reports: list[str] = []
        self.answers_late: list[Quarantined] = []
        self.answers_at_once = True

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Poison():
                    self.quarantine.append(effect.offset)
                    answer = Quarantined(effect.offset, self.now_s)
                    if self.answers_at_once:
                        self.carry_out(self.copier.handle(answer))
                    else:
                        self.answers_late.append(answer)
                case OperatorNotice():
                    self.reports.append(effect.event)
                case _:
                    super().carry_out([effect])

    def read(self, merging: MergeRule, max_bytes: int = 1 << 20) -> Plan:
        copier = self.copier
        planned = plan(
            self.source.read(copier.fetch_offset, max(max_bytes, self.least_bytes)),
            wanted_offset=copier.fetch_offset,
            read_committed=False,
            aborted=(),
            rules=self.rules,
            merging=PASS_ALL if copier.fetch_offset < copier.search.pass_until else merging,
            sent_before=copier.in_flight.sent_before,
            cut_until=copier.search.cut_until,
        )
        self.least_bytes = planned.cut_batch_bytes
        self.carry_out(copier.handle(Fetched(planned, self.lease, copier.fetch_offset, self.source.end, self.now_s)))
        return planned


def four_on_their_way() -> tuple[Copier, list[Sending]]:
    """Return a copier that has stored offset 0, and its batches 1 to 4, of one record each."""
    copier = Copier("t-0", Position(0), IDENTITY, CopySettings(1 << 20, quarantines=True))
    copier.handle(PositionStored(IDENTITY))
    copier.handle(fetched(copier, batches(0, 5, size=1)))
    copier.handle(Acked(send_all(copier)[0].token, 0, 0.0))
    return copier, send_all(copier)


def one_batch(count: int) -> Source:
    return Source([(count, small(0, count))])


@pytest.mark.parametrize("code", [32, 44, 87])
def test_of_a_batch_with_one_bad_record_all_others_are_stored_in_order(code: int) -> None:
    target = ChoosyTarget(refused=frozenset({617}), code=code)
    part = PoisonedPartition(one_batch(1_000), target)
    part.copy_all(PASS_ALL)
    assert target.log == [offset for offset in range(1_000) if offset != 617]
    assert part.quarantine == [617]
    assert part.new_epochs == []
    assert target.refusals <= 12, "it is closed in on, not tried record by record"
    assert part.reports == ["record.quarantined"]
    assert part.copier.tally.dropped["quarantined"] == 1
    assert part.copier.tally.records == 999


def test_without_quarantine_all_before_the_bad_record_is_stored_and_it_alone_is_named_and_tried_again() -> None:
    target = ChoosyTarget(refused=frozenset({617}))
    part = PoisonedPartition(one_batch(1_000), target, quarantines=False)
    with pytest.raises(AssertionError, match="the record of source offset 617"):
        part.copy_all(PASS_ALL, rounds=100)
    assert target.log == list(range(617))
    assert part.quarantine == []
    assert set(part.reports) == {"target.refuses"}
    target.refused = frozenset()
    part.copy_all(PASS_ALL)
    assert target.log == list(range(1_000))
    assert part.new_epochs == []


def test_a_batch_of_nothing_but_bad_records_takes_one_attempt_a_record() -> None:
    target = ChoosyTarget(refused=frozenset(range(10, 200)))
    part = PoisonedPartition(one_batch(210), target)
    part.copy_all(PASS_ALL)
    assert part.quarantine == list(range(10, 200))
    assert target.log == [*range(10), *range(200, 210)]
    assert target.refusals <= 5 * 200, "those in flight behind a bad record are refused with it"
    assert len(part.reports) == 1, "a stretch is reported once"


def test_the_hole_stands_in_the_position_until_the_next_record_is_copied() -> None:
    target = ChoosyTarget(refused=frozenset({0, 1, 9}))
    part = PoisonedPartition(one_batch(10), target)
    part.read(PASS_ALL)
    for sending in part.send():
        part.answer(sending)
    part.rest()
    for offset in (0, 1):
        part.read(PASS_ALL)
        part.answer(part.send()[0])
        assert part.copier.position.skipped == ((0, offset),)
    part.copy_all(PASS_ALL)
    position = part.copier.position
    assert (position.source_offset, position.sequence, position.skipped) == (10, 7, ((9, 9),))


def test_what_the_settings_of_the_target_refuse_is_poison_without_being_sent() -> None:
    rows = [b"v", bytes(5_000), b"v"]
    source = Source([(at + 1, small(at, value=value)) for at, value in enumerate(rows)])
    target = Target()
    part = PoisonedPartition(source, target, rules=TargetRules(1_000))
    part.copy_all(PASS_ALL)
    assert (part.quarantine, target.log) == ([1], [0, 2])
    assert part.copier.position.source_leader_epoch == 0


@pytest.mark.parametrize(
    "kind", ["crc mismatch", "corrupt records", "decompression bomb", "over budget", "unknown codec"]
)
def test_damage_is_no_poison(kind: str) -> None:
    copier = Copier("t-0", Position(0), IDENTITY, CopySettings(1 << 20, quarantines=True))
    copier.handle(PositionStored(IDENTITY))
    fault, effects = Fault(kind, 0, 5, "It is damaged."), list[Effect]()  # type: ignore[arg-type]
    for _ in range(DAMAGED_READS_MAX + 1):
        effects += copier.handle(Tick(1e6))
        effects += copier.handle(fetched(copier, [], fault=fault))
    assert [type(effect) for effect in effects] == [OperatorNotice]
    assert type(copier.state) is Waiting


def test_copying_goes_on_only_when_nothing_sent_behind_the_bad_record_is_unanswered() -> None:
    copier, sent = four_on_their_way()
    (poison,) = copier.handle(ProduceRefused(sent[0].token, 87, None, 0.0))
    assert isinstance(poison, Poison)
    assert (poison.offset, poison.next_offset, poison.code, poison.was_sent) == (1, 2, 87, True)
    assert copier.handle(Quarantined(1, 1.0)) == ()
    assert copier.position.source_offset == 1
    for sending in sent[1:]:
        effects = copier.handle(ProduceRefused(sending.token, 45, None, 1.0))
    assert effects[0] is Need.STORE_POSITION
    assert copier.position == Position(2, 0, 1, None, 1, ((1, 1),))
    assert not copier.wants_fetch, "whoever comes after us must know of the hole before anything stands behind it"
    copier.handle(PositionStored(IDENTITY))
    assert copier.wants_fetch


def test_an_answer_that_comes_after_the_record_was_tried_again_moves_nothing() -> None:
    """The story: the quarantine is slow; meanwhile the target's settings were mended, and the record was stored."""
    target = ChoosyTarget(refused=frozenset({0}))
    part = PoisonedPartition(one_batch(1), target)
    part.answers_at_once = False
    part.read(PASS_ALL)
    part.answer(part.send()[0])
    target.refused = frozenset()
    part.rest()
    part.read(PASS_ALL)
    (again,) = part.send()
    part.carry_out(part.copier.handle(part.answers_late[0]))
    assert part.copier.position.source_offset == 0
    part.answer(again)
    part.carry_out(part.copier.handle(part.answers_late[0]))
    assert (part.copier.position.source_offset, part.copier.position.skipped) == (1, ())


def test_a_drain_leaves_a_record_that_is_not_yet_in_quarantine_where_it_is() -> None:
    part = PoisonedPartition(one_batch(1), ChoosyTarget(refused=frozenset({0})))
    part.answers_at_once = False
    part.read(PASS_ALL)
    part.answer(part.send()[0])
    part.copier.handle(Drain())
    part.carry_out(part.copier.handle(part.answers_late[0]))
    assert type(part.copier.state) is Drained
    assert part.copier.position.source_offset == 0


def test_a_batch_of_unknown_outcome_behind_a_bad_record_is_sent_only_under_a_higher_epoch() -> None:
    copier, (first, *others) = four_on_their_way()
    copier.handle(ProduceRefused(first.token, 87, None, 0.0))
    for sending in others:
        copier.handle(ProduceRefused(sending.token, 7, None, 0.0))  # timed out: it may be stored
    effects = copier.handle(Quarantined(1, 1.0))
    assert Need.RECONCILE in effects
    assert send_all(copier) == []
    copier.handle(Reconciled(ProducerIdentity(7, 1, None), copier.position))
    copier.handle(PositionStored(ProducerIdentity(7, 1, None)))
    copier.handle(fetched(copier, batches(2, 1, size=1)))
    assert [(sending.sequence, sending.identity.epoch) for sending in send_all(copier)] == [(0, 1)]
    assert copier.position.skipped == ((1, 1),)


def test_ranges_that_touch_become_one_and_their_number_has_a_bound() -> None:
    position = Position(5).behind(6, 0).behind(7, 0)
    assert position.skipped == ((5, 6),)
    for offset in range(10, 10 + 10 * RANGES_MAX, 10):
        position = position._replace(source_offset=offset).behind(offset + 1, 0)
    assert len(position.skipped) == RANGES_MAX
    assert position.skipped[0] == (5, 10)


@given(seed=st.integers(0, 1 << 32))
def test_whatever_goes_wrong_each_record_is_stored_or_kept_and_nothing_overtakes(seed: int) -> None:
    rng = random.Random(seed)
    source, at = Source(), 0
    for _ in range(rng.randint(1, 20)):
        count = rng.choice([1, 1, 2, 30])
        source.batches.append((at + count, small(at, count)))
        at += count
    refused = frozenset(offset for offset in range(at) if rng.random() < rng.choice([0.02, 0.3]))
    target = ChoosyTarget(refused=refused, code=rng.choice([32, 87]))
    part = PoisonedPartition(source, target)
    part.answers_at_once = False
    open_requests: list[Sending] = []
    for _ in range(5_000):
        if not part.answers_late or rng.random() < 0.2:  # the pause may end before the quarantine answers
            part.rest()
        if part.answers_late and rng.random() < 0.7:
            part.carry_out(part.copier.handle(part.answers_late.pop(0)))
        copier = part.copier
        if copier.wants_fetch and copier.fetch_offset < source.end and rng.random() < 0.8:
            part.read(rng.choice([PASS_ALL, MERGE_ALL]), max_bytes=rng.choice([100, 700, 1 << 20]))
        open_requests += part.send()
        if open_requests and rng.random() < 0.9:
            sending, dice = open_requests.pop(0), rng.random()
            if dice < 0.03:
                part.answer(sending, 6)
            elif dice < 0.08:
                target.store(sending)
                for lost in [sending, *open_requests]:  # the connection breaks with all that is on it
                    part.lose(lost)
                open_requests.clear()
            else:
                part.answer(sending)
        if copier.position.source_offset == source.end:
            break
    assert part.copier.position.source_offset == source.end, f"stuck: {type(part.copier.state)} {part.copier.reason}"
    good = [offset for offset in range(at) if offset not in refused]
    seen: list[int] = []
    for offset in target.log:
        assert offset <= good[len(seen)] if len(seen) < len(good) else offset <= good[-1]
        if len(seen) < len(good) and offset == good[len(seen)]:
            seen.append(offset)
    assert seen == good
    assert set(part.quarantine) == refused
    assert part.new_epochs or target.log == good
    assert (part.lease.holders, part.lease.extra) == (0, 0)
