"""Stripes: however they come, the copier gets the log in order, all of it, and each batch once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.reading.stripes import Stripe, Stripes, extent_of
from mm2py.kafka.port import FetchedPartition
from tests.fakes.broker.record_batch import Record, build_batch

EPOCH = 3


@dataclass
class _Lease:
    released: int = 0

    def release(self, extra_bytes: int) -> None:
        assert extra_bytes == 0
        self.released += 1


@dataclass
class _Log:
    """A log of batches: (first offset, next offset, bytes). Between them offsets may be missing."""

    batches: list[tuple[int, int, bytes]]
    leases: list[_Lease] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1][1]

    def read(self, offset: int, size_bytes: int) -> memoryview:
        """Return what a broker answers: from the batch that holds the offset on, the last one cut."""
        data = b"".join(data for _, after, data in self.batches if after > offset)
        first = next((len(data) for _, after, data in self.batches if after > offset), 0)
        return memoryview(bytearray(data[: max(size_bytes, first)]))

    def answer(self, stripes: Stripes, stripe: Stripe) -> None:
        lease = _Lease()
        self.leases.append(lease)
        records = self.read(stripe.offset, stripes.ask_bytes(stripe))
        stripes.arrived(stripe, FetchedPartition("t", 0, 0, self.end, self.end, 0, records), lease)


def log_of(sizes: list[tuple[int, int, int]]) -> _Log:
    """Return a log of batches of so many records of so many bytes, and so many missing offsets after each."""
    offset, batches = 100, []
    for records, size, missing in sizes:
        data = offset.to_bytes(8) + bytes(build_batch([Record(b"x" * size)] * records))[8:]
        batches.append((offset, offset + records, data))
        offset += records + missing
    return _Log(batches)


def copy_some(stripes: Stripes, copied: list[int]) -> int:
    """Take what is there as a copier does: batches behind what it has. Return how often something was taken."""
    count = 0
    while (stripe := stripes.take()) is not None:
        assert stripe.fetched is not None
        records, position = stripe.fetched.records, 0
        while extent_of(records[position:]) is not None:
            size = int.from_bytes(records[position + 8 : position + 12]) + 12
            one = extent_of(records[position : position + size])
            assert one is not None
            if one.next_offset > stripes.next_offset:
                assert one.first_offset >= stripes.next_offset
                copied.append(one.first_offset)
                stripes.next_offset = one.next_offset
            position += size
        stripe.release()
        count += 1
    return count


BATCHES = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 200), st.sampled_from([0, 0, 0, 1, 40])), min_size=1, max_size=60
)


@given(BATCHES, st.integers(0, 2**32), st.integers(100, 4_000), st.floats(0.5, 500.0))
def test_each_batch_comes_once_and_in_order(
    sizes: list[tuple[int, int, int]], seed: int, stripe_bytes: int, bytes_per_offset: float
) -> None:
    """Whatever is guessed of the log, in whatever order answers come, and if some never come."""
    log, rng = log_of(sizes), random.Random(seed)
    stripes = Stripes(100, EPOCH, bytes_per_offset=bytes_per_offset)
    under_way: list[Stripe] = []
    copied: list[int] = []
    for _ in range(20_000):
        if stripes.next_offset >= log.end:
            break
        if rng.random() < 0.6 and len(stripes) < 8:
            stripe = stripes.open(stripe_bytes, log.end)
            if stripe is not None:
                under_way.append(stripe)
        elif under_way:
            stripe = under_way.pop(rng.randrange(len(under_way)))
            if rng.random() < 0.1:
                stripes.lost(stripe)
            else:
                log.answer(stripes, stripe)
        copy_some(stripes, copied)
        if (hole := stripes.hole()) is not None:
            assert hole.offset == stripes.next_offset
            under_way.append(hole)
        if rng.random() < 0.5:
            under_way += stripes.holes(100)
            assert not stripes.holes(100)  # each is asked for once
    assert copied == [first for first, _, _ in log.batches]
    stripes.drop()
    assert all(lease.released == 1 for lease in log.leases)


def even_log(batches: int = 200) -> _Log:
    return log_of([(10, 90, 0)] * batches)


def test_in_an_even_log_no_hole_is_left_and_little_comes_twice() -> None:
    log = even_log()
    size = len(log.batches[0][2])
    stripes, copied, asked = Stripes(100, EPOCH, bytes_per_offset=size / 10), list[int](), 0
    while stripes.next_offset < log.end:
        under_way = [stripe for _ in range(6) if (stripe := stripes.open(20 * size, log.end)) is not None]
        for stripe in under_way:
            asked += stripes.ask_bytes(stripe)
            log.answer(stripes, stripe)
        assert stripes.holes(100) == []
        copy_some(stripes, copied)
        assert stripes.hole() is None
    assert asked < 1.1 * sum(len(data) for _, _, data in log.batches)


def test_holes_between_stripes_are_read_at_the_same_time_before_the_copier_gets_there() -> None:
    """Where each was found only when the copier had come so far, a partition with uneven batches was copied with a
    sixth of the rate."""
    log = log_of([(10, 20 if number // 7 % 2 else 180, 0) for number in range(400)])
    stripes = Stripes(100, EPOCH, bytes_per_offset=110.0)
    under_way = [stripe for _ in range(12) if (stripe := stripes.open(11_000, log.end)) is not None]
    for stripe in under_way[1:]:
        log.answer(stripes, stripe)
    copied: list[int] = []
    assert not copy_some(stripes, copied)  # the first one has not come yet
    holes = stripes.holes(100)
    assert len(holes) > 2
    while holes:
        for hole in holes:
            log.answer(stripes, hole)
        holes = stripes.holes(100)
    log.answer(stripes, under_way[0])
    while (hole := stripes.hole()) is not None or copy_some(stripes, copied):
        if hole is not None:
            log.answer(stripes, hole)
    assert copied == list(range(100, stripes.next_offset, 10))
    assert not len(stripes)


def test_offsets_that_a_log_lacks_are_no_hole_once_they_were_asked_for() -> None:
    log = log_of([(10, 100, 40)] * 100)
    stripes = Stripes(100, EPOCH, bytes_per_offset=22.0)
    under_way = [stripe for _ in range(6) if (stripe := stripes.open(4_000, log.end)) is not None]
    for stripe in under_way:
        log.answer(stripes, stripe)
    rounds = 0
    while holes := stripes.holes(100):
        rounds += 1
        for hole in holes:
            log.answer(stripes, hole)
    assert rounds <= 2


def test_a_stripe_is_no_answer_as_long_as_the_log_may_have_been_truncated_before_it() -> None:
    """The story: the leader changes and its log is cut back. The read at the position would tell, but its connection
    breaks. Another stripe begins in the same batch; taken at once, it would hide that the log is another one."""
    log = log_of([(100, 5, 0)] * 3)
    stripes = Stripes(150, EPOCH, bytes_per_offset=1.0)
    first, second = stripes.open(20, log.end), stripes.open(20, log.end)
    assert first is not None
    assert second is not None
    assert second.offset < 200  # in the batch that holds the position
    stripes.lost(first)
    log.answer(stripes, second)
    assert stripes.take() is None
    hole = stripes.hole()
    assert hole is not None
    assert hole.offset == 150


def test_an_error_behind_the_position_is_asked_again_where_it_counts() -> None:
    log = even_log()
    stripes = Stripes(100, EPOCH, bytes_per_offset=100.0)
    first, second = stripes.open(2_000, log.end), stripes.open(2_000, log.end)
    assert first is not None
    assert second is not None
    lease = _Lease()
    stripes.arrived(second, FetchedPartition("t", 0, 1), lease)
    assert lease.released == 1
    assert stripes.open(2_000, log.end) is None  # no further guesses until what is there has been taken
    stripes.arrived(first, FetchedPartition("t", 0, 1), _Lease())
    taken = stripes.take()
    assert taken is first  # the copier hears of this one
    assert taken.fetched is not None
    assert taken.fetched.error_code == 1


def test_dropped_stripes_give_back_what_has_arrived() -> None:
    log = even_log()
    stripes = Stripes(100, EPOCH, bytes_per_offset=100.0)
    under_way = [stripe for _ in range(3) if (stripe := stripes.open(2_000, log.end)) is not None]
    for stripe in under_way[1:]:
        log.answer(stripes, stripe)
    stripes.drop()
    assert [lease.released for lease in log.leases] == [1, 1]


def test_a_large_hole_is_read_in_pieces() -> None:
    """F26: the link was cut, and what arrived is far ahead. All before it, asked for at once, never came in time."""
    log = log_of([(10, 100, 0)] * 100)
    stripes = Stripes(100, EPOCH, bytes_per_offset=110.0)
    under_way = [stripe for _ in range(20) if (stripe := stripes.open(4_000, log.end)) is not None]
    for stripe in under_way[:-1]:
        stripes.lost(stripe)
    log.answer(stripes, under_way[-1])
    copied: list[int] = []
    pieces = 0
    while (hole := stripes.hole(4_000)) is not None:
        assert hole.size_bytes <= 4_000
        log.answer(stripes, hole)
        copy_some(stripes, copied)
        pieces += 1
    assert pieces > 5
    assert copied == list(range(100, stripes.next_offset, 10))
