"""A record comes out of quarantine as it went in, and says where it came from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.records.batch import NewRecord, build_batch, read_records
from mm2py.records.quarantined import (
    KEY_HEADER,
    PROVENANCE_HEADER,
    REPLAYED_HEADER,
    NotQuarantined,
    Provenance,
    QuarantineEntry,
    RecordOrigin,
    Replayed,
    decode,
    encode_quarantined,
    encode_replayed,
)

ORIGIN = RecordOrigin("orders", 3, 17, "5ed1b2a4-0000-4000-8000-000000000001")
PROVENANCE = Provenance("A->B", "cluster-a", ORIGIN, 1_000, 32, "Timestamp 9 is out of range", 1_700_000_000_000)

contents = st.none() | st.binary(max_size=40)
header_names = st.sampled_from([PROVENANCE_HEADER, KEY_HEADER, REPLAYED_HEADER, "", "h"]) | st.binary(max_size=8).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)
source_records = st.builds(
    NewRecord,
    key=contents,
    value=contents,
    timestamp_ms=st.integers(-1, 2**61),
    headers=st.lists(st.tuples(header_names, contents), max_size=5).map(tuple),
)
origins = st.builds(
    RecordOrigin,
    st.text(max_size=20),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.none() | st.text(max_size=36),
)


@given(record=source_records, origin=origins, cluster=st.none() | st.text(max_size=10), text=st.text(max_size=50))
def test_a_record_comes_back_as_it_was_whatever_its_bytes_and_headers(
    record: NewRecord, origin: RecordOrigin, cluster: str | None, text: str
) -> None:
    provenance = replace(
        PROVENANCE, origin=origin, source_cluster=cluster, error_text=text, timestamp_ms=record.timestamp_ms
    )
    kept = QuarantineEntry(provenance, record)
    (stored,) = read_records(build_batch([encode_quarantined(kept)]))
    assert decode(stored) == kept


def test_the_value_stays_what_it_was_and_the_provenance_can_be_read_by_anyone() -> None:
    written = encode_quarantined(QuarantineEntry(PROVENANCE, NewRecord(b"k", b"v", 1_000, (("h", b"1"), ("h", b"2")))))
    assert (written.key, written.value, written.timestamp_ms) == (b'["orders",3,17]', b"v", 1_700_000_000_000)
    (first, provenance), *rest = written.headers
    assert first == PROVENANCE_HEADER
    assert json.loads(provenance or b"") == {
        "mm2py": 1,
        "flow": "A->B",
        "source_cluster": "cluster-a",
        "topic": "orders",
        "partition": 3,
        "offset": 17,
        "topic_id": "5ed1b2a4-0000-4000-8000-000000000001",
        "timestamp_ms": 1_000,
        "error_code": 32,
        "error_text": "Timestamp 9 is out of range",
        "quarantined_at_ms": 1_700_000_000_000,
    }
    assert rest == [(KEY_HEADER, b"k"), ("h", b"1"), ("h", b"2")]


def test_a_mark_has_the_key_of_the_record_that_was_replayed() -> None:
    mark = Replayed(ORIGIN, "A.orders", 5)
    written = encode_replayed(mark)
    kept = encode_quarantined(QuarantineEntry(PROVENANCE, NewRecord(None, None, 1_000)))
    assert written.key == kept.key
    assert decode(written) == mark


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([], "first header"),
        ([("h", b"")], "first header"),
        ([(PROVENANCE_HEADER, None)], "provenance cannot be read"),
        ([(PROVENANCE_HEADER, b"[]")], "provenance cannot be read"),
        ([(PROVENANCE_HEADER, b'{"mm2py":2}')], "layout 2"),
        ([(PROVENANCE_HEADER, b'{"mm2py":1,"topic":"t","partition":true,"offset":1}')], "partition is no int"),
        ([(REPLAYED_HEADER, b'{"mm2py":1,"topic":"t","partition":0,"offset":1}')], "provenance cannot be read"),
        (encode_quarantined(QuarantineEntry(PROVENANCE, NewRecord(b"", b"", 0))).headers[:1], "second header"),
    ],
)
def test_a_foreign_record_is_not_taken_for_a_record_in_quarantine(
    headers: list[tuple[str, bytes | None]], why: str
) -> None:
    with pytest.raises(NotQuarantined, match=why):
        decode(NewRecord(b"k", b"v", 0, headers))
