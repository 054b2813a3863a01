"""The copier with batches that are really merged: what is in doubt comes again as it was, whatever goes wrong.

Reads are real plans of real batches, under rules that change between two of them; the target judges sequences and sizes
as brokers do.
"""

from __future__ import annotations

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
    Effect,
    Fetched,
    FetchRefused,
    LimitsFound,
    Need,
    OperatorNotice,
    PositionStored,
    ProduceLost,
    ProduceRefused,
    TargetWhole,
    Tick,
)
from mm2py.copying.in_flight import MAX_CUT_READS, Sending
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import MERGE_ALL, MERGE_SMALL, PASS_ALL, MergeRule, Plan, TargetRules
from mm2py.copying.positions import Position
from mm2py.kafka.port import ProducerIdentity
from tests.fakes.broker.record_batch import encode_records
from tests.unit.copying.test_copier import ALL_COVERED, BROKER, IDENTITY, CountingLease, Target

RULES = (PASS_ALL, MERGE_SMALL, MERGE_ALL, MergeRule(300, 0, "tests"))


def small(first: int, count: int = 1, value: bytes = b"v") -> bytes:
    rows = [(delta, 1_000 + first + delta, b"k", value, ()) for delta in range(count)]
    return encode_records(rows, base_offset=first, partition_leader_epoch=0)


@dataclass
class Source:
    """A log of small batches."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """(next offset, bytes)."""

    @property
    def end(self) -> int:
        return self.batches[-1][0]

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Answer a fetch: from the batch that holds ``offset``, that one whole, and what else fits."""
        parts = [data for end, data in self.batches if end > offset]
        return memoryview(bytearray(b"".join(parts)[: max(max_bytes, len(parts[0]) if parts else 0)]))


@dataclass
class SizedTarget(Target):
    """Refuses what is too large, before it looks at anything else, as brokers do."""

    max_bytes: int = 1 << 30

    def store(self, sending: Sending) -> int:
        return 10 if len(sending.batch.data) > self.max_bytes else super().store(sending)


class Partition:
    """A copier, and what its shell does for it."""

    def __init__(self, source: Source, target: Target) -> None:
        self.source, self.target = source, target
        self.rules = TargetRules(1 << 20)
        self.copier = Copier("t-0", Position(0), IDENTITY, CopySettings(1 << 20))
        self.lease = CountingLease()
        self.identity = IDENTITY
        self.now_s = 0.0
        self.new_epochs: list[str] = []
        self.described_max_bytes: int | None = None
        """What the target says its limit is; None where it may not be asked."""
        self.least_bytes = 0
        self.copier.handle(PositionStored(IDENTITY))

    def carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Need.RECONCILE:
                    self.new_epochs.append(self.copier.reason)
                    self.identity = ProducerIdentity(7, self.identity.epoch + 1, None)
                    self.carry_out(self.copier.handle(self.target.reconciled(self.identity)))
                case Need.STORE_POSITION:
                    self.carry_out(self.copier.handle(PositionStored(self.identity)))
                case Need.TARGET_END:
                    self.carry_out(self.copier.handle(TargetWhole(self.copier.end_checks)))
                case Need.LIMITS:
                    refused = self.copier.refused_bytes
                    self.copier.handle(LimitsFound())
                    limit = self.described_max_bytes or self.rules.max_message_bytes
                    self.rules = replace(
                        self.rules,
                        max_message_bytes=min(limit, refused - 1),
                        merged_max_bytes=min(self.rules.merged_max_bytes, refused // 2),
                    )
                case OperatorNotice():
                    raise AssertionError(effect)
                case _:
                    pass

    def rest(self) -> None:
        """Let the pause pass."""
        if self.copier.resume_at_s is not None:
            self.now_s = self.copier.resume_at_s
            self.carry_out(self.copier.handle(Tick(self.now_s)))

    def read(self, merging: MergeRule, max_bytes: int = 1 << 20) -> Plan:
        copier = self.copier
        planned = plan(
            self.source.read(copier.fetch_offset, max(max_bytes, self.least_bytes)),
            wanted_offset=copier.fetch_offset,
            read_committed=False,
            aborted=(),
            rules=self.rules,
            merging=merging,
            sent_before=copier.in_flight.sent_before,
        )
        self.least_bytes = planned.cut_batch_bytes
        self.carry_out(copier.handle(Fetched(planned, self.lease, copier.fetch_offset, self.source.end, self.now_s)))
        return planned

    def send(self) -> list[Sending]:
        sent = []
        while (sending := self.copier.next_batch(BROKER, ALL_COVERED)) is not None:
            sent.append(sending)
        return sent

    def answer(self, sending: Sending, code: int | None = None) -> int:
        """Let the target judge a batch, or answer with ``code`` without looking at it."""
        code = self.target.store(sending) if code is None else code
        event = Acked(sending.token, self.target.stored_at, self.now_s) if code == 0 else None
        self.carry_out(self.copier.handle(event or ProduceRefused(sending.token, code, None, self.now_s)))
        return code

    def lose(self, sending: Sending) -> None:
        self.carry_out(self.copier.handle(ProduceLost(sending.token, "reset", self.now_s)))

    def copy_all(self, merging: MergeRule, *, rounds: int = 2_000) -> None:
        """Copy to the end while nothing else goes wrong."""
        for _ in range(rounds):
            self.rest()
            if self.copier.wants_fetch and self.copier.fetch_offset < self.source.end:
                self.read(merging)
            for sending in self.send():
                self.answer(sending)
            if self.copier.position.source_offset == self.source.end:
                return
        raise AssertionError(f"stuck: {self.copier.state} {self.copier.reason}")


def ten_small() -> Source:
    return Source([(at + 1, small(at)) for at in range(10)])


def assert_in_order(target: Target, end: int, *, exact: bool) -> None:
    """Nothing is missing, nothing overtakes; ``exact``: nothing stands there twice."""
    seen: list[int] = []
    for offset in target.log:
        assert offset <= len(seen), f"{offset} came before {len(seen)}"
        if offset == len(seen):
            seen.append(offset)
    assert seen == list(range(end))
    assert not exact or target.log == seen


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("now", RULES)
def test_a_merged_batch_whose_answer_was_lost_is_sent_again_as_it_was(stored: bool, now: MergeRule) -> None:
    part = Partition(ten_small(), Target())
    part.read(MERGE_ALL)
    (first,) = part.send()
    if stored:
        part.target.store(first)
    part.lose(first)
    part.source.batches.append((11, small(10)))  # more has come meanwhile
    part.rest()
    part.read(now)
    (again,) = part.send()
    assert (again.sequence, bytes(again.batch.data)) == (first.sequence, bytes(first.batch.data))
    part.answer(again)
    part.copy_all(now)
    assert part.target.log == list(range(11))
    assert part.new_epochs == []


@pytest.mark.parametrize("now", RULES)
def test_batches_that_were_passed_and_lost_are_not_merged_when_they_are_sent_again(now: MergeRule) -> None:
    part = Partition(ten_small(), Target())
    part.read(PASS_ALL)
    part.answer(part.send()[0])
    lost = part.send()
    for sending in lost:
        part.target.store(sending)
    for sending in lost:
        part.lose(sending)
    part.copy_all(now)
    assert part.target.log == list(range(10))
    assert part.new_epochs == []


def test_a_merged_batch_of_unknown_outcome_waits_for_a_read_that_holds_it_whole() -> None:
    part = Partition(ten_small(), Target())
    part.read(MERGE_ALL)
    part.lose(part.send()[0])
    part.rest()
    assert part.read(MERGE_ALL, max_bytes=300).steps == []
    assert part.least_bytes > 300
    reads = 1
    while not part.read(PASS_ALL, max_bytes=300).steps:
        reads += 1
    assert reads < 5
    part.copy_all(PASS_ALL)
    assert part.target.log == list(range(10))
    assert part.new_epochs == []


def test_a_merged_batch_of_unknown_outcome_that_never_comes_whole_again_is_given_up_without_loss() -> None:
    """Reads that stay small: a rate limit was set, or what stood at its end has expired. Waiting would be for ever."""
    part = Partition(ten_small(), Target())
    part.read(MERGE_ALL)
    (first,) = part.send()
    part.target.store(first)
    part.lose(first)
    part.rest()
    for _ in range(MAX_CUT_READS):
        part.least_bytes = 0
        assert part.read(MERGE_ALL, max_bytes=300).steps == []
    assert len(part.new_epochs) == 1
    part.copy_all(MERGE_ALL)
    assert_in_order(part.target, 10, exact=False)


def test_reads_that_bring_nothing_do_not_count_against_batches_of_unknown_outcome() -> None:
    """Other partitions had filled the reply."""
    part = Partition(ten_small(), Target())
    part.read(MERGE_ALL)
    part.lose(part.send()[0])
    part.rest()
    for _ in range(3 * MAX_CUT_READS):
        empty = Plan(next_offset=0)
        part.carry_out(part.copier.handle(Fetched(empty, part.lease, 0, 10, part.now_s)))
    part.copy_all(PASS_ALL)
    assert part.target.log == list(range(10))
    assert part.new_epochs == []


@pytest.mark.parametrize("cleaner", ["a batch is gone", "the last batch is gone"])
def test_a_merged_batch_of_unknown_outcome_with_a_part_compacted_away_needs_a_new_epoch(cleaner: str) -> None:
    part = Partition(ten_small(), Target())
    part.read(MERGE_ALL)
    (first,) = part.send()
    part.target.store(first)
    part.lose(first)
    del part.source.batches[4 if cleaner == "a batch is gone" else 9]
    part.source.batches.append((13, small(10, 3)))
    part.rest()
    part.copy_all(MERGE_ALL)
    assert len(part.new_epochs) == 1
    assert set(part.target.log) == set(range(13))


# Too large for the target


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("limit", [2_000, 150])
def test_a_limit_that_was_lowered_costs_no_epoch_and_repeats_nothing(told: bool, limit: int) -> None:
    """Refused for its size means not stored: what was merged is cut anew, and its sequence goes to the first part."""
    part = Partition(Source([(at + 1, small(at)) for at in range(300)]), SizedTarget(max_bytes=limit))
    part.described_max_bytes = limit if told else None
    part.copy_all(MERGE_ALL)
    assert part.target.log == list(range(300))
    assert part.new_epochs == []
    assert (part.lease.holders, part.lease.extra) == (0, 0)


def test_an_unknown_limit_is_found_in_few_attempts() -> None:
    """Each refusal halves what is merged. Taking just less than was refused would take as many as there are batches."""
    part = Partition(Source([(at + 1, small(at, 1, bytes(500))) for at in range(1_500)]), SizedTarget(max_bytes=3_000))
    refused = 0
    for _ in range(4_000):
        part.rest()
        if part.copier.wants_fetch and part.copier.fetch_offset < part.source.end:
            part.read(MERGE_ALL)
        refused += sum(part.answer(sending) == 10 for sending in part.send())
        if part.copier.position.source_offset == part.source.end:
            break
    assert part.target.log == list(range(1_500))
    assert 3 < refused <= 12


def test_batches_sent_behind_one_that_is_too_large_are_cut_again_with_it() -> None:
    part = Partition(Source([(at + 1, small(at, 1, bytes(400_000))) for at in range(8)]), SizedTarget())
    part.rules = replace(part.rules, merged_max_bytes=900_000)
    part.source.batches[0] = (1, small(0))
    part.read(MergeRule(450_000, 0, "tests"), max_bytes=1 << 30)
    part.answer(part.send()[0])
    part.target.max_bytes = 500_000
    part.described_max_bytes = 500_000
    behind = part.send()
    assert len(behind) > 2
    assert [part.answer(sending) for sending in behind[:2]] == [10, 10]
    part.target.max_bytes = 1 << 30
    assert {part.answer(sending) for sending in behind[2:]} == {45}
    part.copy_all(MERGE_ALL)
    assert part.target.log == list(range(8))
    assert part.new_epochs == []


def test_a_repeat_that_is_refused_for_its_size_stays_of_unknown_outcome() -> None:
    """Stored, its answer lost, then the limit is lowered: the refusal of the repeat says nothing of the first."""
    part = Partition(ten_small(), SizedTarget())
    part.read(MERGE_ALL)
    (first,) = part.send()
    assert part.target.store(first) == 0
    part.lose(first)
    part.target.max_bytes = part.described_max_bytes = 150
    part.copy_all(MERGE_ALL)
    assert len(part.new_epochs) == 1
    assert "reads differently" in part.new_epochs[0], "its sequence is not even offered to another batch"
    assert_in_order(part.target, 10, exact=False)


# A record that the target does not take


@dataclass
class ChoosyTarget(Target):
    """Refuses every batch that holds the record of one source offset, before it looks at sequences, as brokers do."""

    refused: int = -1

    def store(self, sending: Sending) -> int:
        refuses = sending.batch.first_offset <= self.refused < sending.batch.next_offset
        return 87 if refuses else super().store(sending)


@pytest.mark.parametrize("lost", [False, True])
def test_a_record_that_the_target_refuses_holds_up_none_before_it_in_its_merged_batch(lost: bool) -> None:
    part = Partition(ten_small(), ChoosyTarget(refused=6))
    part.read(MERGE_ALL)
    if lost:
        part.lose(part.send()[0])
        part.rest()
        part.read(MERGE_ALL)
    (merged,) = part.send()
    assert part.answer(merged) == 87
    assert part.copier.search.pass_until == 10
    with pytest.raises(AssertionError, match="the record of source offset 6"):
        part.copy_all(PASS_ALL)
    assert part.target.log == list(range(6))
    assert len(part.new_epochs) == lost


# A random walk


@given(seed=st.integers(0, 1 << 32), limits=st.booleans())
def test_changing_rules_and_lost_answers_never_cost_an_epoch_nor_repeat_anything(seed: int, limits: bool) -> None:
    """Answers get lost, leaders and limits change, reads are cut anywhere. Only limits may cost an epoch."""
    rng = random.Random(seed)
    source, at = Source(), 0
    for _ in range(rng.randint(1, 120)):
        at += rng.choice([0] * 9 + [3])
        count = rng.randint(1, 4)
        source.batches.append((at + count, small(at, count, rng.randbytes(rng.choice([1, 30, 200])))))
        at += count
    target = SizedTarget()
    part = Partition(source, target)
    open_requests: list[Sending] = []
    for _ in range(5_000):
        part.rest()
        copier = part.copier
        if copier.wants_fetch and copier.fetch_offset < source.end and rng.random() < 0.8:
            part.read(rng.choice(RULES), max_bytes=rng.choice([100, 700, 3_000, 1 << 20]))
        if limits and rng.random() < 0.02:
            target.max_bytes = rng.choice([1_100, 3_000, 1 << 20])
            part.described_max_bytes = rng.choice([None, target.max_bytes])
        open_requests += part.send()
        if open_requests and rng.random() < 0.9:
            sending, dice = open_requests.pop(0), rng.random()
            if dice < 0.05:
                part.answer(sending, 6)
            elif dice < 0.15:
                target.store(sending)
                for lost in [sending, *open_requests]:  # the connection breaks with all that is on it
                    part.lose(lost)
                open_requests.clear()
            elif dice < 0.17:
                part.carry_out(copier.handle(FetchRefused(6, part.now_s)))
                part.answer(sending)
            else:
                part.answer(sending)
        if copier.position.source_offset == source.end:
            break
    assert part.copier.position.source_offset == source.end, f"stuck: {part.copier.state} {part.copier.reason}"
    there = [offset for end, data in source.batches for offset in range(end - data[60], end)]
    numbers = {offset: number for number, offset in enumerate(there)}
    target.log = [numbers[offset] for offset in target.log if offset in numbers]
    assert limits or part.new_epochs == []
    assert_in_order(target, len(there), exact=not part.new_epochs)
    assert (part.lease.holders, part.lease.extra) == (0, 0)
