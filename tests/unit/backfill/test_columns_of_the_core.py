"""The compiled core takes batches apart into the records that the pure modules read from them."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.compiled_core import CHOICE
from mm2py.errors import Mm2Error
from mm2py.records.batch import CODEC_MASK, HEADER_BYTES, NewRecord, build_batch, crc_is_right, read_records
from tests.fuzz.reads import damaged, read_of
from tests.unit.replication.planning.test_repack import ROWS, Row, batch_of

if CHOICE.core is None:
    pytest.skip(str(CHOICE), allow_module_level=True)
CORE = CHOICE.core


def by_python(batch: bytes) -> tuple[Sequence[object], ...] | None:
    """Return what ``Core.columns`` does, with ``read_records``; None if that refuses the batch."""
    try:
        found = list(read_records(batch))
    except (Mm2Error, UnicodeError):
        return None
    return (
        [one.timestamp_ms for one in found],
        [one.key for one in found],
        [one.value for one in found],
        [tuple(map(tuple, one.headers)) for one in found],
    )


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_every_plain_batch_that_a_writer_writes_is_taken_apart(parts: list[list[Row]]) -> None:
    batches = [batch_of(rows, 40) for rows in parts]
    found = CORE.columns(batches)
    assert found is not None
    each = [one for batch in batches if (one := by_python(batch)) is not None]
    assert [*map(list, found)] == [[*chain.from_iterable(column)] for column in zip(*each, strict=True)]


@pytest.mark.parametrize("part", range(3))
def test_what_is_damaged_is_taken_apart_as_python_does_or_left_to_it(part: int) -> None:
    taken = 0
    for seed in range(part * 60, part * 60 + 60):
        read = read_of(seed)
        for one in (read, *(damaged(read, f"{seed} {number}") for number in range(20))):
            for batch in one.batches:
                if len(batch) < HEADER_BYTES or batch[22] & CODEC_MASK or not crc_is_right(batch):
                    continue
                found = CORE.columns([batch])
                if found is not None:
                    taken += 1
                    assert tuple(map(list, found)) == by_python(batch), batch.hex()
    assert taken > 1_000


@pytest.mark.parametrize("count", [2, 1_000, 2**31 - 1])
def test_a_record_count_that_cannot_be_true_costs_no_memory(count: int) -> None:
    batch = build_batch([NewRecord(b"k", b"v", 1)])
    struct.pack_into(">i", batch, 57, count)
    tracemalloc.start()
    assert CORE.columns([batch]) is None
    assert tracemalloc.get_traced_memory()[1] < 10_000
    tracemalloc.stop()
