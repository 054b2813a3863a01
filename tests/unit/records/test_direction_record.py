"""Whether a flow is on: the record, and which of several counts."""

from __future__ import annotations

import json

import pytest

from mm2py.records.author import Author
from mm2py.records.connector_config import ConfigRecords
from mm2py.records.direction_record import (
    DIRECTION_KEY,
    Direction,
    DirectionState,
    decode_direction,
    encode_direction,
    is_by_failover,
)
from mm2py.records.history_record import HistoryKind, decode_history, direction_entry, encode_history
from mm2py.records.operator_request import MalformedRequest, decode_target

TOPIC = "mm2-configs.A.internal"
OFF = Direction(
    DirectionState.OFF, 4, "ann on ops1 (mm2py dr)", 1_700, "a", "b", ("c",), Author("ann", "ops1", "drill"), "0.1"
)


@pytest.mark.parametrize("state", list(DirectionState))
def test_a_record_is_read_as_it_was_written(state: DirectionState) -> None:
    one = Direction(state, 4, OFF.by, 1_700, "a", "b", ("c",), OFF.author, "0.1")
    assert decode_direction(encode_direction(one), TOPIC) == one


def test_of_two_turns_at_the_same_time_the_first_counts_and_its_offset_is_known() -> None:
    records = ConfigRecords(TOPIC)
    first, second = (Direction(DirectionState.ON, 1, who, 1, who) for who in ("ann", "bob"))
    records.take(DIRECTION_KEY, encode_direction(first), 5)
    records.take(DIRECTION_KEY, encode_direction(second), 6)
    direction = records.direction
    assert direction.current == first and direction.offset == 5 and direction.is_covered and direction.hold is None
    records.take(DIRECTION_KEY, encode_direction(direction.next(OFF)), 7)
    assert direction.current is not None and direction.current.by == OFF.by
    assert direction.hold is not None and direction.hold.text == "standby by ann on ops1 (mm2py dr): drill"
    assert direction.hold.offset == 7


def test_a_record_of_a_newer_mm2py_must_not_be_passed_over() -> None:
    records = ConfigRecords(TOPIC)
    fields = json.loads(encode_direction(OFF)) | {"readable_from": 9, "mm2py": "9.0"}
    records.take(DIRECTION_KEY, json.dumps(fields).encode(), 1)
    assert records.direction.too_new is not None and "Run mm2py 9.0 or later." in str(records.direction.too_new)


@pytest.mark.parametrize(
    "change",
    [{"state": "half"}, {"state": 7}, {"generation": -1}, {"write_id": ""}, {"at_ms": True}, {"readable_from": "1"}],
)
def test_what_mm2py_does_not_write_changes_nothing_and_is_told(change: dict[str, object]) -> None:
    records = ConfigRecords(TOPIC)
    records.take(DIRECTION_KEY, encode_direction(OFF), 0)
    records.take(DIRECTION_KEY, json.dumps(json.loads(encode_direction(OFF)) | change).encode(), 1)
    assert records.direction.current == OFF
    assert len(records.malformed) == 1 and "mm2py-direction" in records.malformed[0]


def test_a_mark_says_whether_a_failover_has_set_it() -> None:
    by = Author("ann", "ops1").by_command("mm2py dr failover")
    assert is_by_failover(by)
    assert is_by_failover(f"standby by {by}: A burns (generation 2)")
    assert not is_by_failover(Author("ann", "ops1").by_command("mm2py dr turn"))


def test_the_history_tells_turns() -> None:
    entry = direction_entry(OFF)
    assert entry is not None and entry.kind is HistoryKind.STANDBY
    assert entry.text == "flow standby (generation 4) by ann on ops1 (mm2py dr): drill"
    assert decode_history(encode_history(entry)) == entry
    assert direction_entry(Direction(DirectionState.TURNING_ON, 1, "ann", 1)) is None


@pytest.mark.parametrize("state", ["STANDBY", "BOTH-ON"])
def test_connects_own_record_cannot_say_that_a_flow_is_standby(state: str) -> None:
    with pytest.raises(MalformedRequest):
        decode_target(json.dumps({"state.v2": state}).encode(), 1)
