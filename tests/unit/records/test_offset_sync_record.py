"""The layout of offset syncs, against bytes that MirrorMaker 2 wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import TopicName
from mm2py.records.java_struct import MalformedRecord
from mm2py.records.offset_sync import OffsetSync, decode, encode

# OffsetSync("t1", 3, 100, 57) as its own class serializes it
KEY = bytes.fromhex("0002743100000003")
VALUE = bytes.fromhex("00000000000000640000000000000039")
SYNC = OffsetSync(TopicName("t1"), 3, 100, 57)

OFFSETS = st.integers(-(2**63), 2**63 - 1)


def test_an_offset_sync_is_written_byte_for_byte_as_mirrormaker_2_writes_it() -> None:
    assert encode(SYNC, 1_700_000_000_000) == (KEY, VALUE, 1_700_000_000_000, ())


def test_what_mirrormaker_2_wrote_is_read() -> None:
    assert decode(KEY, VALUE) == SYNC


def test_what_follows_the_last_field_is_ignored_as_java_does() -> None:
    assert decode(KEY + b"more", VALUE + b"more") == SYNC


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, VALUE, "it has no key"),
        (KEY, None, "it has no value"),
        (b"", VALUE, "its key of 0 bytes ends inside the topic"),
        (KEY[:3], VALUE, "its key of 3 bytes ends inside the topic"),
        (b"\xff\xff" + KEY[2:], VALUE, "ends inside the topic"),
        (KEY[:-1], VALUE, "its key has 7 bytes instead of 8"),
        (b"\x00\x02t\xff" + KEY[4:], VALUE, "the topic in its key is not UTF-8"),
        (KEY[:4] + b"\xff\xff\xff\xff", VALUE, "its partition is -1"),
        (KEY, VALUE[:-1], "its value has 15 bytes instead of 16"),
        (KEY, b"", "its value has 0 bytes instead of 16"),
    ],
)
def test_what_is_no_offset_sync_is_told_in_a_sentence(key: bytes | None, value: bytes | None, why: str) -> None:
    with pytest.raises(MalformedRecord, match=f"This is no offset sync: .*{why}"):
        decode(key, value)


@given(st.text(max_size=50), st.integers(0, 2**31 - 1), OFFSETS, OFFSETS)
def test_any_offset_sync_comes_back(topic: str, partition: int, upstream: int, downstream: int) -> None:
    sync = OffsetSync(TopicName(topic), partition, upstream, downstream)
    record = encode(sync, 0)
    assert decode(record.key, record.value) == sync


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    try:
        sync = decode(key, value)
    except MalformedRecord:
        return
    record = encode(sync, 0)
    assert key.startswith(record.key or b"")
    assert value.startswith(record.value or b"")


def test_a_topic_that_does_not_fit_is_not_cut() -> None:
    assert encode(OffsetSync(TopicName("x" * 32_767), 0, 0, 0), 0).key is not None
    with pytest.raises(ValueError, match="does not fit"):
        encode(OffsetSync(TopicName("x" * 32_768), 0, 0, 0), 0)
