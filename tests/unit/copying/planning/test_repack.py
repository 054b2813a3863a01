"""Repacking: what is merged, that nothing in it changes, and that a repeat is cut as it was cut before.

Batches are written by the encoder of the tests. What comes out is read by mm2py and by aiokafka.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.planning.merge import merge
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import (
    BACKLOG_BATCHES,
    GROWTH_BYTES,
    MERGE_ALL,
    MERGE_SMALL,
    MERGED_MAX_BYTES,
    MERGED_PLAIN_MAX_BYTES,
    MIDDLE_BYTES,
    PASS_ALL,
    SMALL_BYTES,
    SMALL_RECORDS,
    TINY_COMPRESSED_BYTES,
    Dropped,
    MergeRule,
    Outgoing,
    Plan,
    TargetRules,
    merge_rule,
)
from mm2py.errors import ConfigError
from mm2py.records import batch as batches
from mm2py.records.batch import HEADER_BYTES, Record, assemble, crc_is_right, place, read_header, read_records
from mm2py.records.varints import varint
from mm2py.topics.filters import CopyMode, CopyModes
from tests.fakes.broker.record_batch import CODECS, build_marker, encode_records, parse_batch, rewrite

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON = 0x08, 0x10, 0x40
ROOMY = TargetRules(max_message_bytes=1 << 20)
Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Timestamp, key, value, headers: what a copy must keep."""
PLAIN_ROW: Row = (1_700_000_000_000, b"k", b"v", ())


def batch_of(
    rows: Sequence[Row], first: int = 0, *, codec: int = NONE, epoch: int = 3, attributes: int = 0, **header: int
) -> bytes:
    return encode_records(
        [(delta, *row) for delta, row in enumerate(rows)],
        base_offset=first,
        codec=CODECS[codec],
        attributes=attributes,
        partition_leader_epoch=epoch,
        **header,
    )


def rows_of(batch: bytes | bytearray | memoryview) -> list[Row]:
    """Read a batch with two readers that must agree, and check what holds for every merged one."""
    raw = bytes(batch)
    header = read_header(raw)
    assert header.size_bytes == len(raw)
    assert crc_is_right(raw)
    ours = read_records(raw)
    theirs = [*DefaultRecordBatch(raw)]
    assert [record.offset - header.base_offset for record in ours] == list(range(header.record_count))
    assert header.last_offset_delta == header.record_count - 1
    assert [row(record) for record in ours] == [
        (record.timestamp, record.key, record.value, tuple(record.headers)) for record in theirs
    ]
    return [row(record) for record in ours]


def row(record: Record) -> Row:
    return record.timestamp_ms, record.key, record.value, tuple(record.headers)


DATA = st.none() | st.binary(max_size=30) | st.integers(0, 9).map(lambda n: bytes([n]) * 300)
TIMES = st.sampled_from([0, 1, 1_600_000_000_000, 253_402_300_800_000, 2**62]) | st.integers(0, 2**45)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["", "h", "h", "other"]) | st.text(st.characters(codec="utf-8"), max_size=3), DATA),
    max_size=4,
).map(tuple)
ROWS = st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), min_size=1, max_size=20)
ATTRIBUTES = st.sampled_from([0, 0, TRANSACTIONAL, DELETE_HORIZON, TRANSACTIONAL | DELETE_HORIZON])


# One batch out of several


@given(st.lists(ROWS, min_size=2, max_size=6), st.integers(0, 4), st.integers(0, 4), ATTRIBUTES)
def test_a_merged_batch_holds_the_records_of_all_in_order(
    parts: list[list[Row]], codec: int, as_codec: int, attributes: int
) -> None:
    horizon = {"base_timestamp": 1_650_000_000_000} if attributes & DELETE_HORIZON else {}
    inputs = [batch_of(rows, 40, codec=codec, attributes=attributes, producer_id=9, **horizon) for rows in parts]
    merged = merge([memoryview(data) for data in inputs], codec, as_codec=as_codec, max_bytes=1 << 20)
    assert merged.data is not None
    assert merged.batch_count == len(parts)
    rows = [one for part in parts for one in part]
    assert rows_of(merged.data) == rows
    header = read_header(merged.data)
    assert (header.base_offset, header.partition_leader_epoch, header.attributes) == (0, -1, as_codec)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (rows[0][0], max(one[0] for one in rows))


def test_a_record_after_the_first_may_be_without_a_timestamp() -> None:
    rows = [(5, b"k", b"v", ()), (-1, b"k", b"v", ()), (-1, None, None, ())]
    merged = merge([batch_of(rows), batch_of(rows[:1])], NONE, as_codec=NONE, max_bytes=1 << 20)
    assert merged.data is not None
    assert rows_of(merged.data) == [*rows, rows[0]]


def body_of(codec: int, body: bytes, count: int) -> bytes:
    return bytes(assemble(body, codec=codec, record_count=count, base_timestamp_ms=0, max_timestamp_ms=0))


ONE_RECORD = batch_of([(0, b"k", b"v", ())])[HEADER_BYTES:]
HORIZON_BEHIND = batch_of([(-1, b"k", b"1", ()), (8, b"k", b"2", ())], base_timestamp=5)
"""Its base timestamp is a delete horizon; its first record has no timestamp, which aiokafka's builder cannot write."""
NOT_TAKEN_APART = {
    "a header key that is no text": lambda codec: batch_of([(0, b"k", b"v", (("\udcff", b""),))], codec=codec),
    "more records than it says": lambda codec: body_of(codec, ONE_RECORD * 3, 2),
    "fewer records than it says": lambda codec: body_of(codec, ONE_RECORD, 2),
    "bytes behind its last record": lambda codec: body_of(codec, ONE_RECORD + b"\x00", 1),
    "a record that is longer than it says": lambda codec: body_of(codec, ONE_RECORD[:-1] + b"\x02", 1),
    "a key of nearly 2^63 bytes": lambda codec: body_of(codec, b"\x20\0\0\0" + varint(2**63 - 2) + b"\x01\0", 1),
    "a value of nearly 2^63 bytes": lambda codec: body_of(codec, b"\x20\0\0\0\1" + varint(2**63 - 50) + b"\0", 1),
    "a record count beyond all reason": lambda codec: body_of(codec, ONE_RECORD, 2**31 - 1),
    "more than may be decompressed": lambda codec: batch_of([(0, b"k", bytes(3 << 20), ())], codec=codec or ZSTD),
}


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("what", NOT_TAKEN_APART)
def test_merging_ends_before_a_batch_that_cannot_be_taken_apart(what: str, codec: int) -> None:
    bad, good = NOT_TAKEN_APART[what](codec), batch_of([PLAIN_ROW], codec=codec)
    if codec == NONE and what == "more than may be decompressed":
        codec, good = ZSTD, batch_of([PLAIN_ROW], codec=ZSTD)
    merged = merge([good, good, bad, good], codec, as_codec=codec, max_bytes=1 << 20)
    assert merged.data is not None
    assert merged.batch_count == 2
    assert rows_of(merged.data) == [PLAIN_ROW] * 2
    for first in ([bad, good], [good, bad]):
        assert merge(first, codec, as_codec=codec, max_bytes=1 << 20).data is None


def test_a_first_record_without_a_timestamp_starts_no_merged_batch() -> None:
    """aiokafka's builder takes -1 for "no first record yet", and gave it the second one's timestamp."""
    good = batch_of([PLAIN_ROW])
    assert merge([HORIZON_BEHIND, good], NONE, as_codec=NONE, max_bytes=1 << 20).data is None
    merged = merge([good, HORIZON_BEHIND], NONE, as_codec=NONE, max_bytes=1 << 20)
    assert merged.data is not None
    assert [one[0] for one in rows_of(merged.data)] == [PLAIN_ROW[0], -1, 8]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_many_small_batches_that_hold_much_are_not_made_one_bomb(codec: int) -> None:
    """60 batches of a few hundred bytes held 180 MB together, which became one batch, for us and for every consumer."""
    one = batch_of([(0, b"k", random.Random(1).randbytes(10_000) + bytes(390_000), ())], codec=codec)
    merged = merge([one] * 60, codec, as_codec=codec, max_bytes=1 << 20)
    assert merged.data is not None
    assert merged.batch_count == 2
    assert merged.plain_bytes <= 1 << 20


def worst_growth(count: int) -> list[bytes]:
    """Batches whose records all grow as far as records can: far timestamps, high numbers, lengths at their edge."""
    edge = bytes(50)  # the longest record whose length still is one byte
    return [batch_of([((2**62 if number % 2 else 0), b"", edge, ())], number) for number in range(count)]


def test_no_record_grows_by_more_than_is_reckoned_with() -> None:
    inputs = worst_growth(20_000)
    merged = merge(inputs, NONE, as_codec=NONE, max_bytes=1 << 30)
    assert merged.data is not None
    before = sum(len(data) - HEADER_BYTES for data in inputs)
    growth = (len(merged.data) - HEADER_BYTES - before) / len(inputs)
    assert 6 < growth <= GROWTH_BYTES
    longest = max(
        len(varint(length + at + stamp)) - len(varint(length)) + at + stamp
        for length in (6, 63, 50, 52, 8191, 8180, 1 << 20, (1 << 20) - 5)
        for at in range(len(varint(MERGED_MAX_BYTES)))
        for stamp in range(10)
    )
    assert longest <= GROWTH_BYTES


@pytest.mark.parametrize("limit", [500, 3_000, 20_000, 1 << 20])
@pytest.mark.parametrize(
    "make", [worst_growth, lambda n: [batch_of([(0, b"k", os.urandom(70), ())], at) for at in range(n)]]
)
def test_no_merged_batch_is_larger_than_the_target_takes(limit: int, make: object) -> None:
    inputs = make(5_000)
    result = planned(b"".join(inputs), rules=TargetRules(limit), merging=MERGE_ALL)
    sizes = [len(step.data) for step in outgoing(result)]
    assert max(sizes) <= min(limit, MERGED_MAX_BYTES)
    assert sum(step.record_count for step in outgoing(result)) == 5_000
    assert limit < 20_000 or len(sizes) < 5_000 / 50


# Which batches


def planned(
    data: bytes,
    *,
    wanted_offset: int = 0,
    rules: TargetRules = ROOMY,
    merging: MergeRule = MERGE_ALL,
    sent_before: Sequence[tuple[int, int]] = (),
    read_committed: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
) -> Plan:
    """Plan, and check what holds for every plan."""
    records = memoryview(bytearray(data))
    result = plan(
        records,
        wanted_offset=wanted_offset,
        read_committed=read_committed,
        aborted=aborted,
        rules=rules,
        merging=merging,
        sent_before=sent_before,
    )
    assert bytes(records) == data
    at = wanted_offset
    for step in result.steps:
        if isinstance(step, Outgoing):
            header = read_header(step.data)
            assert at <= step.first_offset < step.next_offset
            assert len(step.data) <= rules.max_message_bytes
            assert (header.record_count, header.last_offset_delta) == (step.record_count, step.record_count - 1)
            assert header.max_timestamp_ms == step.max_timestamp_ms
            assert rules.compression in (None, header.codec)
        assert at <= step.next_offset
        at = step.next_offset
    assert result.next_offset == at
    assert result.fault is None or result.fault.offset >= at
    return result


def outgoing(result: Plan) -> list[Outgoing]:
    return [step for step in result.steps if isinstance(step, Outgoing)]


def delivered(steps: Sequence[Outgoing | Dropped]) -> list[tuple[int, Row]]:
    """What a consumer of the target sees, each record with its source offset."""
    found: list[tuple[int, Row]] = []
    for step in steps:
        if isinstance(step, Outgoing):
            raw = bytearray(step.data)
            batches.stamp(raw, 4711, 3, 5)
            runs = [*step.runs()]
            ends = [*(index for index, _ in runs[1:]), step.record_count]
            offsets = [first + n for (index, first), end in zip(runs, ends, strict=True) for n in range(end - index)]
            assert offsets[-1] < step.next_offset
            found += zip(offsets, rows_of(raw), strict=True)
    return found


def shapes(steps: Sequence[Outgoing | Dropped]) -> list[tuple[int, int, int, int]]:
    return [
        (step.first_offset, step.next_offset, step.record_count, step.leader_epoch)
        for step in steps
        if isinstance(step, Outgoing)
    ]


def spans(steps: Sequence[Outgoing | Dropped]) -> list[tuple[int, int]]:
    return [(first, end) for first, end, _, _ in shapes(steps)]


def small(first: int, **options: int) -> bytes:
    return batch_of([PLAIN_ROW], first, **options)


def test_several_small_batches_become_one_and_one_alone_passes() -> None:
    (one,) = outgoing(planned(small(7) + small(8) + small(9), wanted_offset=7))
    assert (one.first_offset, one.next_offset, one.record_count, one.leader_epoch, one.reason) == (
        7,
        10,
        3,
        3,
        "repack",
    )
    (alone,) = outgoing(planned(small(7), wanted_offset=7))
    assert (alone.reason, bytes(alone.data)) == (None, small(7))


def test_offsets_missing_between_merged_batches_are_known() -> None:
    """Whole batches that were compacted away, or markers under a lower log: the records behind keep their offsets."""
    (one,) = outgoing(planned(small(0) + small(1) + small(10) + small(11) + small(40)))
    assert spans([one]) == [(0, 41)]
    assert [*one.runs()] == [(0, 0), (2, 10), (4, 40)]


NOT_MERGED = {
    "another leader epoch": small(2, epoch=4) + small(3, epoch=4),
    "another codec": small(2, codec=LZ4) + small(3, codec=LZ4),
}


@pytest.mark.parametrize("what", NOT_MERGED)
def test_merging_ends_at(what: str) -> None:
    assert spans(planned(small(0) + small(1) + NOT_MERGED[what]).steps) == [(0, 2), (2, 4)]


def log_append_time(first: int) -> bytes:
    return small(first, attributes=LOG_APPEND_TIME)


def old_message(first: int) -> bytes:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    builder.append(first, 5, b"k", b"v")
    return bytes(builder.build())


ALONE = {
    "a batch larger than the rule says": (batch_of([(0, b"k", bytes(MERGED_MAX_BYTES // 2), ())], 2), None),
    "a negative base timestamp": (batch_of([(-1, b"k", b"v", ())], 2), None),
    "log append times": (log_append_time(2), "log append time"),
    "offsets missing within it": (
        encode_records([(0, *PLAIN_ROW), (2, *PLAIN_ROW)], base_offset=2, partition_leader_epoch=3),
        "offset gaps",
    ),
    "an old format": (old_message(2), "old format"),
}


@pytest.mark.parametrize("what", ALONE)
def test_what_is_never_merged(what: str) -> None:
    data, reason = ALONE[what]
    end = 5 if reason == "offset gaps" else 3
    steps = outgoing(planned(small(0) + small(1) + data + small(end) + small(end + 1)))
    assert [step.reason for step in steps] == ["repack", reason, "repack"]
    assert spans(steps) == [(0, 2), (2, end), (end, end + 2)]


@pytest.mark.parametrize("read_committed", [False, True])
def test_dropped_batches_stand_between_merged_ones(read_committed: bool) -> None:
    marker = rewrite(
        parse_batch(build_marker(commit=False, producer_id=9, producer_epoch=0, timestamp_ms=1)), base_offset=4
    ).raw
    aborted = small(2, attributes=TRANSACTIONAL, producer_id=9) + small(3, attributes=TRANSACTIONAL, producer_id=9)
    result = planned(
        small(0) + small(1) + aborted + marker + small(5) + small(6), read_committed=read_committed, aborted=[(9, 2)]
    )
    kinds = [step.reason for step in result.steps]
    if read_committed:
        assert kinds == ["repack", "aborted", "aborted", "control", "repack"]
    else:
        assert kinds == ["repack", "control", "repack"]
        assert spans(result.steps) == [(0, 4), (5, 7)]


def test_a_batch_that_cannot_be_taken_apart_is_passed_between_merged_ones() -> None:
    bad = batch_of([(0, b"k", b"v", (("\udcff", b""),))], 2)
    steps = outgoing(planned(small(0) + small(1) + bad + small(3) + small(4)))
    assert [step.reason for step in steps] == ["repack", None, "repack"]
    assert bytes(steps[1].data) == bad


def test_what_stands_before_a_fault_is_merged_and_delivered() -> None:
    damaged = bytearray(small(2))
    damaged[-1] ^= 1
    result = planned(small(0) + small(1) + bytes(damaged))
    assert spans(result.steps) == [(0, 2)]
    assert result.fault is not None
    assert (result.fault.kind, result.fault.offset) == ("crc mismatch", 2)


def test_what_comes_out_too_large_when_it_is_compressed_together_is_planned_one_by_one() -> None:
    """gzip finds digits in random digits, lz4 finds nothing."""
    rng = random.Random(1)
    rows = [(0, b"k", b"%0900d" % rng.randrange(10**900), ()) for _ in range(10)]
    data = b"".join(batch_of([one], at, codec=GZIP) for at, one in enumerate(rows))
    steps = outgoing(planned(data, rules=TargetRules(7_000, compression=LZ4)))
    assert [step.reason for step in steps] == ["compression"] * 10
    assert [one for _, one in delivered(steps)] == rows


@pytest.mark.parametrize("mebibytes", [5, 9])
def test_a_read_does_not_decode_more_than_its_budget(mebibytes: int) -> None:
    """Two batches, or one, hold more than a merged one may: attempts count too, the rest is left for the next read."""
    value = random.Random(1).randbytes(160_000) + bytes(mebibytes << 20)
    big = [batch_of([(0, b"k", value, ())], at, codec=ZSTD) for at in range(20)]
    result = planned(b"".join(big), merging=MERGE_ALL)
    assert 1 <= len(result.steps) <= 3
    assert result.fault is None
    found = [*result.steps]
    while found[-1].next_offset < 20:
        at = found[-1].next_offset
        found += planned(b"".join(big[at:]), wanted_offset=at, merging=MERGE_ALL).steps
    assert spans(found) == [(at, at + 1) for at in range(20)]
    assert ROOMY.decode_budget_bytes >= MERGED_PLAIN_MAX_BYTES


def test_tiny_batches_that_hold_a_thousand_times_their_size_are_passed_without_a_wait() -> None:
    """Each was decompressed up to 8 MB, again and again, for a merge that saves nothing."""
    big = [batch_of([(0, b"k", bytes(5 << 20), ())], at, codec=ZSTD) for at in range(40)]
    assert len(big[0]) < TINY_COMPRESSED_BYTES
    result = planned(b"".join(big), merging=MERGE_SMALL)
    assert [step.reason for step in outgoing(result)] == [None] * 40


def test_batches_that_turn_out_damaged_when_they_are_merged_use_up_the_budget() -> None:
    """Each attempt took the time of 64 KB and counted as nothing; a read brings 8,000 of them."""
    bad = bytearray(batch_of([(0, b"k", bytes(60_000), ())], codec=ZSTD))
    bad[-4] ^= 0xFF  # inside the last block
    found = []
    for at in range(400):
        place(bad, at, at + 1)
        found.append(bytes(bad))
    result = planned(b"".join(found), merging=MERGE_SMALL)
    assert 100 < len(result.steps) < 200


def test_batches_that_cannot_be_merged_do_not_use_the_budget_up() -> None:
    """Each try counted all that wait as decoded: of thousands of batches with odd header keys a read brought ten."""
    odd = [batch_of([(1, None, b"v" * 200, (("\udcff", b""),))], number) for number in range(2_000)]
    result = planned(b"".join(odd))
    assert len(result.steps) == 2_000


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("wanted", range(5))
def test_small_batches_that_need_another_codec_are_compressed_together(codec: int, wanted: int) -> None:
    rows = [(n, b"k", b"value %d" % n * 30, ()) for n in range(40)]
    data = b"".join(batch_of([one], at, codec=codec) for at, one in enumerate(rows))
    rules = TargetRules(1 << 20, compression=wanted)
    (one,) = outgoing(planned(data, rules=rules))
    assert (one.reason, read_header(one.data).codec) == ("repack", wanted)
    assert rows_of(one.data) == rows
    alone = outgoing(planned(data, rules=rules, merging=PASS_ALL))
    assert [step.reason for step in alone] == [None if codec == wanted else "compression"] * 40
    assert wanted == NONE or len(one.data) < sum(len(step.data) for step in alone) / 4


def test_a_merged_batch_that_is_no_longer_compressed_fits_the_target() -> None:
    data = b"".join(batch_of([(0, b"k", bytes(900), ())], at, codec=ZSTD) for at in range(100))
    steps = outgoing(planned(data, rules=TargetRules(10_000, compression=NONE)))
    assert {step.reason for step in steps} == {"repack"}
    assert len(steps) < 15
    assert max(len(step.data) for step in steps) <= 10_000


def test_a_fault_of_a_batch_that_needs_another_codec_comes_behind_what_stands_before_it() -> None:
    bad = rewrite(parse_batch(small(2)), attributes=LZ4).raw
    result = planned(
        small(0, codec=LZ4) + small(1, codec=LZ4) + bad + small(3, codec=LZ4), rules=TargetRules(1 << 20, GZIP)
    )
    assert spans(result.steps) == [(0, 2)]
    assert result.fault is not None
    assert (result.fault.kind, result.fault.offset, result.fault.next_offset) == ("corrupt records", 2, 3)


# The rule


def test_batches_of_many_small_records_pass_under_auto() -> None:
    """150 records in 3.4 KB took 46 us to merge, 1.4 to pass."""

    def batches(records: int) -> bytes:
        rows = [(0, None, b"v", ()) for _ in range(records)]
        return b"".join(batch_of(rows, at * records) for at in range(3))

    assert [step.reason for step in planned(batches(SMALL_RECORDS), merging=MERGE_SMALL).steps] == ["repack"]
    assert [step.reason for step in planned(batches(SMALL_RECORDS + 1), merging=MERGE_SMALL).steps] == [None] * 3
    assert [step.reason for step in planned(batches(SMALL_RECORDS + 1), merging=MERGE_ALL).steps] == ["repack"]


def test_the_mode_decides_and_auto_looks_at_the_backlog() -> None:
    busy = {"read_bytes": 1 << 20, "target_is_behind": True}
    assert merge_rule(CopyMode.PASS, **busy) is PASS_ALL
    assert merge_rule(CopyMode.REPACK, read_bytes=0, target_is_behind=False) is MERGE_ALL
    assert merge_rule(CopyMode.AUTO, read_bytes=0, target_is_behind=False) is MERGE_SMALL
    assert merge_rule(CopyMode.AUTO, **busy)[:2] == (MIDDLE_BYTES, TINY_COMPRESSED_BYTES)
    some = merge_rule(CopyMode.AUTO, read_bytes=BACKLOG_BATCHES * 10_000, target_is_behind=False)
    assert some[:2] == (10_000, TINY_COMPRESSED_BYTES)
    assert merge_rule(CopyMode.AUTO, read_bytes=BACKLOG_BATCHES * SMALL_BYTES, target_is_behind=False) is MERGE_SMALL


@given(st.sampled_from(CopyMode), st.integers(0, 1 << 30), st.booleans())
def test_every_rule_says_why_and_merges_nothing_that_no_merged_batch_could_hold(
    mode: CopyMode, read_bytes: int, behind: bool
) -> None:
    rule = merge_rule(mode, read_bytes=read_bytes, target_is_behind=behind)
    assert rule.why
    assert 0 <= rule.compressed_max_bytes <= rule.plain_max_bytes <= MERGED_MAX_BYTES // 2


def test_a_topic_on_both_lists_is_passed() -> None:
    modes = CopyModes(CopyMode.AUTO, ["orders", "raw-.*"], ["orders", "small-.*"])
    assert [modes.of(name) for name in ("orders", "raw-1", "small-1", "other", "my-raw-1")] == [
        CopyMode.PASS,
        CopyMode.PASS,
        CopyMode.REPACK,
        CopyMode.AUTO,
        CopyMode.AUTO,
    ]


@pytest.mark.parametrize("lists", [(["("], []), ([], ["("])])
def test_an_entry_that_is_no_pattern_is_refused(lists: tuple[list[str], list[str]]) -> None:
    with pytest.raises(ConfigError, match=r"copy\.mode\.(pass|repack)\.topics"):
        CopyModes(CopyMode.AUTO, *lists)


# Any log, in any pieces, under changing rules


class Piece(NamedTuple):
    """One batch of a log: what a copy is to have of it, and what it must not be merged with."""

    data: bytes
    first: int
    next_offset: int
    records: list[tuple[int, Row]]
    alike: tuple[int, int] | None
    """Codec and leader epoch; None: never merged."""


@dataclass
class Log:
    pieces: list[Piece] = field(default_factory=list)

    @property
    def begin(self) -> int:
        return self.pieces[0].first

    @property
    def end(self) -> int:
        return self.pieces[-1].next_offset

    def fetch(self, offset: int, cut: int | None = None) -> bytes:
        """Return what a broker sends: from the batch that holds ``offset`` on, cut anywhere behind its first batch."""
        parts = [piece.data for piece in self.pieces if piece.next_offset > offset]
        data = b"".join(parts)
        return data if cut is None or not parts else data[: max(cut, len(parts[0]))]

    def seen(self, offset: int = 0) -> list[tuple[int, Row]]:
        return [one for piece in self.pieces for one in piece.records if one[0] >= offset]


KINDS = ["data"] * 6 + ["transactional", "thinned", "appended", "marker", "old", "not text"]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log, at, epoch = Log(), draw(st.sampled_from([0, 10**15, 2**62])), 3
    codecs = draw(st.lists(st.integers(0, 4), min_size=1, max_size=2))
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=14)):
        first = at + draw(st.sampled_from([0] * 9 + [1, 1000]))
        epoch += draw(st.sampled_from([0] * 9 + [1]))
        rows = draw(st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), min_size=1, max_size=3))
        log.pieces.append(_piece(kind, first, rows, draw(st.sampled_from(codecs)), epoch))
        at = log.end
    return log


def _piece(kind: str, first: int, rows: list[Row], codec: int, epoch: int) -> Piece:
    end, alike = first + len(rows), (codec, epoch)
    records = [(first + n, one) for n, one in enumerate(rows)]
    match kind:
        case "thinned":
            data = encode_records(
                [(2 * n, *one) for n, one in enumerate(rows)],
                base_offset=first,
                last_offset_delta=2 * len(rows),
                codec=CODECS[codec],
                partition_leader_epoch=epoch,
            )
            records = [(first + 2 * n, one) for n, one in enumerate(rows)]
            return Piece(data, first, first + 2 * len(rows) + 1, records, None)
        case "appended":
            data = batch_of(rows, first, codec=codec, epoch=epoch, attributes=LOG_APPEND_TIME, max_timestamp=77)
            return Piece(data, first, end, [(offset, (77, *one[1:])) for offset, one in records], None)
        case "marker":
            marker = parse_batch(build_marker(commit=True, producer_id=9, producer_epoch=0, timestamp_ms=1))
            return Piece(
                rewrite(marker, base_offset=first, partition_leader_epoch=epoch).raw, first, first + 1, [], None
            )
        case "old":
            return Piece(old_message(first), first, first + 1, [(first, (5, b"k", b"v", ()))], None)
        case "not text":
            data = batch_of([(1, b"k", b"v", (("\udcff\udcc0", b"x"),))], first, codec=codec, epoch=epoch)
            return Piece(data, first, first + 1, [(first, (1, b"k", b"v", (("\udcff\udcc0", b"x"),)))], None)
        case _:
            bits = TRANSACTIONAL if kind == "transactional" else 0
            return Piece(batch_of(rows, first, codec=codec, epoch=epoch, attributes=bits), first, end, records, alike)


RULES = st.builds(
    TargetRules,
    max_message_bytes=st.sampled_from([1 << 20, 8_000]),
    compression=st.none() | st.none() | st.integers(0, 4),
    merged_max_bytes=st.sampled_from([MERGED_MAX_BYTES, MERGED_MAX_BYTES, 1_000]),
    decode_budget_bytes=st.sampled_from([1 << 20, 1 << 20, 1_000]),
)
"""Each takes the largest single batch."""
MERGING = st.sampled_from(
    [PASS_ALL, MERGE_SMALL, MERGE_ALL, MergeRule(200, 100, "tests"), MergeRule(400, 4_000, "tests")]
)


def readable(rows: list[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """aiokafka cannot read header keys that are not UTF-8: such batches are looked at by other tests."""
    return [one for one in rows if not any("\udcff" in name for name, _ in one[1][3])]


def delivered_of(steps: Sequence[Outgoing | Dropped]) -> list[tuple[int, Row]]:
    found: list[tuple[int, Row]] = []
    for step in steps:
        if isinstance(step, Outgoing):
            names = [name for record in read_records(bytes(step.data)) for name, _ in record.headers]
            if any("\udcff" in name for name in names):
                assert step.record_count == 1, "nothing may be merged with what aiokafka cannot read"
            else:
                found += delivered([step])
    return found


@given(logs(), RULES, st.data())
def test_any_log_in_any_pieces_arrives_whole_under_changing_rules(
    log: Log, rules: TargetRules, data: st.DataObject
) -> None:
    wanted = at = data.draw(st.integers(max(0, log.begin - 3), log.end), label="wanted offset")
    steps: list[Outgoing | Dropped] = []
    while at < log.end:
        cut = data.draw(st.none() | st.integers(0, 3_000), label="cut")
        result = planned(log.fetch(at, cut), wanted_offset=at, rules=rules, merging=data.draw(MERGING, label="merging"))
        assert result.fault is None
        assert result.next_offset > at, "a read that holds a whole batch moves on"
        steps += result.steps
        at = result.next_offset
    assert delivered_of(steps) == readable(log.seen(wanted))
    for step in steps:
        if isinstance(step, Outgoing) and step.reason == "repack":
            inside = [piece for piece in log.pieces if step.first_offset <= piece.first < step.next_offset]
            assert len(inside) > 1
            assert None not in {piece.alike for piece in inside}
            assert len({piece.alike for piece in inside}) == 1
            assert step.leader_epoch == inside[0].alike[1]
            assert len(step.data) <= max(rules.merged_max_bytes, 0)


# What was sent before


def sent_then_read_again(log: Log, rules: TargetRules, data: st.DataObject) -> tuple[list[Outgoing], int]:
    """Plan once; return what is in doubt of it, and a batch boundary before that to read again from."""
    first = planned(
        log.fetch(0, data.draw(st.none() | st.integers(0, 6_000), label="first cut")),
        wanted_offset=log.begin,
        rules=rules,
        merging=data.draw(MERGING, label="first rule"),
    )
    sent = outgoing(first)
    acked = data.draw(st.integers(0, len(sent)), label="acknowledged")
    sent = sent[acked : acked + data.draw(st.integers(1, 5), label="in doubt")]
    ends = [log.begin, *(step.next_offset for step in first.steps)]
    again = [end for end in ends if not sent or end <= sent[0].first_offset]
    return sent, data.draw(st.sampled_from(again), label="position")


@given(logs(), RULES, st.data())
def test_what_was_sent_is_cut_again_as_it_was_whatever_the_rule_is_now(
    log: Log, rules: TargetRules, data: st.DataObject
) -> None:
    sent, at = sent_then_read_again(log, rules, data)
    outcome_unknown, start = shapes(sent), at
    steps: list[Outgoing | Dropped] = []
    cut = data.draw(st.none() | st.integers(0, 3_000), label="cut")
    while at < log.end:
        spans_outcome_unknown = [(first, end) for first, end, _, _ in outcome_unknown]
        result = planned(
            log.fetch(at, cut),
            wanted_offset=at,
            rules=rules,
            merging=data.draw(MERGING, label="merging"),
            sent_before=spans_outcome_unknown,
        )
        assert result.fault is None
        again = [shape for shape in shapes(result.steps) if outcome_unknown and shape[0] >= outcome_unknown[0][0]]
        assert again[: len(outcome_unknown)] == outcome_unknown[: len(again)]
        del outcome_unknown[: len(again)]
        if result.next_offset == at:
            assert cut is not None
            assert result.cut_batch_bytes > len(log.fetch(at, cut)), "a larger read is asked for"
            cut = result.cut_batch_bytes
        else:
            cut = data.draw(st.none() | st.integers(0, 3_000), label="cut")
        steps += result.steps
        at = result.next_offset
    assert not outcome_unknown
    assert delivered_of(steps) == readable(log.seen(start))


@given(logs(), RULES, st.data())
def test_a_batch_of_the_same_shape_holds_the_same_records_although_the_source_was_compacted_meanwhile(
    log: Log, rules: TargetRules, data: st.DataObject
) -> None:
    """Else the target would take another batch for the one it has, and drop it."""
    sent, at = sent_then_read_again(log, rules, data)
    keep = [data.draw(st.sampled_from(["all", "all", "fewer", "none"]), label="cleaner") for _ in log.pieces]
    cleaned = Log([_cleaned(piece, how) for piece, how in zip(log.pieces, keep, strict=True) if how != "none"])
    if not cleaned.pieces or not sent:
        return
    result = planned(
        cleaned.fetch(at),
        wanted_offset=at,
        rules=replace(rules, decode_budget_bytes=1 << 20),
        merging=data.draw(MERGING, label="merging"),
        sent_before=spans(sent),
    )
    again = outgoing(result)
    for before, now in zip(sent, again, strict=False):
        if shapes([before]) != shapes([now]):
            break  # the copier asks for a new epoch
        assert rows_of_any(now) == rows_of_any(before)
    assert [one for one in cleaned.seen(at) if one[0] < result.next_offset] == [
        (offset, one) for step in again for offset, one in zip(offsets_of(step), rows_of_any(step), strict=True)
    ]


def rows_of_any(step: Outgoing) -> list[Row]:
    return [row(record) for record in read_records(bytes(step.data))]


def offsets_of(step: Outgoing) -> list[int]:
    runs = [*step.runs()]
    ends = [*(index for index, _ in runs[1:]), step.record_count]
    return [first + n for (index, first), end in zip(runs, ends, strict=True) for n in range(end - index)]


def _cleaned(piece: Piece, how: str) -> Piece:
    if how == "all" or piece.alike is None or len(piece.records) < 2:
        return piece
    records = piece.records[::2]
    codec, epoch = piece.alike
    data = encode_records(
        [(offset - piece.first, *one) for offset, one in records],
        base_offset=piece.first,
        last_offset_delta=piece.next_offset - piece.first - 1,
        codec=CODECS[codec],
        partition_leader_epoch=epoch,
    )
    return Piece(data, piece.first, piece.next_offset, records, None)


def test_a_rebuilt_batch_of_unknown_outcome_does_not_split_merged_batches_behind_it() -> None:
    thinned = encode_records([(0, *PLAIN_ROW), (2, *PLAIN_ROW)], partition_leader_epoch=3)
    data = thinned + small(3) + small(4) + small(5)
    before = spans(planned(data).steps)
    assert before == [(0, 3), (3, 6)]
    assert spans(planned(data, sent_before=before, merging=PASS_ALL).steps) == before


def test_a_fault_waits_until_what_was_sent_before_it_can_be_read_as_a_whole() -> None:
    damaged = bytearray(small(2))
    damaged[-1] ^= 1
    result = planned(small(0) + small(1) + bytes(damaged), sent_before=[(0, 3)])
    assert (result.steps, result.fault) == ([], None)
    assert result.cut_batch_bytes > 0


@pytest.mark.parametrize("position", [0, 2])
def test_messages_of_an_old_format_that_were_sent_as_one_batch_are_one_again_wherever_the_read_ends(
    position: int,
) -> None:
    """They stand one by one in the log, and how many become one batch follows from where the read ends."""
    messages = [old_message(at) for at in range(9)]
    sent = [(2, 5), (5, 7)]
    for count in range(1, 10):
        result = planned(b"".join(messages[position:count]), wanted_offset=position, sent_before=sent)
        before = [(0, 2)] if position == 0 and count >= 2 else [(0, 1)] if position == 0 else []
        again = [span for span in sent if span[1] <= count]
        assert spans(result.steps) == [*before, *again, *([(7, count)] if count > 7 else [])]
        assert result.fault is None
        assert result.steps or count <= position or result.cut_batch_bytes > 0


def test_a_fault_waits_until_all_before_it_is_planned() -> None:
    """The budget may end between two batches that are made of those before it."""
    bad = batch_of([(0, b"k", b"v", (("\udcff", b""),))], 2)
    damaged = bytearray(small(5))
    damaged[-1] ^= 1
    data, rules = (
        small(0) + small(1) + bad + small(3) + small(4) + bytes(damaged),
        replace(ROOMY, decode_budget_bytes=1),
    )
    first = planned(data, rules=rules)
    assert (spans(first.steps), first.fault) == ([(0, 2)], None)
    then = planned(data, wanted_offset=first.next_offset, rules=rules)
    assert then.fault is None
    last = planned(data, wanted_offset=3, rules=rules)
    assert spans(last.steps) == [(3, 5)]
    assert last.fault is not None


def test_batches_of_another_epoch_in_the_place_of_those_sent_are_not_merged_with_them() -> None:
    """The source's log was cut back and written anew between the two reads."""
    result = planned(small(0) + small(1, epoch=4) + small(2, epoch=4), sent_before=[(0, 3)])
    assert spans(result.steps) == [(0, 1), (1, 3)]
