"""What operators ask of connectors, in Connect's bytes and ours."""

from __future__ import annotations

import json

import pytest

from mm2py.records.connector_config import ConfigRecords
from mm2py.records.operator_request import (
    BY_MOST,
    MalformedRequest,
    Target,
    TargetState,
    decode_target,
    encode_target,
    target_key,
)

SOURCE = "MirrorSourceConnector"


@pytest.mark.parametrize(
    ("state", "old"),
    [(TargetState.STARTED, "STARTED"), (TargetState.PAUSED, "PAUSED"), (TargetState.STOPPED, "PAUSED")],
)
def test_readers_that_know_no_stop_see_a_pause(state: TargetState, old: str) -> None:
    fields = json.loads(encode_target(Target(state, "ann", 7)))
    assert list(fields.items())[:2] == [("state", old), ("state.v2", state.value)]
    assert decode_target(encode_target(Target(state, "ann", 7)), 12) == Target(state, "ann", 7, 12)


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (b'{"state":"PAUSED"}', TargetState.PAUSED),  # before Kafka 3.5
        (b'{"state":"PAUSED","state.v2":"STOPPED"}', TargetState.STOPPED),
        (b'{"state":"PAUSED","state.v2":7}', TargetState.PAUSED),
        (b'{"state":"PAUSED","by":["x"],"at_ms":"y"}', TargetState.PAUSED),
    ],
)
def test_target_states_are_read_as_connect_reads_them(value: bytes, state: TargetState) -> None:
    assert decode_target(value, 3) == Target(state, offset=3)


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"{}", b'{"state":"LOST"}', b'{"state":["PAUSED"]}'])
def test_an_unreadable_target_state_is_noted_and_the_one_before_counts(value: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_target(value, 0)
    records = ConfigRecords("mm2-configs.A.internal")
    records.take(target_key(SOURCE), encode_target(Target(TargetState.STOPPED)), 0)
    records.take(target_key(SOURCE), value, 1)
    assert records.target_of(SOURCE).state is TargetState.STOPPED
    assert len(records.malformed) == 1


def test_who_asked_is_cut_and_steers_no_terminal() -> None:
    value = json.dumps({"state": "PAUSED", "by": "\x1b[2J" + "a" * 500}).encode()
    assert decode_target(value, 0).by == "[2J" + "a" * (BY_MOST - 4)


def test_a_deleted_target_state_means_running() -> None:
    records = ConfigRecords("mm2-configs.A.internal")
    records.take(target_key(SOURCE), encode_target(Target(TargetState.PAUSED)), 0)
    records.take(target_key(SOURCE), None, 1)
    assert records.target_of(SOURCE).state is TargetState.STARTED
