"""What becomes of fetched batches. Logs are written, and what comes out is read, by aiokafka or Kafka's classes."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import Dropped, Fault, FaultKind, Outgoing, Plan, TargetRules
from mm2py.records.batch import read_header, stamp
from mm2py.records.compression import DecodeBudget

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
ROOMY = TargetRules(max_message_bytes=1 << 20)
LEADER_EPOCH = 7

KAFKA_BATCHES = {
    (int(magic), codec, label): bytes.fromhex(data)
    for magic, codec, label, data in (
        line.split()
        for line in (Path(__file__).parents[2] / "data" / "kafka_batches.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}


class Seen(NamedTuple):
    """A record as a consumer of the source sees it."""

    offset: int
    timestamp_ms: int = 1_700_000_000_000
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Sequence[tuple[str, bytes | None]] = ()


def crc_set(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def batch_of(
    records: Sequence[Seen],
    *,
    codec: int = NONE,
    base_offset: int | None = None,
    next_offset: int | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a batch as a broker keeps it; offsets it lacks between base and next offset were compacted away."""
    base = records[0].offset if base_offset is None else base_offset
    builder = DefaultRecordBatchBuilder(2, codec, 0, *producer, 1 << 30)
    for index, record in enumerate(records):
        assert record.timestamp_ms >= 0 or index or {r.timestamp_ms for r in records} == {-1}  # else aiokafka errs
        assert builder.append(record.offset - base, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytearray(builder.build())
    end = records[-1].offset + 1 if next_offset is None else next_offset
    struct.pack_into(">q", batch, 0, base)
    struct.pack_into(">i", batch, 12, LEADER_EPOCH)
    batch[22] |= attributes
    struct.pack_into(">i", batch, 23, end - base - 1)
    struct.pack_into(">i", batch, 57, len(records))
    if attributes & LOG_APPEND_TIME:
        struct.pack_into(">q", batch, 35, records[0].timestamp_ms)
    return crc_set(batch)


def run_of(first: int, count: int, value: bytes | None = b"v") -> list[Seen]:
    return [Seen(first + n, value=value) for n in range(count)]


def emptied(base_offset: int, next_offset: int) -> bytes:
    batch = bytearray(KAFKA_BATCHES[2, "none", "Emptied"])
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 23, next_offset - base_offset - 1)
    return crc_set(batch)


def marker(offset: int, producer_id: int, label: str = "AbortMarker") -> bytes:
    batch = bytearray(KAFKA_BATCHES[2, "none", label])
    struct.pack_into(">q", batch, 0, offset)
    if label in ("AbortMarker", "CommitMarker"):
        struct.pack_into(">q", batch, 43, producer_id)
    return crc_set(batch)


def old_message_set(records: Sequence[Seen], *, magic: int, codec: int = NONE, log_append_time: bool = False) -> bytes:
    """Return messages of magic 0 or 1, one by one or in one wrapper, as a broker keeps them."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    base = records[0].offset if codec and magic else 0
    for record in records:
        assert builder.append(record.offset - base, record.timestamp_ms, record.key, record.value)
    messages = bytearray(builder.build())
    if codec:
        struct.pack_into(">q", messages, 0, records[-1].offset)
    if log_append_time:
        assert magic == 1
        assert codec
        messages[17] |= LOG_APPEND_TIME
        struct.pack_into(">q", messages, 18, records[0].timestamp_ms)
        struct.pack_into(">I", messages, 12, zlib.crc32(messages[16:]))
    return bytes(messages)


def planned(
    *batches: bytes | bytearray,
    wanted_offset: int = 0,
    read_committed: bool = False,
    aborted: Sequence[tuple[int, int]] = (),
    rules: TargetRules = ROOMY,
    cut_until: int = -1,
) -> Plan:
    """Plan a fetch of these batches, and check what holds for every plan."""
    records = memoryview(bytearray(b"".join(batches)))
    before = bytes(records)
    result = plan(
        records,
        wanted_offset=wanted_offset,
        read_committed=read_committed,
        aborted=aborted,
        rules=rules,
        cut_until=cut_until,
    )
    assert records == before
    check_steps(result, wanted_offset, rules)
    return result


def check_steps(result: Plan, wanted_offset: int, rules: TargetRules) -> None:
    """Check that there is no hole, no overlap, and only batches that the target takes."""
    at = wanted_offset
    for step in result.steps:
        if isinstance(step, Outgoing):
            assert at <= step.first_offset < step.next_offset
            assert step.record_count > 0
            assert len(step.data) <= rules.max_message_bytes
            header = read_header(step.data)
            assert header.size_bytes == len(step.data)
            assert (header.record_count, header.last_offset_delta) == (step.record_count, step.record_count - 1)
            assert header.max_timestamp_ms == step.max_timestamp_ms
            assert not header.is_log_append_time
            assert not header.is_control
            assert rules.compression in (None, header.codec)
            assert isinstance(step.data, memoryview) == (step.reason is None)
        else:
            assert at <= step.next_offset
        at = step.next_offset
    assert result.next_offset == at
    assert result.fault is None or result.fault.offset >= at


def delivered(steps: Sequence[Outgoing | Dropped]) -> Iterator[Seen]:
    """Yield what a consumer of the target sees, at source offsets, once the batches are stamped."""
    for step in outgoing(steps):
        offsets: list[int] = []
        runs = list(step.runs())
        for (index, first), (end, _) in zip(runs, [*runs[1:], (step.record_count, 0)], strict=True):
            offsets.extend(range(first, first + end - index))
        stamp(step.data, 4711, 3, 2**31 - 1)
        batch = DefaultRecordBatch(bytes(step.data))
        assert batch.validate_crc()
        assert batch.base_offset == 0
        records = list(batch)
        assert [record.offset for record in records] == list(range(step.record_count))
        assert offsets[-1] < step.next_offset
        for offset, record in zip(offsets, records, strict=True):
            yield Seen(offset, record.timestamp, record.key, record.value, tuple(record.headers))


def outgoing(steps: Sequence[Outgoing | Dropped]) -> list[Outgoing]:
    return [step for step in steps if isinstance(step, Outgoing)]


def only(result: Plan) -> Outgoing:
    (step,) = result.steps
    assert isinstance(step, Outgoing)
    return step


def fault_of(result: Plan) -> Fault:
    assert result.fault is not None
    return result.fault


def reasons(result: Plan) -> list[str | None]:
    return [step.reason for step in result.steps]


# Passing


def test_a_batch_that_the_target_takes_is_passed_as_a_view_into_what_was_fetched() -> None:
    first, second = batch_of(run_of(40, 3), codec=LZ4), batch_of(run_of(43, 2), codec=ZSTD)
    fetched = bytearray(first + second)
    result = plan(memoryview(fetched), wanted_offset=40, read_committed=False, aborted=(), rules=ROOMY)
    one, two = outgoing(result.steps)
    assert one == Outgoing(40, 43, 3, 1_700_000_000_000, LEADER_EPOCH, memoryview(first))
    assert two == Outgoing(43, 45, 2, 1_700_000_000_000, LEADER_EPOCH, memoryview(second))
    assert list(one.runs()) == [(0, 40)]
    assert (result.next_offset, result.fault, result.transactional, result.cut_batch_bytes) == (45, None, False, 0)
    stamp(one.data, 9, 0, 0)
    assert read_header(fetched).producer_id == 9


def test_an_empty_fetch_moves_nothing() -> None:
    assert planned(wanted_offset=10**15) == Plan([], 10**15)


@pytest.mark.parametrize("first", [0, 10**15, 2**62, 2**63 - 4])
@pytest.mark.parametrize("gap", [False, True])
def test_offsets_are_exact_wherever_a_partition_begins(first: int, gap: bool) -> None:
    records = [Seen(first), Seen(first + 2)] if gap else run_of(first, 3)
    result = planned(batch_of(records), wanted_offset=first)
    assert (only(result).first_offset, only(result).next_offset) == (first, first + 3)
    assert list(delivered(result.steps)) == records


def test_a_single_record_after_whole_segments_that_are_gone_is_passed() -> None:
    result = planned(batch_of([Seen(900)]), batch_of([Seen(5000)]), wanted_offset=3)
    assert reasons(result) == [None, None]
    assert result.next_offset == 5001


@pytest.mark.parametrize("size_below", [0, 1])
def test_the_limit_is_compared_with_the_whole_batch_and_may_be_reached(size_below: int) -> None:
    batch = batch_of([Seen(0, value=bytes(500)), Seen(1, value=bytes(500))])
    result = planned(batch, rules=TargetRules(max_message_bytes=len(batch) - size_below))
    assert reasons(result) == ([None] if not size_below else ["too large", "too large"])


@pytest.mark.parametrize("codec", range(5))
def test_the_delete_horizon_does_not_stop_a_batch_and_its_timestamps_stay_right(codec: int) -> None:
    """Bit 6 makes the base timestamp a delete horizon: deltas are relative to it, and only the bit must go (H6)."""
    records = [Seen(5, timestamp_ms=1_700_000_000_000), Seen(6, timestamp_ms=1_600_000_000_000)]
    result = planned(batch_of(records, codec=codec, attributes=DELETE_HORIZON))
    assert only(result).reason is None
    assert list(delivered(result.steps)) == records
    assert read_header(only(result).data).attributes == codec


# Rebuilding


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_batch_that_kafka_s_cleaner_thinned_is_rebuilt_without_holes(codec: str) -> None:
    result = planned(KAFKA_BATCHES[2, codec, "Cleaned"])
    step = only(result)
    assert (step.first_offset, step.next_offset, step.record_count, step.reason) == (2001, 2005, 2, "offset gaps")
    assert (step.max_timestamp_ms, step.leader_epoch) == (1_700_000_000_007, 5)
    assert list(step.runs()) == [(0, 2001), (1, 2003)]
    assert list(delivered(result.steps)) == [
        Seen(2001, 1_700_000_000_007, b"kept", b"2", (("h", b"x"),)),
        Seen(2003, 1_700_000_000_001, b"tomb", None),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_log_append_times_of_the_source_become_the_records_own(codec: str) -> None:
    result = planned(KAFKA_BATCHES[2, codec, "LogAppendTime"])
    assert only(result).reason == "log append time"
    assert [record.timestamp_ms for record in delivered(result.steps)] == [1_700_000_009_999] * 3
    assert read_header(only(result).data).base_timestamp_ms == 1_700_000_009_999


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("wanted", [100, 101, 105, 109])
def test_a_copy_that_starts_inside_a_batch_leaves_out_what_is_before(codec: int, wanted: int) -> None:
    records = run_of(100, 10)
    result = planned(batch_of(records, codec=codec), wanted_offset=wanted)
    assert only(result).reason == (None if wanted == 100 else "straddles start")
    assert list(delivered(result.steps)) == records[wanted - 100 :]
    assert read_header(only(result).data).codec == codec


def test_a_batch_of_log_append_times_is_named_so_wherever_the_copy_starts() -> None:
    """What compares a copy must know that a broker has set these timestamps, also where it reads from the middle."""
    batch = KAFKA_BATCHES[2, "none", "LogAppendTime"]
    result = planned(batch, wanted_offset=read_header(batch).base_offset + 1)
    assert only(result).reason == "log append time"


def test_batches_below_the_wanted_offset_are_dropped() -> None:
    result = planned(batch_of(run_of(0, 3)), batch_of([Seen(3)], next_offset=10), batch_of([Seen(10)]), wanted_offset=5)
    assert result.steps[:2] == [Dropped(5, 3, "below start", 7), Dropped(10, 1, "below start", 7)]
    assert [record.offset for record in delivered(result.steps)] == [10]


def test_a_batch_too_large_for_the_target_is_cut_between_records_and_never_within_one() -> None:
    records = [Seen(n, value=os.urandom(1000)) for n in range(20)]
    result = planned(batch_of(records), rules=TargetRules(max_message_bytes=4000))
    assert set(reasons(result)) == {"too large"}
    assert len(result.steps) > 20 // 3
    assert list(delivered(result.steps)) == records


def test_parts_of_a_thinned_batch_end_after_their_last_record_and_the_last_where_the_batch_ended() -> None:
    records = [Seen(n, value=os.urandom(1000)) for n in (3, 5, 9, 11)]
    result = planned(
        batch_of(records, base_offset=0, next_offset=30), rules=TargetRules(max_message_bytes=2500), wanted_offset=2
    )
    assert [(step.first_offset, step.next_offset, list(step.runs())) for step in outgoing(result.steps)] == [
        (3, 6, [(0, 3), (1, 5)]),
        (9, 30, [(0, 9), (1, 11)]),
    ]
    assert list(delivered(result.steps)) == records


def test_a_batch_that_fits_only_compressed_is_cut_when_the_flow_wants_no_compression() -> None:
    records = [Seen(n, value=bytes(1000)) for n in range(100)]
    batch = batch_of(records, codec=ZSTD)
    result = planned(batch, rules=TargetRules(max_message_bytes=20_000, compression=NONE))
    assert len(batch) < 20_000
    assert len(result.steps) > 5
    assert set(reasons(result)) == {"compression"}
    assert list(delivered(result.steps)) == records


def test_a_batch_that_is_too_large_only_until_it_is_compressed_is_not_cut() -> None:
    records = [Seen(n, value=bytes(1000)) for n in range(100)]
    result = planned(batch_of(records), rules=TargetRules(max_message_bytes=20_000, compression=LZ4))
    assert only(result).reason == "compression"
    assert list(delivered(result.steps)) == records


ODD_RECORDS = [
    Seen(1, key=None, value=b"v"),
    Seen(2, key=b"k", value=None),
    Seen(3, key=None, value=None),
    Seen(4, key=b"", value=b""),
    Seen(5, key=b"\xff\xfe\x80", value=b'{"schema": null}'),
    Seen(6, headers=(("a", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"1"))),
    Seen(7, headers=(("", b""), ("", None), ("n", None), ("e", b""), ("bin", bytes(range(256))))),
    Seen(8, headers=tuple((f"h{n}", b"%d" % n) for n in range(10_000))),
    Seen(9, key=bytes(200), value=os.urandom(70_000)),
]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("base_offset", [0, 1])
def test_keys_values_and_headers_arrive_as_they_are(codec: int, base_offset: int) -> None:
    result = planned(batch_of(ODD_RECORDS, codec=codec, base_offset=base_offset))
    assert only(result).reason == (None if base_offset else "offset gaps")
    assert list(delivered(result.steps)) == ODD_RECORDS


def test_header_keys_that_are_no_text_are_copied_as_bytes() -> None:
    batch = batch_of([Seen(0, headers=(("ab", b"1"),)), Seen(1, headers=(("ab", b"2"),))]).replace(b"ab", b"\xff\xc0")
    result = planned(crc_set(bytearray(batch)), wanted_offset=1)
    assert only(result).reason == "straddles start"
    assert b"\x02\x04\xff\xc0\x022" in bytes(only(result).data)


TIMES = [0, -1, 253_402_300_800_000, 5, 4, 3, 2**62, 1_700_000_000_000]


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_create_times_are_kept_however_odd(codec: int) -> None:
    records = [Seen(2 * n, timestamp_ms=ms) for n, ms in enumerate(TIMES)]
    result = planned(batch_of(records, codec=codec), wanted_offset=0)
    assert list(delivered(result.steps)) == records
    assert (only(result).reason, only(result).max_timestamp_ms) == ("offset gaps", 2**62)


def test_records_without_any_timestamp_keep_having_none() -> None:
    records = [Seen(n, timestamp_ms=-1) for n in (0, 2, 3)]
    result = planned(batch_of(records))
    assert list(delivered(result.steps)) == records
    assert only(result).max_timestamp_ms == -1


def test_the_newest_timestamp_is_that_of_the_records_kept() -> None:
    records = [Seen(0, timestamp_ms=9000), Seen(1, timestamp_ms=5000), Seen(2, timestamp_ms=4000)]
    assert only(planned(batch_of(records), wanted_offset=1)).max_timestamp_ms == 5000


def test_a_batch_of_many_records_is_renumbered_to_the_last() -> None:
    records = [Seen(3 * n, key=b"%d" % n) for n in range(20_000)]
    assert list(delivered(planned(batch_of(records)).steps)) == records


# Old formats


# Cutting, since the target refuses one of the records


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_batch_of_which_a_record_was_refused_is_cut_into_ever_larger_ones(codec: int) -> None:
    records = [Seen(offset, headers=[("h", b"1")] * 2) for offset in (100, *range(105, 117))]
    result = planned(
        batch_of(records, codec=codec, next_offset=120), batch_of(run_of(120, 9)), wanted_offset=100, cut_until=120
    )
    sizes = [step.record_count for step in outgoing(result.steps)]
    assert sizes == [1, 2, 4, 6, 9]
    assert [step.next_offset for step in result.steps] == [101, 107, 111, 120, 129]
    assert reasons(result) == ["refused"] * 4 + [None]
    assert [seen.offset for seen in delivered(result.steps)] == [seen.offset for seen in [*records, *run_of(120, 9)]]


def test_a_cut_batch_that_was_sent_before_ends_where_it_ended_then() -> None:
    result = plan(
        memoryview(bytearray(batch_of(run_of(0, 20)))),
        wanted_offset=3,
        read_committed=False,
        aborted=(),
        rules=ROOMY,
        sent_before=[(3, 7), (7, 15)],
        cut_until=20,
    )
    assert [(step.first_offset, step.record_count) for step in outgoing(result.steps)] == [
        (3, 4),
        (7, 8),
        (15, 1),
        (16, 2),
        (18, 2),
    ]


def test_messages_of_an_old_format_are_cut_as_well() -> None:
    result = planned(old_message_set(old_records(1), magic=1), cut_until=1 << 40)
    assert [step.record_count for step in outgoing(result.steps)][:2] == [1, 2]
    assert {step.reason for step in outgoing(result.steps)} == {"refused"}


def old_records(magic: int) -> list[Seen]:
    return [
        Seen(1000, 1_700_000_000_000 if magic else -1, b"k", b"value one value one value one"),
        Seen(1001, 1_700_000_000_005 if magic else -1, None, b""),
        Seen(1002, 1_699_999_999_990 if magic else -1, b"", None),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_that_kafka_wrote_in_old_formats_become_one_batch(codec: str, magic: int) -> None:
    result = planned(KAFKA_BATCHES[magic, codec, "CreateTime"], wanted_offset=1000)
    step = only(result)
    assert (step.first_offset, step.next_offset, step.leader_epoch, step.reason) == (1000, 1003, -1, "old format")
    assert list(delivered(result.steps)) == old_records(magic)
    assert read_header(step.data).codec == ["none", "gzip", "snappy", "lz4"].index(codec)


def test_offsets_inside_a_wrapper_of_magic_0_are_absolute_whatever_the_wrapper_s() -> None:
    wrapper = bytearray(old_message_set(run_of(10, 3), magic=0, codec=GZIP))
    struct.pack_into(">q", wrapper, 0, 15)
    result = planned(wrapper)
    assert (only(result).first_offset, only(result).next_offset, list(only(result).runs())) == (10, 16, [(0, 10)])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_log_append_times_of_old_messages_are_kept(codec: str) -> None:
    result = planned(KAFKA_BATCHES[1, codec, "LogAppendTime"], wanted_offset=1001)
    assert list(delivered(result.steps)) == [r._replace(timestamp_ms=1_700_000_009_999) for r in old_records(1)[1:]]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_a_thinned_old_wrapper_keeps_its_offsets(codec: int) -> None:
    """The last inner message has the wrapper's offset, whatever is missing before it."""
    records = [Seen(10**12 + n) for n in (3, 4, 8, 11)]
    result = planned(old_message_set(records, magic=1, codec=codec))
    assert list(only(result).runs()) == [(0, 10**12 + 3), (2, 10**12 + 8), (3, 10**12 + 11)]
    assert list(delivered(result.steps)) == records


def test_a_log_that_was_upgraded_twice_is_read_through() -> None:
    result = planned(
        old_message_set([Seen(n, -1) for n in range(5)], magic=0),
        old_message_set([Seen(n, 10 + n) for n in range(5, 9)], magic=1),
        old_message_set([Seen(n, 10 + n) for n in range(9, 12)], magic=1, codec=GZIP),
        old_message_set([Seen(n, 10 + n) for n in range(12, 14)], magic=1, codec=SNAPPY),
        batch_of([Seen(n, 10 + n) for n in range(14, 20)]),
    )
    assert reasons(result) == ["old format"] * 3 + [None]
    assert list(delivered(result.steps)) == [Seen(n, -1 if n < 5 else 10 + n) for n in range(20)]


def test_an_old_message_whose_checksum_is_wrong_stops_the_plan_after_those_before_it() -> None:
    messages = bytearray(old_message_set(run_of(0, 4), magic=1))
    messages[-1] ^= 1
    result = planned(messages)
    assert [record.offset for record in delivered(result.steps)] == [0, 1, 2]
    assert (fault_of(result).kind, fault_of(result).offset) == ("crc mismatch", 3)


def test_a_flipped_bit_inside_an_old_wrapper_is_seen() -> None:
    wrapper = bytearray(old_message_set(run_of(0, 4), magic=1, codec=GZIP))
    wrapper[-3] ^= 1
    assert fault_of(planned(wrapper)).kind == "crc mismatch"


# Dropping


@pytest.mark.parametrize("label", ["AbortMarker", "CommitMarker", "LeaderChange", "SnapshotHeader"])
@pytest.mark.parametrize("read_committed", [False, True])
def test_control_batches_are_dropped_whatever_they_say(label: str, read_committed: bool) -> None:
    result = planned(marker(8, 5, label), batch_of([Seen(9)]), wanted_offset=8, read_committed=read_committed)
    assert result.steps[0] == Dropped(9, 1, "control", 5)
    assert [record.offset for record in delivered(result.steps)] == [9]


def test_a_control_record_of_an_unknown_type_is_dropped_and_ends_no_transaction() -> None:
    unknown = bytearray(marker(2, 5))
    at = unknown.index(b"\x08\x00\x00\x00\x00") + 3
    struct.pack_into(">h", unknown, at, 77)
    result = planned(
        batch_of([Seen(0)], attributes=TRANSACTIONAL, producer=(5, 0, 0)),
        crc_set(unknown),
        batch_of([Seen(3)], attributes=TRANSACTIONAL, producer=(5, 0, 1)),
        marker(4, 5),
        read_committed=True,
        aborted=[(5, 0)],
    )
    assert reasons(result) == ["aborted", "control", "aborted", "control"]


def test_a_commit_marker_ends_no_aborted_transaction() -> None:
    data = [batch_of([Seen(n)], attributes=TRANSACTIONAL, producer=(5, 0, 0)) for n in (0, 2)]
    log = [data[0], marker(1, 5, "CommitMarker"), data[1], marker(3, 5)]
    assert reasons(planned(*log, read_committed=True, aborted=[(5, 0)])) == ["aborted", "control", "aborted", "control"]


def test_a_marker_that_cannot_be_read_stops_the_plan_while_its_transaction_is_open() -> None:
    odd = bytearray(marker(2, 5))
    odd[odd.index(b"\x08\x00\x00\x00\x00")] = 0x01  # a key that is null
    log = [batch_of([Seen(0)], attributes=TRANSACTIONAL, producer=(5, 0, 0)), crc_set(odd)]
    result = planned(*log, read_committed=True, aborted=[(5, 0)])
    assert (fault_of(result).kind, fault_of(result).offset) == ("corrupt records", 2)
    assert planned(*log, read_committed=True).fault is None


def test_a_batch_that_was_compacted_to_nothing_moves_the_position() -> None:
    assert planned(emptied(10, 50), wanted_offset=10).steps == [Dropped(50, 0, "empty", 5)]
    assert planned(emptied(10, 50), wanted_offset=60).steps == [Dropped(60, 0, "below start", 5)]


def test_offsets_missing_at_the_end_of_the_last_batch_are_passed_over() -> None:
    result = planned(batch_of([Seen(0)], next_offset=100))
    assert (result.next_offset, reasons(result)) == (100, ["offset gaps"])


def transaction_log() -> list[bytes]:
    """Producers 1 and 2 interleave: 1 aborts, 2 commits, then 1 commits and 2 aborts; 3 aborts without a record."""

    def data(offset: int, producer_id: int) -> bytes:
        return batch_of([Seen(offset)], attributes=TRANSACTIONAL, producer=(producer_id, 0, 0))

    return [
        data(0, 1),
        data(1, 2),
        batch_of([Seen(2)]),
        data(3, 1),
        batch_of([Seen(4)], producer=(1, 0, 0)),
        marker(5, 1),
        data(6, 2),
        marker(7, 2, "CommitMarker"),
        data(8, 1),
        marker(9, 3),
        data(10, 2),
        marker(11, 1, "CommitMarker"),
        marker(12, 2),
        data(13, 2),
    ]


@pytest.mark.parametrize("aborted", [[(1, 0), (2, 10), (3, 9)], [(3, 9), (2, 10), (1, 0)], [(2, 10), (1, 0)]])
def test_only_committed_records_are_copied_under_read_committed(aborted: list[tuple[int, int]]) -> None:
    result = planned(*transaction_log(), read_committed=True, aborted=aborted)
    assert [record.offset for record in delivered(result.steps)] == [1, 2, 4, 6, 8, 13]
    assert [step.next_offset - 1 for step in result.steps if step.reason == "aborted"] == [0, 3, 10]
    assert result.transactional


def test_everything_but_markers_is_copied_under_read_uncommitted() -> None:
    result = planned(*transaction_log())
    assert [record.offset for record in delivered(result.steps)] == [0, 1, 2, 3, 4, 6, 8, 10, 13]
    assert result.transactional
    assert not planned(batch_of([Seen(0)], producer=(1, 0, 0)), marker(1, 1)).transactional


def test_a_transaction_that_began_before_the_fetch_is_known_by_the_broker_s_list_alone() -> None:
    log = transaction_log()[3:]
    result = planned(*log, wanted_offset=3, read_committed=True, aborted=[(1, 0), (2, 10)])
    assert [record.offset for record in delivered(result.steps)] == [4, 6, 8, 13]


def test_a_marker_below_the_wanted_offset_still_ends_its_transaction() -> None:
    result = planned(*transaction_log(), wanted_offset=8, read_committed=True, aborted=[(1, 0), (2, 10)])
    assert [record.offset for record in delivered(result.steps)] == [8, 13]


# Faults

GOOD = batch_of(run_of(0, 2))


@pytest.mark.parametrize("codec", range(5))
def test_a_flipped_bit_is_never_laundered(codec: int) -> None:
    damaged = bytearray(batch_of(run_of(2, 3), codec=codec))
    damaged[-1] ^= 1
    result = planned(GOOD, damaged, batch_of([Seen(5)]))
    assert [record.offset for record in delivered(result.steps)] == [0, 1]
    assert result.fault == Fault("crc mismatch", 2, None, "A batch's checksum does not fit its bytes.")
    assert result.next_offset == 2


def test_a_batch_is_not_dropped_on_the_word_of_a_flipped_bit() -> None:
    flipped = bytearray(batch_of([Seen(0)]))
    flipped[22] |= CONTROL
    assert fault_of(planned(flipped)).kind == "crc mismatch"


@pytest.mark.parametrize("codec", [5, 6, 7])
@pytest.mark.parametrize(
    "rules", [ROOMY, TargetRules(1 << 20, compression=ZSTD), TargetRules(1 << 20, refuses_null_keys=True)]
)
def test_an_unknown_codec_stops_the_plan(codec: int, rules: TargetRules) -> None:
    odd = bytearray(batch_of([Seen(2)]))
    odd[22] |= codec
    fault = fault_of(planned(GOOD, crc_set(odd), rules=rules))
    assert (fault.kind, fault.offset, fault.next_offset) == ("unknown codec", 2, 3)
    assert f"codec {codec} is unknown" in fault.text


@pytest.mark.parametrize("magic", [3, 4, 127, 128, 255])
def test_an_unknown_magic_stops_the_plan(magic: int) -> None:
    odd = bytearray(batch_of([Seen(2)]))
    odd[16] = magic
    fault = fault_of(planned(GOOD, odd))
    assert (fault.kind, fault.offset) == ("unknown magic", 2)


def test_one_record_that_the_target_does_not_take_is_named_and_those_before_it_are_copied() -> None:
    records = [Seen(n, value=os.urandom(3000 if n == 7 else 10)) for n in range(12)]
    rules = TargetRules(max_message_bytes=1000)
    result = planned(batch_of(records), rules=rules)
    assert list(delivered(result.steps)) == records[:7]
    fault = fault_of(result)
    assert (fault.kind, fault.offset, fault.next_offset, result.next_offset) == ("too large", 7, 8, 7)
    assert fault.text.startswith("The record at offset 7 makes a batch of 307")
    assert fault.text.endswith("bytes, the target takes 1000.")
    # an operator gives it up: copying goes on behind it
    assert list(delivered(planned(batch_of(records), wanted_offset=8, rules=rules).steps)) == records[8:]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_stops_the_plan_without_being_opened(codec: int) -> None:
    bomb = memoryview(bytearray(batch_of([Seen(n, value=bytes(1_000_000)) for n in range(40)], codec=codec)))
    rules = TargetRules(1 << 20, compression=NONE, budget=DecodeBudget(output_bytes=5_000_000))
    tracemalloc.start()
    try:
        result = plan(bomb, wanted_offset=0, read_committed=False, aborted=(), rules=rules)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    fault = fault_of(result)
    assert (fault.kind, fault.offset, fault.next_offset) == ("decompression bomb", 0, 40)
    assert peak < 12_000_000


def test_a_bomb_of_tiny_records_takes_memory_in_proportion_to_its_bytes() -> None:
    count = 20_000
    records = memoryview(bytearray(batch_of([Seen(2 * n, key=b"", value=b"") for n in range(count)], codec=ZSTD)))
    tracemalloc.start()
    try:
        result = plan(records, wanted_offset=0, read_committed=False, aborted=(), rules=ROOMY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.fault is None
    assert peak < 100 * count


@pytest.mark.parametrize("at", range(1, 4))
@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_a_null_key_for_a_compacted_topic_is_named_and_those_before_it_are_copied(at: int, codec: int) -> None:
    records = [Seen(n, key=None if n == at else b"k") for n in range(1, 4)]
    rules = TargetRules(1 << 20, refuses_null_keys=True)
    result = planned(batch_of(records, codec=codec), wanted_offset=1, rules=rules)
    assert list(delivered(result.steps)) == records[: at - 1]
    fault = fault_of(result)
    assert (fault.kind, fault.offset, fault.next_offset) == ("null key on compacted target", at, at + 1)
    assert result.next_offset == at
    after = planned(batch_of(records, codec=codec), wanted_offset=at + 1, rules=rules)
    assert list(delivered(after.steps)) == records[at:]


def test_batches_with_keys_are_passed_to_a_compacted_topic() -> None:
    result = planned(
        batch_of(run_of(0, 5, value=None), codec=SNAPPY), rules=TargetRules(1 << 20, refuses_null_keys=True)
    )
    assert only(result).reason is None


def test_an_old_message_without_a_key_is_refused_for_a_compacted_topic() -> None:
    result = planned(
        old_message_set([Seen(0), Seen(1, key=None)], magic=1), rules=TargetRules(1 << 20, refuses_null_keys=True)
    )
    assert list(delivered(result.steps)) == [Seen(0)]
    assert fault_of(result).kind == "null key on compacted target"


TWO = batch_of([Seen(2), Seen(4)])


def with_records(body: bytes) -> bytes:
    batch = bytearray(TWO[:61] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return crc_set(batch)


def with_byte(at: int, byte: int) -> bytes:
    return with_records(TWO[61 : 61 + at] + bytes([byte]) + TWO[61 + at + 1 :])


@pytest.mark.parametrize(
    ("what", "batch"),
    [
        ("a record longer than the batch", with_byte(0, 0x7E)),
        ("a record of negative length", with_byte(0, 0x01)),
        ("a record shorter than its fields", with_byte(0, 0x0C)),
        ("a negative offset delta", with_byte(3, 0x01)),
        ("an offset delta beyond the last", with_byte(3, 0x40)),
        ("offsets that do not rise", with_byte(3, 0x04)),
        ("a key longer than its record", with_byte(4, 0x7E)),
        ("fewer than no headers", with_byte(8, 0x03)),
        ("a header that is not there", with_byte(8, 0x02)),
        ("a number that does not end", with_records(b"\xff" * 16)),
        ("a record too few", with_records(TWO[61:70])),
        ("bytes behind the last record", with_records(TWO[61:] + b"\x00")),
        ("nothing", with_records(b"")),
    ],
)
def test_records_that_are_not_laid_out_as_records_stop_the_plan(what: str, batch: bytes) -> None:
    fault = fault_of(planned(GOOD, batch))
    assert (fault.kind, fault.offset, fault.next_offset) == ("corrupt records", 2, 5), what


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 5, 48])
def test_a_length_that_no_batch_has_stops_the_plan(length: int) -> None:
    odd = bytearray(batch_of([Seen(2)]))
    struct.pack_into(">i", odd, 8, length)
    assert fault_of(planned(GOOD, odd)).kind == "corrupt records"


def test_offsets_that_fall_within_a_fetch_stop_the_plan() -> None:
    """The base offset is outside the checksum: a flipped bit there would copy records a second time."""
    fault = fault_of(planned(batch_of(run_of(8, 2)), batch_of(run_of(2, 2))))
    assert (fault.kind, fault.offset) == ("corrupt records", 10)


def test_a_last_batch_that_is_cut_is_left_for_the_next_fetch() -> None:
    whole = GOOD + batch_of(run_of(2, 3))
    for cut in range(len(GOOD), len(whole)):
        result = planned(whole[:cut])
        assert (result.next_offset, result.fault, result.cut_batch_bytes) == (2, None, 0)


@pytest.mark.parametrize("batch", [GOOD, old_message_set([Seen(0)], magic=1), old_message_set([Seen(0)], magic=0)])
def test_a_fetch_without_one_whole_batch_says_how_much_it_must_allow(batch: bytes) -> None:
    for cut in range(12, len(batch)):
        result = planned(batch[:cut])
        assert (result.steps, result.fault, result.cut_batch_bytes) == ([], None, len(batch))
    for cut in range(1, 12):
        assert planned(batch[:cut]).cut_batch_bytes > cut


def test_a_first_batch_that_is_cut_by_its_own_length_is_damage() -> None:
    """Else the same few bytes would be fetched again and again."""
    for length in (-1, 0, 20):
        odd = bytearray(GOOD[:40])
        struct.pack_into(">i", odd, 8, length)
        assert fault_of(planned(odd)).kind == "corrupt records"


def test_a_plan_ends_once_it_has_decoded_as_much_as_it_may_and_goes_on_in_the_next() -> None:
    records = [Seen(n, value=bytes(400_000)) for n in range(40)]
    fetched = [batch_of(records[n : n + 2], codec=ZSTD) for n in range(0, 40, 2)]
    rules = TargetRules(1 << 20, compression=NONE, decode_budget_bytes=2_000_000)
    arrived: list[Seen] = []
    position, plans = 0, 0
    while position < 40:
        result = planned(*fetched, wanted_offset=position, rules=rules)
        assert sum(len(step.data) for step in outgoing(result.steps)) < 3_000_000
        arrived += delivered(result.steps)
        position, plans = result.next_offset, plans + 1
    assert arrived == records
    assert plans == 7


def test_old_messages_before_the_wanted_one_use_up_nothing_of_what_a_plan_may_decode() -> None:
    """A reply that began far before the wanted offset was asked for again and again: each plan ended before it."""
    records = [Seen(n, value=bytes(400)) for n in range(20)]
    rules = TargetRules(max_message_bytes=1800, decode_budget_bytes=1000)
    result = planned(old_message_set(records, magic=1), wanted_offset=18, rules=rules)
    assert list(delivered(result.steps)) == records[18:]


# Any log, in any pieces


@dataclass
class Log:
    """A model of a partition: its bytes, and what consumers see in it."""

    next_offset: int
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """(next offset, bytes)."""
    records: list[tuple[Seen, int | None]] = field(default_factory=list)
    """Each with the producer id of its transaction."""
    ended: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """(producer id, first offset, offset of the marker, aborted) of each finished transaction."""
    open_since: dict[int, int] = field(default_factory=dict)

    def seen(self, *, read_committed: bool) -> list[Seen]:
        return [
            seen
            for seen, producer_id in self.records
            if not read_committed
            or not any(
                aborts and producer == producer_id and first <= seen.offset < end
                for producer, first, end, aborts in self.ended
            )
        ]

    def aborted(self, fetch_offset: int = 0) -> list[tuple[int, int]]:
        return [(producer, first) for producer, first, end, aborts in self.ended if aborts and end >= fetch_offset]


VALUES = st.none() | st.binary(max_size=40) | st.integers(0, 9).map(lambda n: bytes([n]) * 200)
TIMESTAMPS = st.sampled_from([0, 1, 1_600_000_000_000, 253_402_300_800_000]) | st.integers(0, 2**45)
HEADERS = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=3), VALUES), max_size=3).map(tuple)
KINDS = ["data", "data", "thinned", "transactional", "transactional", "marker", "emptied", "old"]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log(next_offset=draw(st.sampled_from([0, 7, 10**15, 2**62])))
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=14)):
        first = log.next_offset + draw(st.sampled_from([0, 0, 0, 1, 1000]))
        if kind == "marker":
            producer_id, aborts = draw(st.integers(1, 3)), draw(st.booleans())
            data = marker(first, producer_id, "AbortMarker" if aborts else "CommitMarker")
            if producer_id in log.open_since:
                log.ended.append((producer_id, log.open_since.pop(producer_id), first, aborts))
            log.next_offset = first + 1
        elif kind == "emptied":
            log.next_offset = first + draw(st.integers(1, 50))
            data = emptied(first, log.next_offset)
        elif kind == "old":
            data = draw_old(draw, log, first)
        else:
            data = draw_batch(draw, log, first, thinned=kind == "thinned", transactional=kind == "transactional")
        log.batches.append((log.next_offset, data))
    return log


def draw_offsets(draw: st.DrawFn, first: int, *, thinned: bool) -> list[int]:
    offsets = [first]
    for _ in range(draw(st.integers(0, 5))):
        offsets.append(offsets[-1] + (draw(st.integers(1, 3)) if thinned else 1))
    return offsets


def draw_batch(draw: st.DrawFn, log: Log, first: int, *, thinned: bool, transactional: bool) -> bytes:
    offsets = draw_offsets(draw, first + (draw(st.integers(0, 2)) if thinned else 0), thinned=thinned)
    records = [Seen(offset, draw(TIMESTAMPS), draw(VALUES), draw(VALUES), draw(HEADERS)) for offset in offsets]
    log_append_time = draw(st.booleans())
    if log_append_time:
        records = [record._replace(timestamp_ms=records[0].timestamp_ms) for record in records]
    producer_id = draw(st.integers(1, 3)) if transactional else None
    if producer_id is not None:
        log.open_since.setdefault(producer_id, first)
    log.records.extend((record, producer_id) for record in records)
    log.next_offset = offsets[-1] + 1 + (draw(st.integers(0, 3)) if thinned else 0)
    return batch_of(
        records,
        codec=draw(st.integers(0, 4)),
        base_offset=first,
        next_offset=log.next_offset,
        attributes=log_append_time * LOG_APPEND_TIME | transactional * TRANSACTIONAL,
        producer=(-1, -1, -1) if producer_id is None else (producer_id, 0, 0),
    )


def draw_old(draw: st.DrawFn, log: Log, first: int) -> bytes:
    magic = draw(st.integers(0, 1))
    codec = draw(st.sampled_from([NONE, GZIP, SNAPPY, LZ4] if magic else [NONE, GZIP, SNAPPY]))
    offsets = draw_offsets(draw, first, thinned=draw(st.booleans()))
    records = [Seen(offset, draw(TIMESTAMPS) if magic else -1, draw(VALUES), draw(VALUES)) for offset in offsets]
    log_append_time = bool(magic and codec and draw(st.booleans()))
    if log_append_time:
        records = [record._replace(timestamp_ms=records[0].timestamp_ms) for record in records]
    log.records.extend((record, None) for record in records)
    log.next_offset = offsets[-1] + 1
    return old_message_set(records, magic=magic, codec=codec, log_append_time=log_append_time)


RULES = st.builds(
    TargetRules,
    max_message_bytes=st.sampled_from([1 << 20, 1800]),
    compression=st.none() | st.integers(0, 4),
    decode_budget_bytes=st.sampled_from([1 << 20, 1000]),
)
"""The lesser limit still takes the largest single record."""


@given(logs(), RULES, st.booleans(), st.data())
def test_any_log_read_in_any_pieces_arrives_whole_and_in_order(
    log: Log, rules: TargetRules, read_committed: bool, data: st.DataObject
) -> None:
    begin = log.batches[0][0]
    wanted = data.draw(st.integers(max(0, begin - 10), log.next_offset + 3), label="wanted offset")
    fetch_bytes = data.draw(st.integers(1, 3000), label="fetch bytes")
    position = wanted
    arrived: list[Seen] = []
    while ahead := [batch for next_offset, batch in log.batches if next_offset > position]:
        fetched = memoryview(bytearray(b"".join(ahead)))[: max(fetch_bytes, len(ahead[0]))]
        aborted = data.draw(st.permutations(log.aborted(position)), label="aborted")
        result = plan(fetched, wanted_offset=position, read_committed=read_committed, aborted=aborted, rules=rules)
        check_steps(result, position, rules)
        assert result.fault is None
        assert result.next_offset > position
        arrived += delivered(result.steps)
        position = result.next_offset
    assert position == max(log.next_offset, wanted)
    assert arrived == [seen for seen in log.seen(read_committed=read_committed) if seen.offset >= wanted]


@given(logs(), RULES, st.booleans(), st.data())
def test_damage_leads_to_a_fault_and_never_to_an_exception_or_wrong_records(
    log: Log, rules: TargetRules, read_committed: bool, data: st.DataObject
) -> None:
    """One byte under a checksum is changed: what arrives is a beginning of the truth."""
    hit = data.draw(st.integers(0, len(log.batches) - 1), label="batch")
    batch = bytearray(log.batches[hit][1])
    # In front of the magic stands what no checksum covers; old messages without compression come several in a row.
    end = int.from_bytes(batch[8:12], "big") + 12
    batch[data.draw(st.integers(17, end - 1), label="at")] ^= data.draw(st.integers(1, 255), label="bits")
    parts = [part if index != hit else bytes(batch) for index, (_, part) in enumerate(log.batches)]
    records = memoryview(bytearray(b"".join(parts)))
    rules = replace(rules, decode_budget_bytes=1 << 20)
    result = plan(records, wanted_offset=0, read_committed=read_committed, aborted=log.aborted(), rules=rules)
    check_steps(result, 0, rules)
    arrived = list(delivered(result.steps))
    assert arrived == log.seen(read_committed=read_committed)[: len(arrived)]
    assert result.fault is not None or result.next_offset < log.next_offset
    check_plausible(result)


@given(logs(), RULES, st.booleans(), st.data())
def test_damage_under_a_right_checksum_never_raises(
    log: Log, rules: TargetRules, read_committed: bool, data: st.DataObject
) -> None:
    parts = []
    for _, batch in log.batches:
        changed = bytearray(batch)
        for _ in range(data.draw(st.integers(0, 2))):
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        parts.append(checksum_mended(changed))
    records = memoryview(bytearray(b"".join(parts)))
    check_plausible(
        plan(records, wanted_offset=0, read_committed=read_committed, aborted=log.aborted(), rules=rules),
    )


@given(st.binary(max_size=300), RULES, st.booleans())
def test_random_bytes_never_raise(data: bytes, rules: TargetRules, read_committed: bool) -> None:
    for magic in (None, 0, 1, 2):
        changed = bytearray(data)
        if magic is not None and len(changed) > 61:
            changed[16] = magic
            struct.pack_into(">i", changed, 8, len(changed) - 12)
            changed = bytearray(checksum_mended(changed))
        check_plausible(
            plan(memoryview(changed), wanted_offset=0, read_committed=read_committed, aborted=[(0, 0)], rules=rules)
        )


def checksum_mended(batch: bytearray) -> bytes:
    if batch[16] == 2:
        return crc_set(batch) if len(batch) >= 61 else bytes(batch)
    size = int.from_bytes(batch[8:12], "big") + 12
    struct.pack_into(">I", batch, 12, zlib.crc32(batch[16:size]))
    return bytes(batch)


def check_plausible(result: Plan) -> None:
    at = 0
    for step in result.steps:
        assert step.next_offset >= at
        at = step.next_offset
        if isinstance(step, Outgoing):
            assert read_header(step.data).size_bytes == len(step.data)
            stamp(step.data, 1, 0, 0)
    assert result.next_offset == at < 2**63
    assert result.fault is None or result.fault.kind in get_args(FaultKind)
