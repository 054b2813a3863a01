"""What Spark has kept becomes batches at source offsets, which cover the range without a break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="Run `make venv-spark`.")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from mm2py.backfill.frames.rows import BadRow  # noqa: E402
from mm2py.backfill.pipeline.kept_batches import (  # noqa: E402
    LENGTH_MOST,
    OutOfOrder,
    batches_of_rows,
    empty_batches,
)
from mm2py.records.batch import crc_is_right, read_header, read_records  # noqa: E402

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows_of(records: Sequence[dict[str, Any]], *, topic: str = "t", partition: int = 3) -> Any:
    columns = {
        "topic": pa.array([topic] * len(records)),
        "partition": pa.array([partition] * len(records), pa.int32()),
        "offset": pa.array([one["offset"] for one in records], pa.int64()),
        "timestamp": pa.array([one.get("us") for one in records], pa.timestamp("us", tz="UTC")),
        "key": pa.array([one.get("key") for one in records], pa.binary()),
        "value": pa.array([one.get("value") for one in records], pa.binary()),
        "headers": pa.array([one.get("headers", []) for one in records], HEADERS),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_offsets_timestamps_headers_and_nulls_are_kept_and_holes_stay_holes() -> None:
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    rows = rows_of(
        [
            {"offset": 5, "us": 7_000, "key": b"k", "value": b"v", "headers": headers},
            {"offset": 6, "us": 6_000, "value": b""},
            {"offset": 9, "us": 1_000, "key": b"", "headers": None},
        ]
    )
    (batch,) = batches_of_rows(rows, "t", 3, -1)
    header = read_header(batch.data)
    assert (batch.base_offset, batch.next_offset) == (header.base_offset, header.next_offset) == (5, 10)
    assert (header.record_count, header.max_timestamp_ms) == (3, 7)
    found = [(one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in read_records(batch.data)]
    assert found == [
        (5, 7, b"k", b"v", [("a", b"1"), ("a", None)]),
        (6, 6, None, b"", []),
        (9, 1, b"", None, []),
    ]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5_000_000_000), st.one_of(st.none(), st.integers(-5_000, 2**50)), st.binary(max_size=9)
        ),
        min_size=1,
        max_size=30,
    )
)
def test_any_rows_come_back_as_they_were(rows: list[tuple[int, int | None, bytes]]) -> None:
    offset, records = 0, []
    for step, timestamp_ms, value in rows:
        offset += step
        records.append({"offset": offset, "us": None if timestamp_ms is None else timestamp_ms * 1000, "value": value})
    found, behind = [], -1
    for batch in batches_of_rows(rows_of(records), "t", 3, -1):
        assert crc_is_right(batch.data) and batch.base_offset >= behind
        behind = batch.next_offset
        found += read_records(batch.data)
    assert behind == offset + 1
    told = [(one.offset, one.timestamp_ms, one.value) for one in found]
    assert told == [(one["offset"], -1 if one["us"] is None else one["us"] // 1000, one["value"]) for one in records]


def test_rows_of_another_partition_or_in_another_order_are_refused() -> None:
    one = {"offset": 5, "value": b"v"}
    with pytest.raises(OutOfOrder, match="came to the task of t-4"):
        list(batches_of_rows(rows_of([one]), "t", 4, -1))
    with pytest.raises(OutOfOrder, match="Offset 5 of t-3 came behind offset 5"):
        list(batches_of_rows(rows_of([one]), "t", 3, 6))
    with pytest.raises(OutOfOrder, match="Offset 5 of t-3 came behind offset 5"):
        list(batches_of_rows(rows_of([one, one]), "t", 3, 5))
    with pytest.raises(BadRow, match="A header has no key"):
        list(batches_of_rows(rows_of([{**one, "headers": [{"key": None, "value": b"x"}]}]), "t", 3, -1))


@pytest.mark.parametrize("end", [7, 8, 7 + LENGTH_MOST, 8 + LENGTH_MOST])
def test_batches_without_records_cover_what_was_left_out(end: int) -> None:
    behind = 7
    for batch in empty_batches(7, end):
        header = read_header(batch.data)
        assert crc_is_right(batch.data) and header.record_count == 0
        assert (behind, header.next_offset) == (header.base_offset, batch.next_offset)
        behind = batch.next_offset
    assert behind == end
