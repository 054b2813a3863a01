"""What operators ask of connectors, in Connect's bytes and ours."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mm2py.records.author import Author
from mm2py.records.connector_config import ConfigRecords
from mm2py.records.operator_request import (
    BY_MOST,
    LOG_LEVEL,
    RESTART_CONNECTOR,
    RESTART_PARTITIONS,
    MalformedRequest,
    Restart,
    RestartConnector,
    RestartPartitions,
    Target,
    TargetState,
    decode_restart,
    decode_target,
    encode_log_level,
    encode_restart,
    encode_target,
    target_key,
)

SOURCE = "MirrorSourceConnector"
ANN = Author("ann", "vm", "maintenance")


@pytest.mark.parametrize(
    ("state", "old"),
    [(TargetState.STARTED, "STARTED"), (TargetState.PAUSED, "PAUSED"), (TargetState.STOPPED, "PAUSED")],
)
def test_readers_that_know_no_stop_see_a_pause(state: TargetState, old: str) -> None:
    fields = json.loads(encode_target(Target(state, "ann", 7)))
    assert list(fields.items())[:2] == [("state", old), ("state.v2", state.value)]
    assert decode_target(encode_target(Target(state, "ann", 7)), 12) == Target(state, "ann", 7, 12)
    asked = Target(state, ANN.by_rest, 7, 12, ANN)
    assert decode_target(encode_target(asked), 12) == asked
    assert asked.text == f"{asked.word} by ann over REST on worker vm: maintenance"


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


@pytest.mark.parametrize(
    "restart",
    [
        RestartConnector(SOURCE),
        RestartConnector(SOURCE, only_failed=True),
        RestartPartitions("orders"),
        RestartPartitions("orders", 0),
    ],
)
def test_a_restart_that_was_written_is_read_again(restart: Restart) -> None:
    key, value = encode_restart(replace(restart, by="ann", author=ANN), request_id="7", at_ms=1)
    found = decode_restart(key, value)
    assert found == restart and (found.by, found.author) == ("ann", ANN)


def test_connectors_restart_by_connects_record() -> None:
    key, value = encode_restart(RestartConnector(SOURCE, by="ann"), request_id="7", at_ms=1)
    assert key == b"restart-connector-MirrorSourceConnector"
    assert list(json.loads(value).items())[:2] == [("include-tasks", True), ("only-failed", False)]
    assert decode_restart(key, b"{}") == RestartConnector(SOURCE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (RESTART_CONNECTOR + b"x", b"no JSON"),
        (RESTART_PARTITIONS, b"{}"),
        (RESTART_PARTITIONS, b'{"readable_from":2,"topic":"a"}'),
        (RESTART_PARTITIONS, b'{"readable_from":1,"topic":7}'),
        (RESTART_PARTITIONS, b'{"readable_from":1,"topic":"a","partition":-1}'),
        (RESTART_PARTITIONS, b'{"readable_from":1,"topic":"a","partition":true}'),
    ],
)
def test_unreadable_restarts_are_noted_and_restart_nothing(key: bytes, value: bytes) -> None:
    records = ConfigRecords("mm2-configs.A.internal")
    records.take(key, value, 0)
    records.take(key, None, 1)
    assert (list(records.restarts), len(records.malformed)) == ([], 1)


def test_workers_log_at_a_level_by_connects_record() -> None:
    records = ConfigRecords("mm2-configs.A.internal")
    records.take(LOG_LEVEL, encode_log_level("DEBUG", by="ann", at_ms=1), 0)
    assert LOG_LEVEL == b"logger-cluster-root"
    assert records.log_level == "DEBUG"
    for junk in (b"no JSON", b"[]"):
        records.take(LOG_LEVEL, junk, 1)
    assert (records.log_level, len(records.malformed)) == ("DEBUG", 2)
    records.take(LOG_LEVEL, b'{"level":7}', 3)
    assert records.log_level is None
