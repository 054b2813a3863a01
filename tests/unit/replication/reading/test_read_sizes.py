"""How much a read asks for: so that what is merged becomes few large batches."""

from __future__ import annotations

import pytest

from mm2py.records.batch import NewRecord, build_batch, place
from mm2py.replication.planning.planner import plan
from mm2py.replication.planning.steps import MERGE_ALL, TargetRules, bytes_of_one
from mm2py.replication.reading.read_sizes import partition_bytes

MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("merged", "asked"),
    [
        (None, MEBIBYTE),
        (880_000, 880_000),
        (400_000, 800_000),
        (10_000, 1_040_000),
        (2 * MEBIBYTE, MEBIBYTE),
    ],
)
def test_a_read_brings_whole_merged_batches_and_is_never_much_smaller_than_the_setting(
    merged: int | None, asked: int
) -> None:
    """A remote topic may take batches of 10 KB at most: reads of that size would take ages."""
    assert partition_bytes(MEBIBYTE, merged, waits=False, is_far=False) == asked


def test_a_far_read_brings_no_more_than_shows_how_large_records_are() -> None:
    assert partition_bytes(MEBIBYTE, 880_000, waits=False, is_far=True) == 256 << 10


@pytest.mark.parametrize(("records", "size"), [(16, 1_000), (1, 200), (3, 20)])
def test_what_is_asked_for_becomes_one_batch(records: int, size: int) -> None:
    rules, read, offset = TargetRules(max_message_bytes=1_048_588), bytearray(), 0
    one = build_batch([NewRecord(None, b"x" * size, 1_700_000_000_000)] * records)
    asked = bytes_of_one(rules, len(one) / records)
    while len(read) + len(one) <= asked:
        place(one, offset, offset + records)
        read += one
        offset += records
    planned = plan(
        memoryview(read),
        wanted_offset=0,
        read_committed=False,
        aborted=(),
        rules=rules,
        merging=MERGE_ALL,
    )
    assert [step.next_offset for step in planned.steps] == [offset]
    assert asked > 600_000
