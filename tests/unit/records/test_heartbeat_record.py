"""The layout of heartbeats, against bytes that MirrorMaker 2 wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.records.heartbeat import Heartbeat, decode, encode
from mm2py.records.java_struct import MalformedRecord

# Heartbeat("A", "B", 1700000000000) as its own class serializes it
KEY = bytes.fromhex("000141000142")
VALUE = bytes.fromhex("00000000018bcfe56800")
AT_MS = 1_700_000_000_000
HEARTBEAT = Heartbeat(parse_flow("A->B"), AT_MS)


def test_a_heartbeat_is_written_byte_for_byte_as_mirrormaker_2_writes_it() -> None:
    assert encode(HEARTBEAT) == (KEY, VALUE, AT_MS, ())


def test_what_mirrormaker_2_wrote_is_read() -> None:
    assert decode(KEY, VALUE) == HEARTBEAT


def test_what_follows_the_last_field_is_ignored_as_java_does() -> None:
    assert decode(KEY + b"more", VALUE + b"\x00more") == HEARTBEAT


def test_other_versions_are_read_as_java_does() -> None:
    assert decode(KEY, b"\x00\x07" + VALUE[2:]) == HEARTBEAT


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, VALUE, "it has no key"),
        (KEY, None, "it has no value"),
        (b"", VALUE, "its key of 0 bytes ends inside an alias"),
        (KEY[:-1], VALUE, "its key of 5 bytes ends inside an alias"),
        (KEY[:4], VALUE, "its key of 4 bytes ends inside an alias"),
        (b"\xff\xff" + KEY[2:], VALUE, "ends inside an alias"),
        (b"\x00\x01\xff" + KEY[3:], VALUE, "an alias in its key is not UTF-8"),
        (KEY, VALUE[:-1], "its value has 9 bytes instead of 10"),
        (KEY, b"", "its value has 0 bytes instead of 10"),
    ],
)
def test_what_is_no_heartbeat_is_told_in_a_sentence(key: bytes | None, value: bytes | None, why: str) -> None:
    with pytest.raises(MalformedRecord, match=f"This is no heartbeat: .*{why}"):
        decode(key, value)


@given(st.text(max_size=50), st.text(max_size=50), st.integers(-(2**63), 2**63 - 1))
def test_any_alias_and_any_time_come_back(source: str, target: str, at_ms: int) -> None:
    heartbeat = Heartbeat(Flow(ClusterAlias(source), ClusterAlias(target)), at_ms)
    record = encode(heartbeat)
    assert decode(record.key, record.value) == heartbeat
    assert record.timestamp_ms == at_ms


@given(st.binary(max_size=30), st.binary(max_size=20))
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes) -> None:
    try:
        heartbeat = decode(key, value)
    except MalformedRecord:
        return
    assert key.startswith(encode(heartbeat).key or b"")


def test_an_alias_that_does_not_fit_is_not_cut() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode(Heartbeat(Flow(ClusterAlias("é" * 20_000), ClusterAlias("B")), 0))
