"""A batch that does not follow the one before it is believed when the next one bears it out, or when it came twice."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from mm2py.replication.damage import MAX_CORRUPT_READS, Damage, Known
from mm2py.replication.events import Report
from mm2py.replication.rewrite import plan
from mm2py.replication.steps import Doubt, Fault, Outgoing, Plan, TargetRules

RULES: Final = TargetRules(max_message_bytes=1 << 20)
EPOCH: Final = 6
FLIPPABLE: Final = 17
"""Base offset, length, leader epoch and magic: what a batch's checksum does not cover."""


def batch(first: int, count: int, *, epoch: int = EPOCH) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for at in range(count):
        assert builder.append(at, 1_000, b"k", b"%d" % (first + at), [])
    made = builder.build()
    struct.pack_into(">q", made, 0, first)
    struct.pack_into(">i", made, 12, epoch)
    return bytes(made)


def planned(
    *batches: bytes, wanted: int = 0, epoch: int = EPOCH, highest: int = EPOCH + 3, doubted: Sequence[Doubt] = ()
) -> Plan:
    return plan(
        memoryview(bytearray(b"".join(batches))),
        wanted_offset=wanted,
        read_committed=False,
        aborted=(),
        rules=RULES,
        known=Known(epoch, highest, doubted),
    )


def test_batches_that_follow_each_other_are_believed_at_once() -> None:
    result = planned(batch(5, 5), batch(10, 5), wanted=5)
    assert (result.next_offset, result.doubt) == (15, None)


# The doubtful one is the last of its read


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (batch(12, 5), "a hole before it"),
        (batch(10, 5, epoch=EPOCH + 1), "a higher leader epoch"),
        (batch(10, 5, epoch=EPOCH - 1), "a lower one"),
        (batch(10, 5, epoch=-(2**31) + EPOCH), "a negative one"),
    ],
)
def test_a_last_batch_that_does_not_follow_the_one_before_it_is_believed_once_it_came_twice(
    last: bytes, why: str
) -> None:
    result = planned(batch(5, 5), last, wanted=5)
    assert (result.next_offset, result.fault) == (10, None), why
    assert result.doubt is not None
    again = planned(last, wanted=10, doubted=[result.doubt])
    assert (again.doubt, again.believed) == (None, [result.doubt])
    assert again.next_offset > 10


def test_a_batch_that_lies_otherwise_when_it_is_read_again_is_doubted_anew() -> None:
    doubt = planned(batch(12, 5), wanted=10).doubt
    assert doubt == Doubt(10, 12, 17, EPOCH)
    other = planned(batch(14, 5), wanted=10, doubted=[doubt])
    assert (other.doubt, other.believed) == (Doubt(10, 14, 19, EPOCH), [])


@pytest.mark.parametrize("first", [batch(7, 5), batch(2, 5)], ids=["reaches over it", "ends before it"])
def test_a_first_batch_that_begins_before_what_was_asked_for_may_have_been_moved_back(first: bytes) -> None:
    """It was at 10, a bit of its offset flipped, and what seems to lie below 10 would be left out."""
    result = planned(first, batch(15, 5), wanted=10)
    assert (result.steps, result.next_offset) == ([], 10)
    assert result.doubt is not None
    assert planned(first, batch(15, 5), wanted=10, doubted=[result.doubt]).believed == [result.doubt]


def test_where_the_log_is_not_known_the_first_epoch_is_looked_at_twice() -> None:
    assert planned(batch(0, 5), epoch=-1).doubt == Doubt(0, 0, 5, EPOCH)
    assert planned(batch(0, 5), batch(5, 5), epoch=-1).next_offset == 10


# The next one is there as well


@pytest.mark.parametrize("next_offset", [17, 30])
def test_a_hole_is_borne_out_by_a_next_batch_that_lies_behind(next_offset: int) -> None:
    result = planned(batch(5, 5), batch(12, 5), batch(next_offset, 1), batch(next_offset + 1, 1), wanted=5)
    assert (result.next_offset, result.doubt) == (next_offset + 2, None)


def test_what_straddles_the_start_is_borne_out_by_the_batch_that_follows_at_once() -> None:
    assert planned(batch(7, 5), batch(12, 5), wanted=10).next_offset == 17


@pytest.mark.parametrize(
    "damaged",
    [batch(11, 5), batch(10 + 2**40, 5), batch(10, 5, epoch=EPOCH + 2), batch(10, 5, epoch=EPOCH - 2)],
    ids=["a little further on", "far away", "epoch too high", "epoch too low"],
)
def test_a_damaged_batch_does_not_fit_the_one_behind_it(damaged: bytes) -> None:
    result = planned(batch(5, 5), damaged, batch(15, 5), wanted=5)
    assert result.next_offset == 10
    assert result.doubt is not None


def test_no_batch_has_a_higher_epoch_than_its_partition() -> None:
    """Else the source would refuse the next read, which names that epoch."""
    fault = planned(batch(5, 5, epoch=EPOCH + 64), wanted=5).fault
    assert fault is not None
    assert (fault.kind, fault.offset) == ("corrupt records", 5)
    assert planned(batch(5, 5, epoch=EPOCH + 64), batch(10, 5, epoch=EPOCH + 64), wanted=5, highest=-1).fault is None


def test_who_does_not_say_what_is_known_believes_everything() -> None:
    records = memoryview(bytearray(batch(3, 5) + batch(20, 5, epoch=2)))
    result = plan(records, wanted_offset=5, read_committed=False, aborted=(), rules=RULES)
    assert (result.next_offset, result.doubt) == (25, None)


# What is remembered


@pytest.mark.parametrize("kind", ["crc mismatch", "corrupt records", "unknown magic"])
def test_a_damaged_batch_is_read_again_a_few_times_and_named_once_when_it_is_behind_us(kind: str) -> None:
    damage = Damage()
    fault = Fault(kind, 10, None, "A batch's checksum does not fit its bytes.")  # type: ignore[arg-type]
    for _ in range(MAX_CORRUPT_READS):
        assert damage.read(Plan(next_offset=10, fault=fault)) is None
        assert damage.met(fault)
    assert damage.read(Plan(next_offset=10)) is None, "it is not behind us"
    report = damage.read(Plan(next_offset=15))
    assert isinstance(report, Report)
    assert (report.event, report.severe) == ("source.damaged", False)
    assert "offset 10 came damaged 3 times" in report.text
    assert damage.read(Plan(next_offset=20)) is None


def test_what_stays_damaged_is_an_operators_trouble() -> None:
    damage = Damage()
    fault = Fault("corrupt records", 10, None, "A batch has a length of 3.")
    assert [damage.met(fault) for _ in range(MAX_CORRUPT_READS + 2)] == [True] * MAX_CORRUPT_READS + [False] * 2


def test_what_no_flipped_bit_makes_is_not_read_again() -> None:
    assert not Damage().met(Fault("too large", 10, 11, "A record of 2 MB."))


def test_a_doubtful_batch_that_came_otherwise_was_damaged_and_one_that_came_again_was_not() -> None:
    doubt = Doubt(10, 12, 17, EPOCH)
    for believed, is_damaged in (([doubt], False), ([], True)):
        damage = Damage()
        assert damage.read(Plan(next_offset=10, doubt=doubt)) is None
        assert list(damage.doubted) == [doubt]
        report = damage.read(Plan(next_offset=17, believed=list(believed)))
        assert (report is not None) is is_damaged
        assert not damage.doubted


def test_two_doubtful_batches_that_must_come_in_one_read_do_not_wait_for_each_other() -> None:
    """What was sent as one batch is planned as one again; until it is whole nothing is planned, and both are kept."""
    damage = Damage()
    first, second = Doubt(10, 12, 17, EPOCH), Doubt(17, 20, 25, EPOCH)
    damage.read(Plan(next_offset=10, doubt=first))
    damage.read(Plan(next_offset=10, doubt=second, believed=[first]))
    assert list(damage.doubted) == [first, second]
    assert damage.read(Plan(next_offset=25, believed=[first, second])) is None


# One flipped bit, anywhere


@dataclass(frozen=True)
class _Log:
    batches: Sequence[tuple[int, int, bytes]]
    """(first, next) offset and bytes."""

    def read(self, offset: int, most: int) -> bytearray:
        return bytearray(b"".join([data for _, next_, data in self.batches if next_ > offset][:most]))


def _copy(log: _Log, start: int, most: int, spoil: Callable[[int, bytearray], None]) -> list[bytes]:
    """Read a log to its end as a fetch lane and a copier do; return the values copied."""
    end, at, epoch = log.batches[-1][1], start, -1
    damage, copied = Damage(), list[bytes]()
    for number in range(100):
        if at >= end:
            break
        records = log.read(at, most)
        spoil(number, records)
        result = plan(
            memoryview(records),
            wanted_offset=at,
            read_committed=False,
            aborted=(),
            rules=RULES,
            known=Known(epoch, EPOCH, damage.doubted),
        )
        if result.next_offset > end:
            continue
        damage.read(result)
        if result.fault is not None:
            assert damage.met(result.fault), result.fault
        for step in result.steps:
            if isinstance(step, Outgoing):
                copied += [record.value or b"" for record in DefaultRecordBatch(bytes(step.data))]
            epoch = step.leader_epoch
        at = result.next_offset
    assert at == end, "it stands still"
    return copied


def _log_of(chance: random.Random, *, holes: bool) -> _Log:
    batches, offset, epoch = list[tuple[int, int, bytes]](), 1_000, EPOCH - 4
    for _ in range(6):
        if holes and chance.random() < 0.5:
            offset += chance.randint(1, 100)
        epoch += chance.random() < 0.3
        count = chance.randint(1, 9)
        batches.append((offset, offset + count, batch(offset, count, epoch=epoch)))
        offset += count
    return _Log(batches)


@dataclass
class _Flip:
    """Flips one bit of the header of some batch in one read."""

    read: int
    place: int
    bit: int
    moved_back: bool = False

    def __call__(self, number: int, records: bytearray) -> None:
        if number != self.read:
            return
        starts = [0]
        while (end := starts[-1] + 12 + int.from_bytes(records[starts[-1] + 8 : starts[-1] + 12])) < len(records):
            starts.append(end)
        begin = starts[(self.place * 7 + self.bit) % len(starts)]
        before = records[begin : begin + 8]
        records[begin + self.place] ^= 1 << self.bit
        self.moved_back = records[begin : begin + 8] < before


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_wherever_one_bit_flips_each_record_is_copied_once_and_in_order(seed: int, holes: bool) -> None:
    """A batch that is moved back into a hole before it may come twice; still none is missing."""
    chance = random.Random(seed)
    log, most = _log_of(chance, holes=holes), chance.randint(1, 4)
    start = chance.choice([0, log.batches[0][0], log.batches[1][0]])
    wanted = [b"%d" % at for first, next_, _ in log.batches if next_ > start for at in range(first, next_)]
    assert _copy(log, start, most, lambda *_: None) == wanted
    for read, place, bit in itertools.product(range(4), range(FLIPPABLE), range(8)):
        flip = _Flip(read, place, bit)
        copied = _copy(log, start, most, flip)
        if flip.moved_back and (holes or start == 0):
            copied = list(dict.fromkeys(copied))
        assert copied == wanted, flip


# Beyond the end of the log


def test_what_is_appended_while_a_broker_reads_is_no_damage() -> None:
    """It notes the log's end, another batch is appended, and the read brings that, too."""
    damage = Damage()
    assert damage.reached_beyond(100, 105, 103) == Plan(next_offset=100)
    damage.stayed_within(100, 105)
    assert damage.read(Plan(next_offset=105)) is None


def test_a_batch_that_was_moved_behind_the_end_of_the_log_is_reported_when_it_came_whole() -> None:
    damage = Damage()
    damage.reached_beyond(100, 1 << 40, 103)
    damage.stayed_within(100, 103)
    report = damage.read(Plan(next_offset=103))
    assert report is not None
    assert (report.event, "claims to reach to offset 1099511627776" in report.text) == ("source.damaged", True)


def test_a_batch_that_lies_behind_the_end_of_the_log_again_and_again_is_a_fault() -> None:
    damage = Damage()
    assert damage.reached_beyond(100, 1 << 40, 103).fault is None
    fault = damage.reached_beyond(100, 1 << 40, 103).fault
    assert fault is not None
    assert damage.met(fault)
