"""What a fetch of the control log brought is believed only where it fits together, whichever bit is wrong."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from mm2py.group.log_reading import LogPlace, unpack
from mm2py.records.batch import NewRecord, build_batch, place, read_header
from mm2py.records.compression import Codec
from tests.fakes.hostile_batches import HOSTILE, batch_around, gzip_member


def batch(base_offset: int, count: int, epoch: int) -> bytearray:
    made = build_batch([NewRecord(None, b"%d" % (base_offset + number), 1_000) for number in range(count)])
    struct.pack_into(">q", made, 0, base_offset)
    struct.pack_into(">i", made, 12, epoch)
    return made


def at(base_offset: int, made: bytearray) -> bytearray:
    """Return the batch as the log has it, under leader epoch 1. Neither field is in its checksum."""
    struct.pack_into(">q", made, 0, base_offset)
    struct.pack_into(">i", made, 12, 1)
    return made


def fetched(*batches: bytearray) -> memoryview:
    return memoryview(bytearray(b"".join(batches)))


def offsets(data: memoryview, place: LogPlace, highest_epoch: int) -> tuple[list[int], LogPlace, bool]:
    found = unpack(data, place, highest_epoch)
    for read in found.reads:
        assert read.record is not None and read.record.value == b"%d" % read.offset
    return [read.offset for read in found.reads], found.place, bool(found.fault)


def test_records_from_the_wanted_one_on_come_with_the_place_behind_them() -> None:
    data = fetched(batch(10, 5, 2), batch(15, 1, 2), batch(16, 2, 4))
    assert offsets(data, LogPlace(12, -1), 4) == ([12, 13, 14, 15, 16, 17], LogPlace(18, 4), False)
    assert offsets(data, LogPlace(10, -1), 4) == (list(range(10, 18)), LogPlace(18, 4), False)


def test_a_batch_that_was_cut_short_is_left_for_the_next_read() -> None:
    data = fetched(batch(10, 5, 2), batch(15, 3, 2))
    assert offsets(data[:-1], LogPlace(10, 2), 2) == (list(range(10, 15)), LogPlace(15, 2), False)
    assert offsets(data[:70], LogPlace(10, 2), 2) == ([], LogPlace(10, 2), False)


def test_no_bit_that_flips_makes_a_wrong_record_or_a_wrong_place() -> None:
    """Where all was read under one epoch. What a wrong length cuts off is left for the next read."""
    data = fetched(batch(10, 3, 3), batch(13, 2, 3))
    ends = {10: LogPlace(10, 3), 13: LogPlace(13, 3)}
    first_size = read_header(data).size_bytes
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        read, place, _ = offsets(data, LogPlace(10, 3), 3)
        assert place == (ends[10] if bit // 8 < first_size else ends[13]), f"bit {bit}"
        assert read == list(range(10, place.offset)), f"bit {bit}"
        data[bit // 8] ^= 1 << bit % 8


def test_a_hole_a_repetition_and_an_epoch_that_falls_are_faults() -> None:
    for wrong in (batch(14, 1, 3), batch(12, 1, 3), batch(13, 1, 2), batch(13, 1, 9)):
        assert offsets(fetched(batch(10, 3, 3), wrong), LogPlace(10, 3), 4) == ([10, 11, 12], LogPlace(13, 3), True)
    assert offsets(fetched(batch(11, 1, 3)), LogPlace(10, 3), 3) == ([], LogPlace(10, 3), True)
    assert offsets(fetched(batch(7, 3, 3)), LogPlace(10, 3), 3) == ([], LogPlace(10, 3), True)


def test_a_batch_that_nobody_can_decompress_is_one_record_without_content() -> None:
    made = build_batch([NewRecord(None, b"x", 1_000)])
    made[22] |= 7  # a codec that does not exist
    struct.pack_into(">q", made, 0, 10)
    struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    struct.pack_into(">i", made, 12, 0)
    found = unpack(fetched(made), LogPlace(10, -1), 0)
    assert [(read.offset, read.record) for read in found.reads] == [(10, None)]
    assert found.place == LogPlace(11, 0) and found.reads[0].why


def test_a_read_stops_once_it_holds_much_and_the_next_one_goes_on() -> None:
    """Who may write to the control log could make each reader hold gigabytes: few bytes may be many."""
    parts = [at(number, build_batch([NewRecord(None, bytes(900_000), 1_000)], codec=Codec.ZSTD)) for number in range(9)]
    data = fetched(*parts)
    assert len(data) < 10_000
    found = unpack(data, LogPlace(0, 1), 1)
    assert ([read.offset for read in found.reads], found.place, found.fault) == ([0, 1, 2, 3, 4], LogPlace(5, 1), "")
    found = unpack(data[5 * len(parts[0]) :], found.place, 1)
    assert [read.offset for read in found.reads] == [5, 6, 7, 8]


def test_empty_records_count_for_what_they_take_in_memory() -> None:
    """99 bytes held 20,000 records: a read of 1 MB held the loop for minutes, and memory without a bound."""
    records = [NewRecord(None, None, 1_000)] * 20_000
    made = build_batch(records, codec=Codec.ZSTD, deltas=[0] * len(records))
    place(made, 0, 1)
    batches = [at(number, bytearray(made)) for number in range(10)]
    assert sum(map(len, batches)) < 1_000
    assert unpack(fetched(*batches), LogPlace(0, 1), 1).place == LogPlace(1, 1)


@pytest.mark.parametrize("name", ["gzip: a byte a member", "snappy: empty blocks"])
def test_no_more_of_a_hostile_batch_is_decoded_on_the_loop_than_the_topic_takes_as_one(name: str) -> None:
    """The story: gzip with a byte a member, 16 MB of it in one batch, held the event loop of each worker a second."""
    codec, fill = HOSTILE[name]
    large = at(0, bytearray(batch_around(fill(2 << 20), codec, record_count=1)))
    (read,) = unpack(fetched(large), LogPlace(0, 1), 1).reads
    assert read.record is None and read.why.endswith("is larger than the 1048576 that are decoded.")


def test_a_read_stops_after_some_batches_whose_content_is_found_wrong_when_it_was_decoded() -> None:
    """Such a batch leaves no record that would count. Each of these takes a megabyte to find that out."""
    wrong = batch_around(gzip_member(bytes(1 << 20)), Codec.GZIP, record_count=1)
    batches = [at(number, bytearray(wrong)) for number in range(20)]
    found = unpack(fetched(*batches), LogPlace(0, 1), 1)
    assert [(read.offset, read.record) for read in found.reads] == [(number, None) for number in range(4)]
    assert found.place == LogPlace(4, 1) and not found.fault


def test_a_record_of_very_many_headers_is_one_without_content() -> None:
    made = build_batch([NewRecord(None, b"0", 1_000, [("", None)] * 20_001)], codec=Codec.ZSTD)
    struct.pack_into(">i", made, 12, 0)
    (read,) = unpack(fetched(made), LogPlace(0, 0), 0).reads
    assert read.record is None
