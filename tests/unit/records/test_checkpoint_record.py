"""The layout of checkpoints, against bytes that MirrorMaker 2 wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import TopicName
from mm2py.records.checkpoint import Checkpoint, decode, encode
from mm2py.records.java_struct import MalformedRecord

# Checkpoint("g1", "A.t1", 3, 100, 57, "") as its own class serializes it
KEY = bytes.fromhex("000267310004412e743100000003")
VALUE = bytes.fromhex("0000000000000000006400000000000000390000")
CHECKPOINT = Checkpoint("g1", TopicName("A.t1"), 3, 100, 57, "")

OFFSETS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=50)


def test_a_checkpoint_is_written_byte_for_byte_as_mirrormaker_2_writes_it() -> None:
    assert encode(CHECKPOINT, 1_700_000_000_000) == (KEY, VALUE, 1_700_000_000_000, ())


def test_what_mirrormaker_2_wrote_is_read() -> None:
    assert decode(KEY, VALUE) == CHECKPOINT


def test_what_follows_the_last_field_is_ignored_as_java_does() -> None:
    assert decode(KEY + b"more", VALUE + b"more") == CHECKPOINT


def test_other_versions_are_read_as_java_does() -> None:
    assert decode(KEY, b"\x00\x07" + VALUE[2:]) == CHECKPOINT


def test_lengths_count_bytes_not_characters() -> None:
    record = encode(replace(CHECKPOINT, group="ü", metadata="東京"), 0)
    assert record.key == b"\x00\x02\xc3\xbc" + KEY[4:]
    assert record.value == VALUE[:-2] + b"\x00\x06" + "東京".encode()


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, VALUE, "it has no key"),
        (KEY, None, "it has no value"),
        (b"", VALUE, "its key of 0 bytes ends inside the group"),
        (KEY[:3], VALUE, "its key of 3 bytes ends inside the group"),
        (KEY[:4], VALUE, "its key of 4 bytes ends inside the topic"),
        (KEY[:-1], VALUE, "its key has 13 bytes instead of 14"),
        (b"\x00\x02g\xff" + KEY[4:], VALUE, "the group in its key is not UTF-8"),
        (KEY[:6] + b"\xff" + KEY[7:], VALUE, "the topic in its key is not UTF-8"),
        (KEY[:10] + b"\x80\x00\x00\x00", VALUE, "its partition is -2147483648"),
        (KEY, b"", "its value has 0 bytes instead of 18"),
        (KEY, VALUE[:17], "its value has 17 bytes instead of 18"),
        (KEY, VALUE[:-1], "its value of 19 bytes ends inside the metadata"),
        (KEY, VALUE[:-1] + b"\x01", "its value of 20 bytes ends inside the metadata"),
        (KEY, VALUE[:-1] + b"\x01\xff", "the metadata in its value is not UTF-8"),
    ],
)
def test_what_is_no_checkpoint_is_told_in_a_sentence(key: bytes | None, value: bytes | None, why: str) -> None:
    with pytest.raises(MalformedRecord, match=f"This is no checkpoint: .*{why}"):
        decode(key, value)


@given(TEXTS, TEXTS, st.integers(0, 2**31 - 1), OFFSETS, OFFSETS, TEXTS)
def test_any_checkpoint_comes_back(
    group: str, topic: str, partition: int, upstream: int, downstream: int, metadata: str
) -> None:
    checkpoint = Checkpoint(group, TopicName(topic), partition, upstream, downstream, metadata)
    record = encode(checkpoint, 0)
    assert decode(record.key, record.value) == checkpoint


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    try:
        checkpoint = decode(key, value)
    except MalformedRecord:
        return
    record = encode(checkpoint, 0)
    assert key.startswith(record.key or b"")
    assert value[2:].startswith((record.value or b"")[2:])


@pytest.mark.parametrize(
    "with_text",
    [
        lambda text: replace(CHECKPOINT, group=text),
        lambda text: replace(CHECKPOINT, topic=TopicName(text)),
        lambda text: replace(CHECKPOINT, metadata=text),
    ],
    ids=["group", "topic", "metadata"],
)
def test_a_text_that_does_not_fit_is_not_cut(with_text: Callable[[str], Checkpoint]) -> None:
    longest = with_text("x" * 32_767)
    record = encode(longest, 0)
    assert decode(record.key, record.value) == longest
    with pytest.raises(ValueError, match="does not fit"):
        encode(with_text("é" * 16_384), 0)
