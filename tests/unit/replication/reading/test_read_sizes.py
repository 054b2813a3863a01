"""How much a read asks for: so that what is merged becomes few large batches."""

from __future__ import annotations

import pytest

from mm2py.records.batch import NewRecord, build_batch, place, read_header
from mm2py.replication.planning.planner import plan
from mm2py.replication.planning.steps import MERGE_ALL, Plan, TargetRules, bytes_of_one
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
def test_the_second_read_asks_for_what_becomes_whole_merged_batches(records: int, size: int) -> None:
    """The story: four mebibytes became four batches, and one of 33 KB. It costs its broker as much as a large one."""
    rules, one = TargetRules(max_message_bytes=1_048_588), plain_batch(records, size)
    first = read(one, bytes_of_one((), rules, len(one) / records), rules)
    assert len(first.steps) == 1, "what was asked for by the size of its records alone"
    first = read(one, 4 * MEBIBYTE, rules)
    asked = bytes_of_one(first.steps, rules, len(one) / records)
    for count in (1, 4):
        assert [step.next_offset for step in read(one, count * asked, rules).steps] == [
            step.next_offset for step in first.steps[:count]
        ]
    assert asked > 600_000


def plain_batch(records: int, size: int) -> bytearray:
    return build_batch([NewRecord(None, b"x" * size, 1_700_000_000_000)] * records)


def read(one: bytearray, most: int, rules: TargetRules) -> Plan:
    """Return the plan for a read of at most so many bytes of a log of equal batches; the last one is cut."""
    count = read_header(one).record_count
    log = bytearray()
    for offset in range(0, -(-most // len(one)) * count, count):
        place(one, offset, offset + count)
        log += one
    return plan(
        memoryview(log)[:most],
        wanted_offset=0,
        read_committed=False,
        aborted=(),
        rules=rules,
        merging=MERGE_ALL,
    )
