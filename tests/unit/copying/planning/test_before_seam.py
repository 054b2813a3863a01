"""Where a backfill ends: behind the last batch that lies before the seam as a whole."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.planning.steps import before_seam
from mm2py.records.batch import NewRecord, build_batch, read_header

LOG = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=8)
"""Batches: how many offsets are missing before each, and how many records it has."""


def log_of(batches: list[tuple[int, int]]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the bytes, and the first and next offset of each batch."""
    data, places, at = b"", [], 0
    for missing, count in batches:
        at += missing
        batch = build_batch([NewRecord(None, b"v", 0)] * count)
        struct.pack_into(">q", batch, 0, at)
        data += batch
        places.append((at, at + count))
        at += count
    return data, places


@given(LOG, st.integers(0, 40))
def test_only_batches_wholly_before_the_seam_are_left(batches: list[tuple[int, int]], seam: int) -> None:
    data, places = log_of(batches)
    kept, behind = before_seam(memoryview(data), seam, 0)
    whole = [next_offset for _, next_offset in places if next_offset <= seam]
    left, position = [], 0
    while position < len(kept):
        header = read_header(kept, position)
        left.append(header.next_offset)
        position += header.size_bytes
    assert left == whole
    assert behind == (max(whole, default=0) if len(whole) < len(places) else None)


def test_a_batch_across_the_seam_ends_the_copy_where_it_was_asked_from() -> None:
    data, _ = log_of([(10, 4)])
    assert before_seam(memoryview(data), 12, 10) == (memoryview(b""), 10)


@given(LOG, st.integers(0, 40), st.data())
def test_a_cut_reply_never_shows_more(batches: list[tuple[int, int]], seam: int, data: st.DataObject) -> None:
    log, _ = log_of(batches)
    cut = log[: data.draw(st.integers(0, len(log)))]
    kept, _ = before_seam(memoryview(cut), seam, 0)
    assert len(kept) <= len(cut)
    if len(kept) == len(cut):
        return
    assert read_header(memoryview(log), len(kept)).next_offset > seam
