"""Bodies of Connect's offset endpoints: what is shown, taken and refused."""

from __future__ import annotations

from typing import Any

import pytest

from mm2py.connector_offsets.offsets_body import OffsetsInvalid, body_of, read_offsets
from mm2py.flow import ClusterAlias, Kind
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition

A = ClusterAlias("A")
ORDERS = {"cluster": "A", "topic": "orders", "partition": 0}


def body(partition: object, offset: object) -> dict[str, Any]:
    return {"offsets": [{"partition": partition, "offset": offset}]}


def test_stored_positions_are_shown_as_the_last_copied_offsets() -> None:
    positions = {
        ("orders", 1): StoredPosition(8),
        ("orders", 0): StoredPosition(1),
        ("empty", 0): StoredPosition(0),
        ("deleted", 0): StoredPosition(0, by=BY_OPERATOR, recopy=True),
    }
    assert body_of(positions, A) == {
        "offsets": [
            {"partition": {"cluster": "A", "partition": 0, "topic": "orders"}, "offset": {"offset": 0}},
            {"partition": {"cluster": "A", "partition": 1, "topic": "orders"}, "offset": {"offset": 7}},
        ]
    }


def test_what_is_shown_can_be_set_again() -> None:
    shown = body_of({("orders", 1): StoredPosition(8)}, A)
    assert read_offsets(shown, Kind.SOURCE, A) == {("orders", 1): 7}


def test_of_two_entries_for_a_partition_the_last_one_counts_and_further_keys_are_ignored() -> None:
    entries = [{"partition": {**ORDERS, "more": 1}, "offset": {"offset": at, "more": 2}} for at in (3, 4)]
    assert read_offsets({"offsets": entries}, Kind.SOURCE, A) == {("orders", 0): 4}


@pytest.mark.parametrize("partition", [{}, {"cluster": 7}, {**ORDERS, "partition": "0"}, {**ORDERS, "cluster": "C"}])
def test_a_null_offset_is_accepted_for_any_partition(partition: dict[str, Any]) -> None:
    assert read_offsets(body(partition, None), Kind.SOURCE, A) == {}
    assert read_offsets(body(ORDERS, None), Kind.SOURCE, A) == {("orders", 0): None}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (None, "need to be provided"),
        ([], "need to be provided"),
        ({}, "need to be provided"),
        ({"offsets": []}, "need to be provided"),
        ({"offsets": {}}, "need to be provided"),
        ({"offsets": [7]}, "has to be an object"),
        (body(None, {"offset": 1}), "may not be null"),
        (body(None, None), "may not be null"),
        (body({"cluster": "A", "partition": 0}, {"offset": 1}), "missing required key 'topic'"),
        (body({**ORDERS, "topic": 7}, {"offset": 1}), "'topic', which must be a string"),
        (body({**ORDERS, "cluster": "C"}, {"offset": 1}), "'cluster', which must be A"),
        (body({**ORDERS, "partition": "0"}, {"offset": 1}), "'partition', which must be an integer"),
        (body({**ORDERS, "partition": True}, {"offset": 1}), "'partition', which must be an integer"),
        (body({**ORDERS, "partition": -1}, {"offset": 1}), "'partition', which must not be negative"),
        (body({**ORDERS, "partition": 1 << 31}, {"offset": 1}), "nor larger than 2147483647"),
        (body(ORDERS, {}), "missing required key 'offset'"),
        (body(ORDERS, 7), "missing required key 'offset'"),
        (body(ORDERS, {"offset": "7"}), "must be an integer"),
        (body(ORDERS, {"offset": 1.0}), "must be an integer"),
        (body(ORDERS, {"offset": None}), "must be an integer"),
        (body(ORDERS, {"offset": -1}), "must not be negative"),
        (body(ORDERS, {"offset": 1 << 63}), "beyond what a log can hold"),
        (body({**ORDERS, "topic": "x" * 100_000, "partition": -1}, {"offset": 1}), "must not be negative"),
    ],
)
def test_what_cannot_be_an_offset_of_a_source_connector_is_refused(wrong: object, says: str) -> None:
    """B39."""
    with pytest.raises(OffsetsInvalid, match=says) as refusal:
        read_offsets(wrong, Kind.SOURCE, A)
    assert len(str(refusal.value)) < 1_000


def test_checkpoints_and_heartbeats_take_offset_0_of_their_own_partitions_only() -> None:
    checkpoint = {"group": "g", "topic": "orders", "partition": 0}
    heartbeat = {"sourceClusterAlias": "A", "targetClusterAlias": "B"}
    for kind, partition in ((Kind.CHECKPOINT, checkpoint), (Kind.HEARTBEAT, heartbeat)):
        assert read_offsets(body(partition, {"offset": 0}), kind, A) == {}
        assert read_offsets(body(partition, None), kind, A) == {}
        for wrong in (body(partition, {"offset": 1}), body(ORDERS, {"offset": 0})):
            with pytest.raises(OffsetsInvalid):
                read_offsets(wrong, kind, A)


def test_a_refusal_names_entry_key_and_type_and_repeats_nothing_of_what_was_sent() -> None:
    """B39, S05: a secret may be sent by mistake, and a message goes to logs of clients."""
    good = {"partition": ORDERS, "offset": {"offset": 1}}
    for partition, offset, told in (
        (
            {**ORDERS, "topic": ["canary"]},
            {"offset": 1},
            "of entry 2 has an invalid value for key 'topic', which must be",
        ),
        ({**ORDERS, "partition": "canary"}, {"offset": 1}, "which must be an integer, and is a string"),
        ({"canary": "canary"}, {"offset": 1}, "of entry 2 is missing required key 'cluster'"),
        (ORDERS, "canary", "Source offset of entry 2 is missing required key 'offset': it is a string"),
        (ORDERS, {"offset": "canary"}, "which must be an integer, and is a string"),
        ({**ORDERS, "cluster": "canary"}, {"offset": 1}, "'cluster', which must be A"),
    ):
        with pytest.raises(OffsetsInvalid) as refusal:
            read_offsets({"offsets": [good, {"partition": partition, "offset": offset}]}, Kind.SOURCE, A)
        assert told in str(refusal.value) and "canary" not in str(refusal.value)
