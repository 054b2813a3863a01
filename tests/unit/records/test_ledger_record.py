"""Chunks of a ledger: read back as written, small, and nothing but a named error from any other bytes."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import TopicName
from mm2py.offsets.run_codec import OFFSET_MOST, CorruptRuns
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.records.java_struct import MalformedRecord
from mm2py.records.ledger_record import (
    ChunkKey,
    LedgerChunk,
    NewerLedgerFormat,
    decode,
    decode_key,
    encode,
    encode_deletion,
    encode_key,
    is_rebuilt,
)

CHUNK = LedgerChunk(
    ChunkKey(TopicName("orders"), 3, 1, 1000),
    400,
    (Run(1000, 400, 9), Run(1010, 409, 9), Hole(1020, 420, 3, 0, HoleCause.GAP)),
    1030,
    True,
    uuid.UUID(int=1),
    None,
)
IDS = st.none() | st.uuids()
FLAG = st.booleans()
GAPS = st.sampled_from([0, 1, 2, 127, 128, 1 << 20, 1 << 40])
COUNTS = st.sampled_from([1, 9, 31, 32, 4095, 4096, 1 << 50])


@st.composite
def chunks(draw: st.DrawFn) -> LedgerChunk:
    begin = source, target = (draw(GAPS), draw(GAPS))
    entries: list[Entry] = []
    for _ in range(draw(st.integers(0, 8))):
        source, target = source + draw(GAPS), target + draw(GAPS)
        if draw(st.booleans()):
            entries.append(Run(source, target, draw(COUNTS)))
        else:
            cause = draw(st.sampled_from(HoleCause))
            entries.append(Hole(source, target, draw(COUNTS), draw(COUNTS) if cause.is_copied else 0, cause))
        source, target = entries[-1].source_end, entries[-1].target_end
    topic = TopicName(draw(st.text(st.characters(codec="utf-8"), max_size=8)))
    key = ChunkKey(topic, draw(st.integers(0, 2**31 - 1)), draw(st.integers(0, 2**40)), begin[0])
    copied_to = source + draw(GAPS)
    return LedgerChunk(key, begin[1], tuple(entries), copied_to, *(draw(one) for one in (FLAG, IDS, IDS, FLAG)))


@given(chunks())
def test_a_chunk_is_read_back_as_it_was_written(chunk: LedgerChunk) -> None:
    record = encode(chunk, 7)
    assert decode(record.key, record.value) == chunk
    assert record.timestamp_ms == 7


@given(chunks(), st.data())
def test_bytes_that_are_cut_off_or_flipped_give_a_chunk_or_a_named_error(
    chunk: LedgerChunk, data: st.DataObject
) -> None:
    record = encode(chunk, 7)
    assert record.key is not None and record.value is not None
    for part in ("key", "value"):
        whole = getattr(record, part)
        for changed in (whole[: data.draw(st.integers(0, len(whole) - 1))], _flipped(whole, data)):
            key, value = (changed, record.value) if part == "key" else (record.key, changed)
            with suppress(MalformedRecord, NewerLedgerFormat):
                decode(key, value)


def _flipped(whole: bytes, data: st.DataObject) -> bytes:
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(chunks())
def test_a_value_that_is_cut_off_anywhere_is_refused(chunk: LedgerChunk) -> None:
    record = encode(chunk, 7)
    assert record.value is not None
    for size in range(len(record.value)):
        with pytest.raises(MalformedRecord):
            decode(record.key, record.value[:size])


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_other_bytes_give_a_chunk_or_a_named_error(key: bytes, value: bytes) -> None:
    for one in (key, encode_key(CHUNK.key), b'["runs",' + key):
        for other in (value, b"\1\1" + value, b"\1\1\0\0\0\xff\xff\xff\xff\1\0\x10" + value):
            with suppress(MalformedRecord, NewerLedgerFormat):
                decode(one, other)


def test_a_chunk_that_has_grown_has_the_same_key_and_the_next_one_another() -> None:
    grown = replace(CHUNK, entries=(*CHUNK.entries, Run(1040, 420, 1)), copied_to=1041)
    assert encode(grown, 0).key == encode(CHUNK, 0).key == b'["runs","orders",3,1,1000]'
    assert encode_key(replace(CHUNK.key, source_offset=1001)) != encode_key(CHUNK.key)
    assert encode_key(replace(CHUNK.key, number=2)) != encode_key(CHUNK.key)


def test_a_chunk_is_deleted_by_its_key() -> None:
    deletion = encode_deletion(CHUNK.key, 5)
    assert decode(deletion.key, deletion.value) is None
    assert decode_key(deletion.key) == CHUNK.key


def test_a_chunk_has_the_bytes_that_every_version_reads() -> None:
    assert encode(CHUNK, 0).value == (
        b"\1\1\3" + uuid.UUID(int=1).bytes + b"\x86\x08\x90\x03" + b"\x09" + b"\x25\0\x24\0\3\1\2\3\0"
    )
    rebuilt = encode(replace(CHUNK, is_rebuilt=True), 0).value
    assert rebuilt is not None and rebuilt[:3] == b"\1\1\x0b"
    assert is_rebuilt(rebuilt) and not is_rebuilt(rebuilt[:2])


def test_what_a_newer_version_appends_is_ignored_if_it_says_so() -> None:
    record = encode(CHUNK, 0)
    assert record.value is not None
    assert decode(record.key, b"\2\1" + record.value[2:] + b"more") == CHUNK
    with pytest.raises(MalformedRecord):
        decode(record.key, record.value + b"more")


def test_a_newer_format_that_must_not_be_passed_over_stops_the_reader() -> None:
    record = encode(CHUNK, 0)
    assert record.value is not None
    with pytest.raises(NewerLedgerFormat, match="format 2"):
        decode(record.key, b"\2\2" + record.value[2:])
    with pytest.raises(NewerLedgerFormat, match="format 3"):
        decode(b'["weather",1]', b"\3\3")
    assert decode(b'["weather",1]', b"\3\1") is None


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"[]",
        b"[7]",
        b'["runs"]',
        b'["runs","orders",3,1]',
        b'["runs", "orders",3,1,1000]',
        b'["runs",5,3,1,1000]',
        b'["runs","orders",true,1,1000]',
        b'["runs","orders",-1,1,1000]',
        b'["runs","orders",2147483648,1,1000]',
        b'["runs","orders",3,1,9223372036854775808]',
        b'["runs","\\ud800",3,1,1000]',
        b"[" * 100_000,
    ],
    ids=lambda key: str(key)[:40],
)
def test_a_key_that_mm2py_does_not_write_is_refused(key: bytes | None) -> None:
    with pytest.raises(MalformedRecord):
        decode(key, encode(CHUNK, 0).value)


@pytest.mark.parametrize(
    "change",
    [
        {"entries": (Run(999, 400, 1),)},
        {"entries": (Run(1000, 399, 1),)},
        {"entries": (Run(1000, 400, 5), Run(1004, 405, 1))},
        {"entries": (Run(1000, 400, 0),)},
        {"entries": (Hole(1000, 400, 1, 1, HoleCause.GAP),)},
        {"entries": (Run(1000, 400, OFFSET_MOST),)},
        {"copied_to": 1022},
        {"target_offset": 401},
        {"key": ChunkKey(TopicName("orders"), 3, 1, -1)},
        {"target_offset": -1},
    ],
    ids=str,
)
def test_a_chunk_that_contradicts_itself_is_not_made(change: dict[str, object]) -> None:
    with pytest.raises(CorruptRuns):
        replace(CHUNK, **change)  # type: ignore[arg-type]
