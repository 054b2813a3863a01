"""The record batch: its header, stamping, our own small batches. Bytes come from Kafka's Java classes or aiokafka."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from mm2py.compiled_core import CORE
from mm2py.errors import Mm2Error
from mm2py.records.batch import (
    BatchHeader,
    NewRecord,
    NotPassable,
    Record,
    build_batch,
    crc_is_right,
    next_sequence,
    read_header,
    read_records,
    split,
    stamp,
)
from mm2py.records.compression import Codec, UnknownCodec
from mm2py.records.varints import CorruptBatch, read_varint, read_varlong, varint

KAFKA_BATCHES = {
    (int(magic), codec, timestamps): bytes.fromhex(data)
    for magic, codec, timestamps, data in (
        line.split()
        for line in (Path(__file__).parents[1] / "data" / "kafka_batches.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}
CODECS = [codec.name.lower() for codec in Codec]
VALUE = b"value one value one value one"
KAFKA_RECORDS = [
    NewRecord(b"k", VALUE, 1700000000000, [("h", b"x"), ("h", None), ("", b"")]),
    NewRecord(None, b"", 1700000000005),
    NewRecord(b"", None, 1699999999990),
]


def patched(batch: bytes | bytearray, position: int, form: str, *values: int) -> bytearray:
    """Return the batch with fields changed and its checksum right again."""
    changed = bytearray(batch)
    struct.pack_into(form, changed, position, *values)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return changed


def test_a_header_written_by_kafka_is_read_field_by_field() -> None:
    batch = KAFKA_BATCHES[2, "zstd", "LogAppendTime"]
    header = read_header(batch)
    assert header == BatchHeader(
        base_offset=1000,
        length=len(batch) - 12,
        partition_leader_epoch=5,
        magic=2,
        crc=0x31F5FC5F,
        attributes=0x0C,
        last_offset_delta=2,
        base_timestamp_ms=1700000000000,
        max_timestamp_ms=1700000009999,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        record_count=3,
    )
    assert (header.size_bytes, header.last_offset, header.next_offset) == (len(batch), 1002, 1003)
    assert (header.codec, header.is_log_append_time) == (Codec.ZSTD, True)
    assert not header.is_control


def test_our_own_batch_has_the_bytes_that_kafka_writes() -> None:
    ours = build_batch(KAFKA_RECORDS)
    stamp(ours, 4711, 3, 17)
    expected = bytearray(KAFKA_BATCHES[2, "none", "CreateTime"])
    struct.pack_into(">q", expected, 0, 0)
    struct.pack_into(">i", expected, 12, -1)
    assert ours == expected


@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_wrote_is_read_in_every_codec(codec: str) -> None:
    records = read_records(KAFKA_BATCHES[2, codec, "CreateTime"])
    assert [(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in records] == [
        (1000 + index, new.timestamp_ms, new.key, new.value, list(new.headers))
        for index, new in enumerate(KAFKA_RECORDS)
    ]


def test_under_log_append_time_every_record_has_the_batch_s_newest_timestamp() -> None:
    records = read_records(KAFKA_BATCHES[2, "gzip", "LogAppendTime"])
    assert [record.timestamp_ms for record in records] == [1700000009999] * 3


@pytest.mark.parametrize("codec", CODECS)
def test_stamping_changes_the_header_only_and_leaves_a_batch_that_kafka_would_accept(codec: str) -> None:
    source = patched(KAFKA_BATCHES[2, codec, "CreateTime"], 21, ">h", 0x50 | Codec[codec.upper()])
    batch = bytearray(source)
    stamp(memoryview(batch), 99, 7, 2**31 - 1)
    assert batch[61:] == source[61:]
    assert read_header(batch) == read_header(source)._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        crc=read_header(batch).crc,
        attributes=Codec[codec.upper()],  # the transactional and the delete horizon bit do not travel (H6)
        producer_id=99,
        producer_epoch=7,
        base_sequence=2**31 - 1,
    )
    assert crc_is_right(batch)
    assert DefaultRecordBatch(bytes(batch)).validate_crc()


@given(
    size=st.sampled_from([0, 8_000, 8_131, 8_132, 100_000, 900_001]),
    producer=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    again=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    attributes=st.integers(0, 2**16 - 1),
)
def test_the_checksum_of_a_stamped_batch_is_right_however_large_it_is(
    size: int, producer: tuple[int, int, int], again: tuple[int, int, int], attributes: int
) -> None:
    """With the core, that of a large one follows from what the stamp changed."""
    batch = build_batch([NewRecord(b"key", b"x" * size, 1_700_000_000_000)])
    struct.pack_into(">H", batch, 21, attributes & ~0x28)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    stamp(batch, *producer, core=CORE)
    assert crc_is_right(batch)
    stamp(batch, *again, transactional=True, core=CORE)
    assert crc_is_right(batch)


def test_damage_between_two_looks_at_a_large_batch_is_not_hidden_by_a_stamp_with_the_core() -> None:
    batch = build_batch([NewRecord(b"key", b"x" * 10_000, 1_700_000_000_000)])
    batch[5_000] ^= 1
    stamp(batch, 1, 2, 3, core=CORE)
    assert crc_is_right(batch) == (CORE is None)


def test_attributes_that_kafka_may_define_one_day_do_not_travel() -> None:
    batch = patched(KAFKA_BATCHES[2, "lz4", "CreateTime"], 21, ">h", 0x7F83)
    stamp(batch, 1, 0, 0)
    assert read_header(batch).attributes == Codec.LZ4


def test_a_batch_is_stamped_as_part_of_a_transaction_if_that_is_wanted() -> None:
    batch = build_batch(KAFKA_RECORDS, codec=Codec.LZ4)
    stamp(batch, 1, 2, 30, transactional=True)
    assert read_header(batch).attributes == Codec.LZ4 | 0x10
    assert crc_is_right(batch)
    stamp(batch, 1, 2, 30)
    assert read_header(batch).attributes == Codec.LZ4


@pytest.mark.parametrize("attribute", [0x08, 0x20])
def test_log_append_time_and_control_batches_are_never_stamped(attribute: int) -> None:
    batch = patched(KAFKA_BATCHES[2, "none", "CreateTime"], 21, ">h", attribute)
    before = bytes(batch)
    with pytest.raises(NotPassable):
        stamp(batch, 1, 0, 0)
    assert batch == before


def test_one_flipped_bit_from_the_attributes_on_breaks_the_checksum() -> None:
    source = KAFKA_BATCHES[2, "none", "CreateTime"]
    for position in range(17, len(source)):
        batch = bytearray(source)
        batch[position] ^= 0x10
        assert not crc_is_right(batch)


@pytest.mark.parametrize(
    ("base_sequence", "record_count", "expected"),
    [(0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 10, 30, 20), (5, 2**31 - 1, 4)],
)
def test_sequences_wrap_to_zero(base_sequence: int, record_count: int, expected: int) -> None:
    assert next_sequence(base_sequence, record_count) == expected


def test_a_fetch_is_split_into_whole_batches_and_a_cut_last_one_is_left_out() -> None:
    parts = [
        KAFKA_BATCHES[2, "none", "CreateTime"],
        KAFKA_BATCHES[1, "gzip", "CreateTime"],
        bytes(build_batch(KAFKA_RECORDS)),
    ]
    whole = b"".join(parts)
    ends = [sum(map(len, parts[:count])) for count in range(4)]
    for cut in range(len(whole) + 1):
        found = list(split(memoryview(whole)[:cut]))
        assert [bytes(view) for view in found] == parts[: sum(end <= cut for end in ends) - 1]


def test_splitting_copies_nothing() -> None:
    fetched = bytearray(build_batch(KAFKA_RECORDS))
    (batch,) = split(memoryview(fetched))
    stamp(batch, 5, 1, 0)
    assert read_header(fetched).producer_id == 5


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 4])
def test_a_length_that_no_batch_can_have_ends_the_split(length: int) -> None:
    batch = bytearray(build_batch(KAFKA_RECORDS))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch):
        list(split(memoryview(batch)))


def test_a_header_that_is_not_all_there_is_said_to_be_so() -> None:
    with pytest.raises(CorruptBatch, match="only 60 bytes"):
        read_header(bytes(100), 40)


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


HEADERS = st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.none() | st.binary()), max_size=4)
NEW_RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(),
        st.none() | st.binary(),
        st.sampled_from([-1, 0, 253402300800000]) | st.integers(0, 2**62),
        HEADERS,
    ),
    min_size=1,
    max_size=20,
)


@given(NEW_RECORDS, st.sampled_from(Codec))
def test_what_is_built_is_read_back_and_aiokafka_reads_the_same(new: list[NewRecord], codec: Codec) -> None:
    batch = build_batch(new, codec=codec)
    expected = [Record(i, r.timestamp_ms, r.key, r.value, list(r.headers)) for i, r in enumerate(new)]
    assert read_records(batch) == expected
    other = DefaultRecordBatch(bytes(batch))
    assert other.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in other] == expected
    assert other.max_timestamp == max(r.timestamp_ms for r in new)


@given(NEW_RECORDS, st.sampled_from(Codec))
def test_what_aiokafka_builds_is_read(new: list[NewRecord], codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for index, record in enumerate(new):
        # aiokafka takes a first timestamp of -1 for "not set yet" and then writes wrong deltas
        builder.append(index, max(record.timestamp_ms, 0), record.key, record.value, list(record.headers))
    assert read_records(bytes(builder.build())) == [
        Record(i, max(r.timestamp_ms, 0), r.key, r.value, list(r.headers)) for i, r in enumerate(new)
    ]


def test_a_header_key_that_is_no_text_survives_reading_and_writing() -> None:
    batch = build_batch([NewRecord(b"", b"", 0, [("ab", b"")])])
    odd = patched(batch.replace(b"ab", b"\xff\xfe"), 0, ">q", 0)
    (record,) = read_records(odd)
    assert build_batch([NewRecord(b"", b"", 0, record.headers)]) == odd


@given(st.data())
def test_damage_that_its_checksum_does_not_show_is_refused_or_read_but_nothing_else(data: st.DataObject) -> None:
    batch = bytearray(KAFKA_BATCHES[2, data.draw(st.sampled_from(CODECS)), "CreateTime"])
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(12, len(batch) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    try:
        read_records(batch)
    except Mm2Error as error:
        assert isinstance(error, CorruptBatch | UnknownCodec) or "decompress" in str(error)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_of_64_bits_survive(number: int) -> None:
    encoded = varint(number)
    assert read_varlong(encoded, 0) == (number, len(encoded))
    if -(2**31) <= number < 2**31:
        assert len(encoded) <= 5
        assert read_varint(encoded, 0) == (number, len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff" * 4 + b"\x1f", b"\x80" * 5 + b"\x01"])
def test_a_number_of_more_than_32_bits_is_refused_where_kafka_has_32(encoded: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_varint(encoded, 0)


@pytest.mark.parametrize("encoded", [b"\xff" * 9 + b"\x03", b"\x80" * 10 + b"\x01", b"\x80" * 1000])
def test_a_number_of_more_than_64_bits_is_refused(encoded: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_varlong(encoded, 0)
