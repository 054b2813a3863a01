"""The record of a fence comes back as it was written; what cannot be read is never guessed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mm2py.dr.fence.record import (
    FenceBinding,
    FencedKind,
    FenceRecord,
    FenceState,
    FenceTooNew,
    FenceUnreadable,
    FenceWay,
    counting,
    decode_fence,
    encode_fence,
)
from mm2py.records.author import Author

RECORD = FenceRecord(
    flow="A->B",
    serial=4,
    mark="0123",
    state=FenceState.RAISING,
    way=FenceWay.ACLS,
    topics=("bills", "orders"),
    bindings=(
        FenceBinding(FencedKind.TOPIC, "bills", "User:CN=Jane, OU=x"),
        FenceBinding(FencedKind.TOPIC, "orders", "User:a"),
        FenceBinding(FencedKind.TOPIC, "orders", "User:b"),
        FenceBinding(FencedKind.TRANSACTIONAL_ID, "tx", "User:a"),
    ),
    sizes={"orders": None, "bills": "7"},
    hook="close-port",
    at_ms=1_764_000_000_000,
    by="ann on host (mm2py dr fence)",
    author=Author("ann", "host", "ticket 4711"),
)


def test_a_record_comes_back_as_it_was_written() -> None:
    assert decode_fence(encode_fence(RECORD)) == RECORD


def test_a_record_of_a_newer_mm2py_is_not_acted_on() -> None:
    newer = json.dumps({**json.loads(encode_fence(RECORD)), "readable_from": 2, "mm2py": "9.0"}).encode()
    with pytest.raises(FenceTooNew, match="mm2py 9"):
        decode_fence(newer)


@pytest.mark.parametrize("lost", ["serial", "state", "bindings", "sizes", "readable_from"])
def test_a_record_that_lacks_something_is_refused(lost: str) -> None:
    fields = json.loads(encode_fence(RECORD))
    del fields[lost]
    for value in (json.dumps(fields).encode(), b"no json", b"[]"):
        with pytest.raises(FenceUnreadable, match="cannot be read"):
            decode_fence(value)


def test_the_record_with_the_higher_serial_counts_and_the_first_of_two() -> None:
    second = replace(RECORD, mark="other")
    assert counting([RECORD, second]) == RECORD
    assert counting([RECORD, replace(second, serial=5), RECORD]) == replace(second, serial=5)
    assert counting([]) is None
