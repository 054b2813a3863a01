"""The tail of a remote partition: what a damaged read or a log that was cut back looks like in it."""

from __future__ import annotations

import itertools

import pytest

from mm2py.copying.recovery import REPEATED_FENCES_MOST, LastWriter, Tail
from mm2py.records.batch import stamp
from tests.fakes.broker.record_batch import Record, build_batch, build_marker, parse_batch, rewrite

WRITER = LastWriter(7, 0, 100)
FROM = 50


def batch(offset: int, sequence: int, records: int = 3) -> bytes:
    raw = build_batch(
        [Record(b"x")] * records, now_ms=1, producer_id=WRITER.producer_id, producer_epoch=0, base_sequence=sequence
    )
    return rewrite(parse_batch(raw), base_offset=offset).raw


def marker(offset: int, epoch: int = 1) -> bytes:
    raw = build_marker(commit=False, producer_id=WRITER.producer_id, producer_epoch=epoch, timestamp_ms=1)
    return rewrite(parse_batch(raw), base_offset=offset).raw


def marker_of_another(offset: int) -> bytes:
    raw = build_marker(commit=False, producer_id=8, producer_epoch=1, timestamp_ms=1)
    return rewrite(parse_batch(raw), base_offset=offset).raw


def read(*batches: bytes, high_watermark: int = 1_000) -> Tail:
    tail = Tail(FROM, WRITER, fence_epoch=1)
    assert tail.take(memoryview(bytearray(b"".join(batches))), high_watermark=high_watermark)
    return tail


def test_what_the_writer_wrote_under_an_earlier_epoch_is_no_copy_behind_its_position() -> None:
    """Its sequences began again when its epoch was raised: what it wrote before would look like records to come."""
    tail = Tail(FROM, WRITER._replace(epoch=1), fence_epoch=2)
    assert tail.take(memoryview(bytearray(batch(50, 500) + marker(53, epoch=2))), high_watermark=1_000)
    assert tail.stored == 0


def test_markers_are_of_no_foreign_writer_and_count_for_nothing_however_often_they_come() -> None:
    """M1: a coordinator writes a marker once more where its answer was lost; the end is where the log says it is."""
    tail = read(marker_of_another(50), marker_of_another(51), batch(52, 100), marker(55, epoch=0), marker(56))
    assert (tail.foreign, tail.stored, tail.next_offset) == ({}, 3, 57)


def test_what_another_incarnation_of_the_flow_wrote_is_not_foreign() -> None:
    """M1, M6: it could not be shut out at once, or its last batch was on its way."""
    theirs = bytearray(batch(50, 0))
    stamp(theirs, 9, 0, 0)
    other = rewrite(parse_batch(bytes(theirs)), base_offset=50).raw
    for known_ids, foreign in ((frozenset({9}), set()), (frozenset[int](), {9})):
        tail = Tail(FROM, WRITER, fence_epoch=1, known_ids=known_ids)
        assert tail.take(memoryview(bytearray(other + marker(53))), high_watermark=1_000)
        assert (set(tail.foreign), tail.stored) == (foreign, 0)


def test_what_stands_behind_the_end_is_not_taken_where_offsets_before_it_were_cleaned_away() -> None:
    """Somebody has written from 50 to 52, and a cleaner has taken it: what begins at 53 is not between."""
    tail = Tail(FROM, LastWriter(-2, 0, 0), fence_epoch=None, end=53)
    assert tail.take(memoryview(bytearray(batch(53, 100))), high_watermark=1_000)
    assert tail.foreign == {}


@pytest.mark.parametrize(("offset", "sequence"), [(50, 101), (48, 100), (52, 103)])
def test_a_batch_too_near_to_the_position_shows_that_something_before_it_is_gone(offset: int, sequence: int) -> None:
    assert read(batch(offset, sequence), marker(offset + 3)).cut_at == offset


@pytest.mark.parametrize(("fence_epoch", "stored"), [(1, 40), (2, 39), (9, 32), (99, 0)])
def test_a_marker_among_what_was_trimmed_is_not_taken_for_a_record(fence_epoch: int, stored: int) -> None:
    """A life fences the writer and dies; retention removes that marker too. Counted, it would leave a record out."""
    assert trimmed(40, fence_epoch) == stored


@pytest.mark.parametrize(("deleted", "stored"), [(1, 0), (REPEATED_FENCES_MOST, 0), (REPEATED_FENCES_MOST + 1, 17)])
def test_a_few_deleted_offsets_may_all_be_markers_of_one_epoch(deleted: int, stored: int) -> None:
    """Three workers died between a fence and their first position, and each had written its marker again.

    Somebody deleted the first marker. It was taken for the copy of the first record, which was then left out.
    """
    assert trimmed(deleted, 1) == stored


def trimmed(offsets: int, fence_epoch: int) -> int:
    """Return how many records are told where only the last marker is left behind deleted offsets."""
    tail = Tail(FROM, WRITER, fence_epoch=fence_epoch)
    tail.begin_at(FROM + offsets)
    end = FROM + offsets + 1
    assert tail.take(memoryview(bytearray(marker(end - 1, fence_epoch))), high_watermark=end)
    assert tail.next_offset == end
    return tail.stored


@pytest.mark.parametrize("byte", [16, 30, 70])
def test_a_batch_that_was_damaged_on_the_way_is_believed_nothing(byte: int) -> None:
    spoiled = bytearray(batch(50, 100))
    spoiled[byte] ^= 1
    tail = Tail(FROM, WRITER, fence_epoch=1)
    assert not tail.take(memoryview(spoiled + marker(53)), high_watermark=54)
    assert (tail.stored, tail.next_offset) == (0, FROM), "it is read again"


LOG = [batch(50, 100), batch(53, 103, 40), batch(93, 143), marker_of_another(96), batch(97, 146, 2), marker(99)]
HOLED = [LOG[0], batch(75, 103), batch(78, 106), marker(93)]
"""A cleaner has been there."""
BITS = range(8 * 16, 8 * 40)
"""From the magic byte on: the checksum shows them, or it is one of them."""


@pytest.mark.parametrize("most", [1, 2, 9])
@pytest.mark.parametrize("log", [LOG, HOLED], ids=["whole", "cleaned"])
def test_wherever_one_bit_flips_the_tail_is_told_right(log: list[bytes], most: int) -> None:
    def told(place: int = -1, number: int = -1, bit: int = 0) -> tuple[int, int, int | None]:
        tail = Tail(FROM, WRITER, fence_epoch=1)
        for count in range(40):
            left = [bytearray(one) for one in log if parse_batch(one).last_offset >= tail.next_offset][:most]
            if count == number:
                left[place % len(left)][bit // 8] ^= 1 << bit % 8
            if tail.take(memoryview(bytearray(b"".join(left))), high_watermark=100):
                break
        assert tail.is_whole
        return tail.stored, tail.next_offset, tail.cut_at

    wanted = told()
    assert wanted[2] is None
    for number, place, bit in itertools.product(range(4), range(min(most, 6)), BITS):
        assert told(place, number, bit) == wanted, (number, place, bit)
