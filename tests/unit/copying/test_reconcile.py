"""Tail, walk and comparison: how far an earlier writer got, read from logs that may have lost much since. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import Outgoing, Step, TargetRules
from mm2py.copying.recovery import Comparison, LastWriter, SourceWalk, Tail
from mm2py.offsets.recovered import matched_entries, recovered_entries
from mm2py.offsets.runs import Hole, HoleCause, Run
from mm2py.records.batch import SEQUENCE_MODULUS, stamp
from tests.fakes.broker.cluster_state import ClusterState
from tests.fakes.broker.record_batch import Record, build_batch
from tests.fakes.virtual_time import VirtualClock

RULES = TargetRules(max_message_bytes=1 << 20)
P, E = 70, 3
FENCE = E + 1


class Pair:
    """A source log and its copy; whoever copies dies without storing where it is."""

    def __init__(self, *, compacted: bool = False, stamped: bool = False) -> None:
        self.state = ClusterState("x", VirtualClock(), random.Random(1))
        policy = {"cleanup.policy": "compact"} if compacted else {}
        self.state.create_topic("s", 1, policy)
        self.state.create_topic("t", 1, {**policy, **({"message.timestamp.type": "LogAppendTime"} if stamped else {})})
        self.copied_to = 0
        self.sequence = 5
        self.number = 0

    def produce(self, count: int, *, keys: int = 0, same: bool = False) -> None:
        records = []
        for _ in range(count):
            self.number += 1
            key = b"k%d" % (self.number % keys) if keys else None
            records.append(Record(b"same" if same else b"%d" % self.number, key, timestamp_ms=1_760_000_000_000))
        self.state.append("s", 0, records)

    def steps(self, offset: int, *, committed: bool = True) -> Sequence[Step]:
        log = self.state.partition("s", 0).log
        raw = b"".join(bytes(batch.raw) for batch in log.batches if batch.last_offset >= offset)
        aborted = log.aborted_within(offset, log.end_offset) if committed else []
        return plan(memoryview(raw), wanted_offset=offset, read_committed=committed, aborted=aborted, rules=RULES).steps

    def copy(self, *, committed: bool = True) -> None:
        for step in self.steps(self.copied_to, committed=committed):
            if isinstance(step, Outgoing):
                data = bytearray(step.data)
                stamp(data, P, E, self.sequence)
                self.state.append("t", 0, bytes(data))
                self.sequence = (self.sequence + step.record_count) % SEQUENCE_MODULUS
            self.copied_to = step.next_offset

    def fence(self, epoch: int = FENCE) -> None:
        self.state.write_marker("t", 0, P, epoch)

    def tail(self, at: int, sequence: int = 5, *, fence: int = FENCE, keep: bool = False, chunk: int = 1 << 30) -> Tail:
        part = self.state.partition("t", 0)
        tail = Tail(at, LastWriter(P, E, sequence), fence_epoch=fence, keep_records=keep)
        tail.begin_at(part.log.log_start_offset)
        for _ in range(2 * len(part.log.batches) + 1):  # a batch behind a hole may have to come twice
            raws = [bytes(batch.raw) for batch in part.log.batches if batch.last_offset >= tail.next_offset]
            if tail.take(memoryview(b"".join(raws[:chunk])), high_watermark=part.high_watermark):
                break
        return tail

    def resume(self, at: int = 0, source_at: int = 0, *, committed: bool = True, fence: int = FENCE) -> int:
        """Return where copying goes on, as the reconciler finds it."""
        tail = self.tail(at, fence=fence)
        assert tail.is_whole
        start = self.state.partition("s", 0).log.log_start_offset
        if not tail.stored:
            return source_at
        walk = SourceWalk(source_at, -1, tail.stored)
        over = start <= source_at and walk.take(self.steps(source_at, committed=committed))
        if over and walk.is_proven_by(tail):
            return walk.resume_offset
        comparison = Comparison(source_at, -1, self.tail(at, fence=fence, keep=True), log_start=start)
        comparison.take(self.steps(comparison.read_offset, committed=committed))
        return comparison.resume_offset


@given(
    batches=st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["data", "abort", "commit"])), max_size=12),
    foreign=st.booleans(),
    chunk=st.integers(1, 4),
    compact_source=st.booleans(),
    compact_target=st.booleans(),
    more=st.integers(0, 4),
    sequence=st.sampled_from([5, SEQUENCE_MODULUS - 3]),
)
def test_copying_goes_on_at_the_record_behind_the_last_one_copied(
    batches: list[tuple[int, str]],
    foreign: bool,
    chunk: int,
    compact_source: bool,
    compact_target: bool,
    more: int,
    sequence: int,
) -> None:
    pair = Pair(compacted=True)
    pair.sequence = sequence
    for count, kind in batches:
        if kind == "data":
            pair.produce(count, keys=3)
        else:
            transaction = pair.state.transaction()
            pair.number += 1
            transaction.append("s", 0, [Record(b"t%d" % pair.number, b"t")])
            transaction.abort() if kind == "abort" else transaction.commit()
    pair.copy()
    if foreign:
        pair.state.producer().append("t", 0, [Record(b"f", b"foreign")])
    copied_to = pair.copied_to
    uncounted = [step for step in pair.steps(0) if isinstance(step, Outgoing)]
    behind_last = max((step.next_offset for step in uncounted), default=0)
    pair.fence()
    if compact_target:
        pair.state.compact("t")
    pair.produce(1, keys=3)
    for _ in range(more):
        pair.produce(2, keys=3)
    if compact_source:
        pair.state.compact("s")
    tail = pair.tail(0, sequence, chunk=chunk)
    assert tail.is_whole
    assert tail.stored == sum(step.record_count for step in uncounted)
    assert len(tail.foreign) == foreign
    check_entries(pair, tail, sequence)
    pair_resume = _resume(pair, sequence)
    assert pair_resume <= copied_to, "nothing is left out"
    if not (compact_source and compact_target):
        left = pair.state.records("s", 0, committed=True)
        assert not [one for one in left if pair_resume <= one.offset < behind_last], "nothing is repeated"


def check_entries(pair: Pair, tail: Tail, sequence: int) -> None:
    """What the ledger is told of the tail is true of every record that both logs still have."""
    walk = SourceWalk(0, -1, tail.stored)
    if not tail.stored:
        return
    if walk.take(pair.steps(0)) and walk.is_proven_by(tail):
        entries = recovered_entries(
            walk.counted.runs, tail.places.runs, target_start=0, target_end=tail.record_end, cause=HoleCause.COUNTED
        )
    else:
        kept = pair.tail(0, sequence, keep=True)
        comparison = Comparison(0, -1, kept)
        comparison.take(pair.steps(0))
        end = (comparison.resume_offset, kept.record_end)
        entries = matched_entries(comparison.matches.runs, kept.copies, (0, 0), end)
        assert all(one.source_end <= end[0] and one.target_end <= end[1] for one in entries)
    assert all(one.source_end <= other.source_offset for one, other in pairwise(entries))
    assert all(one.target_end <= other.target_offset for one, other in pairwise(entries))
    told = {
        run.target_offset + at: run.source_offset + at
        for run in entries
        if isinstance(run, Run)
        for at in range(run.record_count)
    }
    source = {one.offset: (one.key, one.value) for one in pair.state.records("s", 0, committed=True)}
    for copy in pair.state.records("t", 0):
        if copy.value != b"f":
            holes = [one for one in entries if isinstance(one, Hole)]
            in_hole = any(hole.target_offset <= copy.offset < hole.target_end for hole in holes)
            assert copy.offset in told or (in_hole and (copy.key, copy.value) not in source.values())
            if in_hole:
                continue
            assert source.get(told[copy.offset], (copy.key, copy.value)) == (copy.key, copy.value)


def _resume(pair: Pair, sequence: int) -> int:
    tail = pair.tail(0, sequence)
    if not tail.stored:
        return 0
    walk = SourceWalk(0, -1, tail.stored)
    if walk.take(pair.steps(0)) and walk.is_proven_by(tail):
        return walk.resume_offset
    comparison = Comparison(0, -1, pair.tail(0, sequence, keep=True))
    comparison.take(pair.steps(0))
    return comparison.resume_offset


def test_a_position_within_what_was_one_source_batch_resumes_at_a_record() -> None:
    pair = Pair()
    pair.produce(10)
    for step in pair.steps(0):
        assert isinstance(step, Outgoing)
    data = bytearray(build_batch([Record(b"%d" % at, timestamp_ms=1_760_000_000_000) for at in range(1, 5)]))
    stamp(data, P, E, 5)
    pair.state.append("t", 0, bytes(data))
    pair.fence()
    assert pair.resume() == 4


@pytest.mark.parametrize("at", range(16, 61))
def test_a_flipped_bit_in_a_read_of_the_target_never_changes_the_count(at: int) -> None:
    pair = Pair()
    pair.produce(3)
    pair.produce(2)
    pair.copy()
    pair.fence()
    raws = [bytearray(batch.raw) for batch in pair.state.partition("t", 0).log.batches]
    for hurt, bit in product(range(len(raws)), range(8)):
        copies = [bytearray(raw) for raw in raws]
        copies[hurt][at] ^= 1 << bit
        tail = Tail(0, LastWriter(P, E, 5), fence_epoch=FENCE)
        assert not tail.take(memoryview(b"".join(copies)), high_watermark=6)


def test_without_evidence_a_count_over_a_hole_is_not_believed() -> None:
    """The target deleted all; the source was cleaned: so many records are counted again only further on."""
    pair = Pair()
    for _ in range(4):
        pair.produce(20)
    pair.copy()
    pair.fence()
    pair.produce(40)
    pair.state.delete_records("t", 0, 80)
    del pair.state.partition("s", 0).log.batches[1]
    assert pair.resume() == 80


def test_without_evidence_each_fence_in_between_may_be_one_of_the_deleted_offsets() -> None:
    """Another life has fenced, and was killed before it owned the partition; its marker was deleted with the tail."""
    pair = Pair()
    pair.produce(60)
    pair.copy()
    pair.fence(E + 1)
    pair.state.delete_records("t", 0, 61)
    pair.fence(E + 2)
    pair.produce(4)
    assert pair.resume(fence=E + 2) == 60


def test_records_that_look_the_same_are_rather_repeated_than_left_out() -> None:
    """Stamped by the target, all alike; the first ones have expired on the source: the next one is not yet copied."""
    pair = Pair(stamped=True)
    for _ in range(6):
        pair.produce(1, same=True)
    pair.copy()
    pair.fence()
    pair.produce(3, same=True)
    pair.state.delete_records("s", 0, 4)
    assert pair.resume() == 6


def test_what_expired_behind_the_last_copied_record_is_left_to_be_reported() -> None:
    pair = Pair()
    pair.produce(5)
    pair.copy()
    pair.fence()
    pair.produce(20)
    pair.state.delete_records("s", 0, 15)
    assert pair.resume() == 5


def test_a_source_that_was_cut_back_and_refilled_is_not_taken_for_what_was_copied() -> None:
    pair = Pair()
    for _ in range(3):
        pair.produce(2)
    pair.copy()
    pair.fence()
    pair.state.truncate("s", 0, 4)
    pair.produce(6)
    assert pair.resume() == 4


def aborted_between(pair: Pair) -> None:
    pair.produce(2)
    transaction = pair.state.transaction()
    transaction.append("s", 0, [Record(b"aborted", timestamp_ms=1_760_000_000_000)] * 3)
    transaction.abort()
    pair.produce(2)


def committed_walk(pair: Pair) -> tuple[SourceWalk, Tail]:
    tail = pair.tail(0)
    walk = SourceWalk(0, -1, tail.stored)
    assert walk.take(pair.steps(0, committed=True))
    return walk, tail


def test_a_tail_without_the_aborted_records_that_are_read_now_shows_how_it_was_copied() -> None:
    pair = Pair()
    aborted_between(pair)
    pair.copy(committed=True)
    pair.fence()
    pair.produce(3)
    walk, tail = committed_walk(pair)
    assert walk.shows_another_isolation(tail)
    assert walk.resume_offset == pair.copied_to


@pytest.mark.parametrize("why", ["a record is missing", "the last record is another", "stamped by the target"])
def test_what_else_may_have_happened_is_not_taken_for_another_isolation(why: str) -> None:
    pair = Pair(stamped=why == "stamped by the target")
    aborted_between(pair)
    pair.copy(committed=why != "the last record is another")
    pair.fence()
    pair.produce(9)
    if why == "a record is missing":
        del pair.state.partition("s", 0).log.batches[0]
    walk, tail = committed_walk(pair)
    assert not walk.shows_another_isolation(tail)


@pytest.mark.parametrize("raised_to", [E, E + 1])
def test_a_marker_below_the_fence_does_not_end_the_tail(raised_to: int) -> None:
    """An older self-fence, or the abort of the keep-alive, leaves markers of lower epochs."""
    pair = Pair()
    pair.produce(2)
    pair.copy()
    pair.fence(raised_to)
    tail = pair.tail(0, fence=E + 2)
    assert not tail.is_whole
    pair.fence(E + 2)
    assert pair.tail(0, fence=E + 2).is_whole


def test_a_tail_without_a_fence_ends_at_the_given_offset_and_counts_foreign_records_up_to_it() -> None:
    pair = Pair()
    pair.state.producer().append("t", 0, [b"1", b"2"])
    pair.state.producer().append("t", 0, [b"3"])
    raw = b"".join(bytes(batch.raw) for batch in pair.state.partition("t", 0).log.batches)
    tail = Tail(0, LastWriter(-2, 0, 0), fence_epoch=None, end=2)
    assert tail.take(memoryview(raw), high_watermark=3)
    assert [(met.first_offset, met.last_offset, met.records) for met in tail.foreign.values()] == [(0, 1, 2)]


def test_a_later_epoch_of_the_same_writer_is_not_counted() -> None:
    pair = Pair()
    pair.produce(2)
    pair.copy()
    data = bytearray(build_batch([Record(b"later")]))
    stamp(data, P, E + 1, 0)
    pair.state.append("t", 0, bytes(data))
    pair.fence(E + 2)
    assert pair.tail(0, fence=E + 2).stored == 2


@pytest.mark.parametrize("hole", [False, True])
def test_a_batch_that_holds_more_than_is_decoded_ends_no_lookup(hole: bool) -> None:
    """It had passed as bytes. The worker was killed behind it, and the lookup of its last record raised ever after.

    Where offsets are missing as well, nothing proves how far the copy got: the batch is copied again.
    """
    pair = Pair()
    bomb = build_batch([Record(bytes(70_000_000), timestamp_ms=1_760_000_000_000)], codec="zstd")
    pair.produce(2)
    pair.state.append("s", 0, bomb, at_offset=5 if hole else None)
    pair.copy()
    pair.fence()
    assert (pair.resume(), pair.copied_to) == (3, 6 if hole else 3)
