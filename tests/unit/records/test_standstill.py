"""What workers store of topics that they do not copy: read again as it was written, whatever it holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.records.gap_record import MalformedGapRecord, decode, encode_value
from mm2py.records.standstill import CAUSES_MOST, TEXT_MOST, Cause, Standstill, standstill_of

texts = st.text(max_size=40)
causes = st.builds(Cause, texts, texts, texts, st.integers(0, 2**53), st.from_regex(r"[0-9,-]{0,20}", fullmatch=True))
ONE = Standstill("0a", "orders", (Cause("source-denied", "It may not be read.", "Grant READ.", 7, "0-3"),))


@given(
    st.builds(Standstill, st.from_regex(r"[0-9a-f]{8}", fullmatch=True), texts, st.lists(causes, max_size=5).map(tuple))
)
def test_a_standstill_is_read_as_it_was_written(one: Standstill) -> None:
    assert decode(one.key, encode_value(one)) == one


def test_what_is_too_much_is_cut() -> None:
    many = standstill_of("0a", "orders", [Cause("stalled", "x" * 5000, "y" * 5000, at) for at in range(100)])
    read = decode(many.key, encode_value(many))
    assert isinstance(read, Standstill)
    assert read == many, "else it would be written again every second"
    assert len(read.causes) == CAUSES_MOST
    assert {len(text) for cause in read.causes for text in (cause.why, cause.remedy)} == {TEXT_MOST}


@pytest.mark.parametrize(
    "broken",
    [
        {"causes": None},
        {"causes": [1]},
        {"causes": [{}]},
        {"member": 1},
        {"topic": None},
        {"causes": [{"reason": "x", "why": "", "remedy": "", "since_ms": True, "partitions": ""}]},
        {"mm2py": 99},
    ],
)
def test_a_record_of_another_shape_is_reported_and_not_believed(broken: dict[str, object]) -> None:
    fields = json.loads(encode_value(ONE)) | broken
    with pytest.raises(MalformedGapRecord):
        decode(ONE.key, json.dumps(fields).encode())


def test_a_record_under_the_key_of_another_worker_is_not_believed() -> None:
    with pytest.raises(MalformedGapRecord):
        decode(Standstill("0b", "orders", ()).key, encode_value(ONE))
