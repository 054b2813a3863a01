"""The records of the flight recorder: what is written is read again, and other people's records are refused."""

from __future__ import annotations

import json

import pytest

from mm2py.records.flight_record import (
    AllWritten,
    CausesChanged,
    ChangesLost,
    FlightEvent,
    LineLogged,
    MalformedFlightRecord,
    RecordedAnew,
    decode_flight,
    encode_flight,
)
from mm2py.records.standstill import Cause

STALLED = Cause("stalled", "records wait", "Look.", 1_000, "0-3")


@pytest.mark.parametrize(
    "event",
    [
        RecordedAnew(5, "m1", is_start=True),
        RecordedAnew(5, "m1", is_start=False),
        CausesChanged(6, "m1", "orders", (STALLED,)),
        CausesChanged(6, "m1", "", ()),
        LineLogged(7, "m1", "warning", "target.denied", "orders", 3, "why=no WRITE"),
        LineLogged(7, "m1", "info", "flow.ready", "", None, ""),
        ChangesLost(8, "m1", 12, 3, 4),
        AllWritten(9, "m1"),
    ],
)
def test_what_is_written_is_read_again(event: FlightEvent) -> None:
    assert decode_flight(encode_flight(event)) == event


def test_a_text_that_no_utf_8_can_hold_is_written_all_the_same() -> None:
    found = decode_flight(encode_flight(LineLogged(7, "m1", "info", "e", "", None, "\udc80")))
    assert isinstance(found, LineLogged) and found.text == "?"


def test_a_kind_of_a_later_version_is_skipped() -> None:
    assert decode_flight(json.dumps({"format": 1, "kind": "later", "at_ms": 1, "member": "m"}).encode()) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b'{"format":2,"kind":"anew","at_ms":1,"member":"m","is_start":true}',
        b'{"format":1,"kind":"anew","at_ms":-1,"member":"m","is_start":true}',
        b'{"format":1,"kind":"causes","at_ms":1,"member":"m","topic":"t","causes":{}}',
        b'{"format":1,"kind":"causes","at_ms":1,"member":"m","topic":"t","causes":[{"reason":"x"}]}',
        b'{"format":1,"kind":"log","at_ms":1,"member":"m","level":"info","event":"e","text":"","partition":"3"}',
        b"[" * 100_000,
    ],
)
def test_what_mm2py_does_not_write_is_refused(value: bytes | None) -> None:
    with pytest.raises(MalformedFlightRecord):
        decode_flight(value)
