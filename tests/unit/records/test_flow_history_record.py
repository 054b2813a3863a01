"""The records of a flow's history: their place is their key, and nothing that others write is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.records.flow_history_record import (
    EVENTS_MOST,
    FINE_S,
    MINUTE_S,
    SLOTS,
    TEXT_MOST,
    HistoryEvent,
    HistoryPoint,
    MalformedHistory,
    Series,
    decode_history_record,
    encode_history_record,
)

POINT = HistoryPoint(1_760_000_000_000, FINE_S, "host:1", {Series.LAG_RECORDS: 3.0, Series.SAFE_AGE_S: 1.25})
EVENT = HistoryEvent(7, 1_760_000_000_000, "member.left", "w1 has left.", "c0ffee00:17")


@given(
    st.builds(
        HistoryPoint,
        st.integers(0, 1 << 50),
        st.sampled_from(sorted(SLOTS)),
        st.text(max_size=50),
        st.dictionaries(st.sampled_from(list(Series)), st.floats(allow_nan=False, allow_infinity=False)),
    )
    | st.builds(
        HistoryEvent, st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.just("gap"), st.just("t"), st.just("a:1")
    )
)
def test_what_is_written_is_read_again(record: HistoryPoint | HistoryEvent) -> None:
    assert decode_history_record("A->B", *encode_history_record("A->B", record)) == record


def test_a_point_of_the_same_place_of_the_ring_has_the_same_key_so_compaction_bounds_the_topic() -> None:
    hour_ms, day_ms = 3_600_000, 86_400_000
    keys = {encode_history_record("A->B", HistoryPoint(at, FINE_S, "", {}))[0] for at in range(0, 9 * hour_ms, 10_000)}
    assert len(keys) == 360
    minutes = range(0, 3 * day_ms, 60_000)
    keys |= {encode_history_record("A->B", HistoryPoint(at, MINUTE_S, "", {}))[0] for at in minutes}
    events = (HistoryEvent(number, 0, "gap", "", str(number)) for number in range(3 * EVENTS_MOST))
    keys |= {encode_history_record("A->B", event)[0] for event in events}
    assert len(keys) == 360 + 1440 + EVENTS_MOST


def test_the_history_of_another_flow_and_a_tombstone_say_nothing() -> None:
    key, value = encode_history_record("A->B", POINT)
    assert decode_history_record("A->C", key, value) is None
    assert decode_history_record("A->B", key, None) is None
    assert decode_history_record("A->B", None, value) is None


def test_a_long_text_is_cut() -> None:
    event = HistoryEvent(7, 0, "gap", "x" * 10_000, "a:1")
    found = decode_history_record("A->B", *encode_history_record("A->B", event))
    assert isinstance(found, HistoryEvent) and len(found.text) == TEXT_MOST


def test_what_a_later_version_adds_is_ignored() -> None:
    key, value = encode_history_record("A->B", POINT)
    fields = {**json.loads(value), "lag_moons": 3}
    assert decode_history_record("A->B", key, json.dumps(fields).encode()) == POINT
    assert decode_history_record("A->B", key, json.dumps({**fields, "step_s": 3600}).encode()) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"at_ms": -1},
        {"at_ms": 1.5},
        {"at_ms": True},
        {"at_ms": 1 << 60},
        {"step_s": None},
        {"step_s": []},
        {"by": 3},
        {"lag_records": "3"},
        {"lag_records": True},
        {"lag_records": float("nan")},
        {"lag_records": float("inf")},
        {"lag_records": 10**400},
        {"event": -1},
        {"event": 1},
    ],
)
def test_what_mm2py_does_not_write_is_refused(changed: dict[str, Any]) -> None:
    key, value = encode_history_record("A->B", POINT)
    with pytest.raises(MalformedHistory):
        decode_history_record("A->B", key, json.dumps({**json.loads(value), **changed}).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b"7"])
def test_what_is_no_object_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedHistory):
        decode_history_record("A->B", encode_history_record("A->B", POINT)[0], value)
