"""The record of a backfill survives its own codec, and nothing else passes for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.records.backfill_record import (
    Backfill,
    BackfillState,
    Holds,
    Range,
    backfill_key,
    decode_backfill,
    encode_backfill,
    process_of,
)
from mm2py.records.connector_config import ConfigRecords
from mm2py.records.operator_request import MalformedRequest

NUMBERS = st.integers(0, 2**62)
BACKFILLS = st.builds(
    Backfill,
    st.integers(0, 2**32 - 1).map(lambda bits: f"{bits:08x}"),
    st.dictionaries(st.text(), st.dictionaries(st.integers(0, 99), st.builds(Range, NUMBERS, NUMBERS))),
    st.lists(st.lists(st.tuples(st.text(), st.integers(0, 99))).map(tuple)).map(tuple),
    st.sampled_from(BackfillState),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.text(),
    st.text(),
    st.text(),
    st.text(),
)
ONE = Backfill("0badcafe", {"t": {0: Range(3, 9)}}, ((("t", 0),),))


@given(BACKFILLS)
def test_what_is_written_is_read(backfill: Backfill) -> None:
    assert decode_backfill(backfill_key(backfill.id), encode_backfill(backfill)) == backfill


@pytest.mark.parametrize(
    "change",
    [
        {"topics": []},
        {"topics": {"t": [[0, -1, 2]]}},
        {"topics": {"t": [[0, 1]]}},
        {"topics": {"t": 1}},
        {"state": "begun"},
        {"run": True},
        {"by": None},
        {"where": None},
        {"tasks": [[["t"]]]},
        {"tasks": None},
    ],
)
def test_a_record_of_another_shape_is_none(change: dict[str, object]) -> None:
    value = json.dumps({**json.loads(encode_backfill(ONE)), **change}).encode()
    with pytest.raises(MalformedRequest):
        decode_backfill(backfill_key(ONE.id), value)
    records = ConfigRecords("mm2-configs.A.internal")
    records.take(backfill_key(ONE.id), value, 7)
    assert not records.backfills
    assert "at offset 7" in records.malformed[0]


@pytest.mark.parametrize("name", ["", "0BADCAFE", "0badcaf", "0badcafe0", "x" * 300])
def test_a_key_that_names_no_backfill_is_refused(name: str) -> None:
    with pytest.raises(MalformedRequest):
        decode_backfill(backfill_key(name), encode_backfill(ONE))


def test_the_live_flow_waits_with_topics_of_backfills_that_copy() -> None:
    done = Backfill("11111111", {"done": {}}, (), state=BackfillState.DONE)
    holds = Holds.of([ONE, done])
    assert holds.topics == {"t": "0badcafe"}
    assert holds.is_of_backfill(process_of("0badcafe", 300))
    assert not holds.is_of_backfill(process_of("11111111", 0))


def test_a_backfill_that_was_deleted_is_forgotten() -> None:
    records = ConfigRecords("mm2-configs.A.internal")
    records.take(backfill_key(ONE.id), encode_backfill(ONE), 0)
    assert records.backfills == {ONE.id: ONE}
    records.take(backfill_key(ONE.id), None, 1)
    assert not records.backfills
