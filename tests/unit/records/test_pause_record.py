"""What operators have paused of a flow, as records of its configs topic."""

from __future__ import annotations

import json

import pytest

from mm2py.records.author import Author
from mm2py.records.connector_config import ConfigRecords
from mm2py.records.operator_request import MalformedRequest
from mm2py.records.pause_record import (
    PausedAsAWhole,
    Pauses,
    TopicPause,
    decode_pause,
    encode_pause,
    parts_to_resume,
    pause_key,
    paused_part,
)

ANN = Author("ann", "host", "ticket 4711")
ORDERS = TopicPause("orders", None, "ann on host (mm2py pause)", 1_000, ANN)
PART = TopicPause("bills", 3, "ann on host (mm2py pause)", 2_000, ANN)


@pytest.mark.parametrize("pause", [ORDERS, PART, TopicPause("a.b_c-d", 0)])
def test_a_record_is_read_as_it_was_written(pause: TopicPause) -> None:
    assert decode_pause(pause_key(*pause.part), encode_pause(pause, "1.0")) == pause
    assert paused_part(pause_key(*pause.part)) == pause.part


def test_records_have_these_bytes() -> None:
    """Others may read them: change them only with another format."""
    assert pause_key("bills", 3) == b"mm2py-paused-bills/3"
    assert json.loads(encode_pause(PART, "1.0")) == {
        "format": 1,
        "readable_from": 1,
        "mm2py": "1.0",
        "by": "ann on host (mm2py pause)",
        "at_ms": 2_000,
        "user": "ann",
        "host": "host",
        "reason": "ticket 4711",
    }


@pytest.mark.parametrize("key", [b"mm2py-paused-", b"mm2py-paused-t/", b"mm2py-paused-t/x", b"mm2py-paused-t/-1"])
def test_other_keys_are_malformed(key: bytes) -> None:
    with pytest.raises(MalformedRequest):
        paused_part(key)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"readable_from":true}', b'{"readable_from":"1"}'])
def test_other_values_are_malformed(value: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode_pause(b"mm2py-paused-orders", value)


def test_what_a_newer_mm2py_has_paused_in_another_way_is_paused_here_too() -> None:
    value = json.dumps({"readable_from": 2, "mm2py": "9.1", "by": {"new": "shape"}}).encode()
    found = decode_pause(b"mm2py-paused-orders/3", value)
    assert found.part == ("orders", 3)
    assert "mm2py 9.1" in found.who_and_why


def test_a_topic_is_paused_with_all_its_partitions_and_a_partition_alone() -> None:
    pauses = Pauses.of([ORDERS, PART])
    assert [pauses.find("orders", number) for number in (0, 99)] == [ORDERS, ORDERS]
    assert [pauses.find("bills", number) for number in (2, 3)] == [None, PART]
    assert pauses.all() == [PART, ORDERS]


def test_records_are_kept_until_they_are_deleted_and_a_malformed_one_changes_nothing() -> None:
    records = ConfigRecords("configs")
    for offset, pause in enumerate([ORDERS, PART]):
        records.take(pause_key(*pause.part), encode_pause(pause, "1.0"), offset)
    assert records.pauses == Pauses.of([ORDERS, PART])
    records.take(pause_key(*ORDERS.part), b"no JSON", 2)
    assert records.pauses == Pauses.of([ORDERS, PART])
    assert len(records.malformed) == 1
    records.take(pause_key(*ORDERS.part), None, 3)
    assert records.pauses == Pauses.of([PART])
    assert records.requests == 3


def test_a_topic_is_resumed_with_its_partitions() -> None:
    pauses = Pauses.of([ORDERS, TopicPause("orders", 1), PART])
    assert parts_to_resume(pauses, [("orders", None)]) == [("orders", None), ("orders", 1)]
    assert parts_to_resume(pauses, [("bills", 3), ("bills", 4)]) == [("bills", 3)]
    assert parts_to_resume(pauses, [("none", None)]) == []


def test_one_partition_of_a_paused_topic_is_not_resumed_alone() -> None:
    pauses = Pauses.of([ORDERS, TopicPause("orders", 1)])
    with pytest.raises(PausedAsAWhole, match="orders-1 cannot be resumed alone"):
        parts_to_resume(pauses, [("orders", 1)])
    assert parts_to_resume(pauses, [("orders", 1), ("orders", None)]) == [("orders", None), ("orders", 1)]
